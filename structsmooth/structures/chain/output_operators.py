"""Scores of outputs of chains, and their adjoint: the gradients of two operators by each other, whatever runs them.

``scores`` are the scores [B, K] of (unary, transition, lengths, y), for outputs y [B, K, T]; ``weighted_parts`` are
Σ_k weights[b, k] ν(y[b, k]) of (weights, y, lengths, states, transition_shape): [B, T, S] for unary scores, and for
transitions, summed to ``transition_shape``.
"""

from collections.abc import Callable
from typing import Any, Sequence  # noqa: UP035 - torch 2.5 infers no schema from that of collections.abc

from torch import Tensor

from structsmooth.structures.operators import Backward


def scores_backward(weighted_parts: Callable[[], Any]) -> Backward:
    """The gradient of ``scores``, which keeps what :func:`save_shapes` does, by the adjoint, which may come later."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        lengths, y = ctx.saved_tensors
        node, edge = weighted_parts()(grad, y, lengths, ctx.states, ctx.transition_shape)
        return node, edge

    return backward


def parts_backward(scores: Callable[..., Tensor]) -> Backward:
    """The gradient of ``weighted_parts``, which keeps what :func:`save_outputs` does."""

    def backward(ctx: Any, grad_node: Tensor, grad_edge: Tensor) -> tuple[Tensor]:
        y, lengths = ctx.saved_tensors
        return (scores(grad_node, grad_edge, lengths, y),)

    return backward


def like_scores_of_outputs(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    """Empty scores [B, K] of outputs [B, K, T]."""
    return unary.new_empty(y.shape[:2])


def like_parts(
    weights: Tensor, y: Tensor, lengths: Tensor, states: int, transition_shape: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Zero statistics of nodes and transitions."""
    return weights.new_zeros(len(y), y.shape[2], states), weights.new_zeros(transition_shape)


def save_shapes(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    """Keep the outputs, and the shapes of the scores."""
    unary, transition, lengths, y = inputs
    ctx.save_for_backward(lengths, y)
    ctx.states, ctx.transition_shape = unary.shape[-1], transition.shape


def save_outputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep the outputs."""
    _, y, lengths, _, _ = inputs
    ctx.save_for_backward(y, lengths)
