"""Divide compiled loops among threads; compiled loops release the GIL."""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, TypeVar

import torch

R = TypeVar("R")

# Number of elementary operations (about 1 ns each) from which a second thread saves more time than it costs.
_GRAIN = 200_000


def over_batch(run: Callable[[int, int], None], batch: int, operations: int) -> None:
    """Call ``run(begin, end)`` on ranges that cover ``batch``, on at most ``torch.get_num_threads()`` threads."""
    threads = min(torch.get_num_threads(), batch, 1 + operations // _GRAIN)
    if threads <= 1:
        run(0, batch)
        return
    bounds = [batch * i // threads for i in range(threads + 1)]
    for done in _pool(torch.get_num_threads()).map(run, bounds[:-1], bounds[1:]):
        assert done is None


def on_threads(run: Callable[[int], R], threads: int) -> list[R]:
    """``[run(0), ..., run(threads - 1)]``, at the same time; a single one on the thread of the caller."""
    return [run(0)] if threads == 1 else list(_pool(threads).map(run, range(threads)))


_of_passes = ContextVar("threads of passes", default=1)


@contextmanager
def sharing_passes(threads: int) -> Iterator[None]:
    """In this block, so many threads share each pass over all examples, where a problem has compiled ones.

    The results depend on the number of threads by rounding, and on nothing else.
    """
    token = _of_passes.set(threads)
    try:
        yield
    finally:
        _of_passes.reset(token)


def of_passes() -> int:
    """Number of threads that share a pass over all examples; see :func:`sharing_passes`."""
    return _of_passes.get()


def on_own_thread(function: Callable[..., R]) -> Callable[..., R]:
    """A function that may differentiate inside of an operator: modes, hooks and transforms of the caller are away."""

    @wraps(function)
    def call(*arguments: Any) -> R:
        return _pool(1).submit(torch.no_grad()(function), *arguments).result()

    return call


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="structsmooth")


if sys.platform != "win32":  # where nothing forks
    # A forked child inherits the pools but not their threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)
