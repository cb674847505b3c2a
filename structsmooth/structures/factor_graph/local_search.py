"""Local search for good labels of graphs with factors: moves of one node, or of the scope of one factor."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.structures.factor_graph.expansion import Automata
from structsmooth.structures.factor_graph.relaxation_dual import RelaxationDual

# Gains below this share of the score are rounding.
_GAIN = 1e-12


@dataclass(frozen=True)
class LocalSearch:
    """Labels of the expanded graph, from any labels of its nodes."""

    automata: Automata
    scores: Tensor  # of final states, [B, F, Q], float64

    def rows(self, index: Tensor) -> "LocalSearch":
        """The same search over some of the examples."""
        return LocalSearch(replace(self.automata, scopes=self.automata.scopes[index]), self.scores[index])

    def __call__(self, problem: RelaxationDual, y: Tensor) -> Tensor:
        """Labels [B, N + M] of the graph ``problem`` at which no move that is tried improves the score.

        A factor moves its scope to the labels that are best for itself and the nodes, by dynamic programming.
        """
        nodes = problem.unary.shape[1] - len(self.automata.owners)
        penalty = torch.minimum(problem.unary.flatten(1).amin(1), problem.pairwise.flatten(1).amin(1))
        graph = _Problem(problem, self.automata, torch.maximum(self.scores, penalty[:, None, None]), nodes)
        y = graph.ascended(y[:, :nodes].clamp_max(self.automata.transitions.shape[-1] - 1))
        for _ in range(2 * len(self.automata.transitions) + 2):
            moved = graph.ascended(graph.with_best_scope(y))
            better = graph.score(moved) > graph.score(y) + _GAIN * graph.score(y).abs()
            if not bool(better.any()):
                break
            y = torch.where(better.unsqueeze(-1), moved, y)
        return torch.cat([y, self.automata.labels_of_places(y)], 1)


class _Problem(NamedTuple):
    expanded: RelaxationDual
    automata: Automata
    scores: Tensor  # finite
    nodes: int

    @property
    def node_edges(self) -> int:
        """Number of edges between nodes of the graph, which come before those of factors."""
        return self.expanded.pairwise.shape[1] - 2 * len(self.automata.owners) + 1

    def score(self, y: Tensor) -> Tensor:
        """Scores [B] of labels [B, N] of the nodes, with those of the factors."""
        a, b = self.expanded.ends[:, : self.node_edges].unbind(-1)
        b_, e = torch.meshgrid(*(torch.arange(size, device=y.device) for size in a.shape), indexing="ij")
        pairs = self.expanded.pairwise[b_, e, y.gather(1, a), y.gather(1, b)]
        pairs = torch.where(self.expanded.layout.edge_mask[:, : self.node_edges], pairs, 0.0)
        node = self.expanded.unary[:, : self.nodes].gather(2, y.unsqueeze(-1))
        return node.sum((1, 2)) + pairs.sum(1) + self.automata.score(self.scores, y)

    def ascended(self, y: Tensor) -> Tensor:
        """Labels after moves of single nodes, the best one first."""
        for _ in range(self.nodes):
            total, _ = self.given(y)
            gains = (total - total.gather(2, y.unsqueeze(-1))).flatten(1)
            best = gains.argmax(1, keepdim=True)
            better = gains.gather(1, best) > _GAIN * total.flatten(1).abs().amax(1, keepdim=True)
            if not bool(better.any()):
                break
            node, label = best // total.shape[-1], best % total.shape[-1]
            y = torch.where(better, y.scatter(1, node, label), y)
        return y

    def given(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Scores [B, N, S] of each label of each node given all others, and what factors add, [B, F, K, S]."""
        states = self.automata.transitions.shape[-1]
        total = self.expanded.unary[:, : self.nodes, :states]
        a, b = self.expanded.ends[:, : self.node_edges].unbind(-1)
        tables = self.expanded.pairwise[:, : self.node_edges, :states, :states]
        real = self.expanded.layout.edge_mask[:, : self.node_edges].unsqueeze(-1)
        for end, other, table in ((a, b, tables), (b, a, tables.transpose(2, 3))):
            label = y.gather(1, other)[:, :, None, None].expand(-1, -1, states, 1)
            added = torch.where(real, table.gather(3, label).squeeze(-1), 0.0)
            total = total.scatter_add(1, end.unsqueeze(-1).expand_as(added), added)
        added = self.automata.given(self.scores, y)
        index = self.automata.scopes.clamp_min(0).flatten(1).unsqueeze(-1).expand(-1, -1, states)
        return total.scatter_add(1, index, added.flatten(1, 2)), added

    def with_best_scope(self, y: Tensor) -> Tensor:
        """Labels with the scope that gains most, by scores of its nodes that count the others as they are."""
        total, added = self.given(y)
        scopes = self.automata.scopes
        states, inside = total.shape[-1], scopes.clamp_min(0)
        index = inside.flatten(1).unsqueeze(-1).expand(-1, -1, states)
        others = total.gather(1, index).view_as(added) - added
        others = torch.where((scopes >= 0).unsqueeze(-1), others, 0.0)
        values, labels = self.automata.best(self.scores, others)
        now = torch.where(scopes >= 0, y.gather(1, inside.flatten(1)).view_as(scopes), 0)
        values = values - others.gather(3, now.unsqueeze(-1)).sum((2, 3))
        values = values - self.scores.gather(2, self.automata.final_states(y).unsqueeze(-1)).squeeze(-1)
        chosen = torch.where(self.automata.exists, values, -torch.inf).argmax(1)[:, None, None]
        wide = chosen.expand(-1, 1, scopes.shape[-1])
        nodes, labels = scopes.gather(1, wide).squeeze(1), labels.gather(1, wide).squeeze(1)
        grown = torch.cat([y, y[:, :1]], 1)  # padding writes behind the last node
        return grown.scatter(1, torch.where(nodes >= 0, nodes, self.nodes), labels)[:, :-1]
