"""Compiled functions as torch operators."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, library

from structsmooth.structures.transforms import with_transforms


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def operator(
    name: str,
    like: Callable[..., Any],
    backward: Callable[..., tuple[Tensor | None, ...]] | None = None,
    save: Callable[[Any, tuple[Any, ...], Any], None] = _save_inputs,
    *,
    device: str = "default",
) -> Callable[[Callable[..., Any]], Any]:
    """Register a function of tensors, which it does not change, as the operator ``structsmooth::name``.

    Like ``torch.library.custom_op``, except that the first call does not import the machinery of ``torch.compile``,
    which takes seconds and 200 MB.

    Args:
        name: name of the operator.
        like: empty tensors of the shapes and dtypes of its results, for tracing; takes the same arguments.
        backward: gradients with respect to all arguments, given the context and the gradients of the results.
        save: stores what ``backward`` needs in the context: by default the arguments, all of which are tensors.
        device: device of its arguments, such as ``"cpu"``; any device by default.
    """

    def register(function: Callable[..., Any]) -> Any:
        qualified = f"structsmooth::{name}"
        library.define(qualified, library.infer_schema(function, mutates_args=()), tags=torch.Tag.pt2_compliant_tag)
        library.impl(qualified, device, _opaque(function))
        library.register_fake(qualified, like)
        if backward is not None:
            library.register_autograd(qualified, backward, setup_context=save)
        return with_transforms(getattr(torch.ops.structsmooth, name).default, backward, save)

    return register


def cpu_operator(
    name: str,
    like: Callable[..., Any],
    backward: Callable[..., tuple[Tensor | None, ...]] | None = None,
    save: Callable[[Any, tuple[Any, ...], Any], None] = _save_inputs,
) -> Callable[[Callable[..., Any]], Any]:
    """:func:`operator` for functions that know only tensors on the CPU, and of floating point only float64.

    Scores of float32 are widened before and results narrowed behind: a second compilation of each loop would take
    seconds.
    """

    def register(function: Callable[..., Any]) -> Any:
        return operator(name, like, backward, save, device="cpu")(_in_float64(function))

    return register


def _in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(scores: Tensor, *others: Any) -> Any:
        if scores.dtype == torch.float64:
            return function(scores, *others)
        results = function(scores.double(), *(_converted(other, torch.float64) for other in others))
        if isinstance(results, Tensor):
            return _converted(results, scores.dtype)
        return tuple(_converted(result, scores.dtype) for result in results)

    return call


def _converted(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def _opaque(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, opaque to ``torch.compile`` if that is in use; results are contiguous, as tracing expects them."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        run = torch.compiler.disable(function) if "torch._dynamo" in sys.modules else function
        results = run(*arguments)
        return results.contiguous() if isinstance(results, Tensor) else tuple(r.contiguous() for r in results)

    return call


def like_top_k(scores: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """Empty values [B, k] and outputs [B, k, V], for first scores [B, V, ...] and k as the last argument."""
    (batch, variables), k = scores.shape[:2], others[-1]
    return scores.new_empty(batch, k), scores.new_empty(batch, k, variables, dtype=torch.int64)


def like_scores(scores: Tensor, *_others: Any) -> Tensor:
    """An empty tensor in the shape of the first scores."""
    return scores.new_empty(scores.shape)


def hessian_product(
    marginals: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    potentials: tuple[Tensor, Tensor],
    weights: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """Gradient of ⟨weights, marginals⟩: second derivatives of the log-partition function; no weights count as zeros."""

    def weighted(*potentials: Tensor) -> Tensor:
        pairs = zip(weights, marginals(*potentials), strict=True)
        return torch.stack([(w * m).sum() for w, m in pairs if w is not None]).sum()

    gradients: tuple[Tensor, ...] = torch.func.grad(weighted, (0, 1))(*potentials)
    return gradients


def max_marginals_gradient(
    max_marginals: Callable[..., Tensor], potentials: tuple[Tensor, ...], weights: Tensor
) -> tuple[Tensor, ...]:
    """Gradient of ⟨weights, max-marginals⟩, without those of -inf."""

    def weighted(*potentials: Tensor) -> Tensor:
        values = max_marginals(*potentials)
        return torch.where(values > -torch.inf, values * weights, 0.0).sum()

    gradients: tuple[Tensor, ...] = torch.func.grad(weighted, tuple(range(len(potentials))))(*potentials)
    return gradients


def of_smoothed_values(weights: Tensor, mu: float, grad: Tensor | None, grad_weights: Tensor | None) -> Tensor | None:
    """Gradient [B, K] of an ℓ₂-smoothed maximum [B] and of its weights [B, K] with respect to the values.

    The weights are the gradient of the maximum. On their support they move with the values / μ, relative to the mean.
    """
    gradient = None if grad is None else grad.unsqueeze(1) * weights
    if grad_weights is None:
        return gradient
    support = weights > 0
    own = torch.where(support, grad_weights, 0.0)
    mean = own.sum(1, keepdim=True) / support.sum(1, keepdim=True).clamp_min(1)
    second = torch.where(support, own - mean, 0.0) / mu
    return second if gradient is None else gradient + second


def without_statistics(log_z: Tensor, *statistics: Tensor) -> None:
    """Make the statistics [B, ...] of examples zero whose log-partition [B] is no number: those of others remain."""
    wrong = ~log_z.isfinite()
    if bool(wrong.any()):
        for own in statistics:
            own[wrong] = 0.0


def is_on_cpu(tensor: Tensor) -> bool:
    """Whether numpy can read a tensor where it is."""
    return tensor.device.type == "cpu"


def on_cpu(*tensors: Tensor) -> list[Tensor]:
    """Contiguous tensors on the CPU, without gradients: those of another device by one copy for all of them."""
    own = [tensor.detach().contiguous() for tensor in tensors]
    if all(map(is_on_cpu, own)):
        return own
    parts = [tensor.view(-1).view(torch.uint8) for tensor in own]
    copied = torch.cat(parts).cpu().split([len(part) for part in parts])
    # A clone of each starts where numbers of its dtype may.
    return [part.clone().view(t.dtype).view(t.shape) for part, t in zip(copied, own, strict=True)]
