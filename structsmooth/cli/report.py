"""What a person sees of a run: a progress bar, and tables at its end."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as ProgressBar
from rich.table import Table

from structsmooth.history import History
from structsmooth.messages import Verbosity, console, shown_on, tell, verbosity
from structsmooth.solvers import Progress
from structsmooth.solvers.progress import TimeLeft
from structsmooth.solvers.state import Callback

_ROWS = 12


@contextmanager
def terminal_bar(*columns: ProgressColumn, total: float | None = None, done: int = 0) -> Iterator[Callable[..., None]]:
    """A function that updates a progress bar on the terminal; where there is no terminal, nothing is drawn."""
    shown, times = console(stderr=True), (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("left"))
    with ProgressBar(*columns, *times, console=shown, disable=not shown_on(shown)) as bar:
        yield partial(bar.update, bar.add_task("", total=total, completed=done))


@contextmanager
def progress_bar(
    passes: int, headline: str, label: str = "training", done: int = 0, shown: str | None = None
) -> Iterator[Callback]:
    """A callback that shows the progress of a run: a bar on a terminal, and elsewhere how long it will take.

    Args:
        passes: limit on passes.
        headline: the metric to show.
        label: what is being done.
        done: passes that were made before.
        shown: what the metric is called; its name if not given.
    """
    estimate = _Estimate(passes, label, done)
    columns = (TextColumn(label), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
    with terminal_bar(*columns, total=passes, done=done) as update:

        def draw(progress: Progress[Any]) -> None:
            row = progress.row
            metric = f"  {shown or headline} {row.metrics[headline]:.4f}" if headline in row.metrics else ""
            text = f"objective {row.objective:.4f}{metric}"
            update(completed=row.passes, description=text)
            estimate.tell_once(row.passes)
            if verbosity() is Verbosity.VERBOSE:
                tell(f"{label}, pass {row.passes:g} of {passes}: {text}")

        yield draw


class _Estimate:
    """How long the passes of a run will take, which is said off a terminal when two have been made."""

    def __init__(self, passes: int, label: str, done: int) -> None:
        self._done, self._time = done, TimeLeft(passes)
        self._wanted = verbosity() is not Verbosity.QUIET and not console(stderr=True).is_terminal
        if self._wanted:
            tell(f"{label}, up to {passes} passes ...")

    def tell_once(self, made: float) -> None:
        """After the second pass, unless it was the last."""
        if self._wanted and made > self._done and (left := self._time.after(made)):
            self._wanted = False
            tell(f"a pass takes {self._time.pace:.2g} s, and all that are left up to {left:.2g} s ...")


def history_table(history: History, headline: str, label: str) -> Table:
    """Evenly spread rows of a history, with the last one; ``label`` says what the metric is, and of which data."""
    table = Table("passes", "oracle calls", "seconds", "objective", "lower bound", "gap", label, box=None)
    for column in table.columns:
        column.justify = "right"
    step = max(1, -(-len(history) // _ROWS))
    for row in history[::-1][::step][::-1]:
        table.add_row(
            f"{row.passes}",
            f"{row.oracle_calls:,}",
            f"{row.seconds:.1f}",
            f"{row.objective:.5f}",
            _optional(row.dual),
            _optional(row.gap),
            _optional(row.metrics.get(headline)),
        )
    return table


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """A Markdown table; all columns after the first ``text_columns`` hold numbers."""
    ruler = ["---"] * text_columns + ["---:"] * (len(header) - text_columns)
    lines = ([cell.replace("|", "\\|") for cell in line] for line in (header, ruler, *rows))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
