"""Multi-label classification: sets of labels, scored one by one and in pairs."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.markup import Block, Markup
from structsmooth.problems import FactorGraphProblem, FactorGraphs
from structsmooth.structures import FactorGraph
from structsmooth.tasks.base import FittedTask, Predictions, Split, Task
from structsmooth.tasks.files import data_file
from structsmooth.tasks.multilabel.data import Example, read_examples
from structsmooth.tasks.multilabel.label_graph import LabelPairs, label_pairs
from structsmooth.tasks.multilabel.picture import draw_label_graph, pair_blocks
from structsmooth.tasks.multilabel.ranking import Ranked, RankedSets
from structsmooth.tasks.multilabel.results import example_markup, label_table, measures, table
from structsmooth.tasks.progress import tracked

Scaling = Literal["unit", "standard", "none"]
Inference = Literal["exact", "relaxed"]

# Examples of a batch of predictions, and pairs of labels that they may have together.
_BATCH = 256
_BATCH_PAIRS = 2**19
# Outputs up to which full graphs are solved exactly.
_FEW_OUTPUTS = 2**16


@dataclass(frozen=True)
class FittedMultilabel(FittedTask):
    """A classifier with its labels, their pairs, and the scaling of features."""

    task: "Multilabel"
    labels: list[str]
    edges: list[list[int]]
    mean: list[float]
    scale: list[float]

    def problem(self, examples: Sequence[Example]) -> FactorGraphProblem:
        """Structural hinge losses of the label graphs; relaxed where their exact inference would be slow."""
        n, count = len(examples), len(self.labels)
        pairs = torch.tensor(self.edges, dtype=torch.int64).view(-1, 2)
        graphs = FactorGraphs(
            features=torch.from_numpy(self._features(examples)),
            labels=torch.from_numpy(self._truth(examples)).long().flatten(),
            node_offsets=count * torch.arange(n + 1),
            edges=pairs,
            edge_offsets=torch.tensor([0, len(pairs)]),
            rows=torch.arange(n).repeat_interleave(count),
            types=torch.arange(count).repeat(n),
            edge_types=torch.arange(len(pairs)),
            edge_sets=torch.zeros(n, dtype=torch.int64),  # one graph for all
        )
        return FactorGraphProblem(
            graphs,
            states=2,
            pairwise="potts",  # pairs that are both present agree
            reference=True,
            node_types=count,
            edge_types=len(pairs) or None,
            inference=self._inference,
        )

    def predict(self, weights: Tensor, examples: Sequence[Example], k: int = 1) -> RankedSets:
        """The k best sets of labels of each example with their scores, in the order of the labels.

        Full graphs of many labels are relaxed, and the labels rounded, for k = 1; else they are searched.
        """
        predictions: list[Ranked] = []
        graphs = list(self._graphs(weights, examples))
        for graph in tracked(graphs, "predicting"):
            if self._is_exact or k > 1:
                values, y = graph.topk(k)
            else:
                rounded = graph.relaxed().decode()
                values, y = rounded.score.unsqueeze(1), rounded.labels.unsqueeze(1)
            for scores, outputs in zip(values.tolist(), y.tolist(), strict=True):
                ranked = zip(scores, outputs, strict=True)
                predictions.append([(score, self._names(output)) for score, output in ranked if score > -torch.inf])
        return RankedSets(predictions, graphs)

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
        if isinstance(predictions, RankedSets) and self._is_exact:
            for line, margins in zip(lines, predictions.margins().tolist(), strict=True):
                line["margins"] = dict(zip(self.labels, margins, strict=True))
        stream.writelines(json.dumps(line) + "\n" for line in lines)

    def output_to_json(self, output: tuple[str, ...]) -> dict[str, Any]:
        """Its ``labels``."""
        return {"labels": list(output)}

    def output_from_json(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The inverse of :meth:`output_to_json`."""
        return tuple(values["labels"])

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

    @property
    def _inference(self) -> Inference:
        """Of training: as asked for, or what is fast."""
        if self.task.inference == "auto":
            return "exact" if self._is_exact else "relaxed"
        return self.task.inference

    @property
    def _is_exact(self) -> bool:
        """Whether exact inference is fast: few outputs, or a tree."""
        return 2 ** len(self.labels) <= _FEW_OUTPUTS or len(self.edges) < len(self.labels)

    def _graphs(self, weights: Tensor, examples: Sequence[Example]) -> Iterator[FactorGraph]:
        """Batches of examples as graphs."""
        unary, pairwise = self._split(weights)
        tables = torch.zeros(len(self.edges), 2, 2, dtype=torch.float64)
        tables[:, 1, 1] = pairwise
        edges = torch.tensor(self.edges, dtype=torch.int64).view(-1, 2)
        size = max(1, min(_BATCH, _BATCH_PAIRS // max(1, len(edges))))
        for begin in range(0, len(examples), size):
            x = torch.from_numpy(self._features(examples[begin : begin + size]))
            scores = torch.nn.functional.pad(x, (0, 1), value=1.0) @ unary.T
            yield FactorGraph(torch.stack([torch.zeros_like(scores), scores], -1), edges, tables)

    def _pairs(self, weights: Tensor) -> tuple[list[tuple[int, int]], list[float]]:
        """Pairs of labels and their weights."""
        pairwise: list[float] = self._split(weights)[1].tolist()
        return [(a, b) for a, b in self.edges], pairwise

    def _split(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of labels [L, D + 1], the bias last, and of pairs."""
        count, features = len(self.labels), len(self.mean) + 1
        unary, pairwise = weights[: count * features], weights[count * features :]
        return unary.view(count, features), pairwise[: len(self.edges)]  # one that nothing uses without pairs

    def _features(self, examples: Sequence[Example]) -> NDArray[np.float64]:
        """Scaled features [n, D]; what training examples did not have is left out."""
        x = (_dense(examples, len(self.mean)) - np.array(self.mean)) / np.array(self.scale)
        if self.task.scaling == "unit":
            x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        return np.asarray(x, dtype=np.float64)

    def _truth(self, examples: Sequence[Example]) -> NDArray[np.bool_]:
        return self._table([tuple(_given(example)) for example in examples])

    def _table(self, sets: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
        """Which labels are present, [n, L]; those that training examples did not have are left out."""
        position = {name: i for i, name in enumerate(self.labels)}
        present = np.zeros((len(sets), len(self.labels)), dtype=np.bool_)
        for row, own in zip(present, sets, strict=True):
            row[[position[name] for name in own if name in position]] = True
        return present

    def _names(self, output: Sequence[int]) -> tuple[str, ...]:
        return tuple(name for name, label in zip(self.labels, output, strict=True) if label)


@dataclass(frozen=True)
class Multilabel(Task):
    """Sets of labels: linear scores of labels, and of pairs of labels that are both present.

    Args:
        pairs: which pairs have a score: full for all, tree for those of a tree of labels that depend on each other
            (Chow and Liu 1968), none; auto for full up to 30 labels, tree beyond.
        scaling: of features: unit for rows of norm 1; standard for mean 0 and deviation 1, where features have
            different units (take a larger lam then, about 30/n); none.
        inference: of solvers that infer whole sets in training, such as bcfw: exact, or relaxed to the local polytope,
            which is what soft-bcfw and dlpw minimize; auto for exact where that is fast.

    Reference:
        Finley and Joachims (2008); Meshi, Srebro and Hazan (2015), section 6.
    """

    pairs: LabelPairs = "auto"
    scaling: Scaling = "unit"
    inference: Literal["auto", "exact", "relaxed"] = "auto"

    summary: ClassVar[str] = "sets of labels: scores of labels and of their pairs"
    files: ClassVar[str] = (
        "A .csv file whose header names columns of labels (0 or 1) as in label:beach, and columns of "
        "features; an .npz archive of X and Y; or text in the format of SVMlight, as in beach,urban 3:0.5 "
        "7:1."
    )
    example: ClassVar[str] = "--train train.csv --test test.csv"
    headline: ClassVar[str] = "example_f1"
    lam: ClassVar[str] = "1/n"
    passes: ClassVar[int] = 50
    solver: ClassVar[str] = "soft-bcfw"
    fitted_type: ClassVar[type[FittedTask]] = FittedMultilabel

    @classmethod
    def default_files(cls) -> dict[str, str]:
        """Yeast genes (Elisseeff and Weston 2001), which do not come with the package."""
        return {split: data_file("multilabel", f"yeast/yeast.npz#{split}") for split in ("train", "test")}

    def read(self, path: str | TextIO, split: Split = "train") -> list[Example]:
        """Examples of a file; see :func:`~structsmooth.tasks.multilabel.data.read_examples`."""
        examples = read_examples(path)
        for example in examples if split != "predict" else ():
            _given(example)
        return examples

    def fit(self, examples: Sequence[Example]) -> FittedMultilabel:
        """The labels in order, their pairs, and the scaling of the features."""
        labels = sorted({name for example in examples for name in _given(example)})
        if not labels:
            raise ValueError("no example has a label")
        count = 1 + max((int(example.indices[-1]) for example in examples if len(example.indices)), default=0)
        mean, scale = np.zeros(count), np.ones(count)
        if self.scaling == "standard":
            x = _dense(examples, count)
            mean, deviation = x.mean(0), x.std(0)
            scale = np.where(deviation > 1e-12, deviation, 1.0)
        fitted = FittedMultilabel(self, labels, [], mean.tolist(), scale.tolist())
        pairs = label_pairs(fitted._truth(examples), self.pairs)
        return replace(fitted, edges=[list(pair) for pair in pairs])


def _given(example: Example) -> frozenset[str]:
    """The labels of an example that has some, or none of them."""
    if example.labels is None:
        raise ValueError(
            "these examples have no labels: training and evaluation need them, in CSV as columns named label:NAME"
        )
    return example.labels


def _dense(examples: Sequence[Example], count: int) -> NDArray[np.float64]:
    """Features [n, count]; others are left out."""
    x: NDArray[Any] = np.zeros((len(examples), count))
    for row, example in zip(x, examples, strict=True):
        known = example.indices < count
        row[example.indices[known]] = example.values[known]
    return x
