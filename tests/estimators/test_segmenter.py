"""Two classes on graphs and images: exact inference, weights with names, certified gaps, scikit-learn's tools."""

from io import BytesIO
from itertools import product
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict

from structsmooth.estimators import GraphSegmenter

GENERATOR = np.random.default_rng(0)
EDGES = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [1, 3]])
Y = [np.repeat([0, 1], 2), np.repeat([1, 0], 2), np.zeros(4, dtype=int), np.ones(4, dtype=int)] * 3
GRAPHS = [
    (np.column_stack([own - 0.5, own]) + GENERATOR.normal(size=(4, 2)), EDGES, GENERATOR.uniform(size=(5, 2)))
    for own in Y
]


@pytest.fixture(scope="module")
def fitted() -> GraphSegmenter:
    return GraphSegmenter(lam="1/n", tol=1e-3).fit(GRAPHS, Y)


def test_inference_is_that_by_all_labellings(fitted: GraphSegmenter) -> None:
    labellings = np.array(list(product([0, 1], repeat=4)))
    agree = labellings[:, EDGES[:, 0]] == labellings[:, EDGES[:, 1]]
    for (features, _, rewards), found, margins in zip(
        GRAPHS, fitted.predict(GRAPHS), fitted.decision_function(GRAPHS), strict=True
    ):
        node_scores = features @ fitted.coef_ + fitted.intercept_
        scores = (2 * labellings - 1) @ node_scores + agree @ (rewards @ fitted.edge_coef_)
        np.testing.assert_array_equal(found, labellings[scores.argmax()])
        best = [[scores[labellings[:, v] == label].max() for label in (0, 1)] for v in range(4)]
        np.testing.assert_allclose(margins, np.diff(best)[:, 0], rtol=0, atol=1e-9)


def test_training_ends_at_a_certified_gap(fitted: GraphSegmenter) -> None:
    certificate = fitted.certify(GRAPHS, Y)
    assert certificate.objective == pytest.approx(fitted.objective_)
    assert certificate.suboptimality_lower_bound <= fitted.gap_ <= 1e-3 * fitted.objective_
    assert (fitted.edge_coef_ >= 0).all()
    assert fitted.coef_.shape == fitted.edge_coef_.shape == (2,)


@pytest.mark.parametrize(("class_weight", "costs"), [({1: 3.0}, (1.0, 3.0)), ("balanced", (0.75, 1.5))])
def test_class_weights_are_costs_of_wrong_nodes(class_weight: Any, costs: tuple[float, float]) -> None:
    graphs, y = GRAPHS[:3], Y[:3]  # eight nodes of class 0, four of class 1
    segmenter = GraphSegmenter(class_weight=class_weight, lam=0.1, tol=1e-3).fit(graphs, y)
    labellings = np.array(list(product([0, 1], repeat=4)))
    agree = (labellings[:, EDGES[:, 0]] == labellings[:, EDGES[:, 1]]).astype(float)
    w = np.concatenate([segmenter.coef_, [segmenter.intercept_], segmenter.edge_coef_])
    losses = []
    for (features, _, rewards), right in zip(graphs, y, strict=True):
        node_scores = features @ segmenter.coef_ + segmenter.intercept_
        scores = (2 * labellings - 1) @ node_scores + agree @ (rewards @ segmenter.edge_coef_)
        augmented = scores + (labellings != right) @ np.take(costs, right)
        losses.append(augmented.max() - scores[(labellings == right).all(1)][0])
    assert segmenter.objective_ == pytest.approx(np.mean(losses) + 0.05 * w @ w)


def test_score_is_the_share_of_right_nodes(fitted: GraphSegmenter) -> None:
    right = [(own == found).mean() for own, found in zip(Y, fitted.predict(GRAPHS), strict=True)]
    assert fitted.score(GRAPHS, Y) == pytest.approx(np.mean(right))


