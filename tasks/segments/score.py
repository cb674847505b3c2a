"""The score of segmentations: convolutions over the signal, transitions, and durations."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from structsmooth.problems import PartialLabels
from structsmooth.scores import ScoreModule
from structsmooth.structures import LinearChain, SemiMarkov
from structsmooth.structures.checks import exports_plain_torch
from structsmooth.tasks.segments.grammar import Grammar

Parts = tuple[Tensor, Tensor, Tensor]
"""Parts of signals, with as many more positions on both sides as the score sees, [B, T + margin, C]; their lengths
without these, int64 [B]; and whether each is the begin of its series, bool [B]."""


class SegmentScore(ScoreModule):
    """Sequences of states, or of segments of at most K positions, scored by convolutions over the signal.

    With one layer, scores are linear in the parameters, which are zero at first. Transitions that the grammar does not
    have are forbidden, and so are states that a series does not begin with.

    Args:
        grammar: the states.
        channels: of the signal.
        width: positions that a convolution covers.
        hidden: channels between layers.
        layers: number of convolutions.
        longest: K; states of positions alone if not given.
    """

    transition_mask: Tensor
    first_mask: Tensor
    duration_mask: Tensor

    def __init__(
        self, grammar: Grammar, channels: int, width: int, hidden: int, layers: int, longest: int | None = None
    ) -> None:
        super().__init__()
        self.affine = layers == 1
        dtype = torch.float64 if self.affine else torch.float32
        sizes = [channels, *[hidden] * (layers - 1), grammar.size]
        self.convolutions = nn.ModuleList(nn.Conv1d(a, b, width, dtype=dtype) for a, b in pairwise(sizes))
        self.transition = nn.Parameter(torch.zeros(grammar.size, grammar.size, dtype=dtype))
        if longest is not None:
            self.durations = nn.Parameter(torch.zeros(longest, len(grammar.labels), dtype=dtype))
            alone = torch.full((longest, grammar.size - len(grammar.labels)), -torch.inf, dtype=dtype)
            alone[0] = 0.0
            self.register_buffer("duration_mask", alone)
        if self.affine:
            for parameter in self.convolutions.parameters():
                nn.init.zeros_(parameter)
        self.longest = longest
        self.register_buffer("transition_mask", grammar.transition_mask(repeats=longest is None).to(dtype))
        self.register_buffer("first_mask", grammar.first_mask().to(dtype))

    def forward(self, x: Parts) -> LinearChain | SemiMarkov:
        """The segmentations of parts of signals."""
        signal, lengths, begins = x
        unary = signal.to(self.transition.dtype).mT
        for layer, convolution in enumerate(self.convolutions):
            unary = _convolved(unary.relu() if layer else unary, convolution)
        transition = self.transition + self.transition_mask
        start = torch.where(begins[:, None], self.first_mask, 0.0)
        if self.longest is None:
            return LinearChain(unary.mT, transition, lengths, start=start, validate_args=False)
        durations = torch.cat([self.durations, self.duration_mask], 1)
        return SemiMarkov(unary.mT, transition, durations, lengths=lengths, start=start, validate_args=False)


def _convolved(x: Tensor, convolution: Any) -> Tensor:
    """A convolution of signals [B, C, T + width - 1], in exported programs by products where torch's does not do.

    In float64, onnxruntime has no other. Of one channel, torch takes a batch of one for another layout of memory, and
    its programs refuse it.
    """
    in_onnx = torch.onnx.is_in_onnx_export() and x.dtype == torch.float64
    if not (in_onnx or (exports_plain_torch() and x.shape[1] == 1)):
        return cast(Tensor, convolution(x))
    weight: Tensor = convolution.weight
    width, steps = weight.shape[2], x.shape[2] - weight.shape[2] + 1
    places = torch.arange(steps)[:, None] + torch.arange(width)
    windows = x.index_select(2, places.flatten()).unflatten(2, (steps, width)).movedim(1, 2)
    scores: Tensor = windows.flatten(2) @ weight.flatten(1).mT + convolution.bias
    return scores.mT


def batched(parts: Sequence[Parts]) -> Parts:
    """The parts of several recordings as one batch, padded to the longest signal."""
    signals, lengths, begins = zip(*parts, strict=True)
    return pad_sequence([piece for signal in signals for piece in signal], True), torch.cat(lengths), torch.cat(begins)


def collate_partial(examples: list[tuple[Parts, PartialLabels]]) -> tuple[Parts, PartialLabels]:
    """A batch of parts of signals, and their partial labels."""
    parts, labels = zip(*examples, strict=True)
    y, allowed = (pad_sequence(list(rows), True) for rows in zip(*labels, strict=True))
    return batched(parts), PartialLabels(y, allowed)


def collate(examples: list[tuple[Parts, Tensor]]) -> tuple[Parts, Tensor]:
    """A batch of parts of signals, and their states, 0 at padding."""
    parts, states = zip(*examples, strict=True)
    return batched(parts), pad_sequence(list(states), True)
