"""A picture of the label graph: labels around a circle, with the learned weights of their pairs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from structsmooth.checkpoint import save_figure
from structsmooth.markup import Block, Matrix, Table
from structsmooth.models.label_sets import spanning_tree

# Of the palette of Okabe and Ito, which colour-blind readers can tell apart.
_TOGETHER, _APART = "#0072B2", "#D55E00"
# Width of the line of the largest weight, in points.
_WIDEST = 4.0
# Pairs that a table shows in each direction, and labels that a matrix of pairs may have.
_LISTED, _MOST_LABELS = 8, 60


def draw_label_graph(
    labels: Sequence[str], edges: Sequence[tuple[int, int]], weights: Sequence[float], path: Path
) -> None:
    """Save a picture of the pairs (a, b) of labels: the larger the absolute weight, the wider and darker the line."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba
    from matplotlib.figure import Figure  # slow to load, and not needed without a picture

    strength = np.abs(weights) / max(np.abs(weights).max(initial=0.0), 1e-300)
    order = around(len(labels), edges, strength)
    angles = 2 * np.pi * np.argsort(order) / len(labels)
    places = np.stack([np.cos(angles), np.sin(angles)], 1)
    rising = np.argsort(strength)  # so that large weights lie above small ones
    colours = [to_rgba(_TOGETHER if weights[e] > 0 else _APART, 0.1 + 0.9 * strength[e]) for e in rising]
    figure = Figure(figsize=(7 + len(labels) / 40,) * 2, layout="constrained")
    panel = figure.subplots()
    panel.add_collection(
        LineCollection([places[list(edges[e])] for e in rising], colors=colours, linewidths=_WIDEST * strength[rising])
    )
    panel.plot(*places.T, "o", color="black", markersize=3)
    size = float(np.clip(600 / len(labels), 4, 10))
    for name, angle, place in zip(labels, np.degrees(angles), 1.04 * places, strict=True):
        left = 90 < angle < 270
        text = panel.text(place[0], place[1], name, fontsize=size, rotation=angle - 180 * left)
        text.set(ha="right" if left else "left", va="center", rotation_mode="anchor")
    panel.set_aspect("equal")
    panel.axis("off")
    largest, smallest = max([0.0, *weights]), min([0.0, *weights])
    for colour, meaning, extreme in ((_TOGETHER, "together", largest), (_APART, "apart", smallest)):
        panel.plot([], [], color=colour, label=f"{meaning}, weights to {extreme:+.3g}")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    save_figure(path, figure, dpi=150)


def pair_blocks(labels: Sequence[str], edges: Sequence[tuple[int, int]], weights: Sequence[float]) -> list[Block]:
    """The largest scores of pairs of labels in a table, and all in a matrix unless labels are too many."""
    if not edges:
        return []
    ordered = sorted(zip(weights, edges, strict=True))
    chosen = [*ordered[::-1][:_LISTED], *ordered[:_LISTED][::-1]] if len(ordered) > 2 * _LISTED else ordered[::-1]
    rows = [(f"{labels[a]} and {labels[b]}", f"{weight:+.3g}") for weight, (a, b) in chosen]
    table = Table("Pairs of labels with the largest scores in either direction", ("pair", "score together"), rows)
    if len(labels) > _MOST_LABELS:
        return [table]
    values = np.full((len(labels), len(labels)), np.nan)
    for weight, (a, b) in ordered:
        values[a, b] = values[b, a] = weight
    return [Matrix("Scores of pairs of labels", labels, labels, values, "label", "other label"), table]


def around(count: int, edges: Sequence[tuple[int, int]], strength: NDArray[np.float64]) -> list[int]:
    """An order of labels around a circle in which strong pairs are near: depth first along a strong spanning tree."""
    weights = np.zeros((count, count))
    for (a, b), weight in zip(edges, strength, strict=True):
        weights[a, b] = weights[b, a] = weight
    children: list[list[int]] = [[] for _ in range(count)]
    for a, b in spanning_tree(weights):
        children[a].append(b)
        children[b].append(a)
    order, waiting, seen = [], [0], {0}
    while waiting:
        v = waiting.pop()
        order.append(v)
        near = sorted((u for u in children[v] if u not in seen), key=lambda u: weights[v, u])
        waiting += near
        seen.update(near)
    return order
