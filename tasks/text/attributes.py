"""Attributes of tokens for taggers that are linear in them.

A template spells the attributes that depend on a few cells near a token, such as the words at offsets -1 and 0.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from structsmooth.tasks.text.corpus import Sentence
from structsmooth.tasks.text.windows import Column, Value

WINDOW = 2
"""How far from its token a cell may be."""
_AFFIX_LENGTHS = (2, 3, 4)
_ABSENT = "-"


class Cell(NamedTuple):
    """What a column says at some offset from a token."""

    column: str
    offset: int


class Template(NamedTuple):
    """``spell`` turns the values of the cells into attributes; None is the value outside the sentence."""

    cells: tuple[Cell, ...]
    spell: Callable[..., tuple[str, ...]]


Templates = tuple[Template, ...]


def _spell_word(offset: int, word: Value) -> tuple[str, ...]:
    if word is None:
        return (f"B{offset}" if offset < 0 else f"E+{offset}",)
    return (f"word[{offset}]={word}",)


def _spell_column(column: str, offset: int, value: Value) -> tuple[str, ...]:
    return () if value is None else (f"{column}[{offset}]={value}",)


def _spell_form(word: str) -> tuple[str, ...]:
    lower = word.lower()
    lengths = [length for length in _AFFIX_LENGTHS if length <= len(lower)]
    return (
        f"lower[0]={lower}",
        f"shape[0]={_shape(word)}",
        f"outline[0]={_outline(word)}",
        *(f"prefix={lower[:length]}" for length in lengths),
        *(f"suffix={lower[-length:]}" for length in lengths),
    )


def _spell_neighbour(offset: int, word: Value) -> tuple[str, ...]:
    return () if word is None else (f"lower[{offset}]={word.lower()}", f"outline[{offset}]={_outline(word)}")


def _spell_joint(name: str, *values: Value) -> tuple[str, ...]:
    return (f"{name}={'|'.join(value or '' for value in values)}",) if any(values) else ()


def _shape(word: str) -> str:
    """The word with letters and digits replaced by their kind: ``McDonald-95`` becomes ``XxXxxxxx-dd``."""
    return "".join("X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c for c in word)


@lru_cache(maxsize=1 << 16)
def _outline(word: str) -> str:
    """The shape with runs of one character collapsed: ``McDonald-95`` becomes ``XxXx-d``."""
    return re.sub(r"(.)\1+", r"\1", _shape(word))


def _present(value: str) -> Value:
    return None if value == _ABSENT else value


COLUMNS: dict[str, Column] = {
    "word": lambda token: token.word,
    "pos": lambda token: _present(token.pos),
    "chunk": lambda token: _present(token.chunk),
    "outline": lambda token: _outline(token.word),
}


def window(column: str) -> Templates:
    """Attributes of the values of a column up to two tokens away: ``word``, ``pos``, ``chunk`` or ``outline``."""
    spell = _spell_word if column == "word" else partial(_spell_column, column)
    return tuple(Template((Cell(column, offset),), partial(spell, offset)) for offset in range(-WINDOW, WINDOW + 1))


def joint(column: str, *offsets: int) -> Template:
    """One attribute of the values of a column at some offsets, from -2 to 2; the outside of the sentence is empty."""
    name = "|".join(f"{column}[{offset}]" for offset in offsets)
    return Template(tuple(Cell(column, offset) for offset in offsets), partial(_spell_joint, name))


BIAS = Template((), lambda: ("bias",))
PLAIN: Templates = (BIAS, *window("word"), *window("pos"), *window("chunk"))
"""Words, parts of speech and chunk tags up to two tokens away, and a bias: section 7.1.1 of Pillutla et al. (2018), "A
Smoother Way to Train Structured Prediction Models"."""
RICH: Templates = (
    *PLAIN,
    Template((Cell("word", 0),), _spell_form),
    Template((Cell("word", -1),), partial(_spell_neighbour, -1)),
    Template((Cell("word", 1),), partial(_spell_neighbour, 1)),
    joint("word", -1, 0),
    joint("word", 0, 1),
    joint("pos", -1, 0),
    joint("pos", 0, 1),
    joint("outline", -1, 0, 1),
)
"""The plain set; affixes, lower-cased form and shape of the word; lower-cased forms and shapes of its neighbours; pairs
and triples of adjacent values. These are about twice as many attributes."""


def columns_of(templates: Templates) -> set[str]:
    """Names of the columns that templates look at."""
    return {cell.column for template in templates for cell in template.cells}


def sentence_attributes(sentence: Sentence, templates: Templates) -> list[list[str]]:
    """Attributes of each token of a sentence; columns that it lacks, or fills with hyphens, have none."""
    columns = {name: list(map(COLUMNS[name], sentence.tokens)) for name in columns_of(templates)}

    def value(cell: Cell, token: int) -> Value:
        position = token + cell.offset
        return columns[cell.column][position] if 0 <= position < len(sentence) else None

    def spelled(token: int) -> list[str]:
        return [a for cells, spell in templates for a in spell(*(value(cell, token) for cell in cells))]

    return list(map(spelled, range(len(sentence))))
