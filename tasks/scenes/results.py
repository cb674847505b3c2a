"""How well the classes of pixels are predicted, and pictures of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.markup import Block, Markup, Matrix, Table, element, joined, swatch, views, weight_table
from structsmooth.tasks.images import cv2, embedded, save_png
from structsmooth.tasks.scenes.data import Scene
from structsmooth.tasks.scenes.graphs import EDGE_NAMES, Graph, edge_types_of, split_weights

Labels = NDArray[np.uint8]

# The share of an image that stays under its classes, the width of a legend, and the height of its lines, in pixels.
_OPACITY, _LEGEND, _LINE = 0.4, 110, 16
_VOID = (0, 0, 0)


def confusion(truth: Sequence[Labels], found: Sequence[Labels], classes: int) -> NDArray[np.int64]:
    """Numbers of pixels by true class and by predicted class, [C, C]; void pixels do not count."""
    counts = np.zeros(classes * classes, dtype=np.int64)
    for true, predicted in zip(truth, found, strict=True):
        known = true < classes
        cells = true[known].astype(np.int64) * classes + predicted[known]
        counts += np.bincount(cells, minlength=classes * classes)
    return counts.reshape(classes, classes)


def measures(counts: NDArray[np.int64]) -> dict[str, float]:
    """Share of correct pixels; means of the recall and of the intersection over union of classes that occur."""
    occurs = counts.sum(1) > 0
    if not occurs.any():
        raise ValueError("no pixel has a class: evaluation needs some")
    recall = counts.diagonal()[occurs] / counts.sum(1)[occurs]
    return {
        "pixel_accuracy": float(counts.trace() / counts.sum()),
        "mean_class_accuracy": float(recall.mean()),
        "mean_iou": float(_ious(counts)[occurs].mean()),
    }


def table(names: Sequence[str], counts: NDArray[np.int64]) -> str:
    """The metrics, and for each true class its IoU, and the classes that its pixels were given, in percent."""
    lines = [f"{name:20} {100 * value:6.2f} %" for name, value in measures(counts).items()]
    wide = max(5, *map(len, names))
    lines += ["", f"{'class':{wide}}    IoU |" + "".join(f" {name[:3]:>3}" for name in names)]
    shares = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
    for name, iou, row in zip(names, _ious(counts), shares, strict=True):
        cells = "".join(f" {share:3.0f}" if share >= 0.5 else "   ." for share in row)
        lines.append(f"{name:{wide}} {100 * iou:6.2f} |{cells}")
    return "\n".join(lines)


def save_overlay(path: Path, scene: Scene, found: Labels, names: Sequence[str]) -> None:
    """Save the image, the predicted classes in colours, the true ones if they are known, and a legend, side by side."""
    colours = _colours(names)
    shown = [found] if scene.labels is None else [found, scene.labels]
    picture = np.concatenate([scene.image, *(_tinted(scene, labels, names) for labels in shown)], 1)
    present = _present(shown, names)
    height = max(len(picture), _LINE * len(present) + 4)
    canvas = np.full((height, picture.shape[1] + _LEGEND, 3), 255, np.uint8)
    canvas[: len(picture), : picture.shape[1]] = picture
    left = picture.shape[1]
    for line, label in enumerate(present):
        top = 2 + _LINE * line
        cv2.rectangle(canvas, (left + 4, top + 2), (left + 15, top + 13), colours[label].tolist(), -1)
        cv2.putText(canvas, names[label], (left + 20, top + 12), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (0, 0, 0), 1)
    save_png(path, canvas)


def scene_markup(scene: Scene, found: Labels, names: Sequence[str]) -> Markup:
    """The image, the predicted classes in colours, the true ones if they are known, and a legend."""
    pictures = [(scene.name, embedded(scene.image, scene.name))]
    shown = {"predicted": found} | ({} if scene.labels is None else {"gold": scene.labels})
    for kind, labels in shown.items():
        pictures.append((f"{kind} classes", embedded(_tinted(scene, labels, names), f"{kind} classes of {scene.name}")))
    colours = _colours(names)[:, ::-1].tolist()
    legend = [swatch(colours[label], names[label]) for label in _present(list(shown.values()), names)]
    return joined([views(*pictures), element("p", *legend, class_="chips")])


def class_blocks(names: Sequence[str], counts: NDArray[np.int64]) -> list[Block]:
    """Recall, precision and IoU of each class, and which classes are taken for which."""
    right, true, found = counts.diagonal(), counts.sum(1), counts.sum(0)
    shares = (right / np.maximum(true, 1), right / np.maximum(found, 1), _ious(counts))
    rows = [(name, *(f"{share[i]:.1%}" for share in shares), f"{true[i]:,}") for i, name in enumerate(names) if true[i]]
    table = Table("Pixels by class", ("class", "recall", "precision", "IoU", "gold"), rows)
    return [table, Matrix("Pixels by gold and predicted class", names, names, counts, "gold", "predicted", counts=True)]


def palette(count: int) -> NDArray[np.uint8]:
    """Colours, BGR, that are far from each other: [count, 3]."""
    steps = np.arange(count)
    hsv = np.stack([180 * (steps * 0.618034 % 1), 255 - 90 * (steps % 2), 255 - 70 * (steps % 3)], 1)
    colours: NDArray[np.uint8] = cv2.cvtColor(hsv[None].astype(np.uint8), cv2.COLOR_HSV2BGR)[0]
    return colours


def _colours(names: Sequence[str]) -> NDArray[np.uint8]:
    """Colours of the classes and of void pixels, BGR: [C + 1, 3]."""
    return np.array([*palette(len(names)), _VOID], dtype=np.uint8)


def _tinted(scene: Scene, labels: Labels, names: Sequence[str]) -> NDArray[np.uint8]:
    """The image under the colours of the classes of its pixels, BGR."""
    colours = _colours(names)[np.minimum(labels, len(names))]
    tinted: NDArray[np.uint8] = (_OPACITY * scene.image + (1 - _OPACITY) * colours).astype(np.uint8)
    return tinted


def _present(shown: Sequence[Labels], names: Sequence[str]) -> list[int]:
    """The numbers of the classes that have pixels, true or predicted."""
    return sorted({int(label) for labels in shown for label in np.unique(labels) if label < len(names)})


def _ious(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    right = counts.diagonal()
    return np.asarray(right / np.maximum(counts.sum(0) + counts.sum(1) - right, 1))


def weight_blocks(classes: Sequence[str], weights: Tensor, graph: Graph) -> list[Block]:
    """Weights of the probabilities of classes, by level, and of the features of edges in a graph of some kind."""
    unary, pairwise = split_weights(weights.detach(), len(classes))
    level, above, constant = np.split(unary.numpy(), [len(classes), 2 * len(classes)], 2)
    alone = np.dstack([[level[0], above[1]], constant])
    columns, axes = [*classes, "constant"], ("scored class", "probable class")
    edge_types = edge_types_of(graph)
    blocks: list[Block] = [
        Matrix("Fine superpixels: weights of their own probabilities", classes, columns, alone[0], *axes),
        Matrix("Fine superpixels: weights of the coarse ones' probabilities", classes, classes, above[0], *axes),
    ]
    if 1 in edge_types:  # then coarse superpixels are nodes
        blocks.append(Matrix("Coarse superpixels: weights of probabilities", classes, columns, alone[1], *axes))
    if edge_types:
        names = [name for t in edge_types for name in EDGE_NAMES[t]]
        values = [weight for t in edge_types for weight in pairwise[t, : len(EDGE_NAMES[t])].tolist()]
        blocks.append(weight_table("Edges: scores of one class on both ends", ("edge", "feature"), names, values))
    return blocks
