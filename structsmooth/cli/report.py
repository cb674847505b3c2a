"""What a person sees of a run: a progress bar, and tables at its end."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from structsmooth.history import History
from structsmooth.solvers import Progress
from structsmooth.solvers.state import Callback

_ROWS = 12


@contextmanager
def terminal_bar(*columns: ProgressColumn, total: float | None = None, done: int = 0) -> Iterator[Callable[..., None]]:
    """A function that updates a progress bar on the terminal; where there is no terminal, nothing is drawn."""
    console = Console(stderr=True)
    with ProgressBar(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bar:
        yield partial(bar.update, bar.add_task("", total=total, completed=done))


@contextmanager
def progress_bar(passes: int, headline: str, label: str = "pass", done: int = 0) -> Iterator[Callback]:
    """A callback that draws the progress of a run, see :func:`terminal_bar`."""
    columns = (TextColumn(label), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
    with terminal_bar(*columns, total=passes, done=done) as update:

        def draw(progress: Progress[Any]) -> None:
            row = progress.row
            metric = f"  {headline} {row.metrics[headline]:.4f}" if headline in row.metrics else ""
            update(completed=row.passes, description=f"objective {row.objective:.4f}{metric}")

        yield draw


def history_table(history: History, headline: str) -> Table:
    """Evenly spread rows of a history, with the last one."""
    table = Table("passes", "oracle calls", "seconds", "objective", "lower bound", "gap", headline, box=None)
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
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ruler, *rows))


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
