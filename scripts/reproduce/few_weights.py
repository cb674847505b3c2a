"""Soft constraints for the 22 weights of the paper's model of photographs (Meshi et al. 2015, figure 2, right)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from scripts.reproduce.number_claims import Numbers
from scripts.reproduce.objectives import draw_objectives, hard_objective
from structsmooth import BCFW, FactorGraph, FactorGraphProblem, LinearModuleProblem, ScoreModule, SoftBCFW
from structsmooth.history import History
from structsmooth.solvers import Progress, Solver
from structsmooth.tasks import Scenes

_LAM = 1.0
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
    for label, solver in track(SOLVERS.items(), "22 weights", transient=True):
        problem = LinearModuleProblem(module, _pairs(training), collate=_alone, chunk_size=1)
        watch = _Watch(testing)
        histories[label] = solver.solve(problem, lam=_LAM, passes=passes, callbacks=[watch]).history
    draw_objectives(
        {label: [own] for label, own in histories.items()}, out / "objectives.png", "accuracy", "22 weights"
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
