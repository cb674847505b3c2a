"""The contract of fused loops: the same iterates and oracle calls as the plain loop of the solver, away from ties.

Each loop is a function dispatched on the kind of problem. A kind that a loop is registered for needs a line in
PROBLEMS here, and a new loop one in LOOPS.
"""

from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from itertools import product
from typing import Any

import pytest
import torch
from small_parsers import labelled_problem, pair_problem, row_problem
from small_problems import random_dense_problem, random_problem
from torch import Tensor
from torch.testing import assert_close

from structsmooth import LinearProblem, NormalizedHamming, Problem, ProgramProblem, WeightedHamming
from structsmooth.problems.affine import flat
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.solvers import Cache, DualIterate
from structsmooth.solvers.bcfw import steps as bcfw

LAM = 0.3
CAPACITY = 3

PROBLEMS: dict[type, list[Callable[[], Problem]]] = {
    ChainProblem: [
        lambda: random_problem(cost=NormalizedHamming()),
        lambda: random_problem(cost=WeightedHamming((1.0, 2.0, 0.5)), seed=1),
        lambda: random_problem(seed=2).weighted(torch.arange(1.0, 8.0, dtype=torch.float64)),
        random_dense_problem,
    ],
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
    for kind, cache, by_gap, averaged in product(["fw", "pairwise", "away"], caches, [False, True], [False, True]):
        point = random_iterate(problem, generator)
        if cache is None:
            point = replace(point, stamps=torch.zeros_like(point.stamps))
        order = numbers(problem, generator, problem.n)
        if by_gap:
            order = torch.rand(1, generator=generator, dtype=torch.float64)
        shares = torch.rand(len(order), generator=generator, dtype=torch.float64) if averaged else None
        yield (point, order), {"lam": LAM, "steps": kind, "cache": cache, "shares": shares}


LOOPS: dict[Any, Callable[[Any, torch.Generator], Iterator[Call]]] = {bcfw.epoch: frank_wolfe_calls}


def registered() -> Iterator[Any]:
    """A loop, a kind of problem that it is fused for, and a problem of this kind."""
    for loop in LOOPS:
        for kind in loop.registry:
            if kind.__module__.startswith("structsmooth."):
                for number, build in enumerate(PROBLEMS[kind]):
                    name = f"{loop.__module__.removeprefix('structsmooth.solvers.')}-{kind.__name__}-{number}"
                    yield pytest.param(loop, kind, build, id=name)


def tensors(value: Any) -> Iterator[Tensor | None]:
    """All tensors in tuples and dataclasses."""
    if isinstance(value, Tensor) or value is None:
        yield value
    elif isinstance(value, tuple):
        for own in value:
            yield from tensors(own)
    elif is_dataclass(value):
        yield from tensors(tuple(vars(value).values()))


@pytest.mark.parametrize(("loop", "kind", "build"), list(registered()))
def test_iterates_are_those_of_the_plain_loop(loop: Any, kind: type, build: Callable[[], Any]) -> None:
    problem, moved = build(), 0
    assert loop.dispatch(type(problem)) is loop.registry[kind]
    for arguments, settings in LOOPS[loop](problem, torch.Generator().manual_seed(0)):
        before = [own.clone() for own in tensors(arguments) if own is not None]
        start = problem.oracle_calls
        fused = loop(problem, *arguments, **settings)
        between = problem.oracle_calls
        plain = loop.registry[object](problem, *arguments, **settings)
        assert between - start == problem.oracle_calls - between
        assert_close([*tensors(fused)], [*tensors(plain)], rtol=0, atol=1e-10, msg=lambda m, s=settings: f"{s}: {m}")
        assert_close([own for own in tensors(arguments) if own is not None], before, rtol=0, atol=0)
        moved += not torch.equal(next(tensors(fused)), next(tensors(arguments)))
    assert moved > 0
