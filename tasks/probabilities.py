"""Fitted tasks whose outputs have exact probabilities, and so have the parts that a person would check."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from structsmooth.calibration import UNCALIBRATED, Reliability, fitted_temperature
from structsmooth.markup import Block, Markup
from structsmooth.messages import counted, note, warn
from structsmooth.settings import Positive
from structsmooth.structures import Structure
from structsmooth.tasks.base import FittedTask
from structsmooth.tasks.json_lines import Predictions
from structsmooth.text.overlaps import OverlapScores
from structsmooth.uncertainty import DEFAULT, Rule, joined, uncertainty

P = TypeVar("P", bound="ProbabilisticTask")
Parts = Sequence[Sequence[Sequence[float]]]
"""For each example, and each of its outputs, the probabilities of the parts of the output."""


@dataclass(frozen=True)
class ProbabilisticTask(FittedTask):
    """A fitted task with the exact probability of each part of an output: of an entity, an arc, a segment.

    It is the probability that an output of the model has this part, under the distribution of outputs whose
    log-probabilities are the scores divided by a temperature, up to a constant.

    Args:
        temperature: fitted to development data, or 1 if a likelihood has trained the scores; ``None`` if nothing says
            that probabilities are calibrated.
    """

    temperature: Positive | None = field(default=None, kw_only=True)

    @abstractmethod
    def known_outputs(self, weights: Tensor, examples: Sequence[Any]) -> Iterable[tuple[Structure, Tensor]]:
        """Structures of labelled examples under scores that no temperature divides, in batches, and their labels."""

    @abstractmethod
    def distributions(self, weights: Tensor, examples: Sequence[Any]) -> Iterable[tuple[Sequence[int], Structure]]:
        """The distributions of outputs of examples, in batches: numbers of the examples, and structures.

        The temperature has divided their scores. An example may have several structures, whose outputs are independent,
        and none if it has a single output.
        """

    def words(self, example: Any) -> Sequence[str]:
        """The words of an example: its attribute of this name, if it has one."""
        words: Sequence[str] = getattr(example, "words", ())
        return words

    def groups(self, examples: Sequence[Any]) -> Sequence[int]:
        """The number of what a person annotates at once that each example is of, in order: here its own."""
        return range(len(examples))

    def uncertainty(
        self, weights: Tensor, examples: Sequence[Any], by: Rule = DEFAULT, groups: Sequence[int] | None = None
    ) -> Tensor:
        """How unsure the model is about each example, the larger the less sure: float64 [n].

        Args:
            weights: of the model.
            examples: with or without labels.
            by: the rule; see :func:`structsmooth.uncertainty.uncertainty`.
            groups: the number of the group of each example, if that of groups is wanted: from 0, without a gap.
        """
        groups = range(len(examples)) if groups is None else groups
        lengths = torch.zeros(max(groups, default=-1) + 1, dtype=torch.float64)
        sizes = torch.tensor([len(example) for example in examples], dtype=torch.float64)
        lengths.index_add_(0, torch.tensor(groups, dtype=torch.int64), sizes)
        pieces = (
            ([groups[i] for i in numbers], uncertainty(structure, by))
            for numbers, structure in self.distributions(weights, examples)
        )
        return joined(pieces, lengths, by)

    @abstractmethod
    def part_probabilities(self, weights: Tensor, examples: Sequence[Any], outputs: Sequence[Sequence[Any]]) -> Parts:
        """The probabilities of the parts of some outputs of each example."""

    def marginals(self, weights: Tensor, examples: Sequence[Any]) -> Sequence[Mapping[str, Sequence[float]]]:
        """For each label of examples that are sequences, its probability at each position.

        Raises:
            ValueError: examples that are no sequences, as here.
        """
        raise ValueError(f"{type(self.task).__name__} has no labels by position: --json has the probabilities of parts")

    @abstractmethod
    def right_parts(self, example: Any, output: Any) -> Sequence[bool | None]:
        """Which of these parts the label of an example has; ``None`` where that is unknown."""

    def part_names(self, example: Any, output: Any) -> Sequence[str]:
        """What a person calls these parts; here the words of the example, if each has one, or numbers."""
        count, words = len(self.right_parts(example, output)), self.words(example)
        return words if len(words) == count else [f"part {number}" for number in range(1, count + 1)]

    def parts_to_json(self, output: Any, probabilities: Sequence[float]) -> dict[str, Any]:
        """The probabilities of the parts of an output as plain JSON."""
        return {"probabilities": list(probabilities)}

    def measure_overlaps(self, examples: Sequence[Any], outputs: Sequence[Any]) -> OverlapScores:
        """How far entities are found that are not found exactly.

        Raises:
            ValueError: a task without entities, as here.
        """
        raise ValueError(f"{type(self.task).__name__} has no entities, of which a part could be found")

    def show_errors(self, examples: Sequence[Any], outputs: Sequence[Any]) -> list[Block]:
        """Tables and figures about wrong outputs of labelled examples for a report, such as what is taken for what."""
        return []

    def show_example(
        self, example: Any, ranked: Sequence[tuple[float, Any]], probabilities: Sequence[float] | None = None
    ) -> Markup:
        """As for any task; with the probabilities of the parts of the best output, by which colours fade."""
        return super().show_example(example, ranked)

    def calibrated(self: P, weights: Tensor, examples: Sequence[Any]) -> P:
        """The same task with a temperature fitted to labelled examples that did not train the weights; says how many.

        Raises:
            ValueError: no example whose label the model can predict.
        """
        known = list(self.known_outputs(weights, examples))
        fitted = replace(self, temperature=fitted_temperature(known))
        count = counted(sum(len(y) for _, y in known), "known output")
        note(f"the temperature is fitted to {count} of {counted(len(examples), 'example')}")
        return fitted

    def reliability(self, weights: Tensor, examples: Sequence[Any], outputs: Sequence[Any]) -> Reliability:
        """How often parts of the outputs of labelled examples are right, by their probability."""
        found = self.part_probabilities(weights, examples, [[output] for output in outputs])
        pairs = [
            pair
            for (probabilities,), example, output in zip(found, examples, outputs, strict=True)
            for pair in zip(probabilities, self.right_parts(example, output), strict=True)
            if pair[1] is not None
        ]
        return Reliability.of([p for p, _ in pairs], [bool(right) for _, right in pairs])

    def probabilities_to_json(
        self, weights: Tensor, examples: Sequence[Any], predictions: Predictions
    ) -> Iterator[list[dict[str, Any]]]:
        """The probabilities of the parts of each output; warns if they are not calibrated."""
        self.warn_if_uncalibrated()
        outputs = [[output for _, output in ranked] for ranked in predictions]
        for pairs in zip(outputs, self.part_probabilities(weights, examples, outputs), strict=True):
            yield [self.parts_to_json(*pair) for pair in zip(*pairs, strict=True)]

    def tempered(self, weights: Tensor) -> Tensor:
        """Weights that divide scores by the temperature, where scores are linear in them."""
        return weights / (self.temperature or 1.0)

    def warn_if_uncalibrated(self) -> None:
        """Say that probabilities are not calibrated, unless they are."""
        if self.temperature is None:
            warn(f"{UNCALIBRATED}: train with --calibrate and --dev, or take TrainedModel.calibrated")


def probabilistic(task: FittedTask, use: str) -> ProbabilisticTask:
    """A fitted task whose outputs have probabilities, which ``use`` needs.

    Raises:
        ValueError: they have none.
    """
    if isinstance(task, ProbabilisticTask):
        return task
    has_parts = type(task).probabilities_to_json is not FittedTask.probabilities_to_json
    found = "probabilities of parts alone, in predict --json" if has_parts else "no probabilities"
    remedy = "tasks with those of outputs are ner, chunking, parsing and segments"
    raise ValueError(f"{use}: {type(task.task).__name__} has {found}; {remedy}")
