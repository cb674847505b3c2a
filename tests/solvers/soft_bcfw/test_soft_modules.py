"""Soft agreement for modules that are linear in their parameters, against compiled steps and a quadratic program."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from factor_graphs import random_graphs, random_problem, random_weights, relaxed_optimum
from solver_cases import record, without_time
from torch import Tensor, nn
from torch.testing import assert_close

from structsmooth import Candidates, FactorGraph, LinearModuleProblem, ScoreModule, SoftBCFW, Structure
from structsmooth.checkpoint import load_state, save_state
from structsmooth.factors import LocalPolytope
from structsmooth.problems import FactorGraphProblem, FactorGraphs
from structsmooth.solvers.soft_bcfw.dual import SoftDual
from structsmooth.solvers.soft_bcfw.modules import ModuleSoftDual

LAM, RHO = 0.1, 0.7


class Scores(ScoreModule):
    """The potentials of a factor graph problem; the input is the number of the example."""

    def __init__(self, problem: FactorGraphProblem, padding: int = 0, relaxed: bool = False) -> None:
        super().__init__()
        self.problem, self.padding, self.relaxed = problem, padding, relaxed
        self.w = nn.Parameter(problem.start())

    def forward(self, x: Tensor) -> Structure:
        i, more = int(x), self.padding
        unary, pairwise = _potentials(self.problem, self.w, i)
        edges = self.problem.graphs.edges[self.problem.graphs.edges_of(i)]
        # Padding comes first among nodes, and last among edges.
        graph = FactorGraph(
            nn.functional.pad(unary, (0, 0, more, 0))[None],
            nn.functional.pad(edges + more, (0, 0, 0, more)),
            nn.functional.pad(pairwise, (0, 0, 0, 0, 0, more))[None],
            node_mask=(torch.arange(len(unary) + more) >= more)[None],
            edge_mask=(torch.arange(len(edges) + more) < len(edges))[None],
        )
        return LocalPolytope(graph) if self.relaxed else graph


def _potentials(problem: FactorGraphProblem, w: Tensor, i: int) -> tuple[Tensor, Tensor]:
    """Those of the feature map, differentiable: a linear map is known by its values at unit vectors."""
    units = [problem.potentials(unit, i) for unit in torch.eye(problem.dim, dtype=torch.float64)]
    unary, pairwise = (torch.stack(own) for own in zip(*units, strict=True))
    return torch.einsum("d,dns->ns", w, unary), torch.einsum("d,desr->esr", w, pairwise)


def graphs_problem(states: int = 3) -> FactorGraphProblem:
    graphs: FactorGraphs = replace(random_graphs(states=states), base_scores=torch.zeros(12, 0))
    return random_problem(states, "table", graphs=graphs)


def module_problem(of: FactorGraphProblem, padding: int = 0, relaxed: bool = False) -> LinearModuleProblem:
    data = []
    for i in range(of.n):
        labels, (nodes, edges) = of.graphs.labels[of.graphs.nodes_of(i)], of.costs(i)
        costs = (nn.functional.pad(nodes, (0, 0, padding, 0)), nn.functional.pad(edges, (0, 0, 0, 0, 0, padding)))
        data.append((torch.tensor(i), (nn.functional.pad(labels, (padding, 0)), costs)))
    return LinearModuleProblem(Scores(of, padding, relaxed), data, chunk_size=1)


@pytest.mark.parametrize("padding", [0, 2])
def test_values_are_those_of_compiled_features(padding: int) -> None:
    """At any point; and so are its weights, its bound and κ_0."""
    problem = graphs_problem()
    mine, other = ModuleSoftDual(module_problem(problem, padding), LAM), SoftDual(problem, LAM)
    point = other.sweep_examples(other.labels(), torch.arange(4), RHO)
    point = other.sweep_examples(other.with_multipliers(point, RHO), torch.arange(4), RHO, "fw")
    assert_close(vars(mine.values(point, RHO)), vars(other.values(point, RHO)))
    assert_close(mine.weights(point), point.weights)
    for own, expected in zip(mine.near(point), other.near(point), strict=True):
        assert_close(own, expected)
    assert mine.scale() == pytest.approx(other.scale())
    elsewhere = replace(point, weights=random_weights(problem))
    assert_close(vars(mine.values(elsewhere, RHO)), vars(other.values(elsewhere, RHO)))


@pytest.mark.parametrize("steps", ["pairwise", "fw"])
def test_every_step_raises_the_dual(steps: Any) -> None:
    dual = ModuleSoftDual(module_problem(graphs_problem()), LAM)
    points = [dual.labels()]
    for i in torch.arange(40) % dual.problem.n:
        points.append(dual.sweep_examples(points[-1], i[None], RHO, steps, sweeps=2))
    values = [dual.values(point, RHO).dual for point in points]
    assert all(a <= b + 1e-12 for a, b in pairwise(values))
    assert values[-1] > values[4] > 0
    last = points[-1]
    assert_close(dual.weights(last), last.weights)
    assert last.nodes.min() >= 0
    assert last.edges.min() >= 0
    assert_close(last.nodes.sum(1), torch.ones(len(last.nodes)).double())
    assert_close(last.edges.sum((1, 2)), torch.ones(len(last.edges)).double())


@pytest.mark.parametrize("relaxed", [False, True])
def test_multipliers_reach_the_optimum_of_the_relaxation(relaxed: bool) -> None:
    problem = graphs_problem(2)
    least = relaxed_optimum(problem, LAM)
    result = SoftBCFW(rho=2.0, sweeps=3).solve(module_problem(problem, relaxed=relaxed), lam=LAM, passes=150)
    last = result.row
    assert last.dual - 1e-7 <= least <= last.objective + 1e-7
    assert last.gap < 0.05 * result.history[0].objective


def test_a_constant_penalty_has_the_optimum_of_compiled_features() -> None:
    problem, solver = graphs_problem(2), SoftBCFW(rho=1.0, penalty="constant", sweeps=3, gap_tolerance=1e-3)
    mine, other = (s.solve(p, lam=LAM, passes=600) for s, p in ((solver, module_problem(problem)), (solver, problem)))
    assert mine.history[-1].gap <= 1e-3 * mine.history[-1].objective
    assert mine.history[-1].objective == pytest.approx(other.history[-1].objective, rel=2e-3)


def test_resumes_as_if_unbroken_and_same_seed_same_result(tmp_path: Path) -> None:
    moments: list[Any] = []
    whole = SoftBCFW().solve(module_problem(graphs_problem()), lam=LAM, passes=4, seed=3, callbacks=[record(moments)])
    for state, history in moments:
        save_state(tmp_path / "state", *state.split())
        restored = SoftBCFW.state_type.joined(*load_state(tmp_path / "state"))
        again = module_problem(graphs_problem())
        rest = SoftBCFW().solve(again, lam=LAM, passes=4, seed=3, resume=(restored, history))
        assert torch.equal(rest.weights, whole.weights)
        assert without_time(rest.history) == without_time(whole.history)


class Shared(ScoreModule):
    """One table for all edges, and scores of classes by a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.table = nn.Linear(2, 2, bias=False), nn.Parameter(torch.zeros(2, 2))

    def forward(self, x: Tensor) -> FactorGraph:
        return FactorGraph(self.linear(x), torch.tensor([[0, 1], [1, 2], [2, 0]]), self.table)


