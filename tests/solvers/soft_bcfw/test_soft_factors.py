"""Soft agreement with factors of several nodes, forests and exact inference, against enumeration of blocks."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from factor_graphs import random_problem
from soft_pieces import EXCLUDED, NODES, EnumeratedDual, factor_problem
from solver_cases import record, without_time
from torch import Tensor, nn
from torch.testing import assert_close

from structsmooth import BCFW, FactorGraph, LinearModuleProblem, ProximalBCFW, ScoreModule, SoftBCFW
from structsmooth.checkpoint import load_state, save_state
from structsmooth.factors import AtLeastOne, AtMostOne
from structsmooth.solvers.soft_bcfw.modules import ModuleSoftDual
from structsmooth.solvers.soft_bcfw.pieces import Decomposition

LAM, RHO = 0.5, 3.0
EVERY: tuple[Decomposition, ...] = ("factors", "forests", "whole")


@pytest.mark.parametrize(
    ("by", "states", "logic", "steps"),
    [(by, 2, True, "pairwise") for by in EVERY] + [("factors", 3, False, "pairwise"), ("factors", 2, True, "fw")],
)
def test_optimum_of_a_constant_penalty_is_that_of_enumerated_blocks(
    by: Decomposition, states: int, logic: bool, steps: Any
) -> None:
    problem = factor_problem(2, states=states, logic=logic)
    optimum = EnumeratedDual.of(problem, LAM, RHO, by).optimum(1e-10)
    solver = SoftBCFW(rho=RHO, penalty="constant", decomposition=by, steps=steps, sweeps=3)
    rows = solver.solve(problem, lam=LAM, passes=150).history
    assert all(a.dual <= b.dual + 1e-12 for a, b in pairwise(rows))
    assert rows[-1].dual - 1e-9 <= optimum <= rows[-1].objective + 1e-9
    assert rows[-1].dual == pytest.approx(optimum, rel=1e-4 if steps == "pairwise" else 5e-3)


def test_the_optimum_is_met_to_eight_digits() -> None:
    problem = factor_problem(1, logic=True)
    optimum = EnumeratedDual.of(problem, 2.0, 10.0).optimum(1e-12)
    solver = SoftBCFW(rho=10.0, penalty="constant", sweeps=5, gap_tolerance=1e-7)
    last = solver.solve(problem, lam=2.0, passes=120).history[-1]
    assert last.dual == pytest.approx(optimum, rel=1e-9)
    assert last.objective == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize("steps", ["pairwise", "fw"])
@pytest.mark.parametrize("by", EVERY)
def test_every_step_raises_the_dual_and_keeps_its_point(by: Decomposition, steps: Any) -> None:
    """Marginals are distributions, those of pieces are means of their labelings, and w and gaps belong to them."""
    dual = ModuleSoftDual(factor_problem(3, logic=True), LAM, by)
    points = [dual.labels()]
    for i in torch.arange(30) % dual.problem.n:
        points.append(dual.sweep_examples(points[-1], i[None], RHO, steps, sweeps=2))
    values = [dual.values(point, RHO) for point in points]
    assert all(a.dual <= b.dual + 1e-12 for a, b in pairwise(values))
    assert values[-1].dual > values[3].dual > 0
    for value in values:
        assert value.gaps == pytest.approx(value.soft - value.dual, abs=1e-10)
    last = points[-1]
    assert_close(dual.weights(last), last.weights)
    for marginals in (last.nodes, last.edges, last.places, last.finals):
        assert marginals.min() > -1e-15
        assert_close(marginals.flatten(1).sum(1), torch.ones(len(marginals)).double())
    if steps == "pairwise":
        assert last.alphas.min() >= 0
        assert (last.alphas.sum(1) <= 1 + 1e-9).all()


@pytest.mark.parametrize(("by", "logic"), [("factors", False), ("factors", True), ("forests", True)])
def test_multipliers_reach_the_optimum_of_the_relaxation(by: Decomposition, logic: bool) -> None:
    """Its hinges are linear programs over nodes, edges and factors, which BCFW solves one by one."""
    rival = BCFW(steps="pairwise").solve(factor_problem(2, logic=logic, relaxed=True), lam=LAM, passes=20).history[-1]
    result = SoftBCFW(decomposition=by, sweeps=2).solve(factor_problem(2, logic=logic), lam=LAM, passes=60)
    last = result.history[-1]
    assert last.dual <= rival.objective + 1e-9
    assert rival.dual <= last.objective + 1e-9
    assert last.gap < 5e-3 * last.objective


@pytest.mark.parametrize("logic", [False, True])
def test_all_in_one_block_has_the_optimum_of_exact_hinges(logic: bool) -> None:
    """The graph has cycles, so that the relaxation has another optimum; so has a small constant penalty."""
    problem = factor_problem(logic=logic)
    exact = ProximalBCFW().solve(problem, lam=0.1, passes=80).row
    relaxed = ProximalBCFW().solve(factor_problem(logic=logic, relaxed=True), lam=0.1, passes=80).row
    assert exact.objective < relaxed.dual
    last = SoftBCFW(decomposition="whole").solve(problem, lam=0.1, passes=40).history[-1]
    assert last.dual <= exact.objective + 1e-9
    assert exact.dual <= last.objective + 1e-9
    assert last.objective < relaxed.dual
    optima = [EnumeratedDual.of(problem, 0.1, rho, "whole").optimum(1e-6) for rho in (1.0, 0.1, 0.01)]
    assert optima[0] > optima[1] > optima[2] > exact.dual - 1e-6
    assert optima[2] < exact.objective + 0.05 * (optima[0] - exact.objective)


def test_bounds_hold_where_constraints_share_nodes() -> None:
    """Then the bound is that of labels which nothing forbids."""

    class Twice(ScoreModule):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Linear(3, 2, bias=False, dtype=torch.float64)

        def forward(self, x: Tensor) -> FactorGraph:
            no_edges, no_tables = torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2, 2, dtype=torch.float64)
            both = [AtMostOne(torch.tensor([0, 1, 2])), AtLeastOne(torch.tensor([2, 3, 4]))]
            return FactorGraph(self.own(x), no_edges, no_tables, factors=both)

    generator = torch.Generator().manual_seed(1)
    data = [(torch.randn(NODES, 3, generator=generator).double(), torch.tensor([0, 0, 1, 0, 1])) for _ in range(4)]
    problem = LinearModuleProblem(Twice(), data)
    exact = BCFW(steps="pairwise").solve(problem, lam=LAM, passes=60).history[-1]
    last = SoftBCFW().solve(problem, lam=LAM, passes=60).history[-1]
    assert 0 < last.dual <= exact.objective + 1e-9
    assert exact.dual <= last.objective + 1e-9


def test_near_marginals_agree_and_have_the_cost_that_they_should() -> None:
    """Where there are no constraints, marginals of agreeing pieces stay as they are."""
    dual = ModuleSoftDual(factor_problem(3), LAM)
    point = dual.labels()
    for _ in range(3):
        point = dual.sweep_examples(point, torch.arange(3), RHO)
    gradient, cost = dual.near(point)
    best = BCFW(steps="pairwise").solve(factor_problem(3, relaxed=True), lam=LAM, passes=80).history[-1].objective
    assert cost - float(gradient @ gradient) / (2 * LAM) <= best + 1e-9
    labels = dual.near(dual.labels())
    assert_close(labels[0], torch.zeros_like(labels[0]))
    assert labels[1] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("by", ["factors", "whole"])
def test_resumes_as_if_unbroken_and_starts_from_another_run(tmp_path: Path, by: Decomposition) -> None:
    moments: list[Any] = []
    solver, problem = SoftBCFW(decomposition=by), factor_problem(logic=True)
    whole = solver.solve(problem, lam=LAM, passes=4, seed=3, callbacks=[record(moments)])
    for state, history in moments:
        save_state(tmp_path / "state", *state.split())
        restored = SoftBCFW.state_type.joined(*load_state(tmp_path / "state"))
        rest = solver.solve(factor_problem(logic=True), lam=LAM, passes=4, seed=3, resume=(restored, history))
        assert torch.equal(rest.weights, whole.weights)
        assert without_time(rest.history) == without_time(whole.history)
    again = solver.solve(problem, lam=0.8 * LAM, passes=1, start=whole.state)
    assert again.history[0].objective < solver.solve(problem, lam=0.8 * LAM, passes=1).history[0].objective
    other: Decomposition = "whole" if by == "factors" else "factors"
    with pytest.raises(ValueError, match="start must have multipliers of shape"):
        SoftBCFW(decomposition=other).solve(problem, lam=LAM, passes=1, start=whole.state)


class Ragged(ScoreModule):
    """A graph with padding of nodes, edges and factors, and a node that lacks a state."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(3, 3, bias=False, dtype=torch.float64)
        self.pair = nn.Parameter(torch.zeros(3, 3, dtype=torch.float64))

    def forward(self, x: tuple[Tensor, Tensor]) -> FactorGraph:
        features, size = x
        mask = torch.arange(NODES) < size[:, None]
        unary = self.own(features)
        barrier = torch.zeros_like(unary)
        barrier[:, 0, 2] = -torch.inf
        scope = torch.tensor(EXCLUDED).expand(len(size), -1)
        scope = torch.where(scope < size[:, None], scope, -1)
        beyond = torch.where(size[:, None] > 4, torch.tensor([3, 4]), -1)
        edges = torch.tensor([[0, 1], [1, 2], [0, 2], [3, 4]])
        edge_mask = torch.arange(4) < torch.where(size > 4, 4, 3)[:, None]
        factors = [AtMostOne(scope), AtLeastOne(beyond)]
        settings: Any = {"node_mask": mask, "edge_mask": edge_mask, "factors": factors}
        return FactorGraph(unary + barrier, edges, self.pair, **settings)


