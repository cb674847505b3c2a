"""Trained models: a fitted task with its weights, in Python and in the files of ``structsmooth train``."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor

from structsmooth import __version__
from structsmooth.checkpoint import load_description, load_model, save_model
from structsmooth.experiments import Experiment
from structsmooth.files import decoding
from structsmooth.plain import from_plain, plain
from structsmooth.settings import Interval, PositiveInt
from structsmooth.solvers import SOLVERS, Solver
from structsmooth.solvers.state import Callback
from structsmooth.tasks import TASKS, FittedTask, Task, load_task
from structsmooth.tasks.base import Predictions, Split
from structsmooth.tasks.probabilities import probabilistic
from structsmooth.tasks.profile import Profile, Vocabulary
from structsmooth.uncertainty import DEFAULT, Rule

_NOT_SHOWN = {"structsmooth", "trained"}
_NAMED = 8  # labels that a warning names


@dataclass(frozen=True)
class _Description:
    """What ``model.json`` says; what was trained is read by the types of its task."""

    structsmooth: str
    task: str
    settings: dict[str, Any]
    n: PositiveInt
    lam: Annotated[float, Interval()]
    message: str
    metrics: dict[str, dict[str, float]]
    trained: dict[str, Any]
    status: str = ""
    checksum: str | None = None
    estimator: dict[str, Any] = field(default_factory=dict)
    profile: Profile | None = None
    vocabulary: Vocabulary | None = None


@dataclass(frozen=True)
class TrainedModel:
    """A fitted task with its weights: it predicts, is measured, and is saved without code.

    Methods take examples as the task's ``read`` gives them, plain Python where the task accepts it (lists of tokens for
    taggers), or the path of a file.

    Attributes:
        task: the fitted task.
        weights: w, [dim].
        description: how it was trained, as plain JSON: name of the task, settings, n, λ, a message and metrics.
    """

    task: FittedTask
    weights: Tensor
    description: dict[str, Any]

    @property
    def watched(self) -> str:
        """The data that were measured after each pass of training: dev, test, or held-out if it is not known."""
        return next((split for split in ("dev", "test") if split in self.description["metrics"]), "held-out")

    @property
    def profile(self) -> Profile | None:
        """How unsure the model was about data that did not train it, if it keeps that."""
        profile: Profile | None = from_plain(Profile | None, self.description.get("profile"), "profile")
        return profile

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words of its training data, if it keeps them."""
        words: Vocabulary | None = from_plain(Vocabulary | None, self.description.get("vocabulary"), "vocabulary")
        return words

    def predict(self, examples: str | Path | Sequence[Any]) -> list[Any]:
        """The best output of each example."""
        return [ranked[0][1] for ranked in self.alternatives(examples, 1)]

    def alternatives(self, examples: str | Path | Sequence[Any], k: int) -> Predictions:
        """The k best outputs of each example with their scores, best first; fewer where there are no more."""
        return self.task.predict(self.weights, self._examples(examples, "predict"), k)

    def score(self, examples: str | Path | Sequence[Any]) -> dict[str, float]:
        """Metrics of the best outputs of labelled examples.

        Warns of labels that the training data did not have.

        Raises:
            ValueError: examples without labels.
        """
        labelled = self._examples(examples, "test")
        if warning := unseen_warning(self.task, labelled):
            warnings.warn(warning, stacklevel=2)
        return self.task.measure(labelled, self.predict(labelled))[0]

    def uncertainty(
        self, examples: str | Path | Sequence[Any], by: Rule = DEFAULT, groups: Sequence[int] | None = None
    ) -> Tensor:
        """How unsure the model is about each example, the larger the less sure: float64 [n].

        Args:
            examples: with or without labels.
            by: the rule; see :func:`structsmooth.uncertainty.uncertainty`.
            groups: the number of the group of each example, if that of groups is wanted, such as texts.

        Raises:
            ValueError: a task without probabilities, or an unknown rule.
        """
        task = probabilistic(self.task, "uncertainty")
        if by != "margin":  # whose order no temperature changes
            task.warn_if_uncalibrated()
        return task.uncertainty(self.weights, self._examples(examples, "predict"), by, groups)

    def entropy(self, examples: str | Path | Sequence[Any]) -> Tensor:
        """The exact entropy of the distribution of outputs of each example, in nats: float64 [n].

        Raises:
            ValueError: a task without probabilities.
        """
        return self.uncertainty(examples, "entropy")

    def calibrated(self, examples: str | Path | Sequence[Any]) -> "TrainedModel":
        """The model with a temperature of its probabilities, fitted to labelled examples that did not train it.

        Raises:
            ValueError: a task without probabilities, or no example whose label the model can predict.
        """
        described = {name: value for name, value in self.description.items() if name != "profile"}  # it was another one
        task = probabilistic(self.task, "calibration").calibrated(self.weights, self._examples(examples, "test"))
        return replace(self, task=task, description=described)

    def profiled(self, examples: Sequence[Any], vocabulary: Vocabulary | None, source: str) -> "TrainedModel":
        """The model that remembers how unsure it is about held-out examples, and the words of its training data.

        Args:
            examples: that did not train it: it is surer about those that did.
            vocabulary: of its training data, if that is known.
            source: what the examples are.

        Raises:
            ValueError: a task without probabilities.
        """
        profile = Profile.of(probabilistic(self.task, "a profile"), self.weights, examples, vocabulary, source)
        kept = {"profile": profile} | ({} if vocabulary is None else {"vocabulary": vocabulary})
        return replace(self, description=self.description | plain(kept))

    def save(self, path: str | Path) -> None:
        """Write ``model.safetensors`` and ``model.json`` into a folder, which is made if need be."""
        description = {"structsmooth": __version__, **self.description, "trained": self.task.to_dict()}
        save_model(path, description, {"weights": self.weights})
        self.task.save_files(Path(path))

    def _examples(self, examples: str | Path | Sequence[Any], split: Split) -> Sequence[Any]:
        if isinstance(examples, (str, Path)):
            try:
                return self.task.read(str(examples), split)
            except FileNotFoundError as error:
                if not self.task.takes_text:
                    raise
                message = f"{error}; text goes into a list, as in predict([{str(examples)!r}])"
                raise FileNotFoundError(message) from None
        return self.task.examples(examples)


