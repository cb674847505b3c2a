"""Trained models in Python: the models of the command line, and what goes in and out."""

import json
import re
from pathlib import Path

import pytest
import torch

import structsmooth
from structsmooth import BCFW
from structsmooth.cli import main
from structsmooth.tasks import NER, load_task
from structsmooth.tasks.base import LastResultCache
from structsmooth.tasks.trained import TrainedModel, load, train

SENTENCES = [
    [("Acme", "NNP", "B-ORG"), ("grew", "VBD", "O")],
    [("in", "IN", "O"), ("Paris", "NNP", "B-LOC"), ("Bolt", "NNP", "B-ORG")],
    [("Rome", "NNP", "B-LOC"), ("fell", "VBD", "O")],
]
UNTAGGED = [[token[:2] for token in sentence] for sentence in SENTENCES]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    text = "\n\n".join("\n".join(" ".join(token) for token in sentence) for sentence in SENTENCES)
    (tmp_path / "train.txt").write_text(text + "\n")
    return "train.txt"


def trained(file: str, **options: object) -> TrainedModel:
    task = NER(bits=8)
    return train(task, task.read(file), **options)  # type: ignore[arg-type]


def test_is_the_model_of_the_command_line(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ner", "--train", file, "--bits", "8", "--out", "model", "--seed", "3"]) == 0
    other, mine = load("model"), trained(file, seed=3)
    assert torch.equal(other.weights, mine.weights)
    assert other.task.to_dict() == mine.task.to_dict()
    assert mine.description["task"] == other.description["task"] == "ner"
    capsys.readouterr()
    assert main(["predict", "model", file]) == 0
    printed = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if line]
    assert printed == [tag for tags in other.predict(file) for tag in tags]


def test_saves_what_the_command_line_takes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = trained(file, solver=BCFW(gap_tolerance=1e-6), lam="0.1/n", passes=200)
    assert model.description["lam"] == pytest.approx(0.1 / 3)
    assert model.description["settings"]["solver"] == "bcfw"
    model.save(Path("saved"))
    again = load("saved")
    assert torch.equal(again.weights, model.weights)
    assert again.description == json.loads(json.dumps(model.description))
    assert again.score(file) == model.score(file)
    assert model.score(file)["f1"] == 1.0
    assert main(["evaluate", "saved", file]) == 0
    assert main(["info", "saved"]) == 0
    assert "bcfw" in capsys.readouterr().out
    assert main(["certify", "saved"]) == 2
    assert "saved was trained in Python" in capsys.readouterr().err


def test_sentences_may_be_plain_lists(file: str) -> None:
    model = trained(file, lam="0.1/n", passes=100)
    assert model.predict(UNTAGGED) == model.predict(file) == [[tag for *_, tag in tokens] for tokens in SENTENCES]
    best, second = model.alternatives(UNTAGGED, 2)[0]
    assert best[1] == ["B-ORG", "O"] != second[1]
    assert best[0] >= second[0]
    with pytest.raises(
        ValueError, match=r"a token must have 2 columns, as in training without the tags, got \('Acme',\)"
    ):
        model.predict([["Acme"]])
    # The empty sentence has one tagging.
    assert model.predict([[], UNTAGGED[0], []]) == [[], *model.predict(UNTAGGED[:1]), []]
    assert model.alternatives([[]], 2) == [[(0.0, [])]]
    assert model.predict([]) == []


@pytest.mark.parametrize(
    "name", ["alignment", "localization", "multilabel", "ocr", "pose", "scenes", "segmentation", "segments"]
)
def test_what_is_no_example_is_refused(name: str) -> None:
    kind = load_task(name).fitted_type
    with pytest.raises(
        TypeError, match=r"example 0 must be a structsmooth\.tasks\..*, got list: give the path of a file"
    ):
        kind.examples(object.__new__(kind), [[]])


def test_refusals(file: str) -> None:
    with pytest.raises(ValueError, match=r"lam must be a number or c/n with c >= 0, such as .*, got 'ten'"):
        trained(file, lam="ten")
    with pytest.raises(FileNotFoundError, match="nowhere: no model"):
        load("nowhere")
    with pytest.raises(ValueError, match="these sentences have no tags"):
        trained(file, passes=1).score(UNTAGGED)


def test_examples_to_train_on_may_be_a_file(file: str) -> None:
    task = NER(bits=8)
    assert torch.equal(train(task, file, passes=2).weights, train(task, task.read(file), passes=2).weights)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt: no such file"):
        train(task, "nowhere.txt")


@pytest.mark.parametrize(
    ("task", "remedy"),
    [
        ("ner", r"as in structsmooth.tasks.load_task\('ner'\)\(\); got 'ner'"),
        (NER, r"its options, NER\(\); got <class"),
        (None, r"as in structsmooth.tasks.NER\(\); got None"),
    ],
)
def test_what_is_no_task_is_refused_with_the_remedy(task: object, remedy: str, file: str) -> None:
    with pytest.raises(TypeError, match=remedy):
        train(task, file)  # type: ignore[arg-type]


def test_weights_whose_bytes_have_changed_are_refused(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    trained(file, passes=1).save("saved")
    weights = Path("saved/model.safetensors")
    good = weights.read_bytes()
    weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(
        ValueError, match=r"model\.safetensors: its bytes are not those that were saved: copy .* train anew"
    ):
        load("saved")
    assert main(["predict", "saved", file]) == 2
    assert "copy the folder again" in capsys.readouterr().err
    weights.write_bytes(good)
    load("saved")
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors: no such file"):
        load("saved")


def test_labels_that_training_data_lack_are_counted(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("new.txt").write_text("Acme NNP B-FIRM\nInc NNP I-FIRM\n\nAda NNP B-PER\nBob NNP B-FIRM\n")
    warning = (
        "4 labels do not occur in the training data, so that the model cannot predict them: "
        "B-FIRM (2), B-PER (1), I-FIRM (1)"
    )
    model = trained(file, passes=1)
    with pytest.warns(UserWarning, match=f"^{re.escape(warning)}$"):
        assert model.score("new.txt")["recall"] == 0.0
    assert main(["train", "ner", "--train", file, "--test", "new.txt", "--bits", "8", "--out", "model"]) == 0
    assert f"structsmooth: warning: new.txt: {warning}\n" in capsys.readouterr().err
    assert main(["evaluate", "model", "new.txt"]) == 0
    assert warning in capsys.readouterr().err
    assert main(["show", "model", "new.txt"]) == 0
    assert warning in Path("model/report.html").read_text()
    assert main(["evaluate", "model", file]) == 0
    assert "warning" not in capsys.readouterr().err


def test_the_package_has_load_and_train():
    assert (structsmooth.load, structsmooth.train) == (load, train)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = structsmooth.nothing


def test_a_cached_result_is_of_the_examples_that_were_asked_for():
    """Also if another thread asks for others between."""
    first, second = [1], [2]

    class Interrupted(LastResultCache[int]):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "_latest" and value and value[0] is first:  # type: ignore[index]
                assert self(second) == 2

    assert Interrupted(sum)(first) == 1
