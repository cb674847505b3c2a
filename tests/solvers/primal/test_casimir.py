"""Casimir-SVRG against Algorithm 4: schedules, extrapolation, warm starts, inner accuracy and outer rates."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Any

import pytest
import torch
from scipy.optimize import minimize
from small_problems import random_problem, random_weights
from solver_cases import moments_of, objective
from torch import Tensor
from torch.testing import assert_close

from structsmooth import L2, CasimirSVRG, Entropy
from structsmooth.problems import FullPass, Problem, SparseChainProblem, SparseSequences
from structsmooth.smoothing import Smoother
from structsmooth.solvers import History, Progress, svrg
from structsmooth.solvers.primal.casimir import CasimirState

GOLDEN = (math.sqrt(5) - 1) / 2
MU, KAPPA, LAM = 2.0, 0.9, 0.3
Q = LAM / (LAM + KAPPA)
ROOT = math.sqrt(Q)

schedules = pytest.mark.parametrize("schedule", ["constant", "adaptive"])
regularized = pytest.mark.parametrize("lam", [LAM, 0.0])


@dataclass
class Epoch:
    """One call of ``svrg.epoch``."""

    snapshot: FullPass
    kappa: float
    center: Tensor


@dataclass
class Trace:
    """Everything a run did: the states after iterations 0, 1, ... and the epochs between them."""

    states: list[CasimirState]
    epochs: list[Epoch]
    history: History

    @property
    def steps(self) -> list[tuple[int, CasimirState, CasimirState, Epoch]]:
        """k, the states before and after iteration k, and its first epoch."""
        return [(b.iteration, a, b, self.epochs[a.passes]) for a, b in pairwise(self.states)]


def trace(solver: CasimirSVRG, problem: Problem, lam: float, passes: int) -> Trace:
    states: list[CasimirState] = []
    epochs: list[Epoch] = []

    def spy(problem: Problem, snapshot: FullPass, order: Tensor, **settings: object) -> tuple[Tensor, Tensor]:
        epochs.append(Epoch(snapshot, settings["kappa"], settings["center"]))
        return svrg.epoch(problem, snapshot, order, **settings)

    def callback(progress: Progress[CasimirState]) -> None:
        states.append(replace(progress.state))

    start = random_weights(problem) if isinstance(problem, SparseChainProblem) else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("structsmooth.solvers.primal.casimir.svrg_epoch", spy)
        history = solver.solve(problem, lam=lam, passes=passes, start=start, callbacks=[callback]).history
    assert len(epochs) == states[-1].passes, "a pass was undone: these tests want a small learning rate"
    return Trace(states, epochs, history)


def casimir(schedule: str, **settings: object) -> CasimirSVRG:
    return CasimirSVRG(**{"mu": MU, "kappa": KAPPA, "schedule": schedule, "learning_rate": 0.01, **settings})


@pytest.mark.parametrize(
    ("schedule", "lam", "mu", "kappa", "delta"),
    [
        ("constant", LAM, lambda k: MU, lambda k: KAPPA, lambda k: ROOT / (2 - ROOT)),
        ("adaptive", LAM, lambda k: MU * (1 - ROOT / 2) ** (k / 2), lambda k: KAPPA, lambda k: ROOT / (2 - ROOT)),
        ("constant", 0.0, lambda k: MU, lambda k: KAPPA, lambda k: (k + 1) ** -2),
        ("adaptive", 0.0, lambda k: MU / k, lambda k: KAPPA * k, lambda k: (k + 1) ** -2),
    ],
    ids=["corollary 17", "corollary 18", "corollary 19", "corollary 20"],
)
def test_schedules_of_table_3(
    schedule: str, lam: float, mu: Callable[[int], float], kappa: Callable[[int], float], delta: Callable[[int], float]
) -> None:
    solver = casimir(schedule)
    run = trace(solver, random_problem(), lam, passes=8)
    for k, before, _, epoch in run.steps:
        assert epoch.snapshot.smoother.mu == before.mu == run.history[k - 1].mu == pytest.approx(mu(k), rel=1e-12)
        assert epoch.kappa == pytest.approx(kappa(k), rel=1e-12)
        assert solver.level(k, KAPPA, lam).delta == pytest.approx(delta(k), rel=1e-12)
    assert len(run.steps) == 8


def test_kappa_grows_from_lam_where_none_is_given() -> None:
    problem, lam = random_problem(), 0.1
    run = trace(CasimirSVRG(mu=MU, lipschitz=100.0), problem, lam, passes=20)
    limit = math.sqrt(lam * (100 / problem.n - lam))
    expected = [min(limit, lam * 1.2 ** (k - 1)) for k in range(1, 22)]
    assert expected[0] < expected[9] < limit == expected[19]
    mu = MU
    for k, before, after, epoch in run.steps:
        kappa, following = expected[k - 1 : k + 1]
        mu = max(mu * math.sqrt(1 - math.sqrt(lam / (lam + kappa)) / 2), MU / 10)
        assert epoch.kappa == pytest.approx(kappa, rel=1e-12)
        assert before.mu == pytest.approx(mu, rel=1e-12)
        carried = (1 - after.alpha) * before.alpha**2 * (kappa + lam)
        assert after.alpha**2 * (following + lam) == pytest.approx(carried + after.alpha * lam, rel=1e-12)
    assert run.states[0].alpha == pytest.approx(math.sqrt(0.5), rel=1e-12)


def test_smoothing_falls_below_a_tenth_only_with_the_step_size() -> None:
    solver, problem = casimir("adaptive", lipschitz=1.0, learning_rate=None), random_problem()
    state = solver.begin(problem, LAM, problem.start(), 0.5)
    for exponent in range(1, 60):
        for k in range(500):
            state = replace(state, iteration=k, mu=solver.next_mu(state, LAM))
        # The exp oracle divides scores by it.
        assert state.mu == pytest.approx(max(MU / 10 / 2 ** (exponent - 1), 1e-5 * MU), rel=1e-12)
        state = solver.with_step_size(problem, LAM, state, state.step_size / 2)


@schedules
@regularized
def test_a_shorter_step_means_a_larger_lipschitz_constant(schedule: str, lam: float) -> None:
    solver, problem = CasimirSVRG(schedule=schedule), random_problem()
    state = solver.begin(problem, lam, problem.start(), 0.01)
    shorter = solver.with_step_size(problem, lam, state, 0.0025)
    assert shorter.step_size == 0.0025
    assert shorter.kappa == pytest.approx(solver.begin(problem, lam, problem.start(), 0.0025).kappa, rel=1e-12)
    assert shorter.kappa > state.kappa
    carried, kept = (s.alpha**2 * (solver.level(1, s.kappa, lam).kappa + lam) for s in (shorter, state))
    assert carried == pytest.approx(kept, rel=1e-12)


@schedules
@regularized
def test_alpha_solves_27_and_z_extrapolates_by_29(schedule: str, lam: float) -> None:
    solver = casimir(schedule)
    run = trace(solver, random_problem(), lam, passes=30)
    assert run.states[0].alpha == pytest.approx(ROOT if lam else GOLDEN, rel=1e-12)
    for k, before, after, epoch in run.steps:
        last, alpha = before.alpha, after.alpha
        kappa, following = epoch.kappa, solver.level(k + 1, KAPPA, lam).kappa
        residual = alpha**2 * (following + lam) - (1 - alpha) * last**2 * (kappa + lam) - alpha * lam
        assert residual == pytest.approx(0, abs=1e-12)
        assert 0 < alpha <= last * (1 + 1e-12) < 1
        beta = last * (1 - last) * (kappa + lam) / (last**2 * (kappa + lam) + alpha * (following + lam))
        if lam:
            assert alpha == pytest.approx(ROOT, rel=1e-12)
            assert beta == pytest.approx((1 - ROOT) / (1 + ROOT), rel=1e-12)
        assert_close(after.center, after.iterate + beta * (after.iterate - before.iterate), rtol=0, atol=1e-12)
        assert torch.equal(epoch.center, before.center)


@schedules
@pytest.mark.parametrize(("inner_stop", "passes"), [("budget", 6), ("gradient", 30)])
@pytest.mark.parametrize(
    ("warm_start", "expected"),
    [
        ("prox-center", lambda w, z, older, kappa: z),
        ("prev-iterate", lambda w, z, older, kappa: w),
        ("extrapolation", lambda w, z, older, kappa: w + kappa / (kappa + LAM) * (z - older)),
    ],
)
def test_warm_starts(
    schedule: str, inner_stop: str, passes: int, warm_start: str, expected: Callable[..., Tensor]
) -> None:
    solver = casimir(schedule, warm_start=warm_start, inner_stop=inner_stop, max_inner=4)
    run = trace(solver, random_problem(), LAM, passes)
    older = run.states[0].center
    for _, before, _, epoch in run.steps:
        start = expected(before.iterate, before.center, older, epoch.kappa)
        assert_close(epoch.snapshot.weights, start, rtol=0, atol=1e-12)
        assert torch.equal(epoch.snapshot.weights, before.weights)
        older = before.center


@schedules
@regularized
@pytest.mark.parametrize(("max_inner", "passes"), [(1, 8), (3, 24), (200, 100)])
def test_gradient_stop_means_criterion_26(schedule: str, lam: float, max_inner: int, passes: int) -> None:
    problem = random_problem()
    solver = casimir(schedule, smoothing="entropy", inner_stop="gradient", max_inner=max_inner)
    run = trace(solver, problem, lam, passes)
    epochs = [after.passes - before.passes for _, before, after, _ in run.steps]
    assert all(1 <= number <= max_inner for number in epochs)
    assert max(epochs) == max_inner or max_inner == 200
    assert run.states[-1].passes == passes
    for number, (k, before, after, epoch) in zip(epochs, run.steps, strict=True):
        if number < max_inner and after.passes < passes:
            inner = inner_problem(problem, before.mu, epoch.kappa, before.center, lam)
            least = minimize(inner, after.iterate, jac=True, method="L-BFGS-B", options={"gtol": 1e-9}).fun
            distance = float((after.iterate - before.center).square().sum())
            delta = solver.level(k, KAPPA, lam).delta
            assert inner(after.iterate)[0] - least <= delta * epoch.kappa / 2 * distance + 1e-12


@pytest.mark.parametrize("passes", [1, 2, 5, 11])
@pytest.mark.parametrize("max_inner", [1, 4, 100])
def test_gradient_stop_keeps_to_the_limit_on_passes(passes: int, max_inner: int) -> None:
    solver = casimir("constant", inner_stop="gradient", max_inner=max_inner)
    run = trace(solver, random_problem(), LAM, passes)
    assert run.history[-1].passes == len(run.epochs) == passes


class Flat(Problem):
    """Losses that no weights change: the start is the minimum, and the gradient there is zero."""

    n, dim = 3, 2

    def start(self) -> Tensor:
        return torch.zeros(2)

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        return (1 + 0 * w.sum()).expand(len(indices))

    def subset(self, indices: Tensor) -> Problem:
        return Flat()


@regularized
def test_a_zero_gradient_is_accurate_but_every_iteration_makes_a_pass(lam: float) -> None:
    run = trace(casimir("adaptive", inner_stop="gradient"), Flat(), lam, passes=5)
    assert run.history.column("passes") == [0, 1, 2, 3, 4, 5]
    assert all(torch.equal(state.weights, torch.zeros(2)) for state in run.states)


def inner_problem(
    problem: Problem, mu: float, kappa: float, center: Tensor, lam: float, smoother: Smoother | None = None
) -> Callable[[Any], tuple[float, Tensor]]:
    """Value and gradient of F_μ(w) + (κ/2)‖w − center‖²."""

    def value_and_gradient(w: Any) -> tuple[float, Tensor]:
        w = torch.as_tensor(w)
        value, gradient = problem.loss_and_grad(w, smoother or Entropy(mu))
        quadratic = lam / 2 * w.square().sum() + kappa / 2 * (w - center).square().sum()
        return value + float(quadratic), gradient + lam * w + kappa * (w - center)

    return value_and_gradient


@pytest.mark.parametrize(
    ("lipschitz", "lam", "kappa"),
    [(50.0, 0.1, 50 / 5 - 0.1), (2.1, 0.1, 2.1 / 5 - 0.1), (2.0, 0.1, 0.1), (1.0, 0.1, 0.1), (50.0, 0.0, 50 / 6)],
)
@pytest.mark.parametrize("given", ["lipschitz", "learning_rate"])
@schedules
def test_kappa_of_propositions_29_and_31(schedule: str, given: str, lipschitz: float, lam: float, kappa: float) -> None:
    """The adaptive schedule takes the geometric mean of that and λ."""
    rate = {"learning_rate": None, "lipschitz": lipschitz} if given == "lipschitz" else {"learning_rate": 1 / lipschitz}
    kappa = math.sqrt(kappa * lam) if schedule == "adaptive" and lam else kappa
    run = trace(casimir(schedule, kappa=None, **rate), random_problem(), lam, passes=0)
    assert run.states[0].kappa == pytest.approx(kappa)
    step_size = 1 / (lipschitz + lam + kappa) if given == "lipschitz" else 1 / lipschitz
    assert run.states[0].step_size == run.history[0].step_size == pytest.approx(step_size)


@pytest.mark.parametrize(("schedule", "mu"), [("adaptive", 2.0), ("constant", 0.03)])
def test_kappa_and_mu_if_given_and_if_not(schedule: str, mu: float) -> None:
    for given, expected in ((None, mu), (0.7, 0.7)):
        state = trace(casimir(schedule, kappa=7.0, mu=given), random_problem(), LAM, passes=0).states[0]
        falls = math.sqrt(1 - math.sqrt(LAM / (LAM + 7.0)) / 2) if schedule == "adaptive" else 1.0
        assert (state.kappa, state.mu) == (7.0, pytest.approx(falls * expected, rel=1e-12))


def contested_tokens(attributes: int) -> SparseChainProblem:
    """Sequences of one token, three for each attribute, of which one has the other label of two.

    By symmetry the ends play no role and the weights of an attribute are ±t, so that
    min F = min (2 max(0, 1 − 2t) + max(0, 1 + 2t))/3 + λ·attributes·t².
    """
    labels = (torch.arange(attributes)[:, None] + torch.tensor([0, 0, 1])).flatten() % 2
    ids, one_each = torch.arange(attributes, dtype=torch.int32), torch.arange(len(labels) + 1)
    sequences = SparseSequences(ids.repeat_interleave(3), one_each, one_each)
    return SparseChainProblem(sequences, labels, features=attributes, states=2)


# Bounds on F(w_k) − F* from F(w_0) − F*, μD, √q, κ and ‖w_0 − w*‖².
def corollary_17(k: int, first: float, spread: float, root: float, kappa: float, distance: float) -> float:
    return (3 - root) / (1 - root) * spread + 2 * (1 - root / 2) ** k * first


def corollary_18(k: int, first: float, spread: float, root: float, kappa: float, distance: float) -> float:
    eta = 1 - root / 2
    return eta ** (k / 2) * (2 * first + spread / (1 - root) * (2 - root + root / (1 - math.sqrt(eta))))


def corollary_19(k: int, first: float, spread: float, root: float, kappa: float, distance: float) -> float:
    return 8 / (k + 2) ** 2 * (first + kappa / 2 * distance) + spread * (1 + 12 / (k + 2) + 30 / (k + 2) ** 2)


def corollary_20(k: int, first: float, spread: float, root: float, kappa: float, distance: float) -> float:
    return math.log(k + 1) / (k + 1) * (2 * first + kappa * distance + 27 * spread) / (math.log(2) if k == 1 else 1)


@pytest.mark.parametrize(
    ("bound", "schedule", "lam"),
    [
        (corollary_17, "constant", 0.1),
        (corollary_18, "adaptive", 0.1),
        (corollary_19, "constant", 0.0),
        (corollary_20, "adaptive", 0.0),
    ],
)
@pytest.mark.parametrize(("smoothing", "range_"), [("l2", 1 / 2), ("entropy", math.log(2))])
def test_outer_rate(bound: Callable[..., float], schedule: str, lam: float, smoothing: str, range_: float) -> None:
    attributes, mu, kappa = 4, 0.05, 0.5
    t = 1 / 2 if lam == 0 else min(1 / 2, 1 / (3 * lam * attributes))
    optimum = 1 - 2 * t / 3 + lam * attributes * t**2
    solver = CasimirSVRG(
        mu=mu,
        kappa=kappa,
        schedule=schedule,
        smoothing=smoothing,
        inner_stop="gradient",
        max_inner=1000,
        learning_rate=0.002,
        gap_tolerance=0,
    )
    problem = contested_tokens(attributes)
    states = [state for state, _ in moments_of(solver, problem, passes=1500, lam=lam)]
    # The theorem ends where rounding keeps the gradient from meeting (26).
    accurate = takewhile(lambda pair: pair[1].passes - pair[0].passes < solver.max_inner, pairwise(states))
    excess = [objective(problem, w.iterate, lam) - optimum for w in [states[0], *(state for _, state in accurate)]]
    assert min(excess) > -1e-12
    root = math.sqrt(lam / (lam + kappa))
    bounds = [bound(k, excess[0], mu * range_, root, kappa, attributes * 2 * t**2) for k in range(len(excess))]
    assert all(value <= limit for value, limit in zip(excess[1:], bounds[1:], strict=True))
    assert bounds[-1] < excess[0], "too few iterations for the bound to say anything"


def test_kappa_of_the_paper_is_lam() -> None:
    runs = [CasimirSVRG(kappa=kappa).solve(random_problem(), lam=0.2, passes=3) for kappa in ("lam", 0.2)]
    assert torch.equal(runs[0].weights, runs[1].weights)
    with pytest.raises(ValueError, match="kappa='lam' needs lam > 0"):
        CasimirSVRG(kappa="lam").solve(random_problem(), lam=0.0)


@pytest.mark.parametrize("warm_start", ["prox-center", "extrapolation", "prev-iterate"])
@schedules
def test_a_pass_takes_two_calls_on_each_example(schedule: str, warm_start: str) -> None:
    problem = random_problem()
    history = casimir(schedule, warm_start=warm_start).solve(problem, lam=LAM, passes=6).history
    assert history.column("oracle_calls") == [problem.n * (1 + 2 * k) for k in range(7)]


def test_an_epoch_stalls_if_the_tangent_at_the_next_start_says_so() -> None:
    """The tangent is below the inner problem at the iterate, and the value itself where that is the start."""
    problem = random_problem()
    for warm_start in ("prox-center", "prev-iterate"):
        solver = casimir("constant", warm_start=warm_start, learning_rate=0.05)
        for before, after in pairwise([state for state, _ in moments_of(solver, problem, passes=8, lam=LAM)]):
            inner = inner_problem(problem, MU, KAPPA, before.center, LAM, L2(MU, 5))
            full = problem.full_pass(after.weights, solver.smoother(after))
            tangent, value = solver.epoch_objective(after, after.iterate, full, LAM), inner(after.iterate)[0]
            assert tangent <= value + 1e-12
            assert warm_start == "prox-center" or tangent == pytest.approx(value, abs=1e-12)
            assert after.epoch_start == pytest.approx(inner(before.weights)[0], abs=1e-12)
            assert solver.stalled(after, full, LAM) == (tangent >= after.epoch_start)
