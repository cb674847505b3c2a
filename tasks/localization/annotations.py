"""Images that a path names: in the layout of PASCAL VOC, COCO or CSV, or images without boxes."""

import csv
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from structsmooth.files import read_json, read_text, split_part
from structsmooth.tasks.images import File, images_of, is_image, read_listed
from structsmooth.tasks.localization.images import EDGES, AnnotatedImage, Box, BoxedObject, Faults, ImageFile, finite
from structsmooth.tasks.localization.voc import read_voc, voc_years


def read_annotations(source: str | TextIO, folder: str | None = None) -> tuple[list[AnnotatedImage], Faults]:
    """Images that a path names, and what is wrong with others.

    - A folder or zip archive in the layout of PASCAL VOC (one or several ``VOC20xx`` with JPEGImages, Annotations and
      ImageSets/Main): all images with annotations, or the images of a split, ``PATH#train``. Missing files and
      malformed annotations are faults of single images.
    - A JSON file as in COCO, or a CSV file with the columns image, class, xmin, ymin, xmax, ymax: edges in pixels from
      the upper left corner, the first pixel from 0 to 1. An image has a row for each object; rows without edges, and
      files without these columns, are images whose objects are not known. Malformed files are refused as a whole.
    - An image, a folder or zip archive of images, or a stream with the path of one of these per line: objects are not
      known.

    Args:
        source: path or stream.
        folder: of the images that JSON and CSV files name; by default the folder of the file itself.

    Raises:
        FileNotFoundError: no such file, or no such split.
        ValueError: a malformed file, with path and line; none of the above; or two images of one name.
    """
    if not isinstance(source, str):
        return read_listed(source, _at), Faults()
    path, split = split_part(source)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    root = _root(path)
    if root.is_dir():
        years = voc_years(root)
        if years:
            return read_voc(source, years, split)
        if split is None:
            return _unlabelled(root), Faults()
    if split is not None:
        raise ValueError(f"{source}: only data in the layout of PASCAL VOC have splits")
    beside = path.parent if folder is None else Path(folder)
    if is_image(path):
        return [_image(path)], Faults()
    readers = {".csv": read_box_table, ".json": read_coco}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path}: expected a folder or zip archive, a .csv or .json file, or an image")
    return readers[path.suffix.lower()](path, beside), Faults()


def _at(name: str) -> list[AnnotatedImage]:
    """The image at a path, or the images of a folder or archive there by their own names."""
    root = _root(Path(name))
    return _unlabelled(root) if root.is_dir() else [_image(root)]


def _root(path: Path) -> File:
    """The root of a zip archive, or else what is at the path."""
    return zipfile.Path(path) if zipfile.is_zipfile(path) else path


def _unlabelled(root: File) -> list[AnnotatedImage]:
    """The images of a folder or archive, in the order of their names."""
    return [_image(file) for _, file in sorted(images_of(root).items())]


def _image(file: File) -> AnnotatedImage:
    """An image whose objects are not known, which has the name of its file."""
    return AnnotatedImage(file.name, ImageFile.at(file))


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


def read_coco(path: Path, folder: Path) -> list[AnnotatedImage]:
    """Images, in a folder, of a JSON file; objects that are crowds are difficult.

    Raises:
        ValueError: a malformed file.
    """
    try:
        data = read_json(path)
        labels = {entry["id"]: str(entry["name"]) for entry in data["categories"]}
        objects: dict[Any, list[BoxedObject]] = {entry["id"]: [] for entry in data["images"]}
        for entry in data["annotations"]:
            objects[entry["image_id"]].append(_object(entry, labels))
        return [
            AnnotatedImage(entry["file_name"], ImageFile(str(folder / entry["file_name"])), tuple(objects[entry["id"]]))
            for entry in data["images"]
        ]
    except KeyError as error:
        raise ValueError(f"{path}: not annotations as in COCO, lacks {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not annotations as in COCO ({error})") from error


def _object(entry: Mapping[str, Any], labels: Mapping[Any, str]) -> BoxedObject:
    left, top, width, height = map(finite, entry["bbox"])
    box = (left, top, left + width, top + height)
    return BoxedObject(labels[entry["category_id"]], box, bool(entry.get("iscrowd", 0)))
