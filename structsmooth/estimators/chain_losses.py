"""Losses of linear chains by their names, as problems."""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from structsmooth.costs import Cost, Hamming, RescaledMargin
from structsmooth.problems import DenseChainProblem, LinearModuleProblem, LinearProblem, SparseChainProblem
from structsmooth.scores import LinearScore, SlackRescaledScores
from structsmooth.sequences import DenseSequences, Sequences, SparseSequences
from structsmooth.smoothing import Entropy, Max
from structsmooth.tag_schemes import TransitionMask

Loss = Literal["hinge", "slack", "crf", "softmax-margin"]
HINGES = ("hinge", "slack")
Sizes = tuple[int, int]
"""Numbers of features and of states."""


def default_lam(loss: Loss) -> str:
    """λ that works for most data, as a rule: likelihoods need less of it than hinges."""
    return "3/n" if loss in HINGES else "0.3/n"


def chain_problem(
    loss: Loss,
    sequences: Sequences,
    labels: Tensor,
    sizes: Sizes,
    cost: Cost | None = None,
    mask: TransitionMask | None = None,
) -> LinearProblem:
    """The mean of a loss over labelled sequences, linear in weights [(F + S + 2)·S].

    Args:
        loss: its name.
        sequences: n sequences over F features.
        labels: of all tokens, int64 [tokens].
        sizes: F and S.
        cost: task loss, the number of wrong labels if not given.
        mask: which labels may follow each other; all if not given.

    Raises:
        ValueError: an unknown loss, a cost for one that has none or only the number of wrong labels, a mask for slack
            rescaling, or labels that the mask forbids.
    """
    if loss not in get_args(Loss):
        raise ValueError(f"loss must be one of {', '.join(get_args(Loss))}, got {loss!r}")
    if loss in ("crf", "slack") and cost is not None:
        raise ValueError(f'class_weight needs the loss "hinge" or "softmax-margin", got {loss!r}')
    if loss == "slack" and mask is not None:
        raise ValueError('train_constrained needs the loss "hinge", "crf" or "softmax-margin", got "slack"')
    if loss == "slack":
        return _slack_rescaled(sequences, labels, sizes)
    settings = (sizes[1], None if loss == "crf" else cost or Hamming(), Max() if loss == "hinge" else Entropy(1.0))
    if isinstance(sequences, SparseSequences):
        return SparseChainProblem(sequences, labels, sizes[0], *settings, mask=mask)
    assert isinstance(sequences, DenseSequences)
    return DenseChainProblem(sequences.features, labels, sequences.lengths, *settings, mask=mask)


def _slack_rescaled(sequences: Sequences, labels: Tensor, sizes: Sizes) -> LinearModuleProblem:
    """Inputs are pairs of sequences and labels; examples go by their numbers until they are in a batch."""
    own = labels.split(sequences.lengths.tolist())

    def collate(examples: list[tuple[int, Tensor]]) -> tuple[tuple[Sequences, Tensor], Tensor]:
        numbers, tags = zip(*examples, strict=True)
        y = pad_sequence(list(tags), batch_first=True)
        return (sequences.select(torch.tensor(numbers)), y), y

    module = SlackRescaledScores(LinearScore(*sizes))
    return LinearModuleProblem(module, list(enumerate(own)), RescaledMargin(), collate=collate)
