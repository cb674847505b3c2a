"""Predictions of linear chains over sparse attributes, for tasks on sequences."""

from collections.abc import Sequence
from typing import Any, TextIO

import torch
from torch import Tensor

from structsmooth.scores import linear_chain
from structsmooth.sequences import SparseSequences
from structsmooth.tag_schemes import TransitionMask

# Sequences that are padded to one batch.
_BATCH = 256


def best_labels(
    sequences: SparseSequences, weights: Tensor, states: int, k: int, mask: TransitionMask | None = None
) -> list[list[tuple[float, list[int]]]]:
    """The k best labellings of each sequence with their scores, best first; fewer where there are no more.

    Args:
        sequences: n sequences over F attributes.
        weights: of a :class:`~structsmooth.SparseChainProblem`, (F + S + 2)·S.
        states: number S of labels.
        k: at least 1.
        mask: which labels may follow each other, begin and end; all if not given.
    """
    rows, transition, ends = weights.view(-1, states).tensor_split([-states - 2, -2])
    if mask is not None:
        transition = transition + mask.transition.to(weights)
        ends = ends + torch.stack([mask.start, mask.stop]).to(weights)
    found = []
    for indices in torch.arange(len(sequences)).split(_BATCH):
        batch = sequences.select(indices)
        values, y = linear_chain(batch, rows, transition, ends).topk(k)
        for length, scores, outputs in zip(batch.lengths.tolist(), values.tolist(), y.tolist(), strict=True):
            ranked = zip(scores, outputs, strict=True)
            found.append([(score, output[:length]) for score, output in ranked if score > -torch.inf])
    return found


def write_scores(ranked: Sequence[tuple[float, Any]], stream: TextIO) -> None:
    """A comment line with the scores of alternatives; nothing where there is only one."""
    if len(ranked) > 1:
        stream.write("# scores " + " ".join(f"{score:.6g}" for score, _ in ranked) + "\n")
