"""Incremental prox-linear steps: block-coordinate Frank-Wolfe on proximal models, with a plane for each block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from structsmooth import processes
from structsmooth.problems.base import FullPass, Problem
from structsmooth.settings import Positive
from structsmooth.solvers.averaging import ONE_A_PASS, newest_weight
from structsmooth.solvers.lower_bound import DualPoint
from structsmooth.solvers.primal.gradient import GradientSolver, GradientState, first_weights
from structsmooth.solvers.primal.planes import Gradients, Planes
from structsmooth.solvers.state import empty


@dataclass
class IncrementalState(GradientState):
    """Adds the last iterate (``weights`` is the average), and the planes; ``step_size`` is the η of the next pass.

    Processes that share passes have the gradients of their own planes; all else is the same in all of them.
    """

    partitioned: ClassVar[bool] = True

    iterate: Tensor = field(default_factory=empty)
    planes: Planes = field(kw_only=True)
    scales: Tensor = field(default_factory=empty)  # D of the first pass, if estimated: later ones take it from planes
    first_step_size: float = 0.0  # η of the first pass
    seen: float = math.inf  # F in the last pass, with each loss where the step on its block saw it
    model_gap: float = math.inf  # of the last pass: the sum of the block gaps, each before the step on its block

    @property
    def own_blocks(self) -> int:
        """Number of blocks whose planes the process has."""
        return len(self.planes.gradients)

    def observe(self, full: FullPass, lam: float) -> None:
        """Improve the lower bound by the planes, too, which bound convex losses if nothing has rounded them."""
        super().observe(full, lam)
        if self.dual is not None and self.planes.gradients.dtype == self.weights.dtype:
            self.raise_bound(DualPoint(*self.planes.mean()), lam)


@dataclass(frozen=True)
class IncrementalProxLinear(GradientSolver[IncrementalState]):
    """Prox-linear steps on one block of examples at a time, for scores of any kind; no smoothing, nothing to tune.

    Each block B_i, a fixed batch of examples, keeps a plane c_i + ⟨g_i, w⟩: an average of linearizations of its mean
    loss at earlier iterates. A pass minimizes the convex model
    Σ_i (|B_i|/n) h_i(w) + (λ/2)‖w‖² + (1/2η) Σ_j D_j (w_j − z_j)², with z the weights before the pass and h_i the
    linearized loss, by one step of block-coordinate Frank-Wolfe on each block: w is the minimum of the model with
    planes in place of losses; the plane of the block moves towards the linearization of its loss at w, by an exact line
    search. So a pass costs the same oracle calls as one of :class:`~structsmooth.SGD`. Losses must not be negative.

    Where scores are not linear, old linearizations go out of date. If the gap of the last model was below a tenth of F,
    they are what is left to improve: then a step moves its plane by a twentieth at least, so that it forgets them.

    The scale D_j of weight j is the root mean square of its gradients g_ij over all planes, in units of that of all
    weights; at least a tenth, and 1 as long as planes are zero. So weights that few examples change, such as embeddings
    of rare words, may move as far as others. D_j/η is at least 2.5 λ.

    η grows by a fifth after a pass whose steps saw a smaller objective than those of the pass before, and shrinks to
    0.7 of itself after a pass whose steps saw a larger one. It grows to at most 0.4/λ, and never shrinks below a
    twentieth of the first one: near an optimum, F rises in every second pass by chance.

    Where gradients are mostly zero, as with embeddings of words, planes are sparse: a block keeps the weights for which
    it has had a gradient, and steps work on these alone. The solver chooses by gradients of some blocks at the start.

    The weights are a weighted average of the iterates after each pass, see
    :func:`~structsmooth.solvers.averaging.newest_weight`. The ``step_size`` of the history is the η of the next pass.
    Its metric ``model_gap`` is the duality gap of the model, as estimated by the steps: the sum of the block gaps, each
    before the step on its block.

    Args:
        learning_rate: η of the first pass. If not given, such that the first steps make linearized losses zero.
        planes: type in which planes are stored: ``"weights"`` for that of the weights, or ``"float16"`` or
            ``"bfloat16"``.
        memory: GiB that planes may take in a process while a pass is made. Each of its blocks takes dim numbers, or a
            number and four bytes for each nonzero if planes are sparse, in two copies; as many nonzeros are expected as
            gradients have at the start.

    Reference:
        Lacoste-Julien et al. (2013), Algorithm 4, on the models of Pillutla et al. (2019), section 6.2.
    """

    planes: Literal["weights", "float16", "bfloat16"] = "weights"
    memory: Positive = 8.0

    state_type = IncrementalState

    def stored(self, weights: Tensor) -> torch.dtype:
        """The type in which gradients of planes are stored, given weights."""
        dtype: torch.dtype = weights.dtype if self.planes == "weights" else getattr(torch, self.planes)
        return dtype

    def steps_per_pass(self, problem: Problem) -> int:
        """Number of blocks."""
        return math.ceil(problem.n / self.examples_per_step(problem))

    def blocks_of(self, problem: Problem) -> int:
        """Number of blocks whose planes this process has: its share, if processes share passes and all can have one."""
        blocks = self.steps_per_pass(problem)
        return blocks if problem.shard is None or blocks < processes.count() else len(processes.share(blocks))

    def part(self, problem: Problem, state: IncrementalState, blocks: range) -> IncrementalState:
        """A state with the gradients of neighbouring planes alone."""
        values, columns = (
            list(vectors[blocks.start : blocks.stop])
            for vectors in (state.planes.gradients.values, state.planes.gradients.columns)
        )
        return self._with_gradients(state, values, columns)

    def assembled(self, problem: Problem, parts: Sequence[IncrementalState]) -> IncrementalState:
        """The state of this process from the parts that its planes are in."""
        gradients = [part.planes.gradients for part in parts]
        values = [vector for some in gradients for vector in some.values]
        columns = [vector for some in gradients for vector in some.columns]
        return self._with_gradients(parts[0], values, columns)

    def _with_gradients(self, state: IncrementalState, values: list[Tensor], columns: list[Tensor]) -> IncrementalState:
        gradients = replace(state.planes.gradients, values=values, columns=columns)
        return replace(state, planes=replace(state.planes, gradients=gradients))

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> IncrementalState:
        """State before the first pass: the given weights, and what losses and gradients of some blocks give.

        They give the storage of planes; and if η is not given, the η under which a first step takes a linearized loss
        to zero, on average, and the first scales.
        """
        weights, given = first_weights(problem, start), self.learning_rate
        sample = self.blocks(problem)[: _SAMPLE if given is None else _FEW]
        losses, squares, supports = 0.0, torch.zeros_like(problem.start()), []
        for block in sample:
            loss, gradient = problem.batch_loss_and_grad(weights, block, problem.smoother)
            losses, squares = losses + float(loss), squares + gradient.square()
            supports.append(int(gradient.count_nonzero()))
        sparse = self.stores_sparse(problem, weights, supports)
        if given is not None:
            return replace(self.begin(problem, lam, weights, given), planes=self.zero_planes(problem, weights, sparse))
        scales = scales_of(squares)
        norms = float((squares / scales).sum())
        step_size = len(sample) * losses / norms if norms > 0 and 0 < losses < math.inf else 1.0
        state = self.begin(problem, lam, weights, step_size)
        return replace(state, scales=scales, planes=self.zero_planes(problem, weights, sparse))

    def stores_sparse(self, problem: Problem, weights: Tensor, supports: list[int]) -> bool:
        """Whether planes are stored sparsely, given the numbers of nonzeros in gradients of some blocks.

        Raises:
            ValueError: planes take too much memory.
        """
        blocks, dtype = self.blocks_of(problem), self.stored(weights)
        told = [size for size in supports if size]  # a gradient of zero, of a loss of zero, tells nothing
        nonzeros = sum(told) / len(told) if told else problem.dim
        dense = Gradients.memory(blocks, problem.dim, dtype, sparse=False)
        sparse = Gradients.memory(blocks, nonzeros, dtype, sparse=True)
        is_sparse = sparse < _SPARSE * dense
        needed = (sparse if is_sparse else dense) / 2**30
        if needed > self.memory:
            some = f", of which {nonzeros:.0f} are not zero," if is_sparse else ""
            raise ValueError(
                f"planes of {blocks} blocks of {problem.dim} weights{some} take {needed:.3g} GiB, with the copies of a "
                f"pass, in {dtype}, and memory is {self.memory:.3g}: take a larger batch_size, planes of fewer bits, "
                "or give more memory"
            )
        return is_sparse

    def zero_planes(self, problem: Problem, weights: Tensor, sparse: bool) -> Planes:
        """Planes of zero, which are below all losses."""
        blocks = self.blocks(problem)
        gradients = Gradients.zeros(self.blocks_of(problem), weights, self.stored(weights), sparse=sparse)
        shares = weights.new_tensor([len(block) / problem.n for block in blocks])
        return Planes(gradients, weights.new_zeros(len(blocks)), shares)

    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> IncrementalState:
        """State before the first pass: the given weights, and planes of zero, stored sparsely."""
        planes = self.zero_planes(problem, weights, sparse=True)
        return IncrementalState(weights, step_size, planes=planes, first_step_size=step_size, iterate=weights)

    def advance(
        self, problem: Problem, lam: float, state: IncrementalState, rng: np.random.Generator, budget: int
    ) -> IncrementalState:
        """Make one pass over the examples in random order."""
        blocks, local, planes = self.blocks(problem), self.blocks_of(problem), state.planes
        if (len(planes), len(planes.gradients)) != (len(blocks), local):
            raise ValueError(
                f"the state has planes of {len(planes.gradients)} of {len(planes)} blocks, but this batch_size and "
                f"number of processes give {local} of {len(blocks)}"
            )
        solved = state.model_gap < _SOLVED * state.seen
        model = _Model(state, lam, least_step=_FORGET if solved and not problem.affine else 0.0)
        for i in rng.permutation(len(blocks)):
            model.step(i, *problem.batch_loss_and_grad(model.weights, blocks[i], problem.smoother))
        passes = state.passes + 1
        seen = float(model.loss) + lam / 2 * float(model.weights.square().sum())
        return replace(
            state,
            weights=torch.lerp(state.weights, model.weights, newest_weight(passes, ONE_A_PASS)),
            step_size=self.next_step_size(lam, state, seen),
            passes=passes,
            iterate=model.weights,
            planes=model.planes,
            scales=empty(),
            seen=seen,
            model_gap=float(model.gap),
        )

    def next_step_size(self, lam: float, state: IncrementalState, seen: float) -> float:
        """η grows after a pass that saw a smaller F than the pass before, and shrinks otherwise, within limits."""
        if seen > state.seen:
            return max(_FALL * state.step_size, min(state.step_size, _LEAST * state.first_step_size))
        most = _CAP / lam if lam > 0 else math.inf
        return max(state.step_size, min(_GROWTH * state.step_size, most)) if seen < state.seen else state.step_size

    def restarted(self, state: IncrementalState) -> IncrementalState:
        """``state`` with the average as iterate: the last iterate may be where the explosion began."""
        return replace(state, iterate=state.weights)

    def metrics(self, state: IncrementalState) -> dict[str, float]:
        """Duality gap of the model, as estimated by the steps of the pass."""
        return {"model_gap": state.model_gap} if state.passes else {}


class _Model:
    """The model of a pass with planes in place of losses: Σ shares_i (c_i + ⟨g_i, w⟩) + (λ/2)‖w‖² + (1/2η)‖w − z‖²_D.

    Attributes:
        weights: its minimum, [dim].
        inverse: 1/a for its curvatures a = λ + D/η, [dim].
        loss: mean loss of the examples so far, each before the step on its block.
        gap: sum of the block gaps so far, likewise.
    """

    def __init__(self, state: IncrementalState, lam: float, least_step: float) -> None:
        self.planes, self.least_step = state.planes.copy(), least_step
        gradient, _ = self.planes.mean()
        scales = state.scales if len(state.scales) else scales_of(self.planes.mean_square())
        proximal = (scales / state.step_size).clamp(min=lam / _CAP)
        self.inverse = 1 / (lam + proximal)
        self.weights = (proximal * state.iterate - gradient) * self.inverse
        self.loss = self.gap = torch.zeros_like(self.planes.block_weights[0])

    def step(self, i: int, loss: Tensor, gradient: Tensor) -> None:
        """Move the plane of block i towards that of its loss at the minimum, to where the model's dual is largest."""
        where, plane = self.planes.part(i, gradient)
        block_weight, weights, inverse = self.planes.block_weights[i], self.weights[where], self.inverse[where]
        # Where scores are not linear, the plane may have come above the loss: then it is lowered to it.
        value = torch.minimum(self.planes.constants[i] + plane @ weights, loss)
        direction = gradient[where] - plane
        step = (loss - value) / (block_weight * (direction @ (inverse * direction)))
        step = step.nan_to_num(0.0).clamp(self.least_step, 1)  # no direction, no step
        moved = torch.add(plane, direction.mul_(step)).to(self.planes.gradients.dtype).to(plane.dtype)
        # Storage rounds the gradient, but not the value at these weights.
        constant = value + step * (loss - value) - moved @ weights
        self.weights[where] = weights - (block_weight * inverse).mul_(moved - plane)
        self.planes.move(i, where, moved, constant)
        self.loss = self.loss + block_weight * loss
        self.gap = self.gap + block_weight * (loss - value)


def scales_of(squares: Tensor) -> Tensor:
    """D [dim], given mean squares of gradients [dim] in any unit; ones if all are zero."""
    return (squares / squares.mean() + _LEAST_SCALE**2).sqrt().nan_to_num(1.0)


# Blocks on which the first η is estimated, at most, and those that tell the storage of planes, if η is given.
_SAMPLE, _FEW = 100, 10
# Planes are sparse if they then take less than this part of the memory, since supports grow, and steps take longer.
_SPARSE = 1 / 3
# η is multiplied by these after passes whose steps saw a smaller or a larger F than those of the pass before.
_GROWTH, _FALL = 1.2, 0.7
# η is at most this, in units of 1/λ, and at least this, in units of the first one.
_CAP, _LEAST = 0.4, 0.05
# Least scale of a weight, in units of their root mean square.
_LEAST_SCALE = 0.1
# If the gap of the last model was below this share of F, steps move planes by this at least.
_SOLVED, _FORGET = 0.1, 0.05
