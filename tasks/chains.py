"""Decoding of linear chains over sparse attributes, for tasks on sequences."""

import torch
from torch import Tensor

from structsmooth.scores import linear_chain
from structsmooth.sequences import SparseSequences

# Sequences that are padded to one batch.
_BATCH = 256


def best_labels(
    sequences: SparseSequences, rows: Tensor, transition: Tensor, ends: Tensor, k: int
) -> list[list[tuple[float, list[int]]]]:
    """The k best labellings of each sequence with their scores, best first; fewer where there are no more.

    Args:
        sequences: n sequences over F attributes.
        rows: scores of the labels by attribute: [F, S].
        transition: scores of neighbouring labels: [S, S].
        ends: scores of the first and the last label: [2, S].
        k: at least 1.
    """
    found = []
    for indices in torch.arange(len(sequences)).split(_BATCH):
        batch = sequences.select(indices)
        values, y = linear_chain(batch, rows, transition, ends).topk(k)
        for length, scores, outputs in zip(batch.lengths.tolist(), values.tolist(), y.tolist(), strict=True):
            ranked = zip(scores, outputs, strict=True)
            found.append([(score, output[:length]) for score, output in ranked if score > -torch.inf])
    return found
