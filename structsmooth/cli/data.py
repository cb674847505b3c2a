"""What commands that train have in common: their task, its data, and metrics on them."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from structsmooth import __version__, processes
from structsmooth.cli.flags import add_flags, check_needs, from_flags
from structsmooth.files import checksum, naming
from structsmooth.lazy import LazyModule
from structsmooth.messages import counted, note, stage, warn
from structsmooth.problems import Problem, partitioned, sharded
from structsmooth.processes import checksum_of_all, checksum_of_hosts
from structsmooth.solvers import Progress
from structsmooth.tasks import FittedTask, Task, load_task
from structsmooth.tasks.base import Split
from structsmooth.tasks.probabilities import ProbabilisticTask
from structsmooth.tasks.profile import Vocabulary
from structsmooth.tasks.trained import unseen_warning
from structsmooth.text.corpus import Corpus

hosts = LazyModule("structsmooth.tasks.text.hosts")  # with all readers of texts, which few commands need

# Options of some tasks, which users of others may look for.
_OF_TASKS = {"encoder": "ner, chunking and parsing", "tune": "ner, chunking and localization"}
SPLITS = ("train", "dev", "test")
_HELD_OUT: tuple[Split, ...] = ("dev", "test")


def add_data_flags(parser: ArgumentParser, wanted: Sequence[str] = SPLITS) -> None:
    """A flag for each of the splits that are wanted."""
    where = "Without these, the task's own: in the package, or in the folder that STRUCTSMOOTH_DATA names."
    data = parser.add_argument_group("data", where)
    purposes = ("training data", "development data, to evaluate models on", "test data, to evaluate models on")
    for split, purpose in zip(SPLITS, purposes, strict=True):
        if split in wanted:
            data.add_argument(f"--{split}", metavar="FILE", help=purpose)


def add_task_flags(parser: ArgumentParser, command: str, arguments: Sequence[str]) -> tuple[type[Task], str] | None:
    """Flags of the task that a command names, before they are parsed: the task, and its name for folders, if any.

    Raises:
        ValueError: options before the task, an option about encoders that only other tasks have, or one that says
            nothing without another.
    """
    if arguments[:1] != [command] or len(arguments) < 2 or arguments[1] in ("-h", "--help"):
        return None
    name = arguments[1]
    if name.startswith("-"):
        raise ValueError(f"the task comes first, as in structsmooth {command} ner {' '.join(arguments[1:])}")
    task = load_task(name)
    for option, tasks in _OF_TASKS.items():
        if f"--{option}" in (given.partition("=")[0] for given in arguments) and not hasattr(task, option):
            raise ValueError(f"--{option}: {name} has no such option, which {tasks} have")
    check_needs(task, arguments)
    if task.files:
        parser.add_argument_group(f"files of {name}", task.files)
    add_flags(parser, f"options of {name}", task)
    # Of package.module:MyTask, the last part.
    return task, name.rpartition(":")[2].lower()


def form_of(examples: Sequence[Any]) -> str:
    """What a file of text was read as; nothing of other files."""
    return examples.form if isinstance(examples, Corpus) else ""


def read_examples(task: Task | FittedTask, path: str, split: Split) -> Sequence[Any]:
    """Examples of a file, with what is being read, and as what, on standard error."""
    with stage(f"reading {path}"), naming(path):
        examples = task.read(path, split)
    note_form(path, examples)
    if split == "train" and isinstance(task, Task) and (summary := task.summary_of(examples)):
        note(f"{path}: {summary}")
    return examples


def note_form(path: str, examples: Sequence[Any]) -> None:
    """Say what a file of text was read as."""
    if form := form_of(examples):
        note(f"{path}: read as {form}")


def data_files(options: Namespace) -> dict[str, str]:
    """The files that parsed flags name, by split, or else those of their task."""
    files = {split: path for split in SPLITS if (path := getattr(options, split)) is not None}
    if files and "train" not in files:
        raise ValueError("--train is needed with --dev or --test")
    return files or load_task(options.task).default_files()


def identity(files: Mapping[str, str], own: bool = False, local: bool = False) -> dict[str, Any]:
    """What a run must have to go on, and all processes of one: the version and the data, by checksums of the files.

    Every process calls it. If each trains on its ``own`` examples, it reads its own training files alone. If these are
    ``local``, each host has others.
    """
    others = [split for split in files if not ((own or local) and split == "train")]
    sums = processes.run_on_all_ranks(lambda: {f"{split} checksum": checksum(files[split]) for split in others})
    if own or local:
        sums["train checksum"] = (checksum_of_hosts if local else checksum_of_all)(files["train"])
    return {"structsmooth": __version__, **files, **sums}


class HeldOut:
    """Labelled examples to measure models on again and again, shared out over processes.

    A process predicts the same list every time, so that tasks can keep its features.
    """

    def __init__(self, examples: Sequence[Any]) -> None:
        self.examples = examples
        shard = processes.share(len(examples))
        if len(shard) == len(examples):
            self._shard = examples
        else:  # a corpus knows the documents of its sentences, which encoders read as their context
            self._shard = examples.part(shard) if isinstance(examples, Corpus) else [examples[i] for i in shard]

    @classmethod
    def read(cls, task: FittedTask, path: str, split: Split) -> "HeldOut":
        """Labelled examples of a file."""
        examples = read_examples(task, path, split)
        if warning := unseen_warning(task, examples):
            warn(f"{path}: {warning}")
        return cls(examples)

    def measure(self, task: FittedTask, weights: Tensor) -> tuple[dict[str, float], str]:
        """Metrics of the best outputs under ``weights`` by name, and a table of them."""
        outputs = [ranked[0][1] for ranked in task.predict(weights.cpu(), self._shard)] if self._shard else []
        return task.measure(self.examples, processes.concatenated(outputs))


@dataclass(frozen=True)
class TrainingData:
    """What a command trains and measures on: files by split, fitted task, problem, held-out data, and forms by split.

    The vocabulary of training examples is known if there are held-out ones and one process has them all.
    Processes share the passes of the problem. They have all examples, or in a ``partition`` their own alone.
    """

    files: dict[str, str]
    task: FittedTask
    problem: Problem
    held_out: dict[str, HeldOut]
    forms: dict[str, str]
    vocabulary: Vocabulary | None = None

    @classmethod
    def read(cls, options: Namespace, partition: bool = False, device: str = "cpu") -> "TrainingData":
        """The data that parsed flags name, for the task that they describe, with the problem on a device."""
        task, files = from_flags(load_task(options.task), options), data_files(options)
        fit = _shard if partition and processes.count() > 1 else _all
        fitted, examples = fit(task, files["train"], getattr(options, "local_data", False))
        forms = {"train": form_of(examples)}
        if not isinstance(fitted, getattr(task, "fitted_type", ())):
            name = type(fitted).__name__
            raise TypeError(f"{type(task).__name__} needs fitted_type = {name}, which its saved models are loaded as")
        held_out: dict[str, HeldOut] = {
            split: HeldOut.read(fitted, files[split], split) for split in _HELD_OUT if split in files
        }
        forms |= {split: form_of(data.examples) for split, data in held_out.items()}
        with stage(f"encoding {counted(len(examples), 'example')}"):
            problem = (partitioned if partition else sharded)(fitted.problem(examples).to(device))
        kept = {f"{split} read as": form for split, form in forms.items() if form}
        vocabulary, is_whole = None, not (partition and processes.count() > 1)
        if held_out and is_whole and isinstance(fitted, ProbabilisticTask):
            vocabulary = Vocabulary.of(fitted, examples)
        return cls(files, fitted, problem, held_out, kept, vocabulary)

    @property
    def headline(self) -> str:
        """The metric to watch."""
        return self.task.task.headline

    @property
    def watched(self) -> str | None:
        """The split to watch during training: dev data if there are any, else test data."""
        return next((split for split in _HELD_OUT if split in self.held_out), None)

    @property
    def watched_metric(self) -> str:
        """The name of the metric to watch, with its split."""
        return self.headline if self.watched is None else self.metric(self.watched)

    def measure_watched(self, progress: Progress[Any]) -> None:
        """Add the metrics of the split to watch to the row of a pass."""
        if self.watched is not None:
            progress.row.metrics.update(self.held_out[self.watched].measure(self.task, progress.state.weights)[0])

    def measure_all(self, progress: Progress[Any]) -> None:
        """Add the metrics of all splits to the row of a pass, with their splits."""
        for split, data in self.held_out.items():
            found, _ = data.measure(self.task, progress.state.weights)
            progress.row.metrics.update({f"{split} {name}": value for name, value in found.items()})

    def headline_of(self, split: str, weights: Tensor) -> float:
        """The metric to watch on a split, under some weights."""
        return self.held_out[split].measure(self.task, weights)[0][self.headline]

    def metric(self, split: str) -> str:
        """The name of the metric to watch on a split."""
        return f"{split} {self.headline}"


def examples_of_hosts(task: Task, path: str) -> Sequence[Any]:
    """All training examples, of which each host has some."""
    with stage(f"reading {path} on every host"):
        examples: Sequence[Any] = hosts.joined(hosts.read_host(task, path))
    note_form(path, examples)
    return examples


def _all(task: Task, path: str, local: bool) -> tuple[FittedTask, Sequence[Any]]:
    """The fitted task of training data, and all its examples."""
    examples = examples_of_hosts(task, path) if local else read_examples(task, path, "train")
    with stage(f"finding the features and labels of {counted(len(examples), 'example')}"):
        return task.fit(examples), examples


def _shard(task: Task, path: str, local: bool) -> tuple[FittedTask, Sequence[Any]]:
    """The fitted task of training data, and the examples of this process."""
    with stage(f"reading the examples of each process in {path}, and finding the features and labels of all"):
        if local:
            fitted, examples = hosts.fit_joined(task, hosts.read_host(task, path))
        else:
            fitted, examples = task.fit_own(path)
    note_form(path, examples)
    return fitted, examples
