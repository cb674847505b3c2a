"""What soft constraints cost for training sets of several sizes (Meshi et al. 2015, figure 3)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from structsmooth import LinearProblem, SoftBCFW
from structsmooth.plots.panels import panel_grid
from structsmooth.tasks import Multilabel

_LAM = 0.01
# 1.96 standard errors to either side hold 95 % of a normal distribution.
_NORMAL_95 = 1.96


def differences(data: Path, out: Path, quick: bool) -> Mapping[str, Sequence[float]]:
    """g(w, δ) at the optimum of the soft problem with ρ = 1, minus g*, over random training sets, by their size.

    g* is the objective that multipliers reach, so that the optimum is smaller by the gap at most.
    """
    sizes, samples, passes = ((50, 200), 2, 100) if quick else ((50, 100, 200, 400, 800, 1500), 10, 500)
    task = Multilabel(scaling="none", inference="relaxed", bias=False)
    examples = task.read(f"{data}/yeast/yeast.npz#train")
    problem, rng = task.fit(examples).problem(examples), np.random.default_rng(0)
    draws = [(size, torch.from_numpy(rng.permutation(problem.n)[:size])) for size in sizes for _ in range(samples)]
    found: dict[str, list[float]] = {str(size): [] for size in sizes}
    for size, indices in track(draws, "training sets", transient=True):
        found[str(size)].append(_difference(problem, indices, passes))
    _draw(found, out / "difference.png")
    return found


def _difference(problem: LinearProblem, indices: Tensor, passes: int) -> float:
    part = problem.subset(indices)
    soft = SoftBCFW(rho=1.0, penalty="constant", gap_tolerance=1e-4).solve(part, lam=_LAM, passes=passes)
    hard = SoftBCFW(rho=3.0, gap_tolerance=1e-4).solve(part, lam=_LAM, passes=passes)  # fast for all sizes
    return soft.history[-1].metrics["hard_objective"] - min(row.objective for row in hard.history)


def _draw(found: Mapping[str, Sequence[float]], path: Path) -> None:
    figure, grid = panel_grid(1, 1, (6, 4), "yeast, λ = 0.01, ρ = 1")
    means = [np.mean(values) for values in found.values()]
    errors = [_NORMAL_95 * np.std(values, ddof=1) / len(values) ** 0.5 for values in found.values()]
    panel = grid[0, 0]
    panel.errorbar([int(size) for size in found], means, errors, marker="o", capsize=3)
    panel.set(xscale="log", ylim=(0, None), xlabel="training examples", ylabel="g(w, δ) − g*")
    figure.savefig(path, dpi=120)
