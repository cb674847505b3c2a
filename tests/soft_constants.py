"""What Theorems 4.1 and 5.1 of Meshi et al. (2015) say of a problem, a λ and a ρ, which is for each example here.

The bounds hold for every problem, and are loose. Those on steps are of ``SoftBCFW(rho=rho, penalty="constant",
steps="fw", order="uniform")``.
"""

from dataclasses import dataclass

import torch

from structsmooth.problems import FactorGraphProblem


@dataclass(frozen=True)
class SoftConstants:
    """The constants of a problem.

    Attributes:
        curvature: C_f ≥ the curvature of the soft dual f_ρ, summed over its blocks.
        agreement: h ≥ (1/n) Σ ‖δ_m‖² for some optimal messages δ of the hard problem.
        blocks: number of nodes and edges of all examples.
        rho: ρ.
    """

    curvature: float
    agreement: float
    blocks: int
    rho: float

    @property
    def relaxation(self) -> float:
        """(ρ/2) h: the least soft objective is above that of the local polytope by no more (Theorem 4.1)."""
        return self.rho / 2 * self.agreement

    def suboptimality(self, steps: int, at_start: float) -> float:
        """A bound on the expected f*_ρ − f_ρ after Frank-Wolfe steps on blocks drawn at random (Theorem 5.1)."""
        return 2 * self.blocks / (steps + 2 * self.blocks) * (self.curvature + at_start)

    def gap(self, steps: int, at_start: float) -> float:
        """A bound on the least expected duality gap of the first so many steps."""
        return 6 * self.blocks / (steps + 1) * (self.curvature + at_start)


def soft_constants(problem: FactorGraphProblem, lam: float, rho: float) -> SoftConstants:
    """The constants, by appendices B and E; the paper's curvature of nodes counts one constraint for all edges.

    A block a of an example has curvature 4R_a²/(λn²) + 2N_a/(ρn) at most, where R_a is the largest norm of the features
    of its states and N_a the number of constraints on it: one for each edge of a node, and two for an edge. The
    messages have ‖δ‖ ≤ 4Sq(2BR + L), where there are S states and q nodes and edges, L is the largest cost, and
    B² = 2g(0)/λ bounds the norm of the best weights.
    """
    graphs, n, costs = problem.graphs, problem.n, problem.feature_map.constants  # less those of the labels
    nodes = problem.feature_map.features.square().sum(1)[graphs.rows]
    edges = graphs.edge_features.square().sum(1)[graphs.links.edges]
    blocks = graphs.node_offsets.diff() + graphs.link_offsets.diff()
    # Each edge constrains itself twice, and both of its nodes once.
    curvature = 4 * float(nodes.sum() + edges.sum()) / (lam * n**2) + 2 * 4 * len(edges) / (rho * n)
    radius, zero_loss = float(torch.cat([nodes, edges]).max()) ** 0.5, float(costs.amax(1).sum()) / n
    scores = 2 * (2 * zero_loss / lam) ** 0.5 * radius + float(costs.abs().max())
    agreement = float((4 * problem.states * scores * blocks.double()).square().mean())
    return SoftConstants(curvature, agreement, int(blocks.sum()), rho)
