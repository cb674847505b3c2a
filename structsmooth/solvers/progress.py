"""A callback that prints how a run goes."""

import sys
from typing import Any, TextIO

from structsmooth.compiled import clock
from structsmooth.history import Row
from structsmooth.solvers.state import Progress


class PrintProgress:
    """Prints pass, objective, duality gap, metrics, time and time left: a line that is rewritten, or one for each pass.

    Metrics are those that callbacks before this one have added to the row.

    Args:
        passes: limit on passes of the run, for the time left. The run may end earlier if it has a duality gap.
        file: where to print; standard error if not given. A line is rewritten on a terminal only.

    Example:
        >>> import sys, torch
        >>> from structsmooth import LinearScore, ModuleProblem, SGD
        >>> from structsmooth.solvers import PrintProgress
        >>> data = [(torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])) for _ in range(8)]
        >>> problem = ModuleProblem(LinearScore(3, 2, torch.float32), data)
        >>> result = SGD().solve(problem, lam="1/n", passes=2, callbacks=[PrintProgress(file=sys.stdout)])
        ... # doctest: +ELLIPSIS
        pass 0: objective ...
        pass 1: objective ...
        pass 2: objective ...
    """

    def __init__(self, passes: int | None = None, file: TextIO | None = None) -> None:
        self._passes, self._file = passes, file
        self._width = 0  # of the line on the terminal
        self._first: tuple[float, float] | None = None  # passes and time after the first pass that was made

    def __call__(self, progress: Progress[Any]) -> None:
        """Print the row of a pass."""
        file = self._file or sys.stderr
        line = self._line(progress.row)
        if not file.isatty():
            print(line, file=file, flush=True)
            return
        print(f"\r{line:{self._width}}", file=file, end="", flush=True)
        self._width = len(line)

    def finish(self) -> None:
        """End the line on the terminal, after a run; the next run begins another."""
        if self._width:
            print(file=self._file or sys.stderr, flush=True)
        self._width, self._first = 0, None

    def _line(self, row: Row) -> str:
        number = f"{row.passes:g}" if self._passes is None else f"{row.passes:g} of {self._passes}"
        gap = "" if row.gap is None else f", duality gap {row.gap:.3g}"
        metrics = "".join(f", {name} {value:.4g}" for name, value in row.metrics.items())
        return f"pass {number}: objective {row.objective:.6g}{gap}{metrics}, {row.seconds:.1f} s{self._left(row)}"

    def _left(self, row: Row) -> str:
        """The time that is left, from the passes after the first, which takes longer than the others."""
        if self._passes is None or row.passes == 0:
            return ""
        now = clock.seconds()
        if self._first is None:
            self._first = row.passes, now
        passes, then = self._first
        if row.passes <= passes:
            return ""
        left = (now - then) / (row.passes - passes) * (self._passes - row.passes)
        return f", {left:.0f} s left" if row.gap is None else f", at most {left:.0f} s left"
