"""Solvers with the problems that their tests solve, and what those tests share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from small_networks import chain_problem, words_problem
from small_problems import EnumeratedProblem, partial_problem, random_problem
from torch import Tensor, nn

from structsmooth import (
    BCFW,
    LBFGS,
    SGD,
    Candidates,
    CasimirSVRG,
    Entropy,
    Hamming,
    ModuleProblem,
    ProximalBCFW,
    ProxLinear,
    ScoreModule,
)
from structsmooth.costs import Cost
from structsmooth.problems import Problem, SparseChainProblem
from structsmooth.problems.bounds import Bounds
from structsmooth.solvers import (
    SMO,
    SVRG,
    Adam,
    BatchExponentiatedGradient,
    CoCoA,
    ConvexConcave,
    CuttingPlane,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    History,
    IncrementalProxLinear,
    NSlackCuttingPlane,
    Progress,
    ProximalSDCA,
    Solver,
    State,
)

LAM, LENGTHS, STATES, FEATURES = 0.2, (3, 1, 2, 3, 2), 3, 4
ALL = STATES ** max(LENGTHS)  # outputs, for exact smoothing

# With the suboptimality to reach in 400 passes: what smoothing leaves, or 1/t.
PRIMAL: dict[str, tuple[Solver[Any], float]] = {
    "svrg": (SVRG(mu=0.01, k=ALL), 0.005),
    "svrg, from averages": (SVRG(mu=0.01, k=ALL, restart="average"), 0.005),
    "svrg, entropy": (SVRG(mu=0.004, smoothing="entropy"), 0.01),
    "casimir": (CasimirSVRG(k=ALL), 0.01),
    "casimir, entropy": (CasimirSVRG(smoothing="entropy"), 0.01),
    "casimir, constant": (CasimirSVRG(mu=0.01, k=ALL, schedule="constant"), 0.005),
    "casimir, constant entropy": (CasimirSVRG(mu=0.004, schedule="constant", smoothing="entropy"), 0.01),
    "casimir, prev-iterate": (CasimirSVRG(k=ALL, warm_start="prev-iterate"), 0.01),
    "casimir, extrapolation": (CasimirSVRG(k=ALL, warm_start="extrapolation"), 0.01),
    "casimir, gradient": (CasimirSVRG(k=ALL, inner_stop="gradient"), 0.01),
    "sgd": (SGD(), 0.02),
    "sgd, last": (SGD(average=False), 0.02),
    "sgd, inverse": (SGD(schedule="inverse"), 0.05),
    "sgd, inverse last": (SGD(schedule="inverse", average=False), 0.05),
    "sgd, inverse-sqrt": (SGD(schedule="inverse-sqrt"), 0.05),
    "incremental": (IncrementalProxLinear(), 0.001),
    "incremental, bfloat16": (IncrementalProxLinear(planes="bfloat16"), 0.05),
}
SMOOTHED_ASCENT: dict[str, tuple[Solver[Any], float]] = {
    "proximal-sdca": (ProximalSDCA(k=ALL), 0.01),
    "proximal-sdca, entropy": (ProximalSDCA(smoothing="entropy"), 0.01),
}
BLOCK_PROX_LINEAR = ProxLinear(inner=BCFW())
BLOCKWISE = {
    "bcfw, uniform": BCFW(steps="fw", sampling="uniform", gap_tolerance=0),
    "bcfw, gap": BCFW(steps="fw", gap_tolerance=0),
    "bcfw, gap, refreshed often": BCFW(steps="fw", refresh=2, gap_tolerance=0),
    "bcfw, gap passes": BCFW(steps="fw", refresh=3, gap_passes=True, gap_tolerance=0),
    "bcfw, pairwise": BCFW(steps="pairwise", gap_tolerance=0),
    "bcfw, pairwise, uniform": BCFW(sampling="uniform", steps="pairwise", gap_tolerance=0),
    "bcfw, pairwise, few outputs": BCFW(steps="pairwise", capacity=2, gap_tolerance=0),
    "bcfw, away": BCFW(steps="away", gap_tolerance=0),
    "bcfw, away, few outputs": BCFW(steps="away", capacity=1, gap_tolerance=0),
    "bcfw, best": BCFW(steps="best", gap_tolerance=0),
    "bcfw, best, few outputs, cache": BCFW(steps="best", capacity=2, cache=True, gap_tolerance=0),
    "bcfw, curvature": BCFW(sampling="curvature", gap_tolerance=0),
    "bcfw, cache": BCFW(steps="fw", cache=True, gap_tolerance=0),
    "bcfw, cache, uniform": BCFW(steps="fw", sampling="uniform", cache=True, gap_tolerance=0),
    "bcfw, cache, few outputs": BCFW(steps="fw", cache=True, capacity=2, refresh=3, gap_tolerance=0),
    "bcfw, cache, gap passes": BCFW(cache=True, refresh=3, gap_passes=True, gap_tolerance=0),
    "bcfw, cache, pairwise": BCFW(steps="pairwise", cache=True, gap_tolerance=0),
    "bcfw, cache, pairwise, uniform": BCFW(sampling="uniform", steps="pairwise", cache=True, gap_tolerance=0),
    "bcfw, cache, away": BCFW(steps="away", cache=True, gap_tolerance=0),
    "bcfw, uniform, average": BCFW(steps="fw", sampling="uniform", average=True, gap_tolerance=0),
    "bcfw, gap, average": BCFW(steps="fw", average=True, gap_tolerance=0),
}
PROXIMAL = {
    "proximal-bcfw": ProximalBCFW(gap_tolerance=0),
    "proximal-bcfw, uniform, fw": ProximalBCFW(steps="fw", sampling="uniform", gap_tolerance=0),
    "proximal-bcfw, away, few outputs": ProximalBCFW(steps="away", capacity=1, gap_tolerance=0),
    "proximal-bcfw, cache": ProximalBCFW(cache=True, gap_tolerance=0),
    "proximal-bcfw, last": ProximalBCFW(average=False, gap_tolerance=0),
    "proximal-bcfw, given kappa": ProximalBCFW(kappa=20 * LAM, gap_tolerance=0),
}


def small_problem(seed: int = 2, cost: Cost | None = Hamming()) -> SparseChainProblem:  # noqa: B008 - immutable
    return random_problem(LENGTHS, STATES, FEATURES, cost, seed)


def box(problem: SparseChainProblem) -> Bounds:
    """Positive transitions and ends, one weight fixed, others bounded on one side or both.

    Bounds differ, so that outputs whose weights are all at bounds do not tie.
    """
    lower = torch.full((problem.dim,), -torch.inf, dtype=torch.float64)
    upper = -lower
    others = (problem.states + 2) * problem.states
    lower[-others:] = 0.0007 * torch.arange(1, others + 1)
    lower[1::5], upper[::4] = (
        sign * (least + 0.0011 * torch.arange(len(bound)))
        for sign, least, bound in ((-1, 0.03, lower[1::5]), (1, 0.05, upper[::4]))
    )
    lower[2] = upper[2] = 0.04
    return lower, upper


def bounded_problem(seed: int = 2, lengths: tuple[int, ...] = LENGTHS) -> SparseChainProblem:
    free = random_problem(lengths, STATES, FEATURES, seed=seed)
    return random_problem(lengths, STATES, FEATURES, seed=seed, bounds=box(free))


def crf(seed: int = 2) -> SparseChainProblem:
    """A conditional random field: no hinges."""
    hinge = small_problem(seed, None)
    return SparseChainProblem(hinge.sequences, hinge.labels, hinge.features, hinge.states, None, Entropy(1.0))


def crf_network() -> Problem:
    """The likelihood under a network."""
    return chain_problem(smoother=Entropy(1.0))


class Sines(ScoreModule):
    """Candidates with scores sin⟨x_j, w⟩."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0]).double())

    def forward(self, x: Tensor) -> Candidates:
        return Candidates(torch.sin(x @ self.w))


