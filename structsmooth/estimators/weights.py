"""Weights of examples, as scikit-learn's estimators take them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, compute_class_weight
from torch import Tensor


class SampleWeights(NamedTuple):
    """The examples that have weight.

    Attributes:
        kept: their numbers, [k].
        weights: their weights, float64 [k]; ``None`` if all examples count alike.
    """

    kept: NDArray[np.int64]
    weights: Tensor | None

    @classmethod
    def of(cls, sample_weight: ArrayLike | None, n: int) -> "SampleWeights":
        """Weights of n examples, without those of weight 0.

        Args:
            sample_weight: numbers of at least 0, [n], or one number; ``None`` for examples that count alike.
            n: number of examples.

        Raises:
            ValueError: another number of weights, weights that are negative or not finite, or none above zero.
        """
        if sample_weight is None:
            return cls(np.arange(n), None)
        weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
        weights = np.full(n, weights) if weights.ndim == 0 else weights
        if weights.shape != (n,):
            raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(n,)}")
        if (weights < 0).any():
            raise ValueError("Negative values in data passed to `sample_weight`: weights must be 0 or more")
        (kept,) = weights.nonzero()
        if not len(kept):
            raise ValueError("sample_weight must not be zero for all examples")
        return cls(kept, torch.from_numpy(weights[kept]))

    @classmethod
    def by_class(
        cls,
        weights: Tensor | None,
        class_weight: Mapping[Any, float] | str | None,
        classes: NDArray[Any],
        states: NDArray[np.int64],
    ) -> "SampleWeights":
        """Weights of examples, multiplied by those of their classes as in :class:`sklearn.svm.LinearSVC`.

        Args:
            weights: of the examples, [n].
            class_weight: weights by class; ``"balanced"`` for those in inverse proportion to the weight of a class.
            classes: [S].
            states: numbers of the classes of the examples, [n].

        Raises:
            ValueError: weights below zero or of unknown classes, or another text.
        """
        if class_weight is None:
            return cls(np.arange(len(states)), weights)
        weight = np.ones(len(states)) if weights is None else weights.numpy()
        if isinstance(class_weight, str) and class_weight == "balanced":
            shares = weight.sum() / (len(classes) * np.bincount(states, weight, len(classes)))
        else:
            shares = compute_class_weight(class_weight, classes=classes, y=classes[states])
        return cls.of(weight * shares[states], len(weight))

    def of_rows(self, rows: "NDArray[np.int64]") -> "SampleWeights":
        """Weights of some of the examples that are kept, by their places among these."""
        return SampleWeights(self.kept[rows], None if self.weights is None else self.weights[torch.from_numpy(rows)])
