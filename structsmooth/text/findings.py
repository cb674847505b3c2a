"""What files of annotated sentences have, and what in them may spoil training or scores."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from structsmooth.messages import counted
from structsmooth.text.corpus import Corpus
from structsmooth.text.schemes import (
    Pairs,
    TagScheme,
    entity_counts,
    gold_by_sentence,
    ill_formed,
    scheme_of,
    tag_pairs,
)
from structsmooth.text.texts import TextCorpus

_FEW, _LONG = 10, 200  # examples of a label, and words of a sentence
_TELLING = 4  # words of a sentence that is hardly the same by chance
_SHOWN = 10


class Finding(NamedTuple):
    """Something in a file that may spoil training or scores, and what to do."""

    file: str
    what: str
    step: str


@dataclass(frozen=True)
class Contents:
    """What the sentences of a file have.

    Args:
        corpus: the sentences, with tags.
        plain: whether these are any tags, and not those of entities.
        unknown: what stands in the place of tags that are unknown.
    """

    corpus: Corpus
    plain: bool = False
    unknown: str | None = None

    @cached_property
    def pairs(self) -> Pairs:
        """The pairs of neighbouring tags."""
        return tag_pairs(gold_by_sentence(self.corpus))

    @cached_property
    def scheme(self) -> TagScheme | None:
        """The scheme of the tags; none of plain ones, nor of those that no scheme has, which ``--scheme`` converts."""
        with suppress(ValueError):
            return None if self.plain else scheme_of(self.pairs, self.unknown)
        return None

    @cached_property
    def labels(self) -> Counter[str]:
        """How many entities of each type, or tokens of each tag, there are."""
        if not self.plain:
            return entity_counts(self.pairs, self.unknown)
        return Counter(tag for tags in gold_by_sentence(self.corpus) for tag in tags if tag != self.unknown)

    def __str__(self) -> str:
        listed = [f"{label} {count:,}" for label, count in self.labels.most_common()]
        sizes = f"{counted(len(self.corpus), 'sentence')}, {counted(len(self.corpus.tokens), 'word')}"
        kind = "plain tags" if self.scheme is None else f"scheme {self.scheme}"
        return f"{sizes}, {kind}: {_listed(listed) or 'no entities'}"


def findings(files: Mapping[str, Contents]) -> Iterator[Finding]:
    """What may spoil training on the first of some files, at least one, or scores on the others."""
    for name, contents in files.items():
        yield from _within(name, contents)
    (training, first), *others = files.items()
    if few := [f"{label} ({count})" for label, count in sorted(first.labels.items()) if count < _FEW]:
        what = f"labels of fewer than {_FEW} examples: {_listed(few)}"
        yield Finding(training, what, "annotate more of them, or join them with others")
    for name, contents in others:
        yield from _unlike(name, contents, training, first)
    for (before, known), (name, contents) in combinations(files.items(), 2):
        sentences = {tuple(sentence.words) for sentence in known.corpus if len(sentence) >= _TELLING}
        if shared := [" ".join(s.words) for s in contents.corpus if tuple(s.words) in sentences]:
            what = f"{len(shared):,} of {len(contents.corpus):,} sentences are in {before}, too{_such_as(shared)}"
            yield Finding(name, what, "take them out of one of the files: scores would be too high")


def _within(name: str, contents: Contents) -> Iterator[Finding]:
    """What is odd in one file."""
    corpus, scheme = contents.corpus, contents.scheme
    if misaligned := corpus.misaligned if isinstance(corpus, TextCorpus) else ():
        what = f"{counted(len(misaligned), 'span')} with an end inside of a token{_such_as(misaligned)}"
        yield Finding(name, what, "correct the offsets; as it is, these tokens are split there")
    if scheme is not None and (wrong := ill_formed(contents.pairs, scheme, contents.unknown)):
        pairs = [" ".join(str(tag).replace("\n", "(edge)") for tag in pair) for pair, _ in wrong.most_common(1)]
        what = f"{counted(wrong.total(), 'pair')} of tags that {scheme} forbids{_such_as(pairs)}"
        yield Finding(name, what, "correct them; as it is, each such tag begins an entity")
    lengths = np.diff(corpus.offsets)
    if long := int((lengths > _LONG).sum()):
        what = f"{counted(long, 'sentence')} of over {_LONG} words; number {lengths.argmax() + 1} has {lengths.max():,}"
        yield Finding(name, what, "put blank lines, or line breaks in texts, between sentences")


def _unlike(name: str, contents: Contents, training: str, known: Contents) -> Iterator[Finding]:
    """What a file has that the one to train on has not."""
    if unseen := sorted(contents.labels.keys() - known.labels.keys()):
        what = f"labels that {training} lacks: {_listed(unseen)}"
        yield Finding(name, what, "a model cannot predict them: add examples, or correct their names")
    if contents.scheme != known.scheme:
        what = f"the scheme {contents.scheme}, and {known.scheme} in {training}"
        yield Finding(name, what, "nothing: tags are converted to those of training, or to --scheme")


def _such_as(examples: Sequence[str]) -> str:
    return f", such as {examples[0][:40]!r}" if examples else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
