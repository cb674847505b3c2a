"""Segmentation of images into an object and its background, by graph cuts over superpixels."""

from __future__ import annotations

import json
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TextIO, cast

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from structsmooth.problems import LinearModuleProblem
from structsmooth.scores import ScoreModule
from structsmooth.structures import BinaryGraph, Structure
from structsmooth.tasks.base import Task
from structsmooth.tasks.files import data_file
from structsmooth.tasks.segmentation.pictures import Picture, read_pictures, save_overlay

if TYPE_CHECKING:  # OpenCV loads with the first image, not with the list of tasks
    from structsmooth.tasks.segmentation.superpixels import Superpixels, Vocabulary

Mask = NDArray[np.bool_]


class SuperpixelGraph(BinaryGraph):
    """A binary graph over superpixels, with the number of pixels of each: ``sizes`` [B, N]."""

    sizes: Tensor


class SuperpixelScore(ScoreModule):
    """score(y) = Σ_p ⟨w_U, x_p⟩ ([y_p = 1] − [y_p = 0]) + Σ_pq ⟨w_P, x_pq⟩ [y_p = y_q]: linear in w_U [F] and w_P [P].

    Supermodular where w_P ≥ 0, since pairwise features x_pq are not negative.

    Args:
        unary: number F of features of a superpixel.
        pairwise: number P of features of a border; 0 for no pairwise scores.

    Reference:
        Osokin et al. (2016), Appendix I.3, with rewards for agreement in place of penalties.
    """

    def __init__(self, unary: int, pairwise: int) -> None:
        super().__init__()
        self.unary = nn.Parameter(torch.zeros(unary, dtype=torch.float64))
        self.pairwise = nn.Parameter(torch.zeros(pairwise, dtype=torch.float64))

    def forward(self, x: tuple[Tensor, Tensor, Tensor, Tensor]) -> SuperpixelGraph:
        """The graph of a batch of one image.

        Args:
            x: unary features [1, N, F], edges [1, E, 2], pairwise features [1, E, P], sizes [1, N].
        """
        features, edges, borders, sizes = x
        object_score = features.to(self.unary) @ self.unary
        agreement = (borders.to(self.pairwise) @ self.pairwise)[..., None, None]
        same = torch.eye(2, dtype=agreement.dtype, device=agreement.device)
        graph = SuperpixelGraph(torch.stack([-object_score, object_score], -1), edges[0], agreement * same)
        graph.sizes = sizes
        return graph


def balanced_cost(structure: Structure, y: Tensor) -> Tensor:
    """Part costs [B, N, 2]: half the share of the area of its class that a wrong superpixel has.

    So object and background cost 1/2 each if they are all wrong, whatever their areas are (Osokin et al. 2016, I.3).
    """
    sizes = cast(SuperpixelGraph, structure).sizes.to(structure.potentials[0])
    areas = sizes.new_zeros(len(y), 2).scatter_add_(1, y, sizes)
    mistake = sizes / (2 * areas.gather(1, y))
    return mistake.unsqueeze(-1) * (torch.arange(2, device=y.device) != y.unsqueeze(-1))


