"""A picture of each structure: an example with its best output, and marginals where it has them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from structsmooth import (
    BinaryGraph,
    Candidates,
    DeformableTree,
    FactorGraph,
    HiddenMarkov,
    LinearChain,
    Matching,
    ProjectiveTree,
    Subwindows,
    Tree,
)
from structsmooth.factors import Automaton, grid_edges
from structsmooth.plots.panels import COLOURS
from structsmooth.structures import Accepted, Grammar, LowRankChain, Productions, SiblingTree

_BEST, _SECOND = COLOURS[1], COLOURS[5]
_HEIGHT, _DPI = 3.2, 110
_LABEL: dict[str, Any] = {"fontsize": 8, "bbox": {"color": "white", "pad": 0.5}}


def draw_all(folder: Path) -> None:
    """Draw every structure into a folder."""
    for name, draw in STRUCTURES.items():
        draw().savefig(folder / f"{name}.png", dpi=_DPI)


def chain() -> Figure:
    """Marginals of labels, with the best sequence."""
    states, length = 5, 16
    noise = torch.Generator().manual_seed(3)
    unary = 1.2 * torch.randn(1, length, states, generator=noise).double()
    smooth = -0.8 * (torch.arange(states)[:, None] - torch.arange(states)).abs().double()
    structure = LinearChain(unary, smooth)
    figure, (left, right) = _panels("unary scores", "marginals, and the best sequence of labels")
    left.imshow(unary[0].T.numpy(), aspect="auto", cmap="Greys")
    right.imshow(structure.marginals()[0][0].T.numpy(), aspect="auto", cmap="Blues", vmin=0, vmax=1)
    right.plot(structure.max()[1][0].numpy(), "o-", color=_BEST)
    for panel in (left, right):
        panel.set(xlabel="position", ylabel="label")
    return figure


def tree() -> Figure:
    """Probabilities of the labels of the nodes of a tree, with the best labels."""
    parents = torch.tensor([[-1, 0, 0, 1, 1, 2, 2, 2]])
    places = np.array([[3, 3], [1.2, 2], [4.8, 2], [0.4, 1], [2, 1], [3.6, 1], [4.8, 1], [6, 1]])
    unary = torch.randn(1, 8, 3, generator=torch.Generator().manual_seed(4)).double()
    structure = Tree(unary, 0.6 * torch.eye(3).double().expand(1, 8, 3, 3), parents)
    best, marginals = structure.max()[1][0].tolist(), structure.marginals()[0][0].numpy()
    figure, (left, right) = _panels("best labels", "marginals")
    for panel in (left, right):
        for node, parent in enumerate(parents[0].tolist()):
            if parent >= 0:
                panel.plot(*places[[node, parent]].T, color="0.7", zorder=0)
        panel.set(xlim=(-0.4, 6.8), ylim=(0.5, 3.5))
    left.scatter(*places.T, s=420, c=[COLOURS[label] for label in best])
    for label, place in zip(best, places, strict=True):
        left.text(*place, str(label), color="white", ha="center", va="center")
    for (x, y), shares in zip(places, marginals, strict=True):
        for label, (share, below) in enumerate(zip(shares, shares.cumsum() - shares, strict=True)):
            right.add_patch(Rectangle((x - 0.3, y - 0.3 + 0.6 * below), 0.6, 0.6 * share, color=COLOURS[label]))
    return figure


def deformable_tree() -> Figure:
    """Scores of places of one joint, and the best places of all."""
    names, parents = ("head", "chest", "left hand", "right hand", "feet"), torch.tensor([-1, 0, 1, 1, 1])
    anchors = torch.tensor([[0.0, 0], [0, 9], [-10, 2], [10, 2], [0, 16]]).double()
    true = np.array([[20, 7], [21, 16], [9, 21], [30, 12], [22, 33]])
    scores = _bumps(true, (40, 40), noise=0.9)
    scores[0, 2] += 1.8 * _bumps(np.array([[33, 33]]), (40, 40), noise=0.0)[0, 0]  # another person's hand
    structure = DeformableTree(scores, torch.tensor([[0, 0.03, 0, 0.03]]).double().expand(5, 4), parents, anchors)
    found = structure.coordinates(structure.max()[1])[0].numpy()
    figure, (left, right) = _panels("scores of the left hand alone", "all joints, held by springs")
    left.imshow(scores[0, 2].numpy(), cmap="Greys")
    left.plot(*divmod(int(scores[0, 2].T.argmax()), 40), "X", color=COLOURS[4], label="best alone")
    left.plot(*found[2], "o", color=_BEST, label="best pose")
    left.legend(loc="upper right", fontsize=8)
    right.imshow(scores[0].amax(0).numpy(), cmap="Greys")
    for name, place, parent in zip(names, found, parents.tolist(), strict=True):
        if parent >= 0:
            right.plot(*np.stack([place, found[parent]]).T, "o-", color=_BEST, linewidth=2)
        right.annotate(name, place, (6, -12), textcoords="offset points", **_LABEL)
    return figure


def candidates() -> Figure:
    """Boxes by their probabilities."""
    rng = np.random.default_rng(1)
    image = rng.normal(0.35, 0.08, (60, 100))
    image[18:46, 38:74] += 0.4
    corners = np.array([38, 18, 74, 46]) + rng.normal(0, 9, (24, 4)).round()
    score = [12 * _iou(box, np.array([38, 18, 74, 46])) for box in corners]
    structure = Candidates(torch.tensor([score]).double())
    best, marginals = int(structure.max()[1]), structure.marginals()[0][0]
    figure, (left, right) = _panels("proposed boxes", "by their probability, the best one in orange")
    for panel in (left, right):
        panel.imshow(image, cmap="gray", vmin=0, vmax=1)
    for number, (box, p) in enumerate(zip(corners, (marginals / marginals.max()).tolist(), strict=True)):
        left.add_patch(_box(box, COLOURS[5], 0.8))
        right.add_patch(_box(box, _BEST if number == best else COLOURS[5], 1.0 if number == best else p))
    return figure


def binary_graph() -> Figure:
    """Object and background of a noisy picture, by a graph cut."""
    size = 48
    rows, columns = np.indices((size, size))
    truth = ((rows - 24) ** 2 / 260 + (columns - 22) ** 2 / 150 < 1) | ((rows > 30) & (rows < 40) & (columns > 8))
    noisy = truth + np.random.default_rng(0).normal(0, 0.9, truth.shape)
    score = torch.from_numpy(2 * noisy - 1).reshape(1, -1)
    edges = grid_edges(size, size)
    same = 1.3 * torch.eye(2).double().expand(1, len(edges), 2, 2)
    structure = BinaryGraph(torch.stack([torch.zeros_like(score), score], -1), edges, same)
    margins = structure.max_marginals()[0].diff(dim=-1).reshape(size, size)
    figure, (left, middle, right) = _panels("noisy picture", "best labels", "margins of the labels")
    left.imshow(noisy, cmap="gray")
    middle.imshow(structure.max()[1].reshape(size, size).numpy(), cmap="gray")
    right.imshow(margins.numpy(), cmap="PuOr", vmin=-6, vmax=6)
    return figure


def factor_graph() -> Figure:
    """Three labels of regions of a noisy picture."""
    height, width = 6, 14
    truth = np.zeros((height, width), dtype=np.int64)
    truth[:, 5:] = 1
    truth[3:, 3:11] = 2
    scores = 1.0 * np.eye(3)[truth] + np.random.default_rng(2).normal(0, 0.7, (height, width, 3))
    unary = torch.from_numpy(scores.reshape(1, -1, 3))
    edges = grid_edges(height, width)
    structure = FactorGraph(unary, edges, 0.7 * torch.eye(3).double())
    probabilities = structure.marginals()[0][0].amax(-1).reshape(height, width)
    figure, (left, middle, right) = _panels("best labels alone", "best labels together", "largest marginals")
    colours = ListedColormap(COLOURS[:3])
    left.imshow(unary[0].argmax(-1).reshape(height, width).numpy(), cmap=colours)
    middle.imshow(structure.max()[1].reshape(height, width).numpy(), cmap=colours)
    figure.colorbar(right.imshow(probabilities.numpy(), cmap="Blues", vmin=0, vmax=1), ax=right, shrink=0.6)
    return figure


def matching() -> Figure:
    """Points of two kinds, matched by their distances."""
    rng = np.random.default_rng(5)
    first = rng.uniform(0, 1, (12, 2)) * [2, 1]
    second = first[rng.permutation(12)] + rng.normal(0, 0.13, (12, 2))
    weights = torch.from_numpy(-((first[:, None] - second) ** 2).sum(-1))[None]
    values, y = Matching(weights).topk(2)
    behind = float(values[0, 0] - values[0, 1])
    figure, (left, right) = _panels(
        "nearest point of each", f"best matching; the second, dashed, is {behind:.3f} behind"
    )
    pairs = ((left, weights[0].argmax(1), "-", "0.5"), (right, y[0, 1], "--", _SECOND), (right, y[0, 0], "-", _BEST))
    for panel, partners, style, colour in pairs:
        panel.plot(*np.stack([first, second[partners]]).transpose(2, 0, 1), style, color=colour, linewidth=1.5)
    for panel in (left, right):
        panel.plot(*first.T, "o", color=COLOURS[0])
        panel.plot(*second.T, "s", color=COLOURS[2])
        panel.set(aspect="equal")
    return figure


def subwindows() -> Figure:
    """The best boxes of a map of scores."""
    size = (60, 100)
    scores = _bumps(np.array([[34, 26], [44, 34], [72, 20]]), size, noise=0.3).sum(1) - 0.45
    boxes = Subwindows(scores).topk(2)[1][0].numpy()
    figure, (left, right) = _panels("scores of points", "the box with the largest sum of scores")
    for panel in (left, right):
        panel.imshow(scores[0].numpy(), cmap="PuOr", vmin=-2, vmax=2)
    right.add_patch(_box(boxes[0] - 0.5, COLOURS[6], 1.0))
    return figure


def hidden_markov() -> Figure:
    """States behind a noisy signal, a part of which is missing."""
    means, stay = torch.tensor([0.0, 2.0, 4.0]).double(), 0.94
    signal = torch.tensor([0] * 30 + [2] * 25 + [1] * 35).double() * 2
    signal = signal + torch.randn(90, generator=torch.Generator().manual_seed(0)).double()
    emission = -((signal[:, None] - means) ** 2) / 2
    emission[60:70] = 0  # not observed
    transition = torch.full((3, 3), (1 - stay) / 2).double().fill_diagonal_(stay).log()
    structure = HiddenMarkov(torch.zeros(3).double(), transition, emission[None])
    figure, (left, right) = _panels("a signal, and Viterbi's path", "posteriors of states")
    seen = np.r_[:60, 70:90]
    left.plot(seen, signal[seen].numpy(), ".", color="0.5")
    left.plot(means[structure.max()[1][0]].numpy(), drawstyle="steps-mid", color=_BEST)
    right.stackplot(np.arange(90), structure.marginals()[0][0].T.numpy(), colors=COLOURS[:3])
    for panel in (left, right):
        panel.axvspan(60, 70, color="0.85", alpha=0.6)
        panel.set(xlim=(0, 89), xlabel="time")
    return figure


def accepted() -> Figure:
    """Frames aligned to a word with two pronunciations."""
    phones = ["t", "ah", "m", "ey", "aa", "t2", "ow"]
    spoken = np.repeat([0, 1, 2, 4, 5, 6], [3, 5, 4, 8, 3, 7])
    frames = 0.9 * torch.randn(1, len(spoken), 7, generator=torch.Generator().manual_seed(1)).double()
    frames[0, torch.arange(len(spoken)), torch.from_numpy(spoken)] += 1.2
    word = Automaton.from_pattern("t+ ah+ m+ (ey+ | aa+) t2+ ow+", phones)
    structure = Accepted(LinearChain(frames, torch.zeros(7, 7).double()), word)
    figure, (left, right) = _panels("scores of phones, the best of each frame", "marginals and the best alignment")
    left.imshow(frames[0].T.numpy(), aspect="auto", cmap="Greys")
    left.plot(frames[0].argmax(1).numpy(), "o", color=_SECOND, markersize=4)
    right.imshow(structure.marginals()[0][0].T.numpy(), aspect="auto", cmap="Blues", vmin=0, vmax=1)
    right.plot(structure.max()[1][0].numpy(), "o-", color=_BEST, markersize=4)
    for panel in (left, right):
        panel.set_yticks(range(7), phones)
        panel.set_xlabel("frame")
    return figure


def low_rank() -> Figure:
    """Marginals of 200 labels, whose transitions are smooth and of rank 12."""
    label, rank = torch.arange(200).double()[:, None], torch.linspace(0, 200, 12).double()
    near = -((label - rank) ** 2) / 600
    truth = 100 + 70 * torch.sin(torch.arange(60) / 7)
    noise = torch.randn(60, 1, generator=torch.Generator().manual_seed(0)).double()
    unary = -((label.T - truth[:, None] - 25 * noise) ** 2) / 2000
    structure = LowRankChain(unary[None], near.log_softmax(1), near.T.log_softmax(1))
    figure, (left, right) = _panels("transitions of 200 labels, of rank 12", "marginals, and the best labels")
    left.imshow(structure.dense().transition.exp().numpy(), cmap="Blues", interpolation="nearest")
    right.imshow(structure.class_marginals()[0].T.sqrt().numpy(), aspect="auto", cmap="Blues", interpolation="nearest")
    right.plot(structure.dense().max()[1][0].numpy(), color=_BEST, linewidth=1)
    left.set(xlabel="next label", ylabel="label")
    right.set(xlabel="position", ylabel="label")
    return figure


def grammar() -> Figure:
    """The best tree of an ambiguous sentence, and the probabilities of its constituents."""
    symbols = ["Det", "Noun", "Verb", "Prep", "NP", "PP", "VP", "S"]
    rules = ["NP Det Noun", "NP Noun", "NP NP PP", "PP Prep NP", "VP Verb NP", "VP VP PP", "S NP VP"]
    words, tags = ["she", "saw", "the", "stars", "with", "telescopes"], [1, 2, 0, 1, 3, 1]
    lexical = torch.where(torch.tensor(tags)[:, None] == torch.arange(4), 0.0, -torch.inf)[None]
    start = torch.where(torch.arange(8) == 7, 0.0, -torch.inf)
    productions = Productions([[symbols.index(symbol) for symbol in rule.split()] for rule in rules])
    scores = torch.tensor([0.0, 0, -0.5, 0, 0, 0.3, 0])
    structure = Grammar(scores, lexical, start, productions=productions)
    figure, (left, right) = _panels("the best tree", "probabilities of constituents")
    for panel in (left, right):
        panel.set(xlim=(0, 6), ylim=(-0.8, 6), yticks=[], xticks=np.arange(6) + 0.5, xticklabels=words)
    best, shares = structure.max()[1][0], structure.marginals()[3][0]
    for i, j, symbol in (shares > 0).nonzero().tolist():
        chosen, share, name = symbol in best[i, j], float(shares[i, j, symbol]), symbols[symbol]
        up = j - i + (0.3 if name == "NP" and i == j else -0.3 if i == j else 0)
        right.plot([i + 0.1, j + 0.9], [up, up], color=COLOURS[0], alpha=share, linewidth=2)
        right.text((i + j + 1) / 2, up, f"{name} {share:.0%}", ha="center", va="center", **_LABEL)
        if chosen:
            left.plot([i + 0.1, j + 0.9], [up, up], color=_BEST, linewidth=2)
            left.text((i + j + 1) / 2, up, name, ha="center", va="center", **_LABEL)
    return figure


def sibling_tree() -> Figure:
    """The best tree of arcs alone, and with scores of siblings."""
    words = ["dogs", "cats", "chase", "mice"]
    arcs, root = torch.zeros(1, 4, 4), torch.tensor([[0.0, 0, 3, 0]])
    arcs[0, 2, [0, 1, 3]] = 1.0  # to the verb
    arcs[0, 1, 0] = 0.5
    siblings = torch.zeros(1, 4, 4, 4)
    siblings[0, 2, 1, 0] = -2.0  # two modifiers of a verb on its left
    trees = ProjectiveTree(arcs, root), SiblingTree(arcs, siblings, root)
    figure, panels = _panels("arcs alone", "arcs and siblings")
    for panel, structure in zip(panels, trees, strict=True):
        panel.set(xlim=(-0.5, 3.5), ylim=(-0.1, 2), xticks=range(4), xticklabels=words)
        panel.plot(range(4), [0] * 4, "o", color=_BEST)
        for m, head in enumerate(structure.max()[1][0].tolist()):
            ends = ((m, 1.8), (m, 0)) if head == 0 else ((head - 1, 0), (m, 0))
            bend = "arc3" if head == 0 else f"arc3,rad={0.5 if head - 1 > m else -0.5}"
            arrow = {"arrowstyle": "->", "connectionstyle": bend, "color": _BEST, "linewidth": 2}
            panel.annotate("", ends[1], ends[0], arrowprops=arrow)
    return figure


STRUCTURES: dict[str, Callable[[], Figure]] = {
    draw.__name__: draw
    for draw in (
        *(chain, hidden_markov, accepted, low_rank, tree, deformable_tree, candidates, binary_graph, factor_graph),
        *(matching, subwindows, grammar, sibling_tree),
    )
}
"""The functions that draw each structure, by its name."""


def _panels(*titles: str) -> tuple[Figure, Any]:
    """A figure with a panel for each title, without ticks."""
    figure = Figure(figsize=(9, _HEIGHT), layout="constrained")
    panels = figure.subplots(1, len(titles))
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title, fontsize=10)
        panel.set(xticks=[], yticks=[])
    return figure, panels


def _box(edges: NDArray[np.float64], colour: str, opacity: float) -> Rectangle:
    xmin, ymin, xmax, ymax = edges
    return Rectangle((xmin, ymin), xmax - xmin, ymax - ymin, fill=False, color=colour, alpha=opacity, linewidth=2)


def _iou(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Intersection over union of two boxes."""
    inner = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    common = float(inner.clip(0).prod())
    return common / (float((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod()) - common)


def _bumps(places: NDArray[np.int64], size: tuple[int, int], noise: float) -> Tensor:
    """A map of scores for each place (x, y), large near it, with noise: [1, places, *size]."""
    rows, columns = np.indices(size)
    distances = (columns - places[:, 0, None, None]) ** 2 + (rows - places[:, 1, None, None]) ** 2
    bumps = 3 * np.exp(-distances / 20)
    return torch.from_numpy(bumps + np.random.default_rng(0).normal(0, noise, bumps.shape))[None]
