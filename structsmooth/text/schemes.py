"""Tags of chunks and entities: their meaning, which tag may follow which, and the tags of corpora."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.scores import TransitionMask
from structsmooth.text.corpus import Corpus, Sentence, Token, Windows

TagScheme = Literal["IO", "IOB1", "BIO", "BIOES"]
"""How tags mark the boundaries of entities. ``BIO`` is also known as IOB2.

======  ==============================================================================
IO      I inside an entity; adjacent entities of one type merge
IOB1    I inside an entity, B where one starts right after another of the same type
BIO     B at the start of every entity, I on the rest of it
BIOES   B at the start, I in the middle, E at the end, S for an entity of one token
======  ==============================================================================
"""

# Schemes that mark more boundaries come later.
_PREFIXES: dict[TagScheme, str] = {"IO": "IO", "IOB1": "IOB", "BIO": "BIO", "BIOES": "BIOES"}


class Tag(NamedTuple):
    """Prefix and type of a tag: ``B-PER`` is ``Tag("B", "PER")`` and ``O`` is ``Tag("O", "")``."""

    prefix: str
    type: str


class Entity(NamedTuple):
    """An entity of the given type: tokens ``start`` to ``end`` (exclusive) of a sentence."""

    type: str
    start: int
    end: int


T = TypeVar("T")
_OUTSIDE = Tag("O", "")
_UNTAGGED = "these sentences have no tags: training and evaluation need them in the last column"


@lru_cache(maxsize=4096)
def split_tag(tag: str) -> Tag:
    """Split a tag into prefix and type: ``O``; or one of B, I, E, S, a hyphen and a type, which may contain hyphens.

    Raises:
        ValueError: the string is not a tag.
    """
    prefix, _, entity_type = tag.partition("-")
    if tag == "O":
        return _OUTSIDE
    if prefix not in ("B", "I", "E", "S") or not entity_type:
        expected = "O, or B-, I-, E- or S- and a type, such as B-PER (for others: --scheme plain, or SequenceTagger)"
        raise ValueError(f"bad tag {tag!r}: expected {expected}")
    return Tag(prefix, entity_type)


def entities(tags: Sequence[str]) -> list[Entity]:
    """Entities of a tagged sentence, in order, by the rules of CoNLL's ``conlleval`` script.

    The rules cover every scheme and give every sequence of tags a meaning: an entity continues at an I or E
    tag of the type of the preceding B or I tag, and any other tag except O starts a new entity. The script itself
    does not know S tags, and misses that ``B-X`` right after ``E-X`` starts an entity.

    Raises:
        ValueError: one of the tags is malformed.
    """
    found: list[Entity] = []
    previous = _OUTSIDE
    for position, tag in enumerate(map(split_tag, tags)):
        if _continues(previous, tag):
            found[-1] = found[-1]._replace(end=position + 1)
        elif tag.prefix != "O":
            found.append(Entity(tag.type, position, position + 1))
        previous = tag
    return found


def _continues(previous: Tag, tag: Tag) -> bool:
    return previous.type == tag.type and previous.prefix in ("B", "I") and tag.prefix in ("I", "E")


def entity_tags(spans: Iterable[Entity], length: int, scheme: TagScheme) -> list[str]:
    """Tags of a sentence with the given entities: the inverse of :func:`entities`.

    Entities may come in any order. ``IO`` cannot tell adjacent entities of one type apart and merges them.

    Raises:
        ValueError: the scheme is unknown, or an entity overlaps another, is empty or leaves the sentence.
    """
    _check_scheme(scheme)
    tags = ["O"] * length
    previous = Entity("", 0, 0)
    for entity in sorted(spans, key=lambda entity: entity.start):
        if not previous.end <= entity.start < entity.end <= length:
            raise ValueError(f"{entity} overlaps another, is empty or leaves the sentence of {length} tokens")
        adjacent = entity.type == previous.type and entity.start == previous.end
        prefixes = _entity_prefixes(entity.end - entity.start, adjacent, scheme)
        tags[entity.start : entity.end] = [f"{prefix}-{entity.type}" for prefix in prefixes]
        previous = entity
    return tags


def _entity_prefixes(length: int, adjacent: bool, scheme: TagScheme) -> str:
    """Prefixes of an entity's tokens; ``adjacent`` if it follows another entity of its type without a gap."""
    if scheme == "BIOES":
        return "S" if length == 1 else "B" + "I" * (length - 2) + "E"
    marked = scheme == "BIO" or (scheme == "IOB1" and adjacent)
    return ("B" if marked else "I") + "I" * (length - 1)


