"""Calls of the max oracle that SparseMAP takes on chains of 50 positions and on images, for scores of several kinds.

The tagger of ``compare_targets`` is trained on the embedded sentences and scores stretches of 50 words of the test
file; the other scores are normal. Images are graph cuts of a disc under normal noise, with neighbours that agree. The
table has medians over the chains or images: calls, outputs with weight, and calls if the search starts from the
solution for scores that differ by a tenth of their scale; and milliseconds for each, beside those of the max oracle.
"""

import time
from argparse import Namespace
from collections.abc import Iterator
from itertools import product
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from scripts.comparisons.targets import Data, encode, fit, labels_of
from scripts.shared.harness import command, option
from structsmooth import BinaryGraph, LinearChain, StructuralHinge
from structsmooth.structures import sparse_map
from structsmooth.tasks import NER

_LENGTH = 50
Parts = Literal["all", "first"]


def trained(count: int, epochs: int) -> LinearChain:
    """Stretches of the test file as a CRF scores them."""
    files = NER.default_files()
    data, crf = Data.read(files["train"], files["test"]), StructuralHinge.crf()

    def loss(chain: LinearChain, rows: Tensor, done: float) -> Tensor:
        return crf(chain, labels_of(data.y, rows))

    tagger = fit(data, data.full, loss, torch.arange(len(data.y)), epochs, 0)
    words = [word for sentence in NER().read(files["test"]) for word in sentence.words]
    starts = range(0, len(words) - _LENGTH + 1, _LENGTH)
    with torch.no_grad():
        chains = tagger.forward([encode(words[i : i + _LENGTH], True) for i in starts][:count])
    return chains.to(torch.float64)


def normal(count: int, states: int, scale: float) -> LinearChain:
    """Chains with normally distributed scores of a standard deviation."""
    generator = torch.Generator().manual_seed(0)
    unary = scale * torch.randn(count, _LENGTH, states, generator=generator, dtype=torch.float64)
    return LinearChain(unary, scale * torch.randn(states, states, generator=generator, dtype=torch.float64))


def images(count: int, height: int, width: int) -> BinaryGraph:
    """Discs, whose pixels have scores of 2 on average under noise of a standard deviation of 1."""
    at = torch.arange(height * width).view(height, width)
    pairs = (at[:, :-1], at[:, 1:]), (at[:-1], at[1:])
    edges = torch.cat([torch.stack([a.flatten(), b.flatten()], 1) for a, b in pairs])
    row, column = at // width - height / 2, at % width - width / 2
    disc = one_hot((row.square() + column.square() < height**2 / 12).long().flatten(), 2)
    noise = torch.randn(count, height * width, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return BinaryGraph(noise + 2 * disc, edges, torch.eye(2).double().expand(count, len(edges), 2, 2))


def measure(chain: LinearChain | BinaryGraph, mu: float, parts: Parts) -> tuple[str, ...]:
    """What SparseMAP takes on some chains or images: the last cells of a row."""
    chain.max()  # compiles
    start = time.process_time()
    solution = sparse_map(chain, mu, parts)
    seconds = time.process_time() - start
    start = time.process_time()
    chain.max()
    of_max = time.process_time() - start
    noise = torch.randn(chain.unary.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    first, *others = chain.potentials
    near = chain.replace(first + 0.1 * first.std() * noise, *others)
    warm = sparse_map(chain, mu, parts, start=sparse_map(near, mu, parts).y)
    outputs = (solution.weights > 0).sum(1)
    numbers = (solution.oracle_calls.median(), outputs.median(), warm.oracle_calls.median())
    return (*(str(int(number)) for number in numbers), *(f"{1000 * s / len(chain):.2f}" for s in (seconds, of_max)))


@command(
    option("--chains", 32, "number of chains"),
    option("--epochs", 6, "of the tagger"),
    option("--images", 4, "number of images"),
    option("--mu", [0.1, 0.3, 1.0], "levels of smoothing"),
    threads=None,
    table=["scores", "parts", "μ", "calls", "outputs", "calls from a start", "ms", "ms of max"],
    text_columns=2,
)
def main(options: Namespace) -> Iterator[list[str]]:
    """A row for each kind of scores, parts and level."""
    tagger = trained(options.chains, options.epochs)
    kinds = {
        f"trained, {tagger.unary.shape[-1]} tags": tagger,
        "normal, 3 tags": normal(options.chains, 3, 1.0),
        "normal, 9 tags": normal(options.chains, 9, 1.0),
        "normal times 3, 9 tags": normal(options.chains, 9, 3.0),
    }
    cases = product(kinds.items(), get_args(Parts), options.mu)
    for (name, chain), parts, mu in cases:
        yield [name, parts, f"{mu:g}", *measure(chain, mu, parts)]
    for mu in options.mu:
        yield ["images of 40 x 64 pixels", "first", f"{mu:g}", *measure(images(options.images, 40, 64), mu, "first")]
