"""Images annotated in a JSON file as in COCO."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from structsmooth.files import read_json
from structsmooth.tasks.localization.images import AnnotatedImage, BoxedObject, ImageFile, finite


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
