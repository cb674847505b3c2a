"""Multi-label classification: sets of labels, scored one by one and in pairs."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar, TextIO

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.markup import Block, Markup
from structsmooth.models.label_sets import (
    Inference,
    LabelPairs,
    LabelSets,
    RankedSets,
    Scaling,
    feature_scaling,
    label_pairs,
)
from structsmooth.problems import FactorGraphProblem
from structsmooth.settings import Finite, Positive
from structsmooth.tasks.base import FittedTask, Predictions, Split, Task, known, labelled
from structsmooth.tasks.multilabel.data import Example, read_examples
from structsmooth.tasks.multilabel.picture import draw_label_graph, pair_blocks
from structsmooth.tasks.multilabel.results import example_markup, label_table, measures, table

Ranked = list[tuple[float, tuple[str, ...]]]


class NamedSets(list[Ranked]):
    """The best sets of labels of each example with their scores, by the names of the labels.

    Args:
        sets: the same by numbers, which know their margins.
        labels: the names.
    """

    def __init__(self, sets: RankedSets, labels: Sequence[str]) -> None:
        super().__init__([[(score, tuple(compress(labels, row))) for score, row in ranked] for ranked in sets])
        self.sets = sets


@dataclass(frozen=True)
class FittedMultilabel(FittedTask):
    """A classifier with its labels, their pairs, and the scaling of features."""

    task: "Multilabel"
    labels: list[str]
    edges: list[list[int]]
    mean: list[Finite]
    scale: list[Positive]

    example_type: ClassVar[type] = Example
    output_json: ClassVar[tuple[str, Any]] = ("labels", tuple[str, ...])

    def __post_init__(self) -> None:
        count, pairs = len(self.labels), {tuple(pair) for pair in self.edges}
        if not count or len({*self.labels}) < count or len(self.mean) != len(self.scale):
            raise ValueError("there must be labels, each once, and as many means of features as scales")
        if len(pairs) < len(self.edges) or not all(len(p) == 2 and 0 <= p[0] < p[1] < count for p in pairs):
            raise ValueError(f"edges must be different pairs of two numbers from 0 to {count - 1}, the lower one first")

    @property
    def dim(self) -> int:
        """Weights of features of labels, and of pairs of labels, of which there is one at least."""
        return len(self.labels) * (len(self.mean) + self.task.bias) + max(len(self.edges), 1)

    def problem(self, examples: Sequence[Example]) -> FactorGraphProblem:
        """Structural hinge losses of the label graphs; relaxed where their exact inference would be slow."""
        return self._model.problem(self._dense(examples), self._truth(examples))

    def predict(self, weights: Tensor, examples: Sequence[Example], k: int = 1) -> NamedSets:
        """The k best sets of labels of each example with their scores, in the order of the labels.

        Full graphs of many labels are relaxed, and the labels rounded, for k = 1; else they are searched.
        """
        return NamedSets(self._model.best(weights, self._dense(examples), k), self.labels)

    def measure(self, examples: Sequence[Example], outputs: Sequence[tuple[str, ...]]) -> tuple[dict[str, float], str]:
        """F1, Hamming loss and others; see :func:`~structsmooth.tasks.multilabel.results.measures`."""
        truth, found = self._truth(examples), self._table(outputs)
        return measures(truth, found), table(self.labels, truth, found)

    def unseen_labels(self, examples: Sequence[Example]) -> Mapping[str, int]:
        """How many examples have each label that training examples did not have."""
        return Counter(name for example in examples for name in _given(example) if name not in self.labels)

    def write(self, examples: Sequence[Example], predictions: Predictions, stream: TextIO) -> None:
        """A line of JSON for each example: its sets of labels with their scores, best first, and margins of labels.

        The margin of a label is the largest score of a set with it minus that of a set without it. Margins are written
        where exact inference is fast.
        """
        lines: list[dict[str, Any]] = [
            {"sets": [{"score": score, "labels": list(labels)} for score, labels in ranked]} for ranked in predictions
        ]
        if isinstance(predictions, NamedSets) and self._model.is_exact:
            for line, margins in zip(lines, predictions.sets.margins().tolist(), strict=True):
                line["margins"] = dict(zip(self.labels, margins, strict=True))
        stream.writelines(json.dumps(line) + "\n" for line in lines)

    def draw_model(self, weights: Tensor, folder: Path) -> list[str]:
        """The label graph with its learned weights, if labels have pairs."""
        if not self.edges:
            return []
        draw_label_graph(self.labels, *self._pairs(weights), folder / "labels.png")
        return ["labels.png"]

    def show_example(self, example: Example, ranked: Sequence[tuple[float, tuple[str, ...]]]) -> Markup:
        """The labels, and which of them are right, wrong or missed."""
        return example_markup(example.labels, ranked)

    def show_results(self, examples: Sequence[Example], outputs: Sequence[tuple[str, ...]]) -> list[Block]:
        """Precision, recall and F1 of each label."""
        return [label_table(self.labels, self._truth(examples), self._table(outputs))]

    def show_weights(self, weights: Tensor, examples: Sequence[Example]) -> list[Block]:
        """Scores of pairs of labels."""
        return pair_blocks(self.labels, *self._pairs(weights))

    @cached_property
    def _model(self) -> LabelSets:
        unit = self.task.scaling == "unit"
        return LabelSets(len(self.labels), self.edges, self.mean, self.scale, unit, self.task.inference, self.task.bias)

    def _pairs(self, weights: Tensor) -> tuple[list[tuple[int, int]], list[float]]:
        """Pairs of labels and their weights."""
        pairwise: list[float] = self._model.split(weights)[1].tolist()
        return [(a, b) for a, b in self.edges], pairwise

    def _dense(self, examples: Sequence[Example]) -> NDArray[np.float64]:
        """Features [n, D]; what training examples did not have is left out."""
        return _dense(examples, len(self.mean))

    def _truth(self, examples: Sequence[Example]) -> NDArray[np.bool_]:
        return self._table([tuple(_given(example)) for example in examples])

    def _table(self, sets: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
        """Which labels are present, [n, L]; those that training examples did not have are left out."""
        position = {name: i for i, name in enumerate(self.labels)}
        present = np.zeros((len(sets), len(self.labels)), dtype=np.bool_)
        for row, present_names in zip(present, sets, strict=True):
            row[[position[name] for name in present_names if name in position]] = True
        return present


@dataclass(frozen=True)
class Multilabel(Task):
    """Sets of labels: linear scores of labels, and of pairs of labels that are both present.

    Args:
        pairs: which pairs have a score: full for all, tree for those of a tree of labels that depend on each other
            (Chow and Liu 1968), none; auto for full up to 30 labels, tree beyond.
        scaling: of features: unit for rows of norm 1; standard for mean 0 and deviation 1, where features have
            different units (take a larger lam then, about 30/n); none.
        inference: of solvers that infer whole sets in training, such as bcfw: exact, or relaxed to the local polytope,
            which is what soft-bcfw and dlpw minimize; lp for the relaxed one by a solver of linear programs, which is
            slow; auto for exact where that is fast.
        bias: score labels by themselves, too, without features.

    Reference:
        Finley and Joachims (2008); Meshi, Srebro and Hazan (2015), section 6.
    """

    pairs: LabelPairs = "auto"
    scaling: Scaling = "unit"
    inference: Inference = "auto"
    bias: bool = True

    summary: ClassVar[str] = "sets of labels: scores of labels and of their pairs"
    files: ClassVar[str] = (
        "A .csv file whose header names columns of labels (0 or 1) as in label:beach, and columns of "
        "features; an .npz archive of X and Y; or text in the format of SVMlight, as in beach,urban 3:0.5 "
        "7:1."
    )
    # Yeast genes (Elisseeff and Weston 2001).
    data: ClassVar[Mapping[str, str]] = {"train": "yeast/yeast.npz#train", "test": "yeast/yeast.npz#test"}
    example: ClassVar[str] = "--train train.csv --test test.csv"
    headline: ClassVar[str] = "example_f1"
    passes: ClassVar[int] = 50
    solver: ClassVar[str] = "soft-bcfw"
    cpu_alone: ClassVar[bool] = True
    fitted_type: ClassVar[type[FittedTask]] = FittedMultilabel

    def read(self, path: str | TextIO, split: Split = "train") -> list[Example]:
        """Examples of a file; see :func:`~structsmooth.tasks.multilabel.data.read_examples`."""
        return labelled(read_examples(path), split, _given)

    def fit(self, examples: Sequence[Example]) -> FittedMultilabel:
        """The labels in order, their pairs, and the scaling of the features."""
        labels = sorted({name for example in examples for name in _given(example)})
        if not labels:
            raise ValueError("no example has a label")
        count = 1 + max((int(example.indices[-1]) for example in examples if len(example.indices)), default=0)
        mean, scale = feature_scaling(_dense(examples, count), self.scaling)
        fitted = FittedMultilabel(self, labels, [], mean, scale)
        pairs = label_pairs(fitted._truth(examples), self.pairs)
        return replace(fitted, edges=[list(pair) for pair in pairs])


def _given(example: Example) -> frozenset[str]:
    """The labels of an example that has some, or none of them."""
    return known(example.labels, "these examples have no labels", ", in CSV as columns named label:NAME")


def _dense(examples: Sequence[Example], count: int) -> NDArray[np.float64]:
    """Features [n, count]; others are left out."""
    x: NDArray[Any] = np.zeros((len(examples), count))
    for row, example in zip(x, examples, strict=True):
        known = example.indices < count
        row[example.indices[known]] = example.values[known]
    return x
