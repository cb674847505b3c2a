"""Soft agreement: optima and bounds of both problems, the rate of the paper, runs that repeat and resume."""

import math
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from factor_graphs import random_graphs, random_problem, relaxed_objective, relaxed_optimum
from small_problems import random_problem as chain_problem
from solver_cases import record, without_time
from torch.testing import assert_close

from structsmooth import BCFW, SoftBCFW
from structsmooth.checkpoint import load_state, save_state
from structsmooth.history import Row
from structsmooth.problems import FactorGraphProblem, FactorGraphs
from structsmooth.solvers import Status
from structsmooth.solvers.soft_bcfw.dual import SoftDual

LAM = 0.1
FORMS: dict[str, tuple[int, str, bool]] = {
    "labels that are present or absent": (2, "potts", True),
    "three states, potts": (3, "potts", False),
    "three states, tables": (3, "table", False),
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
VARIANTS = {
    f"{penalty}, {steps}, {order}": SoftBCFW(rho=1.0, penalty=penalty, steps=steps, order=order, gap_tolerance=0)
    for penalty, steps, order in product(("multipliers", "constant"), ("pairwise", "fw"), ("examples", "uniform"))
}
VARIANTS["multipliers, several sweeps"] = SoftBCFW(sweeps=3, gap_tolerance=0)
every_variant = pytest.mark.parametrize("solver", VARIANTS.values(), ids=VARIANTS.keys())


def problem_of(form: tuple[int, str, bool], graphs: FactorGraphs | None = None) -> FactorGraphProblem:
    return random_problem(*form, graphs=graphs)


@cache
def least_objective(form: tuple[int, str, bool]) -> float:
    """min G, by a quadratic program."""
    return relaxed_optimum(problem_of(form), LAM)


def soft_optimum(form: tuple[int, str, bool], rho: float, gap: float = 1e-7) -> Row:
    solver = SoftBCFW(rho=rho, penalty="constant", gap_tolerance=gap)
    result = solver.solve(problem_of(form), lam=LAM, passes=5000)
    assert result.status is Status.CONVERGED
    return result.row


@every_form
def test_multipliers_solve_the_hard_problem(form: tuple[int, str, bool]) -> None:
    least = least_objective(form)
    result = SoftBCFW(rho=2.0, gap_tolerance=1e-3).solve(problem_of(form), lam=LAM, passes=2000)
    last = result.row
    assert result.status is Status.CONVERGED
    assert last.dual <= least + 1e-7
    assert least <= last.objective + 1e-7
    assert last.gap == last.objective - last.dual
    assert result.row.gap <= 1e-3 * result.row.objective
    exactly = relaxed_objective(problem_of(form), result.weights, LAM)
    assert least - 1e-7 <= exactly <= last.objective + 1e-9
    assert last.metrics["disagreement"] < 0.01


@every_form
def test_soft_optima_rise_with_rho_from_the_hard_one(form: tuple[int, str, bool]) -> None:
    """g* ≤ g*_ρ, which is nondecreasing (Theorem 4.1), and tends to g* as ρ vanishes."""
    least = least_objective(form)
    rows = [soft_optimum(form, rho, gap=1e-4) for rho in (0.02, 0.2, 2.0, 20.0)]
    assert all(a.dual <= b.objective for a, b in pairwise(rows))
    assert least <= rows[0].objective + 1e-7
    assert rows[0].dual <= least + 0.03
    assert rows[-1].dual > least + 0.1
    assert all(row.metrics["hard_objective"] >= least - 1e-7 for row in rows)


@every_form
def test_envelope(form: tuple[int, str, bool]) -> None:
    """dg*_ρ/dρ = ‖δ*‖²/(2n)."""
    rho, step = 1.0, 0.05
    middle, low, high = (soft_optimum(form, r) for r in (rho, rho - step, rho + step))
    slope = (high.objective - low.objective) / (2 * step)
    own = (middle.metrics["soft_objective"] - middle.metrics["hard_objective"]) / rho
    assert own > 0.01
    assert slope == pytest.approx(own, rel=0.01)


@every_form
def test_rate_of_the_paper(form: tuple[int, str, bool]) -> None:
    """E[f* − f] ≤ 2K/(t + 2K) (C + f* − f₀) after t steps on K blocks (Theorem 5.1), and the same for gaps.

    The curvature C is the sum over blocks of the largest ‖Bᵀ(s − s')‖²/(λn²) + N/(ρn²), with N for the marginals.
    """
    problem, rho = problem_of(form), 1.0
    graphs, scores = problem.graphs, problem.feature_map
    x, f = scores.features[graphs.rows].square().sum(1), graphs.edge_features.square().sum(1)
    nodes, edges = 2 * x / LAM + 2 * graphs.degrees / rho, 2 * f / LAM + 4 / rho
    curvature, blocks = float(nodes.sum() + edges.sum()) / problem.n**2, len(x) + len(f)
    best = soft_optimum(form, rho).objective
    solver = SoftBCFW(rho=rho, penalty="constant", steps="fw", order="uniform", gap_tolerance=0)
    runs = [solver.solve(problem, lam=LAM, passes=40, seed=seed).history for seed in range(5)]
    for rows in zip(*runs, strict=True):
        mean = sum(best - row.dual for row in rows) / len(rows)
        steps = rows[0].passes * blocks
        assert mean <= 2 * blocks / (steps + 2 * blocks) * (curvature + best)
    steps = 40 * blocks
    smallest = sum(min(row.gap for row in history) for history in runs) / len(runs)
    assert smallest <= 6 * blocks / (steps + 1) * (curvature + best)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_forests_are_trained_exactly(form: tuple[int, str, bool]) -> None:
    """The relaxation of a forest is tight: the optimum is that of the structural support vector machine."""
    graphs = random_graphs((3, 1, 4, 2), form[0], forests=True)
    exact = BCFW(gap_tolerance=1e-4).solve(problem_of(form, graphs=graphs), lam=LAM, passes=500).row
    soft = SoftBCFW(rho=2.0, gap_tolerance=1e-3).solve(problem_of(form, graphs=graphs), lam=LAM, passes=2000)
    assert soft.status is Status.CONVERGED
    assert exact.dual <= soft.history[-1].objective + 1e-9
    assert soft.history[-1].dual <= exact.objective + 1e-9
    assert exact.gap <= 1e-4 * exact.objective


@every_variant
def test_history(solver: SoftBCFW) -> None:
    form = FORMS["three states, potts"]
    problem, seen = problem_of(form), list[Any]()
    result = solver.solve(problem, lam=LAM, passes=60, callbacks=[record(seen)])
    least = least_objective(form)
    for row, (state, _) in zip(result.history, seen, strict=True):
        values = SoftDual(problem, LAM).values(state.point, state.rho)
        assert row.gap == row.objective - row.dual >= -1e-12
        assert row.oracle_calls == solver.sweeps * row.passes * problem.n
        if solver.penalty == "multipliers":
            assert relaxed_objective(problem, state.weights, LAM) <= row.objective + 1e-9
            assert row.dual - 1e-7 <= least
            continue
        assert row.metrics["soft_objective"] - row.metrics["soft_dual"] == pytest.approx(values.gaps, abs=1e-10)
        assert row.metrics["hard_objective"] <= row.metrics["soft_objective"] + 1e-12
        if solver.penalty == "constant":
            assert row.objective == pytest.approx(row.metrics["soft_objective"], abs=1e-12)
            assert row.dual == pytest.approx(row.metrics["soft_dual"], abs=1e-12)
            assert row.gap == pytest.approx(values.gaps, abs=1e-10)
        else:
            assert row.objective == pytest.approx(row.metrics["hard_objective"], abs=1e-12)
            assert row.dual - 1e-7 <= least <= row.objective + 1e-7
    assert all(a <= b + 1e-12 for a, b in pairwise(result.history.column("dual")))
    assert result.row.gap < 0.5 * result.history[0].gap
    point = seen[-1][0].point
    assert_close(SoftDual(problem, LAM).weights(point), point.weights, rtol=0, atol=1e-10)


@every_variant
def test_same_seed_same_result(solver: SoftBCFW) -> None:
    form = FORMS["three states, tables"]
    first, again, other = (solver.solve(problem_of(form), lam=LAM, passes=7, seed=s) for s in (5, 5, 6))
    assert torch.equal(first.weights, again.weights)
    assert without_time(first.history) == without_time(again.history)
    assert not torch.equal(first.weights, other.weights)


@every_variant
def test_resumes_as_if_unbroken(solver: SoftBCFW, tmp_path: Path) -> None:
    moments: list[Any] = []
    problem = problem_of(FORMS["three states, potts"])
    whole = solver.solve(problem, lam=LAM, passes=6, seed=3, callbacks=[record(moments)])
    for state, history in moments:
        save_state(tmp_path / "state", *state.split())
        restored = solver.state_type.joined(*load_state(tmp_path / "state"))
        fresh = problem_of(FORMS["three states, potts"])
        rest = solver.solve(fresh, lam=LAM, passes=6, seed=3, resume=(restored, history))
        assert torch.equal(rest.weights, whole.weights)
        assert without_time(rest.history) == without_time(whole.history)


@pytest.mark.parametrize("before", ["multipliers", "constant"])
def test_starts_from_another_run(before: Any) -> None:
    """Marginals, weights and messages stay; the weights of the marginals are theirs at the new λ."""
    problem = problem_of(FORMS["three states, potts"])
    state = SoftBCFW(rho=1.0, penalty=before).solve(problem, lam=LAM, passes=50).state
    tensors = {name: tensor.clone() for name, tensor in state.split()[0].items()}
    warm = SoftBCFW().solve(problem, lam=2 * LAM, passes=0, start=state)
    assert torch.equal(warm.weights, state.weights)
    assert torch.equal(warm.state.point.nodes, state.point.nodes)
    assert_close(warm.state.point.weights, state.point.weights / 2, rtol=0, atol=1e-10)
    assert bool(warm.state.messages.any())
    if before == "constant":  # its messages are differences of marginals over ρ
        hard = state.hard_objective + LAM / 2 * float(state.weights @ state.weights)
        assert warm.row.objective == pytest.approx(hard)
    assert warm.row.objective < SoftBCFW().solve(problem, lam=2 * LAM, passes=0).row.objective
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in state.split()[0].items())


