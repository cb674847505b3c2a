"""The compiled passes of a soft dual over nodes and links, for each form in which links are kept."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from structsmooth.problems.linear.factor_graph import FactorGraphProblem
from structsmooth.solvers.soft_bcfw.point import SoftPoint, extreme_diagonals

# 1/(λn), 1/ρ, the least weight that a step goes away from, and whether steps are pairwise.
Scales = tuple[float, float, float, bool]


class Agreeing(NamedTuple):
    """Marginals that agree, as far as their weights need them.

    Attributes:
        nodes: marginals of nodes, [nodes, S].
        pairs: sums over links of the statistics of their parts, [types, De, P], for marginals near those of a point.
        least: the same, with as little agreement as nodes leave; as ``pairs``, if links have tables.
        most: the same, with as much as they leave.
    """

    nodes: Tensor
    pairs: Tensor
    least: Tensor
    most: Tensor


@dataclass(frozen=True)
class SoftPasses(ABC):
    """Passes over the nodes and links of all examples. Points that they change must be contiguous."""

    problem: FactorGraphProblem

    @abstractmethod
    def sweep_examples(self, point: SoftPoint, order: Tensor, sweeps: int, scales: Scales) -> None:
        """Steps on all blocks of each example of an order in turn, so many times, in place."""

    @abstractmethod
    def sweep_blocks(self, point: SoftPoint, order: Tensor, scales: Scales) -> None:
        """Steps on the blocks of an order, nodes of all examples, then links; in place."""

    @abstractmethod
    def with_multipliers(self, point: SoftPoint, rho: float) -> SoftPoint:
        """The point with δ in place of δ̄."""

    @abstractmethod
    def agreeing(self, point: SoftPoint) -> Agreeing:
        """What is near the marginals of a point and agrees; see :meth:`SoftPoint.agreeing`."""

    @abstractmethod
    def parts(self, edges: Tensor) -> Tensor:
        """Statistics of the parts of links that have weights, [links, P], of their marginals."""

    def values(self, point: SoftPoint, rho: float) -> Tensor:
        """Sums over all blocks, see :meth:`SoftValues.of`: float64 [5]."""
        sums = torch.zeros(5, dtype=torch.float64)
        self._loops.values(*self._data, *self._arrays(point), 1 / rho, self._form, sums.numpy())
        return sums

    @property
    @abstractmethod
    def _loops(self) -> Any:
        """The module of compiled passes; numba loads with it."""

    @property
    @abstractmethod
    def _data(self) -> tuple[Any, Any]:
        """Arrays of nodes and of links."""

    @property
    @abstractmethod
    def _form(self) -> Any:
        """Which states have weights."""

    def _arrays(self, point: SoftPoint) -> tuple[Any, Any]:
        unary, pairwise = self.problem.feature_map.views(point.weights)
        tensors = (point.nodes, point.edges.flatten(1), point.multipliers, torch.zeros_like(point.nodes))
        return (unary.numpy(), pairwise.numpy()), tuple(tensor.contiguous().numpy() for tensor in tensors)


@dataclass(frozen=True)
class GeneralPasses(SoftPasses):
    """Links with tables, or with Potts scores of any number of states."""

    def sweep_examples(self, point: SoftPoint, order: Tensor, sweeps: int, scales: Scales) -> None:
        """Steps on examples, by the offsets of their nodes and links."""
        graphs = self.problem.graphs
        offsets = (graphs.node_offsets.numpy(), graphs.link_offsets.numpy())
        arrays = (*self._data, *self._arrays(point))
        self._loops.sweep_examples(order.numpy(), sweeps, offsets, *arrays, scales, self._form)

    def sweep_blocks(self, point: SoftPoint, order: Tensor, scales: Scales) -> None:
        """Steps on nodes, and on links by their own arrays."""
        self._loops.sweep_blocks(order.numpy(), *self._data, *self._arrays(point), scales, self._form)

    def with_multipliers(self, point: SoftPoint, rho: float) -> SoftPoint:
        """The point with δ in place of δ̄, in torch."""
        return point.with_multipliers(self.problem.graphs.ends, rho)

    def agreeing(self, point: SoftPoint) -> Agreeing:
        """What agrees, in torch; tables allow no more or less agreement than they have."""
        graphs, scores = self.problem.graphs, self.problem.feature_map
        near = point.agreeing(graphs, scores.first)
        sums = [self.problem.start() for _ in range(3)]
        for links in graphs.chunks():
            parts = self.parts(near.edges[links.own])
            least = most = parts
            if scores.potts:
                diagonals = extreme_diagonals(*near.nodes[links.ends].unbind(1))
                least, most = (d[:, scores.first :].sum(1, keepdim=True) for d in diagonals)
            for total, own in zip(sums, (parts, least, most), strict=True):
                scores.add_edges(own, links.edges, 1.0, total)
        return Agreeing(near.nodes, *(scores.views(total)[1] for total in sums))

    def parts(self, edges: Tensor) -> Tensor:
        """Agreement of the states that have weights, or the entries of their pairs."""
        scores = self.problem.feature_map
        if scores.potts:
            return edges[:, scores.first : scores.states].sum(1, keepdim=True)
        return edges[:, scores.first :, scores.first :].flatten(1)

    @property
    def _loops(self) -> Any:
        from structsmooth.solvers.soft_bcfw import compiled

        return compiled

    @property
    def _data(self) -> tuple[Any, Any]:
        return self.problem.feature_map.arrays

    @property
    def _form(self) -> tuple[int, bool]:
        scores = self.problem.feature_map
        return scores.first, scores.potts


@dataclass(frozen=True)
class BinaryPasses(SoftPasses):
    """Links with Potts scores of two states, in their short form; examples may share their edges."""

    def sweep_examples(self, point: SoftPoint, order: Tensor, sweeps: int, scales: Scales) -> None:
        """Steps on examples, by the places of their nodes, links and edges."""
        self._loops.sweep_examples(order.numpy(), sweeps, *self._data, *self._arrays(point), scales, self._form)

    def sweep_blocks(self, point: SoftPoint, order: Tensor, scales: Scales) -> None:
        """Steps on nodes, and on links by the edges of their examples."""
        links = order - len(point.nodes)
        examples = torch.searchsorted(self.problem.graphs.link_offsets, links, right=True) - 1
        arrays = (*self._data, *self._arrays(point))
        self._loops.sweep_blocks(order.numpy(), examples.numpy(), *arrays, scales, self._form)

    def with_multipliers(self, point: SoftPoint, rho: float) -> SoftPoint:
        """The point with δ in place of δ̄, without arrays of the ends of all links."""
        multipliers = point.multipliers.clone(memory_format=torch.contiguous_format)
        self._loops.add_disagreement(self._data[1], *self._marginals(point), multipliers.numpy(), 1 / rho)
        return replace(point, multipliers=multipliers)

    def agreeing(self, point: SoftPoint) -> Agreeing:
        """What agrees, in one pass."""
        nodes, (_, pairs) = torch.empty_like(point.nodes), self.problem.feature_map.views(self.problem.start())
        sums = torch.zeros(3, *pairs.shape[:2], dtype=torch.float64)
        self._loops.agreeing(*self._data, *self._marginals(point), self._form, nodes.numpy(), sums.numpy())
        return Agreeing(nodes, *sums.unsqueeze(-1))

    def parts(self, edges: Tensor) -> Tensor:
        """Agreement: of state 1, or of both states."""
        return edges[:, :1] if self._form else 1 - edges[:, 1:].sum(1, keepdim=True)

    @property
    def _loops(self) -> Any:
        from structsmooth.solvers.soft_bcfw import compiled_binary

        return compiled_binary

    @property
    def _data(self) -> tuple[Any, Any]:
        return self.problem.feature_map.binary_arrays

    @property
    def _form(self) -> int:
        return self.problem.feature_map.first

    def _marginals(self, point: SoftPoint) -> tuple[Any, Any]:
        return point.nodes.contiguous().numpy(), point.edges.contiguous().numpy()
