"""Trees: labels of nodes with scores for labels and for pairs of a node and its parent."""

from typing import ClassVar

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, widened_pair
from structsmooth.structures.operators import with_gradients_of_scores
from structsmooth.structures.oracles import Oracles, Queries
from structsmooth.structures.tree import operators, reference


class Tree(Structure):
    """All labelings of the nodes of trees, bound to unary and pairwise scores.

    score(y) = Σ_v unary[b, v, y_v] + Σ_v pairwise[b, v, y_parent(v), y_v], the second sum over the nodes that have a
    parent. Nodes may come in any order, the trees of a batch may have different shapes, and an example may be a forest
    of several trees. An output is an int64 tensor [B, N]. Labels at padding are ignored in arguments and 0 in results.
    Complexity per example: max and exp oracle O(N S²), top-K O(K N S²), at worst K times that.

    Backends, precision, forbidden (-inf) scores and infeasible examples are as in :class:`LinearChain`, which is
    the tree with ``parents[t] = t - 1``. Ties go to the lowest label, at the root first. Where sums of entries from the
    K best lists of two branches tie, the sum with the better entry of the branch of lower index comes first.

    Args:
        unary: scores [B, N, S] of each label, floating point.
        pairwise: scores [B, N, S, S]; entry [b, v, i, j] is for label i of the parent of v and label j of v. Scores
            at roots are ignored.
        parents: parent of each node, integers [B, N]; -1 for a root.
        mask: [B, N], true at the nodes that examples have, false at padding; all true if not given. Padding may be
            anywhere; its scores and its parents are ignored.
        validate_args: whether to check values too: NaN, +inf, parents, ranges of labels. Costs a few reductions, and
            a synchronization on a GPU. Default: ``Structure.validate_args_default``.
        backend: ``"compiled"`` (for scores on the CPU), ``"torch"``, or ``"auto"``: compiled, and on the CPU for scores
            on a GPU.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, tensors on different devices, parents that form a cycle, that are out of
            range or padding, or an example without nodes.

    Reference:
        Pillutla et al. (2019), Appendix B, Algorithms 7 to 9.

    Example:
        >>> unary = torch.tensor([[[0.0, 1.0], [0.0, 0.0], [0.5, 0.0]]])
        >>> pairwise = torch.zeros(1, 3, 2, 2)
        >>> pairwise[0, 1] = torch.eye(2)  # node 1 tends to agree with its parent, node 0
        >>> Tree(unary, pairwise, torch.tensor([[-1, 0, 0]])).max()
        (tensor([2.5000]), tensor([[1, 1, 0]]))
    """

    oracles: Oracles[Queries] = Oracles(
        cpu=operators,  # loops that numba compiles
        cuda=operators,  # copies to the CPU take less time than a step of torch for each node
        plain=reference,  # torch, node by node
        export=reference,
    )
    labels_are_classes = True
    potential_names = ("unary", "pairwise")
    row_names = ("parents", "mask")
    field_names: ClassVar[tuple[str, ...]] = ("backend",)

    def __init__(
        self,
        unary: Tensor,
        pairwise: Tensor,
        parents: Tensor,
        mask: Tensor | None = None,
        *,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        self.unary, self.pairwise = unary, pairwise
        self.backend: checks.Backend = backend
        self.check_shapes()
        checks.require_integers("parents", parents)
        if mask is None:
            mask = torch.ones_like(parents, dtype=torch.bool)
        mask = checks.as_mask("mask", mask)
        for name, tensor in (("parents", parents), ("mask", mask)):
            checks.require_shape(name, tensor, "[B, N]", tuple(unary.shape[:2]))
            checks.require_device(name, tensor, "unary", unary)
        self.parents, self.mask = parents.to(torch.int64), mask
        super().__init__(validate_args)
        if self.validate_args:
            check_parents(self.parents, self.mask)

    def check_shapes(self) -> None:
        """Raise unless scores are [B, N, S] and [B, N, S, S], on a device of the backend."""
        unary, pairwise = self.unary, self.pairwise
        checks.require_scores("unary", unary)
        checks.require_scores("pairwise", pairwise)
        if unary.dim() != 3 or 0 in unary.shape[1:]:
            raise ValueError(f"unary must have shape [B, N, S] with N, S >= 1, got {tuple(unary.shape)}")
        checks.require_shape("pairwise", pairwise, "[B, N, S, S]", (*unary.shape, unary.shape[-1]))
        checks.require_device("pairwise", pairwise, "unary", unary)
        checks.check_backend(self.backend, unary.device)

    def used_scores(self, name: str) -> Tensor:
        """Scores of nodes or, for pairs, of nodes with a parent, zero elsewhere."""
        if name == "unary":
            return checks.inside(self.mask, self.unary)
        return checks.inside(self._hangs, self.pairwise)

    @property
    def lengths(self) -> Tensor:
        """Number of nodes of each example: int64 [B]."""
        return self.mask.sum(1)

    def batched(self) -> "Tree":
        """The structure itself."""
        return self

    def score(self, y: Tensor) -> Tensor:
        """Score of the labelings ``y`` [B, N]: [B], differentiable."""
        return reference.scores(*self._arguments(), self.checked_labels(y).unsqueeze(1)).squeeze(1)

    def parts(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Indicators of labels [B, N, S], and of pairs of parent and node [B, N, S, S], zero at roots and padding."""
        y = self.checked_labels(y)
        unary, *_ = self._arguments()
        nodes = torch.nn.functional.one_hot(y, unary.shape[-1]).to(unary.dtype)
        above = nodes.gather(1, torch.where(self._hangs, self.parents, 0).unsqueeze(-1).expand_as(nodes))
        edges = above.unsqueeze(-1) * nodes.unsqueeze(-2) * self._hangs[:, :, None, None]
        return nodes * self.mask.unsqueeze(-1), edges

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct labelings [B, k, N] (Algorithm 8).

        Values are -inf, and labels 0, where fewer than k labelings have a finite score.
        """
        k, (unary, pairwise, parents, mask) = check_k(k), self._arguments()
        values, y = self.oracles.top_k(unary.detach(), pairwise.detach(), parents, mask, k)

        def scores(unary: Tensor, pairwise: Tensor) -> Tensor:
            return reference.scores(unary, pairwise, parents, mask, y)

        return with_gradients_of_scores(values, scores, unary, pairwise), y

    def logsumexp(self) -> Tensor:
        """Log-partition function [B] (Algorithm 9); twice differentiable."""
        return self.oracles.log_partition(*self._arguments())

    def marginals(self) -> tuple[Tensor, Tensor]:
        """Marginals of labels [B, N, S] and of pairs of parent and node [B, N, S, S]; differentiable."""
        node, edge = self.oracles.marginals(*self._arguments())
        return node, edge

    def max_marginals(self) -> Tensor:
        """Largest score [B, N, S] of a labeling with y_v = j (Definition 13); zero on padding."""
        return self.oracles.max_marginals(*self._arguments())

    def inverse_cdf(self, uniform: Tensor) -> Tensor:
        """Samples at uniform numbers, as in :class:`~structsmooth.structures.distribution.Distribution`."""
        return self.oracles.sample(*self._arguments(), uniform)

    @property
    def _hangs(self) -> Tensor:
        """[B, N], true at nodes that have a parent."""
        return self.mask & (self.parents >= 0)

    def _arguments(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scores in the dtype that sums use, and the trees: what oracles take."""
        return *widened_pair(self.unary, self.pairwise), self.parents, self.mask

    def checked_labels(self, y: Tensor) -> Tensor:
        """Labels as int64, with 0 at padding."""
        return checks.checked_classes(self, y, "[B, N]", self.unary.shape[-1], self.mask)


def check_parents(parents: Tensor, mask: Tensor) -> None:
    """Raise unless parents [B, N] make a forest of the nodes [B, N] of the mask.

    Raises:
        ValueError: parents that form a cycle, that are out of range or padding.
    """
    nodes = parents.shape[1]
    outside = mask & ((parents < -1) | (parents >= nodes))
    _refuse(outside, parents, f"must be from -1 (root) to N - 1 = {nodes - 1}")
    hangs = mask & (parents >= 0)
    _refuse(hangs & ~mask.gather(1, torch.where(hangs, parents, 0)), parents, "must not be padding")
    _, ancestors = reference.depths_and_ancestors(parents, mask)
    _refuse(ancestors < nodes, parents, "must not form a cycle")


def _refuse(wrong: Tensor, parents: Tensor, rule: str) -> None:
    if bool(wrong.any()):
        b, v = wrong.nonzero()[0].tolist()
        raise ValueError(f"parents {rule}; example {b}: node {v} has parent {int(parents[b, v])}")
