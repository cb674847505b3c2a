"""Tables by which torch evaluates a program level by level, on any device."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures.programs.program import Program, kept_on_devices


class Level(NamedTuple):
    """The nodes whose tails are all in lower levels: tables [n, R] of the edges into them.

    Values are stored level by level, behind the one of a missing tail; ``left`` and ``right`` are their places. Scores
    ``score`` are P where there is none and P + 1, that of -inf, where there is no edge. ``right`` is ``None`` if no
    edge has a second tail.
    """

    left: Tensor
    right: Tensor | None
    score: Tensor


class Levels(NamedTuple):
    """A program for torch: its levels, and the same tables [N + 1, R] for all nodes in the order of their places."""

    levels: tuple[Level, ...]
    nodes: Level
    roots: Tensor  # places [R]
    longest: int  # the largest number of scores in a derivation


@kept_on_devices
def levels_of(program: Program, device: torch.device) -> Levels:
    """The tables of a program, which is given by its handle, on a device, made once."""
    rows, left, right, index = program.arrays
    order, place = program.by_level()
    sizes = np.diff(rows)

    def on_device(numbers: "np.typing.NDArray[np.int64]") -> Tensor:
        return torch.from_numpy(numbers).to(device)

    def table(nodes: "np.typing.NDArray[np.int64]") -> Level:
        columns = np.arange(max(1, int(sizes[nodes].max(initial=0))))
        real = columns < sizes[nodes][:, None]
        edges = np.where(real, rows[nodes][:, None] + columns, 0)
        first, second = (np.where(real, place[tail[edges]], 0) for tail in (left, right))
        scores = np.where(real, index[edges], program.scores + 1).astype(np.int64)
        return Level(on_device(first), on_device(second) if second.any() else None, on_device(scores))

    bounds = np.flatnonzero(np.diff(program.level[order], prepend=0, append=-1))
    levels = tuple(table(order[begin:end]) for begin, end in pairwise(bounds))
    whole = table(order)
    # Behind the missing tail, whose row is never used.
    second = None if whole.right is None else pad(whole.right, (0, 0, 1, 0))
    nodes = Level(pad(whole.left, (0, 0, 1, 0)), second, pad(whole.score, (0, 0, 1, 0)))
    return Levels(levels, nodes, on_device(place[program.roots]), program.longest)
