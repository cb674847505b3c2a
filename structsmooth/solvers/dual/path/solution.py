"""The ε-approximate solutions of a regularization path, and their file."""

import math
from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from structsmooth.checkpoint import load_state, save_state
from structsmooth.solvers.state import Status


@dataclass(frozen=True)
class Breakpoint:
    """Weights of a path, from λ where they were found down to the next breakpoint.

    Attributes:
        lam: λ_j.
        gap: duality gap of the weights at λ_j; an estimate on a heuristic path.
        loss: (1/n) Σ f_i of the weights; an estimate on a heuristic path.
        objective: F of the weights at λ_j; an estimate on a heuristic path.
        passes: passes of the solver so far.
        oracle_calls: inferences so far, including those of checks.
        seconds: time so far.
    """

    lam: float
    gap: float
    loss: float
    objective: float
    passes: int
    oracle_calls: int
    seconds: float

    def gap_at(self, lam: float) -> float:
        """The duality gap of the same weights at λ ≤ λ_j, with the dual iterate scaled by ρ = λ/λ_j (12)."""
        ratio = lam / self.lam
        return ratio * self.gap + (1 - ratio) * self.loss

    def least_lam(self, epsilon: float) -> float:
        """The λ down to which :meth:`gap_at` is at most ε (13); 0 if it always is."""
        return 0.0 if self.loss <= epsilon else self.lam * (self.loss - epsilon) / (self.loss - self.gap)


@dataclass
class SolutionPath:
    """Weights for every λ from ``end`` upwards.

    From each breakpoint to the next the weights are constant, and above the first one they are in proportion to 1/λ.
    They are stored in float32, without those that are zero at every breakpoint so far. All gaps are those of the
    stored weights.

    Attributes:
        epsilon: ε: no gap is larger, neither at the breakpoints nor between them.
        verified: whether all gaps are known; on a heuristic path they are estimates.
        dim: number of weights.
        top: the largest λ: infinite, or where the path was told to begin.
        breakpoints: in the order of falling λ.
        status: ``CONVERGED`` if the path is complete, or why it is not.
    """

    epsilon: float
    verified: bool
    dim: int
    top: float = math.inf
    breakpoints: list[Breakpoint] = field(default_factory=list)
    status: Status = Status.CONVERGED
    _support: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64), repr=False)
    _values: list[Tensor] = field(default_factory=list, repr=False)

    @property
    def end(self) -> float:
        """The smallest λ that there are weights for."""
        return self.breakpoints[-1].least_lam(self.epsilon)

    @property
    def message(self) -> str:
        """Status and extent as a sentence."""
        last = self.breakpoints[-1]
        return (
            f"{self.status.value}: {len(self.breakpoints)} breakpoints, λ from {self.breakpoints[0].lam:.4g} to "
            f"{last.lam:.4g}, good down to {self.end:.4g}; {last.oracle_calls:,} oracle calls, {last.seconds:.1f} s"
        )

    def index(self, lam: float) -> int:
        """The number of the breakpoint whose weights are the ones for λ.

        Raises:
            ValueError: a λ that the path does not reach.
        """
        if not (self.end <= lam <= self.top and lam > 0):
            raise ValueError(f"lam must be positive and from {self.end:.6g} to {self.top:.6g}, got {lam}")
        return max(bisect_right(self.breakpoints, -lam, key=lambda point: -point.lam) - 1, 0)

    def weights_at(self, lam: float) -> Tensor:
        """Weights for λ, float64 [dim].

        Raises:
            ValueError: a λ that the path does not reach.
        """
        j = self.index(lam)
        return min(1.0, self.breakpoints[j].lam / lam) * self.weights(j)

    def gap_at(self, lam: float) -> float:
        """Upper bound on the suboptimality of :meth:`weights_at`; an estimate on a heuristic path.

        Raises:
            ValueError: a λ that the path does not reach.
        """
        point = self.breakpoints[self.index(lam)]
        return point.gap_at(lam) if lam <= point.lam else point.lam / lam * point.gap

    def weights(self, index: int) -> Tensor:
        """Weights of a breakpoint, float64 [dim]."""
        values = self._values[index]
        w = torch.zeros(self.dim, dtype=torch.float64)
        return w.index_copy_(0, self._support[: len(values)], values.double())

    def append(self, point: Breakpoint, weights: Tensor) -> None:
        """Add a breakpoint and its weights, which are stored in float32."""
        new = weights != 0
        new[self._support] = False
        self._support = torch.cat([self._support, new.nonzero()[:, 0]])
        self._values.append(weights[self._support].float())
        self.breakpoints.append(point)

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, atomically; all that is not a tensor is JSON in its metadata."""
        sizes = torch.tensor([len(values) for values in self._values])
        tensors = {"support": self._support, "sizes": sizes, "values": torch.cat(self._values)}
        numbers = {"epsilon": self.epsilon, "verified": self.verified, "dim": self.dim}
        top = None if math.isinf(self.top) else self.top
        rows = [asdict(point) for point in self.breakpoints]
        save_state(path, tensors, {**numbers, "top": top, "status": self.status.value, "breakpoints": rows})

    @classmethod
    def load(cls, path: str | Path) -> "SolutionPath":
        """Read a file of :meth:`save`; executes no code.

        Raises:
            FileNotFoundError: no such file.
            ValueError: another file, or a damaged one.
        """
        tensors, values = load_state(path)
        try:
            return cls(
                values["epsilon"],
                values["verified"],
                values["dim"],
                math.inf if values["top"] is None else values["top"],
                [Breakpoint(**row) for row in values["breakpoints"]],
                Status(values["status"]),
                tensors["support"],
                list(tensors["values"].split(tensors["sizes"].tolist())),
            )
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{path}: not a regularization path, or damaged ({error})") from error
