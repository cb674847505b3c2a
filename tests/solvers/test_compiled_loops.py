"""The contract of compiled loops: the same iterates and oracle calls as the plain loop of the solver, away from ties.

Each loop is a function dispatched on the kind of problem. A kind that a loop is registered for needs a line in
PROBLEMS here, and a new loop one in LOOPS.
"""

from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from functools import partial
from itertools import islice, product
from typing import Any, get_args

import pytest
import torch
from small_parsers import labelled_problem, pair_problem, row_problem
from small_problems import partial_problem, random_dense_problem, random_problem, random_weights
from solver_cases import crf
from torch import Tensor
from torch.testing import assert_close

from structsmooth import L2, Entropy, Max, WeightedHamming
from structsmooth.costs import NormalizedHamming
from structsmooth.problems import (
    DifferenceProblem,
    LinearProblem,
    Problem,
    ProgramProblem,
    ShiftedProblem,
    TiltedProblem,
)
from structsmooth.problems.affine import flat
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.solvers import Cache, DualIterate, ExponentiatedGradient, sdca, sgd, svrg
from structsmooth.solvers.baselines.exponentiated import steps as exponentiated
from structsmooth.solvers.bcfw import steps as bcfw
from structsmooth.solvers.bcfw.active_set import Steps
from structsmooth.solvers.sdca import SmoothedIterate

LAM = 0.3
CAPACITY = 3
SMOOTHERS = [Max(), L2(0.7, 3), Entropy(0.5)]


def weighted(problem: Problem) -> Problem:
    """The problem with examples that do not count alike."""
    return problem.weighted(torch.linspace(0.5, 3.0, problem.n, dtype=torch.float64))


PROBLEMS: dict[type, list[Callable[[], Problem]]] = {
    ChainProblem: [
        lambda: random_problem(cost=NormalizedHamming()),
        lambda: random_problem(cost=WeightedHamming((1.0, 2.0, 0.5)), seed=1),
        lambda: weighted(random_problem(seed=2)),
        random_dense_problem,
        crf,
    ],
    ShiftedProblem: [lambda: ShiftedProblem(random_problem(), 0.3 * random_weights(random_problem()))],
    # Numbers as features of all tokens: labels that cost nothing would tie where there are none.
    DifferenceProblem: [
        lambda: partial_problem(random_dense_problem(), 1),
        lambda: weighted(partial_problem(random_dense_problem(cost=None), 1)),
    ],
    TiltedProblem: [lambda: TiltedProblem(random_problem(), 0.3 * random_weights(random_problem()), 0.7)],
    ProgramProblem: [pair_problem, row_problem, labelled_problem],
}

Call = tuple[tuple[Any, ...], dict[str, Any]]


def numbers(problem: Problem, generator: torch.Generator, count: int) -> Tensor:
    """Blocks or examples, each at most once: an exact step leaves outputs with the same score, and rounding decides."""
    return torch.randperm(problem.n, generator=generator)[:count]


def random_iterate(problem: LinearProblem, generator: torch.Generator) -> DualIterate:
    """Three outputs of random weights in the slots of every block, one of them only in the cache, and a rest."""
    statistics, atoms = [], []
    alphas = torch.rand(problem.blocks, CAPACITY, generator=generator, dtype=torch.float64) / CAPACITY
    alphas[:, 2], stamps = 0, torch.tensor([1, 0, 2], dtype=torch.int32).repeat(problem.blocks, 1)
    for block in range(problem.blocks):
        outputs: list[Tensor] = []
        for _ in range(50):
            scores = (torch.randn(c.shape, generator=generator, dtype=c.dtype) for c in problem.costs(block))
            atom = problem.oracle(tuple(scores), block).atom
            assert atom is not None
            if not any(torch.equal(atom, other) for other in outputs):
                outputs.append(atom)
        held = [outputs[min(slot, len(outputs) - 1)] for slot in range(CAPACITY)]
        if len(outputs) <= CAPACITY:  # nothing is left for a rest
            alphas[block, len(outputs) :], stamps[block, len(outputs) :] = 0, 0
            alphas[block] /= alphas[block].sum()
        weights = [*alphas[block].tolist(), float(1 - alphas[block].sum())]
        parts = [flat(problem.parts(atom, block)) for atom in [*held, outputs[-1]]]
        statistics.append(sum(weight * part for weight, part in zip(weights, parts, strict=True)))
        atoms.append(torch.cat(held))
    m, gaps = torch.cat(statistics), torch.rand(problem.blocks, generator=generator, dtype=torch.float64)
    outputs_of_all = torch.cat(atoms).to(problem.label_sets(1)[0].dtype)
    return DualIterate(problem.dual_weights(m, LAM), m, gaps, outputs_of_all, alphas, stamps)


def frank_wolfe_calls(problem: LinearProblem, generator: torch.Generator) -> Iterator[Call]:
    """All kinds of steps, with and without cache, by order and by draws, with and without an average."""
    caches = [None, Cache(0.25, 0.0), Cache(0.0, 0.02)]
    for kind, cache, by_gap, averaged in product(get_args(Steps), caches, [False, True], [False, True]):
        point = random_iterate(problem, generator)
        if cache is None:
            point = replace(point, stamps=torch.zeros_like(point.stamps))
        order = numbers(problem, generator, problem.n)
        if by_gap:
            order = torch.rand(1, generator=generator, dtype=torch.float64)
        shares = torch.rand(len(order), generator=generator, dtype=torch.float64) if averaged else None
        yield (point, order), {"lam": LAM, "steps": kind, "cache": cache, "averaging_weights": shares}


