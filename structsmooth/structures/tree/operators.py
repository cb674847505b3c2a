"""Oracles of trees as torch operators over compiled loops (CPU).

Value and statistics come from one pass; the backward pass is a product with saved statistics. Whatever the dtype of
the potentials, sums are accumulated in float64. The operators are opaque to ``torch.compile``, so models that use them
compile without graph breaks. Shapes: unary [B, N, S], pairwise [B, N, S, S], parents int64 [B, N], mask bool [B, N].
"""

import torch
from torch import Tensor

from structsmooth.structures.operators import (
    cpu_loop,
    exp_oracle_backward,
    gradient_of_plain,
    no_outputs,
    save_inputs_and_statistics,
    tangents_backward,
    without_statistics,
)
from structsmooth.structures.tree import reference


@cpu_loop(
    "tree_top_k",
    "tree.compiled:batch_top_k",
    lambda unary, pairwise, parents, mask, k: k * pairwise.numel(),
    inputs=lambda *arguments: arguments,
)
def top_k(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, N] (Algorithm 8)."""
    return no_outputs(unary, k, unary.shape[1])


def _moved(
    potentials: tuple[Tensor, Tensor], weights: tuple[Tensor | None, Tensor | None], parents: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of ⟨weights, marginals⟩ by potentials."""
    directions = [torch.zeros_like(p) if w is None else w for p, w in zip(potentials, weights, strict=True)]
    moved: tuple[Tensor, Tensor] = tangents(*potentials, *directions, parents, mask)
    return moved


@cpu_loop(
    "tree_marginals",
    "tree.compiled:batch_marginals",
    lambda unary, pairwise, *_: 8 * pairwise.numel(),
    exp_oracle_backward(_moved),
    save_inputs_and_statistics,
    finish=without_statistics,
)
def log_partition_and_marginals(
    unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition [B], node marginals [B, N, S] and edge marginals [B, N, S, S]."""
    return unary.new_empty(unary.shape[0]), unary.new_zeros(unary.shape), unary.new_zeros(pairwise.shape)


@cpu_loop(
    "tree_tangents",
    "tree.compiled:batch_tangents",
    lambda unary, pairwise, *_: 16 * pairwise.numel(),
    tangents_backward("tree_tangents", reference.log_partition, 2),
)
def tangents(
    unary: Tensor, pairwise: Tensor, node: Tensor, edge: Tensor, parents: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Derivatives of node marginals and edge marginals in directions ``node`` [B, N, S] and ``edge`` [B, N, S, S]."""
    return unary.new_zeros(unary.shape), unary.new_zeros(pairwise.shape)


def log_partition(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> Tensor:
    """Log-partition [B]."""
    log_z: Tensor = log_partition_and_marginals(unary, pairwise, parents, mask)[0]
    return log_z


def marginals(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Node marginals [B, N, S] and edge marginals [B, N, S, S]."""
    _, node, edge = log_partition_and_marginals(unary, pairwise, parents, mask)
    return node, edge


@cpu_loop(
    "tree_max_marginals",
    "tree.compiled:batch_max_marginals",
    lambda unary, pairwise, *_: 2 * pairwise.numel(),
    gradient_of_plain(reference.max_marginals, 2),
)
def max_marginals(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> Tensor:
    """Max-marginals [B, N, S]."""
    return unary.new_zeros(unary.shape)


@cpu_loop(
    "tree_sample",
    "tree.compiled:batch_sample",
    lambda unary, pairwise, parents, mask, uniform: 8 * pairwise.numel() + 2 * uniform.shape[1] * unary.numel(),
)
def sample(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor, uniform: Tensor) -> Tensor:
    """Samples [B, n, N] at uniform numbers of that shape."""
    return uniform.new_zeros(uniform.shape, dtype=torch.int64)
