"""A picture of an alignment: a grid of words, with the links that were found and those that should be."""

from collections.abc import Sequence
from pathlib import Path

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
    figure.savefig(path, dpi=100, bbox_inches="tight")
