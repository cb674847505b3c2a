"""Logs of runs, a record for each pass or breakpoint: lines of JSON, a table in CSV, or TensorBoard."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from csv import DictWriter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from structsmooth import processes
from structsmooth.files import writing
from structsmooth.solvers import Progress

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

    def of(self, **names: Any) -> "RunLog":
        """The log of one run."""
        return RunLog(self, names)


@dataclass(frozen=True)
class RunLog:
    """The log of one run with some names: a callback that adds each pass."""

    logs: Logs
    names: Values

    def __call__(self, progress: Progress[Any]) -> None:
        """Add a pass."""
        self.logs.write(progress.row.as_dict(), **self.names)

    def keep(self, records: Iterable[Values]) -> None:
        """Add records of the run that an earlier command made."""
        self.logs.keep(records, **self.names)


@contextmanager
def open_logs(log_json: str | None = None, csv: str | None = None, tensorboard: str | None = None) -> Iterator[Logs]:
    """Logs in some files; of several processes, the first writes them.

    Args:
        log_json: file of lines of JSON; ``"-"`` for standard error.
        csv: file of a table.
        tensorboard: folder of event files.

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
        if tensorboard:
            streams.append(stack.enter_context(_tensorboard_log(Path(tensorboard))))
        if log_json == "-":
            streams.append(_json_log(sys.stderr))
        elif log_json:
            files.append(_json_log(stack.enter_context(open(log_json, "w", encoding="utf-8"))))
        if csv:
            files.append(_csv_log(Path(csv)))
        yield Logs(files, streams)


def file_name(text: str) -> str:
    """A text as the name of a file or folder: with hyphens in place of letters that names must not have."""
    return re.sub(r"[^\w.,=-]", "-", text)


def _json_log(stream: TextIO) -> _Write:
    def write(names: Values, record: Values) -> None:
        with writing(getattr(stream, "name", "standard error")):
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
        with writing(path), open(path, "w" if anew else "a", newline="", encoding="utf-8") as file:
            table = DictWriter(file, list(columns), lineterminator="\n")
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