def detect_scheme(tags: Iterable[Sequence[str]]) -> TagScheme:
    """Best guess of the scheme of tagged sentences.

    E or S tags imply ``BIOES``. B tags that all directly follow an entity of their own type imply ``IOB1``,
    other B tags ``BIO``. Without B tags the guess is ``IO``; ``IOB1`` without adjacent entities of one type
    is possible too, but has the same meaning. Well-formedness is not checked: ``I-X`` after O does not
    rule out ``BIO``.

    Raises:
        ValueError: one of the tags is malformed.
    """
    pairs = {pair for sentence in tags for pair in pairwise([_OUTSIDE, *map(split_tag, sentence)])}
    prefixes = {tag.prefix for _, tag in pairs}
    if prefixes & {"E", "S"}:
        return "BIOES"
    if "B" not in prefixes:
        return "IO"
    return "IOB1" if all(_allowed(*pair, "IOB1") for pair in pairs) else "BIO"


def joint_scheme(schemes: Iterable[TagScheme]) -> TagScheme:
    """What :func:`detect_scheme` guesses for all sentences, from its guesses for parts of them.

    One tag or pair of tags decides for a scheme that marks more boundaries.
    """
    return max(schemes, key=list(_PREFIXES).index)


def transition_mask(tags: Sequence[str], scheme: TagScheme) -> TransitionMask:
    """Scores that restrict a chain over the given tags to the sequences that are well-formed in a scheme.

    Args:
        tags: the S tags, in the order of the chain's states.
        scheme: the scheme of the tags.

    Returns:
        Tensors of the default dtype, with 0 for what is allowed and minus infinity for what is forbidden.

    Raises:
        ValueError: the scheme is unknown, or a tag is malformed, given twice, or has a prefix foreign to the scheme.
    """
    _check_scheme(scheme)
    split = [split_tag(tag) for tag in tags]
    for index, tag in enumerate(split):
        if tag in split[:index]:
            raise ValueError(f"tag {tags[index]!r} is given twice")
        if tag.prefix not in _PREFIXES[scheme]:
            raise ValueError(f"tag {tags[index]!r} does not belong to the scheme {scheme}")
    # A sentence starts and ends as if it stood between O tags.
    return TransitionMask(
        transition=_scores([[_allowed(tag, following, scheme) for following in split] for tag in split]),
        start=_scores([_allowed(_OUTSIDE, tag, scheme) for tag in split]),
        stop=_scores([_allowed(tag, _OUTSIDE, scheme) for tag in split]),
    )


def _allowed(tag: Tag, following: Tag, scheme: TagScheme) -> bool:
    same_type = tag.type == following.type
    if scheme == "BIO":
        return following.prefix != "I" or same_type
    if scheme == "IOB1":
        return following.prefix != "B" or same_type
    if scheme == "BIOES":
        inside, goes_on = tag.prefix in ("B", "I"), following.prefix in ("I", "E")
        return same_type if inside and goes_on else inside == goes_on
    return True


def _scores(allowed: Sequence[bool] | Sequence[Sequence[bool]]) -> Tensor:
    return torch.where(torch.tensor(allowed, dtype=torch.bool), 0.0, -torch.inf)


