"""Factor graph problems: potentials, adjoint, exact and relaxed oracles, subsets, named errors."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from factor_graphs import (
    FORMS,
    linear_program,
    random_graphs,
    random_problem,
    random_weights,
    relaxed_objective,
    relaxed_optimum,
)
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BCFW, L2
from structsmooth.problems import FactorGraphProblem
from structsmooth.problems.linear import factor_graph

every_form = pytest.mark.parametrize(("states", "pairwise", "reference"), FORMS)
EXACTLY = {"rtol": 0.0, "atol": 1e-12}


def score(problem: FactorGraphProblem, w: Tensor, i: int, y: tuple[int, ...]) -> float:
    """The score of an output, from the definition."""
    graphs, (unary, pairwise) = problem.graphs, problem.views(w)
    first = problem.feature_map.reference
    nodes, edges = graphs.nodes_of(i), graphs.edges_of(i)
    total = 0.0
    for node, label in zip(range(nodes.start, nodes.stop), y, strict=True):
        x = graphs.features[graphs.rows[node]]
        if problem.bias:
            x = torch.cat([x, torch.ones(1, dtype=torch.float64)])
        if label >= first:
            total += float(unary[graphs.types[node], label - first] @ x)
    for edge in range(edges.start, edges.stop):
        (a, b), f, own = graphs.edges[edge].tolist(), graphs.edge_features[edge], pairwise[graphs.edge_types[edge]]
        if min(y[a], y[b]) >= first and own.dim() == 3:
            total += float(f @ own[:, y[a] - first, y[b] - first])
        elif min(y[a], y[b]) >= first and y[a] == y[b]:
            total += float(f @ own)
    return total


def cost(problem: FactorGraphProblem, i: int, y: tuple[int, ...]) -> float:
    """What an output costs, with base scores minus those of the labels."""
    graphs, nodes, outputs = problem.graphs, problem.graphs.nodes_of(i), torch.tensor(y)
    labels, base = graphs.labels[nodes], graphs.base_scores[nodes]
    gain = base.gather(1, outputs[:, None]) - base.gather(1, labels[:, None])
    return float(graphs.costs[nodes] @ (labels != outputs).double() + gain.sum())


@every_form
@pytest.mark.parametrize("bias", [True, False])
def test_potentials_and_oracle_against_all_outputs(states: int, pairwise: str, reference: bool, bias: bool) -> None:
    problem = random_problem(states, pairwise, reference, bias=bias)
    w = random_weights(problem)
    losses = []
    for i in range(problem.n):
        (unary, pairs), augmented = problem.potentials(w, i), problem.augmented(w, i)
        edges = problem.graphs.edges[problem.graphs.edges_of(i)].tolist()
        scores = {}
        for y in product(range(states), repeat=len(unary)):
            own = sum(float(unary[v, s]) for v, s in enumerate(y))
            own += sum(float(pairs[e, y[a], y[b]]) for e, (a, b) in enumerate(edges))
            assert own == pytest.approx(score(problem, w, i, y), abs=1e-12)
            scores[y] = own + cost(problem, i, y)
        best = max(scores, key=scores.__getitem__)
        response = problem.oracle(augmented, i)
        assert float(response.value) == pytest.approx(scores[best], abs=1e-12)
        assert tuple(response.atom.tolist()) == best
        labels = problem.graphs.labels[problem.graphs.nodes_of(i)]
        losses.append(scores[best] - scores[tuple(labels.tolist())])
        assert_close(response.statistics, problem.parts(response.atom, i))
    assert problem.loss(w) == pytest.approx(sum(losses) / problem.n, abs=1e-12)
    part = problem.subset(torch.tensor([3, 1]))
    assert part.loss(w) == pytest.approx((losses[3] + losses[1]) / 2, abs=1e-12)


@every_form
def test_adjoint(states: int, pairwise: str, reference: bool) -> None:
    problem = random_problem(states, pairwise, reference)
    for block in range(problem.n):
        w, rows = random_weights(problem, block), problem.costs(block)
        m = tuple(torch.randn_like(part) for part in rows)
        inner = sum((p * part).sum() for p, part in zip(problem.potentials(w, block), m, strict=True))
        back = problem.adjoint(m, block)
        assert float(back @ w) == pytest.approx(float(inner), abs=1e-10)
        assert problem.feature_map.squared_norm(m, block) == pytest.approx(float(back @ back), abs=1e-10)


def test_sizes() -> None:
    """Labels that are absent or present have D weights each, and one for each pair (Meshi et al. 2015, section 6)."""
    graphs = replace(random_graphs(states=2), base_scores=torch.zeros(12, 0))
    assert FactorGraphProblem(graphs, 2, reference=True, bias=False, node_types=14, edge_types=91).dim == 14 * 3 + 182
    assert FactorGraphProblem(graphs, 5, node_types=2, edge_types=2).dim == 2 * 5 * 4 + 2 * 2
    assert FactorGraphProblem(graphs, 5, pairwise="table", node_types=2, edge_types=2).dim == 40 + 2 * 2 * 25


def test_types_are_as_many_as_occur() -> None:
    problem = FactorGraphProblem(random_graphs(), 3)
    assert [len(part) for part in problem.views(problem.start())] == [2, 2]


@pytest.mark.parametrize("states", [2, 3])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("inference", ["relaxed", "lp"])
def test_relaxed_oracle_against_a_linear_program(states: int, seed: int, inference: Any) -> None:
    """Values, and points of the local polytope that attain them."""
    problem = random_problem(states, "table", graphs=random_graphs((1, 4, 7), states, seed), inference=inference)
    generator, fractional = torch.Generator().manual_seed(seed), False
    for i in range(problem.n):
        unary, pairwise = (torch.randn(part.shape, generator=generator).double() / 10 for part in problem.costs(i))
        pairwise -= torch.eye(states)  # all nodes would like to differ
        edges = problem.graphs.edges[problem.graphs.edges_of(i)]
        response = problem.oracle((unary, pairwise), i)
        nodes, pairs = response.statistics
        missing = float(linear_program(unary, edges, pairwise)[0] - response.value)
        # A cut or a linear program, or message passing.
        assert -1e-7 <= missing <= (1e-7 if states == 2 or inference == "lp" else 0.05)
        assert_close((unary * nodes).sum() + (pairwise * pairs).sum(), response.value)
        assert_close(nodes.sum(1), torch.ones(len(nodes)).double())
        assert (nodes >= 0).all()
        assert (pairs >= 0).all()
        assert_close((pairs.sum(2), pairs.sum(1)), (nodes[edges[:, 0]], nodes[edges[:, 1]]))
        fractional |= bool(((nodes > 0.1) & (nodes < 0.9)).any())
    assert fractional


def test_bcfw_on_exact_and_on_relaxed_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vertices of the local polytope are atoms, too; the relaxation is an upper bound."""

    def by_program(unary: Tensor, edges: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor, Any]:
        value, statistics = linear_program(unary, edges, pairwise)
        return value, value, statistics

    monkeypatch.setattr(factor_graph, "respond_relaxed", by_program)
    values = {}
    for inference in ("exact", "lp", "relaxed"):
        problem = random_problem(2, "potts", True, random_graphs((3, 1), 2), inference=inference)
        result = BCFW(gap_tolerance=1e-4).solve(problem, lam=0.1, passes=100)
        assert result.history[-1].gap <= 1e-4 * result.history[-1].objective
        values[inference] = result.history[-1]
    assert values["relaxed"].objective == pytest.approx(relaxed_objective(problem, result.weights, 0.1), abs=1e-9)
    assert values["relaxed"].objective == pytest.approx(relaxed_optimum(problem, 0.1), rel=1e-4)
    assert values["relaxed"].objective >= values["exact"].dual
    assert values["lp"].objective == pytest.approx(values["relaxed"].objective, rel=2e-4)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"graphs": None}, TypeError, "graphs must be FactorGraphs, got NoneType"),
    ({"states": 2.0}, TypeError, "states must be an int, got float"),
    ({"states": 4}, ValueError, "base_scores must be for 4 states, got 3"),
    ({"states": 2}, ValueError, "states must be more than the largest of labels, 2, got 2"),
    ({"pairwise": "ising"}, ValueError, "pairwise must be one of potts, table, got 'ising'"),
    ({"inference": "loopy"}, ValueError, "inference must be one of exact, relaxed, lp, got 'loopy'"),
    ({"node_types": 1}, ValueError, "node_types must be more than the largest of types, 1, got 1"),
    ({"edge_types": 1}, ValueError, "edge_types must be more than the largest of edge_types, 1, got 1"),
    ({"graphs": random_graphs().select(torch.zeros(0).long())}, ValueError, "graphs must hold an example at least"),
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD, ids=[message for _, _, message in BAD])
def test_refuses(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        FactorGraphProblem(**{"graphs": random_graphs(), "states": 3, **changes})


def test_refuses_what_it_cannot_infer() -> None:
    problem = random_problem()
    with pytest.raises(NotImplementedError, match="no oracle for L2"):
        problem.oracle(problem.costs(0), 0, L2(1.0, 2))
    with pytest.raises(ValueError, match=r"w must have shape \[dim\] = \(28,\), got \(3,\)"):
        problem.potentials(torch.zeros(3), 0)
