"""HTML that tasks make of their examples, in which text of data never becomes markup."""

from structsmooth.markup.blocks import Block, Drawing, Matrix, Table, weight_table
from structsmooth.markup.elements import Markup, element, joined
from structsmooth.markup.examples import Verdict, alternatives, chips, hue, swatch, verdict, views
from structsmooth.markup.pictures import diverging, picture

__all__ = [
    "Block",
    "Drawing",
    "Markup",
    "Matrix",
    "Table",
    "Verdict",
    "alternatives",
    "chips",
    "diverging",
    "element",
    "hue",
    "joined",
    "picture",
    "swatch",
    "verdict",
    "views",
    "weight_table",
]
