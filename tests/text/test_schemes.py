"""Chunk extraction against conlleval's rules, schemes against each other, and the masks of each scheme."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from structsmooth.text.schemes import (
    Entity,
    TagScheme,
    detect_scheme,
    entities,
    entity_tags,
    joint_scheme,
    split_tag,
    transition_mask,
)

SCHEMES: list[TagScheme] = ["IO", "IOB1", "BIO", "BIOES"]
TAGS: dict[TagScheme, list[str]] = {
    scheme: ["O", *(f"{prefix}-{type_}" for type_ in "XY" for prefix in prefixes)]
    for scheme, prefixes in zip(SCHEMES, ["I", "IB", "BI", "BIES"], strict=True)
}
any_tags = st.lists(st.sampled_from(TAGS["BIOES"]), max_size=12)
few_tags = st.sampled_from(SCHEMES).flatmap(lambda scheme: st.lists(st.sampled_from(TAGS[scheme]), max_size=3))


@st.composite
def entity_lists(draw: st.DrawFn, gap: int = 0) -> tuple[list[Entity], int]:
    """Entities at least ``gap`` tokens apart, and the length of their sentence."""
    found, position = [], 0
    for _ in range(draw(st.integers(0, 5))):
        start = position + draw(st.integers(0, 2))
        end = start + draw(st.integers(1, 4))
        found.append(Entity(draw(st.sampled_from(["X", "Y", "a-b"])), start, end))
        position = end + gap
    return found, position + draw(st.integers(0, 2))


def test_split_tag() -> None:
    assert split_tag("O") == ("O", "")
    assert split_tag("B-PER") == ("B", "PER")
    assert split_tag("E-work-of-art") == ("E", "work-of-art")


@pytest.mark.parametrize("tag", ["X-PER", "I", "I-", "", "-PER", "O-PER", "PER", "b-PER", "BI-PER"])
def test_split_tag_names_a_bad_tag(tag: str) -> None:
    with pytest.raises(ValueError, match=f"^bad tag '{tag}': expected O, or B-, I-, E- or S- and a type"):
        split_tag(tag)


# conlleval's truth table: does an entity of the row's tag end before the column's tag, of the same type?
# "-" it goes on, "|" another starts, "." it ends and none starts.
AFTER = {
    #     OBIES
    "B": ".|--|",
    "I": ".|--|",
    "E": ".||||",
    "S": ".||||",
}


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [(first, second, row["OBIES".index(second)]) for first, row in AFTER.items() for second in "OBIES"],
)
def test_entities_follow_conlleval_within_a_type(first: str, second: str, outcome: str) -> None:
    expected = {
        "-": [Entity("X", 0, 2)],
        "|": [Entity("X", 0, 1), Entity("X", 1, 2)],
        ".": [Entity("X", 0, 1)],
    }
    assert entities([f"{first}-X", "O" if second == "O" else f"{second}-X"]) == expected[outcome]


@pytest.mark.parametrize("first", "BIES")
@pytest.mark.parametrize("second", "BIES")
def test_a_change_of_type_starts_an_entity(first: str, second: str) -> None:
    assert entities([f"{first}-X", f"{second}-Y"]) == [Entity("X", 0, 1), Entity("Y", 1, 2)]


@pytest.mark.parametrize("prefix", "BIES")
def test_every_tag_starts_an_entity_after_o(prefix: str) -> None:
    assert entities(["O", f"{prefix}-X", "O"]) == [Entity("X", 1, 2)]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("I-PER I-PER O I-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("I-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("B-PER I-LOC I-PER", [("PER", 0, 1), ("LOC", 1, 2), ("PER", 2, 3)]),
        ("B-PER I-PER E-PER S-PER", [("PER", 0, 3), ("PER", 3, 4)]),
        ("S-PER I-PER E-PER I-PER", [("PER", 0, 1), ("PER", 1, 3), ("PER", 3, 4)]),
    ],
)
def test_entities_of_whole_sentences(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert entities(tags.split()) == expected


@given(any_tags)
def test_entities_agree_with_seqeval(tags: list[str]) -> None:
    """On every sequence: seqeval completes conlleval's rules for E and S tags in the same way."""
    inclusive = [(entity.type, entity.start, entity.end - 1) for entity in entities(tags)]
    assert inclusive == get_entities(tags)


def test_entities_refuse_a_bad_tag() -> None:
    with pytest.raises(ValueError, match="bad tag 'PER'"):
        entities(["O", "PER"])


@pytest.mark.parametrize("scheme", ["IOB1", "BIO", "BIOES"])
@given(case=entity_lists())
def test_tags_and_entities_are_inverse(scheme: TagScheme, case: tuple[list[Entity], int]) -> None:
    found, length = case
    tags = entity_tags(found, length, scheme)
    assert len(tags) == length
    assert entities(tags) == found


@given(entity_lists(gap=1))
def test_io_keeps_entities_that_are_apart(case: tuple[list[Entity], int]) -> None:
    found, length = case
    assert entities(entity_tags(found, length, "IO")) == found


def test_entity_tags_by_hand() -> None:
    found = [Entity("Y", 4, 5), Entity("X", 0, 3), Entity("X", 3, 4)]
    assert " ".join(entity_tags(found, 6, "IO")) == "I-X I-X I-X I-X I-Y O"
    assert " ".join(entity_tags(found, 6, "IOB1")) == "I-X I-X I-X B-X I-Y O"
    assert " ".join(entity_tags(found, 6, "BIO")) == "B-X I-X I-X B-X B-Y O"
    assert " ".join(entity_tags(found, 6, "BIOES")) == "B-X I-X E-X S-X S-Y O"


