"""Exported programs of segments: from samples to the segments of ``predict`` and their probabilities."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import signals
import torch
from torch import Tensor

from structsmooth import __version__
from structsmooth.tasks import Segments
from structsmooth.tasks.segments import FittedSegments
from structsmooth.tasks.segments.series import Segment, Series

OPTIONS: dict[str, dict[str, Any]] = {
    "chain": {"layers": 1, "hidden": 4},
    "chain without limits": {"layers": 1, "min_duration": 1, "normalize": False},
    "deep chain of means": {"layers": 2, "hidden": 4, "step": 5, "normalize": False},
    "semi-markov": {"model": "semi-markov", "layers": 1},
    "semi-markov within limits": {"model": "semi-markov", "layers": 1, "min_duration": 2, "max_duration": 6},
    "deep semi-markov of means in any order": {"model": "semi-markov", "hidden": 4, "step": 3, "any_order": True},
}
ONE_CHANNEL = "chain", "deep chain of means", "semi-markov"  # of which torch takes batches of one for a special case
Run = Callable[..., Sequence[Any]]


def fitted(name: str) -> FittedSegments:
    channels = 1 if name in ONE_CHANNEL else 2
    examples = [replace(one, signal=one.signal[:, :channels]) for one in signals.series()]
    return replace(Segments(width=3, **OPTIONS[name]).fit(examples), temperature=2.0)


def random_weights(model: FittedSegments, seed: int) -> Tensor:
    scale = 1.0 if model.task.layers == 1 else 0.3
    return scale * torch.randn(model.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def series(rng: np.random.Generator, length: int, channels: int) -> Series:
    """Noise around levels that change."""
    levels = np.repeat(rng.normal(size=(length // 6 + 1, channels)), 6, 0)[:length]
    return Series("new", (2 * levels + rng.normal(size=(length, channels))).astype(np.float32))


def read(label: Any, start: Any, probability: Any, names: Sequence[str]) -> list[tuple[Segment, float]]:
    """The segments of one series, as docs/production.md says to read them."""
    edges = [t for t in range(len(label)) if t == 0 or start[t] or label[t] != label[t - 1]]
    spans = zip(edges, [*edges[1:], len(label)], strict=True)
    return [(Segment(a, b, names[label[a]]), float(probability[a])) for a, b in spans if label[a] >= 0]


def by_size(segments: Sequence[Segment], step: int) -> list[tuple[str, int, list[int]]]:
    """Labels, ends and sizes of segments; neighbours of one label are one, as the order of their sizes is a tie."""
    found = list[tuple[str, int, list[int]]]()
    for start, stop, label in segments:
        joins = bool(found) and found[-1][:2] == (label, start)
        sizes = found.pop()[2] if joins else []
        found.append((label, stop, sorted([*sizes, -(-(stop - start) // step)])))
    return found


def compare(model: FittedSegments, weights: Tensor, run: Run, batches: int) -> None:
    """Random series in batches, with anything behind them, have the segments and probabilities of ``predict``."""
    rng = np.random.default_rng(0)
    for _ in range(batches):
        lengths_of_some = rng.integers(1, rng.choice([3, 12, 45]), rng.integers(1, 4)).tolist()
        some = [series(rng, length, model.channels) for length in lengths_of_some]
        lengths = torch.tensor([len(one.signal) for one in some])
        padded = torch.full((len(some), int(lengths.max()), model.channels), 7.0)
        for row, one in zip(padded, some, strict=True):
            row[: len(one.signal)] = torch.from_numpy(one.signal)
        scores, *found = map(np.asarray, run(padded, lengths, torch.ones(len(some), dtype=torch.bool)))
        ranked = model.predict(weights, some)
        expected = model.part_probabilities(weights, some, [[best] for ((_, best),) in ranked])
        for b, ((score, segments),) in enumerate(ranked):
            pairs = read(*(rows[b, : lengths[b]] for rows in found), model.grammar.labels)
            answered = tuple(segment for segment, _ in pairs)
            assert by_size(answered, model.task.step) == by_size(segments, model.task.step)
            if answered == segments:  # else it is as good
                assert [p for _, p in pairs] == pytest.approx(expected[b][0], abs=1e-5)
            assert scores[b] == pytest.approx(score, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_module_predicts(name: str) -> None:
    model = fitted(name)
    for seed in range(2):
        weights = random_weights(model, seed)
        compare(model, weights, model.exported(weights).module, 4)


@pytest.mark.long
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("form", ["pt2", "onnx"])
def test_saved_programs_predict(name: str, form: Any, tmp_path: Path) -> None:
    model = fitted(name)
    weights, file = random_weights(model, 0), tmp_path / f"series.{form}"
    exported = model.exported(weights)
    exported.save(file, form)
    if form == "pt2":
        files = {"metadata.json": ""}
        run: Run = torch.export.load(file, extra_files=files).module()
        metadata = json.loads(files["metadata.json"])
    else:
        session = onnxruntime.InferenceSession(file)
        assert tuple(given.name for given in session.get_inputs()) == exported.input_names
        assert tuple(found.name for found in session.get_outputs()) == exported.output_names
        metadata = session.get_modelmeta().custom_metadata_map

        def run(*x: Tensor) -> Sequence[Any]:
            return session.run(None, {key: value.numpy() for key, value in zip(exported.input_names, x, strict=True)})

    compare(model, weights, run, 200)
    says = {key: json.loads(value) for key, value in metadata.items()}
    assert (says["structsmooth"], says["labels"], says["calibrated"]) == (__version__, ["bump", "dip"], True)


def test_windows_are_refused_by_name() -> None:
    model = Segments(layers=1, window=30).fit(signals.series())
    with pytest.raises(ValueError, match=re.escape("window: exported programs decode series as wholes")):
        model.exported(random_weights(model, 0))


def test_series_without_samples_have_no_segments() -> None:
    model = fitted("chain")
    empty, weights = Series("none", np.zeros((0, model.channels), np.float32)), random_weights(model, 0)
    ranked = model.predict(weights, [empty], 2)
    assert ranked == [[(0.0, ())]]
    assert list(model.probabilities_to_json(weights, [empty], ranked)) == [[{"probabilities": []}]]
