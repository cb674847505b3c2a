"""The local polytope of a factor graph as an output space, so that losses and solvers work on the relaxation."""

from typing import ClassVar

import torch
from torch import Tensor

from structsmooth.structures.base import check_k
from structsmooth.structures.factor_graph.graph import FactorGraph
from structsmooth.structures.factor_graph.messages import Messages, with_penalties
from structsmooth.structures.factor_graph.relaxation import RelaxationMethod
from structsmooth.structures.factor_graph.roof_duality import optimum

# Sweeps between two looks at how far message passing has come.
_ROUND = 10
# Largest difference between the distributions of nodes and edges at which they count as equal.
_AGREEMENT = 1e-9


class LocalPolytope(FactorGraph):
    """The relaxation of a :class:`FactorGraph` as an output space: its oracles answer with fractional statistics.

    So losses, smoothers, problems and solvers train on the relaxation of graphs whose exact oracles are too slow:

    * ``max`` has the value and, as its gradient, the distributions of :meth:`FactorGraph.relaxed`. The labels that come
      with them are rounded, and may score less.
    * ``logsumexp`` is the least smoothed dual, min over messages of Σ_i log Σ exp θ̂_i + Σ_e log Σ exp θ̂_e, an upper
      bound on the log-partition function. ``marginals`` are its gradient, a point of the local polytope. With
      ``Entropy(mu)`` it is a smooth hinge for deep models on any graph. It can be differentiated once.

    There are no K best points, hence no ``L2`` smoothing.

    Args:
        graph: the factor graph; potentials and masks are shared with it.
        method: as for :meth:`FactorGraph.relaxed`.
        tolerance: as for :meth:`FactorGraph.relaxed`.
        max_sweeps: as for :meth:`FactorGraph.relaxed`, and for message passing at a temperature.

    Reference:
        Meshi, Srebro and Hazan (2015), Eqs. (2) to (4); Meshi, Jaakkola and Globerson (2012); Hazan and Urtasun (2010).

    Example:
        >>> from structsmooth import Entropy, FactorGraph, StructuralHinge
        >>> unary = torch.tensor([[[0.0, 0.5], [0.0, 0.2], [0.0, 0.1]]], requires_grad=True)
        >>> graph = FactorGraph(unary, torch.tensor([[0, 1], [1, 2], [2, 0]]), -torch.eye(2))
        >>> StructuralHinge(Entropy(0.1))(LocalPolytope(graph), torch.tensor([[1, 0, 1]])).backward()
        >>> unary.grad.sum(-1).abs().amax() < 1e-6  # distributions minus labels
        tensor(True)
    """

    is_fractional: ClassVar[bool] = True

    def __init__(
        self,
        graph: FactorGraph,
        *,
        method: RelaxationMethod = "auto",
        tolerance: float = 1e-6,
        max_sweeps: int = 500,
    ) -> None:
        vars(self).update(vars(graph))  # which is checked
        self.method: RelaxationMethod = method
        self.tolerance, self.max_sweeps = tolerance, max_sweeps

    def max(self) -> tuple[Tensor, Tensor]:
        """The optimum of the relaxation [B], whose gradient is its distributions, and rounded labels [B, N]."""
        if self._may_cut:
            unary, pairwise, layout = self._scores()
            if bool(unary.isfinite().all()) and bool(pairwise.isfinite().all()):
                # There is no need of messages, nor of better labels: a cut of each example is enough.
                node, edge = optimum(unary.detach(), pairwise.detach(), layout)
                value = (unary * node).sum((1, 2)) + (pairwise * edge).sum((1, 2, 3))
                return value.to(self._dtype), (node[..., 1] > node[..., 0]).long()
        relaxation = self.relaxed(self.method, tolerance=self.tolerance, max_sweeps=self.max_sweeps)
        return relaxation.value, relaxation.labels

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """As :meth:`max`, for k = 1.

        Raises:
            NotImplementedError: k > 1.
        """
        if check_k(k) > 1:
            raise NotImplementedError("LocalPolytope has no K best points: take Max() or Entropy(mu), not L2")
        value, labels = self.max()
        return value.unsqueeze(1), labels.unsqueeze(1)

    def logsumexp(self) -> Tensor:
        """The least smoothed dual, [B]; differentiable once."""
        unary, pairwise, layout = self._scores()
        finite, least = with_penalties(unary, pairwise, layout)
        one = torch.ones(len(unary), dtype=torch.float64, device=unary.device)
        value = finite.dual(self._messages(finite, one), one)
        return torch.where(value > least, value, -torch.inf).to(self._dtype)

    def marginals(self) -> tuple[Tensor, ...]:
        """Distributions of the parts at the least smoothed dual; not differentiable."""
        finite, least = with_penalties(*self.detach()._scores())
        one = torch.ones_like(finite.unary[:, 0, 0])
        deltas = self._messages(finite, one)
        feasible = finite.dual(deltas, one) > least
        node, edge = finite.softmax(deltas, one)
        node = torch.where(feasible[:, None, None], node, 0.0)
        edge = torch.where(feasible[:, None, None, None], edge, 0.0)
        return self._contracted(node.to(self._dtype), edge.to(self._dtype))

    def max_marginals(self) -> Tensor:
        """Not known."""
        raise self._no_oracle("max_marginals")

    def inverse_cdf(self, uniform: Tensor) -> Tensor:
        """Not known."""
        raise self._no_oracle("sample")

    @property
    def _may_cut(self) -> bool:
        """Whether the relaxation is a minimum cut, on the CPU."""
        binary = self.unary.shape[-1] == 2 and self.factors is None and self.unary.device.type == "cpu"
        return binary and self.method in ("auto", "cut")

    def _messages(self, problem: Messages, tau: Tensor) -> Tensor:
        """The messages of the least dual at temperatures ``tau``."""
        with torch.no_grad():
            deltas = problem.zero()
            for _ in range(0, self.max_sweeps, _ROUND):
                deltas = problem.sweep(deltas, tau, _ROUND)
                if bool(problem.disagreement(problem.softmax(deltas, tau)) <= _AGREEMENT):
                    break
        return deltas
