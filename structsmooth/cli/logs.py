"""Logs of runs, a record for each pass or breakpoint: lines of JSON, a table in CSV, or TensorBoard."""

import csv
import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from structsmooth import processes

Write = Callable[[Mapping[str, Any]], None]
"""Adds a record to logs."""


class Logs:
    """The logs that flags ask for, one for all runs of a command; see :func:`logs`."""

    def __init__(self, files: Iterable[Write], echo: Write | None, tensorboard: Path | None) -> None:
        self._files, self._echo, self._tensorboard = list(files), echo, tensorboard

    @contextmanager
    def run(self, earlier: Iterable[Mapping[str, Any]] = (), **names: Any) -> Iterator[Write]:
        """What adds records of a run, each with the names of the run.

        Args:
            earlier: records of passes that an earlier command made. Files get them too, since they are written anew.
            names: of the run, by what they are, such as ``seed=0``; none where a command makes a single run.
        """
        with ExitStack() as stack:
            writes = [*self._files, *([self._echo] if self._echo else [])]
            for record in earlier:
                for write in self._files:
                    write(names | dict(record))
            if self._tensorboard:
                folder = self._tensorboard.joinpath(*(file_name(str(name)) for name in names.values()))
                writes.append(stack.enter_context(_event_file(folder)))

            def write_all(record: Mapping[str, Any]) -> None:
                for write in writes:
                    write(names | dict(record))

            yield write_all


def add_log_flags(parser: ArgumentParser, what: str = "pass") -> None:
    """A flag for each kind of log; ``what`` is recorded."""
    group = parser.add_argument_group(f"logs, written after each {what}")
    group.add_argument("--log-json", metavar="FILE", help=f"a line of JSON for each {what}; - is standard error")
    group.add_argument("--csv", metavar="FILE", help=f"a table with a row for each {what}")
    group.add_argument("--tensorboard", metavar="DIR", help="event files (pip install 'structsmooth[tensorboard]')")


@contextmanager
def logs(options: Namespace) -> Iterator[Logs]:
    """The logs that flags ask for; of several processes, the first writes them.

    Raises:
        ImportError: TensorBoard is asked for and not installed.
        OSError: a file that cannot be written.
    """
    files: list[Write] = []
    echo = None
    with ExitStack() as stack:
        ...
        yield Logs(files, echo, Path(options.tensorboard) if options.tensorboard else None)
