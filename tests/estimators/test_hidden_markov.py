"""Hidden Markov models with the words of hmmlearn: what they answer, and parameters set by hand."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from structsmooth import HiddenMarkov
from structsmooth.estimators import CategoricalHMM, GaussianHMM

LENGTHS = [300, 200]


def weather() -> CategoricalHMM:
    model = CategoricalHMM(n_components=2, n_features=3, random_state=0)
    model.startprob_ = np.array([0.6, 0.4])
    model.transmat_ = np.array([[0.9, 0.1], [0.2, 0.8]])
    model.emissionprob_ = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    return model


def points(covariance: str) -> GaussianHMM:
    model = GaussianHMM(n_components=2, covariance_type=covariance, random_state=0)  # type: ignore[arg-type]
    model.startprob_, model.transmat_ = weather().startprob_, weather().transmat_
    model.means_ = np.array([[0.0, 0.0], [4.0, 1.0]])
    matrices = np.array([[[1.0, 0.5], [0.5, 2.0]], [[0.5, 0.0], [0.0, 1.0]]])
    model.covars_ = matrices if covariance == "full" else matrices.diagonal(axis1=1, axis2=2)
    return model


@pytest.mark.parametrize("truth", [weather(), points("diag"), points("full")], ids=["categorical", "diag", "full"])
def test_parameters_are_found_again(truth: CategoricalHMM | GaussianHMM) -> None:
    X, states = truth.sample(5000)
    lengths = [2000, 3000]
    # Which state is which, and the first parameters, are those of the truth; the others are uniform.
    model = clone(truth).set_params(init_params="st", n_iter=200)
    for name in ("means_", "covars_", "emissionprob_"):
        if hasattr(truth, name):
            setattr(model, name, getattr(truth, name))
    model.fit(X, lengths)
    assert all(after >= before - 1e-9 for before, after in pairwise(model.history_))
    assert model.score(X, lengths) >= truth.score(X, lengths)
    np.testing.assert_allclose(model.transmat_, truth.transmat_, atol=0.05)
    for name in ("means_", "covars_", "emissionprob_"):
        if hasattr(truth, name):
            np.testing.assert_allclose(getattr(model, name), getattr(truth, name), atol=0.2)
    assert (model.predict(X, lengths) == states).mean() > 0.85


def test_answers_are_those_of_the_structure() -> None:
    model = weather()
    X, _ = model.sample(500)
    X[7] = -1
    logs = (torch.from_numpy(p).log() for p in (model.startprob_, model.transmat_, model.emissionprob_))
    padded = torch.zeros(2, 300, dtype=torch.int64)
    padded[0], padded[1, :200] = torch.from_numpy(X[:300, 0]), torch.from_numpy(X[300:, 0])
    structure = HiddenMarkov(*logs, padded, torch.tensor(LENGTHS))
    values, y = structure.max()
    value, states = model.decode(X, LENGTHS)
    assert value == pytest.approx(float(values.sum()))
    assert states.tolist() == [*y[0].tolist(), *y[1, :200].tolist()] == model.predict(X, LENGTHS).tolist()
    likelihood, posterior = model.score_samples(X, LENGTHS)
    assert likelihood == pytest.approx(float(structure.logsumexp().sum())) == model.score(X, LENGTHS)
    np.testing.assert_allclose(posterior[:300], structure.marginals()[0][0])
    np.testing.assert_allclose(posterior, model.predict_proba(X, LENGTHS))
    value, states = model.decode(X, LENGTHS, algorithm="map")
    assert states.tolist() == posterior.argmax(1).tolist()
    assert value == pytest.approx(posterior.max(1).sum())


def test_training_by_best_paths_and_from_scratch() -> None:
    X, states = points("diag").sample(2000)
    for training in ("em", "viterbi"):
        model = GaussianHMM(n_components=2, training=training, random_state=1).fit(X)  # type: ignore[arg-type]
        found = model.predict(X)
        assert max((found == states).mean(), (found != states).mean()) > 0.95
    model = CategoricalHMM(n_components=2, random_state=1, tol=1e-3, n_iter=500).fit(weather().sample(2000)[0])
    assert model.score(weather().sample(2000)[0]) >= weather().score(weather().sample(2000)[0])


def test_conventions_of_scikit_learn() -> None:
    model = GaussianHMM(n_components=2, random_state=0, n_iter=1)
    assert clone(model).get_params() == model.get_params()
    X, _ = points("diag").sample(50)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.warns(ConvergenceWarning, match="1 steps do not suffice"):
        model.fit(X)
    assert pickle.loads(pickle.dumps(model)).score(X) == model.score(X)


def test_wrong_arguments_are_named() -> None:
    X, _ = weather().sample(10)
    for bad, message in (
        (lambda: weather().score(X, [4, 5]), "lengths must be integers >= 1 that sum to the 10 rows of X"),
        (lambda: weather().score(X + 2), "X must hold symbols from 0 to 2"),
        (lambda: weather().score(X / 2), "X must be a column of symbols"),
        (lambda: weather().decode(X, algorithm="beam"), 'algorithm must be "viterbi" or "map", got \'beam\''),
        (lambda: weather().set_params(training="sgd").fit(X), 'training must be "em" or "viterbi", got \'sgd\''),
        (lambda: CategoricalHMM(n_components=11).fit(X), "X must have an observation for each of 11 states, got 10"),
        (
            lambda: CategoricalHMM(n_features=10**15).fit(X),
            "n_features must fit in memory: 10{15} symbols take 7,450,581 GiB",
        ),
        (lambda: CategoricalHMM().fit(X + 2**60), "the largest symbol must fit in memory"),
        (lambda: CategoricalHMM(n_components=2).fit(X * 0 - 1), "X must have an observation for each of 2 .* got 0"),
        (lambda: points("diag").fit(np.full((5, 2), np.nan)), "X must have an observation for each of 2 .* got 0"),
        (
            lambda: CategoricalHMM(init_params="").fit(X),
            r"init_params = '' .* no startprob_ \('s'\), transmat_ \('t'\), emissionprob_ \('e'\): set these",
        ),
        (
            lambda: GaussianHMM(init_params="tmc").fit(X),
            r"there is no startprob_ \('s'\): set these attributes, or add",
        ),
        (lambda: GaussianHMM(init_params="st").fit(X), r"there is no means_ \('m'\), covars_ \('c'\): set"),
        (lambda: points("diag").score(np.zeros((3, 1))), "X must have 2 columns, as means_ has, got 1"),
        (lambda: points("full").set_params(covariance_type="diag").score(np.zeros((3, 2))), "covars_ must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            bad()
    model = weather()
    model.transmat_ = np.ones((2, 2))
    for answer in (model.score, lambda _: model.sample()):
        with pytest.raises(ValueError, match="transmat_ must be probabilities"):
            answer(X)
    model = points("full")
    model.covars_ = np.triu(model.covars_ + 0.1)
    with pytest.raises(ValueError, match="covariances must be positive, and symmetric"):
        model.sample()


@pytest.mark.parametrize("model", [weather(), points("diag"), points("full")], ids=["weather", "diag", "full"])
def test_parameters_may_be_lists(model: CategoricalHMM | GaussianHMM) -> None:
    expected, states = model.sample(5, random_state=0)
    for name in model._attributes.values():
        setattr(model, name, getattr(model, name).tolist())
    found, found_states = model.sample(5, random_state=0)
    np.testing.assert_array_equal(found_states, states)
    np.testing.assert_allclose(found, expected)
    model.score(found)


def test_fit_begins_with_attributes_and_what_is_missing_says_nothing() -> None:
    X, _ = weather().sample(30)
    nothing, fitted = np.full((4, 1), -1), []
    for data, lengths in ((X, [30]), (np.concatenate([X, nothing]), [30, 4])):
        model = weather().set_params(init_params="", n_iter=1)
        with pytest.warns(ConvergenceWarning):
            fitted.append(model.fit(data, lengths))
        assert model.history_ == [pytest.approx(weather().score(X))]
    np.testing.assert_allclose(*(model.emissionprob_ for model in fitted))
    assert fitted[1].score(nothing) == pytest.approx(0.0, abs=1e-12)
