"""Segmentation of images into an object and its background, by graph cuts over superpixels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.markup import Block, Markup, Matrix, alternatives, joined, views
from structsmooth.messages import tracked
from structsmooth.models.superpixels import SuperpixelScore, balanced_cost
from structsmooth.problems import LinearModuleProblem
from structsmooth.settings import PositiveInt
from structsmooth.tasks.base import FittedTask, LastResultCache, Predictions, Split, Task, best_outputs, labelled
from structsmooth.tasks.images import embedded, read_listed, save_png, stretches, unrolled
from structsmooth.tasks.segmentation.pictures import Picture, overlay, read_pictures
from structsmooth.tasks.segmentation.shown import pairwise_matrix, unary_blocks
from structsmooth.tasks.segmentation.superpixels import Superpixels, Vocabulary

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class FittedSegmentation(FittedTask):
    """A segmenter with its vocabulary of colours and textures."""

    task: "Segmentation"
    vocabulary: Vocabulary

    example_type: ClassVar[type] = Picture
    input_json: ClassVar[Mapping[str, str]] = {"image": "name"}

    def problem(self, examples: Sequence[Picture]) -> LinearModuleProblem:
        """Structural hinge losses with pairwise weights that are not negative."""
        data = []
        for picture, encoded in zip(examples, self._encoded(examples), strict=True):
            covered = encoded.parts.counts(_truth(picture))
            data.append((encoded.x, torch.from_numpy(2 * covered > encoded.parts.sizes).long()))
        module = self._module()
        return LinearModuleProblem(module, data, balanced_cost, bounds=module.bounds(), chunk_size=1)

    def predict(self, weights: Tensor, examples: Sequence[Picture], k: int = 1) -> Predictions:
        """The k best segmentations of each image with their scores: bool [H, W]."""
        encoded = self._encoded(examples)
        inputs = (tuple(t.unsqueeze(0) for t in picture.x) for picture in encoded)
        found = zip(encoded, best_outputs(self._module(), weights, inputs, k), strict=True)
        return [[(score, y.numpy()[picture.parts.labels] == 1) for score, y in ranked] for picture, ranked in found]

    def measure(self, examples: Sequence[Picture], outputs: Sequence[Mask]) -> tuple[dict[str, float], str]:
        """Intersection over union of the object, and accuracy, in pixels; means over images."""
        ious, accuracies = [], []
        for picture, output in zip(examples, outputs, strict=True):
            truth = _truth(picture)
            ious.append((truth & output).sum() / (truth | output).sum())
            accuracies.append((truth == output).mean())
        metrics = {"iou": float(np.mean(ious)), "accuracy": float(np.mean(accuracies))}
        table = "\n".join(f"{name:9} {100 * value:6.2f} %" for name, value in metrics.items())
        return metrics, f"{table}\nimages    {len(ious):6}"

    def output_to_json(self, output: Mask) -> dict[str, Any]:
        """The ``size`` [height, width] of a mask, and ``runs``: lengths of background and object in turns, by rows."""
        values, lengths = stretches(output)
        return {"size": list(output.shape), "runs": [0] * bool(values[0]) + lengths.tolist()}

    def output_from_json(self, values: Mapping[str, Any]) -> Mask:
        """The inverse of :meth:`output_to_json`."""
        return unrolled(np.arange(len(values["runs"])) % 2 == 1, values["runs"], values["size"])

    def save_mask(self, output: Mask, path: Path) -> None:
        """Save a picture that is 0 on the background and 255 on the object."""
        save_png(path, 255 * output.astype(np.uint8))

    def draw(self, examples: Sequence[Picture], predictions: Predictions, folder: Path) -> None:
        """A PNG file of each image: its best segmentation in green, the outline of its mask in red."""
        folder.mkdir(parents=True, exist_ok=True)
        for picture, ranked in zip(examples, predictions, strict=True):
            save_png(folder / f"{picture.name}.png", overlay(picture, ranked[0][1]))

    def show_example(self, example: Picture, ranked: Sequence[tuple[float, Mask]]) -> Markup:
        """The image beside its best segmentation in green, with the outline of its mask in red."""
        best = ranked[0][1]
        outlined = "" if example.mask is None else ", true outline in red"
        shown = views(
            (example.name, embedded(example.image, example.name)),
            (f"object in green{outlined}", embedded(overlay(example, best), f"segmentation of {example.name}")),
        )
        return joined([shown, alternatives(ranked, lambda mask: f"{(mask != best).sum():,} other pixels")])

    def show_results(self, examples: Sequence[Picture], outputs: Sequence[Mask]) -> list[Block]:
        """Numbers of pixels by true and by predicted label."""
        counts = np.zeros((2, 2), dtype=np.int64)
        for picture, output in zip(examples, outputs, strict=True):
            counts += np.bincount(2 * _truth(picture).ravel() + output.ravel(), minlength=4).reshape(2, 2)
        names = ["background", "object"]
        return [Matrix("Pixels by gold and predicted label", names, names, counts, "gold", "predicted", counts=True)]

    def show_weights(self, weights: Tensor, examples: Sequence[Picture]) -> list[Block]:
        """Weights of colours and places, and of borders if they have scores."""
        unary, pairwise = weights.tensor_split([self.vocabulary.unary_size])
        blocks = unary_blocks(self.vocabulary, unary)
        return [*blocks, pairwise_matrix(pairwise)] if self.task.pairwise else blocks

    @property
    def dim(self) -> int:
        """Weights of superpixels, and of borders if they have scores."""
        return self.vocabulary.unary_size + (self.vocabulary.pairwise_size if self.task.pairwise else 0)

    def _module(self) -> SuperpixelScore:
        return SuperpixelScore(self.vocabulary.unary_size, self.vocabulary.pairwise_size if self.task.pairwise else 0)

    @cached_property
    def _encoded(self) -> "LastResultCache[list[_Encoded]]":
        return LastResultCache(lambda examples: [self._encode(picture) for picture in tracked(examples, "features")])

    def _encode(self, picture: Picture) -> "_Encoded":
        parts = Superpixels.of(picture.image)
        features = self.vocabulary.features(picture.image, parts)
        if not self.task.pairwise:
            features = features._replace(pairwise=features.pairwise[:, :0])
        return _Encoded(parts, tuple(map(torch.from_numpy, features)))


@dataclass(frozen=True)
class Segmentation(Task):
    """Object and background of images: linear scores of superpixels and of their borders, and graph cuts.

    Args:
        pairwise: scores of borders, which favour one label on both sides of a border without contrast; otherwise each
            superpixel is labelled by itself.
        colours: size of the vocabulary of colours.
        textures: size of the vocabulary of textures.

    Reference:
        Osokin et al. (2016), Appendix I.3.
    """

    pairwise: bool = True
    colours: PositiveInt = 64
    textures: PositiveInt = 256

    summary: ClassVar[str] = "object and background of images: graph cuts over superpixels"
    files: ClassVar[str] = (
        "A folder or zip file with images/ and, of the same stems, masks/ (0 is background); PATH#1-200 "
        "selects images. Images alone to predict."
    )
    # The Weizmann horses (Borenstein and Ullman 2002).
    data: ClassVar[Mapping[str, str]] = {
        "train": "weizmann_horse/weizmann_horse_250.zip#1-200",
        "test": "weizmann_horse/weizmann_horse_250.zip#201-327",
    }
    example: ClassVar[str] = "--train 'horses.zip#1-200' --test 'horses.zip#201-250'"
    headline: ClassVar[str] = "iou"
    lam: ClassVar[str] = "10/n"
    passes: ClassVar[int] = 12
    solver: ClassVar[str] = "proximal-bcfw"
    hyperparameters: ClassVar[Mapping[str, Any]] = {"steps": "fw"}
    fitted_type: ClassVar[type[FittedTask]] = FittedSegmentation

    def read(self, path: str | TextIO, split: Split = "train") -> list[Picture]:
        """Pictures of a folder, zip file or image, or of paths on standard input.

        See :func:`~structsmooth.tasks.segmentation.pictures.read_pictures`.
        """
        return labelled(read_listed(path, read_pictures), split, _truth)

    def fit(self, examples: Sequence[Picture]) -> FittedSegmentation:
        """The segmenter with the vocabularies of colours and textures of training images."""
        images = [picture.image for picture in examples]
        return FittedSegmentation(self, Vocabulary.fit(images, self.colours, self.textures))


class _Encoded(NamedTuple):
    """An image as the score module takes it; ``x`` without the dimension of the batch."""

    parts: Superpixels
    x: tuple[Tensor, ...]


def _truth(picture: Picture) -> Mask:
    if picture.mask is None:
        raise ValueError(f"{picture.name} has no mask: training and evaluation need one for every image in masks/")
    return picture.mask
