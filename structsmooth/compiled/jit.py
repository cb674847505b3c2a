"""How inner loops are compiled: cached on disk, safe for infinities, and announced the first time."""

import atexit
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property
from io import StringIO
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

from structsmooth.compiled import carried, clock
from structsmooth.compiled.digest import digest
from structsmooth.compiled.library import CalleeCompiler, EntryPointCompiler, OptimizedCalleeCompiler
from structsmooth.messages import Verbosity, verbosity

try:
    import fcntl
except ImportError:  # Windows: every process compiles for itself
    fcntl = None  # type: ignore[assignment]

# Seconds to wait for another process, which may have been killed or stopped while it compiled.
_PATIENCE = 300
_PAUSE = 0.05

# Everything fastmath offers except "no NaNs" and "no infinities": minus infinity means "forbidden" here.
_FLAGS = {"reassoc", "nsz", "arcp", "contract", "afn"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` for use by other compiled functions."""
    return _callee(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function that is inlined, since passing its arguments would take longer than its work."""
    return _callee(function, forceinline=True)


def uncounted(function: Callable[..., Any]) -> Callable[..., Any]:
    """An inlined function that makes no arrays: counting references to those it takes would take longer than its work.

    Where many such calls meet in one loop, the compiler no longer sees that the counts cancel.
    """
    return _callee(function, forceinline=True, _nrt=False)


def vectorized(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function of rows of one array, whose loops become vector instructions before it is inlined.

    The compiler takes arguments for different arrays, which it can compare at the start of a loop. Where it sees that
    two are rows of one array, it does not know how far apart they are, and handles one number at a time.
    """
    return _callee(function, OptimizedCalleeCompiler, forceinline=True)


def entry_point(function: Callable[..., Any]) -> Any:
    """A compiled function called from Python: releases the GIL, cached on disk, its compilation announced once.

    Arguments must be arrays, numbers and plain tuples of them: for any other class the cache on disk stores its name,
    and fails to load once the class has changed.
    """
    dispatcher = _dispatcher(function, EntryPointCompiler, nogil=True)
    dispatcher._cache = _Cache(function)
    return dispatcher


def _callee(
    function: Callable[..., Any], compiler: type[CalleeCompiler] = CalleeCompiler, **options: Any
) -> Callable[..., Any]:
    dispatcher: Any = _dispatcher(function, compiler, no_cpython_wrapper=True, **options)
    # numba's own also lists the machine code, which callees do not have, for calls from Python.
    dispatcher.add_overload = lambda result: dispatcher.overloads.update({tuple(result.signature.args): result})
    callee: Callable[..., Any] = dispatcher
    return callee


def _dispatcher(function: Callable[..., Any], compiler: type[Any], **options: Any) -> Any:
    rules: dict[str, Any] = {
        "error_model": "numpy",
        "fastmath": _FLAGS,
        "no_cfunc_wrapper": True,
        "pipeline_class": compiler,
    }
    return numba.njit(**rules, **options)(function)


class _Cache(FunctionCache):
    """Machine code on disk, in numba's own place, but named by all that it depends on; see :func:`digest`.

    numba compares the file of the entry point, although the machine code contains functions of other files, and
    depends on nothing else in its own. What is not there is compiled now, and saved:
    :mod:`~structsmooth.compiled.clock` stands still in between.
    """

    def __init__(self, function: Any) -> None:
        try:
            super().__init__(function)
        except RuntimeError:  # numba finds no folder that the user can write to
            settings: Any = numba.config
            settings.CACHE_DIR = _folder_of_this_process()
            super().__init__(function)
        self._lock: IO[str] = StringIO()
        self._level: str | None = None
        self._function = function
        self._function_name = f"{function.__module__}.{function.__qualname__}"
        folder = os.environ.get("NUMBA_CACHE_DIR")
        if folder and Path(self._cache_path).is_relative_to(Path(folder).absolute()):  # which can be written
            # numba would add the place of the sources; all that matters of them is in the name.
            self._cache_path = str(Path(folder) / __package__)

    @cached_property
    def _files(self) -> tuple[IndexDataCacheFile, IndexDataCacheFile]:
        """Those of this machine and of the wheel, named at the first call: by then all that may be called is there."""
        meaning = digest(self._function)
        name = f"{self._function_name}-{meaning[:16]}.{sys.implementation.cache_tag}"
        own, in_wheel = (IndexDataCacheFile(str(path), name, meaning) for path in (self._cache_path, carried.FOLDER))
        return own, in_wheel

    def load_overload(self, *arguments: Any) -> Any:
        found = self._loaded(*arguments)
        if found is None:
            self._missed = time.perf_counter()
            # Of processes that start together, the first to come compiles for all.
            self._lock.close()  # of a compilation that failed
            self._lock = _locked(Path(self.cache_path) / f"{self._function_name}.lock")
            found = self._loaded(*arguments)
            if found is None:
                _announce()
                _show(f"  {self._function_name}")
            else:
                self._done()
        return found

    def _loaded(self, *arguments: Any) -> Any:
        """From the wheel, the highest level first, or last from where code is saved."""
        own, in_wheel = self._files
        for level in carried.levels():
            self._cache_file, self._level = in_wheel, level
            with suppress(OSError, EOFError, UnpicklingError):  # damaged files count as missing ones
                found = super().load_overload(*arguments)
                if found is not None:
                    return found
        self._cache_file, self._level = own, None
        return super().load_overload(*arguments)

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        types, processor, code = super()._index_key(signature, codegen)
        return types, processor if self._level is None else (processor[0], self._level, ""), code

    def save_overload(self, *arguments: Any) -> None:
        super().save_overload(*arguments)
        _show("")
        self._done()

    def _done(self) -> None:
        self._lock.close()
        clock.leave_out(time.perf_counter() - self._missed)


@cache
def _folder_of_this_process() -> str:
    """A folder for machine code, until the process ends."""
    folder = tempfile.mkdtemp(prefix="structsmooth-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _locked(path: Path) -> IO[str]:
    """A file that this process alone has locked, until it is closed; without a lock if there is none to be had."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "w")  # noqa: SIM115 - closed when the function is compiled
    except OSError:  # a read-only folder
        return StringIO()
    for _ in range(int(_PATIENCE / _PAUSE) if fcntl else 0):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:  # another process compiles
            time.sleep(_PAUSE)
    return file


@cache
def _announce() -> None:
    if verbosity() is not Verbosity.QUIET:
        message = "structsmooth: compiling inner loops for this machine, once; this may take twenty seconds"
        print(message, file=sys.stderr, flush=True)


def _show(line: str) -> None:
    """Replace the last line on a terminal; elsewhere do nothing."""
    if sys.stderr.isatty() and verbosity() is not Verbosity.QUIET:
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
