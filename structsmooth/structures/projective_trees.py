"""Projective dependency trees: parses whose arcs do not cross, by Eisner's algorithm."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures import checks, eisner
from structsmooth.structures.dependencies import ProjectiveDependencies
from structsmooth.structures.programs import DynamicProgram, Program, ProgramBuilder, cached_program, scanned
from structsmooth.structures.programs.scanned import Sums


class ProjectiveTree(ProjectiveDependencies):
    """All projective dependency trees of sentences, bound to scores of arcs.

    score(y) is the sum of the scores of the arcs of a tree, in which every word has a head that is another word or the
    root, and no two arcs cross; the root stands left of all words. Arcs may have labels. An output is an int64 tensor
    [B, n]: without labels the head of each word, 0 for the root and h + 1 for word h. With L labels it is 0 for the
    root and 1 + h L + l for head h and label l; see :meth:`heads`, :meth:`relations` and :meth:`encoded`. Words at
    padding are ignored in arguments and 0 in results. Complexity per example: max and exp oracle O(n³ + n² L), top-K
    at worst K log K times that.

    Backends, forbidden (-inf) scores and infeasible examples are as in :class:`~structsmooth.programs.DynamicProgram`.

    Args:
        arcs: scores [B, n, n], floating point; entry [b, h, m] is for an arc from head h to its modifier m. The
            diagonal is ignored.
        root: scores [B, n] of each word as a child of the root.
        labels: scores [B, n, n, L] of the labels of arcs, which add to those of ``arcs``; arcs of the root have none.
        lengths: numbers of words [B], integers from 0 to n; all n if not given.
        single_root: whether exactly one word is a child of the root; if not, one or several.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.
        backend: ``"compiled"`` (CPU only), ``"triton"`` (GPU only), ``"torch"``, or ``"auto"`` for the fastest.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Eisner (1996).

    Example:
        >>> import torch
        >>> arcs = torch.tensor([[[0.0, 0.0, 1.0], [2.0, 0.0, 3.0], [0.0, 1.0, 0.0]]])
        >>> ProjectiveTree(arcs, torch.zeros(1, 3)).max()
        (tensor([5.]), tensor([[2, 0, 2]]))
    """

    oracles = replace(DynamicProgram.oracles, export=scanned)

    def __init__(
        self,
        arcs: Tensor,
        root: Tensor,
        labels: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        single_root: bool = True,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        self.single_root = single_root
        self._bind(arcs, root, labels, lengths)
        super().__init__(validate_args, backend)
        self._check_lengths()

    def program(self) -> Program:
        """The program of :func:`projective_trees`."""
        return projective_trees(self.arcs.shape[1], self._labels_per_arc, self.single_root)

    def sweep(self, sums: Sums, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum [B] over all trees, and its derivatives by the scores [B, P] of arcs and roots."""
        words, labels = self.arcs.shape[1], self._labels_per_arc
        labelled, root = scores.split([words * words * labels, words], 1)
        labelled = labelled.view(-1, words, words, labels)
        arcs = pad(sums.total(labelled, 3), (1, 0), value=-torch.inf)  # the root stands before the words
        arcs = torch.cat([pad(root, (1, 0), value=-torch.inf).unsqueeze(1), arcs], 1)
        charts = eisner.charts(sums, arcs)
        place, length = torch.arange(1 + words, device=root.device), self.lengths[:, None]
        if self.single_root:
            # For each word as the child of the root, the tree up to it and the tree from it on.
            before = pad(charts.left[:, 1, :-1], (1, 0), value=-torch.inf)
            rest = (length - place).clamp_min(0)
            behind = charts.right_by_end.gather(1, length.unsqueeze(2).expand(-1, 1, 1 + words)).squeeze(1)
            ways = torch.where(place <= length, before + arcs[:, 0] + behind.gather(1, rest), -torch.inf)
            value, used_root = sums.total(ways, 1), sums.shares(ways, 1)
            by_left = torch.where(place[:, None] == 1, pad(used_root[:, 1:], (0, 1)).unsqueeze(1), 0.0)
            by_right = torch.where(rest.unsqueeze(2) == place, used_root.unsqueeze(2), 0.0)
            used = eisner.uses(sums, charts, by_right, by_left)
            used_root = used_root[:, 1:]
        else:
            value = charts.right[:, 0].gather(1, length).squeeze(1)
            whole = (place == length) & (value > -torch.inf).unsqueeze(1)
            by_right = torch.where(place[:, None] == 0, whole.to(scores.dtype).unsqueeze(1), 0.0)
            used = eisner.uses(sums, charts, by_right, torch.zeros_like(by_right))
            used_root = used[:, 0, 1:]
        found = used[:, 1:, 1:].unsqueeze(3) * sums.shares(labelled, 3)
        uses = torch.where((self.lengths > 0).unsqueeze(1), torch.cat([found.flatten(1), used_root], 1), 0.0)
        return torch.where(self.lengths > 0, value, 0.0), uses

    def outputs_of_uses(self, uses: Tensor) -> Tensor:
        """Trees, from the indicators of labelled arcs and roots."""
        words, labels = self.arcs.shape[1], self._labels_per_arc
        arcs = uses[:, : words * words * labels].view(-1, words, words, labels).transpose(1, 2).flatten(2)
        return torch.where(self.mask & (arcs.amax(2) > 0), 1 + arcs.argmax(2), 0)


