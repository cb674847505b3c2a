"""The constants of the guarantees for soft agreement: how far from the hard problem, and after how many steps."""

from dataclasses import dataclass

import torch

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
        problem: a :class:`~structsmooth.FactorGraphProblem`.
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
        >>> from structsmooth import FactorGraphProblem, FactorGraphs
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
    dual = soft_dual("soft_constants", problem, lam)
    own, n = dual.problem, dual.problem.n
    curvature, blocks, radius, largest, zero_loss = 0.0, 0, 0.0, 0.0, 0.0
    counts: list[int] = []
    for i in range(n):
        node_norms, edge_norms = _squared_norms(own, i)
        nodes, edges = len(node_norms), len(edge_norms)
        # Each edge constrains itself twice, and both of its nodes once.
        curvature += 4 * float(node_norms.sum() + edge_norms.sum()) / (lam * n**2) + 2 * 4 * edges / (rho * n)
        radius = max([radius, *node_norms.tolist(), *edge_norms.tolist()])
        costs, labels = own.costs(i)[0], own.graphs.labels[own.graphs.nodes_of(i)]
        costs = costs - costs.gather(1, labels[:, None])
        largest = max(largest, float(costs.abs().max()))
        zero_loss += float(costs.amax(1).sum()) / n
        counts.append(nodes + edges)
        blocks += nodes + edges
    scores = 2 * (2 * zero_loss / lam) ** 0.5 * radius**0.5 + largest
    mean = sum((4 * own.states * q * scores) ** 2 for q in counts) / n
    return SoftConstants(curvature, mean, blocks, rho)


def _squared_norms(problem: FactorGraphProblem, i: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest squared norm of the features of the states of each node [N] and of the pairs of each edge [E]."""
    nodes, edges = problem.costs(i)
    found = (nodes.new_zeros(len(nodes)), nodes.new_zeros(len(edges)))
    for kind, parts in enumerate((nodes, edges)):
        for index in torch.cartesian_prod(*map(torch.arange, parts.shape)).tolist() if len(parts) else []:
            unit = [torch.zeros_like(nodes), torch.zeros_like(edges)]
            unit[kind][tuple(index)] = 1.0
            square = problem.feature_map.squared_norm((unit[0], unit[1]), i)
            found[kind][index[0]] = max(float(found[kind][index[0]]), square)
    return found
