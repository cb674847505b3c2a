"""Matchings: every row is assigned a column of its own."""

from typing import cast

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, widened
from structsmooth.structures.matching import operators


class Matching(Structure):
    """All assignments of N rows to distinct columns among M >= N, bound to weights of the pairs.

    score(y) = Σ_v weights[b, v, y_v] if the partners y_v are distinct, else -inf. An output is an int64 tensor [B, N]
    of columns. With ``sizes``, examples have fewer rows and columns; partners of padded rows are ignored in arguments
    and 0 in results.

    Complexity per example: max oracle O(N² M), max-marginals O(N³ + N M) more, top-K (best max-marginal first, see
    :func:`best_max_marginal_first`) a few shortest paths per output, O(N M) each. The exp oracle is #P-complete (a
    permanent): ``logsumexp`` and ``marginals`` raise ``NotImplementedError``.

    Compiled code finds the assignments in float64 on the CPU, on every core that torch may use. Tensors on other
    devices are copied to the CPU; results and gradients are copied back. A value is the score of its matching, exact to
    about 1e-12 (1e-6 in float32) relative to the largest weight. The choice among several best matchings is
    deterministic, but not always the first in lexicographic order. -inf forbids a pair. An example without any
    allowed matching has value -inf and zero gradient.

    Args:
        weights: scores [B, N, M] of the pairs, floating point, 1 <= N <= M.
        sizes: rows and columns of each example, integers [B, 2], where 1 <= rows <= columns; all N and M if not given.
            Weights beyond them may have any value.
        validate_args: whether to check values too: NaN, +inf, sizes, ranges of labels. Costs a reduction, and a
            synchronization on a GPU. Default: ``Structure.validate_args_default``.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Pillutla et al. (2019), Appendix C.3, Algorithm 12; Jonker and Volgenant (1987).

    Example:
        >>> Matching(torch.tensor([[[3.0, 2.0, 0.0], [3.0, 1.0, 0.5]]])).max()
        (tensor([5.]), tensor([[1, 0]]))
    """

    potential_names = ("weights",)
    row_names = ("sizes",)

    def __init__(self, weights: Tensor, sizes: Tensor | None = None, *, validate_args: bool | None = None) -> None:
        self.weights = weights
        self.check_shapes()
        if sizes is None:
            sizes = torch.stack([torch.full(weights.shape[:1], n, device=weights.device) for n in weights.shape[1:]], 1)
        checks.require_integers("sizes", sizes)
        checks.require_shape("sizes", sizes, "[B, 2]", (len(weights), 2))
        checks.require_device("sizes", sizes, "weights", weights)
        self.sizes = sizes.to(torch.int64)
        super().__init__(validate_args)
        if self.validate_args:
            operators.check_sizes(self.sizes, *weights.shape[1:])

    def check_shapes(self) -> None:
        """Raise unless weights are [B, N, M], outside transforms of ``torch.func``."""
        weights = self.weights
        checks.require_scores("weights", weights)
        if weights.dim() != 3 or not 1 <= weights.shape[1] <= weights.shape[2]:
            raise ValueError(f"weights must have shape [B, N, M] with 1 <= N <= M, got {tuple(weights.shape)}")
        checks.refuse_transforms("Matching")

    def check_values(self, name: str) -> None:
        """Raise ``ValueError`` for NaN or +inf within the sizes."""
        checks.require_below_infinity(name, self.weights, lambda: self.weights[self._inside])

    @property
    def lengths(self) -> Tensor:
        """Number of rows of each example: int64 [B]."""
        return self.sizes[:, 0]

    @property
    def mask(self) -> Tensor:
        """[B, N], true at the rows that examples have."""
        return operators.row_mask(self.sizes, self.weights.shape[1])

    def batched(self) -> "Matching":
        """The structure itself."""
        return self

    def score(self, y: Tensor) -> Tensor:
        """Score of the matchings ``y`` [B, N]: [B], differentiable; -inf where two rows have the same partner."""
        y = self.checked_labels(y)
        chosen = widened(self.weights).gather(2, y.unsqueeze(-1)).squeeze(-1)
        # Padded rows get partners of their own, beyond the last column.
        rows, columns = self.weights.shape[1:]
        partners = torch.where(self.mask, y, columns + torch.arange(rows, device=y.device)).sort(1).values
        distinct = (partners.diff() > 0).all(1)
        return torch.where(distinct, torch.where(self.mask, chosen, 0.0).sum(1), -torch.inf)

    def parts(self, y: Tensor) -> tuple[Tensor]:
        """Indicators of pairs [B, N, M], zero on padding."""
        pairs = torch.nn.functional.one_hot(self.checked_labels(y), self.weights.shape[-1])
        return (pairs.to(widened(self.weights).dtype) * self.mask.unsqueeze(-1),)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct matchings [B, k, N] (Algorithm 10).

        Values are -inf, and labels 0, where fewer than k matchings have a finite score.
        """
        k = check_k(k)
        values, y = operators.top_k(widened(self.weights), self.sizes, k)
        return values, y

    def max_marginals(self) -> Tensor:
        """Largest score [B, N, M] of a matching with y_v = j (Definition 13); zero at padded rows."""
        return cast(Tensor, operators.max_marginals(widened(self.weights), self.sizes))

    @property
    def _inside(self) -> Tensor:
        """[B, N, M], true at the pairs that examples have."""
        return self.mask.unsqueeze(2) & operators.column_mask(self.sizes, self.weights.shape[2]).unsqueeze(1)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Partners as int64, with 0 at padding."""
        checks.require_outputs(y, "[B, N]", "weights", self.weights)
        y = torch.where(self.mask, y, 0).to(torch.int64)
        if self.validate_args:
            wrong = ((y < 0) | (y >= self.sizes[:, 1:])).any(1)
            if bool(wrong.any()):
                b = int(wrong.nonzero()[0])
                last = int(self.sizes[b, 1]) - 1
                raise ValueError(f"y must hold labels from 0 to {last} at example {b}, got {y[b].tolist()}")
        return y