def test_runs_without_multipliers_start_without_them() -> None:
    problem = problem_of(FORMS["three states, potts"])
    before, solver = SoftBCFW().solve(problem, lam=LAM, passes=50).state, SoftBCFW(penalty="constant")
    warm, cold = (solver.solve(problem, lam=2 * LAM, passes=0, start=start) for start in (before, None))
    assert_close(warm.weights, before.point.weights / 2, rtol=0, atol=1e-10)
    assert not warm.state.point.multipliers.any()
    assert warm.row.metrics["soft_dual"] > cold.row.metrics["soft_dual"] == 0


def test_converged_means_a_small_gap() -> None:
    result = SoftBCFW(gap_tolerance=0.05).solve(problem_of(FORMS["three states, potts"]), lam=LAM, passes=1000)
    assert result.status is Status.CONVERGED
    assert result.row.gap <= 0.05 * result.row.objective
    *before, _ = (row.gap / row.objective for row in result.history)
    assert min(before) > 0.05


def test_a_larger_rho_is_faster() -> None:
    """Steps on the penalty are shorter the more agreement counts."""
    form = FORMS["labels that are present or absent"]
    passes = [soft_optimum(form, rho, gap=1e-3).passes for rho in (20.0, 0.2)]
    assert passes[0] < passes[1]


