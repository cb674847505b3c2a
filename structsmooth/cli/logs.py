"""Logs of runs, a record for each pass or breakpoint: lines of JSON, a table in CSV, or TensorBoard."""

import csv
import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from structsmooth import processes
from structsmooth.solvers.state import Callback

Values = Mapping[str, Any]
_Write = Callable[[Values, Values], None]


class Logs:
    """The logs of a command, which all of its runs share; each record has the names of its run, such as its seed.

    Args:
        files: write the names of a run and a record into files that are made anew.
        streams: write them to where earlier records are already.
    """

    def __init__(self, files: Sequence[_Write] = (), streams: Sequence[_Write] = ()) -> None:
        self._files, self._all = files, [*files, *streams]

    def write(self, record: Values, **names: Any) -> None:
        """Add a record of a run."""
        for write in self._all:
            write(names, record)

    def keep(self, records: Iterable[Values], **names: Any) -> None:
        """Add records of a run that an earlier command made: files are to have those of all passes."""
        for record in records:
            for write in self._files:
                write(names, record)

    def callback(self, **names: Any) -> Callback:
        """What adds each pass of a run."""
        return lambda progress: self.write(progress.row.as_dict(), **names)


def add_log_flags(parser: ArgumentParser, what: str = "pass") -> None:
    """A flag for each kind of log, whose records are of ``what``."""
    group = parser.add_argument_group(f"logs, written after each {what}")
    group.add_argument("--log-json", metavar="FILE", help=f"a line of JSON for each {what}; - is standard error")
    group.add_argument("--csv", metavar="FILE", help=f"a table with a row for each {what}")
    help_events = "event files, those of several runs in folders (pip install 'structsmooth[tensorboard]')"
    group.add_argument("--tensorboard", metavar="DIR", help=help_events)


@contextmanager
def logs(options: Namespace) -> Iterator[Logs]:
    """The logs that flags ask for; of several processes, the first writes them.

    Raises:
        ImportError: TensorBoard is asked for and not installed.
        OSError: a file that cannot be written.
    """
    if processes.rank() > 0:
        yield Logs()
        return
    files: list[_Write] = []
    streams: list[_Write] = []
    with ExitStack() as stack:
        if options.tensorboard:
            streams.append(stack.enter_context(_tensorboard_log(Path(options.tensorboard))))
        if options.log_json == "-":
            streams.append(_json_log(sys.stderr))
        elif options.log_json:
            files.append(_json_log(stack.enter_context(open(options.log_json, "w", encoding="utf-8"))))
        if options.csv:
            files.append(_csv_log(Path(options.csv)))
        yield Logs(files, streams)


def file_name(text: str) -> str:
    """A text as the name of a file or folder."""
    return re.sub(r"[^\w.,=-]", "-", text)


def _json_log(stream: TextIO) -> _Write:
    def write(names: Values, record: Values) -> None:
        stream.write(json.dumps({**names, **record}) + "\n")
        stream.flush()

    return write


def _csv_log(path: Path) -> _Write:
    """A table that is written anew where a record has columns that earlier ones lack."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Values] = []
    columns: dict[str, None] = {}

    def write(names: Values, record: Values) -> None:
        rows.append({**names, **record})
        anew = not rows[-1].keys() <= columns.keys()
        columns.update(dict.fromkeys(rows[-1]))
        with open(path, "w" if anew else "a", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(columns), lineterminator="\n")
            if anew:
                table.writeheader()
            table.writerows(rows if anew else rows[-1:])

    return write


@contextmanager
def _tensorboard_log(folder: Path) -> Iterator[_Write]:
    """Event files, those of each run in a folder of its own."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        message = "--tensorboard needs TensorBoard: pip install 'structsmooth[tensorboard]'"
        raise ImportError(message) from error
    with ExitStack() as opened:
        writers: dict[Path, SummaryWriter] = {}

        def write(names: Values, record: Values) -> None:
            place = folder.joinpath(*(file_name(str(name)) for name in names.values()))
            if place not in writers:
                opened.close()  # the run before has ended
                writers.clear()
                writers[place] = opened.enter_context(SummaryWriter(str(place)))
            for name, value in record.items():
                if value is not None and name != "passes":
                    writers[place].add_scalar(name, value, round(record["passes"]))

        yield write
