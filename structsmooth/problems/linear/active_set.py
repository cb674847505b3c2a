"""The outputs that one example of a dual iterate holds: its active set and its cache, in one structure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Steps = Literal["fw", "pairwise", "away"]

# A rest of less weight has no statistics to speak of: it is left where it is.
LEAST_REST = 1e-9


@dataclass(frozen=True)
class Cache:
    """When an output of the cache will do: if its gap is at least max(factor · g_i, least) (Osokin et al. 2016, 3.3).

    Attributes:
        factor: of the block gap g_i, as of the last oracle call on the example.
        least: in any case.
    """

    factor: float
    least: float


class HeldOutputs:
    """Outputs of one example in slots. Those with a weight α > 0 are the active set, those with a stamp the cache.

    The weights sum to 1 at most. What they lack to m is the rest, an atom without an output: there may be more outputs
    in m than there are slots.

    Args:
        outputs: what the slots hold, [capacity, m_i]; changed in place, as the weights and stamps.
        alpha: weights, [capacity].
        stamps: the larger, the later the output was of use; 0 for one that is not in the cache, [capacity].
        parts: ν.
    """

    def __init__(
        self, outputs: Tensor, alpha: Tensor, stamps: Tensor, parts: Callable[[Tensor], tuple[Tensor, ...]]
    ) -> None:
        self.outputs, self.alpha, self.stamps, self.parts = outputs, alpha, stamps, parts
        self.away: int | None = None
        self.towards = True

    def best(self, augmented: tuple[Tensor, ...]) -> Tensor | None:
        """The output of the cache with the largest score, if there is one."""
        cached = self.stamps.nonzero()[:, 0].tolist()
        if not cached:
            return None
        return self.outputs[max(cached, key=lambda c: float(inner(augmented, self.parts(self.outputs[c]))))].long()

    def choose(
        self, steps: Steps, augmented: tuple[Tensor, ...], own: tuple[Tensor, ...], towards: tuple[Tensor, ...]
    ) -> tuple[Tensor, float, tuple[Tensor, ...]]:
        """Gain, longest step and direction, given the direction s − m towards an output."""
        self.away, weight, atom = self._worst(augmented, own)
        away = minus(own, atom)
        gain, away_gain = inner(augmented, towards), inner(augmented, away)
        if steps == "pairwise":
            return gain + away_gain, weight, tuple(a + b for a, b in zip(towards, away, strict=True))
        if away_gain > gain and weight < 1 - LEAST_REST:
            self.towards = False
            return away_gain, weight / (1 - weight), away
        self.away = None
        return gain, 1.0, towards

    def reweight(self, output: Tensor, size: float, longest: float) -> None:
        """Weights after a step in the direction chosen."""
        if self.away is None or not self.towards:
            self.alpha *= 1 - size if self.towards else 1 + size
        if self.away is not None and self.away < len(self.alpha):
            self.alpha[self.away] = 0.0 if size == longest else (self.alpha[self.away] - size).clamp_min(0.0)
        if self.towards:
            self.alpha[self._slot(output)] += size

    def stamp(self, output: Tensor) -> None:
        """Keep an output in the cache as the last that was of use."""
        slot = self._slot(output)
        self.stamps[slot] = self.stamps.max() + 1

    def _worst(self, augmented: tuple[Tensor, ...], own: tuple[Tensor, ...]) -> tuple[int, float, tuple[Tensor, ...]]:
        """The atom of the smallest score, its weight and its statistics; the rest is behind the last slot."""
        held = {c: self.parts(self.outputs[c]) for c in self.alpha.nonzero()[:, 0].tolist()}
        rest = 1 - float(self.alpha.sum())
        weights = {c: float(self.alpha[c]) for c in held}
        if rest > LEAST_REST:
            for c, atom in held.items():
                own = tuple(m - weights[c] * part for m, part in zip(own, atom, strict=True))
            held[len(self.alpha)], weights[len(self.alpha)] = tuple(m / rest for m in own), rest
        worst = min(held, key=lambda c: float(inner(augmented, held[c])))
        return worst, weights[worst], held[worst]

    def _slot(self, output: Tensor) -> int:
        """Slot of an output: its own, or that of the least weight, among these the one of the least stamp."""
        held = (self.alpha > 0) | (self.stamps > 0)
        same = ((self.outputs == output).all(1) & held).nonzero()
        if len(same):
            return int(same[0])
        slot = min(range(len(self.alpha)), key=lambda c: (float(self.alpha[c]), int(self.stamps[c])))
        # What it had becomes part of the rest.
        self.outputs[slot], self.alpha[slot], self.stamps[slot] = output, 0.0, 0
        return slot


def inner(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> Tensor:
    """⟨a, b⟩ of two tuples of the same shapes."""
    return torch.stack([(x * y).sum() for x, y in zip(a, b, strict=True)]).sum()


def minus(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """a − b of two tuples of the same shapes."""
    return tuple(x - y for x, y in zip(a, b, strict=True))
