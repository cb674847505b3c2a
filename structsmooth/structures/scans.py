"""Recursions over positions: loops of torch, and one operator of graphs whose number of positions is left open."""

from collections.abc import Callable

import torch
from torch import Tensor

from structsmooth.structures.checks import is_exporting

Tensors = tuple[Tensor, ...]


def scan(
    step: Callable[[Tensors, Tensors], tuple[Tensors, Tensors]],
    state: Tensors,
    inputs: Tensors,
    *,
    reverse: bool = False,
) -> tuple[Tensors, Tensors]:
    """Run a step at every position, from the first to the last or the other way round.

    Args:
        step: from a state and the inputs of a position to the next state and the outputs of the position.
        state: the state before the first step; it keeps its shapes and dtypes.
        inputs: [B, T, ...] each, T >= 1.
        reverse: whether to begin with the last position.

    Returns:
        The state after the last step, and the outputs [B, T, ...].
    """
    if is_exporting():
        return _traced(step, state, inputs, reverse)
    outputs = []
    positions = list(zip(*(tensor.unbind(1) for tensor in inputs), strict=True))
    for given in reversed(positions) if reverse else positions:
        state, found = step(state, given)
        outputs.append(found)
    columns = zip(*(reversed(outputs) if reverse else outputs), strict=True)
    return state, tuple(torch.stack(column, 1) for column in columns)


def _traced(
    step: Callable[[Tensors, Tensors], tuple[Tensors, Tensors]], state: Tensors, inputs: Tensors, reverse: bool
) -> tuple[Tensors, Tensors]:
    from torch._higher_order_ops.scan import scan as scan_operator  # loads torch.compile, which export has loaded

    def traced_step(state: Tensors, given: Tensors) -> tuple[Tensors, Tensors]:
        after, found = step(state, given)
        return _fresh(after), _fresh(found)

    by_position = tuple(tensor.movedim(1, 0) for tensor in inputs)
    after, outputs = scan_operator(traced_step, _fresh(state), by_position, reverse=reverse)
    return after, tuple(tensor.movedim(0, 1) for tensor in outputs)


def _fresh(tensors: Tensors) -> Tensors:
    """Copies of one layout that share no memory, as the operator wants its states and outputs."""
    return tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors)
