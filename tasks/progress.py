"""Progress of long computations on the terminal."""

from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def tracked(steps: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
    """The steps, with a progress bar on the terminal; where there is no terminal, nothing is drawn."""
    console = Console(stderr=True)
    return track(steps, description, total, console=console, disable=not console.is_terminal, transient=True)
