"""HTML that tasks make of their examples, in which text of data never becomes markup."""

import html
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

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

_VOID = {"br", "img", "input", "link", "meta"}


class Markup(str):
    """HTML that is inserted as it is; all other text is escaped where it enters an element."""

    __slots__ = ()


def element(tag: str, *content: str, **attributes: str | int | float | None) -> Markup:
    """An element of HTML with escaped text and attributes.

    Args:
        tag: its name.
        content: texts, which are escaped, and elements, which are not.
        attributes: by their names with underscores for hyphens, and one more at the end for a Python keyword, as in
            ``class_``; those that are ``None`` are left out.

    Example:
        >>> element("b", "1 < 2", class_="big")
        '<b class="big">1 &lt; 2</b>'
    """
    given = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    head = "".join(f' {name}="{html.escape(str(value))}"' for name, value in given.items())
    if tag in _VOID:
        return Markup(f"<{tag}{head}>")
    return Markup(f"<{tag}{head}>{joined(content)}</{tag}>")


def joined(content: Iterable[str]) -> Markup:
    """Texts and elements one after the other; texts are escaped.

    Example:
        >>> joined(["<", element("i", "x")])
        '&lt;<i>x</i>'
    """
    return Markup("".join(piece if isinstance(piece, Markup) else html.escape(piece) for piece in content))


# Longest side of a picture in pixels, and the quality of those that are photographs.
_LONGEST, _QUALITY = 560, 82
# Blue for positive numbers and orange for negative ones, of the palette of Okabe and Ito.
_POSITIVE, _NEGATIVE = np.array([0, 114, 178]), np.array([213, 94, 0])


def picture(pixels: NDArray[np.uint8], alt: str, **attributes: str | int) -> Markup:
    """An image that is part of the page: PNG or JPEG, whichever is smaller.

    Args:
        pixels: RGB or RGBA, uint8 [H, W, 3 or 4]; images whose longer side has more than 560 pixels are made smaller.
        alt: what it shows, for those who do not see it.
        attributes: further ones of the element; see :func:`element`.
    """
    from PIL.Image import fromarray  # comes with Matplotlib

    image = fromarray(pixels)
    image.thumbnail((_LONGEST, _LONGEST))
    encoded = [_encoded(image, "PNG")] + ([_encoded(image, "JPEG")] if image.mode == "RGB" else [])
    width, height = image.size
    return element("img", src=min(encoded, key=len), alt=alt, **({"width": width, "height": height} | attributes))


def enlarged(pixels: NDArray[np.uint8], alt: str, factor: int) -> Markup:
    """A small image, uint8 [H, W, 3 or 4], whose pixels are shown as squares of some width; ``alt`` says what it is."""
    return picture(pixels, alt, class_="pixels", width=factor * pixels.shape[1], height=factor * pixels.shape[0])


def diverging(values: NDArray[np.float64], largest: float) -> NDArray[np.uint8]:
    """Colours of numbers [...], RGBA: blue from 0 to ``largest``, orange from 0 to −``largest``, clear at 0."""
    strength = np.clip(np.abs(values) / max(largest, 1e-300), 0, 1)[..., None]
    colour = np.where(values[..., None] > 0, _POSITIVE, _NEGATIVE)
    return np.concatenate([np.broadcast_to(colour, (*values.shape, 3)), 255 * strength], -1).astype(np.uint8)


def _encoded(image: "Image", kind: str) -> str:
    stream = BytesIO()
    image.save(stream, kind, quality=_QUALITY)
    return f"data:image/{kind.lower()};base64,{b64encode(stream.getvalue()).decode()}"


Verdict = Literal["right", "wrong", "missed", "plain"]
"""What is known of a part of an output: it is found and right, found and wrong, right but not found, or neither."""

_GOLDEN = 137.508  # degrees: successive hues are far from each other


def alternatives(ranked: Sequence[tuple[float, Any]], describe: Callable[[Any], str]) -> Markup:
    """A list of the outputs after the best one, with the differences of their scores from the best score.

    Args:
        ranked: outputs with their scores, best first.
        describe: an output as text or markup.
    """
    if len(ranked) < 2:
        return Markup()
    best = ranked[0][0]
    items = [element("li", verdict("plain", f"{s - best:.3g}"), " ", describe(y)) for s, y in ranked[1:]]
    title = element("p", "Next best outputs, and how far their scores are behind", class_="note")
    return element("div", title, element("ol", *items, start=2), class_="alternatives")


