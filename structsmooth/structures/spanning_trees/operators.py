"""Oracles of spanning trees as torch operators over compiled loops; tensors elsewhere are copied to the CPU and back.

Shapes: scores [B, P] with P = n n L + n, of arcs (head, modifier, label) and of roots; sums over labels of arcs
[B, n, n], root [B, n]; lengths [B].
"""

from typing import Any

import torch
from torch import Tensor

from structsmooth.structures.chain.reference import check_lengths, length_mask
from structsmooth.structures.derivatives import gradients_of, slope
from structsmooth.structures.max_marginals import max_marginals_loop
from structsmooth.structures.operators import (
    cpu_loop,
    exp_oracle_backward,
    save_inputs_and_statistics,
    without_statistics,
)
from structsmooth.structures.spanning_trees import elimination


def _inputs(scores: Tensor, lengths: Tensor, words: int, labels: int, single_root: bool, *_: Any) -> tuple[Any, ...]:
    check_lengths(lengths, words, "n", least=0)
    return scores, words, lengths, labels, single_root


@cpu_loop(
    "spanning_tree_top_k",
    "spanning_trees.compiled:batch_top_k",
    lambda *arguments: 10 * arguments[-1] * arguments[0].numel(),
    inputs=_inputs,
)
def top_k(scores: Tensor, lengths: Tensor, words: int, labels: int, single_root: bool, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k], and the parts [B, k, n] of the trees, P where there are none."""
    batch = scores.shape[0]
    return scores.new_empty(batch, k), lengths.new_full((batch, k, words), scores.shape[1])


def _searches(scores: Tensor, *_: Any) -> int:
    """Operations of a search for each part."""
    return 10 * scores.shape[1] * scores.numel()


@max_marginals_loop(
    "spanning_tree_max_marginals",
    "spanning_trees.compiled:batch_max_marginals",
    _searches,
    inputs=lambda scores, *others: (*_inputs(scores, *others), *(others[4:] or [scores.new_empty(0, 0)])),
)
def max_marginals(scores: Tensor, lengths: Tensor, words: int, labels: int, single_root: bool) -> Tensor:
    """Max-marginals [B, P]: the best tree with each arc, for each of them."""
    return scores.new_full(scores.shape, -torch.inf)


def _log_partition(arcs: Tensor, root: Tensor, lengths: Tensor, single_root: bool) -> Tensor:
    return elimination.log_partition(arcs, root, length_mask(lengths, arcs.shape[1]), single_root)[0]


def _curvature(potentials: tuple[Tensor, ...], weights: tuple[Tensor | None, ...], *others: Any) -> tuple[Tensor, ...]:
    """Gradients of ⟨weights, probabilities⟩ by potentials, in plain torch."""
    return gradients_of(slope(lambda *scores: _log_partition(*scores, *others).sum(), weights), potentials)


def _sum_inputs(arcs: Tensor, root: Tensor, lengths: Tensor, single_root: bool) -> tuple[Any, ...]:
    check_lengths(lengths, arcs.shape[1], "n", least=0)
    return arcs, root, lengths, single_root


@cpu_loop(
    "spanning_tree_sums",
    "spanning_trees.compiled_elimination:batch_sums",
    lambda arcs, *_: arcs.shape[1] * arcs.numel(),
    exp_oracle_backward(_curvature),
    save_inputs_and_statistics,
    inputs=_sum_inputs,
    finish=without_statistics,
)
def log_partition_and_marginals(
    arcs: Tensor, root: Tensor, lengths: Tensor, single_root: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition [B], and probabilities of arcs [B, n, n] and of roots [B, n]."""
    return arcs.new_empty(arcs.shape[0]), arcs.new_zeros(arcs.shape), root.new_zeros(root.shape)
