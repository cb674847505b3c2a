"""Finite sums of structural hinges whose potentials are linear in the weights, and their dual in the space of parts."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.bounds import line_search
from structsmooth.problems.linear.active_set import Cache, HeldOutputs, Steps, inner, minus
from structsmooth.smoothing import Max, Smoother


@dataclass(frozen=True)
class DualIterate:
    """A point of the dual of a linear problem, as block-coordinate solvers carry it.

    Attributes:
        weights: v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim]: those of the problem, but for its bounds.
        statistics: m_i of all examples, see :meth:`LinearProblem.label_statistics`.
        gaps: block gaps g_i, each as of when its example was last seen, [n].
        outputs: what the examples hold, see :meth:`LinearProblem.label_sets`; empty where steps need none.
        alphas: weights of the active sets among them, [n, capacity].
        stamps: marks of the caches among them, int32 [n, capacity]; see
            :class:`~structsmooth.problems.linear.active_set.HeldOutputs`.
    """

    weights: Tensor
    statistics: Tensor
    gaps: Tensor
    outputs: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    alphas: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    stamps: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.int32))


class LinearProblem(Problem):
    """A finite sum of structural hinge losses with potentials θ_i = B_i w.

    Its dual is to maximize D(m) = (1/n) Σ ⟨ℓ_i, m_i⟩ − λh*(v) over statistics m_i, one for each example, where
    v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)) and h*(v) = ½‖v‖², or what :mod:`structsmooth.problems.bounds` says if there are
    ``bounds``. At the weights w = v, clipped to the bounds, F(w) − D(m) is the sum of the block gaps
    g_i = (1/n) max_s ⟨θ_i + ℓ_i, s − m_i⟩ (Osokin et al. 2016, section 2.3 and appendix H).

    A subclass gives what one example has: potentials, adjoint, costs, labels and max oracle, as tuples with a tensor
    for each kind of part. Statistics have the shapes of the potentials. The passes below are plain torch and may be
    overridden by faster ones that give the same iterates.
    """

    @property
    def blocks(self) -> int:
        """Number of blocks of the dual: one for each example."""
        return self.n

    def linearize(self, w: Tensor) -> LinearProblem:
        """The problem itself."""
        return self

    @abstractmethod
    def potentials(self, w: Tensor, i: int) -> tuple[Tensor, ...]:
        """B_i w: the potentials of example i."""

    @abstractmethod
    def adjoint(self, statistics: tuple[Tensor, ...], i: int) -> Tensor:
        """B_iᵀ m: the vector [dim] with ⟨B_iᵀ m, w⟩ = ⟨m, B_i w⟩."""

    @abstractmethod
    def part_costs(self, i: int) -> tuple[Tensor, ...]:
        """ℓ_i: the task loss of an output is the sum over its parts; in the shapes of the potentials."""

    @abstractmethod
    def label_output(self, i: int) -> Tensor:
        """y_i: integers, as many for every output of example i, [m_i]."""

    @abstractmethod
    def best_output(self, potentials: tuple[Tensor, ...], i: int) -> Tensor:
        """An output of example i with the largest score under these potentials, [m_i]: the max oracle."""

    @abstractmethod
    def parts(self, output: Tensor, i: int) -> tuple[Tensor, ...]:
        """ν(y): the parts of an output of example i, in the shapes of the potentials."""

    def label_parts(self, i: int) -> tuple[Tensor, ...]:
        """ν(y_i): the parts of the labels, in the shapes of the potentials."""
        return self.parts(self.label_output(i), i)

    def label_statistics(self) -> Tensor:
        """Statistics of all examples that are the parts of their labels: the tensors of each, end to end, [size]."""
        return torch.cat([_flat(self.label_parts(i)) for i in range(self.n)])

    def expected_cost(self, statistics: Tensor) -> float:
        """(1/n) Σ ⟨ℓ_i, m_i⟩."""
        costs = (inner(self.part_costs(i), self._own(statistics, i)) for i in range(self.n))
        return sum(map(float, costs)) / self.n

    def dual_weights(self, statistics: Tensor, lam: float) -> Tensor:
        """v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim]; the weights of the dual iterate are these, within the bounds."""
        v = torch.zeros_like(self.start())
        for i in range(self.n):
            v -= self.adjoint(minus(self._own(statistics, i), self.label_parts(i)), i) / (lam * self.n)
        return v

    def block_gaps(self, w: Tensor, statistics: Tensor) -> Tensor:
        """The block gaps g_i of all examples, by one oracle call on each: [n]."""
        gaps = []
        for i in range(self.n):
            augmented = self._augmented(w, i)
            output = self._call(augmented, i)
            gaps.append(inner(augmented, minus(self.parts(output, i), self._own(statistics, i))) / self.n)
        return torch.stack(gaps)

    def full_pass(self, w: Tensor, smoother: Smoother, *, with_loss: bool = False) -> FullPass:
        """One oracle call on every example; hinges without smoothing also have an expected cost."""
        if not (isinstance(smoother, Max) and isinstance(self.smoother, Max)):
            return super().full_pass(w, smoother, with_loss=with_loss)
        gradient, loss, cost = torch.zeros_like(w), 0.0, 0.0
        for i in range(self.n):
            augmented, costs, labels = self._augmented(w, i), self.part_costs(i), self.label_parts(i)
            statistics = self.parts(self._call(augmented, i), i)
            gradient += self.adjoint(minus(statistics, labels), i) / self.n
            loss += float(inner(augmented, minus(statistics, labels)) + inner(costs, labels)) / self.n
            cost += float(inner(costs, statistics)) / self.n
        return FullPass(w.clone(), smoother, loss, gradient, loss, cost)

    def block_margins(self, w: Tensor, statistics: Tensor) -> Tensor:
        """(1/n) ⟨θ_i + ℓ_i, m_i − ν(y_i)⟩ of all examples: [n]. With the block gaps they sum to (1/n) Σ f_i(w)."""
        margins = []
        for i in range(self.n):
            augmented = self._augmented(w, i)
            margins.append(inner(augmented, minus(self._own(statistics, i), self.label_parts(i))) / self.n)
        return torch.stack(margins)

    def best_statistics(self, w: Tensor) -> Tensor:
        """Statistics of all examples that are the parts of the outputs of the max oracle at ``w``: [size]."""
        return torch.cat([_flat(self.parts(self._call(self._augmented(w, i), i), i)) for i in range(self.n)])

    def label_sets(self, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
        """Active sets and caches of the labels alone: outputs, int32 [Σ m_i · capacity], weights and stamps."""
        outputs = [self.label_output(i).repeat(capacity) for i in range(self.n)]
        alphas = torch.zeros(self.n, capacity, dtype=torch.float64)
        alphas[:, 0] = 1
        return torch.cat(outputs).int(), alphas, alphas.int()

    def frank_wolfe_epoch(
        self,
        point: DualIterate,
        order: Tensor,
        *,
        lam: float,
        steps: Steps = "fw",
        shares: Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[DualIterate, Tensor | None]:
        """Block-coordinate Frank-Wolfe steps with line search (Osokin et al. 2016, Algorithms 1 to 5 and 9).

        Returns the last point, and Σ_t shares[t] · w_t where shares are given.

        Args:
            point: start; with outputs that it holds, if steps are not ``"fw"`` or there is a cache.
            order: the example of each step, int64 [steps]; or numbers in [0, 1), float64 [steps], which choose the
                examples with probabilities in proportion to the gaps as they are at that step.
            lam: λ > 0 of the problem.
            steps: ``"fw"`` towards the output of the oracle; ``"pairwise"`` from the worst output of the active set to
                it; ``"away"`` for one towards it, or away from the worst, as the gaps say.
            shares: weight of each iterate in the sum, float64 [steps].
            cache: when an output of the cache is taken, and no oracle called.
        """
        point = DualIterate(*(tensor.clone() for tensor in vars(point).values()))
        v, total = point.weights, None if shares is None else torch.zeros_like(point.weights)
        for step, choice in enumerate(order):
            self._step(point, _chosen(choice, point.gaps), lam, steps, cache)
            if total is not None and shares is not None:
                total += shares[step] * self.within_bounds(v)
        return point, total

    def _step(self, point: DualIterate, i: int, lam: float, steps: Steps, cache: Cache | None) -> None:
        """One step on example i, in place."""
        own, held = self._own(point.statistics, i), self._held(point, i)
        augmented = self._augmented(self.within_bounds(point.weights), i)
        cached = self._cached(point, i, held, augmented, cache)
        output = self._call(augmented, i) if cached is None else cached
        direction, longest = minus(self.parts(output, i), own), 1.0
        gain = inner(augmented, direction)
        if cached is None:
            point.gaps[i] = (gain / self.n).clamp_min(0.0)
        if steps != "fw":
            gain, longest, direction = held.choose(steps, augmented, own, direction)
        change = self.adjoint(direction, i).div_(-lam * self.n)
        size = line_search(float(gain) / (lam * self.n), point.weights, change, longest, self.bounds)
        if size == 0:
            return
        if steps != "fw":
            held.reweight(output, size, longest)
        if cache is not None:
            held.stamp(output)
        for m, d in zip(own, direction, strict=True):
            m += size * d
        point.weights.add_(change, alpha=size)

    def _cached(
        self, point: DualIterate, i: int, held: HeldOutputs, augmented: tuple[Tensor, ...], cache: Cache | None
    ) -> Tensor | None:
        """The best output of the cache, if its gap is large enough."""
        output = None if cache is None else held.best(augmented)
        if cache is None or output is None:
            return None
        gap = float(inner(augmented, minus(self.parts(output, i), self._own(point.statistics, i)))) / self.n
        return output if gap >= max(cache.factor * float(point.gaps[i]), cache.least) else None

    def _augmented(self, w: Tensor, i: int) -> tuple[Tensor, ...]:
        """θ_i + ℓ_i."""
        return tuple(p + c for p, c in zip(self.potentials(w, i), self.part_costs(i), strict=True))

    def _call(self, augmented: tuple[Tensor, ...], i: int) -> Tensor:
        """The output of the oracle."""
        self.oracle_calls += 1
        return self.best_output(augmented, i)

    def _held(self, point: DualIterate, i: int) -> HeldOutputs:
        """Views of what example i holds; without slots where there are none."""
        begin, end = self._output_offsets[i : i + 2]
        capacity = point.alphas.shape[1]
        outputs = point.outputs[begin * capacity : end * capacity].view(capacity, end - begin)
        alphas, stamps = (t[i] if capacity else t.new_zeros(0) for t in (point.alphas, point.stamps))
        return HeldOutputs(outputs, alphas, stamps, lambda output: self.parts(output.long(), i))

    def _own(self, statistics: Tensor, i: int) -> tuple[Tensor, ...]:
        """Views of the statistics of example i."""
        shapes = [part.shape for part in self.label_parts(i)]
        begin, end = self._offsets[i : i + 2]
        pieces = statistics[begin:end].split([shape.numel() for shape in shapes])
        return tuple(piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True))

    @cached_property
    def _output_offsets(self) -> list[int]:
        sizes = [len(self.label_output(i)) for i in range(self.n)]
        return [0, *torch.tensor(sizes).cumsum(0).tolist()]

    @cached_property
    def _offsets(self) -> list[int]:
        sizes = [sum(part.numel() for part in self.label_parts(i)) for i in range(self.n)]
        return [0, *torch.tensor(sizes).cumsum(0).tolist()]


def _chosen(choice: Tensor, gaps: Tensor) -> int:
    """The example of a step; without gaps all are as likely."""
    if choice.dtype == torch.int64:
        return int(choice)
    if not gaps.any():
        return int(choice * len(gaps))
    sums = gaps.cumsum(0)
    return int((sums <= choice * sums[-1]).sum())


def _flat(parts: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])
