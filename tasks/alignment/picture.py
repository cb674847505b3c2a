"""Pictures of an alignment: a grid of words, with the links that were found and those that should be."""

from collections.abc import Sequence
from pathlib import Path

from structsmooth.checkpoint import save_figure
from structsmooth.markup import LEGEND, Markup, Verdict, differences, element, joined
from structsmooth.tasks.alignment.data import Link, SentencePair

_SURE, _POSSIBLE, _FOUND = "#0072B2", "#56B4E9", "#D55E00"


def draw_alignment(pair: SentencePair, links: Sequence[Link], path: Path) -> None:
    """Save the grid of a sentence pair: squares for sure and possible links, dots for those that were found."""
    from matplotlib.figure import Figure  # slow to load, and not needed without a picture
    from matplotlib.patches import Rectangle

    rows, columns = len(pair.source), len(pair.target)
    figure = Figure(figsize=(1.5 + 0.25 * columns, 1.5 + 0.25 * rows), layout="constrained")
    panel = figure.subplots()
    for (i, j), colour, filled in (
        *((link, _SURE, True) for link in sorted(pair.sure or ())),
        *((link, _POSSIBLE, False) for link in sorted(pair.possible)),
    ):
        panel.add_patch(
            Rectangle((j - 0.45, i - 0.45), 0.9, 0.9, facecolor=colour if filled else "none", edgecolor=colour)
        )
    panel.plot([j for _, j in links], [i for i, _ in links], "o", color=_FOUND, markersize=6)
    panel.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal")
    panel.set_xticks(range(columns), pair.target, rotation=90)
    panel.set_yticks(range(rows), pair.source)
    panel.set_xticks([j + 0.5 for j in range(columns - 1)], minor=True)
    panel.set_yticks([i + 0.5 for i in range(rows - 1)], minor=True)
    panel.grid(which="minor", color="0.9", linewidth=0.5)
    panel.tick_params(which="both", length=0)
    save_figure(path, figure, dpi=100, bbox_inches="tight")


def pair_markup(pair: SentencePair, ranked: Sequence[tuple[float, Sequence[Link]]]) -> Markup:
    """A table of words with the links that are right, wrong or missed, and alternatives."""
    best = set(ranked[0][1])
    corner = element("td")
    head = [element("th", element("span", word), scope="col") for word in pair.target]
    rows = [
        element("tr", element("th", word, scope="row"), *(_cell(pair, (i, j), best) for j in range(len(pair.target))))
        for i, word in enumerate(pair.source)
    ]
    grid = element("table", element("thead", element("tr", corner, *head)), element("tbody", *rows), class_="grid")
    others = differences(ranked, lambda link: _words(pair, link))
    return joined([element("div", grid, class_="scroll"), LEGEND, others])


def _cell(pair: SentencePair, link: Link, found: set[Link]) -> Markup:
    kind = _verdict(pair, link, link in found)
    if kind is None:
        return element("td")
    signs = {"right": "✓", "wrong": "✗", "missed": "○", "plain": "●"}
    meaning = "linked" if kind == "plain" else kind
    return element("td", element("span", signs[kind], role="img", aria_label=meaning), class_=kind)


def _verdict(pair: SentencePair, link: Link, found: bool) -> Verdict | None:
    """What is known of the link of a pair of words; nothing where there is no link and should be none."""
    if pair.sure is None:
        return "plain" if found else None
    if found:
        return "right" if link in pair.sure | pair.possible else "wrong"
    return "missed" if link in pair.sure else None


def _words(pair: SentencePair, link: Link) -> str:
    source, target = link
    return f"{pair.source[source]} (word {source + 1}) → {pair.target[target]} (word {target + 1})"
