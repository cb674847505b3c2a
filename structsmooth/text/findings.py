"""What files of annotated sentences have, and what in them may spoil training or scores."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from structsmooth.messages import counted
from structsmooth.text.corpus import Corpus
from structsmooth.text.documents import Segmentation
from structsmooth.text.inputs import Inputs
from structsmooth.text.layouts import is_tag
from structsmooth.text.schemes import (
    Pairs,
    TagScheme,
    entity_counts,
    forms_of,
    gold_by_sentence,
    gold_tag,
    ill_formed,
    scheme_of,
    split_tag,
    tag_pairs,
)
from structsmooth.text.texts import TextCorpus

_FEW, _LONG = 10, 200  # examples of a label, and words of a sentence
_WHOLE = 50  # words of a file that may be one sentence
_TELLING_COLUMN, _INSIDE = 0.1, 0.8  # of what words get wrong, what a column does; the share of its tags in entities
_NO_TAGS = ("O", "_", "-")
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
    (training, first), *others = files.items()
    how = Inputs.of(first.corpus, words_only=True).how
    for name, contents in files.items():
        yield from _missed(name, contents, how)
        yield from _within(name, contents)
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
    scheme = contents.scheme
    if scheme is not None and (wrong := ill_formed(contents.pairs, scheme, contents.unknown)):
        pairs = [" ".join(str(tag).replace("\n", "(edge)") for tag in pair) for pair, _ in wrong.most_common(1)]
        what = f"{counted(wrong.total(), 'pair')} of tags that {scheme} forbids{_such_as(pairs)}"
        yield Finding(name, what, "correct them; as it is, each such tag begins an entity")
    yield from telling(name, contents)
    yield from unseparated(name, contents)


def _missed(name: str, contents: Contents, how: Segmentation) -> Iterator[Finding]:
    """Spans that no answer of a model can have that cuts texts so."""
    if not isinstance(contents.corpus, TextCorpus):
        return
    if missed := contents.corpus.cut(how).misaligned:
        count = sum(len(text.spans or ()) for text in contents.corpus.texts)
        where = "inside of a token" + (" or in another sentence" if any("\n" in text for text in missed) else "")
        what = f"{len(missed):,} of {counted(count, 'span')} with an end {where}{_such_as(missed)}"
        step = (
            "correct the offsets, or give tokens; as it is, words end at blanks and punctuation, so that no answer has"
        )
        yield Finding(name, what, f"{step} such spans, and scores count them as missed")


def unseparated(name: str, contents: Contents, share: float = 0.0) -> Iterator[Finding]:
    """Sentences so long that they may be several, or a file that is one, if they have at least a share of all words."""
    lengths = np.diff(contents.corpus.offsets)
    most = _LONG if len(lengths) > 1 else _WHOLE
    long = lengths[lengths > most]
    if len(long) and long.sum() >= share * lengths.sum():
        what = (
            f"{counted(len(long), 'sentence')} of over {most} words; number {lengths.argmax() + 1} has {long.max():,}"
        )
        yield Finding(name, what, "put blank lines, or line breaks in texts, between sentences")


def telling(name: str, contents: Contents) -> Iterator[Finding]:
    """Columns between words and tags that say what the tags say.

    They tell tags by far better than words do, or are tags of entities that are inside of the entities.
    """
    corpus, counts = contents.corpus, np.bincount(contents.corpus.tokens).tolist()
    pairs = zip(corpus.distinct, counts, strict=False)  # of a part of a corpus, the last may not occur
    rows = [(token, gold_tag(token), count) for token, count in pairs if token.tag != contents.unknown]
    if not contents.plain and rows:  # the neighbours tell where entities begin and end
        form = forms_of(sorted({tag for _, tag, _ in rows}))[0]
        rows = [(token, split_tag(tag, form).type if tag != "O" else tag, count) for token, tag, count in rows]
    total, outside = sum(n for *_, n in rows), sum(n for _, label, n in rows if label == "O")
    least = min(_untold((0, label, n) for _, label, n in rows), _untold((t.word, label, n) for t, label, n in rows))
    for place in range(len(corpus.distinct[0].columns)):
        cells = [(token.columns[place], label, n) for token, label, n in rows]
        wrong, marked = _untold(cells), [cell for cell in cells if cell[0] not in _NO_TAGS]
        tags = 2 * outside > total and all(is_tag(cell) for cell, *_ in marked)
        inside = sum(n for _, label, n in marked if label != "O")
        is_inside = tags and _FEW <= inside >= _INSIDE * sum(n for *_, n in marked)
        if is_inside or (least >= _FEW and wrong <= _TELLING_COLUMN * least):
            what = f"column {place + 2}, counted from the words, gives {1 - wrong / total:.1%} of the tags away"
            step = "give files without it, or leave columns aside, --words-only: nobody has it of new words"
            yield Finding(name, what, step)


def _untold(rows: Iterable[tuple[Hashable, str, int]]) -> int:
    """How many labels are other than what most of the others have that go with the same value.

    ``rows`` are values, labels, and how often they occur together.
    """
    labels = defaultdict[Hashable, Counter[str]](Counter)
    for value, label, count in rows:
        labels[value][label] += count
    wrong = 0
    for found in labels.values():
        (_, most), (_, second) = [*found.most_common(2), ("", 0)][:2]
        wrong += found.total() - (most if most > second + 1 else 0)
    return wrong


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
