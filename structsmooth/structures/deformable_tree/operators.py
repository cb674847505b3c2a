"""Oracles of deformable trees as torch operators over compiled loops.

Whatever the dtype of the potentials, scores are summed in float64. Messages are computed on the CPU: tensors on other
devices are copied to it, and results are copied back. The operators are opaque to ``torch.compile``.

Shapes: unary [B, N, H, W], deformation [B, N, 4], anchors [N, 2], parents int64 [N].
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from structsmooth.compiled.threads import over_batch
from structsmooth.structures.deformable_tree import reference
from structsmooth.structures.operators import like_scores, like_top_k, max_marginals_gradient, operator


def _arrays(unary: Tensor, deformation: Tensor, anchors: Tensor, parents: Tensor) -> tuple[Any, ...]:
    scores = (t.detach().to("cpu", torch.float64).contiguous() for t in (unary.flatten(2), deformation, anchors))
    return *(t.numpy() for t in scores), parents.cpu().contiguous().numpy(), tuple(unary.shape[2:])


# Elementary operations of a transform for each position.
_TRANSFORM = 5


@operator("deformable_tree_top_k", like_top_k)
def top_k(unary: Tensor, deformation: Tensor, anchors: Tensor, parents: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, N], in the order of their values up to rounding."""
    from structsmooth.structures.deformable_tree import compiled  # numba loads with the first oracle

    batch, nodes = unary.shape[:2]
    values = torch.full((batch, k), -torch.inf, dtype=torch.float64)
    y = torch.zeros(batch, k, nodes, dtype=torch.int64)
    arrays = (*_arrays(unary, deformation, anchors, parents), values.numpy(), y.numpy())
    over_batch(lambda *bounds: compiled.batch_top_k(*arrays, *bounds), batch, _TRANSFORM * unary.numel() * (2 * k - 1))
    return values.to(unary), y.to(unary.device)


def _max_marginals_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    unary, deformation, anchors, parents = ctx.saved_tensors
    run = partial(reference.max_marginals, anchors=anchors, parents=parents)
    return *max_marginals_gradient(run, (unary, deformation), grad), None, None


@operator("deformable_tree_max_marginals", like_scores, _max_marginals_backward)
def max_marginals(unary: Tensor, deformation: Tensor, anchors: Tensor, parents: Tensor) -> Tensor:
    """Max-marginals [B, N, H, W]."""
    from structsmooth.structures.deformable_tree import compiled

    table = torch.empty(unary.flatten(2).shape, dtype=torch.float64)
    arrays = (*_arrays(unary, deformation, anchors, parents), table.numpy())
    operations = 2 * _TRANSFORM * unary.numel()
    over_batch(lambda *bounds: compiled.batch_max_marginals(*arrays, *bounds), len(unary), operations)
    return table.view(unary.shape).to(unary)
