"""Dual losses with primal weights: visits against plain torch, bounds, optima, runs that repeat and resume."""

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from factor_graphs import FORMS, random_problem, relaxed_objective, relaxed_optimum
from solver_cases import record, without_time
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BCFW, DLPW, FactorGraphProblem, SoftBCFW, Status
from structsmooth.checkpoint import load_state, save_state
from structsmooth.solvers import Progress, Stop
from structsmooth.solvers.baselines import dlpw
from structsmooth.solvers.soft_bcfw.dual import SoftDual
from structsmooth.solvers.soft_bcfw.point import SoftPoint

LAM = 0.1
every_temperature = pytest.mark.parametrize("temperature", [0.0, 0.02])


def largest(scores: Tensor, temperature: float) -> Tensor:
    return temperature * (scores / temperature).logsumexp(-1) if temperature else scores.amax(-1)


def choice(scores: Tensor, temperature: float) -> Tensor:
    if temperature:
        return (scores / temperature).softmax(-1)
    return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).double()


def visited(
    problem: FactorGraphProblem, w: Tensor, delta: Tensor, block: int, step: float, temperature: float
) -> tuple[Tensor, Tensor]:
    """Weights and messages after a visit of one example."""
    graphs, w, delta = problem.graphs, w.clone(), delta.clone()
    unary, tables = problem.augmented(w, block)
    edges, own = graphs.edges[graphs.edges_of(block)].tolist(), delta[graphs.edges_of(block)]
    for i in range(len(unary)):
        ports = [(c, side) for c, pair in enumerate(edges) for side in range(2) if pair[side] == i]
        left = [(tables[c] if side == 0 else tables[c].T) - own[c, 1 - side] for c, side in ports]
        messages = [largest(table, temperature) for table in left]
        share = (unary[i] + sum(messages)) / (1 + len(ports))
        for (c, side), message in zip(ports, messages, strict=True):
            own[c, side] = message - share
    received = unary.clone()
    for c, pair in enumerate(edges):
        for side in range(2):
            received[pair[side]] += own[c, side]
    rest = tables - own[:, 0, :, None] - own[:, 1, None, :]
    chosen = choice(received, temperature), choice(rest.flatten(1), temperature).view_as(rest)
    change = tuple(a - b for a, b in zip(chosen, problem.label_parts(block), strict=True))
    gradient = problem.adjoint(change, block)
    return (1 - step * LAM) * w - step * gradient, delta


def random_point(problem: FactorGraphProblem) -> SoftPoint:
    generator = torch.Generator().manual_seed(1)
    start = SoftDual(problem, LAM).labels(short=False)
    w = torch.randn(problem.dim, generator=generator, dtype=torch.float64)
    messages = torch.randn(start.multipliers.shape, generator=generator, dtype=torch.float64)
    return SoftPoint(w, start.nodes, start.edges, messages)


@pytest.mark.parametrize("form", FORMS)
@every_temperature
def test_visits_are_star_updates_and_subgradient_steps(form: Any, temperature: float) -> None:
    problem = random_problem(*form)
    point, eta, done = random_point(problem), 0.2, 7
    new = dlpw.visited(SoftDual(problem, LAM), point, torch.tensor([2, 0, 2]), done, eta, temperature)
    w, delta = point.weights, point.multipliers
    for t, block in enumerate([2, 0, 2], start=done):
        w, delta = visited(problem, w, delta, block, eta / (1 + LAM * eta * t), temperature)
    assert_close(new.weights, w, rtol=0, atol=1e-10)
    assert_close(new.multipliers, delta, rtol=0, atol=1e-10)
    assert not torch.equal(new.nodes, point.nodes)


@cache
def least_objective(form: tuple[int, Any, bool]) -> float:
    return relaxed_optimum(random_problem(*form), LAM)


@pytest.mark.parametrize("form", [(2, "potts", True), (3, "potts", False), (3, "table", False)])
@every_temperature
def test_approaches_the_optimum_of_the_relaxation(form: Any, temperature: float) -> None:
    history = DLPW(temperature=temperature, gap_tolerance=0).solve(random_problem(*form), lam=LAM, passes=400).history
    least = least_objective(form)
    assert all(row.dual - 1e-9 <= least <= row.objective + 1e-9 for row in history)
    assert all(a <= b for a, b in pairwise(history.column("dual")))
    first, last = history[0], history[-1]
    assert last.objective - least < 0.05 * (first.objective - least)
    assert temperature == 0 or least - last.dual < 0.05 * (first.objective - least)
    assert [row.oracle_calls for row in history[:3]] == [0, 4, 8]


def test_smoothing_tightens_the_bound() -> None:
    problem = random_problem(3, "potts", False)
    hard, soft = (DLPW(temperature=t, gap_tolerance=0).solve(problem, lam=LAM, passes=300).history for t in (0.0, 0.02))
    assert hard[-1].dual < soft[-1].dual


