"""Factors that read truth values: which nodes have a label, or lack it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.settings import check_number, plain_number
from structsmooth.structures import checks
from structsmooth.structures.factor_graph.factors import Factor


@dataclass(frozen=True, eq=False)
class Count(Factor):
    """A score of the number of nodes with one label.

    Args:
        scope: as for :class:`Factor`, but with padding at the end of rows if ``negated`` is given.
        scores: entry [..., n] for n nodes, the last for any larger number too; [Q] or [B, Q], differentiable.
        label: which.
        negated: the nodes of the scope that count if they do *not* have the label, bool [k]; best on the CPU.

    Example:
        Exactly one of three literals is true, y₀ = 1, y₁ = 1 or y₂ ≠ 1:

        >>> from structsmooth import FactorGraph
        >>> from structsmooth.factors import Count
        >>> one = Count(torch.arange(3), torch.tensor([-torch.inf, 0.0, -torch.inf]), negated=torch.arange(3) == 2)
        >>> no_edges, no_tables = torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2, 2)
        >>> sorted(FactorGraph(torch.zeros(1, 3, 2), no_edges, no_tables, factors=[one]).topk(3)[1][0].tolist())
        [[0, 0, 0], [0, 1, 1], [1, 0, 1]]

    Reference:
        Gupta, Diwan and Sarawagi (2007), cardinality potentials.
    """

    scores: Tensor
    label: int = 1
    negated: Tensor | None = None

    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        """The state is the number of nodes so far, up to the largest that matters."""
        checks.require_scores("scores", self.scores)
        return _counting(self.scope, self.scores.shape[-1], states, self.label, self.negated), self.scores


@dataclass(frozen=True, eq=False)
class AtMostOne(Factor):
    """At most one node of the scope has a label.

    Args:
        scope: as for :class:`Count`.
        label: which.
        negated: as for :class:`Count`.

    Example:
        >>> from structsmooth import FactorGraph
        >>> from structsmooth.factors import AtMostOne
        >>> unary = torch.tensor([[[0.0, 3.0], [0.0, 2.0], [0.0, 1.0]]])
        >>> no_edges, no_tables = torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2, 2)
        >>> graph = FactorGraph(unary, no_edges, no_tables, factors=[AtMostOne(torch.arange(3))])
        >>> graph.max()[1], graph.log_count().exp().round()
        (tensor([[1, 0, 0]]), tensor([4.]))
    """

    label: int = 1
    negated: Tensor | None = None

    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        """The states tell how many nodes have the label: none, one, more."""
        return _counting(self.scope, 3, states, self.label, self.negated), _allowed(self.scope, 0, 2, 3)


@dataclass(frozen=True, eq=False)
class AtLeastOne(Factor):
    """At least one node of the scope has a label: a clause, if some nodes are negated.

    Args:
        scope: as for :class:`Count`.
        label: which.
        negated: as for :class:`Count`.
    """

    label: int = 1
    negated: Tensor | None = None

    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        """The states tell whether no node has the label, or some."""
        return _counting(self.scope, 2, states, self.label, self.negated), _allowed(self.scope, 1, 2, 2)


@dataclass(frozen=True, eq=False)
class Budget(Factor):
    """At most so many nodes of the scope have a label.

    Args:
        scope: as for :class:`Count`.
        most: the largest number, >= 0.
        label: which.
        negated: as for :class:`Count`.
    """

    most: int
    label: int = 1
    negated: Tensor | None = None

    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        """The state is the number of nodes so far."""
        most = check_number("most", self.most, integer=True)
        transitions = _counting(self.scope, most + 2, states, self.label, self.negated)
        return transitions, _allowed(self.scope, 0, most + 1, most + 2)


@dataclass(frozen=True, eq=False)
class Or(Factor):
    """The first node of the scope, the output, has a label if and only if one of the others has it, or several have.

    Args:
        scope: the output, then the inputs; as for :class:`Count`. Without inputs, the output is false.
        label: which.
        negated: as for :class:`Count`; that of the output is among them.

    Example:
        Node 2 says whether node 0 or node 1 has label 1:

        >>> from structsmooth import FactorGraph
        >>> from structsmooth.factors import Or
        >>> no_edges, no_tables = torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2, 2)
        >>> graph = FactorGraph(torch.zeros(1, 3, 2), no_edges, no_tables, factors=[Or(torch.tensor([2, 0, 1]))])
        >>> sorted(graph.topk(4)[1][0].tolist())
        [[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]]

    Reference:
        Martins, Figueiredo, Aguiar, Smith and Xing (2015), "AD3: alternating directions dual decomposition for MAP
        inference in graphical models", section 5.
    """

    label: int = 1
    negated: Tensor | None = None

    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        """States are the start; a true output, of which no input or some is seen; a false one; and a contradiction."""
        return _read(self.scope, *_OR, states, self.label, self.negated), _allowed(self.scope, 2, 4, 5)


@dataclass(frozen=True, eq=False)
class And(Factor):
    """The first node of the scope, the output, has a label if and only if all others have it.

    Args:
        scope: the output, then the inputs; as for :class:`Count`. Without inputs, the output is true.
        label: which.
        negated: as for :class:`Or`.
    """

    label: int = 1
    negated: Tensor | None = None

    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        """The automaton of :class:`Or` with all literals negated."""
        if_false, if_true = _OR
        return _read(self.scope, if_true, if_false, states, self.label, self.negated), _allowed(self.scope, 2, 4, 5)


# The next state by false and by true, from the start, a true output without inputs, a false one, a true one with
# inputs, and a contradiction.
_OR = (2, 1, 2, 3, 4), (1, 3, 4, 3, 4)


def _counting(scope: Tensor, count: int, states: int, label: int, negated: Tensor | None) -> Tensor:
    """Transitions of an automaton that counts literals that are true, up to ``count`` - 1."""
    return _read(scope, range(count), [*range(1, count), count - 1], states, label, negated)


def _read(
    scope: Tensor, if_false: Sequence[int], if_true: Sequence[int], states: int, label: int, negated: Tensor | None
) -> Tensor:
    """Transitions [Q, S], or [k, Q, S], of an automaton with these next states by truth values."""
    label = plain_number(label)
    if isinstance(label, bool) or not isinstance(label, int):
        raise TypeError(f"label must be an int, got {type(label).__name__}")
    if not 0 <= label < states:
        raise ValueError(f"label must be from 0 to {states - 1}, got {label}")
    true = torch.arange(states, device="cpu") == label  # where transitions are read
    if negated is not None:
        negated = checks.as_mask("negated", negated)
        checks.require_shape("negated", negated, "[k]", (scope.shape[-1],))
        if negated.device.type != "cpu":
            checks.require_device("negated", negated, "scope", scope)
        true = true.to(negated.device) ^ negated[:, None, None]
    then_false, then_true = (torch.tensor(list(then), device=true.device)[:, None] for then in (if_false, if_true))
    return torch.where(true, then_true, then_false)


def _allowed(scope: Tensor, begin: int, end: int, count: int) -> Tensor:
    """Scores of final states of which some are allowed; float32, so that no sum becomes wider by them."""
    state = torch.arange(count, device=scope.device)
    return torch.where((state >= begin) & (state < end), 0.0, -torch.inf).to(torch.float32)
