"""What training takes on each of several hosts, and which limit it meets first: ``growth --hosts`` is the command."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from scripts.shared.harness import in_processes, memory
from scripts.shared.networks import INTERFACE, network, sent
from scripts.shared.traffic import Traffic, imitated, measured
from structsmooth import processes
from structsmooth.losses import StructuralHinge
from structsmooth.models import TaggingHead
from structsmooth.problems import SparseChainProblem, partitioned, sharded
from structsmooth.solvers import SVRG, CoCoA, Progress, Solver
from structsmooth.tasks import NER

_ROUNDS = 5
_BATCH, _LENGTH, _PIECES = 16, 24, 30_000  # sentences of a process in a step, pieces of each, and of the vocabulary
_HEADERS = 1538 / 1448  # bytes that Ethernet carries for a byte of TCP
_LATENCY = 1e-4  # seconds that a message takes beside its bytes
_DAY = 86_400.0
LIMITS = ["weights", "examples", "duals", "reading", "compute", "network, 1 Gbit/s", "network, 10 Gbit/s"]
"""What hosts may have too little of: memory, and then time."""
Note = Callable[[], None]


class Moment(NamedTuple):
    """What a process has spent so far.

    Attributes:
        compute: CPU seconds of its own.
        sent: bytes, as counted by formulas.
        awaited: bytes that go one after the other, to it or to others.
        messages: those that waited for each other.
        counted: bytes that its network card has sent.
        network: seconds of exchanges.
    """

    compute: float
    sent: float
    awaited: float
    messages: float
    counted: float
    network: float


class Size(NamedTuple):
    """How large a job is for a process.

    Attributes:
        weights: bytes of all vectors like the weights.
        examples: bytes of the examples.
        duals: bytes of what is kept of each example.
        n: number of examples.
        reading: CPU seconds to read and encode them.
    """

    weights: float
    examples: float
    duals: float
    n: int
    reading: float


Job = Callable[[str, float, int, Note], Size]
"""Trains on a share of the sentences of a file, with an encoder of some width, and notes each round."""


class Way(NamedTuple):
    """A way to train over hosts: what runs, whether hosts have sentences of their own, and rounds until it is done.

    ``rounds`` is given the numbers of sentences and hosts. Unless a round is a pass, its time depends on neither.
    """

    job: Job
    own: bool
    passes: bool
    rounds: Callable[[float, int], float]


def measure_host(name: str, path: str, width: int, imitate: int, share: float = 1.0) -> tuple[Moment, Size]:
    """The median round on a share of the data, of the first process of those that join, or that it is to imitate."""
    moments: list[Moment] = []

    def run(traffic: Traffic, card: Callable[[], int]) -> Size:
        def note() -> None:
            spent = traffic.compute(), traffic.sent, traffic.awaited, traffic.messages, card(), traffic.seconds
            moments.append(Moment(*spent))

        return WAYS[name].job(path, share, width, note)

    if imitate:
        with imitated(imitate) as traffic:
            size = run(traffic, lambda: 0)
    else:
        with measured() as traffic, processes.joined():
            size = run(traffic, sent)
    rounds = np.diff(moments, axis=0)[1:]  # the first has what is done but once
    return Moment(*np.median(rounds, 0).tolist()), size


def _linear(solver: Solver[Any], own: bool) -> Job:
    """A job that trains a linear chain; each process has its ``own`` sentences, or all.

    Processes that are not there have the sentences of the one that takes their place.
    """

    def run(path: str, share: float, width: int, note: Note) -> Size:
        started, task = time.process_time(), NER()
        examples = task.read(path)
        n = round(share * len(examples))
        part: Sequence[int] = processes.share(n)
        if not own:
            part = range(n) if joined_by_others() else [*part] * processes.count()
        local = task.fit(examples).problem([examples[i] for i in part])
        reading = time.process_time() - started
        assert isinstance(local, SparseChainProblem)

        def noted(progress: Progress[Any]) -> None:
            note()

        problem = (partitioned if own else sharded)(local)
        result = solver.solve(problem, lam=10 / n, passes=_ROUNDS, callbacks=(noted,))
        kept = list(result.state.split()[0].values())
        vectors = sum(tensor.nbytes for tensor in kept if tensor.shape[:1] == (local.dim,))
        data = local.sparse
        fields = (data.attributes, data.token_offsets, data.offsets, local.labels, local.data.costs)
        duals = sum(tensor.nbytes for tensor in kept) - vectors
        return Size(vectors, sum(tensor.nbytes for tensor in fields), duals, local.n, reading)

    return run


class Network(nn.Module):
    """Six layers of transformers under a chain of nine tags: the mean loss of a batch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, max(1, width // 64), 4 * width, dropout=0.0, batch_first=True)
        self.words, self.layers = nn.Embedding(_PIECES, width), nn.TransformerEncoder(layer, 6, None, False)
        self.head, self.loss = TaggingHead(width, 9), StructuralHinge.crf("mean")

    def forward(self, words: Tensor, tags: Tensor) -> Tensor:
        """The loss of tags [B, T] of words [B, T]."""
        lengths = torch.full((len(words),), words.shape[1], device=words.device)
        loss: Tensor = self.loss(self.head((self.layers(self.words(words)), lengths)), tags)
        return loss


def _encoder(path: str, share: float, width: int, note: Note) -> Size:
    """A job that makes steps of AdamW; replicas add up their gradients by DDP, or in one sum if it is imitated."""
    started, resident = time.process_time(), memory()["VmRSS"]
    n = len(sentences := NER().read(path))
    reading, examples = time.process_time() - started, (memory()["VmRSS"] - resident) * 2**20
    del sentences
    model, joined = Network(width), joined_by_others()
    replicas: Any = DistributedDataParallel(model) if joined else model
    if joined:
        replicas.register_comm_hook(None, _summed)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    words = torch.randint(_PIECES, (_BATCH, _LENGTH))
    for _ in range(_ROUNDS + 2):
        replicas(words, words % 9).backward()
        if processes.count() > 1 and not joined:
            distributed.all_reduce(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        optimizer.step()
        optimizer.zero_grad()
        note()
    weights = 4 * sum(parameter.nbytes for parameter in model.parameters())  # gradients, and two moments
    return Size(weights, examples, 0.0, n, reading)


def _summed(state: None, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Sums a bucket of gradients while nothing else is computed, so that both can be timed."""
    total = bucket.buffer() / processes.count()
    distributed.all_reduce(total)
    done = torch.futures.Future[Tensor]()
    done.set_result(total)
    return done


def joined_by_others() -> bool:
    """Whether there are other processes."""
    return distributed.group.WORLD is not None


WAYS = {
    "CoCoA": Way(_linear(CoCoA(gap_tolerance=0.0), own=True), True, True, lambda n, hosts: 14 * hosts),
    "SVRG, sharded": Way(_linear(SVRG(), own=False), False, True, lambda n, hosts: 15),
    "encoder, DDP": Way(_encoder, False, False, lambda n, hosts: n / hosts / _BATCH),
}
"""By name. CoCoA took 57 rounds to a gap of 0.05 with four hosts, and they grow with these; SVRG makes 15 by default;
encoders are tuned for an epoch."""


def seconds_of(round_: Moment, gigabits: float) -> float:
    """Seconds of a round by the model: its compute, and then all that the network does."""
    return round_.compute + _HEADERS * 8e-9 * round_.awaited / gigabits + _LATENCY * round_.messages


def simulated(path: str, width: int, hosts: Sequence[int], names: Sequence[str]) -> dict[str, dict[int, Any]]:
    """The median round of a host, and its size, by ways and numbers of hosts; 1 is among them."""
    return {name: {count: _imitation(name, path, width, count, 1.0) for count in sorted({1, *hosts})} for name in names}


def shown_rounds(found: dict[str, dict[int, Any]]) -> Iterator[list[str]]:
    """Rows of a table of what a round takes."""
    for name, by_hosts in found.items():
        for count, (round_, _) in by_hosts.items():
            times = [f"{seconds_of(round_, rate):.3f}" for rate in (1.0, 10.0)]
            yield [name, str(count), f"{round_.compute:.3f}", f"{round_.sent / 1e6:.2f}", *times]


def shown_limits(
    path: str, width: int, names: Sequence[str], hosts: int, sentences: float, ram: float
) -> Iterator[list[str]]:
    """Rows of a table of what a host needs for many sentences, as shares of ``ram`` GB and of a day.

    Seconds and bytes grow as they do from half of the sentences to all.
    """
    for name in names:
        way = WAYS[name]
        half, whole = (_imitation(name, path, width, hosts, share) for share in (0.5, 1.0))
        begin, end = (_imitation(name, path, width, 1, share) for share in (0.5, 1.0)) if way.own else (half, whole)
        whole_n = whole[1].n * (hosts if way.own else 1)
        size, held = end[1], sentences / (hosts if way.own else 1)
        compute, awaited = whole[0].compute, whole[0].awaited
        if way.passes:
            compute += (end[0].compute - begin[0].compute) / (end[1].n - begin[1].n) * held
            awaited *= 1 + (1 - half[0].awaited / awaited) * 2 * (sentences / whole_n - 1)
        network = Moment(0.0, 0.0, awaited, whole[0].messages, 0.0, 0.0)
        each, rounds = held / size.n, way.rounds(sentences, hosts)
        shares = [
            *(nbytes / 1e9 / ram for nbytes in (size.weights, size.examples * each, size.duals * each)),
            size.reading * each / _DAY,
            *(rounds * seconds / _DAY for seconds in (compute, seconds_of(network, 1.0), seconds_of(network, 10.0))),
        ]
        yield [name, *(f"{share:.3g}" for share in shares), LIMITS[int(np.argmax(shares))]]


def shown_checks(path: str, width: int, hosts: Sequence[int], names: Sequence[str], rate: float) -> Iterator[list[str]]:
    """Rows of a table of rounds on hosts with cables of ``rate`` Gbit/s, beside what the model says of them."""
    for name, by_hosts in simulated(path, width, hosts, names).items():
        for count in hosts:
            model, _ = by_hosts[count]
            with network(count, f"{rate:g}gbit") as made:
                joining = {"MASTER_ADDR": made[0].address, "GLOO_SOCKET_IFNAME": INTERFACE}
                joining["TORCH_CPP_LOG_LEVEL"] = "ERROR"
                prefixes = [host.prefix for host in made]
                real, _ = _run(name, path, width, 0, environment=joining, prefixes=prefixes)
            expected, measured_seconds = seconds_of(model, rate), real.compute + real.network
            sizes = model.compute, real.compute, model.sent / 1e6, real.counted / 1e6, expected, measured_seconds
            yield [name, str(count), *(f"{size:.3f}" for size in sizes), f"{measured_seconds / expected:.2f}"]


@cache
def _imitation(name: str, path: str, width: int, hosts: int, share: float) -> tuple[Moment, Size]:
    return _run(name, path, width, hosts, share)


def _run(name: str, path: str, width: int, imitate: int, share: float = 1.0, **settings: Any) -> tuple[Moment, Size]:
    moment, size = in_processes(measure_host, name, path, width, imitate, share, **settings)
    return Moment(*moment), Size(*size)
