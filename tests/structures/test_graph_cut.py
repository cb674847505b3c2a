"""Binary graphs: every oracle against enumeration, linear programs, and under what must not matter."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from enumeration import EnumeratedGraph, Graphs, assert_lists, random_graphs, small_graphs
from hypothesis import given
from hypothesis import strategies as st
from oracles import assert_best_at_any_scale
from scipy.optimize import linprog
from scipy.sparse import coo_matrix
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import L2, BinaryGraph, Hamming, StructuralHinge
from structsmooth.structures.graph_cut import operators as compiled

K = 3
NAN, INF = torch.nan, torch.inf
VALUES: dict[str, Callable[..., Tensor]] = {
    "max": lambda graph: graph.max()[0],
    "topk": lambda graph: graph.topk(K)[0],
    "max_marginals": lambda graph: graph.max_marginals(),
    "score": lambda graph: graph.score(some_labels(graph)),
}

every_value = pytest.mark.parametrize("value", VALUES)


def some_labels(graph: BinaryGraph | EnumeratedGraph) -> Tensor:
    """Labels that depend on the shape only."""
    unary = graph.unary if isinstance(graph, BinaryGraph) else graph.tables[0]
    batch, nodes, _ = unary.shape
    return torch.arange(batch * nodes, device=unary.device).view(batch, nodes) * 7 % 5 % 2


def values_and_gradients(
    value: str, graph: Graphs, structure: Callable[..., BinaryGraph | EnumeratedGraph] = BinaryGraph
) -> tuple[Tensor, ...]:
    """Values of an oracle, then the gradients of a weighted sum of them."""
    unary, edges, pairwise = graph

    def run(unary: Tensor, pairwise: Tensor) -> Tensor:
        return VALUES[value](structure(unary, edges, pairwise))

    out = run(unary, pairwise)
    weights = torch.arange(1.0, out.numel() + 1).cos().to(out).view_as(out)
    values, gradients = vjp(run, (unary, pairwise), weights)
    return values, *gradients


def medium(**options: Any) -> Graphs:
    return random_graphs(3, 30, 60, seed=1, **options)


@given(graph=small_graphs(), k=st.integers(1, 12))
def test_oracles_match_enumeration(graph: Graphs, k: int) -> None:
    structure, twin = BinaryGraph(*graph), EnumeratedGraph(*graph)
    for actual, expected in [
        (structure.max(), twin.max()),  # labels as well: ties go to the first in lexicographic order
        (structure.topk(k)[0], twin.topk(k)[0]),
        (structure.max_marginals(), twin.max_marginals()),
        (structure.score(some_labels(structure)), twin.score(some_labels(structure))),
        (structure.parts(some_labels(structure)), twin.parts(some_labels(structure))),
    ]:
        assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@given(graph=small_graphs(), k=st.integers(1, 300))
def test_topk_lists_distinct_outputs_by_score(graph: Graphs, k: int) -> None:
    structure = BinaryGraph(*graph)
    assert_lists(structure, structure.topk(k), EnumeratedGraph(*graph).topk(k)[0])


@pytest.mark.parametrize("value", VALUES)
@given(graph=small_graphs(ties=False))  # among ties, any maximizer is a subgradient
def test_gradients_are_the_enumerated_statistics(value: str, graph: Graphs) -> None:
    assert_close(values_and_gradients(value, graph), values_and_gradients(value, graph, EnumeratedGraph))


@given(graph=small_graphs(ties=True))
def test_the_gradient_among_ties_is_the_parts_of_the_output(graph: Graphs) -> None:
    structure = BinaryGraph(*graph)
    _, unary, pairwise = values_and_gradients("max", graph)
    weights = torch.arange(1.0, len(unary) + 1, dtype=torch.float64).cos()
    value, y = structure.max()
    weights = torch.where(value > -torch.inf, weights, 0.0)
    node, edge = structure.parts(y)
    assert_close((unary, pairwise), (weights[:, None, None] * node, weights[:, None, None, None] * edge))


@pytest.mark.parametrize("value", ["max", "topk", "max_marginals", "score"])
def test_gradcheck(value: str) -> None:
    unary, edges, pairwise = random_graphs(2, 6, 8, seed=2)
    inputs = unary.requires_grad_(), pairwise.requires_grad_()
    assert torch.autograd.gradcheck(lambda unary, pairwise: VALUES[value](BinaryGraph(unary, edges, pairwise)), inputs)


@pytest.mark.parametrize("value", ["max", "topk", "max_marginals"])
@pytest.mark.parametrize("where", ["unary", "pairwise", "conflict"])
def test_an_example_without_outputs_has_no_gradient(where: str, value: str) -> None:
    unary, edges, pairwise = random_graphs(2, 4, 5)
    if where == "unary":
        unary[0, 1] = -torch.inf
    elif where == "pairwise":
        pairwise[0, 2] = -torch.inf
    else:  # the ends of an edge that must agree are forced apart
        pairwise[0, 3, 0, 1] = pairwise[0, 3, 1, 0] = -torch.inf
        unary[0, edges[3, 0], 0] = unary[0, edges[3, 1], 1] = -torch.inf
    values, unary_gradient, pairwise_gradient = values_and_gradients(value, (unary, edges, pairwise))
    assert (values[0] == -torch.inf).all()
    assert not unary_gradient[0].any()
    assert not pairwise_gradient[0].any()
    assert (values[1] > -torch.inf).all()
    assert unary_gradient[1].any()
    assert pairwise_gradient[1].any()
    assert not any(tensor.isnan().any() for tensor in (values, unary_gradient, pairwise_gradient))


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


# What must not matter.


def assert_same(graph: BinaryGraph, other: BinaryGraph, added: Tensor | float = 0.0) -> None:
    values, y = graph.topk(K)
    other_values, other_y = other.topk(K)
    assert torch.equal(y, other_y)
    shift = added.view(-1, 1, 1) if isinstance(added, Tensor) else added
    assert_close(other_values, values + (added.view(-1, 1) if isinstance(added, Tensor) else added))
    assert_close(other.max_marginals(), graph.max_marginals() + shift)


def test_scores_added_to_a_node_or_an_edge_add_to_every_output() -> None:
    unary, edges, pairwise = medium()
    generator = torch.Generator().manual_seed(2)
    node = torch.randn(unary.shape[:2], dtype=torch.float64, generator=generator)
    edge = torch.randn(pairwise.shape[:2], dtype=torch.float64, generator=generator)
    moved = BinaryGraph(unary + node[..., None], edges, pairwise + edge[..., None, None])
    assert_same(BinaryGraph(unary, edges, pairwise), moved, node.sum(1) + edge.sum(1))


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


def test_every_entry_of_a_batch_stands_alone() -> None:
    unary, edges, pairwise = medium()
    graph = BinaryGraph(unary, edges, pairwise)
    for b in range(3):
        alone = BinaryGraph(unary[b : b + 1], edges, pairwise[b : b + 1])
        assert_close(alone.topk(K), tuple(answer[b : b + 1] for answer in graph.topk(K)))
        assert_close(alone.max_marginals(), graph.max_marginals()[b : b + 1])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_edges_and_labels_may_be_any_integers(dtype: torch.dtype) -> None:
    unary, edges, pairwise = medium()
    graph, other = BinaryGraph(unary, edges, pairwise), BinaryGraph(unary, edges.to(dtype), pairwise)
    assert_same(graph, other)
    assert_close(other.score(some_labels(other).to(dtype)), graph.score(some_labels(graph)))


# Precision.


@every_value
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_float32_is_close_to_float64(scale: float, value: str) -> None:
    unary, edges, pairwise = random_graphs(2, 40, 100, seed=3)
    single = (unary * scale).float(), edges, (pairwise * scale).float()
    double = single[0].double(), edges, single[2].double()
    for actual, expected in zip(values_and_gradients(value, single), values_and_gradients(value, double), strict=True):
        assert actual.dtype == torch.float32
        assert (actual - expected).abs().max() <= 1e-6 * max(1.0, expected.abs().max())


def test_mixed_precision_takes_the_wider_type() -> None:
    unary, edges, pairwise = medium()
    half = unary.half()
    assert_close(BinaryGraph(half, edges, pairwise).max(), BinaryGraph(half.double(), edges, pairwise).max())


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


# Losses and compilation.


def test_losses_are_consistent() -> None:
    unary, edges, pairwise = medium()
    graph = BinaryGraph(unary, edges, pairwise)
    y = some_labels(graph)
    augmented = graph.cost_augmented(y, Hamming())
    assert_close(augmented.score(1 - y), graph.score(1 - y) + 30)
    assert_close(augmented.score(y), graph.score(y))
    assert_close(StructuralHinge(reduction="none")(graph, y), augmented.max()[0] - graph.score(y))
    smoothed = StructuralHinge(L2(mu=0.5, k=5), reduction="none")(graph, y)
    distance = smoothed - StructuralHinge(reduction="none")(graph, y)
    assert ((distance >= 0) & (distance <= 0.25)).all()


@pytest.mark.parametrize("loss", [StructuralHinge(), StructuralHinge.sparsemap(k=3)], ids=["hinge", "sparsemap"])
def test_losses_compile_without_graph_breaks(loss: StructuralHinge) -> None:
    unary, edges, pairwise = medium()
    y = some_labels(BinaryGraph(unary, edges, pairwise))

    def run(unary: Tensor, pairwise: Tensor) -> Tensor:
        graph = BinaryGraph(unary, edges, pairwise)
        return loss(graph, y) + graph.max_marginals().sum()

    torch.compiler.reset()
    compiled_run = torch.compile(run, fullgraph=True, backend="aot_eager")  # raises at a graph break
    assert_close(vjp(compiled_run, (unary, pairwise)), vjp(run, (unary, pairwise)))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # by opcheck
def test_operators_are_registered_correctly() -> None:
    unary, edges, pairwise = random_graphs(2, 5, 6)
    inputs = unary.requires_grad_(), pairwise.requires_grad_(), edges
    torch.library.opcheck(compiled.top_k, (*inputs, 3))
    torch.library.opcheck(compiled.max_marginals, inputs)
    torch.library.opcheck(compiled._max_marginals_gradient, (*(t.detach() for t in inputs), torch.ones(2, 5, 2)))


# Bad input.

B, N, E = 2, 3, 2


def graph(**changes: Any) -> BinaryGraph:
    good = {"unary": torch.zeros(B, N, 2), "edges": torch.tensor([[0, 1], [1, 2]]), "pairwise": torch.zeros(B, E, 2, 2)}
    return BinaryGraph(**good | changes)


def labels(*shape: int, label: int = 0) -> Tensor:
    return torch.full(shape or (B, N), label)


CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "unary is a list": (lambda: graph(unary=[[[0.0]]]), TypeError, r"unary must be a torch\.Tensor, got list"),
    "unary holds integers": (lambda: graph(unary=labels(B, N, 2)), TypeError, "unary .* floating point"),
    "unary is a matrix": (lambda: graph(unary=torch.zeros(N, 2)), ValueError, r"unary .* \[B, N, 2\].* got \(3, 2\)"),
    "three labels": (lambda: graph(unary=torch.zeros(B, N, 3)), ValueError, r"unary .* got \(2, 3, 3\)"),
    "no nodes": (lambda: graph(unary=torch.zeros(B, 0, 2)), ValueError, r"unary .* N >= 1, got \(2, 0, 2\)"),
    "unary is NaN": (lambda: graph(unary=torch.full((B, N, 2), NAN)), ValueError, "unary must not contain NaN"),
    "unary is +inf": (lambda: graph(unary=torch.full((B, N, 2), INF)), ValueError, r"unary .* \+inf"),
    "edges are a list": (lambda: graph(edges=[[0, 1], [1, 2]]), TypeError, "edges must be .* got list"),
    "edges are floats": (lambda: graph(edges=torch.zeros(E, 2)), TypeError, "edges must be integers"),
    "edges are a mask": (lambda: graph(edges=torch.ones(E, 2).bool()), TypeError, "edges must be integers"),
    "edges are transposed": (lambda: graph(edges=labels(2, 3)), ValueError, r"edges .* \[E, 2\], got \(2, 3\)"),
    "edges per example": (lambda: graph(edges=labels(B, E, 2)), ValueError, r"edges .* got \(2, 2, 2\)"),
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
    "edges on another device": (lambda: graph(edges=labels(E, 2).to("meta")), ValueError, "edges must be on .* meta"),
    "unchecked edges": (
        lambda: graph(edges=labels(E, 2, label=7), validate_args=False).max(),
        ValueError,
        "edges must hold nodes from 0 to 2, got 7 to 7",
    ),
    "unchecked edges of max-marginals": (
        lambda: graph(edges=labels(E, 2, label=-1), validate_args=False).max_marginals(),
        ValueError,
        "edges must hold nodes",
    ),
    "pairwise is None": (lambda: graph(pairwise=None), TypeError, "pairwise must be .* got NoneType"),
    "pairwise holds integers": (lambda: graph(pairwise=labels(B, E, 2, 2)), TypeError, "pairwise .* floating point"),
    "pairwise of other edges": (
        lambda: graph(pairwise=torch.zeros(B, 3, 2, 2)),
        ValueError,
        r"pairwise must have shape \[B, E, 2, 2\] = \(2, 2, 2, 2\), got \(2, 3, 2, 2\)",
    ),
    "pairwise of another batch": (lambda: graph(pairwise=torch.zeros(1, E, 2, 2)), ValueError, "pairwise must have"),
    "shared pairwise": (lambda: graph(pairwise=torch.zeros(2, 2)), ValueError, r"pairwise .* got \(2, 2\)"),
    "pairwise is NaN": (lambda: graph(pairwise=torch.full((B, E, 2, 2), NAN)), ValueError, "pairwise .* NaN"),
    "pairwise is +inf": (lambda: graph(pairwise=torch.full((B, E, 2, 2), INF)), ValueError, r"pairwise .* \+inf"),
    "submodular": (
        lambda: graph(pairwise=-torch.eye(2).expand(B, E, 2, 2)),
        ValueError,
        r"pairwise must be supermodular, s00 \+ s11 >= s01 \+ s10, at every edge, got \[\[-1.* at example 0, edge 0",
    ),
    "pairwise on another device": (
        lambda: graph(pairwise=torch.zeros(B, E, 2, 2, device="meta")),
        ValueError,
        "pairwise must be on the device of unary, cpu, got meta",
    ),
    "replace with too few": (lambda: graph().replace(torch.zeros(B, N, 2)), ValueError, "two potentials"),
    "replace with another batch": (
        lambda: graph().replace(torch.zeros(1, N, 2), torch.zeros(1, E, 2, 2)),
        ValueError,
        r"unary must have shape \(2, 3, 2\) as before, got \(1, 3, 2\)",
    ),
    "replace with NaN": (
        lambda: graph().replace(torch.full((B, N, 2), NAN), torch.zeros(B, E, 2, 2)),
        ValueError,
        "unary must not contain NaN",
    ),
    "replace with submodular": (
        lambda: graph().replace(torch.zeros(B, N, 2), -torch.eye(2).expand(B, E, 2, 2)),
        ValueError,
        "supermodular",
    ),
    "k is 0": (lambda: graph().topk(0), ValueError, "k must be at least 1"),
    "k is a float": (lambda: graph().topk(2.0), TypeError, "k must be an int"),
    "y is a list": (lambda: graph().score([[0] * N] * B), TypeError, "y must be .* got list"),
    "y holds booleans": (lambda: graph().parts(torch.ones(B, N).bool()), TypeError, "y must hold integer labels"),
    "y of one example": (lambda: graph().score(labels(N)), ValueError, r"y must have shape \[B, N\] = \(2, 3\), got"),
    "label 2": (lambda: graph().score(labels(label=2)), ValueError, "y must hold labels from 0 to 1, got 2 to 2"),
    "negative label": (lambda: graph().parts(labels(label=-1)), ValueError, "y must hold labels"),
    "y on another device": (lambda: graph().score(labels().to("meta")), ValueError, "y must be on"),
    "label 2 to cost": (lambda: graph().cost_augmented(labels(label=2), Hamming()), ValueError, "y must hold labels"),
    "cost that does not broadcast": (
        lambda: graph().cost_augmented(labels(), torch.zeros(B, N, 3)),
        ValueError,
        "cost must broadcast",
    ),
    "cost is NaN": (lambda: graph().cost_augmented(labels(), torch.full((2,), NAN)), ValueError, "NaN"),
}


@pytest.mark.parametrize("name", CASES)
def test_refuses(name: str) -> None:
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()


def test_values_are_not_checked_on_request() -> None:
    bad = graph(unary=torch.full((B, N, 2), NAN), pairwise=-torch.eye(2).expand(B, E, 2, 2), validate_args=False)
    assert bad.replace(*bad.potentials).validate_args is False
    assert bad.max()[0].tolist() == [-INF, -INF]
