"""The attributes of tokens, spelled out one by one, to compare encoders with."""

from structsmooth.text.corpus import Sentence, Value
from structsmooth.text.templates import Cell, Templates, column, columns_of


def sentence_attributes(sentence: Sentence, templates: Templates) -> list[list[str]]:
    """Attributes of each token of a sentence; columns that it lacks, or fills with hyphens, have none."""
    columns = {name: list(map(column(name), sentence.tokens)) for name in columns_of(templates)}

    def value(cell: Cell, token: int) -> Value:
        position = token + cell.offset
        return columns[cell.column][position] if 0 <= position < len(sentence) else None

    def spelled(token: int) -> list[str]:
        return [a for cells, spell in templates for a in spell(*(value(cell, token) for cell in cells))]

    return list(map(spelled, range(len(sentence))))
