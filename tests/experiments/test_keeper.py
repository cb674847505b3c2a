"""Checkpoints as often as they cost little time, and at the end."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from structsmooth.experiments import folder
from structsmooth.experiments.folder import CheckpointCallback
from structsmooth.history import History, Row
from structsmooth.solvers import Progress

ROW = Row(passes=0, oracle_calls=0, seconds=0.0, objective=1.0)


class Runner:
    """Runs on a clock that only passes and savings move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.saved: list[tuple[int, int]] = []
        monkeypatch.setattr(folder, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def run(self, passes: int, *, one_pass: float, one_save: float, fault: type[BaseException] | None = None) -> None:
        """Keep numbers of passes and rows that were saved."""
        history = History()

        def save(progress: Progress[Any]) -> None:
            self.now += one_save
            self.saved.append((progress.row.passes, len(progress.history)))

        with CheckpointCallback(save) as keep:
            for number in range(1, passes + 1):
                self.now += one_pass
                row = replace(ROW, passes=number)
                history.append(row)
                keep(Progress(None, None, row, history))  # type: ignore[arg-type]
            history.append(ROW)  # of a pass that was not completed
            if fault:
                raise fault


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Runner:
    return Runner(monkeypatch)


def test_every_pass_where_saving_is_fast(runner: Runner) -> None:
    runner.run(4, one_pass=10.0, one_save=0.5)
    assert runner.saved == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_a_tenth_of_the_time_where_it_is_slow(runner: Runner) -> None:
    runner.run(25, one_pass=1.0, one_save=1.0)
    assert runner.saved == [(1, 1), (11, 11), (21, 21), (25, 25)]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ConnectionError])
def test_the_last_pass_whatever_ends_the_run(runner: Runner, fault: type[BaseException]) -> None:
    with pytest.raises(fault):
        runner.run(5, one_pass=1.0, one_save=1.0, fault=fault)
    assert runner.saved == [(1, 1), (5, 5)]


def test_nothing_where_there_was_no_pass(runner: Runner) -> None:
    runner.run(0, one_pass=1.0, one_save=1.0)
    assert not runner.saved
