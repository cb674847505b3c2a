"""CPU time of an inner SVRG step, of a BCFW step and of a full pass on linear chains over sparse attributes.

Each size is swept alone, the others stay at their defaults: sentences n, tokens per sentence T, states S, outputs K of
the oracle, attributes per token A, and rows F of weights. A step's share of the work that an epoch does on all weights
at once is included, so steps are dearer where n is small or F large. With --file the sentences are real, encoded as
the NER task does, and n and K alone are swept.
"""

import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

from scripts.shared.harness import command, in_turns, option, print_table, reading
from structsmooth import L2
from structsmooth.messages import tracked
from structsmooth.problems import SparseChainProblem, SparseSequences
from structsmooth.solvers import DualIterate
from structsmooth.solvers.bcfw import steps as bcfw
from structsmooth.solvers.svrg import steps as svrg
from structsmooth.tasks import NER

# Size by its name, the values of a sweep, and what it is.
_SIZES = {
    "n": (1000, [250, 1000, 2000], "sentences"),
    "T": (20, [5, 10, 20, 40], "tokens per sentence"),
    "S": (9, [3, 9, 18], "states"),
    "K": (5, [1, 2, 5, 10, 20], "outputs of the top-K oracle"),
    "A": (30, [10, 20, 40, 80], "attributes per token"),
    "F": (2**18, [2**14, 2**16, 2**18], "different attributes"),
}
_COLUMNS = ("SVRG step", "BCFW step", "full pass, per example")
_MU = 1.0

Timing = dict[str, float]
"""Median CPU microseconds of each of the columns."""


@dataclass(frozen=True)
class Case:
    """One line of the table: the size that is swept, its value, and how to make the problem."""

    size: str
    value: int
    k: int
    problem: Callable[[], SparseChainProblem]


@command(
    option("--file", None, "sentences in CoNLL columns (default: generated ones)", metavar="FILE"),
    *(option(f"--{name}", default, meaning, least=1) for name, (default, _, meaning) in _SIZES.items()),
    *(
        option(f"--sweep-{name}", values, f"values of {name} to measure", least=1, metavar=name)
        for name, (_, values, _) in _SIZES.items()
    ),
    option("--repeats", 3, "measurements of each, for the median", least=1),
    option("--seed", 0, "of generated sentences"),
)
def main(options: Namespace) -> None:
    """Measure every case, and print the table."""
    with reading():
        description, cases = _generated_cases(options) if options.file is None else _file_cases(options)
    print(f"{description}; l2 smoothing; median of {options.repeats}, in microseconds of CPU time\n")
    timed = ((case, measure(case.problem(), case.k, options.repeats)) for case in tracked(cases, "timing"))
    rows = ([case.size, case.value, *(f"{value:.1f}" for value in timing.values())] for case, timing in timed)
    print_table(["size", "value", *_COLUMNS], rows)


def generate(n: int, T: int, S: int, A: int, F: int, seed: int) -> SparseChainProblem:
    """Random sentences of one length; a few attributes are frequent and most are rare, as in text."""
    rng = np.random.default_rng(seed)
    attributes = torch.from_numpy((F * rng.random(n * T * A) ** 3).astype(np.int32))
    sequences = SparseSequences(attributes, torch.arange(n * T + 1) * A, torch.arange(n + 1) * T)
    return SparseChainProblem(sequences, torch.from_numpy(rng.integers(S, size=n * T)), F, S)


def measure(problem: SparseChainProblem, k: int, repeats: int) -> Timing:
    """Time epochs and full passes in turn, at weights that one epoch has reached."""
    smoother, order = L2(_MU, k), torch.arange(problem.n)[:, None]
    settings: dict[str, Any] = {"step_size": 0.01, "lam": min(1.0, 10 / problem.n)}
    start = problem.full_pass(problem.start(), smoother)
    snapshot = problem.full_pass(svrg.epoch(problem, start, order, **settings)[1], smoother)
    labels = DualIterate(problem.start(), problem.label_statistics(), torch.ones(problem.n, dtype=torch.float64))
    iterate, _ = bcfw.epoch(problem, labels, order[:, 0], lam=settings["lam"])
    order = torch.from_numpy(np.random.default_rng(0).permutation(problem.n))[:, None]
    works: tuple[Callable[[], object], ...] = (
        partial(svrg.epoch, problem, snapshot, order, **settings),
        partial(bcfw.epoch, problem, iterate, order[:, 0], lam=settings["lam"]),
        partial(problem.full_pass, snapshot.weights, smoother),
    )
    times = in_turns(dict(zip(_COLUMNS, works, strict=True)), repeats, time.process_time)
    return {name: median(values) / problem.n * 1e6 for name, values in times.items()}


def _generated_cases(options: Namespace) -> tuple[str, list[Case]]:
    sizes = {name: getattr(options, name) for name in _SIZES}
    cases = []
    for name in _SIZES:
        for value in getattr(options, f"sweep_{name}"):
            values = sizes | {name: value}
            k = values.pop("K")
            cases.append(Case(name, value, k, partial(generate, **values, seed=options.seed)))
    return "generated sentences, " + ", ".join(f"{name} = {value}" for name, value in sizes.items()), cases


def _file_cases(options: Namespace) -> tuple[str, list[Case]]:
    task = NER()
    examples = task.read(options.file)
    problem = task.fit(examples).problem(examples)
    assert isinstance(problem, SparseChainProblem)
    prefixes = sorted({min(n, problem.n) for n in (*options.sweep_n, problem.n)})
    whole = Case("n", problem.n, options.K, lambda: problem)
    cases = [replace(whole, value=n, problem=partial(problem.subset, torch.arange(n))) for n in prefixes]
    cases += [replace(whole, size="K", value=k, k=k) for k in options.sweep_K]
    sequences = problem.sparse
    tokens, nonzeros = len(problem.labels), len(sequences.attributes)
    return (
        f"{options.file}, n = {problem.n}, T = {tokens / problem.n:.1f} on average, S = {problem.states}, "
        f"K = {options.K}, A = {nonzeros / tokens:.1f} on average, F = {problem.features}"
    ), cases
