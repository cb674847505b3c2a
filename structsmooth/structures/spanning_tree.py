"""Dependency trees of any shape: spanning trees of graphs of words."""

from typing import cast

import torch
from torch import Tensor

from structsmooth.structures.base import check_k
from structsmooth.structures.dependencies import Dependencies
from structsmooth.structures.operators import with_gradients_of_scores
from structsmooth.structures.programs.reference import scores_of_outputs
from structsmooth.structures.programs.structure import LinearlyScored
from structsmooth.structures.semirings import inverse_cdf, logsumexp
from structsmooth.structures.spanning_trees import elimination, operators


class SpanningTree(Dependencies, LinearlyScored):
    """All dependency trees of sentences, bound to scores of arcs; they may cross.

    score(y) is the sum of the scores of the arcs of a tree, in which every word has a head that is another word or the
    root. Arguments and outputs are those of :class:`~structsmooth.ProjectiveTree`, which has the trees without
    crossing arcs.

    Complexity per example: max oracle O(n² (n + L)) at worst, by contraction of cycles, exact with one child of the
    root at any scale of the scores; top-K a few times that for each output; exp oracle O(n³ + n² L) by elimination
    without subtraction; a sample O(n² log n) in addition; max-marginals a max oracle for each labelled arc. All but
    samples run on the CPU, with sums in float64. The error of the log-partition function, relative to the largest score
    of a tree, is about the rounding unit at any scale of the scores. -inf forbids an arc. An example without any
    allowed tree has value -inf and zero gradient.

    Args:
        arcs: scores [B, n, n], floating point; entry [b, h, m] is for an arc from head h to its modifier m. The
            diagonal is ignored.
        root: scores [B, n] of each word as a child of the root.
        labels: scores [B, n, n, L] of the labels of arcs, which add to those of ``arcs``; arcs of the root have none.
        lengths: numbers of words [B], integers from 0 to n; all n if not given.
        single_root: whether exactly one word is a child of the root; if not, one or several.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Chu and Liu (1965), Edmonds (1967); Koo et al. (2007) for sums; Zmigrod et al. (2020) for one child of the root.

    Example:
        >>> arcs = torch.tensor([[[0.0, 0.0, 5.0, 0.0], [0.0, 0.0, 0.0, 5.0], [4.0, 0.0, 0.0, 0.0], [0.0] * 4]])
        >>> SpanningTree(arcs, torch.zeros(1, 4)).max()  # 0 → 2 crosses 1 → 3
        (tensor([10.]), tensor([[2, 0, 1, 2]]))
    """

    def __init__(
        self,
        arcs: Tensor,
        root: Tensor,
        labels: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        single_root: bool = True,
        validate_args: bool | None = None,
    ) -> None:
        self.single_root = single_root
        self._bind(arcs, root, labels, lengths)
        super().__init__(validate_args)
        self._check_lengths()

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct trees [B, k, n].

        Values are -inf, and outputs 0, where fewer than k trees have a finite score.
        """
        k, (scores, *sizes) = check_k(k), self._arguments()
        values, used = operators.top_k(scores.detach(), *sizes, k)
        values = with_gradients_of_scores(values, lambda s: scores_of_outputs(s, used), scores)
        return self.listed(values, used)

    def logsumexp(self) -> Tensor:
        """Log-partition function [B]; twice differentiable."""
        return self._log_partition_and_marginals(*self._scores())[0]

    def marginals(self) -> tuple[Tensor, ...]:
        """Probabilities in the shapes of the potentials; differentiable."""
        scores, root = self._scores()
        _, in_arcs, in_root = self._log_partition_and_marginals(scores, root)
        if self.labels is None:
            return in_arcs, in_root
        sums = logsumexp(scores, 3).unsqueeze(-1)
        shares = (scores - torch.where(sums > -torch.inf, sums, 0.0)).exp()
        return in_arcs, in_root, in_arcs.unsqueeze(-1) * shares

    def max_marginals(self) -> Tensor:
        """The largest score [B, n, n] of a tree with each arc; -inf on the diagonal, zero at padding."""
        best = self._arcs_of_parts(operators.max_marginals(*self._arguments()))
        return torch.where(best > -torch.inf, best, -torch.inf)

    def inverse_cdf(self, uniform: Tensor) -> Tensor:
        """Samples at uniform numbers, as in :class:`~structsmooth.structures.distribution.Distribution`."""
        arcs, root = self._arc_sums(*self._scores())
        words = uniform.shape[2]
        heads = elimination.sample(arcs, root, self.mask, self.single_root, uniform[..., :words])
        if self.labels is None:
            return self.encoded(heads).clamp_min(0)
        drawn = self._labels_at(heads.clamp_min(0), uniform[..., words])
        return torch.where(heads < 0, 0, self.encoded(heads.clamp_min(0), drawn))

    def _labels_at(self, heads: Tensor, uniform: Tensor) -> Tensor:
        """Labels [B, N, n] of arcs, at uniform numbers of that shape."""
        scores, _ = self._scores()
        b = torch.arange(len(heads), device=heads.device)[:, None, None]
        m = torch.arange(heads.shape[2], device=heads.device)
        return inverse_cdf(scores[b, (heads - 1).clamp_min(0), m], uniform)

    def _draws(self) -> tuple[int, ...]:
        words = self.arcs.shape[1]
        return words, words + 1

    def _arc_sums(self, arcs: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
        """Log-sums [B, n, n] over the labels of arcs, and scores of roots, in the same dtype."""
        sums = arcs.squeeze(-1) if self.labels is None else logsumexp(arcs, 3)
        dtype = torch.promote_types(sums.dtype, root.dtype)
        return sums.to(dtype), root.to(dtype)

    def _log_partition_and_marginals(self, arcs: Tensor, root: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = operators.log_partition_and_marginals(*self._arc_sums(arcs, root), self.lengths, self.single_root)
        return cast(tuple[Tensor, Tensor, Tensor], found)

    def _arguments(self) -> tuple[Tensor, Tensor, int, int, bool]:
        """The arguments of the compiled operators: scores of arcs, lengths and sizes."""
        return self.program_scores(), self.lengths, self.arcs.shape[1], self._labels_per_arc, self.single_root

    def _is_allowed(self, heads: Tensor) -> tuple[Tensor, str]:
        return torch.ones_like(heads[:, 0], dtype=torch.bool), "trees"