def load(path: str | Path, task: type[Task] | None = None) -> TrainedModel:
    """The model in a folder that ``structsmooth train`` or :meth:`TrainedModel.save` wrote; executes no code of it.

    Tasks of this package load by their names. A folder cannot name any other code to import.

    Args:
        path: the folder, of any origin.
        task: the class of a task of your own.

    Raises:
        FileNotFoundError: no model in the folder.
        ValueError: a damaged file, one that has changed since the model was saved, a task of your own that is not
            given, or a model of another task than the given one.
    """
    description, tensors = load_model(path)
    _check(description, path)
    kind = _task_of(description["task"], task, path)
    with decoding(path, "a model of its task"):
        fitted = kind.from_dict(description["trained"])
        weights = tensors.get("weights", Tensor())
        if weights.shape != (fitted.dim or len(weights),) or not weights.is_floating_point():
            raise ValueError(f"the task needs {fitted.dim} weights, got {weights.dtype} {tuple(weights.shape)}")
        if not weights.sum().isfinite():  # which takes no memory
            raise ValueError("some weights are not finite")
    shown = {name: value for name, value in description.items() if name not in _NOT_SHOWN}
    return TrainedModel(fitted.opened_in(Path(path)), weights, shown)


def describe(path: str | Path) -> dict[str, Any]:
    """The contents of ``model.json`` in a folder.

    Raises:
        FileNotFoundError: no model in the folder.
        ValueError: a damaged file, or one that has changed since the model was saved.
    """
    description = load_description(path)
    _check(description, path)
    return description


def _check(description: dict[str, Any], path: str | Path) -> None:
    if "estimator" in description and "trained" not in description:
        raise ValueError(
            f"{path}: an estimator whose tokens no task reads, or one that version 0.3 saved: open it by "
            "structsmooth.estimators.SequenceTagger.load; what this saves of words is a model of a task, too"
        )
    with decoding(path, "the description of a model"):
        from_plain(_Description, description, "model.json")


