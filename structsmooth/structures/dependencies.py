"""What dependency trees share, projective or not: potentials, outputs as heads and labels, costs."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, widened
from structsmooth.structures.checks import check_lengths, length_mask
from structsmooth.structures.programs import DynamicProgram


class Dependencies(Structure):
    """Trees over the words of sentences, as outputs.

    Shapes: arcs [B, n, n], root [B, n], labels [B, n, n, L]. A word has one of 1 + n L classes: 0 is the root, and
    1 + h L + l is the head h with label l. A part is an index into the scores of arcs, h n L + m L + l, or n n L + m
    for word m as a root.
    """

    potential_names: tuple[str, ...] = ("arcs", "root")
    row_names = ("lengths",)
    field_names: ClassVar[tuple[str, ...]] = ("potential_names", "labels", "single_root")
    arcs: Tensor
    root: Tensor
    labels: Tensor | None = None
    lengths: Tensor
    single_root: bool

    @abstractmethod
    def _is_allowed(self, heads: Tensor) -> tuple[Tensor, str]:
        """Which trees [B] are outputs, given heads [B, n] as places 0 (root) to n, and what outputs must be."""

    def _bind(self, arcs: Tensor, root: Tensor, labels: Tensor | None, lengths: Tensor | None) -> None:
        """Set the potentials and lengths, and check their shapes."""
        self.arcs, self.root = arcs, root
        if labels is not None:
            self.labels = labels
            self.potential_names = (*self.potential_names, "labels")
        self.check_shapes()
        self.lengths = checks.lengths_or_all(lengths, "arcs", arcs)

    def check_shapes(self) -> None:
        """Raise unless scores are [B, n, n], [B, n] and [B, n, n, L]."""
        for name, scores in zip(self.potential_names, self.potentials, strict=True):
            checks.require_scores(name, scores)
            checks.require_device(name, scores, "arcs", self.arcs)
        arcs = self.arcs
        if arcs.dim() != 3 or arcs.shape[1] != arcs.shape[2] or not arcs.shape[1]:
            raise ValueError(f"arcs must have shape [B, n, n] with n >= 1, got {tuple(arcs.shape)}")
        checks.require_shape("root", self.root, "[B, n]", tuple(arcs.shape[:2]))
        labels = self.labels
        if labels is not None and (labels.dim() != 4 or labels.shape[:3] != arcs.shape or not labels.shape[3]):
            raise ValueError(
                f"labels must have shape [B, n, n, L] with L >= 1 and B, n = {arcs.shape[0]}, {arcs.shape[1]}, "
                f"got {tuple(labels.shape)}"
            )

    def used_scores(self, name: str) -> Tensor:
        """Scores of pairs of words, and of words as roots, zero at padding."""
        return checks.inside(self.mask if name == "root" else self._possible, getattr(self, name))

    def _check_lengths(self) -> None:
        if self.validate_args:
            check_lengths(self.lengths, self.arcs.shape[1], "n", least=0)

    @property
    def mask(self) -> Tensor:
        """[B, n], true inside the sentences."""
        return length_mask(self.lengths, self.arcs.shape[1])

    @property
    def _possible(self) -> Tensor:
        """[B, n, n], true for pairs of different words inside the sentences."""
        inside = self.mask
        different = ~torch.eye(inside.shape[1], dtype=torch.bool, device=inside.device)
        return inside.unsqueeze(2) & inside.unsqueeze(1) & different

    @property
    def _labels_per_arc(self) -> int:
        return 1 if self.labels is None else self.labels.shape[3]

    def _scores(self) -> tuple[Tensor, Tensor]:
        """Scores of labelled arcs [B, n, n, L], -inf for impossible ones, and of roots [B, n], zero at padding."""
        arcs = widened(self.arcs).unsqueeze(-1)
        arcs = arcs if self.labels is None else arcs + widened(self.labels)
        arcs = torch.where(self._possible.unsqueeze(-1), arcs, 0.0)
        return arcs, torch.where(self.mask, widened(self.root), 0.0)

    def heads(self, y: Tensor) -> Tensor:
        """Heads [B, ..., n] of outputs: 0 for the root, h + 1 for word h; 0 at padding."""
        return torch.where(y > 0, (y - 1) // self._labels_per_arc + 1, 0)

    def relations(self, y: Tensor) -> Tensor:
        """Labels [B, ..., n] of the arcs of outputs; 0 at roots and at padding."""
        return torch.where(y > 0, (y - 1) % self._labels_per_arc, 0)

    def encoded(self, heads: Tensor, relations: Tensor | None = None) -> Tensor:
        """Outputs from heads as of :meth:`heads`, and labels; the reverse of these."""
        relations = torch.zeros_like(heads) if relations is None else relations
        return torch.where(heads > 0, (heads - 1) * self._labels_per_arc + 1 + relations, 0)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Outputs as int64, with 0 at padding."""
        checks.require_outputs(y, "[B, n]", "root", self.root)
        y = torch.where(self.mask, y, 0).to(torch.int64)
        if self.validate_args and y.numel():
            checks.require_labels(y, 1 + self.arcs.shape[1] * self._labels_per_arc)
            heads = self.heads(y)
            trees = (heads <= self.lengths[:, None]).all(1) & self._reaches_root(heads)
            roots = ((heads == 0) & self.mask).sum(1)
            least = self.lengths.clamp_max(1)  # the tree of no words has none
            allowed, rule = self._is_allowed(heads)
            for right, wanted in (
                (trees, "trees"),
                (roots == least if self.single_root else roots >= least, "trees with one root; see single_root"),
                (allowed, rule),
            ):
                if not bool(right.all()):
                    b = int(right.long().argmin())
                    raise ValueError(f"y must hold labels that make {wanted}, got heads {heads[b].tolist()}")
        return y

    @staticmethod
    def _reaches_root(heads: Tensor) -> Tensor:
        """Whether every word [B, n] descends from the root: [B]."""
        above = torch.nn.functional.pad(heads, (1, 0))
        # Each round doubles the steps up that ``above`` takes: more than n in all, after which only circles are left.
        for _ in range(heads.shape[1].bit_length()):
            above = above.gather(1, above)
        return (above == 0).all(1)

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Outputs, and the number 1 + n L of their classes."""
        return y, 1 + self.arcs.shape[1] * self._labels_per_arc

    def potential_costs(self, costs: Tensor) -> tuple[Tensor, ...]:
        """Costs of classes, [B, n, 1 + n L], as costs of potentials."""
        batch, words, _ = costs.shape
        arcs = costs[..., 1:].reshape(batch, words, words, self._labels_per_arc).transpose(1, 2)
        if self.labels is None:
            return arcs.squeeze(-1), costs[..., 0]
        return torch.zeros((), dtype=costs.dtype, device=costs.device), costs[..., 0], arcs

    def class_marginals(self) -> Tensor:
        """Probabilities [B, n, 1 + n L] of the classes of words."""
        found = dict(zip(self.potential_names, self.marginals(), strict=True))
        arcs = found["arcs"].unsqueeze(-1) if self.labels is None else found["labels"]
        return torch.cat([found["root"].unsqueeze(-1), arcs.transpose(1, 2).flatten(2)], -1)

    def arc_probabilities(self, y: Tensor) -> Tensor:
        """The probabilities [B, n] of the arcs of outputs ``y``, with their labels, to each word; 0 at padding.

        Example:
            >>> import torch
            >>> from structsmooth import ProjectiveTree
            >>> trees = ProjectiveTree(torch.zeros(1, 2, 2), torch.tensor([[0.0, 1.0]]))
            >>> trees.arc_probabilities(torch.tensor([[2, 0]]))  # there is one other tree
            tensor([[0.7311, 0.7311]])
        """
        return self.class_marginals().gather(2, self.checked_labels(y).unsqueeze(2)).squeeze(2)

    def program_scores(self) -> Tensor:
        """Scores [B, P] of labelled arcs and of roots."""
        arcs, root = self._scores()
        return torch.cat([arcs.flatten(1), root], 1)

    def derivation(self, y: Tensor) -> Tensor:
        """The part [B, n] of each word; P at padding."""
        words, labels = self.arcs.shape[1], self._labels_per_arc
        m = torch.arange(words, device=y.device)
        arc = ((self.heads(y) - 1) * words + m) * labels + self.relations(y)
        index = torch.where(y > 0, arc, words * words * labels + m)
        return torch.where(self.mask, index, words * (words * labels + 1))

    def outputs(self, used: Tensor) -> Tensor:
        """Outputs [B, K, n] from parts [B, K, M], in any order."""
        words, labels = self.arcs.shape[1], self._labels_per_arc
        count = words * words * labels
        h, m = used // (words * labels), used // labels % words
        # Roots come behind all arcs, and what is missing behind all roots, in a slot that is cut off.
        m = torch.where(used < count, m, used - count).clamp_max(words)
        y = torch.where(used < count, 1 + h * labels + used % labels, 0)
        return torch.zeros(*used.shape[:2], words + 1, dtype=torch.int64, device=y.device).scatter(2, m, y)[..., :words]

    def _arcs_of_parts(self, values: Tensor) -> Tensor:
        """The best [B, n, n] over labels, zero at padding, from values [B, parts]."""
        batch, words, _ = self.arcs.shape
        inside = self.mask
        labels = self._labels_per_arc
        best = values[:, : words * words * labels].view(batch, words, words, labels).amax(-1)
        return torch.where(inside.unsqueeze(2) & inside.unsqueeze(1), best, 0.0)


class ProjectiveDependencies(Dependencies, DynamicProgram):
    """Trees whose arcs do not cross, as outputs of a program whose roots are the lengths of sentences."""

    def _is_allowed(self, heads: Tensor) -> tuple[Tensor, str]:
        return ~crosses(heads, self.mask), "projective trees; SpanningTree takes all"

    def sizes(self) -> Tensor:
        """The root of the program for the length of each sentence: int64 [B]."""
        return self.lengths

    def read_max_marginals(self, values: Tensor) -> Tensor:
        """The largest score [B, n, n] of a tree with each arc; -inf on the diagonal, zero at padding."""
        return self._arcs_of_parts(values)


def crosses(heads: Tensor, mask: Tensor) -> Tensor:
    """Whether arcs of the trees with these heads [B, n] cross each other, with the root left of all words: [B]."""
    m = torch.arange(1, 1 + heads.shape[1], device=heads.device)
    low, high = torch.minimum(heads, m), torch.maximum(heads, m)
    low, high = torch.where(mask, low, 0), torch.where(mask, high, 0)
    a, b, c, d = low.unsqueeze(2), high.unsqueeze(2), low.unsqueeze(1), high.unsqueeze(1)
    # a < c < b < d: the other arc begins inside and ends outside.
    return ((a < c) & (c < b) & (b < d)).flatten(1).any(1)
