"""What a command is doing, and for how long, on standard error: on a terminal, or in the log of a job."""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from structsmooth.messages import Verbosity, verbosity

# Flags of what is said and logged, which runs do not depend on.
PRESENTATION = {"quiet", "verbose", "log_json", "csv", "tensorboard"}


def add_verbosity_flags(parser: ArgumentParser) -> None:
    """Flags of commands that may take long."""
    group = parser.add_argument_group("messages on standard error")
    level = group.add_mutually_exclusive_group()
    level.add_argument("--quiet", action="store_true", help="errors alone: no stages and no progress bars")
    level.add_argument("--verbose", action="store_true", help="also each pass, and the time of each stage")


def chosen_verbosity(options: Namespace) -> Verbosity:
    """The level that flags ask for."""
    if getattr(options, "quiet", False):
        return Verbosity.QUIET
    return Verbosity.VERBOSE if getattr(options, "verbose", False) else Verbosity.NORMAL


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Say what this block does: a line that moves on a terminal, a line that stays elsewhere."""
    if verbosity() is Verbosity.QUIET:
        yield
        return
    console, started = Console(stderr=True), time.perf_counter()
    if console.is_terminal:
        with console.status(escape(text)):
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


def warn(text: str) -> None:
    """Warn on standard error, unless commands are to be quiet."""
    if verbosity() is not Verbosity.QUIET:
        tell(f"warning: {text}")


def tell(text: str) -> None:
    """Write a line to standard error."""
    print(f"structsmooth: {text}", file=sys.stderr, flush=True)
