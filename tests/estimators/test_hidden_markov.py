"""Hidden Markov models with the words of hmmlearn: what they answer, and parameters set by hand."""

import pickle
import warnings
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from structsmooth import HiddenMarkov
from structsmooth.estimators import GMMHMM, CategoricalHMM, GaussianHMM, PoissonHMM

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


def counts() -> PoissonHMM:
    model = PoissonHMM(2, random_state=0)
    model.startprob_, model.transmat_ = weather().startprob_, weather().transmat_
    model.lambdas_ = np.array([[1.0, 5.0], [6.0, 2.0]])
    return model


def mixtures(covariance: str = "diag") -> GMMHMM:
    model = GMMHMM(2, 2, covariance_type=covariance, random_state=0)  # type: ignore[arg-type]
    model.startprob_, model.transmat_ = weather().startprob_, weather().transmat_
    model.weights_ = np.array([[0.5, 0.5], [0.8, 0.2]])
    model.means_ = np.array([[[0.0, 0.0], [8.0, 0.0]], [[4.0, 4.0], [12.0, 4.0]]])
    matrices = np.array([[np.eye(2), 0.5 * np.eye(2)], [[[1.0, 0.5], [0.5, 1.0]], np.eye(2)]])
    model.covars_ = matrices if covariance == "full" else matrices.diagonal(axis1=2, axis2=3)
    return model


Model = CategoricalHMM | GaussianHMM | PoissonHMM | GMMHMM
ALL: dict[str, Callable[[], Model]] = {
    "categorical": weather,
    "diag": lambda: points("diag"),
    "full": lambda: points("full"),
    "counts": counts,
    "mixtures": mixtures,
    "full mixtures": lambda: mixtures("full"),
}


@pytest.mark.parametrize("name", ALL)
def test_parameters_are_found_again(name: str) -> None:
    truth = ALL[name]()
    X, states = truth.sample(5000)
    lengths = [2000, 3000]
    # Which state is which, and the first parameters, are those of the truth; the others are uniform.
    model = clone(truth).set_params(init_params="st", n_iter=200)
    emissions = list(truth._attributes.values())[2:]
    for attribute in emissions:
        setattr(model, attribute, getattr(truth, attribute))
    model.fit(X, lengths)
    assert all(after >= before - 1e-9 for before, after in pairwise(model.history_))
    assert model.score(X, lengths) >= truth.score(X, lengths)
    np.testing.assert_allclose(model.transmat_, truth.transmat_, atol=0.05)
    for attribute in emissions:
        np.testing.assert_allclose(getattr(model, attribute), getattr(truth, attribute), atol=0.2)
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


def test_samples_of_counts_and_symbols_are_integers_of_their_distributions() -> None:
    X, states = counts().sample(20_000)
    assert X.dtype == weather().sample(5)[0].dtype == np.int64
    for state, rates in enumerate(counts().lambdas_):  # means whose standard error is at most 0.025
        np.testing.assert_allclose(X[states == state].mean(0), rates, atol=0.15)


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
        (lambda: weather().sample(3, currstate=2), "currstate must be a state from 0 to 1, got 2"),
        (lambda: weather().set_params(implementation="fast").fit(X), 'implementation must be "log" or "scaling"'),
        (lambda: weather().filter_proba(X, after=[0.5, 0.6]), "after must be probabilities"),
        (lambda: weather().filter_proba(X, [4, 6], after=[0.5, 0.5]), "after must be for one sequence, got 2 len"),
        (lambda: PoissonHMM().fit(X - 3), "X must hold counts: integers >= 0, or NaN .* got -"),
        (lambda: PoissonHMM().fit(X + 0.5), "X must hold counts"),
        (lambda: GaussianHMM(min_covar=-1.0).fit(X), "min_covar must be >= 0, got -1"),
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
    model.transmat_ = np.eye(2)
    with pytest.raises(ValueError, match="transmat_ must have one stationary distribution"):
        model.get_stationary_distribution()
    with pytest.raises(ValueError, match="covars_ must be diagonal"):
        points("diag").covars_ = points("full").covars_
    model = points("full")
    model.covars_ = np.triu(model.covars_ + 0.1)
    with pytest.raises(ValueError, match="covariances must be positive, and symmetric"):
        model.sample()


@pytest.mark.parametrize("name", ALL)
def test_parameters_may_be_lists(name: str) -> None:
    model = ALL[name]()
    expected, states = model.sample(5, random_state=0)
    for attribute in model._attributes.values():
        setattr(model, attribute, getattr(model, attribute).tolist())
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


@pytest.mark.parametrize("name", ALL)
def test_what_fit_keeps_and_what_it_sets_first(name: str) -> None:
    """Whatever the letters: parameters that ``params`` does not name stay, and what is not set is set first."""
    X, _ = ALL[name]().sample(60)
    for letter, attribute in ALL[name]()._attributes.items():
        model = ALL[name]().set_params(init_params="", params=letter, n_iter=3)
        before = {other: getattr(model, other).copy() for other in model._attributes.values()}
        delattr(model, attribute)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X)
        for other, value in before.items():
            assert np.array_equal(getattr(model, other), value) == (other != attribute), (letter, other)
        assert (model.monitor_.history, model.monitor_.iter) == (model.history_, model.n_iter_)
        assert all(after >= before - 1e-9 for before, after in pairwise(model.history_))


