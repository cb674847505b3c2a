"""The best spanning trees as torch operators over compiled loops; tensors elsewhere are copied to the CPU and back.

Shapes: scores [B, P] with P = n n L + n, of arcs (head, modifier, label) and of roots; lengths [B].
"""

from typing import Any

import torch
from torch import Tensor

from structsmooth.compiled.threads import over_batch
from structsmooth.structures.operators import like_scores, operator
from structsmooth.structures.programs.operators import weighted_uses


def _arrays(scores: Tensor, lengths: Tensor, words: int, labels: int, single_root: bool) -> tuple[Any, ...]:
    smallest, largest = lengths.aminmax() if lengths.numel() else (0, 0)
    if not 0 <= int(smallest) <= int(largest) <= words:
        raise ValueError(f"lengths must be from 0 to {words}, got {lengths.tolist()}")
    return scores.detach().cpu().contiguous().numpy(), words, lengths.cpu().numpy(), labels, single_root


def _like_top_k(
    scores: Tensor, lengths: Tensor, words: int, labels: int, single_root: bool, k: int
) -> tuple[Tensor, Tensor]:
    return scores.new_empty(len(scores), k), lengths.new_empty(len(scores), k, words)


def _save_used(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output)
    ctx.count = inputs[0].shape[1]


def _top_k_backward(ctx: Any, grad: Tensor, _grad_used: Tensor) -> tuple[Tensor | None, ...]:
    values, used = ctx.saved_tensors
    weights = torch.where(values > -torch.inf, grad, 0.0)
    return weighted_uses(weights, used, ctx.count), None, None, None, None, None


@operator("spanning_tree_top_k", _like_top_k, _top_k_backward, _save_used)
def top_k(scores: Tensor, lengths: Tensor, words: int, labels: int, single_root: bool, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k], and the parts [B, k, n] of the trees, P where there are none."""
    from structsmooth.structures.spanning_trees import compiled  # numba loads with the first oracle

    values, used = torch.full((len(scores), k), -torch.inf).to(scores.dtype), torch.full((len(scores), k, words), -1)
    used[:] = scores.shape[1]
    arrays = (*_arrays(scores, lengths, words, labels, single_root), values.numpy(), used.numpy())
    over_batch(lambda *bounds: compiled.batch_top_k(*arrays, *bounds), len(scores), 10 * k * scores.numel())
    return values.to(scores.device), used.to(scores.device)


@operator("spanning_tree_max_marginals_gradient", like_scores)
def max_marginals_gradient(
    scores: Tensor, weights: Tensor, lengths: Tensor, words: int, labels: int, single_root: bool
) -> Tensor:
    """Gradient [B, P] of the sum of max-marginals weighted by [B, P], without those of -inf."""
    return _by_part(torch.zeros(scores.shape, dtype=scores.dtype), weights, scores, lengths, words, labels, single_root)


def _by_part(out: Tensor, weights: Tensor, scores: Tensor, *sizes: Any) -> Tensor:
    from structsmooth.structures.spanning_trees import compiled

    arrays = (*_arrays(scores, *sizes), weights.detach().cpu().contiguous().numpy(), out.numpy())
    operations = 10 * scores.shape[1] * scores.numel()
    over_batch(lambda *bounds: compiled.batch_max_marginals(*arrays, *bounds), len(scores), operations)
    return out.to(scores.device)


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.sizes = inputs[2:]


def _max_marginals_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    scores, lengths = ctx.saved_tensors
    return max_marginals_gradient(scores, grad, lengths, *ctx.sizes), None, None, None, None


@operator("spanning_tree_max_marginals", like_scores, _max_marginals_backward, _save_inputs)
def max_marginals(scores: Tensor, lengths: Tensor, words: int, labels: int, single_root: bool) -> Tensor:
    """Max-marginals [B, P]: the best tree with each arc, for each of them."""
    out = torch.full(scores.shape, -torch.inf, dtype=scores.dtype)
    return _by_part(out, scores.new_empty(0, 0), scores, lengths, words, labels, single_root)