def _task_of(name: str, given: type[Task] | None, path: str | Path) -> type[Task]:
    """The class of the task that a folder names: one of this package, or the one that is given."""
    name = next((known for known, place in TASKS.items() if place == name), name)
    if given is None and name not in TASKS:
        raise ValueError(
            f"{path}: a model of the task {name!r}, which is not of this package, and no module is imported because a "
            f"folder names it: give the class, by load({str(path)!r}, task=...) or --task {name}, if you trust its code"
        )
    kind = load_task(name) if given is None else given
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        raise TypeError(f"task must be a subclass of structsmooth.tasks.Task, got {given!r}")
    if _name(kind).rpartition(":")[2] != name.rpartition(":")[2]:
        raise ValueError(f"{path}: a model of the task {name!r}, not of {_name(kind)!r}")
    return kind


def train(
    task: Task,
    examples: str | Path | Sequence[Any],
    *,
    solver: Solver[Any] | None = None,
    lam: str | float | None = None,
    passes: int | None = None,
    seed: int = 0,
    callbacks: Iterable[Callback] = (),
) -> TrainedModel:
    """Train a task's model, as ``structsmooth train`` does.

    Args:
        task: the task with its options.
        examples: labelled examples, as ``task.read`` gives them, or the path of a file of them.
        solver: the task's default solver if not given.
        lam: λ, a number or ``"c/n"``; the task's default if not given.
        passes: limit on passes; the task's default if not given.
        seed: same seed, same model.
        callbacks: called after every pass with a :class:`~structsmooth.solvers.Progress`.

    Raises:
        TypeError: no task, but its name or its class.
        ValueError: examples without labels, a bad λ, or a solver that does not suit the task.
        OSError: a file that cannot be read, or does not exist.

    Example:
        >>> from structsmooth.tasks import NER
        >>> files = NER.default_files()
        >>> model = train(NER(words_only=True), files["train"], passes=3)
        >>> tags = model.predict(["The Bank of New York"])
        >>> model.score(files["train"])["f1"] > 0.9
        True
    """
    if not isinstance(task, Task):
        raise TypeError(_no_task(task))
    if isinstance(examples, (str, Path)):
        examples = task.read(str(examples), "train")
    solver = _preferred(task) if solver is None else solver
    fitted, rule = task.fit(examples), task.lam if lam is None else lam
    problem = fitted.problem(examples)
    experiment = Experiment(solver, rule, task.passes if passes is None else passes, seed)
    value, settings = experiment.lam_of(problem), asdict(task) | experiment.settings()
    result = experiment.run(problem, measure=callbacks)
    description = {"task": _name(type(task)), "settings": settings, "n": problem.n, "lam": value, "metrics": {}}
    return TrainedModel(
        fitted, result.weights, description | {"status": result.status.value, "message": result.message}
    )


def _no_task(given: object) -> str:
    """The message about a value that is no task, with what to give instead."""
    remedy = "as in structsmooth.tasks.NER()"
    if isinstance(given, str):
        remedy = f"as in structsmooth.tasks.load_task({given!r})()"
    elif isinstance(given, type) and issubclass(given, Task):
        remedy = f"{given.__name__}()"
    return f"task must be a Task, an object with its options, {remedy}; got {given!r}"


def unseen_warning(task: FittedTask, examples: Sequence[Any]) -> str:
    """What to say of labels of examples that training examples did not have; nothing if there are none."""
    unseen = task.unseen_labels(examples)
    if not unseen:
        return ""
    frequent = sorted(unseen, key=lambda name: (-unseen[name], name))
    named = ", ".join(f"{name} ({unseen[name]:,})" for name in frequent[:_NAMED])
    more = f" and {len(unseen) - _NAMED:,} others" if len(unseen) > _NAMED else ""
    return (
        f"{sum(unseen.values()):,} labels do not occur in the training data, so that the model cannot predict them: "
        f"{named}{more}"
    )


def _name(task: type[Task]) -> str:
    """The name by which :func:`~structsmooth.tasks.load_task` finds a task."""
    path = f"{task.__module__}:{task.__qualname__}"
    return next((name for name, known in TASKS.items() if known == path), path)


def _preferred(task: Task) -> Solver[Any]:
    name = task.preferred_solver
    return SOLVERS[name](**(task.hyperparameters if name == task.solver else {}))