def test_images_are_graphs_of_pixels() -> None:
    masks = [np.arange(12).reshape(3, 4) % 4 < own for own in (1, 2, 3)]
    images = [mask[..., None] + 0.5 * GENERATOR.normal(size=(3, 4, 1)) for mask in masks]
    across = [(4 * row + column, 4 * row + column + 1) for row in range(3) for column in range(3)]
    down = [(pixel, pixel + 4) for pixel in range(8)]
    graphs = [(image.reshape(-1, 1), np.array(across + down)) for image in images]
    of_images = GraphSegmenter().fit(images, masks)
    of_graphs = GraphSegmenter().fit(graphs, [mask.ravel() for mask in masks])
    np.testing.assert_allclose(of_images.weights_, of_graphs.weights_, rtol=0, atol=1e-9)
    assert [own.shape for own in of_images.predict(images)] == [(3, 4)] * 3
    assert of_images.classes_.tolist() == [False, True]


def test_classes_may_have_any_names() -> None:
    named = [np.array(["sky", "tree"])[own] for own in Y]
    segmenter = GraphSegmenter().fit(GRAPHS, named)
    assert segmenter.classes_.tolist() == ["sky", "tree"]
    numbered = GraphSegmenter().fit(GRAPHS, Y).predict(GRAPHS)
    assert [own.tolist() for own in segmenter.predict(GRAPHS)] == [
        np.array(["sky", "tree"])[own].tolist() for own in numbered
    ]


def test_cross_validated_predictions_of_graphs_of_all_sizes() -> None:
    masks = [np.arange(size) > 1 for size in (3, 3, 4, 5)]
    graphs = [(own[:, None] - 0.5, np.column_stack([np.arange(len(own) - 1), np.arange(1, len(own))])) for own in masks]
    found = cross_val_predict(GraphSegmenter(lam="0.1/n"), graphs, masks, cv=KFold(4))
    assert [own.tolist() for own in found] == [own.tolist() for own in masks]


def test_grid_searches_and_pickles() -> None:
    search = GridSearchCV(GraphSegmenter(), {"lam": ["1/n", "100/n"]}, cv=3).fit(GRAPHS, Y)
    assert search.best_estimator_.lam_ == pytest.approx(float(search.best_params_["lam"][:-2]) / 12)
    file = BytesIO()
    joblib.dump(search.best_estimator_, file)
    file.seek(0)
    np.testing.assert_array_equal(joblib.load(file).predict(GRAPHS), search.predict(GRAPHS))


def with_edges(edges: Any, *more: Any) -> list[Any]:
    return [(GRAPHS[0][0], edges, *more), *GRAPHS[1:]]


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (GRAPHS[:2], Y, "as many graphs"),
        ([], [], "one at least"),
        (GRAPHS, [np.zeros(4)] * 12, r"two classes, got \[0.0\]"),
        (GRAPHS, [np.arange(4)] * 12, r"two classes, got \[0, 1, 2, 3\]"),
        (GRAPHS, [np.zeros(3), *Y[1:]], r"y of graph 0 must have shape \[4\], got \[3\]"),
        (with_edges(EDGES), Y, "graph 1 must have 2 features of nodes and 1 of edges"),
        (with_edges(EDGES.astype(float)), Y, "edges must be integers"),
        (with_edges(EDGES + 1), Y, "edges"),
        (with_edges(EDGES, -np.ones((5, 2))), Y, "0 or more"),
        (with_edges(EDGES, np.ones((4, 2))), Y, r"\[5, G\], got \[4, 2\]"),
        (with_edges(EDGES, np.ones((5, 2)), 1), Y, "got 4 parts"),
        ([np.ones((3, 4))], [np.ones((3, 4))], r"an image must have the shape \[H, W, C\]"),
    ],
)
def test_bad_input_is_named(X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GraphSegmenter().fit(X, y)


def test_other_classes_and_unfitted_segmenters_are_refused(fitted: GraphSegmenter) -> None:
    with pytest.raises(ValueError, match=r"the classes of training, \[0, 1\]"):
        fitted.certify(GRAPHS, [2 * own for own in Y])
    for use in (lambda: GraphSegmenter().predict(GRAPHS), lambda: GraphSegmenter().coef_):
        with pytest.raises(NotFittedError):
            use()
