"""Subgradient steps on weights beside messages that descend on the dual of inference (Meshi et al. 2010)."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear.factor_graph.dual_loss import DualLoss, MessagePoint
from structsmooth.smoothing import Max
from structsmooth.solvers.checks import check_number, check_positive
from structsmooth.solvers.dual.base import DualSolver, soft_dual
from structsmooth.solvers.state import State, empty


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

    learning_rate: float | None = None
    temperature: float = 0.0

    state_type: ClassVar[type[DLPWState]] = DLPWState

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "learning_rate")
        check_number("temperature", self.temperature)

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
