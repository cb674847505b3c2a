"""Taggers in files, in the format of the models of tasks: weights and landmarks as safetensors, all else as JSON."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from structsmooth import __version__
from structsmooth.checkpoint import load_model, save_model
from structsmooth.estimators.tokens import DictFeatures, KernelRows, NumberRows, TokenFeatures, WordFeatures
from structsmooth.files import decoding
from structsmooth.history import History
from structsmooth.kernels import KernelFeatures
from structsmooth.plain import from_plain, plain
from structsmooth.settings import Positive
from structsmooth.solvers import Solver, parse_solver, solver_text
from structsmooth.text.encoders import AttributeEncoder, DictionaryEncoder
from structsmooth.text.inputs import Inputs, with_inputs
from structsmooth.text.schemes import TagScheme
from structsmooth.text.tagger import Tags

T = TypeVar("T")

_NAME = "SequenceTagger"
_LEARNED = ("objective_", "gap_", "n_iter_", "lam_")


@dataclass(frozen=True)
class _Words:
    """The entries that the model of a task has about a tagger of words, files and training aside."""

    task: str
    attributes: AttributeEncoder
    tags: list[str] | list[int]
    inputs: Inputs
    scheme: Literal[TagScheme, "plain"]
    rich: bool = True
    transition_scale: float = 1.0
    temperature: Positive | None = None

    @property
    def template(self) -> str:
        """The name of the templates of attributes."""
        return "chunking" if self.task == "chunking" else "rich" if self.rich else "plain"

    @property
    def entity_scheme(self) -> TagScheme | None:
        """The scheme of tags of entities; ``None`` for plain tags."""
        return None if self.scheme == "plain" else self.scheme


@dataclass(frozen=True)
class _Estimator:
    """The entries that an estimator has besides those of a model."""

    name: str
    parameters: dict[str, Any]
    learned: dict[str, float]
    history: list[dict[str, Any]]
    scheme: TagScheme | None = None
    columns: list[str] = field(default_factory=list)
    temperature: Positive | None = None


def save(tagger: Any, folder: Path) -> None:
    """Write a fitted tagger into a folder; one of words as the model of a task, with what an estimator has besides."""
    features, tags, tensors = tagger.features_, tagger.tags_, {"weights": torch.from_numpy(tagger.weights_)}
    parameters, learned = _plain_parameters(tagger.get_params(deep=False)), {n: getattr(tagger, n) for n in _LEARNED}
    history, columns = [row.as_dict() for row in tagger.history_], list(getattr(tagger, "feature_names_in_", ()))
    estimator = _Estimator(_NAME, parameters, learned, history, tags.scheme, columns, tagger.temperature_)
    described = {"structsmooth": __version__, "estimator": plain(estimator)}
    if isinstance(features, WordFeatures):
        is_chunking = features.template == "chunking"
        trained = {"scheme": tags.scheme if tags.constrained else "plain", "bits": getattr(features.encoder, "bits", 0)}
        trained |= {} if is_chunking else {"rich": features.template == "rich"}
        trained |= plain({"attributes": features.encoder, "tags": tags.names, "inputs": features.inputs})
        trained["temperature"] = tagger.temperature_
        described |= {"task": "chunking" if is_chunking else "ner", "settings": parameters, "metrics": {}}
        described |= {**tagger._run, "lam": tagger.lam_, "trained": trained}
    else:
        values = features.to_dict()
        tensors |= {name: value for name, value in values.items() if isinstance(value, Tensor)}
        values = {name: value for name, value in values.items() if name not in tensors}
        described |= {"tags": asdict(tags), "features": {"kind": features.kind, **values}}
    save_model(folder, described, tensors)


def load(cls: Any, folder: Path) -> Any:
    """The tagger in a folder, or the model of a task that tags words as a tagger."""
    described, tensors = load_model(folder)
    with decoding(folder, f"a {_NAME}"):
        return _restored(cls, described, tensors)


def _restored(cls: Any, described: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    weights, words = tensors.pop("weights"), _words(described) if "trained" in described else None
    estimator = _estimator(cls, described, words)
    if estimator.name != _NAME:
        raise ValueError(f"it is of a {estimator.name}")
    tagger = cls(**_parameters(estimator.parameters))
    if estimator.columns:  # of data frames
        tagger.feature_names_in_ = np.array(estimator.columns, dtype=object)
    tagger.history_ = History.from_json_lines(map(json.dumps, estimator.history))
    for name in _LEARNED:
        setattr(tagger, name, estimator.learned[name])
    likelihood = 1.0 if tagger.loss == "crf" else None  # of folders of 0.3, which do not say
    tagger.temperature_ = (words or estimator).temperature or likelihood
    if words is None:
        tagger.tags_ = Tags(**described["tags"])
        tagger.features_ = _features(described["features"] | tensors, tagger)
    else:
        tagger.tags_ = Tags(words.tags, estimator.scheme, constrained=words.entity_scheme is not None)
        tagger.features_ = WordFeatures(words.template, words.inputs, words.attributes)
        tagger._run = {"n": described["n"], "status": described.get("status", ""), "message": described["message"]}
        rows, pairs, ends = weights.view(-1, len(words.tags)).tensor_split([-len(words.tags) - 2, -2])
        weights = torch.cat([rows, words.transition_scale * pairs, ends]).flatten()
    tagger.weights_ = weights.numpy()
    features, states = tagger.features_.size, len(tagger.tags_.names)
    if tagger.weights_.shape != ((features + states + 2) * states,) or not np.isfinite(tagger.weights_.sum()):
        raise ValueError(f"{features} features and {states} tags do not fit the weights")
    return tagger


def _words(described: dict[str, Any]) -> _Words:
    if described["task"] not in ("ner", "chunking"):
        raise ValueError(f"it is a model of the task {described['task']}")
    return _of_entries(_Words, with_inputs(described["trained"]) | {"task": described["task"]}, "trained")


def _estimator(cls: Any, described: dict[str, Any], words: _Words | None) -> _Estimator:
    """What an estimator has besides a model; of the model of a task, what is known of it."""
    if "estimator" in described or words is None:
        entries: Any = described["estimator"]
        if isinstance(entries, str):  # version 0.3 had all entries in one place
            entries = described | {"name": entries}
        return _of_entries(_Estimator, entries, "estimator")
    tagger = cls(lam=described["lam"], template=words.template, constraints=words.entity_scheme)
    unknown = dict.fromkeys(_LEARNED, np.nan) | {"lam_": described["lam"]}
    return _Estimator(_NAME, _plain_parameters(tagger.get_params(deep=False)), unknown, [], words.entity_scheme)


def _of_entries(kind: type[T], entries: dict[str, Any], name: str) -> T:
    """A dataclass made of those entries that are fields of it; others are passed over."""
    known = {f.name: entries[f.name] for f in fields(kind) if f.name in entries}  # type: ignore[arg-type]
    value: T = from_plain(kind, known, name)
    return value


def _plain_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON: a solver by its name and fields, weights of classes as pairs."""
    solver, weights, kernel = parameters["solver"], parameters["class_weight"], parameters["kernel"]
    if callable(kernel):
        raise ValueError("a kernel that is a function cannot be saved as JSON; take joblib, or a kernel by its name")
    if isinstance(solver, Solver):
        solver = {"solver": solver_text(solver)}
    if isinstance(weights, dict):
        weights = list(weights.items())
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in parameters.items()}
    if isinstance(plain["random_state"], np.random.RandomState):
        plain["random_state"] = None  # of the next fit; this one is done
    return plain | {"solver": solver, "class_weight": weights}


def _parameters(plain: dict[str, Any]) -> dict[str, Any]:
    """The inverse of :func:`_plain_parameters`."""
    solver, weights = plain["solver"], plain["class_weight"]
    if isinstance(solver, dict):
        solver = parse_solver(solver["solver"])
    if isinstance(weights, list):
        weights = dict(weights)
    return plain | {"solver": solver, "class_weight": weights}


def _features(data: dict[str, Any], tagger: Any) -> TokenFeatures:
    kind = data.pop("kind")
    if kind == WordFeatures.kind:  # of version 0.3
        encoder, names = DictionaryEncoder(data["names"]), ["pos", "chunk"][: data["columns"] - 1]
        return WordFeatures(data["template"], Inputs(data["columns"] + 1, names), encoder)
    if kind == DictFeatures.kind:
        return DictFeatures(data["names"])
    if kind == NumberRows.kind:
        return NumberRows(data["width"])
    kernel = KernelFeatures(tagger.kernel, data["gamma"], tagger.degree, tagger.landmarks)
    return KernelRows(kernel.at(data["landmarks"]))
