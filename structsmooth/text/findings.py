"""What files of annotated sentences have, and what in them may spoil training or scores."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from structsmooth.messages import counted
from structsmooth.text.corpus import Corpus
from structsmooth.text.schemes import (
    Pairs,
    TagScheme,
    entity_counts,
    gold_by_sentence,
    ill_formed,
    names_of,
    scheme_of,
    tag_pairs,
)
from structsmooth.text.texts import TextCorpus

_FEW, _LONG = 10, 200  # examples of a label, and words of a sentence
_TELLING = 4  # words of a sentence that is hardly the same by chance
_SHOWN = 5


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
        """The scheme of the tags; none of plain ones."""
        return None if self.plain else scheme_of(self.pairs, self.unknown)

    @cached_property
    def labels(self) -> Counter[str]:
        """How many entities of each type, or tokens of each tag, there are."""
        if not self.plain:
            return entity_counts(self.pairs, self.unknown)
        known, counts = names_of(self.pairs, self.unknown), Counter[str]()
        for (_, tag), count in self.pairs.items():
            if tag is not None and tag in known:
                counts[tag] += count
        return counts

    def __str__(self) -> str:
        listed = [f"{label} {count:,}" for label, count in self.labels.most_common()]
        more = [f"and {len(listed) - 2 * _SHOWN} others"] if len(listed) > 2 * _SHOWN else []
        sizes = f"{counted(len(self.corpus), 'sentence')}, {counted(len(self.corpus.tokens), 'word')}"
        kind = "plain tags" if self.scheme is None else f"scheme {self.scheme}"
        return f"{sizes}, {kind}: {', '.join([*listed[: 2 * _SHOWN], *more]) or 'no entities'}"


def findings(files: Mapping[str, Contents]) -> list[Finding]:
    """What may spoil training on the first file, or scores on the others."""
    found = [finding for name, contents in files.items() for finding in _within(name, contents)]
    names = list(files)
    if names:
        first = files[names[0]]
        found += _few(names[0], first.labels)
        found += [finding for name in names[1:] for finding in _unlike(name, files[name], names[0], first)]
    return found + [finding for pair in combinations(names, 2) for finding in _shared(*pair, files)]


def _within(name: str, contents: Contents) -> list[Finding]:
    """What is odd in one file."""
    found, corpus = list[Finding](), contents.corpus
    if isinstance(corpus, TextCorpus) and corpus.misaligned:
        what = f"{counted(len(corpus.misaligned), 'span')} with an end inside of a token{_such_as(corpus.misaligned)}"
        found.append(Finding(name, what, "correct the offsets; as it is, these tokens are split there"))
    if contents.scheme is not None:
        wrong = ill_formed(contents.pairs, contents.scheme, contents.unknown)
        pairs = [" ".join(str(tag).replace("\n", "(edge)") for tag in pair) for pair, _ in wrong.most_common()]
        if wrong:
            what = f"{counted(wrong.total(), 'pair')} of tags that {contents.scheme} forbids{_such_as(pairs)}"
            found.append(Finding(name, what, "correct them; as it is, each such tag begins an entity"))
    lengths = (corpus.offsets[1:] - corpus.offsets[:-1]).tolist()
    if long := [number for number, length in enumerate(lengths, 1) if length > _LONG]:
        longest = max(long, key=lambda number: lengths[number - 1])
        what = f"{counted(len(long), 'sentence')} of over {_LONG} words; number {longest} has {lengths[longest - 1]:,}"
        found.append(Finding(name, what, "put blank lines, or line breaks in texts, between sentences"))
    return found


def _few(name: str, labels: Mapping[str, int]) -> list[Finding]:
    """Labels that are too rare to be learned."""
    few = [f"{label} ({count})" for label, count in sorted(labels.items()) if count < _FEW]
    what = f"labels of fewer than {_FEW} examples: {_listed(few)}"
    return [Finding(name, what, "annotate more of them, or join them with others")] if few else []


def _unlike(name: str, contents: Contents, first_name: str, first: Contents) -> list[Finding]:
    """What a file has that the first one has not."""
    found = list[Finding]()
    if unseen := sorted(contents.labels.keys() - first.labels.keys()):
        what = f"labels that {first_name} lacks: {_listed(unseen)}"
        found.append(Finding(name, what, "a model cannot predict them: add examples, or correct their names"))
    if contents.scheme != first.scheme:
        what = f"the scheme {contents.scheme}, and {first.scheme} in {first_name}"
        found.append(Finding(name, what, "nothing: tags are converted to those of training, or to --scheme"))
    return found


def _shared(name: str, other: str, files: Mapping[str, Contents]) -> list[Finding]:
    """Sentences that are in two files."""
    known = {tuple(sentence.words) for sentence in files[name].corpus if len(sentence) >= _TELLING}
    shared = [" ".join(s.words) for s in files[other].corpus if tuple(s.words) in known]
    what = f"{len(shared):,} of {len(files[other].corpus):,} sentences are in {name}, too{_such_as(shared)}"
    return [Finding(other, what, "take them out of one of the files: scores would be too high")] if shared else []


def _such_as(examples: Sequence[str]) -> str:
    return f", such as {examples[0][:40]!r}" if examples else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
