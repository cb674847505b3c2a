"""Processes that join each other, on this machine: two, or more."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from scripts.shared.networks import INTERFACE, Host


def started(
    code: str, *arguments: str, count: int = 2, hosts: Sequence[Host] = (), **variables: str
) -> list[subprocess.Popen[str]]:
    """All, as torchrun would start them, each on a host of its own if there are hosts; they can import what tests can.

    Variables replace those of torchrun.
    """
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    shared |= {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port()}
    if hosts:
        shared |= {"WORLD_SIZE": str(len(hosts)), "LOCAL_WORLD_SIZE": "1"}
        shared |= {"MASTER_ADDR": hosts[0].address, "GLOO_SOCKET_IFNAME": INTERFACE}
    shared |= {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return [
        subprocess.Popen(
            [*start, sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": "0" if hosts else str(rank), **variables},
        )
        for rank, start in enumerate([host.prefix for host in hosts] or [[]] * count)
    ]


def asked(request: pytest.FixtureRequest, runs: Iterable[str]) -> list[str]:
    """Those of some runs that are the ``name`` of tests which this process has to do, of the file of a fixture."""
    of_file = (item for item in request.session.items if item.path == request.path)
    names = {item.callspec.params.get("name") for item in of_file if hasattr(item, "callspec")}
    return [name for name in runs if name in names]


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each; none is left behind."""
    try:
        streams = [process.communicate(timeout=3600) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(processes, streams, strict=True)]


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return str(listener.getsockname()[1])
