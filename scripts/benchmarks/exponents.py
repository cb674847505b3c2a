"""How seconds and memory of structures and solvers grow with the size n of one input, beside what theory says.

Rows double n three times. Seconds are those of the processor for the max oracle, and for ``logsumexp`` with its
gradient where a structure has it: the best of some calls. Solvers make a second pass over chains of n sentences: before
the first, some search for a step size, which takes more trials the larger n is. The exponent is the slope of the least
squares fit of log seconds against log n. Calls take some milliseconds whatever n is, so fits over small sizes are too
low. Memory is the peak at 8n beyond what was resident before; what a process had taken and given back before does not
show.
"""

import math
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scripts.shared.harness import RequestError, command, memory, option
from structsmooth import LinearChain, structures
from structsmooth.factors import Automaton
from structsmooth.problems import SparseChainProblem, SparseSequences
from structsmooth.solvers import SOLVERS, Result, Solver
from structsmooth.structures import Productions, Structure

_REFS = Path("/proc/self/clear_refs")
Case = tuple[Callable[[int], Structure], int, int]
"""What makes a structure of a size, the first size, and the exponent that theory expects."""


@command(
    option("--structures", None, "structures (default: all)", nargs="*", metavar="NAME"),
    option("--solvers", ["proximal-bcfw", "bcfw", "sgd", "casimir-svrg"], "solvers", nargs="*", choices=list(SOLVERS)),
    option("--scale", 1.0, "factor of all sizes"),
    option("--repeats", 3, "calls, of which the fastest counts", least=1),
    table=["case", "n", "8n", "s at n", "2n", "4n", "8n", "exponent", "theory", "MB at 8n"],
)
def main(options: Namespace) -> Iterator[list[str]]:
    """A row for each structure, query and solver."""
    if not _REFS.is_file():
        raise RequestError(f"memory is measured as Linux counts it, and there is no {_REFS}")
    if unknown := set(options.structures or ()) - cases().keys():
        raise RequestError(f"no case for {', '.join(sorted(unknown))}: there are {', '.join(cases())}")
    for name in cases() if options.structures is None else options.structures:
        build, first, expected = cases()[name]
        sizes = [max(2, round(options.scale * first * factor)) for factor in (1, 2, 4, 8)]
        for label, query in (("max", best), ("log-sum", log_sum))[: 1 + has_log_sum(build(2))]:
            yield row(f"{name}, {label}", [(n, partial(query, build(n))) for n in sizes], expected, options.repeats)
    for name in options.solvers:
        problems = [(n, sentences(n)) for n in (round(options.scale * 500 * factor) for factor in (1, 2, 4, 8))]
        runs = [(n, second_pass(SOLVERS[name](gap_tolerance=0.0), problem)) for n, problem in problems]
        yield row(f"{name}, a pass", runs, 1, options.repeats)


def row(name: str, calls: Sequence[tuple[int, Callable[[], object]]], expected: int, repeats: int) -> list[str]:
    """Cells for a call at four sizes."""
    sizes = [n for n, _ in calls]
    calls[0][1]()  # compiles
    seconds, memory = zip(*(measured(call, repeats) for _, call in calls), strict=True)
    shown = [*(f"{value:.2g}" for value in seconds), f"{exponent(sizes, seconds):.2f}", str(expected)]
    return [name, str(sizes[0]), str(sizes[-1]), *shown, f"{memory[-1]:.0f}"]


