"""First sub-words of words, chains over them, and biaffine scores with ROOT."""

from itertools import product

import numpy as np
import pytest
import torch

from structsmooth import Hamming, LinearChain, SpanningTree, StructuralHinge
from structsmooth.costs import WeightedHamming
from structsmooth.models import BiaffineParser, TaggingHead
from structsmooth.models.subwords import at_first_subwords, first_subwords

WORDS = [[None, 0, 0, 1, None], [0, 1, 1, 2, 3, 3]]


def test_first_subwords_of_a_batch_are_padded():
    mask = first_subwords(WORDS)
    assert mask.int().tolist() == [[0, 1, 0, 1, 0, 0], [1, 1, 0, 1, 1, 0]]
    assert first_subwords([]).shape == (0,)
    labels = at_first_subwords([[7, 8], [1, 2, 3, 4]], WORDS)
    assert labels[mask].tolist() == [7, 8, 1, 2, 3, 4]
    assert (labels[~mask] == -100).all()
    with pytest.raises(ValueError, match="input 1 has a word 3, and labels of 3 words"):
        at_first_subwords([[7, 8], [1, 2, 3]], WORDS)
    with pytest.raises(ValueError, match="labels must be of 2 inputs"):
        at_first_subwords([[7, 8]], WORDS)


def test_tagging_heads_leave_positions_out_by_a_mask():
    torch.manual_seed(0)
    head, features, mask = TaggingHead(4, 3), torch.randn(2, 6, 4), first_subwords(WORDS)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    y = at_first_subwords([[2, 0], [1, 2, 1, 0]], WORDS)
    features[~mask] = torch.nan
    losses = StructuralHinge.crf("none")(head(features, mask=mask.long()), y)
    for row in range(2):
        alone = head(features[row, mask[row]][None])
        assert isinstance(alone, LinearChain)
        assert torch.allclose(losses[row], -alone.log_prob(y[row, mask[row]][None])[0])
    losses.sum().backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in head.parameters())


def test_balanced_weights_are_those_of_scikit_learn():
    from sklearn.utils.class_weight import compute_class_weight

    labels = torch.tensor([0, 2, 2, 1, 2, -100, 0])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels[labels >= 0].numpy())
    assert WeightedHamming.balanced(labels, 3).weights == pytest.approx(expected.tolist())
    chain = LinearChain(torch.zeros(1, 2, 3), torch.zeros(3, 3))
    loss = StructuralHinge(cost=WeightedHamming.balanced(labels, 3))(chain, torch.tensor([[1, 2]]))
    assert loss.item() == pytest.approx(expected[1] + expected[2])
    assert StructuralHinge(cost=Hamming())(chain, torch.tensor([[1, 2]])).item() == 2


@pytest.mark.parametrize(("root", "square", "projective"), [*product(("first", "last"), (True, False), (True, False))])
def test_biaffine_scores_have_root_first_or_last(root, square, projective):
    arcs, of_root = torch.randn(2, 3, 3), torch.randn(2, 3)
    rows = torch.cat([of_root[:, None], arcs] if root == "first" else [arcs, of_root[:, None]], 1)
    column = torch.randn(2, 4, 1)
    scores = torch.cat([column, rows] if root == "first" else [rows, column], 2) if square else rows
    trees = BiaffineParser.of_scores(scores, torch.tensor([3, 2]), root=root, projective=projective)
    assert torch.equal(trees.arcs, arcs)
    assert torch.equal(trees.root, of_root)
    assert isinstance(trees, SpanningTree) != projective
    assert trees.lengths.tolist() == [3, 2]


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 5), (2, 3, 4), (2, 1, 1)])
def test_other_shapes_of_scores_are_refused(shape):
    with pytest.raises(ValueError, match="scores must have shape"):
        BiaffineParser.of_scores(torch.zeros(shape), root="first")


def test_other_places_of_root_are_refused():
    with pytest.raises(ValueError, match="root must be"):
        BiaffineParser.of_scores(torch.zeros(1, 3, 3), root="middle")  # type: ignore[arg-type]
