"""The tagger with unknown tags: marginal likelihoods by enumeration, hinges, and what needs all tags."""

import numpy as np
import pytest

from structsmooth import BCFW
from structsmooth.estimators import SequenceTagger
from structsmooth.solvers import ConvexConcave

WORDS = [["Ada", "Li", "met", "Bo"], ["she", "sang"], ["Bo", "sang"], ["they", "met", "Ada"], ["Cy", "Li", "sang"]]
TAGS = [
    ["B-PER", None, "O", "B-PER"],
    [None, "O"],
    [None, None],
    ["O", None, "B-PER"],
    ["B-PER", "I-PER", "O"],
]
COMPLETE = [["B-PER", "I-PER", "O", "B-PER"], ["O", "O"], ["B-PER", "O"], ["O", "O", "B-PER"], ["B-PER", "I-PER", "O"]]


def agrees(found, known):
    return all(own in (tag, None) for tag, own in zip(found, known, strict=True))


@pytest.mark.parametrize("constrained", [False, True])
def test_likelihood_is_marginal(constrained):
    settings = {"constraints": "BIO" if constrained else None, "train_constrained": constrained}
    tagger = SequenceTagger(loss="crf", lam="0.3/n", **settings).fit(WORDS, TAGS)
    total = 0.0
    for words, known in zip(WORDS, TAGS, strict=True):
        [ranked] = tagger.predict_top_k([words], 100)  # all taggings, or all that are well-formed
        scores = np.array([score for score, _ in ranked])
        agreeing = np.array([agrees(found, known) for _, found in ranked])
        assert len(scores) == 3 ** len(words) or constrained
        total += np.logaddexp.reduce(scores) - np.logaddexp.reduce(scores[agreeing])
    regularizer = 0.15 / len(WORDS) * float(np.square(tagger.weights_).sum())
    assert total / len(WORDS) + regularizer == pytest.approx(tagger.objective_, rel=1e-6)
    assert np.isnan(tagger.gap_)
    assert tagger.n_iter_ < tagger.max_iter
    assert tagger.predict(WORDS) == COMPLETE


@pytest.mark.parametrize("constrained", [False, True])
def test_hinge_is_that_of_the_best_taggings(constrained):
    settings = {"constraints": "BIO" if constrained else None, "train_constrained": constrained}
    tagger = SequenceTagger(lam="0.3/n", tol=1e-3, **settings).fit(WORDS, TAGS)
    total = 0.0
    for words, known in zip(WORDS, TAGS, strict=True):
        [ranked] = tagger.predict_top_k([words], 100)
        wrong = np.array([sum(own not in (tag, None) for tag, own in zip(t, known, strict=True)) for _, t in ranked])
        scores = np.array([score for score, _ in ranked])
        total += (scores + wrong).max() - scores[wrong == 0].max()
    regularizer = 0.15 / len(WORDS) * float(np.square(tagger.weights_).sum())
    assert total / len(WORDS) + regularizer == pytest.approx(tagger.objective_, rel=1e-6)
    assert tagger.history_[-1].metrics["bound_decrease"] <= 1e-3 * tagger.objective_
    assert tagger.predict(WORDS) == COMPLETE


@pytest.mark.long
def test_other_solvers_and_weights():
    for loss, solver in (("hinge", "sgd"), ("crf", "svrg"), ("softmax-margin", "auto"), ("hinge", ConvexConcave())):
        settings = {"loss": loss, "solver": solver, "lam": "0.3/n", "max_iter": 400}
        assert SequenceTagger(**settings).fit(WORDS, TAGS).predict(WORDS[3:]) == COMPLETE[3:]
    balanced = SequenceTagger(class_weight="balanced", lam="0.3/n").fit(WORDS, TAGS)
    twice = SequenceTagger(class_weight="balanced", lam=0.06).fit(WORDS, TAGS, sample_weight=[2.0] * 5)
    assert twice.objective_ == pytest.approx(balanced.objective_, rel=0.05)
    integers = [[None if tag is None else int(tag != "O") for tag in own] for own in TAGS]
    assert SequenceTagger(lam="0.3/n").fit(WORDS, integers).classes_.tolist() == [0, 1]


def test_what_needs_all_tags():
    tagger = SequenceTagger(lam="0.3/n").fit(WORDS, TAGS)
    only_fit = "sentence 0 has unknown tags: only fit takes None"
    for call in (tagger.score, tagger.certify):
        with pytest.raises(ValueError, match=only_fit):
            call(WORDS, TAGS)
    with pytest.raises(ValueError, match=only_fit):
        SequenceTagger().fit(WORDS, COMPLETE, WORDS, TAGS)
    with pytest.raises(ValueError, match="y must have a tag that is known"):
        SequenceTagger().fit(WORDS, [[None] * len(own) for own in WORDS])
    with pytest.raises(
        ValueError, match='unknown tags need the loss "hinge", "crf" or "softmax-margin", got \'slack\''
    ):
        SequenceTagger(loss="slack").fit(WORDS, TAGS)
    with pytest.raises(
        TypeError, match="BCFW needs complete labels, since partial ones have no dual: take ConvexConcave"
    ):
        SequenceTagger(solver=BCFW()).fit(WORDS, TAGS)
    with pytest.raises(ValueError, match="example 0"):
        SequenceTagger(train_constrained=True).fit(WORDS, [["O", "I-PER", None, None], *TAGS[1:]])
