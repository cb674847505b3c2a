"""Grids as tensors, and the general program of a grid, an edge for each move into each cell."""

import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures import checks
from structsmooth.structures.programs import Program, ProgramBuilder, cached_program

Moves = tuple[tuple[int, int], ...]


class Grid(NamedTuple):
    """Grids [B] and what paths through them score, of which each row may store W columns of U.

    Attributes:
        scores: scores [B, T, W] of the cells that are stored.
        entries: scores of entering cells by moves: [B, T, W, M]; or [B, 1, 1, M] for all cells alike.
        offset: a score [B] of all paths.
        allowed: whether a move may enter a column, [B, U, M]; or [B, 0, M] if all may.
        band: the column [B, T] at which the stored cells of a row begin; or [B, 0] if that is 0.
        sizes: numbers of rows and columns, [B, 2].
        steps: the moves along rows and along columns, [M, 2].
    """

    scores: Tensor
    entries: Tensor
    offset: Tensor
    allowed: Tensor
    band: Tensor
    sizes: Tensor
    steps: Tensor

    def columns(self) -> Tensor:
        """The columns [B, T, W] of the stored cells, or [1, 1, U] if all are stored."""
        places = torch.arange(self.scores.shape[2], device=self.scores.device).view(1, 1, -1)
        return self.band.unsqueeze(2) + places if self.band.shape[1] else places

    def mask(self) -> Tensor:
        """[B, T, W], true for the stored cells that the grids have."""
        rows = torch.arange(self.scores.shape[1], device=self.scores.device)
        columns = self.columns()
        inside = (columns >= 0) & (columns < self.sizes[:, 1:].unsqueeze(1))
        return (rows < self.sizes[:, :1]).unsqueeze(2) & inside

    def cells(self, width: int) -> Tensor:
        """The numbers t U + u [B, T W] of stored cells among all, for ``width`` U; T U for those beyond the grid."""
        rows = torch.arange(self.scores.shape[1], device=self.scores.device).view(1, -1, 1)
        return torch.where(self.mask(), rows * width + self.columns(), self.scores.shape[1] * width).flatten(1)

    def at_edges(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Which cells [B, L] are the first or the last that their rows store, with others of the grid beyond them."""
        first = self.band.gather(1, rows)
        last = first + self.scores.shape[2] - 1
        return ((columns == first) & (first > 0)) | ((columns == last) & (last < self.sizes[:, 1:] - 1))

    def program_scores(self, width: int) -> Tensor:
        """Scores [B, T U (M + 1)] of :func:`grid_paths`: of all cells by each move, and of starting there."""
        inside = self.mask().unsqueeze(3)
        moves = torch.where(inside, self.entries, 0.0)
        if self.allowed.shape[1]:
            columns = self.columns().clamp(0, width - 1).expand(self.scores.shape).flatten(1)
            allowed = self.allowed.gather(1, columns.unsqueeze(2).expand(-1, -1, len(self.steps)))
            moves = torch.where(allowed.view(moves.shape) | ~inside, moves, -torch.inf)
        scores = (torch.where(inside, self.scores.unsqueeze(3), 0.0) + pad(moves, (0, 1))).flatten(1, 2)
        if self.band.shape[1]:
            cells = self.cells(width).unsqueeze(2).expand(scores.shape)
            beyond = torch.where((self.sizes > 0).all(1), -torch.inf, 0.0).to(scores.dtype).view(-1, 1, 1)
            whole = beyond.expand(-1, self.scores.shape[1] * width + 1, scores.shape[2])
            scores = whole.scatter(1, cells, scores)[:, :-1]
        scores = scores.flatten(1)
        start = torch.arange(scores.shape[1], device=scores.device) == len(self.steps)
        return scores + torch.where(start, self.offset.unsqueeze(1), 0.0)

    def roots(self, width: int) -> Tensor:
        """The last cells [B] of grids; of one without cells, the first, whose start has the score of nothing."""
        last = (self.sizes[:, 0] - 1) * width + self.sizes[:, 1] - 1
        return torch.where((self.sizes > 0).all(1), last, 0)


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


def tensor_of_moves(moves: Moves, device: torch.device) -> Tensor:
    """Steps along rows and along columns, [M, 2]."""
    if checks.can_read_values():
        return torch.tensor(moves, device=device)
    # Transforms of torch.func refuse torch.tensor beside tensors of a level above.
    return torch.stack([torch.full((), step, device=device) for move in moves for step in move]).view(-1, 2)


def diagonal(lengths: Tensor, rows: int, width: int) -> Tensor:
    """The columns [B, rows] at which bands of a width begin, around the diagonals of grids of lengths [B, 2]."""
    t = torch.arange(rows, device=lengths.device)
    heights, columns = lengths[:, :1].clamp_min(2), lengths[:, 1:]
    middle = t * (columns - 1) // (heights - 1)
    return torch.minimum((middle - width // 2).clamp_min(0), (columns - width).clamp_min(0))


def warn_of_band(problem: str, examples: Tensor) -> None:
    """Warn of examples, true in [B, ...], for which other paths than those of their band may be better."""
    if uncertain := checks.first_examples(examples):
        message = f"examples {uncertain} have {problem} their band: a wider band may have better paths"
        warnings.warn(message, stacklevel=3)