def sines(n: int = 5, outputs: int = 4) -> ModuleProblem:
    """Scores are sines of inner products with unit vectors."""
    x = torch.randn(n, outputs, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    data = [(rows / rows.norm(dim=1, keepdim=True), torch.tensor(i % outputs)) for i, rows in enumerate(x)]
    return ModuleProblem(Sines(), data, batch_size=1)


@dataclass(frozen=True)
class Case:
    """A solver, a problem that it solves, and passes enough to see what it does."""

    solver: Solver[Any]
    problem: Callable[[], Problem] = small_problem
    passes: int = 25


CASES: dict[str, Case] = {
    "svrg": Case(SVRG()),
    "svrg, from averages": Case(SVRG(restart="average")),
    "svrg, absurd rate": Case(SVRG(learning_rate=1e6)),
    "proximal-sdca": Case(ProximalSDCA(gap_tolerance=0)),
    "casimir": Case(CasimirSVRG()),
    "casimir, absurd rate": Case(CasimirSVRG(learning_rate=1e6)),
    "casimir, gradient": Case(CasimirSVRG(inner_stop="gradient"), passes=40),
    "casimir, gradient, absurd rate": Case(CasimirSVRG(inner_stop="gradient", learning_rate=1e6)),
    "casimir, every evaluation used": Case(CasimirSVRG(warm_start="prev-iterate", schedule="constant")),
    "sgd": Case(SGD()),
    "sgd, absurd rate": Case(SGD(learning_rate=1e6)),
    "adam": Case(Adam(learning_rate=0.1), passes=4),
    "adam, absurd rate": Case(Adam(learning_rate=1e6), passes=4),
    "adam, network": Case(Adam(), chain_problem, 5),
    "adam, network, given rate": Case(Adam(learning_rate=0.1), chain_problem, 5),
    "svrg, network": Case(SVRG(learning_rate=0.1), chain_problem, 5),
    "incremental": Case(IncrementalProxLinear(), passes=10),
    "incremental, absurd rate": Case(IncrementalProxLinear(learning_rate=1e6), passes=10),
    "incremental, network": Case(IncrementalProxLinear(), chain_problem, 10),
    "incremental, float16": Case(IncrementalProxLinear(planes="float16", batch_size=2), chain_problem, 6),
    "incremental, sparse": Case(IncrementalProxLinear(), words_problem, 6),
    "incremental, sparse float16": Case(IncrementalProxLinear(planes="float16", batch_size=1), words_problem, 6),
    "prox-linear": Case(BLOCK_PROX_LINEAR, passes=8),
    "prox-linear, network": Case(BLOCK_PROX_LINEAR, chain_problem, 8),
    "prox-linear, network, gradient": Case(ProxLinear(inner=BCFW(), inner_stop="gradient"), chain_problem, 8),
    "prox-linear, casimir": Case(ProxLinear(inner_passes=2), passes=8),
    "prox-linear, casimir, sines": Case(ProxLinear(inner_passes=2), sines, 8),
    "prox-linear, sines, svrg": Case(
        ProxLinear(learning_rate=1.0, inner=SVRG(), accept="always", inner_passes=2), sines, 8
    ),
    "frank-wolfe": Case(FrankWolfe(gap_tolerance=0), passes=12),
    "lbfgs": Case(LBFGS(gap_tolerance=0), crf, 12),
    "lbfgs, network": Case(LBFGS(), crf_network, 12),
    "cutting-plane": Case(CuttingPlane(gap_tolerance=0), passes=12),
    "cutting-plane, few planes": Case(CuttingPlane(idle=1, gap_tolerance=0), passes=12),
    "n-slack": Case(NSlackCuttingPlane(gap_tolerance=0), passes=8),
    "n-slack, few planes": Case(NSlackCuttingPlane(idle=1, gap_tolerance=0), passes=8),
    "n-slack, bounds": Case(NSlackCuttingPlane(gap_tolerance=0), bounded_problem, 5),
    "excessive-gap": Case(ExcessiveGap(gap_tolerance=0), passes=12),
    "excessive-gap, bounds": Case(ExcessiveGap(gap_tolerance=0), bounded_problem, 12),
    "exponentiated-gradient": Case(ExponentiatedGradient(gap_tolerance=0), passes=12),
    "exponentiated-gradient, not accelerated": Case(
        ExponentiatedGradient(accelerated=False, gap_tolerance=0), passes=5
    ),
    "exponentiated-gradient, bounds": Case(ExponentiatedGradient(gap_tolerance=0), bounded_problem, 5),
    "batch-exponentiated-gradient": Case(BatchExponentiatedGradient(gap_tolerance=0), passes=12),
    "batch-exponentiated-gradient, bounds": Case(BatchExponentiatedGradient(gap_tolerance=0), bounded_problem, 5),
    "smo": Case(SMO(gap_tolerance=0), passes=8),
    "smo, bounds": Case(SMO(gap_tolerance=0), bounded_problem, 5),
    "extragradient": Case(Extragradient(gap_tolerance=0), passes=12),
    "extragradient, bounds": Case(Extragradient(gap_tolerance=0), bounded_problem, 5),
    "frank-wolfe, bounds": Case(FrankWolfe(gap_tolerance=0), bounded_problem, 12),
    "convex-concave": Case(ConvexConcave(inner_passes=4), lambda: partial_problem(small_problem())),
    "convex-concave, svrg": Case(ConvexConcave(inner=SVRG(), inner_passes=4), lambda: partial_problem(small_problem())),
    "cocoa": Case(CoCoA(gap_tolerance=0)),
    "bcfw, weights": Case(BCFW(gap_tolerance=0), lambda: small_problem().weighted(torch.linspace(0.5, 3.0, 5))),
    "bcfw, bounds": Case(BCFW(gap_tolerance=0), bounded_problem, 5),
    "proximal-bcfw, bounds": Case(ProximalBCFW(gap_tolerance=0), bounded_problem, 5),
    **{name: Case(solver) for name, solver in (BLOCKWISE | PROXIMAL).items()},
}


@cache
def minimizer(lam: float = LAM, seed: int = 2, bounded: bool = False) -> Tensor:
    """argmin F of the small problem, by a quadratic program."""
    problem = bounded_problem(seed) if bounded else small_problem(seed)
    return torch.from_numpy(EnumeratedProblem(problem).minimizer(lam))


def optimum(lam: float = LAM, seed: int = 2) -> float:
    """min F of the small problem."""
    return objective(small_problem(seed), minimizer(lam, seed), lam)


def objective(problem: Problem, w: Tensor, lam: float = LAM) -> float:
    return problem.loss(w) + lam / 2 * float(w.square().sum())


def record(into: list[tuple[Any, History]]) -> Callable[[Progress[Any]], None]:
    """A callback that keeps what a run could resume from."""
    return lambda progress: into.append((replace(progress.state), History(progress.history)))


def moments_of(
    solver: Solver[Any], problem: Problem, passes: int = 25, lam: float = LAM, **options: Any
) -> list[tuple[Any, History]]:
    """State and history after every pass, as a callback sees them."""
    moments: list[tuple[State, History]] = []
    solver.solve(problem, lam=lam, passes=passes, callbacks=[record(moments)], **options)
    return moments


def without_time(history: History) -> list[dict[str, Any]]:
    return [{**row.as_dict(), "seconds": 0} for row in history]
