"""Oracles of segmentations as torch operators over compiled loops (CPU), in memory for labels at positions.

Scores: unary [B, T, S]; of pairs of labels at boundaries, [B or 1, T - 1 or 1, S, S]; of durations, [B or 1, K, S]; and
of segments, [B, T, K, S] or [B, 0, 0, 0]. All are zero where they do not matter.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures.derivatives import pullbacks
from structsmooth.structures.operators import compiled_operator, log_partition_backward, save_inputs
from structsmooth.structures.programs import operators as programs
from structsmooth.structures.segments.program import scores_of_segments, segmentations

compiled = LazyLoops("structsmooth.structures.segments.compiled")
_SEGMENTS = "Tensor unary, Tensor pairs, Tensor durations, Tensor segments, Tensor lengths"


def _operations(count: int) -> Any:
    """Of a number of passes over all segments."""
    return lambda unary, pairs, durations, *_: count * unary.numel() * (durations.shape[1] + pairs.shape[3])


def _inputs(*arguments: Any) -> tuple[Any, ...]:
    """What loops read, after checks of what could lead them out of bounds."""
    unary, lengths = arguments[0], arguments[4]
    if lengths.numel() and not 0 <= int(lengths.min()) <= int(lengths.max()) <= unary.shape[1]:
        raise ValueError(f"lengths must be from 0 to {unary.shape[1]}, got {lengths.tolist()}")
    return arguments


best = compiled_operator(
    f"segments_best({_SEGMENTS}) -> (Tensor, Tensor)",
    results=lambda unary, pairs, durations, segments, lengths: (
        unary.new_empty(unary.shape[0]),
        lengths.new_empty(unary.shape[:2], dtype=torch.int64),
    ),
    loop=compiled.batch_best,
    reads=_inputs,
    operations=_operations(2),
)
"""Largest scores [B], and outputs [B, T] that have them, 0 where there are none."""


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    save_inputs(ctx, (*inputs, *output[1:]), output)


log_partition = compiled_operator(
    f"segments_log_partition({_SEGMENTS}) -> (Tensor, Tensor, Tensor)",
    results=lambda unary, *_: (
        unary.new_empty(unary.shape[0]),
        *(unary.new_zeros(unary.shape, dtype=torch.float64) for _ in range(2)),
    ),
    loop=compiled.batch_log_partition,
    reads=_inputs,
    operations=_operations(10),
    gradient=log_partition_backward(lambda *saved: marginals(*saved)),
    save=_save,
    wide=2,
)
"""Log-partition [B], and log-sums [B, T, S] before and up to the end of segments, for the way back."""


def _marginals_backward(ctx: Any, *weights: Tensor) -> Sequence[Tensor]:
    """By the general program, which holds all segments."""
    scores, lengths = ctx.saved_tensors[:4], ctx.saved_tensors[4]
    (_, steps, states), longest = scores[0].shape, scores[2].shape[1]
    # A program is of given sizes, which tracing may have left open.
    program = segmentations(*map(int, (steps, longest, states)), bool(scores[1].shape[1] > 1))

    def listed(unary: Tensor, pairs: Tensor, durations: Tensor, segments: Tensor) -> Tensor:
        of_pairs = pairs.flatten(1).expand(unary.shape[0], -1)
        return torch.cat([scores_of_segments(unary, durations, segments).flatten(1), of_pairs], 1)

    moved = programs.tangents(listed(*scores), listed(*weights), lengths, program.handle)
    return pullbacks(listed, [moved], scores)[0]


marginals: Callable[..., tuple[Tensor, ...]] = compiled_operator(
    f"segments_marginals({_SEGMENTS}, Tensor begun, Tensor ended) -> (Tensor, Tensor, Tensor, Tensor)",
    results=lambda unary, pairs, durations, segments, *_: (
        unary.new_zeros(unary.shape),
        pairs.new_zeros(unary.shape[0], *pairs.shape[1:]),
        durations.new_zeros(unary.shape[0], *durations.shape[1:]),
        segments.new_zeros(segments.shape),
    ),
    loop=compiled.batch_marginals,
    reads=_inputs,
    operations=_operations(20),
    gradient=_marginals_backward,
)
"""Probabilities of labels, pairs, durations and segments of each example, given what :func:`log_partition` says."""
