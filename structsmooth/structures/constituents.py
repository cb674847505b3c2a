"""Constituency trees: nested spans of words, with labels."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import no_class_penalties, widened
from structsmooth.structures.checks import check_lengths, length_mask
from structsmooth.structures.programs import DynamicProgram, Program, ProgramBuilder, cached_program


class Constituents(DynamicProgram):
    """All sets of nested, labelled spans of words, bound to scores of spans.

    score(y) is the sum of the scores of the constituents of y: spans of neighbouring words with a label, of which any
    two are disjoint or one contains the other. Constituents may have any number of parts, and words need not be in any.
    With ``binary=True`` outputs are binary trees instead: each word and the whole sentence are constituents, and
    each longer one consists of two. An output is an int64 tensor [B, n, n]: the label of the constituent of words i to
    j, inclusive, at [b, i, j], and -1 where there is none. Complexity per example: max and exp oracle O(n³ + n² L),
    top-K at worst K log K times that.

    Backends, forbidden (-inf) scores and infeasible examples are as in :class:`~structsmooth.programs.DynamicProgram`.

    Args:
        spans: scores [B, n, n, L], floating point; entry [b, i, j, l] is for words i to j as a constituent of label l.
            Those with i > j are ignored.
        lengths: numbers of words [B], integers from 0 to n; all n if not given.
        binary: whether outputs are binary trees.
        offset: a score [B] of every output, which costs use; 0 if not given.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.
        backend: ``"compiled"`` (CPU only), ``"triton"`` (GPU only), ``"torch"``, or ``"auto"`` for the fastest.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Stern et al. (2017), for the binary form.

    Example:
        >>> spans = torch.full((1, 3, 3, 1), -1.0)
        >>> spans[0, 0, 1], spans[0, 1, 2] = 2.0, 3.0  # they overlap
        >>> value, y = Constituents(spans).max()
        >>> value, (y >= 0).nonzero()[:, 1:].tolist()
        (tensor([3.]), [[1, 2]])
    """

    potential_names = ("spans", "offset")
    row_names = ("lengths",)
    field_names = ("binary",)

    def __init__(
        self,
        spans: Tensor,
        lengths: Tensor | None = None,
        *,
        binary: bool = False,
        offset: Tensor | None = None,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        self.spans, self.binary = spans, binary
        checks.require_scores("spans", spans)
        if spans.dim() != 4 or spans.shape[1] != spans.shape[2] or 0 in spans.shape[1:]:
            raise ValueError(f"spans must have shape [B, n, n, L] with n, L >= 1, got {tuple(spans.shape)}")
        self.offset = widened(spans).new_zeros(spans.shape[0]) if offset is None else offset
        self.lengths = checks.lengths_or_all(lengths, "spans", spans)
        super().__init__(validate_args, backend)
        if self.validate_args:
            check_lengths(self.lengths, spans.shape[1], "n", least=0)

    def check_shapes(self) -> None:
        """Raise unless scores are [B, n, n, L] and [B]."""
        checks.require_scores("spans", self.spans)
        checks.require_scores("offset", self.offset)
        checks.require_shape("offset", self.offset, "[B]", (self.spans.shape[0],))
        checks.require_device("offset", self.offset, "spans", self.spans)

    def used_scores(self, name: str) -> Tensor:
        """Scores of spans, zero at padding, and the offset."""
        return checks.inside(self.mask, self.spans) if name == "spans" else self.offset

    @property
    def mask(self) -> Tensor:
        """[B, n, n], true for spans from word i to j >= i inside the sentences."""
        inside = length_mask(self.lengths, self.spans.shape[1])
        return (inside.unsqueeze(2) & inside.unsqueeze(1)).triu()

    def program(self) -> Program:
        """The program of :func:`nested_spans`."""
        return nested_spans(self.spans.shape[1], self.spans.shape[3], self.binary)

    def program_scores(self) -> Tensor:
        """Scores of spans, [B, n n L], and the offset."""
        spans = torch.where(self.mask.unsqueeze(-1), widened(self.spans), 0.0)
        return torch.cat([spans.flatten(1), widened(self.offset).unsqueeze(1)], 1)

    def sizes(self) -> Tensor:
        """The root of the program for the length of each sentence: int64 [B]."""
        return self.lengths

    def checked_labels(self, y: Tensor) -> Tensor:
        """Outputs as int64, with -1 at padding."""
        checks.require_outputs(y, "[B, n, n]", "spans", self.spans)
        y = torch.where(self.mask, y, -1).to(torch.int64)
        if self.validate_args and y.numel():
            if int(y.min()) < -1 or int(y.max()) >= self.spans.shape[3]:
                raise ValueError(f"y must hold labels from 0 to {self.spans.shape[3] - 1}, and -1 where there are none")
            crossing = _crossing(y >= 0)
            if bool(crossing.any()):
                example = int(crossing.long().argmax())
                raise ValueError(f"y must hold labels of nested spans; those of example {example} cross")
            if self.binary and not bool(((y >= 0).flatten(1).sum(1) == (2 * self.lengths - 1).clamp_min(0)).all()):
                raise ValueError("y must hold labels of the 2 n - 1 spans of a binary tree of n words; see binary")
        return y

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Labels from 1 on, 0 for spans that are no constituents, and the number 1 + L of these classes."""
        return y + 1, 1 + self.spans.shape[3]

    def potential_costs(self, costs: Tensor) -> tuple[Tensor, Tensor]:
        """Costs of classes, [B, n, n, 1 + L], as costs of spans and of all outputs."""
        none = torch.where(self.mask, costs[..., 0], 0.0)
        return costs[..., 1:] - costs[..., :1], none.flatten(1).sum(1)

    def class_penalties(self, allowed: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Not for spans, whose absence is no part: :meth:`restrict` forbids those that are."""
        raise no_class_penalties(self, "spans")

    def class_marginals(self) -> Tensor:
        """Probabilities [B, n, n, 1 + L] of the classes of spans; 0 where there are none."""
        spans, feasible = self.marginals()
        none = feasible[:, None, None] - spans.sum(3)
        return torch.cat([torch.where(self.mask, none, 0.0).unsqueeze(3), spans], 3)

    def derivation(self, y: Tensor) -> Tensor:
        """The scores that outputs ``y`` use: those of their spans with their labels, and the offset."""
        words, labels = self.spans.shape[2:]
        place = torch.arange(words**2, device=y.device)
        spans = torch.where(y.flatten(1) >= 0, place * labels + y.flatten(1), words**2 * labels + 1)
        return torch.cat([spans, torch.full_like(spans[:, :1], words**2 * labels)], 1)

    def outputs(self, used: Tensor) -> Tensor:
        """Outputs [B, K, n, n] from the scores that they use: labels of spans, -1 for what is no constituent."""
        words, labels = self.spans.shape[2:]
        place = torch.where(used < words**2 * labels, used // labels, words**2)
        y = torch.full((*used.shape[:2], words**2 + 1), -1, device=used.device).scatter(2, place, used % labels)
        return y[..., :-1].view(*used.shape[:2], words, words)

    def read_max_marginals(self, values: Tensor) -> Tensor:
        """The largest score [B, n, n, L] of an output with each span; zero at padding."""
        best = values[:, :-1].view(self.spans.shape)
        return torch.where(self.mask.unsqueeze(3), best, 0.0)


def _crossing(spans: Tensor) -> Tensor:
    """Whether some of the spans [B, n, n] overlap without one inside the other: [B]."""
    word = torch.arange(spans.shape[1], device=spans.device)
    crossing: Tensor = torch.zeros_like(spans[:, 0, 0])
    for j in range(spans.shape[1] - 1):
        starts = torch.where(spans[:, :, j + 1 :].any(2) & (word <= j), word, -1)  # of spans that end behind word j
        crossing |= (spans[:, :, j] & (word < starts.amax(1, keepdim=True))).any(1)
    return crossing


@cached_program
def nested_spans(words: int, labels: int, binary: bool) -> Program:
    """Scores of spans (first word, last word, label), then the offset. Roots are the lengths from 0 to ``words``.

    For the words i to j there are three nodes: two or more items, a constituent, and one or more items. A list of items
    ends with an item behind a shorter list, so that each has one derivation. Items are constituents, and words without
    label. In binary trees there are two items, both constituents.
    """
    builder = ProgramBuilder(scores=words * words * labels + 1)

    def span(kind: int, i: Any, j: Any) -> Any:
        """Nodes by their last word, then from short to long; one more node ends those of a last word, or of none."""
        return 1 + 3 * (j * (j + 1) // 2 + j - i) + j + kind

    offset = words * words * labels
    builder.add(0, index=offset)
    several, constituent, items = range(3)
    i, j, k = np.ogrid[:words, :words, :words]
    first = span(constituent if binary else items, i, k)
    builder.add(span(several, i, j), first, span(constituent, k + 1, j), where=(i <= k) & (k < j))
    word = np.arange(words)
    if not binary:
        builder.add(span(constituent, word, word))
    i, j, label = np.ogrid[:words, :words, :labels]
    inside = np.where(i < j, span(several, i, j), -1)
    builder.add(span(constituent, i, j), inside, index=(i * words + j) * labels + label, where=i <= j)
    if not binary:
        i, j = np.ogrid[:words, :words]
        builder.add(span(items, i, j), span(several, i, j), where=i < j)
        builder.add(span(items, i, j), span(constituent, i, j), where=i <= j)
    end = span(2, 0, word) + 1
    builder.add(end, span(constituent if binary else items, 0, word), index=offset)
    return builder.build(np.append(0, end))
