"""Weights of examples in all estimators: two counts as twice, zero as not at all."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from torch import Tensor, nn

from structsmooth import Candidates, ScoreModule
from structsmooth.estimators import (
    GraphSegmenter,
    MulticlassSVM,
    MultiLabelClassifier,
    SequenceTagger,
    StructuredEstimator,
)

TIMES = np.array([2, 1, 0, 3, 1, 1, 0, 2, 1, 1])
REPEATED = np.repeat(np.arange(10), TIMES)
ROWS = np.random.default_rng(0).normal(size=(10, 3))
CLASSES = np.arange(10) % 3
SENTENCES = list(np.random.default_rng(1).normal(size=(10, 4, 3)))
PATH = np.array([[0, 1], [1, 2], [2, 3]])
TAGS = [["A", "B", "A", "B"], ["B", "B", "A", "A"]] * 5


class Classes(ScoreModule):
    affine = True

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3, dtype=torch.float64)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()

    def forward(self, x: Tensor) -> Candidates:
        return Candidates(self.linear(x))


CASES: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "classes": (MulticlassSVM, ROWS, CLASSES),
    "label sets": (MultiLabelClassifier, ROWS, np.column_stack([CLASSES > 0, ROWS[:, 0] > 0]).astype(int)),
    "graphs": (GraphSegmenter, [(own, PATH) for own in SENTENCES], [np.array(own) for own in TAGS]),
    "tags": (SequenceTagger, SENTENCES, TAGS),
    "CRF": (lambda **settings: SequenceTagger(loss="crf", **settings), SENTENCES, TAGS),
    "module": (lambda **settings: StructuredEstimator(Classes(), **settings), ROWS, CLASSES),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def at(data: Any, rows: Any) -> Any:
    return data[rows] if isinstance(data, np.ndarray) else [data[i] for i in rows]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=name, marks=pytest.mark.long if name == "graphs" else ()) for name, case in CASES.items()],
)
def test_weights_are_repetitions(case: tuple[Callable[..., Any], Any, Any]) -> None:
    build, X, y = case
    settings = {"lam": "1/n", "tol": 1e-4, "max_iter": 300}
    weighted = build(**settings).fit(X, y, sample_weight=TIMES)
    repeated = build(**settings).fit(at(X, REPEATED), at(y, REPEATED))
    assert weighted.lam_ == pytest.approx(1 / TIMES.sum()) == pytest.approx(repeated.lam_)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-3)
    assert weighted.objective_ != pytest.approx(build(**settings).fit(X, y).objective_, rel=1e-3)


def test_certificates_take_the_weights() -> None:
    tagger = SequenceTagger(tol=1e-3).fit(SENTENCES, TAGS, sample_weight=TIMES)
    found = tagger.certify(SENTENCES, TAGS, sample_weight=TIMES)
    assert found.objective == pytest.approx(tagger.objective_, rel=1e-9)


def test_searches_pass_the_weights_on() -> None:
    search = GridSearchCV(SequenceTagger(max_iter=50, tol=0.5), {"lam": ["1/n", "10/n"]}, cv=2)
    search.fit(SENTENCES, TAGS, sample_weight=TIMES + 1)
    assert search.best_estimator_.lam_ * (TIMES + 1).sum() == pytest.approx(float(search.best_params_["lam"][:-2]))


@every_case
def test_scores_count_examples_by_their_weights(case: tuple[Callable[..., Any], Any, Any]) -> None:
    build, X, y = case
    fitted = build(max_iter=30, tol=0.5).fit(X, y)
    expected = fitted.score(at(X, REPEATED), at(y, REPEATED))
    assert fitted.score(X, y, sample_weight=TIMES) == pytest.approx(expected)


def test_early_stopping_keeps_the_weights_of_the_training_part() -> None:
    tagger = SequenceTagger(lam="10/n", early_stopping=True, validation_fraction=0.3, max_iter=5, tol=0.5)
    tagger.fit(SENTENCES, TAGS, sample_weight=np.arange(1.0, 11.0))
    assert 10 / 49 <= tagger.lam_ <= 10 / 28  # seven sentences of ten


@every_case
@pytest.mark.parametrize("wrong", [np.ones(3), -np.ones(10), np.zeros(10), np.full(10, np.nan)], ids=str)
def test_bad_weights_are_named(case: tuple[Callable[..., Any], Any, Any], wrong: Any) -> None:
    build, X, y = case
    with pytest.raises(ValueError, match=r"(?i)sample.weight"):
        build().fit(X, y, sample_weight=wrong)
