"""Monotone alignments of two sequences: edit distance, time warping, forced alignment."""

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import no_class_penalties, widened
from structsmooth.structures.programs import DynamicProgram, Program, ProgramBuilder, cached_program

Moves = tuple[tuple[int, int], ...]

_STEPS: Moves = ((1, 0), (0, 1), (1, 1))


class Alignment(DynamicProgram):
    """All monotone paths through a grid from its first to its last cell, bound to scores of cells and moves.

    The cells of a path say which positions of two sequences belong together. score(y) is the sum of the scores of its
    cells and of the moves by which it enters them. An output is an int64 tensor [B, T, U]: m + 1 at a cell entered by
    move m, M + 1 at the first cell, and 0 elsewhere. Complexity per example: max and exp oracle O(T U M) for M moves,
    top-K up to K times that.

    Backends, forbidden (-inf) scores and infeasible examples are as in :class:`~structsmooth.programs.DynamicProgram`.

    Args:
        scores: scores [B, T, U] of cells, floating point.
        moves: the steps (along T, along U) that a path may take, each >= 0 and not (0, 0). By default, to the next
            position of one of the sequences or of both, as for the edit distance; ``((1, 0), (1, 1))`` aligns each
            position of the first sequence to one of the second one, in order.
        move_scores: scores [B, T, U, M] of entering a cell by a move; 0 if not given.
        lengths: lengths of both sequences, integers [B, 2] from 0 to T and from 0 to U; all if not given.
        offset: a score [B] of every output, which costs use; 0 if not given.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.
        backend: ``"compiled"`` (CPU only), ``"triton"`` (GPU only), ``"torch"``, or ``"auto"`` for the fastest.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes, moves or values, or tensors on different devices.

    Reference:
        Sakoe and Chiba (1978).

    Example:
        >>> scores = torch.tensor([[[0.0, -9.0, -9.0], [-9.0, 0.0, -9.0], [-9.0, 0.0, -9.0], [-9.0, -9.0, 0.0]]])
        >>> value, y = Alignment(scores).max()
        >>> value, (y > 0).nonzero()[:, 1:].tolist()
        (tensor([0.]), [[0, 0], [1, 1], [2, 1], [3, 2]])
    """

    potential_names = ("scores", "move_scores", "offset")
    row_names = ("lengths",)

    def __init__(
        self,
        scores: Tensor,
        moves: Moves = _STEPS,
        move_scores: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        offset: Tensor | None = None,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        self.scores, self.moves = scores, tuple((int(t), int(u)) for t, u in moves)
        if not self.moves or any(min(move) < 0 or move == (0, 0) for move in self.moves):
            raise ValueError(f"moves must be pairs of steps >= 0 other than (0, 0), got {moves}")
        if len(set(self.moves)) < len(self.moves):
            raise ValueError(f"moves must differ, got {moves}")
        self._check_grid()
        zero = widened(scores).new_zeros(())
        self.move_scores = zero.expand(*scores.shape, len(self.moves)) if move_scores is None else move_scores
        self.offset = zero.expand(scores.shape[0]) if offset is None else offset
        whole = torch.stack([torch.full((), size, device=scores.device) for size in scores.shape[1:]])
        self.lengths = whole.expand(scores.shape[0], 2) if lengths is None else lengths
        checks.require_integers("lengths", self.lengths)
        checks.require_shape("lengths", self.lengths, "[B, 2]", (scores.shape[0], 2))
        checks.require_device("lengths", self.lengths, "scores", scores)
        super().__init__(validate_args, backend)
        if self.validate_args and bool(((self.lengths < 0) | (self.lengths > whole)).any()):
            raise ValueError(f"lengths must be from 0 to T, U = {tuple(scores.shape[1:])}, got {self.lengths.tolist()}")

    def _check_grid(self) -> None:
        checks.require_scores("scores", self.scores)
        if self.scores.dim() != 3 or 0 in self.scores.shape[1:]:
            raise ValueError(f"scores must have shape [B, T, U] with T, U >= 1, got {tuple(self.scores.shape)}")

    def check_shapes(self) -> None:
        """Raise unless scores are [B, T, U], [B, T, U, M] and [B]."""
        self._check_grid()
        moves, offset = (*self.scores.shape, len(self.moves)), (self.scores.shape[0],)
        for name, wanted, shape in (("move_scores", "[B, T, U, M]", moves), ("offset", "[B]", offset)):
            scores = getattr(self, name)
            checks.require_scores(name, scores)
            checks.require_shape(name, scores, wanted, shape)
            checks.require_device(name, scores, "scores", self.scores)

    def used_scores(self, name: str) -> Tensor:
        """Scores of cells and of moves, zero beyond the grids, and the offset."""
        scores: Tensor = getattr(self, name)
        return scores if name == "offset" else checks.inside(self.mask, scores)

    @property
    def mask(self) -> Tensor:
        """[B, T, U], true for the cells of examples."""
        t, u = (torch.arange(size, device=self.scores.device) for size in self.scores.shape[1:])
        return (t < self.lengths[:, :1]).unsqueeze(2) & (u < self.lengths[:, 1:]).unsqueeze(1)

    def program(self) -> Program:
        """The program of :func:`grid_paths`."""
        return grid_paths(*self.scores.shape[1:], self.moves)

    def program_scores(self) -> Tensor:
        """Scores of cells with the moves into them, [B, T U (M + 1)]; the last one is for starting there."""
        inside = self.mask.unsqueeze(3)
        moves = torch.nn.functional.pad(torch.where(inside, widened(self.move_scores), 0.0), (0, 1))
        scores = (torch.where(inside, widened(self.scores).unsqueeze(3), 0.0) + moves).flatten(1)
        start = torch.arange(scores.shape[1], device=scores.device) == len(self.moves)
        return scores + torch.where(start, widened(self.offset).unsqueeze(1), 0.0)

    def sizes(self) -> Tensor:
        """The last cell of each example; of one without cells, the first, whose start has the score of nothing."""
        last = (self.lengths[:, 0] - 1) * self.scores.shape[2] + self.lengths[:, 1] - 1
        return torch.where(self._has_cells, last, 0)

    @property
    def _has_cells(self) -> Tensor:
        return (self.lengths > 0).all(1)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Outputs as int64, with 0 at padding."""
        checks.require_outputs(y, "[B, T, U]", "scores", self.scores)
        y = torch.where(self.mask, y, 0).to(torch.int64)
        if self.validate_args:
            checks.require_labels(y, len(self.moves) + 2)
        return y

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Outputs, and the number M + 2 of the classes of a cell: not on the path, entered by a move, the first."""
        return y, len(self.moves) + 2

    def potential_costs(self, costs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Costs of classes, [B, T, U, M + 2], as costs of cells, of moves and of all outputs."""
        none, moves, first = costs[..., 0], costs[..., 1:-1], costs[..., -1]
        return first - none, moves - first.unsqueeze(3), torch.where(self.mask, none, 0.0).flatten(1).sum(1)

    def class_penalties(self, allowed: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Not for cells, whose absence is no part: :meth:`restrict` forbids those that are."""
        raise no_class_penalties(self, "cells")

    def class_marginals(self) -> Tensor:
        """Probabilities [B, T, U, M + 2] of the classes of cells; zero at padding."""
        cells, moves, feasible = self.marginals()
        none = torch.where(self.mask, feasible[:, None, None] - cells, 0.0)
        return torch.cat([none.unsqueeze(3), moves, (cells - moves.sum(3)).unsqueeze(3)], 3)

    def derivation(self, y: Tensor) -> Tensor:
        """The scores that paths ``y`` use, one for each cell with the move into it: int64 [B, T U]."""
        classes = len(self.moves) + 1
        cell = torch.arange(y.shape[1] * y.shape[2], device=y.device)
        starts = ~self._has_cells.unsqueeze(1) & (cell == 0)
        y = torch.where(starts, classes, y.flatten(1))
        return torch.where(y > 0, cell * classes + y - 1, cell.shape[0] * classes)

    def outputs(self, used: Tensor) -> Tensor:
        """Outputs [B, K, T, U] from the cells that they use: the moves into these, and 0 elsewhere."""
        steps, width = self.scores.shape[1:]
        classes = len(self.moves) + 1
        y = torch.zeros(*used.shape[:2], steps * width + 1, dtype=torch.int64, device=used.device)
        y = y.scatter(2, used // classes, used % classes + 1)[..., :-1]
        return torch.where(self.mask.unsqueeze(1), y.view(*used.shape[:2], steps, width), 0)

    def read_max_marginals(self, values: Tensor) -> Tensor:
        """The largest score [B, T, U] of a path through each cell; zero at padding."""
        best = values.view(*self.scores.shape, len(self.moves) + 1).amax(3)
        return torch.where(self.mask, best, 0.0)


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
