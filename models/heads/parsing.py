"""Dependency trees: biaffine scores of arcs and labels."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from structsmooth.models.heads.inputs import Features, positions_of, projection, with_one, zeros
from structsmooth.scores import ScoreModule
from structsmooth.structures import ProjectiveTree, SpanningTree


class BiaffineParser(ScoreModule):
    """Scores of dependency trees: products of what words are as heads and as modifiers.

    Args:
        features: size D of the features of words.
        labels: number L of labels of arcs; trees without labels if not given.
        hidden: size of a word as a head, and as a modifier.
        projective: whether arcs may not cross: a :class:`~structsmooth.ProjectiveTree`, else a
            :class:`~structsmooth.SpanningTree`.
        single_root: whether exactly one word is a child of the root.

    Reference:
        Dozat and Manning (2017), "Deep Biaffine Attention for Neural Dependency Parsing".

    Example:
        >>> tree = BiaffineParser(features=8, labels=5)(torch.randn(2, 6, 8))
        >>> value, y = tree.max()
        >>> tree.heads(y).shape, tree.relations(y).shape
        (torch.Size([2, 6]), torch.Size([2, 6]))
    """

    def __init__(
        self,
        features: int,
        labels: int | None = None,
        *,
        hidden: int = 128,
        projective: bool = False,
        single_root: bool = True,
    ) -> None:
        super().__init__()
        self.features, self.projective, self.single_root = features, projective, single_root
        self.head, self.modifier = projection(features, hidden), projection(features, hidden)
        self.arc = zeros(hidden + 1, hidden + 1)
        self.root = nn.Linear(hidden, 1, bias=not single_root)  # with one root, all trees have the same
        self.label = None if labels is None else zeros(labels, hidden + 1, hidden + 1)

    if TYPE_CHECKING:

        def __call__(self, x: Features) -> ProjectiveTree | SpanningTree:
            """As :meth:`forward`."""

    def forward(self, x: Features) -> ProjectiveTree | SpanningTree:
        """Trees over the words of features [B, n, D], alone or with lengths [B]."""
        words, lengths = positions_of(x, self.features)
        modifiers = self.modifier(words)
        root = self.root(modifiers).squeeze(2)
        head, modifier = with_one(self.head(words)), with_one(modifiers)
        arcs = head @ self.arc @ modifier.mT
        labels = None if self.label is None else torch.einsum("bhi,lij,bmj->bhml", head, self.label, modifier)
        structure = ProjectiveTree if self.projective else SpanningTree
        return structure(arcs, root, labels, lengths, single_root=self.single_root)
