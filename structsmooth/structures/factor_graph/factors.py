"""Factors over any number of nodes: finite automata that read the labels of their scopes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures import checks


@dataclass(frozen=True, eq=False)
class Factor(ABC):
    """A score of the labels of several nodes together, for ``FactorGraph(factors=...)``.

    A factor is a finite automaton that reads the labels of its scope in turn, from state 0. Its score is that of the
    state in which it ends. A subclass defines :meth:`automaton`; a single automaton may also be given as an
    :class:`Automaton`.

    Args:
        scope: nodes in the order in which they are read, integers [k] for all examples, or [B, k] with -1 at padding.
            An example whose row has padding alone has no such factor.

    Raises:
        TypeError: a scope that is no tensor of integers.
        ValueError: a scope of the wrong shape.

    Example:
        The number of nodes with label 1 is even:

        >>> from structsmooth import FactorGraph
        >>> from structsmooth.factors import Factor
        >>> class Even(Factor):
        ...     def automaton(self, states):
        ...         transitions = torch.tensor([[0], [1]]).repeat(1, states)
        ...         transitions[:, 1] = torch.tensor([1, 0])
        ...         return transitions, torch.tensor([0.0, -torch.inf])
        >>> unary = torch.tensor([[[0.0, 3.0], [0.0, 2.0], [0.0, 1.0]]])
        >>> no_edges, no_tables = torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2, 2)
        >>> FactorGraph(unary, no_edges, no_tables, factors=[Even(torch.arange(3))]).max()
        (tensor([5.]), tensor([[1, 1, 0]]))
    """

    scope: Tensor

    def __post_init__(self) -> None:
        checks.require_integers("scope", self.scope)
        if self.scope.dim() not in (1, 2) or 0 in self.scope.shape[-1:]:
            raise ValueError(f"scope must have shape [k] or [B, k] with k >= 1, got {tuple(self.scope.shape)}")

    def check_scope(self) -> None:  # noqa: B027 - most take any
        """Raise ``ValueError`` for values of the scope that the factor does not take. Default: any."""

    @abstractmethod
    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        """The automaton for nodes of S labels.

        Returns:
            The next state, integers [Q, S], from each of Q states by each label, or [k, Q, S] with a table for each
            place of the scope, best on the CPU, where they are read; and the scores [Q] or [B, Q] of the final states,
            floating point, where -inf forbids.
        """


@dataclass(frozen=True, eq=False)
class Automaton(Factor):
    """A factor by its automaton.

    Args:
        scope: as for :class:`Factor`.
        transitions: the next state, integers [Q, S], from each state by each label, or [k, Q, S] with a table for each
            place of the scope, whose padding then is at the end of rows; the first state is 0.
        scores: of the final states, [Q] or [B, Q], differentiable; -inf forbids.
    """

    transitions: Tensor
    scores: Tensor

    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        """The factor itself, which is an automaton."""
        return self.transitions, self.scores


@dataclass(frozen=True, eq=False)
class Potts(Factor):
    """A score for scopes whose nodes all have one label.

    Args:
        scope: as for :class:`Factor`.
        strength: the score, floating point, which may depend on the label and on the example: it broadcasts to [B, S].

    Reference:
        Kohli, Kumar and Torr (2007), the Pⁿ Potts model.
    """

    strength: Tensor

    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        """States are the start, the label so far plus 1, and several labels."""
        checks.require_scores("strength", self.strength)
        if self.strength.dim() > 2 or self.strength.shape[-1:] not in ((), (1,), (states,)):
            raise ValueError(f"strength must broadcast to [B, {states}], got shape {tuple(self.strength.shape)}")
        several = states + 1
        transitions = torch.full((states + 2, states), several, device="cpu")
        label = torch.arange(states, device="cpu")
        transitions[0], transitions[1 + label, label] = 1 + label, 1 + label
        return transitions, pad(self.strength.expand(*self.strength.shape[:-1], states), (1, 1))


@dataclass(frozen=True, eq=False)
class Table(Factor):
    """A table of scores for all joint labels of a scope.

    Args:
        scope: as for :class:`Factor`, but rows have k nodes or none.
        scores: entry [..., i, ..., j] for the first label i and the last label j, [S, ..., S] or [B, S, ..., S].

    Raises:
        ValueError: a row of the scope with fewer than k nodes.
    """

    scores: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scope.device.type == "cpu":  # elsewhere, once it is known whether values are checked
            self.check_scope()

    def check_scope(self) -> None:
        """Raise ``ValueError`` for a row with fewer than k nodes."""
        padding = self.scope < 0
        if bool((padding.any(-1) & ~padding.all(-1)).any()):
            raise ValueError(f"scope must have {self.scope.shape[-1]} nodes or none in each row, as Table has entries")

    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        """The state is the number of the joint labels so far."""
        checks.require_scores("scores", self.scores)
        size = self.scope.shape[-1]
        if self.scores.dim() not in (size, size + 1) or self.scores.shape[-size:] != (states,) * size:
            raise ValueError(
                f"scores must have shape {(states,) * size} or (B, {', '.join([str(states)] * size)}), "
                f"got {tuple(self.scores.shape)}"
            )
        joint = torch.arange(states ** (size + 1), device="cpu")
        return (joint % states**size).view(-1, states), self.scores.flatten(-size)
