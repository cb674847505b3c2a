"""Checkpoints of runs, as often as they cost little time."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from structsmooth.history import History
from structsmooth.solvers import Progress

# Writing checkpoints takes about one part in so many of the time.
PATIENCE = 10.0


class Keeper:
    """A callback that saves a run, as often as that takes little time beside the passes; and its end, however it ends.

    Args:
        save: writes a checkpoint.
        patience: a checkpoint is written when the time since the last one is so many times what writing it took.
    """

    def __init__(self, save: Callable[[Progress[Any]], None], patience: float = PATIENCE) -> None:
        self._save, self._patience = save, patience
        self._unsaved: Progress[Any] | None = None
        self._saved_at, self._cost = time.perf_counter(), 0.0

    def __enter__(self) -> "Keeper":
        return self

    def __exit__(self, *stop: object) -> None:
        self._save_last()

    def __call__(self, progress: Progress[Any]) -> None:
        """Save a pass, with the metrics that earlier callbacks added, or remember it."""
        self._unsaved = replace(progress, history=History(progress.history))
        if time.perf_counter() - self._saved_at >= self._patience * self._cost:
            self._save_last()

    def _save_last(self) -> None:
        progress, self._unsaved = self._unsaved, None
        if progress is None:
            return
        started = time.perf_counter()
        self._save(progress)
        self._saved_at = time.perf_counter()
        self._cost = self._saved_at - started
