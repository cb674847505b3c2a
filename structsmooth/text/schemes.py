"""Tags of chunks and entities: how schemes mark them, which tag may follow which, and the tags of corpora."""

import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from reprlib import repr as shortened
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.scores import TransitionMask
from structsmooth.text.corpus import Corpus, Token, Windows

TagScheme = Literal["IO", "BIO", "IOB1", "IOE2", "BIOES", "BILOU", "BMES", "BMEWO", "IOB2", "IOBES", "BILUO"]
"""How tags mark the boundaries of entities; the last three are other names of ``BIO``, ``BIOES`` and ``BILOU``."""


# Marks of the first, an inner and the last token of an entity, of one that is alone, and of the first one right after
# another entity of its type, if there is such a mark. Of schemes that fit the same tags, the first one is preferred.
_SCHEMES: dict[TagScheme, tuple[str, str, str, str, str]] = {
    "IO": ("I", "I", "I", "I", ""),  # adjacent entities of one type merge
    "BIO": ("B", "I", "I", "B", ""),
    "IOB1": ("I", "I", "I", "I", "B"),
    "IOE2": ("I", "I", "E", "E", ""),
    "BIOES": ("B", "I", "E", "S", ""),
    "BILOU": ("B", "I", "L", "U", ""),
    "BMES": ("B", "M", "E", "S", ""),
    "BMEWO": ("B", "M", "E", "W", ""),
    "IOB2": ("B", "I", "I", "B", ""),
    "IOBES": ("B", "I", "E", "S", ""),
    "BILUO": ("B", "I", "L", "U", ""),
}
_OPEN = {mark for first, inner, *_, adjacent in _SCHEMES.values() for mark in (first, inner, adjacent)}
_GOING_ON = {mark for marks in _SCHEMES.values() for mark in marks[1:3]}
_LETTERS = "".join(sorted(set().union(*_SCHEMES.values())))


class Tag(NamedTuple):
    """Mark and type of a tag: ``B-PER`` is ``Tag("B", "PER")`` and ``O`` is ``Tag("O", "")``."""

    mark: str
    type: str


class Entity(NamedTuple):
    """An entity of the given type: tokens ``start`` to ``end`` (exclusive) of a sentence."""

    type: str
    start: int
    end: int


class Form(NamedTuple):
    """How a tag spells its mark and its type, such as ``{mark}-{type}``; ``types`` is what types look like."""

    pattern: str
    types: str = r"\S(?:.*\S)?"

    def spell(self, tag: Tag) -> str:
        """The tag as a string."""
        return "O" if tag.mark == "O" else self.pattern.format(mark=tag.mark, type=tag.type)

    def split(self, tag: str) -> Tag | None:
        """Mark and type of a tag, or ``None`` if it has another form."""
        return _split(tag, self)


DASHED, MARKS_ALONE = Form("{mark}-{type}"), Form("{mark}")
# A type alone does not look as if it had a mark, and has two letters at least: single ones may be any classes.
TYPES_ALONE = Form("{type}", r"(?!.[-_]|.*[-_].$)[^\W_].*[^\W_]")
_OTHERS = (Form("{mark}_{type}"), Form("{type}-{mark}"), Form("{type}_{mark}"))
FORMS: tuple[Form, ...] = (DASHED, *_OTHERS, MARKS_ALONE, TYPES_ALONE)
"""The forms of tags, the usual one first."""

Pairs = Counter[tuple[str | None, str | None]]
"""How often a tag follows another one, with a line break before and behind each sentence."""

_OUTSIDE, _EDGE = Tag("O", ""), "\n"
_HINT = "(for others: --scheme plain, or SequenceTagger)"
# Tags of which at least one is needed for a scheme, and tags that look as if they belonged to one.
_BEGINNING, _MARKED = re.compile(r"O|B|[Bb][-_].+|.+[-_][Bb]"), re.compile(r"\w[-_].+|.+[-_]\w")
_MOST_WRONG = 0.1  # share of pairs of marks without types that no scheme allows: letters may be any classes


@lru_cache(maxsize=4096)
def _split(tag: str, form: Form) -> Tag | None:
    if tag in ("O", _EDGE):
        return _OUTSIDE
    parts = form.pattern.format(mark=f"(?P<mark>[{_LETTERS}])", type=f"(?P<type>{form.types})")
    found = re.fullmatch(parts, tag)
    return Tag(found.groupdict().get("mark", "I"), found.groupdict().get("type", "")) if found else None