@dataclass
class Segmentation(Task):
    """Object and background of images: linear scores of superpixels and of their borders, and graph cuts.

    Args:
        pairwise: scores of borders; without them every superpixel is labelled for itself.
        colours: size of the vocabulary of colours.
        textures: size of that of textures.
        vocabulary: what the histograms count; set by :meth:`fit`.

    Reference:
        Osokin et al. (2016), Appendix I.3.
    """

    pairwise: bool = True
    colours: int = 64
    textures: int = 256
    vocabulary: Vocabulary | None = None
    _encoded: tuple[Sequence[Picture], list[_Encoded]] | None = field(default=None, init=False, repr=False)

    summary: ClassVar[str] = "object and background of images: graph cuts over superpixels"
    headline: ClassVar[str] = "iou"
    lam: ClassVar[str] = "10/n"
    passes: ClassVar[int] = 12
    solver: ClassVar[str] = "bcfw"
    hyperparameters: ClassVar[Mapping[str, Any]] = {"steps": "fw", "average": True}

    def __post_init__(self) -> None:
        for name in ("colours", "textures"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Options of the features."""
        parser.add_argument(
            "--pairwise",
            action=BooleanOptionalAction,
            default=True,
            help="scores that favour one label on both sides of a border without contrast (default: yes)",
        )
        for name, size in (("colours", 64), ("textures", 256)):
            parser.add_argument(
                f"--{name}", type=int, default=size, metavar="N", help=f"size of their vocabulary (default: {size})"
            )

    @classmethod
    def from_options(cls, options: Namespace) -> Segmentation:
        """An untrained segmenter."""
        return cls(options.pairwise, options.colours, options.textures)

    @classmethod
    def default_files(cls) -> dict[str, str]:
        """The Weizmann horses (Borenstein and Ullman 2002), which do not come with the package."""
        name = "weizmann_horse/weizmann_horse_250.zip"
        return {
            split: data_file("segmentation", f"{name}#{part}")
            for split, part in (("train", "1-200"), ("test", "201-327"))
        }

    def read(self, path: str | TextIO) -> list[Picture]:
        """Pictures of a folder or zip file; see :func:`~structsmooth.tasks.segmentation.pictures.read_pictures`."""
        if not isinstance(path, str):
            raise ValueError("segmentation reads images from a folder or zip file, not from standard input")
        return read_pictures(path)

    def fit(self, examples: Sequence[Picture]) -> None:
        """Collect the vocabularies of colours and textures."""
        from structsmooth.tasks.segmentation.superpixels import Vocabulary

        self.vocabulary = Vocabulary.fit([picture.image for picture in examples], self.colours, self.textures)

    def problem(self, examples: Sequence[Picture]) -> LinearModuleProblem:
        """Structural hinge losses with pairwise weights that are not negative."""
        data = []
        for picture, encoded in zip(examples, self._encode(examples), strict=True):
            covered = encoded.parts.counts(_truth(picture))
            data.append((encoded.x, torch.from_numpy(2 * covered > encoded.parts.sizes).long()))
        module = self._module()
        lower = torch.cat([torch.full_like(module.unary, -torch.inf), torch.zeros_like(module.pairwise)])
        bounds = (lower.detach(), torch.full_like(lower, torch.inf))
        return LinearModuleProblem(module, data, balanced_cost, bounds=bounds, chunk_size=1)

    def predict(self, weights: Tensor, examples: Sequence[Picture], k: int = 1) -> list[list[tuple[float, Mask]]]:
        """The k best segmentations of each image with their scores: bool [H, W]."""
        module, predictions = self._module(), []
        nn.utils.vector_to_parameters(weights, module.parameters())
        for encoded in self._encode(examples):
            with torch.no_grad():
                values, y = module(tuple(t.unsqueeze(0) for t in encoded.x)).topk(k)
            ranked = zip(values[0].tolist(), y[0].numpy(), strict=True)
            predictions.append(
                [(score, labels[encoded.parts.labels] == 1) for score, labels in ranked if score > -torch.inf]
            )
        return predictions

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

    def write(
        self, examples: Sequence[Picture], predictions: Sequence[list[tuple[float, Mask]]], stream: TextIO
    ) -> None:
        """A line of JSON for each image: its name and height and width, and for each segmentation its score and runs.

        Runs are lengths of stretches of background and object in turns, row by row, background first.
        """
        for picture, ranked in zip(examples, predictions, strict=True):
            found = [{"score": score, "runs": _runs(mask)} for score, mask in ranked]
            line = {"image": picture.name, "size": picture.image.shape[:2], "segmentations": found}
            stream.write(json.dumps(line) + "\n")

    def draw(self, examples: Sequence[Picture], predictions: Sequence[list[tuple[float, Mask]]], folder: Path) -> None:
        """A PNG file of each image: its best segmentation in green, the outline of its mask in red."""
        folder.mkdir(parents=True, exist_ok=True)
        for picture, ranked in zip(examples, predictions, strict=True):
            save_overlay(folder / f"{picture.name}.png", picture, ranked[0][1])

    def to_dict(self) -> dict[str, Any]:
        """Settings and vocabularies."""
        assert self.vocabulary is not None
        sizes = {"pairwise": self.pairwise, "colours": self.colours, "textures": self.textures}
        return sizes | {"vocabulary": self.vocabulary.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Segmentation:
        """The segmenter that :meth:`to_dict` was called on."""
        from structsmooth.tasks.segmentation.superpixels import Vocabulary

        return cls(**(data | {"vocabulary": Vocabulary.from_dict(data["vocabulary"])}))

    def _module(self) -> SuperpixelScore:
        assert self.vocabulary is not None
        return SuperpixelScore(self.vocabulary.unary_size, self.vocabulary.pairwise_size if self.pairwise else 0)

    def _encode(self, examples: Sequence[Picture]) -> list[_Encoded]:
        """Superpixels and features of some images; the last ones stay, since they are predicted after every pass."""
        if self._encoded is None or self._encoded[0] is not examples:
            self._encoded = examples, [self._encode_one(picture) for picture in _tracked(examples)]
        return self._encoded[1]

    def _encode_one(self, picture: Picture) -> _Encoded:
        from structsmooth.tasks.segmentation.superpixels import Superpixels

        assert self.vocabulary is not None
        parts = Superpixels.of(picture.image)
        features = self.vocabulary.features(picture.image, parts)
        pairwise = features.pairwise if self.pairwise else features.pairwise[:, :0]
        x = (features.unary, features.edges, pairwise, features.sizes)
        return _Encoded(parts, tuple(map(torch.from_numpy, x)))


@dataclass(frozen=True)
class _Encoded:
    """An image as the score module takes it; ``x`` without the dimension of the batch."""

    parts: Superpixels
    x: tuple[Tensor, ...]


def _truth(picture: Picture) -> Mask:
    if picture.mask is None:
        raise ValueError(f"{picture.name} has no mask: training and evaluation need one for every image in masks/")
    return picture.mask


def _runs(mask: Mask) -> list[int]:
    """Lengths of stretches of false and true in turns."""
    flat = np.concatenate([[False], mask.ravel()])
    changes = np.flatnonzero(flat[1:] != flat[:-1])
    return [int(length) for length in np.diff(changes, prepend=0, append=mask.size)]


def _tracked(pictures: Sequence[Picture]) -> Iterable[Picture]:
    """The pictures, with a bar on the terminal if there is one."""
    console = Console(stderr=True)
    return track(pictures, "features", console=console, disable=not console.is_terminal, transient=True)