@cached_program
def projective_trees(words: int, labels: int, single_root: bool) -> Program:
    """Scores of arcs (head, modifier, label), then of roots. Roots of the program are the lengths from 0 to ``words``.

    For the words i to j there are five nodes: two halves that meet, which an arc in one of two directions makes
    incomplete trees with their heads at i or at j, and complete such trees, whose heads take no more modifiers inside.
    """
    arcs = words * words * labels
    builder = ProgramBuilder(scores=arcs + words)

    def span(kind: int, i: Any, j: Any) -> Any:
        """Nodes by their last word, then from short to long; two more end those of a last word, one those of none."""
        return 1 + 5 * (j * (j + 1) // 2 + j - i) + 2 * j + kind

    builder.add(0)
    met, incomplete_right, incomplete_left, complete_right, complete_left = range(5)
    i, j, k = np.ogrid[:words, :words, :words]
    builder.add(span(met, i, j), span(complete_right, i, k), span(complete_left, k + 1, j), where=(i <= k) & (k < j))
    i, j, label = np.ogrid[:words, :words, :labels]
    for kind, h, m in ((incomplete_right, i, j), (incomplete_left, j, i)):
        builder.add(span(kind, i, j), span(met, i, j), index=(h * words + m) * labels + label, where=i < j)
    return with_roots(builder, span, (incomplete_right, complete_right), words, arcs, single_root)


def with_roots(
    builder: ProgramBuilder,
    span: Callable[[int, Any, Any], Any],
    kinds: tuple[int, int],
    words: int,
    arcs: int,
    single_root: bool,
) -> Program:
    """The program with complete trees, and the root above them, for a builder that has the edges of incomplete ones.

    Args:
        builder: of the program, whose scores of roots begin at ``arcs``.
        span: nodes of a kind of the words i to j; two more nodes follow those of the words 0 to j.
        kinds: of incomplete and complete trees with their heads at i; the next ones have theirs at j.
        words: the largest number of words.
        arcs: the number of scores of arcs.
        single_root: whether the root has one child.
    """

    def incomplete(kind: int, i: Any, j: Any) -> Any:
        return span(kinds[0] + kind, i, j)

    def complete(kind: int, i: Any, j: Any) -> Any:
        return span(kinds[1] + kind, i, j)

    def prefix(kind: int, j: Any) -> Any:
        """A tree of the words up to j below the root, whose last child of the root is word j, or any."""
        return complete(1, 0, j) + 1 + kind

    word = np.arange(words)
    builder.add(complete(0, word, word))
    builder.add(complete(1, word, word))
    i, j, k = np.ogrid[:words, :words, :words]
    builder.add(complete(0, i, j), incomplete(0, i, k), complete(0, k, j), where=(i < k) & (k <= j))
    builder.add(complete(1, i, j), complete(1, i, k), incomplete(1, k, j), where=(i <= k) & (k < j))
    k, j = np.ogrid[:words, :words]
    rest = complete(0, k, j)
    if single_root:
        builder.add(prefix(1, j), complete(1, 0, k), rest, arcs + k, where=k <= j)
    else:
        builder.add(prefix(0, j), np.where(k > 0, prefix(1, k - 1), -1), complete(1, k, j), arcs + j, k <= j)
        builder.add(prefix(1, j), prefix(0, k), rest, where=k <= j)
    return builder.build(np.append(0, prefix(1, np.arange(words))))
