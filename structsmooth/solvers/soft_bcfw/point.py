"""Marginals of nodes and edges that need not agree, and the nearest ones that do."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from structsmooth.problems.linear.factor_graph.data import FactorGraphs
from structsmooth.solvers.state import empty
from structsmooth.structures.factor_graph.rounding import with_marginals

_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class SoftPoint:
    """A point of the soft dual: marginals of nodes and of edges, which need not agree.

    Attributes:
        weights: w = Ψμ = −(1/(λn)) Σ Bᵀ(μ − ν(y)), [dim].
        nodes: μ_i of all nodes, [nodes, S].
        edges: μ_c of all links, which are the edges of all examples, as far as scores need it: tables [links, S, S];
            for Potts scores [links, 3S], the diagonal of the table and the marginals of what is off the diagonal
            (appendix D); for Potts scores of two states [links, 3], the entries (1, 1), (0, 1) and (1, 0).
        multipliers: δ̄_ci of the two ends of all links, [links, 2, S]; for Potts scores of two states [links, 2, 1],
            that of state 1, and minus that of state 0. With pieces, those of both ends of the edges that are alone and
            of all places, [rows, S].
        places: μ_ci of pieces, the blocks of several nodes, at each of their nodes, [places, S].
        finals: marginals of the final states of factors, [factors, Q].
        atoms: labels of the places in the labelings that pieces hold, int32 [places, slots].
        alphas: weights of these labelings, [pieces, slots].
        entropies: lower bounds on the entropies of the pieces of each example, [n], if maxima are smoothed.
    """

    weights: Tensor
    nodes: Tensor
    edges: Tensor
    multipliers: Tensor
    places: Tensor = field(default_factory=empty)
    finals: Tensor = field(default_factory=empty)
    atoms: Tensor = field(default_factory=empty)
    alphas: Tensor = field(default_factory=empty)
    entropies: Tensor = field(default_factory=empty)

    @classmethod
    def of_labels(
        cls, graphs: FactorGraphs, states: int, weights: Tensor, *, potts: bool = False, binary: bool = False
    ) -> "SoftPoint":
        """The marginals of the labels, with zero weights and multipliers."""
        nodes, count = one_hot(graphs.labels, states).double(), int(graphs.link_offsets[-1])
        shape = (3 * states,) if potts else (states, states)
        edges = torch.zeros(count, *((3,) if binary else shape), dtype=torch.float64)
        for links in graphs.chunks():
            a, b = nodes[links.ends].unbind(1)
            table = torch.cat([a * b, a * (1 - b), b * (1 - a)], 1) if potts else torch.einsum("es,er->esr", a, b)
            edges[links.span] = short_form(table) if binary else table
        return cls(weights, nodes, edges, torch.zeros(count, 2, 1 if binary else states, dtype=torch.float64))

    def copy(self) -> "SoftPoint":
        """A copy with contiguous tensors, which steps can change in place."""
        copies = (tensor.clone(memory_format=torch.contiguous_format) for tensor in vars(self).values())
        return SoftPoint(*copies)

    @property
    def potts(self) -> bool:
        """Whether edges are kept as Potts scores need them."""
        return self.edges.dim() == 2

    @property
    def binary(self) -> bool:
        """Whether edges are kept as Potts scores of two states need them."""
        return self.potts and (self.nodes.shape[1], self.edges.shape[1]) == (2, 3)

    @property
    def potts_form(self) -> Tensor:
        """Marginals of links under Potts scores, however many states: [links, 3S]."""
        if not self.binary:
            return self.edges
        both, second, first = self.edges.unbind(1)
        return torch.stack([1 - both - second - first, both, second, first, first, second], 1)

    def ends(self) -> Tensor:
        """Marginals μ_ci of the two ends of all links: [links, 2, S]."""
        if self.potts:
            diagonal, a, b = self.potts_form.tensor_split(3, 1)
            return torch.stack([diagonal + a, diagonal + b], 1)
        return torch.stack([self.edges.sum(2), self.edges.sum(1)], 1)

    def violations(self, seats: Tensor) -> Tensor:
        """μ_ci − μ_i for all rows of messages, whose nodes are given: [rows, S].

        The first rows are the ends of edges, as many as there are no places for.
        """
        rows = self.ends().flatten(0, 1)[: len(seats) - len(self.places)]
        return (torch.cat([rows, self.places]) if len(self.places) else rows) - self.nodes[seats]

    def with_multipliers(self, seats: Tensor, rho: float) -> "SoftPoint":
        """The point with δ in place of δ̄, for messages of these nodes [rows]."""
        change = self.violations(seats).unflatten(0, self.multipliers.shape[:-1])
        states = self.multipliers.shape[-1]  # the last states
        return replace(self, multipliers=self.multipliers + change[..., -states:] / rho)

    def agreeing(self, graphs: FactorGraphs, first: int) -> "SoftPoint":
        """Marginals in the local polytope near these; weights and multipliers stay as they are.

        A node gets the mean of its own marginals and those of its edges. States before ``first`` have no weights.
        """
        votes: Tensor = self.nodes.index_add(0, graphs.ends.flatten(), self.ends().flatten(0, 1))
        nodes = votes / (1 + graphs.degrees)[:, None]
        a, b = nodes[graphs.ends].unbind(1)
        if not self.potts:
            return replace(self, nodes=nodes, edges=with_marginals(self.edges, a, b))
        edges = _near_potts(self.potts_form, a, b, first)
        return replace(self, nodes=nodes, edges=short_form(edges) if self.binary else edges)


def short_form(edges: Tensor) -> Tensor:
    """The entries (1, 1), (0, 1) and (1, 0) [links, 3] of Potts marginals of two states [links, 6]."""
    return edges[:, 1:4]


def extreme_diagonals(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the most that tables with these sums of rows and columns [..., S] have on their diagonals.

    In between, any mixture of these two diagonals leaves room for the rest of a table.
    """
    return (a + b - 1).clamp_min(0), torch.minimum(a, b)


def _near_potts(edges: Tensor, a: Tensor, b: Tensor, first: int) -> Tensor:
    """Potts statistics with marginals a and b, and the agreement of weighted states nearest to what it was."""
    lowest, highest = extreme_diagonals(a, b)
    now, least, most = (d[:, first : a.shape[1]].sum(1, keepdim=True) for d in (edges, lowest, highest))
    part = ((now - least) / (most - least).clamp_min(_TINY)).clamp(0, 1)
    diagonal = torch.lerp(lowest, highest, part)
    return torch.cat([diagonal, a - diagonal, b - diagonal], 1)
