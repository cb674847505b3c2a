"""Layers of labels beside enumeration, whichever structure answers; edges by a rule."""

from itertools import pairwise, product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BinaryGraph, FactorGraph, StructuralHinge
from structsmooth.factors import Layers, SkipEdges, grid_edges, skip_edges

SIZES, LENGTHS = (3, 2), torch.tensor([4, 2, 0])
SKIPS = SkipEdges(
    torch.tensor([[[0, 2], [1, 3]], [[0, 0], [0, 0]], [[0, 0], [0, 0]]]), torch.tensor([[True] * 2] + 2 * [[False] * 2])
)
FORBIDDEN = torch.tensor([[0.3, -torch.inf], [0.1, -0.2], [-0.4, 0.5]], dtype=torch.float64)
# Settings of each way to answer.
WAYS: dict[str, dict[str, Any]] = {
    "chain": {},
    "elimination": {"max_joint": 4},
    "elimination with skips": {"skips": True},
    "relaxation": {"skips": True, "max_table": 1},
}


def layers(way: str, requires_grad: bool = False, **more: Any) -> Layers:
    """Two layers over sequences of up to four positions, of which one has no scores of neighbours."""
    generator = torch.Generator().manual_seed(0)

    def scores(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_(requires_grad)

    unary, transition = [scores(3, 4, size) for size in SIZES], scores(3, 3)
    options = {"lengths": LENGTHS, **WAYS[way], **more}
    skipped = scores(3, 3)
    if options.pop("skips", False):
        options["skips"] = {0: (SKIPS, skipped)}
    return Layers(unary, [transition, None], {(0, 1): FORBIDDEN}, **options)


def outputs(own: Layers, b: int) -> tuple[Tensor, Tensor]:
    """All labels [n, L, T] of an example, 0 at padding, and their scores [n], part by part."""
    length, steps = int(own.lengths[b]), own.unary[0].shape[1]
    found, values = [], []
    for labels in product(*(product(range(size), repeat=length) for size in own.sizes)):
        value = torch.zeros((), dtype=torch.float64)
        for layer, y in enumerate(labels):
            table = own.transitions[layer]
            value = value + sum(own.unary[layer][b, t, j] for t, j in enumerate(y))
            if table is not None:
                value = value + sum(table[i, j] for i, j in pairwise(y))
        for (first, second), table in own.between.items():
            at = table if table.dim() == 4 else table.expand(*own.unary[0].shape[:2], *table.shape)
            value = value + sum(at[b, t, labels[first][t], labels[second][t]] for t in range(length))
        for layer, (skips, table) in own.skips.items():
            for (s, t), real in zip(skips.edges[b].tolist(), skips.mask[b].tolist(), strict=True):
                value = value + (table[labels[layer][s], labels[layer][t]] if real else 0)
        found.append([[*y, *[0] * (steps - length)] for y in labels])
        values.append(value)
    return torch.tensor(found), torch.stack(values)


@pytest.mark.parametrize("way", ["chain", "elimination", "elimination with skips"])
def test_every_way_agrees_with_enumeration(way: str) -> None:
    own = layers(way)
    assert own.answered_by == way.split()[0]
    value, best = own.max()
    marginals, log_z = own.marginals(), own.structure.logsumexp()
    for b, length in enumerate(LENGTHS.tolist()):
        y, scores = outputs(own, b)
        assert_close(value[b], scores.max())
        assert_close(torch.stack(best)[:, b], y[scores.argmax()])
        assert_close(log_z[b], scores.logsumexp(0))
        probability = scores.softmax(0)
        for layer, size in enumerate(SIZES):
            expected = torch.stack([((y[:, layer] == j) * probability[:, None]).sum(0) for j in range(size)], -1)
            expected[length:] = 0
            assert_close(marginals[layer][b], expected)
    for pair in zip(*(own.split(own.structure.topk(2)[1][:, 0])[k] for k in (0, 1)), strict=True):
        assert (FORBIDDEN[pair] > -torch.inf).all()


@pytest.mark.parametrize("way", ["chain", "elimination", "elimination with skips"])
def test_likelihoods_and_their_gradients_are_those_of_enumeration(way: str) -> None:
    own = layers(way, requires_grad=True)
    gold = torch.tensor([[0, 1, 2, 1], [2, 0, 7, 7], [9] * 4]), torch.tensor([[0, 1, 1, 0], [1, 0, 7, 7], [9] * 4])
    loss = StructuralHinge.crf("sum")(own.structure, own.join(*gold))
    expected = torch.zeros((), dtype=torch.float64)
    for b, length in enumerate(LENGTHS.tolist()):
        y, scores = outputs(own, b)
        wanted = torch.stack(gold)[:, b, :length]
        here = (y[..., :length] == wanted).all(-1).all(-1).nonzero()[0, 0]
        expected = expected + scores.logsumexp(0) - scores[here]
    assert_close(loss, expected)
    table = own.transitions[0]
    assert table is not None
    inputs = [*own.unary, table, *(scores for _, scores in own.skips.values())]
    assert_close(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs))
    back = own.split(own.join(*gold))
    assert all(
        torch.equal(a[b, :n], y[b, :n]) for a, y in zip(back, gold, strict=True) for b, n in enumerate([4, 2, 0])
    )


