"""Taggers in files: weights and landmarks as safetensors, all else as JSON."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth import __version__
from structsmooth.checkpoint import load_model, save_model
from structsmooth.estimators.tokens import DictFeatures, KernelRows, NumberRows, TokenFeatures, WordFeatures
from structsmooth.files import decoding
from structsmooth.history import History
from structsmooth.kernels import KernelFeatures
from structsmooth.solvers import Solver, parse_solver, solver_text
from structsmooth.text.encoders import DictionaryEncoder
from structsmooth.text.tagger import Tags

_FORMAT = "SequenceTagger"
_LEARNED = ("objective_", "gap_", "n_iter_", "lam_")


def save(tagger: Any, folder: Path) -> None:
    """Write a fitted tagger into a folder."""
    features = tagger.features_.to_dict()
    tensors = {name: value for name, value in features.items() if isinstance(value, Tensor)}
    described = {
        "structsmooth": __version__,
        "estimator": _FORMAT,
        "parameters": _plain_parameters(tagger.get_params(deep=False)),
        "tags": asdict(tagger.tags_),
        "features": {"kind": tagger.features_.kind} | {k: v for k, v in features.items() if k not in tensors},
        "columns": list(getattr(tagger, "feature_names_in_", ())),
        "learned": {name: getattr(tagger, name) for name in _LEARNED},
        "history": [row.as_dict() for row in tagger.history_],
    }
    save_model(folder, described, tensors | {"weights": torch.from_numpy(tagger.weights_)})


def load(cls: Any, folder: Path) -> Any:
    """The tagger in a folder."""
    described, tensors = load_model(folder)
    with decoding(folder, f"a {_FORMAT}"):
        if described["estimator"] != _FORMAT:
            raise ValueError(f"it is of a {described['estimator']}")
        return _restored(cls, described, tensors)


def _restored(cls: Any, described: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    tagger = cls(**_parameters(described["parameters"]))
    tagger.tags_ = Tags(**described["tags"])
    tagger.weights_ = tensors.pop("weights").numpy()
    tagger.features_ = _features(described["features"] | tensors, tagger)
    if columns := described.get("columns"):  # of data frames; version 0.3 kept none
        tagger.feature_names_in_ = np.array(columns, dtype=object)
    tagger.history_ = History.from_json_lines(map(json.dumps, described["history"]))
    for name in _LEARNED:
        setattr(tagger, name, described["learned"][name])
    features, states = len(tagger.features_.names), len(tagger.tags_.names)
    if tagger.weights_.shape != ((features + states + 2) * states,) or not np.isfinite(tagger.weights_).all():
        raise ValueError(f"{features} features and {states} tags do not fit the weights")
    return tagger


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
    if kind == WordFeatures.kind:
        return WordFeatures(data["template"], data["columns"], DictionaryEncoder(data["names"]))
    if kind == DictFeatures.kind:
        return DictFeatures(data["names"])
    if kind == NumberRows.kind:
        return NumberRows(data["width"])
    kernel = KernelFeatures(tagger.kernel, data["gamma"], tagger.degree, tagger.landmarks)
    return KernelRows(kernel.at(data["landmarks"]))
