"""What commands that train have in common: their task, its data, and metrics on them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from structsmooth import processes
from structsmooth.tasks import Task, load_task

SPLITS = ("train", "dev", "test")


def add_data_flags(parser: ArgumentParser) -> None:
    """A flag for each split."""
    data = parser.add_argument_group(
        "data (without any, the data of the task: in the package, or in the folder that STRUCTSMOOTH_DATA names)"
    )
    for split in SPLITS:
        data.add_argument(
            f"--{split}", metavar="FILE", help=f"{split} data; metrics after every pass are on dev or test"
        )


def add_task_flags(parser: ArgumentParser, command: str, arguments: Sequence[str]) -> tuple[type[Task], str] | None:
    """Flags of the task that a command names, before they are parsed: the task, and its name for folders.

    Returns:
        ``None`` where none is named.

    Raises:
        ValueError: options before the task.
    """
    if arguments[:1] != [command] or len(arguments) < 2 or arguments[1] in ("-h", "--help"):
        return None
    name = arguments[1]
    if name.startswith("-"):
        raise ValueError(f"the task comes first, as in structsmooth {command} ner {' '.join(arguments[1:])}")
    task = load_task(name)
    task.add_arguments(parser.add_argument_group(f"features of {name}"))  # type: ignore[arg-type]
    return task, name.rpartition(":")[2].lower()


def data_files(options: Namespace, task: type[Task]) -> dict[str, str]:
    """Data files by split: those given, or those of the task."""
    given = {split: path for split in SPLITS if (path := getattr(options, split)) is not None}
    if given and "train" not in given:
        raise ValueError("--train is needed with --dev or --test")
    return given or task.default_files()


class HeldOut:
    """Labelled examples to measure models on again and again, shared out over processes.

    A process predicts the same list every time, so that tasks can keep what they made of it.
    """

    def __init__(self, examples: Sequence[Any]) -> None:
        self.examples = examples
        self._own = [examples[i] for i in processes.share(len(examples))]

    def measure(self, task: Task, weights: Tensor) -> tuple[dict[str, float], str]:
        """Metrics of the best outputs under ``weights``, as :meth:`~structsmooth.tasks.Task.measure` gives them."""
        own = [ranked[0][1] for ranked in task.predict(weights, self._own)] if self._own else []
        return task.measure(self.examples, processes.concatenated(own))
