"""Solvers that smooth the losses of a problem."""

from dataclasses import dataclass
from typing import Literal

from structsmooth.settings import PositiveInt
from structsmooth.smoothing import L2, Entropy, Smoother
from structsmooth.solvers.base import Solver
from structsmooth.solvers.state import S


@dataclass(frozen=True)
class SmoothingSolver(Solver[S]):
    """A solver whose steps call a smoothed oracle.

    Args:
        k: number of outputs of the top-K oracle (ℓ₂ smoothing).
        smoothing: ``"l2"`` for the top-K oracle or ``"entropy"`` for the exp oracle.
    """

    k: PositiveInt = 5
    smoothing: Literal["l2", "entropy"] = "l2"

    @property
    def oracle(self) -> str:
        """The oracle of the smoother."""
        return "top-K" if self.smoothing == "l2" else "exp"

    def smooth(self, mu: float) -> Smoother:
        """The smoother of level ``mu``."""
        return L2(mu, self.k) if self.smoothing == "l2" else Entropy(mu)
