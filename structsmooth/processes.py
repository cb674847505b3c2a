"""The processes of a run, as ``torchrun`` starts them: joining them, sharing work out, and putting results together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

T = TypeVar("T")

# For others to finish their share of any work. Who waits for a process that died is told so, or ended by torchrun.
_PATIENCE = timedelta(days=1)


@contextmanager
def joined() -> Iterator[None]:
    """Join the processes that ``torchrun`` started along with this one; without it there is nothing to join.

    Tensors on the CPU travel by gloo; those on GPUs by NCCL, if each process of a machine has its own, else by gloo.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or count() > 1:
        yield
        return
    # Its functions hold the group of the moment of their import as a default. One that outlives this block lets go of
    # tensors in threads while the interpreter ends, which aborts the process: importing it first keeps none alive.
    import torch.distributed.nn.functional

    local_rank, local_count = (int(os.environ.get(name, 0)) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    own_devices = 0 < local_count <= torch.cuda.device_count()
    if own_devices:
        torch.cuda.set_device(local_rank)
    with _noticing_losses():
        distributed.init_process_group("cpu:gloo,cuda:nccl" if own_devices else "gloo", timeout=_PATIENCE)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def count() -> int:
    """Number of processes that joined; 1 if none did."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """Number of this process among them, from 0."""
    return distributed.get_rank() if count() > 1 else 0


def share(n: int) -> range:
    """Which of n things in a row are this process's: as many as others have, or one more or less."""
    return range(rank() * n // count(), (rank() + 1) * n // count())


def share_out(things: Iterable[T]) -> list[T]:
    """Those of some things that are this process's: every N-th, where neighbours may be alike."""
    return list(things)[rank() :: count()]


def wait() -> None:
    """Wait until all processes are here."""
    gathered(None)


def gathered(own: T) -> list[T]:
    """What each process has of anything that can be pickled."""
    everyone: list[Any] = [own] * count()
    if count() > 1:
        with _noticing_losses():
            distributed.all_gather_object(everyone, own)
    return everyone


def concatenated(own: Sequence[T]) -> list[T]:
    """The sequences of all processes, end to end."""
    return [item for part in gathered(list(own)) for item in part]


def summed(own: Tensor) -> Tensor:
    """Sum over processes, the same in all of them: the shape of ``own``."""
    total = own.clone()
    if count() > 1:
        with _noticing_losses():
            distributed.all_reduce(total)
    return total


def from_first(own: Tensor) -> Tensor:
    """The tensor of the first process; others give one of the same shape."""
    first = own.clone()
    if count() > 1:
        with _noticing_losses():
            distributed.broadcast(first, 0)
    return first


def stacked_rows(own: Tensor) -> Tensor:
    """The rows of all processes, [Σ rows, ...]; they may have different numbers of them."""
    rows = gathered(len(own))
    # As broadcasts: gathering needs as many rows of each.
    parts = [own.contiguous() if i == rank() else own.new_empty(size, *own.shape[1:]) for i, size in enumerate(rows)]
    if count() > 1:
        with _noticing_losses():
            for source, part in enumerate(parts):
                distributed.broadcast(part, source)
    return torch.cat(parts)


@contextmanager
def _noticing_losses() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).split(". ")[0]  # advice follows
        raise ConnectionError(f"process {rank()} cannot reach the others, one may have ended ({reason})") from error
