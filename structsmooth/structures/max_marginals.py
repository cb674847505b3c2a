"""Compiled loops for max-marginals as torch operators, with compiled loops for their gradients."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from structsmooth.structures.operators import compiled_operator


def max_marginals_operator(
    schema: str,
    *,
    results: Callable[..., Tensor],
    loop: Callable[..., None],
    gradient_loop: Callable[..., None],
    operations: Callable[..., int],
    reads: Callable[..., tuple[Any, ...]],
    potentials: int = 1,
) -> Callable[..., Tensor]:
    """The operator of a compiled loop for max-marginals, and the operator ``{name}_gradient`` of their gradient.

    The last argument of the latter is the gradient with respect to the max-marginals, which ``reads`` and
    ``operations`` also get. Its loop finds the best outputs again, since storing them takes much memory, and adds to
    zeros in the shapes of the potentials.

    Args:
        schema: as for :func:`compiled_operator`, and so are ``results``, ``loop``, ``operations`` and ``reads``.
        results: max-marginals as the loop finds them.
        loop: that of the max-marginals.
        gradient_loop: that of their gradient.
        operations: of either loop.
        reads: what either loop reads.
        potentials: how many of the first arguments have a gradient.
    """
    name, _, signature = schema.partition("(")
    arguments = signature.partition(")")[0]
    gradients = f"({', '.join(['Tensor'] * potentials)})" if potentials > 1 else "Tensor"

    def zeros(*arguments: Any) -> Any:
        found = tuple([potential.new_zeros(potential.shape) for potential in arguments[:potentials]])
        return found if potentials > 1 else found[0]

    find = compiled_operator(
        f"{name}_gradient({arguments}, Tensor grad) -> {gradients}",
        results=zeros,
        loop=gradient_loop,
        operations=operations,
        reads=reads,
    )

    def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor]:
        found = find(*ctx.saved_tensors, *ctx.constants, grad)
        return (found,) if isinstance(found, Tensor) else found

    return compiled_operator(schema, results=results, loop=loop, operations=operations, reads=reads, gradient=backward)
