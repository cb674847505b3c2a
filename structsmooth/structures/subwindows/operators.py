"""Subwindow search as a torch operator over a compiled loop; scores on other devices are copied to the CPU."""

import torch
from torch import Tensor

from structsmooth.compiled.threads import over_batch
from structsmooth.structures.operators import operator
from structsmooth.structures.search import search_too_large


def _like_top_k(scores: Tensor, k: int, max_sets: int) -> tuple[Tensor, Tensor]:
    batch = len(scores)
    return scores.new_empty(batch, k), scores.new_empty(batch, k, 4, dtype=torch.int64)


@operator("subwindows_top_k", _like_top_k)
def top_k(scores: Tensor, k: int, max_sets: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and boxes [B, k, 4] of maps [B, H, W] (Algorithm 13), without gradient."""
    from structsmooth.structures.subwindows import compiled  # numba loads with the first oracle, not with the library

    batch = len(scores)
    values = torch.full((batch, k), -torch.inf, dtype=torch.float64)
    boxes, done = torch.zeros(batch, k, 4, dtype=torch.int64), torch.ones(batch, dtype=torch.bool)
    maps = scores.detach().to("cpu", torch.float64).contiguous()
    arrays = (maps.numpy(), k, max_sets, values.numpy(), boxes.numpy(), done.numpy())
    over_batch(lambda *bounds: compiled.batch_search(*arrays, *bounds), batch, 8 * scores.numel())
    if not bool(done.all()):
        raise MemoryError(search_too_large(int(done.long().argmin()), max_sets))
    return values.to(scores), boxes.to(scores.device)


def covered(boxes: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Which rows [..., H] and columns [..., W] boxes [..., 4] cover."""
    x1, y1, x2, y2 = boxes.unsqueeze(-1).unbind(-2)
    y, x = (torch.arange(size, device=boxes.device) for size in (height, width))
    return (y1 <= y) & (y < y2), (x1 <= x) & (x < x2)