def split_tag(tag: str, form: Form = DASHED) -> Tag:
    """Split a tag into mark and type: ``O``; or B, I or another mark, a hyphen and a type, which may contain hyphens.

    Raises:
        ValueError: the string is not a tag in this form.
    """
    if (found := _split(tag, form)) is None:
        raise _bad_tag(tag, (form,))
    return found


def forms_of(tags: Iterable[str], forms: tuple[Form, ...] = FORMS) -> tuple[Form, ...]:
    """Some ``forms`` without those that one of the tags cannot have.

    Raises:
        ValueError: a tag that has none of the forms, or of those that the tags before it have.
    """
    for tag in tags:
        fitting = tuple(form for form in forms if _split(tag, form))
        if not fitting:
            raise _bad_tag(tag, forms)
        forms = fitting
    return forms


def _bad_tag(tag: str, forms: Iterable[Form]) -> ValueError:
    expected = " or ".join(form.spell(Tag("B", "PER")) for form in forms)
    return ValueError(f"bad tag {shortened(tag)}: expected O, or such tags as {expected} {_HINT}")


def entities(tags: Sequence[str], forms: tuple[Form, ...] = FORMS) -> list[Entity]:
    """Entities of a tagged sentence, in order, by the rules of CoNLL's ``conlleval`` script.

    The rules cover every scheme and give every sequence of tags a meaning: an entity continues at an I, M, E or L
    tag of the type of the preceding B, I or M tag, and any other tag except O starts a new entity. The script itself
    does not know S tags, and misses that ``B-X`` right after ``E-X`` starts an entity.

    Args:
        tags: of the sentence, all in one form: ``B-PER``, ``B_PER``, ``PER-B``, ``PER_B``, ``B`` or ``PER``.
        forms: those that the tags may have.

    Raises:
        ValueError: one of the tags is malformed.
    """
    found: list[Entity] = []
    previous, (form, *_) = _OUTSIDE, forms if len(forms) == 1 else forms_of(tags, forms)
    for position, tag in enumerate(split_tag(tag, form) for tag in tags):
        if goes_on(previous, tag):
            found[-1] = found[-1]._replace(end=position + 1)
        elif tag != _OUTSIDE:
            found.append(Entity(tag.type, position, position + 1))
        previous = tag
    return found


def goes_on(tag: Tag, following: Tag) -> bool:
    """Whether an entity that has a tag continues at the following one."""
    return tag.type == following.type and tag.mark in _OPEN and following.mark in _GOING_ON


def entity_tags(spans: Iterable[Entity], length: int, scheme: TagScheme, form: Form = DASHED) -> list[str]:
    """Tags of a sentence with the given entities: the inverse of :func:`entities`.

    Entities may come in any order. ``IO`` cannot tell adjacent entities of one type apart and merges them.

    Raises:
        ValueError: the scheme is unknown, or an entity overlaps another, is empty or leaves the sentence.
    """
    (first, inner, last, single, adjacent), tags = _marks(scheme), ["O"] * length
    previous = Entity("", 0, 0)
    for entity in sorted(spans, key=lambda entity: entity.start):
        if not previous.end <= entity.start < entity.end <= length:
            raise ValueError(f"{entity} overlaps another, is empty or leaves the sentence of {length} tokens")
        size = entity.end - entity.start
        spelled = single if size == 1 else first + inner * (size - 2) + last
        # IOB1: an entity begins with B only right behind another one of its type. The first comparison leaves out the
        # start value of ``previous``.
        if adjacent and previous.start < entity.start and previous[::2] == (entity.type, entity.start):
            spelled = adjacent + spelled[1:]
        tags[entity.start : entity.end] = [form.spell(Tag(mark, entity.type)) for mark in spelled]
        previous = entity
    return tags


def tag_pairs(sentences: Iterable[Sequence[str | None]]) -> Pairs:
    """The pairs of neighbouring tags of sentences."""
    return Counter(pair for tags in sentences for pair in pairwise([_EDGE, *tags, _EDGE]))


def detect_scheme(tags: Iterable[Sequence[str]]) -> TagScheme:
    """The scheme of tagged sentences: of those with their marks, the one that fewest pairs of tags violate.

    Raises:
        ValueError: the tags are of no scheme. Types without marks need the tag O, and marks without types need to be
            well-formed.
    """
    return scheme_of(tag_pairs(tags))


