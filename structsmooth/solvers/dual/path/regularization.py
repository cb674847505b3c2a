"""Weights for every λ: the ε-approximate regularization path (Osokin et al. 2016, Algorithm 7)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from structsmooth.problems.base import Problem
from structsmooth.problems.bounds import is_cone
from structsmooth.settings import Positive, check_settings, positive_lam
from structsmooth.solvers.bcfw import BCFW
from structsmooth.solvers.dual.base import checked_hinges
from structsmooth.solvers.dual.path.solution import SolutionPath
from structsmooth.solvers.dual.path.walk import Walk
from structsmooth.solvers.state import Status

_KAPPA, _HEURISTIC_KAPPA = 0.9, 0.7


@dataclass(frozen=True)
class RegularizationPath:
    """Hyperparameters of the ε-approximate regularization path; :meth:`solve` computes it.

    For every λ from λ_min upwards it finds weights whose duality gap is at most ε. From weights with a gap of at most
    κε at one λ, the path goes down to the smallest λ where the same weights have a gap of ε (Algorithm 7). There a
    solver of the dual goes on from its last iterate until the gap is κε again.

    Args:
        epsilon: ε, in units of the objective.
        kappa: κ, between 0 and 1: the larger, the more breakpoints, each with less work. If not given, 0.9, or 0.7 for
            a heuristic path: the choices of the paper.
        verified: check every gap by an oracle call on each example, at most once a pass. Otherwise the path is
            heuristic: it trusts block gaps as last seen, and guarantees nothing.
        solver: solver of the dual. Its tolerance is κε, and whether it averages does not matter.

    Example:
        >>> import torch
        >>> from structsmooth.problems import SparseChainProblem, SparseSequences
        >>> from structsmooth.solvers import RegularizationPath
        >>> offsets = torch.tensor([0, 1, 2, 3])
        >>> sequences = SparseSequences(torch.tensor([0, 1, 1], dtype=torch.int32), offsets, offsets)
        >>> problem = SparseChainProblem(sequences, torch.tensor([0, 1, 0]), features=2, states=2)
        >>> path = RegularizationPath(epsilon=0.05).solve(problem, lam_min=0.01)
        >>> w = path.weights_at(0.1)
        >>> bool(problem.loss(w) + 0.1 / 2 * w @ w <= 0.05 + problem.loss(problem.start()))
        True
    """

    epsilon: Positive = 0.1
    kappa: Positive | None = None
    verified: bool = True
    solver: BCFW = field(default_factory=BCFW)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.kappa is not None and self.kappa >= 1:
            raise ValueError(f"kappa must be below 1, got {self.kappa}")

    @property
    def tolerance(self) -> float:
        """The gap κε to which single values of λ are solved."""
        default = _KAPPA if self.verified else _HEURISTIC_KAPPA
        return self.epsilon * (default if self.kappa is None else self.kappa)

    def solve(
        self,
        problem: Problem,
        *,
        lam_min: float | str,
        lam_max: float | str | None = None,
        passes: int = 1000,
        seed: int = 0,
        callbacks: Iterable[Callable[[SolutionPath], None]] = (),
    ) -> SolutionPath:
        """Compute the path down to λ_min, or to where its last weights serve all smaller λ.

        Args:
            problem: a linear problem of hinges.
            lam_min: λ_min > 0, a number or text such as ``"0.1/n"``.
            lam_max: where to begin, in the same form. If not given, or larger than necessary, the path has weights for
                all larger λ too.
            passes: limit on passes for one breakpoint; the path ends where they do not suffice.
            seed: of the order of examples; same seed, same path.
            callbacks: called with the path so far after every breakpoint; their time does not count.

        Raises:
            TypeError: a problem that is not linear, numbers of the wrong type.
            ValueError: a problem not of hinges, with bounds that are neither zero nor infinite, or whose optimum is
                zero weights for every λ; λ_min ≤ 0, or λ_max below it; too few passes for the first breakpoint.

        Returns:
            A :class:`SolutionPath`. Ctrl-C returns the breakpoints found so far.
        """
        lam_min = positive_lam(lam_min, problem.total_weight, "lam_min")
        if lam_max is not None:
            lam_max = positive_lam(lam_max, problem.total_weight, "lam_max")
            if lam_max < lam_min:
                raise ValueError(f"lam_max must be at least lam_min = {lam_min}, got {lam_max}")
        if not is_cone(problem.bounds):
            raise ValueError(
                "RegularizationPath takes bounds of zero and of infinity alone; with others, solve for several λ: "
                "grid_search, structsmooth compare"
            )
        checked_hinges("RegularizationPath", problem, lam_min)
        walk = Walk(problem, self.solver, passes, seed)
        path = SolutionPath(self.epsilon, self.verified, problem.dim)
        try:
            path.top = walk.begin_at_infinity(self.tolerance, lam_max)
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
