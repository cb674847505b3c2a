"""Chunk extraction against conlleval's rules, schemes against each other, and the masks of each scheme."""

import warnings
from itertools import pairwise
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from structsmooth.text.schemes import (
    FORMS,
    TYPES_ALONE,
    Entity,
    Form,
    TagScheme,
    detect_scheme,
    entities,
    entity_tags,
    forms_of,
    scheme_among_others,
    scheme_of,
    split_tag,
    tag_pairs,
    transition_mask,
)

MARKS: dict[TagScheme, str] = {
    "IO": "I",
    "IOB1": "IB",
    "BIO": "BI",
    "IOE2": "IE",
    "BIOES": "BIES",
    "BILOU": "BILU",
    "BMES": "BMES",
    "BMEWO": "BMEW",
}
ALIASES: dict[TagScheme, TagScheme] = {"IOB2": "BIO", "IOBES": "BIOES", "BILUO": "BILOU"}
SCHEMES = list(MARKS)
EXACT = SCHEMES[1:]  # IO merges neighbours
TAGS: dict[TagScheme, list[str]] = {
    scheme: ["O", *(f"{mark}-{type_}" for type_ in "XY" for mark in marks)] for scheme, marks in MARKS.items()
}
any_tags = st.lists(st.sampled_from(TAGS["BIOES"]), max_size=12)


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
    with pytest.raises(ValueError, match=f"^bad tag '{tag}': expected O, or such tags as B-PER"):
        split_tag(tag)


def test_a_bad_tag_is_quoted_in_part() -> None:
    with pytest.raises(ValueError, match=r"bad tag '\{.*'") as error:
        split_tag("{" + 1000 * "x")
    assert len(str(error.value)) < 200


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
    with pytest.raises(ValueError, match="bad tag 'PER': expected O, or such tags as B-PER"):
        entities(["O", "B-PER", "PER"])


@pytest.mark.parametrize(
    "tags",
    [
        "B-X I-X B-X O B-Y",
        "B_X I_X B_X O B_Y",
        "X-B X-I X-B O Y-B",
        "X_B X_I X_B O Y_B",
        "B-X L-X U-X O U-Y",
        "B-X E-X S-X O S-Y",
        "B_X E_X W_X O W_Y",
    ],
)
def test_entities_in_every_form(tags: str) -> None:
    assert entities(tags.split()) == [("X", 0, 2), ("X", 2, 3), ("Y", 4, 5)]


def test_entities_of_marks_and_of_types_alone() -> None:
    assert entities(["B", "M", "E", "S", "O", "B"]) == [("", 0, 3), ("", 3, 4), ("", 5, 6)]
    assert entities(["PER", "PER", "O", "LOC"]) == [("PER", 0, 2), ("LOC", 3, 4)]
    assert entities(["B-Invoice Number", "E-Invoice Number"]) == [("Invoice Number", 0, 2)]


@pytest.mark.parametrize("scheme", EXACT)
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
    assert " ".join(entity_tags(found, 6, "IOE2")) == "I-X I-X E-X E-X E-Y O"
    assert " ".join(entity_tags(found, 6, "BIOES")) == "B-X I-X E-X S-X S-Y O"
    assert " ".join(entity_tags(found, 6, "BILOU")) == "B-X I-X L-X U-X U-Y O"
    assert " ".join(entity_tags(found, 6, "BMES")) == "B-X M-X E-X S-X S-Y O"
    assert " ".join(entity_tags(found, 6, "BMEWO")) == "B-X M-X E-X W-X W-Y O"


@pytest.mark.parametrize(("alias", "scheme"), ALIASES.items())
def test_other_names_of_schemes(alias: TagScheme, scheme: TagScheme) -> None:
    assert {*SCHEMES, *ALIASES} == {*get_args(TagScheme)}
    found = [Entity("X", 0, 3), Entity("X", 3, 4)]
    assert entity_tags(found, 5, alias) == entity_tags(found, 5, scheme)
    masks = [transition_mask(TAGS[scheme], name) for name in (alias, scheme)]
    assert torch.equal(masks[0].transition, masks[1].transition)


@pytest.mark.parametrize("form", FORMS, ids=[form.pattern for form in FORMS])
def test_forms_are_read_as_they_are_written(form: Form) -> None:
    scheme: TagScheme = "IO" if form is TYPES_ALONE else "BILOU"
    kind = "ab-c_de" if "type" in form.pattern else ""
    found = [Entity(kind, 0, 3), Entity(kind, 4, 5)]
    tags = entity_tags(found, 6, scheme, form)
    assert entities(tags) == found
    assert detect_scheme([tags]) == scheme
    assert forms_of(tags)[0] is form
    transition_mask(sorted({*tags}), scheme)


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
        (["I-X E-X E-Y O"], "IOE2"),
        (["B-X L-X O U-X"], "BILOU"),
        (["U-X"], "BILOU"),
        (["B-X M-X E-X"], "BMES"),
        (["B-X E-X W-X"], "BMEWO"),
        (["I-X O " * 9, "B-X I-X O " * 40], "BIO"),  # some mistakes
        (["I-X B-X O " * 40, "B-X O"], "IOB1"),
        (["B I O", "B B"], "BIO"),
        (["I I B O"], "IOB1"),
        (["B M E S"], "BMES"),
        (["PER PER O"], "IO"),
        (["B_a-b I_a-b"], "BIO"),
    ],
)
def test_detect_scheme(sentences: list[str], scheme: TagScheme) -> None:
    assert detect_scheme(sentence.split() for sentence in sentences) == scheme


