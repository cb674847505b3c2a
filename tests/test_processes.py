"""Processes join and leave."""

import socket
import time
from importlib import import_module
from threading import Thread
from time import monotonic

import pytest
from torch.distributed import HashStore, TCPStore
from two_processes import ended, free_port, started

from structsmooth import processes
from structsmooth.heartbeats import Heartbeats

LEAVING = """
import weakref
from torch import distributed
from structsmooth import processes
with processes.joined():
    import torch._dynamo  # imports many modules of torch that use groups
    group = weakref.ref(distributed.group.WORLD)
    processes.wait()
print("left" if group() is None else "kept")
"""

RELEASING = """
import torch
from torch import distributed
from structsmooth import processes
with processes.joined():
    for _ in range(8):
        distributed.all_reduce(torch.ones(1_000_000), async_op=True)
print("left")
"""


def test_nothing_keeps_the_group_alive():
    """The threads of a group that stays alive would run on while the interpreter ends."""
    ends = ended(started(LEAVING))
    assert [(status, output) for status, output, _ in ends] == [(0, "left\n")] * 2, ends


def test_the_group_ends_while_its_threads_release_tensors():
    """They need the interpreter's lock, which the end of the group must not hold."""
    ends = ended(started(RELEASING))
    assert [(status, output) for status, output, _ in ends] == [(0, "left\n")] * 2, ends


STARTED_AGAIN = """
import os, sys, time
import torch
from structsmooth import processes
with processes.joined():
    total = processes.summed(torch.tensor([processes.rank() + 1.0]))
    print(f"sum {total.item():g}", flush=True)
    if sys.argv[1] == "dies":
        if processes.rank() == int(sys.argv[2]):
            os.kill(os.getpid(), 9)
        processes.wait()
"""


def test_processes_that_are_started_again_find_each_other():
    """With the store of torchrun, which keeps what those before have written: addresses at which nobody listens."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    variables = {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for dying in ("0", "1"):
        for status, output, errors in ended(started(STARTED_AGAIN, "dies", dying, **variables)):
            assert output == "sum 3\n"
            assert status == -9 or "cannot reach the others, one may have ended" in errors
    ends = ended(started(STARTED_AGAIN, "lives", **variables))
    assert [(status, output) for status, output, _ in ends] == [(0, "sum 3\n")] * 2, ends


def test_a_process_that_dies_before_all_have_joined_is_replaced():
    """Its name for the group, or its answer, may be in the store."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    variables = {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    first, second = started(STARTED_AGAIN, "lives", **variables)
    second.kill()  # most likely while it imports torch
    second.communicate()
    store.set("joins/1", "a process that has died")
    store.wait(["named/a process that has died"])  # the first has answered it
    first.kill()
    first.communicate()
    ends = ended(started(STARTED_AGAIN, "lives", **variables))
    assert [(status, output) for status, output, _ in ends] == [(0, "sum 3\n")] * 2, ends


