"""Boxes in CSV files: annotations to read, and detections to write."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TextIO

from structsmooth.files import read_text
from structsmooth.tasks.localization.images import EDGES, AnnotatedImage, Box, BoxedObject, ImageFile, finite


def read_box_table(path: Path, folder: Path) -> list[AnnotatedImage]:
    """Images, in a folder, of a CSV file with the columns image, class, xmin, ymin, xmax, ymax; or image alone.

    Raises:
        ValueError: a malformed file, with path and line.
    """
    objects: dict[str, tuple[BoxedObject, ...] | None] = {}
    rows = csv.DictReader(read_text(path).splitlines(keepends=True))
    try:
        for name, entry in map(_entry, _checked(rows)):
            known = objects.setdefault(name, None)
            if entry is not None:
                objects[name] = (*(known or ()), entry)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path}:{max(rows.line_num, 1)}: {error}") from error
    return [AnnotatedImage(name, ImageFile(str(folder / name)), known) for name, known in objects.items()]


def write_box_table(detections: Iterable[tuple[str, str, Box, float]], stream: TextIO) -> None:
    """Write image, class, edges and score of each box; :func:`read_box_table` reads this."""
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(["image", "class", *EDGES, "score"])
    for name, label, box, score in detections:
        rows.writerow([name, label, *(f"{edge:.6g}" for edge in box), f"{score:.6g}"])


def _checked(rows: "csv.DictReader[str]") -> "csv.DictReader[str]":
    columns = {*(rows.fieldnames or ())}
    if "image" not in columns or (columns & {*EDGES} and not columns >= {*EDGES, "class"}):
        raise ValueError("expected the columns image, class, xmin, ymin, xmax, ymax, or image alone")
    return rows


def _entry(row: Mapping[str, str | None]) -> tuple[str, BoxedObject | None]:
    name, label, edges = row["image"], row.get("class"), [row.get(edge) for edge in EDGES]
    if not name:
        raise ValueError("expected the name of an image")
    if not any(edges):
        return name, None
    if not (label and all(edges)):
        raise ValueError("expected a class and four edges, or no edges")
    xmin, ymin, xmax, ymax = map(finite, edges)
    return name, BoxedObject(label, (xmin, ymin, xmax, ymax))
