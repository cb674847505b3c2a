"""What contract tests need of a structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from enumeration import Enumeration
from hypothesis import strategies as st
from oracles import ORACLES, values_and_gradients
from torch import Tensor

from structsmooth import Hamming, Structure
from structsmooth.structures import PartCosts

Instance = Sequence[Tensor]  # the arguments of a structure; those of floating point are its potentials
Index = Any  # into the parts of one example


@dataclass(frozen=True)
class Member:
    """A structure and what its contract tests need.

    Attributes:
        build: the structure of an instance.
        twin: its enumeration.
        required: how many of the arguments are.
        random: instances of one of the ``SIZES``; ``seed``, ``ties`` and ``forbidden`` as in :func:`random_scores`.
        small: instances to enumerate, with ties or without (``None``: either), of few outputs or up to ``many``.
        labels: outputs for first potentials of a shape.
        cost: that suits the outputs.
        oracles: that it has, by their names in ``ORACLES``.
        ordered: oracles whose outputs come in the order of the enumeration even among ties.
        block: where to forbid a first potential so that the first example has no output.
        used: masks of the potentials that are in use.
        alone: an example without its padding, and where its parts were.
        examples: how many random instances are enumerated.
    """

    build: Callable[..., Structure]
    twin: Callable[..., Enumeration]
    required: int
    random: Callable[..., Instance]
    small: Callable[..., st.SearchStrategy[Instance]]
    labels: Callable[[Tensor], Tensor]
    cost: PartCosts = Hamming()  # noqa: RUF009 - immutable
    oracles: frozenset[str] = frozenset(ORACLES)
    ordered: frozenset[str] = frozenset({"max", "topk"})
    block: tuple[int, ...] = (0, 0)
    used: Callable[..., tuple[Tensor, ...]] | None = None
    alone: Callable[..., tuple[Instance, tuple[Index, ...]]] | None = None
    examples: int = 50

    def on(self, instance: Instance, build: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """The structure, or something else, as a function of the potentials of an instance."""
        return lambda *potentials: (build or self.build)(*with_potentials(instance, potentials))

    def structure(self, size: str = "medium", **options: Any) -> Structure:
        """A random structure."""
        return self.build(*self.random(size, **options))

    def values(self, oracle: str, instance: Instance) -> tuple[Tensor, ...]:
        """What an oracle answers."""
        return ORACLES[oracle](self.build(*instance), self.labels(potentials_of(instance)[0]))

    def values_and_gradients(
        self, oracle: str, instance: Instance, build: Callable[..., Any] | None = None
    ) -> tuple[Tensor, ...]:
        """What an oracle answers, with the gradients of a weighted sum of it."""
        potentials = potentials_of(instance)
        return values_and_gradients(oracle, self.on(instance, build), *potentials, y=self.labels(potentials[0]))


def potentials_of(instance: Instance) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in instance if tensor.is_floating_point())


def with_potentials(instance: Instance, potentials: Sequence[Tensor]) -> Instance:
    """The instance with other potentials."""
    left = iter(potentials)
    return tuple(next(left) if tensor.is_floating_point() else tensor for tensor in instance)


def changed(instance: Instance, change: Callable[[Tensor], Tensor]) -> Instance:
    """The instance with its potentials changed."""
    return with_potentials(instance, [change(scores) for scores in potentials_of(instance)])


def rows(instance: Instance, index: Any) -> Instance:
    """Some examples; what does not have their number of rows is shared by all."""
    batch = len(potentials_of(instance)[0])
    return tuple(tensor[index] if len(tensor) == batch else tensor for tensor in instance)
