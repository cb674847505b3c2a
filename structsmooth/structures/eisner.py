"""Eisner's algorithm as a scan over the widths of spans, for graphs of plain torch whose sizes are left open.

There are N words, of which the first may be the root. A chart [B, N, N] holds the values of spans by their first word
and their width, or by their last word and their width; it is -inf where there is no such span. For the words i to j
there are five kinds: two halves that meet, trees that an arc has made with their heads at i (incomplete right) or at j
(incomplete left), and such trees whose heads take no more modifiers inside (complete).

Reference:
    Eisner (1996).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.structures.programs.scanned import Sums
from structsmooth.structures.scans import Tensors, scan


class Charts(NamedTuple):
    """Complete trees by first word, and the alternatives [B, width, first word, split] of each kind of span."""

    right: Tensor
    left: Tensor
    right_by_end: Tensor
    met: Tensor
    completed_right: Tensor
    completed_left: Tensor


def charts(sums: Sums, arcs: Tensor) -> Charts:
    """Sums over the trees of all spans.

    Args:
        sums: what a sum is.
        arcs: scores [B, N, N] from heads to modifiers.
    """
    count = arcs.shape[1]
    place = torch.arange(count, device=arcs.device)

    def step(state: Tensors, inputs: Tensors) -> tuple[Tensors, Tensors]:
        """State: complete trees by first and by last words, then incomplete ones, right by first and left by last."""
        right, right_end, left, left_end, made_right, made_left_end = state
        (width,), to_right, to_left = inputs  # a number: torch may leave the size of dimensions open, even if it is 1
        last = (place + width).clamp_max(count - 1)
        exists, rest = place + width < count, width - place  # what a split leaves of the width

        def ending(chart: Tensor, widths: Tensor) -> Tensor:
            """Spans [B, first word, split] of given widths that end where spans of this width do."""
            kept = chart.index_select(1, last).index_select(2, widths.clamp(0, count - 1))
            return torch.where(widths >= 0, kept, -torch.inf)

        halves = right + ending(left_end, rest - 1)
        meeting = sums.total(halves, 2)
        new_right, new_left = meeting + to_right, meeting + to_left
        made_right = torch.where(place == width, new_right.unsqueeze(2), made_right)
        made_left_end = _with_width(made_left_end, new_left, width)
        completing_right = torch.where(place > 0, made_right + ending(right_end, rest), -torch.inf)
        completing_left = torch.where(place < width, left + ending(made_left_end, rest), -torch.inf)
        complete = [
            torch.where(width == 0, 0.0, sums.total(values, 2)) for values in (completing_right, completing_left)
        ]
        complete = [torch.where(exists, values, -torch.inf) for values in complete]
        right, left = (
            torch.where(place == width, new.unsqueeze(2), chart)
            for new, chart in zip(complete, (right, left), strict=True)
        )
        right_end, left_end = (
            _with_width(chart, new, width) for new, chart in zip(complete, (right_end, left_end), strict=True)
        )
        found = [
            torch.where(exists[:, None], values, -torch.inf) for values in (halves, completing_right, completing_left)
        ]
        return (right, right_end, left, left_end, made_right, made_left_end), tuple(found)

    nothing = torch.full_like(arcs, -torch.inf)
    to_right, to_left = by_width(arcs), by_width(arcs.mT)
    state, found = scan(step, (nothing,) * 6, (place[None], to_right, to_left))
    return Charts(state[0], state[2], state[1], *found)


def _with_width(by_end: Tensor, new: Tensor, width: Tensor) -> Tensor:
    """A chart by last words with new values [B, first word] for a width."""
    place = torch.arange(by_end.shape[1], device=by_end.device)
    moved = new.index_select(1, (place - width).clamp_min(0)).unsqueeze(2)
    return torch.where((place == width) & (place >= width).unsqueeze(1), moved, by_end)


def by_width(arcs: Tensor) -> Tensor:
    """Scores [B, width, i] of arcs from i to i + width, from those [B, head, modifier]; any where there are none."""
    place = torch.arange(arcs.shape[1], device=arcs.device)
    index = (place[:, None] + place).clamp_max(arcs.shape[1] - 1)
    return arcs.mT.gather(1, index.expand_as(arcs))


def uses(sums: Sums, found: Charts, by_right: Tensor, by_left: Tensor) -> Tensor:
    """How much arcs [B, head, modifier] are used, given the derivatives by complete trees, by first word and width."""
    count = by_right.shape[1]
    place = torch.arange(count, device=by_right.device)

    def step(state: Tensors, inputs: Tensors) -> tuple[Tensors, Tensors]:
        """State: derivatives by complete and by incomplete trees, right and left, by first word and width."""
        right, left, made_right, made_left = state
        (width,), met, completed_right, completed_left = inputs

        def at(chart: Tensor) -> Tensor:
            return chart.index_select(2, width)

        def moved(parts: Tensor, shift: int) -> Tensor:
            """Parts [B, first word, split] of spans as those [B, first word, width] of what begins at their split."""
            split = width - shift - place
            first = place[:, None] - split - shift
            index = (first * count + split).clamp(0, count * count - 1)
            kept = parts.flatten(1).index_select(1, index.flatten()).view(parts.shape)
            return torch.where((split >= 0) & (first >= 0), kept, 0.0)

        of_right, of_left = at(right) * completed_right, at(left) * completed_left
        made_right, right = made_right + of_right, right + moved(of_right, 0)
        made_left, left = made_left + moved(of_left, 0), left + of_left
        used_right, used_left = at(made_right), at(made_left)
        of_halves = (used_right + used_left) * met
        state = right + of_halves, left + moved(of_halves, 1), made_right, made_left
        return state, (used_right.squeeze(2), used_left.squeeze(2))

    shares = [sums.shares(values, 3) for values in (found.met, found.completed_right, found.completed_left)]
    none = torch.zeros_like(by_right)
    _, used = scan(step, (by_right, by_left, none, none), (place[None], *shares), reverse=True)
    # From widths and first words to heads and modifiers.
    low, width = torch.minimum(place[:, None], place), (place[:, None] - place).abs()
    index = (width * count + low).flatten()
    to_right, to_left = (chart.flatten(1).index_select(1, index).view(chart.shape) for chart in used)
    return torch.where(place[:, None] < place, to_right, torch.where(place[:, None] > place, to_left, 0.0))
