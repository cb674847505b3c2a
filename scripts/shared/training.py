"""What scripts that train networks share: passes of steps, losses, and what is learned, entities or trees."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from scripts.shared.harness import bio
from structsmooth import L2, Entropy, LinearChain, ProjectiveTree, SpanningTree, StructuralHinge
from structsmooth.models import BiaffineParser, TaggingHead
from structsmooth.tasks import NER
from structsmooth.tasks.parsing.data import projectivized, read_trees
from structsmooth.text.scores import entity_scores


def descend(
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Tensor, float], Tensor],
    n: int,
    *,
    batch: int,
    epochs: int,
    last: float = 0.0,
    by_epoch: bool = False,
    generator: torch.Generator | None = None,
) -> Iterator[float]:
    """Make passes of steps over batches in random order, with step sizes that fall linearly.

    Args:
        optimizer: makes the steps.
        loss: mean loss of the examples with some indices, when a share of the epochs is over.
        n: number of examples.
        batch: examples of a step.
        epochs: number of passes.
        last: share of the step sizes that is left in the end.
        by_epoch: let step sizes fall after each epoch, and not after each step.
        generator: of the order; the one of torch if not given.

    Yields:
        After each epoch, the mean loss of the examples, each as it was before the step on it.
    """
    falls = epochs if by_epoch else epochs * -(-n // batch)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, last, falls)
    for epoch in range(epochs):
        total = 0.0
        for indices in torch.randperm(n, generator=generator).split(batch):
            optimizer.zero_grad()
            value = loss(indices, epoch / epochs)
            value.backward()
            optimizer.step()
            if not by_epoch:
                schedule.step()
            total += value.item() * len(indices)
        if by_epoch:
            schedule.step()
        yield total / n


def losses(mu: float, k: int) -> dict[str, StructuralHinge]:
    """Every loss by its name."""
    return {
        "hinge": StructuralHinge(),
        "l2": StructuralHinge(L2(mu, k)),
        "entropy": StructuralHinge(Entropy(mu)),
        "crf": StructuralHinge.crf(),
        "softmax_margin": StructuralHinge.softmax_margin(),
        "perceptron": StructuralHinge.perceptron(),
        "top_k": StructuralHinge.top_k(mu, k),
    }


def token_loss(scores: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Mean over the batch of −Σ_t log softmax(scores[t])[y_t]."""
    found = cross_entropy(scores.transpose(1, 2), y, reduction="none")
    return torch.where(mask, found, 0.0).sum(1).mean()


def padded(rows: Sequence[Any]) -> Tensor:
    """Sequences as one batch."""
    return pad_sequence([torch.as_tensor(row) for row in rows], batch_first=True)


@dataclass
class Tags:
    """Entities, as tags in the scheme BIO; "token" has no structure, and other methods are losses."""

    train: list[Any]
    test: list[Any]
    tags: list[str]

    methods: ClassVar = ("token", *losses(1.0, 1))

    @classmethod
    def read(cls, train: str, test: str, count: int | None) -> "Tags":
        """Two column files, of which the first ``count`` sentences are trained on."""
        training, testing = ([replace(s, tags=bio(s)) for s in NER().read(path)] for path in (train, test))
        tags = {"O", *(tag for sentence in training[:count] for tag in sentence.tags or ())}
        return cls(training[:count], testing, sorted(tags))

    def head(self, features: int, method: str) -> TaggingHead:
        """A linear layer under a chain."""
        return TaggingHead(features, len(self.tags))

    def loss(
        self, method: str, structure: LinearChain, batch: Sequence[Any], losses: Mapping[str, StructuralHinge]
    ) -> Tensor:
        """Mean loss of a batch."""
        y = padded([[self.tags.index(tag) for tag in s.tags] for s in batch]).to(structure.unary.device)
        if method == "token":
            return token_loss(structure.unary, y, structure.mask)
        return losses[method](structure, y)

    def outputs(self, method: str, structure: LinearChain) -> list[Any]:
        """The best tag of each word, or the best sequence."""
        y = structure.unary.argmax(2) if method == "token" else structure.max()[1]
        rows = zip(y.tolist(), structure.lengths.tolist(), strict=True)
        return [[self.tags[label] for label in row[:length]] for row, length in rows]

    def measures(self, outputs: Sequence[Any]) -> dict[str, float]:
        """Entity F1."""
        return {"F1": 100 * entity_scores([sentence.tags for sentence in self.test], list(outputs)).f1}


