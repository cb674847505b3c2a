"""Matchings: every row is assigned a column of its own, or none where that has a score.

Where rows or columns may stay alone, matchings are assignments of every row, too: every row has a dummy column of its
own, at the score of the row without a partner. Scores of columns that no row takes become part of the weights: the sum
of c_j over the columns left is that over all columns, a constant, minus that over the columns taken. A column that must
be taken has a c_j so low that no matching without it can be the best.
"""

from typing import cast

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, widened
from structsmooth.structures.best_max_marginal_first import sorted_downwards
from structsmooth.structures.matching import operators

# Potentials that a matching may have beside its weights.
_UNMATCHED = ("unmatched_rows", "unmatched_columns")


class Matching(Structure):
    """All assignments of N rows to distinct columns among M >= N, bound to weights of the pairs.

    score(y) = Σ_v weights[b, v, y_v] if the partners y_v are distinct, else -inf. An output is an int64 tensor [B, N]
    of columns. With ``sizes``, examples have fewer rows and columns; partners of padded rows are ignored in arguments
    and 0 in results.

    With ``unmatched_rows``, a row may stay without a partner, which is -1 in outputs, for a score of its own, and there
    may be more rows than columns. ``unmatched_columns`` score the columns that no row takes; they score 0 otherwise.
    Both are potentials beside the weights: oracles are differentiable in them, and :meth:`parts` indicates them.

    Complexity per example: max oracle O(N² M), max-marginals O(N³ + N M) more, top-K (best max-marginal first, see
    :func:`best_max_marginal_first`) a few shortest paths per output, O(N M) each. The exp oracle is #P-complete (a
    permanent): ``logsumexp`` and ``marginals`` raise ``NotImplementedError``.

    Compiled code finds the assignments in float64 on the CPU, on every core that torch may use. Tensors on other
    devices are copied to the CPU; results and gradients are copied back. A value is the score of its matching, exact to
    about 1e-12 (1e-6 in float32) relative to the largest weight. The choice among several best matchings is
    deterministic, but not always the first in lexicographic order. -inf forbids a pair. An example without any
    allowed matching has value -inf and zero gradient.

    Args:
        weights: scores [B, N, M] of the pairs, floating point, 1 <= N <= M; N may be larger than M if there are
            ``unmatched_rows``.
        sizes: rows and columns of each example, integers [B, 2], where 0 <= rows <= columns or, with
            ``unmatched_rows``, both are at least 0; all N and M if not given. Scores beyond them may have any value.
        unmatched_rows: scores [B, N] of rows without a partner; -inf for rows that must have one. If not given, all
            must.
        unmatched_columns: scores [B, M] of columns that no row takes; -inf for columns that must be taken.
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

        Both rows want column 0, and column 1 is worse than nothing:

        >>> weights = torch.tensor([[[2.0, -1.0], [1.5, -1.0]]])
        >>> Matching(weights, unmatched_rows=torch.zeros(1, 2)).max()
        (tensor([2.]), tensor([[ 0, -1]]))
    """

    labels_are_classes = True
    potential_names: tuple[str, ...] = ("weights",)
    row_names = ("sizes",)
    unmatched_rows: Tensor | None = None
    unmatched_columns: Tensor | None = None

    def __init__(
        self,
        weights: Tensor,
        sizes: Tensor | None = None,
        *,
        unmatched_rows: Tensor | None = None,
        unmatched_columns: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.weights = weights
        if unmatched_rows is not None:
            self.unmatched_rows = unmatched_rows
            self.potential_names += ("unmatched_rows",)
        if unmatched_columns is not None:
            self.unmatched_columns = unmatched_columns
            self.potential_names += ("unmatched_columns",)
        self.check_shapes()
        if sizes is None:
            sizes = torch.stack([torch.full(weights.shape[:1], n, device=weights.device) for n in weights.shape[1:]], 1)
        checks.require_integers("sizes", sizes)
        checks.require_shape("sizes", sizes, "[B, 2]", (weights.shape[0], 2))
        checks.require_device("sizes", sizes, "weights", weights)
        self.sizes = sizes.to(torch.int64)
        super().__init__(validate_args)
        if self.validate_args:
            operators.check_sizes(self.sizes, *weights.shape[1:], rows_fit=unmatched_rows is None)

    def check_shapes(self) -> None:
        """Raise unless weights are [B, N, M], and scores of no partner [B, N] and [B, M]."""
        weights, names = self.weights, self.potential_names
        checks.require_scores("weights", weights)
        all_matched = "unmatched_rows" not in names
        if weights.dim() != 3 or 0 in weights.shape[1:] or (all_matched and weights.shape[1] > weights.shape[2]):
            wanted = "1 <= N <= M" if all_matched else "N, M >= 1"
            message = f"weights must have shape [B, N, M] with {wanted}, got {tuple(weights.shape)}"
            if weights.dim() == 3 and 0 not in weights.shape[1:]:
                message += ": where rows outnumber columns, give unmatched_rows, the scores [B, N] of no partner"
            raise ValueError(message)
        for name, dimensions, size in zip(_UNMATCHED, ("[B, N]", "[B, M]"), weights.shape[1:], strict=True):
            if name in names:
                scores = getattr(self, name)
                checks.require_scores(name, scores)
                checks.require_shape(name, scores, dimensions, (weights.shape[0], size))
                checks.require_device(name, scores, "weights", weights)

    def used_scores(self, name: str) -> Tensor:
        """Scores, zero beyond the sizes."""
        inside = {"weights": self._inside, "unmatched_rows": self.mask}.get(name, self.column_mask)
        return checks.inside(inside, getattr(self, name))

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
        chosen = widened(self.weights).gather(2, y.clamp_min(0).unsqueeze(-1)).squeeze(-1)
        if self.unmatched_rows is not None:
            chosen = torch.where(y < 0, widened(self.unmatched_rows), chosen)
        # Rows without a partner, and padded ones, get partners of their own, beyond the last column.
        rows, columns = self.weights.shape[1:]
        partners = torch.where(self.mask & (y >= 0), y, columns + torch.arange(rows, device=y.device))
        distinct = (partners.sort(1).values.diff() > 0).all(1)
        total = torch.where(self.mask, chosen, 0.0).sum(1)
        if self.unmatched_columns is not None:
            total = total + torch.where(self._left(y), widened(self.unmatched_columns), 0.0).sum(1)
        return torch.where(distinct, total, -torch.inf)

    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """Indicators of pairs [B, N, M], zero on padding.

        Where they have a score, also those of rows without a partner [B, N] and of columns that no row takes [B, M].
        """
        y = self.checked_labels(y)
        dtype, pairs = widened(self.weights).dtype, y.unsqueeze(-1) == self._columns
        parts = [(pairs & self.mask.unsqueeze(-1)).to(dtype)]
        if self.unmatched_rows is not None:
            parts.append(((y < 0) & self.mask).to(dtype))
        if self.unmatched_columns is not None:
            parts.append(self._left(y).to(dtype))
        return tuple(parts)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct matchings [B, k, N] (Algorithm 10).

        Values are -inf, and labels 0, where fewer than k matchings have a finite score.
        """
        k = check_k(k)
        if len(self.potentials) == 1:
            return self.with_gradients(*operators.top_k(widened(self.weights), self.sizes, k))
        weights, sizes, _, _ = self._assignment()
        found, y = operators.top_k(weights.detach(), sizes, k)
        y = torch.where(self.mask.unsqueeze(1), (y - self._dummies).clamp_min(-1), 0)
        # Outputs are scored again, exactly: -inf where a column is left that must be taken.
        wide = self.replace(*map(widened, self.potentials))
        values = torch.stack([wide.score(matching) for matching in y.unbind(1)], 1)
        possible = (found > -torch.inf) & (values > -torch.inf)
        values, y = sorted_downwards(torch.where(possible, values, -torch.inf), y)
        return values, torch.where((values > -torch.inf).unsqueeze(-1), y, 0)

    def max_marginals(self) -> Tensor:
        """Largest score [B, N, M] of a matching with y_v = j (Definition 13); zero at padded rows."""
        if len(self.potentials) == 1:
            return cast(Tensor, operators.max_marginals(widened(self.weights), self.sizes))
        weights, sizes, constant, least = self._assignment()
        values = operators.max_marginals(weights, sizes)[..., self._dummies :] + constant.view(-1, 1, 1)
        values = torch.where(values >= least.view(-1, 1, 1), values, -torch.inf)
        return torch.where(self.mask.unsqueeze(-1), values, 0.0).to(widened(self.weights).dtype)

    def _assignment(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights and sizes of an assignment, float64, a constant to add [B], and a bound below all finite scores [B].

        Dummy columns come first. Gradients pass through the dtype in which values are returned.
        """
        weights, sizes = widened(self.weights).double(), self.sizes
        constant = weights.new_zeros(weights.shape[0])
        least = torch.full_like(constant, -torch.inf)
        if self.unmatched_columns is not None:
            # A bound on the absolute values of all finite scores.
            kinds = [self.used_scores(name).detach().double() for name in self.potential_names]
            sizes_of = [torch.where(scores > -torch.inf, scores.abs(), 0.0) for scores in kinds]
            scale = torch.stack([scores.flatten(1).sum(1) for scores in (sizes_of[0].amax(2), *sizes_of[1:])]).sum(0)
            scale = torch.where(scale > 0, scale, 1.0)
            least = -2 * scale
            columns = widened(self.used_scores("unmatched_columns")).double()
            columns = torch.where(columns > -torch.inf, columns, -4 * scale.unsqueeze(1))
            weights, constant = weights - columns.unsqueeze(1), columns.sum(1)
        if self.unmatched_rows is not None:
            diagonal = torch.eye(self._dummies, dtype=torch.bool, device=weights.device)
            alone = torch.where(diagonal, widened(self.unmatched_rows).double().unsqueeze(-1), -torch.inf)
            rows, columns = sizes.unbind(1)
            weights, sizes = torch.cat([alone, weights], 2), torch.stack([rows, columns + self._dummies], 1)
        return weights, sizes, constant, least

    @property
    def _dummies(self) -> int:
        """Number of dummy columns, one a row, which stand for no partner."""
        return 0 if self.unmatched_rows is None else self.weights.shape[1]

    @property
    def column_mask(self) -> Tensor:
        """[B, M], true at the columns that examples have."""
        return operators.column_mask(self.sizes, self.weights.shape[2])

    @property
    def _inside(self) -> Tensor:
        """[B, N, M], true at the pairs that examples have."""
        return self.mask.unsqueeze(2) & self.column_mask.unsqueeze(1)

    @property
    def _columns(self) -> Tensor:
        return torch.arange(self.weights.shape[2], device=self.weights.device)

    def _left(self, y: Tensor) -> Tensor:
        """[B, M], true at the columns that no row takes."""
        taken = ((y.unsqueeze(-1) == self._columns) & self.mask.unsqueeze(-1)).any(1)
        return self.column_mask & ~taken

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Columns as classes. With ``unmatched_rows``, "no partner" is one more class, the last."""
        columns = self.weights.shape[2]
        if self.unmatched_rows is None:
            return y, columns
        return torch.where(y < 0, columns, y), columns + 1

    def potential_costs(self, costs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Costs of pairs, and with ``unmatched_rows`` of rows without a partner; columns without one cost nothing."""
        if self.unmatched_rows is None:
            return costs
        free = () if self.unmatched_columns is None else (torch.zeros((), device=costs.device),)
        return (costs[..., :-1], costs[..., -1], *free)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Partners as int64, with 0 at padding."""
        checks.require_outputs(y, "[B, N]", "weights", self.weights)
        y = torch.where(self.mask, y, 0).to(torch.int64)
        if self.validate_args:
            first = 0 if self.unmatched_rows is None else -1
            wrong = (self.mask & ((y < first) | (y >= self.sizes[:, 1:]))).any(1)
            if bool(wrong.any()):
                b = int(wrong.nonzero()[0])
                last = int(self.sizes[b, 1]) - 1
                raise ValueError(f"y must hold labels from {first} to {last} at example {b}, got {y[b].tolist()}")
        return y
