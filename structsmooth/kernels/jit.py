"""How kernels are compiled: cached on disk, safe for infinities, and announced the first time."""

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import numba
from numba.core.caching import FunctionCache

# Everything fastmath offers except "no NaNs" and "no infinities": minus infinity means "forbidden" here.
_FLAGS = {"reassoc", "nsz", "arcp", "contract", "afn"}


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` for use by other kernels."""
    return numba.njit(error_model="numpy", fastmath=_FLAGS)(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel so small that passing its arguments would cost more than its work."""
    return numba.njit(forceinline=True, error_model="numpy", fastmath=_FLAGS)(function)


def entry_point(function: Callable[..., Any]) -> Any:
    """A kernel called from Python: without the GIL, its machine code kept on disk, its compilation announced once.

    Arguments must be arrays, numbers and plain tuples of them: the cache on disk names the classes of all others, and
    would fail to load once such a class has changed.
    """
    compiled: Any = numba.njit(nogil=True, error_model="numpy", fastmath=_FLAGS)(function)
    compiled._cache = _Cache(function)
    return compiled


class _Cache(FunctionCache):
    """Machine code on disk, where numba would keep it, but under the sources of all kernels.

    numba compares the file of the entry point alone, while the machine code contains the kernels that it calls.
    """

    def _index_key(self, *arguments: Any) -> tuple[Any, ...]:
        return *super()._index_key(*arguments), _SOURCES

    def load_overload(self, *arguments: Any) -> Any:
        found = super().load_overload(*arguments)
        if found is None:
            _announce()
        return found


def _digest_of_sources() -> str:
    sources = {path.name: path.read_bytes() for path in files(__package__).iterdir() if path.name.endswith(".py")}
    return hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()


# Read when the kernels are imported: a file that is edited later does not describe them.
_SOURCES = _digest_of_sources()


@cache
def _announce() -> None:
    message = "structsmooth: compiling inner loops for this machine, once; this takes about half a minute"
    print(message, file=sys.stderr, flush=True)
