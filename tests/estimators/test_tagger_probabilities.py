"""Probabilities of taggings, temperatures, and weights of tokens."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from structsmooth import load
from structsmooth.estimators import SequenceTagger

X = [["Ada", "Love", "left"], ["Bo", "sings"], ["they", "sing"], ["Love", "sings"]] * 3
Y = [["B-PER", "I-PER", "O"], ["B-PER", "O"], ["O", "O"], ["O", "O"]] * 3
NEW = ["Bo", "Love", "sings"]


def outputs(tagger, sentence):
    """All taggings with their probabilities, by exhaustive search."""
    ranked = tagger.predict_top_k([sentence], 10_000)[0]
    scores = np.array([score for score, _ in ranked]) / (tagger.temperature_ or 1.0)
    return {tuple(tags): p for p, (_, tags) in zip(np.exp(scores - np.logaddexp.reduce(scores)), ranked, strict=True)}


@pytest.fixture(scope="module")
def crf():
    return SequenceTagger(loss="crf", lam="1/n").fit(X, Y)


@pytest.fixture
def hinge():
    return SequenceTagger(lam="1/n").fit(X, Y)


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_log_probs_of_taggings_and_of_the_best(crf, temperature):
    tagger = SequenceTagger(loss="crf", lam="1/n").fit(X, Y) if temperature != 1 else crf
    tagger.temperature_ = temperature
    every = outputs(tagger, NEW)
    for tags in product(tagger.classes_.tolist(), repeat=3):
        (found,) = tagger.log_prob([NEW], [list(tags)])
        assert np.exp(found) == pytest.approx(every.get(tags, 0.0), abs=1e-10)
    for value, tags in tagger.predict_top_k([NEW], 3, log_prob=True)[0]:
        assert np.exp(value) == pytest.approx(every[tuple(tags)], abs=1e-10)
    (span, *_), empty = tagger.predict_spans([NEW, []])
    alike = [p for tags, p in every.items() if tags[0] == "B-PER" and (tags[1] == "I-PER") == (span.end > 1)]
    assert span.probability == pytest.approx(sum(alike), abs=1e-10)
    assert empty == []
    assert tagger.log_prob([[], NEW], [[], ["O", "O", "O"]])[0] == 0
    with pytest.raises(ValueError, match="tag 'B-LOC' is not among those of training"):
        tagger.log_prob([NEW], [["B-LOC", "O", "O"]])


def test_no_probability_is_above_one():
    tagger = SequenceTagger(loss="crf", lam="1/n").fit(X, Y)
    tagger.temperature_ = 1e-3  # where the best tagging is sure, and rounding shows
    long = [["Ada", "Love", "sings", "they", "Love", "left", "Bo"] * count for count in range(1, 30)]
    values = [ranked[0][0] for ranked in tagger.predict_top_k(long, 1, log_prob=True)]
    assert max(values) <= 0
    assert min(values) > -1e-6


def test_a_hinge_says_that_it_has_no_probabilities_until_it_is_calibrated(hinge, tmp_path):
    for ask in (hinge.predict_marginals, hinge.predict_spans, lambda X: hinge.log_prob(X, [["O", "O", "O"]])):
        with pytest.warns(UserWarning, match="a hinge has trained these scores"):
            ask([NEW])
    assert hinge.temperature_ is None
    held_out = [["Ada", "sings"], ["Love", "left"], ["they", "left"]]
    right = [["B-PER", "O"], ["O", "O"], ["B-PER", "O"]]
    assert hinge.calibrate(held_out, right) is hinge
    best = hinge.log_prob(held_out, right).sum()
    fitted = hinge.temperature_
    for factor in (0.9, 1.1):
        hinge.temperature_ = factor * fitted
        assert hinge.log_prob(held_out, right).sum() < best
    hinge.temperature_ = fitted
    hinge.save(tmp_path)
    restored, model = SequenceTagger.load(tmp_path), load(tmp_path)
    assert restored.temperature_ == model.task.temperature == fitted
    assert restored.predict_spans(X) == hinge.predict_spans(X)
    assert hinge.fit(X, Y).temperature_ is None


def test_temperatures_of_dictionaries_are_kept(tmp_path):
    tokens = [[{"w": word} for word in sentence] for sentence in X]
    SequenceTagger(loss="crf", lam="1/n").fit(tokens, Y).save(tmp_path)
    assert SequenceTagger.load(tmp_path).temperature_ == 1.0
    SequenceTagger(lam="1/n").fit(tokens, Y).calibrate(tokens[:4], [*Y[:3], ["B-PER", "O"]]).save(tmp_path / "own")
    assert SequenceTagger.load(tmp_path / "own").temperature_ > 0


@pytest.mark.parametrize("loss", ["hinge", "softmax-margin"])
def test_weights_of_tokens_are_costs(loss):
    tagger = SequenceTagger(loss=loss, lam="1/n", class_weight={"O": 2.0}, tol=1e-6)
    doubled = tagger.fit(X, Y, token_weight=[[3.0] * len(sentence) for sentence in X]).objective_
    expected = SequenceTagger(
        loss=loss, lam="1/n", class_weight=dict.fromkeys(["B-PER", "I-PER"], 3.0) | {"O": 6.0}, tol=1e-6
    )
    assert doubled == pytest.approx(expected.fit(X, Y).objective_, rel=1e-4)


def test_weights_of_tokens_that_do_not_go_together():
    weights = [[1.0] * len(sentence) for sentence in X]
    for loss in ("crf", "slack"):
        with pytest.raises(ValueError, match="token_weight needs the loss"):
            SequenceTagger(loss=loss).fit(X, Y, token_weight=weights)
    with pytest.raises(ValueError, match="a number for each of its tokens"):
        SequenceTagger().fit(X, Y, token_weight=weights[:-1])
    with pytest.raises(ValueError, match="numbers of 0 or more"):
        SequenceTagger().fit(X, Y, token_weight=[[-1.0] * len(sentence) for sentence in X])


def test_frames_with_text_are_sentences_of_dictionaries():
    frames = [pd.DataFrame({"word": words, "long": [len(word) > 4 for word in words]}) for words in X]
    tokens = [[{"word": word, "long": len(word) > 4} for word in words] for words in X]
    tagger, expected = (SequenceTagger(lam="1/n").fit(given, Y) for given in (frames, tokens))
    assert tagger.features_.names == expected.features_.names
    assert tagger.predict(frames) == expected.predict(tokens)
    with pytest.raises(ValueError, match="give a frame of tokens for each sentence"):
        tagger.predict(pd.concat(frames))


@pytest.mark.parametrize("by", ["entropy", "margin", "length-normalized"])
def test_uncertainties_are_those_of_all_taggings(crf, by):
    sentences = [NEW, [], ["Ada"]]
    expected = []
    for sentence in sentences:
        p = np.sort([*outputs(crf, sentence).values()])[::-1] if sentence else np.ones(1)
        entropy = -(p * np.log(p)).sum()
        margin = np.log(p[1] / p[0]) if len(p) > 1 else -np.inf
        expected.append({"entropy": entropy, "margin": margin}.get(by, entropy / max(len(sentence), 1)))
    np.testing.assert_allclose(crf.uncertainty(sentences, by), expected, atol=1e-10)
