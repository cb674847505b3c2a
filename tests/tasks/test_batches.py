"""Batches of records, as engines give them to workers, have the answers of the model."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from structsmooth import batch_predictor, load, train
from structsmooth.tasks import NER
from structsmooth.tasks.batches import BatchPredictor

TAGGED = "Ada B-PER\nmet O\nBob B-PER\n\nOslo B-LOC\n"
TEXTS = [["Ada", "met", "Bob"], ["Oslo"], ["Bob", "met", "Oslo"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "train.txt").write_text(TAGGED)
    train(NER(words_only=True, bits=0), str(folder / "train.txt"), passes=10).save(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def predictor(folder: Path) -> BatchPredictor:
    found = batch_predictor(folder, "words")
    assert len(pickle.dumps(found)) < 1000  # the path of the model, not the model
    copied: BatchPredictor = pickle.loads(pickle.dumps(found))
    return copied


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[dict[str, Any]]:
    ranked = load(folder).alternatives(TEXTS, 1)
    return [{"tokens": x, "score": y[0][0], "tags": y[0][1]} for x, y in zip(TEXTS, ranked, strict=True)]


def test_all_kinds_of_batches_have_the_answers_of_the_model(
    predictor: BatchPredictor, expected: list[dict[str, Any]]
) -> None:
    records = [{"id": i, "words": words} for i, words in enumerate(TEXTS)]
    whole = [{**record, **answer} for record, answer in zip(records, expected, strict=True)]
    assert predictor(records) == whole
    frame = predictor(pd.DataFrame(records))
    assert frame.to_dict("records") == whole
    words = np.empty(3, object)
    words[:] = [np.array(text, dtype=object) for text in TEXTS]  # as Ray and Arrow give lists
    columns = predictor({"id": np.arange(3), "words": words})
    assert [dict(zip(columns, row, strict=True))["tags"] for row in zip(*columns.values(), strict=True)] == [
        answer["tags"] for answer in expected
    ]
    assert columns["score"].tolist() == [answer["score"] for answer in expected]


def test_lines_of_text_and_batches_without_records(folder: Path) -> None:
    predictor = batch_predictor(folder, "text")
    assert predictor([{"text": "Bob met Oslo"}])[0]["tokens"] == TEXTS[2]
    assert predictor([]) == []
    assert [*predictor(pd.DataFrame({"text": []}))] == ["text", "tokens", "score", "tags"]
    # Lists of one length are no matrix.
    assert predictor({"text": ["Bob", "Oslo"]})["tags"].tolist() == [["B-PER"], ["B-LOC"]]


def test_refusals(folder: Path, predictor: BatchPredictor) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: no model"):
        batch_predictor("nowhere", "text")
    with pytest.raises(KeyError, match="words"):
        predictor([{"text": "Ada"}])


@pytest.mark.long
def test_workers_open_the_model_themselves(predictor: BatchPredictor, expected: list[dict[str, Any]]) -> None:
    batches = [[{"words": words}] for words in TEXTS]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        found = [record["tags"] for batch in workers.map(predictor, batches) for record in batch]
    assert found == [answer["tags"] for answer in expected]
