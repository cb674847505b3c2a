"""Predictions of linear chains from sequences and weights, in batches."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from structsmooth.kernels import FittedKernel
from structsmooth.messages import tracked
from structsmooth.scores import TransitionMask, linear_chain
from structsmooth.sequences import DenseSequences
from structsmooth.sequences import Sequences as TokenSequences
from structsmooth.structures import LinearChain

# Sequences, and tokens with padding, of a batch: one long sequence would pad many.
_BATCH, _TOKENS = 256, 1 << 16


def best_labels(batches: Iterable[LinearChain], k: int) -> list[list[tuple[float, list[int]]]]:
    """The k best labellings of each sequence with their scores, best first; fewer where there are no more."""
    found = []
    for chain in batches:
        values, y = chain.topk(k)
        for length, scores, outputs in zip(chain.lengths.tolist(), values.tolist(), y.tolist(), strict=True):
            ranked = zip(scores, outputs, strict=True)
            found.append([(score, output[:length]) for score, output in ranked if score > -torch.inf])
    return found


def scored_by_kernel(
    kernel: FittedKernel, points: Tensor, lengths: Tensor, weights: Tensor, states: int
) -> tuple[DenseSequences, Tensor]:
    """Sequences and weights that score as features of a kernel do, by kernel values alone, without the features.

    Args:
        kernel: gives the features of tokens.
        points: of all tokens, [tokens, D].
        lengths: of the sequences, int64 [n].
        weights: of the features, and of pairs and ends of labels.
        states: number S of labels.
    """
    rows, others = weights.view(-1, states).tensor_split([-states - 2])
    sequences = DenseSequences.of(kernel.scores(points, rows), lengths)
    return sequences, torch.cat([torch.eye(states).to(rows), others]).flatten()


def label_marginals(batches: Iterable[LinearChain]) -> list[Tensor]:
    """Probabilities of the labels of the tokens of each sequence, [T, S].

    Those of the Gibbs distribution, in which the probability of a labelling is proportional to the exponential of its
    score.
    """
    found: list[Tensor] = []
    for chain in batches:
        pairs = zip(chain.class_marginals(), chain.lengths.tolist(), strict=True)
        found += [nodes[:length] for nodes, length in pairs]
    return found


def labelled(batches: Iterable[LinearChain], labels: Sequence[Tensor]) -> Iterator[tuple[LinearChain, Tensor]]:
    """Batches of chains with their labels [B, T], 0 at padding, of labels [T] for each sequence."""
    begin = 0
    for chain in batches:
        yield chain, pad_sequence(list(labels[begin : begin + len(chain)]), batch_first=True)
        begin += len(chain)


def chains(
    sequences: TokenSequences,
    weights: Tensor,
    states: int,
    mask: TransitionMask | None = None,
    transition_scale: float = 1.0,
    allowed: Sequence[Tensor] | None = None,
) -> Iterator[LinearChain]:
    """The chains of all sequences, in batches.

    Args:
        sequences: n sequences over F features.
        weights: of a :class:`~structsmooth.problems.SparseChainProblem` or
            :class:`~structsmooth.problems.DenseChainProblem`, (F + S + 2)·S.
        states: number S of labels.
        mask: which labels may follow each other, begin and end; all if not given.
        transition_scale: that of the problem.
        allowed: which labels each token of each sequence may have, bool [T, S]; all if not given.
    """
    rows, transition, ends = weights.view(-1, states).tensor_split([-states - 2, -2])
    transition = transition_scale * transition
    if mask is not None:
        transition = transition + mask.transition.to(weights)
        ends = ends + torch.stack([mask.start, mask.stop]).to(weights)
    for indices in tracked(list(batches_of(sequences.lengths.tolist())), "predicting"):
        chain = linear_chain(sequences.select(torch.tensor(indices)), rows, transition, ends)
        if allowed is not None:
            kept = pad_sequence([allowed[i] for i in indices], batch_first=True, padding_value=True)
            chain = chain.replace(torch.where(kept, chain.unary, -torch.inf), chain.transition)
        yield chain


def batches_of(lengths: Sequence[int]) -> Iterator[range]:
    """Ranges of consecutive sequences: as many as a batch may have, but at least one."""
    begin, longest = 0, 0
    for end, length in enumerate(lengths):
        longest = max(longest, length)
        if end > begin and (end - begin == _BATCH or (end - begin + 1) * longest > _TOKENS):
            yield range(begin, end)
            begin, longest = end, length
    if lengths:
        yield range(begin, len(lengths))
