"""Labelled graphs: what they are made of, and what they refuse."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from factor_graphs import random_graphs, shared_graphs
from torch import Tensor

from structsmooth.problems import FactorGraphs
from structsmooth.problems.linear.factor_graph import data


def path_and_pair(**changes: Any) -> FactorGraphs:
    """A path of three nodes, and two nodes with an edge."""
    arguments: dict[str, Any] = {
        "features": torch.arange(10.0).view(5, 2),
        "labels": torch.tensor([0, 1, 1, 0, 2]),
        "node_offsets": torch.tensor([0, 3, 5]),
        "edges": torch.tensor([[0, 1], [2, 1], [1, 0]]),
        "edge_offsets": torch.tensor([0, 2, 3]),
    }
    return FactorGraphs(**arguments | changes)


def test_what_is_not_given() -> None:
    graphs = path_and_pair()
    assert len(graphs) == 2
    assert graphs.features.dtype == torch.float64
    assert graphs.rows.tolist() == [0, 1, 2, 3, 4]
    assert graphs.types.tolist() == [0] * 5
    assert graphs.costs.tolist() == [1.0] * 5
    assert graphs.edge_types.tolist() == [0] * 3
    assert graphs.edge_features.tolist() == [[1.0]] * 3
    assert graphs.ends.tolist() == [[0, 1], [2, 1], [4, 3]]
    assert graphs.degrees.tolist() == [1, 2, 1, 1, 1]


def test_select() -> None:
    graphs = random_graphs()
    chosen = graphs.select(torch.tensor([3, 0, 3]))
    for mine, original in enumerate([3, 0, 3]):
        nodes, others = chosen.nodes_of(mine), graphs.nodes_of(original)
        for name in ("labels", "rows", "types", "costs", "base_scores"):
            assert torch.equal(getattr(chosen, name)[nodes], getattr(graphs, name)[others])
        edges, others = chosen.edges_of(mine), graphs.edges_of(original)
        for name in ("edges", "edge_types", "edge_features"):
            assert torch.equal(getattr(chosen, name)[edges], getattr(graphs, name)[others])
    with pytest.raises(IndexError, match="indices must be from 0 to 3"):
        graphs.select(torch.tensor([4]))


def test_shared_edges() -> None:
    shared, repeated = shared_graphs()
    assert shared.shares_edges
    assert not repeated.shares_edges
    for name in ("ends", "degrees", "link_offsets"):
        assert torch.equal(getattr(shared, name), getattr(repeated, name))
    for i in range(4):
        assert torch.equal(shared.edges[shared.edges_of(i)], repeated.edges[repeated.edges_of(i)])
        assert shared.links_of(i) == repeated.edges_of(i) == repeated.links_of(i)
    chosen, others = (graphs.select(torch.tensor([2, 3, 0])) for graphs in (shared, repeated))
    assert torch.equal(chosen.ends, others.ends)
    assert torch.equal(chosen.degrees, others.degrees)
    assert len(chosen.edges) == len(shared.edges)


def test_chunks_of_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "_CHUNK", 8)
    shared, _ = shared_graphs()
    chunks = list(shared.chunks())
    assert [chunk.span for chunk in chunks] == [slice(0, 8), slice(8, 16)]
    for field in ("edges", "ends"):
        assert torch.equal(torch.cat([getattr(chunk, field) for chunk in chunks]), getattr(shared.links, field))
    monkeypatch.setattr(data, "_CHUNK", 1)
    assert [chunk.span.stop for chunk in shared.chunks()] == shared.link_offsets[1:].tolist()


def with_entry(tensor: Tensor, at: Any, value: float) -> Tensor:
    changed = tensor.clone()
    changed[at] = value
    return changed


FULL = path_and_pair()
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"labels": [0, 1, 1, 0, 2]}, TypeError, "labels must be a torch.Tensor, got list"),
    ({"labels": torch.zeros(5)}, TypeError, "labels must be integers, got torch.float32"),
    ({"features": torch.ones(5, 2).long()}, TypeError, "features must be floating point"),
    ({"edges": torch.zeros(3, 2)}, TypeError, "edges must be integers"),
    ({"features": with_entry(FULL.features, (1, 1), torch.nan)}, ValueError, "features must be finite"),
    ({"costs": with_entry(FULL.costs, 2, torch.inf)}, ValueError, "costs must be finite"),
    ({"edge_features": torch.full((3, 1), torch.nan)}, ValueError, "edge_features must be finite"),
    ({"features": torch.ones(5)}, ValueError, r"features must have two dimensions, got shape \(5,\)"),
    ({"base_scores": torch.full((5, 3), torch.inf)}, ValueError, "base_scores must be finite"),
    ({"base_scores": torch.ones(4, 3)}, ValueError, r"base_scores must have shape \[nodes, S\] = \(5, 3\)"),
    ({"base_scores": torch.ones(5)}, ValueError, r"base_scores must have two dimensions, got shape \(5,\)"),
    ({"rows": torch.arange(4)}, ValueError, r"rows must have shape \[nodes\] = \(5,\), got \(4,\)"),
    ({"edges": torch.tensor([[0, 1, 2]] * 3)}, ValueError, r"edges must have shape \[E, 2\] = \(3, 2\)"),
    ({"edge_types": torch.zeros(2).long()}, ValueError, r"edge_types must have shape \[E\] = \(3,\)"),
    ({"edge_features": torch.ones(2, 1)}, ValueError, r"edge_features must have shape \[E, De\] = \(3, 1\)"),
    ({"node_offsets": torch.tensor([0, 3, 6])}, ValueError, "node_offsets must be .* rise from 0 to 5"),
    ({"edge_offsets": torch.tensor([0, 4, 3])}, ValueError, "edge_offsets must be .* rise from 0 to 3"),
    ({"edge_offsets": torch.tensor([0, 3])}, ValueError, "edge_offsets or edge_sets must be .*, 2, got 1"),
    ({"node_offsets": torch.tensor([0, 0, 5])}, ValueError, "example 0 has no nodes"),
    ({"labels": with_entry(FULL.labels, 3, -1)}, ValueError, "labels must not be negative, got -1"),
    ({"types": with_entry(FULL.types, 3, -2)}, ValueError, "types must not be negative, got -2"),
    ({"costs": with_entry(FULL.costs, 3, -0.5)}, ValueError, "costs must not be negative, got -0.5"),
    ({"rows": with_entry(FULL.rows, 4, 5)}, ValueError, "rows must be from 0 to 4, got 5"),
    ({"edge_sets": torch.tensor([0, 2])}, ValueError, "edge_sets must be from 0 to 1, got 2"),
    ({"edge_sets": torch.zeros(2)}, TypeError, "edge_sets must be integers"),
    ({"edge_sets": torch.tensor([0, 0])}, ValueError, r"nodes 0 to 1 of example 1, got \[2, 1\]"),
    ({"edges": with_entry(FULL.edges, (2, 0), 2)}, ValueError, r"nodes 0 to 1 of example 1, got \[2, 0\]"),
    ({"edges": with_entry(FULL.edges, (0, 0), -1)}, ValueError, r"nodes 0 to 2 of example 0, got \[-1, 1\]"),
    ({"edges": with_entry(FULL.edges, (0, 0), 1)}, ValueError, r"must not lead from a node to itself, got \[1, 1\]"),
    (
        {"edges": torch.tensor([[1, 2], [2, 1], [1, 0]])},
        ValueError,
        r"edges must not be given twice, got \[2, 1\] again in example 0",
    ),
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD, ids=[message for _, _, message in BAD])
def test_refuses(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        path_and_pair(**changes)


def test_graphs_without_edges() -> None:
    none = {"edges": torch.zeros(0, 2).long(), "edge_offsets": torch.zeros(3).long()}
    assert replace(FULL, **none, edge_types=torch.zeros(0).long(), edge_features=torch.ones(0, 1)).ends.shape == (0, 2)
    assert path_and_pair(**none).degrees.tolist() == [0] * 5
