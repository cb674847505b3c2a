"""Drawings of dependency trees: arcs over words."""

from collections.abc import Sequence
from pathlib import Path

from structsmooth.checkpoint import save_figure
from structsmooth.markup import Markup, alternatives, element, joined
from structsmooth.tasks.parsing.data import Sentence, Tree
from structsmooth.tasks.parsing.results import shortened

# In pixels: the width of a letter, the space between words, the height of a level of arcs, and of the rows of text.
_LETTER, _SPACE, _LEVEL, _TEXT = 7.5, 22, 26, 44
# Opacity of an arc of probability 0.
_FAINTEST = 0.2
_RIGHT, _WRONG, _MISSED = "#0072B2", "#D55E00", "0.6"


def levels(heads: Sequence[int]) -> list[int]:
    """How high the arc of each word is drawn, from 1: above all arcs under it.

    Example:
        >>> levels([2, 0, 2])  # the arc of the root comes from above
        [1, 2, 1]
    """
    spans = [tuple(sorted((head, word))) if head else (word, word) for word, head in enumerate(heads, 1)]
    found = [0] * len(heads)
    for m in sorted(range(len(heads)), key=lambda m: (heads[m] == 0, spans[m][1] - spans[m][0])):
        low, high = spans[m]
        if heads[m] == 0:
            found[m] = 1 + max(found)
        else:
            under = [found[k] for k, (a, b) in enumerate(spans) if k != m and low <= a and b <= high and heads[k]]
            found[m] = 1 + max(under, default=0)
    return found


def tree_markup(
    sentence: Sentence,
    ranked: Sequence[tuple[float, Tree]],
    labelled: bool,
    subtypes: bool,
    probabilities: Sequence[float] | None = None,
) -> Markup:
    """The arcs of the best tree over the words, those that are missed below them, and alternatives.

    Arcs fade as their probabilities fall, if these are given.
    """
    best = ranked[0][1]
    centers, width = _centers(sentence)
    above = levels(best.heads)
    ground = _LEVEL * max(above, default=1) + 14
    missed = _missed(sentence, best)
    drawn = []
    for m, (head, relation) in enumerate(zip(best.heads, best.relations, strict=True)):
        kind, gold = "plain", sentence.tree
        if gold is not None:
            same = not labelled or shortened(gold.relations[m], subtypes) == shortened(relation, subtypes)
            kind = "right" if gold.heads[m] == head and same else "wrong"
        colour = {"plain": "currentColor", "right": "currentColor", "wrong": _WRONG}[kind]
        arc = _arc(centers, head, m, ground, -above[m] * _LEVEL, colour, relation if labelled else "")
        if probabilities is not None:
            title = element("title", f"probability {probabilities[m]:.3f}")
            arc = element("g", title, arc, opacity=f"{_FAINTEST + (1 - _FAINTEST) * probabilities[m]:.3f}")
        drawn.append(arc)
    for m, (word, tag) in enumerate(zip(sentence.words, sentence.upos, strict=True)):
        place = {"x": f"{centers[m]:.1f}", "text_anchor": "middle", "fill": "currentColor"}
        drawn.append(element("text", word, y=ground + 16, font_size=14, **place))
        drawn.append(element("text", tag, y=ground + 32, font_size=10, opacity="0.6", **place))
    below = levels([missed.get(m, 0) for m in range(len(sentence))])
    depth = max((below[m] for m in missed), default=0)
    for m, head in missed.items():
        drawn.append(_arc(centers, head, m, ground + _TEXT, below[m] * _LEVEL, _RIGHT, "", dashed=True))
    height = ground + _TEXT + (_LEVEL * (depth + 1) if missed else 0)
    what = f"the tree of: {' '.join(sentence.words)}"
    box = f"0 0 {width:.0f} {height}"
    image = element("svg", *drawn, viewBox=box, width=round(width), role="img", aria_label=what)
    legend = element("p", "Wrong arcs are orange; heads that were missed are below the words", class_="note")
    note = [] if sentence.tree is None else [legend]

    def describe(tree: Tree) -> str:
        changed = [m for m, (a, b) in enumerate(zip(tree.heads, best.heads, strict=True)) if a != b]
        return ", ".join(f"{sentence.words[m]} (word {m + 1}) ← {_name(sentence, tree.heads[m])}" for m in changed)

    return joined([element("div", image, class_="scroll"), *note, alternatives(ranked, describe)])


