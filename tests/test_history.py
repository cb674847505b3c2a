"""The record of a run and its file."""

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_problems import random_problem

from structsmooth.history import Row
from structsmooth.solvers import SVRG, History, Progress


def some_history() -> History:
    return History(
        [
            Row(0, 10, 0.5, 2.0),
            Row(1, 30, 1.25, 1 / 3, dual=0.1, gap=1 / 3 - 0.1, mu=1e-300, step_size=0.0, metrics={"f1": 0.5}),
            Row(2.5, 50, 2.0, 1e-17, metrics={"f1": 0.75, "dév": math.inf}),
        ]
    )


def test_json_lines_round_trip() -> None:
    history = some_history()
    text = history.to_json_lines()
    assert len(text.splitlines()) == 3
    assert json.loads(text.splitlines()[1])["f1"] == 0.5
    again = History.from_json_lines(text.splitlines())
    assert again == history
    assert again.to_json_lines() == text
    assert History.from_json_lines([]) == History()


def test_load(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(some_history().to_json_lines())
    assert History.load(path) == History.load(str(path)) == some_history()


def test_round_trip_of_a_run() -> None:
    history = SVRG().solve(random_problem(), lam=0.1, passes=3).history
    assert History.from_json_lines(history.to_json_lines().splitlines()) == history


def test_columns() -> None:
    history = some_history()
    assert history.column("passes") == [0, 1, 2.5]
    assert history.column("dual") == [None, 0.1, None]
    assert history.column("f1") == [None, 0.5, 0.75]
    assert history.column("nothing") == [None] * 3


def test_rows_as_dictionaries() -> None:
    row = some_history()[1]
    assert list(row.as_dict())[:4] == ["passes", "oracle_calls", "seconds", "objective"]
    assert "metrics" not in row.as_dict()
    assert Row.from_dict(row.as_dict()) == row


def test_rows_do_not_share_metrics() -> None:
    first, second = Row(0, 0, 0.0, 1.0), Row(1, 0, 0.0, 1.0)
    first.metrics["f1"] = 1.0
    assert second.metrics == {}


def test_metrics_may_be_whatever_is_a_number() -> None:
    numbers = [0.5, np.float32(0.5), np.array(0.5), torch.tensor(0.5), torch.tensor([0.5]).half(), Fraction(1, 2)]
    row = Row(1, 30, 1.0, 2.0, metrics={f"f{i}": number for i, number in enumerate(numbers)} | {"count": np.int64(3)})
    values = json.loads(History([row]).to_json_lines())
    assert [values[f"f{i}"] for i in range(len(numbers))] == [0.5] * len(numbers)
    assert values["count"] == 3


@pytest.mark.parametrize("metric", [None, "high", [0.5, 0.6], torch.zeros(2), 1j], ids=str)
def test_refuses_metrics_that_are_no_numbers(metric: object) -> None:
    with pytest.raises(TypeError, match=f"metric 'f1' must be a number, got {type(metric).__name__}"):
        History([Row(1, 30, 1.0, 2.0, metrics={"f1": metric})]).to_json_lines()


def test_refuses_metrics_named_like_columns() -> None:
    row = Row(1, 30, 1.0, 2.0, metrics={"objective": 7.0, "f1": 0.5, "dual": 1.0})
    with pytest.raises(ValueError, match=r"metrics must have other names than the columns .*, got dual, objective"):
        row.as_dict()


def test_a_run_refuses_bad_metrics_at_once() -> None:
    rows = []

    def measure(progress: Progress[Any]) -> None:
        progress.row.metrics["seconds"] = 1.0
        rows.append(progress.row)

    with pytest.raises(ValueError, match="metrics must have other names"):
        SVRG().solve(random_problem(), lam=0.1, passes=3, callbacks=[measure])
    assert [row.passes for row in rows] == [0]


@pytest.mark.parametrize("bad", ['{"passes": 1, "orac', '{"passes": 1}', "[1, 2]", "passes"])
def test_refuses_a_damaged_file_by_path_and_line(bad: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(some_history().to_json_lines() + bad + "\n")
    with pytest.raises(ValueError, match=re.escape(f"{path}:4")):
        History.load(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "none"))):
        History.load(tmp_path / "none")
