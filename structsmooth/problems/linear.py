"""Finite sums of structural hinges whose potentials are linear in the weights, and their dual in the space of parts."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from structsmooth.problems.base import Problem


@dataclass(frozen=True)
class DualIterate:
    """A point of the dual of a linear problem, as block-coordinate solvers carry it.

    Attributes:
        weights: w = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim].
        statistics: m_i of all examples, see :meth:`LinearProblem.label_statistics`.
        gaps: block gaps g_i, each as of when its example was last seen, [n].
    """

    weights: Tensor
    statistics: Tensor
    gaps: Tensor


class LinearProblem(Problem):
    """A finite sum of structural hinge losses with potentials θ_i = B_i w.

    Its dual is to maximize D(m) = (1/n) Σ ⟨ℓ_i, m_i⟩ − (λ/2)‖w‖² over statistics m_i, one for each example, where
    w = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)). At these weights F(w) − D(m) is the sum of the block gaps
    g_i = (1/n) max_s ⟨θ_i + ℓ_i, s − m_i⟩ (Osokin et al. 2016, section 2.3).

    A subclass gives what one example has: potentials, adjoint, costs, labels and max oracle, as tuples with a tensor
    for each kind of part. Statistics have the shapes of the potentials. The passes below are plain torch and may be
    overridden by faster ones that give the same iterates.
    """

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
    def label_parts(self, i: int) -> tuple[Tensor, ...]:
        """ν(y_i): the parts of the labels, in the shapes of the potentials."""

    @abstractmethod
    def best_parts(self, potentials: tuple[Tensor, ...], i: int) -> tuple[Tensor, ...]:
        """ν(y) of an output y of example i with the largest score under these potentials: the max oracle."""

    def label_statistics(self) -> Tensor:
        """Statistics of all examples that are the parts of their labels: the tensors of each, end to end, [size]."""
        return torch.cat([_flat(self.label_parts(i)) for i in range(self.n)])

    def expected_cost(self, statistics: Tensor) -> float:
        """(1/n) Σ ⟨ℓ_i, m_i⟩."""
        costs = (_inner(self.part_costs(i), self._own(statistics, i)) for i in range(self.n))
        return sum(map(float, costs)) / self.n

    def dual_weights(self, statistics: Tensor, lam: float) -> Tensor:
        """w = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim]."""
        w = torch.zeros_like(self.start())
        for i in range(self.n):
            w -= self.adjoint(_minus(self._own(statistics, i), self.label_parts(i)), i) / (lam * self.n)
        return w

    def block_gaps(self, w: Tensor, statistics: Tensor) -> Tensor:
        """The block gaps g_i of all examples, by one oracle call on each: [n]."""
        return torch.stack([self._block(w, self._own(statistics, i), i)[1] for i in range(self.n)])

    def frank_wolfe_epoch(
        self, point: DualIterate, order: Tensor, *, lam: float, shares: Tensor | None = None
    ) -> tuple[DualIterate, Tensor | None]:
        """Block-coordinate Frank-Wolfe steps with line search (Osokin et al. 2016, Algorithms 1 and 2).

        Returns the last point, and Σ_t shares[t] · w_t where shares are given.

        Args:
            point: start.
            order: the example of each step, int64 [steps]; or numbers in [0, 1), float64 [steps], which choose the
                examples with probabilities in proportion to the gaps as they are at that step.
            lam: λ > 0 of the problem.
            shares: weight of each iterate in the sum, float64 [steps].
        """
        w, statistics, gaps = point.weights.clone(), point.statistics.clone(), point.gaps.clone()
        total = None if shares is None else torch.zeros_like(w)
        for step, choice in enumerate(order):
            i = _chosen(choice, gaps)
            own = self._own(statistics, i)
            direction, gap = self._block(w, own, i)
            slope = self.adjoint(direction, i)
            size = _line_search(float(gap) * lam * self.n**2, float(slope @ slope))
            for m, d in zip(own, direction, strict=True):
                m += size * d
            w -= size / (lam * self.n) * slope
            gaps[i] = gap.clamp_min(0.0)
            if total is not None and shares is not None:
                total += shares[step] * w
        return DualIterate(w, statistics, gaps), total

    def _block(self, w: Tensor, own: tuple[Tensor, ...], i: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Direction s − m_i to the output s of the oracle, and the block gap."""
        self.oracle_calls += 1
        augmented = tuple(p + c for p, c in zip(self.potentials(w, i), self.part_costs(i), strict=True))
        direction = _minus(self.best_parts(augmented, i), own)
        return direction, _inner(augmented, direction) / self.n

    def _own(self, statistics: Tensor, i: int) -> tuple[Tensor, ...]:
        """Views of the statistics of example i."""
        shapes = [part.shape for part in self.label_parts(i)]
        begin, end = self._offsets[i : i + 2]
        pieces = statistics[begin:end].split([shape.numel() for shape in shapes])
        return tuple(piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True))

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


def _line_search(gain: float, curvature: float) -> float:
    """The γ in [0, 1] that maximizes γ · gain − γ²/2 · curvature."""
    if gain <= 0:
        return 0.0
    return 1.0 if gain >= curvature else gain / curvature


def _flat(parts: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


def _inner(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([(x * y).sum() for x, y in zip(a, b, strict=True)]).sum()


def _minus(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))
