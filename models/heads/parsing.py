"""Dependency trees: biaffine scores of arcs and labels."""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

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

    @staticmethod
    def of_scores(
        scores: Tensor,
        lengths: Tensor | None = None,
        *,
        root: Literal["first", "last"],
        labels: Tensor | None = None,
        projective: bool = False,
        single_root: bool = True,
    ) -> ProjectiveTree | SpanningTree:
        """Trees of the scores of another biaffine layer, among whose heads is ROOT.

        Args:
            scores: [B, n + 1, n], or [B, n + 1, n + 1] with a column of ROOT, which is left out. Entry [b, h, m] is for
                an arc from head h to its modifier m; if modifiers are rows, give ``scores.mT``.
            lengths: numbers of words [B], without ROOT.
            root: whether ROOT is in the first row or in the last one, and the column likewise.
            labels: scores [B, n, n, L] of labels of arcs between words.
            projective: as for the class.
            single_root: as for the class.

        Raises:
            ValueError: scores of another shape, or another place of ROOT.

        Example:
            >>> scores = torch.tensor([[[0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [0.0, 1.0, 0.0]]])  # ROOT, she, sang
            >>> BiaffineParser.of_scores(scores, root="first").max()
            (tensor([5.]), tensor([[0, 1]]))
        """
        shape = tuple(scores.shape)
        if len(shape) != 3 or shape[1] < 2 or shape[1] - shape[2] not in (0, 1):
            raise ValueError(
                f"scores must have shape [B, n + 1, n] or [B, n + 1, n + 1], with ROOT a head; got {shape}"
            )
        if root not in ("first", "last"):
            raise ValueError(f'root must be "first" or "last", got {root!r}')
        words = slice(1, None) if root == "first" else slice(0, shape[1] - 1)
        arcs, of_root = scores[:, words], scores[:, 0 if root == "first" else -1]
        if shape[1] == shape[2]:
            arcs, of_root = arcs[:, :, words], of_root[:, words]
        structure = ProjectiveTree if projective else SpanningTree
        return structure(arcs, of_root, labels, lengths, single_root=single_root)

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
