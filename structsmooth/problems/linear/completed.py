"""Partial labels of a module as two problems with complete labels: among all outputs, and among those that agree."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from structsmooth.costs import Cost
from structsmooth.losses import with_partial_labels
from structsmooth.problems.module import Labels, ModuleProblem, PartialLabels
from structsmooth.scores import ScoreModule
from structsmooth.structures import Structure
from structsmooth.structures.checks import ForbiddenLabelsError

Collate = Callable[[list[Any]], tuple[Any, Labels]]


class Completed(ScoreModule):
    """A module whose inputs are pairs of an input of another one and its partial labels.

    What is known of the labels changes the potentials: those of all outputs by the costs of labels that are known and
    wrong, those of the outputs that agree by −inf for all others. Neither depends on the weights.

    Args:
        module: the other module.
        cost: of labels that are known and wrong.
        agreeing: whether outputs are those that agree with the labels alone.
    """

    def __init__(self, module: nn.Module, cost: Cost | None, agreeing: bool) -> None:
        super().__init__()
        self.module, self.cost, self.agreeing = module, cost, agreeing

    def forward(self, x: tuple[Any, PartialLabels]) -> Structure:
        """The structure of the module, with costs or without the outputs that do not agree."""
        inputs, labels = x
        agreeing, every = with_partial_labels(self.module(inputs), labels.y, labels.allowed, self.cost)
        return agreeing if self.agreeing else every


def completed_collate(collate: Collate, examples: list[Any]) -> tuple[Any, Tensor]:
    """Puts pairs of a pair (x, partial labels) and labels that agree together, by what does it for the inner pairs."""
    pairs, agreeing = zip(*examples, strict=True)
    x, labels = collate(list(pairs))
    assert isinstance(labels, PartialLabels)
    y = torch.zeros(labels.y.shape, dtype=torch.int64)
    for row, values in zip(y, agreeing, strict=True):
        row[tuple(map(slice, values.shape))] = values
    return (x, labels), y


def agreeing_labels(problem: ModuleProblem) -> list[Tensor]:
    """Labels of each example that agree with its partial ones: the best with all weights zero.

    Raises:
        TypeError: a structure whose max oracle answers with statistics.
        ValueError: no output of an example agrees; it is named.
    """
    found = []
    for index in torch.arange(problem.n).split(1):
        x, labels = problem.batch(index)
        assert isinstance(labels, PartialLabels)
        with torch.no_grad():
            structure = problem.structure(torch.zeros_like(problem.start()), x)
            value, y = with_partial_labels(structure, labels.y, labels.allowed, None)[0].max()
        if structure.is_fractional:
            name = type(structure).__name__
            raise TypeError(f"partial labels need outputs, but the max oracle of {name} answers with statistics")
        if bool(value == -torch.inf):
            raise ForbiddenLabelsError(int(problem.numbers(index)), "the problem")
        found.append(y[0].cpu())
    return found
