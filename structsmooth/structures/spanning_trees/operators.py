"""The best spanning trees as torch operators over compiled loops; tensors elsewhere are copied to the CPU and back.

Shapes: scores [B, P] with P = n n L + n, of arcs (head, modifier, label) and of roots; lengths [B].
"""

from typing import Any

import torch
from torch import Tensor

from structsmooth.structures.max_marginals import max_marginals_loop
from structsmooth.structures.operators import cpu_loop


def _inputs(scores: Tensor, lengths: Tensor, words: int, labels: int, single_root: bool, *_: Any) -> tuple[Any, ...]:
    smallest, largest = lengths.aminmax() if lengths.numel() else (0, 0)
    if not 0 <= int(smallest) <= int(largest) <= words:
        raise ValueError(f"lengths must be from 0 to {words}, got {lengths.tolist()}")
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