@pytest.mark.parametrize("way", ["chain", "elimination"])
def test_labels_that_are_not_known_are_summed_over(way: str) -> None:
    own = layers(way)
    first = torch.tensor([[0, 1, -1, 1], [2, -1, 7, 7], [9] * 4]).where(torch.arange(4) < LENGTHS[:, None], 0)
    second = torch.tensor([[-1, 1, 1, -1], [-1, -1, 0, 0], [0] * 4])
    losses = StructuralHinge.crf("none")(own.structure, *own.partial(first, second))
    for b, length in enumerate(LENGTHS.tolist()):
        y, scores = outputs(own, b)
        wanted = torch.stack([first[b], second[b]])[:, :length]
        agrees = ((y[..., :length] == wanted) | (wanted < 0)).flatten(1).all(1)
        assert_close(losses[b], scores.logsumexp(0) - scores[agrees].logsumexp(0))


def test_a_relaxation_bounds_what_cannot_be_solved() -> None:
    own, exact = layers("relaxation"), layers("elimination with skips")
    assert own.answered_by == "relaxation"
    assert own.graph.solved_by == ["search", "tree", "tree"]
    assert (own.structure.max()[0] >= exact.max()[0] - 1e-6).all()
    assert_close(own.graph.max()[0], exact.max()[0])
    y = own.join(*exact.max()[1])
    assert (StructuralHinge()(own.structure, y) >= StructuralHinge()(exact.structure, y) - 1e-6).all()


def test_three_layers_and_tables_by_position() -> None:
    generator = torch.Generator().manual_seed(1)
    unary = [torch.randn(2, 3, size, generator=generator) for size in (2, 3, 2)]
    between = {(0, 1): torch.randn(2, 3, 2, 3, generator=generator), (2, 1): torch.randn(2, 3, generator=generator)}
    transitions = [torch.randn(2, 2, generator=generator), torch.randn(3, 3, generator=generator), None]
    chain, graph = (Layers(unary, transitions, between, max_joint=most) for most in (12, 11))
    assert (chain.answered_by, graph.answered_by) == ("chain", "elimination")
    assert_close(chain.structure.logsumexp(), graph.structure.logsumexp())
    assert_close(chain.marginals(), graph.marginals())
    assert all(torch.equal(a, b) for a, b in zip(chain.max()[1], graph.max()[1], strict=True))
    assert_close(chain.max()[0][0], outputs(chain, 0)[1].max().float())


def test_labels_that_are_forbidden_everywhere_are_no_labels_of_the_chain() -> None:
    own = layers("chain", max_joint=5)
    assert own.answered_by == "chain"
    assert own.structure.unary.shape[-1] == 5
    with pytest.raises(ValueError, match="example 0 has labels at position 1 that a table between layers forbids"):
        own.join(torch.tensor([[1, 0, 0, 0]] * 3), torch.tensor([[0, 1, 0, 0]] * 3))


