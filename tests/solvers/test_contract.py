"""What every solver keeps to: runs that repeat, resume and stop, honest histories, certificates, named errors."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from small_networks import chain_problem
from small_problems import random_problem
from solver_cases import (
    ALL,
    BLOCKWISE,
    CASES,
    FEATURES,
    LAM,
    LENGTHS,
    PRIMAL,
    PROXIMAL,
    SMOOTHED_ASCENT,
    STATES,
    Case,
    bounded_problem,
    crf,
    minimizer,
    moments_of,
    objective,
    record,
    small_problem,
    without_time,
)

from structsmooth import (
    BCFW,
    LBFGS,
    SGD,
    SMO,
    SVRG,
    Adam,
    BatchExponentiatedGradient,
    CasimirSVRG,
    ConvexConcave,
    CuttingPlane,
    Entropy,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    History,
    IncrementalProxLinear,
    NormalizedHamming,
    NSlackCuttingPlane,
    Problem,
    ProximalBCFW,
    ProximalSDCA,
    ProxLinear,
    Result,
    SparseChainProblem,
    Status,
)
from structsmooth.checkpoint import load_state, save_state
from structsmooth.compiled import clock
from structsmooth.history import Row
from structsmooth.settings import given_type
from structsmooth.solvers import Progress, Solver, State, Stop

DUAL = (BCFW, ProximalBCFW, FrankWolfe, CuttingPlane, NSlackCuttingPlane)  # which start from the states of other runs
FROM_ONE_START = (BatchExponentiatedGradient, ExcessiveGap, ExponentiatedGradient, Extragradient, SMO)
WITHOUT_ORDER = (FrankWolfe, CuttingPlane, BatchExponentiatedGradient, ExcessiveGap, Extragradient, LBFGS)
OF_LIKELIHOODS = (BatchExponentiatedGradient, ExponentiatedGradient)
WITH_DUAL = (*DUAL, *FROM_ONE_START)
SOLVERS: list[type[Solver[Any]]] = [
    SGD,
    SVRG,
    CasimirSVRG,
    ProximalSDCA,
    Adam,
    ProxLinear,
    IncrementalProxLinear,
    LBFGS,
    *WITH_DUAL,
]
STARTS_FROM_WEIGHTS = {name: case for name, case in CASES.items() if not isinstance(case.solver, WITH_DUAL)}
# Solvers that search for the size of every step.
STEPS_OF_ANY_SIZE = (
    CASES["proximal-sdca"].solver,
    *(case.solver for case in CASES.values() if isinstance(case.solver, (*WITH_DUAL, ConvexConcave, LBFGS))),
)
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.__name__)


def problem_for(solver: type[Solver[Any]], features: int = FEATURES) -> SparseChainProblem:
    """A problem that a solver takes: hinges, or a likelihood for the one of smooth losses."""
    hinge = random_problem(LENGTHS, STATES, features, seed=2)
    if solver is not LBFGS:
        return hinge
    return SparseChainProblem(hinge.sequences, hinge.labels, features, STATES, None, Entropy(1.0))


def start_of(case: Case) -> Any:
    """Random weights, or the state of another run for solvers of the dual."""
    problem = case.problem()
    if isinstance(case.solver, DUAL):
        return case.solver.solve(problem, lam=LAM, passes=3, seed=9).state
    noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return problem.start() + noise


def impatient(problem: Problem, limit: int) -> Problem:
    """The problem; the first inference beyond a limit is interrupted."""

    class Impatient(type(problem)):  # type: ignore[misc]
        made = 0  # also in problems over some of the examples, which are of the same class

        @property
        def oracle_calls(self) -> int:
            return self.made

        @oracle_calls.setter
        def oracle_calls(self, calls: int) -> None:
            if calls > limit:
                raise KeyboardInterrupt
            self.made = calls

    problem.__class__ = Impatient
    return problem


@pytest.mark.parametrize("case", STARTS_FROM_WEIGHTS.values(), ids=STARTS_FROM_WEIGHTS.keys())
def test_start_is_converted_to_the_dtype_of_the_problem(case: Case) -> None:
    problem, start = case.problem(), start_of(case).float()
    result = case.solver.solve(problem, lam=LAM, passes=2, start=start.requires_grad_())
    expected = case.solver.solve(problem, lam=LAM, passes=2, start=start.detach().double())
    assert result.weights.dtype == torch.float64
    assert torch.equal(result.weights, expected.weights)
    assert start.dtype == torch.float32


@every_case
class TestRuns:
    def test_same_seed_same_result(self, case: Case) -> None:
        first, again, other = (case.solver.solve(case.problem(), lam=LAM, passes=7, seed=seed) for seed in (5, 5, 6))
        assert torch.equal(first.weights, again.weights)
        assert without_time(first.history) == without_time(again.history)
        assert torch.equal(first.weights, other.weights) == isinstance(case.solver, WITHOUT_ORDER)

    def test_resumes_as_if_unbroken(self, case: Case, tmp_path: Path) -> None:
        moments: list[tuple[State, History]] = []
        whole = case.solver.solve(case.problem(), lam=LAM, passes=case.passes, seed=3, callbacks=[record(moments)])
        assert len(moments) == len(whole.history) > 3
        middle = len(moments) // 2
        for i in {0, 1, middle, len(moments) - 2}:
            state, history = moments[i]
            save_state(tmp_path / "state", *state.split())
            tensors, numbers = load_state(tmp_path / "state")
            numbers["limit"] = 7  # as checkpoints once had it
            loaded = case.solver.state_type.joined(tensors, numbers)
            for start in (state, loaded) if i == middle else (loaded,):
                assert start.step_size == numbers["step_size"]
                resume = (start, History(history))
                rest = case.solver.solve(case.problem(), lam=LAM, passes=case.passes, seed=3, resume=resume)
                assert torch.equal(rest.weights, whole.weights)
                assert without_time(rest.history) == without_time(whole.history)
                assert (rest.status, rest.message) == (whole.status, whole.message)

    def test_more_passes_continue_a_finished_run(self, case: Case) -> None:
        (_, history), *_, (_, whole) = moments_of(case.solver, case.problem(), case.passes)
        few = int(whole[len(whole) // 2].passes)
        short = case.solver.solve(case.problem(), lam=LAM, passes=few)
        kept, numbers = History(short.history), short.state.split()[1]
        longer = case.solver.solve(case.problem(), lam=LAM, passes=case.passes, resume=(short.state, short.history))
        assert without_time(longer.history) == without_time(whole)
        assert short.history == kept == longer.history[: len(kept)]
        assert short.state.split()[1] == numbers
        assert torch.equal(short.state.best_weights, short.weights)
        assert len(history) == 1

    @pytest.mark.parametrize(("at", "error"), [(0, KeyboardInterrupt), (3, Stop)])
    def test_stopped_by_a_callback(self, case: Case, at: int, error: type[BaseException]) -> None:
        def stop(progress: Progress[Any]) -> None:
            if len(progress.history) > at:
                raise error

        seen: list[tuple[State, History]] = []
        result = case.solver.solve(case.problem(), lam=LAM, passes=30, callbacks=[record(seen), stop])
        state, history = seen[-1]
        assert len(history) == at + 1
        assert result.history == history
        assert torch.equal(result.weights, state.best_weights)
        assert result.status is (Status.STOPPED if error is Stop else Status.INTERRUPTED)
        assert result.message.startswith(f"{result.status.value}: objective")
        assert result.message.endswith("a callback asked for it") == (error is Stop)
        shorter = case.solver.solve(case.problem(), lam=LAM, passes=int(history[-1].passes))
        assert torch.equal(result.weights, shorter.weights)
        assert without_time(shorter.history) == without_time(history)

    @pytest.mark.parametrize(("at", "share"), [(0, 0.5), (2, 0.0)])
    def test_interrupted_within_a_pass(self, case: Case, at: int, share: float) -> None:
        """The result is that of the complete passes."""
        problem, calls, seen = case.problem(), [], list[tuple[State, History]]()
        callbacks = [record(seen), lambda progress: calls.append(progress.problem.oracle_calls)]
        case.solver.solve(problem, lam=LAM, passes=case.passes, callbacks=callbacks)
        limit = calls[at] + int(share * (calls[at + 1] - calls[at]))
        result = interrupted(case, impatient(case.problem(), limit))
        state, history = seen[at]
        assert result.status is Status.INTERRUPTED
        assert torch.equal(result.weights, state.best_weights)
        assert without_time(result.history) == without_time(history)

    def test_interrupted_before_there_is_anything(self, case: Case) -> None:
        with pytest.raises(KeyboardInterrupt):
            case.solver.solve(impatient(case.problem(), 0), lam=LAM)

    def test_callbacks_see_every_row_and_add_metrics(self, case: Case) -> None:
        problem, seen = case.problem(), []

        def callback(progress: Progress[Any]) -> None:
            assert progress.problem is problem
            assert progress.row is progress.history[-1]
            assert progress.row.objective == pytest.approx(objective(problem, progress.state.weights), rel=1e-12)
            assert progress.row.passes == progress.state.passes
            assert progress.state.memo.full is None
            seen.append(progress.row.passes)
            progress.row.metrics["norm"] = float(progress.state.weights.norm())

        result = case.solver.solve(problem, lam=LAM, passes=4, callbacks=[callback])
        assert result.history.column("passes") == seen
        assert result.row.as_dict()["norm"] == float(result.weights.norm())
        assert case.solver.solve(problem, lam=LAM, passes=0).history.column("passes") == [0]

    def test_history(self, case: Case) -> None:
        problem = case.problem()
        result = case.solver.solve(problem, lam=LAM, passes=case.passes)
        history = result.history
        assert history[0].passes == 0
        assert all(a < b for a, b in pairwise(history.column("passes")))
        cached = isinstance(case.solver, BCFW) and case.solver.cache  # a pass may take all outputs from there
        assert all(a < b or (cached and a == b) for a, b in pairwise(history.column("oracle_calls")))
        assert all(a <= b for a, b in pairwise(history.column("seconds")))
        assert result.row.objective == pytest.approx(objective(problem, result.weights), rel=1e-12)
        assert result.row.objective == min(history.column("objective"))
        assert all((row.step_size is None) == (case.solver in STEPS_OF_ANY_SIZE) for row in history)
        smooths = isinstance(
            case.solver, SVRG | CasimirSVRG | ProximalSDCA | ExcessiveGap | LBFGS
        ) or makes_smoothed_models(case.solver)
        assert all((row.mu > 0) == smooths for row in history)
        linear = isinstance(problem, SparseChainProblem)
        assert all((row.dual is not None) == (row.gap is not None) == linear for row in history)
        assert History.from_json_lines(history.to_json_lines().splitlines()) == history

    def test_oracle_calls(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        """All inferences count, those of undone passes too; evaluations where they steer step sizes, or are used."""
        problem, kind, evaluations = case.problem(), type(case.solver), []
        evaluate = kind.evaluate

        def counted(solver: Any, problem: Problem, *arguments: Any) -> Any:
            before = problem.oracle_calls
            full = evaluate(solver, problem, *arguments)
            evaluations.append(problem.oracle_calls - before)
            return full

        monkeypatch.setattr(kind, "evaluate", counted)
        history = case.solver.solve(problem, lam=LAM, passes=case.passes).history
        assert len(evaluations) >= len(history)
        if isinstance(case.solver, SVRG | CasimirSVRG | ProxLinear | ConvexConcave | LBFGS):
            evaluations = []
        elif isinstance(case.solver, FrankWolfe | CuttingPlane):
            evaluations = evaluations[-1:]
        assert history[-1].oracle_calls == problem.oracle_calls - sum(evaluations)

    def test_start_is_used_and_kept(self, case: Case) -> None:
        if isinstance(case.solver, FROM_ONE_START):
            with pytest.raises(TypeError, match="start must be None"):
                case.solver.solve(case.problem(), lam=LAM, start=start_of(case))
            return
        problem, start = case.problem(), start_of(case)
        before = start.split()[0] if isinstance(start, State) else {"start": start}
        copies = {name: tensor.clone() for name, tensor in before.items()}
        first = case.solver.solve(problem, lam=LAM, passes=2, start=start).history[0]
        assert first.passes == 0
        if isinstance(start, State):
            assert first.dual == pytest.approx(start.dual, abs=1e-12) != 0
        else:
            assert first.objective == pytest.approx(objective(problem, start), rel=1e-12)
        assert all(torch.equal(copies[name], tensor) for name, tensor in before.items())


def makes_smoothed_models(solver: Solver[Any]) -> bool:
    """Whether it is a prox-linear one that smooths its models, and so evaluates linearized problems."""
    return isinstance(solver, ProxLinear) and solver.oracle != "max"


def interrupted(case: Case, problem: Problem) -> Result:
    try:
        return case.solver.solve(problem, lam=LAM, passes=case.passes)
    except KeyboardInterrupt:  # it would end the session
        pytest.fail("lost what the last complete pass reached")


@pytest.mark.parametrize(
    ("solver", "saved"),
    [
        (SVRG(learning_rate=0.05), 6),
        (CasimirSVRG(learning_rate=0.05, schedule="constant"), 6),
        (CasimirSVRG(learning_rate=0.05), 6),
        (SGD(learning_rate=0.05), 0),
        (FrankWolfe(), 6),
        (CuttingPlane(), 6),
    ],
)
def test_a_pass_at_the_weights_of_an_evaluation_is_not_made_again(solver: Solver[Any], saved: int) -> None:
    problem = small_problem()
    solver.solve(problem, lam=LAM, passes=6)
    full_passes = 6 if isinstance(solver, SVRG | CasimirSVRG | FrankWolfe | CuttingPlane) else 0
    steps = 0 if isinstance(solver, FrankWolfe | CuttingPlane) else 6
    assert problem.oracle_calls == problem.n * (7 + full_passes - saved + steps)


@dataclass(frozen=True)
class Goal:
    """What a solver reaches in some passes: an excess over the optimum, a part of the first one, a relative gap."""

    solver: Solver[Any]
    passes: int
    excess: float = math.inf
    part: float = 1 / 15
    gap: float = math.inf
    seeds: tuple[tuple[int, int], ...] = ((2, 0),)
    """Of problem and run."""
    bounded: bool = False


GOALS: dict[str, Goal] = {
    **{name: Goal(solver, 400, excess) for name, (solver, excess) in (PRIMAL | SMOOTHED_ASCENT).items()},
    "proximal-sdca, soon": Goal(ProximalSDCA(k=ALL), 300, gap=0.01),
    "casimir, soon": Goal(CasimirSVRG(k=ALL), 300, gap=0.05),
    "adam": Goal(Adam(), 60, part=0.3, seeds=((0, 0), (1, 0), (2, 0))),
    "prox-linear": Goal(ProxLinear(inner=BCFW()), 300, 0.01),
    "prox-linear, casimir": Goal(ProxLinear(inner=CasimirSVRG(schedule="constant", k=ALL)), 300, 0.01),
    **{
        name: Goal(solver, 300, gap=0.02, seeds=((0, 0), (1, 1), (2, 2)))
        for name, solver in (BLOCKWISE | PROXIMAL).items()
    },
    "frank-wolfe": Goal(FrankWolfe(), 1000, gap=0.02, seeds=((1, 0),)),
    "bcfw, bounds": Goal(BCFW(), 40, gap=0.02, bounded=True),
    "proximal-bcfw, bounds": Goal(ProximalBCFW(), 40, gap=0.02, bounded=True),
    "cutting-plane": Goal(CuttingPlane(), 60, gap=1e-6, seeds=((0, 0), (1, 0), (2, 0))),
    "cutting-plane, few planes": Goal(CuttingPlane(idle=1), 200, gap=1e-6),
    "n-slack": Goal(NSlackCuttingPlane(), 25, gap=1e-6, seeds=((0, 0), (1, 0), (2, 0))),
    "n-slack, few planes": Goal(NSlackCuttingPlane(idle=1), 40, gap=1e-6),
    "n-slack, bounds": Goal(NSlackCuttingPlane(), 25, gap=1e-4, bounded=True),
    "excessive-gap": Goal(ExcessiveGap(), 300, gap=0.02),
    "excessive-gap, bounds": Goal(ExcessiveGap(), 300, gap=0.02, bounded=True),
    "exponentiated-gradient": Goal(ExponentiatedGradient(), 100, gap=0.01, seeds=((0, 0), (1, 1), (2, 2))),
    "exponentiated-gradient, not accelerated": Goal(ExponentiatedGradient(accelerated=False), 200, gap=0.02),
    "exponentiated-gradient, bounds": Goal(ExponentiatedGradient(), 60, gap=0.02, bounded=True),
    "batch-exponentiated-gradient": Goal(BatchExponentiatedGradient(), 400, gap=0.03),
    "batch-exponentiated-gradient, bounds": Goal(BatchExponentiatedGradient(), 400, gap=0.03, bounded=True),
    "smo": Goal(SMO(), 100, gap=1e-3, seeds=((0, 0), (1, 1), (2, 2))),
    "smo, bounds": Goal(SMO(), 60, gap=0.01, bounded=True),
    "extragradient": Goal(Extragradient(), 200, gap=0.03),
    "extragradient, bounds": Goal(Extragradient(), 150, gap=0.03, bounded=True),
    "frank-wolfe, bounds": Goal(FrankWolfe(), 1000, gap=0.02, seeds=((1, 0),), bounded=True),
}


@pytest.mark.parametrize(
    ("goal", "seed", "run_seed"),
    [pytest.param(goal, *seeds, id=f"{name}-{seeds}") for name, goal in GOALS.items() for seeds in goal.seeds],
)
def test_reaches_the_optimum_with_a_certificate(goal: Goal, seed: int, run_seed: int) -> None:
    problem = bounded_problem(seed) if goal.bounded else small_problem(seed)
    best = minimizer(seed=seed, bounded=goal.bounded)
    least = objective(problem, best)
    result = replace(goal.solver, gap_tolerance=0).solve(problem, lam=LAM, passes=goal.passes, seed=run_seed)
    history, last = result.history, result.row
    assert all(row.gap == row.objective - row.dual >= -1e-12 for row in history)
    assert all(row.dual <= least + 1e-9 <= row.objective + 2e-9 for row in history)
    assert all(a <= b + 1e-12 for a, b in pairwise(history.column("dual")))
    if isinstance(goal.solver, DUAL) and not goal.bounded:
        assert history[0].dual == 0
    excess = last.objective - least
    assert excess <= goal.excess
    assert excess <= goal.part * (history[0].objective - least)
    assert last.gap <= goal.gap * least
    # F is λ-strongly convex.
    assert float((result.weights - best).norm()) <= math.sqrt(2 * max(last.gap, 0.0) / LAM) + 1e-6
    assert torch.equal(result.weights, problem.within_bounds(result.weights))
    assert last.objective == pytest.approx(objective(problem, result.weights), rel=1e-12)
    assert result.status is (Status.PASS_LIMIT if last.gap > 0 else Status.CONVERGED)
    assert last.gap <= 0 or history[-1].passes >= goal.passes


@pytest.mark.parametrize("lam", [0.1, 0.01, 0.001])
def test_solvers_agree(lam: float) -> None:
    """To the gaps that they reach: 1e-3 by pairwise steps; the others are slow in the end for small λ."""
    problem = random_problem(tuple(1 + i % 4 for i in range(20)), 3, 60, NormalizedHamming(), seed=1)
    blockwise = {
        f"{sampling}, {steps}, {'cache' if cache else 'no cache'}": BCFW(sampling=sampling, steps=steps, cache=cache)
        for sampling, steps, cache in product(("uniform", "gap"), ("fw", "pairwise"), (False, True))
    }
    results = {}
    others = {
        "batch": FrankWolfe(),
        "proximal pairwise": ProximalBCFW(),
        "Casimir": CasimirSVRG(),
        "planes": CuttingPlane(),
        "planes of each": NSlackCuttingPlane(),
    }
    for name, solver in (blockwise | others).items():
        results[name] = solver.solve(problem, lam=lam, passes=1000, callbacks=[stop_at(1e-3)])
        assert "pairwise" not in name or results[name].row.gap <= 1e-3, name
    highest = max(result.row.dual for result in results.values())
    assert all(highest - 1e-9 <= result.row.objective for result in results.values())
    for a, b in combinations(results.values(), 2):
        radius = sum(distance_to_optimum(r.row, lam) for r in (a, b))
        assert float((a.weights - b.weights).norm()) <= radius


def distance_to_optimum(last: Row, lam: float) -> float:
    """F is λ-strongly convex: ‖w − w*‖² ≤ 2 gap/λ. A gap is the difference of two rounded numbers."""
    rounding = 8 * np.finfo(float).eps * last.objective
    return math.sqrt(2 * max(last.gap + rounding, 0.0) / lam)


def stop_at(gap: float) -> Callable[[Progress[Any]], None]:
    def callback(progress: Progress[Any]) -> None:
        if progress.row.gap is not None and progress.row.gap <= gap:
            raise Stop

    return callback


@pytest.mark.parametrize(
    ("solver", "lam"),
    [
        (SVRG(gap_tolerance=0.2), 1.0),
        (CasimirSVRG(gap_tolerance=0.2), 1.0),
        (CasimirSVRG(inner_stop="gradient", gap_tolerance=0.2), 1.0),
        (SGD(gap_tolerance=0.2), 1.0),
        (Adam(gap_tolerance=0.2), 1.0),
        (ProxLinear(inner=BCFW(), gap_tolerance=0.2), 1.0),
        (IncrementalProxLinear(gap_tolerance=0.05), LAM),
        (BCFW(gap_tolerance=0.05), LAM),
        (ProximalBCFW(gap_tolerance=0.05), LAM),
        (FrankWolfe(gap_tolerance=0.05), LAM),
    ],
)
def test_converged_means_a_small_gap(solver: Solver[Any], lam: float) -> None:
    result = solver.solve(small_problem(), lam=lam, passes=1000)
    assert result.status is Status.CONVERGED
    assert result.message.startswith("converged: objective")
    *_, before, last = (History(result.history[:end]).best() for end in range(1, len(result.history) + 1))
    assert last.gap / last.objective <= solver.gap_tolerance < before.gap / before.objective


def bad_hyperparameters() -> Iterator[Any]:
    """A solver, the name of a hyperparameter, a bad value, and the error."""
    for solver in SOLVERS:
        for f in fields(solver):
            for value, error, expected in bad_values(f.name, get_type_hints(solver)[f.name], f.default):
                message = f"{f.name} must be {expected}.*, got "
                yield pytest.param(solver, f.name, value, error, message, id=f"{solver.__name__}-{f.name}-{value}")


def bad_values(name: str, hint: Any, default: Any) -> Iterator[tuple[Any, type[Exception], str]]:
    hint = given_type(hint)  # the number, where choices are others
    if get_origin(hint) is Literal:
        yield "nonsense", ValueError, ".*".join(["", *get_args(hint)])
    if hint in (int, float):
        kind = "an int" if hint is int else "a number"
        wrong = ["1", [1.0], torch.tensor(1.0), True, *([2.5] if hint is int else []), *([None] if default else [])]
        yield from ((value, TypeError, kind) for value in wrong)
        least = "(at least 0|at least 1|positive)"
        yield from ((value, ValueError, least) for value in (-1, *([math.nan, math.inf] if hint is float else [])))
        if name not in ("gap_tolerance", "cache_factor", "cache_nu"):
            yield 0, ValueError, least


@pytest.mark.parametrize(("solver", "name", "value", "error", "message"), [*bad_hyperparameters()])
def test_refuses_bad_hyperparameters(
    solver: type[Solver[Any]], name: str, value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        solver(**{name: value})


def test_compilation_does_not_count_as_training(monkeypatch: pytest.MonkeyPatch) -> None:
    full_pass = SparseChainProblem.full_pass

    def compiled_first(*arguments: Any, **options: Any) -> Any:
        clock.leave_out(1000.0)
        return full_pass(*arguments, **options)

    monkeypatch.setattr(SparseChainProblem, "full_pass", compiled_first)
    history = SVRG().solve(small_problem(), lam=LAM, passes=2).history
    assert history[-1].seconds < -1000


@every_solver
def test_numbers_of_numpy_are_numbers(solver: type[Solver[Any]]) -> None:
    given: dict[str, Any] = {
        f.name: {int: np.int64, float: np.float32}[type(f.default)](2 * f.default or 0.5)
        for f in fields(solver)
        if type(f.default) in (int, float)
    }
    if "threads" in given:
        given["threads"] = np.int64(1)  # with several, no two runs are the same
    plain = {name: value.item() for name, value in given.items()}
    assert {name: type(value) for name, value in vars(solver(**given)).items()} == {
        name: type(value) for name, value in vars(solver(**plain)).items()
    }
    own = solver(**plain).solve(problem_for(solver), lam=0.25, passes=2, seed=3)
    same = solver(**given).solve(problem_for(solver), lam=np.float32(0.25), passes=np.int64(2), seed=np.int32(3))
    assert without_time(own.history) == without_time(same.history)
    assert torch.equal(own.weights, same.weights)
    json.dumps(same.state.split()[1])


@every_solver
@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("lam", -0.1, ValueError, "lam must be at least 0 and finite, got -0.1"),
        ("lam", math.nan, ValueError, "lam must be at least 0 and finite, got nan"),
        ("lam", [1], TypeError, "lam must be a number, got list"),
        ("lam", "one", ValueError, "lam must be a number or c/n with c >= 0, .* got 'one'"),
        ("passes", -1, ValueError, "passes must be at least 0, got -1"),
        ("passes", 2.5, TypeError, "passes must be an int, got float"),
        ("seed", -1, ValueError, "seed must be at least 0, got -1"),
        ("seed", 1.5, TypeError, "seed must be an int, got float"),
        ("start", [0.0] * 27, TypeError, "start must be (a .*|None), got list"),
    ],
)
def test_refuses_bad_arguments(
    solver: type[Solver[Any]], name: str, value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        solver().solve(problem_for(solver), **{"lam": 1.0, name: value})


@every_solver
def test_refuses_a_start_of_another_problem_or_solver(solver: type[Solver[Any]]) -> None:
    problem, other = problem_for(solver), random_problem()
    if solver in DUAL:
        foreign: Any = solver().solve(other, lam=1, passes=1).state
        shapes = r"statistics must (have shape \(78,\), got \(84,\)|be of 5 sequences with 11 tokens)"
        message = f"{shapes}|start must be of 27 weights, got one of 30"
        accepted = BCFW if issubclass(solver, BCFW) else solver
        wrong, kind = problem.start(), f"start must be a {accepted.__name__}State, got Tensor"
    elif solver in FROM_ONE_START:
        with pytest.raises(TypeError, match="start must be None, got Tensor"):
            solver().solve(problem, lam=1, start=problem.start())
        return
    else:
        foreign, message = torch.zeros(3), r"start must have shape \[dim\] = \(27,\), got \(3,\)"
        wrong, kind = (
            BCFW().solve(small_problem(), lam=1, passes=1).state,
            "start must be a torch.Tensor, got BCFWState",
        )
    with pytest.raises(ValueError, match=message):
        solver().solve(problem, lam=1, start=foreign)
    with pytest.raises(TypeError, match=kind):
        solver().solve(problem, lam=1, start=wrong)


@every_solver
def test_refuses_to_resume_from_another_run(solver: type[Solver[Any]]) -> None:
    state, history = moments_of(solver(), problem_for(solver), passes=1)[-1]
    other = problem_for(solver, FEATURES + 1)
    with pytest.raises(ValueError, match=r"resume must hold weights of shape \[dim\] = \(30,\), got \(27,\)"):
        solver().solve(other, lam=LAM, passes=2, resume=(state, history))
    foreign = FrankWolfe if solver is BCFW else BCFW
    with pytest.raises(
        TypeError, match=f"resume must begin with a {foreign.__name__}State, got {type(state).__name__}"
    ):
        foreign().solve(small_problem(), lam=LAM, passes=2, resume=(state, history))
    with pytest.raises(ValueError, match="resume must hold a history with a row at least, got an empty one"):
        solver().solve(problem_for(solver), lam=LAM, passes=2, resume=(state, History()))


@every_solver
def test_refuses_problems_that_it_cannot_solve(solver: type[Solver[Any]]) -> None:
    name = solver.__name__
    if solver in WITH_DUAL:
        if solver is not ProximalBCFW:
            with pytest.raises(ValueError, match=f"{name} needs lam > 0"):
                solver().solve(small_problem(), lam=0)
        with pytest.raises(TypeError, match=f"{name} needs a LinearProblem, got ModuleProblem"):
            solver().solve(chain_problem(), lam=1)
        if solver not in OF_LIKELIHOODS:
            with pytest.raises(ValueError, match=f"{name} needs a problem of hinges, got one with Entropy"):
                solver().solve(crf(), lam=1)
    else:
        with pytest.raises(
            ValueError, match=f"{name} does not keep the bounds of the problem; take BCFW or FrankWolfe"
        ):
            solver().solve(bounded_problem(), lam=LAM, passes=1)
