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
        offsets = tuple(torch.where(own, p, 0.0) for own, p in zip(finite, potentials, strict=True))
        barriers = tuple(torch.where(own, 0.0, p) for own, p in zip(finite, potentials, strict=True))
        return cls(
            offsets if any(bool(own.any()) for own in offsets) else None,
            None if all(bool(own.all()) for own in finite) else barriers,
        )

    def without(self, potentials: Parts) -> Parts:
        """Potentials less what is constant: B w, and 0 for forbidden parts; differentiable."""
        if self.offsets is not None:
            potentials = tuple(p - own for p, own in zip(potentials, self.offsets, strict=True))
        if self.barriers is None:
            return potentials
        return tuple(torch.where(own == 0, p, 0.0) for p, own in zip(potentials, self.barriers, strict=True))

    def with_barriers(self, potentials: Parts) -> Parts:
        """Finite potentials as the oracle takes them: −inf for forbidden parts."""
        if self.barriers is None:
            return potentials
        return tuple(p + own for p, own in zip(potentials, self.barriers, strict=True))

    def has_barriers_of(self, potentials: Parts) -> bool:
        """Whether the same potentials are not finite."""
        barriers = self.barriers or tuple(map(torch.zeros_like, potentials))
        return all(torch.equal(p.isfinite(), own == 0) for p, own in zip(potentials, barriers, strict=True))

    def forbid(self, parts: Parts) -> bool:
        """Whether one of the parts that an output has is forbidden."""
        if self.barriers is None:
            return False
        return any(bool(((m > 0) & (own == -torch.inf)).any()) for m, own in zip(parts, self.barriers, strict=True))

    def score(self, parts: Parts) -> float:
        """⟨offsets, m⟩, the score that no weight changes, of the parts of an output."""
        if self.offsets is None:
            return 0.0
        return sum(float((own * m).sum()) for own, m in zip(self.offsets, parts, strict=True))
