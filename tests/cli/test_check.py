"""What files have, and what in them may spoil training or scores."""

import io
import json
import random
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from structsmooth.cli import main
from structsmooth.tasks import NER
from structsmooth.text.conll import read_corpus
from structsmooth.text.findings import Contents


def write(folder: Path) -> list[str]:
    texts = {"Ada met Bobby in the house.": [[0, 3, "PER"], [8, 11, "PER"]], "Rome | fell": [[0, 4, "LOC"]]}
    lines = [json.dumps({"text": text, "label": spans}) for text, spans in texts.items()]
    (folder / "train.jsonl").write_text("\n".join([*lines, *lines[1:] * 9]))
    house = "Ada B-PER\nmet O\nBob I-PER\nby O\nin O\nthe O\nhouse O\n. O\n\n"
    (folder / "test.txt").write_text(house + "Acme S-ORG\n\n" + "long O\n" * 201)
    (folder / "bad.txt").write_text("Ada met Bo\nRome fell\nshe saw Love\n")
    return [str(folder / name) for name in ("train.jsonl", "test.txt", "bad.txt")]


def table(text: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in text.splitlines()]


def test_findings_have_next_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, test, bad = write(tmp_path)
    assert main(["check", train, test, bad]) == 1
    files, labels, findings = map(table, capsys.readouterr().out.split("\n\n"))
    assert files[2:] == [
        [train, "lines of JSON, texts with spans", "11", "38", "BIO"],
        [test, "2 columns, words in 1, tags in 2", "3", "210", "BIOES"],
    ]
    assert labels[2:] == [["LOC", "10", "0"], ["ORG", "0", "1"], ["PER", "2", "2"]]
    expected = [
        (bad, "cannot be read: .*got lines of text: convert it", "do as the message says"),
        (
            train,
            "1 of 12 spans with an end inside of a token, such as 'Bob'",
            "correct the offsets, or give tokens; as it is",
        ),
        (test, "3 pairs of tags that BIOES forbids, such as 'B-PER O'", "correct them; as it is, each such"),
        (test, "1 sentence of over 200 words; number 3 has 201", "put blank lines, or line breaks in texts, between"),
        (train, r"labels of fewer than 10 examples: PER \(2\)", "annotate more of them, or join them with others"),
        (test, "labels that .*train.jsonl lacks: ORG", "a model cannot predict them: add examples, or"),
        (test, "the scheme BIOES, and BIO in .*train.jsonl", "nothing: tags are converted to those of training"),
        (test, "1 of 3 sentences are in .*train.jsonl, too, such as 'Ada met Bob by in the", "take them out of one of"),
    ]
    for (file, what, step), row in zip(expected, findings[2:], strict=True):
        assert row[0] == file
        assert re.match(what, row[1])
        assert row[2].startswith(step)


@pytest.mark.parametrize(
    ("name", "sentence", "flags"),
    [
        ("parts.txt", "dog NN\nsings VB\n\n", ["--scheme", "plain"]),
        (
            "parts.conllu",
            "1 dog _ NN _ _ _ _ _ _\n2 sings _ VB _ _ _ _ _ _\n\n".replace(" ", "\t"),
            ["--column", "upos"],
        ),
    ],
)
def test_files_without_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, sentence: str, flags: list[str]
) -> None:
    (tmp_path / name).write_text(sentence * 10)
    assert main(["check", str(tmp_path / name), *flags]) == 0
    assert capsys.readouterr().out.endswith("| NN | 10 |\n| VB | 10 |\n\nnothing to mend\n")


@pytest.mark.parametrize(
    ("column", "tells"),
    [
        (lambda tag, other: tag.partition(".")[0], "100.0%"),
        (lambda tag, other: "yes" if tag != "O" else "no", "100.0%"),
        (lambda tag, other: other.partition(".")[0], ""),
        (lambda tag, other: "B-NP", ""),
    ],
)
def test_columns_that_give_the_tags_away_are_told(
    column: Any, tells: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, lines = random.Random(0), list[str]()
    for _ in range(60):
        for _ in range(5):
            tag, other = ("B-pers.author" if rng.random() < 0.3 else "O" for _ in range(2))
            lines.append(f"w{rng.randrange(200)}\t{column(tag, other)}\t{tag}")
        lines.append("")
    (tmp_path / "a.tsv").write_text("\n".join(lines))
    assert main(["check", str(tmp_path / "a.tsv")]) == 0
    told = f"column 2, counted from the words, gives {tells} of the tags away"
    assert (told in capsys.readouterr().out) == bool(tells)
    NER(words_only=True).read(str(tmp_path / "a.tsv"))
    with pytest.warns(UserWarning, match=told) if tells else nullcontext():
        NER().read(str(tmp_path / "a.tsv"))


def test_training_without_blank_lines_warns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ada B-PER\n" * 51)
    with pytest.warns(UserWarning, match="1 sentence of over 50 words; number 1 has 51: put blank lines"):
        NER().read(str(tmp_path / "a.txt"))
    NER().read(str(tmp_path / "a.txt"), "test")


def test_bars_in_labels_are_no_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "parts.txt").write_text("zum APPR|ART\nHof NN\n\n" * 10)
    assert main(["check", str(tmp_path / "parts.txt"), "--scheme", "plain"]) == 0
    assert "| APPR\\|ART | 10 |\n" in capsys.readouterr().out


def test_what_precedes_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("Ada B-PER\nmet O\nBo B-PER\n\nRome _\nfell O\n")
    flags = ["--bits", "4", "--passes", "1", "--unknown", "_", "--out", str(tmp_path / "model")]
    assert main(["train", "ner", "--train", str(tmp_path / "a.txt"), *flags]) == 0
    assert "a.txt: 2 sentences, 5 words, scheme BIO: PER 2\n" in capsys.readouterr().err


def test_many_labels_are_not_all_told() -> None:
    corpus = read_corpus(io.StringIO("".join(f"w B-T{i}\n" for i in range(12))))
    assert str(Contents(corpus)).endswith("T7 1, T8 1, T9 1 and 2 others")
