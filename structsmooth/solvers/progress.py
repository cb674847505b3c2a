"""A callback that prints how a run goes."""

import sys
from typing import Any, TextIO

from structsmooth.compiled import clock
from structsmooth.history import Row
from structsmooth.solvers.state import Progress


class TimeLeft:
    """How long the passes of a run will take, by those after the first, which takes longer than the others.

    Args:
        passes: limit on passes of the run.
    """

    def __init__(self, passes: float) -> None:
        self._passes = passes
        self._first: tuple[float, float] | None = None  # passes and time after the first pass that was made
        self.pace: float | None = None

    def after(self, made: float) -> float | None:
        """Seconds for the passes that are left when so many have been made; ``None`` before the second new one.

        Sets ``pace``, the seconds of a pass. Compilation does not count.
        """
        now = clock.seconds()
        if self._first is None:
            self._first = made, now
        passes, then = self._first
        if made <= passes:
            return None
        self.pace = (now - then) / (made - passes)
        return self.pace * (self._passes - made)


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
        self._time: TimeLeft | None = None

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
        self._width, self._time = 0, None

    def _line(self, row: Row) -> str:
        number = f"{row.passes:g}" if self._passes is None else f"{row.passes:g} of {self._passes}"
        gap = "" if row.gap is None else f", duality gap {row.gap:.3g}"
        metrics = "".join(f", {name} {value:.4g}" for name, value in row.metrics.items())
        return f"pass {number}: objective {row.objective:.6g}{gap}{metrics}, {row.seconds:.1f} s{self._left(row)}"

    def _left(self, row: Row) -> str:
        if self._passes is None or row.passes == 0:
            return ""
        self._time = self._time or TimeLeft(self._passes)
        left = self._time.after(row.passes)
        if left is None:
            return ""
        return f", {left:.0f} s left" if row.gap is None else f", at most {left:.0f} s left"
