"""Logs of training, a record for each pass: lines of JSON, a table in CSV, or TensorBoard."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from structsmooth import processes
from structsmooth.checkpoint import write_atomic
from structsmooth.solvers import Progress
from structsmooth.solvers.state import Callback


def add_log_flags(parser: ArgumentParser) -> None:
    """A flag for each kind of log."""
    group = parser.add_argument_group("logs, written after each pass")
    group.add_argument("--log-json", metavar="FILE", help="a line of JSON for each pass; - is standard error")
    group.add_argument("--csv", metavar="FILE", help="a table with a row for each pass")
    group.add_argument("--tensorboard", metavar="DIR", help="event files (pip install 'structsmooth[tensorboard]')")


@contextmanager
def logs(options: Namespace) -> Iterator[list[Callback]]:
    """Callbacks that write the logs that flags ask for; of several processes, the first writes them.

    Raises:
        ImportError: TensorBoard is asked for and not installed.
        OSError: a file that cannot be written.
    """
    callbacks: list[Callback] = []
    with ExitStack() as stack:
        if processes.rank() == 0:
            if options.log_json:
                callbacks.append(stack.enter_context(_json_log(options.log_json, options.resume)))
            if options.csv:
                callbacks.append(_csv_log(Path(options.csv)))
            if options.tensorboard:
                callbacks.append(stack.enter_context(_tensorboard_log(options.tensorboard)))
        yield callbacks


@contextmanager
def _json_log(path: str, resume: bool) -> Iterator[Callback]:
    """Lines of JSON, after those of the run that is resumed."""
    with nullcontext(sys.stderr) if path == "-" else open(path, "a" if resume else "w", encoding="utf-8") as stream:

        def write(progress: Progress[Any]) -> None:
            stream.write(json.dumps(progress.row.as_dict()) + "\n")
            stream.flush()

        yield write


def _csv_log(path: Path) -> Callback:
    """The whole history, after each pass anew: later rows may have columns that earlier ones lack."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return lambda progress: write_atomic(path, progress.history.to_csv())


@contextmanager
def _tensorboard_log(folder: str) -> Iterator[Callback]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        message = "--tensorboard needs TensorBoard: pip install 'structsmooth[tensorboard]'"
        raise ImportError(message) from error
    with SummaryWriter(folder) as writer:

        def write(progress: Progress[Any]) -> None:
            for name, value in progress.row.as_dict().items():
                if value is not None and name != "passes":
                    writer.add_scalar(name, value, round(progress.row.passes))

        yield write
