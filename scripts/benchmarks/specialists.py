"""Time of what others wrote for one thing alone, beside this library's, one thread.

CTC has random logits of B examples, T frames, L labels and 40 classes in float32, beside torch, and forced alignment of
them beside torchaudio. Grammars have all rules of N symbols, half of them preterminals, for n words, batches of 4 in
float32, beside torch-struct. Hidden Markov models of S states have one sequence of T of 20 symbols in float64: the best
path, and five steps of expectation maximization, beside hmmlearn with its implementation "scaling". Graphs of tables
are those of ``oracles``: log-partition functions beside opt_einsum, which searches for an order, too; and best outputs
beside toulbar2, where both read a file. Grids are the Potts grids of ``oracles``: ``relaxed()``, whose labels must be
no worse, beside PyMaxflow's expansion moves. Likelihoods of taggers, with gradients, stand beside pytorch-crf. The last
rows are what a call costs, of examples that hardly need any work. Cells are medians of milliseconds of processor time,
in turns; then how many times as long as the specialist ours take. Values and squared norms of gradients must be equal:
to 1e-4 of their size in float32, as precise as torch's are, and 1e-10 in float64. Specialists that are not installed
are named below.
"""

import math
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import chain, product, starmap
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from scripts.benchmarks.layers import Batch, pytorch_crf
from scripts.benchmarks.oracles import potts, slices_in_time, tables
from scripts.benchmarks.programs import _sentence_cfg
from scripts.shared.harness import command, in_turns, installed, option, sizes
from structsmooth import Alignment, FactorGraph, LinearChain, Matching, StructuralHinge
from structsmooth.estimators import CategoricalHMM
from structsmooth.factors import read_uai, write_uai
from structsmooth.structures import Grammar, HiddenMarkov, Productions

_CLASSES = 40
Call = Callable[[], Any]


class Row(NamedTuple):
    """What is timed: both calls return what has the value that must be equal, or no less in ours."""

    work: str
    ours: Call
    package: str
    theirs: Call | None
    tolerance: float = 1e-4
    value: Callable[[Any], float] = float
    may_be_better: bool = False


