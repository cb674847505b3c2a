"""Oracles of programs as torch operators over compiled loops (CPU).

Programs are given by their handles. Shapes: scores [B, P], ``root_index`` [B], indices into the roots of the program;
outputs [B, K, M], the scores that their derivations use, filled up with P.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from structsmooth.structures.max_marginals import max_marginals_loop
from structsmooth.structures.operators import (
    cpu_loop,
    exp_oracle_backward,
    like_scores,
    save_inputs_and_statistics,
    tangents_backward,
    without_statistics,
)
from structsmooth.structures.programs import reference
from structsmooth.structures.programs.program import longest_derivation, program_of

scores_of_outputs = reference.scores_of_outputs


def rooted(scores: Tensor, root_index: Tensor, handle: int) -> tuple[Any, Tensor, Any]:
    """What loops read: the program, scores, and the nodes that are roots of examples."""
    program = program_of(handle)
    smallest, largest = root_index.aminmax() if root_index.numel() else (0, 0)
    if not 0 <= int(smallest) <= int(largest) < len(program.roots):
        raise ValueError(f"lengths must be from 0 to {len(program.roots) - 1}, got {root_index.tolist()}")
    return program.arrays, scores, program.roots[root_index.numpy()]


def followed(scores: Tensor, root_index: Tensor, handle: int) -> tuple[Any, int, Tensor, Any]:
    """What loops read that follow derivations: the depth of the program, too."""
    arrays, scores, roots = rooted(scores, root_index, handle)
    return arrays, program_of(handle).depth, scores, roots


def _passes(count: int) -> Callable[..., int]:
    """Operations of passes over all edges, for scores first and the handle last among the arguments."""
    return lambda scores, *others: count * len(scores) * program_of(others[-1]).edges


def weighted_uses(weights: Tensor, used: Tensor, count: int) -> Tensor:
    """How often outputs [B, K, M] use each of ``count`` scores, weighted by [B, K]: [B, P]."""
    sums = weights.new_zeros(used.shape[0], count + 1)
    return sums.scatter_add(1, used.flatten(1), weights.unsqueeze(2).expand(used.shape).flatten(1))[:, :count]


def _best(program: Any, depth: int, scores: Any, roots: Any, values: Any, used: Any, begin: int, end: int) -> None:
    from structsmooth.structures.programs import compiled  # numba loads with the first program

    if values.shape[1] == 1:
        compiled.batch_max(program, depth, scores, roots, values[:, 0], used[:, 0], begin, end)
    else:
        compiled.batch_top_k(program, depth, scores, roots, values, used, begin, end)


@cpu_loop(
    "program_top_k",
    _best,
    lambda scores, root_index, handle, k: 2 * k * len(scores) * program_of(handle).edges,
    inputs=lambda *arguments: followed(*arguments[:3]),
)
def top_k(scores: Tensor, root_index: Tensor, handle: int, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, M]."""
    batch, count = scores.shape
    return scores.new_empty(batch, k), root_index.new_full((batch, k, longest_derivation(handle)), count)


def _curvature(potentials: tuple[Tensor], weights: tuple[Tensor], *others: Any) -> tuple[Tensor, ...]:
    return (tangents(*potentials, *weights, *others),)


@cpu_loop(
    "program_marginals",
    "programs.compiled:batch_marginals",
    _passes(10),
    exp_oracle_backward(_curvature),
    save_inputs_and_statistics,
    inputs=rooted,
    finish=without_statistics,
)
def marginals(scores: Tensor, root_index: Tensor, handle: int) -> tuple[Tensor, Tensor]:
    """Log-partition [B] and probabilities [B, P]."""
    return scores.new_empty(scores.shape[0]), scores.new_empty(scores.shape)


def log_partition(scores: Tensor, root_index: Tensor, handle: int) -> Tensor:
    """Log-partition [B]."""
    log_z: Tensor = marginals(scores, root_index, handle)[0]
    return log_z


def probabilities(scores: Tensor, root_index: Tensor, handle: int) -> Tensor:
    """Probabilities [B, P]."""
    parts: Tensor = marginals(scores, root_index, handle)[1]
    return parts


def _with_directions(scores: Tensor, directions: Tensor, root_index: Tensor, handle: int) -> tuple[Any, ...]:
    arrays, scores, roots = rooted(scores, root_index, handle)
    return arrays, scores, directions, roots


@cpu_loop(
    "program_tangents",
    "programs.compiled:batch_tangents",
    _passes(20),
    tangents_backward("program_tangents", reference.log_partition, 1),
    inputs=_with_directions,
)
def tangents(scores: Tensor, directions: Tensor, root_index: Tensor, handle: int) -> Tensor:
    """Derivatives [B, P] of the probabilities in directions [B, P] of the scores."""
    return like_scores(scores)


@max_marginals_loop(
    "program_max_marginals",
    "programs.compiled:batch_max_marginals",
    lambda scores, _, handle, *grad: (6 if grad else 4) * len(scores) * program_of(handle).edges,
    inputs=lambda scores, root_index, handle, *grad: (*rooted(scores, root_index, handle), *grad),
)
def max_marginals(scores: Tensor, root_index: Tensor, handle: int) -> Tensor:
    """Max-marginals [B, P]."""
    return like_scores(scores)


def _draws(scores: Tensor, root_index: Tensor, handle: int, uniform: Tensor) -> int:
    """Operations of samples: a pass, and a walk for each."""
    program = program_of(handle)
    return 10 * len(scores) * (program.edges + uniform.shape[1] * program.depth)


@cpu_loop(
    "program_sample",
    "programs.compiled:batch_sample",
    _draws,
    inputs=lambda *arguments: (*followed(*arguments[:3]), arguments[3]),
)
def sample(scores: Tensor, root_index: Tensor, handle: int, uniform: Tensor) -> Tensor:
    """Outputs [B, n, M] at uniform numbers [B, n, D]; -1 for an example without any."""
    return root_index.new_full((*uniform.shape[:2], longest_derivation(handle)), -1)
