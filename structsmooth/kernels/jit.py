"""How kernels are compiled: cached on disk, safe for infinities, and announced the first time."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

# Everything fastmath offers except "no NaNs" and "no infinities": minus infinity means "forbidden" here.
_FLAGS = {"reassoc", "nsz", "arcp", "contract", "afn"}
_announced = False


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` for use by other kernels."""
    return numba.njit(error_model="numpy", fastmath=_FLAGS)(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel so small that passing its arguments would cost more than its work."""
    return numba.njit(forceinline=True, error_model="numpy", fastmath=_FLAGS)(function)


def entry_point(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel called from Python: without the GIL, its machine code kept on disk, its first compilation announced.

    Arguments must be arrays, numbers and plain tuples of them: the cache on disk names the classes of all others, and
    would fail to load once such a class has changed.
    """
    compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_FLAGS)(function)

    def call(*arguments: Any) -> Any:
        if not compiled.signatures:
            _announce(compiled, function)
        return compiled(*arguments)

    return call


def _announce(compiled: Any, function: Callable[..., Any]) -> None:
    global _announced
    name = f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}-*.nbi"
    if not _announced and not any(Path(compiled.stats.cache_path).glob(name)):
        _announced = True
        message = "structsmooth: compiling inner loops for this machine, once; this takes about half a minute"
        print(message, file=sys.stderr, flush=True)
