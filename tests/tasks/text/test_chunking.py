"""Chunking end to end on a tiny corpus."""

import pytest
import torch
from attributes import sentence_attributes
from small_tasks import CHUNKS

from structsmooth import BCFW
from structsmooth.costs import NormalizedHamming
from structsmooth.files import DATA_VARIABLE
from structsmooth.tasks import Chunking
from structsmooth.text.corpus import Sentence


@pytest.fixture
def path(tmp_path) -> str:
    (tmp_path / "train.txt").write_text(CHUNKS)
    return str(tmp_path / "train.txt")


def trained(path, **settings):
    """A chunker, its sentences and the result of a run."""
    task = Chunking(**settings)
    sentences = task.read(path)
    fitted = task.fit(sentences)
    return fitted, sentences, BCFW().solve(fitted.problem(sentences), lam=1.0, passes=400)


def outputs(predictions):
    return [ranked[0][1] for ranked in predictions]


@pytest.mark.parametrize("settings", [{}, {"bits": 12}, {"scheme": "BIOES"}])
def test_trains_to_a_small_gap(path, settings):
    task, sentences, result = trained(path, **settings)
    assert 0 <= result.history[-1].gap < 0.002
    metrics, table = task.measure(sentences, outputs(task.predict(result.weights, sentences)))
    assert metrics["f1"] == 1.0
    assert {"NP", "VP", "PP", "ADVP"} <= set(table.split())


def test_cost_is_the_fraction_of_wrong_tags(path):
    task = Chunking()
    sentences = task.read(path)
    fitted = task.fit(sentences)
    problem = fitted.problem(sentences)
    assert problem.cost == NormalizedHamming()
    assert problem.loss(problem.start()) == pytest.approx(1.0)  # all tags of an output may be wrong
    assert fitted.tags == ["B-ADVP", "B-NP", "B-PP", "B-VP", "I-NP", "I-VP", "O"]
    assert problem.dim == (fitted.attributes.size + 7 + 2) * 7


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


def test_refuses_another_number_of_columns_by_line(tmp_path):
    (tmp_path / "bad.txt").write_text("The DT B-NP\ncat NN I-NP extra\n")
    with pytest.raises(ValueError, match=r"bad\.txt:2: expected 3 columns, got 4"):
        Chunking().read(str(tmp_path / "bad.txt"))


def test_default_files_are_read(tmp_path, monkeypatch):
    (tmp_path / "conll2000").mkdir()
    for split in ("train", "test"):
        (tmp_path / "conll2000" / f"{split}.txt.gz").write_text(CHUNKS)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    files = Chunking.default_files()
    assert {split: len(Chunking().read(file)) for split, file in files.items()} == {"train": 12, "test": 12}


def test_a_tag_that_training_data_lack_can_be_measured(path, tmp_path):
    task, _, result = trained(path)
    (tmp_path / "other.txt").write_text("Oh UH B-INTJ\n")
    sentences = task.read(str(tmp_path / "other.txt"), "test")
    metrics, _ = task.measure(sentences, outputs(task.predict(result.weights, sentences)))
    assert metrics["recall"] == 0.0
    assert torch.isfinite(result.weights).all()


def test_tags_that_training_data_did_not_have_are_named():
    fitted = Chunking().fit([Sentence(["the", "cat"], [["DT", "NN"]], ["B-NP", "I-NP"])])
    with pytest.raises(ValueError, match="tags that the training data did not have: B-PP"):
        fitted.problem([Sentence(["in", "here"], [["IN", "RB"]], ["B-PP", "O"])])
