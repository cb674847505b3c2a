"""Time of chain layers, forward and backward on the CPU, beside those of pytorch-crf and torch-struct.

Scores are float32 with gradients, transitions are shared, all sequences have T positions. The libraries compute the
same: the negative log-likelihood of a CRF, the best sequences, and a hinge smoothed over the K best outputs, for which
torch-struct has a K-max semiring. They take turns; cells are medians in milliseconds and, in brackets, how many
times as long as ours. Both are optional: pip install 'structsmooth[benchmarks]'. torch-struct is left out where its
intermediate tensors, of B T S³ numbers (K² times as many for K-max), would be too large (see --largest); a further row
then has as many sequences as it can take, if any.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scripts.shared.harness import RequestError, command, in_turns, installed, option, print_table, sizes
from structsmooth import L2, Candidates, LinearChain, StructuralHinge

_SHAPES = ("32x50x9", "32x200x32", "8x50x128")
PEERS = {"pytorch-crf": "torchcrf", "torch-struct": "torch_struct"}
_OURS: dict[str, dict[str, Any]] = {"structsmooth": {}, "validate_args=False": {"validate_args": False}}
# Seconds of calls of one library before those of the next.
_TURN = 0.2


# Sequences, positions and states: B, T, S.
Shape = tuple[int, int, int]


class Batch(NamedTuple):
    """Scores of B sequences, leaves of the graph, and labels."""

    unary: Tensor
    transition: Tensor
    y: Tensor

    @classmethod
    def random(cls, shape: Shape, device: str = "cpu") -> "Batch":
        """Normally distributed scores and uniform labels of B, T, S."""
        generator = torch.Generator().manual_seed(0)
        unary, transition = (torch.randn(size, generator=generator).to(device) for size in (shape, 2 * shape[2:]))
        y = torch.randint(shape[2], shape[:2], generator=generator).to(device)
        return cls(unary.requires_grad_(), transition.requires_grad_(), y)


class Layer(NamedTuple):
    """What is compared: for each library, a function that gives a loss or labels.

    ``width`` is by how much the tensors of torch-struct are larger than for a likelihood.
    """

    name: str
    width: int
    calls: dict[str, Callable[[], Tensor]]


def layers(ours: Mapping[str, Mapping[str, Any]], peers: Mapping[str, Any], batch: Batch, k: int) -> list[Layer]:
    """All layers, on one batch, with some settings of our chains and by the libraries there are."""
    unary, transition, y = batch
    crf, hinge = StructuralHinge.crf(), StructuralHinge(L2(1.0, k))

    def by_us(compute: Callable[..., Tensor], *scores: Tensor) -> dict[str, Callable[[], Tensor]]:
        return {name: lambda form=form: compute(LinearChain(*scores, **form)) for name, form in ours.items()}  # type: ignore[misc]

    likelihood = by_us(lambda chain: crf(chain, y), unary, transition)
    best = by_us(lambda chain: chain.max()[1], unary.detach(), transition.detach())
    smoothed = by_us(lambda chain: hinge(chain, y), unary, transition)
    if "pytorch-crf" in peers:
        theirs = pytorch_crf(peers["pytorch-crf"], transition)
        likelihood["pytorch-crf"] = lambda: -theirs(unary, y, reduction="mean")
        best["pytorch-crf"] = lambda: torch.tensor(theirs.decode(unary.detach()))
    if "torch-struct" in peers:
        likelihood["torch-struct"] = partial(_torch_struct_likelihood, peers["torch-struct"], batch)
        smoothed["torch-struct"] = partial(_torch_struct_hinge, peers["torch-struct"], batch, k)
    return [
        Layer("CRF likelihood", 1, likelihood),
        Layer("Viterbi", 1, best),
        Layer(f"smoothed hinge, K = {k}", k**2, smoothed),
    ]


def comparisons(
    ours: Mapping[str, Mapping[str, Any]],
    peers: Mapping[str, Any],
    shape: Shape,
    k: int,
    largest: float,
    device: str = "cpu",
) -> Iterator[tuple[Shape, Layer]]:
    """Every layer with the libraries that can take the shape, and with a smaller batch that torch-struct can take."""
    batch, steps, states = shape
    for index, layer in enumerate(layers(ours, peers, Batch.random(shape, device), k)):
        fitting = int(largest / (steps * states**3 * layer.width))
        if "torch-struct" not in layer.calls or batch <= fitting:
            yield shape, layer
            continue
        del layer.calls["torch-struct"]
        yield shape, layer
        if fitting:
            smaller = fitting, steps, states
            yield smaller, layers(ours, peers, Batch.random(smaller, device), k)[index]


def pytorch_crf(module: Any, transition: Tensor) -> Any:
    """Their layer with these transitions and no scores of the ends."""
    crf = module.CRF(len(transition), batch_first=True).to(transition.device)
    with torch.no_grad():
        crf.start_transitions.zero_()
        crf.end_transitions.zero_()
        crf.transitions.copy_(transition)
    return crf


def torch_struct_chain(module: Any, unary: Tensor, transition: Tensor) -> Any:
    """Their distribution; entry [b, t, j, i] of its potentials is for y_t = i, y_{t+1} = j."""
    first = torch.nn.functional.pad(unary[:, :1], (0, 0, 0, unary.shape[1] - 2))
    return module.LinearChainCRF(transition.T + unary[:, 1:].unsqueeze(-1) + first.unsqueeze(-2))


def _torch_struct_likelihood(module: Any, batch: Batch) -> Tensor:
    unary, transition, y = batch
    log_z: Tensor = torch_struct_chain(module, unary, transition).partition
    return (log_z - LinearChain(unary, transition).score(y)).mean()


def _torch_struct_hinge(module: Any, batch: Batch, k: int) -> Tensor:
    """The hinge of :class:`L2` over the K largest scores."""
    unary, transition, y = batch
    wrong = torch.arange(unary.shape[-1]) != y.unsqueeze(-1)
    best: Tensor = torch_struct_chain(module, unary + wrong.to(unary.dtype), transition).kmax(k)
    return (L2(1.0, k)(Candidates(best.T)) - LinearChain(unary, transition).score(y)).mean()


def run(call: Callable[[], Tensor]) -> Tensor:
    """Forward, and backward if there is anything to differentiate."""
    result = call()
    if result.requires_grad:
        result.backward()
    return result.detach()


def measure(calls: dict[str, Callable[[], Tensor]], repeats: int, limit: float) -> dict[str, float]:
    """Median seconds of each call, of turns that are long; one that has used up ``limit`` seconds is called no more."""
    results = {name: run(call) for name, call in calls.items()}  # loads and compiles
    first = next(iter(results.values())).double()
    for name, result in results.items():
        # Ties aside, best sequences are the same; sums round in float32.
        torch.testing.assert_close(result.double(), first, rtol=1e-3, atol=1e-3, msg=_differs(name))
    works = {name: partial(run, call) for name, call in calls.items()}
    return {name: median(times) for name, times in in_turns(works, repeats, turn=_TURN, limit=limit).items()}


def _differs(name: str) -> Callable[[str], str]:
    return lambda message: f"{name} computes something else: {message}"


def _cell(name: str, times: dict[str, float]) -> str:
    if name not in times:
        return "—"
    text, (first, unit), *_ = f"{1e3 * times[name]:.2f}", *times.items()
    return text if name == first else f"{text} ({times[name] / unit:.1f}x)"


@command(
    option("--shapes", [*_SHAPES], "sequences, positions and states", type=sizes(3), metavar="BxTxS"),
    option("--threads", [1, 2], least=1, metavar="N"),
    option("--k", 5, "outputs of the smoothed hinge", least=1, metavar="K"),
    option("--repeats", 11, f"turns of {_TURN} s", least=1, metavar="N"),
    option("--limit", 10.0, "seconds for the calls of one cell"),
    option("--largest", 3e8, "numbers in a tensor of torch-struct at most"),
    threads=None,
)
def main(options: Namespace) -> None:
    """Measure every shape, number of threads and layer, and print the table."""
    if any(shape[1] < 2 for shape in options.shapes):
        raise RequestError("--shapes need T of at least 2: torch-struct knows no shorter sequences")
    peers = {name: library for name, module in PEERS.items() if (library := installed(module)) is not None}
    for name in PEERS.keys() - peers.keys():
        print(f"{name} is not installed, so its column is left out: pip install 'structsmooth[benchmarks]'")
    names = (*_OURS, *peers)
    print(f"medians of {options.repeats} turns of {_TURN} s, or of what {options.limit:g} s allow, in milliseconds\n")
    threads = torch.get_num_threads()
    print_table(["layer", "B x T x S", "threads", *names], rows(peers, names, options), text_columns=2)
    torch.set_num_threads(threads)


def rows(peers: dict[str, Any], names: Sequence[str], options: Namespace) -> Iterator[list[str]]:
    """Times of every layer, shape and number of threads."""
    for shape, threads in product(options.shapes, options.threads):
        torch.set_num_threads(threads)
        for size, layer in comparisons(_OURS, peers, shape, options.k, options.largest):
            times = measure(layer.calls, options.repeats, options.limit)
            cells = [_cell(name, times) for name in names]
            yield [layer.name, "x".join(map(str, size)), str(threads), *cells]
