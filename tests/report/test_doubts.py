"""Likely mistakes of labels: what models of the other folds are surest of, and the labels contradict."""

import re

import pytest

from structsmooth import train
from structsmooth.cli import main
from structsmooth.report.choice import doubtful
from structsmooth.tasks import NER

NAMES, VERBS = ["Ada", "Wu", "Mary", "Otto", "Eve"], ["sang", "left", "slept", "ran"]
WRONG = (7, 21, 38)


def rows(number: int) -> str:
    """A sentence whose first word is a name; a few labels say that the verb is it."""
    name, verb = NAMES[number % len(NAMES)], VERBS[number % len(VERBS)]
    tags = ("O", "B-PER") if number in WRONG else ("B-PER", "O")
    return f"{name} {tags[0]}\n{verb} {tags[1]}\n. O\n\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("doubts")
    (path / "train.txt").write_text("".join(map(rows, range(60))))
    train(NER(bits=8, words_only=True), str(path / "train.txt"), passes=5).save(path / "model")
    return path


def test_wrong_labels_are_found_that_the_other_folds_contradict(folder):
    model = train(NER(bits=8, words_only=True), str(folder / "train.txt"), passes=5)
    examples = model.task.read(str(folder / "train.txt"), "test")
    folds = [list(range(first, 60, 4)) for first in range(4)]
    found = doubtful(model, examples, folds, 3)
    assert sorted(one.example for one in found) == list(WRONG)
    assert all(one.part.startswith(NAMES[one.example % 5]) for one in found)
    assert [one.probability for one in found] == sorted((one.probability for one in found), reverse=True)


def test_the_page_links_to_their_sentences(folder, capsys):
    page = folder / "page.html"
    options = ["--folds", "4", "--examples", "3", "--output", str(page), "--quiet"]
    assert main(["show", str(folder / "model"), str(folder / "train.txt"), *options]) == 0
    text = page.read_text()
    assert "Likely mistakes of the annotation" in text
    assert sorted(map(int, re.findall(r'href="#doubt-(\d+)"', text))) == [number + 1 for number in WRONG]
    assert sorted(map(int, re.findall(r'id="doubt-(\d+)"', text))) == [number + 1 for number in WRONG]


def test_folds_need_a_file_and_enough_examples(folder, capsys):
    assert main(["show", str(folder / "model"), "--folds", "4"]) == 2
    assert "--folds need a file with labels" in capsys.readouterr().err
    assert main(["show", str(folder / "model"), str(folder / "train.txt"), "--folds", "61"]) == 2
    assert "--folds must be from 2 to the number of examples, 60" in capsys.readouterr().err
