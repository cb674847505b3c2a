"""Solutions for all λ at once: the ε-approximate regularization path (Osokin et al. 2016, section 4)."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from structsmooth.checkpoint import load_state, save_state
from structsmooth.problems.base import Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.solvers.base import Status, check_number
from structsmooth.solvers.dual.bcfw import BCFW, BCFWState
from structsmooth.solvers.dual.frank_wolfe import checked_hinges

# How far costs may raise the bound on λ where the path begins, relatively: they do not count at large weights.
_EXCESS = 0.01
# How much larger it is than need be, so that gaps stay within the tolerance when weights are rounded.
_ROUNDING = 1e-5
_KAPPA, _HEURISTIC_KAPPA = 0.9, 0.7


@dataclass(frozen=True)
class Breakpoint:
    """Weights of a path, from λ where they were found down to the next breakpoint.

    Attributes:
        lam: λ_j.
        gap: duality gap of the weights at λ_j; an estimate on a heuristic path.
        loss: (1/n) Σ f_i of the weights; likewise.
        objective: F of the weights at λ_j; likewise.
        passes: passes of the solver so far.
        oracle_calls: inferences so far, those of checks included.
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
        """The duality gap of the same weights at λ ≤ λ_j: that with ρ = λ/λ_j, and ρ of the dual iterate (12)."""
        ratio = lam / self.lam
        return ratio * self.gap + (1 - ratio) * self.loss

    def least_lam(self, epsilon: float) -> float:
        """The λ down to which that gap is at most ε (13); 0 if it always is."""
        return 0.0 if self.loss <= epsilon else self.lam * (self.loss - epsilon) / (self.loss - self.gap)


@dataclass
class SolutionPath:
    """Weights for every λ from ``end`` upwards.

    From each breakpoint to the next the weights are constant, and above the first one they are in proportion to 1/λ.
    They are stored in float32, and only where some are not zero. The gaps are those of the stored weights.

    Attributes:
        epsilon: ε: no gap is larger, neither at the breakpoints nor between them.
        verified: whether all gaps are known, or those of a heuristic path are estimates.
        dim: number of weights.
        top: the largest λ: infinite, or where the path was told to begin.
        breakpoints: in the order of falling λ.
        status: ``CONVERGED`` if the path is as long as it was to be, or why not.
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
        """The number of the breakpoint whose weights are those for λ.

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
        """Write one safetensors file, atomically; what is no tensor is JSON in it."""
        sizes = torch.tensor([len(values) for values in self._values])
        tensors = {"support": self._support, "sizes": sizes, "values": torch.cat(self._values)}
        numbers = {"epsilon": self.epsilon, "verified": self.verified, "dim": self.dim}
        top = None if math.isinf(self.top) else self.top
        rows = [asdict(point) for point in self.breakpoints]
        save_state(path, tensors, {**numbers, "top": top, "status": self.status.value, "breakpoints": rows})

    @classmethod
    def load(cls, path: str | Path) -> SolutionPath:
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


