"""Oracles of deformable trees as torch operators over compiled loops.

Whatever the dtype of the potentials, scores are summed in float64. Messages are computed on the CPU: tensors on other
devices are copied to it, and results are copied back. The operators are opaque to ``torch.compile``.

Shapes: unary [B, N, H, W], deformation [B, N, 4], anchors [N, 2], parents int64 [N].
"""

from typing import Any

from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures.deformable_tree import reference
from structsmooth.structures.operators import compiled_operator, gradient_of_plain, no_labels

compiled = LazyLoops("structsmooth.structures.deformable_tree.compiled")
_TREES = "Tensor unary, Tensor deformation, Tensor anchors, Tensor parents"
# Elementary operations of a transform for each position.
_TRANSFORM = 5


def _flat(unary: Tensor, deformation: Tensor, anchors: Tensor, parents: Tensor, *_: Any) -> tuple[Any, ...]:
    """What loops read: positions in one dimension, and the shape of the grid."""
    return unary.flatten(2), deformation, anchors, parents, tuple(unary.shape[2:])


top_k = compiled_operator(
    f"deformable_tree_top_k({_TREES}, SymInt k) -> (Tensor, Tensor)",
    results=no_labels,
    loop=compiled.batch_top_k,
    reads=_flat,
    operations=lambda *arguments: _TRANSFORM * arguments[0].numel() * (2 * arguments[-1] - 1),
)
"""Values [B, k] and outputs [B, k, N], in the order of their values up to rounding, without gradient."""

max_marginals = compiled_operator(
    f"deformable_tree_max_marginals({_TREES}) -> Tensor",
    results=lambda unary, *_: unary.new_empty(unary.flatten(2).shape),
    loop=compiled.batch_max_marginals,
    reads=_flat,
    operations=lambda unary, *_: 2 * _TRANSFORM * unary.numel(),
    gradient=gradient_of_plain(lambda *arguments: reference.max_marginals(*arguments).flatten(2), 2),
)
"""Max-marginals [B, N, H W]."""
