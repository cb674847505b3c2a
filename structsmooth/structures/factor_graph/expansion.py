"""Graphs with factors as pairwise graphs: an auxiliary node for each place of each scope.

The states of the auxiliary node at place i of a factor are the pairs (state of the automaton after i labels, label i)
that the automaton can reach. Hard pairwise scores join it to the node of the scope, whose label it repeats, and to the
next place, where the automaton continues. The score of the final state stands at the last place. Outputs of both
graphs correspond one to one, with equal scores, and the local polytope of the larger one is that of the factors with
their own marginal polytopes.

Automata that remember many labels, as those of tables do, are read from both ends: from some place onwards, states are
the labels of this place and of all that follow, as digits of a number, this label the last. The scores of final states
then stand at the edge in the middle, which sees both halves, so that a table of S^k scores has nodes of about S^(k/2)
states. Exact oracles take such factors as tables over their scopes, without auxiliary nodes; see :class:`Roles`.

Shapes, beside those of the graph: F factors of Q states, M places in all, P reachable pairs, H factors in two halves.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from structsmooth.structures import checks
from structsmooth.structures.factor_graph.layout import Expanded, Tables

# Largest number of entries of the pairwise tables of the expansion: 2 GiB in float64.
_MOST_ENTRIES = 2**28


class Roles(NamedTuple):
    """How exact oracles take factors: as tables over their scopes, or as counters, by auxiliary nodes.

    All numbers are known without a look at the values of tensors.
    """

    tables: list[int]  # which of the F factors are tables: those that are read from both ends
    counters: list[int]  # which are not
    places: list[int]  # of the counters among the M places
    owners: list[int]  # the counter of each of these places
    pairs: int  # the largest number of pairs of a place of a counter, P

    def joined(self, counters: Tensor, tables: Tensor) -> Tensor:
        """Values [B, F, Q] of all factors, from those of counters and those of tables."""
        if not self.tables:
            return counters
        numbers = [*self.counters, *self.tables]
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        return torch.cat([counters, tables], 1)[:, order]


@dataclass
class Automata:
    """The factors of a batch without their scores. torch 2.5 traces no properties of named tuples."""

    scopes: Tensor  # nodes [B, F, K], followed by -1 at padding
    transitions: Tensor  # [F, 1, Q, S], or [F, K, Q, S] for each place of the scopes
    owners: Tensor  # the factor of each place, [M]; places are in order
    pairs: Tensor  # the pairs that each place can have, [M, P >= S], as state · S + label; -1 at padding
    middles: Tensor  # the last place of the first half of each factor in two halves, [H]
    halves: Tensor  # the final state for each pair of its halves, [H, P, P]; -1 at padding

    def some(self, roles: Roles) -> "Automata":
        """The counters alone."""
        scopes, transitions = self.scopes[:, roles.counters], self.transitions[roles.counters]
        owners = torch.tensor(roles.owners, dtype=torch.int64, device=self.owners.device)
        pairs, none = self.pairs[roles.places, : roles.pairs], self.halves[:0, : roles.pairs, : roles.pairs]
        return Automata(scopes, transitions, owners, pairs, self.middles[:0], none)

    def check_size(self, edge_mask: Tensor) -> None:
        """Raise ``MemoryError`` if tables of the expansion of graphs with edges [B, E] have too many entries."""
        (batch, count), (places, states) = edge_mask.shape, self.pairs.shape
        edges = count + max(2 * places - 1, 0)
        entries = batch * edges * states**2
        if entries > _MOST_ENTRIES:
            raise MemoryError(
                f"factors need auxiliary nodes of {states} states, and so tables of {entries:,} entries for the "
                f"{edges} edges of {batch} examples, more than {_MOST_ENTRIES:,}: give factors with fewer states or "
                "smaller scopes (a Count or an Automaton in place of a Table), or smaller batches"
            )

    @property
    def exists(self) -> Tensor:
        """Which factors the examples have, [B, F]."""
        return (self.scopes >= 0).any(-1)

    def final_states(self, y: Tensor) -> Tensor:
        """States [B, F] in which the automata end on labels [B, N]."""
        return self._runs(y)[1][-1]

    def _runs(self, y: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Labels [B, F] at the places of scopes, and states of the automata before each of them and at the end."""
        return Tables(self.scopes, self.transitions).runs(y)

    def check_scores(self, scores: Tensor, unary: Tensor) -> None:
        """Raise ``TypeError`` or ``ValueError`` for scores of final states of a wrong dtype, shape or device."""
        checks.require_scores("factors", scores)
        checks.require_shape("factors", scores, "[B, F, Q]", (*self.scopes.shape[:2], self.transitions.shape[2]))
        checks.require_device("factors", scores, "unary", unary)

    def score(self, scores: Tensor, y: Tensor) -> Tensor:
        """Sums [B] of the scores [B, F, Q] of the final states on labels [B, N]."""
        found = scores.gather(2, self.final_states(y).unsqueeze(-1)).squeeze(-1)
        return torch.where(self.exists, found, 0.0).sum(1)

    def parts(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """Indicators [B, F, Q] of the final states."""
        return one_hot(self.final_states(y), self.transitions.shape[2]).to(dtype) * self.exists.unsqueeze(-1)

    def possible(self) -> Tensor:
        """The final states, bool [B, F, Q], in which some labels end."""
        batch, (_, wide) = len(self.scopes), self.pairs.shape
        ones = torch.ones(batch, *self.pairs.shape, device=self.pairs.device)
        return self._final(ones, ones.new_ones(batch, len(self.middles), wide, wide)) > 0

    def final(self, node: Tensor, edge: Tensor) -> Tensor:
        """Sums [B, F, Q] over all that end in a final state, of values of the expanded graph."""
        places = len(self.owners)
        middles = edge[:, edge.shape[1] - places + 1 :][:, self.middles]
        return self._final(node[:, node.shape[1] - places :], middles)

    def _final(self, pairs: Tensor, middles: Tensor) -> Tensor:
        """As :meth:`final`, for values [B, M, P] of auxiliary nodes, and [B, H, P, P] of edges in the middle."""
        (_, factors, _), count = self.scopes.shape, self.transitions.shape[2]
        last = self._last.unsqueeze(-1) & (self.pairs >= 0)
        sums = pairs.new_zeros(len(pairs), factors * count)
        for states, owners, real, values in (
            (self._states, self.owners[:, None], last, pairs),
            (self.halves.clamp_min(0), self.owners[self.middles, None, None], self.halves >= 0, middles),
        ):
            index = (owners * count + states).flatten().expand(len(pairs), -1)
            sums = sums.scatter_add(1, index, torch.where(real, values, 0.0).flatten(1))
        return sums.view(len(pairs), factors, count)

    def expanded(self, graph: Expanded, scores: Tensor) -> Expanded:
        """The pairwise graph of a graph and the scores [B, F, Q] of final states.

        Raises:
            MemoryError: tables of too many entries.
        """
        self.check_size(graph.edge_mask)
        batch, nodes, states = graph.unary.shape
        places, wide = self.pairs.shape
        final = scores[:, self.owners.unsqueeze(-1), self._states]
        auxiliary = torch.where(self._last.unsqueeze(-1), final, 0.0).masked_fill(self.pairs < 0, -torch.inf)
        hard = torch.cat([self._repeats(), self._continues()])
        hard = torch.where(hard, 0.0, -torch.inf).to(graph.pairwise).expand(batch, -1, -1, -1)
        if len(self.middles):
            joint = scores[:, self.owners[self.middles, None, None], self.halves.clamp_min(0)]
            joint = torch.where(self.halves >= 0, joint, -torch.inf).to(graph.pairwise)
            hard = hard.index_copy(1, places + self.middles, joint)
        place = nodes + torch.arange(places, device=self.pairs.device).expand(batch, -1)
        joined = torch.stack([self._nodes.clamp_min(0), place], -1), torch.stack([place[:, :-1], place[:, 1:]], -1)
        real = self._nodes >= 0
        missing = wide - states
        return Expanded(
            torch.cat([pad(graph.unary, (0, missing), value=-torch.inf), auxiliary], 1),
            torch.cat([pad(graph.pairwise, (0, missing, 0, missing)), hard], 1),
            torch.cat([graph.edges, *joined], 1),
            torch.cat([graph.node_mask, real], 1),
            torch.cat([graph.edge_mask, real, real[:, 1:] & (self.owners[1:] == self.owners[:-1])], 1),
        )

    def labels_of_places(self, y: Tensor) -> Tensor:
        """The states [B, M] of the auxiliary nodes on labels [B, N]; 0 where there is none."""
        states, (labels, reached) = self.transitions.shape[-1], self._runs(y)
        pairs = torch.stack(reached[1:], -1) * states + torch.stack(labels, -1)
        onwards, rest = [], torch.zeros_like(labels[0])
        for nodes, label in zip(reversed(self.scopes.unbind(-1)), reversed(labels), strict=True):
            rest = torch.where(nodes >= 0, rest * states + label, rest)
            onwards.append(rest)
        ways = torch.stack([torch.where(self.scopes >= 0, pairs, -2), torch.stack(onwards[::-1], -1)])
        numbers = ways[self._second_half.long(), :, self.owners, self._positions].transpose(0, 1)
        return (numbers.unsqueeze(-1) == self.pairs).to(torch.uint8).argmax(-1)

    def given(self, scores: Tensor, y: Tensor) -> Tensor:
        """The score [B, F, K, S] of each factor for all labels of each of its nodes, given those of the others."""
        count, states = self.transitions.shape[2:]
        labels, before = self._runs(y)
        real = [nodes >= 0 for nodes in self.scopes.unbind(-1)]
        every = torch.arange(states, device=y.device)
        rest, found = scores, []  # the score from each state of the automaton onwards
        state_of = torch.arange(count, device=y.device)
        for i in reversed(range(len(labels))):
            then = self._next(before[i].unsqueeze(-1) * states + every, i)
            found.append(torch.where(real[i].unsqueeze(-1), rest.gather(2, then), 0.0))
            onwards = rest.gather(2, self._next(state_of * states + labels[i].unsqueeze(-1), i))
            rest = torch.where(real[i].unsqueeze(-1), onwards, rest)
        return torch.stack(found[::-1], 2)

    def best(self, scores: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The best values [B, F] of each factor with scores [B, F, K, S] of its nodes, and labels [B, F, K]."""
        states, real = self.transitions.shape[-1], self.scopes >= 0
        start = torch.arange(scores.shape[-1], device=scores.device) == 0
        values = [torch.where(start, 0.0, -torch.inf).to(scores).expand_as(scores)]
        steps = []
        for i in range(nodes.shape[2]):
            steps.append((values[-1].unsqueeze(-1) + nodes[:, :, i].unsqueeze(2)).flatten(2))
            then = self._table(i).expand(len(scores), -1, -1)
            reached = torch.full_like(scores, -torch.inf).scatter_reduce(2, then, steps[-1], "amax")
            values.append(torch.where(real[:, :, i, None], reached, values[-1]))
        best, state = (values[-1] + scores).max(-1)
        labels = []
        for i in reversed(range(nodes.shape[2])):
            leading = torch.where(self._table(i) == state.unsqueeze(-1), steps[i], -torch.inf).argmax(-1)
            labels.append(leading % states)
            state = torch.where(real[:, :, i], leading // states, state)
        return best, torch.stack(labels[::-1], -1)

    def _table(self, place: int) -> Tensor:
        """States after each pair (state, label) at a place of the scopes: [F, Q · S]."""
        return self.transitions[:, min(place, self.transitions.shape[1] - 1)].flatten(1)

    def _next(self, pairs: Tensor, place: int) -> Tensor:
        """States after pairs (state, label) of each factor at a place, [B, F] or [B, F, n]."""
        then = self._table(place).expand(len(pairs), -1, -1)
        return then.gather(2, pairs.flatten(2) if pairs.dim() == 3 else pairs.unsqueeze(-1)).view_as(pairs)

    @property
    def _positions(self) -> Tensor:
        """The position of each place in its scope, [M]."""
        first = torch.searchsorted(self.owners, torch.arange(len(self.transitions), device=self.owners.device))
        return torch.arange(len(self.owners), device=self.owners.device) - first[self.owners]

    @property
    def _nodes(self) -> Tensor:
        """The node that each place reads, [B, M], or -1."""
        return self.scopes[:, self.owners, self._positions]

    @property
    def _last(self) -> Tensor:
        """Which places are the last of their scopes, bool [B, M]; none of factors in two halves."""
        return (self._positions + 1 == (self.scopes >= 0).sum(-1)[:, self.owners]) & ~self._second_half

    @property
    def _second_half(self) -> Tensor:
        """Which places are read from the end, bool [M]."""
        begin = torch.full_like(self.owners, len(self.owners)).scatter(0, self.owners[self.middles], self.middles)
        return torch.arange(len(self.owners), device=self.owners.device) > begin[self.owners]

    @property
    def _states(self) -> Tensor:
        """The states of the automaton in pairs, [M, P]; 0 at padding."""
        return self.pairs.clamp_min(0) // self.transitions.shape[-1]

    @property
    def _labels(self) -> Tensor:
        """The labels in pairs, [M, P]; 0 at padding."""
        return self.pairs.clamp_min(0) % self.transitions.shape[-1]

    def _repeats(self) -> Tensor:
        """Which pairs have each label, bool [M, P, P]."""
        label = torch.arange(self.pairs.shape[-1], device=self.pairs.device).unsqueeze(-1)
        return (self._labels.unsqueeze(-2) == label) & (self.pairs >= 0).unsqueeze(-2)

    def _continues(self) -> Tensor:
        """Which pairs can follow each pair at the next place, bool [M - 1, P, P]; of middles, nothing."""
        states, labels, real = self._states, self._labels, self.pairs >= 0
        place = self._positions.clamp_max(self.transitions.shape[1] - 1)[1:, None, None]
        then = self.transitions[self.owners[1:, None, None], place, states[:-1].unsqueeze(-1), labels[1:].unsqueeze(-2)]
        forwards = then == states[1:].unsqueeze(-2)
        backwards = states[:-1].unsqueeze(-1) == self.pairs[1:].unsqueeze(-2)
        follows = torch.where(self._second_half[1:, None, None], backwards, forwards)
        return follows & real[:-1].unsqueeze(-1) & real[1:].unsqueeze(-2)