@dataclass(frozen=True)
class RegularizationPath:
    """Hyperparameters of the ε-approximate regularization path; :meth:`solve` computes it.

    For every λ from λ_min upwards there will be weights whose duality gap is at most ε. From weights with a gap of at
    most κε at one λ, the path goes down to the smallest λ where the same weights have a gap of ε (Algorithm 7). There
    a solver of the dual starts from what it was, until the gap is κε again.

    Args:
        epsilon: ε, in units of the objective.
        kappa: κ, between 0 and 1: the larger, the more breakpoints, each with less work. If not given 0.9, and 0.7 for
            a heuristic path: the choices of the paper.
        verified: check every gap by an oracle call on each example, once a pass or less. If not, the path is
            heuristic: it takes block gaps as last seen for those of now, and guarantees nothing.
        solver: of the dual. Its tolerance is κε, and whether it averages does not matter.

    Example:
        >>> from structsmooth import RegularizationPath, SparseChainProblem, SparseSequences
        >>> offsets = torch.tensor([0, 1, 2, 3])
        >>> sequences = SparseSequences(torch.tensor([0, 1, 1], dtype=torch.int32), offsets, offsets)
        >>> problem = SparseChainProblem(sequences, torch.tensor([0, 1, 0]), features=2, states=2)
        >>> path = RegularizationPath(epsilon=0.05).solve(problem, lam_min=0.01)
        >>> w = path.weights_at(0.1)
        >>> bool(problem.loss(w) + 0.1 / 2 * w @ w <= 0.05 + problem.loss(problem.start()))
        True
    """

    epsilon: float = 0.1
    kappa: float | None = None
    verified: bool = True
    solver: BCFW = field(default_factory=BCFW)

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, positive=True)
        if self.kappa is not None:
            check_number("kappa", self.kappa, positive=True)
            if self.kappa >= 1:
                raise ValueError(f"kappa must be below 1, got {self.kappa}")

    @property
    def tolerance(self) -> float:
        """κε."""
        default = _KAPPA if self.verified else _HEURISTIC_KAPPA
        return self.epsilon * (default if self.kappa is None else self.kappa)

    def solve(
        self,
        problem: Problem,
        *,
        lam_min: float,
        lam_max: float | None = None,
        passes: int = 1000,
        seed: int = 0,
        callbacks: Iterable[Callable[[SolutionPath], None]] = (),
    ) -> SolutionPath:
        """The path down to λ_min, or to where its last weights are good for all smaller λ.

        Args:
            problem: a linear problem of hinges.
            lam_min: λ_min > 0.
            lam_max: where to begin. If not given, or larger than need be, with weights for all larger λ too.
            passes: limit on passes for one breakpoint; the path ends where they do not suffice.
            seed: of the order of examples; same seed, same path.
            callbacks: called with the path so far after every breakpoint; their time does not count.

        Raises:
            TypeError: a problem that is not linear, numbers of the wrong type.
            ValueError: a problem not of hinges, with bounds, or whose optimum is zero weights for every λ; λ_min ≤ 0,
                or λ_max below it; too few passes for the first breakpoint.

        Returns:
            A :class:`SolutionPath`. Ctrl-C returns the breakpoints found so far.
        """
        check_number("lam_min", lam_min, positive=True)
        if lam_max is not None:
            check_number("lam_max", lam_max, positive=True)
            if lam_max < lam_min:
                raise ValueError(f"lam_max must be at least lam_min = {lam_min}, got {lam_max}")
        if problem.bounds is not None:
            raise ValueError(
                "RegularizationPath takes no bounds on weights; solve for several λ: grid_search, structsmooth compare"
            )
        checked_hinges("RegularizationPath", problem, lam_min)
        walk = _Walk(problem, self.solver, passes, seed)
        path = SolutionPath(self.epsilon, self.verified, problem.dim)
        try:
            path.top = walk.begin_path(self.tolerance, lam_max)
            while walk.reach(self.tolerance, self.verified or not path.breakpoints):
                path.append(walk.breakpoint(), walk.weights)
                for callback in callbacks:
                    callback(path)
                if path.end <= lam_min:
                    return path
                walk.lower(path.end)
            path.status = Status.PASS_LIMIT
        except KeyboardInterrupt:
            if not path.breakpoints:
                raise
            path.status = Status.INTERRUPTED
        if not path.breakpoints:
            raise ValueError(f"passes must be enough to begin at lam = {walk.lam:.4g}, got {passes}")
        return path


def grid_search(
    problem: Problem,
    lams: Sequence[float],
    *,
    epsilon: float = 0.1,
    solver: BCFW = BCFW(),  # noqa: B008 - immutable
    warm_start: bool = True,
    passes: int = 1000,
    seed: int = 0,
    callbacks: Iterable[Callable[[Breakpoint], None]] = (),
) -> list[Breakpoint]:
    """What solutions for single λ cost, all with a gap of at most ε: what a path is compared with.

    Args:
        problem: a linear problem of hinges.
        lams: values of λ, falling.
        epsilon: ε.
        solver: of the dual.
        warm_start: start from the weights for the last λ, not from zero.
        passes: limit on passes for one λ; a row whose gap is larger than ε ran into it.
        seed: of the order of examples.
        callbacks: called with every row.

    Raises:
        TypeError: a problem that is not linear.
        ValueError: a problem not of hinges, or λ that are not positive and falling.

    Returns:
        A row for each λ; Ctrl-C returns those there are.
    """
    if not all(lam > 0 for lam in lams) or any(a <= b for a, b in pairwise(lams)):
        raise ValueError(f"lams must be positive and falling, got {', '.join(map(str, lams))}")
    walk, rows = _Walk(problem, solver, passes, seed), list[Breakpoint]()
    with suppress(KeyboardInterrupt):
        for lam in lams:
            if warm_start and rows:
                walk.lower(lam)
            else:
                walk.begin(None, lam)
            if not walk.reach(epsilon):
                walk.check()
            rows.append(walk.breakpoint())
            for callback in callbacks:
                callback(rows[-1])
    return rows


