"""Batches for training and for predictions, by one function of the user."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from structsmooth.problems.module import stacked

Pair = tuple[Any, Any]


class Collate:
    """Puts pairs (x, y) together into a batch; y may be unknown.

    A function of one argument always gets pairs, as a ``DataLoader`` would give it. Where outputs are not known, it
    gets that of a training example with every input, and its batch of outputs is not used.

    Args:
        function: ``collate(pairs)`` or ``collate(X, y=None)``; torch's default if not given.
        outputs: of training examples.
    """

    def __init__(self, function: Callable[..., Pair] | None, outputs: Iterable[Any]) -> None:
        self._function: Callable[..., Pair] = _default if function is None else function
        self._apart = _takes_outputs_apart(self._function)
        self._stand_ins = [] if self._apart else _different(outputs)

    def __call__(self, pairs: Sequence[Pair]) -> Pair:
        """A batch of examples with their outputs."""
        return self._function(*map(list, zip(*pairs, strict=True))) if self._apart else self._function(list(pairs))

    def inputs(self, X: Sequence[Any], check: bool = False) -> Any:
        """A batch of inputs alone.

        Args:
            X: inputs.
            check: whether to make the batch with two different outputs, to notice inputs that depend on them.

        Raises:
            ValueError: inputs that do.
        """
        if self._apart:
            return self._function(list(X), None)[0]
        batch, *others = (self._function([(x, y) for x in X])[0] for y in self._stand_ins[: 2 if check else 1])
        for other in others:
            if not _same(batch, other):
                raise ValueError(
                    "collate must give the same inputs whatever the outputs are, since predictions have none; write it "
                    "as collate(X, y=None), which gets no outputs for predictions"
                )
        return batch


def _default(X: list[Any], y: list[Any] | None) -> Pair:
    return stacked(X), None if y is None else stacked(y)


def _takes_outputs_apart(function: Callable[..., Any]) -> bool:
    """Whether a function has a second parameter y."""
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:  # a function that is not written in Python
        return False
    return names[1:2] == ["y"]


def _different(outputs: Iterable[Any]) -> list[Any]:
    """The first output, and another one if there is any: of another shape if possible."""
    first, *others = outputs
    found = next((y for y in others if _shape(y) != _shape(first)), None)
    found = next((y for y in others if not _same(y, first)), None) if found is None else found
    return [first] if found is None else [first, found]


def _shape(y: Any) -> Any:
    return getattr(y, "shape", None)


def _same(a: Any, b: Any) -> bool:
    """Whether tensors and numbers inside of two values are the same; other objects pass."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and bool(((a == b) | (a != a) & (b != b)).all())
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b if isinstance(a, str | int | float) else type(a) is type(b)
