"""What forbids labels: the first of their parts that has score -inf, in words."""

from collections.abc import Iterable
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from structsmooth.structures.checks import ForbiddenLabelsError, first_examples

Index = tuple[int, ...]


@singledispatch
def forbidden_labels(
    structure: Any, scores: Tensor, y: Tensor | None = None, parts: tuple[Tensor, ...] | None = None
) -> ForbiddenLabelsError:
    """The error for examples whose ``scores`` [B] are -inf, and why, by labels or statistics; by structure."""
    examples = first_examples(scores == -torch.inf)
    if y is not None:
        y, parts = structure.checked_labels(y), structure.parts(y)
    if parts is None:
        return ForbiddenLabelsError(examples, name=", as is that of all outputs that agree with them")
    barriers = [own.expand(part.shape) for own, part in zip(structure._part_scores(), parts, strict=True)]
    return ForbiddenLabelsError(examples, name=forbidden_part(structure, parts, barriers, y, examples[0]))


def forbidden_part(
    structure: Any, parts: Iterable[Tensor], barriers: Iterable[Tensor], y: Tensor | None, b: int = 0
) -> str:
    """The first part of labels of example b, or of statistics, whose barrier is -inf, as the reason in a message."""
    for name, part, barrier in zip(structure.potential_names, parts, barriers, strict=True):
        broken = ((part[b] > 0) & (barrier[b] == -torch.inf)).nonzero().tolist()
        if broken:
            words = part_in_words(structure, name, tuple(broken[0]), [] if y is None else y[b].tolist())
            return f", because {words} is not allowed"
    return f", because they are no output of {type(structure).__name__}, although each of their parts is allowed"


@singledispatch
def part_in_words(structure: Any, name: str, index: Index, y: list[Any]) -> str:
    """A part of labels ``y`` of one example, by the name of its potential and its place there; by structure."""
    return f"the part {name}[{', '.join(map(str, index))}]"