def _check_scheme(scheme: str) -> None:
    if scheme not in _PREFIXES:
        raise ValueError(f"unknown tag scheme {scheme!r}: expected one of {', '.join(_PREFIXES)}")


def gold_tags(sentence: Sentence) -> list[str]:
    """The tags of a sentence that must have them."""
    if sentence.tags is None:
        raise ValueError(_UNTAGGED)
    return sentence.tags


def known_runs(sentences: Iterable[Sequence[T | None]], unknown: T | None = None) -> Iterator[list[T]]:
    """Tags that are known and follow each other, of sentences in which some are ``unknown``."""
    for tags in sentences:
        for is_unknown, run in groupby(tags, key=lambda tag: tag == unknown):
            if not is_unknown:
                yield [tag for tag in run if tag is not None]


def well_formed(corpus: Corpus, scheme: TagScheme, unknown: str | None = None) -> tuple[list[str], NDArray[np.int32]]:
    """Tags in a scheme for the same entities, and which of them each token has.

    A tag next to ``unknown`` ones stays as it is, or is unknown itself if the scheme has no such tag.
    """
    found = Windows(corpus, 1).combinations([(gold_tag, offset) for offset in (-1, 0, 1)])
    # The neighbours of a tag decide where its entity begins and ends.
    around = [[tag or "O" for tag in tags] for tags in found.distinct]
    return [
        _beside_unknown(tags[1], scheme, unknown) if unknown in tags else entity_tags(entities(tags), 3, scheme)[1]
        for tags in around
    ], found.keys


def _beside_unknown(tag: str, scheme: TagScheme, unknown: str | None) -> str:
    """A tag in a scheme where its neighbours do not tell the boundaries of its entity."""
    if tag == unknown or split_tag(tag).prefix in _PREFIXES[scheme]:
        return tag
    return f"I-{split_tag(tag).type}" if scheme == "IO" else str(unknown)


def gold_by_sentence(corpus: Corpus) -> Iterator[list[str]]:
    """The tags of each sentence of a corpus."""
    tags = list(map(gold_tag, corpus.distinct))
    for start, stop in pairwise(corpus.offsets.tolist()):
        yield [tags[number] for number in corpus.tokens[start:stop].tolist()]


def gold_tag(token: Token) -> str:
    """The tag of a token that must have one."""
    if token.tag is None:
        raise ValueError(_UNTAGGED)
    return token.tag


def tags_of(
    corpus: Corpus, scheme: TagScheme | None, unknown: str | None = None
) -> tuple[list[str], NDArray[np.int32]]:
    """Distinct tags, in a scheme or as they are, and which of them each token has."""
    if scheme is None:
        return list(map(gold_tag, corpus.distinct)), corpus.tokens
    return well_formed(corpus, scheme, unknown)


def labels_of(corpus: Corpus, scheme: TagScheme | None, tags: Sequence[str], unknown: str | None = None) -> Tensor:
    """The states of all tokens: the numbers of their tags, and -1 for the tag ``unknown``."""
    index = {tag: state for state, tag in enumerate(tags)} | ({} if unknown is None else {unknown: -1})
    found, which = tags_of(corpus, scheme, unknown)
    if foreign := set(found) - index.keys():
        raise ValueError(f"tags that the training data did not have: {', '.join(sorted(foreign))}")
    return torch.from_numpy(np.array([index[tag] for tag in found])[which])


def unknown_tags(
    corpus: Corpus, scheme: TagScheme | None, tags: Sequence[str], unknown: str | None = None
) -> Counter[str]:
    """How many tokens have each tag that is not among ``tags``."""
    found, which = tags_of(corpus, scheme, unknown)
    counts = Counter[str]()
    for tag, count in zip(found, np.bincount(which, minlength=len(found)).tolist(), strict=True):
        if tag not in tags:
            counts[tag] += count
    return counts
