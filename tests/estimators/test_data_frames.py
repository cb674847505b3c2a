"""Data frames of pandas and polars give what arrays give, and names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from structsmooth import LinearScore
from structsmooth.estimators import (
    GraphSegmenter,
    MulticlassSVM,
    MultiLabelClassifier,
    SequenceTagger,
    StructuredEstimator,
)

NAMES = ["u", "v", "w"]
X = np.random.default_rng(0).normal(size=(24, 3))
CLASSES = np.array(["a", "b", "c"])[X.argmax(1)]
LABELS = np.column_stack([X[:, 0] > 0, X[:, 1] > 0]).astype(int)
WEIGHTS = np.arange(24) % 3 + 1.0

Frame, Series = Callable[[Any, list[str]], Any], Callable[[Any], Any]
every_library = pytest.mark.parametrize(
    ("frame", "series"),
    [
        (lambda rows, names: pd.DataFrame(rows, columns=names), pd.Series),
        (lambda rows, names: pl.DataFrame(rows, schema=names), lambda values: pl.Series(values)),
    ],
    ids=["pandas", "polars"],
)


@every_library
def test_classes(frame: Frame, series: Series) -> None:
    rows = frame(X, NAMES)
    svm = MulticlassSVM().fit(rows, series(CLASSES), sample_weight=series(WEIGHTS))
    assert svm.feature_names_in_.tolist() == NAMES
    expected = MulticlassSVM().fit(X, CLASSES, sample_weight=WEIGHTS)
    np.testing.assert_array_equal(svm.decision_function(rows), expected.decision_function(X))
    with pytest.raises(ValueError, match="feature names should match"):
        svm.predict(frame(X, ["u", "v", "x"]))


@every_library
def test_label_sets(frame: Frame, series: Series) -> None:
    rows, table = frame(X, NAMES), frame(LABELS, ["rain", "wind"])
    classifier = MultiLabelClassifier(tol=0.3).fit(rows, table, sample_weight=series(WEIGHTS))
    assert classifier.feature_names_in_.tolist() == NAMES
    assert classifier.label_names_ == ["rain", "wind"]
    expected = MultiLabelClassifier(tol=0.3).fit(X, LABELS, sample_weight=WEIGHTS)
    np.testing.assert_array_equal(classifier.weights_, expected.weights_)
    assert classifier.score(rows, table) == expected.score(X, LABELS) == classifier.score(rows, LABELS)
    swapped = frame(LABELS[:, ::-1], ["wind", "rain"])
    for judge in (classifier.score, classifier.certify):
        with pytest.raises(ValueError, match=r"y must have the columns \['rain', 'wind'\] in this order"):
            judge(rows, swapped)


@every_library
def test_sentences_of_rows(frame: Frame, series: Series, tmp_path: Path) -> None:
    matrices, tags = X.reshape(8, 3, 3), CLASSES.reshape(8, 3)
    sentences = [frame(matrix, NAMES) for matrix in matrices]
    tagger = SequenceTagger().fit(sentences, [series(own) for own in tags], sample_weight=series(WEIGHTS[:8]))
    expected = SequenceTagger().fit(list(matrices), tags.tolist(), sample_weight=WEIGHTS[:8])
    np.testing.assert_array_equal(tagger.weights_, expected.weights_)
    assert tagger.predict(sentences) == expected.predict(list(matrices))
    assert tagger.feature_names_in_.tolist() == NAMES
    tagger.save(tmp_path)
    for own in (tagger, SequenceTagger.load(tmp_path)):
        labelled = own.certify, own.calibrate
        for ask in (own.predict, *(lambda X, call=call: call(X, tags.tolist()) for call in labelled)):
            with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
                ask([frame(matrix[:, ::-1], NAMES[::-1]) for matrix in matrices])
        with pytest.raises(ValueError, match=r"(?s)unseen at fit time:\n- x\n.*now missing:\n- w"):
            own.score([*sentences[:7], frame(matrices[7], ["u", "v", "x"])], tags.tolist())
        with pytest.warns(UserWarning, match="X does not have valid feature names, but SequenceTagger was fitted with"):
            assert own.predict(list(matrices)) == expected.predict(list(matrices))
    with pytest.raises(ValueError, match="feature names should match"):
        tagger.fit([*sentences[:7], frame(matrices[7][:, ::-1], NAMES[::-1])], tags.tolist())
    assert not hasattr(tagger.fit(list(matrices), tags.tolist()), "feature_names_in_")


@every_library
def test_batches_of_a_stream(frame: Frame, series: Series) -> None:
    tagger = SequenceTagger(lam=0.1).partial_fit([frame(X[:3], NAMES)], [series(CLASSES[:3])], classes=["a", "b", "c"])
    with pytest.raises(ValueError, match="feature names should match"):
        tagger.partial_fit([frame(X[:3], NAMES[::-1])], [series(CLASSES[:3])])


@every_library
def test_graphs(frame: Frame, series: Series) -> None:
    edges, strengths = np.array([[0, 1], [1, 2]]), np.array([[1.0, 2.0], [0.5, 0.0]])
    graphs = [(frame(own, NAMES), edges, frame(strengths, ["near", "alike"])) for own in X.reshape(8, 3, 3)]
    y = [series(own) for own in LABELS[:, 0].reshape(8, 3)]
    segmenter = GraphSegmenter(tol=0.3).fit(graphs, y)
    assert segmenter.feature_names_in_.tolist() == NAMES
    assert len(segmenter.predict(graphs)) == 8
    nodes, _, features = graphs[0]
    with pytest.raises(ValueError, match="feature names should match"):
        segmenter.predict([(frame(X[:3], ["u", "w", "v"]), edges, features)])
    with pytest.raises(ValueError, match=r"edge features of graph 0 must have the columns \['near', 'alike'\]"):
        segmenter.predict([(nodes, edges, frame(strengths, ["alike", "near"]))])


@every_library
def test_inputs_of_a_module(frame: Frame, series: Series) -> None:
    def collate(X: list[Any], y: Any = None) -> tuple[Any, Any]:
        rows = torch.from_numpy(np.stack([np.asarray(own, dtype=np.float64) for own in X]))
        return rows, y if y is None else torch.stack(y)

    inputs, y = [frame(own, NAMES) for own in X.reshape(8, 3, 3)], list(LABELS[:, 0].reshape(8, 3))
    estimator = StructuredEstimator(LinearScore(3, 2), collate=collate, tol=0.3).fit(inputs, y)
    assert estimator.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict([frame(X[:3], NAMES[::-1])])


@every_library
def test_columns_of_sentences(frame: Frame, series: Series) -> None:
    words, tags = [["Ada", "met", "Bo"], ["she", "sang"]], [["B-PER", "O", "B-PER"], ["O", "O"]]
    search = GridSearchCV(SequenceTagger(), {"lam": ["1/n"]}, cv=2).fit(series(words), series(tags))
    assert search.predict(series(words)) == tags


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_names_pass_through_pipelines(library: str) -> None:
    model = make_pipeline(StandardScaler(), MulticlassSVM()).set_output(transform=library)
    assert model.fit(X, CLASSES)[-1].feature_names_in_.tolist() == ["x0", "x1", "x2"]
