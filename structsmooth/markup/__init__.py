"""HTML that tasks make of their examples, in which text of data never becomes markup."""

from structsmooth.markup.blocks import Block, Drawing, Matrix, Table, confusion, weight_table
from structsmooth.markup.elements import Markup, element, joined
from structsmooth.markup.examples import Verdict, alternatives, chips, differences, hue, swatch, verdict, views
from structsmooth.markup.pictures import diverging, enlarged, picture

__all__ = [
    "Block",
    "Drawing",
    "Markup",
    "Matrix",
    "Table",
    "Verdict",
    "alternatives",
    "chips",
    "confusion",
    "differences",
    "diverging",
    "element",
    "enlarged",
    "hue",
    "joined",
    "picture",
    "swatch",
    "verdict",
    "views",
    "weight_table",
]