def exponentiated_calls(problem: LinearProblem, generator: torch.Generator) -> Iterator[Call]:
    """From the start of runs, with several steps on each block, some of which are made again."""
    for lam, shrink in ((0.02, 0.9), (0.5, 1.0)):
        start = ExponentiatedGradient().first_state(problem, lam, None, 0).point
        order = torch.randint(problem.n, (4 * problem.n,), generator=generator)
        taus = torch.rand(len(order), generator=generator, dtype=torch.float64)
        yield (start, order, taus), {"lam": lam, "shrink": shrink}


def ascent_calls(problem: LinearProblem, generator: torch.Generator) -> Iterator[Call]:
    """From random convex combinations of outputs, under all smoothers."""
    for smoother in SMOOTHERS:
        start = random_iterate(problem, generator)
        smoothing_offset = 0.01 * torch.rand(problem.blocks, generator=generator, dtype=torch.float64)
        point = SmoothedIterate(start.weights, start.statistics, smoothing_offset)
        yield (point, numbers(problem, generator, problem.n)), {"lam": LAM, "smoother": smoother}


def random_steps(problem: Problem, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Weights and examples of steps, many of which occur several times."""
    w = torch.randn(problem.dim, generator=generator, dtype=torch.float64)
    return w, torch.randint(problem.n, (24, 1), generator=generator)


def svrg_calls(problem: Problem, generator: torch.Generator) -> Iterator[Call]:
    """With and without proximal term and regularizer, short steps and long ones."""
    terms = [(0.1, 0, 0), (0.1, 0.3, 0), (0.1, 0, 0.7), (0.1, 1e-13, 0), (0.6, 0.3, 0.7), (0.99, 1, 0)]
    for smoother, (size, lam, kappa) in product(SMOOTHERS[1:], terms):
        (w, order), center = random_steps(problem, generator), problem.start() - 0.5
        settings = {"step_size": size, "lam": lam, "kappa": kappa, "center": center if kappa else None}
        yield (problem.full_pass(w, smoother), order), settings


def sgd_calls(problem: Problem, generator: torch.Generator) -> Iterator[Call]:
    """Schedules of which some forget the start, turn it round, or shrink weights to almost nothing every few steps."""
    t = torch.arange(1, 25, dtype=torch.float64)
    schedules = [0.05 + 0 * t, 1 / (t + 3), 1 / t, 2.5 / t, 0.99 + 0 * t]
    for smoother, lam, sizes, shares in product(SMOOTHERS[:2], (0.0, 0.1, 1.0), schedules, (t, 0 * t)):
        if smoother == Max() and sizes[0] > 0.5:
            continue  # without the start, weights are sums of few equal terms, and outputs have the same score
        settings = {"step_sizes": sizes / (lam or 1), "lam": lam, "smoother": smoother, "averaging_weights": shares}
        yield random_steps(problem, generator), settings


LOOPS: dict[Any, Callable[[Any, torch.Generator], Iterator[Call]]] = {
    bcfw.epoch: frank_wolfe_calls,
    exponentiated.epoch: exponentiated_calls,
    sdca.epoch: ascent_calls,
    svrg.epoch: svrg_calls,
    sgd.epoch: sgd_calls,
}


# The suite of every change makes each of so many calls, a prime number, so that all smoothers and settings occur.
STRIDE = 7


def registered() -> Iterator[Any]:
    """A loop, a kind of problem that it is compiled for, a problem of this kind, and which calls are made."""
    for loop in LOOPS:
        for kind in loop.registry:
            if kind.__module__.startswith("structsmooth."):
                name = f"{loop.__module__.removeprefix('structsmooth.solvers.')}-{kind.__name__}"
                yield pytest.param(loop, kind, PROBLEMS[kind][0], STRIDE, id=name)
                for number, build in enumerate(PROBLEMS[kind]):
                    yield pytest.param(loop, kind, build, 1, id=f"{name}-{number}", marks=pytest.mark.long)


def tensors(value: Any) -> Iterator[Tensor | None]:
    """All tensors in tuples and dataclasses."""
    if isinstance(value, Tensor) or value is None:
        yield value
    elif isinstance(value, tuple):
        for own in value:
            yield from tensors(own)
    elif is_dataclass(value):
        yield from tensors(tuple(vars(value).values()))


@pytest.mark.parametrize(("loop", "kind", "build", "stride"), list(registered()))
def test_iterates_are_those_of_the_plain_loop(loop: Any, kind: type, build: Callable[[], Any], stride: int) -> None:
    problem, moved = build(), 0
    assert loop.dispatch(type(problem)) is loop.registry[kind]
    for arguments, settings in islice(LOOPS[loop](problem, torch.Generator().manual_seed(0)), None, None, stride):
        before = [own.clone() for own in tensors(arguments) if own is not None]
        start = problem.oracle_calls
        compiled = loop(problem, *arguments, **settings)
        between = problem.oracle_calls
        plain = loop.registry[object](problem, *arguments, **settings)
        made, expected = between - start, problem.oracle_calls - between
        assert made == expected or (loop is svrg.epoch and made < expected)  # statistics of the snapshot may be stored
        assert_close(
            [*tensors(compiled)], [*tensors(plain)], rtol=1e-10, atol=1e-10, msg=partial("{}: {}".format, settings)
        )
        assert_close([own for own in tensors(arguments) if own is not None], before, rtol=0, atol=0)
        moved += not torch.equal(next(tensors(compiled)), next(tensors(arguments)))
    assert moved > 0
