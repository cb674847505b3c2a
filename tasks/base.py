"""What the command line asks of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TextIO

from torch import Tensor

from structsmooth.problems import Problem


class Task(ABC):
    """A learning task: reads data, builds features and the problem, predicts and measures.

    An example is whatever :meth:`read` gives a list of. The command line calls, in this order: ``add_arguments``,
    ``from_options``, ``read``, ``fit``, ``problem``; then ``predict`` and ``measure`` after every pass. A trained task
    saves itself as JSON with ``to_dict``.

    Attributes:
        summary: one line for the list of tasks.
        headline: the metric to watch, one of those that ``measure`` gives.
        lam: λ that worked, as ``"c/n"`` or a number.
        passes: number of passes that worked.
        solver: the solver that suits the task, by its name on the command line.
        hyperparameters: of that solver, where others than its defaults worked better.
    """

    summary: ClassVar[str]
    headline: ClassVar[str]
    lam: ClassVar[str] = "1/n"
    passes: ClassVar[int] = 15
    solver: ClassVar[str] = "casimir-svrg"
    hyperparameters: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    @abstractmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Options of the task, to train."""

    @classmethod
    @abstractmethod
    def from_options(cls, options: Namespace) -> Task:
        """An untrained task."""

    @classmethod
    def default_solver(cls, options: Namespace) -> str:
        """The solver that suits the options, by its name."""
        return cls.solver

    @classmethod
    @abstractmethod
    def default_files(cls) -> dict[str, str]:
        """Data files to take where none are given, by split: train, test.

        Raises:
            ValueError: the task comes without data; see :func:`~structsmooth.tasks.files.data_file`.
            FileNotFoundError: no such file.
        """

    @abstractmethod
    def read(self, path: str | TextIO) -> list[Any]:
        """Examples of a file, with or without labels."""

    @abstractmethod
    def fit(self, examples: Sequence[Any]) -> None:
        """Learn features and labels from training examples."""

    @abstractmethod
    def problem(self, examples: Sequence[Any]) -> Problem:
        """The finite sum over training examples."""

    @abstractmethod
    def predict(self, weights: Tensor, examples: Sequence[Any], k: int = 1) -> list[list[tuple[float, Any]]]:
        """The k best outputs of each example with their scores, best first; fewer where there are no more."""

    @abstractmethod
    def measure(self, examples: Sequence[Any], outputs: Sequence[Any]) -> tuple[dict[str, float], str]:
        """Metrics of predicted outputs by name, and a table for humans.

        Raises:
            ValueError: examples without labels.
        """

    @abstractmethod
    def write(self, examples: Sequence[Any], predictions: Sequence[list[tuple[float, Any]]], stream: TextIO) -> None:
        """Write the examples with their predicted outputs."""

    def draw(self, examples: Sequence[Any], predictions: Sequence[list[tuple[float, Any]]], folder: Path) -> None:
        """Save a picture of each example with its best output in a folder.

        Raises:
            ValueError: a task without pictures.
        """
        raise ValueError(f"{type(self).__name__} has no pictures of its predictions")

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The trained task as plain JSON."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: dict[str, Any]) -> Task:
        """The task that :meth:`to_dict` was called on."""