def draw_tree(sentence: Sentence, tree: Tree, labelled: bool, path: Path) -> None:
    """Save the arcs of a tree over the words, orange where the head is wrong, and below them those that are missed."""
    from matplotlib.figure import Figure  # slow to load, and not needed without a picture
    from matplotlib.patches import Arc as Ellipse

    centers, width = _centers(sentence)
    missed, above = _missed(sentence, tree), levels(tree.heads)
    top = max(above, default=1)
    figure = Figure(figsize=(max(width / 80, 3), 1.2 + 0.35 * top * (1 + bool(missed))), layout="constrained")
    panel = figure.subplots()
    for m, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True)):
        colour, height = _WRONG if m in missed else _RIGHT, above[m]
        if head == 0:
            panel.annotate("", (centers[m], 0), (centers[m], height), arrowprops={"arrowstyle": "->", "color": colour})
        else:
            middle, span = (centers[m] + centers[head - 1]) / 2, abs(centers[m] - centers[head - 1])
            panel.add_patch(Ellipse((middle, 0), span, 2 * height, theta1=0, theta2=180, color=colour))
            panel.plot([centers[m]], [0], marker="v", color=colour, markersize=4)
            if labelled:
                panel.text(middle, height, relation, ha="center", va="bottom", fontsize=7, color=colour)
    for m, head in missed.items():
        start = centers[head - 1] if head else centers[m]
        middle, span = (centers[m] + start) / 2, abs(centers[m] - start)
        panel.add_patch(Ellipse((middle, -1), span, top, theta1=180, theta2=360, color=_MISSED, linestyle="dashed"))
    for center, word, tag in zip(centers, sentence.words, sentence.upos, strict=True):
        panel.text(center, -0.2, f"{word}\n{tag}", ha="center", va="top", fontsize=8)
    panel.set(xlim=(0, width), ylim=(-1.2 - (top / 2 + 0.2 if missed else 0), top + 0.6))
    panel.axis("off")
    save_figure(path, figure, dpi=100)


def _missed(sentence: Sentence, tree: Tree) -> dict[int, int]:
    """The right heads of words that have a wrong one."""
    if sentence.tree is None:
        return {}
    pairs = zip(sentence.tree.heads, tree.heads, strict=True)
    return {m: gold for m, (gold, found) in enumerate(pairs) if gold != found}


def _centers(sentence: Sentence) -> tuple[list[float], float]:
    """Where the middle of each word is in the drawing, and the width of the drawing."""
    centers, at = [], _SPACE / 2
    for word, tag in zip(sentence.words, sentence.upos, strict=True):
        size = _LETTER * max(len(word), len(tag), 3)
        centers.append(at + size / 2)
        at += size + _SPACE
    return centers, at


def _arc(
    centers: Sequence[float],
    head: int,
    m: int,
    ground: float,
    height: float,
    colour: str,
    label: str,
    dashed: bool = False,
) -> Markup:
    """An arc from a head to a word, upwards for a negative height; a line for the root."""
    x, tip = centers[m], ground + (2 if height > 0 else -2)
    style = {"fill": "none", "stroke": colour, "stroke_width": "1.3", "stroke_dasharray": "4 3" if dashed else None}
    point = element("path", d=f"M{x:.1f},{tip} l-3.5,{6 if height > 0 else -6} h7 z", fill=colour)
    if head == 0:
        line = f"M{x:.1f},{tip} V{tip + height:.1f}"
        return joined([element("path", d=line, **style), point])
    begin = centers[head - 1] + (4 if x > centers[head - 1] else -4)
    line = f"M{begin:.1f},{tip} C{begin:.1f},{tip + height * 1.25:.1f} {x:.1f},{tip + height * 1.25:.1f} {x:.1f},{tip}"
    pieces = [element("path", d=line, **style), point]
    if label:
        middle, top = (begin + x) / 2, tip + height * 0.94 - 3
        pieces.append(
            element("text", label, x=f"{middle:.1f}", y=f"{top:.1f}", font_size=10, text_anchor="middle", fill=colour)
        )
    return joined(pieces)


def _name(sentence: Sentence, head: int) -> str:
    return f"{sentence.words[head - 1]} (word {head})" if head else "the root"
