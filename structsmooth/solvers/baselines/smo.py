"""Sequential minimal optimization on the marginals of chains (Taskar et al. 2004)."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.affine import Parts, inner
from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.problems.reductions import agreed
from structsmooth.solvers.bcfw.active_set import Direction
from structsmooth.solvers.bcfw.steps import step_size
from structsmooth.solvers.dual.base import DualSolver
from structsmooth.solvers.state import State, empty
from structsmooth.structures import LinearChain

# Mass below is what rounding leaves of parts that steps have emptied.
_LEAST_MASS = 1e-12


@dataclass
class Marginals:
    """A point of the dual by the marginals of all examples, end to end, which the steps of a pass change in place.

    Token t of an example has a matrix [S, S] of pairs of its label (columns) and the one before (rows), where the first
    token has all its mass in row 0.
    """

    weights: Tensor  # v, [dim]
    pairs: Tensor  # [tokens, S, S]
    cost: float = 0.0  # (1/n) Σ ⟨ℓ_i, m_i⟩


@dataclass
class SMOState(State):
    """Adds the point of the dual; ``weights`` are its v within the bounds, and ``dual`` is its value."""

    point: Marginals = field(kw_only=True)


@dataclass(frozen=True)
class SMO(DualSolver[SMOState]):
    """Sequential minimal optimization: a step moves mass of one example from its worst labelling to the best of all.

    The dual is over a distribution for each example, which enters by the marginals of its neighbouring pairs alone. A
    step takes the pair of labellings that violates the optimality conditions most: the one of the largest augmented
    score, and, among those that the marginals still have mass for, the one of the smallest. The most that can be moved
    is the smallest marginal that the second has and the first has not, and the exact line search says how much is. So
    a step makes two inferences, each of which counts as an oracle call; the dual never falls, and
    the duality gap is known after every pass.

    :class:`~structsmooth.BCFW` with pairwise steps takes the second labelling from those it has met, with weights for
    each, and needs one inference; here no output is stored, and a step may move more. Marginals take the memory of
    T · S² numbers for an example. Needs a chain problem of hinges, with or without bounds, and λ > 0. It is a baseline
    in plain torch, and slow.

    A run starts from the labels and from no other weights.

    Reference:
        Taskar, Guestrin and Koller (2004), "Max-margin Markov networks", section 5; Platt (1999).

    Example:
        >>> from structsmooth.problems import DenseChainProblem
        >>> x = torch.randn(20, 3, dtype=torch.float64)
        >>> problem = DenseChainProblem(x, x.argmax(1), torch.full((4,), 5), states=3)
        >>> last = SMO().solve(problem, lam=0.1, passes=100).row
        >>> last.gap <= 0.01 * last.objective
        True
    """

    state_type = SMOState

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse what is no chain problem of hinges with λ > 0."""
        self._chains(problem, lam)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> SMOState:
        """The state whose dual mass is all on the labels."""
        chains = self._chains(problem, lam)
        if start is not None:
            raise TypeError(f"start must be None, got {type(start).__name__}: runs start from the labels")
        pairs = torch.zeros(len(chains.labels), chains.states, chains.states, dtype=torch.float64)
        before = chains.labels.roll(1)
        before[chains.sequences.offsets[:-1]] = 0
        pairs[torch.arange(len(pairs)), before, chains.labels] = 1
        v = chains.start()
        return _valued(SMOState(v, point=Marginals(v, pairs)), chains, lam)

    def advance(self, problem: Problem, lam: float, state: SMOState, rng: np.random.Generator, budget: int) -> SMOState:
        """One pass: a step on every example, in random order."""
        chains = self._chains(problem, lam)
        point = replace(state.point, weights=state.point.weights.clone(), pairs=state.point.pairs.clone())
        for block in rng.permutation(chains.n).tolist():
            _step(chains, lam, point, block)
        v, pairs, cost = agreed(chains, (point.weights, point.pairs, torch.tensor(point.cost, dtype=torch.float64)))
        return _valued(replace(state, passes=state.passes + 1, point=Marginals(v, pairs, float(cost))), chains, lam)

    def evaluate(self, problem: Problem, lam: float, state: SMOState) -> FullPass:
        """The loss alone: the marginals need no gradient."""
        loss = problem.loss(state.weights)
        return FullPass(state.weights, self.smoother(state), loss, empty(), loss)

    def _chains(self, problem: Problem, lam: float) -> ChainProblem:
        linear = self.linear(problem, lam)
        if not isinstance(linear, ChainProblem):
            raise TypeError(
                f"{type(self).__name__} needs a SparseChainProblem or a DenseChainProblem, got "
                f'{type(problem).__name__}; BCFW(steps="pairwise") trains all linear problems of hinges'
            )
        return linear


def _step(problem: ChainProblem, lam: float, point: Marginals, block: int) -> None:
    pairs = point.pairs[problem.data.tokens(block)]  # a view
    augmented = problem.augmented(problem.within_bounds(point.weights), block)

    # The best labelling of all, and the worst one that has mass.
    best = problem.call(augmented, block).atom
    assert best is not None
    worst = _worst(augmented, pairs)
    problem.oracle_calls += 1
    direction = Direction.between(problem.parts(worst, block), problem.parts(best, block), augmented)
    if direction.gain <= 0:
        return

    # Step, to where the dual is largest on the line, or the worst runs out of mass.
    towards, away = _places(best), _places(worst)
    mass, other = pairs[away], torch.stack(away, 1) != torch.stack(towards, 1)
    direction = replace(direction, longest=float(mass[other.any(1)].min()))
    size, weight = step_size(problem, point.weights, direction, block, lam), problem.block_weight(block)

    # Update of weights, marginals and cost.
    problem.feature_map.add_adjoint(direction.statistics, block, -size * weight / lam, point.weights)
    pairs[towards] += size
    pairs[away] -= size
    point.cost += size * weight * float(inner(problem.costs(block), direction.statistics))


def _worst(augmented: Parts, pairs: Tensor) -> Tensor:
    """The labelling of the smallest score whose parts all have mass: [T]."""
    unary, transition = augmented
    has_mass = pairs > _LEAST_MASS
    first = torch.zeros_like(unary)
    first[0].masked_fill_(~has_mass[0, 0], -torch.inf)
    return LinearChain((first - unary)[None], (-transition).where(has_mass[1:], -torch.inf)[None]).max()[1][0]


def _places(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the marginals of a labelling are: token, label before, label."""
    before = labels.roll(1)
    before[0] = 0
    return torch.arange(len(labels)), before, labels


def _valued(state: SMOState, problem: LinearProblem, lam: float) -> SMOState:
    """``state`` with the weights and the value of its point of the dual."""
    point = state.point
    dual = point.cost - lam * problem.conjugate(point.weights)
    return replace(state, weights=problem.within_bounds(point.weights), dual=dual)