@dataclass
class Trees:
    """Dependency trees with labels of arcs."""

    train: list[Any]
    test: list[Any]
    relations: list[str]

    methods: ClassVar = ("token", "crf", "softmax_margin", "l2", "projective-crf", "projective-l2")

    @classmethod
    def read(cls, train: str, test: str, count: int | None) -> "Trees":
        """Two treebanks, of which the first ``count`` trees are trained on."""
        training, testing = read_trees(train)[:count], read_trees(test)
        return cls(training, testing, sorted({relation for s in training for relation in _relations(s)}))

    def head(self, features: int, method: str) -> BiaffineParser:
        """Biaffine scores of arcs and labels."""
        return BiaffineParser(features, len(self.relations), projective=method.startswith("projective"))

    def loss(self, method: str, structure: Any, batch: Sequence[Any], losses: Mapping[str, StructuralHinge]) -> Tensor:
        """Mean loss of a batch; arcs that cross are lifted where no tree may have them."""
        lifted = projectivized if isinstance(structure, ProjectiveTree) else tuple
        heads = padded([lifted(s.tree.heads) for s in batch])
        y = structure.encoded(heads, padded([self.numbers(s)[1] for s in batch]))
        if method == "token":
            return token_loss(scores_of_classes(structure), y, structure.mask)
        return losses[method.removeprefix("projective-")](structure, y)

    def numbers(self, sentence: Any) -> tuple[Tensor, Tensor]:
        """Heads of words, and numbers of their relations."""
        names = [self.relations.index(name) for name in _relations(sentence)]
        return torch.tensor(sentence.tree.heads), torch.tensor(names)

    def outputs(self, method: str, structure: Any) -> list[Any]:
        """Heads and relations of the best tree, which has one root."""
        y = structure.max()[1]
        rows = zip(
            structure.heads(y).tolist(), structure.relations(y).tolist(), structure.lengths.tolist(), strict=True
        )
        return [(heads[:n], [self.relations[label] for label in labels[:n]]) for heads, labels, n in rows]

    def measures(self, outputs: Sequence[Any]) -> dict[str, float]:
        """Unlabelled and labelled attachment scores; children of the root are right by their head alone."""
        right, labelled, words = 0, 0, 0
        for sentence, (heads, relations) in zip(self.test, outputs, strict=True):
            for found, name, head, relation in zip(
                heads, relations, sentence.tree.heads, _relations(sentence), strict=True
            ):
                words, right = words + 1, right + (found == head)
                labelled += found == head and (head == 0 or name == relation)
        return {"UAS": 100 * right / words, "LAS": 100 * labelled / words}


Job = Tags | Trees
"""What is learned from some sentences, and how it is measured."""


def _relations(sentence: Any) -> list[str]:
    """Relations without their subtypes."""
    return [relation.partition(":")[0] for relation in sentence.tree.relations]


def scores_of_classes(structure: SpanningTree) -> Tensor:
    """Scores [B, n, 1 + n L] of the heads of each word with their labels, the root first."""
    assert structure.labels is not None
    batch, n, _, labels = structure.labels.shape
    itself = torch.eye(n, dtype=torch.bool)
    length = structure.lengths[:, None, None]
    inside = torch.arange(n)[None, :, None] < length
    arcs = torch.where(inside & ~itself, structure.arcs, -1e9).unsqueeze(3) + structure.labels
    per_word = arcs.permute(0, 2, 1, 3).reshape(batch, n, n * labels)
    return torch.cat([structure.root.unsqueeze(2), per_word], 2)
