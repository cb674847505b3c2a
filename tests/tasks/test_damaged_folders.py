"""Folders of models of any origin: what is damaged is refused, and what is forged is no more than data."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from damaged_folders import damage
from safetensors.torch import save_file

import structsmooth
from structsmooth.cli import main
from structsmooth.tasks import NER, Chunking
from structsmooth.tasks.trained import TrainedModel, describe, load, train

TRAIN = "Ada NNP B-PER\nmet VBD O\nBo NNP B-PER\nLee NNP I-PER\n\nRome NNP B-LOC\nfell VBD O\n"
NEW = [[("Ada", "NNP"), ("fell", "VBD"), ("Lee", "NNP")]]
FOLDERS = 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    file = tmp_path_factory.mktemp("data") / "train.txt"
    file.write_text(TRAIN)
    return train(NER(bits=4), file, passes=2)


@pytest.fixture
def folder(model: TrainedModel, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def edit(folder: Path, **entries: object) -> None:
    """Change entries of the description of a folder, and take its digest away, as version 0.3 had none."""
    description = json.loads((folder / "model.json").read_text()) | entries
    del description["digest"]
    (folder / "model.json").write_text(json.dumps(description))


@pytest.mark.parametrize("forged", [False, True])
def test_damaged_folders_are_refused_or_predict_the_same(model: TrainedModel, folder: Path, forged: bool) -> None:
    good, rng = model.alternatives(NEW, 2), np.random.default_rng(int(forged))
    loaded = 0
    for _ in range(FOLDERS):
        copy = Path(shutil.copytree(folder, folder.with_name("copy"), dirs_exist_ok=True))
        damage(copy, rng, forged=forged)
        with suppress(ValueError, TypeError, OSError):
            found = load(copy).alternatives(NEW, 2)
            loaded += 1
            assert forged or found == good
    assert loaded < 0.75 * FOLDERS


def test_the_description_and_the_weights_have_a_digest(folder: Path) -> None:
    description = folder / "model.json"
    good = description.read_text()
    load(folder)
    description.write_text(good.replace('"bits": 4', '"bits": 5'))
    with pytest.raises(ValueError, match=r"model\.json: it has changed since the model was saved: copy .* train anew"):
        load(folder)
    with pytest.raises(ValueError, match="it has changed since"):
        describe(folder)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"n": "three"}, r"model\.json\.n must be an int, got str"),
        ({"lam": -1}, r"model\.json\.lam must be at least 0 and finite, got -1"),
        ({"metrics": []}, r"model\.json\.metrics must be of type dict, got list"),
        ({"more": 1}, r"model\.json has unknown entries: more"),
        ({"trained": {}}, r"expected a model of its task: trained lacks attributes, inputs, tags"),
    ],
)
def test_folders_without_a_digest_are_read_by_a_schema(folder: Path, entries: dict[str, object], message: str) -> None:
    edit(folder)
    load(folder)
    model = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(model | entries))
    with pytest.raises(ValueError, match=message):
        load(folder)


@pytest.mark.parametrize("weights", [torch.ones(3), torch.ones(88, 1), torch.full((88,), torch.nan), torch.arange(88)])
def test_weights_must_be_those_of_the_task(model: TrainedModel, folder: Path, weights: torch.Tensor) -> None:
    assert model.task.dim == len(model.weights)
    edit(folder, checksum=None)
    save_file({"weights": weights[: len(model.weights)]}, folder / "model.safetensors", {"json": "{}"})
    with pytest.raises(ValueError, match=r"the task needs|not finite"):
        load(folder)


class OwnNER(NER):
    """A task of a user."""


def test_only_tasks_of_the_package_load_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: TrainedModel
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "open('ran', 'w').close()\nfrom structsmooth.tasks import NER\nclass Own(NER):\n    pass\n"
    Path("mine.py").write_text(code)
    Path("new.txt").write_text(TRAIN)
    TrainedModel(model.task, model.weights, model.description | {"task": "mine:Own"}).save("model")
    for command in ("predict", "evaluate", "show"):
        assert main([command, "model", "new.txt"]) == 2
        assert "give the class, by load('model', task=...) or --task mine:Own, if you trust" in capsys.readouterr().err
    assert main(["certify", "model"]) == 2
    assert main(["info", "model"]) == 0
    assert not Path("ran").exists()
    assert main(["evaluate", "model", "new.txt", "--task", "mine:Own"]) == 0
    assert main(["evaluate", "model", "new.txt", "--task", "ner"]) == 2
    assert "a model of the task 'mine:Own', not of 'ner'" in capsys.readouterr().err
    assert Path("ran").exists()


def test_the_class_of_an_own_task_is_given(model: TrainedModel, folder: Path) -> None:
    name = f"{OwnNER.__module__}:OwnNER"
    TrainedModel(model.task, model.weights, model.description | {"task": name}).save(folder)
    assert type(structsmooth.load(folder, task=OwnNER).task.task) is OwnNER
    with pytest.raises(ValueError, match="not of 'chunking'"):
        load(folder, task=Chunking)
    with pytest.raises(TypeError, match="task must be a subclass"):
        load(folder, task="OwnNER")  # type: ignore[arg-type]
