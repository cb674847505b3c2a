"""What a paper says about an experiment, in a form that its outcome can confirm or not."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Evidence = TypeVar("Evidence")


@dataclass(frozen=True)
class Reading:
    """What the runs say of a claim.

    Attributes:
        share: the part of the objectives on which it holds, from 0 to 1.
        seen: the numbers.
    """

    share: float
    seen: str

    @property
    def verdict(self) -> str:
        """How far the claim holds, in words."""
        if self.share == 1:
            return "holds"
        return "holds in part" if self.share > 0 else "does not hold here"


@dataclass(frozen=True)
class Claim(ABC, Generic[Evidence]):
    """A statement about solvers.

    Args:
        says: the statement.
        ours: whether it is one of this library and not of the paper; the two are counted apart.
    """

    says: str
    ours: bool = field(default=False, kw_only=True)

    @property
    def test(self) -> str:
        """What is measured, and where it cuts: the statement holds if this is so."""
        return self._test()

    def read(self, runs: Evidence) -> Reading:
        """Hold the statement against runs."""
        return self._read(runs)

    @abstractmethod
    def _test(self) -> str:
        """The test of a kind of statement."""

    @abstractmethod
    def _read(self, runs: Evidence) -> Reading:
        """The reading of a kind of statement."""