@pytest.mark.parametrize(
    ("unary", "transitions", "between", "fault"),
    [
        ([], [], {}, "unary and transitions must have an entry for each layer"),
        ([(1, 2, 3)], [], {}, "unary and transitions must have an entry for each layer, one at least, got 1 and 0"),
        ([(1, 2, 3), (1, 3, 2)], [None, None], {}, r"unary\[1\] must have shape \(1, 2, 2\), got \(1, 3, 2\)"),
        ([(1, 2, 3)], [(2, 3)], {}, r"transitions\[0\] must have shape \(3, 3\), got \(2, 3\)"),
        ([(1, 2, 3), (1, 2, 2)], [None] * 2, {(1, 0): (3, 2)}, r"between\[\(1, 0\)\] must have shape \(2, 3\)"),
        ([(1, 2, 3)], [None], {(0, 1): (3, 3)}, "must be of layers from 0 to 0, two for a table between layers"),
        ([(1, 2, 3)], [None], {(0, 0): (3, 3)}, "must be of layers from 0 to 0, two for a table between layers"),
    ],
)  # fmt: skip
def test_scores_that_do_not_fit(unary: list[Any], transitions: list[Any], between: dict[Any, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Layers(
            [torch.zeros(shape) for shape in unary],
            [None if shape is None else torch.zeros(shape) for shape in transitions],
            {pair: torch.zeros(shape) for pair, shape in between.items()},
        )


def test_labels_that_do_not_fit() -> None:
    own, zeros = layers("elimination"), torch.zeros(3, 4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"labels of layer 1 must be from 0 to 1; example 1: \[2, 2, 2, 2\]"):
        own.join(zeros, torch.tensor([[0] * 4, [2] * 4, [0] * 4]))
    with pytest.raises(ValueError, match=r"labels of layer 0 must have shape \[B, T\]"):
        own.join(zeros[:, :2], zeros)


# Edges by a rule.


def test_words_are_joined_by_a_rule() -> None:
    def capitals(word: str) -> str | None:
        return word if word[0].isupper() else None

    sentences = [["A", "b", "A", "A", "b", "A"], ["x", "y", "x"], []]
    consecutive, every = (skip_edges(sentences, capitals, every=every) for every in (False, True))
    assert consecutive.edges.tolist() == [[[0, 2], [0, 3], [3, 5]], [[0, 0]] * 3, [[0, 0]] * 3]
    assert consecutive.mask.tolist() == [[True] * 3, [False] * 3, [False] * 3]
    pairs = [(s, t) for t in range(6) for s in range(t - 1) if sentences[0][s] == sentences[0][t] == "A"]
    assert list(map(tuple, every.edges[0].tolist())) == pairs
    assert skip_edges(sentences, capitals, least=1).edges[0].tolist() == [[0, 2], [2, 3], [3, 5]]
    for none in ([], [[]]):
        assert skip_edges(none, capitals).edges.shape == (len(none), 0, 2)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 4), (3, 2), (4, 5)])
@pytest.mark.parametrize("diagonals", [False, True])
def test_grids_join_the_pixels_that_touch(height: int, width: int, diagonals: bool) -> None:
    found = {tuple(sorted(pair)) for pair in grid_edges(height, width, diagonals=diagonals).tolist()}
    places = list(product(range(height), range(width)))
    reach = 2 if diagonals else 1
    expected = {
        (a, b)
        for a, (i, j) in enumerate(places)
        for b, (k, m) in enumerate(places)
        if a < b and max(abs(i - k), abs(j - m)) == 1 and abs(i - k) + abs(j - m) <= reach
    }
    assert found == expected
    assert len(grid_edges(height, width, diagonals=diagonals)) == len(expected)


def test_a_grid_is_the_same_graph_in_both_structures() -> None:
    unary, edges = torch.randn(2, 12, 2, generator=torch.Generator().manual_seed(0)), grid_edges(3, 4)
    agree = 0.7 * torch.eye(2)
    cut = BinaryGraph(unary, edges, agree.expand(2, len(edges), 2, 2))
    assert_close(FactorGraph(unary, edges, agree).max(), cut.max())
    with pytest.raises(ValueError, match="height must be"):
        grid_edges(0, 3)


def test_scores_of_repeated_edges_add_up() -> None:
    generator = torch.Generator().manual_seed(0)
    unary, tables = torch.randn(2, 3, 3, generator=generator), torch.randn(2, 4, 3, 3, generator=generator)
    repeated = FactorGraph(unary, torch.tensor([[0, 1], [1, 2], [1, 0], [0, 1]]), tables)
    sums = torch.stack([tables[:, 0] + tables[:, 2].mT + tables[:, 3], tables[:, 1]], 1)
    once = FactorGraph(unary, torch.tensor([[0, 1], [1, 2]]), sums)
    assert_close(repeated.topk(27), once.topk(27))
    assert_close(repeated.logsumexp(), once.logsumexp())
    assert_close(repeated.entropy(), once.entropy())
    assert_close(repeated.max_marginals(), once.max_marginals())
    for edge in (0, 3):
        assert_close(repeated.marginals()[1][:, edge], once.marginals()[1][:, 0])
    searched = FactorGraph(unary, repeated.edges, tables, max_table=1)
    assert searched.solved_by == ["search"] * 2
    assert once.solved_by == ["tree"] * 2
    assert_close(searched.max(), once.max())
    relaxation = repeated.relaxed()
    assert (relaxation.dual >= once.max()[0] - 1e-5).all()
    assert_close(relaxation.decode()[1], once.score(relaxation.decode()[0]))
