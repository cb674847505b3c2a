"""Lists of predictions of different lengths, which numpy is to join as lists."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class Outputs(list[T]):
    """A list with an output for each example, that :func:`numpy.concatenate` joins to others whatever their lengths.

    So :func:`sklearn.model_selection.cross_val_predict` can put the outputs of its folds together: the result is an
    array of objects, one for each example. All other functions of numpy take it for the list that it is.

    Args:
        outputs: of the examples.

    Example:
        >>> import numpy as np
        >>> np.concatenate([Outputs([["B-PER", "O"], ["O", "O"]]), Outputs([["O"]])])
        array([list(['B-PER', 'O']), list(['O', 'O']), list(['O'])], dtype=object)
    """

    def __init__(self, outputs: Iterable[T] = ()) -> None:
        super().__init__(outputs)

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A function of numpy, one of whose arguments is a list of this kind."""
        if function is np.concatenate and not kwargs and len(args) == 1:
            outputs = list(chain.from_iterable(args[0]))
            return np.fromiter(outputs, dtype=object, count=len(outputs))
        return function(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})


def _plain(value: Any) -> Any:
    """Plain lists instead of outputs, also inside of lists and tuples."""
    if isinstance(value, Outputs):
        return list(value)
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value