def differences(ranked: Sequence[tuple[float, Sequence[Any]]], text: Callable[[Any], str] = str) -> Markup:
    """:func:`alternatives` that are sets of things: those that they have, and those of the best one that they lack."""
    best = ranked[0][1]

    def describe(things: Sequence[Any]) -> str:
        more, fewer = ([text(x) for x in a if x not in b] for a, b in ((things, best), (best, things)))
        return ", ".join([*(f"with {name}" for name in more), *(f"without {name}" for name in fewer)])

    return alternatives(ranked, describe)


LEGEND = element("p", "✓ right, ✗ wrong, ○ missed", class_="note")
"""What the signs of :func:`verdict` mean."""


def verdict(kind: Verdict, *content: str) -> Markup:
    """A part of an output, with a sign and a style for what is right about it."""
    signs = {"right": "✓", "wrong": "✗", "missed": "○", "plain": ""}
    meanings = {"right": "right", "wrong": "wrong", "missed": "missed", "plain": None}
    sign = [element("span", signs[kind], role="img", aria_label=meanings[kind], class_="sign")] if signs[kind] else []
    return element("span", *sign, *content, class_=f"chip {kind}")


def chips(found: Iterable[str], gold: Iterable[str] | None) -> Markup:
    """The members of a set that was found, and those that were missed; gold is ``None`` where it is not known."""
    found = list(found)
    true = set(found) if gold is None else set(gold)
    parts = [verdict("plain" if gold is None else "right" if name in true else "wrong", name) for name in found]
    parts += [verdict("missed", name) for name in sorted(true - set(found))]
    shown = element("p", *(parts or [element("span", "none", class_="note")]), class_="chips")
    return shown if gold is None else joined([shown, LEGEND])


def hue(number: int, probability: float | None = None) -> str:
    """A style with the hue of a class, by its number, faded as a probability falls; sheets choose the lightness."""
    faded = "" if probability is None else f"; --sure: {probability:.3f}"
    return f"--hue: {(210 + number * _GOLDEN) % 360:.0f}{faded}"


def swatch(colour: Sequence[int], *content: str) -> Markup:
    """A patch of a colour, RGB from 0 to 255, and what it means."""
    box = element("span", class_="swatch", style=f"background: rgb({', '.join(map(str, colour))})")
    return element("span", box, *content, class_="chip plain")


def views(*pictures: tuple[str, Markup], kind: str = "views") -> Markup:
    """Pictures side by side, each with its caption; ``kind`` is for style sheets, "letters" for small ones."""
    figures = (element("figure", image, element("figcaption", joined([caption]))) for caption, image in pictures)
    return element("div", *figures, class_=kind)


@dataclass(frozen=True)
class Table:
    """A table whose first row and first column are headings.

    Args:
        caption: what it shows.
        header: headings of the columns.
        rows: the heading of each row, and its cells: text or markup.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Matrix:
    """A table of numbers, drawn in colours.

    Args:
        caption: what it shows.
        rows: names of the rows.
        columns: names of the columns.
        values: [rows, columns]; NaN where there is no number.
        row_title: what rows are.
        column_title: what columns are.
        counts: whether values are counts: colours are then shares of their row; else they are far from zero where a
            value is, in two directions.
    """

    caption: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: NDArray[Any]
    row_title: str
    column_title: str
    counts: bool = False


@dataclass(frozen=True)
class Drawing:
    """Anything else.

    Args:
        caption: what it shows.
        content: the drawing.
    """

    caption: str
    content: Markup


Block = Table | Matrix | Drawing
"""A part of a report: a table, a matrix, or pictures."""


def confusion(caption: str, gold: Iterable[str], found: Iterable[str]) -> Matrix:
    """How often each label was found in the place of which one, of labels one by one."""
    counts = Counter(zip(gold, found, strict=True))
    labels = sorted({label for pair in counts for label in pair})
    values = np.array([[counts[right, guess] for guess in labels] for right in labels])
    return Matrix(caption, labels, labels, values, "gold", "predicted", counts=True)


def weight_table(
    caption: str, header: Sequence[str], names: Iterable[Sequence[str]], weights: Iterable[float]
) -> Table:
    """Named weights in a table, those farthest from zero first.

    Args:
        caption: what it shows.
        header: headings of the columns of names; the weights follow them.
        names: a row of names for each weight.
        weights: the numbers.

    Example:
        >>> weight_table("Weights", ["feature"], [["length"], ["distance"]], [0.5, -2.0]).rows
        [('distance', '-2'), ('length', '+0.5')]
    """
    ordered = sorted(zip(names, weights, strict=True), key=lambda pair: -abs(pair[1]))
    return Table(caption, (*header, "weight"), [(*name, f"{weight:+.3g}") for name, weight in ordered])
