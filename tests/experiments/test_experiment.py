"""Runs with a folder: they go on from their checkpoints, end as records, and refuse other settings."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from small_problems import random_problem

from structsmooth import BCFW
from structsmooth.experiments import Experiment, RunFolder, open_logs
from structsmooth.solvers import Progress, Solver, Stop, solver_name
from structsmooth.solvers.state import Callback

SOLVER = BCFW(gap_tolerance=0.0)


def experiment(passes: int) -> Experiment:
    return Experiment(SOLVER, "1/n", passes, seed=3)


def interrupt(progress: Progress[Any]) -> None:
    if progress.row.passes == 2:
        raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_as_if_unbroken(tmp_path: Path) -> None:
    problem = random_problem((3, 4, 2, 5))
    whole = experiment(4).run(problem)
    folder, done = RunFolder(tmp_path / "run", {"solver": "bcfw"}), []

    @contextmanager
    def show(passes: int) -> Iterator[Callback]:
        done.append(passes)
        yield lambda progress: None

    with pytest.raises(KeyboardInterrupt):
        experiment(4).run(problem, measure=[interrupt], folder=folder, whole=True)
    with open_logs(log_json=str(tmp_path / "log.jsonl")) as logs:
        result = experiment(4).run(problem, log=logs.of(seed=3), show=show, folder=folder, resume=True)
    assert torch.equal(result.weights, whole.weights)
    assert 0 < done[0] < 4
    told = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(record["seed"], record["passes"]) for record in told] == [(3, passes) for passes in range(5)]
    assert [record["objective"] for record in told] == whole.history.column("objective")


def test_metrics_of_callbacks_are_kept(tmp_path: Path) -> None:
    def measure(progress: Progress[Any]) -> None:
        progress.row.metrics["norm"] = float(progress.state.weights.norm())
        if progress.row.passes == 3:
            raise Stop

    result = experiment(9).run(random_problem((3, 2)), measure=[measure], folder=RunFolder(tmp_path))
    assert result.status.value == "stopped"
    settings, history = RunFolder(tmp_path).load_history()
    assert settings == {}
    assert all("norm" in row.metrics for row in history)
    assert [row.passes for row in history] == [0, 1, 2]


def test_a_record_takes_the_place_of_the_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "new", {"solver": "bcfw", "lam": 0.1})
    assert folder.finished() is None
    experiment(2).run(random_problem((3, 2)), folder=folder)
    assert folder.has_checkpoint(experiment(2).solver)
    folder.finish({"score": 0.5})
    assert [path.name for path in folder.path.iterdir()] == ["run.json"]
    assert folder.finished() == {"settings": {"solver": "bcfw", "lam": 0.1}, "score": 0.5}
    with pytest.raises(ValueError, match=r"run\.json is of a run with lam = 0\.1, not 0\.2: resume with the same"):
        RunFolder(folder.path, {"solver": "bcfw", "lam": 0.2}).finished()
    (folder.path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json: not the record of a run"):
        folder.finished()


def test_one_run_at_a_time_has_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="Windows does not lock folders")
    folder = RunFolder(tmp_path / "runs" / "new")
    with folder.held():
        with pytest.raises(ValueError, match=r"runs/new: another run writes into this folder"), folder.held():
            pass
        assert folder.path.is_dir()  # the refused one leaves it
    assert not folder.path.exists()
    with folder.held():
        folder.finish({})
    assert folder.finished() == {"settings": {}}
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError), RunFolder(tmp_path / "file").held():
        pass


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    problem = random_problem((3, 2))
    experiment(1).run(problem, folder=RunFolder(tmp_path, {"bits": 8}))
    with pytest.raises(ValueError, match=r"is of a run with bits = 8, not 9: resume with the same options"):
        experiment(2).run(problem, folder=RunFolder(tmp_path, {"bits": 9}), resume=True)


def test_settings_name_the_solver() -> None:
    class Own(BCFW):
        """A solver without a name."""

    own: Solver[Any] = Own()
    assert (solver_name(SOLVER), solver_name(own)) == ("bcfw", "Own")
    settings = experiment(4).settings()
    assert (settings["solver"], settings["lam"], settings["passes"], settings["seed"]) == ("bcfw", "1/n", 4, 3)
    assert json.loads(json.dumps(settings)) == settings
    assert experiment(4).lam_of(random_problem((1, 1))) == 0.5
