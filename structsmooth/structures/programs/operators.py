"""Oracles of programs as torch operators over compiled loops (CPU).

Programs are given by their handles. Shapes: scores [B, P], ``root_index`` [B], indices into the roots of the program;
outputs [B, K, M], the scores that their derivations use, filled up with P.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures.checks import is_exporting
from structsmooth.structures.max_marginals import max_marginals_operator
from structsmooth.structures.operators import (
    asks_gradients,
    compiled_operator,
    exp_oracle_backward,
    like_scores,
    log_partition_backward,
    save_inputs_and_statistics,
    tangents_backward,
    without_statistics,
)
from structsmooth.structures.oracles import Traits
from structsmooth.structures.programs import reference
from structsmooth.structures.programs.program import exported_handle, longest_derivation, program_of
from structsmooth.structures.programs.reference import HasProgram

compiled = LazyLoops("structsmooth.structures.programs.compiled")
_PROGRAMS = "Tensor root_index, SymInt handle"

traits, smoothed_top_k = Traits(), None
scores_of_outputs, outputs = reference.scores_of_outputs, reference.outputs


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
    if values.shape[1] == 1:
        compiled.batch_max(program, depth, scores, roots, values[:, 0], used[:, 0], begin, end)
    else:
        compiled.batch_top_k(program, depth, scores, roots, values, used, begin, end)


def _no_outputs(scores: Tensor, root_index: Tensor, handle: int, k: int) -> tuple[Tensor, Tensor]:
    batch, count = scores.shape
    return scores.new_empty(batch, k), root_index.new_full((batch, k, longest_derivation(handle)), count)


top_k = compiled_operator(
    f"program_top_k(Tensor scores, {_PROGRAMS}, SymInt k) -> (Tensor, Tensor)",
    results=_no_outputs,
    loop=_best,
    reads=lambda *arguments: followed(*arguments[:3]),
    operations=lambda scores, root_index, handle, k: 2 * k * len(scores) * program_of(handle).edges,
)
"""Values [B, k] and outputs [B, k, M]."""


def _curvature(potentials: tuple[Tensor], weights: tuple[Tensor], *others: Any) -> tuple[Tensor, ...]:
    return (tangents(*potentials, *weights, *others),)


log_partition_and_marginals: Callable[..., tuple[Tensor, Tensor]] = compiled_operator(
    f"program_marginals(Tensor scores, {_PROGRAMS}) -> (Tensor, Tensor)",
    results=lambda scores, *_: (scores.new_empty(scores.shape[0]), scores.new_empty(scores.shape)),
    loop=compiled.batch_marginals,
    reads=rooted,
    operations=_passes(10),
    finish=without_statistics,
    gradient=exp_oracle_backward(_curvature),
    save=save_inputs_and_statistics,
)
"""Log-partition [B] and probabilities [B, P]."""


_value = compiled_operator(
    f"program_log_partition(Tensor scores, {_PROGRAMS}) -> Tensor",
    results=lambda scores, *_: scores.new_empty(scores.shape[0]),
    loop=compiled.batch_log_partition,
    reads=rooted,
    operations=_passes(6),
    gradient=log_partition_backward(lambda *arguments: log_partition_and_marginals(*arguments)[1:]),
)
"""Log-partition [B] alone."""


def log_partition(scores: Tensor, root_index: Tensor, handle: int) -> Tensor:
    """Log-partition [B]; if a gradient is asked, by the pass that finds it, too, since two take longer."""
    arguments = scores, root_index, handle
    return log_partition_and_marginals(*arguments)[0] if asks_gradients(scores) else _value(*arguments)


def marginals(scores: Tensor, root_index: Tensor, handle: int) -> tuple[Tensor]:
    """Probabilities [B, P]."""
    return (log_partition_and_marginals(scores, root_index, handle)[1],)


sums = log_partition_and_marginals


def as_argument(space: HasProgram) -> int:
    """What stands for the program of a structure: its handle, in an exported graph one that is made where it runs."""
    return exported_handle(space.program()) if is_exporting() else space.program().handle


def _with_directions(scores: Tensor, directions: Tensor, root_index: Tensor, handle: int) -> tuple[Any, ...]:
    arrays, scores, roots = rooted(scores, root_index, handle)
    return arrays, scores, directions, roots


tangents = compiled_operator(
    f"program_tangents(Tensor scores, Tensor directions, {_PROGRAMS}) -> Tensor",
    results=like_scores,
    loop=compiled.batch_tangents,
    reads=_with_directions,
    operations=_passes(20),
    gradient=tangents_backward("program_tangents", reference.log_partition, 1),
)
"""Derivatives [B, P] of the probabilities in directions [B, P] of the scores."""

# Registers program_max_marginals_gradient, too.
max_marginals = max_marginals_operator(
    f"program_max_marginals(Tensor scores, {_PROGRAMS}) -> Tensor",
    results=like_scores,
    loop=compiled.batch_max_marginals,
    gradient_loop=compiled.batch_max_marginals_gradient,
    reads=lambda scores, root_index, handle, *grad: (*rooted(scores, root_index, handle), *grad),
    operations=lambda scores, _, handle, *grad: (6 if grad else 4) * len(scores) * program_of(handle).edges,
)
"""Max-marginals [B, P]."""


def _draws(scores: Tensor, root_index: Tensor, handle: int, uniform: Tensor) -> int:
    """Operations of samples: a pass, and a walk for each."""
    program = program_of(handle)
    return 10 * len(scores) * (program.edges + uniform.shape[1] * program.depth)


sample = compiled_operator(
    f"program_sample(Tensor scores, {_PROGRAMS}, Tensor uniform) -> Tensor",
    results=lambda scores, root_index, handle, uniform: root_index.new_full(
        (*uniform.shape[:2], longest_derivation(handle)), -1
    ),
    loop=compiled.batch_sample,
    reads=lambda *arguments: (*followed(*arguments[:3]), arguments[3]),
    operations=_draws,
)
"""Outputs [B, n, M] at uniform numbers [B, n, D]; -1 for an example without any."""
