"""Commands for people who label: what to annotate next, and what is found in part."""

import json
import math
from pathlib import Path

import pytest
import small_tasks
import torch

from structsmooth import train
from structsmooth.cli import main
from structsmooth.tasks import NER
from structsmooth.tasks.trained import TrainedModel
from structsmooth.text.annotated import read_documents

TEXTS = ["Ada met Bo in Oslo.", "Ada met Bo in Oslo!", "Cy left.\nAda and Bo stay", "Bo", "she sang well", "in Oslo"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tagger of words, which has seen few."""
    folder = tmp_path_factory.mktemp("tagger")
    people = [[("Ada", "B-PER"), ("met", "O"), ("Bo", "B-PER")], [("she", "O"), ("sang", "O")]]
    rows = ["".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in people * 3]
    (folder / "train.txt").write_text("\n".join(rows))
    trained = train(NER(bits=8, words_only=True), str(folder / "train.txt"), passes=3)
    trained.save(folder / "model")
    return trained, str(folder / "model")


def columns():
    return "".join("\n".join(text.replace("\n", " ").split()) + "\n\n" for text in TEXTS)


def universal():
    rows = [["\t".join([str(i), word, *"_" * 8]) for i, word in enumerate(text.split(), 1)] for text in TEXTS]
    return "# newdoc\n" + "".join("\n".join([f"# sent_id = {i}", *row]) + "\n\n" for i, row in enumerate(rows))


POOLS = {
    "pool.jsonl": "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)),
    "pool.json": json.dumps([{"data": {"text": text}} for text in TEXTS]),
    "pool.conll": columns(),
    "pool.conllu": universal(),
    "pool.txt": "".join(text.replace("\n", " ") + "\n" for text in TEXTS),
}


def parts(content, name):
    """The answers of a file, in order, without comments."""
    if name.endswith("json"):
        return [json.dumps(value) for value in json.loads(content)]
    lines = "\n".join(line for line in content.splitlines() if not line.startswith("#"))
    return lines.splitlines() if name.endswith("jsonl") else [one.strip() for one in lines.split("\n\n") if one.strip()]


@pytest.mark.filterwarnings("ignore:a hinge")
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("by", ["entropy", "margin", "length-normalized"])
def test_suggestions_are_answers_of_predict_in_the_order_of_uncertainty(model, name, by, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (trained, folder), pool = model, Path(name)
    pool.write_text(POOLS[name])
    assert main(["suggest", folder, name, "--count", "4", "--by", by, "--out", "next", "--quiet"]) == 0
    assert main(["predict", folder, name, "--output", "all", "--quiet"]) == 0
    chosen, every = (parts(Path(file).read_text(), name) for file in ("next", "all"))
    numbers = [every.index(one) for one in chosen]
    examples = trained.task.read(name, "predict")
    groups = trained.task.groups(examples)
    found = trained.uncertainty(examples, by, groups).tolist()
    assert len(numbers) == 4
    assert [found[i] for i in numbers] == sorted((found[i] for i in numbers), reverse=True)
    assert not {0, 1} <= {*numbers}  # near-duplicates
    left = {*range(len(TEXTS))} - {*numbers} - {0, 1}
    assert all(found[i] <= found[numbers[-1]] for i in left)


@pytest.mark.filterwarnings("ignore:a hinge")
@pytest.mark.parametrize("form", ["jsonl", "doccano", "label-studio"])
def test_forms_of_tools_have_probabilities(model, form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pool.txt").write_text("Ada met Bo\nshe sang\n")
    assert main(["suggest", model[1], "pool.txt", "--to", form, "--out", "next", "--quiet"]) == 0
    content = Path("next").read_text()
    values = json.loads(content) if form == "label-studio" else list(map(json.loads, content.splitlines()))
    (value,) = [one for one in values if "Ada" in json.dumps(one)]
    if form == "label-studio":
        (prediction,) = value["predictions"]
        assert [r["value"]["text"] for r in prediction["result"]] == ["Ada", "Bo"]
        assert prediction["score"] == min(region["score"] for region in prediction["result"]) > 0
        return
    assert {document.text: document.covered for document in read_documents("next")}["Ada met Bo"] == ["Ada", "Bo"]
    spans = value["spans"] if form == "jsonl" else value["label"]
    sure = [span["probability"] for span in spans] if form == "jsonl" else value["probabilities"]
    assert len(sure) == len(spans) == 2
    assert all(0 < p < 1 for p in sure)


def test_folders_of_brat_come_back_as_folders(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pool").mkdir()
    for number, text in enumerate(TEXTS):
        Path("pool", f"{number}.txt").write_text(text)
        Path("pool", f"{number}.ann").write_text("")
    assert main(["suggest", model[1], "pool", "--count", "3", "--out", "next", "--quiet"]) == 0
    assert main(["predict", model[1], "pool", "--output", "all", "--quiet"]) == 0
    chosen = sorted(Path("next").iterdir())
    assert len(chosen) == 6
    assert all(file.read_text() == Path("all", file.name).read_text() for file in chosen)


def test_what_cannot_be_suggested(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("pool.txt").write_text("Ada\n")
    assert main(["suggest", model[1], "pool.txt", "--count", "0", "--out", "next"]) == 2
    assert "--count must be at least 1, got 0" in capsys.readouterr().err
    assert main(["suggest", model[1], "pool.txt", "--out", "pool.txt"]) == 2
    assert "pool.txt is the pool: give another file to write" in capsys.readouterr().err
    ocr, words = small_tasks.OCR.task(tmp_path), small_tasks.OCR.write(tmp_path, True)
    fitted = ocr.fit(ocr.read(words))
    about = {"task": "ocr", "settings": {}, "n": 1, "lam": 1.0, "message": "", "metrics": {}}
    TrainedModel(fitted, torch.zeros(fitted.dim or 0).double(), about).save("ocr")
    assert main(["suggest", "ocr", words, "--out", "next"]) == 2
    assert "suggest: OCR has no probabilities" in capsys.readouterr().err
    assert not Path("next").exists()


def test_entities_that_are_found_in_part(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("test.txt").write_text("Ada B-PER\nmet I-PER\nBo B-PER\n\n")
    assert main(["evaluate", model[1], "test.txt", "--measure", "partial", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "strict      50.00%  50.00%  50.00%       2          2        1" in out
    assert "partial     75.00%  75.00%  75.00%       2          2      1.5" in out
    assert out.endswith("types that differ\nnone\n")


@pytest.mark.filterwarnings("ignore:a hinge")
def test_marginals_are_sums_of_the_probabilities_of_all_taggings(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("new.txt").write_text("Ada met\n")
    assert main(["predict", model[1], "new.txt", "--json", "--marginals", "--top", "99", "--quiet"]) == 0
    line = json.loads(capsys.readouterr().out)
    for tag, values in line["marginals"].items():
        sums = [sum(math.exp(y["log_prob"]) for y in line["outputs"] if y["tags"][t] == tag) for t in range(2)]
        assert values == pytest.approx(sums, abs=1e-9)
    assert main(["predict", model[1], "new.txt", "--marginals"]) == 2
    assert "--marginals needs --json" in capsys.readouterr().err
