"""Data frames of pandas and polars give what arrays give, and names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from structsmooth.estimators import MulticlassSVM, MultiLabelClassifier, SequenceTagger

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
    assert classifier.score(rows, table) == expected.score(X, LABELS)


@every_library
def test_sentences_of_rows(frame: Frame, series: Series) -> None:
    matrices, tags = X.reshape(8, 3, 3), CLASSES.reshape(8, 3)
    sentences = [frame(matrix, NAMES) for matrix in matrices]
    tagger = SequenceTagger().fit(sentences, [series(own) for own in tags], sample_weight=series(WEIGHTS[:8]))
    expected = SequenceTagger().fit(list(matrices), tags.tolist(), sample_weight=WEIGHTS[:8])
    np.testing.assert_array_equal(tagger.weights_, expected.weights_)
    assert tagger.predict(sentences) == expected.predict(list(matrices))


@every_library
def test_columns_of_sentences(frame: Frame, series: Series) -> None:
    words, tags = [["Ada", "met", "Bo"], ["she", "sang"]], [["B-PER", "O", "B-PER"], ["O", "O"]]
    search = GridSearchCV(SequenceTagger(), {"lam": ["1/n"]}, cv=2).fit(series(words), series(tags))
    assert search.predict(series(words)) == tags


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_names_pass_through_pipelines(library: str) -> None:
    model = make_pipeline(StandardScaler(), MulticlassSVM()).set_output(transform=library)
    assert model.fit(X, CLASSES)[-1].feature_names_in_.tolist() == ["x0", "x1", "x2"]
