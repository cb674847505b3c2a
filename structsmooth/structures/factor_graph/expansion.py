"""Graphs with factors as pairwise graphs: an auxiliary node for each place of each scope.

The states of the auxiliary node at place i of a factor are the pairs (state of the automaton after i labels, label i)
that the automaton can reach. Hard pairwise scores join it to the node of the scope, whose label it repeats, and to the
next place, where the automaton continues. The score of the final state stands at the last place. Outputs of both
graphs correspond one to one, with equal scores, and the local polytope of the larger one is that of the factors with
their own marginal polytopes.

Shapes, beside those of the graph: F factors of Q states, M places in all, P reachable pairs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from structsmooth.structures import checks
from structsmooth.structures.factor_graph.layout import Layout


class Expanded(NamedTuple):
    """A pairwise graph: potentials, and a layout in its three tensors."""

    unary: Tensor  # [B, N, S]
    pairwise: Tensor  # [B, E, S, S]
    edges: Tensor  # [B, E, 2]
    node_mask: Tensor  # [B, N]
    edge_mask: Tensor  # [B, E]

    @property
    def layout(self) -> Layout:
        """Which nodes and edges there are."""
        return Layout(self.edges, self.node_mask, self.edge_mask)


class Automata(NamedTuple):
    """The factors of a batch without their scores."""

    scopes: Tensor  # nodes [B, F, K], followed by -1 at padding
    transitions: Tensor  # [F, Q, S]
    owners: Tensor  # the factor of each place, [M]; places are in order
    pairs: Tensor  # the pairs that each place can have, [M, P >= S], as state · S + label; -1 at padding

    @property
    def exists(self) -> Tensor:
        """Which factors the examples have, [B, F]."""
        return (self.scopes >= 0).any(-1)

    def final_states(self, y: Tensor) -> Tensor:
        """States [B, F] in which the automata end on labels [B, N]."""
        joint, states = self.transitions.flatten(1), self.transitions.shape[-1]
        state = torch.zeros_like(self.scopes[..., 0])
        for nodes in self.scopes.unbind(-1):
            label = y.gather(1, nodes.clamp_min(0))
            then = joint.expand(len(y), -1, -1).gather(2, (state * states + label).unsqueeze(-1)).squeeze(-1)
            state = torch.where(nodes >= 0, then, state)
        return state

    def check_scores(self, scores: Tensor, unary: Tensor) -> None:
        """Raise ``TypeError`` or ``ValueError`` for scores of final states of a wrong dtype, shape or device."""
        checks.require_scores("factors", scores)
        checks.require_shape("factors", scores, "[B, F, Q]", (*self.scopes.shape[:2], self.transitions.shape[1]))
        checks.require_device("factors", scores, "unary", unary)

    def score(self, scores: Tensor, y: Tensor) -> Tensor:
        """Sums [B] of the scores [B, F, Q] of the final states on labels [B, N]."""
        found = scores.gather(2, self.final_states(y).unsqueeze(-1)).squeeze(-1)
        return torch.where(self.exists, found, 0.0).sum(1)

    def parts(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """Indicators [B, F, Q] of the final states."""
        return one_hot(self.final_states(y), self.transitions.shape[1]).to(dtype) * self.exists.unsqueeze(-1)

    def possible(self) -> Tensor:
        """The final states, bool [B, F, Q], in which some labels end."""
        return self.final(torch.ones(len(self.scopes), *self.pairs.shape, device=self.pairs.device)) > 0

    def final(self, pairs: Tensor) -> Tensor:
        """Sums [B, F, Q] over the pairs with a final state, of values [B, M, P] of auxiliary nodes."""
        (_, factors, _), count = self.scopes.shape, self.transitions.shape[1]
        index = self.owners.unsqueeze(-1) * count + self._states
        last = self._last.unsqueeze(-1) & (self.pairs >= 0)
        sums = pairs.new_zeros(len(pairs), factors * count)
        sums = sums.scatter_add(1, index.flatten().expand(len(pairs), -1), torch.where(last, pairs, 0.0).flatten(1))
        return sums.view(len(pairs), factors, count)

    def expanded(self, own: Expanded, scores: Tensor) -> Expanded:
        """The pairwise graph of a graph and the scores [B, F, Q] of final states."""
        batch, nodes, states = own.unary.shape
        places, wide = self.pairs.shape
        final = scores[:, self.owners.unsqueeze(-1), self._states]
        auxiliary = torch.where(self._last.unsqueeze(-1), final, 0.0).masked_fill(self.pairs < 0, -torch.inf)
        allowed = torch.cat([self._repeats(), self._continues()])
        hard = torch.where(allowed, 0.0, -torch.inf).to(own.pairwise).expand(batch, -1, -1, -1)
        place = nodes + torch.arange(places, device=self.pairs.device).expand(batch, -1)
        joined = torch.stack([self._nodes.clamp_min(0), place], -1), torch.stack([place[:, :-1], place[:, 1:]], -1)
        real = self._nodes >= 0
        missing = wide - states
        return Expanded(
            torch.cat([pad(own.unary, (0, missing), value=-torch.inf), auxiliary], 1),
            torch.cat([pad(own.pairwise, (0, missing, 0, missing)), hard], 1),
            torch.cat([own.edges, *joined], 1),
            torch.cat([own.node_mask, real], 1),
            torch.cat([own.edge_mask, real, real[:, 1:] & (self.owners[1:] == self.owners[:-1])], 1),
        )

    @property
    def _positions(self) -> Tensor:
        """Of each place in its scope, [M]."""
        first = torch.searchsorted(self.owners, torch.arange(len(self.transitions), device=self.owners.device))
        return torch.arange(len(self.owners), device=self.owners.device) - first[self.owners]

    @property
    def _nodes(self) -> Tensor:
        """The node that each place reads, [B, M], or -1."""
        return self.scopes[:, self.owners, self._positions]

    @property
    def _last(self) -> Tensor:
        """Which places are the last of their scopes, bool [B, M]."""
        return self._positions + 1 == (self.scopes >= 0).sum(-1)[:, self.owners]

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
        """Which pairs can follow each pair at the next place, bool [M - 1, P, P]."""
        states, labels, real = self._states, self._labels, self.pairs >= 0
        then = self.transitions[self.owners[1:, None, None], states[:-1].unsqueeze(-1), labels[1:].unsqueeze(-2)]
        return (then == states[1:].unsqueeze(-2)) & real[:-1].unsqueeze(-1) & real[1:].unsqueeze(-2)


def automata(scopes: Tensor, transitions: Tensor, sizes: Sequence[int]) -> Automata:
    """The factors with these scopes [B, F, K], of at most ``sizes`` nodes, and transitions [F, Q, S]."""
    (factors, count, states), longest, device = transitions.shape, max(sizes), transitions.device
    then = (transitions * states + torch.arange(states, device=device)).flatten(1)
    reached = torch.arange(count, device=device).expand(factors, -1) == 0
    found = []
    for _ in range(longest):
        steps = reached.unsqueeze(-1).expand(-1, -1, states).flatten(1)
        found.append(torch.zeros_like(then).scatter_add(1, then, steps.long()) > 0)
        reached = found[-1].unflatten(1, (count, states)).any(-1)
    owners = torch.arange(factors, device=device).repeat_interleave(torch.tensor(sizes, device=device))
    positions = torch.cat([torch.arange(size, device=device) for size in sizes])
    own = torch.stack(found, 1)[owners, positions]
    most = int(own.sum(-1).amax())
    order = (~own).to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    pairs = pad(torch.where(own.gather(1, order), order, -1), (0, max(0, states - most)), value=-1)
    return Automata(scopes, transitions, owners, pairs)
