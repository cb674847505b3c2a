"""Deformable trees: nodes of a tree at positions of a grid, each held near its parent by springs."""

from typing import ClassVar

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, widened_pair
from structsmooth.structures.best_max_marginal_first import sorted_downwards
from structsmooth.structures.deformable_tree import operators
from structsmooth.structures.tree import check_parents


class DeformableTree(Structure):
    """All placements of the nodes of a tree on a grid, bound to scores of positions and to costs of displacements.

    score(y) = Σ_v unary[b, v, y_v] − Σ_v ⟨deformation[b, v], (dx, dx², dy, dy²)⟩, the second sum over the nodes that
    have a parent, where (dx, dy) is the position of v minus that of its parent and the anchor of v. An output is an
    int64 tensor [B, N] of positions, counted row by row: row · W + column; see :meth:`coordinates`. Nodes may come in
    any order, and there may be several trees.

    Messages are generalized distance transforms, linear in the number of positions: per example, the max oracle takes
    O(N H W), where :class:`Tree` with tables of all pairs of positions takes O(N H² W²). Max-marginals take two to
    three times as long, top-K (best max-marginal first, see :func:`best_max_marginal_first`) a few max oracles per
    output. There is no exp oracle.

    Compiled code computes the messages in float64 on the CPU, on every core that torch may use. Potentials on other
    devices are copied to the CPU; results and gradients are copied back. A value is the score of its output, exact to
    about 1e-12 (1e-6 in float32) relative to the largest score or cost in it. Among several best positions of a node,
    given that of its parent, it takes the first column, and in it the first row; a root the first row, and in it the
    first column. -inf forbids a position; use it to pad grids to one size. An example without any allowed output has
    value -inf and zero gradient.

    Args:
        unary: scores [B, N, H, W] of the positions of each node, floating point.
        deformation: weights [N, 4] or [B, N, 4] of dx, dx², dy and dy², floating point, those of the squares not
            negative. Weights of roots are ignored.
        parents: parent of each node, integers [N], the same for all examples; -1 for a root.
        anchors: displacements [N, 2] from the parent, x and y, where springs are at rest if they have no linear terms;
            zeros if not given. They are no potentials, and have no gradient.
        validate_args: whether to check values too: NaN, +inf, weights, parents, ranges of positions. Costs a few
            reductions, and a synchronization on a GPU. Default: ``Structure.validate_args_default``.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, tensors on different devices, parents that form a cycle or are out of range.

    Reference:
        Felzenszwalb and Huttenlocher (2005), "Pictorial Structures for Object Recognition", and (2012), "Distance
        Transforms of Sampled Functions"; Osokin et al. (2016), appendix I.4.

    Example:
        >>> unary = torch.zeros(1, 2, 3, 4)
        >>> unary[0, 0, 1, 0] = unary[0, 1, 1, 3] = 5.0
        >>> springs = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
        >>> hand = DeformableTree(unary, springs, torch.tensor([-1, 0]), torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        >>> hand.max()
        (tensor([9.]), tensor([[4, 7]]))
        >>> hand.coordinates(torch.tensor([[4, 7]]))
        tensor([[[0, 1],
                 [3, 1]]])
    """

    potential_names = ("unary", "deformation")
    field_names = ("parents", "anchors", "_above", "_hangs")
    free_potentials: ClassVar[int | None] = 1  # weights of squares must not be negative

    def __init__(
        self,
        unary: Tensor,
        deformation: Tensor,
        parents: Tensor,
        anchors: Tensor | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.unary, self.deformation = unary, deformation
        self.check_shapes()
        nodes = unary.shape[1]
        checks.require_integers("parents", parents)
        checks.require_shape("parents", parents, "[N]", (nodes,))
        checks.require_device("parents", parents, "unary", unary)
        if anchors is None:
            anchors = torch.zeros(nodes, 2, dtype=torch.float64, device=unary.device)
        checks.require_scores("anchors", anchors)
        checks.require_shape("anchors", anchors, "[N, 2]", (nodes, 2))
        checks.require_device("anchors", anchors, "unary", unary)
        self.parents, self.anchors = parents.to(torch.int64), anchors.detach()
        self._hangs, self._above = self.parents >= 0, self.parents.clamp_min(0)
        super().__init__(validate_args)
        if self.validate_args:
            check_parents(self.parents.unsqueeze(0), torch.ones_like(self.parents, dtype=torch.bool).unsqueeze(0))
            if not bool(self.anchors.isfinite().all()):
                raise ValueError("anchors must be finite")

    def check_shapes(self) -> None:
        """Raise unless scores are [B, N, H, W], weights [N, 4] or [B, N, 4]."""
        unary, deformation = self.unary, self.deformation
        checks.require_scores("unary", unary)
        checks.require_scores("deformation", deformation)
        if unary.dim() != 4 or 0 in unary.shape[1:]:
            raise ValueError(f"unary must have shape [B, N, H, W] with N, H, W >= 1, got {tuple(unary.shape)}")
        batch, nodes = unary.shape[:2]
        if not checks.has_shape(deformation, (nodes, 4), (batch, nodes, 4)):
            raise ValueError(
                f"deformation must have shape [N, 4] = {(nodes, 4)} or [B, N, 4] = {(batch, nodes, 4)}, "
                f"got {tuple(deformation.shape)}"
            )
        checks.require_device("deformation", deformation, "unary", unary)

    def check_values(self, name: str) -> None:
        """Raise ``ValueError`` for NaN and +inf and, but at roots, for weights that are -inf or negative at squares."""
        super().check_values(name)
        if name == "unary" or not self.deformation.numel():
            return
        used = self.used_scores(name)
        if not bool(used.amin() > -torch.inf):
            raise ValueError("deformation must be finite, got -inf: forbid positions by unary scores")
        least = float(used.detach()[..., 1::2].amin())
        if least < 0:
            raise ValueError(f"deformation must have weights of dx² and dy² that are not negative, got {least:g}")

    def used_scores(self, name: str) -> Tensor:
        """Scores, and weights that are zero at roots."""
        return self.unary if name == "unary" else torch.where(self._hangs.unsqueeze(-1), self.deformation, 0.0)

    def batched(self) -> "DeformableTree":
        """The same trees, with weights for each example."""
        if self.deformation.dim() == 3:
            return self
        return self.replace(self.unary, self.deformation.expand(self.unary.shape[0], -1, -1))

    def coordinates(self, y: Tensor) -> Tensor:
        """Columns and rows, x and y, of positions ``y`` of any shape [...]: int64 [..., 2]."""
        width = self.unary.shape[3]
        return torch.stack([y % width, y // width], -1)

    def score(self, y: Tensor) -> Tensor:
        """Score of the placements ``y`` [B, N]: [B], differentiable."""
        y, (unary, deformation) = self.checked_labels(y), self._accumulated()
        positions = unary.flatten(2).gather(2, y.unsqueeze(-1)).double().sum((1, 2))
        return (positions - (deformation * self._displacements(y)).sum((1, 2))).to(unary.dtype)

    def parts(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Indicators of positions [B, N, H, W], and −(dx, dx², dy, dy²) of each node, [B, N, 4], zero at roots."""
        y = self.checked_labels(y)
        unary, _ = self._accumulated()
        positions = torch.zeros_like(unary).flatten(2).scatter(2, y.unsqueeze(-1), 1.0)
        return positions.view(unary.shape), -self._displacements(y).to(unary.dtype)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct placements [B, k, N] (Algorithm 10).

        Values are -inf, and positions 0, where fewer than k placements have a finite score.
        """
        found = operators.top_k(*self._accumulated(), self.anchors, self.parents, check_k(k))
        return self.with_gradients(*sorted_downwards(*found))

    def max_marginals(self) -> Tensor:
        """Largest score [B, N, H, W] of a placement with v at each position (Definition 13)."""
        values: Tensor = operators.max_marginals(*self._accumulated(), self.anchors, self.parents)
        return values.view(self.unary.shape)

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Positions as classes, row by row."""
        return y, self.unary.shape[2] * self.unary.shape[3]

    def potential_costs(self, costs: Tensor) -> Tensor:
        """Costs [B, N, H W] of positions as classes, as costs [B, N, H, W] on the grid."""
        return costs.view(self.unary.shape)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Positions as int64."""
        return checks.checked_classes(self, y, "[B, N]", self.unary.shape[2] * self.unary.shape[3])

    def _displacements(self, y: Tensor) -> Tensor:
        """dx, dx², dy and dy² of each node, zeros at roots, for placements [..., N]: float64 [..., N, 4]."""
        places = self.coordinates(y).double()
        d = places - places.index_select(-2, self._above) - self.anchors
        features = torch.stack([d, d.square()], -1).flatten(-2)
        return torch.where(self._hangs.unsqueeze(-1), features, 0.0)

    def _accumulated(self) -> tuple[Tensor, Tensor]:
        """Scores, and weights for each example, in the dtype that sums use; zero weights at roots."""
        unary, deformation = widened_pair(self.unary, self.used_scores("deformation"))
        return unary, deformation.expand(unary.shape[0], -1, -1)

    def _rows(self) -> tuple[str, ...]:
        return super()._rows() if self.deformation.dim() == 3 else ("unary", *self.row_names)
