"""Spanning trees: several roots, any scale of the scores, and samples without labels."""

import pytest
import torch
from enumerated_programs import EnumeratedDependencies, random_dependencies
from scipy.stats import chisquare
from torch.testing import assert_close

from structsmooth import SpanningTree
from structsmooth.structures.spanning_trees import elimination


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("single_root", [True, False])
def test_oracles_match_enumeration_at_any_scale(single_root: bool, scale: float) -> None:
    for seed, forbidden in enumerate([0.0, 0.1, 0.3, 0.5]):
        arcs, root, labels, lengths = random_dependencies(4, 3, 2, seed, forbidden=forbidden, ties=seed == 1)
        scores = arcs * scale, root * scale, labels * scale
        tree = SpanningTree(*scores, lengths, single_root=single_root)
        twin = EnumeratedDependencies(*scores, lengths, projective=False, single_root=single_root)
        values, y = tree.topk(12)
        for actual, expected in (
            (tree.logsumexp(), twin.logsumexp()),
            (values, twin.topk(12)[0]),
            (tree.max_marginals(), twin.max_marginals()),
        ):
            assert_close(actual, expected, rtol=1e-12, atol=1e-12 * scale)
        assert_close(tree.marginals(), twin.marginals(), rtol=1e-8, atol=1e-8)
        for own, found in zip(y, values > -torch.inf, strict=True):
            assert len(own[found].unique(dim=0)) == found.sum()


@pytest.mark.parametrize("scale", [1.0, 300.0, 1e4])
@pytest.mark.parametrize("single_root", [True, False])
def test_sums_and_their_derivatives_are_those_of_plain_torch(single_root: bool, scale: float) -> None:
    """At scales where weights underflow, too, and with arcs that are forbidden."""
    generator = torch.Generator().manual_seed(0)
    arcs, root = (scale * torch.randn(3, *shape, generator=generator).double() for shape in [(9, 9), (9,)])
    arcs[torch.rand(arcs.shape, generator=generator) < 0.2] = -torch.inf
    lengths, directions = torch.tensor([9, 1, 7]), (torch.randn_like(arcs), torch.randn_like(root))
    found = []
    for plain in (False, True):
        scores = arcs.clone().requires_grad_(), root.clone().requires_grad_()
        tree = SpanningTree(*scores, lengths=lengths, single_root=single_root)
        sums = tree._arc_sums(*tree._scores())
        log_z = elimination.log_partition(*sums, tree.mask, single_root)[0] if plain else tree.logsumexp()
        gradients = torch.autograd.grad(log_z.sum(), scores, create_graph=True)
        slope = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
        found.append((log_z / scale, *gradients, *torch.autograd.grad(slope, scores)))
    assert found[0][0].isfinite().all()
    assert_close(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("single_root", [True, False])
def test_numbers_of_trees(single_root: bool) -> None:
    for n in range(1, 7):
        zeros = torch.zeros(1, n, n, dtype=torch.float64)
        tree = SpanningTree(zeros, zeros[:, 0], single_root=single_root)
        assert_close(tree.log_count().exp(), torch.tensor([float(n if single_root else n + 1) ** (n - 1)]).double())


@pytest.mark.parametrize("single_root", [True, False])
def test_samples_have_the_probabilities_of_the_trees(single_root: bool) -> None:
    arcs, root, _, lengths = random_dependencies(3, 4, 1, seed=5, lengths=[4, 3, 4])
    arcs[2, 0] = -torch.inf  # the first word has no modifiers
    tree = SpanningTree(arcs, root, lengths=lengths, single_root=single_root)
    none = torch.zeros(3, 4, 4, 1, dtype=torch.float64)
    twin = EnumeratedDependencies(arcs, root, none, lengths, projective=False, single_root=single_root)
    n = 20_000
    for own, outputs, scores in zip(
        tree.sample(n, torch.Generator().manual_seed(0)), twin.outputs, twin.scores, strict=True
    ):
        counts = torch.stack([(own == output).all(1).sum() for output in outputs])
        expected = scores.softmax(0) * n
        assert counts.sum() == n
        assert not counts[expected == 0].any()
        often = expected > 5
        observed = torch.cat([counts[often], counts[~often].sum()[None]])
        expected = torch.cat([expected[often], expected[~often].sum()[None]])
        some = expected > 0
        assert chisquare(observed[some], expected[some]).pvalue > 1e-3


def test_one_root_is_exact_where_roots_score_high() -> None:
    """Not by a penalty, which would be lost in the rounding of such scores or be too small for them."""
    root = torch.tensor([[1e15, 1e15 + 2, 1e15]], dtype=torch.float64)
    arcs = torch.tensor([[[0.0, 0.25, 0.0], [0.5, 0.0, 0.125], [0.0, 0.0, 0.0]]], dtype=torch.float64)
    assert SpanningTree(arcs, root).max()[1].tolist() == [[2, 0, 2]]
    assert SpanningTree(arcs, root, single_root=False).max()[1].tolist() == [[0, 0, 0]]


def test_words_with_no_head_but_the_root() -> None:
    arcs = torch.full((2, 3, 3), -torch.inf, dtype=torch.float64)
    arcs[:, 0, 1] = 1.0
    arcs[0, 0, 2] = 2.0
    tree = SpanningTree(arcs, torch.zeros(2, 3, dtype=torch.float64))
    assert_close(tree.logsumexp(), torch.tensor([3.0, -torch.inf]).double())
    assert tree.max()[1].tolist() == [[0, 1, 1], [0, 0, 0]]
    assert tree.sample(2).tolist() == [[[0, 1, 1]] * 2, [[0, 0, 0]] * 2]


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_score_that_is_no_number_reaches_the_sum_of_its_example_alone(single_root: bool, value: float) -> None:
    """Wherever it stands, and so whenever its words are eliminated; example 0 has none."""
    scores = torch.zeros(17, 5, 4)
    arcs = [(head, word) for head in range(5) for word in range(4) if head != word + 1]
    for example, arc in enumerate(arcs, 1):
        scores[(example, *arc)] = value
    scores.requires_grad_()
    log_z = SpanningTree(scores[:, 1:], scores[:, 0], single_root=single_root, validate_args=False).logsumexp()
    log_z.sum().backward()
    assert log_z.isfinite().tolist() == [True] + [False] * 16
    assert scores.grad is not None
    assert_close(scores.grad[0].sum(), torch.tensor(4.0))
    assert not scores.grad[1:].any()
