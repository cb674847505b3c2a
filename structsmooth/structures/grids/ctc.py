"""The grid of connectionist temporal classification: frames along its rows, labels and blanks along its columns."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures import checks
from structsmooth.structures.grids.paths import Moves, diagonal

CTC_MOVES: Moves = ((1, 0), (1, 1), (1, 2))
_ROWS = 4096  # whose indices are made at once


def ctc_grid(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | None,
    target_lengths: Tensor | None,
    blank: int,
    width: int | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Scores [B, T + 2, W] of cells, lengths [B, 2], a band [B, T + 2] if there is a width, and allowed moves.

    Arguments are those of :meth:`structsmooth.Alignment.ctc`. The rows around the frames let a path begin and end with
    a label or with a blank.
    """
    checks.require_scores("log_probs", log_probs)
    checks.require_integers("targets", targets)
    if log_probs.dim() != 3 or targets.dim() != 2 or len(targets) != len(log_probs):
        shapes = f"{tuple(log_probs.shape)} and {tuple(targets.shape)}"
        raise ValueError(f"log_probs and targets must have shapes [B, T, C] and [B, L], got {shapes}")
    frames = log_probs.shape[1]
    rows = checks.lengths_or_all(input_lengths, "log_probs", log_probs)
    columns = 2 * checks.lengths_or_all(target_lengths, "targets", targets) + 1
    symbols = _symbols(targets, columns, blank, log_probs.shape[2])
    lengths = torch.stack([rows + 2, columns], 1)
    # A label may follow another one without a blank, unless they are equal.
    skips = torch.zeros_like(symbols, dtype=torch.bool)
    skips[:, 3::2] = symbols[:, 3::2] != symbols[:, 1:-2:2]
    always = torch.ones_like(skips)
    allowed = torch.stack([always, always, skips], 2)
    if input_lengths is not None:
        log_probs = checks.inside(checks.length_mask(rows, frames), log_probs)
    if width is None:
        scores = log_probs.gather(2, symbols.unsqueeze(1).expand(-1, frames, -1))
        return pad(scores, (0, 0, 1, 1)), lengths, None, allowed
    band = diagonal(lengths, frames + 2, width)
    scores = _scores_in_band(log_probs, symbols, band[:, 1:-1], width)
    return pad(scores, (0, 0, 1, 1)), lengths, band, allowed[:, : max([1, *columns.tolist()])]


def _symbols(targets: Tensor, columns: Tensor, blank: int, classes: int) -> Tensor:
    """Blanks around all labels of targets [B, L]: [B, 2 L + 1], blank at padding."""
    symbols = targets.new_full((len(targets), 2 * targets.shape[1] + 1), blank)
    real = torch.arange(targets.shape[1], device=targets.device) < columns.unsqueeze(1) // 2
    symbols[:, 1::2] = torch.where(real, targets, blank)
    if symbols.numel() and checks.can_read_values():
        least, largest = symbols.aminmax()
        if not 0 <= int(least) <= int(largest) < classes:
            raise ValueError(f"targets and blank must be classes from 0 to {classes - 1}")
        if bool((real & (targets == blank)).any()):
            raise ValueError(f"targets must be labels other than the blank, {blank}, but for padding")
    return symbols.to(torch.int64)


def _scores_in_band(log_probs: Tensor, symbols: Tensor, band: Tensor, width: int) -> Tensor:
    """Scores [B, T, W] of the symbols [B, U] in each frame, from the columns of a band [B, T]."""
    places = torch.arange(width, device=symbols.device)
    scores = []
    for frames, starts in zip(log_probs.split(_ROWS, 1), band.split(_ROWS, 1), strict=True):
        columns = (starts.unsqueeze(2) + places).clamp_max(symbols.shape[1] - 1)
        scores.append(frames.gather(2, symbols.gather(1, columns.flatten(1)).view(columns.shape)))
    return torch.cat(scores, 1)
