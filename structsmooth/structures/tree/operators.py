"""Oracles of trees as torch operators over compiled loops (CPU).

Value and statistics come from one pass; the backward pass is a product with saved statistics. Whatever the dtype of
the potentials, sums are accumulated in float64. The operators are opaque to ``torch.compile``, so models that use them
compile without graph breaks. Shapes: unary [B, N, S], pairwise [B, N, S, S], parents int64 [B, N], mask bool [B, N].
"""

from collections.abc import Callable

import torch
from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures.operators import (
    compiled_operator,
    exp_oracle_backward,
    gradient_of_plain,
    no_labels,
    no_samples,
    save_inputs_and_statistics,
    tangents_backward,
    without_statistics,
    zeros_like_scores,
)
from structsmooth.structures.tree import reference

compiled = LazyLoops("structsmooth.structures.tree.compiled")
_TREES = "Tensor unary, Tensor pairwise, Tensor parents, Tensor mask"

top_k = compiled_operator(
    f"tree_top_k({_TREES}, SymInt k) -> (Tensor, Tensor)",
    results=no_labels,
    loop=compiled.batch_top_k,
    reads=lambda *arguments: arguments,
    operations=lambda unary, pairwise, parents, mask, k: k * pairwise.numel(),
)
"""Values [B, k] and outputs [B, k, N] (Algorithm 8)."""


def _moved(
    potentials: tuple[Tensor, Tensor], weights: tuple[Tensor | None, Tensor | None], parents: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of ⟨weights, marginals⟩ by potentials."""
    directions = [torch.zeros_like(p) if w is None else w for p, w in zip(potentials, weights, strict=True)]
    return tangents(*potentials, *directions, parents, mask)


log_partition_and_marginals: Callable[..., tuple[Tensor, Tensor, Tensor]] = compiled_operator(
    f"tree_marginals({_TREES}) -> (Tensor, Tensor, Tensor)",
    results=lambda unary, pairwise, *_: (
        unary.new_empty(unary.shape[0]),
        unary.new_zeros(unary.shape),
        unary.new_zeros(pairwise.shape),
    ),
    loop=compiled.batch_marginals,
    operations=lambda unary, pairwise, *_: 8 * pairwise.numel(),
    finish=without_statistics,
    gradient=exp_oracle_backward(_moved),
    save=save_inputs_and_statistics,
)
"""Log-partition [B], node marginals [B, N, S] and edge marginals [B, N, S, S]."""

tangents = compiled_operator(
    "tree_tangents(Tensor unary, Tensor pairwise, Tensor node, Tensor edge, Tensor parents, Tensor mask)"
    " -> (Tensor, Tensor)",
    results=lambda unary, pairwise, *_: (unary.new_zeros(unary.shape), unary.new_zeros(pairwise.shape)),
    loop=compiled.batch_tangents,
    operations=lambda unary, pairwise, *_: 16 * pairwise.numel(),
    gradient=tangents_backward("tree_tangents", reference.log_partition, 2),
)
"""Derivatives of node marginals and edge marginals in directions ``node`` [B, N, S] and ``edge`` [B, N, S, S]."""


def log_partition(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> Tensor:
    """Log-partition [B]."""
    return log_partition_and_marginals(unary, pairwise, parents, mask)[0]


def marginals(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Node marginals [B, N, S] and edge marginals [B, N, S, S]."""
    _, node, edge = log_partition_and_marginals(unary, pairwise, parents, mask)
    return node, edge


max_marginals = compiled_operator(
    f"tree_max_marginals({_TREES}) -> Tensor",
    results=zeros_like_scores,
    loop=compiled.batch_max_marginals,
    operations=lambda unary, pairwise, *_: 2 * pairwise.numel(),
    gradient=gradient_of_plain(reference.max_marginals, 2),
)
"""Max-marginals [B, N, S]."""

sample = compiled_operator(
    f"tree_sample({_TREES}, Tensor uniform) -> Tensor",
    results=no_samples,
    loop=compiled.batch_sample,
    operations=lambda unary, pairwise, parents, mask, uniform: (
        8 * pairwise.numel() + 2 * uniform.shape[1] * unary.numel()
    ),
)
"""Samples [B, n, N] at uniform numbers of that shape."""
