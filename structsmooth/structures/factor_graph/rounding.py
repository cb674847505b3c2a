"""Tables of pairs with given sums of rows and columns."""

import torch
from torch import Tensor

# Less mass than this is missing by rounding alone.
_ROUNDING = 1e-15


def with_marginals(tables: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Non-negative tables [..., S, S] near the given ones, with these sums [..., S] of equal totals.

    Tables are scaled down until none of their sums is too large; what is missing then is filled up by a product. Sums
    that rounding has left a little below zero count as zero.

    Reference:
        Altschuler, Weed and Rigollet (2017), Algorithm 2.
    """
    tiny = torch.finfo(tables.dtype).tiny
    tables = tables * (rows / tables.sum(-1).clamp_min(tiny)).clamp(0, 1).unsqueeze(-1)
    tables = tables * (columns / tables.sum(-2).clamp_min(tiny)).clamp(0, 1).unsqueeze(-2)
    left, above = (rows - tables.sum(-1)).clamp_min(0), (columns - tables.sum(-2)).clamp_min(0)
    missing = left.sum(-1).clamp_min(_ROUNDING)[..., None, None]
    return tables + left.unsqueeze(-1) * above.unsqueeze(-2) / missing
