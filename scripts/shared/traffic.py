"""What processes send each other: bytes by the formulas of gloo, and seconds; also in one that takes all others' place.

Of an all-reduce of B bytes among K processes each sends 2B(K - 1)/K, in a ring; of objects that are gathered, its own
and all others but one. A broadcast goes down a binomial tree: the process v places behind the source has received after
as many steps as v has bits, and sends to those 2^i places behind itself, for 2^i > v. It ends after ⌈log₂ K⌉ steps.
"""

import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, distributed


@dataclass
class Traffic:
    """What this process, the first of some, has exchanged so far.

    Attributes:
        sent: bytes by the formulas, without headers.
        awaited: bytes that go one after the other until the last process has what it is to have.
        messages: that had to come one after the other.
        seconds: in exchanges, from the moment when all processes were ready for each.
        waited: CPU seconds of the calling thread in exchanges, the wait for the others included.
    """

    sent: float = 0.0
    awaited: float = 0.0
    messages: int = 0
    seconds: float = 0.0
    waited: float = 0.0

    def reduced(self, nbytes: int, size: int) -> None:
        """Count an all-reduce."""
        self._count(2 * nbytes * (size - 1) / size, 2 * (size - 1))

    def broadcast(self, nbytes: int, source: int, size: int) -> None:
        """Count a broadcast."""
        place, depth = -source % size, (size - 1).bit_length()
        receivers = [1 << i for i in range(depth) if place < 1 << i < size - place]
        self._count(nbytes * len(receivers), depth)
        self.awaited += nbytes * (depth - len(receivers))

    def gathered(self, nbytes: int, size: int) -> None:
        """Count objects that all gather, and before them their sizes, of 8 bytes each."""
        self._count((nbytes + 8) * (size - 1), 2 * (size - 1))

    def _count(self, nbytes: float, messages: int) -> None:
        self.sent += nbytes
        self.awaited += nbytes
        self.messages += messages

    def compute(self) -> float:
        """CPU seconds of the calling thread outside of exchanges so far."""
        return time.thread_time() - self.waited


@contextmanager
def measured() -> Iterator[Traffic]:
    """Count and time the exchanges of processes that have joined, or will."""
    found, ready = Traffic(), distributed.all_reduce

    def timed(operation: Callable[..., Any], note: Callable[[Any], None]) -> Callable[..., Any]:
        def exchange(*arguments: Any) -> Any:
            started = time.thread_time()
            ready(torch.zeros(1))  # what follows is no wait for others that still compute
            begun = time.perf_counter()
            result = operation(*arguments)
            found.seconds += time.perf_counter() - begun
            found.waited += time.thread_time() - started
            note(arguments)
            return result

        return exchange

    size = distributed.get_world_size
    with _replaced(
        all_reduce=timed(distributed.all_reduce, lambda given: found.reduced(given[0].nbytes, size())),
        broadcast=timed(distributed.broadcast, lambda given: found.broadcast(given[0].nbytes, given[1], size())),
        all_gather_object=timed(
            distributed.all_gather_object, lambda given: found.gathered(len(pickle.dumps(given[1])), size())
        ),
    ):
        yield found


@contextmanager
def imitated(size: int) -> Iterator[Traffic]:
    """Let this process be the first of so many, of which the others, who are not there, have and do the same."""
    found, same = Traffic(), dict[torch.Size, Tensor]()

    def all_reduce(tensor: Tensor) -> None:
        found.reduced(tensor.nbytes, size)
        tensor.mul_(size)

    def broadcast(tensor: Tensor, source: int) -> None:
        found.broadcast(tensor.nbytes, source, size)
        if source == 0:
            same[tensor.shape] = tensor
        else:  # the first one's turn comes before
            tensor.copy_(same[tensor.shape])

    def all_gather_object(everyone: list[Any], value: Any) -> None:
        found.gathered(len(pickle.dumps(value)), size)
        everyone[:] = [value] * size

    with _replaced(
        all_reduce=all_reduce,
        broadcast=broadcast,
        all_gather_object=all_gather_object,
        is_initialized=lambda: size > 1,
        get_world_size=lambda: size,
        get_rank=lambda: 0,
    ):
        yield found


@contextmanager
def _replaced(**functions: Callable[..., Any]) -> Iterator[None]:
    with ExitStack() as replaced:
        for name, function in functions.items():
            replaced.enter_context(patch.object(distributed, name, function))
        yield
