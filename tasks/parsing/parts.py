"""The parts of trees that have weights: arcs, and neighbouring modifiers of a head among the arcs that are left."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from structsmooth.plain import PACKED
from structsmooth.problems import ProgramParts, arcs_of
from structsmooth.structures import ProjectiveTree, SpanningTree
from structsmooth.structures.sibling_trees import are_siblings, sibling_trees


@dataclass(frozen=True)
class Pruner:
    """A first-order parser of a second-order one, which leaves few arcs to it.

    Attributes:
        weights: of arcs, [dim].
    """

    weights: NDArray[np.float32] = field(metadata=PACKED)


@dataclass(frozen=True)
class TreeParts:
    """Parts of the trees of sentences, sentence by sentence.

    Attributes:
        lengths: of the sentences, int64 [n].
        sentence: number of the sentence of each part, [parts].
        head: 0 for the root and i for word number i, [parts].
        sibling: the modifier before of the same head, on the side of the head, or the head itself if there is none; -1
            for parts that are arcs, [parts].
        modifier: number of the word, from 1, [parts].
    """

    lengths: Tensor
    sentence: Tensor
    head: Tensor
    sibling: Tensor
    modifier: Tensor

    @classmethod
    def arcs(cls, lengths: Tensor) -> "TreeParts":
        """All arcs of some sentences, in the order of :func:`~structsmooth.problems.arcs_of`."""
        heads, modifiers, offsets = arcs_of(lengths)
        return cls(lengths, torch.repeat_interleave(offsets.diff()), heads, torch.full_like(heads, -1), modifiers)

    @classmethod
    def with_siblings(cls, lengths: Tensor, left: Iterable[tuple[Tensor, Tensor]]) -> "TreeParts":
        """The arcs that are left, and all neighbouring siblings of which both arcs are.

        Args:
            lengths: of the sentences, int64 [n].
            left: the numbers of sentences in batches of them, and which arcs of each are left: bool [b, 1 + n, n] from
                heads, the root first, to modifiers.
        """
        rows = []
        for numbers, arcs in left:
            i, h, m = arcs.nonzero().unbind(1)
            rows.append(torch.stack([numbers[i], h, torch.full_like(h, -1), m + 1]))
            of_words, words = arcs[:, 1:], arcs.shape[2]
            inner = of_words | torch.eye(words, dtype=torch.bool)  # siblings and, for first modifiers, heads
            i, h, s, m = (inner.unsqueeze(3) & of_words.unsqueeze(2) & are_siblings(words)).nonzero().unbind(1)
            rows.append(torch.stack([numbers[i], h + 1, s + 1, m + 1]))
        every = torch.cat(rows, 1)
        return cls(lengths, *every[:, every[0].argsort(stable=True)])

    @property
    def is_arc(self) -> Tensor:
        """Which parts are arcs: bool [parts]."""
        return self.sibling < 0

    @property
    def words(self) -> Tensor:
        """The modifiers, as numbers of words among those of all sentences: [parts]."""
        return (self.lengths.cumsum(0) - self.lengths)[self.sentence] + self.modifier - 1

    def in_trees(self, heads: Sequence[Sequence[int]]) -> Tensor:
        """Which parts the trees with these heads have: bool [parts]."""
        found = torch.tensor([head for tree in heads for head in tree])[self.words] == self.head
        if bool(self.is_arc.all()):
            return found
        siblings = torch.tensor([sibling for tree in heads for sibling in siblings_of(tree)])
        return found & (self.is_arc | (siblings[self.words] == self.sibling))

    def arc_table(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Values of parts as scores of arcs [n, words, words] and of roots [n, words]; -inf for arcs that are none."""
        words = int(self.lengths.max())
        table = values.new_full((len(self.lengths), words + 1, words), -torch.inf)
        table[self._places(self.is_arc, 0)] = values[self.is_arc]
        return table[:, 1:], table[:, 0]

    def sibling_table(self, values: Tensor) -> Tensor:
        """Values of parts as scores of siblings [n, words, words, words]; 0 for those that are none."""
        table = values.new_zeros(len(self.lengths), *[int(self.lengths.max())] * 3)
        sentence, head, modifier = self._places(~self.is_arc, 1)
        table[sentence, head, self.sibling[~self.is_arc] - 1, modifier] = values[~self.is_arc]
        return table

    def _places(self, chosen: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Sentence, head and modifier of some parts, where heads count from ``first``."""
        return self.sentence[chosen], self.head[chosen] - first, self.modifier[chosen] - 1

    def of_program(self, single_root: bool, labels: int) -> ProgramParts:
        """Arcs and siblings as parts of the program of :class:`~structsmooth.SiblingTree`, and labels of words."""
        words = int(self.lengths.max())
        program = sibling_trees(words, 1, single_root)
        h, s, m = self.head - 1, self.sibling - 1, self.modifier - 1
        arcs = torch.where(h < 0, words * words + m, h * words + m)
        scores = torch.where(self.is_arc, arcs, words * words + words + (h * words + s) * words + m)
        every = self.before_labels(labels, scores, torch.full((int(self.lengths.sum()) * labels,), -1))
        counts = torch.bincount(self.sentence, minlength=len(self.lengths)) + labels * self.lengths
        offsets, roots = pad(counts.cumsum(0), (1, 0)), torch.from_numpy(program.roots)
        choices = self.lengths if labels else None
        return ProgramParts(program, roots[self.lengths], offsets, every.int(), choices, labels)

    def before_labels(self, labels: int, of_parts: Tensor, of_labels: Tensor) -> Tensor:
        """Values of these parts and of so many labels of each word [words · L], which follow those of each sentence."""
        counts = torch.bincount(self.sentence, minlength=len(self.lengths))
        both = torch.stack([counts, labels * self.lengths], 1).flatten()
        is_part = torch.tensor([True, False]).repeat(len(counts)).repeat_interleave(both)
        every = of_parts.new_empty(len(is_part))
        every[is_part], every[~is_part] = of_parts, of_labels.flatten().to(every.dtype)
        return every


def likely_arcs(
    trees: ProjectiveTree | SpanningTree, least: float, heads: Sequence[Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Arcs that are probable enough, and those of the best tree; and that tree.

    Args:
        trees: of a batch of sentences.
        least: the least marginal of an arc.
        heads: of the words of each sentence, which the best tree must have; -1 where they are unknown.

    Returns:
        Which arcs of heads, the root first, and modifiers: bool [b, 1 + n, n]; and the heads of the best tree [b, n].
    """
    arcs, root = trees.marginals()
    place, inside = torch.arange(1 + root.shape[1]), trees.mask
    if heads is not None:
        known = pad_sequence(list(heads), batch_first=True, padding_value=-1).unsqueeze(1)
        other = (known >= 0) & (known != place[:, None])
        scores = torch.cat([trees.root.unsqueeze(1), trees.arcs], 1).masked_fill(other, -torch.inf)
        trees = trees.replace(scores[:, 1:], scores[:, 0])
    y = trees.max()[1]
    possible = pad(inside, (1, 0), value=True).unsqueeze(2) & inside.unsqueeze(1) & (place[:, None] != place[1:])
    likely = torch.cat([root.unsqueeze(1), arcs], 1) >= least
    return possible & likely.scatter(1, y.unsqueeze(1), True), y


def siblings_of(heads: Sequence[int]) -> list[int]:
    """For each word, the modifier before it of the same head, on the side of the head, or the head if there is none.

    Example:
        >>> siblings_of((3, 3, 0, 3, 3))
        [2, 3, 0, 3, 4]
    """
    found, words = list(heads), range(1, len(heads) + 1)
    for order, is_right in ((words, True), (reversed(words), False)):
        last: dict[int, int] = {}
        for word in order:
            head = heads[word - 1]
            if (head < word) == is_right:
                found[word - 1] = last.get(head, head)
                last[head] = word
    return found
