"""Images annotated in the layout of PASCAL VOC."""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from structsmooth.files import read_text
from structsmooth.tasks.localization.images import EDGES, AnnotatedImage, BoxedObject, Faults, ImageFile, finite


def voc_years(root: Path | zipfile.Path) -> list[Any]:
    """Folders with JPEGImages and Annotations: the root itself, or folders in it or in its VOCdevkit."""
    devkit = root / "VOCdevkit"
    inside = [*root.iterdir(), *(devkit.iterdir() if devkit.is_dir() else [])]
    years = [year for year in [root, *inside] if (year / "JPEGImages").is_dir() and (year / "Annotations").is_dir()]
    return sorted(years, key=str)


def read_voc(source: str, years: Sequence[Any], split: str | None) -> tuple[list[AnnotatedImage], Faults]:
    """Images of all :func:`voc_years`, or of a list in their ``ImageSets/Main``, and what is wrong with others.

    Raises:
        FileNotFoundError: no such split.
    """
    images, faults, found = [], Faults(), False
    for year in years:
        for name in _names(year, split):
            found = True
            with faults.noting(name):
                images.append(_image(year, name))
    if not found:
        splits = sorted({split for year in years for split in _splits(year)})
        raise FileNotFoundError(f"{source}: no images of this split; there are {', '.join(splits) or 'none'}")
    return images, faults


def _names(year: Any, split: str | None) -> list[str]:
    if split is None:
        return sorted(Path(file.name).stem for file in (year / "Annotations").iterdir() if file.name.endswith(".xml"))
    listing = year / "ImageSets" / "Main" / f"{split}.txt"
    if not listing.exists():
        return []
    # In the list of a class, numbers say whether it is in the image; annotations say so too.
    return [line.split()[0] for line in read_text(listing).splitlines() if line.strip()]


def _splits(year: Any) -> Iterator[str]:
    sets = year / "ImageSets" / "Main"
    names = [Path(file.name).stem for file in sets.iterdir()] if sets.is_dir() else []
    return (name for name in names if "_" not in name)


def _image(year: Any, name: str) -> AnnotatedImage:
    annotation = year / "Annotations" / f"{name}.xml"
    image = year / "JPEGImages" / f"{name}.jpg"
    for kind, file in (("annotation", annotation), ("image", image)):
        if not file.exists():
            raise FileNotFoundError(f"missing {kind}")
    try:
        objects = tuple(map(_object, _objects(ImageFile.at(annotation).read_bytes())))
    except (ElementTree.ParseError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"malformed annotation ({error})") from error
    return AnnotatedImage(name, ImageFile.at(image), objects)


def _objects(annotation: bytes) -> list[Mapping[str, Any]]:
    from torchvision.datasets import VOCDetection

    root = ElementTree.fromstring(annotation)
    if root.tag != "annotation":
        raise ValueError("no element annotation")
    if root.find("object") is None:
        return []
    objects: list[Mapping[str, Any]] = VOCDetection.parse_voc_xml(root)["annotation"]["object"]
    return objects


def _object(entry: Mapping[str, Any]) -> BoxedObject:
    """A box of VOC, which counts pixels from 1 with both ends included, as edges from 0."""
    missing = {"name", "bndbox"} - entry.keys() or {*EDGES} - entry["bndbox"].keys()
    if missing:
        raise ValueError(f"object without {', '.join(sorted(missing))}")
    xmin, ymin, xmax, ymax = (finite(entry["bndbox"][edge]) for edge in EDGES)
    return BoxedObject(entry["name"], (xmin - 1, ymin - 1, xmax, ymax), entry.get("difficult", "0") != "0")
