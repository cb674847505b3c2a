"""What ``relaxed("auto")`` takes for which examples: dynamic programming, linear programs, moves, messages."""

import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth import FactorGraph
from structsmooth.factors import AtMostOne, Count, Table
from structsmooth.structures.factor_graph import relaxation as rooms
from structsmooth.structures.factor_graph.rounding import with_marginals

PATH = [(v, v + 1) for v in range(8)]
COMPLETE = torch.tensor(PATH + [(a, b) for b in range(9) for a in range(b - 1)])
VARIABLES = 9 * 3 + 36 * 9


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def frustrated(seed: int, factors: Any = (), edge_mask: Tensor | None = None) -> FactorGraph:
    """Complete graphs of three states whose ends rather differ, which leave messages far from the optimum."""
    unary, noise = normal(4, 9, 3, seed=seed), normal(4, 36, 3, 3, seed=seed + 100)
    return FactorGraph(unary, COMPLETE, noise - 5 * torch.eye(3), edge_mask=edge_mask, factors=factors)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("factors", [(), (AtMostOne(torch.arange(4)), Count(torch.arange(3), normal(3)))])
def test_small_graphs_are_solved_exactly(factors: Any, seed: int) -> None:
    graph = frustrated(seed, factors)
    own, reference = graph.relaxed(), graph.relaxed("lp")
    assert_close(own.value, reference.value, rtol=1e-6, atol=1e-6)
    assert (own.gap <= 1e-6 * (1 + own.dual.abs())).all()
    best = graph.max()[0]
    assert (own.dual >= best - 1e-9).all()
    assert_close(own.score[own.tight], best[own.tight])


def test_messages_alone_leave_an_interval_there() -> None:
    """Else the other tests would not tell."""
    assert (frustrated(0).relaxed("messages").gap > 1e-3).any()


def test_forests_of_a_batch_with_cycles_are_solved_as_forests() -> None:
    """Some examples are paths; their optima are outputs, to the last digit."""
    edge_mask = torch.ones(4, 36, dtype=torch.bool)
    edge_mask[::2, len(PATH) :] = False
    graph = frustrated(1, edge_mask=edge_mask)
    own, best = graph.relaxed(), graph.max()[0]
    assert own.tight[::2].all()
    assert_close(own.value[::2], best[::2], rtol=1e-12, atol=1e-12)
    assert_close(own.dual[::2], best[::2], rtol=1e-12, atol=1e-12)
    assert_close(own.value, graph.relaxed("lp").value, rtol=1e-6, atol=1e-6)


def test_forests_of_factors_are_solved_as_forests() -> None:
    """Factors that share one node at most, beside an example in which an edge closes a cycle."""
    scopes = torch.tensor([[0, 1, 2], [2, 3, 4], [4, 5, 6]])
    tables = [Table(scope, normal(2, 3, 3, 3, seed=i, scale=10.0)) for i, scope in enumerate(scopes)]
    edge_mask = torch.tensor([[True], [False]])
    graph = FactorGraph(
        normal(2, 7, 3), torch.tensor([[0, 6]]), normal(2, 1, 3, 3), edge_mask=edge_mask, factors=tables
    )
    own, best = graph.relaxed(), graph.max()[0]
    assert own.tight[1]
    assert_close(own.value[1], best[1])
    assert_close(graph.score(own.labels)[1], best[1])


def test_messages_where_graphs_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = frustrated(2)
    messages = graph.relaxed("messages", max_sweeps=50)
    monkeypatch.setattr(rooms, "_MOST_VARIABLES", VARIABLES - 1)
    assert_close(graph.relaxed(max_sweeps=50).value, messages.value)
    monkeypatch.setattr(rooms, "_MOST_VARIABLES", VARIABLES)
    assert (graph.relaxed(max_sweeps=50).gap <= 1e-6 * (1 + messages.dual.abs())).all()


