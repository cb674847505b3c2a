"""Matchings: every row is assigned a column of its own, or as many as it has places; or none where that has a score.

Assignments alone have compiled loops of their own; all others are flows, in which a further row and a further column
take the places that stay free.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, no_class_penalties, widened
from structsmooth.structures.matching import operators

# Potentials that a matching may have beside its weights.
_UNMATCHED = ("unmatched_rows", "unmatched_columns")

# Numbers of places: for all, for each row or column, or for those of each example.
Capacities = int | Sequence[int] | Tensor


class Matching(Structure):
    """All assignments of N rows to distinct columns among M >= N, bound to weights of the pairs.

    score(y) = Σ_v weights[b, v, y_v] if the partners y_v are distinct, else -inf. An output is an int64 tensor [B, N]
    of columns. With ``sizes``, examples have fewer rows and columns; partners of padded rows are ignored in arguments
    and 0 in results.

    With ``unmatched_rows``, a row may stay without a partner, which is -1 in outputs, for a score of its own, and there
    may be more rows than columns. ``unmatched_columns`` score the columns that no row takes; they score 0 otherwise.
    Both are potentials beside the weights: oracles are differentiable in them, and :meth:`parts` indicates them.

    With ``column_capacities``, a column may be taken by several rows, and there may be more rows than columns. With
    ``row_capacities``, a row has as many partners as it has places, all of them distinct (a b-matching, such as
    reviewers to papers), and an output is an int64 tensor [B, N, M] instead: 1 for the pairs that it has. A cost of
    labels then counts the pairs that differ. Scores of rows and columns without a partner count for each place that
    stays free, so that ``unmatched_rows`` of 0 make capacities of rows an upper limit.

    Complexity per example: max oracle O(N² M), max-marginals O(N³ + N M) more, top-K (best max-marginal first, see
    :func:`best_max_marginal_first`) a few shortest paths per output, O(N M) each. With scores of what stays alone, or
    with capacities, a shortest path takes O((N + M)²): one for each place, and N + M for all max-marginals. The exp
    oracle is #P-complete (a permanent): ``logsumexp`` and ``marginals`` raise ``NotImplementedError``.

    Compiled code finds the matchings in float64 on the CPU, on every core that torch may use. Tensors on other
    devices are copied to the CPU; results and gradients are copied back. A value is the score of its matching, exact to
    about 1e-12 (1e-6 in float32) relative to the largest weight. The choice among several best matchings is
    deterministic, but not always the first in lexicographic order. -inf forbids a pair. An example without any
    allowed matching has value -inf and zero gradient.

    Args:
        weights: scores [B, N, M] of the pairs, floating point, 0 <= N <= M; N may be larger than M if there are
            ``unmatched_rows`` or capacities. Without rows, there is one matching, of no pairs.
        sizes: rows and columns of each example, integers [B, 2], where 0 <= rows <= columns or, with
            ``unmatched_rows`` or capacities, both are at least 0; all N and M if not given. Scores beyond them may have
            any value.
        unmatched_rows: scores [B, N] of rows without a partner; -inf for rows that must have one. If not given, all
            must.
        unmatched_columns: scores [B, M] of columns that no row takes; -inf for columns that must be taken.
        row_capacities: number of partners of each row, integers of at least 0: [B, N], [N] for all examples, or one
            for all rows.
        column_capacities: the largest number of rows that take each column, likewise, [B, M]; 1 if not given.
        validate_args: whether to check values too: NaN, +inf, sizes, ranges of labels. Costs a reduction, and a
            synchronization on a GPU. Default: ``Structure.validate_args_default``.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Pillutla et al. (2019), Appendix C.3, Algorithm 12; Jonker and Volgenant (1987); for flows, Edmonds and
        Karp (1972).

    Example:
        >>> Matching(torch.tensor([[[3.0, 2.0, 0.0], [3.0, 1.0, 0.5]]])).max()
        (tensor([5.]), tensor([[1, 0]]))

        Both rows want column 0, and column 1 is worse than nothing:

        >>> weights = torch.tensor([[[2.0, -1.0], [1.5, -1.0]]])
        >>> Matching(weights, unmatched_rows=torch.zeros(1, 2)).max()
        (tensor([2.]), tensor([[ 0, -1]]))

        Two reviewers for each of two papers, and at most two papers for each of three reviewers:

        >>> weights = torch.tensor([[[3.0, 2.0, 0.0], [3.0, 1.0, 2.0]]])
        >>> Matching(weights, row_capacities=2, column_capacities=2).max()
        (tensor([10.]), tensor([[[1, 1, 0],
                 [1, 0, 1]]]))
    """

    labels_are_classes = True
    potential_names: tuple[str, ...] = ("weights",)
    row_names = ("sizes", "row_capacities", "column_capacities")
    field_names = ("potential_names", "unmatched_rows", "unmatched_columns", "_rows_fit")
    unmatched_rows: Tensor | None = None
    unmatched_columns: Tensor | None = None

    def __init__(
        self,
        weights: Tensor,
        sizes: Tensor | None = None,
        *,
        unmatched_rows: Tensor | None = None,
        unmatched_columns: Tensor | None = None,
        row_capacities: Capacities | None = None,
        column_capacities: Capacities | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.weights = weights
        if unmatched_rows is not None:
            self.unmatched_rows = unmatched_rows
            self.potential_names += ("unmatched_rows",)
        if unmatched_columns is not None:
            self.unmatched_columns = unmatched_columns
            self.potential_names += ("unmatched_columns",)
        # Whether there must be a column for each row.
        self._rows_fit = unmatched_rows is None and row_capacities is None and column_capacities is None
        self.check_shapes()
        self.row_capacities = self._capacities("row_capacities", row_capacities, "N")
        self.column_capacities = self._capacities("column_capacities", column_capacities, "M")
        if sizes is None:
            whole = [torch.full(weights.shape[:1], n, device=weights.device) for n in weights.shape[1:]]
            self.sizes = torch.stack(whole, 1)
        else:
            checks.require_integers("sizes", sizes)
            checks.require_shape("sizes", sizes, "[B, 2]", (weights.shape[0], 2))
            checks.require_device("sizes", sizes, "weights", weights)
            self.sizes = sizes.to(torch.int64)
        super().__init__(validate_args)
        if self.validate_args:
            if sizes is not None:
                operators.check_sizes(self.sizes, *weights.shape[1:], rows_fit=self._rows_fit)
            for name in ("row_capacities", "column_capacities"):
                if (capacities := getattr(self, name)) is not None and bool((capacities < 0).any()):
                    raise ValueError(f"{name} must be at least 0, got {int(capacities.min())}")

    def check_shapes(self) -> None:
        """Raise unless weights are [B, N, M], and scores of no partner [B, N] and [B, M]."""
        weights, names = self.weights, self.potential_names
        checks.require_scores("weights", weights)
        if weights.dim() != 3 or (self._rows_fit and weights.shape[1] > weights.shape[2]):
            wanted = " with N <= M" if self._rows_fit else ""
            message = f"weights must have shape [B, N, M]{wanted}, got {tuple(weights.shape)}"
            if weights.dim() == 3:
                message += ": where rows outnumber columns, give unmatched_rows, the scores [B, N] of no partner, "
                message += "or column_capacities"
            raise ValueError(message)
        for name, dimensions, size in zip(_UNMATCHED, ("[B, N]", "[B, M]"), weights.shape[1:], strict=True):
            if name in names:
                scores = getattr(self, name)
                checks.require_scores(name, scores)
                checks.require_shape(name, scores, dimensions, (weights.shape[0], size))
                checks.require_device(name, scores, "weights", weights)

    def used_scores(self, name: str) -> Tensor:
        """Scores, zero beyond the sizes."""
        inside = {"weights": self._inside, "unmatched_rows": self.row_mask}.get(name, self.column_mask)
        return checks.inside(inside, getattr(self, name))

    @property
    def lengths(self) -> Tensor:
        """Number of rows of each example: int64 [B]."""
        return self.sizes[:, 0]

    @property
    def mask(self) -> Tensor:
        """True at the positions of outputs: [B, N] at the rows, or with ``row_capacities`` [B, N, M] at the pairs."""
        return self.row_mask if self.row_capacities is None else self._inside

    @property
    def row_mask(self) -> Tensor:
        """[B, N], true at the rows that examples have."""
        return operators.row_mask(self.sizes, self.weights.shape[1])

    @property
    def column_mask(self) -> Tensor:
        """[B, M], true at the columns that examples have."""
        return operators.column_mask(self.sizes, self.weights.shape[2])

    def batched(self) -> "Matching":
        """The structure itself."""
        return self

    def score(self, y: Tensor) -> Tensor:
        """Score of the matchings ``y``: [B], differentiable; -inf where partners are too many or too few."""
        pairs = self._pairs(y)
        alone, left = self._free(pairs)
        total = torch.where(pairs, self.weights.double(), 0.0).sum((1, 2))
        for name, free in zip(_UNMATCHED, (alone, left), strict=True):
            if name in self.potential_names:
                total = total + torch.where(free > 0, free * self.used_scores(name).double(), 0.0).sum(1)
        fits = alone == 0 if self.unmatched_rows is None else alone >= 0
        return torch.where(fits.all(1) & (left >= 0).all(1), total, -torch.inf).to(self.value_dtype)

    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """Indicators of pairs [B, N, M], zero on padding.

        Where they have a score, also the places of rows [B, N] and of columns [B, M] that stay free.
        """
        pairs = self._pairs(y)
        free = zip(_UNMATCHED, self._free(pairs), strict=True)
        counts = [pairs, *[places.clamp_min(0) for name, places in free if name in self.potential_names]]
        return tuple([count.to(widened(self.weights).dtype) for count in counts])

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct matchings [B, k, ...] (Algorithm 10).

        Values are -inf, and labels 0, where fewer than k matchings have a finite score.
        """
        k = check_k(k)
        if self._is_assignment:
            return self.with_gradients(*operators.top_k(widened(self.weights), self.sizes, k))
        values, y = operators.flow_top_k(*self._flow(), k)
        y = y.unflatten(2, self.weights.shape[1:])
        if self.row_capacities is None:
            # A flow has the pairs; each row has one at most here, whose column is the sum.
            partners = torch.where(y.any(3), (y * torch.arange(y.shape[3], device=y.device)).sum(3), -1)
            y = torch.where(self.row_mask.unsqueeze(1) & (values > -torch.inf).unsqueeze(2), partners, 0)
        return self.with_gradients(values, y)

    def max_marginals(self) -> Tensor:
        """Largest score [B, N, M] of a matching with each pair (Definition 13); zero at padded rows."""
        if self._is_assignment:
            return operators.max_marginals(widened(self.weights), self.sizes)
        return torch.where(self.row_mask.unsqueeze(2), operators.flow_max_marginals(*self._flow()), 0.0)

    @property
    def _is_assignment(self) -> bool:
        return self._rows_fit and self.unmatched_columns is None

    def _capacities(self, name: str, capacities: Capacities | None, size: str) -> Tensor | None:
        """Places of the rows or the columns of each example, int64 [B, N] or [B, M]."""
        if capacities is None:
            return None
        if not isinstance(capacities, Tensor):
            capacities = torch.tensor(capacities, device=self.weights.device)
        checks.require_integers(name, capacities)
        checks.require_device(name, capacities, "weights", self.weights)
        batch, *sizes = self.weights.shape
        shape = (batch, *sizes["NM".index(size) :][:1])
        if capacities.dim() < 2 and capacities.numel() == 1:
            capacities = capacities.reshape(())
        if tuple(capacities.shape) not in ((), shape[1:], shape):
            wanted = f"[B, {size}] = {shape}, [{size}] or one for all"
            raise ValueError(f"{name} must have shape {wanted}, got {tuple(capacities.shape)}")
        return capacities.to(torch.int64).expand(shape)

    def _places(self) -> tuple[Tensor, Tensor]:
        """Places of rows [B, N] and of columns [B, M], int64, 0 at padding."""
        rows, columns = self.row_mask.long(), self.column_mask.long()
        if self.row_capacities is not None:
            rows = rows * self.row_capacities
        return rows, columns if self.column_capacities is None else columns * self.column_capacities

    def _free(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Places of rows [B, N] and columns [B, M] that pairs [B, N, M] leave free; below 0 where too many."""
        rows, columns = self._places()
        return rows - pairs.sum(2), columns - pairs.sum(1)

    def _flow(self) -> tuple[Tensor, Tensor, Tensor]:
        """Scores [B, N + 1, M + 1] of pairs and of places that stay free, and the places of rows and columns."""
        weights = widened(self.weights)
        alone, left = (
            weights.new_full(weights.shape[:2], -torch.inf),
            weights.new_zeros(weights.shape[0], weights.shape[2]),
        )
        if self.unmatched_rows is not None:
            alone = widened(self.used_scores("unmatched_rows"))
        if self.unmatched_columns is not None:
            left = widened(self.used_scores("unmatched_columns"))
        pairs = torch.where(self._inside, weights, -torch.inf)
        rows = torch.cat([pairs, alone.unsqueeze(2)], 2)
        return torch.cat([rows, torch.nn.functional.pad(left, (0, 1)).unsqueeze(1)], 1), *self._places()

    @property
    def _inside(self) -> Tensor:
        """[B, N, M], true at the pairs that examples have."""
        return self.row_mask.unsqueeze(2) & self.column_mask.unsqueeze(1)

    def _pairs(self, y: Tensor) -> Tensor:
        """[B, N, M], true at the pairs of outputs."""
        y = self.checked_labels(y)
        if self.row_capacities is not None:
            return y > 0
        return (y.unsqueeze(-1) == torch.arange(self.weights.shape[2], device=y.device)) & self._inside

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Columns as classes. With ``unmatched_rows``, "no partner" is one more class, the last.

        With ``row_capacities``, labels are of pairs, of two classes.
        """
        columns = self.weights.shape[2]
        if self.row_capacities is not None:
            return y, 2
        if self.unmatched_rows is None:
            return y, columns
        return torch.where(y < 0, columns, y), columns + 1

    def potential_costs(self, costs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Costs of pairs, and with ``unmatched_rows`` of rows without a partner; columns without one cost nothing."""
        if self.row_capacities is not None:
            # What a row would cost without pairs is shared among its places: each has a partner, or stays free.
            without, with_pair = torch.where(self._inside.unsqueeze(3), costs, 0.0).unbind(3)
            alone = without.sum(2) / self._places()[0].clamp_min(1)
            pairs = with_pair - without + alone.unsqueeze(2)
        elif self.unmatched_rows is not None:
            pairs, alone = costs[..., :-1], costs[..., -1]
        else:
            return costs
        free = torch.zeros((), device=costs.device)
        of_name = {"weights": pairs, "unmatched_rows": alone, "unmatched_columns": free}
        return tuple([of_name[name] for name in self.potential_names])

    def class_penalties(self, allowed: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Not there with ``row_capacities``: no potential scores the absence of a pair."""
        if self.row_capacities is not None:
            raise no_class_penalties(self, "pairs")
        return super().class_penalties(allowed)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Partners, or with ``row_capacities`` labels of pairs, as int64, with 0 at padding."""
        checks.require_outputs(y, "[B, N]" if self.row_capacities is None else "[B, N, M]", "weights", self.weights)
        y = torch.where(self.mask, y, 0).to(torch.int64)
        if self.validate_args and self.row_capacities is not None:
            checks.require_labels(y, 2)
        elif self.validate_args:
            first = 0 if self.unmatched_rows is None else -1
            wrong = (self.mask & ((y < first) | (y >= self.sizes[:, 1:]))).any(1)
            if bool(wrong.any()):
                b = int(wrong.nonzero()[0])
                last = int(self.sizes[b, 1]) - 1
                raise ValueError(f"y must hold labels from {first} to {last} at example {b}, got {y[b].tolist()}")
        return y
