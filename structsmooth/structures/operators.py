"""Compiled functions as torch operators, with their gradients."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, library

from structsmooth.compiled.arguments import arrays, for_loop, in_either_precision
from structsmooth.compiled.threads import over_batch
from structsmooth.structures.checks import exports_plain_torch
from structsmooth.structures.derivatives import ReadOnce, gradients_of, max_marginals_gradient, slope
from structsmooth.structures.transforms import in_transform, opaque, with_contiguous_results, with_transforms

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

# Gradients with respect to the first arguments of an operator, given its context and the gradients of its results.
Backward = Callable[..., Sequence[Any]]
# Keeps what they need in the context, given the arguments and the results.
Save = Callable[[Any, tuple[Any, ...], Any], None]

OPERATORS: dict[str, Callable[..., Any]] = {}
"""The registered operators by their names, by which gradients call those that are defined after them."""


def save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep all arguments for the backward pass: tensors as such, and the others in ``ctx.constants``."""
    ctx.save_for_backward(*_tensors(inputs))
    ctx.constants = [value for value in inputs if not isinstance(value, Tensor)]


def save_inputs_and_statistics(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Keep all arguments as :func:`save_inputs` does, and behind their tensors all results but the first, the value.

    Gradients of results that nothing depends on are ``None``.
    """
    ctx.set_materialize_grads(False)
    save_inputs(ctx, (*inputs, *output[1:]), output)


def operator(
    schema: str,
    like: Callable[..., Any],
    backward: Backward | None = None,
    save: Save = save_inputs,
) -> Callable[[F], F]:
    """Register a function of tensors, which it does not change, as the operator ``structsmooth::name``.

    Like ``torch.library.custom_op``, except that the first call does not import the machinery of ``torch.compile``,
    which takes seconds and 200 MB.

    Args:
        schema: the name of the operator, with its arguments and results in the language of ``torch.library``; without
            them, they are those of the function.
        like: empty tensors of the shapes and dtypes of its results, for tracing; takes the same arguments.
        backward: gradients with respect to the arguments, given the context and the gradients of the results; those
            that are missing at the end are ``None``.
        save: stores what ``backward`` needs in the context: by default the arguments.
    """

    def register(function: F) -> F:
        declared = schema if "(" in schema else schema + library.infer_schema(function, mutates_args=())
        return cast(F, _registered(declared, function, like, backward, save))

    return register


def _registered(
    schema: str, function: Callable[..., Any], like: Callable[..., R], backward: Backward | None, save: Save
) -> Callable[..., R]:
    name, parenthesis, signature = schema.partition("(")
    qualified = f"structsmooth::{name}"
    library.define(qualified, parenthesis + signature, tags=torch.Tag.pt2_compliant_tag)
    contiguous = with_contiguous_results(function)
    library.impl(qualified, "default", opaque(contiguous))
    library.register_fake(qualified, _refused_in_plain_torch(name, like))
    overload = getattr(torch.ops.structsmooth, name).default
    rule = None if backward is None else _for_all_arguments(backward, len(overload._schema.arguments))
    if rule is not None:
        library.register_autograd(qualified, rule, setup_context=save)
    OPERATORS[name] = with_transforms(overload, contiguous, rule, save)
    return OPERATORS[name]


def _refused_in_plain_torch(name: str, like: Callable[..., Any]) -> Callable[..., Any]:
    """What makes empty results for tracing, with an error for graphs that may not have the operator."""

    @functools.wraps(like)
    def checked(*arguments: Any) -> Any:
        if exports_plain_torch():
            raise NotImplementedError(
                f"{name.replace('_', ' ')} has no form in plain torch, and none in ONNX, for open sizes: it is an "
                "operator of this library. Save it by torch.export alone, and import its structure where the program "
                "is loaded; or export the scores, and find outputs by this library"
            )
        return like(*arguments)

    return checked


def _for_all_arguments(backward: Backward, count: int) -> Callable[..., tuple[Any, ...]]:
    def padded(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        found = [*backward(ReadOnce(ctx), *gradients), *[None] * count][:count]
        for i, needed in enumerate(ctx.needs_input_grad[:count]):
            if needed is False:  # of a list of tensors, it is a list
                found[i] = None
        return tuple(found)

    return padded


def compiled_operator(
    schema: str,
    *,
    results: Callable[..., R],
    loop: Callable[..., None],
    operations: Callable[..., int],
    reads: Callable[..., tuple[Any, ...]] = lambda *arguments: _tensors(arguments),
    finish: Callable[..., Any] | None = None,
    gradient: Backward | None = None,
    save: Save = save_inputs,
    wide: int = 0,
    narrow: int | None = None,
) -> Callable[..., R]:
    """The operator ``structsmooth::name`` over a compiled loop over the examples of a batch.

    What is given here sees the arguments of the operator as contiguous tensors on the CPU, those of floating point in
    float64: a second compilation of each loop for float32 would take seconds. The loop is called as
    ``loop(*reads, *results, begin, end)``, with arrays of numpy in place of tensors, for ranges of examples on as many
    threads as pay. Results return to the device and the dtype of the first argument, the scores.

    Args:
        schema: the name of the operator, its arguments and its results, in the language of ``torch.library``.
        results: the results as the loop finds them, empty or filled, for the arguments. What it makes of tensors
            without values tells tracing the shapes and dtypes of the results.
        loop: a function that numba compiles at its first call, of :class:`~structsmooth.lazy.LazyLoops`; or a Python
            function that calls one of several.
        operations: number of elementary operations, about 1 ns each, of a call with these arguments.
        reads: what the loop reads, given the arguments, after checks of all that could lead it out of bounds; by
            default all tensors.
        finish: results of the operator from those that the loop has filled; the same by default.
        gradient: ``backward`` as for :func:`operator`.
        save: as for :func:`operator`.
        wide: how many of the last results stay in float64, such as sums of which others will take differences.
        narrow: if given, scores stay in float32 where they are no wider, as conversion would take longer than the loop:
            ``reads`` gives them to it :func:`in_either_precision`, and so are this many of the first results given.
    """

    def call(scores: Tensor, *others: Any) -> Any:
        arguments = _for_loops(scores, *others, narrow=narrow is not None)
        found = results(*arguments)
        filled: Any = (found,) if isinstance(found, Tensor) else found
        given = filled
        if narrow is not None:
            filled = (*filled[:narrow], *map(for_loop, filled[narrow:]))
            given = (*map(in_either_precision, filled[:narrow]), *filled[narrow:])
        read = [x.numpy() if isinstance(x, Tensor) else arrays(x) for x in (*reads(*arguments), *given)]
        over_batch(lambda *bounds: loop(*read, *bounds), len(scores), operations(*arguments))
        answer = finish(*filled) if finish is not None else filled[0] if isinstance(found, Tensor) else filled
        if isinstance(answer, Tensor):
            return _returned(answer, scores)
        count = len(answer) - wide
        return *(_returned(r, scores) for r in answer[:count]), *(r.to(scores.device) for r in answer[count:])

    return _registered(schema, call, results, gradient, save)


def _tensors(values: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple([value for value in values if isinstance(value, Tensor)])


def _for_loops(*arguments: Any, narrow: bool = False) -> list[Any]:
    """Arguments with their tensors on the CPU, contiguous, as :func:`for_loop` makes them."""
    moved: Sequence[Any] = arguments
    if not is_on_cpu(arguments[0]):
        tensors = iter(on_cpu(*_tensors(arguments)))
        moved = [next(tensors) if isinstance(argument, Tensor) else argument for argument in arguments]
    return [for_loop(argument, narrow) if isinstance(argument, Tensor) else argument for argument in moved]


def _returned(result: Tensor, scores: Tensor) -> Tensor:
    if result.dtype.is_floating_point and result.dtype != scores.dtype:
        return result.to(scores)
    return result if result.device == scores.device else result.to(scores.device)


def like_top_k(scores: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """Empty values [B, k] and outputs [B, k, V], for first scores [B, V, ...] and k as the last argument."""
    (batch, variables), k = scores.shape[:2], others[-1]
    return scores.new_empty(batch, k), scores.new_empty(batch, k, variables, dtype=torch.int64)


def no_outputs(scores: Tensor, k: int, variables: int) -> tuple[Tensor, Tensor]:
    """What the top-K oracle answers where there is no output: values [B, k] of -inf and outputs [B, k, V] of 0."""
    batch = scores.shape[0]
    return scores.new_full((batch, k), -torch.inf), scores.new_zeros(batch, k, variables, dtype=torch.int64)


def no_labels(scores: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """:func:`no_outputs` of a label for each variable, for scores [B, V, ...] and k as the last argument."""
    return no_outputs(scores, others[-1], scores.shape[1])


def no_samples(scores: Tensor, *others: Any) -> Tensor:
    """Samples of 0, in the shape of uniform numbers, the last argument."""
    return scores.new_zeros(others[-1].shape, dtype=torch.int64)


def like_scores(scores: Tensor, *_others: Any) -> Tensor:
    """An empty tensor in the shape of the first scores, for tracing."""
    return scores.new_empty(scores.shape)


def zeros_like_scores(scores: Tensor, *_others: Any) -> Tensor:
    """Zeros in the shape of the first scores."""
    return scores.new_zeros(scores.shape)


def _weighted(grad: Tensor, statistics: Sequence[Tensor], potentials: Sequence[Tensor]) -> list[Tensor]:
    """Statistics [B, ...] of the first of some potentials times a weight [B], in the shapes of these."""
    weighted = []
    for m, p in zip(statistics, potentials, strict=False):
        product = grad.view(-1, *[1] * (m.dim() - 1)) * m
        weighted.append(product if product.shape == p.shape else product.sum_to_size(p.shape))
    return weighted


def log_partition_backward(statistics: Callable[..., tuple[Tensor, ...]]) -> Backward:
    """The gradient of an operator that computes the log-partition function [B], and no statistics.

    Args:
        statistics: those of the potentials, differentiable, given the arguments of the operator, tensors first.
    """

    def backward(ctx: Any, grad: Tensor, *_others: Any) -> Sequence[Tensor]:
        return _weighted(grad, statistics(*ctx.saved_tensors, *ctx.constants), ctx.saved_tensors)

    return backward


def exp_oracle_backward(second: Callable[..., tuple[Tensor, ...]]) -> Backward:
    """The gradient of an operator that computes the log-partition function [B] and the statistics of its potentials.

    The operator keeps what :func:`save_inputs_and_statistics` keeps, and its potentials come first.

    Args:
        second: gradients of ⟨weights, statistics⟩, given the potentials and the weights, two tuples, of which weights
            may be ``None``, and the other arguments, tensors first.
    """

    def backward(ctx: Any, grad: Tensor | None, *weights: Tensor | None) -> Sequence[Tensor | None]:
        count = len(weights)
        inputs, statistics = ctx.saved_tensors[:-count], ctx.saved_tensors[-count:]
        potentials, others = inputs[:count], inputs[count:]
        gradients: Sequence[Tensor | None] = [None] * count
        if grad is not None:
            gradients = _weighted(grad, statistics, potentials)
        if any(weight is not None for weight in weights):
            moved = second(potentials, weights, *others, *ctx.constants)
            gradients = [b if a is None else a + b for a, b in zip(gradients, moved, strict=True)]
        return gradients

    return backward


def tangents_backward(name: str, log_partition: Callable[..., Tensor], count: int) -> Backward:
    """The gradient of an operator that computes the derivatives of marginals in directions of the potentials.

    The operator takes potentials, directions in the shapes of these, and others, tensors first. The second derivatives
    of the log-partition function are symmetric; the third ones are computed by torch.

    Args:
        name: name of the operator.
        log_partition: the function [B] of potentials and others in plain torch.
        count: number of its potentials.
    """

    def backward(ctx: Any, *weights: Tensor) -> Sequence[Tensor]:
        potentials, directions = ctx.saved_tensors[:count], ctx.saved_tensors[count : 2 * count]
        others = (*ctx.saved_tensors[2 * count :], *ctx.constants)

        def total(*potentials: Tensor) -> Tensor:
            return log_partition(*potentials, *others).sum()

        third = gradients_of(slope(slope(total, directions), weights), potentials)
        moved = OPERATORS[name](*potentials, *weights, *others)
        return *third, *((moved,) if isinstance(moved, Tensor) else moved)

    return backward


def gradient_of_plain(plain: Callable[..., Tensor], count: int) -> Backward:
    """The gradient of an operator of one result, by the same in plain torch.

    Args:
        plain: what the operator computes, for its arguments, tensors first.
        count: number of its potentials, which come first.
    """

    def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor]:
        potentials, others = ctx.saved_tensors[:count], (*ctx.saved_tensors[count:], *ctx.constants)
        return max_marginals_gradient(lambda *scores: plain(*scores, *others), potentials, grad)

    return backward


def asks_gradients(*potentials: Tensor) -> bool:
    """Whether what is computed of potentials may be differentiated by them."""
    return in_transform() or (torch.is_grad_enabled() and any(p.requires_grad for p in potentials))


def with_gradients_of_scores(values: Tensor, scores: Callable[..., Tensor], *potentials: Tensor) -> Tensor:
    """Values [B, K] of the best outputs with the gradients of their scores, which are those of a maximum.

    This is the envelope theorem: where the best outputs do not change, a maximum moves with their scores.

    Args:
        values: the largest scores, exact, without gradient.
        scores: the scores [B, K] of the outputs that have these values, for the potentials.
        potentials: what values may be differentiated by.
    """
    if asks_gradients(*potentials):
        found = scores(*potentials)
        values = values.detach() + torch.where(values.isfinite(), found - found.detach(), 0.0)
    return values


def smoothed_maximum(values: Tensor, mu: float) -> tuple[Tensor, Tensor]:
    """The ℓ₂-smoothed maximum [B] of values [B, K] in descending order, -inf at the end, and its weights [B, K].

    Where the support of the weights stays the same, the maximum is a quadratic function, and autograd finds all of its
    derivatives: the first is the weights, u = 1/s + (z − mean)/μ for a support of size s.
    """
    possible = values > -torch.inf
    largest = torch.where(possible[:, :1], values.detach()[:, :1], 0.0)
    below = torch.where(possible, values - largest, 0.0)
    # A value belongs to the support if those before are not more than μ above it in all.
    ranks = torch.arange(1, values.shape[1] + 1, device=values.device)
    support = possible & (ranks * below.detach() > below.detach().cumsum(1) - mu)
    size = support.sum(1, keepdim=True).clamp_min(1).to(values.dtype)
    mean = torch.where(support, below, 0.0).sum(1, keepdim=True) / size
    deviations = torch.where(support, below - mean, 0.0)
    smoothed = largest + mean + deviations.square().sum(1, keepdim=True) / (2 * mu) + mu / 2 * (1 - 1 / size)
    smoothed = torch.where(possible[:, :1], smoothed, -torch.inf).squeeze(1)
    return smoothed, torch.where(support, 1 / size + deviations / mu, 0.0)


def smoothed_gradient(weights: Tensor, mu: float, grad: Tensor | None, grad_weights: Tensor | None) -> Tensor | None:
    """Gradient [B, K] of an ℓ₂-smoothed maximum [B] and of its weights [B, K] with respect to the values.

    The weights are the gradient of the maximum. On their support they move with the values / μ, relative to the mean.
    """
    gradient = None if grad is None else grad.unsqueeze(1) * weights
    if grad_weights is None:
        return gradient
    support = weights > 0
    on_support = torch.where(support, grad_weights, 0.0)
    mean = on_support.sum(1, keepdim=True) / support.sum(1, keepdim=True).clamp_min(1)
    second = torch.where(support, on_support - mean, 0.0) / mu
    return second if gradient is None else gradient + second


def without_statistics(log_z: Tensor, *statistics: Tensor) -> tuple[Tensor, ...]:
    """Results of an exp oracle, with zero statistics [B, ...] where the log-partition [B] is not finite."""
    if not math.isfinite(log_z.sum()):  # in the usual case all are
        wrong = ~log_z.isfinite()
        for statistic in statistics:
            statistic[wrong] = 0.0
    return log_z, *statistics


def is_on_cpu(tensor: Tensor) -> bool:
    """Whether numpy can read a tensor where it is."""
    return tensor.device.type == "cpu"


def on_cpu(*tensors: Tensor) -> list[Tensor]:
    """Contiguous tensors on the CPU, without gradients: those of another device by one copy for all of them."""
    contiguous = [tensor.detach().contiguous() for tensor in tensors]
    if all(map(is_on_cpu, contiguous)):
        return contiguous
    raw = [tensor.view(-1).view(torch.uint8) for tensor in contiguous]
    copied = torch.cat(raw).cpu().split([len(chunk) for chunk in raw])
    # A clone of each starts where numbers of its dtype may.
    return [chunk.clone().view(t.dtype).view(t.shape) for chunk, t in zip(copied, contiguous, strict=True)]
