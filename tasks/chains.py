"""Predictions of linear chains, for tasks on sequences."""

from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from structsmooth.markup import Matrix
from structsmooth.scores import linear_chain
from structsmooth.sequences import Sequences as TokenSequences
from structsmooth.structures import LinearChain
from structsmooth.tag_schemes import TransitionMask
from structsmooth.tasks.progress import tracked

# Sequences, and tokens with padding, of a batch: one long sequence would pad many.
_BATCH, _TOKENS = 256, 1 << 16


def best_labels(
    sequences: TokenSequences,
    weights: Tensor,
    states: int,
    k: int,
    mask: TransitionMask | None = None,
    transition_scale: float = 1.0,
) -> list[list[tuple[float, list[int]]]]:
    """The k best labellings of each sequence with their scores, best first; fewer where there are no more.

    Args:
        sequences: n sequences over F features.
        weights: of a :class:`~structsmooth.SparseChainProblem` or :class:`~structsmooth.DenseChainProblem`,
            (F + S + 2)·S.
        states: number S of labels.
        k: at least 1.
        mask: which labels may follow each other, begin and end; all if not given.
        transition_scale: that of the problem.
    """
    found = []
    for chain in _chains(sequences, weights, states, mask, transition_scale):
        values, y = chain.topk(k)
        for length, scores, outputs in zip(chain.lengths.tolist(), values.tolist(), y.tolist(), strict=True):
            ranked = zip(scores, outputs, strict=True)
            found.append([(score, output[:length]) for score, output in ranked if score > -torch.inf])
    return found


def label_marginals(
    sequences: TokenSequences,
    weights: Tensor,
    states: int,
    mask: TransitionMask | None = None,
    transition_scale: float = 1.0,
) -> list[Tensor]:
    """Probabilities of the labels of the tokens of each sequence, [T, S], for arguments as of :func:`best_labels`.

    Those of the Gibbs distribution, in which the probability of a labelling is proportional to the exponential of its
    score.
    """
    found = []
    for chain in _chains(sequences, weights, states, mask, transition_scale):
        nodes = chain.marginals()[0]
        found += [own[:length] for own, length in zip(nodes, chain.lengths.tolist(), strict=True)]
    return found


def transition_matrix(weights: Tensor, names: Sequence[str], transition_scale: float, what: str) -> Matrix:
    """Learned scores of pairs of labels, of first labels and of last ones, for weights as of :func:`best_labels`.

    Args:
        weights: (F + S + 2)·S.
        names: of the S labels.
        transition_scale: that of the problem.
        what: a label is called, such as "tag".
    """
    _, transition, ends = weights.detach().view(-1, len(names)).tensor_split([-len(names) - 2, -2])
    values = np.full((len(names) + 1, len(names) + 1), np.nan)
    values[1:, :-1] = transition_scale * transition
    values[0, :-1], values[1:, -1] = ends
    rows, columns = ["start", *names], [*names, "end"]
    return Matrix(f"Scores of pairs of {what}s", rows, columns, values, what, f"next {what}")


def _chains(
    sequences: TokenSequences, weights: Tensor, states: int, mask: TransitionMask | None, transition_scale: float
) -> Iterator[LinearChain]:
    """The chains of all sequences, in batches."""
    rows, transition, ends = weights.view(-1, states).tensor_split([-states - 2, -2])
    transition = transition_scale * transition
    if mask is not None:
        transition = transition + mask.transition.to(weights)
        ends = ends + torch.stack([mask.start, mask.stop]).to(weights)
    for indices in tracked(list(_batches(sequences.lengths.tolist())), "predicting"):
        yield linear_chain(sequences.select(torch.tensor(indices)), rows, transition, ends)


def _batches(lengths: Sequence[int]) -> Iterator[range]:
    """Ranges of consecutive sequences: as many as a batch may have, but at least one."""
    begin, longest = 0, 0
    for end, length in enumerate(lengths):
        longest = max(longest, length)
        if end > begin and (end - begin == _BATCH or (end - begin + 1) * longest > _TOKENS):
            yield range(begin, end)
            begin, longest = end, length
    if lengths:
        yield range(begin, len(lengths))


def write_scores(ranked: Sequence[tuple[float, Any]], stream: TextIO) -> None:
    """A comment line with the scores of alternatives; nothing where there is only one."""
    if len(ranked) > 1:
        stream.write("# scores " + " ".join(f"{score:.6g}" for score, _ in ranked) + "\n")
