"""Oracles of deformable trees as torch operators over compiled loops.

Whatever the dtype of the potentials, scores are summed in float64. Messages are computed on the CPU: tensors on other
devices are copied to it, and results are copied back. The operators are opaque to ``torch.compile``.

Shapes: unary [B, N, H, W], deformation [B, N, 4], anchors [N, 2], parents int64 [N].
"""

from typing import Any

from torch import Tensor

from structsmooth.structures.deformable_tree import reference
from structsmooth.structures.operators import cpu_loop, gradient_of_plain, no_outputs

# Elementary operations of a transform for each position.
_TRANSFORM = 5


def _flat(unary: Tensor, deformation: Tensor, anchors: Tensor, parents: Tensor, *_: Any) -> tuple[Any, ...]:
    """What loops read: positions in one dimension, and the shape of the grid."""
    return unary.flatten(2), deformation, anchors, parents, tuple(unary.shape[2:])


@cpu_loop(
    "deformable_tree_top_k",
    "deformable_tree.compiled:batch_top_k",
    lambda *arguments: _TRANSFORM * arguments[0].numel() * (2 * arguments[-1] - 1),
    inputs=_flat,
)
def top_k(unary: Tensor, deformation: Tensor, anchors: Tensor, parents: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, N], in the order of their values up to rounding, without gradient."""
    return no_outputs(unary, k, unary.shape[1])


@cpu_loop(
    "deformable_tree_max_marginals",
    "deformable_tree.compiled:batch_max_marginals",
    lambda unary, *_: 2 * _TRANSFORM * unary.numel(),
    gradient_of_plain(lambda *arguments: reference.max_marginals(*arguments).flatten(2), 2),
    inputs=_flat,
)
def max_marginals(unary: Tensor, deformation: Tensor, anchors: Tensor, parents: Tensor) -> Tensor:
    """Max-marginals [B, N, H W]."""
    return unary.new_empty(unary.flatten(2).shape)
