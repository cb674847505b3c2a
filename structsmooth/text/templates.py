"""Attributes of tokens for taggers that are linear in them.

A template spells the attributes that depend on a few cells near a token, such as the words at offsets -1 and 0.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from structsmooth.text.corpus import Column, Value
from structsmooth.text.standalone import (
    outline,
    spell_bias,
    spell_column,
    spell_form,
    spell_joint,
    spell_neighbour,
    spell_word,
)

WINDOW = 2
"""How far from its token a cell may be."""
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


def _present(value: str) -> Value:
    return None if value == _ABSENT else value


COLUMNS: dict[str, Column] = {
    "word": lambda token: token.word,
    "pos": lambda token: _present(token.pos),
    "chunk": lambda token: _present(token.chunk),
    "outline": lambda token: outline(token.word),
}
_FIRST, _SECOND = "pos", "chunk"


def column(name: str) -> Column:
    """What a column says of a token: one of ``COLUMNS``, or ``column3`` for the third of the file, and so on."""
    return COLUMNS[name] if name in COLUMNS else _numbered(int(name.removeprefix("column")))


@lru_cache
def _numbered(number: int) -> Column:
    # Words have number 1, and the columns between words and tags come behind them.
    return lambda token: _present(token.columns[number - 2]) if number - 2 < len(token.columns) else None


def column_names(count: int, chunks: bool) -> list[str]:
    """Names of columns between words and tags: parts of speech, chunks unless the second is not, and numbered ones."""
    second = _SECOND if chunks else "column3"
    return [_FIRST, second, *(f"column{number}" for number in range(4, count + 2))][:count]


def window(name: str) -> Templates:
    """Attributes of the values of a column, by its name, up to two tokens away."""
    spell = spell_word if name == "word" else partial(spell_column, name)
    return tuple(Template((Cell(name, offset),), partial(spell, offset)) for offset in range(-WINDOW, WINDOW + 1))


def joint(name: str, *offsets: int) -> Template:
    """One attribute of the values of a column at some offsets, from -2 to 2; the outside of the sentence is empty."""
    spelled = "|".join(f"{name}[{offset}]" for offset in offsets)
    return Template(tuple(Cell(name, offset) for offset in offsets), partial(spell_joint, spelled))


BIAS = Template((), spell_bias)
PLAIN: Templates = (BIAS, *window("word"), *window("pos"), *window("chunk"))
"""Words, parts of speech and chunk tags up to two tokens away, and a bias: section 7.1.1 of Pillutla et al. (2018), "A
Smoother Way to Train Structured Prediction Models"."""
RICH: Templates = (
    *PLAIN,
    Template((Cell("word", 0),), spell_form),
    Template((Cell("word", -1),), partial(spell_neighbour, -1)),
    Template((Cell("word", 1),), partial(spell_neighbour, 1)),
    joint("word", -1, 0),
    joint("word", 0, 1),
    joint("pos", -1, 0),
    joint("pos", 0, 1),
    joint("outline", -1, 0, 1),
)
"""The plain set; affixes, lower-cased form and shape of the word; lower-cased forms and shapes of its neighbours; pairs
and triples of adjacent values. These are about twice as many attributes."""
CHUNKING: Templates = (
    BIAS,
    *window("word"),
    joint("word", -1, 0),
    joint("word", 0, 1),
    *window("pos"),
    *(joint("pos", first, first + 1) for first in range(-2, 2)),
    *(joint("pos", first, first + 1, first + 2) for first in range(-2, 1)),
)
"""Words and parts of speech up to two tokens away, pairs of adjacent ones, and triples of parts of speech: those of
Osokin et al. (2016), appendix I.2."""


def columns_of(templates: Templates) -> set[str]:
    """Names of the columns that templates look at."""
    return {cell.column for template in templates for cell in template.cells}


def for_columns(templates: Templates, names: Sequence[str]) -> Templates:
    """Templates for sentences with some columns: without those of others, and with windows of what none looks at.

    Args:
        templates: those of a task.
        names: of the columns between words and tags.
    """
    there = {"word", "outline", *names}
    kept = tuple(template for template in templates if {cell.column for cell in template.cells} <= there)
    return kept + tuple(t for name in names if name not in columns_of(templates) for t in window(name))
