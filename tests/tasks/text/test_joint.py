"""Parts of speech and chunks together, by the commands: each way tells what the others tell."""

import json
import re
from pathlib import Path
from threading import Thread
from urllib.request import Request, urlopen

import pytest
from small_tasks import CHUNKS

from scripts.__main__ import load as load_script
from structsmooth import load
from structsmooth.cli import main
from structsmooth.text.standalone import Tagger
from structsmooth.text.universal import sentence_lines

# Words in other orders than in training, of which the model is less sure.
OTHER = CHUNKS.replace("cat NN", "house NN").replace("slept VBD", "cat NN").replace("there RB", "old JJ")
SENTENCES = [[row.split()[0] for row in block.split("\n")] for block in OTHER.strip().split("\n\n")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("joint")
    (path / "train.txt").write_text(CHUNKS)
    (path / "other.txt").write_text(OTHER)
    (path / "words.txt").write_text("".join(" ".join(words) + "\n" for words in SENTENCES))
    files = ["--train", str(path / "train.txt"), "--dev", str(path / "other.txt")]
    options = ["--joint", "--lam", "10/n", "--passes", "3", "--quiet", "--out", str(path / "model")]
    assert main(["train", "chunking", *files, *options]) == 0
    return path


def told(folder: Path, command: str, *arguments: str) -> str:
    """What a command about the model writes into a file."""
    assert main([command, str(folder / "model"), *arguments, "--quiet"]) == 0
    return Path(arguments[-1]).read_text()


def rows(text: str) -> list[list[list[str]]]:
    """The columns of each word of each sentence."""
    return [[row.split() for row in block.split("\n")] for block in text.strip().split("\n\n")]


def pairs(text: str) -> list[list[str]]:
    """The last two columns, as the pairs that are the tags of the model."""
    return [["|".join(row[-2:]) for row in sentence] for sentence in rows(text)]


def test_columns_text_json_export_and_service_agree(folder: Path) -> None:
    out = str(folder / "out.txt")
    expected = pairs(told(folder, "predict", str(folder / "other.txt"), "--output", out))
    assert {tag for tags in expected for tag in tags} > {"NN|I-NP", ".|O"}
    assert pairs(told(folder, "predict", str(folder / "words.txt"), "--text", "--output", out)) == expected
    (folder / "words.conllu").write_text("".join(f"{line}\n" for words in SENTENCES for line in sentence_lines(words)))
    found = told(folder, "predict", str(folder / "words.conllu"), "--output", out)
    assert pairs(found) == expected
    assert [[row[0] for row in sentence] for sentence in rows(found)] == SENTENCES

    lines = told(folder, "predict", str(folder / "words.txt"), "--text", "--json", "--output", out).splitlines()
    outputs = [json.loads(line)["outputs"][0] for line in lines]
    assert [[f"{a}|{b}" for a, b in zip(one["pos"], one["tags"], strict=True)] for one in outputs] == expected

    assert main(["export", str(folder / "model"), "--format", "numpy", "--output", str(folder / "exported")]) == 0
    exported = Tagger(folder / "exported")
    assert [exported.tag(words) for words in SENTENCES] == expected
    for words, one in zip(SENTENCES, outputs, strict=True):
        by_tag = [dict(zip(exported.model["tags"], row, strict=True)) for row in exported.probabilities(words).tolist()]
        tags = [f"{a}|{b}" for a, b in zip(one["pos"], one["tags"], strict=True)]
        assert one["probabilities"] == pytest.approx([row[tag] for row, tag in zip(by_tag, tags, strict=True)])

    with load_script("serve").server(load(folder / "model"), 0) as serving:
        thread = Thread(target=serving.serve_forever)
        thread.start()
        request = Request(f"http://127.0.0.1:{serving.server_port}", json.dumps(SENTENCES).encode())
        with urlopen(request, timeout=60) as answer:
            assert json.load(answer) == expected
        serving.shutdown()
        thread.join()


def test_suggested_sentences_are_those_of_least_margin_and_can_be_trained_on(folder: Path) -> None:
    pool, out = (str(folder / "words.txt"), "--text"), str(folder / "next.txt")
    ranked = told(folder, "predict", *pool, "--json", "--top", "2", "--output", out)
    suggested = told(folder, "suggest", *pool, "--by", "margin", "--count", "3", "--out", out)
    margins = {}
    for line in ranked.splitlines():
        best, second = (json.loads(line)["outputs"][k]["log_prob"] for k in (0, 1))
        margins[tuple(json.loads(line)["tokens"])] = best - second
    words = [tuple(row[0] for row in sentence) for sentence in rows(suggested)]
    assert margins[words[0]] == min(margins.values())
    assert [margins[one] for one in words] == sorted(margins[one] for one in words)
    assert {len(row) for sentence in rows(suggested) for row in sentence} == {3}
    options = ["--passes", "1", "--quiet", "--out", str(folder / "next")]
    assert main(["train", "chunking", "--joint", "--train", out, *options]) == 0


def test_chunks_found_in_part_are_measured_and_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The strict measure is that of CoNLL."""
    model, file = str(folder / "model"), str(folder / "other.txt")
    assert main(["evaluate", model, file, "--measure", "partial"]) == 0
    printed = dict(re.findall(r"^(\w+) +(\S+% +\S+% +\S+% +\d+ +\d+ +\d+)$", capsys.readouterr().out, re.MULTILINE))
    assert printed["strict"].split() == printed["overall"].split()
    page = told(folder, "show", file, "--errors", "--output", str(folder / "page.html"))
    for caption in ("Tokens by tag: parts of speech", "Entities by type: chunks", "Entities that are found in part"):
        assert caption in page


def test_data_have_not_changed_since_training(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(folder / "model")
    assert main(["drift", model, str(folder / "other.txt"), "--fail-below", "0.01"]) == 0
    distances = [line.split("|")[4].strip() for line in capsys.readouterr().out.split("\n\n")[0].splitlines()[2:]]
    assert distances == ["0.000"] * len(distances)
    assert distances
    assert main(["drift", model, str(folder / "train.txt"), "--fail-below", "0.01"]) == 1


def test_texts_with_spans_need_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool, out = str(folder / "pool.jsonl"), str(folder / "found.jsonl")
    Path(pool).write_text(json.dumps({"text": " ".join(SENTENCES[0])}) + "\n")
    for command, *options in (("predict", "--output", out), ("suggest", "--out", out)):
        assert main([command, str(folder / "model"), pool, *options]) == 2
        assert "give --json" in capsys.readouterr().err
    (line,) = told(folder, "suggest", pool, "--json", "--out", out).splitlines()
    tags = json.loads(line)["outputs"][0]
    assert ["|".join(pair) for pair in zip(tags["pos"], tags["tags"], strict=True)] == load(folder / "model").predict(
        [SENTENCES[0]]
    )[0]
