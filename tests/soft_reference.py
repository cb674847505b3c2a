"""Block-coordinate Frank-Wolfe on the soft dual in plain torch: Algorithm 1 of Meshi et al. (2015).

The compiled steps of ``SoftDual`` are the same.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from structsmooth.problems.bounds import step_length
from structsmooth.solvers.soft_bcfw.dual import LEAST_WEIGHT, SoftDual, SoftSteps
from structsmooth.solvers.soft_bcfw.point import SoftPoint, short_form


@dataclass(frozen=True)
class Block:
    """The simplex of a node or an edge: what the dual sees of a vector μ of marginals are statistics Lμ.

    Attributes:
        potentials: θ̂, the gradient of n·f_ρ in the statistics, [size].
        norms: the curvature of n·f_ρ along each statistic, [size].
        statistics: L, [size, K].
        corners: the vertices of the simplex, as marginals, [corners, K].
        own: μ, [K].
        room: how far a step can go away from each corner; zero if μ does not hold it, [corners].
    """

    potentials: Tensor
    norms: Tensor
    statistics: Tensor
    corners: Tensor
    own: Tensor
    room: Tensor

    def step(self, steps: SoftSteps) -> Tensor:
        """The change of μ, [K]: towards the best corner, from μ itself or from the worst corner that it holds."""
        scores = self.corners @ self.statistics.T @ self.potentials
        towards, away, longest = self.corners[scores.argmax()], self.own, 1.0
        if steps == "pairwise":
            worst = int(scores.masked_fill(self.room <= LEAST_WEIGHT, torch.inf).argmin())
            away, longest = self.corners[worst], float(self.room[worst])
        change = self.statistics @ (towards - away)
        gain, curvature = float(self.potentials @ change), float(self.norms @ change.square())
        return step_length(gain, curvature, longest) * (towards - away)  # line search, lines 7 and 12


def deltas(point: SoftPoint, ends: Tensor, rho: float) -> Tensor:
    """δ_ci of all states, for links with these ends [links, 2]: [links, 2, S]."""
    own = point.with_multipliers(ends.flatten(), rho).multipliers
    return torch.cat([-own, own], 2) if point.binary else own


@dataclass(frozen=True)
class ReferenceSteps:
    """Steps on the blocks of a soft dual, for ρ and a kind of steps."""

    dual: SoftDual
    rho: float
    steps: SoftSteps = "fw"

    def sweep(self, point: SoftPoint, order: Tensor) -> SoftPoint:
        """Steps on the blocks of an order: nodes of all examples, then edges."""
        point = SoftPoint(*(tensor.clone() for tensor in vars(point).values()))
        nodes = len(point.nodes)
        for block in order.tolist():
            if block < nodes:
                change = self.node(point, block).step(self.steps)
                point.nodes[block] += change
            else:
                change = self.edge(point, block - nodes).step(self.steps)
                change = short_form(change[None])[0] if point.binary else change
                point.edges[block - nodes] += change.view_as(point.edges[0])
            point = replace(point, weights=self.dual.weights(point))  # line 15: w = Ψμ, and δ is computed as needed
        return point

    def node(self, point: SoftPoint, i: int) -> Block:
        """A node: θ̂_i = θ_i + Σ_c δ_ci (line 5)."""
        graphs, scores = self.dual.problem.graphs, self.dual.problem.feature_map
        x = scores.features[graphs.rows[i]]
        unary, _ = scores.views(point.weights)
        theta = scores.constants[i].clone()
        theta[scores.first :] += unary[graphs.types[i]] @ x
        own_ends = graphs.ends == i
        theta += self._delta(point)[own_ends].sum(0)
        norms = torch.full_like(theta, float(own_ends.sum()) / self.rho)
        norms[scores.first :] += x @ x / self._scale
        states = torch.eye(scores.states, dtype=torch.float64)
        return Block(theta, norms, states, states, point.nodes[i], point.nodes[i])

    def edge(self, point: SoftPoint, c: int) -> Block:
        """An edge: θ̂_c = θ_c − Σ_i δ_ci (line 9), in the statistics μ_ca, μ_cb and those of its parts."""
        graphs, scores = self.dual.problem.graphs, self.dual.problem.feature_map
        _, pairwise = scores.views(point.weights)
        edge = graphs.links.edges[c]
        f, own = graphs.edge_features[edge], (point.potts_form if point.potts else point.edges)[c].flatten()
        parts = f @ pairwise[graphs.edge_types[edge]]
        potentials = torch.cat([-self._delta(point)[c].flatten(), parts])
        norms = torch.full_like(potentials, 1 / self.rho)
        norms[-len(parts) :] = f @ f / self._scale
        corners, statistics = self._table if not scores.potts else self._agreement
        return Block(potentials, norms, statistics, corners, own, own if not scores.potts else self._room(own))

    def _delta(self, point: SoftPoint) -> Tensor:
        """δ_ci = δ̄_ci + (μ_ci − μ_i)/ρ of all edges: [E, 2, S]."""
        return deltas(point, self.dual.problem.graphs.ends, self.rho)

    def _room(self, own: Tensor) -> Tensor:
        """How far a step can go away from each pair of states.

        What is off the diagonal has marginals r_a and r_b of equal sums, which are those of a table if r_a(t) + r_b(t)
        is at most that sum for every t.
        """
        diagonal, a, b = own.split(self.dual.problem.states)
        room = torch.minimum(a[:, None], b)
        for s, r in (room > LEAST_WEIGHT).nonzero().tolist():
            beside = torch.ones_like(a).index_fill_(0, torch.tensor([s, r]), 0.0)
            room[s, r] = torch.minimum(room[s, r], a.sum() - (beside * (a + b)).max())
        return room.diagonal_scatter(diagonal).flatten()

    @property
    def _scale(self) -> float:
        return self.dual.lam * self.dual.problem.n

    @cached_property
    def _table(self) -> tuple[Tensor, Tensor]:
        """Corners and statistics of edges with tables."""
        scores = self.dual.problem.feature_map
        corners = torch.eye(scores.states**2, dtype=torch.float64)
        pairs = corners.view(-1, scores.states, scores.states)
        parts = pairs[:, scores.first :, scores.first :].flatten(1)
        return corners, torch.cat([pairs.sum(2), pairs.sum(1), parts], 1).T

    @cached_property
    def _agreement(self) -> tuple[Tensor, Tensor]:
        """Corners and statistics of edges with Potts scores."""
        scores = self.dual.problem.feature_map
        one, zero = torch.eye(scores.states, dtype=torch.float64), torch.zeros(scores.states, scores.states).double()
        both = [(s, r) for s in range(scores.states) for r in range(scores.states)]
        corners = [torch.cat([one[s], zero[s], zero[s]] if s == r else [zero[s], one[s], one[r]]) for s, r in both]
        agree = (torch.arange(scores.states) >= scores.first).double()
        rows = [torch.cat([one, one, zero], 1), torch.cat([one, zero, one], 1)]
        return torch.stack(corners), torch.cat([*rows, torch.cat([agree, 0 * agree, 0 * agree])[None]])
