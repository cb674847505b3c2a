"""Taggers with an encoder in programs without torch: they answer as ``predict`` does."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import small_encoders
import torch

from structsmooth import __version__, load
from structsmooth.cli import main
from structsmooth.encoders.standalone import Tagger
from structsmooth.tasks import NER
from structsmooth.tasks.trained import TrainedModel
from structsmooth.text.corpus import Sentence

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::torch", "ignore:::onnxscript")
WORDS = [*small_encoders.WORDS, "dogs", "\x01", "Ohio", "likes"]


def model(folder: Path, **options: Any) -> TrainedModel:
    """A tagger with weights at random, of sentences with a column."""
    encoder = small_encoders.write(folder / "encoder", layers=3, pieces=12)
    words, tags = ["Smith", "lent", "Ohio", "money"], ["B-PER", "O", "B-LOC", "I-LOC"]
    task = NER(encoder=encoder, layers=[3, 1], encoder_scale=0.7, transition_scale=0.5, embed_encoder=True, **options)
    fitted = replace(task.fit([Sentence(words, [["N", "V", "N", "-"]], tags)]), temperature=1.7)
    weights = torch.randn(fitted.dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    about = {"task": "ner", "n": 1, "lam": 1.0, "message": "", "settings": {}, "metrics": {}}
    return TrainedModel(fitted, weights, about)


def sentences(count: int, seed: int) -> list[list[tuple[str, str]]]:
    """Random words with a column, up to three times as many as the encoder reads at once, or none."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 36, count)
    return [[(str(rng.choice(WORDS)), str(rng.choice(["N", "V", "-"]))) for _ in range(n)] for n in lengths]


def expected(trained: TrainedModel, tokens: list[list[tuple[str, str]]]) -> list[tuple[list[str], float, Any]]:
    task = trained.task
    ranked = trained.alternatives(tokens, 1)
    marginals = task.tagger.marginals(task._sequences(task.examples(tokens)), task.tempered(trained.weights))
    return [(tags, score, p.numpy()) for ((score, tags),), p in zip(ranked, marginals, strict=True)]


def compare(trained: TrainedModel, tagger: Any, seed: int) -> None:
    """Answers of some sentences together, and of each alone."""
    tokens = sentences(6, seed)
    right = expected(trained, tokens)
    for found in (tagger.answers(tokens), [tagger.answers([own])[0] for own in tokens]):
        for answer, (tags, score, probabilities) in zip(found, right, strict=True):
            assert answer.tags == tags
            assert answer.score == pytest.approx(score, abs=1e-4, rel=1e-4)
            np.testing.assert_allclose(answer.probabilities, probabilities, atol=1e-4)


@pytest.mark.parametrize("options", [{"bits": 10}, {"bits": 0, "rich": False, "scheme": "BIOES"}])
def test_the_module_predicts(tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the graph is the module itself."""
    trained = model(tmp_path, **options)
    exported = trained.task.exported(trained.weights)
    monkeypatch.setattr(type(exported), "save", lambda *_: None)
    trained.task.write_exported(trained.weights, tmp_path / "out", "onnx")

    class Session:
        def __init__(self, file: Path) -> None:
            assert file == tmp_path / "out" / "tagger.onnx"

        def get_modelmeta(self) -> Any:
            return type("Metadata", (), {"custom_metadata_map": exported.metadata})

        def run(self, names: list[str], inputs: dict[str, Any]) -> list[Any]:
            assert tuple(names) == exported.output_names
            assert tuple(inputs) == exported.input_names
            with torch.inference_mode():
                return [found.numpy() for found in exported.module(*map(torch.from_numpy, inputs.values()))]

    monkeypatch.setattr("structsmooth.encoders.standalone.InferenceSession", Session)
    for seed in range(4):
        compare(trained, Tagger(tmp_path / "out"), seed)


@pytest.mark.long
def test_the_folder_predicts_and_tags_text_without_this_library(tmp_path: Path) -> None:
    trained = model(tmp_path, bits=0, words_only=True)
    trained.save(tmp_path / "model")
    assert main(["export", str(tmp_path / "model"), "--format", "onnx", "--output", str(tmp_path / "out")]) == 0
    tagger = Tagger(tmp_path / "out")
    for seed in range(6):
        compare(trained, tagger, seed)
    says = {key: json.loads(value) for key, value in tagger.session.get_modelmeta().custom_metadata_map.items()}
    assert (says["structsmooth"], says["labels"], says["calibrated"]) == (__version__, trained.task.tags, True)
    assert says["inputs"] == [given.name for given in tagger.session.get_inputs()]
    assert says["outputs"] == [found.name for found in tagger.session.get_outputs()]
    line = "Smith (of Ohio) likes dogs."
    code = "import sys; sys.modules.update(dict.fromkeys(('torch', 'structsmooth', 'transformers'))); import runpy; "
    code += "runpy.run_path('out/tagger.py', run_name='__main__')"
    command = [sys.executable, "-c", f"sys = __import__('sys'); sys.path.insert(0, 'out'); {code}"]
    found = subprocess.run(command, cwd=tmp_path, input=f"{line}\n", capture_output=True, text=True, check=True)
    words, tags = zip(*(row.split("\t") for row in found.stdout.splitlines() if row), strict=True)
    assert [list(tags)] == load(tmp_path / "model").predict([line])
    assert "".join(words) == line.replace(" ", "")
    assert isinstance(tagger.session, onnxruntime.InferenceSession)
