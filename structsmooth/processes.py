"""The processes of a run, as ``torchrun`` starts them: joining them, dividing work and data, and combining results."""

import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from socket import gethostname
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor, distributed

from structsmooth.files import checksum, checksum_of_parts, shards

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

T = TypeVar("T")

# How long to wait for the work of others. If one of them dies, the wait fails at once; if it is lost, by heartbeats.
_PATIENCE = timedelta(days=1)
# What torchrun tells a process about its host: the index of the process there, and the number of all.
_PLACE_ON_HOST = (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1))
# Seconds between looks into the store while processes find each other.
_POLL = 0.02


@contextmanager
def joined(patience: float = 60.0) -> Iterator[None]:
    """Join the processes that ``torchrun`` started along with this one; without ``torchrun``, do nothing.

    Tensors on the CPU travel by gloo. Tensors on GPUs travel by NCCL if every process of the machine has a GPU of its
    own, else by gloo.

    A process whose machine is lost, or that hangs, ends the others: with exit code 1 and a message that names it. They
    work on only if ``torchrun`` starts all of them again, from what the program has saved.

    Args:
        patience: seconds after which a process that is not heard of is lost.

    Raises:
        ValueError: a patience that is not positive.
        ConnectionError: the processes do not find each other.
    """
    if not patience > 0:
        raise ValueError(f"patience must be positive, in seconds, got {patience}")
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or count() > 1:
        yield
        return
    # The functions of this module keep the group that exists when they are imported, as a default argument. A group
    # that outlives this block releases tensors in its threads while the interpreter ends, which aborts the process.
    # Importing the module before there is a group avoids that.
    import torch.distributed.nn.functional
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    from structsmooth.heartbeats import heartbeats

    local_rank, local_count = (int(os.environ.get(name, 0)) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    enough_gpus = 0 < local_count <= torch.cuda.device_count()
    if enough_gpus:
        torch.cuda.set_device(local_rank)
    backends = "cpu:gloo,cuda:nccl" if enough_gpus else "gloo"
    with _noticing_losses():
        store, global_rank, size = next(rendezvous("env://", timeout=_PATIENCE))
        name = _agreed_name(store, global_rank, size)
        fresh = PrefixStore(name, store)
        distributed.init_process_group(backends, store=fresh, rank=global_rank, world_size=size, timeout=_PATIENCE)
    # The end of a group waits for its threads, which may need the interpreter's lock to release tensors. In PyTorch 2.5
    # the group holds that lock meanwhile, and its backend does not, so the backend has to be what ends last.
    assert distributed.group.WORLD is not None
    backend = distributed.group.WORLD._get_backend(torch.device("cpu"))
    try:
        with heartbeats(name, global_rank, size, patience):
            yield
    finally:
        distributed.destroy_process_group()
        del backend


def _agreed_name(store: "Store", rank: int, size: int) -> str:
    """A name for this group of processes that no earlier group has had, the same in all of them.

    ``torchrun`` starts processes again if one of them dies, with the store of those before, in which the addresses of
    the dead are. The first process therefore names the group, and tells the name to those that are alive: a name that a
    process receives answers a number that the process has just drawn. The counts of restarts would not do, since those
    of several machines may differ.
    """
    name = nonce = uuid4().hex
    others = range(1, size)
    if rank > 0:
        store.set(f"joins/{rank}", nonce)
        while True:
            if store.check([f"named/{nonce}"]):
                name = str(store.get(f"named/{nonce}").decode())
                store.set(f"heard/{name}/{rank}", "")
                if store.check([f"complete/{name}"]):
                    return name
            time.sleep(_POLL)  # a first process that has died meanwhile is replaced by one that gives another name
    while not all(store.check([f"heard/{name}/{other}"]) for other in others):
        for other in others:
            if store.check([f"joins/{other}"]):  # maybe of a dead process; its successor overwrites it
                store.set(f"named/{store.get(f'joins/{other}').decode()}", name)
        time.sleep(_POLL)
    store.set(f"complete/{name}", "")
    return name


def processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_works_alone = False


@contextmanager
def alone() -> Iterator[None]:
    """A block in which this process does all work itself, as if no other had joined: others do something else."""
    global _works_alone
    before, _works_alone = _works_alone, True
    try:
        yield
    finally:
        _works_alone = before


def count() -> int:
    """Number of joined processes; 1 if none joined."""
    if _works_alone:
        return 1
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """Index of this process among the joined ones, from 0."""
    return distributed.get_rank() if count() > 1 else 0


def share(n: int) -> range:
    """The part of ``range(n)`` that belongs to this process: contiguous, and of equal sizes up to one."""
    return range(rank() * n // count(), (rank() + 1) * n // count())


def owner(i: int, n: int) -> int:
    """The process whose :func:`share` of ``range(n)`` has ``i``."""
    return ((i + 1) * count() - 1) // n


def share_out(items: Iterable[T]) -> list[T]:
    """The items that belong to this process: every N-th, so that runs of similar items are divided evenly."""
    return list(items)[rank() :: count()]


def wait() -> None:
    """Wait until all processes have called this function."""
    gathered(None)


def gathered(value: T) -> list[T]:
    """The objects that the processes pass, in order of rank; they must be picklable."""
    everyone: list[Any] = [value] * count()
    _together(distributed.all_gather_object, everyone, value)
    return everyone


def concatenated(items: Sequence[T]) -> list[T]:
    """The items of the sequences that the processes pass, end to end in order of rank."""
    return [item for sequence in gathered(list(items)) for item in sequence]


def delivered(wanted: Hashable, own: Mapping[Any, Callable[[], T]]) -> T:
    """What a process wants by name, from its own things or else from the first other process that has it.

    Args:
        wanted: a name that some process has.
        own: how this process gets each of the things that it has; none is asked for in vain.

    Raises:
        ValueError, OSError: a process cannot get what it has, in all processes.
    """
    names, ownership = zip(*gathered((wanted, list(own))), strict=True)
    owners = [[process for process, has in enumerate(ownership) if name in has] for name in names]
    senders = [receiver if receiver in having else having[0] for receiver, having in enumerate(owners)]
    asked = {name for name, sender in zip(names, senders, strict=True) if sender == rank()}
    found = run_on_all_ranks(lambda: {name: own[name]() for name in asked})
    for receiver, sender in enumerate(senders):
        parcel: list[Any] = [found.get(names[receiver])]
        if rank() == sender != receiver:
            _together(distributed.send_object_list, parcel, receiver)
        elif rank() == receiver != sender:
            _together(distributed.recv_object_list, parcel, sender)
            found[wanted] = parcel[0]
    return found[wanted]


def run_on_all_ranks(work: Callable[[], T]) -> T:
    """The result of work that every process does on data of its own.

    Raises:
        ValueError, OSError: the work failed in some process. All processes raise the error of the first that failed,
            so none waits for one that has ended.
    """
    failure: Exception | None = None
    try:
        result = work()
    except (ValueError, OSError) as error:
        failure = error
    for failed in filter(None, gathered(failure)):
        raise failed
    return result


def agree(settings: Mapping[str, object]) -> None:
    """Check that all processes have the same settings, such as options, version and data; each gives its own by name.

    Raises:
        ValueError: they differ; the error, the same in all processes, names the first that does.
    """
    everyone = gathered({name: str(value) for name, value in settings.items()})
    for process, others in enumerate(everyone):
        for name in ["solver", *everyone[0], *others]:
            first, value = everyone[0].get(name), others.get(name)
            if first != value:
                raise ValueError(
                    f"processes must have the same options, version and data, and {name} is {first} in process 0 and "
                    f"{value} in process {process}: start all of them alike"
                )


def summed(tensor: Tensor) -> Tensor:
    """Sum over processes, the same in all of them; has the shape of ``tensor``."""
    total = tensor.clone()
    _together(distributed.all_reduce, total)
    return total


def from_first(tensor: Tensor) -> Tensor:
    """The tensor of the first process; the others pass one of the same shape."""
    return from_one(tensor, 0)


def from_one(tensor: Tensor, rank: int) -> Tensor:
    """The tensor of one process; the others pass one of the same shape."""
    received = tensor.clone()
    _together(distributed.broadcast, received, rank)
    return received


def stacked_rows(rows: Tensor) -> Tensor:
    """The rows of all processes, [Σ rows, ...]; their numbers may differ."""
    counts = gathered(len(rows))
    # By broadcasts: gathering needs equal numbers of rows.
    blocks = [rows.contiguous() if i == rank() else rows.new_empty(n, *rows.shape[1:]) for i, n in enumerate(counts)]
    for source, block in enumerate(blocks):
        _together(distributed.broadcast, block, source)
    return torch.cat(blocks)


def _together(operation: Callable[..., Any], *arguments: Any) -> None:
    """Run an operation of all processes; one process alone has nothing to do."""
    if count() > 1:
        with _noticing_losses():
            operation(*arguments)


@contextmanager
def _noticing_losses() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).split(". ")[0]  # advice follows
        index = os.environ.get("RANK", rank())  # also before the processes have joined
        raise ConnectionError(f"process {index} cannot reach the others, one may have ended ({reason})") from error


def process_share(n: int) -> range:
    """The numbers of this process's own examples.

    Raises:
        ValueError: fewer examples than processes.
    """
    if n < count():
        raise ValueError(f"{count()} processes need an example each, got {n} examples in all")
    return share(n)


def host_share(n: int) -> range:
    """The part of ``range(n)`` that belongs to this process, of examples that its host alone has.

    Raises:
        ValueError: fewer examples than processes of the host.
    """
    number, size = _place_on_host()
    if n < size:
        raise ValueError(f"{size} processes of host {gethostname()} need an example each, got {n} examples there")
    return range(number * n // size, (number + 1) * n // size)


def _place_on_host() -> tuple[int, int]:
    """The index of this process among those of its host, and their number."""
    number, size = (int(os.environ.get(name, default)) for name, default in _PLACE_ON_HOST)
    return number, size


def own_files(path: str) -> list[str] | None:
    """The files that this process reads, of those that a pattern stands for: neighbours, as equal in bytes as may be.

    ``None`` if the files are so few, or so unequal, that a process would have none: then all read all of them. Every
    process that joined calls it.

    Raises:
        FileNotFoundError: no file matches the pattern.
        ValueError: the pattern stands for other files in some process.
    """

    def found() -> dict[str, int]:
        files = shards(path)
        return {} if files == [path] else {file: os.path.getsize(file) for file in files}

    everyone, readers = gathered(files := run_on_all_ranks(found)), count()
    for process, others in enumerate(everyone):
        if differing := sorted({*others.items()} ^ {*everyone[0].items()}):
            raise ValueError(
                f"{path}: {differing[0][0]} is not the same in process 0 and process {process}: all hosts need all "
                "files, unless each has files of its own and the command has --local-data"
            )
    if readers == 1 or len(files) < readers:
        return None
    sizes = np.array([*files.values()])
    owners = (2 * sizes.cumsum() - sizes) * readers // (2 * sizes.sum())  # of the byte in the middle of each file
    if len(np.unique(owners)) < readers:
        return None
    return [file for file, owner in zip(files, owners, strict=True) if owner == rank()]


def checksum_of_all(path: str) -> int:
    """The checksum of the training data of all processes, each of which reads its own files.

    Every process that joined calls it.

    Raises:
        ValueError: as for :func:`own_files`.
        OSError: a file that some process cannot read.
    """
    if (files := own_files(path)) is None:
        return run_on_all_ranks(lambda: checksum(path))
    return checksum_of_parts(concatenated(run_on_all_ranks(lambda: list(map(checksum, files)))))


def checksum_of_hosts(path: str) -> int:
    """The checksum of training data of which each host has files of its own. Every process that joined calls it.

    Raises:
        ValueError: two hosts have the same files.
        OSError: a file that some process cannot read.
    """
    first = _place_on_host()[0] == 0
    parts = concatenated(run_on_all_ranks(lambda: [(gethostname(), checksum(path))] if first else []))
    hosts = dict[int, str]()
    for host, found in parts:
        if found in hosts:
            raise ValueError(
                f"--local-data is for hosts with files of their own, and {hosts[found]} and {host} have the same at "
                f"{path}: leave it out"
            )
        hosts[found] = host
    return checksum_of_parts(list(hosts))
