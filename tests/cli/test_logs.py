"""Logs that several runs of a command share: each pass once, with the names of its run, whatever stops the command."""

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from structsmooth.cli import main
from structsmooth.cli.compare import load_runs
from structsmooth.experiments import RunFolder
from structsmooth.history import History
from structsmooth.solvers import BCFW, SolutionPath

DATA = ["--train", "train.txt", "--bits", "8"]
LOGS = ["--log-json", "log.jsonl", "--csv", "tables/log.csv"]
COMPARE = ["compare", "ner", *DATA, "--solvers", "sgd", "bcfw", "--lams", "1/n,0.2", "--out", "out", *LOGS]
TUNE = ["tune", "ner", *DATA, "--folds", "2", "--solver", "bcfw", "--passes", "3", "--out", "out", *LOGS]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, blank_pictures) -> Path:
    people = [(first, verb) for first in ("Ada", "Bob", "Eve") for verb in ("sang", "slept")]
    (tmp_path / "train.txt").write_text("\n".join(f"{name} B-PER\n{verb} O\n" for name, verb in people))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def logged() -> list[dict[str, Any]]:
    """The records, which both files have."""
    records = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
    with open("tables/log.csv", newline="") as file:
        table = list(csv.DictReader(file))
    as_text = [{name: "" if value is None else str(value) for name, value in own.items()} for own in records]
    assert [{name: text for name, text in row.items() if text} for row in table] == [
        {name: text for name, text in own.items() if text} for own in as_text
    ]
    return records


def by_run(records: list[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The records of each run, without its names."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(tuple(record.pop(name) for name in names), []).append(record)
    return found


def rows(history: History) -> list[dict[str, Any]]:
    return [row.as_dict() for row in history]


def events(folder: str) -> list[float]:
    """Objectives by pass: files of one second have names in no order."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = accumulator.EventAccumulator(folder, purge_orphaned_data=False).Reload().Scalars("objective")
    return [event.value for event in sorted(read, key=lambda event: event.step)]


def test_records_of_a_comparison_are_those_of_its_runs(capsys):
    assert main([*COMPARE, "--seeds", "0", "--passes", "2", "--tensorboard", "events"]) == 0
    first = logged()
    assert main([*COMPARE, "--seeds", "0", "--passes", "2"]) == 0
    assert logged() == first
    assert main([*COMPARE, "--seeds", "0,3", "--passes", "3", "--tensorboard", "events"]) == 0
    records = by_run(logged(), "solver", "lam", "seed")
    assert [*records] == [
        (solver, lam, seed) for lam in ("1/n", "0.2") for solver in ("sgd", "bcfw") for seed in (0, 3)
    ]
    for (solver, lam, seed), own in records.items():
        _, history = RunFolder(Path(f"out/runs/{solver}/{lam.replace('/', '-')}/{seed}")).load_history()
        assert own == rows(history)
        assert [record["passes"] for record in own] == [0, 1, 2, 3]
        assert events(f"events/{solver}/{lam.replace('/', '-')}/{seed}") == pytest.approx(history.column("objective"))
    assert len(load_runs("out")) == 2
    assert main([*COMPARE, "--seeds", "0", "--passes", "1"]) == 0
    assert {record["passes"] for record in logged()} == {0, 1}


def test_saved_passes_are_not_told_again(capsys):
    arguments = [*COMPARE[:-4], "--quiet", "--seeds", "0", "--log-json", "-", "--passes"]
    told = []
    for passes in ("1", "2", "2"):
        assert main([*arguments, passes]) == 0
        told.append([json.loads(line)["passes"] for line in capsys.readouterr().err.splitlines()])
    assert told == [[0, 1] * 4, [2] * 4, []]


def test_logs_of_a_search_are_of_all_its_runs(monkeypatch, capsys):
    grid, advance, left = ["--lam", "1/n", "10/n"], BCFW.advance, iter(range(7))

    def stopped(*arguments):
        if next(left, None) is None:  # in the second pass of the third run
            raise KeyboardInterrupt
        return advance(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(BCFW, "advance", stopped)
        assert main([*TUNE, *grid]) == 130
    started = by_run(logged(), "setting", "split")
    runs = [(f"lam {lam}", fold) for lam in grid[1:] for fold in ("fold-1", "fold-2")]
    assert [*started] == runs[:3]
    assert len(started[runs[2]]) == 2
    assert main([*TUNE, *grid, "--tensorboard", "events"]) == 0
    records = by_run(logged(), "setting", "split")
    assert [*records] == runs
    for (setting, split), own in records.items():
        place = f"{setting.replace(' ', '-').replace('/', '-')}/{split}"
        assert own == json.loads(Path(f"out/runs/{place}/run.json").read_text())["history"]
        assert [record["passes"] for record in own] == [0, 1, 2, 3]
        assert Path("events", place).exists() == ((setting, split) in runs[2:])
    assert records[runs[0]] == started[runs[0]]


def test_logs_of_a_path_have_its_breakpoints(capsys):
    options = ["--epsilon", "0.5", "--lam-min", "0.1", "--grid", "--kappas", "0.5", "--out", "out"]
    assert main(["path", "ner", *DATA, *options, *LOGS, "--tensorboard", "events"]) == 0
    records = by_run(logged(), "run")
    assert records.pop(("path",)) == [asdict(point) for point in SolutionPath.load("out/path.safetensors").breakpoints]
    costs = json.loads(Path("out/costs.json").read_text())
    assert {(name,): points for name, points in costs.items() if name != "path"} == records
    assert events("events/grid") == pytest.approx([point["objective"] for point in costs["grid"]])
    assert main(["path", "ner", *DATA, *options[:4], "--heuristic", "--out", "out", *LOGS]) == 0
    assert [*by_run(logged(), "run")] == [("heuristic path",)]


def test_a_resumed_run_has_each_pass_once_in_its_logs(capsys):
    train = ["train", "ner", *DATA, "--out", "model", *LOGS, "--gap-tolerance", "0", "--passes"]
    assert main([*train, "1"]) == 0
    with open("log.jsonl", "a") as file:
        file.write('{"passes": 2, "of": "a pass that no checkpoint has"}\n')
    assert main([*train, "3", "--resume"]) == 0
    assert logged() == rows(History.load("model/history.jsonl"))


@pytest.mark.parametrize("command", [[*COMPARE, "--passes", "1"], TUNE, ["path", "ner", *DATA, "--epsilon", "0.5"]])
def test_a_log_that_cannot_be_written_is_refused_before_anything_is_trained(command, capsys):
    assert main([*command, "--log-json", "nowhere/log.jsonl"]) == 2
    assert "nowhere/log.jsonl" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["train.txt"]
