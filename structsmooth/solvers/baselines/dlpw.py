"""Subgradient steps on weights beside messages that descend on the dual of inference (Meshi et al. 2010)."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.settings import Positive
from structsmooth.smoothing import Max
from structsmooth.solvers.dual.base import DualSolver
from structsmooth.solvers.soft_bcfw.dual import SoftDual, soft_dual
from structsmooth.solvers.soft_bcfw.point import SoftPoint, short_form
from structsmooth.solvers.state import State, empty


@dataclass(frozen=True)
class MessagePoint:
    """A point of the minimization over weights and messages.

    Attributes:
        weights: w, [dim].
        messages: δ_ci of the two ends of all edges, [E, 2, S].
        nodes: μ_i of all nodes, [nodes, S]: the means of the statistics that steps went along, for a lower bound.
        edges: μ_c of all edges, in the form of :class:`~structsmooth.solvers.soft_bcfw.point.SoftPoint` for
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
        from structsmooth.solvers.baselines import compiled_dlpw  # numba loads with the first pass

        problem, scores = self.dual.problem, self.dual.problem.feature_map
        copies = (tensor.clone(memory_format=torch.contiguous_format) for tensor in vars(point).values())
        new = MessagePoint(*copies)
        unary, pairwise = scores.views(new.weights)
        compiled_dlpw.visit_examples(
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


@dataclass(frozen=True, kw_only=True)
class DualLossPass(FullPass):
    """The evaluation of weights and messages: no inference, but the maxima of all nodes and edges."""

    bound: float


@dataclass
class DLPWState(State):
    """Adds messages δ [E, 2, S], and the marginals of nodes and edges that the weights are made of."""

    messages: Tensor = field(default_factory=empty)
    nodes: Tensor = field(default_factory=empty)
    edges: Tensor = field(default_factory=empty)

    @property
    def point(self) -> MessagePoint:
        """Weights, messages and marginals as a problem takes them."""
        return MessagePoint(self.weights, self.messages, self.nodes, self.edges)

    def observe(self, full: FullPass, lam: float) -> None:
        """Keep the best lower bound."""
        assert isinstance(full, DualLossPass)
        self.dual = full.bound if self.dual is None else max(self.dual, full.bound)


@dataclass(frozen=True)
class DLPW(DualSolver[DLPWState]):
    """Dual losses, primal weights: stochastic subgradient steps on g(w, δ), the hinge with messages for inference.

    A visit of an example makes one sweep of star updates, the best messages of one node after the other, and then a
    subgradient step on the weights of size η/(1 + ληt), where t counts visits. It is the baseline of
    :class:`~structsmooth.SoftBCFW` (Meshi, Srebro and Hazan 2015, sections 2 and 6), and depends on η. It needs a
    :class:`~structsmooth.FactorGraphProblem` and λ > 0. A run starts from zero weights and messages, or from the state
    of another run on the same problem.

    The objective of the history is g(w, δ), an upper bound on that of the local polytope at w, and not the objective of
    the weights alone, as it is of other solvers. The solver has no dual iterate; its lower bound is that of the
    marginals which the weights are made of, moved to where they agree. It is loose without smoothing. A visit counts as
    one oracle call, although nothing is inferred. Evaluations take maxima over single nodes and edges and count as
    none, so that even a run which is interrupted in its first pass has a result: its start.

    Args:
        learning_rate: η > 0. If not given, it is Polyak's step size at the start.
        temperature: temperature ε of soft maxima over the states of nodes and edges, as in smooth inference; 0 for
            exact maxima.

    Example:
        >>> import torch
        >>> from structsmooth import FactorGraphProblem, FactorGraphs
        >>> x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))  # four triangles, five states
        >>> graphs = FactorGraphs(
        ...     features=x,
        ...     labels=torch.arange(12) % 5,
        ...     node_offsets=3 * torch.arange(5),
        ...     edges=torch.tensor([[0, 1], [1, 2], [2, 0]]).repeat(4, 1),
        ...     edge_offsets=3 * torch.arange(5),
        ... )
        >>> history = DLPW().solve(FactorGraphProblem(graphs, states=5), lam=0.1, passes=50).history
        >>> bool(history[-1].dual <= history[-1].objective < history[0].objective)
        True

    Reference:
        Meshi, Sontag, Jaakkola and Globerson (2010), "Learning efficiently with approximate inference via dual losses".
    """

    learning_rate: Positive | None = None
    temperature: float = 0.0

    state_type: ClassVar[type[DLPWState]] = DLPWState

    @property
    def oracle(self) -> str:
        """None: a visit decodes every factor on its own."""
        return "none"

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse what is no factor graph problem, and λ = 0."""
        self.loss(problem, lam)

    def loss(self, problem: Problem, lam: float) -> DualLoss:
        """What the solver minimizes."""
        return DualLoss(soft_dual(type(self).__name__, problem, lam))

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> DLPWState:
        """Zeros, or what another run has reached; and the step size η."""
        loss = self.loss(problem, lam)
        point = loss.start()
        if start is not None:
            if not isinstance(start, DLPWState):
                raise TypeError(f"start must be a DLPWState, got {type(start).__name__}")
            if start.messages.shape != point.messages.shape or start.weights.shape != point.weights.shape:
                raise ValueError("start must be of this problem, got a state with other weights or messages")
            point = start.point
        return DLPWState(**vars(point), step_size=self.learning_rate or loss.polyak_step_size())

    def advance(
        self, problem: Problem, lam: float, state: DLPWState, rng: np.random.Generator, budget: int
    ) -> DLPWState:
        """One pass: a visit to every example."""
        loss, order = self.loss(problem, lam), torch.from_numpy(rng.permutation(problem.n))
        point = loss.visit(state.point, order, state.passes * problem.n, state.step_size, self.temperature)
        problem.oracle_calls += problem.n
        return replace(state, **vars(point), passes=state.passes + 1)

    def evaluate(self, problem: Problem, lam: float, state: DLPWState) -> DualLossPass:
        """g(w, δ), and the bound of the marginals; nothing is inferred."""
        loss = self.loss(problem, lam)
        value = loss.value(state.point) - lam / 2 * float(state.weights @ state.weights)
        return DualLossPass(state.weights, Max(), value, empty(), value, bound=loss.bound(state.point))
