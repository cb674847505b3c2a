"""Binary graphs: against linear programs, at any scale, and under what must not matter to cuts."""

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from enumeration import EnumeratedGraph, Graphs, random_graphs, small_graphs
from hypothesis import given
from hypothesis import strategies as st
from oracles import K, assert_best_at_any_scale, values_and_gradients
from refusals import Refusals, refusing
from scipy.optimize import linprog
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import maximum_flow
from structure_members import cyclic
from torch import Tensor
from torch.testing import assert_close

from structsmooth import L2, BinaryGraph, StructuralHinge

NAN, INF = torch.nan, torch.inf


def medium(**options: Any) -> Graphs:
    return random_graphs(3, 30, 60, seed=1, **options)


@pytest.mark.parametrize("oracle", ["max", "topk", "max_marginals"])
@pytest.mark.parametrize("where", ["pairwise", "conflict"])
def test_an_example_without_outputs_has_no_gradient(where: str, oracle: str) -> None:
    unary, edges, pairwise = random_graphs(2, 4, 5)
    if where == "pairwise":
        pairwise[0, 2] = -torch.inf
    else:  # the ends of an edge that must agree are forced apart
        pairwise[0, 3, 0, 1] = pairwise[0, 3, 1, 0] = -torch.inf
        unary[0, edges[3, 0], 0] = unary[0, edges[3, 1], 1] = -torch.inf
    answer = values_and_gradients(oracle, lambda u, p: BinaryGraph(u, edges, p), unary, pairwise)
    values, unary_gradient, pairwise_gradient = answer
    assert (values[0] == -torch.inf).all()
    assert not unary_gradient[0].any()
    assert not pairwise_gradient[0].any()
    assert (values[1] > -torch.inf).all()
    assert unary_gradient[1].any()
    assert pairwise_gradient[1].any()
    assert not any(tensor.isnan().any() for tensor in answer)


def test_implications_carry_a_forbidden_label_along_a_path() -> None:
    """y_0 = 1 implies y_1 = 1 and so on, and the last node may not have label 1."""
    nodes = 50
    edges = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)], 1)
    pairwise = torch.zeros(1, nodes - 1, 2, 2)
    pairwise[..., 1, 0] = -torch.inf
    unary = torch.tensor([0.0, 1.0]).repeat(1, nodes, 1)
    unary[0, -1, 1] = -torch.inf
    graph = BinaryGraph(unary, edges, pairwise)
    value, y = graph.max()
    assert value.item() == 0.0
    assert not y.any()
    expected = torch.tensor([0.0, -torch.inf]).expand(1, nodes, 2)
    assert_close(graph.max_marginals(), expected)
    assert graph.topk(2)[0].tolist() == [[0.0, -torch.inf]]


# Larger graphs.


def best_score_by_linear_program(unary: Tensor, edges: Tensor, pairwise: Tensor) -> float:
    """Optimum over the local polytope, which for supermodular scores is that over labelings."""
    nodes, count = len(unary), len(edges)
    rows, columns, r = [], [], 0
    entries = []

    def add(indices: list[int], signs: list[int]) -> None:
        nonlocal r
        rows.extend([r] * len(indices))
        columns.extend(indices)
        entries.extend(signs)
        r += 1

    for v in range(nodes):
        add([2 * v, 2 * v + 1], [1, 1])
    for e, ends in enumerate(edges.tolist()):
        cells = 2 * nodes + 4 * e + np.arange(4).reshape(2, 2)
        for side, v in enumerate(ends):
            for label in range(2):
                add([*cells.take(label, axis=side), 2 * v + label], [1, 1, -1])
    matrix = coo_matrix((entries, (rows, columns)), shape=(r, 2 * nodes + 4 * count))
    right = np.r_[np.ones(nodes), np.zeros(r - nodes)]
    scores = torch.cat([unary.flatten(), pairwise.flatten()]).numpy()
    return -linprog(-scores, A_eq=matrix, b_eq=right, bounds=(0, None), method="highs").fun


