"""Heads: score modules over the features of any encoder, one for each kind of output, with small scores at first."""

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from structsmooth.scores import ScoreModule
from structsmooth.structures import Constituents, LinearChain, Matching, ProjectiveTree, SemiMarkov, SpanningTree

Features: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""Features of positions [B, T, D], alone or with lengths [B] from 1 to T."""


class Positions(NamedTuple):
    """Features [B, T, D] that are zero at padding, and lengths [B]."""

    features: Tensor
    lengths: Tensor


def positions_of(x: Features, size: int) -> Positions:
    """The positions of an input, as :func:`positions` gives them."""
    features, lengths = x if isinstance(x, tuple) else (x, None)
    return positions(features, lengths, size)


def positions(features: Tensor, lengths: Tensor | None, size: int) -> Positions:
    """Features and lengths; what stands at padding, NaN too, is set to zero.

    Raises:
        ValueError: features of another shape or size, or lengths of another shape.
    """
    if features.dim() != 3 or features.shape[2] != size:
        raise ValueError(f"features must have shape [B, T, D] with D = {size}, got {tuple(features.shape)}")
    if lengths is None:
        lengths = torch.full(features.shape[:1], features.shape[1], device=features.device)
    if lengths.shape != features.shape[:1]:
        raise ValueError(f"lengths must have shape [B] = {tuple(features.shape[:1])}, got {tuple(lengths.shape)}")
    inside = torch.arange(features.shape[1], device=features.device) < lengths.unsqueeze(1)
    return Positions(torch.where(inside.unsqueeze(2), features, 0.0), lengths)


def projection(features: int, hidden: int) -> nn.Sequential:
    """A layer of ``hidden`` features with a smooth nonlinearity, as prox-linear steps want it."""
    return nn.Sequential(nn.Linear(features, hidden), nn.ELU())


def with_one(features: Tensor) -> Tensor:
    """Features and a constant one behind them: [..., D + 1]."""
    return pad(features, (0, 1), value=1.0)


def zeros(*shape: int) -> nn.Parameter:
    """Weights that are zero at first, so that all outputs are equally good."""
    return nn.Parameter(torch.zeros(shape))


class TaggingHead(ScoreModule):
    """Scores of tags from features of positions, and of pairs of neighbouring tags, which are zero at first.

    At the short steps of a pretrained encoder, scores of pairs would hardly move: give ``head.transitions()`` a longer
    step size of its own in the optimizer.

    Args:
        features: size D of the features.
        tags: number S of tags.

    Example:
        >>> import torch
        >>> chain = TaggingHead(features=8, tags=3)((torch.randn(2, 7, 8), torch.tensor([7, 4])))
        >>> chain.max()[1].shape
        torch.Size([2, 7])
    """

    affine = True

    def __init__(self, features: int, tags: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, tags)
        self.transition, self.start, self.stop = zeros(tags, tags), zeros(tags), zeros(tags)

    if TYPE_CHECKING:

        def __call__(self, x: Features, mask: Tensor | None = None) -> LinearChain:
            """As :meth:`forward`."""

    def transitions(self) -> list[nn.Parameter]:
        """The scores of pairs of tags, and of the first and the last tag."""
        return [self.transition, self.start, self.stop]

    def forward(self, x: Features, mask: Tensor | None = None) -> LinearChain:
        """Chain over the tags of features [B, T, D], alone or with lengths [B].

        A mask [B, T] leaves positions out wherever they stand, such as all but the
        :func:`~structsmooth.models.subwords.first_subwords` of words; it takes the place of lengths.
        """
        if mask is not None:
            x = torch.where(mask.bool().unsqueeze(2), x[0] if isinstance(x, tuple) else x, 0.0)
        features, lengths = positions_of(x, self.linear.in_features)
        prefix = lengths if mask is None else None
        return LinearChain(self.linear(features), self.transition, prefix, mask=mask, start=self.start, stop=self.stop)


class SegmentHead(ScoreModule):
    """Scores of labelled segments: of their positions, of where they begin and end, their duration, and neighbours.

    The scores of a batch take O(B T longest hidden) memory.

    Args:
        features: size D of the features of positions.
        labels: number S of labels.
        longest: the largest number of positions of a segment.
        hidden: size of a pair of ends; without ends if 0, so that scores are linear.

    Reference:
        Sarawagi and Cohen (2004); Kong et al. (2016), "Segmental Recurrent Neural Networks".

    Example:
        >>> import torch
        >>> segments = SegmentHead(features=8, labels=3, longest=4)((torch.randn(2, 9, 8), torch.tensor([9, 5])))
        >>> segments.max()[1].shape
        torch.Size([2, 9])
    """

    def __init__(self, features: int, labels: int, longest: int, *, hidden: int = 64) -> None:
        super().__init__()
        self.longest, self.affine = longest, hidden == 0
        self.linear = nn.Linear(features, labels)
        self.transition, self.durations = zeros(labels, labels), zeros(longest, labels)
        self.ends = None
        if hidden:
            self.first, self.last = nn.Linear(features, hidden), nn.Linear(features, hidden, bias=False)
            self.ends = nn.Sequential(nn.ELU(), nn.Linear(hidden, labels, bias=False))

    if TYPE_CHECKING:

        def __call__(self, x: Features) -> SemiMarkov:
            """As :meth:`forward`."""

    def forward(self, x: Features) -> SemiMarkov:
        """Segments of features [B, T, D], alone or with lengths [B]."""
        features, lengths = positions_of(x, self.linear.in_features)
        segments = None
        if self.ends is not None:
            # The ends of the segments from each position on: [B, T, longest, hidden].
            last = pad(self.last(features), (0, 0, 0, self.longest - 1)).unfold(1, self.longest, 1).mT
            segments = self.ends(self.first(features).unsqueeze(2) + last)
        return SemiMarkov(self.linear(features), self.transition, self.durations, segments, lengths)


class SpanHead(ScoreModule):
    """Scores of labelled spans, from the features of where they begin and end: constituents, or nested entities.

    The scores of a batch take O(B n² hidden) memory.

    Args:
        features: size D of the features of words.
        labels: number L of labels of spans.
        hidden: size of a span.
        binary: whether outputs are binary trees, as in :class:`~structsmooth.Constituents`.

    Reference:
        Stern et al. (2017), "A Minimal Span-Based Neural Constituency Parser", with features of ends in place of
        differences.

    Example:
        >>> import torch
        >>> spans = SpanHead(features=8, labels=3)(torch.randn(2, 6, 8))
        >>> spans.max()[1].shape
        torch.Size([2, 6, 6])
    """

    def __init__(self, features: int, labels: int, *, hidden: int = 128, binary: bool = False) -> None:
        super().__init__()
        self.binary = binary
        self.first, self.last = nn.Linear(features, hidden), nn.Linear(features, hidden, bias=False)
        self.score = nn.Sequential(nn.ELU(), nn.Linear(hidden, labels))

    if TYPE_CHECKING:

        def __call__(self, x: Features) -> Constituents:
            """As :meth:`forward`."""

    def forward(self, x: Features) -> Constituents:
        """Spans of features [B, n, D], alone or with lengths [B]."""
        words, lengths = positions_of(x, self.first.in_features)
        both = self.first(words).unsqueeze(2) + self.last(words).unsqueeze(1)
        return Constituents(self.score(both), lengths, binary=self.binary)


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


class MatchingHead(ScoreModule):
    """Scores of pairs of two sets: products of projected features, and of what stays without a partner.

    Args:
        rows: size of the features of rows.
        columns: size of the features of columns.
        hidden: size of the projections.
        unmatched: whether rows may stay without a partner, for a score that is linear in their features.

    Example:
        >>> import torch
        >>> head = MatchingHead(rows=8, columns=6)
        >>> matching = head((torch.randn(2, 3, 8), torch.randn(2, 4, 6)))
        >>> matching.max()[1].shape
        torch.Size([2, 3])
    """

    def __init__(self, rows: int, columns: int, *, hidden: int = 64, unmatched: bool = False) -> None:
        super().__init__()
        self.rows, self.columns = nn.Linear(rows, hidden), nn.Linear(columns, hidden)
        self.unmatched = nn.Linear(rows, 1) if unmatched else None
        self.scale = hidden**-0.5

    if TYPE_CHECKING:

        def __call__(self, x: tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]) -> Matching:
            """As :meth:`forward`."""

    def forward(self, x: tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]) -> Matching:
        """Matchings of features of rows [B, N, D] with those of columns [B, M, E], alone or with sizes [B, 2]."""
        row_features, column_features, *sizes = x
        counts = sizes[0].unbind(1) if sizes else (None, None)
        rows, _ = positions(row_features, counts[0], self.rows.in_features)
        columns, _ = positions(column_features, counts[1], self.columns.in_features)
        weights = self.scale * self.rows(rows) @ self.columns(columns).mT
        unmatched = None if self.unmatched is None else self.unmatched(rows).squeeze(2)
        return Matching(weights, *sizes, unmatched_rows=unmatched)
