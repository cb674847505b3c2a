"""Which examples to show: those that a model gets most wrong, and those that it is least certain of."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from structsmooth.messages import tracked
from structsmooth.tasks.base import Predictions
from structsmooth.tasks.probabilities import ProbabilisticTask
from structsmooth.tasks.trained import TrainedModel, train

# Examples of the same cost whose margins are computed, at most.
_MOST_TIES = 50


@dataclass(frozen=True)
class Wrong:
    """An example with a wrong output.

    Attributes:
        index: of the example.
        cost: how wrong the output is, by the task's ``mistake``.
        violation: structural hinge loss: by how much the margin is violated; ``None`` where it is not defined.
    """

    index: int
    cost: float
    violation: float | None


def most_wrong(model: TrainedModel, examples: Sequence[Any], outputs: Sequence[Any], count: int) -> list[Wrong]:
    """The wrong examples of largest cost, by their best outputs, and among them those whose margin is violated most."""
    costs = [model.task.mistake(example, output) for example, output in zip(examples, outputs, strict=True)]
    wrong = heapq.nlargest(len(costs), (i for i, cost in enumerate(costs) if cost > 0), key=costs.__getitem__)
    tied = [i for i in wrong if costs[i] >= costs[wrong[:count][-1]]][: max(count, _MOST_TIES)] if count else []
    found = [Wrong(i, costs[i], _violation(model, examples[i])) for i in tied]
    return sorted(found, key=lambda one: (-one.cost, -(one.violation or 0.0)))[:count]


class Mistake(NamedTuple):
    """A wrong part of the best output of an example: number of the example, what the part is, and its probability."""

    example: int
    part: str
    probability: float


def most_confident(model: TrainedModel, examples: Sequence[Any], outputs: Sequence[Any], count: int) -> list[Mistake]:
    """The wrong parts of best outputs that are most probable under the model; none of tasks without probabilities."""
    task = model.task
    if not isinstance(task, ProbabilisticTask):
        return []
    found = task.part_probabilities(model.weights, examples, [[output] for output in outputs])
    mistakes = [
        Mistake(index, name, probability)
        for index, (example, output, (probabilities,)) in enumerate(zip(examples, outputs, found, strict=True))
        for name, probability, right in zip(
            task.part_names(example, output), probabilities, task.right_parts(example, output), strict=True
        )
        if right is False
    ]
    return heapq.nlargest(count, mistakes, key=lambda one: one.probability)


def doubtful(model: TrainedModel, examples: Sequence[Any], folds: Sequence[Sequence[int]], count: int) -> list[Mistake]:
    """Likely mistakes of labels: the most confident mistakes of models that were trained on the other folds.

    They are trained as :func:`~structsmooth.tasks.trained.train` does, with the task, λ and temperature of ``model``.
    ``folds`` are numbers of examples.
    """
    if not isinstance(model.task, ProbabilisticTask):
        return []
    found = list[Mistake]()
    for fold in tracked(folds, "folds"):
        others = [examples[i] for i in sorted({*range(len(examples))} - {*fold})]
        other = train(model.task.task, others, lam=model.description["settings"].get("lam"))
        assert isinstance(other.task, ProbabilisticTask)
        other = replace(other, task=replace(other.task, temperature=model.task.temperature))
        held_out = other.task.examples([examples[i] for i in fold])
        mistakes = most_confident(other, held_out, other.predict(held_out), count)
        found += [one._replace(example=fold[one.example]) for one in mistakes]
    return heapq.nlargest(count, found, key=lambda one: one.probability)


def most_uncertain(predictions: Predictions, count: int) -> list[tuple[int, float]]:
    """The examples whose second-best output scores nearly as much as the best, with the differences.

    Args:
        predictions: two best outputs of each example; those with only one are certain.
        count: number of examples wanted.
    """
    margins = [(i, ranked[0][0] - ranked[1][0]) for i, ranked in enumerate(predictions) if len(ranked) > 1]
    return heapq.nsmallest(count, margins, key=lambda one: one[1])


def _violation(model: TrainedModel, example: Any) -> float | None:
    try:
        return model.task.problem([example]).loss(model.weights)
    except ValueError:  # no model of the training data has this label
        return None