@pytest.mark.parametrize("seed", range(5))
def test_larger_graphs_match_a_linear_program(seed: int) -> None:
    unary, edges, pairwise = random_graphs(2, 60, 150, seed)
    values = BinaryGraph(unary, edges, pairwise).max()[0]
    expected = [best_score_by_linear_program(unary[b], edges, pairwise[b]) for b in range(2)]
    assert_close(values, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_cuts_between_seeds_are_those_of_scipy(noise: float) -> None:
    """Long paths, whose trees are cut and grow again: seeds in two corners, integer strengths."""
    size, generator = 24, torch.Generator().manual_seed(0)
    node = torch.arange(size**2).view(size, size)
    edges = torch.cat(
        [torch.stack([x.flatten(), y.flatten()], 1) for x, y in ((node[:, :-1], node[:, 1:]), (node[:-1], node[1:]))]
    )
    strength = torch.randint(1, 9, (len(edges),), generator=generator)
    gain = (20 * noise * torch.randn(size, size, generator=generator)).round().long()
    gain[:4, :4], gain[-4:, -4:] = 1000, -1000
    gain = gain.flatten()
    ends = torch.cat([edges, edges.flip(1), torch.stack([gain.new_full(gain.shape, size**2), node.flatten()], 1)])
    ends = torch.cat([ends, torch.stack([node.flatten(), gain.new_full(gain.shape, size**2 + 1)], 1)])
    capacity = torch.cat([strength, strength, gain.clamp_min(0), (-gain).clamp_min(0)])
    network = coo_matrix((capacity.int().numpy(), ends.T.numpy()), shape=(size**2 + 2,) * 2).tocsr()
    cut = maximum_flow(network, size**2, size**2 + 1).flow_value
    unary = torch.stack([torch.zeros(size**2), gain.double()], 1)[None].double()
    tables = strength.double()[:, None, None] * torch.eye(2, dtype=torch.float64)
    value, _ = BinaryGraph(unary, edges, tables[None]).max()
    assert value.item() == strength.sum() + gain.clamp_min(0).sum() - cut


@pytest.mark.parametrize("ties", [False, True])
def test_max_marginals_are_maxima_under_constraints(ties: bool) -> None:
    unary, edges, pairwise = medium(ties=ties, forbidden=0.05)
    marginals = BinaryGraph(unary, edges, pairwise).max_marginals()
    for v, j in product(range(30), range(2)):
        constrained = unary.clone()
        constrained[:, v, 1 - j] = -torch.inf
        assert_close(marginals[:, v, j], BinaryGraph(constrained, edges, pairwise).max()[0], rtol=1e-12, atol=1e-12)


def test_a_grid_with_strong_coupling_flips_as_one() -> None:
    side = 20
    index = torch.arange(side * side).view(side, side)
    edges = torch.cat(
        [
            torch.stack([index[:, :-1], index[:, 1:]], -1).view(-1, 2),
            torch.stack([index[:-1], index[1:]], -1).view(-1, 2),
        ]
    )
    agree = 100 * torch.eye(2).expand(1, len(edges), 2, 2)
    unary = torch.randn(1, side * side, 2, generator=torch.Generator().manual_seed(0))
    values, y = BinaryGraph(unary, edges, agree).topk(3)
    totals = unary.sum(1)[0] + 100 * len(edges)
    assert_close(values[0, :2], totals.sort(descending=True).values)
    assert (y[0, 0] == totals.argmax()).all()
    assert (y[0, 1] == totals.argmin()).all()
    # The third flips a corner of the first, which two edges hold.
    corners = index[[0, 0, -1, -1], [0, -1, 0, -1]]
    loss = unary[0, corners, totals.argmax()] - unary[0, corners, totals.argmin()]
    assert (y[0, 0] != y[0, 2]).nonzero().flatten().tolist() == [corners[loss.argmin()]]
    assert_close(values[0, 0] - values[0, 2], 200 + loss.min(), rtol=1e-4, atol=0)


# Scale: scores from 1e-8 to 1e8 side by side.


def scaled(graph: Graphs, seed: int) -> Graphs:
    """The graph with nodes and edges that each have a scale of their own."""
    generator = torch.Generator().manual_seed(seed)
    unary, edges, pairwise = graph

    def scales(*shape: int) -> Tensor:
        return 10 ** (16 * torch.rand(shape, generator=generator, dtype=torch.float64) - 8)

    return unary * scales(*unary.shape[:2], 1), edges, pairwise * scales(*pairwise.shape[:2], 1, 1)


@given(graph=small_graphs(), seed=st.integers(0, 2**32 - 1))
def test_adversarial_scales(graph: Graphs, seed: int) -> None:
    graph = scaled(graph, seed)
    assert_best_at_any_scale(BinaryGraph(*graph), EnumeratedGraph(*graph), graph[0], graph[2])


@given(graph=small_graphs(ties=False), seed=st.integers(0, 2**32 - 1))
def test_the_output_is_best_in_exact_arithmetic(graph: Graphs, seed: int) -> None:
    unary, edges, pairwise = scaled(graph, seed)

    def exact(b: int, y: tuple[int, ...]) -> Fraction | None:
        terms = [unary[b, v, label].item() for v, label in enumerate(y)]
        terms += [pairwise[b, e, y[i], y[j]].item() for e, (i, j) in enumerate(edges.tolist())]
        return sum(map(Fraction, terms)) if -INF not in terms else None

    _, y = BinaryGraph(unary, edges, pairwise).max()
    for b in range(len(unary)):
        scores = {labels: exact(b, labels) for labels in product(range(2), repeat=unary.shape[1])}
        allowed = [score for score in scores.values() if score is not None]
        if not allowed:
            continue
        largest = max(
            t[b].nan_to_num(neginf=0.0).abs().max().item() if t[b].numel() else 0.0 for t in (unary, pairwise)
        )
        chosen = scores[tuple(y[b].tolist())]
        assert chosen is not None
        assert max(allowed) - chosen <= Fraction(largest) / 2**50


@pytest.mark.parametrize("large", [1e8, 1e30, 1e200])
def test_a_small_component_beside_a_large_one_keeps_its_digits(large: float) -> None:
    unary, edges, pairwise = random_graphs(1, 6, 8)
    both = BinaryGraph(
        torch.cat([unary * large, unary * 1e-8], 1),
        torch.cat([edges, edges + 6]),
        torch.cat([pairwise * large, pairwise * 1e-8], 1),
    )
    (_, alone) = BinaryGraph(unary, edges, pairwise).max()
    assert torch.equal(both.max()[1], torch.cat([alone, alone], 1))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("penalty", [1e9, 1e30, torch.finfo(torch.float32).max, 1e300])
def test_a_huge_penalty_is_as_good_as_a_ban(penalty: float, seed: int) -> None:
    unary, edges, pairwise = random_graphs(4, 8, 12, seed)
    forbidden = torch.rand(4, 20, 2, generator=torch.Generator().manual_seed(seed)) < 0.15
    unary[forbidden[:, :8]] = -torch.inf
    pairwise[..., [0, 1], [1, 0]] = pairwise[..., [0, 1], [1, 0]].masked_fill(forbidden[:, 8:], -torch.inf)
    value, y = BinaryGraph(unary, edges, pairwise).max()
    penalized = BinaryGraph(unary.clamp_min(-penalty), edges, pairwise.clamp_min(-penalty)).max()
    allowed = value > -torch.inf
    assert allowed.any()
    assert_close(penalized[0][allowed], value[allowed])
    assert torch.equal(penalized[1][allowed], y[allowed])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_values_of_the_largest_scores_are_finite(dtype: torch.dtype) -> None:
    nodes, agreements = 6, 8
    _, edges, _ = random_graphs(3, nodes, agreements)
    largest = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).max
    unary = torch.full((3, nodes, 2), 0.99 * largest / (16 * nodes), dtype=dtype)
    pairwise = torch.eye(2, dtype=dtype).expand(3, agreements, 2, 2) * 0.99 * largest / (32 * agreements)
    graph = BinaryGraph(unary, edges, pairwise)
    value, y = graph.max()
    for values in (value, graph.topk(K)[0], graph.max_marginals(), graph.score(y), StructuralHinge(L2())(graph, y)):
        assert values.isfinite().all()
    for name, potentials in (("unary", (1.1 * unary, pairwise)), ("pairwise", (unary, 1.1 * pairwise))):
        with pytest.raises(ValueError, match=f"{name} must be at most .* finite in torch.float.*: scale the scores"):
            graph.replace(*potentials)


