"""Projective dependency trees with scores of neighbouring siblings: exact parsing of the second order."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import widened
from structsmooth.structures.dependencies import ProjectiveDependencies
from structsmooth.structures.programs import Program, ProgramBuilder, cached_program
from structsmooth.structures.projective_trees import with_roots


class SiblingTree(ProjectiveDependencies):
    """All projective dependency trees of sentences, bound to scores of arcs and of neighbouring modifiers of a head.

    score(y) is the sum of the scores of the arcs of a tree, as in :class:`~structsmooth.ProjectiveTree`, and of one
    for each modifier of a word with its sibling: the next modifier of the same head between the two, or, where there is
    none, the head itself. Children of the root have none. Outputs are those of ``ProjectiveTree``, whose arguments and
    methods these are, too. Complexity per example: max and exp oracle O(n³ + n² L), top-K at worst K log K times that.

    Backends, forbidden (-inf) scores and infeasible examples are as in :class:`~structsmooth.programs.DynamicProgram`.

    Args:
        arcs: scores [B, n, n], floating point; entry [b, h, m] is for an arc from head h to its modifier m. The
            diagonal is ignored.
        siblings: scores [B, n, n, n]; entry [b, h, s, m] is for modifiers s and m of h, with s between h and m and none
            between s and m, and entry [b, h, h, m] for m as the first modifier on its side. Others are ignored.
        root: scores [B, n] of each word as a child of the root.
        lengths: numbers of words [B], integers from 0 to n; all n if not given.
        labels: scores [B, n, n, L] of the labels of arcs, which add to those of ``arcs``; arcs of the root have none.
        single_root: whether exactly one word is a child of the root; if not, one or several.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.
        backend: ``"compiled"`` (CPU only), ``"triton"`` (GPU only), ``"torch"``, or ``"auto"`` for the fastest.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        McDonald and Pereira (2006).

    Example:
        >>> import torch
        >>> siblings = torch.zeros(1, 3, 3, 3)
        >>> siblings[0, 0, 1, 2] = 1.0  # words 1 and 2 as neighbouring modifiers of word 0
        >>> SiblingTree(torch.zeros(1, 3, 3), siblings, torch.zeros(1, 3)).max()
        (tensor([1.]), tensor([[0, 1, 1]]))
    """

    potential_names = ("arcs", "root", "siblings")
    siblings: Tensor

    def __init__(
        self,
        arcs: Tensor,
        siblings: Tensor,
        root: Tensor,
        lengths: Tensor | None = None,
        *,
        labels: Tensor | None = None,
        single_root: bool = True,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        self.single_root, self.arcs, self.siblings = single_root, arcs, siblings
        self._bind(arcs, root, labels, lengths)
        super().__init__(validate_args, backend)
        self._check_lengths()

    def check_shapes(self) -> None:
        """Raise unless scores are [B, n, n], [B, n], [B, n, n, n] and [B, n, n, L]."""
        super().check_shapes()
        batch, words, _ = self.arcs.shape
        checks.require_shape("siblings", self.siblings, "[B, n, n, n]", (batch, words, words, words))

    def used_scores(self, name: str) -> Tensor:
        """As for other trees; those of siblings are zero where s is not between h and m."""
        if name != "siblings":
            return super().used_scores(name)
        used = self._possible.unsqueeze(2) & are_siblings(self.arcs.shape[1], self.arcs.device)
        return torch.where(used, self.siblings, 0.0)

    def program(self) -> Program:
        """The program of :func:`sibling_trees`."""
        return sibling_trees(self.arcs.shape[1], self._labels_per_arc, self.single_root)

    def program_scores(self) -> Tensor:
        """Scores [B, P] of labelled arcs, of roots, and of siblings."""
        return torch.cat([super().program_scores(), widened(self.used_scores("siblings")).flatten(1)], 1)

    def potential_costs(self, costs: Tensor) -> tuple[Tensor, ...]:
        """Costs of classes, [B, n, 1 + n L], as costs of potentials; none of siblings."""
        arcs, root, *labels = super().potential_costs(costs)
        return arcs, root, costs.new_zeros(()), *labels

    def derivation(self, y: Tensor) -> Tensor:
        """The parts [B, 2 n] of words, and of words with their siblings."""
        words, none = self.arcs.shape[1], self.program_scores().shape[1]
        place = torch.arange(words, device=y.device)
        h, s, m = self.heads(y).unsqueeze(2) - 1, place, place[:, None]
        alike = (h == h.mT) & self.mask.unsqueeze(1)
        before = torch.where(alike & (h < s) & (s < m), s, -1).amax(2)
        behind = torch.where(alike & (m < s) & (s < h), s, words).amin(2)
        h, m = h.squeeze(2), place
        s = torch.where(h < m, torch.where(before >= 0, before, h), torch.where(behind < words, behind, h))
        index = words * (words * self._labels_per_arc + 1) + (h * words + s) * words + m
        both = torch.cat([super().derivation(y), torch.where(h >= 0, index, none)], 1)
        return torch.where(self.mask.repeat(1, 2), both, none)


def are_siblings(words: int, device: torch.device | None = None) -> Tensor:
    """Where s is between h and m, or h itself: bool [n, n, n], in the order of scores of siblings."""
    h, s, m = (torch.arange(words, device=device).view(-1, *[1] * dims) for dims in (2, 1, 0))
    return ((h <= s) & (s < m)) | ((m < s) & (s <= h))


@cached_program
def sibling_trees(words: int, labels: int, single_root: bool) -> Program:
    """Scores of arcs (head, modifier, label), then of roots, then of (head, sibling, modifier). Roots are the lengths.

    For the words i to j there are seven nodes: two halves that meet between neighbouring siblings, what an arc in one
    of two directions will span, with it, and complete trees, as in those of
    :func:`~structsmooth.structures.projective_trees.projective_trees`.
    """
    arcs = words * words * labels
    builder = ProgramBuilder(scores=arcs + words + words**3)

    def span(kind: int, i: Any, j: Any) -> Any:
        """Nodes by their last word, then from short to long; two more end those of a last word, one those of none."""
        return 1 + 7 * (j * (j + 1) // 2 + j - i) + 2 * j + kind

    def sibling(h: Any, s: Any, m: Any) -> Any:
        return arcs + words + (h * words + s) * words + m

    builder.add(0)
    met, right, left, incomplete_right, incomplete_left, complete_right, complete_left = range(7)
    i, j, k = np.ogrid[:words, :words, :words]
    builder.add(span(met, i, j), span(complete_right, i, k), span(complete_left, k + 1, j), where=(i <= k) & (k < j))
    inside = (i < k) & (k < j)
    builder.add(span(right, i, j), span(incomplete_right, i, k), span(met, k, j), sibling(i, k, j), inside)
    builder.add(span(left, i, j), span(met, i, k), span(incomplete_left, k, j), sibling(j, k, i), inside)
    i, j, label = np.ogrid[:words, :words, :labels]
    builder.add(span(right, i, j), span(complete_left, i + 1, j), index=sibling(i, i, j), where=(i < j) & (label == 0))
    builder.add(span(left, i, j), span(complete_right, i, j - 1), index=sibling(j, j, i), where=(i < j) & (label == 0))
    for kind, under, h, m in ((incomplete_right, right, i, j), (incomplete_left, left, j, i)):
        builder.add(span(kind, i, j), span(under, i, j), index=(h * words + m) * labels + label, where=i < j)
    return with_roots(builder, span, (incomplete_right, complete_right), words, arcs, single_root)
