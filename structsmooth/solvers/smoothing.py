"""Solvers that smooth the losses of a problem."""

from dataclasses import dataclass
from typing import Literal

from structsmooth.smoothing import L2, Entropy, Smoother
from structsmooth.solvers.base import Solver
from structsmooth.solvers.checks import check_choices
from structsmooth.solvers.state import S
from structsmooth.structures.base import check_k


@dataclass(frozen=True)
class SmoothingSolver(Solver[S]):
    """A solver whose steps call a smoothed oracle.

    Args:
        k: number of outputs of the top-K oracle (ℓ₂ smoothing).
        smoothing: ``"l2"`` for the top-K oracle or ``"entropy"`` for the exp oracle.
    """

    k: int = 5
    smoothing: Literal["l2", "entropy"] = "l2"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_k(self.k)
        check_choices(self, "smoothing")

    @property
    def oracle(self) -> str:
        """The oracle of the smoother."""
        return "top-K" if self.smoothing == "l2" else "exp"

    def smooth(self, mu: float) -> Smoother:
        """The smoother of level ``mu``."""
        return L2(mu, self.k) if self.smoothing == "l2" else Entropy(mu)