# What must not matter.


def assert_same(graph: BinaryGraph, other: BinaryGraph) -> None:
    assert_close(other.topk(K), graph.topk(K))
    assert_close(other.max_marginals(), graph.max_marginals())


def test_unary_scores_may_stand_in_the_pairwise_ones() -> None:
    unary, edges, pairwise = medium()
    share = torch.randn(3, 60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    moved = unary.index_add(1, edges[:, 0], -share)
    assert_same(BinaryGraph(unary, edges, pairwise), BinaryGraph(moved, edges, pairwise + share[..., None]))


def test_edges_may_be_turned_shuffled_and_split() -> None:
    unary, edges, pairwise = medium()
    order = torch.randperm(60, generator=torch.Generator().manual_seed(4))
    turned = edges[order].flip(1), pairwise[:, order].transpose(2, 3)
    split = BinaryGraph(unary, torch.cat([edges, turned[0]]), torch.cat([pairwise / 4, turned[1] * 3 / 4], 1))
    assert_same(BinaryGraph(unary, edges, pairwise), split)


def test_renaming_the_nodes_renames_the_answers() -> None:
    unary, edges, pairwise = medium()
    order = torch.randperm(30, generator=torch.Generator().manual_seed(5))
    place = order.argsort()
    graph, renamed = BinaryGraph(unary, edges, pairwise), BinaryGraph(unary[:, order], place[edges], pairwise)
    assert_close(renamed.topk(K), (graph.topk(K)[0], graph.topk(K)[1][..., order]))
    assert_close(renamed.max_marginals(), graph.max_marginals()[:, order])


def test_exchanging_the_labels_exchanges_the_answers() -> None:
    unary, edges, pairwise = medium()
    graph, exchanged = BinaryGraph(unary, edges, pairwise), BinaryGraph(unary.flip(2), edges, pairwise.flip(2, 3))
    assert_close(exchanged.topk(K), (graph.topk(K)[0], 1 - graph.topk(K)[1]))
    assert_close(exchanged.max_marginals(), graph.max_marginals().flip(2))


def test_isolated_nodes_add_their_best_label() -> None:
    unary, edges, pairwise = medium()
    padded = BinaryGraph(torch.cat([unary, torch.tensor([[[0.0, -2.0]]]).expand(3, 1, 2)], 1), edges, pairwise)
    graph = BinaryGraph(unary, edges, pairwise)
    value, y = padded.max()
    assert_close(value, graph.max()[0])
    assert torch.equal(y, torch.nn.functional.pad(graph.max()[1], (0, 1)))
    assert_close(padded.max_marginals()[:, -1], torch.stack([value, value - 2], 1))


def test_without_edges_every_node_decides_alone() -> None:
    unary, _, _ = medium()
    none = torch.zeros(0, 2, dtype=torch.int64), torch.zeros(3, 0, 2, 2, dtype=torch.float64)
    value, y = BinaryGraph(unary, *none).max()
    assert torch.equal(y, unary.argmax(2))
    assert_close(value, unary.amax(2).sum(1))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_edges_and_labels_may_be_any_integers(dtype: torch.dtype) -> None:
    unary, edges, pairwise = medium()
    graph, other = BinaryGraph(unary, edges, pairwise), BinaryGraph(unary, edges.to(dtype), pairwise)
    assert_same(graph, other)
    assert_close(other.score(cyclic(unary).to(dtype)), graph.score(cyclic(unary)))


# Supermodularity.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rounding_does_not_spoil_supermodularity(dtype: torch.dtype) -> None:
    first, second = torch.randn(2, 100, 50, 2, generator=torch.Generator().manual_seed(0), dtype=dtype) * 1000
    modular = first.unsqueeze(-1) + second.unsqueeze(-2)
    edges = torch.stack([torch.arange(50), torch.arange(1, 51)], 1)
    graph = BinaryGraph(torch.zeros(100, 51, 2, dtype=dtype), edges, modular)
    # The score is that of the labels, and no flip of one label is better by more than the violation.
    value, y = graph.max()
    largest = modular.abs().amax().float()
    for v in range(51):
        flipped = y.clone()
        flipped[:, v] = 1 - flipped[:, v]
        assert (graph.score(flipped) - value <= 16 * torch.finfo(dtype).eps * largest).all()


@pytest.mark.parametrize(
    ("table", "allowed"),
    [
        ([[0.0, -INF], [-INF, 0.0]], True),
        ([[0.0, -INF], [5.0, 0.0]], True),
        ([[-INF, -INF], [1.0, 2.0]], True),
        ([[-INF, -INF], [-INF, 2.0]], True),
        ([[-INF, -INF], [1.0, -INF]], True),
        ([[-INF, 0.0], [0.0, 0.0]], False),
        ([[1e9, 0.0], [0.0, -INF]], False),
        ([[0.0, 0.0], [1e-3, 0.0]], False),
    ],
)
def test_supermodular_with_forbidden_pairs(table: list[list[float]], allowed: bool) -> None:
    unary = torch.tensor([[[0.3, 0.1], [0.0, 0.5]]])
    edges, pairwise = torch.tensor([[0, 1]]), torch.tensor([[table]])
    if allowed:
        assert_close(
            BinaryGraph(unary, edges, pairwise).max(),
            tuple(
                t.to(d)
                for t, d in zip(EnumeratedGraph(unary, edges, pairwise).max(), (torch.float32, None), strict=True)
            ),
        )
    else:
        with pytest.raises(ValueError, match=r"pairwise must be supermodular, .* at example 0, edge 0"):
            BinaryGraph(unary, edges, pairwise)


# Bad input.

B, N, E = 2, 3, 2


def graph(**changes: Any) -> BinaryGraph:
    good = {"unary": torch.zeros(B, N, 2), "edges": torch.tensor([[0, 1], [1, 2]]), "pairwise": torch.zeros(B, E, 2, 2)}
    return BinaryGraph(**good | changes)


def integers(*shape: int, value: int = 0) -> Tensor:
    return torch.full(shape, value)


CASES: Refusals = {
    "three labels": (lambda: graph(unary=torch.zeros(B, N, 3)), ValueError, r"unary .* got \(2, 3, 3\)"),
    "no nodes": (lambda: graph(unary=torch.zeros(B, 0, 2)), ValueError, r"unary .* N >= 1, got \(2, 0, 2\)"),
    "edges are a list": (lambda: graph(edges=[[0, 1], [1, 2]]), TypeError, "edges must be .* got list"),
    "edges are floats": (lambda: graph(edges=torch.zeros(E, 2)), TypeError, "edges must be integers"),
    "edges are a mask": (lambda: graph(edges=torch.ones(E, 2).bool()), TypeError, "edges must be integers"),
    "edges are transposed": (lambda: graph(edges=integers(2, 3)), ValueError, r"edges .* \[E, 2\], got \(2, 3\)"),
    "edges per example": (lambda: graph(edges=integers(B, E, 2)), ValueError, r"edges .* got \(2, 2, 2\)"),
    "a node too many": (
        lambda: graph(edges=torch.tensor([[0, 1], [1, 3]])),
        ValueError,
        "edges must hold nodes from 0 to 2, got 0 to 3",
    ),
    "negative node": (lambda: graph(edges=torch.tensor([[0, 1], [-1, 2]])), ValueError, "edges .* got -1 to 2"),
    "loop": (
        lambda: graph(edges=torch.tensor([[0, 1], [2, 2]])),
        ValueError,
        "edges must join two nodes, got edge 1 from 2 to itself",
    ),
    "edges on another device": (lambda: graph(edges=integers(E, 2).to("meta")), ValueError, "edges must be on .* meta"),
    "unchecked edges": (
        lambda: graph(edges=integers(E, 2, value=7), validate_args=False).max(),
        ValueError,
        "edges must hold nodes from 0 to 2, got 7 to 7",
    ),
    "unchecked edges of max-marginals": (
        lambda: graph(edges=integers(E, 2, value=-1), validate_args=False).max_marginals(),
        ValueError,
        "edges must hold nodes",
    ),
    "pairwise of other edges": (
        lambda: graph(pairwise=torch.zeros(B, 3, 2, 2)),
        ValueError,
        r"pairwise must have shape \[B, E, 2, 2\] = \(2, 2, 2, 2\), got \(2, 3, 2, 2\)",
    ),
    "pairwise of another batch": (lambda: graph(pairwise=torch.zeros(1, E, 2, 2)), ValueError, "pairwise must have"),
    "shared pairwise": (lambda: graph(pairwise=torch.zeros(2, 2)), ValueError, r"pairwise .* got \(2, 2\)"),
    "submodular": (
        lambda: graph(pairwise=-torch.eye(2).expand(B, E, 2, 2)),
        ValueError,
        r"pairwise must be supermodular, s00 \+ s11 >= s01 \+ s10, at every edge, got \[\[-1.* at example 0, edge 0",
    ),
    "replace with submodular": (
        lambda: graph().replace(torch.zeros(B, N, 2), -torch.eye(2).expand(B, E, 2, 2)),
        ValueError,
        "supermodular",
    ),
    "costs that leave no supermodular scores": (
        lambda: graph().cost_augmented(integers(B, N), (torch.zeros(()), -torch.eye(2))),
        ValueError,
        "pairwise must be supermodular",
    ),
}
test_refuses = refusing(CASES)


def test_values_are_not_checked_on_request() -> None:
    bad = graph(unary=torch.full((B, N, 2), NAN), pairwise=-torch.eye(2).expand(B, E, 2, 2), validate_args=False)
    assert bad.max()[0].tolist() == [-INF, -INF]
