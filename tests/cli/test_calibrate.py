"""The command ``train --calibrate``, and what the others say of probabilities."""

import json
from pathlib import Path

import pytest
import small_tasks

from structsmooth.checkpoint import load_description
from structsmooth.cli import main
from structsmooth.tasks.profile import UNKNOWN, Profile
from structsmooth.tasks.trained import load


def test_the_temperature_is_kept_and_used(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    train = small_tasks.NER.write(tmp_path, True)
    # A word with either tag: temperatures have no limit where all labels are the best outputs.
    (tmp_path / "dev").write_text(Path(train).read_text() + "\nBerlin NNP B-LOC\n\nBerlin NNP O\n")
    data = "dev"
    plain = ["train", "ner", "--train", train, "--dev", data, "--passes", "2", "--bits", "6"]
    assert main([*plain, "--out", "plain"]) == 0
    assert main([*plain, "--out", "calibrated", "--calibrate"]) == 0
    assert "the temperature is fitted to 18 known outputs of 18 examples" in capsys.readouterr().err
    temperature = load_description("calibrated")["trained"]["temperature"]
    assert load("calibrated").task.temperature == temperature > 0
    assert load("plain").calibrated(data).task.temperature == pytest.approx(temperature)
    for folder in ("plain", "calibrated"):  # the development data that did not train it, under its temperature
        model = load(folder)
        examples = model.task.read(data, "test")
        assert model.vocabulary is not None
        assert model.profile == Profile.of(model.task, model.weights, examples, model.vocabulary, data)
        assert 0 in model.profile.measures[UNKNOWN]
    for folder, warns in (("plain", True), ("calibrated", False)):
        capsys.readouterr()
        assert main(["predict", folder, data, "--json", "--top", "2"]) == 0
        out, err = capsys.readouterr()
        assert ("a hinge has trained these scores" in err) == warns
        for line in map(json.loads, out.splitlines()):
            assert all(output["log_prob"] <= 0 for output in line["outputs"])
            assert all(0 <= span["probability"] <= 1 for output in line["outputs"] for span in output["spans"])
        assert main(["info", folder]) == 0
        assert ("\ntemperature " in capsys.readouterr().out) != warns


def test_trees_that_cross_are_not_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = small_tasks.PARSING.write(tmp_path, True)
    # A tree that crosses, and one that does not, but is not the best.
    trees = (
        "".join(f"{i + 1}\tx\t_\tX\tX\t_\t{heads[i]}\tdep\t_\t_\n" for i in range(4)) for heads in ("3022", "0123")
    )
    Path("dev").write_text("\n".join([Path(data).read_text(), *trees, ""]))
    assert main(["train", "parsing", "--train", data, "--dev", "dev", "--calibrate", "--bits", "6"]) == 0
    assert "the temperature is fitted to 25 known outputs of 26 examples" in capsys.readouterr().err


def test_what_cannot_be_calibrated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = small_tasks.NER.write(tmp_path, True)
    assert main(["train", "ner", "--train", data, "--calibrate", "--passes", "1"]) == 2
    assert "--calibrate needs development data" in capsys.readouterr().err
    words = small_tasks.OCR.write(tmp_path, True)
    assert main(["train", "ocr", "--train", words, "--dev", words, "--calibrate", "--passes", "1"]) == 2
    assert "--calibrate: OCR has no probabilities" in capsys.readouterr().err
    pairs = small_tasks.ALIGNMENT.write(tmp_path, True)
    assert main(["train", "alignment", "--train", pairs, "--dev", pairs, "--calibrate", "--passes", "1"]) == 2
    assert "--calibrate: Alignment has probabilities of parts alone" in capsys.readouterr().err
