"""Factors over any number of nodes: finite automata that read the labels of their scopes."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures import checks
from structsmooth.structures.patterns import compiled_pattern


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
    """A deterministic finite automaton, which reads labels: of the scope of a factor, or of whole sequences.

    As a factor of a :class:`~structsmooth.FactorGraph`, it reads the nodes of its scope. Composed with a chain in
    :class:`~structsmooth.structures.Accepted`, it reads the labels of each sequence, and has no scope.

    Args:
        scope: as for :class:`Factor`; empty, [0], for an automaton that reads sequences.
        transitions: the next state, integers [Q, S], from each state by each label, or [k, Q, S] with a table for each
            place of the scope, whose padding then is at the end of rows; the first state is 0. -1 where there is none.
        scores: of the final states, [Q] or [B, Q], differentiable; -inf forbids.
        arcs: scores of reading each label in each state, [Q, S] or [B, Q, S], differentiable; for sequences alone.

    Attributes:
        listed: states, labels that they read and next states, of an automaton without scope.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: a scope of the wrong shape; without one, transitions of the wrong shape or values.

    Example:
        >>> words = Automaton.from_pattern("(O | B-PER I-PER*)*", ["O", "B-PER", "I-PER"])
        >>> words.transitions, words.scores
        (tensor([[ 0,  1, -1],
                [ 0,  1,  1]]), tensor([0., 0.]))
    """

    transitions: Tensor
    scores: Tensor
    arcs: Tensor | None = None
    listed: tuple[tuple[int, int, int], ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.scope, Tensor) or self.scope.shape != (0,):
            return super().__post_init__()
        checks.require_integers("transitions", self.transitions)
        if self.transitions.dim() != 2 or 0 in self.transitions.shape:
            raise ValueError(f"transitions must have shape [Q, S], Q, S >= 1, got {tuple(self.transitions.shape)}")
        rows, count = self.transitions.tolist(), len(self.transitions)
        listed = tuple((q, j, r) for q, row in enumerate(rows) for j, r in enumerate(row) if r != -1)
        if not listed or not all(0 <= r < count for *_, r in listed):
            raise ValueError(f"transitions must lead to states from 0 to {count - 1}, or be -1, but not all")
        object.__setattr__(self, "listed", listed)  # so that structures need not read values

    @classmethod
    def from_arcs(
        cls,
        arcs: Iterable[Sequence[Any]],
        final: Mapping[int, float] | Collection[int],
        labels: int | Sequence[str],
        scope: Tensor | None = None,
    ) -> "Automaton":
        """The automaton of a list of arcs: (state, label, next state), or (state, label, next state, score).

        Args:
            arcs: states and labels, and scores; states are numbers from 0, where reading starts.
            final: the states in which reading may end, with their scores; 0 for those of a list.
            labels: number S of labels; or their names, in order, by which arcs may name them too.
            scope: as for :class:`Factor`, if it is to be a factor.

        Raises:
            ValueError: two arcs from one state with one label, whose labels would be accepted twice; numbers that are
                no states or labels.

        Example:
            >>> Automaton.from_arcs([(0, 0, 0), (0, 1, 1, 0.5), (1, 1, 1)], {1: 0.0}, labels=2).transitions
            tensor([[ 0,  1],
                    [-1,  1]])
        """
        listed = [(*arc, 0.0)[:4] for arc in arcs]
        numbers = {name: j for j, name in enumerate(labels)} if isinstance(labels, Sequence) else {}
        size = len(labels) if isinstance(labels, Sequence) else labels
        count = 1 + max([0, *final, *(int(state) for arc in listed for state in (arc[0], arc[2]))])
        transitions, scores = torch.full((count, size), -1), torch.zeros(count, size)
        for arc in listed:
            if isinstance(arc[1], str) and arc[1] not in numbers:
                raise ValueError(f"arcs must have numbers of labels or the names given as labels, got {arc[:3]}")
            state, label, after = map(int, (arc[0], numbers.get(arc[1], arc[1]), arc[2]))
            if min(state, label, after) < 0 or label >= size:
                raise ValueError(f"arcs must have states >= 0 and labels from 0 to {size - 1}, got {arc[:3]}")
            if transitions[state, label] >= 0:
                raise ValueError(f"arcs must differ in state or label, got two from {state} with label {label}")
            transitions[state, label], scores[state, label] = after, arc[3]
        of_final = final if isinstance(final, Mapping) else dict.fromkeys(final, 0.0)
        ends = torch.tensor([float(of_final.get(state, -torch.inf)) for state in range(count)])
        return cls(_no_scope() if scope is None else scope, transitions, ends, scores if scores.any() else None)

    @classmethod
    def from_pattern(cls, pattern: str, labels: Sequence[str], scope: Tensor | None = None) -> "Automaton":
        """The least automaton that accepts what a regular expression over labels does.

        Labels follow each other, separated by spaces or operators: ``|`` for alternatives, ``*``, ``+`` and ``?`` for
        repetitions, brackets, and ``.`` for any label. Labels that contain operators stand in double quotes.

        Args:
            pattern: such as ``". * B-LOC I-LOC . *"`` for sequences that contain two labels side by side.
            labels: names of the S labels, in order.
            scope: as for :class:`Factor`, if it is to be a factor.

        Raises:
            TypeError: a pattern that is no text.
            ValueError: what is no pattern, or needs too many states.

        Reference:
            Glushkov (1961), "The abstract theory of automata".
        """
        transitions, accepts = compiled_pattern(pattern, labels)
        ends = torch.where(torch.from_numpy(accepts), 0.0, -torch.inf)
        return cls(_no_scope() if scope is None else scope, torch.from_numpy(transitions), ends)

    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        """The factor itself, with one more state that forbids if some transitions are missing."""
        if not self.scope.numel() and self.scope.dim() == 1:
            raise ValueError("scope must name the nodes that a factor reads, got none")
        if self.arcs is not None:
            raise ValueError("arcs are scores for Accepted: a factor has scores of final states alone")
        checks.require_integers("transitions", self.transitions)
        missing = self.transitions == -1
        if not bool(missing.any()):
            return self.transitions, self.scores
        count = self.transitions.shape[-2]
        complete = pad(torch.where(missing, count, self.transitions), (0, 0, 0, 1), value=count)
        return complete, pad(self.scores, (0, 1), value=-torch.inf)


def _no_scope() -> Tensor:
    return torch.zeros(0, dtype=torch.int64)


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
