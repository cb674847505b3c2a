"""Monotone alignments of two sequences: edit distance, time warping, forced alignment."""

from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures import checks
from structsmooth.structures.base import check_k, no_class_penalties, widened
from structsmooth.structures.grids import operators
from structsmooth.structures.grids.ctc import CTC_MOVES, ctc_grid
from structsmooth.structures.grids.paths import Grid, Moves, diagonal, grid_paths, tensor_of_moves, warn_of_band
from structsmooth.structures.operators import with_gradients_of_scores
from structsmooth.structures.programs import DynamicProgram, Program
from structsmooth.structures.transforms import in_transform

_MOST_MOVES = 255
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
        band: the column at which each row of ``scores`` begins, integers [B, T]: scores are then [B, T, W], those of
            the W columns from there, and other cells are on no path. Outputs and parts are [B, T, W] likewise, and U
            is the largest of the second lengths, which must be given. See :meth:`diagonal`.
        allowed_moves: whether a move may enter a column, booleans [B, U, M]; all may if not given.
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
    row_names = ("lengths", "band", "allowed_moves")
    field_names = ("moves", "columns")

    def __init__(
        self,
        scores: Tensor,
        moves: Moves = _STEPS,
        move_scores: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        band: Tensor | None = None,
        allowed_moves: Tensor | None = None,
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
        self._set_rows(lengths, band, allowed_moves)
        super().__init__(validate_args, backend)
        if self.validate_args and lengths is not None:
            found, whole = self.lengths.cpu().numpy(), (scores.shape[1], self.columns)
            if (found < 0).any() or (found > whole).any():
                raise ValueError(f"lengths must be from 0 to T, U = {whole}, got {found.tolist()}")

    def _set_rows(self, lengths: Tensor | None, band: Tensor | None, allowed_moves: Tensor | None) -> None:
        """Set the tensors with a row for each example: those that are not given have no columns."""
        batch, rows, width = self.scores.shape
        if band is not None and lengths is None:
            raise ValueError("band needs lengths: they say how many columns there are")
        if lengths is None:
            lengths = torch.stack([torch.full((batch,), size, device=self.scores.device) for size in (rows, width)], 1)
        begins = lengths.new_zeros(batch, 0) if band is None else band
        checks.require_integers("lengths", lengths)
        checks.require_integers("band", begins)
        self.lengths, self.band = lengths.to(torch.int64), begins.to(torch.int64)
        self.columns = width if band is None else max([1, *self.lengths[:, 1].tolist()])
        self.allowed_moves = (
            self.lengths.new_zeros(batch, 0, len(self.moves), dtype=torch.bool)
            if allowed_moves is None
            else checks.as_mask("allowed_moves", allowed_moves)
        )
        shapes = {
            "lengths": ("[B, 2]", (batch, 2)),
            "band": ("[B, T]", (batch, 0 if band is None else rows)),
            "allowed_moves": ("[B, U, M]", (batch, 0 if allowed_moves is None else self.columns, len(self.moves))),
        }
        for name, (dimensions, shape) in shapes.items():
            checks.require_shape(name, getattr(self, name), dimensions, shape)
            checks.require_device(name, getattr(self, name), "scores", self.scores)

    @classmethod
    def ctc(
        cls,
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Tensor | None = None,
        target_lengths: Tensor | None = None,
        *,
        blank: int = 0,
        width: int | None = None,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> "Alignment":
        """Connectionist temporal classification: all ways to read the labels of a target off frames, with blanks.

        Each frame has a label or a blank; labels that repeat without a blank between them are one. The log-partition
        function is minus ``torch.nn.functional.ctc_loss(..., reduction="none")``. Frame t is row t + 1 of the grid,
        whose first and last rows belong to no frame; column 2 i + 1 is label i of the target, and 2 i the blank before.

        Args:
            log_probs: scores of classes, [B, T, C], such as log-probabilities.
            targets: classes other than the blank, integers [B, L], with any values at padding.
            input_lengths: numbers of frames, integers [B]; all if not given.
            target_lengths: numbers of labels, integers [B]; all if not given.
            blank: the class of blanks.
            width: how many columns next to the diagonal each frame may use; all 2 L + 1 if not given.
            validate_args: as for :class:`Alignment`.
            backend: as for :class:`Alignment`.

        Raises:
            TypeError: tensors of the wrong dtype.
            ValueError: wrong shapes, lengths or classes, or tensors on different devices.

        Reference:
            Graves, Fernández, Gomez and Schmidhuber (2006).

        Example:
            >>> log_probs = torch.tensor([[[0.1, 0.9], [0.6, 0.4], [0.2, 0.8]]]).log()
            >>> grid = Alignment.ctc(log_probs, torch.tensor([[1, 1]]))
            >>> [[t - 1, u] for t, u in grid.path()[1][0].tolist() if 0 < t < 4]  # label 0, a blank, label 1
            [[0, 1], [1, 2], [2, 3]]
        """
        scores, lengths, band, allowed = ctc_grid(log_probs, targets, input_lengths, target_lengths, blank, width)
        return cls(
            scores,
            CTC_MOVES,
            None,
            lengths,
            band=band,
            allowed_moves=allowed,
            validate_args=validate_args,
            backend=backend,
        )

    @staticmethod
    def diagonal(lengths: Tensor, rows: int, width: int) -> Tensor:
        """A ``band`` around the diagonal of each grid: the columns [B, rows] at which ``width`` stored cells begin.

        Args:
            lengths: lengths of both sequences, integers [B, 2].
            rows: number of rows of the scores, T.
            width: number of cells to store in each row, W.
        """
        return diagonal(lengths, rows, width)

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
        return self._grid().mask()

    def program(self) -> Program:
        """The program of :func:`grid_paths`."""
        return grid_paths(self.scores.shape[1], self.columns, self.moves)

    def program_scores(self) -> Tensor:
        """Scores of cells with the moves into them, [B, T U (M + 1)]; the last one is for starting there."""
        return self._grid().program_scores(self.columns)

    def _of_stored_cells(self, values: Tensor) -> Tensor:
        """Of values [B, ..., T U] of cells, those [B, ..., T, W] of the ones that have scores, 0 beyond the grid."""
        shape = (*values.shape[:-1], *self.scores.shape[1:])
        if self.band.shape[1]:
            cells = self._grid().cells(self.columns).view(values.shape[0], *[1] * (values.dim() - 2), -1)
            values = pad(values, (0, 1)).gather(-1, cells.expand(*values.shape[:-1], -1))
        mask = self.mask.view(self.scores.shape[0], *[1] * (values.dim() - 2), *self.scores.shape[1:])
        return torch.where(mask, values.view(shape), 0)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle, as for all programs; the best path takes a byte and a few nanoseconds for each cell."""
        if check_k(k) > 1 or not self._by_rows:
            return super().topk(k)
        values, cells, moves = self._best()
        last = self.scores.shape[1] * self.scores.shape[2]
        y = cells.new_zeros(cells.shape[0], last + 1)
        y = y.scatter(1, torch.where(cells < 0, last, cells), moves + 1)[:, :-1]
        return values.unsqueeze(1), y.view(self.scores.shape).unsqueeze(1)

    def path(self, outside: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The largest score [B] and the cells of a path that has it: int64 [B, T + U - 1, 2], rows and columns.

        Cells are in order; places behind the last one hold -1. This takes no memory for an output [B, T, W]. Where
        values are checked, bands without a path and paths at the edge of a band are warned of: a wider one may have
        better paths. Given ``outside``, the only warning is of examples whose :meth:`bound_outside` is above the score.

        Args:
            outside: bounds [B, T] of the cells of each row that the band leaves out, as for :meth:`bound_outside`;
                not used without a band.
        """
        if self._by_rows:
            value, stored, _ = self._best()
        else:
            value, y = self.max()
            places = torch.arange(self.scores.shape[1] * self.scores.shape[2], device=y.device)
            stored = torch.where(y.flatten(1) > 0, places, -1).sort(descending=True).values
            stored = pad(stored, (0, self._longest - stored.shape[1]), value=-1)
        # The last cell is first so far.
        length = (stored >= 0).sum(1, keepdim=True)
        place = torch.arange(stored.shape[1], device=stored.device)
        stored = stored.gather(1, torch.where(place < length, length - 1 - place, place))
        rows, places = stored.clamp_min(0) // self.scores.shape[2], stored.clamp_min(0) % self.scores.shape[2]
        columns = places
        if self.band.shape[1]:
            columns = places + self.band.gather(1, rows)
            if outside is not None and self.validate_args:
                warn_of_band("best paths below the bound of paths outside", self.bound_outside(outside) > value)
            elif self.validate_args:
                warn_of_band("best paths at the edge of", (stored >= 0) & self._grid().at_edges(rows, columns))
                warn_of_band("no path in", (value == -torch.inf) & self._has_cells)
        return value, torch.where(stored.unsqueeze(2) < 0, -1, torch.stack([rows, columns], 2))

    def bound_outside(self, outside: Tensor) -> Tensor:
        """Upper bounds [B] of the scores of all paths with a cell that the band leaves out; -inf if it leaves out none.

        A path of the band that scores no less is a best path of the whole grid. The bound costs two best paths.

        Args:
            outside: upper bounds [B, T] of the scores of the cells of each row that the band leaves out, each with the
                move into it; any at padding. Those of :meth:`ctc` are ``pad(log_probs.amax(2), (1, 1))``.

        Raises:
            TypeError: ``outside`` is not floating point.
            ValueError: ``outside`` of another shape, on another device, or with NaN or infinity.
        """
        checks.require_scores("outside", outside)
        checks.require_shape("outside", outside, "[B, T]", self.scores.shape[:2])
        checks.require_device("outside", outside, "scores", self.scores)
        rows = torch.arange(outside.shape[1], device=outside.device)
        outside = checks.inside(rows < self.lengths[:, :1], outside)
        if self.validate_args and not bool((outside < torch.inf).all()):
            raise ValueError("outside must be below infinity, and not NaN")
        with torch.no_grad():
            return cast(Tensor, operators.bound_outside(*self._grid(), outside))

    def _best(self) -> tuple[Tensor, Tensor, Tensor]:
        """The largest score [B], with its gradient, and cells and moves [B, L] of a path, the last cell first."""
        values, cells, moves = operators.best(*self._grid(), self._longest)

        def score(scores: Tensor, move_scores: Tensor, offset: Tensor) -> Tensor:
            example = torch.arange(cells.shape[0], device=cells.device).unsqueeze(1)
            t, place = cells.clamp_min(0) // scores.shape[2], cells.clamp_min(0) % scores.shape[2]
            entered = (cells >= 0) & (moves < len(self.moves))
            entries = move_scores[example, t, place, moves.clamp(0, len(self.moves) - 1)]
            each = torch.where(cells >= 0, scores[example, t, place], 0.0) + torch.where(entered, entries, 0.0)
            return each.sum(1) + offset

        return with_gradients_of_scores(values, score, *map(widened, self.potentials)), cells, moves

    @property
    def _by_rows(self) -> bool:
        """Whether compiled loops over rows answer, which hold a move in a byte."""
        return self.is_compiled and len(self.moves) <= _MOST_MOVES

    @property
    def _longest(self) -> int:
        """The largest number of cells on a path."""
        return self.scores.shape[1] + self.columns - 1

    def _grid(self, *, all_entries: bool = False) -> Grid:
        """The tensors of compiled loops; scores of moves that all cells share are given once, if that is enough."""
        entries = widened(self.move_scores)
        is_fixed = not entries.requires_grad and not in_transform() and not torch.compiler.is_compiling()
        if is_fixed and not all_entries and entries.stride()[1:3] == (0, 0):
            entries = entries[:, :1, :1]
        steps = tensor_of_moves(self.moves, self.scores.device)
        return Grid(
            widened(self.scores), entries, widened(self.offset), self.allowed_moves, self.band, self.lengths, steps
        )

    def logsumexp(self) -> Tensor:
        """Log-partition function [B]; twice differentiable."""
        if not self._by_rows:
            return super().logsumexp()
        return operators.log_partition(*self._grid(), self._depth)[0]

    def marginals(self) -> tuple[Tensor, ...]:
        """Probabilities of cells [B, T, W], of entering them by each move [B, T, W, M], and of any path at all, [B]."""
        if not self._by_rows:
            return super().marginals()
        grid = self._grid(all_entries=True)
        log_z, kept = operators.log_partition(*grid, self._depth)
        cells, moves = operators.marginals(*grid, log_z.detach(), kept.detach())
        return cells, moves, (log_z.detach() > -torch.inf).to(log_z.dtype)

    @property
    def _depth(self) -> int:
        """The longest step along the rows."""
        return max(along for along, _ in self.moves)

    def sizes(self) -> Tensor:
        """The last cell of each example; of one without cells, the first, whose start has the score of nothing."""
        return self._grid().roots(self.columns)

    @property
    def _has_cells(self) -> Tensor:
        return (self.lengths > 0).all(1)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Outputs as int64, with 0 at padding."""
        return checks.checked_classes(self, y, "[B, T, U]", len(self.moves) + 2, self.mask)

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
        cells = self._grid().cells(self.columns)
        unused = self.scores.shape[1] * self.columns * classes
        y = torch.where(y.flatten(1) > 0, cells * classes + y.flatten(1) - 1, unused)
        # The empty path is a start at the first cell.
        empty = torch.arange(y.shape[1], device=y.device) == 0
        return torch.where(empty & ~self._has_cells.unsqueeze(1), classes - 1, y)

    def outputs(self, used: Tensor) -> Tensor:
        """Outputs [B, K, T, U] from the cells that they use: the moves into these, and 0 elsewhere."""
        classes, cells = len(self.moves) + 1, self.scores.shape[1] * self.columns
        y = torch.zeros(*used.shape[:2], cells + 1, dtype=torch.int64, device=used.device)
        return self._of_stored_cells(y.scatter(2, used // classes, used % classes + 1)[..., :-1])

    def read_max_marginals(self, values: Tensor) -> Tensor:
        """The largest score [B, T, U] of a path through each cell; zero at padding."""
        return self._of_stored_cells(values.unflatten(1, (self.scores.shape[1] * self.columns, -1)).amax(2))