def test_rho_grows_with_the_number_of_edges_of_a_node() -> None:
    """Messages of an edge are shares of a score, so that it takes as long on stars and on complete graphs."""
    sparse, dense = (random_graphs((6, 6), forests=forests) for forests in (True, False))
    rows = [SoftBCFW().solve(problem_of((3, "potts", False), own), lam=LAM, passes=1) for own in (sparse, dense)]
    assert [row.state.rho for row in rows] == [0.375 * 2 * 5 / 6, 0.375 * 5]
    given = SoftBCFW(rho=2.5).solve(problem_of((3, "potts", False)), lam=LAM, passes=2)
    assert [row.metrics["rho"] for row in given.history] == [2.5] * 3


def test_nodes_without_edges_and_single_states() -> None:
    graphs = FactorGraphs(
        features=torch.tensor([[1.0], [2.0]]),
        labels=torch.tensor([0, 0]),
        node_offsets=torch.tensor([0, 1, 2]),
        edges=torch.zeros(0, 2, dtype=torch.int64),
        edge_offsets=torch.tensor([0, 0, 0]),
    )
    for states in (1, 2):
        result = SoftBCFW(gap_tolerance=1e-6).solve(FactorGraphProblem(graphs, states), lam=LAM, passes=300)
        assert result.status is Status.CONVERGED
        assert math.isfinite(result.row.objective)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"rho": 0}, ValueError, "rho must be positive and finite, got 0"),
    ({"rho": "1"}, TypeError, "rho must be a number, got str"),
    ({"rho": math.nan}, ValueError, "rho must be positive and finite, got nan"),
    ({"kappa": 0}, ValueError, "kappa must be positive and finite, got 0"),
    ({"kappa": 1, "penalty": "constant"}, ValueError, "kappa needs penalty='multipliers', .* got 'constant'"),
    ({"sweeps": 0}, ValueError, "sweeps must be at least 1, got 0"),
    ({"sweeps": 1.5}, TypeError, "sweeps must be an int, got float"),
    ({"penalty": "none"}, ValueError, "penalty must be one of multipliers, constant, got 'none'"),
    ({"steps": "away"}, ValueError, "steps must be one of pairwise, fw, got 'away'"),
    ({"order": "gap"}, ValueError, "order must be one of examples, uniform, got 'gap'"),
]


@pytest.mark.parametrize(("settings", "error", "message"), BAD, ids=[message for _, _, message in BAD])
def test_refuses_bad_hyperparameters(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SoftBCFW(**settings)


def test_refuses_problems_and_starts_of_another_kind() -> None:
    problem = problem_of(FORMS["three states, potts"])
    with pytest.raises(TypeError, match="SoftBCFW needs a FactorGraphProblem, got SparseChainProblem; take BCFW"):
        SoftBCFW().solve(chain_problem(), lam=1)
    with pytest.raises(ValueError, match="SoftBCFW needs lam > 0"):
        SoftBCFW().solve(problem, lam=0)
    with pytest.raises(TypeError, match="start must be a SoftBCFWState, got Tensor"):
        SoftBCFW().solve(problem, lam=1, start=problem.start())
    other = SoftBCFW().solve(problem_of((3, "table", False)), lam=1, passes=1)
    with pytest.raises(ValueError, match=r"start must have edges of shape \(15, 9\), got \(15, 3, 3\)"):
        SoftBCFW().solve(problem, lam=1, start=other.state)
    run = BCFW().solve(problem, lam=1, passes=1)
    with pytest.raises(TypeError, match="resume must begin with a SoftBCFWState, got BCFWState"):
        SoftBCFW().solve(problem, lam=1, resume=(run.state, run.history))
