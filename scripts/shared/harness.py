"""What benchmarks and comparisons share: command lines, clocks, tables, and libraries that may be missing.

A script declares its options, and prints what its cases give::

    @command(option("--repeats", 20, "calls of which the fastest counts"))
    def main(options: Namespace) -> None:
        print_table(["case", "ms"], ([name, 1e3 * min(timings(case, options.repeats))] for name, case in CASES))
"""

import json
import math
import os
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypeVar
from unittest.mock import patch

import torch

from structsmooth.cli.report import markdown_table
from structsmooth.compiled import clock as solver_clock
from structsmooth.history import Row
from structsmooth.settings import Interval
from structsmooth.solvers import Progress, Stop
from structsmooth.solvers.state import Callback
from structsmooth.tasks import NER
from structsmooth.text.corpus import Sentence
from structsmooth.text.schemes import entities, entity_tags

_STATUS = Path("/proc/self/status")
_INTERRUPTED = 130
T = TypeVar("T")
Option = Callable[[ArgumentParser], object]
"""A function that adds an argument to a command line."""


class RequestError(Exception):
    """What is asked for cannot be done: the command ends with this sentence, as it does after a wrong option."""


def command(
    *options: Option,
    threads: int | None = 1,
    table: Sequence[str] | None = None,
    text_columns: int = 1,
    program: str | None = None,
    more: str = "",
) -> Callable[[Callable[[Namespace], Any]], Callable[..., int]]:
    """Make a function of options a command, which takes a list of arguments and is explained by the module's docstring.

    Args:
        *options: what the command takes.
        threads: of torch; ``None`` leaves them alone.
        table: header of a table, if the function gives its rows; else what it returns is the exit code, or 0.
        text_columns: the first columns, which hold no numbers.
        program: what help calls the command; ``python -m scripts`` and the name of its file if not given, which then
            is the only way to run it.
        more: what help has behind the docstring.
    """

    def decorate(run: Callable[[Namespace], Any]) -> Callable[..., int]:
        called = program or f"python -m scripts {Path(run.__code__.co_filename).stem}"
        if run.__module__ == "__main__" and program is None:
            raise SystemExit(f"this file is run by {called}")

        def main(arguments: Sequence[str] | None = None) -> int:
            description = f"{sys.modules[run.__module__].__doc__}{more}"
            parser = ArgumentParser(called, None, description, formatter_class=RawDescriptionHelpFormatter)
            for add in options:
                add(parser)
            parsed = parser.parse_args(arguments)
            if threads is not None:
                torch.set_num_threads(threads)
            try:
                result = run(parsed)
                if table is None:
                    return int(result or 0)
                print_table(table, result, text_columns)
            except RequestError as error:
                parser.error(str(error))
            except KeyboardInterrupt:
                return _INTERRUPTED
            return 0

        return main

    return decorate


def option(
    name: str, default: Any = None, meaning: str = "", least: float | None = None, above: bool = False, **settings: Any
) -> Option:
    """An argument that is read by the type of its default, which the help text has as well.

    Args:
        name: as it is typed.
        default: ``False`` for a switch, a list for an argument with several values; texts are read by ``type``.
        meaning: what help says of it.
        least: the smallest number that is allowed.
        above: whether ``least`` itself is left out.
        **settings: of ``add_argument``.
    """
    several = isinstance(default, list)
    if default is False:
        settings["action"] = "store_true"
    elif default is not None:
        values = default if several else [default]
        shown = " ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        meaning = f"{meaning} (default: {shown})".strip()
        settings = {"type": type(values[0])} | ({"nargs": "+"} if several else {}) | settings
        values = [settings["type"](value) if isinstance(value, str) else value for value in values]
        default = values if several else values[0]
    if least is not None:
        settings["type"] = within(Interval(least, above=above), settings.get("type", int))
    return lambda parser: parser.add_argument(name, default=default, help=meaning.replace("%", "%%"), **settings)