@pytest.mark.parametrize("scheme", EXACT)
@given(case=entity_lists())
def test_detect_scheme_recovers_the_scheme(scheme: TagScheme, case: tuple[list[Entity], int]) -> None:
    found, length = case
    apart = [Entity("X", 0, 3), Entity("X", 3, 4), Entity("X", 4, 6)]  # shows any scheme
    assert detect_scheme([entity_tags(found, length, scheme), entity_tags(apart, 6, scheme)]) == scheme


@given(st.sampled_from(SCHEMES), st.data())
def test_pairs_of_parts_make_the_scheme_of_all(scheme: TagScheme, data: st.DataObject) -> None:
    sentences = data.draw(st.lists(st.lists(st.sampled_from(TAGS[scheme]), max_size=3), min_size=1, max_size=4))
    parts = tag_pairs(sentences[:2]) + tag_pairs(sentences[2:])
    assert scheme_of(parts) == detect_scheme(sentences)


def test_nothing_is_known_beside_unknown_tags() -> None:
    assert scheme_of(tag_pairs([["_", "I-X", "O"], ["B-X", "_"], ["B-X", "E-X"]]), "_") == "BIOES"
    assert scheme_among_others(tag_pairs([[None, "I-X", "O"], ["B-X", "O"]])) == "BIO"


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ("B-X I-X M-X", r"no scheme has all of the marks B, I, M of \['B-X', 'I-X', 'M-X'\]"),
        ("DT NN VBZ", r"no tags of entities: \['DT', 'NN', 'VBZ'\] have no marks, and there is no O"),
        ("O B M E E M B I" * 3, "bad tag"),
        ("M B E O M M B O", r"no scheme has \['B', 'E', 'M', 'O'\] in such an order"),
        ("O B-X PER", "bad tag 'PER'"),
    ],
)
def test_detect_scheme_refuses(tags: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        detect_scheme([tags.split()])


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("B-X I-X O", "BIO"),
        ("PER PER O LOC", "IO"),
        ("B I O", "BIO"),
        ("B-NP I-NP B-VP", "BIO"),
        ("DT NN VBZ PRP$ -LRB- , .", None),
        ("S-ADJ S-NN S-VB", None),
        ("S-ADJ NN VB I-", None),
        ("Case=Nom|Number=Sing _ Number=Plur", None),
        ("N V O A ! O S", None),  # parts of speech of tweets: O is a pronoun
        ("S M L M S L", None),
        ("N E S W N", None),
        ("A B O AB", None),
        ("1 2 3", None),
    ],
)
def test_other_tags_are_no_scheme(tags: str, scheme: TagScheme | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scheme_among_others(tag_pairs([tags.split()])) == scheme


def test_types_may_have_blanks() -> None:
    assert scheme_among_others(tag_pairs([["O", "geo location", "geo location", "person"]])) == "IO"


@pytest.mark.parametrize("tags", ["B-X I-X M-X O", "O B-X PER", "O X-PER Y-PER", "b-per i-per o", "M B E O M M B O"])
def test_what_looks_like_a_scheme_is_named(tags: str) -> None:
    with pytest.warns(UserWarning, match="look like tags of entities, but are taken for plain tags: .*[XPBp]"):
        assert scheme_among_others(tag_pairs([tags.split()])) is None


# Which tag may follow which, by hand, over the tags of TAGS in their order: a row for the first of the two,
# with 1 for may and 0 for may not. Then the tags that may come first, and last.
ALLOWED: dict[TagScheme, tuple[str, str, str]] = {
    "IO": ("111 111 111", "111", "111"),
    # O, I-X, B-X, I-Y, B-Y
    "IOB1": ("11010 11110 11110 11011 11011", "11010", "11111"),
    # O, B-X, I-X, B-Y, I-Y
    "BIO": ("11010 11110 11110 11011 11011", "11010", "11111"),
    # O, I-X, E-X, I-Y, E-Y
    "IOE2": ("11111 01100 11111 00011 11111", "11111", "10101"),
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
    transition, start, stop = ALLOWED.get(scheme, ALLOWED["BIOES"])  # others differ in their letters
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


@pytest.mark.parametrize("scheme", EXACT)
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
        (["O"], "XYZ", "unknown tag scheme 'XYZ': expected one of IO, BIO, IOB1, IOE2, BIOES, BILOU, BMES, BMEWO"),
        (["O", "I-X", "O"], "BIO", "tag 'O' is given twice"),
        (["O", "E-X"], "BIO", "tag 'E-X' does not belong to the scheme BIO"),
        (["O", "B-X"], "IO", "tag 'B-X' does not belong to the scheme IO"),
        (["O", "S-X"], "IOB1", "tag 'S-X' does not belong to the scheme IOB1"),
        (["O", "B-X", "X"], "BIO", "bad tag 'X'"),
    ],
)
def test_transition_mask_refuses(tags: list[str], scheme: TagScheme, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transition_mask(tags, scheme)


def test_entity_tags_refuse_an_unknown_scheme() -> None:
    with pytest.raises(ValueError, match="unknown tag scheme 'IOB3'"):
        entity_tags([], 1, "IOB3")  # type: ignore[arg-type]