def shared_data() -> list[Any]:
    x = torch.randn(8, 3, 2, generator=torch.Generator().manual_seed(0))
    return [(own, (own[:, 0] > 0).long()) for own in x]


def test_tables_may_be_shared_and_weights_float32() -> None:
    problem = LinearModuleProblem(Shared(), shared_data())
    result = SoftBCFW(sweeps=3).solve(problem, lam=0.05, passes=60)
    assert result.weights.dtype == torch.float32
    assert result.row.gap < 0.1 * result.history[0].objective
    dual = ModuleSoftDual(problem, 0.05)
    point = result.state.point
    assert_close(dual.weights(point), point.weights, rtol=1e-4, atol=1e-5)
    problem.load(result.weights)
    x, y = problem.batch(torch.arange(8))
    assert torch.equal(problem.module(x).max()[1], y)


class Classes(ScoreModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3, bias=False)

    def forward(self, x: Tensor) -> Candidates:
        return Candidates(self.linear(x))


def test_refusals() -> None:
    problem = LinearModuleProblem(Shared(), shared_data())
    with pytest.raises(ValueError, match="order must be 'examples' for a LinearModuleProblem, got 'uniform'"):
        SoftBCFW(order="uniform").solve(problem, lam=1)
    with pytest.raises(ValueError, match="needs lam > 0"):
        SoftBCFW().solve(problem, lam=0)
    bounds = (torch.zeros(problem.dim), torch.full((problem.dim,), torch.inf))
    with pytest.raises(ValueError, match="does not keep the bounds"):
        SoftBCFW().solve(LinearModuleProblem(Shared(), shared_data(), bounds=bounds), lam=1)
    classes = LinearModuleProblem(Classes(), [(torch.ones(2), torch.tensor(1))])
    with pytest.raises(TypeError, match="needs a FactorGraph in every example, got Candidates"):
        SoftBCFW().solve(classes, lam=1)
