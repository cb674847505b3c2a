"""The multi-class support vector machine: the problem of Crammer and Singer, kinds of input, scikit-learn's tools."""

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from structsmooth.estimators import MulticlassSVM


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(40, 3))
    return X, np.array(["a", "b", "c"])[(X + 0.5 * generator.normal(size=X.shape)).argmax(1)]


def test_it_minimizes_what_crammer_and_singer_do(data):
    X, y = data
    own = MulticlassSVM(lam="2/n", tol=1e-6).fit(X, y)
    other = LinearSVC(multi_class="crammer_singer", C=0.5, intercept_scaling=2**0.5, tol=1e-7, max_iter=10**6)
    other.fit(X, y)
    np.testing.assert_allclose(own.coef_, other.coef_, atol=0.01)
    np.testing.assert_allclose(own.intercept_, other.intercept_, atol=0.01)
    assert own.certify(X, y).suboptimality_lower_bound <= own.gap_ <= 1e-6 * own.objective_


@pytest.mark.parametrize("class_weight", [{"a": 3.0, "b": 0.25}, "balanced"])
def test_weights_of_classes_are_those_of_scikit_learn(data, class_weight):
    """They multiply the losses of examples, and leave λ = 1/(C·n) as it is where n is the sum of the weights."""
    X, y = data
    own = MulticlassSVM(lam="2/n", tol=1e-6, class_weight=class_weight).fit(X, y)
    settings = {"multi_class": "crammer_singer", "C": 0.5, "intercept_scaling": 2**0.5, "tol": 1e-7}
    other = LinearSVC(**settings, class_weight=class_weight, max_iter=10**6).fit(X, y)
    np.testing.assert_allclose(own.coef_, other.coef_, atol=0.01)
    assert own.certify(X, y).suboptimality_lower_bound <= own.gap_ <= 1e-6 * own.objective_


def test_balanced_classes_have_equal_weight(data):
    """Also after other weights: of the classes, not of the examples."""
    X, y = data
    weights = np.arange(len(y)) % 3
    totals = {name: weights[y == name].sum() for name in "abc"}
    by_hand = {name: weights.sum() / (3 * total) for name, total in totals.items()}
    balanced, same = (
        MulticlassSVM(lam="1/n", tol=1e-6, class_weight=own).fit(X, y, sample_weight=weights)
        for own in ("balanced", by_hand)
    )
    np.testing.assert_allclose(balanced.coef_, same.coef_, atol=1e-9)


def test_classes_without_weight_are_left_out_but_known(data):
    X, y = data
    svm = MulticlassSVM(class_weight={"c": 0.0}, tol=1e-6).fit(X, y)
    assert svm.classes_.tolist() == ["a", "b", "c"]
    light = MulticlassSVM(class_weight={"c": 1e-9}, tol=1e-6).fit(X, y)
    assert svm.objective_ == pytest.approx(light.objective_, rel=1e-4)


def test_arrays_sparse_matrices_and_data_frames_are_the_same_problem(data):
    X, y = data
    expected = MulticlassSVM(tol=1e-6).fit(X, y)
    for rows in (sparse.csr_matrix(X), sparse.coo_array(X), pd.DataFrame(X, columns=list("uvw"))):
        found = MulticlassSVM(tol=1e-6).fit(rows, y)
        assert found.objective_ == pytest.approx(expected.objective_, rel=1e-3)
        np.testing.assert_allclose(found.decision_function(rows), expected.decision_function(X), atol=0.05)
    assert found.feature_names_in_.tolist() == ["u", "v", "w"]
    with pytest.raises(ValueError, match="feature names"):
        found.predict(pd.DataFrame(X, columns=list("xyz")))


def test_a_kernel_separates_a_ring():
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    ring = np.column_stack([np.cos(angles), np.sin(angles)])
    X, y = np.vstack([ring, 3 * ring]), np.repeat(["inside", "outside"], 12)
    assert MulticlassSVM().fit(X, y).score(X, y) < 0.9
    for settings in ({"kernel": "rbf"}, {"kernel": "polynomial", "degree": 2, "landmarks": 10}):
        svm = MulticlassSVM(**settings, lam="0.1/n").fit(X, y)
        assert svm.score(X, y) == 1.0
        by_features = svm.kernel_(torch.from_numpy(X)).numpy() @ svm.coef_.T + svm.intercept_
        np.testing.assert_allclose(svm.decision_function(X), by_features[:, 1] - by_features[:, 0], atol=1e-8)


def test_pipelines_grid_searches_and_pickles(data, tmp_path):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), MulticlassSVM(tol=1e-2))
    search = GridSearchCV(pipeline, {"multiclasssvm__lam": ["1/n", 100.0]}, cv=3)
    search.fit(pd.DataFrame(X, columns=list("uvw")), pd.Series(y))
    assert search.best_params_ == {"multiclasssvm__lam": "1/n"}
    joblib.dump(search.best_estimator_, tmp_path / "svm.joblib", compress=0)
    loaded = joblib.load(tmp_path / "svm.joblib", mmap_mode="r")  # as parallel jobs see it: arrays are read-only
    rows = pd.DataFrame(X, columns=list("uvw"))
    assert np.array_equal(loaded.predict(rows), search.predict(rows))


def test_texts_in_a_pipeline():
    texts, topics = ["the team won", "a good game", "the bank paid", "money in the bank"], ["sport"] * 2 + ["money"] * 2
    model = make_pipeline(TfidfVectorizer(), MulticlassSVM()).fit(texts, topics)
    assert model.predict(["team game", "bank money"]).tolist() == ["sport", "money"]


def test_other_classes_are_refused():
    with pytest.raises(ValueError, match="not in class_weight"):
        MulticlassSVM(class_weight={"d": 2.0}).fit(np.eye(2), ["a", "b"])
    with pytest.raises(ValueError, match="class_weight"):
        MulticlassSVM(class_weight="equal").fit(np.eye(2), ["a", "b"])
    with pytest.raises(ValueError, match="weights must be 0 or more"):
        MulticlassSVM(class_weight={"a": -1.0}).fit(np.eye(2), ["a", "b"])
    with pytest.raises(ValueError, match=r"the classes of training, \['a', 'b'\]"):
        MulticlassSVM().fit(np.eye(2), ["a", "b"]).certify(np.eye(2), ["a", "c"])
    with pytest.raises(ValueError, match=r"two classes at least, got 1 class: \['a'\]"):
        MulticlassSVM().fit(np.eye(3), ["a"] * 3)
