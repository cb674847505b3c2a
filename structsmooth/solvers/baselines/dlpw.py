"""Subgradient steps on weights beside messages that descend on the dual of inference (Meshi et al. 2010)."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from structsmooth.lazy import LazyModule
from structsmooth.problems.base import FullPass, Problem
from structsmooth.settings import Positive
from structsmooth.smoothing import Max
from structsmooth.solvers.dual.base import DualSolver
from structsmooth.solvers.soft_bcfw.dual import SoftDual, soft_dual
from structsmooth.solvers.soft_bcfw.point import SoftPoint
from structsmooth.solvers.state import State, empty

compiled_dlpw = LazyModule("structsmooth.solvers.baselines.compiled_dlpw")


def polyak_step_size(dual: SoftDual) -> float:
    """Mean loss over mean squared gradient at zero weights and messages."""
    scale = dual.scale()
    return 1 / (dual.problem.n * scale) if scale > 0 else 1.0


def visited(dual: SoftDual, point: SoftPoint, order: Tensor, done: int, eta: float, temperature: float) -> SoftPoint:
    """A point after a visit to each example of an order: a sweep of star updates, then a step η/(1 + ληt).

    Args:
        dual: of the problem and λ; the multipliers of its points are the messages here.
        point: links are not in their short form.
        order: of the examples.
        done: the first t.
        eta: η.
        temperature: of soft maxima.
    """
    problem, scores, new = dual.problem, dual.problem.feature_map, point.copy()
    unary, pairwise = scores.views(new.weights)
    marginals = (new.nodes, new.edges.flatten(1), new.multipliers, torch.zeros_like(new.nodes))
    compiled_dlpw.visit_examples(
        order.numpy(),
        done,
        *scores.arrays,
        (unary.numpy(), pairwise.numpy()),
        tuple(tensor.numpy() for tensor in marginals),
        (eta, dual.lam, float(problem.n), float(temperature)),
        scores.form,
    )
    return new


@dataclass(frozen=True, kw_only=True)
class DualLossPass(FullPass):
    """The evaluation of weights and messages: no inference, but the maxima of all nodes and edges."""

    bound: float


@dataclass
class DLPWState(State):
    """Adds a point whose multipliers are the messages, and whose marginals are those that the weights are made of."""

    point: SoftPoint = field(kw_only=True)

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
    :class:`~structsmooth.problems.FactorGraphProblem` and λ > 0. A run starts from zero weights and messages, or from
    the state of another run on the same problem.

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
        >>> from structsmooth.problems import FactorGraphProblem, FactorGraphs
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
    oracle = "none"  # a step decodes one node or factor

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse what is no factor graph problem, and λ = 0."""
        self.soft(problem, lam)

    def soft(self, problem: Problem, lam: float) -> SoftDual:
        """The dual whose primal g(w, δ), Eq. (2) of Meshi et al. (2015), the solver minimizes."""
        return soft_dual(type(self).__name__, problem, lam)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> DLPWState:
        """Zeros, or what another run has reached; and the step size η."""
        dual = self.soft(problem, lam)
        point = dual.labels(short=False)
        if start is not None:
            if not isinstance(start, DLPWState):
                raise TypeError(f"start must be a DLPWState, got {type(start).__name__}")
            if any(a.shape != b.shape for a, b in zip(vars(start.point).values(), vars(point).values(), strict=True)):
                raise ValueError("start must be of this problem, got a state with other weights or messages")
            point = start.point
        return DLPWState(point.weights, self.learning_rate or polyak_step_size(dual), point=point)

    def advance(
        self, problem: Problem, lam: float, state: DLPWState, rng: np.random.Generator, budget: int
    ) -> DLPWState:
        """One pass: a visit to every example."""
        dual, order = self.soft(problem, lam), torch.from_numpy(rng.permutation(problem.n))
        point = visited(dual, state.point, order, state.passes * problem.n, state.step_size, self.temperature)
        problem.oracle_calls += problem.n
        return replace(state, weights=point.weights, point=point, passes=state.passes + 1)

    def evaluate(self, problem: Problem, lam: float, state: DLPWState) -> DualLossPass:
        """g(w, δ), and the bound of the marginals; nothing is inferred."""
        dual = self.soft(problem, lam)
        value = dual.values(state.point, math.inf).hard - lam / 2 * float(state.weights @ state.weights)
        return DualLossPass(state.weights, Max(), value, empty(), value, bound=dual.bound(state.point))