@pytest.mark.parametrize("name", ALL)
def test_one_more_observation_at_a_time(name: str) -> None:
    model, lengths = ALL[name](), [8, 4]
    X, _ = model.sample(12, random_state=1)
    together, state, value = model.filter_proba(X, lengths), None, 0.0
    for t in range(12):
        begin = 0 if t < 8 else 8
        before = None if t == begin else state
        if name == "categorical" and before is not None:  # the likelihood is a product of those of next symbols
            value += np.log(model.predict_next(X[begin:t])[-1, X[t, 0]])
        state = model.filter_proba(X[t : t + 1], after=before)[0]
        np.testing.assert_allclose(state, together[t], atol=1e-12)
        np.testing.assert_allclose(state, model.predict_proba(X[begin : t + 1])[-1], atol=1e-12)
    if name == "categorical":
        assert value == pytest.approx(model.score(X, lengths) - model.score(X[[0, 8]], [1, 1]))
    expected = {
        "categorical": lambda: model.emissionprob_,
        "counts": lambda: model.lambdas_,
        "mixtures": lambda: (model.weights_[..., None] * model.means_).sum(1),
        "full mixtures": lambda: (model.weights_[..., None] * model.means_).sum(1),
    }.get(name, lambda: model.means_)()
    np.testing.assert_allclose(model.predict_next(X, lengths), together @ model.transmat_ @ expected)


def test_samples_begin_where_they_are_told() -> None:
    for state in (0, 1):
        X, states = mixtures().sample(7, random_state=1, currstate=state)
        assert (X.shape, len(states), states[0]) == ((7, 2), 7, state)


def test_criteria_count_free_parameters() -> None:
    for name, free in (("categorical", 4), ("diag", 8), ("full", 10), ("counts", 4), ("mixtures", 18)):
        model = ALL[name]()
        X, _ = model.sample(50)
        value = model.score(X)
        assert model.aic(X) == pytest.approx(2 * (3 + free) - 2 * value)
        assert model.bic(X) == pytest.approx((3 + free) * np.log(50) - 2 * value)
    np.testing.assert_allclose(weather().get_stationary_distribution(), [2 / 3, 1 / 3])


def test_covariances_are_read_as_matrices_and_set_in_both_forms() -> None:
    model, X = points("diag"), points("diag").sample(20)[0]
    value = model.score(X)
    assert model.covars_.shape == (2, 2, 2)
    model.covars_ = model.covars_
    assert model.score(X) == value
    model.covars_ = 2 * model.covars_.diagonal(axis1=1, axis2=2)
    assert model.score(X) != value
    assert mixtures().covars_.shape == (2, 2, 2)


def test_impossible_sequences_are_refused_by_their_numbers() -> None:
    model = weather()
    model.emissionprob_ = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    X, lengths = np.array([0, 1, 0, 1, 2, 0, 0])[:, None], [2, 4, 1]
    for ask in (
        model.predict,
        model.predict_proba,
        model.score_samples,
        model.filter_proba,
        model.predict_next,
        lambda *data: model.decode(*data, algorithm="map"),
    ):
        with pytest.raises(ValueError, match="gives sequence 1 probability 0: no state can have its row 2 after"):
            ask(X, lengths)
    with pytest.warns(RuntimeWarning, match="sequence 1 probability 0"):
        assert model.score(X, lengths) == -np.inf
    with pytest.raises(ValueError, match="example 1 of the problem must have an output"):
        model.set_params(init_params="").fit(X, lengths)


def test_units_do_not_matter_and_the_least_variance_warns_where_it_binds() -> None:
    X, states = points("diag").sample(300, random_state=3)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for unit in (2.0**-20, 1.0, 2.0**20):
            model = GaussianHMM(2, random_state=0).fit(unit * X)
            found.append((model.covars_ / unit**2, model.predict(unit * X)))
    for covariances, path in found:
        np.testing.assert_allclose(covariances, found[1][0], rtol=1e-6)
        assert (path == found[1][1]).all()
    for covariance in ("diag", "full"):
        Y = np.where(states[:, None] == 1, 7.0, X)  # a state that is a point
        with pytest.warns(UserWarning, match=r"min_covar = 1e-06 times .* variances of states \[\d\] up"):
            model = GaussianHMM(2, covariance, random_state=0).fit(Y)  # type: ignore[arg-type]
        assert max((model.predict(Y) == states).mean(), (model.predict(Y) != states).mean()) == 1


def test_steps_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    X, _ = counts().sample(30)
    model = PoissonHMM(2, random_state=0, verbose=True).fit(X)
    assert len(capsys.readouterr().err.splitlines()) == model.monitor_.iter
