"""The score of alignments: linear in features of pairs of words."""

import torch
from torch import Tensor

from structsmooth.scores import ScoreModule
from structsmooth.structures import Matching


class AlignmentScore(ScoreModule):
    """Matchings of words with linear scores of links, relative to leaving both words without one.

    Words without a link score 0: what a weight for them would add is a constant minus what it adds to every link, where
    the weights of a constant feature and of features of single words already have it.

    Args:
        features: number of features of a pair of words.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(features, dtype=torch.float64))

    def forward(self, x: tuple[Tensor, Tensor]) -> Matching:
        """The matchings of a batch: features [B, N, M, D], and sizes [B, 2]."""
        features, sizes = x
        alone = features.new_zeros(features.shape[:2])
        return Matching(features @ self.weights, sizes, unmatched_rows=alone, validate_args=False)


def padded(tensors: list[Tensor]) -> Tensor:
    """A batch of vectors or tables of different sizes, with zeros at padding."""
    shape = [max(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True)]
    batch = tensors[0].new_zeros(len(tensors), *shape)
    for row, tensor in zip(batch, tensors, strict=True):
        row[tuple(map(slice, tensor.shape))] = tensor
    return batch


def batched(features: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Features [N, M, D] of several sentence pairs, padded, and their sizes."""
    return padded(features), torch.tensor([table.shape[:2] for table in features])
