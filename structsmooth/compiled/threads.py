"""Divide a compiled loop over the batch among threads; compiled loops release the GIL."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch

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


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="structsmooth")


# A forked child inherits the pool but not its threads.
os.register_at_fork(after_in_child=_pool.cache_clear)
