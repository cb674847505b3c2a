"""Finite sums of structural hinges whose potentials are linear in the weights, and their dual in the space of parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.problems.boxes import line_search

Steps = Literal["fw", "pairwise", "away"]

# A rest of less weight has no statistics to speak of: it is left where it is.
LEAST_REST = 1e-9


@dataclass(frozen=True)
class DualIterate:
    """A point of the dual of a linear problem, as block-coordinate solvers carry it.

    Attributes:
        weights: v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim]: those of the problem, but for its bounds.
        statistics: m_i of all examples, see :meth:`LinearProblem.label_statistics`.
        gaps: block gaps g_i, each as of when its example was last seen, [n].
        outputs: active sets, see :meth:`LinearProblem.label_sets`; empty where steps need none.
        alphas: their weights, 0 for a free slot, [n, capacity].
    """

    weights: Tensor
    statistics: Tensor
    gaps: Tensor
    outputs: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    alphas: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))


class _ActiveSet:
    """Outputs of one example with their weights α > 0, which sum to 1 at most.

    What they lack to m is the rest, an atom without an output: there may be more outputs in m than there are slots.
    """

    def __init__(self, outputs: Tensor, alpha: Tensor, parts: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
        self.outputs, self.alpha, self.parts = outputs, alpha, parts
        self.away: int | None = None
        self.towards = True

    def choose(
        self, steps: Steps, augmented: tuple[Tensor, ...], own: tuple[Tensor, ...], towards: tuple[Tensor, ...]
    ) -> tuple[Tensor, float, tuple[Tensor, ...]]:
        """Gain, longest step and direction, given the direction s − m towards the output of the oracle."""
        self.away, weight, atom = self._worst(augmented, own)
        away = _minus(own, atom)
        gain, away_gain = _inner(augmented, towards), _inner(augmented, away)
        if steps == "pairwise":
            return gain + away_gain, weight, tuple(a + b for a, b in zip(towards, away, strict=True))
        if away_gain > gain and weight < 1 - LEAST_REST:
            self.towards = False
            return away_gain, weight / (1 - weight), away
        self.away = None
        return gain, 1.0, towards

    def update(self, output: Tensor, size: float, longest: float) -> None:
        """Weights after a step."""
        if self.away is None or not self.towards:
            self.alpha *= 1 - size if self.towards else 1 + size
        if self.away is not None and self.away < len(self.alpha):
            self.alpha[self.away] = 0.0 if size == longest else (self.alpha[self.away] - size).clamp_min(0.0)
        if self.towards:
            self.alpha[self._slot(output)] += size

    def _worst(self, augmented: tuple[Tensor, ...], own: tuple[Tensor, ...]) -> tuple[int, float, tuple[Tensor, ...]]:
        """The atom of the smallest score, its weight and its statistics; the rest is behind the last slot."""
        held = {c: self.parts(self.outputs[c]) for c in self.alpha.nonzero()[:, 0].tolist()}
        rest = 1 - float(self.alpha.sum())
        weights = {c: float(self.alpha[c]) for c in held}
        if rest > LEAST_REST:
            for c, atom in held.items():
                own = tuple(m - weights[c] * part for m, part in zip(own, atom, strict=True))
            held[len(self.alpha)], weights[len(self.alpha)] = tuple(m / rest for m in own), rest
        worst = min(held, key=lambda c: float(_inner(augmented, held[c])))
        return worst, weights[worst], held[worst]

    def _slot(self, output: Tensor) -> int:
        """Slot of an output: its own, or a free one, or that of the least weight, which becomes part of the rest."""
        same = ((self.outputs == output).all(1) & (self.alpha > 0)).nonzero()
        if len(same):
            return int(same[0])
        slot = int(self.alpha.argmin())
        self.outputs[slot], self.alpha[slot] = output, 0.0
        return slot


class LinearProblem(Problem):
    """A finite sum of structural hinge losses with potentials θ_i = B_i w.

    Its dual is to maximize D(m) = (1/n) Σ ⟨ℓ_i, m_i⟩ − λh*(v) over statistics m_i, one for each example, where
    v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)) and h*(v) = ½‖v‖², or what :mod:`structsmooth.problems.boxes` says if there are
    ``bounds``. At the weights w = v, clipped to the bounds, F(w) − D(m) is the sum of the block gaps
    g_i = (1/n) max_s ⟨θ_i + ℓ_i, s − m_i⟩ (Osokin et al. 2016, section 2.3 and appendix H).

    A subclass gives what one example has: potentials, adjoint, costs, labels and max oracle, as tuples with a tensor
    for each kind of part. Statistics have the shapes of the potentials. The passes below are plain torch and may be
    overridden by faster ones that give the same iterates.
    """

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
        costs = (_inner(self.part_costs(i), self._own(statistics, i)) for i in range(self.n))
        return sum(map(float, costs)) / self.n

    def dual_weights(self, statistics: Tensor, lam: float) -> Tensor:
        """v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim]; the weights of the dual iterate are these, within the bounds."""
        v = torch.zeros_like(self.start())
        for i in range(self.n):
            v -= self.adjoint(_minus(self._own(statistics, i), self.label_parts(i)), i) / (lam * self.n)
        return v

    def block_gaps(self, w: Tensor, statistics: Tensor) -> Tensor:
        """The block gaps g_i of all examples, by one oracle call on each: [n]."""
        gaps = []
        for i in range(self.n):
            augmented, output = self._call(w, i)
            gaps.append(_inner(augmented, _minus(self.parts(output, i), self._own(statistics, i))) / self.n)
        return torch.stack(gaps)

    def label_sets(self, capacity: int) -> tuple[Tensor, Tensor]:
        """Active sets that hold the labels alone: outputs, int32 [Σ m_i · capacity], and weights, [n, capacity]."""
        outputs = [self.label_output(i).repeat(capacity) for i in range(self.n)]
        alphas = torch.zeros(self.n, capacity, dtype=torch.float64)
        alphas[:, 0] = 1
        return torch.cat(outputs).int(), alphas

    def frank_wolfe_epoch(
        self, point: DualIterate, order: Tensor, *, lam: float, steps: Steps = "fw", shares: Tensor | None = None
    ) -> tuple[DualIterate, Tensor | None]:
        """Block-coordinate Frank-Wolfe steps with line search (Osokin et al. 2016, Algorithms 1 to 4).

        Returns the last point, and Σ_t shares[t] · w_t where shares are given.

        Args:
            point: start; with active sets, if steps are not ``"fw"``.
            order: the example of each step, int64 [steps]; or numbers in [0, 1), float64 [steps], which choose the
                examples with probabilities in proportion to the gaps as they are at that step.
            lam: λ > 0 of the problem.
            steps: ``"fw"`` towards the output of the oracle; ``"pairwise"`` from the worst output of the active set to
                it; ``"away"`` for one towards it, or away from the worst, as the gaps say.
            shares: weight of each iterate in the sum, float64 [steps].
        """
        point = DualIterate(*(tensor.clone() for tensor in vars(point).values()))
        v, total = point.weights, None if shares is None else torch.zeros_like(point.weights)
        for step, choice in enumerate(order):
            i = _chosen(choice, point.gaps)
            own, w = self._own(point.statistics, i), self.within_bounds(v)
            augmented, output = self._call(w, i)
            towards = _minus(self.parts(output, i), own)
            gain, longest, direction = _inner(augmented, towards), 1.0, towards
            point.gaps[i] = (gain / self.n).clamp_min(0.0)
            if steps != "fw":
                atoms = self._active_set(point, i)
                gain, longest, direction = atoms.choose(steps, augmented, own, towards)
            change = self.adjoint(direction, i).div_(-lam * self.n)
            size = line_search(float(gain) / (lam * self.n), v, change, longest, self.bounds)
            if steps != "fw" and size > 0:
                atoms.update(output, size, longest)
            for m, d in zip(own, direction, strict=True):
                m += size * d
            v += size * change
            if total is not None and shares is not None:
                total += shares[step] * self.within_bounds(v)
        return point, total

    def _call(self, w: Tensor, i: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """θ_i + ℓ_i, and the output of the oracle."""
        self.oracle_calls += 1
        augmented = tuple(p + c for p, c in zip(self.potentials(w, i), self.part_costs(i), strict=True))
        return augmented, self.best_output(augmented, i)

    def _active_set(self, point: DualIterate, i: int) -> _ActiveSet:
        capacity = point.alphas.shape[1]
        begin, end = self._output_offsets[i : i + 2]
        outputs = point.outputs[begin * capacity : end * capacity].view(capacity, end - begin)
        return _ActiveSet(outputs, point.alphas[i], lambda output: self.parts(output.long(), i))

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


def _inner(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([(x * y).sum() for x, y in zip(a, b, strict=True)]).sum()


def _minus(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))
