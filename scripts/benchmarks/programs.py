"""Time of structures that are dynamic programs, beside torch-struct and by edge of their programs.

Scores are float32 with gradients, on one thread. Exp is the log-partition function, max the best output, top-5 the five
best ones; each with the gradient of its values. torch-struct, which is optional (pip install
'structsmooth[benchmarks]'), does the same with its semirings. Cells are medians in milliseconds of the processor time
of the process, which other work on the machine changes less than the time on the clock; then the nanoseconds for each
edge and example and, in brackets, how many times as long torch-struct takes. The floor is one pass over the indices of
all edges. Semi-Markov models of torch-struct have tensors of T K S³ numbers for each example: it gets a single example,
whose time is multiplied, and is left out where these numbers are too many (see --largest). Grammars have all rules of N
symbols, of which half are preterminals and half have rules. Chains of low rank, of T, S and R, and chains composed with
a random automaton of Q states, of T, S and Q, have no peer there.

Hidden Markov models of float64 are beside hmmlearn, which is optional, too (pip install hmmlearn): exp is the
log-likelihood with posteriors, and max the best path. Brackets hold how many times as long hmmlearn takes with its
implementations "scaling" and "log"; the largest relative difference of log-likelihoods follows.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, product
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scripts.shared.harness import command, installed, option, sizes, timings
from structsmooth import Constituents, LinearChain, ProjectiveTree, SemiMarkov
from structsmooth.estimators import CategoricalHMM
from structsmooth.factors import Automaton
from structsmooth.programs import DynamicProgram
from structsmooth.structures import Accepted, Grammar, LowRankChain, Productions

_ORACLES: dict[str, Callable[[DynamicProgram], Tensor]] = {
    "exp": lambda structure: structure.logsumexp(),
    "max": lambda structure: structure.max()[0],
    "top-5": lambda structure: structure.topk(5)[0],
}
# Marginals, and the gradients of the best scores: properties and methods that differentiate.
_THEIRS: dict[str, Callable[[Any], object]] = {
    "exp": lambda distribution: distribution.marginals,
    "max": lambda distribution: distribution.argmax,
    "top-5": lambda distribution: distribution.topk(5),
}


class Case(NamedTuple):
    """Scores of B examples, which get gradients, with their structure and the distribution of torch-struct.

    ``examples`` are those that torch-struct gets, and ``numbers`` the size of its tensors for them.
    """

    name: str
    scores: tuple[Tensor, ...]
    structure: Callable[..., DynamicProgram]
    distribution: Callable[[Any], Any]
    examples: int
    numbers: int = 0


def cases(
    batch: int, words: Sequence[int], segments: Sequence[tuple[int, int, int]], grammars: Sequence[tuple[int, int]]
) -> Iterator[Case]:
    """Binary trees, projective trees with one root, semi-Markov models of T, K and S, and grammars of n and N."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).requires_grad_()

    unchecked: dict[str, Any] = {"validate_args": False}
    for n in words:
        spans, arcs, root = random(batch, n, n, 1), random(batch, n, n), random(batch, n)
        trees = partial(Constituents, binary=True, **unchecked)
        yield Case(f"constituency, n = {n}", (spans,), trees, partial(_distribution, "TreeCRF", spans), batch)
        yield Case(
            f"projective, one root, n = {n}",
            (arcs, root),
            partial(ProjectiveTree, **unchecked),
            partial(_dependency_crf, arcs, root),
            batch,
        )
    for steps, longest, states in segments:
        scores = random(batch, steps, states), random(states, states), random(longest, states)
        name = f"semi-Markov, T = {steps}, K = {longest}, S = {states}"
        edges = random(1, steps - 1, longest, states, states)
        numbers = edges.numel() * states
        chains = partial(SemiMarkov, **unchecked)
        yield Case(name, scores, chains, partial(_distribution, "SemiMarkovCRF", edges), 1, numbers)
    for n, symbols in grammars:
        tags, heads = symbols // 2, range(symbols // 2, symbols)
        scores = random(batch, len(heads) * symbols**2), random(batch, n, tags), random(batch, symbols)
        productions = Productions([*product(heads, range(symbols), range(symbols))], symbols)
        every = partial(Grammar, productions=productions, **unchecked)
        name, peer = f"grammar, n = {n}, N = {symbols}", partial(_sentence_cfg, *scores)
        yield Case(name, scores, every, peer, batch, batch * n * n * symbols**2)


