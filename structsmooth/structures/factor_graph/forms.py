"""The forms in which pairwise scores may be given: one table, a table for each edge, or Potts strengths."""

import torch
from torch import Tensor

from structsmooth.structures.checks import has_shape


def check_form(pairwise: Tensor, batch: int, count: int, states: int) -> None:
    """Raise ``ValueError`` unless pairwise scores for E edges and S states have exactly one of the forms."""
    shape, table, potts = tuple(pairwise.shape), (states, states), (batch, count)
    if not has_shape(pairwise, table, (count, *table), (*potts, *table), potts):
        raise ValueError(
            f"pairwise must have shape [S, S] = {table}, [E, S, S] = {(count, *table)}, "
            f"[B, E, S, S] = {(*potts, *table)}, or [B, E] = {potts} for Potts strengths, got {shape}"
        )
    if has_shape(pairwise, table) and has_shape(pairwise, potts):
        raise ValueError(
            f"pairwise of shape {shape} may be one table for all edges as well as Potts strengths: give "
            "table.expand(E, S, S), or strengths[:, :, None, None] * torch.eye(S)"
        )


def is_potts(pairwise: Tensor, edge_mask: Tensor) -> bool:
    """Whether pairwise scores are Potts strengths [B, E]."""
    return pairwise.dim() == 2 and tuple(pairwise.shape) == tuple(edge_mask.shape)


def is_shared(pairwise: Tensor, edge_mask: Tensor) -> bool:
    """Whether all examples share the pairwise scores."""
    return pairwise.dim() < 4 and not is_potts(pairwise, edge_mask)


def tables(pairwise: Tensor, edge_mask: Tensor, states: int) -> Tensor:
    """Pairwise scores in any of their forms as tables [B, E, S, S]."""
    if is_potts(pairwise, edge_mask):
        agree = torch.eye(states, dtype=torch.bool, device=pairwise.device)
        return torch.where(agree, pairwise[:, :, None, None], 0.0)
    return pairwise.expand(*edge_mask.shape, states, states)
