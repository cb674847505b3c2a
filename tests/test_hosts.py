"""Hosts that are lost, leave and join: namespaces of Linux, which this file makes as root, and agents of torchrun."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from source_tree import ROOT
from two_processes import ended, free_port, started

from scripts.shared.networks import network
from structsmooth.checkpoint import load_values
from structsmooth.history import History

COMMAND = "import sys; from structsmooth.cli import main; sys.exit(main())"
ENDLESS = ("train", "ner", "--solver", "cocoa", "--bits", "10", "--gap-tolerance", "0", "--out", "model")


@pytest.mark.long
@pytest.mark.usefixtures("networks")
@pytest.mark.parametrize("pulled", [0, 1])
def test_both_hosts_notice_a_cable_that_is_pulled_and_go_on_when_it_is_back(
    pulled: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    history = Path("model/history.jsonl")
    with network(2) as hosts:
        both = started(COMMAND, *ENDLESS, "--passes", "1000000", "--patience", "3", hosts=hosts)
        try:
            limit = time.monotonic() + 240
            while not history.exists() and time.monotonic() < limit and all(one.poll() is None for one in both):
                time.sleep(0.05)
            hosts[pulled].plug("down")
            begun = time.monotonic()
            texts = [one.communicate(timeout=60)[1] for one in both]
            took = time.monotonic() - begun
        finally:
            for one in both:
                one.kill()
        assert [one.returncode for one in both] == [1, 1]
        assert "process 0 ends: process 1 on host-2 has not been heard of for 3 s" in texts[0]
        assert (
            "process 1 ends: the store of the processes, with process 0 on host-1, has not answered for 3" in texts[1]
        )
        assert took < 30  # some seconds where the machine does nothing else
        hosts[pulled].plug("up")
        passes = str(len(history.read_text().splitlines()) + 1)
        ends = ended(started(COMMAND, *ENDLESS, "--passes", passes, "--resume", hosts=hosts))
        assert [status for status, *_ in ends] == [0, 0], ends
        assert "saved in model" in ends[0][1]


CHECKPOINT = Path("model/checkpoint.safetensors")


def agent(port: str, number: int) -> subprocess.Popen[bytes]:
    """One of torchrun, as a host of one process runs it, with short waits."""
    torchrun = ["-m", "torch.distributed.run", "--nnodes", "1:4", "--nproc-per-node", "1", "--max-restarts", "3"]
    waits = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-conf", waits]
    train = [str(ROOT / "scripts" / "train.py"), *ENDLESS[1:], "--passes", "1000000", "--resume", "--patience", "5"]
    with open(f"errors{number}", "wb") as errors:
        return subprocess.Popen(
            [sys.executable, *torchrun, *meeting, *train],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        )


def lose(host: subprocess.Popen[bytes]) -> None:
    """Kill an agent and its process."""
    children = Path(f"/proc/{host.pid}/task/{host.pid}/children").read_text()
    for number in (host.pid, *map(int, children.split())):
        os.kill(number, signal.SIGKILL)
    host.wait()


def passes_of(processes: int, limit: float) -> int:
    """Passes of the first checkpoint that so many processes save."""
    while time.monotonic() < limit:
        if CHECKPOINT.exists():
            values = load_values(CHECKPOINT)
            if max(1, len(values.get("hosts", []))) == processes and values["state"]["passes"] > 0:
                return int(values["state"]["passes"])
        time.sleep(0.1)
    raise TimeoutError(f"no checkpoint of {processes} processes: {Path('errors0').read_text()}")


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children of agents as Linux lists them")
def test_a_host_joins_and_another_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    port, limit = free_port(), time.monotonic() + 400
    hosts = [agent(port, 0)]
    try:
        alone = passes_of(1, limit)
        hosts.append(agent(port, 1))
        together = passes_of(2, limit)
        lose(hosts.pop())
        again = passes_of(1, limit)
    finally:
        for host in hosts:
            lose(host)
    assert alone <= together <= again
    history = History.load("model/history.jsonl")
    assert [row.passes for row in history] == list(range(len(history)))
    duals = history.column("dual")
    assert all(after >= before - 1e-12 for before, after in pairwise(duals))