def test_the_step_size_is_estimated_or_given() -> None:
    problem = random_problem(2, "potts", True)
    given = DLPW(learning_rate=0.25).solve(problem, lam=LAM, passes=1)
    assert given.history[-1].step_size == 0.25
    assert DLPW().solve(problem, lam=LAM, passes=1).row.step_size > 0
    assert dlpw.polyak_step_size(SoftDual(problem, LAM)) == pytest.approx(polyak(problem))


def polyak(problem: FactorGraphProblem) -> float:
    """Mean loss over mean squared gradient where all labels are wrong."""
    losses, norms = 0.0, 0.0
    for block in range(problem.n):
        labels = problem.graphs.labels[problem.graphs.nodes_of(block)]
        wrong = problem.parts((labels == 0).long(), block)
        gradient = problem.adjoint(wrong, block) - problem.adjoint(problem.label_parts(block), block)
        losses += sum(float((own * cost).sum()) for own, cost in zip(wrong, problem.costs(block), strict=True))
        norms += float(gradient @ gradient)
    return losses / norms


@every_temperature
def test_same_seed_same_result_and_resumes_as_if_unbroken(temperature: float, tmp_path: Path) -> None:
    solver, moments = DLPW(temperature=temperature, gap_tolerance=0), list[Any]()
    whole = solver.solve(random_problem(), lam=LAM, passes=6, seed=3, callbacks=[record(moments)])
    other = solver.solve(random_problem(), lam=LAM, passes=6, seed=4)
    assert not torch.equal(whole.weights, other.weights)
    for state, history in moments:
        save_state(tmp_path / "state", *state.split())
        restored = solver.state_type.joined(*load_state(tmp_path / "state"))
        rest = solver.solve(random_problem(), lam=LAM, passes=6, seed=3, resume=(restored, history))
        assert torch.equal(rest.weights, whole.weights)
        assert without_time(rest.history) == without_time(whole.history)


def test_starts_from_another_run() -> None:
    problem = random_problem()
    before = DLPW().solve(problem, lam=LAM, passes=5)
    warm = DLPW().solve(problem, lam=LAM, passes=0, start=before.state)
    assert torch.equal(warm.weights, before.weights)
    assert warm.history[-1].objective == before.history[-1].objective


def test_the_objective_is_not_that_of_the_weights_alone() -> None:
    """What differs from the contract of other solvers: messages stand for inference, in evaluations, too."""
    problem, gaps = random_problem(), list[float]()

    def compare(progress: Progress[Any]) -> None:
        gaps.append(progress.row.objective - relaxed_objective(problem, progress.state.weights, LAM))

    result = DLPW(gap_tolerance=0).solve(problem, lam=LAM, passes=6, callbacks=[compare])
    assert len(gaps) == 7
    assert all(gap >= -1e-9 for gap in gaps)
    assert max(gaps) > 1e-3
    assert problem.oracle_calls == result.history[-1].oracle_calls == 6 * problem.n


@pytest.mark.parametrize("passes", [0, 2])
def test_an_interrupted_run_has_the_result_of_its_last_pass(passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, visit = random_problem(), dlpw.visited
    shorter = DLPW(gap_tolerance=0).solve(problem, lam=LAM, passes=passes)

    def interrupted(dual: SoftDual, point: SoftPoint, order: Tensor, done: int, *rest: float) -> SoftPoint:
        if done == passes * problem.n:
            raise KeyboardInterrupt
        return visit(dual, point, order, done, *rest)

    monkeypatch.setattr(dlpw, "visited", interrupted)
    result = DLPW(gap_tolerance=0).solve(problem, lam=LAM, passes=6)
    assert result.status is Status.INTERRUPTED
    assert torch.equal(result.weights, shorter.weights)
    assert [row.objective for row in result.history] == [row.objective for row in shorter.history]


def test_a_callback_stops_a_run() -> None:
    def stop(progress: Progress[Any]) -> None:
        if progress.row.passes == 3:
            raise Stop

    result = DLPW(gap_tolerance=0).solve(random_problem(), lam=LAM, passes=6, callbacks=[stop])
    assert result.status is Status.STOPPED
    assert result.history.column("passes") == [0, 1, 2, 3]


def test_refusals() -> None:
    problem = random_problem()
    for settings, error, message in (
        ({"learning_rate": 0}, ValueError, "learning_rate must be positive"),
        ({"temperature": -1}, ValueError, "temperature must be at least 0"),
        ({"temperature": None}, TypeError, "temperature must be a number"),
    ):
        with pytest.raises(error, match=message):
            DLPW(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="DLPW needs lam > 0"):
        DLPW().solve(problem, lam=0)
    with pytest.raises(TypeError, match="start must be a DLPWState, got SoftBCFWState"):
        DLPW().solve(problem, lam=1, start=SoftBCFW().solve(problem, lam=1, passes=0).state)
    other = DLPW().solve(random_problem(states=2), lam=1, passes=0)
    with pytest.raises(ValueError, match="start must be of this problem"):
        DLPW().solve(problem, lam=1, start=other.state)
    run = BCFW().solve(problem, lam=1, passes=0)
    with pytest.raises(TypeError, match="resume must begin with a DLPWState, got BCFWState"):
        DLPW().solve(problem, lam=1, resume=(run.state, run.history))
