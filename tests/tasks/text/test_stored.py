"""A tagger that version 0.2.0 trained and saved: it loads, and predicts what it predicted then."""

import json
from itertools import islice
from pathlib import Path

import pytest

import structsmooth
from structsmooth.cli import main
from structsmooth.tasks import NER
from structsmooth.tasks.text.tagging import FittedTagging

STORED = Path(__file__).parent / "stored"
# That version was run on the first sentences of the embedded test data.
EXPECTED = json.loads((STORED / "predicted.json").read_text(encoding="utf-8"))


def test_a_model_of_version_0_2_predicts_as_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = structsmooth.load(STORED)
    assert isinstance(model.task, FittedTagging)
    assert model.task.tags == ["I-LOC", "I-ORG", "I-PER", "O"]
    sentences = list(islice(model.task.read(NER.default_files()["test"]), len(EXPECTED)))
    found = model.alternatives(sentences, 1)
    assert [" ".join(ranked[0][1]) for ranked in found] == [tags for _, tags in EXPECTED]
    assert [ranked[0][0] for ranked in found] == pytest.approx([score for score, _ in EXPECTED], rel=1e-9)
    assert {"I-LOC", "I-ORG", "I-PER"} < {tag for ranked in found for tag in ranked[0][1]}
    assert main(["info", str(STORED)]) == 0
    assert "0.2.0" in capsys.readouterr().out
    model.save(tmp_path)
    assert structsmooth.load(tmp_path).predict(sentences) == [ranked[0][1] for ranked in found]
