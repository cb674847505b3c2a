"""Attributes of tokens for taggers that are linear in them.

A template spells the attributes that depend on a few cells near a token, such as the words at offsets -1 and 0.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from structsmooth.text.corpus import Column, Value

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
    spell = _spell_word if name == "word" else partial(_spell_column, name)
    return tuple(Template((Cell(name, offset),), partial(spell, offset)) for offset in range(-WINDOW, WINDOW + 1))


def joint(name: str, *offsets: int) -> Template:
    """One attribute of the values of a column at some offsets, from -2 to 2; the outside of the sentence is empty."""
    spelled = "|".join(f"{name}[{offset}]" for offset in offsets)
    return Template(tuple(Cell(name, offset) for offset in offsets), partial(_spell_joint, spelled))


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
