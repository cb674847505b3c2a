"""Segmentations as a general program, with an edge for each segment."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures.programs import Program, ProgramBuilder, cached_program


def scores_of_segments(unary: Tensor, durations: Tensor, segments: Tensor) -> Tensor:
    """Scores [B, T, K, S] of all segments, by first position and duration."""
    (_, steps, _), longest = unary.shape, durations.shape[-2]
    t, k = torch.arange(steps, device=unary.device), torch.arange(longest, device=unary.device)
    # Sums over windows, not differences of prefix sums, which would lose digits and give NaN for -inf.
    windows = pad(unary, (0, 0, 0, longest - 1)).index_select(1, (t[:, None] + k).flatten())
    found: Tensor = windows.unflatten(1, (steps, longest)).cumsum(2) + durations.unsqueeze(1)
    if segments.shape[1]:
        found = found + segments
    return found


@cached_program
def segmentations(steps: int, longest: int, states: int, per_boundary: bool) -> Program:
    """Scores of segments (start, duration, label), then of transitions (boundary, if each has its own, label, label).

    A node says that a segment of label s begins at t, or that one ends there; the former takes the transitions, so that
    there are T S (S + K) edges and not T K S². Roots are the ends of the lengths from 0 to T.
    """
    segments, boundaries = steps * states * longest, steps - 1 if per_boundary else 1
    builder = ProgramBuilder(scores=segments + boundaries * states**2)
    block = 2 * states + 1

    def ends(t: Any, s: Any) -> Any:
        return states + (t - 1) * block + s

    def begins(t: Any, s: Any) -> Any:
        return ends(t, s) + np.where(t > 0, states + 1, block - states)

    t, s, k = np.ogrid[1 : steps + 1, :states, 1 : longest + 1]
    builder.add(head=np.arange(states))
    start = np.maximum(t - k, 0)
    builder.add(ends(t, s), begins(start, s), index=(start * longest + k - 1) * states + s, where=k <= t)
    t, s, a = np.ogrid[1 : steps + 1, :states, :states]
    pairs = segments + (t - 1) * per_boundary * states**2 + a * states + s
    builder.add(begins(t, s), ends(t, a), index=pairs, where=t < steps)
    t, s = np.ogrid[1 : steps + 1, :states]
    final = ends(t, states)
    builder.add(final, ends(t, s))
    return builder.build(np.append(0, final))
