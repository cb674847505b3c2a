"""Blocks of a soft dual that join several nodes: single factors, forests of edges, or all of an example."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts, minus
from structsmooth.problems.linear.blocks import respond
from structsmooth.smoothing import Entropy
from structsmooth.structures.factor_graph import Automaton, FactorGraph

Decomposition = Literal["factors", "forests", "whole"]

# The score of what is forbidden, where steps multiply it by marginals of zero; and what only such scores are below.
FORBIDDEN = -1e30
BARELY_ALLOWED = FORBIDDEN / 2
# Labelings that a piece holds. What it held before is one more atom, known by its statistics alone.
SLOTS = 20
# A rest of less weight has no meaningful statistics: it stays where it is.
_LEAST_REST = 1e-9


class Held(NamedTuple):
    """The distributions over labelings that the pieces of an example have.

    Attributes:
        parts: means of their statistics: marginals at places [P, S], of edges [E, S, S] and of final states [F, Q].
        atoms: labels of the places in the labelings that pieces hold, [P, slots].
        alphas: weights of these labelings, [C, slots]; what is missing to 1 is the weight of the rest.
    """

    parts: Parts
    atoms: Tensor
    alphas: Tensor


class Norms(NamedTuple):
    """The curvature of the dual along statistics of pieces: 1/ρ for marginals, and that of the weights for others."""

    per_message: float
    per_weight: float


@dataclass(frozen=True)
class Pieces:
    """The C pieces of an example. Each has nodes of its own, the places, so that together they are one graph.

    Given the nodes of the example, no piece depends on another. So one call of the oracle of this graph answers for all
    of them, and a step on each of them is one step on all.

    Attributes:
        structure: the graph of the places, as a batch of one, with potentials of zero.
        nodes: the node of the example at each place, [P].
        edges: the edges of the example that are edges of pieces, [E]; all factors are factors of pieces.
        owners: the piece of each place [P], of each edge [E] and of each factor [F].
        count: C.
        whole: whether there is one piece, of all edges and factors.
    """

    structure: FactorGraph
    nodes: Tensor
    edges: Tensor
    owners: tuple[Tensor, Tensor, Tensor]
    count: int
    whole: bool

    @classmethod
    def of(
        cls, structure: FactorGraph, edges: Tensor, automata: Sequence[tuple[Tensor, Tensor]], by: Decomposition
    ) -> "Pieces | None":
        """The pieces of an example without padding; ``None`` if it has none.

        Args:
            structure: of the example.
            edges: [E, 2].
            automata: scopes and transitions of its factors.
            by: which pieces.
        """
        groups = _groups(edges.tolist(), len(automata), by)
        if not groups:
            return None
        states, final = structure.unary.shape[-1], 1 if structure.factors is None else structure.factors.shape[-1]
        scopes = [scope.tolist() for scope, _ in automata]
        nodes: list[int] = []
        ends: list[list[int]] = []
        factors: list[Automaton] = []
        owners: tuple[list[int], list[int], list[int]] = ([], [], [])
        for piece, group in enumerate(groups):
            piece_nodes = [*edges[group.edges].flatten().tolist(), *(v for f in group.factors for v in scopes[f])]
            place = {v: len(nodes) + k for k, v in enumerate(sorted(set(piece_nodes)))}
            nodes += place
            ends += [[place[v] for v in edges[c].tolist()] for c in group.edges]
            for f in group.factors:
                scope, transitions = torch.tensor([place[v] for v in scopes[f]]), automata[f][1][: len(scopes[f])]
                transitions = transitions if len(transitions) > 1 else transitions[0]
                factors.append(Automaton(scope, transitions, torch.zeros(final, dtype=torch.float64)))
            for owner, members in zip(owners, (place, group.edges, group.factors), strict=True):
                owner += [piece] * len(members)
        graph = FactorGraph(
            torch.zeros(1, len(nodes), states, dtype=torch.float64),
            torch.tensor(ends, dtype=torch.int64).view(-1, 2),
            torch.zeros(1, len(ends), states, states, dtype=torch.float64),
            factors=factors,
            max_table=structure.max_table,
            max_sets=structure.max_sets,
            validate_args=False,
        )
        of_places, of_edges, of_factors = (torch.tensor(owner, dtype=torch.int64) for owner in owners)
        piece_edges = torch.tensor([c for group in groups for c in group.edges], dtype=torch.int64)
        owned = (of_places, of_edges, of_factors)
        return cls(graph, torch.tensor(nodes), piece_edges, owned, len(groups), by == "whole")

    def of_example(self, parts: Parts) -> Parts:
        """Parts of places [P, S], edges and perhaps factors of the example as those of the pieces."""
        nodes, edges, *finals = parts
        return (nodes, edges[self.edges], *(finals or [edges.new_zeros(0, 1)]))

    def best(self, scores: Parts) -> Tensor:
        """The best labels of all pieces, [P], under scores in the shapes of parts."""
        with torch.no_grad():
            allowed = (torch.where(p > BARELY_ALLOWED, p, -torch.inf) for p in scores)
            return self._structure(allowed).max()[1][0]

    def gibbs(self, scores: Parts, level: float) -> tuple[float, Parts]:
        """The sum of the maxima of all pieces, smoothed by the entropy, and the marginals that attain them."""
        allowed = (torch.where(p > BARELY_ALLOWED, p, -torch.inf) for p in scores)
        answer = respond(self._structure(allowed), Entropy(level))
        parts = tuple(part[0] for part in answer.statistics)
        return float(answer.value), parts if len(parts) == 3 else (*parts, parts[0].new_zeros(0, 1))

    def parts(self, labels: Tensor) -> Parts:
        """Statistics of labels [P] of the places."""
        return tuple(part[0] for part in self.many(labels[None]))

    def many(self, labels: Tensor) -> Parts:
        """Statistics of several labels [K, P] of the places, with K as their first dimension."""
        parts = self.structure[torch.zeros(len(labels), dtype=torch.int64)].parts(labels)
        return parts if len(parts) == 3 else (*parts, parts[0].new_zeros(len(labels), 0, 1))

    def sums(self, a: Parts, b: Parts) -> Tensor:
        """⟨a, b⟩ of each piece, [C]."""
        total = torch.zeros(self.count, dtype=torch.float64)
        for owner, p, q in zip(self.owners, a, b, strict=True):
            total.index_add_(0, owner, (p * q).flatten(1).sum(1))
        return total

    def independent(self, nodes: Tensor) -> Tensor:
        """Marginals of final states [F, Q] if the labels of places are independent, with marginals along [P, S]."""
        zeros = self.structure.potentials[1:]
        with torch.no_grad():
            return self.structure.replace(nodes.log()[None], *zeros).marginals()[2][0]

    def constrains(self, costs: Parts) -> Tensor:
        """Which pieces have constraints that independent labels may break, bool [C]: factors that forbid, and all.

        Args:
            costs: what labels, pairs and final states of the example cost or forbid.
        """
        found = torch.full((self.count,), self.whole)
        if len(costs) == 3:
            forbids = (costs[2] <= BARELY_ALLOWED).any(1)
            found[self.owners[2][forbids]] = True
        return found

    def step(self, held: Held, scores: Parts, labels: Tensor, norms: Norms, steps: str) -> Held:
        """A step on each piece: towards its best labeling, from its mean or from the worst labeling that it holds.

        Args:
            held: before the step.
            scores: θ̂ of the pieces, in the shapes of parts.
            labels: the best under them, [P].
            norms: curvature along the statistics.
            steps: ``"fw"`` or ``"pairwise"``.
        """
        best = self.parts(labels)
        away, slot, longest = held.parts, None, torch.ones(self.count, dtype=torch.float64)
        if steps == "pairwise":
            away, slot, longest = self._worst(held, scores)
        change = minus(best, away)
        gain, (places, *others) = self.sums(scores, change), change
        zero = torch.zeros_like(places)
        curvature = norms.per_message * self.sums((places, *map(torch.zeros_like, others)), change)
        curvature += norms.per_weight * self.sums((zero, *others), change)
        sizes = torch.where(gain >= longest * curvature, longest, gain / curvature)
        sizes = torch.where(gain > 0, sizes, 0.0)
        parts = tuple(
            (m + sizes[owner].view(-1, *[1] * (d.dim() - 1)) * d).clamp_min(0.0)  # up to rounding
            for owner, m, d in zip(self.owners, held.parts, change, strict=True)
        )
        if slot is None:
            return Held(parts, held.atoms, held.alphas * (1 - sizes[:, None]))
        return Held(parts, *self._reweighted(held, slot, longest, labels, sizes))

    def mixed(self, before: Held, after: Held, size: float) -> Held:
        """(1 − size) · before + size · after, where ``after`` is a few steps from ``before``.

        A labeling that has lost its slot leaves its weight to the rest.
        """
        kept = torch.where(self._same(before.atoms, after.atoms), before.alphas * (1 - size), 0.0)
        parts = tuple((a + size * (b - a)).clamp_min(0.0) for a, b in zip(before.parts, after.parts, strict=True))
        return Held(parts, after.atoms, kept + size * after.alphas)

    def _reweighted(
        self, held: Held, slot: Tensor, longest: Tensor, labels: Tensor, sizes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Atoms and weights after steps of some sizes [C] from the atoms in slots [C] to those of labels [P]."""
        atoms, alphas = held.atoms.clone(), held.alphas.clone()
        moved, pieces, count = sizes > 0, torch.arange(self.count), alphas.shape[1]
        known = moved & (slot < count)
        left = torch.where(sizes == longest, 0.0, (alphas[pieces, slot.clamp_max(count - 1)] - sizes).clamp_min(0.0))
        alphas[pieces[known], slot[known]] = left[known]
        same = self._same(atoms, labels[:, None].to(atoms)) & (alphas > 0)
        chosen = torch.where(same.any(1), same.long().argmax(1), alphas.argmin(1))
        new = moved & ~same.any(1)
        alphas[pieces[new], chosen[new]] = 0.0  # what is evicted becomes part of the rest
        alphas[pieces[moved], chosen[moved]] += sizes[moved]
        where = moved[self.owners[0]].nonzero()[:, 0]
        atoms[where, chosen[self.owners[0]][where]] = labels[where].to(atoms)
        return atoms, alphas

    def _worst(self, held: Held, scores: Parts) -> tuple[Parts, Tensor, Tensor]:
        """The worst labeling that each piece holds: statistics, and slots and weights [C]; the rest is one."""
        alphas, (count, slots) = held.alphas, held.alphas.shape
        atoms = self.many(held.atoms.T.long())
        by_slot = torch.stack([self.sums(scores, tuple(part[k] for part in atoms)) for k in range(slots)], 1)
        rest = 1 - alphas.sum(1)
        of_rest = (self.sums(scores, held.parts) - (alphas * by_slot).sum(1)) / rest
        active = torch.where(alphas > 0, by_slot, torch.inf)
        ranked = torch.cat([active, torch.where(rest > _LEAST_REST, of_rest, torch.inf)[:, None]], 1)
        slot = ranked.argmin(1)
        weights = torch.cat([alphas, rest[:, None]], 1)[torch.arange(count), slot]
        found = []
        for owner, m, part in zip(self.owners, held.parts, atoms, strict=True):
            shape = (-1, *[1] * (m.dim() - 1))
            at = slot[owner]
            held_mean = torch.einsum("ak,ka...->a...", alphas[owner], part)
            others = (m - held_mean) / rest[owner].clamp_min(_LEAST_REST).view(shape)
            chosen = part[at.clamp_max(slots - 1), torch.arange(len(m))]
            found.append(torch.where((at == slots).view(shape), others, chosen))
        return tuple(found), slot, weights

    def _same(self, a: Tensor, b: Tensor) -> Tensor:
        """In which slots each piece has the same labeling, bool [C, slots], of atoms [P, slots] and [P, slots or 1]."""
        unequal = torch.zeros(self.count, a.shape[1], dtype=torch.int64)
        return unequal.index_add_(0, self.owners[0], (a != b).long()) == 0

    def _structure(self, potentials: Iterable[Tensor]) -> FactorGraph:
        return self.structure.replace(*(p[None] for p in list(potentials)[: len(self.structure.potentials)]))


class _Group(NamedTuple):
    """Edges and factors of a piece."""

    edges: list[int]
    factors: list[int]


def _groups(edges: list[list[int]], factors: int, by: Decomposition) -> list[_Group]:
    """The pieces of an example that are no single edges."""
    if by == "whole":
        return [_Group(list(range(len(edges))), list(range(factors)))] if edges or factors else []
    alone = [_Group([], [f]) for f in range(factors)]
    return ([_Group(forest, []) for forest in _forests(edges)] if by == "forests" else []) + alone


def _forests(edges: list[list[int]]) -> list[list[int]]:
    """Splits edges into forests: each edge is in the first forest where it closes no cycle."""
    forests: list[list[int]] = []
    parents: list[dict[int, int]] = []  # in a tree of each component of each forest
    for c, (a, b) in enumerate(edges):
        apart = (k for k, tree in enumerate(parents) if _root(tree, a) != _root(tree, b))
        k = next(apart, len(forests))
        if k == len(forests):
            forests.append([])
            parents.append({})
        forests[k].append(c)
        parents[k][_root(parents[k], a)] = _root(parents[k], b)
    return forests


def _root(parents: dict[int, int], node: int) -> int:
    while node in parents:
        node = parents[node]
    return node
