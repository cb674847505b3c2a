"""The multi-label classifier: the problem of the task, pairs of labels, kinds of input, scikit-learn's tools."""

import itertools
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import get_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV

from structsmooth import SoftBCFW
from structsmooth.estimators import MultiLabelClassifier
from structsmooth.tasks import Multilabel
from structsmooth.tasks.multilabel.data import Example
from structsmooth.tasks.trained import train

QUICK = {"lam": "1/n", "tol": 0.3}


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(30, 4))
    Y = np.column_stack([X[:, 0] > 0, X[:, 0] + X[:, 1] > 0, X[:, 2] > 0.5]).astype(int)
    return X, Y


def test_it_is_the_task(data):
    X, Y = data
    names = "abc"
    examples = [
        Example(np.arange(4), x, frozenset(names[j] for j in y.nonzero()[0])) for x, y in zip(X, Y, strict=True)
    ]
    model = train(Multilabel(), examples, solver=SoftBCFW(gap_tolerance=0.3), lam="1/n", passes=200)
    classifier = MultiLabelClassifier(**QUICK).fit(X, Y)
    assert np.array_equal(classifier.weights_, model.weights.numpy())
    expected = [[int(name in own) for name in names] for own in model.predict(examples)]
    assert classifier.predict(X).tolist() == expected
    assert classifier.certify(X, Y).suboptimality_lower_bound <= classifier.gap_


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ("full", [[0, 1], [0, 2], [1, 2]]),
        ("none", []),
        ([(2, 0)], [[0, 2]]),
        (np.array([[0, 1], [1, 0]]), [[0, 1]]),
    ],
    ids=["full", "none", "pair", "twice"],
)
def test_edges_are_pairs_of_columns(data, edges, expected):
    X, Y = data
    classifier = MultiLabelClassifier(edges=edges, scaling="none", **QUICK).fit(X, Y)
    assert classifier.edges_.tolist() == expected
    assert classifier.edge_weights_.shape == (len(expected),)
    for x, ranked in zip(X[:3], classifier.predict_top_k(X[:3], 8), strict=True):
        scores = [score for score, _ in ranked]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(y) for _, y in ranked}) == 8
        for score, y in ranked:
            pairs = y[classifier.edges_].prod(1) @ classifier.edge_weights_ if len(expected) else 0.0
            assert score == pytest.approx(y @ (classifier.coef_ @ x + classifier.intercept_) + pairs)


def test_standard_features_have_mean_zero_and_deviation_one(data):
    X, Y = data
    X = X * np.arange(1, X.shape[1] + 1) + 3.0
    standard = MultiLabelClassifier(scaling="standard", **QUICK).fit(X, Y)
    plain = MultiLabelClassifier(scaling="none", **QUICK).fit((X - X.mean(0)) / X.std(0), Y)
    np.testing.assert_allclose(standard.weights_, plain.weights_, atol=1e-9)


def test_the_default_lam_is_a_tenth_of_an_example(data):
    assert MultiLabelClassifier(tol=0.3).fit(*data).lam_ == pytest.approx(0.1 / 30)


def test_a_tree_joins_all_labels(data):
    classifier = MultiLabelClassifier(edges="tree", **QUICK).fit(*data)
    assert len(classifier.edges_) == 2
    assert [0, 1] in classifier.edges_.tolist()  # these depend on each other


def test_labels_that_no_example_has_stay_absent(data):
    X, Y = data
    wide = np.insert(Y, 1, 0, axis=1)
    classifier = MultiLabelClassifier(edges=[(0, 1), (0, 3)], **QUICK).fit(X, wide)
    assert classifier.edges_.tolist() == [[0, 3]]
    assert not classifier.predict(X)[:, 1].any()
    assert not classifier.coef_[1].any()
    assert classifier.classes_.tolist() == [0, 1, 2, 3]


def test_arrays_sparse_matrices_and_data_frames_are_the_same(data):
    X, Y = data
    expected = MultiLabelClassifier(**QUICK).fit(X, Y)
    frames = pd.DataFrame(X, columns=list("uvwx")), pd.DataFrame(Y, columns=["rain", "clouds", "wind"])
    for rows, labels in (frames, (sparse.csr_matrix(X), sparse.csr_matrix(Y)), (sparse.csc_array(X), Y)):
        classifier = MultiLabelClassifier(**QUICK).fit(rows, labels)
        assert np.array_equal(classifier.predict(rows), expected.predict(X))
    framed = MultiLabelClassifier(**QUICK).fit(*frames)
    assert framed.label_names_ == ["rain", "clouds", "wind"]
    assert framed.feature_names_in_.tolist() == list("uvwx")
    assert expected.label_names_ == ["0", "1", "2"]


def test_sparse_rows_may_be_in_any_order(data):
    X, Y = data
    rows = sparse.csr_matrix(X)
    unsorted = sparse.csr_matrix(
        (X[:, ::-1].ravel(), np.tile(np.arange(4)[::-1], 30), 4 * np.arange(31)), shape=X.shape
    )
    assert (unsorted != rows).nnz == 0
    assert np.array_equal(
        MultiLabelClassifier(**QUICK).fit(unsorted, Y).weights_, MultiLabelClassifier(**QUICK).fit(rows, Y).weights_
    )


def test_columns_may_have_any_two_values(data):
    X, Y = data
    words = np.where(Y == 1, "yes", "no")
    classifier = MultiLabelClassifier(**QUICK).fit(X, words)
    assert [values.tolist() for values in classifier.classes_] == [["no", "yes"]] * 3
    expected = MultiLabelClassifier(**QUICK).fit(X, Y).predict(X)
    assert np.array_equal(classifier.predict(X), np.where(expected == 1, "yes", "no"))


