"""Compiled loops for max-marginals as torch operators, with compiled loops for their gradients."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from structsmooth.structures.operators import cpu_loop


def max_marginals_loop(
    name: str,
    loop: str,
    operations: Callable[..., int],
    *,
    inputs: Callable[..., tuple[Any, ...]],
    potentials: int = 1,
) -> Callable[[Callable[..., Tensor]], Any]:
    """Register a compiled loop for max-marginals as :func:`cpu_loop` does, with the compiled loop of their gradient.

    The latter is the operator ``structsmooth::{name}_gradient``, over the loop whose name ends in ``_gradient``, too.
    Its last argument is the gradient with respect to the max-marginals, which ``inputs`` also gets. It finds the best
    outputs again, since storing them takes much memory, and adds to zeros in the shapes of the potentials.

    Args:
        name: name of the operator.
        loop: as for :func:`cpu_loop`, by its name.
        operations: as for :func:`cpu_loop`.
        inputs: as for :func:`cpu_loop`.
        potentials: how many of the first arguments have a gradient.
    """

    def register(results: Callable[..., Tensor]) -> Any:
        def gradient(*arguments: Any) -> Any:
            zeros = tuple([potential.new_zeros(potential.shape) for potential in arguments[:potentials]])
            return zeros if potentials > 1 else zeros[0]

        signature = inspect.signature(results)
        grad = inspect.Parameter("grad", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Tensor)
        gradient.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), grad],
            return_annotation=tuple[(Tensor,) * potentials] if potentials > 1 else Tensor,  # type: ignore[misc]
        )
        find = cpu_loop(f"{name}_gradient", f"{loop}_gradient", operations, inputs=inputs)(gradient)

        def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor]:
            found = find(*ctx.saved_tensors, *ctx.constants, grad)
            return (found,) if isinstance(found, Tensor) else found

        return cpu_loop(name, loop, operations, backward, inputs=inputs)(results)

    return register
