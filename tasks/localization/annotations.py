"""Images with boxes around objects: PASCAL VOC, COCO and CSV files, and images without boxes."""

from __future__ import annotations

import csv
import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from structsmooth.tasks.files import split_part

_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
_EDGES = ("xmin", "ymin", "xmax", "ymax")
# Names that a report gives of each kind of fault.
_NAMED = 10

Box = tuple[float, float, float, float]
"""Edges (xmin, ymin, xmax, ymax) in pixels from the upper left corner of the image: the first pixel is from 0 to 1."""


class ImageFile(NamedTuple):
    """An image on disk: a file, or a member of a zip archive."""

    path: str
    member: str = ""

    def read_bytes(self) -> bytes:
        """The encoded image.

        Raises:
            OSError: it cannot be read.
        """
        try:
            if not self.member:
                return Path(self.path).read_bytes()
            return _archive(self.path, Path(self.path).stat().st_mtime_ns).read(self.member)
        except OSError as error:
            raise OSError(f"unreadable file ({error.strerror or error})") from error
        except (KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise OSError("missing, encrypted or damaged in the archive") from error

    def __str__(self) -> str:
        return self.member or self.path


class BoxedObject(NamedTuple):
    """An object in an image; ``difficult`` ones do not count."""

    label: str
    box: Box
    difficult: bool = False


@dataclass(frozen=True)
class AnnotatedImage:
    """An image and the objects in it; ``None`` where these are not known.

    Attributes:
        name: what reports and predictions call it.
        file: where it is.
        objects: what is in it.
    """

    name: str
    file: ImageFile
    objects: tuple[BoxedObject, ...] | None = None


@dataclass
class Faults:
    """What was wrong with which images; ``str()`` is a report."""

    names: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, name: str) -> None:
        """Note what is wrong with an image."""
        self.names.setdefault(reason, []).append(name)

    @contextmanager
    def noting(self, name: object) -> Iterator[None]:
        """A block that is about an image: what it raises because of a file or a value becomes a fault."""
        try:
            yield
        except (OSError, ValueError) as error:
            self.add(str(error), str(name))

    def update(self, others: Faults) -> None:
        """Note others too."""
        for reason, names in others.names.items():
            self.names.setdefault(reason, []).extend(names)

    def __bool__(self) -> bool:
        return bool(self.names)

    def __str__(self) -> str:
        return "\n".join(
            f"{reason}: {', '.join(names[:_NAMED])}" + f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
            for reason, names in self.names.items()
        )


def read_annotations(source: str | TextIO, folder: str | None = None) -> tuple[list[AnnotatedImage], Faults]:
    """Images that a path names, and what was wrong with others.

    - A folder or zip archive in the layout of PASCAL VOC (one or several ``VOC20xx`` with JPEGImages, Annotations and
      ImageSets/Main): all images with annotations, or those of a split, ``PATH#train``. Missing files and malformed
      annotations are faults of that image alone.
    - A JSON file as in COCO, or a CSV file with the columns image, class, xmin, ymin, xmax, ymax; see :data:`Box` for
      the edges. An image has a row for each object; rows without edges, and files without these columns, are images
      whose objects are not known. Malformed files are refused as a whole.
    - An image, a folder of images, or a stream with the path of an image per line: objects are not known.

    Args:
        source: path or stream.
        folder: of the images that JSON and CSV files name; that of the file itself if not given.

    Raises:
        FileNotFoundError: no such file, or no such split.
        ValueError: a malformed file, with path and line; or nothing of the above.
    """
    if not isinstance(source, str):
        paths = [line.strip() for line in source if line.strip()]
        return [AnnotatedImage(path, ImageFile(path)) for path in paths], Faults()
    path, split = split_part(source)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if path.is_dir() or zipfile.is_zipfile(path):
        root = path if path.is_dir() else zipfile.Path(path)
        years = _voc_years(root)
        if years:
            return _read_voc(source, years, split)
        if isinstance(root, zipfile.Path):
            raise ValueError(f"{path}: no folder with JPEGImages and Annotations in this archive")
    if split is not None:
        raise ValueError(f"{source}: only data in the layout of PASCAL VOC have splits")
    beside = path.parent if folder is None else Path(folder)
    if path.is_dir():
        return [_unlabelled(file) for file in sorted(path.iterdir()) if file.suffix.lower() in _SUFFIXES], Faults()
    if path.suffix.lower() in _SUFFIXES:
        return [_unlabelled(path)], Faults()
    readers = {".csv": _read_csv, ".json": _read_coco}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path}: expected a folder or zip archive, a .csv or .json file, or an image")
    return readers[path.suffix.lower()](path, beside), Faults()


