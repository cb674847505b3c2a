"""Where sentences end in running text, as learned from training data, and what predict makes of it."""

import io
import json
import random

import pytest

from structsmooth.cli import main
from structsmooth.tasks.trained import load
from structsmooth.text.boundaries import Boundaries
from structsmooth.text.documents import Document, Segmentation, Span

NAMES, VERBS, TITLES = ["Ada", "Wu", "Mary", "Otto"], ["sang", "left", "slept"], ["Mr.", "Dr.", "Prof."]


def made_up(count: int, seed: int) -> list[list[str]]:
    """Sentences of names, with titles in front of some: after one of these no sentence ends."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        title = [draw.choice(TITLES)] if draw.random() < 0.5 else []
        found.append([*title, draw.choice(NAMES), draw.choice(VERBS), draw.choice([".", ".", "!", "?"])])
    return found


def text_of(words: list[str]) -> str:
    return " ".join(words[:-1]) + words[-1]


@pytest.fixture(scope="module")
def known() -> Boundaries:
    return Boundaries.of(made_up(200, seed=0))


def test_new_texts_are_cut_as_they_were_put_together(known):
    sentences = [text_of(words) for words in made_up(100, seed=1)]
    assert known.split("  ".join(sentences)) == sentences
    assert known.split("Dr. Zo slept. Dr. Ada left!") == ["Dr. Zo slept.", "Dr. Ada left!"]  # a name that is new
    assert known.split("") == [""]
    assert known.ends("Ada") == []


def test_without_ends_in_training_nothing_is_cut():
    none = Boundaries.of([[word for words in made_up(50, seed=0) for word in words]])
    assert none.split("Ada sang. Wu left.") == ["Ada sang. Wu left."]
    assert Boundaries.of([]).ends("Ada sang. Wu left.") == []


def test_only_the_first_words_are_learned_from():
    def endless():
        while True:
            yield from made_up(100, seed=0)

    assert Boundaries.of(endless()).split("Dr. Wu left. Ada sang.") == ["Dr. Wu left.", "Ada sang."]


def test_spans_keep_their_offsets_and_line_breaks_still_end_sentences(known):
    text = "Dr. Wu left. Ada sang!\nMary slept"
    document = Document(text, (Span(13, 16, "PER"), Span(23, 27, "PER")))
    lines = list(document.tagged(Segmentation(("dr.",), 1, cuts=False, boundaries=known), []))
    assert [line.sentence.words for line in lines] == [
        ["Dr.", "Wu", "left", "."],
        ["Ada", "sang", "!"],
        ["Mary", "slept"],
    ]
    assert [line.spans for line in lines] == [(), (Span(13, 16, "PER"),), (Span(23, 27, "PER"),)]
    for line in lines:
        assert [text[start:].startswith(word) for start, word in zip(line.starts, line.sentence.words, strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tagger of names, trained on columns."""
    path = tmp_path_factory.mktemp("names")
    rows = ("".join(f"{w} {'B-PER' if w in NAMES else 'O'}\n" for w in words) + "\n" for words in made_up(200, seed=0))
    (path / "train.txt").write_text("".join(rows))
    options = ["--train", str(path / "train.txt"), "--words-only", "--passes", "3", "--bits", "10", "--quiet"]
    assert main(["train", "ner", *options, "--out", str(path / "model")]) == 0
    (path / "plain.txt").write_text("Dr. Wu left. Ada sang!\nMary slept.\n")
    return path


def tokens(text: str) -> list[list[str]]:
    return [line["tokens"] for line in map(json.loads, text.splitlines())]


def test_predict_finds_sentences_only_when_it_is_asked(folder, capsys):
    model, file = str(folder / "model"), str(folder / "plain.txt")
    assert main(["predict", model, file, "--json", "--quiet"]) == 0
    # As before: a sentence is a line, and the tokens are those of a line.
    assert tokens(capsys.readouterr().out) == [
        ["Dr.", "Wu", "left", ".", "Ada", "sang", "!"],
        ["Mary", "slept", "."],
    ]
    assert main(["predict", model, file, "--json", "--split-sentences", "--quiet"]) == 0
    lines = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert [line["tokens"] for line in lines] == [
        ["Dr.", "Wu", "left", "."],
        ["Ada", "sang", "!"],
        ["Mary", "slept", "."],
    ]
    for line in lines:
        assert [line["text"][a:b] for a, b in line["offsets"]] == line["tokens"]
    assert main(["predict", model, file, "--split-sentences"]) == 0
    assert "read as lines of text, cut into sentences" in capsys.readouterr().err


def test_texts_with_spans_get_spans_of_the_whole_text(folder, capsys):
    text = "Dr. Wu left. Ada sang! Mary slept."
    (folder / "texts.jsonl").write_text(json.dumps({"text": text, "id": 7}) + "\n")
    options = ["--split-sentences", "--quiet"]
    assert main(["predict", str(folder / "model"), str(folder / "texts.jsonl"), *options]) == 0
    (answer,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert answer["id"] == 7
    assert [(span["start"], span["text"]) for span in answer["spans"]] == [(4, "Wu"), (13, "Ada"), (23, "Mary")]


def test_standard_input_is_cut_line_by_line(folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("Dr. Wu left. Ada sang!\n"))
    assert main(["predict", str(folder / "model"), "--json", "--text", "--split-sentences", "--quiet"]) == 0
    assert len(tokens(capsys.readouterr().out)) == 2


def test_models_that_cannot_find_sentences_say_so(folder, tmp_path, capsys):
    description = json.loads((folder / "model" / "model.json").read_text())
    assert (
        load(folder / "model").task.inputs.boundaries.weights
        == description["trained"]["inputs"]["boundaries"]["weights"]
    )
    columns = tmp_path / "columns.txt"
    columns.write_text("Ada NNP B-PER\nsang VBD O\n\n" * 3)
    assert (
        main(["train", "ner", "--train", str(columns), "--passes", "1", "--out", str(tmp_path / "m"), "--quiet"]) == 0
    )
    assert main(["predict", str(tmp_path / "m"), str(columns), "--split-sentences"]) == 2
    assert "--split-sentences is for text. This tagger needs pos of each word" in capsys.readouterr().err
