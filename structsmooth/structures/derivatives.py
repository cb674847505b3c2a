"""Derivatives inside of oracles and of their gradients, under every transform and hook of torch."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks

from structsmooth.structures.checks import is_exporting
from structsmooth.structures.transforms import in_transform

R = TypeVar("R")


class ReadOnce:
    """The context of a gradient, which gives what it saved once: checkpoints and hooks refuse to unpack it again."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._ctx, name)
        setattr(self, name, value)
        return value


def pullbacks(
    function: Callable[..., Tensor], weights: Iterable[Tensor], points: Sequence[Tensor], *others: Tensor
) -> list[tuple[Tensor, ...]]:
    """For each of some weights, the gradients of ⟨weights, function(*points, *others)⟩ with respect to the points.

    ``torch.export`` traces torch.autograd alone, and the graph has operators of torch alone: they have derivatives.
    """

    def pulled(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
        at, rest, rows = tensors[: len(points)], tensors[len(points) : -count], tensors[-count:]
        if is_exporting() or _hooks_save():
            again = not is_exporting() and torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
            return _recorded(lambda *points: function(*points, *rest), rows, at, again)
        pull = torch.func.vjp(lambda *points: function(*points, *rest), *at)[1]
        return list(map(pull, rows))

    listed = list(weights)
    count = len(listed)
    return outside_inference_mode(pulled, *points, *others, *listed)


def gradients_of(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The derivatives of a function of tensors, whose value is a number, by each of them."""
    if _hooks_save():
        return _recorded(function, [inputs[0].new_ones(())], inputs, torch.is_grad_enabled())[0]
    gradients: tuple[Tensor, ...] = torch.func.grad(function, tuple(range(len(inputs))))(*inputs)
    return gradients


def slope(function: Callable[..., Tensor], directions: Sequence[Tensor | None]) -> Callable[..., Tensor]:
    """The derivative of a function of tensors in directions, without those that are missing or empty."""

    def along(*inputs: Tensor) -> Tensor:
        pairs = zip(gradients_of(function, inputs), directions, strict=True)
        slopes = [(g * d).sum() for g, d in pairs if d is not None and d.numel()]
        return torch.stack([inputs[0].new_zeros(()), *slopes]).sum()

    return along


def max_marginals_gradient(
    max_marginals: Callable[..., Tensor], potentials: tuple[Tensor, ...], weights: Tensor
) -> tuple[Tensor, ...]:
    """Gradient of ⟨weights, max-marginals⟩, without those of -inf."""

    def weighted(*potentials: Tensor) -> Tensor:
        values = max_marginals(*potentials)
        return torch.where(values > -torch.inf, values * weights, 0.0).sum()

    return gradients_of(weighted, potentials)


def _recorded(
    function: Callable[..., Tensor], weights: Sequence[Tensor], points: Sequence[Tensor], again: bool
) -> list[tuple[Tensor, ...]]:
    """What :func:`pullbacks` finds, by torch.autograd; it can be differentiated ``again``, or is without history."""
    with torch.enable_grad(), apart_from_hooks():
        inputs = [p.view_as(p) if again and p.requires_grad else p.detach().requires_grad_() for p in points]
        value = function(*inputs)
        return [
            torch.autograd.grad(value, inputs, weight, retain_graph=True, create_graph=again, materialize_grads=True)
            for weight in weights
        ]


def apart_from_hooks() -> AbstractContextManager[object]:
    """A block whose derivatives hooks of the caller do not see: a checkpoint would run all again for each of them."""
    # Detached, since a graph that keeps its own results is never freed.
    return saved_tensors_hooks(Tensor.detach, lambda tensor: tensor) if _hooks_save() else nullcontext()


def _hooks_save() -> bool:
    """Whether hooks keep what autograd saves, as in checkpoints: transforms of ``torch.func`` refuse them."""
    if torch.compiler.is_compiling() or in_transform():
        return False
    try:
        with disable_saved_tensors_hooks("asked for hooks"):
            return False
    except RuntimeError:
        return True


def outside_inference_mode(function: Callable[..., R], *tensors: Tensor) -> R:
    """A function that differentiates, called on tensors: under ``torch.inference_mode``, on copies without it.

    Transforms of ``torch.func`` return zeros there in torch 2.4.
    """
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return function(*tensors)
    with torch.inference_mode(False):
        return function(*(tensor.clone() for tensor in tensors))
