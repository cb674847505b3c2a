"""The general program of a grid, an edge for each move into each cell, and bands around diagonals."""

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures.programs import Program, ProgramBuilder, cached_program

Moves = tuple[tuple[int, int], ...]


@cached_program
def grid_paths(steps: int, width: int, moves: Moves) -> Program:
    """Scores of cells (t, u) with a move into them, or the start. Roots are all cells."""
    classes = len(moves) + 1
    builder = ProgramBuilder(scores=steps * width * classes)
    t, u = np.ogrid[:steps, :width]
    cell = t * width + u
    builder.add(head=0, index=classes - 1)
    for m, (along, across) in enumerate(moves):
        before = cell - along * width - across
        builder.add(cell, before, index=cell * classes + m, where=(t >= along) & (u >= across))
    return builder.build(np.arange(steps * width), steps * width)  # some cells may be out of reach


def diagonal(lengths: Tensor, rows: int, width: int) -> Tensor:
    """The columns [B, rows] at which bands of a width begin, around the diagonals of grids of lengths [B, 2]."""
    t = torch.arange(rows, device=lengths.device)
    heights, columns = lengths[:, :1].clamp_min(2), lengths[:, 1:]
    middle = t * (columns - 1) // (heights - 1)
    return torch.minimum((middle - width // 2).clamp_min(0), (columns - width).clamp_min(0))
