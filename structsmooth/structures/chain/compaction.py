"""Sequences whose masked positions are left out: their scores moved together, and answers moved back.

Shapes: mask and order [B, T], unary [B, T, S], edges [B, T-1, S, S]. Edge t scores positions t and t + 1; across a hole
it is the last one, which ends at the later of the two neighbours. Nothing waits for the device.
"""

import torch
from torch import Tensor

from structsmooth.structures import checks


def compact_order(mask: Tensor) -> Tensor:
    """The positions where the mask is true, in their order, followed by the others."""
    place = torch.where(mask, mask.cumsum(1), mask.sum(1, keepdim=True) + (~mask).cumsum(1)) - 1
    return torch.zeros_like(place).scatter(1, place, torch.arange(mask.shape[1], device=mask.device).expand_as(place))


def compact_nodes(unary: Tensor, order: Tensor, lengths: Tensor) -> Tensor:
    """Scores of positions, those in use first; an example without any has one output, of score 0."""
    moved = unary.gather(1, order.unsqueeze(-1).expand_as(unary))
    nothing = torch.where(torch.arange(unary.shape[2], device=unary.device) == 0, 0.0, -torch.inf)
    return torch.where((lengths == 0)[:, None, None], nothing.to(unary.dtype), moved)


def compact_edges(edges: Tensor, order: Tensor) -> Tensor:
    """Scores of pairs of neighbours, those in use first."""
    return edges.gather(1, _later_edges(order, edges).expand_as(edges))


def spread_nodes(nodes: Tensor, order: Tensor, mask: Tensor) -> Tensor:
    """The inverse of :func:`compact_nodes`, zero where the mask is false."""
    moved = torch.zeros_like(nodes).scatter(1, order.unsqueeze(-1).expand_as(nodes), nodes)
    return torch.where(mask.unsqueeze(-1), moved, 0.0)


def spread_edges(edges: Tensor, order: Tensor) -> Tensor:
    """The inverse of :func:`compact_edges`, for edges that are zero at padding."""
    return torch.zeros_like(edges).scatter_add(1, _later_edges(order, edges).expand_as(edges), edges)


def spread_labels(y: Tensor, order: Tensor, mask: Tensor, other: int) -> Tensor:
    """Labels [B, K, T] at the positions they came from, and another where the mask is false."""
    moved = torch.zeros_like(y).scatter(2, order.unsqueeze(1).expand_as(y), y)
    return torch.where(mask.unsqueeze(1), moved, other)


def check_ends(unary: Tensor, validate_args: bool, **ends: Tensor | None) -> None:
    """Raise unless the scores of first and last labels fit to unary ones."""
    batch, _, states = unary.shape
    for name, scores in ends.items():
        if scores is not None:
            checks.require_scores(name, scores)
            if not checks.has_shape(scores, (states,), (batch, states)):
                raise ValueError(
                    f"{name} must have shape [S] or [B, S] with B, S = {batch}, {states}, got {tuple(scores.shape)}"
                )
            checks.require_device(name, scores, "unary", unary)
            if validate_args:
                checks.require_below_infinity(name, scores, shared=scores.dim() == 1)


def with_ends(unary: Tensor, mask: Tensor, start: Tensor | None, stop: Tensor | None) -> Tensor:
    """Scores with ``start`` and ``stop`` [S] or [B, S] added at the first and the last position in use."""
    used, last = mask.byte(), mask.shape[1] - 1
    ends = [(start, used.argmax(1)), (stop, last - used.flip(1).argmax(1))]
    given = [(scores.expand(mask.shape[0], -1), place) for scores, place in ends if scores is not None]
    added = torch.where(mask.any(1)[:, None, None], torch.stack([scores for scores, _ in given], 1), 0.0)
    places = torch.stack([place for _, place in given], 1).unsqueeze(-1).expand(added.shape)
    dtype = torch.promote_types(unary.dtype, added.dtype)
    return unary.to(dtype).scatter_add(1, places, added.to(dtype))


def with_start(unary: Tensor, start: Tensor) -> Tensor:
    """Scores with ``start`` [S] or [B, S] added at the first position, where all sequences begin."""
    added = start.expand(unary.shape[0], -1).unsqueeze(1)
    dtype = torch.promote_types(unary.dtype, added.dtype)
    first = torch.zeros(added.shape, dtype=torch.int64, device=added.device)
    return unary.to(dtype).scatter_add(1, first, added.to(dtype))


def _later_edges(order: Tensor, edges: Tensor) -> Tensor:
    """The edge that ends at each position but the first, [B, T-1, 1, 1]; any edge where there is none."""
    return (order[:, 1:] - 1).clamp_min(0)[..., None, None]