def test_errors_name_the_process_before_it_has_joined(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setattr(import_module("torch.distributed.rendezvous"), "rendezvous", unreachable)
    match = r"^process 3 cannot reach the others, .* \(nobody listens\)$"
    with pytest.raises(ConnectionError, match=match), processes.joined():
        pass


def test_all_processes_get_one_name():
    """The first waits until each of the others has it, and for nobody else."""
    store, names = HashStore(), {}

    def join(rank):
        names[rank] = processes._agreed_name(store, rank, 3)

    threads = [Thread(target=join, args=(rank,), daemon=True) for rank in range(3)]
    for thread in (threads[0], threads[1]):
        thread.start()
    threads[0].join(0.2)
    assert not names  # the third has not come
    threads[2].start()
    for thread in threads:
        thread.join(60)
    assert len(names) == 3
    assert len({*names.values()}) == 1


def unreachable(*_arguments, **_settings):
    raise RuntimeError("nobody listens. Advice")


def test_processes_that_differ_are_named(monkeypatch):
    processes.agree({"seed": 0})
    monkeypatch.setattr(processes, "gathered", lambda own: [own, own | {"seed": "1"}, own | {"solver": "sgd"}])
    with pytest.raises(ValueError, match="version and data, and seed is 0 in process 0 and 1 in process 1: start all"):
        processes.agree({"seed": 0, "lam": "1/n"})
    monkeypatch.setattr(processes, "gathered", lambda own: [own, {"solver": "sgd", "eta": "1"}])
    with pytest.raises(ValueError, match="solver is bcfw in process 0 and sgd in process 1"):
        processes.agree({"lam": "1/n", "solver": "bcfw"})


WAITING = """
import os, signal, sys, time
import torch
from structsmooth import processes
with processes.joined(patience=3.0):
    if processes.rank() == int(sys.argv[1]):
        processes.wait()
        print("stops", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    processes.wait()
    processes.summed(torch.ones(1))  # of the other, which never comes
"""


@pytest.mark.long
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_process_that_hangs_is_named_and_ends_the_others(stopped):
    both = started(WAITING, str(stopped))
    try:
        other = both[1 - stopped]
        _, errors = other.communicate(timeout=60)
        assert other.returncode == 1
        assert f"process {1 - stopped} ends: " in errors
        name = socket.gethostname()
        assert f"process {stopped} on {name} has not been heard of for 3 s" in errors or "the store" in errors
    finally:
        for process in both:
            process.kill()
        both[stopped].communicate()


class FailingStore(HashStore):
    """Answers so many times, and then no more."""

    answers = 3

    def set(self, key, value):
        self.answers -= 1
        if self.answers < 0:
            raise RuntimeError("Connection reset by peer")
        super().set(key, value)


def test_a_store_that_fails_once_is_asked_again():
    stores = [FailingStore(), HashStore()]
    found = Heartbeats(lambda: stores.pop(0), 0, 1, 0.6)
    begun = found.answered
    found.start()
    time.sleep(1.0)
    found.stop()
    assert not stores
    assert found.answered - begun > 0.9


def test_the_first_process_leaves_last():
    store = HashStore()
    first, second = (Heartbeats(lambda: store, rank, 2, 60.0) for rank in range(2))
    waiting = Thread(target=first.wait_for_others, daemon=True)
    waiting.start()
    second.exchange(b"0")
    waiting.join(0.2)
    assert waiting.is_alive()
    second.exchange(b"left")
    waiting.join(30)
    assert not waiting.is_alive()
    lost = Heartbeats(HashStore, 0, 2, 0.1)
    lost.wait_for_others()  # of whom one was never heard of


STORE = """
import sys, time
from torch.distributed import TCPStore
store = TCPStore("localhost", int(sys.argv[1]), is_master=True, wait_for_workers=False)
print("listens", flush=True)
time.sleep(600)
"""
ALONE = """
import time
from structsmooth import processes
with processes.joined(patience=3.0):
    processes.wait()
    print("joined", flush=True)
    time.sleep(600)
"""


@pytest.mark.long
def test_processes_whose_store_ends_end():
    """As an agent of torchrun that is killed while its processes live, which wait for nobody."""
    port = free_port()
    store = started(STORE, port, count=1)[0]
    assert store.stdout.readline() == "listens\n"
    both = started(ALONE, MASTER_PORT=port, TORCHELASTIC_USE_AGENT_STORE="True")
    try:
        assert [process.stdout.readline() for process in both] == ["joined\n"] * 2
        store.kill()
        begun = monotonic()
        for rank, process in enumerate(both):
            _, errors = process.communicate(timeout=60)
            assert f"process {rank} ends: the store of the processes, " in errors
            assert "has not answered for 3 s" in errors
            assert process.returncode == 1
        assert monotonic() - begun < 30
    finally:
        ended([store, *both])


def test_who_is_lost(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    store = HashStore()
    first, second = (Heartbeats(lambda: store, rank, 2, 60.0) for rank in range(2))
    first.exchange(b"0")
    now = monotonic()
    first.answered = now + 61
    assert first.lost(now + 61) == "process 1 on an unknown host has not been heard of for 60 s"  # hangs from the start
    second.exchange(b"0")
    first.exchange(b"1")
    now = monotonic()
    assert first.lost(now) is None
    assert first.lost(now + 59) is None
    assert first.lost(now + 61) == "the store of the processes, on the first process, has not answered for 60 s"
    first.answered = now + 61
    assert first.lost(now + 61) == f"process 1 on {socket.gethostname()} has not been heard of for 60 s"
    second.exchange(b"left")
    first.exchange(b"2")
    first.answered = now + 200
    assert first.lost(now + 200) is None
