"""A point of the dual, and the active set and cache of one of its blocks."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts, inner, minus
from structsmooth.problems.linear.base import LinearProblem

Steps = Literal["fw", "pairwise", "away", "best"]

# A rest of less weight has no meaningful statistics: it stays where it is.
LEAST_REST = 1e-9
# Of two directions on the same line, which lead to the same point, rounding must not choose: it takes a clear advantage
# to replace the first.
CLEARLY_MORE = 1 + 1e-9


@dataclass(frozen=True)
class Cache:
    """Steps take an atom of the cache if its gap is at least max(factor · g_i, least) (Osokin et al. 2016, 3.3).

    Attributes:
        factor: factor of the block gap g_i, as of the last oracle call on the block.
        least: the smallest gap in any case.
    """

    factor: float
    least: float


@dataclass(frozen=True)
class Direction:
    """Where a step goes from the statistics m of a block: towards an atom s, away from an atom v, or from v to s."""

    statistics: Parts  # s − m, m − v or s − v
    gain: Tensor  # ⟨θ + ℓ, direction⟩
    longest: float = 1.0  # the largest step
    towards: bool = True  # whether s is part of it
    away: int | None = None  # slot of v; ``None`` if v is no part of it

    @classmethod
    def between(cls, statistics: Parts, atom: Parts, augmented: Parts) -> "Direction":
        """The direction from the statistics of a block to those of an atom."""
        towards = minus(atom, statistics)
        return cls(towards, inner(augmented, towards))


class ActiveSet:
    """Atoms of one block in slots: slots with a weight α > 0 are the active set, slots with a stamp are the cache.

    The weights sum to 1 at most. What is missing to 1 is the weight of the rest: one more atom, known by its statistics
    alone, since m may consist of more outputs than there are slots.

    Args:
        atoms: the atom of each slot, [capacity, m_i]; changed in place, as weights and stamps are.
        alpha: weights, [capacity].
        stamps: the larger, the more recently used the atom; 0 for an atom that is not in the cache, [capacity].
        parts: ν, the statistics of an atom.
        scores: ⟨potentials, ν⟩ of atoms [c, m_i] under potentials, [c].
    """

    def __init__(
        self,
        atoms: Tensor,
        alpha: Tensor,
        stamps: Tensor,
        parts: Callable[[Tensor], Parts],
        scores: Callable[[Parts, Tensor], Tensor],
    ) -> None:
        self.atoms, self.alpha, self.stamps, self.parts, self.scores = atoms, alpha, stamps, parts, scores

    @classmethod
    def of(cls, problem: LinearProblem, point: "DualIterate", block: int) -> "ActiveSet":
        """Views of what a block of a dual iterate holds; without slots where there are none."""
        begin, end = problem.atom_offsets[block : block + 2]
        capacity = point.alphas.shape[1]
        atoms = point.outputs[begin * capacity : end * capacity].view(capacity, end - begin)
        alphas, stamps = (t[block] if t.numel() else t.new_zeros(capacity) for t in (point.alphas, point.stamps))

        def plain(atoms: Tensor) -> Tensor:
            return atoms if atoms.is_floating_point() else atoms.long()

        return cls(
            atoms,
            alphas,
            stamps,
            lambda atom: problem.parts(plain(atom), block),
            lambda potentials, atoms: problem.atom_scores(potentials, plain(atoms), block),
        )

    def at_least(self, least: float, augmented: Parts) -> Tensor | None:
        """The atom of the cache with the largest score, if that is ``least`` or more."""
        cached = self.atoms[self.stamps.nonzero()[:, 0]]
        if least == math.inf or len(cached) == 0:
            return None
        score, best = self.scores(augmented, cached).max(0)
        return cached[int(best)] if float(score) >= least else None

    def directions(self, steps: Steps, augmented: Parts, statistics: Parts, towards: Direction) -> list[Direction]:
        """What a step chooses among, given the Frank-Wolfe direction ``towards`` s − m (Algorithms 3 and 4)."""
        if steps == "fw":
            return [towards]
        slot, weight, atom = self._worst(augmented, statistics)
        away = minus(statistics, atom)
        away_gain = inner(augmented, away)
        both = tuple(a + b for a, b in zip(towards.statistics, away, strict=True))
        pairwise = Direction(both, towards.gain + away_gain, weight, away=slot)
        if steps == "pairwise":
            return [pairwise]
        found = [towards, pairwise] if steps == "best" else [towards]
        if weight < 1 - LEAST_REST and (steps == "best" or away_gain > towards.gain):
            found.append(Direction(away, away_gain, weight / (1 - weight), towards=False, away=slot))
        return found if steps == "best" else found[-1:]

    def reweight(self, direction: Direction, atom: Tensor, size: float) -> None:
        """Weights after a step of some size towards ``atom``, or only away from another."""
        if not direction.towards or direction.away is None:
            self.alpha *= 1 - size if direction.towards else 1 + size
        if direction.away is not None and direction.away < len(self.alpha):
            left = self.alpha[direction.away] - size
            self.alpha[direction.away] = 0.0 if size == direction.longest else left.clamp_min(0.0)
        if direction.towards:
            self.alpha[self._slot(atom)] += size

    def stamp(self, atom: Tensor) -> None:
        """Keep an atom in the cache as the most recently used."""
        slot = self._slot(atom)
        self.stamps[slot] = self.stamps.max() + 1

    def _worst(self, augmented: Parts, statistics: Parts) -> tuple[int, float, Parts]:
        """The active atom of the smallest score: slot, weight and statistics; the rest is behind the last slot."""
        slots = self.alpha.nonzero()[:, 0]
        weights = self.alpha[slots]
        scores = self.scores(augmented, self.atoms[slots]).to(weights) if len(slots) else weights
        rest = 1 - float(weights.sum())
        of_slots = float(weights @ scores)
        of_rest = (float(inner(augmented, statistics)) - of_slots) / rest if rest > LEAST_REST else math.inf
        if len(slots) == 0 or of_rest < float(scores.min()):
            for atom, weight in zip(self.atoms[slots], weights.tolist(), strict=True):
                statistics = tuple(m - weight * part for m, part in zip(statistics, self.parts(atom), strict=True))
            return len(self.alpha), rest, tuple(m / rest for m in statistics)
        slot = int(slots[scores.argmin()])
        return slot, float(self.alpha[slot]), self.parts(self.atoms[slot])

    def _slot(self, atom: Tensor) -> int:
        """Slot of an atom: its own, else the slot of the least weight and, among equals, of the least stamp."""
        held = (self.alpha > 0) | (self.stamps > 0)
        same = ((self.atoms == atom).all(1).to(held.device) & held).nonzero()
        if len(same):
            return int(same[0])
        ranks = list(zip(self.alpha.tolist(), self.stamps.tolist(), strict=True))
        slot = ranks.index(min(ranks))
        # The evicted atom becomes part of the rest.
        self.atoms[slot], self.alpha[slot], self.stamps[slot] = atom, 0.0, 0
        return slot


@dataclass(frozen=True)
class DualIterate:
    """A point of the dual of a linear problem, as block-coordinate solvers carry it.

    Attributes:
        weights: v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim]; clipped to the bounds they are the weights.
        statistics: m_i of all blocks, see :meth:`LinearProblem.label_statistics`; or packed, see
            :meth:`LinearProblem.packed`.
        gaps: block gaps g_i, each as of the last oracle call on its block, [blocks].
        outputs: atoms that the blocks hold, see :meth:`LinearProblem.label_sets`; empty where steps need none.
        alphas: weights of the active sets among them, [blocks, capacity].
        stamps: marks of the caches among them, int32 [blocks, capacity]; see
            :class:`ActiveSet`. They may be empty if there are no caches.
    """

    weights: Tensor
    statistics: Tensor
    gaps: Tensor
    outputs: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    alphas: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    stamps: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.int32))

    def copy(self, statistics: Tensor) -> "DualIterate":
        """A copy that may be changed in place, with these statistics."""
        tensors = {name: tensor.clone() for name, tensor in vars(self).items() if name != "statistics"}
        return DualIterate(**tensors, statistics=statistics.clone())
