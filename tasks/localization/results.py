"""Metrics and pictures of detected boxes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from structsmooth.markup import Markup, Table, alternatives, joined, picture, views
from structsmooth.metrics import average_precision
from structsmooth.tasks.localization.examples import Detection, Example, overlaps
from structsmooth.tasks.localization.images import Box, decode

if TYPE_CHECKING:
    from PIL.Image import Image

# A box is right if its overlap with the true box is larger.
_RIGHT = 0.5
_COUNT = "images"


def localization_metrics(examples: Sequence[Example], detections: Sequence[Detection]) -> tuple[dict[str, float], str]:
    """CorLoc, mean IoU and average precision as means over classes, and a table with a row for each class.

    Raises:
        ValueError: none of the images has an object of the classes.
    """
    rows = _by_class(examples, detections)
    labels = list(rows)
    means = {name: sum(row[name] for row in rows.values()) / len(rows) for name in rows[labels[0]]}
    metrics = {name: value for name, value in means.items() if name != _COUNT}
    return metrics, _table(rows if len(rows) == 1 else rows | {"mean": means})


def class_table(examples: Sequence[Example], detections: Sequence[Detection]) -> Table:
    """The metrics of each class."""
    rows = _by_class(examples, detections)
    names = list(next(iter(rows.values())))
    cells = [
        (label, *(f"{value:.0f}" if name == _COUNT else f"{value:.1%}" for name, value in row.items()))
        for label, row in rows.items()
    ]
    return Table("Objects by class", ("class", *(name.replace("_", " ") for name in names)), cells)


def example_markup(example: Example, ranked: Sequence[tuple[float, Detection]]) -> Markup:
    """The image with the true box in green and the best detection in red, and alternatives."""
    image = picture(np.asarray(drawn(example, ranked[0][1])), f"{example.label} in {example.name}")
    true = "" if example.truth is None else ", true box in green"
    shown = views((f"{example.label} in {example.name}: found in red{true}", image))
    return joined([shown, alternatives(ranked, lambda detection: _described(example, detection))])


def save_picture(folder: Path, example: Example, detection: Detection) -> None:
    """Save the image with the true box in green and the detected box in red, with their overlap."""
    name = Path(example.name).with_suffix("").as_posix().replace("/", "_")
    drawn(example, detection).save(folder / f"{name}-{example.label}.png")


def drawn(example: Example, detection: Detection) -> "Image":
    """The image with the true box in green and the detected box in red, with their overlap."""
    from PIL import Image, ImageDraw

    canvas = Image.fromarray(decode(example.file.read_bytes()))
    pen = ImageDraw.Draw(canvas)
    text = f"{example.label} {detection.score:.3g}"
    if example.truth is not None:
        pen.rectangle(_corners(example.truth), outline="lime", width=2)
        text += f", IoU {overlap(example, detection):.2f}"
    pen.rectangle(_corners(detection.box), outline="red", width=2)
    corner = (detection.box[0] + 4, detection.box[1] + 4)
    pen.text(corner, text, fill="white", stroke_width=1, stroke_fill="black")
    return canvas


def overlap(example: Example, detection: Detection) -> float:
    """The intersection over union with the true box; 0 where there is none."""
    return 0.0 if example.truth is None else float(overlaps(torch.tensor([detection.box]), example.truth))


def _described(example: Example, detection: Detection) -> str:
    edges = ", ".join(f"{edge:.0f}" for edge in detection.box)
    return f"({edges})" + ("" if example.truth is None else f", IoU {overlap(example, detection):.2f}")


def _by_class(examples: Sequence[Example], detections: Sequence[Detection]) -> dict[str, dict[str, float]]:
    """The metrics of each class that images have."""
    labels = sorted({example.label for example in examples if example.truth is not None})
    if not labels:
        raise ValueError("none of these images has an object of the classes")
    pairs = list(zip(examples, detections, strict=True))
    return {label: _class_metrics([(e, d) for e, d in pairs if e.label == label]) for label in labels}


def _class_metrics(pairs: Sequence[tuple[Example, Detection]]) -> dict[str, float]:
    found = [overlap(example, detection) for example, detection in pairs]
    best = [float(overlaps(e.boxes, e.truth).max()) for e, _ in pairs if e.truth]
    right, scores, images = [share > _RIGHT for share in found], [d.score for _, d in pairs], len(best)
    return {
        _COUNT: images,
        "corloc": sum(right) / images,
        "mean_iou": sum(found) / images,
        "ap": average_precision(scores, right, images),
        "ap_11_points": average_precision(scores, right, images, points=11),
        "best_proposal_iou": sum(best) / images,
    }


def _table(rows: Mapping[str, Mapping[str, float]]) -> str:
    width = max(map(len, [*rows, "class"]))
    names = list(next(iter(rows.values())))
    lines = ["  ".join([f"{'class':{width}}", *names])]
    for label, row in rows.items():
        cells = [f"{row[name]:>{len(name)}.{0 if name == _COUNT else 4}f}" for name in names]
        lines.append("  ".join([f"{label:{width}}", *cells]))
    return "\n".join(lines)


def _corners(box: Box) -> Box:
    """The corners of a box as the centres of its outermost pixels, to draw its outline."""
    xmin, ymin, xmax, ymax = box
    return xmin, ymin, max(xmin, xmax - 1), max(ymin, ymax - 1)
