"""Operators of this library under transforms of ``torch.func`` and in forward mode.

These know no operators that are registered with their gradients, but functions with a rule for every transform.
"""

import sys
from collections.abc import Callable
from functools import wraps
from itertools import filterfalse
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def in_transform() -> bool:
    """Under transforms of ``torch.func``, as torch.autograd.Function checks it, or a level of forward-mode AD."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


PLAIN: tuple[type, ...] = (Tensor, torch.nn.Parameter)
"""Classes of tensors of which nothing but autograd looks at what becomes of them."""


def _is_watched() -> bool:
    """Whether a compiler, a tracer, a mode or a profiler looks at all operators."""
    if torch.compiler.is_compiling():  # first: a compiler knows nothing of the others
        return True
    if torch.autograd.profiler._is_profiler_enabled:
        return True
    modes = torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
    return bool(modes) or torch._C._get_tracing_state() is not None


def with_contiguous_results(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with contiguous results, as tracing expects them."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        results = function(*arguments)
        return results.contiguous() if isinstance(results, Tensor) else tuple(map(Tensor.contiguous, results))

    return call


def opaque(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, opaque to ``torch.compile`` if that is in use."""
    disabled: list[Callable[..., Any]] = []

    @wraps(function)
    def call(*arguments: Any) -> Any:
        run = function
        if "torch._dynamo" in sys.modules:
            if not disabled:
                disabled.append(torch.compiler.disable(function))
            run = disabled[0]
        return run(*arguments)

    return call


def with_transforms(
    operator: Callable[..., Any],
    function: Callable[..., Any],
    backward: Callable[..., tuple[Tensor | None, ...]] | None,
    save: Callable[[Any, tuple[Any, ...], Any], None],
) -> Callable[..., Any]:
    """An operator that knows its derivatives as one that transforms know, too; ``registered`` is the operator itself.

    Where nothing but autograd needs to know of the operator, its function is called at once: the way by torch's
    dispatcher, and by its rule for operators of Python, takes longer than many a call.

    Args:
        operator: a registered operator.
        function: what it does.
        backward: its gradients, as they were registered, in terms of such operators and of torch.
        save: what they need.
    """

    class Transformed(torch.autograd.Function):
        """The operator as a function of autograd, with a rule for every transform."""

        @staticmethod
        def forward(*arguments: Any) -> Any:
            return operator(*arguments)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            outputs = output if isinstance(output, tuple) else (output,)
            ctx.differentiable = [backward is not None and result.is_floating_point() for result in outputs]
            ctx.mark_non_differentiable(
                *(result for result, smooth in zip(outputs, ctx.differentiable, strict=True) if not smooth)
            )
            ctx.arguments = inputs
            if backward is not None:
                save(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return (None,) * len(ctx.arguments) if backward is None else backward(ctx, *gradients)

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
            """One call for each slice: structures are batched already."""
            rows = [call(*_at(i, arguments, in_dims)) for i in range(info.batch_size)]
            if isinstance(rows[0], Tensor):
                return torch.stack(rows), 0
            return tuple(map(torch.stack, zip(*rows, strict=True))), (0,) * len(rows[0])

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            """What the gradient, which is linear in the weights of outputs, gives if it is differentiated by them."""
            moved = [i for i, tangent in enumerate(tangents) if isinstance(tangent, Tensor)]
            arguments = [_primal(argument) for argument in ctx.arguments]

            def answers(*scores: Tensor) -> tuple[Tensor, ...]:
                for i, score in zip(moved, scores, strict=True):
                    arguments[i] = score
                outputs = call(*arguments)
                whole = outputs if isinstance(outputs, tuple) else (outputs,)
                return tuple(result for result, smooth in zip(whole, ctx.differentiable, strict=True) if smooth)

            if not moved or not any(ctx.differentiable):
                return None if len(ctx.differentiable) == 1 else (None,) * len(ctx.differentiable)
            outputs: tuple[Tensor, ...]
            outputs, pull, *_ = torch.func.vjp(answers, *(arguments[i] for i in moved))
            # ``pull`` is v -> J^T v, which is linear: its own derivative, transposed, is J.
            slopes = torch.func.vjp(lambda *weights: pull(weights), *map(torch.zeros_like, outputs))[1]
            found = iter(slopes(tuple(tangents[i] for i in moved)))
            results = [next(found) if smooth else None for smooth in ctx.differentiable]
            return results[0] if len(results) == 1 else tuple(results)

    class Direct(torch.autograd.Function):
        """The function with its gradient."""

        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            output = function(*arguments)
            outputs = output if isinstance(output, tuple) else (output,)
            ctx.mark_non_differentiable(*filterfalse(Tensor.is_floating_point, outputs))
            save(ctx, arguments, output)
            return output

    if backward is not None:
        Direct.backward = staticmethod(backward)  # type: ignore[method-assign]

    def call(*arguments: Any) -> Any:
        if in_transform():
            return Transformed.apply(*arguments)
        if _is_watched():
            return operator(*arguments)
        asked = False
        for argument in arguments:
            if isinstance(argument, Tensor):
                if type(argument) not in PLAIN:
                    return operator(*arguments)
                asked = asked or argument.requires_grad
        asked = asked and torch.is_grad_enabled()
        if not asked:
            return function(*arguments)
        if backward is not None:
            return Direct.apply(*arguments)
        with torch.no_grad():
            return function(*arguments)

    call.__dict__["registered"] = operator
    return call


def _primal(argument: Any) -> Any:
    """An argument without its tangents."""
    if isinstance(argument, (list, tuple)):
        return [_primal(item) for item in argument]
    return forward_ad.unpack_dual(argument).primal if isinstance(argument, Tensor) else argument


def _at(i: int, arguments: Any, dims: Any) -> list[Any]:
    """The arguments of one call under ``vmap``: slice i of those that have a dimension for it."""
    return [
        argument if dim is None else argument.select(dim, i) if isinstance(argument, Tensor) else _at(i, argument, dim)
        for argument, dim in zip(arguments, dims, strict=True)
    ]
