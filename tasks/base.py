"""The classes of tasks: what the command line, reports and estimators ask of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TextIO, TypeVar, get_type_hints

import torch
from torch import Tensor, nn

from structsmooth.export import Exported
from structsmooth.files import data_file
from structsmooth.markup import Block, Markup, alternatives, element, joined
from structsmooth.plain import check_entries, from_plain, is_needed, plain
from structsmooth.problems import Problem
from structsmooth.processes import process_share
from structsmooth.settings import check_settings
from structsmooth.tasks.json_lines import Predictions as Predictions
from structsmooth.tasks.json_lines import write_json_lines
from structsmooth.text.lines import read_text

T = TypeVar("T")

Split = Literal["train", "dev", "test", "predict"]
"""What a file is read for. Only examples to predict may lack labels."""


@dataclass(frozen=True)
class Task(ABC):
    """A learning task: a dataclass whose fields are its options, with the defaults that worked.

    Every field has a default and is a flag of the command line, which takes its help from the ``Args`` section of the
    docstring. :meth:`read` gives a sequence of examples, of any type that suits the task. :meth:`fit` learns what
    features and labels there are, and returns a :class:`FittedTask`, which builds the problem, predicts and measures.

    Attributes:
        summary: one line for the list of tasks.
        files: what data files look like, in a sentence or two for the help of commands.
        data: files to use when none are given, train and test, in the folder that ``STRUCTSMOOTH_DATA`` names.
        example: flags of data files, for the example in the help of ``train``.
        headline: the metric to watch, among the metrics that ``measure`` returns.
        headline_is_error: whether smaller values are better.
        lam: λ that worked, as ``"c/n"`` or a number.
        passes: number of passes that worked.
        solver: the solver for the task, by its name on the command line. Casimir-SVRG takes every convex problem;
            ``"proximal-bcfw"`` is faster where scores are linear and losses hinges.
        hyperparameters: of that solver, where other values than its defaults worked better.
        partial_option: the option that makes labels partial, unless it has its default; none if not given.
        cpu_alone: whether problems are compiled ones, which train on no other device.
        fitted_type: what :meth:`fit` returns.
    """

    summary: ClassVar[str]
    files: ClassVar[str] = ""
    data: ClassVar[Mapping[str, str]] = {}
    example: ClassVar[str] = "--train train.txt --test test.txt"
    headline: ClassVar[str]
    headline_is_error: ClassVar[bool] = False
    lam: ClassVar[str] = "1/n"
    passes: ClassVar[int] = 15
    solver: ClassVar[str] = "casimir-svrg"
    hyperparameters: ClassVar[Mapping[str, Any]] = {}
    partial_option: ClassVar[str] = ""
    cpu_alone: ClassVar[bool] = False
    fitted_type: "ClassVar[type[FittedTask]]"

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def preferred_solver(self) -> str:
        """The solver for these options, by its name: ``solver``, but for partial labels, which have no dual."""
        name = self.partial_option
        return "convex-concave" if name and getattr(self, name) != getattr(type(self), name) else self.solver

    @classmethod
    def default_files(cls) -> dict[str, str]:
        """Data files to use when none are given, by split: those of ``data``.

        Raises:
            ValueError: the task comes without data; see :func:`~structsmooth.files.data_file`.
            FileNotFoundError: no such file.
        """
        if not cls.data:
            raise ValueError(f"{cls.__name__} comes without data: give --train")
        return {split: data_file(cls.__name__.lower(), path) for split, path in cls.data.items()}

    @abstractmethod
    def read(self, path: str | TextIO, split: Split = "train") -> Sequence[Any]:
        """Examples of a file.

        Raises:
            ValueError: a malformed file, with its path and the line or part; or missing labels.
            OSError: a file that cannot be read.
        """

    @abstractmethod
    def fit(self, examples: Sequence[Any]) -> "FittedTask":
        """The task with the features and labels of training examples."""

    def fit_own(self, path: str) -> tuple["FittedTask", Sequence[Any]]:
        """The task with the features and labels of all examples of a training file, and this process's own examples.

        Every process that joined calls it. Here each reads the whole file and drops the examples of the others. A task
        whose readers can skip them, and that can put together what processes learn, overrides this.

        Raises:
            ValueError: as for :meth:`read`, in all processes; or fewer examples than processes.
            OSError: a file that some process cannot read.
        """
        examples = self.read(path, "train")
        shard = process_share(len(examples))
        return self.fit(examples), [examples[i] for i in shard]

    def summary_of(self, examples: Sequence[Any]) -> str:
        """What labelled examples have, in a line that is shown before training; here nothing."""
        return ""

    def texts(self, examples: Sequence[Any]) -> Sequence[int] | None:
        """The number of the text, or other group, of each example, which cross-validation keeps whole.

        ``None`` where it is unknown: then folds are blocks of neighbours.
        """
        return None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "FittedTask":
        """The fitted task that :meth:`FittedTask.to_dict` was called on.

        Raises:
            ValueError, TypeError: entries that are not of the types of the fields.
        """
        names = {f.name for f in fields(cls)}
        options = {name: value for name, value in data.items() if name in names}
        learned = {name: value for name, value in data.items() if name not in names}
        return cls.fitted_type.from_learned(from_plain(cls, options, "trained"), learned)


@dataclass(frozen=True)
class FittedTask(ABC):
    """A task together with everything it learned from training examples except the weights.

    A dataclass: its fields are the task and what was learned, in plain JSON or with a ``to_dict`` of its own, whose
    result ``from_learned`` translates back.

    Args:
        task: the task, with the options that fitting settled.

    Attributes:
        takes_text: whether :meth:`examples` takes lines of text.
        example_type: what examples are, where :meth:`examples` makes none from plain Python objects.
        input_json: what identifies an example in lines of JSON: the attributes of examples by their names there.
        output_json: the name of an output in lines of JSON, and its type; see :func:`~structsmooth.plain.from_plain`.
    """

    task: Task

    takes_text: ClassVar[bool] = False
    example_type: ClassVar[type] = object
    input_json: ClassVar[Mapping[str, str]] = {}
    output_json: ClassVar[tuple[str, Any]] = ("output", Any)

    def read(self, path: str | TextIO, split: Split = "predict") -> Sequence[Any]:
        """Examples of a file, as :meth:`Task.read` gives them."""
        return self.task.read(path, split)

    def read_text(self, path: str | TextIO) -> Sequence[Any]:
        """Examples of lines of text, whatever they look like.

        Raises:
            ValueError: a task that does not take text.
        """
        raise ValueError(f"--text: {type(self.task).__name__} does not take lines of text")

    def arriving(self, stream: TextIO, is_text: bool = False) -> Iterator[TextIO]:
        """The parts of an open stream that are answered one by one, each to be read as a file; here all of it.

        Raises:
            ValueError: more than a file may have.
        """
        yield StringIO("".join(f"{line}\n" for line in read_text(stream)))

    def examples(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Examples to predict from plain Python objects; here those that are examples already.

        Raises:
            TypeError: an object that is no example.
        """
        for i, one in enumerate(inputs):
            if not isinstance(one, self.example_type):
                kind = f"{self.example_type.__module__}.{self.example_type.__qualname__}"
                remedy = "give the path of a file, or examples as read(path) of the task gives them"
                raise TypeError(f"example {i} must be a {kind}, got {type(one).__name__}: {remedy}")
        return inputs

    def restricted(self, examples: Sequence[Any], gazetteer: str) -> Sequence[Any]:
        """Examples whose outputs are to keep to what a file says of phrases.

        Raises:
            ValueError: a task without entities.
        """
        raise ValueError(f"{type(self.task).__name__} has no gazetteer")

    @abstractmethod
    def problem(self, examples: Sequence[Any]) -> Problem:
        """The finite sum over training examples."""

    @abstractmethod
    def predict(self, weights: Tensor, examples: Sequence[Any], k: int = 1) -> Predictions:
        """The k best outputs of each example with their scores, best first; fewer where there are no more."""

    @abstractmethod
    def measure(self, examples: Sequence[Any], outputs: Sequence[Any]) -> tuple[dict[str, float], str]:
        """Metrics of predicted outputs by name, and a table for humans.

        Raises:
            ValueError: examples without labels.
        """

    def unseen_labels(self, examples: Sequence[Any]) -> Mapping[str, int]:
        """How often each label occurs in labelled examples that training examples did not have.

        A model cannot predict them. Here none; a task whose labels come from its training data overrides this.
        """
        return {}

    def write(self, examples: Sequence[Any], predictions: Predictions, stream: TextIO) -> None:
        """Write the examples with their predicted outputs; here as lines of JSON."""
        write_json_lines(self, examples, predictions, stream)

    def write_answers(self, weights: Tensor, examples: Sequence[Any], predictions: Predictions, stream: TextIO) -> None:
        """Write predictions in the form in which the examples came; here as :meth:`write` does."""
        self.write(examples, predictions, stream)

    def exported(self, weights: Tensor) -> Exported:
        """The scores with their best output as a module of tensors, for programs that lack this library.

        Raises:
            ValueError: scores that are no such module, as here.
        """
        raise self._not_exported("scores from tensors")

    def write_exported(self, weights: Tensor, path: Path, form: Literal["onnx", "pt2"]) -> None:
        """Write what :meth:`exported` gives into a file.

        Raises:
            ValueError: scores that are no such module.
        """
        self.exported(weights).save(path, form)

    def write_standalone(self, weights: Tensor, folder: Path) -> None:
        """Write what predicts by Python and numpy alone.

        Raises:
            ValueError: there is nothing of the kind, as here.
        """
        raise self._not_exported("decoder in numpy")

    def _not_exported(self, lacking: str) -> ValueError:
        remedy = "taggers export as --format numpy, or onnx with an encoder, segments as onnx and pt2; "
        remedy += "load(DIR).predict serves all tasks"
        return ValueError(f"{type(self.task).__name__} has no {lacking}: {remedy}")

    def save_files(self, folder: Path) -> list[str]:
        """Write what a model needs beside its weights and its description into its folder: names; here none."""
        return []

    def opened_in(self, folder: Path) -> "FittedTask":
        """The fitted task of a model that was opened in a folder, with the files that are there; here itself."""
        return self

    def input_to_json(self, example: Any) -> dict[str, Any]:
        """What identifies an example in lines of JSON, such as its tokens or the name of its image."""
        return {name: plain(getattr(example, attribute)) for name, attribute in self.input_json.items()}

    def output_to_json(self, output: Any) -> dict[str, Any]:
        """An output as plain JSON, without a ``score``; here under the name of ``output_json``."""
        return {self.output_json[0]: plain(output)}

    def probabilities_to_json(
        self, weights: Tensor, examples: Sequence[Any], predictions: Predictions
    ) -> Iterator[list[dict[str, Any]]]:
        """What lines of JSON say of the probability of each output, beside its score; here nothing."""
        return ([{} for _ in ranked] for ranked in predictions)

    def output_from_json(self, values: Mapping[str, Any]) -> Any:
        """The inverse of :meth:`output_to_json`."""
        name, hint = self.output_json
        return from_plain(hint, values[name], name)

    def save_mask(self, output: Any, path: Path) -> None:
        """Save an output that labels pixels as a PNG file of one channel.

        Raises:
            ValueError: a task without masks.
        """
        raise ValueError(f"{type(self.task).__name__} has no masks")

    def draw(self, examples: Sequence[Any], predictions: Predictions, folder: Path) -> None:
        """Save a picture of each example with its best output in a folder.

        Raises:
            ValueError: a task without pictures.
        """
        raise ValueError(f"{type(self.task).__name__} has no pictures of its predictions")

    def draw_model(self, weights: Tensor, folder: Path) -> list[str]:
        """Save pictures of trained weights in a folder, if the task has any: the names of the files."""
        return []

    def show_example(self, example: Any, ranked: Sequence[tuple[float, Any]]) -> Markup:
        """How an example looks in a report; here as the text of its outputs.

        Args:
            example: with its label, if that is known.
            ranked: its best outputs with their scores, at least one, best first.
        """
        return joined([element("p", str(ranked[0][1])), alternatives(ranked, str)])

    def mistake(self, example: Any, output: Any) -> float:
        """How wrong an output of a labelled example is, from 0; here the error by the headline alone.

        Raises:
            ValueError: an example without a label.
        """
        value = self.measure([example], [output])[0][self.task.headline]
        return value if self.task.headline_is_error else 1 - value

    def show_results(self, examples: Sequence[Any], outputs: Sequence[Any]) -> list[Block]:
        """Tables and figures of predicted outputs of labelled examples for a report, such as metrics by class."""
        return []

    def show_weights(self, weights: Tensor, examples: Sequence[Any]) -> list[Block]:
        """Tables and figures of trained weights for a report; examples may be needed to name features."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """The options and what was learned, as plain JSON."""
        learned = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "task"}
        values: dict[str, Any] = plain(self.task) | plain(learned)
        return values

    @property
    def dim(self) -> int | None:
        """Number of weights, which a saved model must have; ``None`` where examples decide on it."""
        return None

    @classmethod
    def from_learned(cls, task: Task, learned: Mapping[str, Any]) -> "FittedTask":
        """The fitted task from its task and the other entries of :meth:`to_dict`, by the types of its fields.

        Raises:
            ValueError, TypeError: other entries, or entries of other types.
        """
        types, entries = get_type_hints(cls, include_extras=True), [f for f in fields(cls) if f.name != "task"]
        check_entries("trained", learned, [f.name for f in entries], [f.name for f in entries if is_needed(f)])
        return cls(task, **{name: from_plain(types[name], value, name) for name, value in learned.items()})


def known(label: T | None, lacking: str, remedy: str = "") -> T:
    """A label; ``ValueError`` if it is not known, with what the data lack and how files give it."""
    if label is None:
        raise ValueError(f"{lacking}: training and evaluation need them{remedy}")
    return label


def labelled(examples: list[T], split: Split, label: Callable[[T], Any]) -> list[T]:
    """Examples of a file, whose labels must be known unless they are to be predicted; ``label`` gives that of one."""
    for example in examples if split != "predict" else ():
        label(example)
    return examples


def best_outputs(
    module: nn.Module, weights: Tensor, inputs: Iterable[Any], k: int
) -> Iterator[list[tuple[float, Tensor]]]:
    """The k best outputs of each input, a batch of one, with their scores by a module with these weights."""
    nn.utils.vector_to_parameters(weights, module.parameters())
    for x in inputs:
        with torch.no_grad():
            values, y = module(x).topk(k)
        ranked = zip(values[0].tolist(), y[0], strict=True)
        yield [(score, output) for score, output in ranked if score > -torch.inf]


class LastResultCache(Generic[T]):
    """A function of a list that keeps its latest result: models are measured on the same list after every pass."""

    def __init__(self, function: Callable[[Sequence[Any]], T]) -> None:
        self._function = function
        self._latest: tuple[Sequence[Any], T] | None = None

    def __call__(self, examples: Sequence[Any]) -> T:
        """What the function gives for a list; of the latest list, without a new call."""
        latest = self._latest  # which another thread may replace
        if latest is None or latest[0] is not examples:
            self._latest = latest = examples, self._function(examples)
        return latest[1]
