"""Subsets of items, of a given size or of sizes within bounds."""

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import widened
from structsmooth.structures.checks import check_lengths, length_mask
from structsmooth.structures.programs import DynamicProgram, Program, ProgramBuilder, cached_program


class Subset(DynamicProgram):
    """All subsets of N items whose size is within bounds, bound to scores of taking and leaving each item.

    An output is an int64 tensor [B, N]: 1 for the items in the subset, 0 for the others and at padding. Complexity per
    example, with ``high`` the largest size: max and exp oracle O(N high), top-K up to K times that.

    Backends, forbidden (-inf) scores and infeasible examples are as in :class:`~structsmooth.programs.DynamicProgram`.

    Args:
        unary: scores [B, N, 2] of leaving and of taking each item, floating point.
        size: the number of items in a subset, or the least and the largest number.
        lengths: numbers of items [B], integers from 0 to N; all N if not given.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.
        backend: ``"compiled"`` (CPU only), ``"triton"`` (GPU only), ``"torch"``, or ``"auto"`` for the fastest.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, bounds that are negative or in the wrong order.

    Example:
        >>> gain = torch.tensor([[3.0, -1.0, 2.0, 1.0]])
        >>> subset = Subset(torch.stack([torch.zeros(1, 4), gain], -1), size=2)
        >>> subset.max()
        (tensor([5.]), tensor([[1, 0, 1, 0]]))
        >>> subset.log_count().exp().round()
        tensor([6.])
    """

    labels_are_classes = True
    potential_names = ("unary",)
    row_names = ("lengths",)
    field_names = ("bounds",)

    def __init__(
        self,
        unary: Tensor,
        size: int | tuple[int, int],
        lengths: Tensor | None = None,
        *,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        self.unary = unary
        self.bounds = (size, size) if isinstance(size, int) else tuple(size)
        if len(self.bounds) != 2 or not 0 <= self.bounds[0] <= self.bounds[1]:
            raise ValueError(f"size must be a number >= 0, or the least and the largest number, got {size}")
        self.check_shapes()
        self.lengths = checks.lengths_or_all(lengths, "unary", unary)
        super().__init__(validate_args, backend)
        if self.validate_args:
            check_lengths(self.lengths, unary.shape[1], "N", least=0)

    def check_shapes(self) -> None:
        """Raise unless scores are [B, N, 2]."""
        checks.require_scores("unary", self.unary)
        if self.unary.dim() != 3 or self.unary.shape[1] < 1 or self.unary.shape[2] != 2:
            raise ValueError(f"unary must have shape [B, N, 2] with N >= 1, got {tuple(self.unary.shape)}")

    def used_scores(self, name: str) -> Tensor:
        """Scores, zero at padding."""
        return checks.inside(self.mask, self.unary)

    @property
    def mask(self) -> Tensor:
        """[B, N], true for the items that examples have."""
        return length_mask(self.lengths, self.unary.shape[1])

    def program(self) -> Program:
        """The program of :func:`subsets`."""
        return subsets(self.unary.shape[1], *self.bounds)

    def program_scores(self) -> Tensor:
        """Scores of leaving and of taking each item, [B, 2 N]."""
        return torch.where(self.mask.unsqueeze(2), widened(self.unary), 0.0).flatten(1)

    def sizes(self) -> Tensor:
        """The root of the program for the number of items of each example: int64 [B]."""
        return self.lengths

    def checked_labels(self, y: Tensor) -> Tensor:
        """Labels as int64, with 0 at padding."""
        y = checks.checked_classes(self, y, "[B, N]", 2, self.mask)
        if self.validate_args:
            taken = y.sum(1)
            if bool(((taken < self.bounds[0]) | (taken > self.bounds[1])).any()):
                raise ValueError(f"y must take from {self.bounds[0]} to {self.bounds[1]} items, got {taken.tolist()}")
        return y

    def derivation(self, y: Tensor) -> Tensor:
        """The score of taking or of leaving each item: int64 [B, N]."""
        index = 2 * torch.arange(y.shape[1], device=y.device) + y
        return torch.where(self.mask, index, 2 * y.shape[1])

    def outputs(self, used: Tensor) -> Tensor:
        """Outputs [B, K, N] from the scores that they use: 1 for items that are taken, 0 for others."""
        items = self.unary.shape[1]
        y = torch.zeros(*used.shape[:2], items + 1, dtype=torch.int64, device=used.device)
        return y.scatter(2, used // 2, used % 2)[..., :items]

    def read_max_marginals(self, values: Tensor) -> Tensor:
        """The largest score [B, N, 2] of a subset with or without each item; zero at padding."""
        return torch.where(self.mask.unsqueeze(2), values.view(self.unary.shape), 0.0)


@cached_program
def subsets(items: int, low: int, high: int) -> Program:
    """Scores of leaving and taking each item. Nodes say how many of the first items are taken; roots are by length."""
    builder, block = ProgramBuilder(scores=2 * items), high + 2
    builder.add(head=0)
    i, taken = np.ogrid[:items, : high + 1]
    before, after = i * block + taken, (i + 1) * block + taken
    builder.add(after, before, index=2 * i)
    builder.add(after, before - 1, index=2 * i + 1, where=taken > 0)
    first = block * np.arange(items + 1)[:, None]
    builder.add(first + high + 1, first + np.arange(low, high + 1))
    return builder.build(first + high + 1)
