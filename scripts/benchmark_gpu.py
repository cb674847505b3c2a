"""Times oracles on the GPU of this machine: Triton kernels beside plain torch, and other libraries where installed.

Each cell is the median of milliseconds for one call, forward and backward where there is a gradient, after the device
has finished. Bandwidth is that of the bytes of potentials, their gradients and outputs, each once, as a share of what a
copy of as many bytes reaches. The table names the card.

    python scripts/benchmark_gpu.py --out runs/gpu.md
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from scripts.benchmark_layers import pytorch_crf, torch_struct_chain
from scripts.harness import RequestError, command, installed, option, print_table, seconds
from structsmooth import (
    L2,
    Alignment,
    Constituents,
    LinearChain,
    ProjectiveTree,
    SemiMarkov,
    SpanningTree,
    StructuralHinge,
    Structure,
    Tree,
    linear_sum_assignment,
)

CHAINS = ((32, 50, 9), (64, 512, 32), (256, 128, 128))
BACKENDS = ("triton", "torch")
# Numbers in the tensors of torch-struct: 8 GB in float32.
LARGEST = 2e9

Run = Callable[[], Any]


class Row(NamedTuple):
    """What is timed: named runs of one query, and the bytes of its potentials, their gradients and outputs."""

    name: str
    runs: dict[str, Run]
    bytes: int


def chain_rows(device: str, sizes: tuple[tuple[int, int, int], ...]) -> Iterator[Row]:
    """Likelihood and smoothed hinge with their gradients, and Viterbi."""
    for batch, steps, states in sizes:
        unary = torch.randn(batch, steps, states, device=device, requires_grad=True)
        transition = torch.randn(states, states, device=device, requires_grad=True)
        y = torch.randint(states, (batch, steps), device=device)
        size, moved = f"{batch}x{steps}x{states}", unary.nbytes + transition.nbytes

        def chain(backend: Any, unary: Tensor = unary, transition: Tensor = transition) -> LinearChain:
            return LinearChain(unary, transition, validate_args=False, backend=backend)

        yield Row(f"chain {size}, likelihood", losses(chain, y) | others(unary, transition, y), 2 * moved)
        yield Row(f"chain {size}, smoothed hinge, K = 5", losses(chain, y, StructuralHinge(L2(k=5))), 2 * moved)
        best: dict[str, Run] = {backend: chain(backend).max for backend in usable(device)}
        yield Row(f"chain {size}, max", best, moved + y.nbytes)


def others(unary: Tensor, transition: Tensor, y: Tensor) -> dict[str, Run]:
    """A likelihood by the libraries that are there; torch-struct, if its tensors of B T S³ numbers are small enough."""
    found: dict[str, Run] = {}
    if (module := installed("torchcrf")) is not None:
        layer = pytorch_crf(module, transition).to(unary.device)
        found["pytorch-crf"] = lambda: (-layer(unary, y, reduction="mean")).backward()
    if (module := installed("torch_struct")) is not None and unary.numel() * unary.shape[2] ** 2 <= LARGEST:
        library = module
        found["torch-struct"] = lambda: torch_struct_chain(library, unary, transition).partition.sum().backward()
    return found


def usable(device: str) -> tuple[str, ...]:
    """Backends that run on the device."""
    return BACKENDS if device == "cuda" else ("torch",)


def losses(build: Callable[[Any], Structure], y: Tensor, loss: StructuralHinge | None = None) -> dict[str, Run]:
    """Losses, likelihoods if none is given, by each backend."""
    own = StructuralHinge.crf() if loss is None else loss

    def run(backend: str) -> None:
        own(build(backend), y).backward()

    return {backend: partial(run, backend) for backend in usable(y.device.type)}


def values(build: Callable[[Any], Structure], device: str) -> dict[str, Run]:
    """Log-partition functions with their gradients by each backend."""

    def run(backend: str) -> None:
        build(backend).logsumexp().sum().backward()

    return {backend: partial(run, backend) for backend in usable(device)}


def other_rows(device: str, size: int) -> Iterator[Row]:
    """Programs, trees and assignments; ``size`` is their number of words or positions."""

    def scores(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, requires_grad=True)

    options: dict[str, Any] = {"validate_args": False}
    batch = 32
    arcs, root = scores(batch, size, size), scores(batch, size)
    moved = 2 * (arcs.nbytes + root.nbytes)
    yield Row(
        f"ProjectiveTree {batch}x{size}",
        values(lambda b: ProjectiveTree(arcs, root, backend=b, **options), device),
        moved,
    )
    eliminated = {"torch": lambda: SpanningTree(arcs, root, **options).logsumexp().sum().backward()}
    yield Row(f"SpanningTree {batch}x{size}", eliminated, moved)
    spans = scores(batch, size, size, 1)
    yield Row(
        f"Constituents {batch}x{size}",
        values(lambda b: Constituents(spans, backend=b, **options), device),
        2 * spans.nbytes,
    )
    unary, transition, durations = scores(batch, 5 * size, 9), scores(9, 9), scores(8, 9)
    yield Row(
        f"SemiMarkov {batch}x{5 * size}x9, 8 long",
        values(lambda b: SemiMarkov(unary, transition, durations, backend=b, **options), device),
        2 * (unary.nbytes + transition.nbytes + durations.nbytes),
    )
    aligned = scores(batch, size, size)
    yield Row(
        f"Alignment {batch}x{size}x{size}",
        values(lambda b: Alignment(aligned, backend=b, **options), device),
        2 * aligned.nbytes,
    )
    nodes, pairs = scores(batch, size, 9), scores(batch, size, 9, 9)
    parents = (torch.arange(size, device=device) - 1).expand(batch, -1)
    tree = {"torch": lambda: Tree(nodes, pairs, parents, **options).logsumexp().sum().backward()}
    yield Row(f"Tree {batch}x{size}x9", tree, 2 * (nodes.nbytes + pairs.nbytes))
    log_probs = scores(5 * size, batch, 32)
    targets = torch.randint(1, 32, (batch, size), device=device)
    whole = torch.full((batch,), 5 * size), torch.full((batch,), size)
    ctc = {"torch's CTC": lambda: ctc_loss(log_probs.log_softmax(-1), targets, *whole).backward()}
    yield Row(f"CTC {batch}x{5 * size}x32", ctc, 2 * log_probs.nbytes)
    costs = torch.rand(16, 10 * size, size, device=device)
    batched: dict[str, Run] = {"this library": lambda: linear_sum_assignment(costs)}
    if (scipy := installed("scipy.optimize")) is not None:
        batched["loop over scipy"] = lambda: [scipy.linear_sum_assignment(cost.cpu().numpy()) for cost in costs]
    yield Row(f"assignment 16x{10 * size}x{size}", batched, costs.nbytes)


def milliseconds(run: Run, device: str, duration: float) -> float:
    """Median time of a run that is repeated for some seconds."""

    def finished() -> None:
        run()
        if device == "cuda":
            torch.cuda.synchronize()

    finished()  # compiles kernels
    times, end = [seconds(finished)], time.perf_counter() + duration
    while time.perf_counter() < end:
        times.append(seconds(finished))
    return 1000 * median(times)


def cells(row: Row, device: str, duration: float) -> list[str]:
    """What a row of the table has."""
    times = {name: milliseconds(run, device, duration) for name, run in row.runs.items()}
    source = torch.empty(max(1, row.bytes // 2), dtype=torch.uint8, device=device)
    copied = milliseconds(partial(torch.empty_like(source).copy_, source), device, duration)
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


if __name__ == "__main__":
    raise SystemExit(main())