def chains(low_rank: Sequence[tuple[int, int, int]], accepted: Sequence[tuple[int, int, int]]) -> Iterator[Case]:
    """Single chains whose transitions factor, and such that an automaton accepts."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).requires_grad_()

    for steps, states, rank in low_rank:
        scores = random(1, steps, states), random(states, rank), random(rank, states)
        name = f"low rank, T = {steps}, S = {states}, R = {rank}"
        yield Case(name, scores, partial(LowRankChain, validate_args=False), _no_peer, 1)
    for steps, states, count in accepted:
        transitions = torch.randint(count, (count, states), generator=generator)
        automaton = Automaton(torch.zeros(0, dtype=torch.int64), transitions, torch.zeros(count))

        def structure(unary: Tensor, transition: Tensor, automaton: Automaton = automaton) -> Accepted:
            return Accepted(LinearChain(unary, transition, validate_args=False), automaton)

        pair = random(1, steps, states), random(states, states)
        yield Case(f"accepted, T = {steps}, S = {states}, Q = {count}", pair, structure, _no_peer, 1)


def _no_peer(module: Any) -> Any:
    raise NotImplementedError("torch-struct has no such structure")


def _sentence_cfg(rules: Tensor, lexical: Tensor, start: Tensor, module: Any) -> Any:
    """Their symbols with rules stand before preterminals."""
    tags, symbols = lexical.shape[2], start.shape[1]
    square = rules.unflatten(1, (-1, symbols, symbols)).roll((-tags, -tags), (2, 3))
    module.SentCFG.arg_constraints = {}  # which torch asks for
    return module.SentCFG((lexical, square, start[:, tags:]))


def _distribution(name: str, potentials: Tensor, module: Any) -> Any:
    return getattr(module, name)(potentials)


def _dependency_crf(arcs: Tensor, root: Tensor, module: Any) -> Any:
    """Their diagonal holds the scores of roots."""
    diagonal = torch.eye(arcs.shape[1], dtype=torch.bool)
    return module.DependencyCRF(torch.where(diagonal, root.unsqueeze(1), arcs), multiroot=False)


def milliseconds(run: Callable[[], object], repeats: int) -> float:
    """Median processor time of a call, after one that compiles."""
    return 1e3 * median(timings(run, repeats, time.process_time))


def with_gradient(case: Case, oracle: str) -> None:
    """The values of an oracle of ours, and the gradient of their sum."""
    torch.autograd.grad(_ORACLES[oracle](case.structure(*case.scores)).sum(), case.scores)


def floor(structure: DynamicProgram, repeats: int) -> float:
    """Nanoseconds an edge for a pass over the indices of a program."""
    columns = structure.program().arrays[1:]

    def read() -> list[int]:
        return [int(column.sum(dtype=np.int64)) for column in columns]

    return 1e6 * milliseconds(read, repeats) / len(columns[0])


def cell(case: Case, oracle: str, edges: int, module: Any, repeats: int) -> str:
    """Our time, by edge, and how many times as long as ours that of torch-struct is, if it is there."""
    batch = len(case.scores[0])
    ours = milliseconds(lambda: with_gradient(case, oracle), repeats)
    text = f"{ours:.2f}, {1e6 * ours / edges / batch:.1f} ns"
    if module is None:
        return text
    theirs = milliseconds(lambda: _THEIRS[oracle](case.distribution(module)), 1) * batch / case.examples
    return f"{text} ({theirs / ours:.1f}x)"


def hidden_markov(states: int, steps: int, repeats: int) -> list[str]:
    """The row of one sequence of symbols, of the estimator here and of hmmlearn's, with the same parameters."""
    random, hmmlearn = np.random.RandomState(0), installed("hmmlearn.hmm")
    start, transition, emission = (
        random.dirichlet(np.ones(n), m) for n, m in ((states, 1), (states, states), (20, states))
    )
    x = random.randint(0, 20, (steps, 1))
    ours = CategoricalHMM(n_components=states)
    models = [ours]
    if hmmlearn is not None:
        models += [hmmlearn.CategoricalHMM(states, implementation=name) for name in ("scaling", "log")]
    for model in models:
        model.startprob_, model.transmat_, model.emissionprob_ = start[0], transition, emission
        model.n_features = 20
    cells = []
    for call in ("score_samples", "decode"):
        mine, *theirs = (milliseconds(partial(getattr(model, call), x), repeats) for model in models)
        others = ", ".join(f"{other / mine:.1f}x" for other in theirs) or "hmmlearn is not installed"
        cells.append(f"{mine:.1f}, {1e6 * mine / steps / states**2:.1f} ns ({others})")
    value, *values = (model.score(x) for model in models)
    cells[0] += "".join(f", {max(abs(other / value - 1) for other in values):.0e}" for _ in values[:1])
    return [f"hidden Markov, T = {steps}, S = {states}", str(steps * states**2), "-", *cells, "-"]


@command(
    option("--batch", 32, "number of examples"),
    option("--words", [20, 40], "lengths of sentences", nargs="*"),
    option("--segments", ["50x8x9", "200x20x10"], "sizes TxKxS", type=sizes(3), nargs="*"),
    option("--hidden-markov", [10, 100], "numbers of states", nargs="*"),
    option("--steps", 100_000, "length of their sequence"),
    option("--grammars", ["20x20", "40x20", "20x60"], "sizes nxN", type=sizes(2), nargs="*"),
    option("--low-rank", ["100x500x16"], "sizes TxSxR", type=sizes(3), nargs="*"),
    option("--accepted", ["100x20x50"], "sizes TxSxQ", type=sizes(3), nargs="*"),
    option("--repeats", 5, "calls of which the median is"),
    option("--largest", 1e6, "most numbers of torch-struct"),
    table=["structure", "edges", "floor", *_ORACLES],
)
def main(options: Namespace) -> Iterator[list[str]]:
    """A row for each structure."""
    peer = installed("torch_struct")
    peered = cases(options.batch, options.words, options.segments, options.grammars)
    for case in chain(peered, chains(options.low_rank, options.accepted)):
        structure = case.structure(*case.scores)
        edges = structure.program().edges
        module = peer if case.numbers <= options.largest and case.distribution is not _no_peer else None
        cells = [cell(case, oracle, edges, module, options.repeats) for oracle in _ORACLES]
        yield [case.name, str(edges), f"{floor(structure, options.repeats):.1f} ns", *cells]
    for states in options.hidden_markov:
        yield hidden_markov(states, options.steps, options.repeats)
