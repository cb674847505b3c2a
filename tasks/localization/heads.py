"""Scores of boxes, with a score module for each class."""

import copy
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization
from torch.nn.utils.rnn import pad_sequence

from structsmooth.models.localization import BoxELU, BoxLinear, BoxScore
from structsmooth.scores import ScoreModule
from structsmooth.structures import BoxCandidates
from structsmooth.tasks.localization.box_features import load_features
from structsmooth.tasks.localization.examples import Example

HEADS: dict[str, type[BoxLinear | BoxELU]] = {"linear": BoxLinear, "elu": BoxELU}
"""Score modules by their name on the command line."""


class Displaced(nn.Module):
    """Weights as what they were at first plus what is learned, to which regularization then refers."""

    first: Tensor

    def __init__(self, first: Tensor) -> None:
        super().__init__()
        self.register_buffer("first", first.detach().clone(), persistent=False)

    def forward(self, learned: Tensor) -> Tensor:
        """The weights."""
        return self.first + learned

    def right_inverse(self, weights: Tensor) -> Tensor:
        """What is learned."""
        return weights - self.first


class TunedHead(nn.Module):
    """A score of boxes behind a copy of the last layers of a network, of which it learns how far they move."""

    affine = False

    def __init__(self, layers: nn.Module, head: BoxScore) -> None:
        super().__init__()
        self.layers, self.head = copy.deepcopy(layers), head
        for layer in list(self.layers.modules()):
            for name, first in list(layer.named_parameters(recurse=False)):
                register_parametrization(layer, name, Displaced(first))


class ClassHeads(ScoreModule):
    """A score module of boxes for each class, independent of each other.

    With λ = c/n the weights of each class solve a problem of its own, with its n' examples and λ' = c/n'.

    Args:
        heads: a score module for each class, perhaps behind layers of its own.
        classes: their names.
        scale: factor of the features.
    """

    def __init__(self, heads: Iterable[BoxScore | TunedHead], classes: Sequence[str], scale: float) -> None:
        super().__init__()
        heads = list(heads)
        self.heads, self.classes, self.scale = nn.ModuleList(heads), list(classes), scale
        self.affine = all(head.affine for head in heads)

    def forward(self, x: Sequence[Example]) -> BoxCandidates:
        """Boxes of each example, scored by the head of its class; features are read where they are needed."""
        sizes = [len(example.boxes) for example in x]
        mask = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
        scores = pad_sequence([self._scores(example) for example in x], batch_first=True)
        boxes = pad_sequence([example.boxes for example in x], batch_first=True)
        return BoxCandidates(scores, boxes.to(scores.device), mask.to(scores.device))

    def _scores(self, example: Example) -> Tensor:
        """Scores [M] of the boxes of an example."""
        head = cast(BoxScore | TunedHead, self.heads[self.classes.index(example.label)])
        maps = load_features(example.features).to(next(head.parameters()))
        if isinstance(head, TunedHead):
            return head.head.score_maps(head.layers(maps) * self.scale)
        maps = head.feature_maps(maps)
        return head.score_maps(maps.mul_(self.scale))  # the file stays as it is: it is mapped copy-on-write
