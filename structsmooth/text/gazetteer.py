"""Phrases that are known to be entities wherever they occur, as constraints on the tags of their words."""

import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from structsmooth.text.corpus import Corpus
from structsmooth.text.lines import Source, read_text, source_name
from structsmooth.text.schemes import Entity, TagScheme, entity_tags, forms_of, goes_on, split_tag
from structsmooth.text.standalone import Splitter

_SHOWN = 5


class Gazetteer:
    """The types of known phrases.

    An occurrence is an entity of one of these types, with these borders. Where several phrases begin at a word, the
    longest counts; letters must have the same case.

    Args:
        phrases: pairs of the words of a phrase and a type of entity that it may be.

    Example:
        >>> known = Gazetteer([(["New", "York"], "LOC")])
        >>> known.allowed(["in", "New", "York"], ["B-LOC", "I-LOC", "O"], "BIO")
        [None, {'B-LOC'}, {'I-LOC'}]
    """

    def __init__(self, phrases: Iterable[tuple[Sequence[str], str]]) -> None:
        types = defaultdict[tuple[str, ...], set[str]](set)
        for words, kind in phrases:
            types[tuple(words)].add(kind)
        self._types = dict(types)
        self._longest = max(map(len, self._types), default=0)

    @classmethod
    def read(cls, path: Source, splitter: Splitter, encoding: str | None = None) -> "Gazetteer":
        """The phrases of a file: in each line a phrase, a tab and a type.

        Raises:
            ValueError: a line of another form, with the file and the line; no phrases.
        """
        name, phrases = source_name(path), list[tuple[list[str], str]]()
        for number, line in enumerate(read_text(path, encoding), 1):
            phrase, _, kind = map(str.strip, line.rpartition("\t"))
            if line.strip() and not (phrase and kind):
                raise ValueError(f"{name}:{number}: expected a phrase, a tab and a type, got {line[:60]!r}")
            if phrase:
                phrases.append((splitter.words(phrase), kind))
        if not phrases:
            raise ValueError(f"{name}: no phrases")
        return cls(phrases)

    def restricted(self, corpus: Corpus, tags: Sequence[str], scheme: TagScheme) -> Corpus:
        """A corpus whose sentences have :meth:`allowed` tags, unless they say what they allow.

        Raises:
            ValueError: types that no tag has.
        """
        form = forms_of(tags)[0]
        types = {split_tag(tag, form).type for tag in tags} - {""}
        if others := set[str]().union(*self._types.values()) - types:
            listed = f"{', '.join(sorted(others))}: expected some of {', '.join(sorted(types))}"
            raise ValueError(f"the gazetteer has types that the tagger does not know, {listed}")
        impossible = [
            f"{' '.join(words)!r} ({kind})"
            for words, kinds in self._types.items()
            for kind in sorted(kinds)
            if not {*entity_tags([Entity(kind, 0, len(words))], len(words), scheme, form)} <= {*tags}
        ]
        if impossible:
            listed = ", ".join(impossible[:_SHOWN]) + (" ..." if len(impossible) > _SHOWN else "")
            warnings.warn(
                f"phrases of the gazetteer left out: training data have no tags for entities as long as {listed}",
                stacklevel=2,
            )
        return replace(corpus, allowed=[s.allowed or self.allowed(s.words, tags, scheme) for s in corpus])

    def allowed(self, words: Sequence[str], tags: Sequence[str], scheme: TagScheme) -> list[Collection[str] | None]:
        """Which of some tags in a scheme each word of a sentence may have, ``None`` for all."""
        form = forms_of(tags)[0]
        split = {tag: split_tag(tag, form) for tag in tags}
        sets: list[Collection[str] | None] = [None] * len(words)
        for start, end, kinds in self._occurrences(words):
            spelled = [entity_tags([Entity(kind, 0, end - start)], end - start, scheme, form) for kind in sorted(kinds)]
            spelled = [row for row in spelled if split.keys() >= {*row}]
            if not spelled:
                continue
            sets[start:end] = map(set, zip(*spelled, strict=True))
            first, last = ([split_tag(row[place], form) for row in spelled] for place in (0, -1))
            continued = {tag for tag in tags if any(goes_on(split[tag], mark) for mark in first)}
            continuing = {tag for tag in tags if any(goes_on(mark, split[tag]) for mark in last)}
            for place, others in ((start - 1, continued), (end, continuing)):  # the entity has no more words
                if others and 0 <= place < len(words) and (kept := {*(sets[place] or tags)} - others):
                    sets[place] = kept
        return sets

    def _occurrences(self, words: Sequence[str]) -> Iterator[tuple[int, int, set[str]]]:
        """Where phrases begin and end in a sentence, from left to right, with their types."""
        start = 0
        while start < len(words):
            ends = range(min(start + self._longest, len(words)), start, -1)
            end = next((end for end in ends if tuple(words[start:end]) in self._types), None)
            if end is not None:
                yield start, end, self._types[tuple(words[start:end])]
            start = start + 1 if end is None else end
