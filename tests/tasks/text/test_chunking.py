"""Chunking end to end on a tiny corpus."""

import io
import json
from argparse import ArgumentParser
from pathlib import Path

import pytest
import torch

from structsmooth import BCFW, NormalizedHamming
from structsmooth.tasks import load_task
from structsmooth.tasks.files import DATA_VARIABLE
from structsmooth.tasks.text.attributes import sentence_attributes
from structsmooth.tasks.text.chunking import Chunking
from structsmooth.tasks.text.conll import Sentence, read_conll

SUBJECTS = ["The DT B-NP\nold JJ I-NP\ncat NN I-NP", "He PRP B-NP", "Mary NNP B-NP"]
VERBS = ["slept VBD B-VP", "has VBZ B-VP\nbeen VBN I-VP\nsleeping VBG I-VP"]
PLACES = ["in IN B-PP\nthe DT B-NP\nhouse NN I-NP", "there RB B-ADVP"]
CORPUS = "".join(f"{s}\n{v}\n{p}\n. . O\n\n" for s in SUBJECTS for v in VERBS for p in PLACES)


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "train.txt").write_text(CORPUS)
    return str(tmp_path / "train.txt")


def trained(path, **settings):
    """A chunker, its sentences and the result of a run."""
    task = Chunking(**settings)
    sentences = task.read(path)
    task.fit(sentences)
    return task, sentences, BCFW().solve(task.problem(sentences), lam=1.0, passes=400)


def outputs(predictions):
    return [ranked[0][1] for ranked in predictions]


@pytest.mark.parametrize("settings", [{}, {"bits": 12}, {"scheme": "BIOES"}])
def test_trains_to_a_small_gap(path, settings):
    task, sentences, result = trained(path, **settings)
    assert 0 <= result.history[-1].gap < 0.002
    metrics, table = task.measure(sentences, outputs(task.predict(result.weights, sentences)))
    assert metrics["f1"] == 1.0
    assert task.headline in metrics
    assert {"NP", "VP", "PP", "ADVP"} <= set(table.split())


def test_cost_is_the_fraction_of_wrong_tags(path):
    task = Chunking()
    sentences = task.read(path)
    task.fit(sentences)
    problem = task.problem(sentences)
    assert problem.cost == NormalizedHamming()
    assert problem.loss(problem.start()) == pytest.approx(1.0)  # all tags of an output may be wrong
    assert task.tags == ["B-ADVP", "B-NP", "B-PP", "B-VP", "I-NP", "I-VP", "O"]
    assert problem.dim == (task.encoder.size + 7 + 2) * 7


def test_attributes_by_hand():
    sentence = Sentence(["He", "slept", "."], [["PRP", "VBD", "."]])
    first, middle, _ = sentence_attributes(sentence, Chunking().templates)
    assert middle == [
        "bias",
        *("B-2", "word[-1]=He", "word[0]=slept", "word[1]=.", "E+2"),
        *("word[-1]|word[0]=He|slept", "word[0]|word[1]=slept|."),
        *("pos[-1]=PRP", "pos[0]=VBD", "pos[1]=."),
        *("pos[-2]|pos[-1]=|PRP", "pos[-1]|pos[0]=PRP|VBD", "pos[0]|pos[1]=VBD|.", "pos[1]|pos[2]=.|"),
        *("pos[-2]|pos[-1]|pos[0]=|PRP|VBD", "pos[-1]|pos[0]|pos[1]=PRP|VBD|.", "pos[0]|pos[1]|pos[2]=VBD|.|"),
    ]
    assert first[:3] == ["bias", "B-2", "B-1"]


def test_json_round_trip_predicts_the_same(path):
    task, sentences, result = trained(path)
    copy = Chunking.from_dict(json.loads(json.dumps(task.to_dict())))
    assert type(copy) is Chunking
    assert copy.to_dict() == task.to_dict()
    assert copy.predict(result.weights, copy.read(path), 3) == task.predict(result.weights, sentences, 3)


def test_written_predictions_read_back(path):
    task, sentences, result = trained(path)
    stream = io.StringIO()
    task.write(sentences, task.predict(result.weights, sentences), stream)
    stream.seek(0)
    for written, sentence in zip(read_conll(stream), sentences, strict=True):
        assert (written.words, written.tags) == (sentence.words, sentence.tags)


@pytest.mark.parametrize(
    ("line", "message"),
    [("cat NN I-NP extra", "2: expected 3 columns, got 4"), ("cat NN X-NP", "2: ")],
)
def test_refuses_malformed_files_by_line(tmp_path, line, message):
    (tmp_path / "bad.txt").write_text(f"The DT B-NP\n{line}\n")
    with pytest.raises(ValueError, match=f"bad.txt:{message}"):
        Chunking().read(str(tmp_path / "bad.txt"))


def test_options_have_the_defaults_of_the_class():
    parser = ArgumentParser()
    Chunking.add_arguments(parser)
    assert Chunking.from_options(parser.parse_args([])) == Chunking()
    assert Chunking.from_options(parser.parse_args(["--bits", "18"])) == Chunking(bits=18)
    assert load_task("chunking") is Chunking


def test_default_files_are_those_of_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(ValueError, match="chunking comes without data: give --train"):
        Chunking.default_files()
    (tmp_path / "conll2000").mkdir()
    for split in ("train", "test"):
        (tmp_path / "conll2000" / f"{split}.txt.gz").write_text(CORPUS)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    files = Chunking.default_files()
    assert {split: len(Chunking().read(file)) for split, file in files.items()} == {"train": 12, "test": 12}


def test_a_tag_that_training_data_lack_can_be_measured(path, tmp_path):
    task, _, result = trained(path)
    (tmp_path / "other.txt").write_text("Oh UH B-INTJ\n")
    sentences = task.read(str(tmp_path / "other.txt"))
    metrics, _ = task.measure(sentences, outputs(task.predict(result.weights, sentences)))
    assert metrics["recall"] == 0.0
    assert torch.isfinite(result.weights).all()
