"""What potentials have whatever the weights are: finite constants, and the −inf of forbidden parts."""

from dataclasses import dataclass

import torch

from structsmooth.problems.affine import Parts


@dataclass(frozen=True)
class Constants:
    """The potentials of some examples with all weights zero; the others differ from them by B w.

    A forbidden part belongs to the output space: it has potential 0 in the dual, where statistics of it are 0 too, and
    −inf where the oracle is called. Finite constants are an offset of the scores, and are added to the costs.

    Attributes:
        offsets: finite potentials, and 0 for all others; ``None`` if all are 0.
        barriers: potentials that are not finite, and 0 for all others; ``None`` if all are finite.
    """

    offsets: Parts | None
    barriers: Parts | None

    @classmethod
    def of(cls, potentials: Parts) -> "Constants":
        """The constants among potentials with all weights zero."""
        finite = [p.isfinite() for p in potentials]
        offsets = tuple(torch.where(mask, p, 0.0) for mask, p in zip(finite, potentials, strict=True))
        barriers = tuple(torch.where(mask, 0.0, p) for mask, p in zip(finite, potentials, strict=True))
        return cls(
            offsets if any(bool(offset.any()) for offset in offsets) else None,
            None if all(bool(mask.all()) for mask in finite) else barriers,
        )

    def without(self, potentials: Parts) -> Parts:
        """Potentials less what is constant: B w, and 0 for forbidden parts; differentiable."""
        if self.offsets is not None:
            potentials = tuple(p - offset for p, offset in zip(potentials, self.offsets, strict=True))
        if self.barriers is None:
            return potentials
        return tuple(torch.where(barrier == 0, p, 0.0) for p, barrier in zip(potentials, self.barriers, strict=True))

    def with_barriers(self, potentials: Parts) -> Parts:
        """Finite potentials as the oracle takes them: −inf for forbidden parts."""
        if self.barriers is None:
            return potentials
        return tuple(p + barrier for p, barrier in zip(potentials, self.barriers, strict=True))

    def has_barriers_of(self, potentials: Parts) -> bool:
        """Whether the same potentials are not finite."""
        barriers = self.barriers or tuple(map(torch.zeros_like, potentials))
        return all(torch.equal(p.isfinite(), barrier == 0) for p, barrier in zip(potentials, barriers, strict=True))

    def forbid(self, parts: Parts) -> bool:
        """Whether one of the parts that an output has is forbidden."""
        if self.barriers is None:
            return False
        return any(bool(((m > 0) & (b == -torch.inf)).any()) for m, b in zip(parts, self.barriers, strict=True))

    def score(self, parts: Parts) -> float:
        """⟨offsets, m⟩, the score that no weight changes, of the parts of an output."""
        if self.offsets is None:
            return 0.0
        return sum(float((offset * m).sum()) for offset, m in zip(self.offsets, parts, strict=True))