def test_one_label_is_a_column_or_a_vector(data):
    X, Y = data
    column, vector = (MultiLabelClassifier(**QUICK).fit(X, y).predict(X) for y in (Y[:, :1], Y[:, 0]))
    assert column.shape == (30, 1)
    assert np.array_equal(column[:, 0], vector)


def test_many_labels_keep_their_columns():
    Y = np.eye(12, dtype=int)
    classifier = MultiLabelClassifier(edges="none", lam="0.01/n", tol=0.1).fit(10 * Y, Y)
    assert np.array_equal(classifier.predict(10 * Y), Y)


def test_grid_searches_and_pickles(data, tmp_path):
    X, Y = data
    grid = {"edges": ["none", "full"], "lam": ["0.1/n", 100.0]}
    search = GridSearchCV(MultiLabelClassifier(tol=0.3), grid, scoring="f1_micro", cv=2).fit(X, Y)
    assert search.best_params_["lam"] == "0.1/n"
    joblib.dump(search.best_estimator_, tmp_path / "classifier.joblib")
    assert np.array_equal(joblib.load(tmp_path / "classifier.joblib").predict(X), search.predict(X))


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"edges": [(0, 3)]}, None, "edges must be pairs of different columns from 0 to 2"),
        ({"edges": [(1, 1)]}, None, "edges must be pairs of different columns"),
        ({"edges": [(0, 1, 2)]}, None, "edges must be pairs of different columns"),
        ({"edges": "some"}, None, "edges must be auto, none, tree, full or a list of pairs, got 'some'"),
        ({"scaling": "some"}, None, "scaling must be one of unit, standard, none, got 'some'"),
        ({}, np.zeros((30, 2)), "no example has a label"),
        ({}, np.full((30, 2), 3), "2 classes such as 0 and 1"),
        ({}, np.arange(60).reshape(30, 2) % 3, "Only binary classification is supported for a label"),
        ({}, np.zeros((29, 2)), "inconsistent numbers of samples"),
    ],
)
def test_bad_input_is_named(data, settings, y, message):
    X, Y = data
    with pytest.raises(ValueError, match=message):
        MultiLabelClassifier(**settings).fit(X, Y if y is None else y)


def test_certificates_need_the_values_of_training(data):
    X, Y = data
    with pytest.raises(ValueError, match=r"column 2 of y must have the values of training, \[0, 1\]"):
        MultiLabelClassifier(**QUICK).fit(X, Y).certify(X, np.where([False, False, True], 2 * Y, Y))


def test_classifiers_that_are_not_fitted_say_so(data):
    for name in ("classes_", "edges_", "coef_"):
        with pytest.raises(NotFittedError):
            getattr(MultiLabelClassifier(), name)
    with pytest.raises(NotFittedError):
        MultiLabelClassifier().predict(data[0])


def test_scores_of_sets_are_exact(data):
    """The best set of an example is the best of all sets."""
    X, Y = data
    classifier = MultiLabelClassifier(**QUICK).fit(X, Y)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    sets = np.array(list(itertools.product([0, 1], repeat=3)))
    pairs = sets[:, classifier.edges_].prod(2) @ classifier.edge_weights_
    scores = (unit @ classifier.coef_.T + classifier.intercept_) @ sets.T + pairs
    assert np.array_equal(classifier.predict(X), sets[scores.argmax(1)])


@pytest.mark.parametrize("edges", ["full", "tree", "none"])
def test_margins_are_differences_of_the_best_sets_with_and_without_a_label(data, edges):
    X, Y = data
    classifier = MultiLabelClassifier(edges=edges, **QUICK).fit(X, Y)
    margins = classifier.decision_function(X)
    assert np.array_equal(margins > 0, classifier.predict(X))
    for ranked, own in zip(classifier.predict_top_k(X, 8), margins, strict=True):
        for label in range(3):
            best = [max(score for score, y in ranked if y[label] == present) for present in (0, 1)]
            assert own[label] == pytest.approx(best[1] - best[0])
    assert roc_auc_score(Y, margins) == pytest.approx(get_scorer("roc_auc")(classifier, X, Y)) != 0.5


def test_margins_have_the_shape_of_labels(data):
    X, Y = data
    wide = MultiLabelClassifier(**QUICK).fit(X, np.insert(Y, 1, 0, axis=1)).decision_function(X)
    assert wide.shape == (30, 4)
    assert not wide[:, 1].any()
    column, vector = (MultiLabelClassifier(**QUICK).fit(X, y).decision_function(X) for y in (Y[:, :1], Y[:, 0]))
    assert np.array_equal(column[:, 0], vector)


def test_margins_need_exact_inference():
    generator = np.random.default_rng(0)
    X, Y = generator.normal(size=(20, 3)), generator.integers(2, size=(20, 25))
    classifier = MultiLabelClassifier(edges="full", max_iter=1, tol=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(X, Y)
    with pytest.raises(NotImplementedError, match="which 25 labels with 300 pairs do not allow; take edges="):
        classifier.decision_function(X)
    assert classifier.set_params(edges="tree", lam="1/n", tol=0.9).fit(X, Y).decision_function(X).shape == (20, 25)


def test_lists_of_labels_are_refused_by_the_form_that_is_wanted():
    lists = [["red", "big"], ["red"], ["big"], []]
    for y in (lists, [set(row) for row in lists], pd.Series(lists), [["red"], ["big"], ["red"], ["old"]]):
        with pytest.raises(ValueError, match=r"(?s)binary.*MultiLabelBinarizer\(\).fit_transform\(y\)"):
            MultiLabelClassifier().fit(np.eye(4), y)