def decode(data: bytes) -> NDArray[np.uint8]:
    """Pixels [height, width, 3] of an encoded image, RGB; marks of its orientation are ignored, as boxes do.

    Raises:
        ValueError: a corrupt image.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))
    except UnidentifiedImageError as error:  # its text is an address in memory
        raise ValueError("corrupt image (of no known format)") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"corrupt image ({error})") from error


def clip_box(box: Box, width: int, height: int) -> Box:
    """The part of a box that is in the image.

    Raises:
        ValueError: there is none.
    """
    xmin, ymin, xmax, ymax = box
    if not (xmin < xmax and ymin < ymax):
        raise ValueError("box without area")
    clipped = (max(xmin, 0.0), max(ymin, 0.0), min(xmax, float(width)), min(ymax, float(height)))
    if not (clipped[0] < clipped[2] and clipped[1] < clipped[3]):
        raise ValueError("box outside the image")
    return clipped


@lru_cache(maxsize=4)
def _archive(path: str, _modified: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


def _unlabelled(file: Path) -> AnnotatedImage:
    return AnnotatedImage(file.name, _file(file))


# PASCAL VOC.


def _voc_years(root: Path | zipfile.Path) -> list[Any]:
    """Folders with JPEGImages and Annotations: the root itself, or in it, or in its VOCdevkit."""
    devkit = root / "VOCdevkit"
    inside = [*root.iterdir(), *(devkit.iterdir() if devkit.is_dir() else [])]
    years = [year for year in [root, *inside] if (year / "JPEGImages").is_dir() and (year / "Annotations").is_dir()]
    return sorted(years, key=str)


def _read_voc(source: str, years: Sequence[Any], split: str | None) -> tuple[list[AnnotatedImage], Faults]:
    images, faults, found = [], Faults(), False
    for year in years:
        for name in _voc_names(year, split):
            found = True
            with faults.noting(name):
                images.append(_voc_image(year, name))
    if not found:
        splits = sorted({split for year in years for split in _voc_splits(year)})
        raise FileNotFoundError(f"{source}: no images of this split; there are {', '.join(splits) or 'none'}")
    return images, faults


def _voc_names(year: Any, split: str | None) -> list[str]:
    if split is None:
        return sorted(Path(file.name).stem for file in (year / "Annotations").iterdir() if file.name.endswith(".xml"))
    listing = year / "ImageSets" / "Main" / f"{split}.txt"
    if not listing.exists():
        return []
    # In the list of a class, numbers say whether it is in the image; annotations say so too.
    return [line.split()[0] for line in listing.read_text(encoding="utf-8").splitlines() if line.strip()]


def _voc_splits(year: Any) -> Iterator[str]:
    sets = year / "ImageSets" / "Main"
    names = [Path(file.name).stem for file in sets.iterdir()] if sets.is_dir() else []
    return (name for name in names if "_" not in name)


def _voc_image(year: Any, name: str) -> AnnotatedImage:
    annotation = year / "Annotations" / f"{name}.xml"
    image = year / "JPEGImages" / f"{name}.jpg"
    for kind, file in (("annotation", annotation), ("image", image)):
        if not file.exists():
            raise FileNotFoundError(f"missing {kind}")
    try:
        objects = tuple(map(_voc_object, _voc_objects(_file(annotation).read_bytes())))
    except (ElementTree.ParseError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"malformed annotation ({error})") from error
    return AnnotatedImage(name, _file(image), objects)


def _file(path: Any) -> ImageFile:
    return ImageFile(str(path.root.filename), path.at) if isinstance(path, zipfile.Path) else ImageFile(str(path))


def _voc_objects(annotation: bytes) -> list[Mapping[str, Any]]:
    from torchvision.datasets import VOCDetection

    root = ElementTree.fromstring(annotation)
    if root.tag != "annotation":
        raise ValueError("no element annotation")
    if root.find("object") is None:
        return []
    objects: list[Mapping[str, Any]] = VOCDetection.parse_voc_xml(root)["annotation"]["object"]
    return objects


def _voc_object(entry: Mapping[str, Any]) -> BoxedObject:
    """VOC counts pixels from 1, both ends included."""
    missing = {"name", "bndbox"} - entry.keys() or {*_EDGES} - entry["bndbox"].keys()
    if missing:
        raise ValueError(f"object without {', '.join(sorted(missing))}")
    xmin, ymin, xmax, ymax = (_finite(entry["bndbox"][edge]) for edge in _EDGES)
    return BoxedObject(entry["name"], (xmin - 1, ymin - 1, xmax, ymax), entry.get("difficult", "0") != "0")


# Files of one's own.


def _read_csv(path: Path, folder: Path) -> list[AnnotatedImage]:
    objects: dict[str, list[BoxedObject] | None] = {}
    with open(path, encoding="utf-8-sig", newline="") as stream:
        rows = csv.DictReader(stream)
        try:
            for name, entry in map(_csv_entry, _csv_rows(rows)):
                known = objects.setdefault(name, None)
                if entry is not None:
                    objects[name] = [*(known or ()), entry]
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path}:{max(rows.line_num, 1)}: {error}") from error
    return [
        AnnotatedImage(name, ImageFile(str(folder / name)), None if entries is None else tuple(entries))
        for name, entries in objects.items()
    ]


def _csv_rows(rows: csv.DictReader[str]) -> csv.DictReader[str]:
    columns = {*(rows.fieldnames or ())}
    if "image" not in columns or (columns & {*_EDGES} and not columns >= {*_EDGES, "class"}):
        raise ValueError("expected the columns image, class, xmin, ymin, xmax, ymax, or image alone")
    return rows


def _csv_entry(row: Mapping[str, str | None]) -> tuple[str, BoxedObject | None]:
    name, label, edges = row["image"], row.get("class"), [row.get(edge) for edge in _EDGES]
    if not name:
        raise ValueError("expected the name of an image")
    if not any(edges):
        return name, None
    if not (label and all(edges)):
        raise ValueError("expected a class and four edges, or no edges")
    xmin, ymin, xmax, ymax = map(_finite, edges)
    return name, BoxedObject(label, (xmin, ymin, xmax, ymax))


def _read_coco(path: Path, folder: Path) -> list[AnnotatedImage]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        labels = {entry["id"]: str(entry["name"]) for entry in data["categories"]}
        objects: dict[Any, list[BoxedObject]] = {entry["id"]: [] for entry in data["images"]}
        for entry in data["annotations"]:
            objects[entry["image_id"]].append(_coco_object(entry, labels))
        return [
            AnnotatedImage(entry["file_name"], ImageFile(str(folder / entry["file_name"])), tuple(objects[entry["id"]]))
            for entry in data["images"]
        ]
    except KeyError as error:
        raise ValueError(f"{path}: not annotations as in COCO, lacks {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not annotations as in COCO ({error})") from error


def _coco_object(entry: Mapping[str, Any], labels: Mapping[Any, str]) -> BoxedObject:
    left, top, width, height = map(_finite, entry["bbox"])
    box = (left, top, left + width, top + height)
    return BoxedObject(labels[entry["category_id"]], box, bool(entry.get("iscrowd", 0)))


def _finite(text: Any) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {text!r}")
    return number
