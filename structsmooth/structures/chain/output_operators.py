"""Outputs of chains as torch operators, whatever runs them: the top-K oracle, scores, and the adjoint of scores."""

from collections.abc import Callable
from typing import Any, NamedTuple, Sequence  # noqa: UP035 - torch 2.5 infers no schema from that of collections.abc

import torch
from torch import Tensor

from structsmooth.structures.operators import like_top_k, operator


class OutputOperators(NamedTuple):
    """Operators of one backend, each differentiable by the others.

    Attributes:
        top_k: values [B, k] and outputs [B, k, T] of (unary, transition, lengths, k).
        scores: scores [B, K] of (unary, transition, lengths, y), for outputs y [B, K, T].
        weighted_parts: Σ_k weights[b, k] ν(y[b, k]) of (weights, y, lengths, states, transition_shape): [B, T, S] for
            unary scores, and for transitions, summed to ``transition_shape``.
    """

    top_k: Any
    scores: Any
    weighted_parts: Any


def output_operators(
    prefix: str,
    top_k: Callable[..., tuple[Tensor, Tensor]],
    scores: Callable[..., Tensor],
    weighted_parts: Callable[..., tuple[Tensor, Tensor]],
    make: Callable[..., Any] = operator,
) -> OutputOperators:
    """Register three functions as the operators ``prefix_top_k``, ``prefix_scores`` and ``prefix_weighted_parts``.

    Args:
        prefix: of their names.
        top_k: as in :class:`OutputOperators`, and so are the others.
        scores: of outputs.
        weighted_parts: their adjoint.
        make: an operator of a function, such as ``cpu_operator``.
    """

    def parts(ctx: Any, weights: Tensor, y: Tensor, lengths: Tensor) -> tuple[Tensor | None, ...]:
        return *registered.weighted_parts(weights, y, lengths, ctx.states, ctx.transition_shape), None, None

    def top_k_backward(ctx: Any, grad: Tensor, _grad_y: Tensor) -> tuple[Tensor | None, ...]:
        lengths, values, y = ctx.saved_tensors
        return parts(ctx, torch.where(values > -torch.inf, grad, 0.0), y, lengths)

    def scores_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        lengths, y = ctx.saved_tensors
        return parts(ctx, grad, y, lengths)

    def weighted_parts_backward(ctx: Any, grad_node: Tensor, grad_edge: Tensor) -> tuple[Tensor | None, ...]:
        y, lengths = ctx.saved_tensors
        return registered.scores(grad_node, grad_edge, lengths, y), None, None, None, None

    def register(name: str, function: Callable[..., Any], *rules: Any) -> Any:
        return make(f"{prefix}_{name}", *rules)(function)

    registered = OutputOperators(
        register("top_k", top_k, like_top_k, top_k_backward, _save_found),
        register("scores", scores, like_scores_of_outputs, scores_backward, _save_given),
        register("weighted_parts", weighted_parts, _like_parts, weighted_parts_backward, _save_outputs),
    )
    return registered


def like_scores_of_outputs(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    """Empty scores [B, K] of outputs [B, K, T]."""
    return unary.new_empty(y.shape[:2])


def summed_to(edge: Tensor, shape: Sequence[int]) -> Tensor:
    """Statistics [1 or B, 1 or T-1, S, S] summed over the dimensions that are 1 in ``shape``, empty ones too."""
    shared = [dim for dim in (0, 1) if shape[dim] == 1 != edge.shape[dim]]
    return edge.sum(shared, keepdim=True) if shared else edge


def _like_parts(
    weights: Tensor, y: Tensor, lengths: Tensor, states: int, transition_shape: Sequence[int]
) -> tuple[Tensor, Tensor]:
    return weights.new_empty(len(y), y.shape[2], states), weights.new_empty(transition_shape)


def _save_found(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    unary, transition, lengths, _ = inputs
    ctx.save_for_backward(lengths, *output)
    ctx.states, ctx.transition_shape = unary.shape[-1], transition.shape


def _save_given(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    unary, transition, lengths, y = inputs
    ctx.save_for_backward(lengths, y)
    ctx.states, ctx.transition_shape = unary.shape[-1], transition.shape


def _save_outputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, y, lengths, _, _ = inputs
    ctx.save_for_backward(y, lengths)
