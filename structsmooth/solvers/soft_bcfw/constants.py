"""The constants of the guarantees for soft agreement: how far from the hard problem, and after how many steps."""

from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.problems.linear.factor_graph import FactorGraphProblem
from structsmooth.settings import check_number
from structsmooth.solvers.checks import parse_lam
from structsmooth.solvers.soft_bcfw.dual import soft_dual


@dataclass(frozen=True)
class SoftConstants:
    """What Theorems 4.1 and 5.1 of Meshi et al. (2015) say of a problem, a λ and a ρ, which is for each example here.

    The bounds hold for every problem, and are loose.

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
        """A bound on the expected f*_ρ − f_ρ after Frank-Wolfe steps on blocks drawn at random (Theorem 5.1).

        Args:
            steps: t ≥ 0.
            at_start: f*_ρ − f_ρ of the start, or an upper bound on it, such as the duality gap there.
        """
        return 2 * self.blocks / (steps + 2 * self.blocks) * (self.curvature + at_start)

    def gap(self, steps: int, at_start: float) -> float:
        """A bound on the least expected duality gap of the first so many steps; as :meth:`suboptimality`."""
        return 6 * self.blocks / (steps + 1) * (self.curvature + at_start)


def soft_constants(problem: Problem, lam: float | str, rho: float) -> SoftConstants:
    """The constants of the guarantees of ``SoftBCFW(rho=rho, penalty="constant", steps="fw", order="uniform")``.

    A block a of an example has curvature 4R_a²/(λn²) + 2N_a/(ρn) at most, where R_a is the largest norm of the features
    of its states and N_a the number of constraints on it: one for each edge of a node, and two for an edge. The
    messages have ‖δ‖ ≤ 4Sq(2BR + L), where there are S states and q nodes and edges, L is the largest cost, and
    B² = 2g(0)/λ bounds the norm of the best weights.

    Args:
        problem: a :class:`~structsmooth.problems.FactorGraphProblem`.
        lam: λ > 0, a number or text such as ``"1/n"``.
        rho: ρ > 0 of each example: n times the ρ of the paper.

    Raises:
        TypeError: another kind of problem.
        ValueError: λ or ρ is not positive.

    Reference:
        Meshi, Srebro and Hazan (2015), Theorems 4.1 and 5.1, appendices B and E. Their bound on the curvature of nodes
        counts one constraint where there is one for each edge.

    Example:
        >>> import torch
        >>> from structsmooth.problems import FactorGraphProblem, FactorGraphs
        >>> x = torch.eye(3)
        >>> one = torch.tensor([0, 3])
        >>> graphs = FactorGraphs(x, torch.tensor([0, 1, 1]), one, torch.tensor([[0, 1], [1, 2], [0, 2]]), one)
        >>> constants = soft_constants(FactorGraphProblem(graphs, states=2), lam=0.5, rho=1.0)
        >>> constants.blocks
        6
        >>> constants.suboptimality(1000, at_start=1.0) < constants.suboptimality(10, at_start=1.0)
        True
    """
    lam, rho = parse_lam(lam, problem.total_weight), check_number("rho", rho)
    if rho == 0:
        raise ValueError("rho must be positive, got 0")
    graph_problem = soft_dual("soft_constants", problem, lam).problem
    graphs, n = graph_problem.graphs, graph_problem.n
    costs = graph_problem.feature_map.constants  # less those of the labels
    nodes, edges = _squared_norms(graph_problem)
    blocks = graphs.node_offsets.diff() + graphs.link_offsets.diff()
    # Each edge constrains itself twice, and both of its nodes once.
    curvature = 4 * float(nodes.sum() + edges.sum()) / (lam * n**2) + 2 * 4 * len(edges) / (rho * n)
    radius, zero_loss = float(torch.cat([nodes, edges]).max()) ** 0.5, float(costs.amax(1).sum()) / n
    scores = 2 * (2 * zero_loss / lam) ** 0.5 * radius + float(costs.abs().max())
    agreement = float((4 * graph_problem.states * scores * blocks.double()).square().mean())
    return SoftConstants(curvature, agreement, int(blocks.sum()), rho)


def _squared_norms(problem: FactorGraphProblem) -> tuple[Tensor, Tensor]:
    """The largest squared norm of the features of the states of each node, and of the pairs of each edge."""
    graphs, x = problem.graphs, problem.feature_map.features
    return x.square().sum(1)[graphs.rows], graphs.edge_features.square().sum(1)[graphs.links.edges]
