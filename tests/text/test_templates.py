"""Attributes by hand, and encoders against the attributes they encode."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from attributes import sentence_attributes
from hypothesis import given
from hypothesis import strategies as st

from structsmooth.sequences import SparseSequences
from structsmooth.text.corpus import Sentence
from structsmooth.text.encoders import (
    AttributeEncoder,
    DictionaryEncoder,
    HashingEncoder,
    encoder_from_dict,
    hash_attribute,
)
from structsmooth.text.templates import PLAIN, RICH, Templates, joint, window

EU = Sentence(
    words=["EU", "rejects", "U.S.-based", "calls"],
    columns=[["NNP", "VBZ", "JJ", "NNS"], ["NP", "VP", "NP", "NP"]],
)
BARE = Sentence(["-", "He", "said"], [])

names = st.text(st.sampled_from("aAb-1é.|="), min_size=1, max_size=4)


@st.composite
def corpora(draw: st.DrawFn) -> list[Sentence]:
    def column(length: int) -> list[str]:
        return draw(st.lists(names, min_size=length, max_size=length))

    lengths = draw(st.lists(st.integers(1, 5), max_size=4))
    return [Sentence(column(n), [column(n) for _ in range(draw(st.integers(0, 2)))]) for n in lengths]


def test_plain_attributes_by_hand() -> None:
    first, *_, last = sentence_attributes(EU, PLAIN)
    assert first == [
        "bias",
        *("B-2", "B-1", "word[0]=EU", "word[1]=rejects", "word[2]=U.S.-based"),
        *("pos[0]=NNP", "pos[1]=VBZ", "pos[2]=JJ"),
        *("chunk[0]=NP", "chunk[1]=VP", "chunk[2]=NP"),
    ]
    assert last == [
        "bias",
        *("word[-2]=rejects", "word[-1]=U.S.-based", "word[0]=calls", "E+1", "E+2"),
        *("pos[-2]=VBZ", "pos[-1]=JJ", "pos[0]=NNS"),
        *("chunk[-2]=VP", "chunk[-1]=NP", "chunk[0]=NP"),
    ]


def test_rich_attributes_by_hand() -> None:
    plain, rich = (sentence_attributes(EU, templates)[2] for templates in (PLAIN, RICH))
    assert rich[: len(plain)] == plain
    assert rich[len(plain) :] == [
        *("lower[0]=u.s.-based", "shape[0]=X.X.-xxxxx", "outline[0]=X.X.-x"),
        *("prefix=u.", "prefix=u.s", "prefix=u.s."),
        *("suffix=ed", "suffix=sed", "suffix=ased"),
        *("lower[-1]=rejects", "outline[-1]=x", "lower[1]=calls", "outline[1]=x"),
        *("word[-1]|word[0]=rejects|U.S.-based", "word[0]|word[1]=U.S.-based|calls"),
        *("pos[-1]|pos[0]=VBZ|JJ", "pos[0]|pos[1]=JJ|NNS"),
        "outline[-1]|outline[0]|outline[1]=x|X.X.-x|x",
    ]


def test_boundaries_take_part_in_joint_attributes() -> None:
    expected = {"word[-1]|word[0]=|EU", "pos[-1]|pos[0]=|NNP", "outline[-1]|outline[0]|outline[1]=|X|x"}
    assert expected <= set(sentence_attributes(EU, RICH)[0])


@pytest.mark.parametrize(
    ("word", "shape", "outline"),
    [
        ("McDonald-95", "XxXxxxxx-dd", "XxXx-d"),
        ("1,000", "d,ddd", "d,d"),
        ("Ünal", "Xxxx", "Xx"),
        ("東京", "東京", "東京"),
    ],
)
def test_shapes(word: str, shape: str, outline: str) -> None:
    (attributes,) = sentence_attributes(Sentence([word], []), RICH)
    assert {f"shape[0]={shape}", f"outline[0]={outline}"} <= set(attributes)


def test_affixes_are_not_longer_than_the_word() -> None:
    (attributes,) = sentence_attributes(Sentence(["USA"], []), RICH)
    affixes = [attribute for attribute in attributes if attribute.startswith(("prefix", "suffix"))]
    assert affixes == ["prefix=us", "prefix=usa", "suffix=sa", "suffix=usa"]


def test_absent_columns_have_no_attributes_but_hyphens_are_words() -> None:
    filled = Sentence(BARE.words, [["-"] * 3, ["-"] * 3])
    assert sentence_attributes(filled, RICH) == sentence_attributes(BARE, RICH)
    attributes = sentence_attributes(BARE, RICH)
    assert not [name for token in attributes for name in token if name.startswith(("pos", "chunk"))]
    assert {"word[-1]=-", "word[-1]|word[0]=-|He"} <= set(attributes[1])


def test_tags_are_no_attributes() -> None:
    tagged = Sentence(EU.words, EU.columns, ["I-ORG", "O", "I-MISC", "O"])
    assert sentence_attributes(tagged, RICH) == sentence_attributes(EU, RICH)


def test_hash_is_fixed() -> None:
    # CRC-32 of "123456789" is 0xcbf43926, the check value of its specification.
    assert hash_attribute("123456789", 32) == 0xCBF43926
    assert hash_attribute("123456789", 16) == 0x3926


def token_ids(encoded: SparseSequences) -> list[list[list[int]]]:
    """The integers as nested lists: sentence, token, attribute."""
    tokens = [ids.tolist() for ids in np.split(encoded.attributes.numpy(), encoded.token_offsets[1:-1].numpy())]
    return [tokens[start:stop] for start, stop in pairwise(encoded.offsets.tolist())]


def attribute_names(corpus: Sequence[Sentence], templates: Templates) -> list[str]:
    """The attributes of all tokens, one after the other."""
    tokens = [token for sentence in corpus for token in sentence_attributes(sentence, templates)]
    return [name for token in tokens for name in token]


def check_types(encoded: SparseSequences, corpus: Sequence[Sentence]) -> None:
    tokens = sum(map(len, corpus))
    assert encoded.attributes.dtype == torch.int32
    assert encoded.token_offsets.dtype == encoded.offsets.dtype == torch.int64
    assert encoded.token_offsets.shape == (tokens + 1,)
    assert encoded.offsets.shape == (len(corpus) + 1,)
    assert encoded.token_offsets[-1] == len(encoded.attributes)
    assert encoded.offsets[-1] == tokens


@pytest.mark.parametrize("templates", [PLAIN, RICH, (joint("pos", -2, 2), *window("word"))])
@given(corpus=corpora())
def test_hashing_encoder_hashes_all_attributes(corpus: list[Sentence], templates: Templates) -> None:
    encoded = HashingEncoder(bits=12).encode(corpus, templates)
    check_types(encoded, corpus)
    assert token_ids(encoded) == [
        [[hash_attribute(name, 12) for name in token] for token in sentence_attributes(sentence, templates)]
        for sentence in corpus
    ]


@pytest.mark.parametrize("templates", [PLAIN, RICH, (joint("pos", -2, 2), *window("word"))])
@given(train=corpora(), test=corpora())
def test_dictionary_encoder_keeps_the_attributes_it_knows(
    train: list[Sentence], test: list[Sentence], templates: Templates
) -> None:
    encoder = DictionaryEncoder.fit(train, templates)
    known = set(attribute_names(train, templates))
    assert set(encoder.attributes) == known
    assert encoder.size == len(known)
    encoded = encoder.encode(test, templates)
    check_types(encoded, test)
    decoded = [[[encoder.attributes[i] for i in ids] for ids in sentence] for sentence in token_ids(encoded)]
    assert decoded == [
        [[name for name in token if name in known] for token in sentence_attributes(sentence, templates)]
        for sentence in test
    ]


def test_tokens_are_encoded_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = HashingEncoder().encode([EU, BARE], RICH)
    monkeypatch.setattr("structsmooth.text.encoders._BLOCK", 3)
    assert token_ids(HashingEncoder().encode([EU, BARE], RICH)) == token_ids(whole)


@given(corpora(), st.integers(1, 4))
def test_dictionary_encoder_drops_rare_and_sorts_by_count(corpus: list[Sentence], least: int) -> None:
    counts = Counter(attribute_names(corpus, RICH))
    encoder = DictionaryEncoder.fit(corpus, RICH, min_count=least)
    assert set(encoder.attributes) == {name for name, count in counts.items() if count >= least}
    ordered = [counts[name] for name in encoder.attributes]
    assert ordered == sorted(ordered, reverse=True)


def test_unknown_words_keep_what_is_known_of_them() -> None:
    encoder = DictionaryEncoder.fit([Sentence(["Paris"], [])], RICH)
    encoded = encoder.encode([Sentence(["Tunis"], [])], RICH)
    names = {encoder.attributes[i] for i in encoded.attributes.tolist()}
    assert {"bias", "B-1", "E+1", "outline[0]=Xx", "suffix=is"} <= names
    assert "word[0]=Tunis" not in encoder.attributes


@pytest.mark.parametrize("encoder", [HashingEncoder(), DictionaryEncoder.fit([EU], RICH)])
def test_no_sentences(encoder: AttributeEncoder) -> None:
    encoded = encoder.encode([], RICH)
    assert encoded.values is None
    tensors = (encoded.attributes, encoded.token_offsets, encoded.offsets)
    assert [tensor.tolist() for tensor in tensors] == [[], [0], [0]]


@pytest.mark.parametrize(
    "encoder",
    [
        HashingEncoder(bits=10),
        HashingEncoder(),
        DictionaryEncoder.fit([EU, BARE], RICH),
        DictionaryEncoder.fit([EU], PLAIN),
    ],
)
def test_json_round_trip(encoder: AttributeEncoder) -> None:
    copy = encoder_from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert copy == encoder
    assert token_ids(copy.encode([BARE, EU], RICH)) == token_ids(encoder.encode([BARE, EU], RICH))


def test_size_of_hashing_encoder() -> None:
    assert HashingEncoder(bits=10).size == 1024
    assert HashingEncoder(bits=1).encode([EU], RICH).attributes.max() == 1


@pytest.mark.parametrize("bits", [0, 31])
def test_refuses_bits_out_of_range(bits: int) -> None:
    with pytest.raises(ValueError, match=f"bits must be from 1 to 30, got {bits}"):
        HashingEncoder(bits=bits)


def test_refuses_repeated_attributes() -> None:
    with pytest.raises(ValueError, match="attributes must differ from each other"):
        DictionaryEncoder(["bias", "bias"])


def test_refuses_an_unknown_encoder() -> None:
    with pytest.raises(ValueError, match="unknown encoder 'embedding': expected one of hashing, dictionary"):
        encoder_from_dict({"encoder": "embedding"})