def agreeing(seed: int, edge_mask: Tensor | None = None) -> FactorGraph:
    """Complete graphs of three states whose ends rather agree: minus a metric, plus scores of single states."""
    distance = torch.tensor([[0.0, 1.0, 1.5], [1.0, 0.0, 1.0], [1.5, 1.0, 0.0]]).double()
    added = normal(4, 36, 3, seed=seed + 1).unsqueeze(-1) + normal(4, 36, 3, seed=seed + 2).unsqueeze(-2)
    pairwise = added - 0.7 * normal(4, 36, 1, 1, seed=seed + 3).abs() * distance
    return FactorGraph(normal(4, 9, 3, seed=seed, scale=8.0), COMPLETE, pairwise, edge_mask=edge_mask)


@pytest.mark.parametrize("seed", range(4))
def test_no_move_improves_what_expansion_moves_find(seed: int) -> None:
    """Of all that give one label to some of the nodes."""
    edge_mask = torch.rand(4, 36, generator=torch.Generator().manual_seed(seed)) < 0.7
    graph = agreeing(seed, edge_mask)
    found, best = graph.relaxed("expansion"), graph.max()[0]
    assert_close(graph.score(found.labels), found.score)
    assert_close(found.value, found.score)
    assert (found.dual >= best - 1e-9).all()
    moved = torch.cartesian_prod(*[torch.tensor([False, True])] * 9)
    for b, labels in enumerate(found.labels):
        repeated = graph[torch.full((len(moved),), b)]
        for label in range(3):
            assert (repeated.score(torch.where(moved, label, labels)) <= found.score[b] + 1e-9).all()


def test_large_graphs_are_solved_by_moves_where_these_are_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of both kinds is solved as its examples are alone."""
    cuts, others = agreeing(0), frustrated(0)
    mixed = cuts.replace(*(torch.cat([a[:2], b[2:]]) for a, b in zip(cuts.potentials, others.potentials, strict=True)))
    expected = cuts.relaxed("expansion"), others.relaxed("messages", max_sweeps=50)
    monkeypatch.setattr(rooms, "_MOST_VARIABLES", 0)
    own = mixed.relaxed(max_sweeps=50)
    for name in ("value", "dual", "labels", "unary", "pairwise", "deltas"):
        first, last = (getattr(found, name) for found in expected)
        assert_close(getattr(own, name), torch.cat([first[:2], last[2:]]))
    fault = r"needs s\[i, i\] \+ s\[j, k\] >= s\[j, i\] \+ s\[i, k\] .*; example 2 lacks it: use .auto."
    with pytest.raises(ValueError, match=fault):
        mixed.relaxed("expansion")


def test_messages_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = frustrated(2)
    messages = graph.relaxed("messages", max_sweeps=50)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert_close(graph.relaxed(max_sweeps=50).value, messages.value)


def test_programs_leave_out_what_is_forbidden() -> None:
    """The count of allowed labels and pairs decides; an example that allows nothing is infeasible still."""
    unary = normal(2, 9, 3)
    unary[0, :, 2] = -torch.inf
    unary[1, 1] = -torch.inf
    graph = FactorGraph(unary, COMPLETE, normal(2, 36, 3, 3, seed=9, scale=5.0))
    for method in ("auto", "lp"):
        own = graph.relaxed(method)
        assert own.value[1] == own.dual[1] == -torch.inf
        assert own.unary[1].sum() == own.unary[0, :, 2].sum() == 0
        assert own.value[0] >= graph.max()[0][0] - 1e-9
        assert own.gap[0] <= 1e-6 * (1 + own.dual[0].abs())


def test_sums_just_below_zero_count_as_zero() -> None:
    """Rounding leaves them where labels have no mass; a column without mass was once scaled by −1e-17 over nothing."""
    rows, columns = torch.tensor([[0.9, -1e-17, 0.1], [0.4, 0.6, -1e-17]], dtype=torch.float64)
    table = torch.tensor([[0.5, 0.4, 1e-17], [0.0, 0.0, 0.0], [0.1, 0.0, -1e-17]], dtype=torch.float64)
    found = with_marginals(table, rows, columns)
    assert float(found.min()) >= -1e-16
    assert_close(found.sum(1), rows, rtol=0, atol=1e-14)
    assert_close(found.sum(0), columns, rtol=0, atol=1e-14)
