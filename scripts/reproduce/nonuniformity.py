"""The gain of gap sampling that its theory predicts (Osokin et al. 2016, figure 1c)."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth import BCFW, LinearProblem
from structsmooth.cli.report import progress_bar
from structsmooth.plots.panels import panel_grid
from structsmooth.problems.affine import minus
from structsmooth.solvers import Progress
from structsmooth.tasks import OCR

_LAM = 0.01


def predicted_gains(data: Path, out: Path, quick: bool) -> Mapping[str, Sequence[float]]:
    """χ(g)³/χ(C) after each pass of BCFW, by the kind of sampling: of the true block gaps g and of the curvatures C.

    χ(x) = √(1 + n² Var(x/‖x‖₁)) measures how uneven the entries of a vector are. Theorem 2 bounds the suboptimality of
    exact gap sampling by that of uniform sampling over this factor. C_i is proportional to the largest
    ‖B_iᵀ(ν(y_i) − ν(y))‖² of the outputs y of the oracle that a run has seen.
    """
    task, passes = OCR(), 30 if quick else 150
    examples = task.read(f"{data}/ocr/ocr_letters.npz#0")
    problem = task.fit(examples).problem(examples)
    found = {}
    for sampling in ("uniform", "gap"):
        watch = _Watch(problem)
        solver = BCFW(sampling=sampling, steps="fw", gap_tolerance=0)
        with progress_bar(passes, "", f"{sampling} sampling") as draw:
            solver.solve(problem, lam=_LAM, passes=passes, callbacks=[watch, draw])
        found[sampling] = watch.gains()
    _draw(found, out / "gains.png")
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


def _draw(found: Mapping[str, Sequence[float]], path: Path) -> None:
    figure, grid = panel_grid(1, 1, (6, 4), "words of fold 0, λ = 0.01")
    panel = grid[0, 0]
    for sampling, gains in found.items():
        panel.plot(np.arange(len(gains)), gains, label=f"{sampling} sampling")
    panel.set(xlabel="passes", ylabel="predicted gain, χ(g)³/χ(C)", ylim=(0, None))
    panel.legend()
    figure.savefig(path, dpi=120)
