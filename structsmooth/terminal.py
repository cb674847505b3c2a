"""What goes to a terminal: text, whose control characters are spelled out, and the codes that progress bars need."""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:  # rich loads with the first message that needs it
    from rich.console import Console

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
