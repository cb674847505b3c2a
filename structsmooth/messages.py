"""What commands say on standard error while they work, how much of it, and what of it a terminal may get."""

import os
import re
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from functools import cache
from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, TypeVar, cast

if TYPE_CHECKING:  # rich loads with the first message that needs it
    from rich.console import Console

T = TypeVar("T")


class Verbosity(IntEnum):
    """How much commands say: errors and results alone, also what they do, or also each pass and the time of stages."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_level = ContextVar("verbosity", default=Verbosity.NORMAL)
_warned = ContextVar[set[str] | None]("warned", default=None)  # of what a command has warned; None outside of one


def verbosity() -> Verbosity:
    """How much commands say at the moment; see :func:`speaking`."""
    return _level.get()


@contextmanager
def speaking(level: Verbosity) -> Iterator[None]:
    """In this block, a command says as much as the level allows, each warning once, and those of Python as its own."""
    tokens, format_of_python = (_level.set(level), _warned.set(set())), warnings.formatwarning
    warnings.formatwarning = _formatted
    try:
        yield
    finally:
        warnings.formatwarning = format_of_python
        _level.reset(tokens[0])
        _warned.reset(tokens[1])


def _formatted(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning to users as a line; others with the place in the code."""
    if category is UserWarning:
        return f"structsmooth: warning: {_on_terminal(str(message))}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def shown_on(shown: "Console") -> bool:
    """Whether to draw progress on a console: on a terminal, unless commands are to be quiet."""
    return shown.is_terminal and verbosity() is not Verbosity.QUIET


def tracked(steps: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
    """The steps, with a progress bar on the terminal; where there is no terminal, nothing is drawn."""
    from rich.progress import track

    shown = console(stderr=True)
    return track(steps, description, total, console=shown, transient=True) if shown_on(shown) else steps


@contextmanager
def tracked_file(path: str | os.PathLike[str], description: str) -> Iterator[BufferedReader]:
    """A file to read, with a progress bar on the terminal; where there is no terminal, nothing is drawn."""
    from rich.progress import wrap_file

    shown = console(stderr=True)
    with open(path, "rb", buffering=0) as file:
        size, disable = os.fstat(file.fileno()).st_size, not shown_on(shown)
        with wrap_file(
            cast(BinaryIO, file), size, description=description, console=shown, disable=disable, transient=True
        ) as tracked:
            yield BufferedReader(cast(RawIOBase, tracked), 1 << 20)


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Say what this block does: a line that moves on a terminal, a line that stays elsewhere."""
    if verbosity() is Verbosity.QUIET:
        yield
        return
    from rich.markup import escape

    shown, started = console(stderr=True), time.perf_counter()
    if shown.is_terminal:
        with shown.status(escape(text)):
            yield
    else:
        tell(f"{text} ...")
        yield
    if verbosity() is Verbosity.VERBOSE:
        tell(f"{text}: {time.perf_counter() - started:.1f} s")


def counted(count: int, what: str) -> str:
    """A number of things in words.

    Example:
        >>> counted(1, "example"), counted(1200, "example")
        ('1 example', '1,200 examples')
    """
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def bounded(text: str, most: int = 600) -> str:
    """A message of any length, without its middle if it is long.

    Example:
        >>> bounded("a bad tag", most=6)
        'a b ... tag'
    """
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-(most // 2) :]}"


@contextmanager
def located(place: object, kinds: tuple[type[Exception], ...] = (ValueError,)) -> Iterator[None]:
    """A block whose errors of some kinds begin with the place of what is read or done.

    Raises:
        ValueError: what the block raises.
    """
    try:
        yield
    except kinds as error:
        raise ValueError(f"{place}: {error}") from None


def note(text: str) -> None:
    """Say something on standard error, unless commands are to be quiet."""
    if verbosity() is not Verbosity.QUIET:
        tell(text)


def warn(text: str) -> None:
    """Warn on standard error, unless commands are to be quiet, or have done so."""
    warned = _warned.get()
    if warned is None or text not in warned:
        note(f"warning: {text}")
    if warned is not None:
        warned.add(text)


def tell(text: str) -> None:
    """Write a line to standard error."""
    print(f"structsmooth: {_on_terminal(text)}", file=sys.stderr, flush=True)


def _on_terminal(text: str) -> str:
    return escaped(text) if sys.stderr.isatty() else text  # here, for progress bars take the place of the stream


STANDARD_OUTPUT = "standard output"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def escaped(text: str) -> str:
    r"""A text of any origin for a terminal, which would obey its control characters: all but tabs and newlines spelled.

    Example:
        >>> escaped("B-PER\x1b[2J")
        'B-PER\\x1b[2J'
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


class _Guarded:
    """A standard stream: a terminal gets escaped text, all else what is written; errors name the stream."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.stream, self._name, self._is_terminal = stream, name, stream.isatty()

    def write(self, text: str) -> int:
        """Write a text."""
        with self._named():
            return self.stream.write(escaped(text) if self._is_terminal else text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what waits."""
        with self._named():
            self.stream.flush()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A block whose errors of the system name the stream."""
        try:
            yield
        except OSError:
            from structsmooth.files import writing  # which loads numpy

            with writing(self._name):
                raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def guarded() -> Iterator[None]:
    """A block in which standard output and error are guarded: see :func:`escaped`."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, _Guarded(sys.stdout, STANDARD_OUTPUT))
    sys.stderr = cast(TextIO, _Guarded(sys.stderr, "standard error"))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def console(stderr: bool = False) -> "Console":
    """Rich's console on standard output or error: a terminal gets escaped text, and the codes that Rich adds to it."""
    stream = sys.stderr if stderr else sys.stdout
    return _console_type()(file=getattr(stream, "stream", stream), stderr=stderr)


@cache
def _console_type() -> "type[Console]":
    from rich.console import Console
    from rich.segment import Segment

    class GuardedConsole(Console):
        """A console that escapes what it is given to show."""

        def render(self, *given: Any, **options: Any) -> Iterable[Segment]:
            """The segments of what is shown."""
            for text, style, control in super().render(*given, **options):
                shown = escaped(text) if self.is_terminal and not control else text
                yield Segment(shown, style, control)

    return GuardedConsole
