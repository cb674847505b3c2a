"""How much commands say of what they are doing, on standard error."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum


class Verbosity(IntEnum):
    """Nothing but errors and results; what is being done; or also each pass and the time of each stage."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_level = ContextVar("verbosity", default=Verbosity.NORMAL)


def verbosity() -> Verbosity:
    """The level that holds now; see :func:`speaking`."""
    return _level.get()


@contextmanager
def speaking(level: Verbosity) -> Iterator[None]:
    """In this block, so much is said."""
    token = _level.set(level)
    try:
        yield
    finally:
        _level.reset(token)