@pytest.mark.parametrize(
    "found",
    [
        [Entity("X", 0, 2), Entity("X", 1, 3)],
        [Entity("X", 2, 2)],
        [Entity("X", 2, 5)],
        [Entity("X", -1, 1)],
    ],
)
def test_entity_tags_refuse_impossible_entities(found: list[Entity]) -> None:
    with pytest.raises(ValueError, match="overlaps another, is empty or leaves the sentence of 4 tokens"):
        entity_tags(found, 4, "BIO")


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        ([], "IO"),
        (["", "O O"], "IO"),
        (["I-X I-X O I-Y", "I-X I-Y"], "IO"),
        (["I-X I-X", "O I-X B-X I-Y"], "IOB1"),
        (["I-X B-X B-X"], "IOB1"),
        (["B-X I-X"], "BIO"),
        (["O B-X O"], "BIO"),
        (["I-X B-Y"], "BIO"),
        (["I-X B-X", "B-X"], "BIO"),
        (["I-X", "O B-X"], "BIO"),
        (["B-X I-X", "S-X"], "BIOES"),
        (["B-X E-X"], "BIOES"),
    ],
)
def test_detect_scheme(sentences: list[str], scheme: TagScheme) -> None:
    assert detect_scheme(sentence.split() for sentence in sentences) == scheme


@pytest.mark.parametrize("scheme", ["IOB1", "BIO", "BIOES"])
@given(case=entity_lists())
def test_detect_scheme_recovers_the_scheme(scheme: TagScheme, case: tuple[list[Entity], int]) -> None:
    found, length = case
    adjacent = [Entity("X", 0, 2), Entity("X", 2, 3)]  # shows any scheme
    sentences = [entity_tags(found, length, scheme), entity_tags(adjacent, 3, scheme)]
    assert detect_scheme(sentences) == scheme


@given(st.lists(st.lists(few_tags, max_size=3), min_size=1, max_size=3))
def test_schemes_of_parts_make_that_of_all(parts: list[list[list[str]]]) -> None:
    assert joint_scheme(map(detect_scheme, parts)) == detect_scheme(sentence for part in parts for sentence in part)


# Which tag may follow which, by hand, over the tags of TAGS in their order: a row for the first of the two,
# with 1 for may and 0 for may not. Then the tags that may come first, and last.
ALLOWED: dict[TagScheme, tuple[str, str, str]] = {
    "IO": ("111 111 111", "111", "111"),
    # O, I-X, B-X, I-Y, B-Y
    "IOB1": ("11010 11110 11110 11011 11011", "11010", "11111"),
    # O, B-X, I-X, B-Y, I-Y
    "BIO": ("11010 11110 11110 11011 11011", "11010", "11111"),
    # O, B-X, I-X, E-X, S-X, B-Y, I-Y, E-Y, S-Y
    "BIOES": (
        "110011001 001100000 001100000 110011001 110011001 000000110 000000110 110011001 110011001",
        "110011001",
        "100110011",
    ),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_transition_mask_by_hand(scheme: TagScheme) -> None:
    mask = transition_mask(TAGS[scheme], scheme)
    transition, start, stop = ALLOWED[scheme]
    assert _marks(mask.transition) == transition
    assert _marks(mask.start) == start
    assert _marks(mask.stop) == stop
    assert mask.transition.dtype == mask.start.dtype == mask.stop.dtype == torch.get_default_dtype()


def _marks(scores: torch.Tensor) -> str:
    """One digit per score: 1 for zero, 0 for minus infinity."""
    rows = scores.reshape(-1, scores.shape[-1]).tolist()
    return " ".join("".join({0.0: "1", float("-inf"): "0"}[score] for score in row) for row in rows)


def _allows(scheme: TagScheme, tags: list[str]) -> bool:
    mask = transition_mask(TAGS[scheme], scheme)
    states = [TAGS[scheme].index(tag) for tag in tags]
    total = mask.start[states[0]] + mask.stop[states[-1]]
    return bool(total + sum(mask.transition[pair] for pair in pairwise(states)) == 0)


@pytest.mark.parametrize("scheme", ["IOB1", "BIO", "BIOES"])
@given(data=st.data())
def test_mask_allows_exactly_the_tags_that_the_scheme_writes(scheme: TagScheme, data: st.DataObject) -> None:
    tags = data.draw(st.lists(st.sampled_from(TAGS[scheme]), min_size=1, max_size=6))
    canonical = entity_tags(entities(tags), len(tags), scheme)
    assert _allows(scheme, canonical)
    assert _allows(scheme, tags) == (tags == canonical)


def test_mask_of_tags_that_never_start_an_entity() -> None:
    mask = transition_mask(["O", "I-PER", "B-LOC", "I-LOC"], "IOB1")
    assert _marks(mask.transition) == "1101 1101 1111 1111"


@pytest.mark.parametrize(
    ("tags", "scheme", "message"),
    [
        (["O"], "BILOU", "unknown tag scheme 'BILOU': expected one of IO, IOB1, BIO, BIOES"),
        (["O", "I-X", "O"], "BIO", "tag 'O' is given twice"),
        (["O", "E-X"], "BIO", "tag 'E-X' does not belong to the scheme BIO"),
        (["O", "B-X"], "IO", "tag 'B-X' does not belong to the scheme IO"),
        (["O", "S-X"], "IOB1", "tag 'S-X' does not belong to the scheme IOB1"),
        (["O", "X"], "BIO", "bad tag 'X'"),
    ],
)
def test_transition_mask_refuses(tags: list[str], scheme: TagScheme, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transition_mask(tags, scheme)


def test_entity_tags_refuse_an_unknown_scheme() -> None:
    with pytest.raises(ValueError, match="unknown tag scheme 'IOB2'"):
        entity_tags([], 1, "IOB2")  # type: ignore[arg-type]
