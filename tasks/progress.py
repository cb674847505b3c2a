"""Progress of long computations on the terminal."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from os import PathLike, fstat
from typing import BinaryIO, TypeVar, cast

from rich.console import Console
from rich.progress import track, wrap_file

from structsmooth.verbosity import Verbosity, verbosity

T = TypeVar("T")


def shown_on(console: Console) -> bool:
    """Whether to draw progress on a console: on a terminal, unless commands are to be quiet."""
    return console.is_terminal and verbosity() is not Verbosity.QUIET


def tracked(steps: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
    """The steps, with a progress bar on the terminal; where there is no terminal, nothing is drawn."""
    console = Console(stderr=True)
    return track(steps, description, total, console=console, disable=not shown_on(console), transient=True)


@contextmanager
def tracked_file(path: str | PathLike[str], description: str) -> Iterator[BufferedReader]:
    """A file to read, with a progress bar on the terminal; where there is no terminal, nothing is drawn."""
    console = Console(stderr=True)
    with open(path, "rb", buffering=0) as file:
        size, disable = fstat(file.fileno()).st_size, not shown_on(console)
        with wrap_file(
            cast(BinaryIO, file), size, description=description, console=console, disable=disable, transient=True
        ) as tracked:
            yield BufferedReader(cast(RawIOBase, tracked), 1 << 20)
