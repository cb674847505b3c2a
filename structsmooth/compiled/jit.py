"""How inner loops are compiled: cached on disk, safe for infinities, and announced the first time."""

import hashlib
import sys
import time
from collections.abc import Callable
from functools import cache
from io import StringIO
from pathlib import Path
from typing import IO, Any

import numba
from numba.core.caching import FunctionCache

from structsmooth.compiled import clock
from structsmooth.compiled.library import Pipeline
from structsmooth.messages import Verbosity, verbosity

try:
    import fcntl
except ImportError:  # Windows: every process compiles for itself
    fcntl = None  # type: ignore[assignment]

# Seconds to wait for another process, which may have been killed or stopped while it compiled.
_PATIENCE = 300

# Everything fastmath offers except "no NaNs" and "no infinities": minus infinity means "forbidden" here.
_FLAGS = {"reassoc", "nsz", "arcp", "contract", "afn"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` for use by other compiled functions."""
    return numba.njit(error_model="numpy", fastmath=_FLAGS)(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function that is inlined, since passing its arguments would take longer than its work."""
    return numba.njit(forceinline=True, error_model="numpy", fastmath=_FLAGS)(function)


def uncounted(function: Callable[..., Any]) -> Callable[..., Any]:
    """An inlined function that makes no arrays: counting references to those it takes would take longer than its work.

    Where many such calls meet in one loop, the compiler no longer sees that the counts cancel.
    """
    options: dict[str, Any] = {"_nrt": False}
    inline: Callable[..., Any] = numba.njit(forceinline=True, error_model="numpy", fastmath=_FLAGS, **options)(function)
    return inline


def entry_point(function: Callable[..., Any]) -> Any:
    """A compiled function called from Python: releases the GIL, cached on disk, its compilation announced once.

    Arguments must be arrays, numbers and plain tuples of them: for any other class the cache on disk stores its name,
    and fails to load once the class has changed.
    """
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy", fastmath=_FLAGS, pipeline_class=Pipeline)(function)
    dispatcher._cache = _Cache(function)
    return dispatcher


class _Cache(FunctionCache):
    """Machine code on disk, in numba's own place, but keyed by the sources of all compiled functions.

    numba compares the file of the entry point alone, although the machine code contains the functions that it calls.
    What is not there is compiled now, and saved: :mod:`~structsmooth.compiled.clock` stands still in between.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._lock: IO[str] = StringIO()
        self._function_name = f"{function.__module__}.{function.__qualname__}"

    def _index_key(self, *arguments: Any) -> tuple[Any, ...]:
        return *super()._index_key(*arguments), _SOURCES

    def load_overload(self, *arguments: Any) -> Any:
        found = super().load_overload(*arguments)
        if found is None:
            self._missed = time.perf_counter()
            # Of processes that start together, the first to come compiles for all.
            self._lock.close()  # of a compilation that failed
            self._lock = _locked(Path(self.cache_path) / f"{self._function_name}.lock")
            found = super().load_overload(*arguments)
            if found is None:
                _announce()
                _show(f"  {self._function_name}")
            else:
                self._done()
        return found

    def save_overload(self, *arguments: Any) -> None:
        super().save_overload(*arguments)
        _show("")
        self._done()

    def _done(self) -> None:
        self._lock.close()
        clock.leave_out(time.perf_counter() - self._missed)


def _locked(path: Path) -> IO[str]:
    """A file that this process alone has locked, until it is closed; without a lock if there is none to be had."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "w")  # noqa: SIM115 - closed when the function is compiled
    except OSError:  # a read-only folder
        return StringIO()
    for _ in range(_PATIENCE if fcntl else 0):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:  # another process compiles
            time.sleep(1)
    return file


def _digest_of_sources() -> str:
    """Of this package, and of the compiled modules of other rooms: ``compiled.py``, ``compiled_primal.py``, ..."""
    root = Path(__file__).parents[1]
    sources = [(str(path.relative_to(root)), path.read_bytes()) for path in root.rglob("*.py") if _is_compiled(path)]
    return hashlib.sha256(repr(sorted(sources)).encode()).hexdigest()


def _is_compiled(path: Path) -> bool:
    return path.name.startswith("compiled") or path.parent.name == "compiled"


# Read at the first import: a file that is edited later no longer describes the code that is loaded.
_SOURCES = _digest_of_sources()


@cache
def _announce() -> None:
    if verbosity() is not Verbosity.QUIET:
        message = "structsmooth: compiling inner loops for this machine, once; this may take twenty seconds"
        print(message, file=sys.stderr, flush=True)


def _show(line: str) -> None:
    """Replace the last line on a terminal; elsewhere do nothing."""
    if sys.stderr.isatty() and verbosity() is not Verbosity.QUIET:
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
