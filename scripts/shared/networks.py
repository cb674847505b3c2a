"""Hosts of a network that is made on this machine: namespaces of Linux, behind one switch, with cables of some rate."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from shutil import which

INTERFACE = "eth0"
"""The name of the one network card of each host."""
_NUMBERS = count()


@dataclass(frozen=True)
class Host:
    """A host, on which programs run that see its own network alone, and call it by its name.

    Attributes:
        name: as ``gethostname`` tells it there.
        space: the namespace of its network.
        address: in the network.
        port: its side of the switch, as the namespace and the card there.
    """

    name: str
    space: str
    address: str
    port: tuple[str, str]

    @property
    def prefix(self) -> list[str]:
        """What stands before a command that runs here."""
        named = ["unshare", "--uts", "sh", "-c", f'hostname {self.name} && exec "$@"', "sh"]
        return ["ip", "netns", "exec", self.space, *named]

    def plug(self, state: str) -> None:
        """Pull the cable out (``down``), or put it in again (``up``)."""
        space, card = self.port
        _do("ip", "-n", space, "link", "set", card, state)


def why_not() -> str | None:
    """Why this machine cannot make networks; ``None`` if it can."""
    if missing := [name for name in ("ip", "tc", "unshare") if which(name) is None]:
        return f"networks of namespaces need {', '.join(missing)}"
    if os.geteuid() != 0:
        return "networks of namespaces need root"
    space = f"structsmooth-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", space], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"ip netns: {made.stderr.strip()}"
    _do("ip", "netns", "delete", space)
    return None


@contextmanager
def network(hosts: int, rate: str | None = None) -> Iterator[list[Host]]:
    """Some hosts; in each direction a cable carries at most ``rate``, such as ``1gbit``.

    Raises:
        RuntimeError: the machine cannot make it, with what its tools say.
    """
    common = f"structsmooth-{os.getpid()}-{next(_NUMBERS)}"
    switch = f"{common}-switch"
    with ExitStack() as made:
        _add_space(switch, made)
        _do("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
        _do("ip", "-n", switch, "link", "set", "switch", "up")
        found = []
        for number in range(1, hosts + 1):
            card = f"port{number}"
            host = Host(f"host-{number}", f"{common}-{number}", f"10.77.0.{number}", (switch, card))
            _add_space(host.space, made)
            ends = ("type", "veth", "peer", INTERFACE, "netns", host.space)
            _do("ip", "-n", switch, "link", "add", card, *ends)
            _do("ip", "-n", host.space, "address", "add", f"{host.address}/24", "dev", INTERFACE)
            _do("ip", "-n", host.space, "link", "set", "lo", "up")
            for space, end in (host.port, (host.space, INTERFACE)):
                _do("ip", "-n", space, "link", "set", end, "up")
                if rate is not None:
                    limit = ("tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
                    _do("tc", "-n", space, "qdisc", "add", "dev", end, "root", *limit)
            _do("ip", "-n", switch, "link", "set", card, "master", "switch")
            found.append(host)
        yield found


def sent() -> int:
    """Bytes that the network card of this host has sent."""
    return int(Path(f"/sys/class/net/{INTERFACE}/statistics/tx_bytes").read_text(encoding="ascii"))


def _add_space(name: str, made: ExitStack) -> None:
    _do("ip", "netns", "add", name)
    made.callback(_do, "ip", "netns", "delete", name)


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
