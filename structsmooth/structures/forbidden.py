"""What forbids an output: the first of its parts that has score -inf, in words."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from structsmooth.structures.checks import ForbiddenLabelsError, first_examples

Index = tuple[int, ...]


def forbidden_labels(
    structure: Any, scores: Tensor, y: Tensor | None = None, parts: tuple[Tensor, ...] | None = None
) -> ForbiddenLabelsError:
    """The error for the examples of which ``scores`` [B] are -inf; labels, or statistics in their place, say why."""
    examples = first_examples(scores == -torch.inf)
    if y is None and parts is None:
        return ForbiddenLabelsError(examples, name=", as is that of all outputs that agree with them")
    b, of_labels = examples[0], structure.parts(y) if parts is None else parts
    barriers = [own.expand(part.shape)[b] for own, part in zip(structure._part_scores(), of_labels, strict=True)]
    labels = None if y is None else structure.checked_labels(y)[b]
    found = forbidden_part(structure, [part[b] for part in of_labels], barriers, labels)
    return ForbiddenLabelsError(examples, name=found + " in the first of them" * (len(examples) > 1))


def forbidden_part(structure: Any, parts: Sequence[Tensor], barriers: Sequence[Tensor], y: Tensor | None) -> str:
    """The reason that a message about labels of one example gives, in its own words for each structure.

    Args:
        structure: the kind of space, and the names of its potentials.
        parts: what the labels have.
        barriers: -inf at parts that are forbidden, in the same shapes.
        y: the labels, if there are any.
    """
    for name, part, barrier in zip(structure.potential_names, parts, barriers, strict=True):
        broken = ((part > 0) & (barrier == -torch.inf)).nonzero()
        if len(broken):
            return f", because {part_in_words(structure, name, tuple(broken[0].tolist()), y)} is not allowed"
    return ", because their parts are allowed one by one, but not together"


@singledispatch
def part_in_words(structure: Any, name: str, index: Index, y: Tensor | None) -> str:
    """A part of labels ``y`` [...] of one example, given its potential and its place [...] in that; by structure."""
    return f"the part {name}[{', '.join(map(str, index))}]"