def ctc(batch: int, frames: int, labels: int) -> Iterator[Row]:
    """The loss, the loss with its gradient, and forced alignment."""
    logits = torch.randn(batch, frames, _CLASSES, requires_grad=True)
    targets = torch.randint(1, _CLASSES, (batch, labels))
    targets[:, 1::2] = targets[:, 1::2].clamp_min(_CLASSES // 2)  # neighbours differ, so that there is a path
    targets[:, ::2] = targets[:, ::2].clamp_max(_CLASSES // 2 - 1)
    lengths = torch.full((batch,), frames), torch.full((batch,), labels)
    log_probs = logits.detach().log_softmax(2)
    audio = installed("torchaudio")

    def ours() -> Tensor:
        return -Alignment.ctc(logits.log_softmax(2), targets).logsumexp().sum()

    def theirs() -> Tensor:
        return ctc_loss(logits.log_softmax(2).transpose(0, 1), targets, *lengths, reduction="sum")

    def aligned() -> Tensor:
        paths = [
            audio.functional.forced_align(one[None], y[None])[1] for one, y in zip(log_probs, targets, strict=True)
        ]
        return torch.cat(paths).double().sum()

    name = f"CTC {batch}x{frames}x{labels}"
    yield Row(f"{name}, loss", ours, "torch", theirs)
    yield Row(f"{name}, gradient", partial(_gradient, ours, logits), "torch", partial(_gradient, theirs, logits))
    grid = partial(Alignment.ctc, log_probs, targets)
    yield Row(f"{name}, path", lambda: grid().max()[0].double().sum(), "torchaudio", aligned if audio else None)


def _gradient(value: Callable[[], Tensor], *inputs: Tensor) -> Tensor:
    gradients = torch.autograd.grad(value(), inputs)
    return torch.stack([gradient.double().square().sum() for gradient in gradients]).sum()


def grammar(words: int, symbols: int) -> Iterator[Row]:
    """Log-partition functions and their gradients."""
    tags, heads = symbols // 2, range(symbols // 2, symbols)
    shapes = (4, len(heads) * symbols**2), (4, words, tags), (4, symbols)
    rules, lexical, start = scores = [torch.randn(shape, requires_grad=True) for shape in shapes]
    productions = Productions([*product(heads, range(symbols), range(symbols))], symbols)
    peer = installed("torch_struct")

    def ours() -> Tensor:
        return Grammar(*scores, productions=productions).logsumexp().sum()

    def theirs() -> Tensor:
        partition: Tensor = _sentence_cfg(rules, lexical, start, peer).partition
        return partition.sum()

    theirs_with_gradient = partial(_gradient, theirs, *scores) if peer else None
    yield Row(
        f"grammar, n = {words}, N = {symbols}", partial(_gradient, ours, *scores), "torch-struct", theirs_with_gradient
    )


def hidden_markov(states: int, steps: int) -> Iterator[Row]:
    """The best path, and five steps of expectation maximization."""
    random, peer = np.random.RandomState(0), installed("hmmlearn.hmm")
    sizes_of_rows = ((states, 1), (states, states), (20, states))
    start, transition, emission = (random.dirichlet(np.ones(n), m) for n, m in sizes_of_rows)
    x = random.randint(0, 20, (steps, 1))

    def model(kind: Any, **options: Any) -> Any:
        made = kind(n_components=states, n_iter=5, tol=-np.inf, init_params="", **options)
        made.startprob_, made.transmat_, made.emissionprob_, made.n_features = start[0], transition, emission, 20
        return made

    own = partial(model, CategoricalHMM)
    other = None if peer is None else partial(model, peer.CategoricalHMM, implementation="scaling")
    name = f"hidden Markov, S = {states}, T = {steps}"
    for what, call in (("path", lambda made: made.decode(x)[0]), ("fit", lambda made: made.fit(x).score(x))):
        theirs = None if other is None else partial(lambda call, make: call(make()), call, other)
        yield Row(f"{name}, {what}", partial(lambda call: call(own()), call), "hmmlearn", theirs, 1e-10)


def graph_of_tables(slices: int) -> Iterator[Row]:
    """The log-partition function of tables, and the best output of a file."""
    unary, factors = slices_in_time(slices, 0)
    graph, name = tables(slices, 0).to(torch.float64), f"graph of tables, {8 * slices} nodes"
    einsum, toulbar2 = installed("opt_einsum"), installed("pytoulbar2")
    weights = [(scores.double().exp().numpy(), [node]) for node, scores in enumerate(unary[0])]
    weights += [(factor.scores.double().exp().numpy(), factor.scope.tolist()) for factor in factors]

    def log_sum() -> float:
        return math.log(einsum.contract(*chain.from_iterable(weights), []))

    yield Row(f"{name}, log-partition", graph.logsumexp, "opt_einsum", log_sum if einsum else None, 1e-10)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "graph.uai")
        write_uai(graph, path)

        def best() -> Any:
            problem = toulbar2.CFN(resolution=6)
            problem.Read(path)
            return problem.Solve()[0]

        ours, theirs = lambda: read_uai(path).max()[1][0], best if toulbar2 else None
        yield Row(f"{name}, best of a file", ours, "pytoulbar2", theirs, 1e-10, partial(_score, graph))


def grid(height: int, labels: int) -> Iterator[Row]:
    """Labels of a Potts grid."""
    graph, peer = potts(height, labels), installed("maxflow.fastmin")
    costs, unequal = -graph.unary.view(height, height, labels).numpy(), 1 - np.eye(labels)
    theirs = (lambda: peer.aexpansion_grid(costs, unequal).ravel()) if peer else None
    name, value = f"grid {height}x{height}, {labels} labels", partial(_score, graph)
    yield Row(name, lambda: graph.relaxed().decode()[0][0], "PyMaxflow", theirs, 1e-10, value, may_be_better=True)


def _score(graph: FactorGraph, y: Any) -> float:
    return float(graph.score(torch.as_tensor(y).long().unsqueeze(0)))


def tagger(batch: int, steps: int, states: int) -> Iterator[Row]:
    """The likelihood of a conditional random field, with its gradient."""
    unary, transition, y = Batch.random((batch, steps, states))
    crf, peer = StructuralHinge.crf(), installed("torchcrf")
    ours = partial(_gradient, lambda: crf(LinearChain(unary, transition), y), unary, transition)
    theirs = None
    if peer is not None:
        layer = pytorch_crf(peer, transition)
        theirs = partial(_gradient, lambda: -layer(unary, y, reduction="mean"), unary, layer.transitions)
    yield Row(f"CRF {batch}x{steps}x{states}, gradient", ours, "pytorch-crf", theirs)


def small() -> Iterator[Row]:
    """Calls that hardly need any work."""
    weights, peer = torch.randn(1, 10, 10), installed("scipy.optimize")
    array = weights[0].double().numpy()

    def assigned() -> float:
        return float(array[peer.linear_sum_assignment(array, maximize=True)].sum())

    scores = torch.randn(1, 10, 5, requires_grad=True), torch.randn(5, 5, requires_grad=True)
    labels = partial(_gradient, lambda: LinearChain(*scores).logsumexp().sum(), *scores)
    yield Row("assignment 10x10", lambda: Matching(weights).max()[0].sum(), "scipy", assigned if peer else None)
    yield Row("chain of 10 positions and 5 states, gradient", labels, "", None)
    hidden = HiddenMarkov(*(torch.randn(shape).log_softmax(-1) for shape in ((2,), (2, 2), (1, 20, 2))))
    yield Row("hidden Markov, S = 2, T = 20, path", lambda: hidden.replace(*hidden.potentials).max()[0].sum(), "", None)


@command(
    option("--ctc", ["1x100x10", "16x200x30", "4x2000x300"], type=sizes(3), nargs="*", metavar="BxTxL"),
    option("--grammars", ["20x20", "40x20"], "sizes nxN", type=sizes(2), nargs="*"),
    option("--hidden-markov", ["2x200", "5x5000", "20x50000"], "sizes SxT", type=sizes(2), nargs="*"),
    option("--tables", [2, 3], "slices of graphs of tables", nargs="*"),
    option("--grids", ["60x4", "120x3", "120x4", "256x3"], type=sizes(2), nargs="*", metavar="HEIGHTxLABELS"),
    option("--taggers", ["32x50x9", "32x200x32", "8x50x128"], type=sizes(3), nargs="*", metavar="BxTxS"),
    option("--repeats", 7, "calls of each, which take turns"),
    table=["work", "specialist", "its ms", "ours", "times as long"],
    text_columns=2,
)
def main(options: Namespace) -> Iterator[list[object]]:
    """A row for each work."""
    torch.manual_seed(0)
    missing = set()
    groups = (
        chain.from_iterable(starmap(ctc, options.ctc)),
        chain.from_iterable(starmap(grammar, options.grammars)),
        chain.from_iterable(starmap(hidden_markov, options.hidden_markov)),
        chain.from_iterable(map(graph_of_tables, options.tables)),
        chain.from_iterable(starmap(grid, options.grids)),
        chain.from_iterable(starmap(tagger, options.taggers)),
        small(),
    )
    for row in chain.from_iterable(groups):
        if row.theirs is None:
            missing.add(row.package)
        yield _measured(row, options.repeats)
    if missing := missing - {""}:
        print(f"\nnot installed: {', '.join(sorted(missing))}")


def _measured(row: Row, repeats: int) -> list[object]:
    """The cells of a row, after a comparison of the values.

    Raises:
        AssertionError: they differ.
    """
    calls = {"ours": row.ours} | ({} if row.theirs is None else {"theirs": row.theirs})
    values = {name: float(row.value(call())) for name, call in calls.items()}  # which loads and compiles
    for value in values.values():
        less = values["ours"] - value
        error = -less if row.may_be_better else abs(less)
        assert error <= row.tolerance * abs(value), f"{row.work}: {values}"
    times = {name: 1e3 * median(taken) for name, taken in in_turns(calls, repeats, time.process_time, 0.02).items()}
    if row.theirs is None:
        return [row.work, "", "", f"{times['ours']:.3f}", ""]
    package = f"{row.package} {version(row.package)}"
    return [
        row.work,
        package,
        *(f"{times[name]:.3f}" for name in ("theirs", "ours")),
        f"{times['ours'] / times['theirs']:.2f}",
    ]
