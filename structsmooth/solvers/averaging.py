"""Weighted averages of iterates by powers of their number."""

from typing import Any

import torch
from torch import Tensor

ONE_A_PASS = 8
"""Degree of averages of one iterate a pass: mostly of the last ninth of them."""


def newest_weight(t: Any, degree: int = 12) -> Any:
    """Share of the newest of ``t`` iterates in their polynomial-decay average (Shamir and Zhang 2013, section 4).

    The iterates count in proportion to t^degree. By default this is about the last tenth of them, so that the first
    ones are soon forgotten.
    """
    return (degree + 1) / (t + degree)


def weights_of_iterates(t: Tensor, degree: int) -> tuple[Tensor, float]:
    """Shares of the iterates ``t`` = t₁, t₁ + 1, ... in the average at their end, and of the average before them."""
    newest = newest_weight(t, degree)
    kept = torch.cat([(1 - newest).flip(0).cumprod(0).flip(0), t.new_ones(1)])
    return newest * kept[1:], float(kept[0])
