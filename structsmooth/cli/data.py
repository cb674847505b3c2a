"""What commands that train have in common: their task, its data, and predictions on them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from structsmooth import processes
from structsmooth.tasks import Task

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


def named_task(command: str, arguments: Sequence[str]) -> str | None:
    """The task that a command names, before the flags that it brings are known; ``None`` where none is named.

    Raises:
        ValueError: options before the task.
    """
    if arguments[:1] != [command] or len(arguments) < 2 or arguments[1] in ("-h", "--help"):
        return None
    if arguments[1].startswith("-"):
        raise ValueError(f"the task comes first, as in structsmooth {command} ner {' '.join(arguments[1:])}")
    return arguments[1]


def data_files(options: Namespace, task: type[Task]) -> dict[str, str]:
    """Data files by split: those given, or those of the task."""
    given = {split: path for split in SPLITS if (path := getattr(options, split)) is not None}
    if given and "train" not in given:
        raise ValueError("--train is needed with --dev or --test")
    return given or task.default_files()


def best_outputs(task: Task, weights: Tensor, examples: Sequence[Any]) -> list[Any]:
    """The best output of each example; each process predicts its share."""
    # Alone it predicts the list itself: tasks keep what they made of the last one.
    own = examples if processes.count() == 1 else [examples[i] for i in processes.share(len(examples))]
    return processes.concatenated([ranked[0][1] for ranked in task.predict(weights, own)] if own else [])
