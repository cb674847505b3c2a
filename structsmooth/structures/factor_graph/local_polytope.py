"""The local polytope of a factor graph as an output space, so that losses and solvers work on the relaxation."""

from typing import ClassVar, cast

from torch import Tensor

from structsmooth.structures.base import check_k
from structsmooth.structures.factor_graph import relaxed_operators
from structsmooth.structures.factor_graph.graph import FactorGraph
from structsmooth.structures.factor_graph.relaxation import RelaxationMethod


class LocalPolytope(FactorGraph):
    """The relaxation of a :class:`FactorGraph` as an output space: its oracles answer with fractional statistics.

    So losses, smoothers, problems and solvers train on the relaxation of graphs whose exact oracles are too slow:

    * ``max`` has the value and, as its gradient, the distributions of :meth:`FactorGraph.relaxed`. The labels that come
      with them are rounded, and may score less. Message passing stops below the optimum, and the bound of
      ``max_with_bound`` is above it: objectives of problems are sums of the bounds, and so are never too low.
    * ``logsumexp`` is the least smoothed dual, min over messages of Σ_i log Σ exp θ̂_i + Σ_e log Σ exp θ̂_e, an upper
      bound on the log-partition function. ``marginals`` are its gradient, a point of the local polytope. With
      ``Entropy(mu)`` it is a smooth hinge for deep models on any graph. It can be differentiated once. A bound is no
      likelihood: ``StructuralHinge.crf()``, ``log_prob``, ``entropy`` and the like raise ``NotImplementedError``.

    Losses are those of the relaxation. So ``StructuralHinge.softmax_margin()`` has this bound in place of the
    log-partition function, and is no less than the softmax-margin of the graph; ``perceptron()``, ``sparsemap()`` and
    ``perturbed()`` take maxima over the local polytope. There are no K best points, hence no ``L2`` smoothing.

    Args:
        graph: the factor graph; potentials and masks are shared with it.
        method: as for :meth:`FactorGraph.relaxed`.
        tolerance: as for :meth:`FactorGraph.relaxed`.
        max_sweeps: as for :meth:`FactorGraph.relaxed`, and for message passing at a temperature.

    Reference:
        Meshi, Srebro and Hazan (2015), Eqs. (2) to (4); Meshi, Jaakkola and Globerson (2012); Hazan and Urtasun (2010).

    Example:
        >>> import torch
        >>> from structsmooth import Entropy, FactorGraph, StructuralHinge
        >>> unary = torch.tensor([[[0.0, 0.5], [0.0, 0.2], [0.0, 0.1]]], requires_grad=True)
        >>> graph = FactorGraph(unary, torch.tensor([[0, 1], [1, 2], [2, 0]]), -torch.eye(2))
        >>> StructuralHinge(Entropy(0.1))(LocalPolytope(graph), torch.tensor([[1, 0, 1]])).backward()
        >>> unary.grad.sum(-1).abs().amax() < 1e-6  # distributions minus labels
        tensor(True)
    """

    is_fractional: ClassVar[bool] = True
    field_names = ("method", "tolerance", "max_sweeps")

    def __init__(
        self, graph: FactorGraph, *, method: RelaxationMethod = "auto", tolerance: float = 1e-6, max_sweeps: int = 500
    ) -> None:
        for name, value in graph.attributes().items():  # which are checked
            setattr(self, name, value)
        self.method: RelaxationMethod = method
        self.tolerance, self.max_sweeps = tolerance, max_sweeps

    def max(self) -> tuple[Tensor, Tensor]:
        """The optimum of the relaxation [B], whose gradient is its distributions, and rounded labels [B, N]."""
        value, _, labels, _, _ = self._largest()
        return value, labels[:, : self.unary.shape[1]]

    def max_with_bound(self) -> tuple[Tensor, Tensor]:
        """The value of the point that :meth:`max` found, and the bound of its messages: the ``dual`` of ``relaxed``."""
        value, bound, _, _, _ = self._largest()
        return value, bound.detach()

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
        value, _, _ = relaxed_operators.logsumexp(*self._expanded, int(self.max_sweeps))
        return value

    def marginals(self) -> tuple[Tensor, ...]:
        """Distributions of the parts at the least smoothed dual; not differentiable."""
        _, node, edge = relaxed_operators.logsumexp(*self._expanded, int(self.max_sweeps))
        return self._contracted(node, edge)

    def max_marginals(self) -> Tensor:
        """Raise ``NotImplementedError``: the relaxation has no such oracle."""
        raise self._no_oracle("max_marginals")

    def inverse_cdf(self, uniform: Tensor) -> Tensor:
        """Raise ``NotImplementedError``: the relaxation has no such oracle."""
        raise self._no_oracle("sample")

    def require_probabilities(self) -> None:
        """Raise ``NotImplementedError``: the smoothed dual is a bound, which gives no probabilities."""
        raise NotImplementedError(
            "LocalPolytope has no likelihood and no entropy: its logsumexp is an upper bound on the log-partition "
            "function. Take the FactorGraph itself, or a loss that is a bound: StructuralHinge(Entropy(mu)) with a cost"
        )

    def _largest(self) -> tuple[Tensor, ...]:
        settings = (self.method, float(self.tolerance), int(self.max_sweeps))
        return cast(tuple[Tensor, ...], relaxed_operators.largest(*self._expanded, self._factors, *settings))

    @property
    def _factors(self) -> list[Tensor]:
        """The tensors of the automata of factors and their scores, which rounding needs; nothing without factors."""
        if self.factors is None:
            return []
        return [*vars(self._automata).values(), self.factors.detach()]
