"""Times oracles on the GPU of this machine: Triton kernels beside plain torch, and other libraries where installed.

Each cell is the median of milliseconds for one call, forward and backward where there is a gradient, after the device
has finished. Bandwidth is that of the bytes of potentials, their gradients and outputs, each once, as a share of what a
copy of as many bytes reaches. The table names the card.

    python -m scripts gpu --out runs/gpu.md
"""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from scripts.benchmarks.layers import PEERS, comparisons, run
from scripts.shared.harness import RequestError, command, in_turns, installed, option, print_table
from structsmooth import Alignment, Constituents, ProjectiveTree, SemiMarkov, SpanningTree, Structure, Tree
from structsmooth.decisions import linear_sum_assignment

CHAINS = ((32, 50, 9), (64, 512, 32), (256, 128, 128))
BACKENDS = ("triton", "torch")
# Numbers in the tensors of torch-struct: 8 GB in float32.
LARGEST = 2e9

Run = Callable[[], Any]


class Row(NamedTuple):
    """What is timed: named runs of one query, and the bytes of its potentials, their gradients and outputs."""

    name: str
    runs: Mapping[str, Run]
    bytes: int


def chain_rows(device: str, sizes: Iterable[tuple[int, int, int]]) -> Iterator[Row]:
    """Likelihood and smoothed hinge with their gradients, and Viterbi, beside the libraries that are there."""
    ours = {backend: {"backend": backend, "validate_args": False} for backend in usable(device)}
    peers = {name: library for name, module in PEERS.items() if (library := installed(module)) is not None}
    for (batch, steps, states), layer in chain.from_iterable(
        comparisons(ours, peers, size, 5, LARGEST, device) for size in sizes
    ):
        potentials = 4 * (batch * steps + states) * states
        written = 8 * batch * steps if layer.name == "Viterbi" else potentials
        runs = {name: partial(run, call) for name, call in layer.calls.items()}
        yield Row(f"chain {batch}x{steps}x{states}, {layer.name}", runs, potentials + written)


def usable(device: str) -> tuple[str, ...]:
    """Backends that run on the device."""
    return BACKENDS if device == "cuda" else ("torch",)


def other_rows(device: str, size: int) -> Iterator[Row]:
    """Programs, trees and assignments; ``size`` is their number of words or positions."""

    def scores(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, requires_grad=True)

    def log_partition(build: Callable[..., Structure], *potentials: Tensor, **settings: Any) -> None:
        build(*potentials, validate_args=False, **settings).logsumexp().sum().backward()

    batch, long = 32, 5 * size
    arcs, root, spans = scores(batch, size, size), scores(batch, size), scores(batch, size, size, 1)
    moved = (scores(batch, long, 9), scores(9, 9), scores(8, 9))
    nodes, pairs = scores(batch, size, 9), scores(batch, size, 9, 9)
    parents = (torch.arange(size, device=device) - 1).expand(batch, -1)
    programs: list[tuple[str, Callable[..., Structure], tuple[Tensor, ...]]] = [
        (f"ProjectiveTree {batch}x{size}", ProjectiveTree, (arcs, root)),
        (f"Constituents {batch}x{size}", Constituents, (spans,)),
        (f"SemiMarkov {batch}x{long}x9, 8 long", SemiMarkov, moved),
        (f"Alignment {batch}x{size}x{size}", Alignment, (scores(batch, size, size),)),
    ]
    others: list[tuple[str, Callable[..., Structure], tuple[Tensor, ...]]] = [
        (f"SpanningTree {batch}x{size}", SpanningTree, (arcs, root)),
        (f"Tree {batch}x{size}x9", partial(Tree, parents=parents), (nodes, pairs)),
    ]
    for cases, backends in ((programs, [{"backend": name} for name in usable(device)]), (others, [{}])):
        for name, build, potentials in cases:
            runs = {s.get("backend", "torch"): partial(log_partition, build, *potentials, **s) for s in backends}
            yield Row(name, runs, 2 * sum(scored.nbytes for scored in potentials))
    log_probs = scores(long, batch, 32)
    targets = torch.randint(1, 32, (batch, size), device=device)
    whole = torch.full((batch,), long), torch.full((batch,), size)
    ctc = {"torch's CTC": lambda: ctc_loss(log_probs.log_softmax(-1), targets, *whole).backward()}
    yield Row(f"CTC {batch}x{long}x32", ctc, 2 * log_probs.nbytes)
    costs = torch.rand(16, 10 * size, size, device=device)
    batched: dict[str, Run] = {"this library": lambda: linear_sum_assignment(costs)}
    if (scipy := installed("scipy.optimize")) is not None:
        batched["loop over scipy"] = lambda: [scipy.linear_sum_assignment(cost.cpu().numpy()) for cost in costs]
    yield Row(f"assignment 16x{10 * size}x{size}", batched, costs.nbytes)


def milliseconds(runs: Mapping[str, Run], device: str, duration: float) -> dict[str, float]:
    """Median times of runs that are repeated for some seconds each, after one that compiles kernels."""

    def finished(run: Run) -> None:
        run()
        if device == "cuda":
            torch.cuda.synchronize()

    works = {name: partial(finished, run) for name, run in runs.items()}
    in_turns(works, 1)
    return {name: 1000 * median(times) for name, times in in_turns(works, 1, turn=duration).items()}


def cells(row: Row, device: str, duration: float) -> list[str]:
    """The cells of a row: its name, times in milliseconds, and the share of the bandwidth of a copy."""
    source = torch.empty(max(1, row.bytes // 2), dtype=torch.uint8, device=device)
    copied = milliseconds({"": partial(torch.empty_like(source).copy_, source)}, device, duration)[""]
    times = milliseconds(row.runs, device, duration)
    shown = ", ".join(f"{name} {value:.3g}" for name, value in times.items())
    return [row.name, shown, f"{copied / min(times.values()):.1%}"]


@command(
    option("--out", None, "file to write to as well", type=Path),
    option("--seconds", 1.0, "to repeat each run for"),
    option("--size", 20, "words of sentences in programs"),
    option("--chains", len(CHAINS), "how many sizes of chains"),
    option("--cpu", False, "time plain torch on the CPU, to try this script"),
    threads=None,
)
def main(options: Namespace) -> None:
    """Write the table, and print it."""
    if not (options.cpu or torch.cuda.is_available()):
        raise RequestError("this machine has no GPU that torch can use: --cpu tries the script without one")
    device = "cpu" if options.cpu else "cuda"
    title = f"{'CPU' if options.cpu else torch.cuda.get_device_name()}, torch {torch.__version__}\n"
    print(title)
    rows = chain(chain_rows(device, CHAINS[: options.chains]), other_rows(device, options.size))
    found = (cells(row, device, options.seconds) for row in rows)
    table = print_table(["query", "times in ms", "copy bandwidth"], found, text_columns=2)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(f"{title}\n{table}\n", encoding="utf-8")
