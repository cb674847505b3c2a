"""Examples of object localization, made from annotated images, their proposals and features."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.structures.candidates import intersection_over_union
from structsmooth.tasks.localization.box_features import BoxFeatures
from structsmooth.tasks.localization.images import AnnotatedImage, Box, BoxedObject, Faults, ImageFile, clip_box
from structsmooth.tasks.localization.proposals import Proposals, SelectiveSearch

Wanted = tuple[AnnotatedImage, str]
"""An image and the class to be found in it."""


class Detection(NamedTuple):
    """A box (xmin, ymin, xmax, ymax) in pixels, and the score that the model gives it."""

    box: Box
    score: float


@dataclass(frozen=True)
class Example:
    """An image in which an object of a class is to be found.

    Attributes:
        name: of the image.
        file: where it is.
        label: the class.
        boxes: the proposed boxes, [M, 4].
        features: file with their features.
        truth: the box of the object; ``None`` where there is no object of the class, or where it is not known.
        known: whether it is known.
    """

    name: str
    file: ImageFile
    label: str
    boxes: Tensor
    features: Path
    truth: Box | None
    known: bool


def wanted_examples(annotated: Sequence[AnnotatedImage], classes: Sequence[str], negatives: int) -> list[Wanted]:
    """Images with exactly one object of a class, difficult objects aside; and all images whose objects are not known.

    For each class, ``negatives`` images without it are added.
    """
    labelled = [(i, label) for label in classes for i in annotated if len(_objects(i, label)) == 1]
    unlabelled = [(i, label) for label in classes for i in annotated if i.objects is None]
    without = [(i, label) for label in classes for i in _images_without(annotated, label, negatives)]
    return labelled + unlabelled + without


def make_examples(
    wanted: Sequence[Wanted], search: SelectiveSearch, features: BoxFeatures, faults: Faults
) -> list[Example]:
    """Examples of the images that can be used; what is wrong with the others is added to the faults."""
    found, unsearched = search.run(list(dict.fromkeys(image.file for image, _ in wanted)))
    faults.update(unsearched)
    usable: list[tuple[AnnotatedImage, str, Box | None]] = []
    for image, label in wanted:
        if image.file in found:
            with faults.noting(image.name):
                usable.append((image, label, _truth(image, label, found[image.file], faults)))
    paths, unread = features.run({image.file: found[image.file] for image, _, _ in usable})
    faults.update(unread)
    return [
        Example(i.name, i.file, label, found[i.file].boxes, paths[i.file], truth, known=i.objects is not None)
        for i, label, truth in usable
        if i.file in paths
    ]


def overlaps(boxes: Tensor, box: Box) -> Tensor:
    """Intersection over union of boxes [M, 4] with another box: [M]."""
    return intersection_over_union(boxes, torch.as_tensor(box, dtype=boxes.dtype))


def _images_without(annotated: Sequence[AnnotatedImage], label: str, count: int) -> list[AnnotatedImage]:
    """So many of the images without the class, evenly spread."""
    without = [i for i in annotated if i.objects is not None and all(entry.label != label for entry in i.objects)]
    count = min(count, len(without))
    return [without[i * len(without) // count] for i in range(count)]


def _objects(image: AnnotatedImage, label: str) -> list[BoxedObject]:
    return [entry for entry in image.objects or () if entry.label == label and not entry.difficult]


def _truth(image: AnnotatedImage, label: str, found: Proposals, faults: Faults) -> Box | None:
    """The box of the object, within the image; ``None`` where there is no object."""
    if not len(found.boxes):
        raise ValueError("no boxes proposed")
    objects = _objects(image, label)
    if not objects:
        return None
    box = clip_box(objects[0].box, found.width, found.height)
    if box != objects[0].box:
        faults.add("box clipped to the image", image.name)
    return box
