"""Processes notice that another one is lost: its machine without power, its cable out, or its program stopped.

A process that is killed closes its connections, and every wait for it ends at once. One that is lost closes nothing:
without heartbeats, others would wait for it for as long as the kernel resends, or for ever.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Event, Thread
from time import monotonic, sleep

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore, Store

_BEATS = 6  # in the time after which a process is lost
_LEFT = b"left"
_POLL = 0.02  # seconds between looks at who has left


class Heartbeats:
    """What a process has heard of the others.

    Args:
        connect: connects to the store that all processes write into, without waiting; others may wait on connections of
            theirs.
        rank: of this process.
        size: number of processes.
        patience: seconds after which a process that is not heard of is lost.

    Attributes:
        answered: when the store answered for the last time, by a clock that only rises.
    """

    def __init__(self, connect: Callable[[], Store], rank: int, size: int, patience: float) -> None:
        self.connect, self.rank, self.patience = connect, rank, patience
        self._others = [other for other in range(size) if other != rank]
        self._ended = Event()
        self.answered = monotonic()
        # The last beat of each process, and when it came; one that hangs before its first is missed from now on.
        self._heard = dict.fromkeys(self._others, (b"", self.answered))
        self._hosts: dict[int, str] = {}
        self.store = connect()
        self.store.set(f"host/{rank}", socket.gethostname())
        self._beats = [Thread(target=work, daemon=True) for work in (self._beat, self._watch)]

    def start(self) -> None:
        """Write heartbeats, and end this process when another one is lost."""
        for thread in self._beats:
            thread.start()

    def stop(self) -> None:
        """Tell the others that this process leaves."""
        self._ended.set()
        self._beats[0].join(self.patience / _BEATS)

    def wait_for_others(self) -> None:
        """Wait until the others have left, or are lost: the store may end with this process."""
        with suppress(RuntimeError):
            while any(beat != _LEFT and monotonic() - heard < self.patience for beat, heard in self._heard.values()):
                self.exchange(_LEFT)
                sleep(_POLL)

    def lost(self, now: float) -> str | None:
        """What is lost at a moment, if anything is."""
        if now - self.answered > self.patience:
            address = os.environ.get("MASTER_ADDR", "the first process")
            place = f"with process 0 on {self._hosts[0]}" if 0 in self._hosts else f"on {address}"
            return f"the store of the processes, {place}, has not answered for {self.patience:g} s"
        for other, (beat, heard) in self._heard.items():
            if beat != _LEFT and now - heard > self.patience:
                host = self._hosts.get(other, "an unknown host")
                return f"process {other} on {host} has not been heard of for {self.patience:g} s"
        return None

    def exchange(self, beat: bytes) -> None:
        """Write a heartbeat, and read those of the others."""
        self.store.set(f"beat/{self.rank}", beat.decode())
        for other in self._others:
            if found := self._last_beat(other):
                if other not in self._hosts:
                    self._hosts[other] = self.store.get(f"host/{other}").decode()
                if self._heard[other][0] != found:
                    self._heard[other] = found, monotonic()
        self.answered = monotonic()

    def _last_beat(self, other: int) -> bytes:
        name = f"beat/{other}"
        return bytes(self.store.get(name)) if self.store.check([name]) else b""

    def _beat(self) -> None:
        number = 0
        while not self._ended.is_set():
            try:
                self.exchange(b"%d" % number)
            except RuntimeError:
                # Tried again until the patience is over, which the other thread says.
                with suppress(RuntimeError, OSError):
                    self.store = self.connect()
            number += 1
            self._ended.wait(self.patience / _BEATS)
        with suppress(RuntimeError):
            self.exchange(_LEFT)

    def _watch(self) -> None:
        pause, before = self.patience / _BEATS, monotonic()
        while not self._ended.wait(pause):
            now = monotonic()
            if now - before > 2 * pause:  # this process was stopped itself, and could hear nothing
                self.answered = now
                self._heard = {other: (beat, now) for other, (beat, _) in self._heard.items()}
            elif reason := self.lost(now):
                # The main thread may wait in a call that nothing else ends.
                print(f"process {self.rank} ends: {reason}", file=sys.__stderr__, flush=True)
                os._exit(1)
            before = now


@contextmanager
def heartbeats(name: str, rank: int, size: int, patience: float) -> Iterator[None]:
    """In this block, this process ends with a message soon after another one is lost.

    Args:
        name: of the group of processes.
        rank: of this process.
        size: number of processes.
        patience: seconds after which a process that is not heard of is lost.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

    def connect() -> Store:
        # The store would try for long where nobody listens.
        socket.create_connection((address, port), patience / _BEATS).close()
        store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=patience), wait_for_workers=False)
        return PrefixStore(f"{name}/heartbeats", store)

    found = Heartbeats(connect, rank, size, patience)
    found.start()
    try:
        yield
    except BaseException:
        found.stop()
        raise
    found.stop()
    if rank == 0:
        found.wait_for_others()
