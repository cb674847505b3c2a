"""Checkpoints of runs, as often as they cost little time."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from structsmooth.history import History
from structsmooth.solvers import Progress

# A checkpoint is written when the time since the last one is this many times the time that writing it took.
_PATIENCE = 10


class Keeper:
    """A callback that saves a run, as often as that takes little time beside the passes; and its end, however it ends.

    Args:
        save: writes a checkpoint.
    """

    def __init__(self, save: Callable[[Progress[Any]], None]) -> None:
        self._save = save
        self._unsaved: Progress[Any] | None = None
        self._saved_at, self._cost = time.perf_counter(), 0.0

    def __enter__(self) -> "Keeper":
        return self

    def __exit__(self, *stop: object) -> None:
        self._save_last()

    def __call__(self, progress: Progress[Any]) -> None:
        """Save a pass, with the metrics that earlier callbacks added, or remember it."""
        self._unsaved = replace(progress, history=History(progress.history))
        if time.perf_counter() - self._saved_at >= _PATIENCE * self._cost:
            self._save_last()

    def _save_last(self) -> None:
        if self._unsaved is None:
            return
        started = time.perf_counter()
        self._save(self._unsaved)
        self._unsaved, self._saved_at = None, time.perf_counter()
        self._cost = self._saved_at - started
