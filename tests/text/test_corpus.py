"""Corpora against the sentences that they are made of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structsmooth.text.corpus import Corpus, Sentence, Token

cells = st.sampled_from(["a", "b", "-"])


@st.composite
def corpora(draw: st.DrawFn) -> list[Sentence]:
    """Sentences that may differ in their columns, and of which some may have tags."""

    def column(length: int) -> list[str]:
        return draw(st.lists(cells, min_size=length, max_size=length))

    lengths = draw(st.lists(st.integers(1, 4), max_size=4))
    return [
        Sentence(column(n), [column(n) for _ in range(draw(st.integers(0, 2)))], draw(st.none() | st.just(["O"] * n)))
        for n in lengths
    ]


@given(corpora())
def test_holds_its_sentences(sentences: list[Sentence]) -> None:
    corpus = Corpus.of(sentences)
    assert len(corpus) == len(sentences)
    assert list(corpus) == [corpus[i] for i in range(len(corpus))] == corpus[:] == sentences
    assert corpus[::-2] == sentences[::-2]


@given(corpora())
def test_keeps_each_token_once_in_order(sentences: list[Sentence]) -> None:
    corpus = Corpus.of(sentences)
    tokens = [token for sentence in sentences for token in sentence.tokens]
    assert corpus.distinct == list(dict.fromkeys(tokens))
    assert [corpus.distinct[number] for number in corpus.tokens] == tokens
    assert corpus.tokens.dtype == np.int32


def test_is_a_sequence() -> None:
    sentences = [Sentence(["a"], []), Sentence(["b", "a"], [])]
    corpus = Corpus.of(sentences)
    assert corpus[-1] == sentences[-1]
    assert Corpus.of(corpus) is corpus
    with pytest.raises(IndexError):
        corpus[2]


def test_tokens_without_columns() -> None:
    (token,) = Sentence(["a"], []).tokens
    assert token == Token("a")
    assert token.pos == token.chunk == "-"