def scheme_of(pairs: Pairs, unknown: str | None = None) -> TagScheme:
    """What :func:`detect_scheme` finds for sentences with some pairs of tags, of which some may be ``unknown``."""
    names = sorted(names_of(pairs, unknown))
    form = forms_of(names)[0]
    if form is TYPES_ALONE and "O" not in names:
        raise ValueError(f"no tags of entities: {shortened(names)} have no marks, and there is no O {_HINT}")
    split: dict[str | None, Tag] = {tag: split_tag(tag, form) for tag in (*names, _EDGE)}
    known = [(split[a], split[b], count) for (a, b), count in pairs.items() if {a, b} <= split.keys()]
    marks = {tag.mark for tag in split.values()} - {"O"}
    fitting = [scheme for scheme, letters in _SCHEMES.items() if marks <= set(letters)]
    if not fitting:
        raise ValueError(f"no scheme has all of the marks {', '.join(sorted(marks))} of {shortened(names)} {_HINT}")
    wrong = {scheme: sum(n for a, b, n in known if not _allowed(a, b, scheme)) for scheme in fitting}
    best = min(fitting, key=wrong.__getitem__)
    # Letters alone, such as B and O, may be classes of any kind; only their order tells.
    if form is MARKS_ALONE and wrong[best] > _MOST_WRONG * pairs.total():
        raise ValueError(f"no scheme has {shortened(names)} in such an order {_HINT}")
    return best


def ill_formed(pairs: Pairs, scheme: TagScheme, unknown: str | None = None) -> Pairs:
    """The pairs of neighbouring tags that a scheme forbids, with how often they occur."""
    form = forms_of(sorted(names_of(pairs, unknown)))[0]
    known = {pair: count for pair, count in pairs.items() if None not in pair and unknown not in pair}
    split = {tag: split_tag(str(tag), form) for pair in known for tag in pair}
    return Counter({(a, b): count for (a, b), count in known.items() if not _allowed(split[a], split[b], scheme)})


def entity_counts(pairs: Pairs, unknown: str | None = None) -> Counter[str]:
    """How many entities of each type there are in sentences with some pairs of neighbouring tags."""
    form, counts = forms_of(sorted(names_of(pairs, unknown)))[0], Counter[str]()
    for (before, tag), count in pairs.items():
        after = _OUTSIDE if tag in (None, unknown) else split_tag(str(tag), form)
        previous = _OUTSIDE if before in (None, unknown) else split_tag(str(before), form)
        if after != _OUTSIDE and not goes_on(previous, after):
            counts[after.type or "entity"] += count
    return counts


def scheme_among_others(pairs: Pairs) -> TagScheme | None:
    """The scheme of tags that may be any others; ``None`` if they have none. Warns if they look as if they had one."""
    names = names_of(pairs)
    if not any(map(_BEGINNING.fullmatch, names)):
        return None
    try:
        return scheme_of(pairs)
    except ValueError as error:
        others = names - {"O"}
        letters = any(others <= set(marks) for marks in _SCHEMES.values())
        if letters or 2 * sum(map(bool, map(_MARKED.fullmatch, others))) >= len(others):
            reason, listed = str(error).removesuffix(f" {_HINT}"), shortened(sorted(names))
            warnings.warn(f"{listed} look like tags of entities, but are taken for plain tags: {reason}", stacklevel=4)
        return None


def names_of(pairs: Pairs, unknown: str | None = None) -> set[str]:
    """The distinct tags that occur in some pairs, without ``unknown``."""
    return {tag for pair in pairs for tag in pair if tag is not None and tag not in (unknown, _EDGE)}


def transition_mask(tags: Sequence[str], scheme: TagScheme) -> TransitionMask:
    """Scores that restrict a chain over the given tags to the sequences that are well-formed in a scheme.

    Args:
        tags: the S tags, in the order of the chain's states.
        scheme: the scheme of the tags.

    Returns:
        Tensors of the default dtype, with 0 for what is allowed and minus infinity for what is forbidden.

    Raises:
        ValueError: the scheme is unknown, or a tag is malformed, given twice, or has a mark foreign to the scheme.
    """
    marks, form = {"O", *_marks(scheme)}, forms_of(tags)[0]
    split = [split_tag(tag, form) for tag in tags]
    for index, tag in enumerate(split):
        if tag in split[:index]:
            raise ValueError(f"tag {tags[index]!r} is given twice")
        if tag.mark not in marks:
            raise ValueError(f"tag {tags[index]!r} does not belong to the scheme {scheme}")
    # A sentence starts and ends as if it stood between O tags.
    return TransitionMask(
        transition=_scores([[_allowed(tag, following, scheme) for following in split] for tag in split]),
        start=_scores([_allowed(_OUTSIDE, tag, scheme) for tag in split]),
        stop=_scores([_allowed(tag, _OUTSIDE, scheme) for tag in split]),
    )