class _Walk:
    """A dual iterate on its way to smaller λ, and what that costs."""

    state: BCFWState
    lam: float

    def __init__(self, problem: Problem, solver: BCFW, passes: int, seed: int) -> None:
        check_number("passes", passes, integer=True)
        check_number("seed", seed, integer=True)
        self.solver, self.limit, self.seed = replace(solver, average=False), passes, seed
        self.solver.first_state(problem, 1.0, None, seed)  # refuses problems that are not linear, or not of hinges
        assert isinstance(problem, LinearProblem)
        self.problem, self.labels = problem, problem.label_statistics()
        self.passes, self.oracle_calls, self.seconds = 0, 0, 0.0

    def begin_path(self, tolerance: float, lam_max: float | None) -> float:
        """Algorithm 6: outputs of the max oracle at zero weights, and λ∞, from which on they are within the tolerance.

        Above it their gap is at most λ∞/λ times that at λ∞: the loss is convex on the segment from zero weights, where
        it is their expected cost. Returns the largest λ of the path.
        """
        with self._counted():
            best = self.problem.best_statistics(self.problem.start())
            first = _first_lam(self.problem, best, tolerance)
        if lam_max is None or lam_max >= first:
            self.begin(best, max(first, lam_max or first), gap=0.0)  # to be checked, not improved
            return math.inf
        self.begin(torch.lerp(self.labels, best, lam_max / first), lam_max)
        return lam_max

    def begin(self, statistics: Tensor | None, lam: float, gap: float = math.inf) -> None:
        """Statistics to start from, or the labels; block gaps that are not known are infinite."""
        with self._counted():
            start = None if statistics is None else BCFWState(statistics.new_zeros(0), statistics=statistics)
            state = self.solver.first_state(self.problem, lam, start, self.seed)
        self.lam, self.state = lam, replace(state, gaps=torch.full_like(state.gaps, gap))

    def lower(self, lam: float) -> None:
        """The same weights at a smaller λ, by statistics that are nearer to the labels (Proposition 1)."""
        ratio = lam / self.lam
        with self._counted():
            gaps = (self.state.gaps + (1 - ratio) * self.margins).clamp_min_(0.0)
            self.state = replace(
                self.state,
                statistics=torch.lerp(self.labels, self.state.statistics, ratio),
                gaps=gaps,
                gap=float(gaps.sum()),
                alphas=ratio * self.state.alphas,  # what they lack, the labels now, is the rest
                cost=ratio * self.state.cost,
            )
        self.lam = lam

    def reach(self, tolerance: float, verified: bool = True) -> bool:
        """Make passes until the gap is within the tolerance; whether they sufficed."""
        for left in range(self.limit, -1, -1):
            if float(self.state.gaps.sum()) <= tolerance:
                self.check() if verified else self.estimate()
                if self.gap <= tolerance:
                    return True
            if left > 0:
                self._advance()
        return False

    def check(self) -> None:
        """Gap of the weights as they would be stored, by an oracle call on every example."""
        with self._counted():
            weights = self.state.weights.float().to(self.state.weights)
            self._measure(weights, self.problem.block_gaps(weights, self.state.statistics))

    def estimate(self) -> None:
        """What the gap is if block gaps are as last seen."""
        with self._counted():
            self._measure(self.state.weights, self.state.gaps)

    def breakpoint(self) -> Breakpoint:
        """What was measured last, and the costs so far."""
        return Breakpoint(self.lam, self.gap, self.loss, self.objective, self.passes, self.oracle_calls, self.seconds)

    def _measure(self, weights: Tensor, gaps: Tensor) -> None:
        self.weights, self.margins = weights, self.problem.block_margins(weights, self.state.statistics)
        self.loss = float((gaps + self.margins).sum())
        self.objective = self.loss + self.lam / 2 * float(weights @ weights)
        self.gap = self.objective - self.state.dual(self.lam)
        self.state = replace(self.state, gaps=gaps.clamp_min(0.0))

    def _advance(self) -> None:
        with self._counted():
            rng = np.random.default_rng([self.seed, self.passes])
            self.state = self.solver.advance(self.problem, self.lam, self.state, rng)
            self.passes += 1

    @contextmanager
    def _counted(self) -> Iterator[None]:
        calls, started = self.problem.oracle_calls, time.perf_counter()
        try:
            yield
        finally:
            self.oracle_calls += self.problem.oracle_calls - calls
            self.seconds += time.perf_counter() - started


def _first_lam(problem: LinearProblem, best: Tensor, tolerance: float) -> float:
    """λ∞ of Algorithm 6.

    Its θ_i are maxima of scores alone. Here they are those of scores at large weights with costs, which are no
    smaller.
    """
    direction, cost = problem.dual_weights(best, 1.0), problem.expected_cost(best)
    square = float(direction @ direction)
    if square == 0 or cost == 0:
        raise ValueError("problem must not have zero weights as its optimum for every lam")
    scale = cost / (_EXCESS * square)
    return (1 + _ROUNDING) * (square + problem.loss(scale * direction) / scale) / tolerance
