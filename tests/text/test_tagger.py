"""The linear tagger: its problem and its predictions, under constraints or not."""

import pytest
import torch

from structsmooth.problems import DenseSequences
from structsmooth.text.schemes import entities, entity_tags
from structsmooth.text.tagger import Tagger, Tags, chain_problem

NAMES = ["B-X", "I-X", "O"]
LENGTHS = torch.tensor([3, 1, 2])


def sequences() -> DenseSequences:
    rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return DenseSequences.of(rows, LENGTHS)


def test_predictions_are_well_formed_under_constraints_alone() -> None:
    weights = torch.zeros(4 + 3 + 2, 3, dtype=torch.float64)
    weights[-2:] = torch.tensor([-1.0, 5.0, 0.0])  # each sentence is to begin with I-X, and to end with it
    taken, found = sequences(), {}
    for constrained in (False, True):
        tagger = Tagger(Tags(NAMES, "BIO", constrained), 4)
        found[constrained] = [ranked[0][1] for ranked in tagger.best(taken, weights.flatten(), 1)]
        marginals = tagger.marginals(taken, weights.flatten())
        assert [len(rows) for rows in marginals] == LENGTHS.tolist()
        assert all(bool(rows[0, 1] == 0) is constrained for rows in marginals)
    assert found[False][1] == ["I-X"]
    assert all(tags == entity_tags(entities(tags), len(tags), "BIO") for tags in found[True])


def test_scores_of_pairs_of_tags_are_scaled() -> None:
    taken, labels = sequences(), torch.tensor([0, 1, 2, 0, 2, 0])
    weights = torch.randn((4 + 3 + 2) * 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scaled = weights.view(-1, 3).clone()
    scaled[4:7] *= 2
    tags = Tags(NAMES, "BIO", constrained=False)
    double, plain = Tagger(tags, 4, transition_scale=2.0), Tagger(tags, 4)
    assert double.best(taken, weights, 2) == plain.best(taken, scaled.flatten(), 2)
    losses = double.problem(taken, labels).loss(weights), plain.problem(taken, labels).loss(scaled.flatten())
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    with pytest.raises(ValueError, match='the loss "slack" has no scale of transitions, got transition_scale=2'):
        chain_problem("slack", taken, labels, (4, 3), transition_scale=2.0)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([0, 1, 2, 1, 2, 0], "I-X;"),
        ([0, 1, 2, 0, 2, 1], "O I-X;"),
        ([1, 1, 2, 1, 2, 0], "I-X I-X O;"),
    ],
    ids=["start", "pair", "first of two"],
)
def test_the_first_sentence_that_breaks_constraints_is_named(labels: list[int], sentence: str) -> None:
    tagger = Tagger(Tags(NAMES, "BIO", constrained=True), 4)
    assert tagger.problem(sequences(), torch.tensor([0, 1, 2, 0, 1, 0]), constrained=False).n == 3
    with pytest.raises(ValueError, match=f"well-formed in the scheme BIO, got the sentence {sentence}"):
        tagger.problem(sequences(), torch.tensor(labels), constrained=True)


def test_a_tag_may_follow_the_last_one_of_another_sentence() -> None:
    tagger = Tagger(Tags(NAMES, "BIO", constrained=True), 4)
    assert tagger.problem(sequences(), torch.tensor([0, 1, 2, 2, 0, 1]), constrained=True).n == 3
