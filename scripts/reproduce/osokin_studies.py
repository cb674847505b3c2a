"""Studies of Osokin et al. (2016): true gaps of heuristic paths (figure 7b), and gains of gap sampling (figure 1c)."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scripts.reproduce.number_claims import Numbers
from structsmooth import BCFW
from structsmooth.cli.report import progress_bar
from structsmooth.plots.panels import panels
from structsmooth.problems import LinearProblem
from structsmooth.problems.affine import minus
from structsmooth.solvers import Progress, RegularizationPath, SolutionPath
from structsmooth.tasks import OCR

EPSILON, KAPPAS = 0.1, (0.1, 0.5, 0.7, 0.9, 0.99)
_LAM_MIN = 2.0**-15
# Of the gain of gap sampling.
_LAM = 0.01


def _words(data: Path) -> LinearProblem:
    """The words of fold 0."""
    task = OCR()
    examples = task.read(f"{data}/ocr/ocr_letters.npz#0")
    return task.fit(examples).problem(examples)


def heuristic_paths(solver: BCFW) -> Callable[[Path, Path, bool], Numbers]:
    """A study of heuristic paths by a solver, for several κ."""

    def study(data: Path, out: Path, quick: bool) -> Numbers:
        problem, numbers, found = _words(data), dict[str, Sequence[float]](), dict[float, SolutionPath]()
        for kappa in KAPPAS:
            algorithm = RegularizationPath(EPSILON, kappa, verified=False, solver=solver)
            path = found[kappa] = algorithm.solve(problem, lam_min=0.1 if quick else _LAM_MIN)
            last = path.breakpoints[-1]
            numbers |= {
                f"gaps, κ = {kappa:g}": true_gaps(problem, path),
                f"calls, κ = {kappa:g}": [float(last.oracle_calls)],
                f"seconds, κ = {kappa:g}": [last.seconds],
                f"λ, κ = {kappa:g}": [point.lam for point in path.breakpoints],
            }
        _draw_paths(found, numbers, out / "gaps.png", problem.n)
        return numbers

    return study


def true_gaps(problem: LinearProblem, path: SolutionPath) -> list[float]:
    """The duality gap of the weights at every breakpoint: their own objective, above the dual of the breakpoint.

    The dual is known without an oracle call, so that it is the estimate of the objective less that of the gap.
    """
    gaps = []
    for j, point in enumerate(path.breakpoints):
        weights = path.weights(j).double()
        objective = problem.loss(weights) + point.lam / 2 * float(weights @ weights)
        gaps.append(objective - (point.objective - point.gap))
    return gaps


def _draw_paths(found: Mapping[float, SolutionPath], numbers: Numbers, path: Path, n: int) -> None:
    with panels(path, (3, 1), (8, 8.4), "words of fold 0, heuristic paths, ε = 0.1") as grid:
        calls, seconds, gaps = grid[:, 0]
        for kappa, solutions in found.items():
            lams, points = numbers[f"λ, κ = {kappa:g}"], solutions.breakpoints
            calls.plot(lams, [point.oracle_calls / n for point in points], label=f"κ = {kappa:g}")
            seconds.plot(lams, [point.seconds for point in points])
            gaps.plot(lams, numbers[f"gaps, κ = {kappa:g}"])
        gaps.axhline(EPSILON, color="grey", linestyle=":")
        calls.set(xscale="log", yscale="log", ylabel=f"effective passes (n = {n:,} oracle calls)")
        seconds.set(xscale="log", yscale="log", ylabel="seconds")
        gaps.set(xscale="log", ylabel="gap", xlabel="λ")
        calls.legend()
        gaps.invert_xaxis()


def predicted_gains(data: Path, out: Path, quick: bool) -> Mapping[str, Sequence[float]]:
    """χ(g)³/χ(C) after each pass of BCFW, by the kind of sampling: of the true block gaps g and of the curvatures C.

    χ(x) = √(1 + n² Var(x/‖x‖₁)) measures how uneven the entries of a vector are. Theorem 2 bounds the suboptimality of
    exact gap sampling by that of uniform sampling over this factor. C_i is proportional to the largest
    ‖B_iᵀ(ν(y_i) − ν(y))‖² of the outputs y of the oracle that a run has seen.
    """
    problem, passes, found = _words(data), 30 if quick else 150, {}
    for sampling in ("uniform", "gap"):
        watch = _Watch(problem)
        solver = BCFW(sampling=sampling, steps="fw", gap_tolerance=0)
        with progress_bar(passes, "", f"{sampling} sampling") as draw:
            solver.solve(problem, lam=_LAM, passes=passes, callbacks=[watch, draw])
        found[sampling] = watch.gains()
    _draw_gains(found, out / "gains.png")
    return found


class _Watch:
    """Keeps how uneven the block gaps are after each pass, and the largest steps that the oracle has asked for."""

    def __init__(self, problem: LinearProblem) -> None:
        self.problem, self.unevenness = problem, list[float]()
        self.squares = torch.zeros(problem.n, dtype=torch.float64)

    def __call__(self, progress: Progress[Any]) -> None:
        state, problem = progress.state, self.problem
        self.unevenness.append(unevenness(problem.block_gaps(state.weights, state.point.statistics)))
        answers = problem.best_statistics(state.weights)
        for block in range(problem.n):
            change = minus(problem.block_statistics(answers, block), problem.label_parts(block))
            square = problem.feature_map.squared_norm(change, block)
            self.squares[block] = max(float(self.squares[block]), square)

    def gains(self) -> list[float]:
        """χ(g)³/χ(C) after each pass."""
        return [value**3 / unevenness(self.squares) for value in self.unevenness]


def unevenness(values: Tensor) -> float:
    """χ of a vector without negative entries: 1 if all are equal, √n if all but one are zero."""
    shares = values.clamp_min(0) / values.clamp_min(0).sum()
    return math.sqrt(1 + len(shares) ** 2 * float(shares.var(correction=0)))


def _draw_gains(found: Mapping[str, Sequence[float]], path: Path) -> None:
    with panels(path, (1, 1), (6, 4)) as ((panel,),):
        for sampling, gains in found.items():
            panel.plot(np.arange(len(gains)), gains, label=f"{sampling} sampling")
        panel.set(
            title="words of fold 0, λ = 0.01", xlabel="passes", ylabel="predicted gain, χ(g)³/χ(C)", ylim=(0, None)
        )
        panel.legend(fontsize="small")