@pytest.mark.parametrize("by", EVERY)
def test_graphs_may_be_ragged(by: Decomposition) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([[1, 0, 2, 0, 1], [0, 1, 2, 0, 0], [1, 2, 2, 0, 0], [0, 2, 1, 1, 0]])
    x = torch.randn(4, NODES, 3, generator=generator).double()
    y[0, 0] = 0
    data = [((x[i], torch.tensor(5 if i in (0, 3) else 3)), y[i]) for i in range(4)]
    problem = LinearModuleProblem(Ragged(), data)
    dual = ModuleSoftDual(problem, LAM, by)
    point = dual.labels()
    for _ in range(20):
        point = dual.sweep_examples(point, torch.arange(4), RHO)
    values = dual.values(point, RHO)
    assert values.gaps == pytest.approx(values.soft - values.dual, abs=1e-10)
    assert values.gaps < 0.05 * values.soft
    assert_close(dual.weights(point), point.weights)
    assert math.isfinite(values.hard)
    exact = BCFW(steps="pairwise").solve(problem, lam=LAM, passes=25).history[-1]
    last = SoftBCFW(decomposition=by).solve(problem, lam=LAM, passes=25).history[-1]
    assert exact.dual <= last.objective + 1e-9
    if by == "whole":
        assert 0.98 * exact.dual <= last.dual <= exact.objective + 1e-9


def test_refusals() -> None:
    with pytest.raises(ValueError, match="decomposition='whole' infers exactly: give the FactorGraph"):
        SoftBCFW(decomposition="whole").solve(factor_problem(relaxed=True), lam=1)
    with pytest.raises(ValueError, match="decomposition must be 'factors' for a FactorGraphProblem, got 'forests'"):
        SoftBCFW(decomposition="forests").solve(random_problem(), lam=1)
    with pytest.raises(ValueError, match="decomposition must be one of"):
        SoftBCFW(decomposition="trees")  # type: ignore[arg-type]
