"""Predictions as lines of JSON, in one format for all tasks."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from torch import Tensor

Predictions = Sequence[list[tuple[float, Any]]]
"""The best outputs of each example with their scores, best first."""


class JSONTask(Protocol):
    """The methods of a fitted task that writing lines of JSON needs."""

    @property
    def task(self) -> Any:
        """The task with its options."""

    def input_to_json(self, example: Any) -> dict[str, Any]:
        """What identifies an example."""

    def output_to_json(self, output: Any) -> dict[str, Any]:
        """An output as plain JSON."""

    def output_from_json(self, values: Mapping[str, Any]) -> Any:
        """The inverse of :meth:`output_to_json`."""

    def probabilities_to_json(
        self, weights: Tensor, examples: Sequence[Any], predictions: Predictions
    ) -> Iterable[list[dict[str, Any]]]:
        """What to add to the outputs of each example about their probability."""

    def save_mask(self, output: Any, path: Path) -> None:
        """Save an output that labels pixels as a PNG file."""


def write_json_lines(
    task: JSONTask,
    examples: Sequence[Any],
    predictions: Predictions,
    stream: TextIO,
    masks: Path | None = None,
    weights: Tensor | None = None,
    marginals: Sequence[Mapping[str, Sequence[float]]] | None = None,
) -> None:
    """Write a line for each example: what it is, and ``outputs``, the best first, each with its ``score``.

    Args:
        task: says what an example and an output are in JSON.
        examples: what was predicted.
        predictions: the best outputs of each example with their scores.
        stream: receives the lines.
        masks: folder for the masks of the outputs, as PNG files that the lines name; without masks if not given.
        weights: of the model, with which outputs get probabilities, if the task has any.
        marginals: of each example, the probability of each label at each position, to write under this name.

    Raises:
        ValueError: a folder for masks, but a task without masks.
    """
    if masks is not None:
        masks.mkdir(parents=True, exist_ok=True)
    added: Iterable[list[dict[str, Any]]] = ([{}] * len(ranked) for ranked in predictions)
    if weights is not None:
        added = task.probabilities_to_json(weights, examples, predictions)
    for number, (example, ranked, more) in enumerate(zip(examples, predictions, added, strict=True)):
        line = task.input_to_json(example)
        if marginals is not None:
            line = line | {"marginals": marginals[number]}
        rows = zip(ranked, more, strict=True)
        outputs = [{"score": score} | task.output_to_json(output) | values for (score, output), values in rows]
        for rank, (values, (_, output)) in enumerate(zip(outputs, ranked, strict=True), 1):
            if masks is not None:
                path = masks / _mask_name(str(line.get("image", number)), rank)
                task.save_mask(output, path)
                values["mask"] = str(path)
        stream.write(json.dumps(line | {"outputs": outputs}) + "\n")


def read_json_lines(task: JSONTask, lines: Iterable[str]) -> Predictions:
    """The predictions that :func:`write_json_lines` wrote.

    Raises:
        ValueError: a line that is not of this format, by its number.
    """
    return [_read_line(task, number, line) for number, line in enumerate(lines, 1)]


def _read_line(task: JSONTask, number: int, line: str) -> list[tuple[float, Any]]:
    try:
        outputs = json.loads(line)["outputs"]
        return [(values["score"], task.output_from_json(values)) for values in outputs]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"line {number}: not a prediction of {type(task.task).__name__} ({error})") from error


def _mask_name(name: str, rank: int) -> str:
    """The best mask has the name of its image, as masks to train on do."""
    return f"{name}.png" if rank == 1 else f"{name}.{rank}.png"
