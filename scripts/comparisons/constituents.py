"""Constituency parsers on a treebank in brackets: grammars of its trees, and linear scores of spans.

The grammars are those of ``TreebankGrammar``, which choose among trees by the words, or by given parts of speech. Spans
are those of ``Constituents``, with labels of whole unary chains, given parts of speech, and scores that are linear in
hashed features; they are trained by the structured hinge with its cost, by steps of Adagrad. Labelled F1 counts all
constituents but the root, punctuation included; perplexity is that of words. Sentences longer than ``--longest`` are
left out of test data, and of the training of spans.
"""

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from zlib import crc32

import torch
from torch import Tensor, nn

from scripts.shared.harness import command, option
from structsmooth import Constituents, StructuralHinge
from structsmooth.costs import SpanErrors
from structsmooth.files import data_file
from structsmooth.text.brackets import Phrase, labelled_f1, read_brackets
from structsmooth.text.treebank_grammar import TreebankGrammar

_BUCKETS, _BATCH = 2**18, 16


Span = tuple[int, int, str]


class LinearSpans(nn.Module):
    """Scores of the spans of trees, linear in words and parts of speech at, around and between their ends."""

    def __init__(self, trees: Sequence[Phrase]) -> None:
        super().__init__()
        self.labels = sorted({label for tree in trees for *_, label in joined(tree)})
        self.weights = nn.EmbeddingBag(_BUCKETS, len(self.labels), mode="sum", sparse=True)
        nn.init.zeros_(self.weights.weight)

    def forward(self, trees: Sequence[Phrase]) -> Constituents:
        """Of the words and parts of speech of trees."""
        leaves = [tree.leaves() for tree in trees]
        n = max(map(len, leaves))
        spans = torch.zeros(len(trees), n, n, len(self.labels))
        for b, sentence in enumerate(leaves):
            first, last = torch.triu_indices(len(sentence), len(sentence))
            spans[b, first, last] = self.weights(features(tuple(sentence)))
        return Constituents(spans, torch.tensor([*map(len, leaves)]), validate_args=False)

    def parse(self, tree: Phrase) -> Counter[Span]:
        """The best constituents of the words of a tree."""
        (y,) = self([tree]).max()[1].tolist()
        found = [(i, j, self.labels[label]) for i, row in enumerate(y) for j, label in enumerate(row) if label >= 0]
        return Counter((i, j, label) for i, j, labels in found for label in labels.split("+"))

    def train_on(self, trees: Sequence[Phrase], passes: int) -> None:
        """Steps on batches in random order."""
        loss, optimizer = StructuralHinge(cost=SpanErrors()), torch.optim.Adagrad(self.parameters(), lr=0.1)
        order, number = torch.Generator().manual_seed(0), {label: number for number, label in enumerate(self.labels)}
        for some in (s for _ in range(passes) for s in torch.randperm(len(trees), generator=order).split(_BATCH)):
            batch = [trees[int(s)] for s in some]
            structure = self(batch)
            gold = torch.full(structure.spans.shape[:3], -1)
            for b, tree in enumerate(batch):
                for i, j, label in joined(tree):
                    gold[b, i, j] = number[label]
            optimizer.zero_grad()
            loss(structure, gold).backward()
            with torch.sparse.check_sparse_tensor_invariants(enable=False):
                optimizer.step()


def joined(tree: Phrase) -> list[Span]:
    """Spans with the labels of chains in one, from the top down."""
    labels: dict[tuple[int, int], str] = {}
    for i, j, label in tree.constituents():
        labels[i, j] = f"{labels[i, j]}+{label}" if (i, j) in labels else label
    return [(i, j, label) for (i, j), label in labels.items()]


@cache
def features(leaves: tuple[tuple[str, str], ...]) -> Tensor:
    """Hashed features of all spans of a sentence, by their first word and then by their last."""
    words, tags = (["", *column, ""] for column in zip(*leaves, strict=True))
    rows = []
    for i, j in torch.triu_indices(len(leaves), len(leaves)).add(1).T.tolist():
        size, ends = min(j - i, 8), (tags[i], tags[j], tags[i - 1], tags[j + 1])
        between = tags[i : j + 1] if size < 4 else [words[i], words[j]]
        names = [*ends, (*ends,), (*ends[1::2],), (*ends[::2],), (*ends[:2], size), (size,), (*between,)]
        names += [(end, size) for end in ends] + [
            (words[k], tags[o]) for k, o in ((i, j), (j, i), (i - 1, i), (j + 1, j))
        ]
        rows.append([crc32(repr((k, name)).encode()) % _BUCKETS for k, name in enumerate(names)])
    return torch.tensor(rows)


@command(
    option("--train", None, "brackets (default: gum_open, in STRUCTSMOOTH_DATA)", metavar="FILE"),
    option("--test", None, "brackets to measure on", metavar="FILE"),
    option("--longest", 40, "words of a sentence"),
    option("--passes", 1, "over the trees for spans"),
    table=["parser", "input", "precision", "recall", "F1", "perplexity", "seconds"],
    text_columns=2,
)
def main(options: Namespace) -> Iterator[list[str]]:
    """A row for each parser."""
    train, test = (
        read_brackets(path or data_file("compare_constituents", f"gum_open/{part}.ptb.gz"))
        for path, part in ((options.train, "train"), (options.test, "test"))
    )
    test = [tree for tree in test if len(tree.leaves()) <= options.longest]
    words, tags = ([[leaf[k] for leaf in tree.leaves()] for tree in test] for k in (0, 1))

    def row(parser: str, given: str, trees: Sequence[Phrase | Counter[Span]], perplexity: str = "") -> list[str]:
        shares = [f"{100 * share:.1f}" for share in labelled_f1(trees, test)]
        return [parser, given, *shares, perplexity, f"{time.time() - start:.0f}"]

    for name, parents in (("grammar", False), ("grammar with parents", True)):
        start = time.time()
        grammar = TreebankGrammar.from_trees(train, parents=parents)
        yield row(name, "words", grammar.parse(words), f"{grammar.perplexity(words):.0f}")
        start = time.time()
        yield row(name, "parts of speech", grammar.parse(words, tags))
    start = time.time()
    short = [tree for tree in train if len(tree.leaves()) <= options.longest]
    spans = LinearSpans(short)
    spans.train_on(short, options.passes)
    yield row("spans", "words, parts of speech", [spans.parse(tree) for tree in test])