def within(bounds: Interval, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """The type of an argument with bounds."""

    def read(text: str) -> Any:
        if (value := kind(text)) not in bounds:
            raise ArgumentTypeError(f"must be {bounds}, got {text}")
        return value

    read.__name__ = kind.__name__
    return read


def sizes(count: int, least: int = 1) -> Callable[[str], tuple[int, ...]]:
    """The type of arguments such as ``32x50x9``, of so many sizes."""

    def size(text: str) -> tuple[int, ...]:
        found = tuple(map(int, text.split("x")))
        if len(found) != count or min(found) < least:
            raise ArgumentTypeError(f"must be {count} numbers with x between them, each at least {least}, got {text}")
        return found

    return size


TRAIN_AND_TEST = (
    option("--train", None, "file to train on, as of structsmooth train (default: that of the task)", metavar="FILE"),
    option("--test", None, "file to measure on; both or none", metavar="FILE"),
)


RUNS_TO_A_GAP = (
    option("--train", NER.default_files()["train"], "column file", metavar="FILE"),
    option("--rich", False, "all attributes of the task, instead of the paper's"),
    option("--bits", NER.bits, "log2 of the number of attributes"),
    option("--lam", "10/n", "λ"),
    option("--gap", 0.05, "duality gap to reach"),
    option("--limit", 100, "passes of a run"),
)
"""Options of runs on the task ``ner`` that end at a duality gap."""


def bio(sentence: Sentence) -> list[str]:
    """The tags of a sentence in the scheme BIO."""
    return entity_tags(entities(sentence.tags or []), len(sentence), "BIO")


def words_and_tags(path: str) -> tuple[list[list[str]], list[list[str]]]:
    """Words of the sentences of a column file, and their tags."""
    sentences = list(NER().read(path, "train"))
    return [sentence.words for sentence in sentences], [sentence.tags or [] for sentence in sentences]


def files(options: Namespace, task: Any) -> dict[str, str]:
    """The two files that options name, or those of the task.

    Raises:
        RequestError: there is one without the other.
    """
    if (options.train is None) != (options.test is None):
        raise RequestError("give both --train and --test, or neither for the data of the task")
    default: dict[str, str] = task.default_files() if options.train is None else vars(options)
    return {split: default[split] for split in ("train", "test")}


@contextmanager
def reading() -> Iterator[None]:
    """Where a script reads its input: what is wrong with that is a :class:`RequestError`."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise RequestError(str(error)) from error


def installed(module: str) -> Any:
    """A module by its name; ``None`` if it is not installed."""
    with suppress(ImportError):
        return import_module(module)
    return None


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], text_columns: int = 1) -> str:
    """Print a Markdown table, each row as soon as there is one, and return it; all but some columns hold numbers.

    What is printed on the way to the first row stands above the table.
    """
    lines: list[str] = []
    for row in rows:
        if not lines:
            lines += [markdown_table(header, (), text_columns)]
            print(lines[0])
        lines.append(f"| {' | '.join(map(str, row))} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def mean_and_spread(values: Sequence[float], digits: int) -> str:
    """Mean ± standard deviation, which a single value does not have."""
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """The seconds that a call takes, by a clock."""
    started = clock()
    call()
    return clock() - started


def timings(
    call: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter, warm_ups: int = 1
) -> list[float]:
    """Seconds of each of some calls, after others that load and compile."""
    return [seconds(call, clock) for _ in range(warm_ups + repeats)][warm_ups:]


def in_turns(
    calls: Mapping[T, Callable[[], object]],
    turns: int,
    clock: Callable[[], float] = time.perf_counter,
    turn: float = 0.0,
    limit: float = math.inf,
) -> dict[T, list[float]]:
    """Seconds of several calls that take turns, so that what else the machine does meets all of them.

    Args:
        calls: what is timed, by name.
        turns: of each.
        clock: the seconds that count.
        turn: seconds for which a call is repeated in its turn, once at least, so that it finds its data in caches.
        limit: a call that has used up so many seconds has no more turns.
    """
    times: dict[T, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            spent = sum(times[name])
            end = min(spent + turn, limit)
            done = spent >= limit
            while not done:
                times[name].append(seconds(call, clock))
                spent += times[name][-1]
                done = spent >= end
    return times


@contextmanager
def cpu_clock() -> Iterator[None]:
    """Where solvers count seconds of this process alone: others may share the machine."""
    with patch.object(solver_clock, "seconds", time.process_time):
        yield


def in_processes(
    function: Callable[..., Any],
    *arguments: Any,
    count: int = 1,
    environment: Mapping[str, str] | None = None,
    prefixes: Sequence[Sequence[str]] = (),
) -> Any:
    """What a function of a script returns in the first of some new processes, which may join as those of torchrun.

    Arguments and results are plain JSON. If there are prefixes of commands, each begins a process, alone on its host.

    Raises:
        RuntimeError: a process failed.
    """
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = str(listener.getsockname()[1])
    root = Path(__file__).parents[2]
    script = ".".join(Path(function.__code__.co_filename).relative_to(root).with_suffix("").parts)
    code = f"import json, sys; from {script} import {function.__name__} as work; "
    code += "print(json.dumps(work(*json.loads(sys.argv[1]))))"
    alone, starts = bool(prefixes), prefixes or [[]] * count
    joining = {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(len(starts)),
        "LOCAL_WORLD_SIZE": str(1 if alone else count),
        "PYTHONPATH": str(root),
    }
    shared = {**os.environ, **joining, **(environment or {})}
    workers = [
        subprocess.Popen(
            [*start, sys.executable, "-c", code, json.dumps(arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": "0" if alone else str(rank)},
        )
        for rank, start in enumerate(starts)
    ]
    outputs = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode for worker in workers):
        raise RuntimeError(f"a process of {script} failed")
    return json.loads(outputs[0])


def until(done: Callable[[Row], bool]) -> Callback:
    """A callback that ends a run after a row."""

    def watch(progress: Progress[Any]) -> None:
        if done(progress.row):
            raise Stop

    return watch


def memory() -> dict[str, float]:
    """MB of this process by kind, as Linux counts them: VmRSS now, its peak VmHWM, and RssFile of mapped files."""
    if not _STATUS.is_file():
        raise RequestError(f"memory is measured as Linux counts it, and there is no {_STATUS}")
    cells = [line.split() for line in _STATUS.read_text(encoding="ascii").splitlines()]
    return {cell[0].rstrip(":"): int(cell[1]) / 1024 for cell in cells if cell[-1:] == ["kB"]}
