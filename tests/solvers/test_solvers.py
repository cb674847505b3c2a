"""Solvers against a quadratic program; certificates, resumption, interruption, recovery from bad step sizes."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from small_problems import EnumeratedProblem, random_problem, random_weights
from torch import Tensor

from structsmooth import (
    SGD,
    SVRG,
    CasimirSVRG,
    Entropy,
    History,
    LinearScore,
    Max,
    ModuleProblem,
    Problem,
    Result,
    Smoother,
    SparseChainProblem,
    Status,
    StructuralHinge,
)
from structsmooth.checkpoint import load_state, save_state
from structsmooth.sequences import pad
from structsmooth.solvers import Progress, Solver, State, Stop

LAM, LENGTHS, STATES, FEATURES = 0.2, (3, 1, 2, 3, 2), 3, 4
ALL = STATES ** max(LENGTHS)  # outputs, for exact smoothing

# With the suboptimality to reach in 400 passes: what smoothing leaves, or 1/t.
SOLVERS: dict[str, tuple[Solver[Any], float]] = {
    "svrg": (SVRG(mu=0.01, k=ALL), 0.005),
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
}
every_solver = pytest.mark.parametrize("name", SOLVERS)
some_solvers = pytest.mark.parametrize(
    "solver", [SVRG(), CasimirSVRG(), CasimirSVRG(inner_stop="gradient"), SGD()], ids=["svrg", "casimir", "grad", "sgd"]
)
default_solvers = pytest.mark.parametrize("solver", [SVRG(), CasimirSVRG(), SGD()], ids=["svrg", "casimir", "sgd"])


def small_problem(seed: int = 2) -> SparseChainProblem:
    return random_problem(LENGTHS, STATES, FEATURES, seed=seed)


@cache
def optimum(lam: float = LAM, seed: int = 2) -> float:
    return EnumeratedProblem(small_problem(seed)).optimum(lam)


def objective(problem: Problem, w: Tensor, lam: float) -> float:
    return problem.loss(w) + lam / 2 * float(w.square().sum())


def record(into: list[tuple[State, History]]) -> Callable[[Progress[Any]], None]:
    """A callback that keeps what a run could resume from."""
    return lambda progress: into.append((replace(progress.state), History(progress.history)))


@every_solver
@pytest.mark.parametrize("seed", [0, 1])
def test_solvers_reach_the_optimum_with_a_certificate(name: str, seed: int) -> None:
    solver, tolerance = SOLVERS[name]
    problem = small_problem()
    result = replace(solver, gap_tolerance=0).solve(problem, lam=LAM, passes=400, seed=seed)
    excess = [row.objective - optimum() for row in result.history]
    assert min(excess) >= -1e-9
    assert excess[-1] <= tolerance < excess[0] / 15
    assert all(row.dual <= optimum() + 1e-9 for row in result.history)
    assert all(row.gap == row.objective - row.dual for row in result.history)
    duals = result.history.column("dual")
    assert all(a <= b + 1e-12 for a, b in pairwise(duals))
    assert result.history[-1].objective == pytest.approx(objective(problem, result.weights, LAM), rel=1e-12)
    assert result.status is Status.PASS_LIMIT
    assert result.history[-1].passes >= 400


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
    assert result.history[-1].objective == pytest.approx(1 / 4, abs=0.05)
    assert result.history[-1].objective >= 1 / 4 - 1e-9
    assert result.history[-1].dual is result.history[-1].gap is None
    assert result.history[-1].objective == pytest.approx(objective(problem, result.weights, 0.25), rel=1e-12)


def crf(seed: int) -> tuple[SparseChainProblem, float]:
    """A conditional random field, and its optimum by L-BFGS on the enumerated likelihood."""
    hinge = random_problem(LENGTHS, STATES, FEATURES, cost=None, seed=seed)
    outputs = EnumeratedProblem(hinge)

    def objective(w: Any) -> tuple[float, Any]:
        pairs = list(zip(outputs.margins(w), outputs.differences, strict=True))
        gradient = sum(softmax(m) @ features for m, features in pairs) / hinge.n + LAM * w
        return sum(logsumexp(m) for m, _ in pairs) / hinge.n + LAM / 2 * w @ w, gradient

    options = {"ftol": 1e-15, "gtol": 1e-10}
    least = minimize(objective, hinge.start().numpy(), jac=True, method="L-BFGS-B", options=options).fun
    sizes = (hinge.features, hinge.states)
    return SparseChainProblem(hinge.sequences, hinge.labels, *sizes, None, Entropy(1.0)), least


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
    problem, least = crf(seed)
    result = replace(solver, gap_tolerance=tolerance).solve(problem, lam=LAM, passes=300)
    assert result.status is Status.CONVERGED
    assert all(row.objective >= least - 1e-9 and row.dual <= least + 1e-9 for row in result.history)
    assert result.history[-1].objective - least <= tolerance * least
    chains = problem.structure(result.weights, torch.arange(problem.n))
    likelihood = StructuralHinge.crf("sum")(chains, pad(problem.labels, problem.sequences.lengths)) / problem.n
    value = float(likelihood + LAM / 2 * result.weights.square().sum())
    assert result.history[-1].objective == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "solver", [SVRG(mu=0.01), CasimirSVRG(), SGD(schedule="inverse")], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("seed", [3, 10])
def test_without_regularizer(solver: Solver[Any], seed: int) -> None:
    """The optimum is 0 for one seed, where labels can be separated, and 0.8 for the other."""
    result = solver.solve(small_problem(seed), lam=0, passes=100)
    excess = [value - optimum(0.0, seed) for value in result.history.column("objective")]
    assert min(excess) >= -1e-9
    assert excess[-1] <= 0.1 * excess[0]
    assert result.status is Status.PASS_LIMIT
    assert result.history.column("dual") == result.history.column("gap") == [None] * len(excess)


def test_constant_steps_come_near_the_optimum() -> None:
    history = SGD(schedule="constant", learning_rate=0.01).solve(small_problem(), lam=LAM, passes=400).history
    assert -1e-9 <= history[-1].objective - optimum() <= 0.02


@some_solvers
def test_converged_means_a_small_gap(solver: Solver[Any]) -> None:
    result = replace(solver, gap_tolerance=0.2).solve(small_problem(), lam=1.0, passes=1000)
    assert result.status is Status.CONVERGED
    assert result.message.startswith("converged: objective")
    *before, last = (row.gap / row.objective for row in result.history)
    assert last <= 0.2 < min(before)


@some_solvers
def test_seeds(solver: Solver[Any]) -> None:
    first, again, other = (solver.solve(small_problem(), lam=LAM, passes=7, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(first.weights, again.weights)
    assert _without_time(first.history) == _without_time(again.history)
    assert not torch.equal(first.weights, other.weights)


@some_solvers
@pytest.mark.parametrize("learning_rate", [None, 1e6])
def test_resumes_from_every_pass_as_if_unbroken(
    solver: Solver[Any], learning_rate: float | None, tmp_path: Path
) -> None:
    solver, problem, moments = replace(solver, learning_rate=learning_rate), small_problem(), []
    whole = solver.solve(problem, lam=LAM, passes=25, callbacks=[record(moments)])
    assert len(moments) == len(whole.history)
    for state, history in moments:
        save_state(tmp_path / "state", *state.split())
        tensors, values = load_state(tmp_path / "state")
        for restored in (state, solver.state_type.joined(tensors, values)):
            rest = solver.solve(small_problem(), lam=LAM, passes=25, resume=(restored, History(history)))
            assert torch.equal(rest.weights, whole.weights)
            assert _without_time(rest.history) == _without_time(whole.history)
            assert (rest.status, rest.message) == (whole.status, whole.message)
            assert restored.step_size == values["step_size"]


def test_more_passes_continue_a_finished_run() -> None:
    moments: list[tuple[State, History]] = []
    short = CasimirSVRG().solve(small_problem(), lam=LAM, passes=3, callbacks=[record(moments)])
    state, history = moments[-1]
    longer = CasimirSVRG().solve(small_problem(), lam=LAM, passes=6, resume=(state, history))
    assert torch.equal(longer.weights, CasimirSVRG().solve(small_problem(), lam=LAM, passes=6).weights)
    assert (len(history), len(longer.history)) == (4, 7)
    assert torch.equal(state.weights, short.weights)


def solve_interrupted(solver: Solver[Any], problem: Problem, **options: Any) -> Result:
    try:
        result = solver.solve(problem, lam=LAM, passes=30, **options)
    except KeyboardInterrupt:  # it would end the session
        pytest.fail("lost what the last complete pass reached")
    assert result.status is Status.INTERRUPTED
    assert result.message.startswith("interrupted: objective")
    return result


@some_solvers
@pytest.mark.parametrize("at", [0, 3])
def test_interrupted_by_a_callback(solver: Solver[Any], at: int) -> None:
    seen: list[tuple[State, History]] = []

    def interrupt(progress: Progress[Any]) -> None:
        if len(progress.history) > at:
            raise KeyboardInterrupt

    result = solve_interrupted(solver, small_problem(), callbacks=[record(seen), interrupt])
    state, history = seen[-1]
    assert len(history) == at + 1
    assert result.history == history
    assert torch.equal(result.weights, state.weights)


@some_solvers
@pytest.mark.parametrize("at", [0, 3])
def test_stopped_by_a_callback(solver: Solver[Any], at: int) -> None:
    def stop(progress: Progress[Any]) -> None:
        if len(progress.history) > at:
            raise Stop

    result = solver.solve(small_problem(), lam=LAM, passes=30, callbacks=[stop])
    assert result.status is Status.STOPPED
    assert result.message.endswith("; a callback asked for it")
    shorter = solver.solve(small_problem(), lam=LAM, passes=int(result.history[-1].passes))
    assert torch.equal(result.weights, shorter.weights)
    assert len(result.history) == len(shorter.history) == at + 1


@pytest.mark.parametrize("calls", range(8, 16))
def test_interrupted_within_a_pass(calls: int) -> None:
    """The result is that of a run that was asked for no more than the complete passes."""
    problem, count = small_problem(), 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count > calls:
            raise KeyboardInterrupt
        return Problem.batch_loss_and_grad(problem, *arguments)

    solver = SVRG(batch_size=2, learning_rate=0.05)  # pairs: the epochs are in torch, four calls each
    problem.batch_loss_and_grad = interrupted
    result = solve_interrupted(solver, problem)
    expected = solver.solve(small_problem(), lam=LAM, passes=result.history[-1].passes)
    assert result.history[-1].passes == calls // 4
    assert torch.equal(result.weights, expected.weights)
    assert _without_time(result.history) == _without_time(expected.history)


def test_interrupted_before_there_is_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SparseChainProblem, "subset", interrupt)  # the estimate of the step size
    with pytest.raises(KeyboardInterrupt):
        SVRG().solve(small_problem(), lam=LAM)


def test_step_size_where_the_objective_rounds_below_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem()
    monkeypatch.setattr(SparseChainProblem, "loss", lambda self, w, smoother=None: -1e-17)
    assert 0 < SVRG().estimate_step_size(problem, 0.0, problem.start(), 0) < math.inf


@every_solver
@pytest.mark.parametrize("seed", range(3))
def test_the_first_step_size_needs_no_weights_that_the_sample_does_not_use(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = random_problem(LENGTHS, STATES, features=30, seed=seed)
    estimate = partial(SOLVERS[name][0].estimate_step_size, problem, LAM, problem.start(), seed)
    restricted = estimate()
    monkeypatch.setattr(SparseChainProblem, "restrict", Problem.restrict)  # all weights
    assert restricted == pytest.approx(estimate(), rel=1e-12)


@every_solver
@pytest.mark.parametrize("lam", [0.02, LAM, 1.0])
def test_an_absurd_learning_rate_costs_passes_only(name: str, lam: float) -> None:
    solver, passes = replace(SOLVERS[name][0], learning_rate=1e6), 1000 if name == "casimir, gradient" else 100
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
    assert result.history[-1].objective < 0.5 * result.history[0].objective


@every_solver
def test_an_exploding_pass_is_undone(name: str) -> None:
    solver = replace(SOLVERS[name][0], learning_rate=1e6)
    history = solver.solve(small_problem(), lam=1e-3, passes=10).history
    objectives = history.column("objective")
    assert history[1].step_size < 1e3
    assert all(b <= 2 * min(objectives[: k + 1]) for k, b in enumerate(objectives[1:]))


@default_solvers
@pytest.mark.parametrize("learning_rate", [None, 1e6])
def test_oracle_calls(solver: Solver[Any], learning_rate: float | None) -> None:
    """All inferences count, those of undone passes too; except, for SGD, the evaluations."""
    problem = small_problem()
    result = replace(solver, learning_rate=learning_rate).solve(problem, lam=0.02, passes=5)
    evaluations = 0
    if isinstance(solver, SGD):
        undone = round(math.log2(result.history[0].step_size / result.history[-1].step_size))
        evaluations = problem.n * (len(result.history) + undone)
    assert result.history[-1].oracle_calls == problem.oracle_calls - evaluations
    assert (result.history[0].oracle_calls > problem.n) == (learning_rate is None)


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


@some_solvers
def test_callbacks_see_every_row_and_add_metrics(solver: Solver[Any]) -> None:
    problem, seen = small_problem(), []

    def callback(progress: Progress[Any]) -> None:
        assert progress.problem is problem
        assert progress.row is progress.history[-1]
        assert progress.row.objective == pytest.approx(objective(problem, progress.state.weights, LAM), rel=1e-12)
        assert progress.row.passes == progress.state.passes
        seen.append(progress.row.passes)
        progress.row.metrics["norm"] = float(progress.state.weights.norm())

    result = solver.solve(problem, lam=LAM, passes=4, callbacks=[callback])
    assert result.history.column("passes") == seen
    assert result.history[-1].as_dict()["norm"] == float(result.weights.norm())
    assert solver.solve(problem, lam=LAM, passes=0).history.column("passes") == [0]


@some_solvers
def test_start_is_used_and_kept(solver: Solver[Any]) -> None:
    problem = small_problem()
    start = random_weights(problem)
    copy = start.clone()
    result = solver.solve(problem, lam=LAM, passes=2, start=start)
    assert result.history[0].objective == pytest.approx(objective(problem, copy, LAM), rel=1e-12)
    assert torch.equal(start, copy)


@pytest.mark.parametrize(("t0", "steps"), [(1.0, 5), (2.5, 10)])
def test_step_sizes_of_sgd(t0: float, steps: int) -> None:
    t = torch.arange(1, 3 * steps + 1, dtype=torch.float64)
    convex = SGD().step_sizes(t, steps, LAM, 0.5)
    assert convex[0] == 0.5
    assert (1 / convex).diff().tolist() == pytest.approx([2 * LAM] * (len(t) - 1))
    inverse = SGD(schedule="inverse", t0=t0).step_sizes(t, steps, LAM, 0.5)
    assert inverse.tolist() == [0.5 / (1 + math.floor((s - 1) / (t0 * steps))) for s in t.tolist()]
    root = SGD(schedule="inverse-sqrt", t0=t0).step_sizes(t, steps, LAM, 0.5)
    assert root.tolist() == pytest.approx([(0.5 * value) ** 0.5 for value in inverse.tolist()])
    assert SGD(schedule="constant").step_sizes(t, steps, LAM, 0.5).tolist() == [0.5] * len(t)
    by_step = SGD(schedule="inverse-sqrt", t0=1 / steps).step_sizes(t, steps, LAM, 0.5)
    assert by_step.tolist() == pytest.approx([0.5 / s**0.5 for s in t.tolist()])


@pytest.mark.parametrize(
    ("schedule", "degree"), [("strongly-convex", 12), ("inverse", 1), ("inverse-sqrt", 1), ("constant", 1)]
)
def test_sgd_averages_iterates_by_powers_of_their_number(schedule: str, degree: int) -> None:
    problem, iterates = small_problem(), []
    solver = SGD(schedule=schedule, learning_rate=0.05)
    result = solver.solve(problem, lam=LAM, passes=4)
    w = problem.start()
    for passed in range(4):  # the same steps, one by one
        rng = np.random.default_rng([0, passed])
        for step, batch in enumerate(solver.order(problem, rng), start=passed * problem.n + 1):
            gamma = solver.step_sizes(torch.tensor(float(step), dtype=torch.float64), problem.n, LAM, 0.05)
            w = w - gamma * (problem.batch_loss_and_grad(w, batch, Max())[1] + LAM * w)
            iterates.append(w)
    # t (t + 1) ... (t + degree - 1)
    weights = torch.tensor([math.perm(t + degree - 1, degree) for t in range(1, len(iterates) + 1)]).double()
    average = weights @ torch.stack(iterates) / weights.sum()
    torch.testing.assert_close(result.weights, average, rtol=0, atol=1e-12)


def test_svrg_averages_epochs_by_powers_of_their_number() -> None:
    problem, means = small_problem(), []
    svrg_epoch = problem.svrg_epoch

    def spy(*arguments: Any, **settings: Any) -> tuple[Tensor, Tensor]:
        last, mean = svrg_epoch(*arguments, **settings)
        means.append(mean)
        return last, mean

    problem.svrg_epoch = spy
    result = SVRG(learning_rate=0.05).solve(problem, lam=LAM, passes=5)
    weights = torch.tensor([math.perm(t + 11, 12) for t in range(1, 6)]).double()
    assert len(means) == 5
    torch.testing.assert_close(result.weights, weights @ torch.stack(means) / weights.sum(), rtol=0, atol=1e-12)


BAD: list[tuple[Callable[[], object], type[Exception], str]] = [
    *(
        (lambda solver=solver, name=name, value=value: solver(**{name: value}), ValueError, f"{name} must be positive")
        for solver, name, value in [
            (SVRG, "learning_rate", 0.0),
            (SGD, "learning_rate", -1.0),
            (CasimirSVRG, "learning_rate", math.inf),
            (SVRG, "learning_rate", math.nan),
            (SGD, "batch_size", 0),
            (SVRG, "mu", 0.0),
            (CasimirSVRG, "mu", -2.0),
            (SVRG, "mu", math.nan),
            (CasimirSVRG, "kappa", 0.0),
            (CasimirSVRG, "max_inner", 0),
            (CasimirSVRG, "lipschitz", -1.0),
            (SGD, "t0", 0.0),
        ]
    ),
    *(
        (lambda solver=solver, name=name, value=value: solver(**{name: value}), TypeError, f"{name} must be {kind}")
        for solver, name, value, kind in [
            (SVRG, "learning_rate", "a", "a number, got str"),
            (SGD, "learning_rate", True, "a number, got bool"),
            (SVRG, "batch_size", 2.5, "an int, got float"),
            (SGD, "batch_size", True, "an int, got bool"),
            (CasimirSVRG, "max_inner", 2.5, "an int, got float"),
            (CasimirSVRG, "max_inner", None, "an int, got NoneType"),
            (CasimirSVRG, "gap_tolerance", None, "a number, got NoneType"),
            (SVRG, "mu", None, "a number, got NoneType"),
            (CasimirSVRG, "kappa", "1", "a number, got str"),
            (CasimirSVRG, "mu", torch.tensor(1.0), "a number, got Tensor"),
            (SGD, "t0", [1.0], "a number, got list"),
        ]
    ),
    (lambda: SGD(gap_tolerance=-1e-3), ValueError, "gap_tolerance must be at least 0 and finite, got -0.001"),
    (lambda: SVRG(gap_tolerance=math.nan), ValueError, "gap_tolerance must be at least 0 and finite, got nan"),
    (lambda: SVRG(k=0), ValueError, "k must be at least 1, got 0"),
    (lambda: CasimirSVRG(k=2.5), TypeError, "k must be an int, got float"),
    (lambda: SVRG(smoothing="l1"), ValueError, """smoothing must be "l2" or "entropy", got 'l1'"""),
    (lambda: CasimirSVRG(schedule="inverse"), ValueError, "schedule must be one of adaptive, constant, got 'inverse'"),
    (lambda: CasimirSVRG(warm_start="cold"), ValueError, "warm_start must be one of prox-center, .*, got 'cold'"),
    (lambda: CasimirSVRG(inner_stop="never"), ValueError, "inner_stop must be one of budget, gradient, got 'never'"),
    (lambda: CasimirSVRG(lipschitz=1.0, learning_rate=1.0), ValueError, "give lipschitz or learning_rate, not both"),
    (lambda: SGD(schedule="linear"), ValueError, "schedule must be one of strongly-convex, .*, got 'linear'"),
    (lambda: SGD().solve(small_problem(), lam=0), ValueError, '"strongly-convex" schedule needs lam > 0'),
    (lambda: SVRG().solve(small_problem(), lam=-0.1), ValueError, "lam must be at least 0 and finite, got -0.1"),
    (lambda: SVRG().solve(small_problem(), lam=math.nan), ValueError, "lam must be at least 0 and finite, got nan"),
    (lambda: SVRG().solve(small_problem(), lam=1, passes=-1), ValueError, "passes must be at least 0, got -1"),
    *(
        (lambda name=name, value=value: SVRG().solve(small_problem(), **{"lam": 1.0, name: value}), error, message)
        for name, value, error, message in [
            ("lam", "1", TypeError, "lam must be a number, got str"),
            ("passes", 2.5, TypeError, "passes must be an int, got float"),
            ("seed", -1, ValueError, "seed must be at least 0, got -1"),
            ("seed", 1.5, TypeError, "seed must be an int, got float"),
            ("start", [0.0] * 27, TypeError, "start must be a torch.Tensor, got list"),
        ]
    ),
    (
        lambda: SVRG().solve(small_problem(), lam=1, start=torch.zeros(3)),
        ValueError,
        r"start must have shape \[dim\] = \(27,\), got \(3,\)",
    ),
    (
        lambda: SVRG(learning_rate=1.0).solve(Mirage(), lam=1, start=torch.ones(2)),
        ValueError,
        "objective at the start must be finite, got nan",
    ),
]


@pytest.mark.parametrize(("make", "error", "message"), BAD, ids=[message for _, _, message in BAD])
def test_refuses_bad_hyperparameters(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_refuses_to_resume_what_it_cannot_go_on_from() -> None:
    moments: list[tuple[State, History]] = []
    SVRG().solve(small_problem(), lam=LAM, passes=1, callbacks=[record(moments)])
    state, history = moments[-1]
    other = random_problem(LENGTHS, STATES, FEATURES + 1)
    with pytest.raises(ValueError, match=r"resume must hold weights of shape \[dim\] = \(30,\), got \(27,\)"):
        SVRG().solve(other, lam=LAM, passes=2, resume=(state, history))
    with pytest.raises(TypeError, match="resume must begin with a CasimirState, got SVRGState"):
        CasimirSVRG().solve(small_problem(), lam=LAM, passes=2, resume=(state, history))
    with pytest.raises(ValueError, match="resume must hold a history with a row at least, got an empty one"):
        SVRG().solve(small_problem(), lam=LAM, passes=2, resume=(state, History()))


@some_solvers
def test_start_is_converted_to_the_dtype_of_the_problem(solver: Solver[Any]) -> None:
    problem = small_problem()
    start = random_weights(problem).float()
    result = solver.solve(problem, lam=LAM, passes=2, start=start.requires_grad_())
    expected = solver.solve(problem, lam=LAM, passes=2, start=start.detach().double())
    assert result.weights.dtype == torch.float64
    assert torch.equal(result.weights, expected.weights)
    assert start.dtype == torch.float32


def _without_time(history: History) -> list[dict[str, Any]]:
    return [{**row.as_dict(), "seconds": 0} for row in history]
