"""Indivisible operations on arrays that several threads change at the same time."""

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic as numba_intrinsic


def intrinsic(function: Any) -> Any:
    """A function for compiled code that generates its machine code; it is given types."""
    return numba_intrinsic(function)


@intrinsic
def add_atomically(typing: Any, array: Any, row: Any, column: Any, value: Any) -> Any:
    """array[row, column] += value, for float64 [m, n]: no thread loses what another adds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args, arguments, 2)
        value = context.cast(builder, arguments[3], signature.args[3], array.dtype)
        builder.atomic_rmw("fadd", pointer, value, "monotonic")
        return context.get_dummy_value()

    return types.void(array, row, column, value), generate


@intrinsic
def take(typing: Any, counter: Any, number: Any) -> Any:
    """The value of an int64 array [1], which becomes larger by ``number``: what one thread takes, no other gets."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zero = context.get_constant(types.intp, 0)
        pointer = _pointer(context, builder, (signature.args[0], types.intp), (arguments[0], zero), 1)
        number = context.cast(builder, arguments[1], signature.args[1], types.int64)
        return builder.atomic_rmw("add", pointer, number, "monotonic")

    return types.int64(counter, number), generate


def _pointer(context: Any, builder: Any, kinds: Any, arguments: Any, dimensions: int) -> Any:
    """Of the element of an array, the first argument, at the indices that follow."""
    array = context.make_array(kinds[0])(context, builder, arguments[0])
    indices = [
        context.cast(builder, index, kind, types.intp)
        for index, kind in zip(arguments[1 : 1 + dimensions], kinds[1 : 1 + dimensions], strict=True)
    ]
    return cgutils.get_item_pointer(context, builder, kinds[0], array, indices)