def _allowed(tag: Tag, following: Tag, scheme: TagScheme) -> bool:
    """Whether entities may have neighbouring tags: within one of them, or where one ends and another one starts."""
    first, inner, last, single, adjacent = _SCHEMES[scheme]
    same_type = tag.type == following.type
    if same_type and tag.mark in (first, inner, adjacent) and following.mark in (inner, last):
        return True
    starts = following.mark in ("O", first, single) or (following.mark == adjacent and same_type and tag.mark != "O")
    return starts and tag.mark in ("O", last, single, adjacent)


def _marks(scheme: TagScheme) -> tuple[str, str, str, str, str]:
    if scheme not in _SCHEMES:
        raise ValueError(f"unknown tag scheme {scheme!r}: expected one of {', '.join(_SCHEMES)}")
    return _SCHEMES[scheme]


def _scores(allowed: Sequence[bool] | Sequence[Sequence[bool]]) -> Tensor:
    return torch.where(torch.tensor(allowed, dtype=torch.bool), 0.0, -torch.inf)


def well_formed(
    corpus: Corpus, scheme: TagScheme, form: Form, unknown: str | None = None
) -> tuple[list[str], NDArray[np.int32]]:
    """Tags in a scheme and a form for the same entities, and which of them each token has.

    A tag next to ``unknown`` ones keeps its mark, or is unknown itself if the scheme has no such mark.
    """
    found = Windows(corpus, 1).combinations([(gold_tag, offset) for offset in (-1, 0, 1)])
    source = forms_of(sorted(set(map(gold_tag, corpus.distinct)) - {unknown}), (form, *FORMS))[0]
    # The neighbours of a tag decide where its entity begins and ends.
    around = [[tag or "O" for tag in tags] for tags in found.distinct]
    return [
        _beside_unknown(tags[1], source, scheme, form, unknown)
        if unknown in tags
        else entity_tags(entities(tags, (source,)), 3, scheme, form)[1]
        for tags in around
    ], found.keys


def _beside_unknown(tag: str, source: Form, scheme: TagScheme, form: Form, unknown: str | None) -> str:
    """A tag in a scheme where its neighbours do not tell the boundaries of its entity."""
    if tag == unknown:
        return tag
    mark, entity_type = split_tag(tag, source)
    mark = "I" if scheme == "IO" and mark != "O" else mark
    return form.spell(Tag(mark, entity_type)) if mark in ("O", *_SCHEMES[scheme]) else str(unknown)


def gold_by_sentence(corpus: Corpus) -> Iterator[list[str]]:
    """The tags of each sentence of a corpus."""
    tags = list(map(gold_tag, corpus.distinct))
    for start, stop in pairwise(corpus.offsets.tolist()):
        yield [tags[number] for number in corpus.tokens[start:stop].tolist()]


def gold_tag(token: Token) -> str:
    """The tag of a token that must have one."""
    if token.tag is None:
        raise ValueError("these sentences have no tags: training and evaluation need them in the last column")
    return token.tag


def tags_of(
    corpus: Corpus, scheme: TagScheme | None, tags: Collection[str], unknown: str | None = None
) -> tuple[list[str], NDArray[np.int32]]:
    """Distinct tags, in a scheme and the form of some ``tags`` or as they are, and which of them each token has."""
    if scheme is None:
        return list(map(gold_tag, corpus.distinct)), corpus.tokens
    return well_formed(corpus, scheme, forms_of(tags)[0], unknown)


def labels_of(corpus: Corpus, scheme: TagScheme | None, tags: Sequence[str], unknown: str | None = None) -> Tensor:
    """The states of all tokens: the numbers of their tags, and -1 for the tag ``unknown``."""
    index = {tag: state for state, tag in enumerate(tags)} | ({} if unknown is None else {unknown: -1})
    found, numbers = tags_of(corpus, scheme, tags, unknown)
    if foreign := set(found) - index.keys():
        raise ValueError(f"tags that the training data did not have: {', '.join(sorted(foreign))}")
    return torch.from_numpy(np.array([index[tag] for tag in found])[numbers])
