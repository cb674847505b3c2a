"""Words of lines of text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structsmooth.text.inputs import clitics_of
from structsmooth.text.standalone import Splitter


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("The Bank of New York", "The Bank of New York"),
        ("He (a clerk) left, finally!", "He ( a clerk ) left , finally !"),
        ("It cost $3,500.50, or 5% more.", "It cost $ 3,500.50 , or 5 % more ."),
        ("Acme Inc. sells e-mail to the U.S.", "Acme Inc. sells e-mail to the U.S."),
        ("Written by J. Smith of Acme Inc.", "Written by J. Smith of Acme Inc ."),
        ('"Well...", he said.', '" Well ... " , he said .'),
        ("\u00abOui\u00bb, dit-elle\u2026", "\u00ab Oui \u00bb , dit-elle \u2026"),
        ("Version 3.5.", "Version 3.5 ."),
        (" . ", "."),
        ("...", "..."),
        ("", ""),
    ],
)
def test_punctuation_is_split_off(line: str, words: str) -> None:
    assert Splitter().words(line) == words.split()


@pytest.mark.parametrize(
    ("clitics", "line", "words"),
    [
        ([], "Ada's book", "Ada's book"),
        (["'s", "n't", "'ve"], "Ada's book didn't sell", "Ada 's book did n't sell"),
        (["'s", "n't", "'ve"], "shouldn't've", "should n't 've"),
        (["\u2019s"], "ADA'S", "ADA 'S"),
        (["'s"], "'s is a token", "'s is a token"),
        (["l'", "d'"], "L\u2019eau d'Evian", "L\u2019 eau d' Evian"),
    ],
)
def test_clitics_are_split_as_in_training(clitics: list[str], line: str, words: str) -> None:
    assert Splitter(clitics).words(line) == words.split()


def test_clitics_are_found_among_tokens() -> None:
    assert clitics_of(["Ada", "'s", "'", "n't", "l'", "can't", "''", "\u2019ll"]) == {"'s", "n't", "l'", "\u2019ll"}


@given(st.text(), st.sampled_from([(), ("'s", "n't"), ("l'",)]))
def test_nothing_but_white_space_is_lost(line: str, clitics: tuple[str, ...]) -> None:
    words = Splitter(clitics).words(line)
    assert "".join(words) == "".join(line.split())
    assert all(words)
