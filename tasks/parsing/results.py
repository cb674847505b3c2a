"""Attachment scores of dependency trees, of all words and by relation."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.tasks.parsing.data import Sentence, Tree, known_tree

ROOT = "root"
"""What in Universal Dependencies stands where the head is the root, and nowhere else."""


@dataclass(frozen=True)
class Attachments:
    """How many words have the right head, and the right relation too, by their known relation.

    Attributes:
        words: number of words of each relation.
        heads: number of those with the right head.
        relations: number of those that have the right relation to it, too.
        trees: number of sentences, and of those whose heads are all right.
    """

    words: Counter[str]
    heads: Counter[str]
    relations: Counter[str]
    trees: tuple[int, int]

    @classmethod
    def of(cls, sentences: Sequence[Sentence], trees: Sequence[Tree], subtypes: bool) -> "Attachments":
        """Counts of found trees of labelled sentences; without subtypes, relations count up to a colon.

        Raises:
            ValueError: a sentence without a tree.
        """
        words: Counter[str] = Counter()
        heads: Counter[str] = Counter()
        relations: Counter[str] = Counter()
        whole = 0
        for sentence, tree in zip(sentences, trees, strict=True):
            gold = known_tree(sentence)
            whole += gold.heads == tree.heads
            found = zip(gold.heads, gold.relations, tree.heads, tree.relations, strict=True)
            for head, relation, found_head, found_relation in found:
                name = shortened(relation, subtypes)
                words[name] += 1
                if head == found_head:
                    heads[name] += 1
                    relations[name] += name == shortened(found_relation, subtypes)
        return cls(words, heads, relations, (len(sentences), whole))

    def as_dict(self, labelled: bool) -> dict[str, float]:
        """Shares of words with the right head, ``uas``, and relation, ``las``; of sentences with all right heads."""
        total = max(self.words.total(), 1)
        scores = {"uas": self.heads.total() / total}
        if labelled:
            scores["las"] = self.relations.total() / total
        return scores | {"whole_trees": self.trees[1] / max(self.trees[0], 1)}

    def rows(self, labelled: bool) -> list[tuple[str, ...]]:
        """A row for each relation, the most frequent ones first: shares of right heads, and of right relations too."""
        kinds = (self.heads, self.relations)[: 1 + labelled]
        ranked = sorted(self.words.items(), key=lambda pair: (-pair[1], pair[0]))
        return [(name, *(f"{counts[name] / count:.1%}" for counts in kinds), f"{count:,}") for name, count in ranked]

    def table(self, labelled: bool) -> str:
        """The metrics and a row for each relation, as text for people."""
        lines = [f"{name:12} {value:8.2%}" for name, value in self.as_dict(labelled).items()]
        rows = [header(labelled), *self.rows(labelled)]
        return "\n".join([*lines, "", *(f"{row[0]:12}" + "".join(f"{cell:>9}" for cell in row[1:]) for row in rows)])


def header(labelled: bool) -> tuple[str, ...]:
    """Headings of the columns of :meth:`Attachments.rows`."""
    return ("relation", "UAS", *(["LAS"] if labelled else []), "words")


def shortened(relation: str, subtypes: bool) -> str:
    """A relation, without its subtype unless these count: ``nsubj`` for ``nsubj:pass``."""
    return relation if subtypes else relation.partition(":")[0]


def wrong_words(sentence: Sentence, tree: Tree, labelled: bool, subtypes: bool) -> int:
    """How many words have a wrong head, or a wrong relation if these are found too."""
    gold = known_tree(sentence)
    pairs = zip(gold.heads, gold.relations, tree.heads, tree.relations, strict=True)
    return sum(
        head != found_head or (labelled and shortened(relation, subtypes) != shortened(found_relation, subtypes))
        for head, relation, found_head, found_relation in pairs
    )


def relations_by_head(trees: Iterable[Tree], subtypes: bool) -> tuple[list[str], list[str]]:
    """The relations of words whose head is the root, and of those whose head is a word, which never is ``root``."""
    known = [pair for tree in trees for pair in zip(tree.heads, tree.relations, strict=True) if pair[0] >= 0]
    of_root = {shortened(relation, subtypes) for head, relation in known if head == 0}
    of_words = {shortened(relation, subtypes) for head, relation in known if head > 0}
    return sorted(of_root), sorted(of_words - {ROOT})


def may_have(relations: Sequence[str], of_root: Sequence[str], of_words: Sequence[str]) -> Tensor:
    """Which relations words may have whose heads are words, and whose head is the root: bool [2, L].

    Models of version 0.3 do not say; then ``root`` alone has the root as its head, if it is a relation.
    """
    of_root = of_root or [name for name in relations if name == ROOT] or relations
    of_words = of_words or [name for name in relations if name != ROOT] or relations
    return torch.tensor([[name in kept for name in relations] for kept in (of_words, of_root)])
