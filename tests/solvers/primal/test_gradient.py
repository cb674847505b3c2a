"""Solvers whose steps have a size: smooth objectives, modules, first step sizes, and recovery from bad ones."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from small_networks import candidates_problem
from small_problems import EnumeratedProblem, random_problem
from solver_cases import LAM, LENGTHS, PRIMAL, STATES, crf, objective, optimum, small_problem
from torch import Tensor

from structsmooth import SGD, CasimirSVRG, LinearScore, ModuleProblem, StructuralHinge
from structsmooth.problems import Problem, SparseChainProblem, SparseSequences
from structsmooth.sequences import pad
from structsmooth.smoothing import Smoother
from structsmooth.solvers import SVRG, Adam, IncrementalProxLinear, Solver, Status
from structsmooth.solvers.primal.gradient import GradientSolver

every_variant = pytest.mark.parametrize("name", PRIMAL)
some_solvers = pytest.mark.parametrize(
    "solver",
    [SVRG(), CasimirSVRG(), CasimirSVRG(inner_stop="gradient"), SGD(), Adam()],
    ids=["svrg", "casimir", "grad", "sgd", "adam"],
)
default_solvers = pytest.mark.parametrize("solver", [SVRG(), CasimirSVRG(), SGD()], ids=["svrg", "casimir", "sgd"])


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_holds_where_scores_are_huge_beside_mu(seed: int) -> None:
    """With so large a λ every label is mistaken at the optimum, and the gap closes."""
    problem = random_problem((8, 9, 7), states=2, seed=seed)
    history = SVRG(mu=1e-9, smoothing="entropy", gap_tolerance=0).solve(problem, lam=100, passes=100).history
    assert all(row.dual <= row.objective + 1e-12 for row in history)
    assert history[-1].gap <= 1e-6 * history[-1].objective


@pytest.mark.parametrize("seed", range(4))
@default_solvers
def test_defaults_make_progress_on_any_small_problem(solver: Solver[Any], seed: int) -> None:
    history = solver.solve(small_problem(seed), lam=LAM, passes=60).history
    assert history[-1].objective - optimum(seed=seed) < 0.2 * (history[0].objective - optimum(seed=seed))


@default_solvers
def test_solvers_reach_the_optimum_of_a_module(solver: Solver[Any]) -> None:
    """Examples with an attribute each: min F = min max(0, 1 − 2t) + λnt², at ±t for the labels 0 and 1."""
    examples = [(row[None], torch.tensor([i % 2])) for i, row in enumerate(torch.eye(4).double())]
    problem = ModuleProblem(LinearScore(4, 2), examples, batch_size=1)
    result = solver.solve(problem, lam=0.25, passes=60)
    assert result.row.objective == pytest.approx(1 / 4, abs=0.05)
    assert result.row.objective >= 1 / 4 - 1e-9
    assert result.row.dual is result.row.gap is None
    assert result.row.objective == pytest.approx(objective(problem, result.weights, 0.25), rel=1e-12)


def crf_with_optimum(seed: int) -> tuple[SparseChainProblem, float]:
    """A conditional random field, and its optimum by L-BFGS on the enumerated likelihood."""
    hinge = small_problem(seed, None)
    outputs = EnumeratedProblem(hinge)

    def objective(w: Any) -> tuple[float, Any]:
        pairs = list(zip(outputs.margins(w), outputs.differences, strict=True))
        gradient = sum(softmax(m) @ features for m, features in pairs) / hinge.n + LAM * w
        return sum(logsumexp(m) for m, _ in pairs) / hinge.n + LAM / 2 * w @ w, gradient

    options = {"ftol": 1e-15, "gtol": 1e-10}
    least = minimize(objective, hinge.start().numpy(), jac=True, method="L-BFGS-B", options=options).fun
    return crf(seed), least


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("solver", "tolerance"),
    [
        (SVRG(), 1e-7),
        (SVRG(mu=5.0, smoothing="entropy"), 1e-7),
        (CasimirSVRG(), 1e-7),
        (CasimirSVRG(schedule="constant", inner_stop="gradient"), 1e-7),
        (SGD(), 1e-2),
    ],
    ids=["svrg", "svrg, other mu", "casimir", "casimir, gradient", "sgd"],
)
def test_a_smooth_objective_is_minimized_as_it_is(solver: Solver[Any], tolerance: float, seed: int) -> None:
    problem, least = crf_with_optimum(seed)
    result = replace(solver, gap_tolerance=tolerance).solve(problem, lam=LAM, passes=300)
    assert result.status is Status.CONVERGED
    assert all(row.objective >= least - 1e-9 and row.dual <= least + 1e-9 for row in result.history)
    assert result.row.objective - least <= tolerance * least
    chains = problem.structure(result.weights, torch.arange(problem.n))
    likelihood = StructuralHinge.crf("sum")(chains, pad(problem.labels, problem.sequences.lengths)) / problem.n
    value = float(likelihood + LAM / 2 * result.weights.square().sum())
    assert result.row.objective == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "solver", [SVRG(mu=0.01), CasimirSVRG(), SGD(schedule="inverse")], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("seed", [3, 10])
def test_without_regularizer(solver: Solver[Any], seed: int) -> None:
    """The optimum is 0 for one seed, where labels can be separated, and 0.8 for the other."""
    result = solver.solve(small_problem(seed), lam=0, passes=100)
    excess = [value - optimum(0.0, seed) for value in result.history.column("objective")]
    assert min(excess) >= -1e-9
    assert excess[-1] <= 0.25 * excess[0]
    assert result.status is Status.PASS_LIMIT
    assert result.history.column("dual") == result.history.column("gap") == [None] * len(excess)


def test_step_size_where_the_objective_rounds_below_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem()
    monkeypatch.setattr(SparseChainProblem, "loss", lambda self, w, smoother=None: -1e-17)
    assert 0 < Adam().estimate_step_size(problem, 0.0, problem.start(), 0) < math.inf


@pytest.mark.parametrize("loss", [-1e-17, 0.0, math.nan, math.inf])
def test_step_size_where_losses_say_nothing(loss: float, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, answer = random_problem(), (torch.tensor(loss), torch.ones(3))
    monkeypatch.setattr(
        SparseChainProblem, "losses_and_grads", lambda self, w, batches, smoother: [answer for _ in batches]
    )
    assert SVRG().estimate_step_size(problem, 0.0, problem.start(), 0) == 2.5


@every_variant
@pytest.mark.parametrize("seed", range(3))
def test_the_first_step_size_needs_no_weights_that_the_sample_does_not_use(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = random_problem(LENGTHS, STATES, features=30, seed=seed)
    estimate = partial(PRIMAL[name][0].estimate_step_size, problem, LAM, problem.start(), seed)
    restricted = estimate()
    monkeypatch.setattr(SparseChainProblem, "restrict", Problem.restrict)  # all weights
    assert restricted == pytest.approx(estimate(), rel=1e-12)


@every_variant
@pytest.mark.parametrize("lam", [0.02, LAM, 1.0])
def test_an_absurd_learning_rate_costs_passes_only(name: str, lam: float) -> None:
    solver, passes = replace(PRIMAL[name][0], learning_rate=1e6), 1000 if name == "casimir, gradient" else 100
    result = solver.solve(small_problem(), lam=lam, passes=passes)
    excess = [value - optimum(lam) for value in result.history.column("objective")]
    assert result.status is not Status.DIVERGED
    assert excess[-1] < 0.2 * excess[0]


@pytest.mark.parametrize(
    "solver",
    [CasimirSVRG(), CasimirSVRG(schedule="constant", mu=0.1), CasimirSVRG(warm_start="extrapolation")],
    ids=["adaptive", "constant", "extrapolation"],
)
@pytest.mark.parametrize("seed", range(8))
def test_momentum_never_makes_a_run_diverge(solver: Solver[Any], seed: int) -> None:
    result = solver.solve(small_problem(seed), lam=0.002, passes=60)
    assert result.status is Status.PASS_LIMIT
    assert result.row.objective < 0.5 * result.history[0].objective


@every_variant
def test_an_exploding_pass_is_undone(name: str) -> None:
    solver = replace(PRIMAL[name][0], learning_rate=1e6)
    history = solver.solve(small_problem(), lam=1e-3, passes=10).history
    objectives = history.column("objective")
    # Without a proximal term, incremental steps are those of block-coordinate Frank-Wolfe, which do not explode.
    assert isinstance(solver, IncrementalProxLinear) or history[1].step_size < 1e3
    assert all(b <= 2 * min(objectives[: k + 1]) for k, b in enumerate(objectives[1:]))


@pytest.mark.parametrize("solver", [SGD(), SGD(schedule="constant"), Adam()], ids=["sgd", "constant", "adam"])
def test_a_pass_whose_scores_overflow_is_undone(solver: GradientSolver[Any]) -> None:
    """Structures refuse scores that are not finite: here products of weights in single precision."""
    problem = candidates_problem(torch.float32)
    result = replace(solver, learning_rate=1e25).solve(problem, lam=1e-3, passes=3)
    assert result.status is Status.DIVERGED
    assert torch.equal(result.weights, problem.start())
    assert result.state.oracle_calls > 40  # each attempt has its own
    history = replace(solver, learning_rate=1e11).solve(problem, lam=1e-3, passes=30).history
    assert history[-1].objective < history[0].objective


@pytest.mark.parametrize("n", [2, 3, 7, 150, 300])
@pytest.mark.parametrize("solver", [SVRG(), CasimirSVRG(), SGD()], ids=["svrg", "casimir", "sgd"])
def test_a_first_step_size_costs_less_than_a_pass(solver: Solver[Any], n: int) -> None:
    """Oracle calls before the first pass; those of evaluations that steer the step size count too."""
    problem = random_problem([1] * n)
    estimated = solver.solve(problem, lam=0.02, passes=0).history[0].oracle_calls
    evaluation = n if isinstance(solver, SVRG | CasimirSVRG) else 0
    assert estimated - evaluation == min(100, (n + 1) // 2) < n
    if isinstance(solver, SGD):
        assert SGD(learning_rate=1.0).solve(problem, lam=0.02, passes=0).history[0].oracle_calls == 0


def test_first_step_size_by_hand() -> None:
    """One token each, two labels: losses of 1, gradients with entries ±1 in the attribute, first and last label."""
    sequences = SparseSequences(torch.arange(4, dtype=torch.int32), torch.arange(5), torch.arange(5))
    problem = SparseChainProblem(sequences, torch.tensor([0, 1, 0, 1]), features=4, states=2)
    for solver, factor in ((SVRG(), 2.5), (SGD(), 10.0)):
        for lam, longest in ((0.0, math.inf), (0.01, 50.0), (10.0, 0.05)):
            estimate = solver.estimate_step_size(problem, lam, problem.start(), 0)
            assert estimate == pytest.approx(min(factor / 6, longest), rel=1e-12)


class Mirage(Problem):
    """A loss that is NaN anywhere but at the start."""

    n, dim = 3, 2

    def start(self) -> Tensor:
        return torch.zeros(2)

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        return (1 + w.sum() + torch.where(w.detach().any(), torch.nan, 0.0)).expand(len(indices))

    def subset(self, indices: Tensor) -> Problem:
        return Mirage()


@some_solvers
@pytest.mark.parametrize("learning_rate", [None, 1.0])
def test_diverged_when_nothing_helps(solver: Solver[Any], learning_rate: float | None) -> None:
    result = replace(solver, learning_rate=learning_rate).solve(Mirage(), lam=LAM, passes=5)
    assert result.status is Status.DIVERGED
    assert result.message.startswith("diverged: objective 1 after 0 passes; no step size worked")
    assert torch.equal(result.weights, torch.zeros(2))
    assert len(result.history) == 1


def test_refuses_a_start_without_a_finite_objective() -> None:
    with pytest.raises(ValueError, match="objective at the start must be finite, got nan"):
        SVRG(learning_rate=1.0).solve(Mirage(), lam=1, start=torch.ones(2))


def test_refuses_settings_that_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="give lipschitz or learning_rate, not both"):
        CasimirSVRG(lipschitz=1.0, learning_rate=1.0)
    with pytest.raises(ValueError, match='"strongly-convex" schedule needs lam > 0'):
        SGD().solve(small_problem(), lam=0)
