"""The comparisons of encoders: methods, layers, and who fine-tunes."""

import re
from pathlib import Path

import pytest
import small_encoders
import treebanks

from scripts.__main__ import load

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:::transformers", "ignore:::torch")]
SENTENCES = (
    "Smith I-PER\nlent O\nmoney O\n\nthe O\nBank I-ORG\nof I-ORG\nOhio I-ORG\npaid O\n\nJones I-PER\nleft O\n\n" * 5
)


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """A small encoder and data."""
    path = tmp_path / "data.txt"
    path.write_text(SENTENCES)
    encoder = small_encoders.write(tmp_path / "encoder", layers=2)
    return ["--encoder", encoder, "--train", str(path)]


def rows(output: str) -> list[list[str]]:
    lines = re.findall(r"^\| (.*) \|$", output, re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in lines[2:]]


def test_methods_passes_and_seeds(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--methods", "both", "tuned", "--passes", "2", "9", "--seeds", "0", "1", "--sentences", "15"]
    assert load("encoders").main([*options, "--test", options[-1], *chosen, "--step", "0.01"]) == 0
    found = rows(capsys.readouterr().out)
    names = ["both, 2 passes", "both, 9 passes", "tuned", "head, 2 passes", "head, 9 passes"]
    assert [(row[0], row[1]) for row in found] == [("15", name) for name in names]
    assert found[1][3] == "100.0"
    assert "±" in found[2][3]


@pytest.mark.parametrize("column", [None, "upos"])
def test_layers_and_scales(
    column: str | None, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All layers of one scale are what the task has with these layers and this scale."""
    if column is not None:
        options = [*options[:-1], treebanks.write(tmp_path, labelled=True), "--column", column]
    given = [*options, "--dev", options[3], "--layers", "1", "--layers", "2", "0", "--scales", "0.1", "0.3"]
    assert load("encoder_layers").main(given) == 0
    found = rows(capsys.readouterr().out)
    assert [row[0] for row in found] == ["none", "1", "2 0"]
    assert all(float(cell) > 90 for row in found for cell in row[1:])


def test_this_library_and_transformers_fine_tune(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given = [*options, "--test", options[-1], "--epochs", "30", "--batch", "4", "--step", "0.01", "--pieces", "12"]
    assert load("finetuning").main(given) == 0
    found = rows(capsys.readouterr().out)
    assert [row[:2] for row in found] == [["structsmooth", "0"], ["transformers", "0"]]
    assert [float(row[4].replace(",", "")) > 100 for row in found] == [True, True]
    assert all(float(row[2]) > 50 for row in found), found
