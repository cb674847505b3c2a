"""Studies of Meshi et al. (2015): 22 weights for photographs (figure 2, right), and training sizes (figure 3)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scripts.reproduce.number_claims import Numbers
from scripts.reproduce.objectives import draw_objectives, hard_objective
from structsmooth import BCFW, FactorGraph, LinearModuleProblem, ScoreModule, SoftBCFW
from structsmooth.history import History
from structsmooth.messages import tracked
from structsmooth.plots.panels import panels
from structsmooth.problems import FactorGraphProblem, LinearProblem
from structsmooth.solvers import Progress, Solver
from structsmooth.tasks import Multilabel, Scenes

_LAM, _LAM_OF_GENES = 1.0, 0.01
# 1.96 standard errors to either side hold 95 % of a normal distribution.
_NORMAL_95 = 1.96
SOLVERS: Mapping[str, Solver[Any]] = {
    **{
        f"soft, {rho:g}": SoftBCFW(rho=rho, penalty="constant", steps="fw", gap_tolerance=0) for rho in (10.0, 1.0, 0.1)
    },
    "Frank-Wolfe": BCFW(sampling="uniform", steps="fw", gap_tolerance=0),
}


class FewWeights(ScoreModule):
    """A weight for each class, and one for agreement: superpixel i of class s scores w_s log p_i(s)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = nn.Parameter(torch.zeros(classes, dtype=torch.float64))
        self.agreement = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x: tuple[Tensor, Tensor]) -> FactorGraph:
        """The graph of an image, from log-probabilities [1, N, S] and edges [E, 2]."""
        log_p, edges = x
        table = self.agreement * torch.eye(len(self.classes), dtype=torch.float64)
        return FactorGraph(log_p * self.classes, edges, table)


def photographs(data: Path, out: Path, quick: bool) -> Numbers:
    """Seconds to the best objective that all solvers reach, and accuracies of superpixels, weighed by their pixels."""
    task = Scenes(graph="stars")
    archive = f"{data}/msrc21/msrc21_250.zip"
    examples = task.read(f"{archive}#{'val' if quick else 'train+val'}")
    fitted = task.fit(examples)
    training = fitted.problem(examples)
    testing = fitted.problem(task.read(f"{archive}#{'val' if quick else 'test'}"))
    module, passes = FewWeights(training.states), 2 if quick else 10
    histories = {}
    for label, solver in tracked(SOLVERS.items(), "22 weights", len(SOLVERS)):
        problem = LinearModuleProblem(module, _pairs(training), collate=_alone, chunk_size=1)
        watch = _Watch(testing)
        histories[label] = solver.solve(problem, lam=_LAM, passes=passes, callbacks=[watch]).history
    draw_objectives(
        {label: [history] for label, history in histories.items()}, out / "objectives.png", "accuracy", "22 weights"
    )
    return numbers_of(histories)


def numbers_of(histories: Mapping[str, History]) -> Numbers:
    """What claims are about, by name."""
    target = max(min(map(hard_objective, history)) for history in histories.values())
    found: dict[str, Sequence[float]] = {}
    for label, history in histories.items():
        row = next(row for row in history if hard_objective(row) <= target)
        found |= {f"seconds, {label}": [row.seconds], f"accuracy, {label}": [history[-1].metrics["accuracy"]]}
    soft = [history[-1].metrics["accuracy"] for label, history in histories.items() if label.startswith("soft")]
    return found | {"differences of accuracy": [max(soft) - min(soft)]}


class _Watch:
    """Adds the accuracy on the superpixels of test images."""

    def __init__(self, problem: FactorGraphProblem) -> None:
        self.inputs, self.graphs = _pairs(problem), problem.graphs

    def __call__(self, progress: Progress[Any]) -> None:
        weights = progress.state.weights
        module = FewWeights(len(weights) - 1)
        nn.utils.vector_to_parameters(weights.detach(), module.parameters())
        right = total = 0.0
        with torch.no_grad():
            for block, (x, (y, _)) in enumerate(self.inputs):
                found = module((x[0][None], x[1])).max()[1][0]
                nodes = self.graphs.nodes_of(block)
                counted = self.graphs.costs[nodes] * (self.graphs.types[nodes] == 0)  # of fine superpixels
                right, total = right + float(counted @ (found == y).double()), total + float(counted.sum())
        progress.row.metrics["accuracy"] = right / total


def _pairs(problem: FactorGraphProblem) -> list[tuple[Any, Any]]:
    """Log-probabilities and edges, with labels and what it costs to miss them."""
    pairs, graphs = [], problem.graphs
    for block in range(problem.n):
        nodes = graphs.nodes_of(block)
        y, edges = graphs.labels[nodes], graphs.edges[graphs.edges_of(block)]
        costs = graphs.costs[nodes, None] * (1 - nn.functional.one_hot(y, problem.states))
        pairs.append(((graphs.base_scores[nodes], edges), (y, costs)))
    return pairs


def _alone(examples: list[Any]) -> Any:
    """A batch of one: graphs have edges of their own."""
    (((log_p, edges), (y, costs)),) = examples
    return (log_p[None], edges), (y[None], costs[None])


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
    for size, indices in tracked(draws, "training sets"):
        found[str(size)].append(_difference(problem, indices, passes))
    _draw_differences(found, out / "difference.png")
    return found


def _difference(problem: LinearProblem, indices: Tensor, passes: int) -> float:
    part = problem.subset(indices)
    soft = SoftBCFW(rho=1.0, penalty="constant", gap_tolerance=1e-4).solve(part, lam=_LAM_OF_GENES, passes=passes)
    hard = SoftBCFW(rho=3.0, gap_tolerance=1e-4).solve(part, lam=_LAM_OF_GENES, passes=passes)  # fast for all sizes
    return soft.history[-1].metrics["hard_objective"] - min(row.objective for row in hard.history)


def _draw_differences(found: Mapping[str, Sequence[float]], path: Path) -> None:
    means = [np.mean(values) for values in found.values()]
    errors = [_NORMAL_95 * np.std(values, ddof=1) / len(values) ** 0.5 for values in found.values()]
    with panels(path, (1, 1), (6, 4), "yeast, λ = 0.01, ρ = 1") as grid:
        panel = grid[0, 0]
        panel.errorbar([int(size) for size in found], means, errors, marker="o", capsize=3)
        panel.set(xscale="log", ylim=(0, None), xlabel="training examples", ylabel="g(w, δ) − g*")
