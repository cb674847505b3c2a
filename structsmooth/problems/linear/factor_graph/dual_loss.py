"""The hinge of the local polytope with messages in place of inference: values, and steps on weights and messages."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.problems.linear.factor_graph.point import SoftPoint, short_form
from structsmooth.problems.linear.factor_graph.soft import SoftDual


@dataclass(frozen=True)
class MessagePoint:
    """A point of the minimization over weights and messages.

    Attributes:
        weights: w, [dim].
        messages: δ_ci of the two ends of all edges, [E, 2, S].
        nodes: μ_i of all nodes, [nodes, S]: the means of the statistics that steps went along, for a lower bound.
        edges: μ_c of all edges, in the form of :class:`~structsmooth.problems.linear.factor_graph.point.SoftPoint` for
            any number of states: [E, S, S], or [E, 3S] for Potts scores.
    """

    weights: Tensor
    messages: Tensor
    nodes: Tensor
    edges: Tensor


@dataclass(frozen=True)
class DualLoss:
    """g(w, δ) of Meshi et al. (2015), Eq. (2), for the problem and λ of a soft dual, whose multipliers are messages."""

    dual: SoftDual

    def start(self) -> MessagePoint:
        """Zero weights and messages, and the marginals of the labels."""
        labels = self.dual.labels()
        messages = labels.nodes.new_zeros(len(labels.edges), 2, labels.nodes.shape[1])
        return MessagePoint(labels.weights, messages, labels.nodes, labels.potts_form if labels.potts else labels.edges)

    def value(self, point: MessagePoint) -> float:
        """g(w, δ), with λ/2‖w‖²."""
        return self.dual.values(_soft(point), math.inf).hard

    def bound(self, point: MessagePoint) -> float:
        """A lower bound on min g, by marginals that agree near those of the point."""
        return self.dual.bound(_soft(point))

    def polyak_step_size(self) -> float:
        """Mean loss over mean squared gradient at zero weights and messages."""
        scale = self.dual.scale()
        return 1 / (self.dual.problem.n * scale) if scale > 0 else 1.0

    def visit(self, point: MessagePoint, order: Tensor, done: int, eta: float, temperature: float) -> MessagePoint:
        """For each example of an order, a sweep of star updates, then a step η/(1 + ληt); ``done`` is the first t."""
        from structsmooth.problems.linear.factor_graph import compiled_dual_loss  # numba loads with the first pass

        problem, scores = self.dual.problem, self.dual.problem.feature_map
        copies = (tensor.clone(memory_format=torch.contiguous_format) for tensor in vars(point).values())
        new = MessagePoint(*copies)
        unary, pairwise = scores.views(new.weights)
        compiled_dual_loss.visit_examples(
            order.numpy(),
            done,
            (problem.graphs.node_offsets.numpy(), problem.graphs.link_offsets.numpy()),
            *scores.arrays,
            (unary.numpy(), pairwise.numpy()),
            (new.nodes.numpy(), new.edges.flatten(1).numpy(), new.messages.numpy()),
            (eta, self.dual.lam, float(problem.n), float(temperature)),
            (scores.first, scores.potts),
        )
        return new


def _soft(point: MessagePoint) -> SoftPoint:
    """The point with its messages as multipliers; what they have in common for both of two states changes nothing."""
    if point.edges.dim() == 2 and point.nodes.shape[1] == 2:
        return SoftPoint(point.weights, point.nodes, short_form(point.edges), point.messages.diff(dim=2) / 2)
    return SoftPoint(point.weights, point.nodes, point.edges, point.messages)
