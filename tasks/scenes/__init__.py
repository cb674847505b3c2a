"""Semantic segmentation: classes of the pixels of images, by factor graphs over superpixels on two levels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.markup import Block, Markup, alternatives, joined
from structsmooth.messages import tracked
from structsmooth.problems import FactorGraphProblem
from structsmooth.settings import Interval, PositiveInt
from structsmooth.tasks.base import FittedTask, Predictions, Split, Task, labelled
from structsmooth.tasks.images import read_listed, save_png, stretches, unrolled
from structsmooth.tasks.scenes import graphs
from structsmooth.tasks.scenes.data import Scene, read_scenes, truth
from structsmooth.tasks.scenes.graphs import Graph
from structsmooth.tasks.scenes.results import (
    class_blocks,
    confusion,
    measures,
    save_overlay,
    scene_markup,
    table,
    weight_blocks,
)
from structsmooth.tasks.scenes.unaries import Maps, Regressions, SavedRegressions, class_counts

Labels = NDArray[np.uint8]

# Superpixels with a smaller share of labelled pixels are left out in training.
_LABELLED = 0.5


@dataclass(frozen=True)
class FittedScenes(FittedTask):
    """A segmenter with the names of its classes, and what it learned of single superpixels."""

    task: "Scenes"
    classes: list[str]
    regressions: SavedRegressions | None = None

    example_type: ClassVar[type] = Scene

    def __post_init__(self) -> None:
        if not 0 < len(self.classes) < 256 or (self.regressions is None) != bool(self.task.probabilities):
            raise ValueError("expected 1 to 255 classes, and regressions or a folder of probabilities")
        _ = self.unaries  # which refuses weights that do not fit

    def problem(self, examples: Sequence[Scene]) -> FactorGraphProblem:
        """Structural hinge losses of graphs of superpixels; a wrong label costs the pixels that it is wrong of.

        Costs are multiples of the mean size of fine superpixels. Superpixels that are mostly void are left out.
        """
        labelled_graphs = []
        regions = self.unaries.regions(examples)
        for scene, parts, levels in zip(examples, regions, self.unaries.of_training(examples), strict=True):
            whole = graphs.SceneGraph.of(parts, levels, self.task.graph)
            nodes = len(whole.types)
            counts = np.concatenate(class_counts(scene, parts, len(self.classes)))[:nodes]
            sizes = np.concatenate([parts.fine.sizes, parts.coarse.sizes])[:nodes]
            labelled = counts.sum(1)
            kept = torch.from_numpy((labelled > 0) & (labelled >= _LABELLED * sizes))
            if kept.any():
                labels, costs = torch.from_numpy(counts.argmax(1)), torch.from_numpy(labelled / parts.fine.sizes.mean())
                labelled_graphs.append(graphs.Labelled(whole.induced(kept), labels[kept], costs[kept]))
        if not labelled_graphs:
            raise ValueError("no superpixel has a class: training needs some")
        return graphs.problem(labelled_graphs, self.task.graph)

    def predict(self, weights: Tensor, examples: Sequence[Scene], k: int = 1) -> Predictions:
        """The k best label maps of each image with their scores: uint8 [H, W].

        Raises:
            ValueError: alternatives of graphs with borders that exact inference gives up on.
        """
        if not examples:
            return []
        regions = self.unaries.regions(examples)
        levels = self.unaries(examples)
        whole = [graphs.SceneGraph.of(*pair, self.task.graph) for pair in zip(regions, levels, strict=True)]
        predictions: list[list[tuple[float, Labels]]] = [[] for _ in examples]
        for numbers, graph in tracked(list(graphs.batches(whole, weights)), "predicting"):
            found = graphs.ranked(graph, self.task.graph, [len(regions[i].parents) for i in numbers], k)
            for i, ranked in zip(numbers, found, strict=True):
                pixels = regions[i].fine.labels
                predictions[i] = [(score, labels.numpy().astype(np.uint8)[pixels]) for score, labels in ranked]
        return predictions

    def measure(self, examples: Sequence[Scene], outputs: Sequence[Labels]) -> tuple[dict[str, float], str]:
        """Pixel accuracy and others; see :func:`~structsmooth.tasks.scenes.results.measures`."""
        counts = confusion([truth(scene) for scene in examples], outputs, len(self.classes))
        return measures(counts), table(self.classes, counts)

    def input_to_json(self, example: Scene) -> dict[str, Any]:
        """The name of its ``image``, and the names of all ``classes``, which pixels hold the numbers of."""
        return {"image": example.name, "classes": self.classes}

    def output_to_json(self, output: Labels) -> dict[str, Any]:
        """The ``size`` of a map, height and width, and ``runs``: class and length of each run of pixels, row by row."""
        runs = np.stack(stretches(output), 1).tolist()
        return {"size": list(output.shape), "runs": runs}

    def output_from_json(self, values: Mapping[str, Any]) -> Labels:
        """The inverse of :meth:`output_to_json`."""
        classes, lengths = np.array(values["runs"]).T
        return unrolled(classes.astype(np.uint8), lengths, values["size"])

    def save_mask(self, output: Labels, path: Path) -> None:
        """Save a picture whose pixels hold the numbers of their classes."""
        save_png(path, output)

    def draw(self, examples: Sequence[Scene], predictions: Predictions, folder: Path) -> None:
        """A PNG file of each image: the image, the predicted classes, the true ones if known, and a legend."""
        folder.mkdir(parents=True, exist_ok=True)
        for scene, ranked in zip(examples, predictions, strict=True):
            save_overlay(folder / f"{scene.name}.png", scene, ranked[0][1], self.classes)

    def show_example(self, example: Scene, ranked: Sequence[tuple[float, Labels]]) -> Markup:
        """The image beside its predicted classes, and the true ones if they are known."""
        best = ranked[0][1]
        others = alternatives(ranked, lambda labels: f"{(labels != best).sum():,} other pixels")
        return joined([scene_markup(example, best, self.classes), others])

    def mistake(self, example: Scene, output: Labels) -> float:
        """The share of wrong pixels among those that have a class."""
        labels = truth(example)
        known = labels < len(self.classes)
        return float((labels != output)[known].mean()) if known.any() else 0.0

    def show_results(self, examples: Sequence[Scene], outputs: Sequence[Labels]) -> list[Block]:
        """Metrics of each class, and which classes are taken for which."""
        counts = confusion([truth(scene) for scene in examples], outputs, len(self.classes))
        return class_blocks(self.classes, counts)

    def show_weights(self, weights: Tensor, examples: Sequence[Scene]) -> list[Block]:
        """Weights of the probabilities of classes and of the features of edges."""
        return weight_blocks(self.classes, weights, self.task.graph)

    @property
    def dim(self) -> int:
        """Weights of classes and of edges."""
        return graphs.dim(len(self.classes))

    @cached_property
    def unaries(self) -> Regressions | Maps:
        """What is known of single superpixels."""
        if self.regressions is not None:
            return Regressions(self.regressions, self.task.side, len(self.classes))
        return Maps(self.task.probabilities, self.task.side, len(self.classes))


@dataclass(frozen=True)
class Scenes(Task):
    """Classes of the pixels of images: scores of superpixels, and of pairs that touch or contain each other.

    Args:
        graph: which pairs of superpixels prefer one class: stars for a fine one and the coarse one that it is a part
            of; adjacency for fine ones with a common border, by its length and contrast; both; or none.
        side: of fine superpixels, in pixels.
        colours: size of the vocabulary of colours.
        textures: size of the vocabulary of textures.
        probabilities: folder with your own probabilities of classes, NAME.npy [H, W, C] for each image, instead of
            regressions of colours and textures; those of training images must be of models that were trained without
            the image.
        void: names of classes, separated by commas, whose pixels count as void, such as horse,mountain by the protocol
            of MSRC-21.

    Reference:
        Meshi, Srebro and Hazan (2015), section 6.
    """

    graph: Graph = "adjacency"
    side: Annotated[int, Interval(2)] = 20
    colours: PositiveInt = 64
    textures: PositiveInt = 200
    probabilities: str = ""
    void: str = ""

    summary: ClassVar[str] = "classes of the pixels of images: factor graphs over superpixels"
    files: ClassVar[str] = (
        "A folder or zip file with images/, labels/, classes.txt and lists of stems, of which PATH#train "
        "names one. Images alone to predict."
    )
    # The MSRC-21 images (Shotton et al. 2006).
    data: ClassVar[Mapping[str, str]] = {
        "train": "msrc21/msrc21_250.zip#train+val",
        "test": "msrc21/msrc21_250.zip#test",
    }
    example: ClassVar[str] = "--train 'scenes.zip#train' --test 'scenes.zip#test'"
    headline: ClassVar[str] = "pixel_accuracy"
    lam: ClassVar[str] = "10"
    passes: ClassVar[int] = 40
    solver: ClassVar[str] = "soft-bcfw"
    hyperparameters: ClassVar[Mapping[str, Any]] = {"rho": 0.3, "penalty": "constant"}
    cpu_alone: ClassVar[bool] = True
    fitted_type: ClassVar[type[FittedTask]] = FittedScenes

    def read(self, path: str | TextIO, split: Split = "train") -> list[Scene]:
        """Scenes of a folder, zip file or image, or of paths on standard input.

        See :func:`~structsmooth.tasks.scenes.data.read_scenes`.
        """
        at = partial(read_scenes, void=tuple(filter(None, self.void.split(","))))
        return labelled(read_listed(path, at), split, truth)

    def fit(self, examples: Sequence[Scene]) -> FittedScenes:
        """The names of the classes, and regressions of the classes of superpixels."""
        for scene in examples:
            truth(scene)
        classes = list(examples[0].classes)
        if self.probabilities:
            return FittedScenes(self, classes)
        return FittedScenes(self, classes, SavedRegressions.fit(examples, self.side, self.colours, self.textures))