def measured(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Seconds of the fastest call, and MB at the peak of the first beyond what was resident."""
    _REFS.write_text("5")  # the peak is what is resident now
    before, times = memory()["VmRSS"], list[float]()
    for _ in range(repeats):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return min(times), max(memory()["VmHWM"] - before, 0.1)


def exponent(sizes: list[int], values: tuple[float, ...]) -> float:
    """The slope of log values against log sizes."""
    x, y = torch.tensor([*map(math.log, sizes)]), torch.tensor([*map(math.log, values)])
    x = x - x.mean()
    return float(x @ y / (x @ x))


def second_pass(solver: Solver[Any], problem: SparseChainProblem) -> Callable[[], Result]:
    """What continues a run of one pass by another."""
    first = solver.solve(problem, lam=0.01, passes=1)
    return partial(solver.solve, problem, lam=0.01, passes=2, resume=(first.state, first.history))


def best(structure: Structure) -> None:
    """The max oracle."""
    structure.max()


def log_sum(structure: Structure) -> None:
    """The exp oracle with its gradient."""
    leaves = [scores.detach().requires_grad_() for scores in structure.potentials]
    structure.replace(*leaves).logsumexp().sum().backward()


def has_log_sum(structure: Structure) -> bool:
    """Whether the structure has the exp oracle."""
    try:
        structure.logsumexp()
    except NotImplementedError:
        return False
    return True


def cases() -> dict[str, Case]:
    """Structures by their names."""
    s = structures
    return {
        "LinearChain, n tokens": (lambda n: LinearChain(normal(1, n, 9), normal(9, 9)), 10_000, 1),
        "LinearChain, n labels": (lambda n: LinearChain(normal(1, 50, n), normal(n, n)), 50, 2),
        "LowRankChain, n labels": (lambda n: s.LowRankChain(normal(1, 50, n), normal(n, 8), normal(8, n)), 500, 1),
        "Accepted, n tokens": (accepted, 1000, 1),
        "HiddenMarkov, n tokens": (hidden_markov, 5000, 1),
        "SemiMarkov, n positions": (semi_markov, 2000, 1),
        "Tree, n nodes": (tree, 2000, 1),
        "Alignment, n x n": (lambda n: s.Alignment(normal(1, n, n)), 200, 2),
        "Constituents, n words": (lambda n: s.Constituents(normal(1, n, n, 2)), 20, 3),
        "Grammar, n words": (grammar, 10, 3),
        "ProjectiveTree, n words": (lambda n: s.ProjectiveTree(normal(1, n, n), normal(1, n)), 20, 3),
        "SiblingTree, n words": (sibling_tree, 10, 3),
        "SpanningTree, n words": (lambda n: s.SpanningTree(normal(1, n, n), normal(1, n)), 50, 3),
        "Matching, n pairs": (lambda n: s.Matching(normal(1, n, n)), 100, 3),
        "Subset, 5 of n": (lambda n: s.Subset(normal(1, n, 2), 5), 2000, 1),
        "Candidates, n": (lambda n: s.Candidates(normal(1, n)), 100_000, 1),
        "Paths, n edges": (paths, 2000, 1),
        "BinaryGraph, n pixels": (pixels, 2500, 1),
        "FactorGraph, a path of n": (path_graph, 2000, 1),
    }


def normal(*shape: int) -> Tensor:
    """Gaussian scores, the same for each shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def accepted(n: int) -> Structure:
    """Chains with exactly one person."""
    one = Automaton.from_pattern("O* B-PER I-PER* O*", ["O", "B-PER", "I-PER"])
    return structures.Accepted(LinearChain(normal(1, n, 3), normal(3, 3)), one)


def hidden_markov(n: int) -> Structure:
    """Nine states."""
    start, transition = normal(9).log_softmax(-1), normal(9, 9).log_softmax(-1)
    return structures.HiddenMarkov(start, transition, normal(1, n, 9))


def semi_markov(n: int) -> Structure:
    """Segments of up to 50 positions with four labels."""
    return structures.SemiMarkov(normal(1, n, 4), normal(4, 4), normal(50, 4))


def tree(n: int) -> Structure:
    """Random trees with five states."""
    parents = torch.tensor([[-1, *(int(torch.randint(v, ())) for v in range(1, n))]])
    return structures.Tree(normal(1, n, 5), normal(1, n, 5, 5), parents)


def grammar(n: int) -> Structure:
    """Five nonterminals, and all binary rules of them."""
    rules = [(a, b, c) for a in range(5) for b in range(5) for c in range(5)]
    return structures.Grammar(normal(len(rules)), normal(1, n, 5), normal(5), productions=Productions(rules))


def sibling_tree(n: int) -> Structure:
    """Random scores of arcs and neighbouring modifiers."""
    return structures.SiblingTree(normal(1, n, n), normal(1, n, n, n), normal(1, n))


def paths(n: int) -> Structure:
    """A ladder of n edges."""
    edges = [(v, v + 1 + (k % 2)) for k in range(n - 1) for v in (k // 2,)]
    last = max(node for edge in edges for node in edge)
    return structures.Paths(normal(1, len(edges)), structures.PathGraph(edges, 0, last))


def pixels(n: int) -> Structure:
    """A square grid whose neighbours agree."""
    side = math.isqrt(n)
    at = torch.arange(side * side).view(side, side)
    pairs = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    edges = torch.cat([torch.stack([a.flatten(), b.flatten()], 1) for a, b in pairs])
    agree = torch.eye(2, dtype=torch.float64).expand(1, len(edges), 2, 2)
    return structures.BinaryGraph(normal(1, side * side, 2), edges, agree)


def path_graph(n: int) -> Structure:
    """A path of nodes with three states."""
    edges = torch.stack([torch.arange(n - 1), torch.arange(1, n)], 1)
    return structures.FactorGraph(normal(1, n, 3), edges, normal(n - 1, 3, 3))


def sentences(n: int) -> SparseChainProblem:
    """Sentences of ten tokens with eight of 10,000 attributes each, and nine labels."""
    generator = torch.Generator().manual_seed(0)
    attributes = torch.randint(10_000, (80 * n,), generator=generator, dtype=torch.int32)
    sequences = SparseSequences(attributes, 8 * torch.arange(10 * n + 1), 10 * torch.arange(n + 1))
    return SparseChainProblem(sequences, torch.randint(9, (10 * n,), generator=generator), 10_000, 9)
