"""Training on streams of sentences: a batch after the other, as if all had been one run."""

from io import BytesIO
from typing import Any

import joblib
import numpy as np
import pytest

from structsmooth import SGD
from structsmooth.estimators import SequenceTagger
from structsmooth.solvers import Adam

GENERATOR = np.random.default_rng(0)
X = [GENERATOR.normal(size=(4, 3)) for _ in range(24)]
Y = [["B-X" if token[0] + 0.3 * token[1] > 0 else "O" for token in sentence] for sentence in X]
CLASSES = ["O", "I-X", "B-X"]


@pytest.mark.parametrize("solver", [SGD(gap_tolerance=0.0), Adam(gap_tolerance=0.0)], ids=["sgd", "adam"])
@pytest.mark.parametrize("loss", ["hinge", "crf"])
def test_batches_of_all_sentences_are_the_passes_of_a_run(solver: Any, loss: Any) -> None:
    tags = [[*own[:-1], "I-X"] for own in Y]  # every tag occurs, as in CLASSES
    whole = SequenceTagger(loss=loss, solver=solver, lam=0.1, max_iter=3, constraints=None).fit(X, tags)
    stream = SequenceTagger(loss=loss, solver=solver, lam=0.1, constraints=None)
    for _ in range(3):
        stream.partial_fit(X, tags, classes=CLASSES)
    np.testing.assert_allclose(stream.weights_, whole.weights_, rtol=0, atol=1e-10)
    assert stream.objective_ == pytest.approx(whole.objective_)
    assert [row.passes for row in stream.history_] == [1, 2, 3]
    assert np.isnan(stream.gap_)


def test_a_stream_of_batches_approaches_the_optimum() -> None:
    best = SequenceTagger(lam=0.05, tol=1e-4).fit(X, Y)
    tagger = SequenceTagger(lam=0.05)
    for _ in range(40):
        for first in range(0, 24, 6):
            tagger.partial_fit(X[first : first + 6], Y[first : first + 6], classes=["O", "B-X"])
    assert tagger.n_iter_ == 160
    assert best.certify(X, Y).dual <= _objective(tagger) < 1.1 * best.objective_
    assert tagger.score(X, Y) > 0.9


def _objective(tagger: SequenceTagger) -> float:
    """The objective of all sentences at the weights of a stream."""
    return tagger.certify(X, Y).objective


def test_tags_follow_the_scheme_of_the_classes() -> None:
    tagger = SequenceTagger(lam=0.1).partial_fit(X, Y, classes=np.array(CLASSES))
    assert tagger.scheme_ == "BIO"
    assert tagger.classes_.tolist() == sorted(CLASSES)


def test_streams_continue_from_pickles_and_end_with_fit() -> None:
    tagger = SequenceTagger(lam=0.1, constraints=None).partial_fit(X, Y, classes=CLASSES)
    file = BytesIO()
    joblib.dump(tagger, file)
    file.seek(0)
    again = joblib.load(file).partial_fit(X, Y)
    np.testing.assert_array_equal(again.weights_, tagger.partial_fit(X, Y).weights_)
    tagger.fit(X, Y)  # ends the stream: the next call begins one from its weights
    assert tagger.partial_fit(X, Y).n_iter_ == 1
    with pytest.raises(ValueError, match="classes must be given in the first call"):
        SequenceTagger(lam=0.1).partial_fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "sentences", "message"),
    [
        ({"lam": "10/n"}, X, "lam as a number"),
        ({"solver": "bcfw"}, X, "the solver sgd or adam"),
        ({"kernel": "rbf"}, X, "no kernel"),
        ({"class_weight": "balanced"}, X, "counts of all tags"),
        ({}, [["Ada", "and", "Bo", "sang"]] * 24, r"matrices \[tokens, features\]"),
        ({}, [np.ones((4, 5)), *X[1:]], "must be a matrix"),
    ],
)
def test_what_streams_cannot_do_is_named(settings: dict[str, Any], sentences: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SequenceTagger(**{"lam": 0.1, **settings}).partial_fit(sentences, Y, classes=CLASSES)


def test_later_batches_must_have_the_tags_and_features_of_the_first() -> None:
    tagger = SequenceTagger(lam=0.1).partial_fit(X, Y, classes=["O", "B-X"])
    with pytest.raises(ValueError, match="tag 'I-X' is not among those of training"):
        tagger.partial_fit(X[:1], [["B-X", "I-X", "O", "O"]])
    with pytest.raises(ValueError, match="must be a matrix"):
        tagger.partial_fit([np.ones((2, 4))], [["O", "O"]])


def test_a_stream_goes_on_from_fitted_weights():
    tagger = SequenceTagger(lam=0.001, max_iter=50).fit(X, Y)
    fitted, tags = tagger.predict(X), list(tagger.classes_)
    tagger.partial_fit(X[:1], Y[:1])
    assert list(tagger.classes_) == tags
    assert sum(a == b for a, b in zip(fitted, tagger.predict(X), strict=True)) >= 0.75 * len(X)
    with pytest.raises(ValueError, match="X-NEW"):
        tagger.partial_fit(X[:1], [["X-NEW"] * len(Y[0])])
    steps = tagger.partial_fit(X[:8], Y[:8]).partial_fit(X[:1], Y[:1]).history_.column("step_size")
    assert steps[0] == steps[2] < steps[1] / 5  # each batch counts by its share: 1 in 25, and 8 in 32
    with pytest.raises(ValueError, match=r"classes has tags that this stream does not know: \['I-X'\]"):
        tagger.partial_fit(X, Y, classes=CLASSES)
