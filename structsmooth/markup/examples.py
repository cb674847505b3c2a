"""Pieces of pages that show examples: alternatives, sets of labels, and legends of colours."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from structsmooth.markup.elements import Markup, element, joined

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


def hue(number: int) -> str:
    """A style with the hue of a class, by its number; style sheets choose the lightness."""
    return f"--hue: {(210 + number * _GOLDEN) % 360:.0f}"


def swatch(colour: Sequence[int], *content: str) -> Markup:
    """A patch of a colour, RGB from 0 to 255, and what it means."""
    box = element("span", class_="swatch", style=f"background: rgb({', '.join(map(str, colour))})")
    return element("span", box, *content, class_="chip plain")


def views(*pictures: tuple[str, Markup], kind: str = "views") -> Markup:
    """Pictures side by side, each with its caption; ``kind`` is for style sheets, "letters" for small ones."""
    return element("div", *(_captioned(*one) for one in pictures), class_=kind)


def _captioned(caption: str, image: Markup) -> Markup:
    return element("figure", image, element("figcaption", joined([caption])))
