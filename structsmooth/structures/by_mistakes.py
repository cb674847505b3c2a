"""Outputs by their number of mistakes, for every structure that is a program."""

import torch
from torch import Tensor

from structsmooth.structures.base import Structure
from structsmooth.structures.chain import LinearChain
from structsmooth.structures.chain import mistakes as chains
from structsmooth.structures.programs import DynamicProgram
from structsmooth.structures.programs.counters import ByCount
from structsmooth.structures.tree import Tree
from structsmooth.structures.tree import mistakes as trees


def require_countable(structure: Structure) -> None:
    """Raise ``TypeError`` unless mistakes of a structure can be counted."""
    if not isinstance(structure, (LinearChain, Tree, DynamicProgram)):
        raise TypeError(
            "slack rescaling is for LinearChain, Tree and structures that are programs, such as SemiMarkov, "
            f"got {type(structure).__name__}"
        )


def by_mistakes(structure: Structure, y: Tensor, size: int | None = None) -> ByCount:
    """The outputs of a structure by the number of variables whose classes differ from those of ``y``.

    Args:
        structure: one that :func:`require_countable` accepts.
        y: labels [B, ...].
        size: one more than the largest number of mistakes; found if not given.
    """
    if isinstance(structure, LinearChain):
        return chains.by_mistakes(structure, y)
    if isinstance(structure, Tree):
        return trees.by_mistakes(structure, y)
    assert isinstance(structure, DynamicProgram)
    classes, number = structure.as_classes(structure.checked_labels(y))
    wrong = (torch.arange(number, device=y.device) != classes.unsqueeze(-1)).to(torch.float64)
    costs = structure.potential_costs(wrong)
    costs = costs if isinstance(costs, tuple) else (costs,)
    return structure.by_count((*costs, *[wrong.new_zeros(())] * (len(structure.potentials) - len(costs))), size)
