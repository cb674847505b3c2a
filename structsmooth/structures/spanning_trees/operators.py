"""Oracles of spanning trees as torch operators over compiled loops; tensors elsewhere are copied to the CPU and back.

Shapes: scores [B, P] with P = n n L + n, of arcs (head, modifier, label) and of roots; sums over labels of arcs
[B, n, n], root [B, n]; lengths [B].
"""

from typing import Any

import torch
from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures.checks import check_lengths, length_mask
from structsmooth.structures.derivatives import gradients_of, slope
from structsmooth.structures.max_marginals import max_marginals_operator
from structsmooth.structures.operators import (
    compiled_operator,
    exp_oracle_backward,
    save_inputs_and_statistics,
    without_statistics,
)
from structsmooth.structures.spanning_trees import elimination

compiled = LazyLoops("structsmooth.structures.spanning_trees.compiled")
compiled_elimination = LazyLoops("structsmooth.structures.spanning_trees.compiled_elimination")
_ARCS = "Tensor scores, Tensor lengths, SymInt words, SymInt labels, bool single_root"


def _inputs(scores: Tensor, lengths: Tensor, words: int, labels: int, single_root: bool, *_: Any) -> tuple[Any, ...]:
    check_lengths(lengths, words, "n", least=0)
    return scores, words, lengths, labels, single_root


top_k = compiled_operator(
    f"spanning_tree_top_k({_ARCS}, SymInt k) -> (Tensor, Tensor)",
    results=lambda scores, lengths, words, labels, single_root, k: (
        scores.new_empty(scores.shape[0], k),
        lengths.new_full((scores.shape[0], k, words), scores.shape[1]),
    ),
    loop=compiled.batch_top_k,
    reads=_inputs,
    operations=lambda *arguments: 10 * arguments[-1] * arguments[0].numel(),
)
"""Values [B, k], and the parts [B, k, n] of the trees, P where there are none."""


# Registers spanning_tree_max_marginals_gradient, too.
max_marginals = max_marginals_operator(
    f"spanning_tree_max_marginals({_ARCS}) -> Tensor",
    results=lambda scores, *_: scores.new_full(scores.shape, -torch.inf),
    loop=compiled.batch_max_marginals,
    gradient_loop=compiled.batch_max_marginals_gradient,
    reads=lambda scores, *others: (*_inputs(scores, *others), *(others[4:] or [scores.new_empty(0, 0)])),
    operations=lambda scores, *_: 10 * scores.shape[1] * scores.numel(),  # a search for each part
)
"""Max-marginals [B, P]: the best tree with each arc, for each of them."""


def _log_partition(arcs: Tensor, root: Tensor, lengths: Tensor, single_root: bool) -> Tensor:
    return elimination.log_partition(arcs, root, length_mask(lengths, arcs.shape[1]), single_root)[0]


def _curvature(potentials: tuple[Tensor, ...], weights: tuple[Tensor | None, ...], *others: Any) -> tuple[Tensor, ...]:
    """Gradients of ⟨weights, probabilities⟩ by potentials, in plain torch."""
    return gradients_of(slope(lambda *scores: _log_partition(*scores, *others).sum(), weights), potentials)


def _sum_inputs(arcs: Tensor, root: Tensor, lengths: Tensor, single_root: bool) -> tuple[Any, ...]:
    check_lengths(lengths, arcs.shape[1], "n", least=0)
    return arcs, root, lengths, single_root


log_partition_and_marginals = compiled_operator(
    "spanning_tree_sums(Tensor arcs, Tensor root, Tensor lengths, bool single_root) -> (Tensor, Tensor, Tensor)",
    results=lambda arcs, root, *_: (
        arcs.new_empty(arcs.shape[0]),
        arcs.new_zeros(arcs.shape),
        root.new_zeros(root.shape),
    ),
    loop=compiled_elimination.batch_sums,
    reads=_sum_inputs,
    operations=lambda arcs, *_: arcs.shape[1] * arcs.numel(),
    finish=without_statistics,
    gradient=exp_oracle_backward(_curvature),
    save=save_inputs_and_statistics,
)
"""Log-partition [B], and probabilities of arcs [B, n, n] and of roots [B, n]."""
