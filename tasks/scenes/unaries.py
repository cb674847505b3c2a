"""What single superpixels say of their classes: logistic regressions of features, or the user's own probabilities."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.files import load_array
from structsmooth.messages import tracked
from structsmooth.tasks.scenes.data import Scene, truth
from structsmooth.tasks.scenes.logistic import fit_logistic, log_probabilities, out_of_fold
from structsmooth.tasks.scenes.regions import Regions, describe
from structsmooth.tasks.segmentation.superpixels import Vocabulary

T = TypeVar("T")

# Strength of regularization of regressions, and their iterations.
_STRENGTH, _ITERATIONS, _FOLDS = 1e-4, 50, 5
# Images that vocabularies are made from, at most.
_SAMPLE = 50
# Probabilities of the user are at least this.
_LEAST = 1e-12


class Levels(NamedTuple):
    """Logarithms of the probabilities of classes, of fine superpixels [N, C] and of coarse ones [M, C]."""

    fine: Tensor
    coarse: Tensor


class PerScene(Generic[T]):
    """A function of scenes that keeps its results as long as the scenes live."""

    def __init__(self, function: Callable[[Scene], T]) -> None:
        self._function = function
        self._known: WeakKeyDictionary[Scene, T] = WeakKeyDictionary()

    def __call__(self, scenes: Sequence[Scene]) -> list[T]:
        """The results, with a progress bar if any are new."""
        new = [scene for scene in scenes if scene not in self._known]
        for scene in tracked(new, "features") if new else ():
            self._known[scene] = self._function(scene)
        return [self._known[scene] for scene in scenes]


class Encoded(NamedTuple):
    """An image as regressions take it."""

    regions: Regions
    fine: Tensor  # features [N, F]
    coarse: Tensor  # [M, F']


@dataclass(frozen=True, eq=False)
class SavedRegressions:
    """Multinomial logistic regressions of the classes of fine and of coarse superpixels.

    Attributes:
        vocabulary: of colours and textures.
        weights: of the two levels, [F + 1, C] and [F' + 1, C].
    """

    vocabulary: Vocabulary
    weights: tuple[NDArray[np.float32], ...]

    @classmethod
    def fit(cls, scenes: Sequence[Scene], side: int, colours: int, textures: int) -> "SavedRegressions":
        """The regressions of labelled scenes."""
        images = [scene.image for scene in scenes[:: -(-len(scenes) // _SAMPLE)]]
        vocabulary = Vocabulary.fit(images, colours, textures)
        levels = _levels(scenes, encoder(vocabulary, side)(scenes))
        fitted = (fit_logistic(x, counts, _STRENGTH, _ITERATIONS) for x, counts, _ in tracked(levels, "unaries"))
        return cls(vocabulary, tuple(weights.numpy() for weights in fitted))


class Regressions:
    """What regressions say of scenes.

    Args:
        saved: the regressions.
        side: of fine superpixels.
        classes: their number C.

    Raises:
        ValueError: weights that do not fit the vocabulary or the number of classes.
    """

    def __init__(self, saved: SavedRegressions, side: int, classes: int) -> None:
        blank = np.zeros((1, 1, 3), np.uint8)
        rows = [1 + features.shape[1] for features in describe(blank, Regions.of(blank, side), saved.vocabulary)]
        if [weights.shape for weights in saved.weights] != [(row, classes) for row in rows]:
            raise ValueError(f"weights of regressions must be two tables of {rows} rows and {classes} columns")
        self._weights = tuple(map(torch.from_numpy, saved.weights))
        self._encoded = encoder(saved.vocabulary, side)

    def regions(self, scenes: Sequence[Scene]) -> list[Regions]:
        """Superpixels of scenes."""
        return [encoded.regions for encoded in self._encoded(scenes)]

    def of_training(self, scenes: Sequence[Scene]) -> list[Levels]:
        """Log-probabilities for training scenes, of regressions that were fitted without the scene."""
        if len(scenes) == 1:
            return self(scenes)
        folds = min(_FOLDS, len(scenes))
        found = []
        for x, counts, sizes in tracked(_levels(scenes, self._encoded(scenes)), "unaries"):
            groups = torch.arange(len(scenes)).repeat_interleave(torch.tensor(sizes))
            found.append(out_of_fold(x, counts, groups, folds, _STRENGTH, _ITERATIONS).split(sizes))
        return [Levels(*pair) for pair in zip(*found, strict=True)]

    def __call__(self, scenes: Sequence[Scene]) -> list[Levels]:
        """Log-probabilities for other scenes."""
        encoded = self._encoded(scenes)
        return [Levels(*map(log_probabilities, self._weights, (one.fine, one.coarse))) for one in encoded]


class Maps:
    """Probabilities of pixels in files of a folder, as means over superpixels.

    Args:
        folder: with a file ``NAME.npy`` for each scene, [H, W, C].
        side: of fine superpixels.
        classes: their number C.
    """

    def __init__(self, folder: str, side: int, classes: int) -> None:
        self._folder, self._side, self._classes = Path(folder), side, classes
        self._known = PerScene(self._read)

    def regions(self, scenes: Sequence[Scene]) -> list[Regions]:
        """Superpixels of scenes."""
        return [regions for regions, _ in self._known(scenes)]

    def __call__(self, scenes: Sequence[Scene]) -> list[Levels]:
        """Logarithms of mean probabilities."""
        return [levels for _, levels in self._known(scenes)]

    of_training = __call__

    def _read(self, scene: Scene) -> tuple[Regions, Levels]:
        path = self._folder / f"{scene.name}.npy"
        pixels = load_array(path)
        expected = (*scene.image.shape[:2], self._classes)
        numbers = pixels.shape == expected and pixels.dtype.kind in "fiu"
        if not numbers or not np.isfinite(pixels).all() or pixels.min() < 0:
            raise ValueError(f"{path}: expected probabilities {expected}, got shape {pixels.shape}")
        regions = Regions.of(scene.image, self._side)
        means = (
            np.stack([np.bincount(parts.labels.ravel(), plane.ravel()) for plane in np.moveaxis(pixels, 2, 0)], 1)
            / parts.sizes[:, None]
            for parts in (regions.fine, regions.coarse)
        )
        return regions, Levels(*(torch.from_numpy(mean).float().clamp_min(_LEAST).log() for mean in means))


def class_counts(scene: Scene, regions: Regions, classes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pixels of each class in fine superpixels [N, C] and in coarse ones [M, C]; void pixels do not count.

    Raises:
        ValueError: a scene without labels.
    """
    labels = truth(scene)
    known = labels < classes
    cells = regions.fine.labels[known] * classes + labels[known]
    fine = np.bincount(cells, minlength=len(regions.parents) * classes).reshape(-1, classes)
    coarse = np.zeros((len(regions.coarse.sizes), classes), dtype=np.int64)
    np.add.at(coarse, regions.parents, fine)
    return fine, coarse


@lru_cache(maxsize=2)
def encoder(vocabulary: Vocabulary, side: int) -> PerScene[Encoded]:
    """What regressions take of scenes; what fitting has made of training scenes is there for their problem."""

    def encoded(scene: Scene) -> Encoded:
        regions = Regions.of(scene.image, side)
        return Encoded(regions, *map(torch.from_numpy, describe(scene.image, regions, vocabulary)))

    return PerScene(encoded)


def _levels(scenes: Sequence[Scene], encoded: Sequence[Encoded]) -> list[tuple[Tensor, Tensor, list[int]]]:
    """For each level, features and counts of classes of all superpixels, and their numbers by scene."""
    classes = len(scenes[0].classes)
    counts = [class_counts(scene, one.regions, classes) for scene, one in zip(scenes, encoded, strict=True)]
    levels = []
    for level, features in enumerate(([one.fine for one in encoded], [one.coarse for one in encoded])):
        numbers = np.concatenate([pair[level] for pair in counts])
        levels.append((torch.cat(features), torch.from_numpy(numbers).float(), [len(x) for x in features]))
    return levels
