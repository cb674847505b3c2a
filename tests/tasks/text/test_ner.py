"""The tagger end to end on a tiny corpus, and how tasks are found by name."""

import io
import json
import sys
from argparse import ArgumentParser
from itertools import pairwise
from pathlib import Path

import pytest

from structsmooth import CasimirSVRG
from structsmooth.tag_schemes import entities
from structsmooth.tasks import Task, load_task
from structsmooth.tasks.text.conll import read_conll
from structsmooth.tasks.text.ner import NER

NAMES = {"John Smith": "PER", "Ada": "PER", "Acme Corp": "ORG", "New York City": "LOC"}


def corpus(tag=lambda prefix, kind: f"{prefix}-{kind}") -> str:
    """Sentences of three columns in the scheme BIO: two names with a verb between them."""
    lines = []
    for first, first_kind in NAMES.items():
        for second, second_kind in NAMES.items():
            for i, word in enumerate(first.split()):
                lines.append(f"{word} NNP {tag('BI'[i > 0], first_kind)}")
            lines.append("visited VBD O")
            for i, word in enumerate(second.split()):
                lines.append(f"{word} NNP {tag('BI'[i > 0], second_kind)}")
            lines += [". . O", ""]
    return "\n".join(lines)


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "train.txt").write_text(corpus())
    return str(tmp_path / "train.txt")


def trained(path, **settings):
    """A tagger, its sentences and weights."""
    task = NER(**{"bits": 10, **settings})
    sentences = task.read(path)
    task.fit(sentences)
    weights = CasimirSVRG().solve(task.problem(sentences), lam=1e-3, passes=10).weights
    return task, sentences, weights


def outputs(predictions):
    return [ranked[0][1] for ranked in predictions]


@pytest.mark.parametrize("settings", [{}, {"bits": 0}, {"rich": False}, {"bits": 0, "rich": False}])
def test_learns_its_training_data(path, settings):
    task, sentences, weights = trained(path, **settings)
    predicted = outputs(task.predict(weights, sentences))
    assert predicted == [sentence.tags for sentence in sentences]
    metrics, table = task.measure(sentences, predicted)
    assert metrics["f1"] == 1.0
    assert task.headline in metrics
    assert "overall" in table


def test_measure_sees_mistakes(path):
    task, sentences, _ = trained(path)
    metrics, _ = task.measure(sentences, [["O"] * len(sentence) for sentence in sentences])
    assert metrics["f1"] == metrics["recall"] == 0.0


@pytest.mark.parametrize("scheme", ["IO", "IOB1", "BIO", "BIOES"])
def test_converts_to_a_scheme(path, scheme):
    task, sentences, weights = trained(path, scheme=scheme)
    prefixes = {tag[0] for tag in task.tags}
    assert prefixes == {"IO": {"O", "I"}, "IOB1": {"O", "I"}, "BIO": {*"OBI"}, "BIOES": {*"OBIES"}}[scheme]
    for sentence, predicted in zip(sentences, outputs(task.predict(weights, sentences)), strict=True):
        assert entities(predicted) == entities(sentence.tags)


def test_takes_the_scheme_of_the_data(tmp_path):
    (tmp_path / "io.txt").write_text(corpus(lambda _, kind: f"I-{kind}"))
    task, _, _ = trained(str(tmp_path / "io.txt"))
    assert task.scheme == "IO"
    assert task.tags == ["I-LOC", "I-ORG", "I-PER", "O"]


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_every_alternative_is_well_formed(path, scheme):
    task, sentences, weights = trained(path, scheme=scheme)
    for ranked in task.predict(weights, sentences, 8):
        for _, tags in ranked:
            before = ["O", *tags]
            if scheme == "BIO":
                allowed = (b[1:] == a[1:] for a, b in zip(before, tags, strict=False) if b[0] == "I")
            else:
                after = [*before, "O"]
                pairs = pairwise(after)
                allowed = ((b[0] in "IE") == (a[0] in "BI") and (b[0] not in "IE" or a[1:] == b[1:]) for a, b in pairs)
            assert all(allowed)


def test_alternatives_are_sorted_and_distinct(path):
    task, sentences, weights = trained(path)
    for one, ranked in zip(task.predict(weights, sentences), task.predict(weights, sentences, 5), strict=True):
        scores = [score for score, _ in ranked]
        assert len(ranked) == len({tuple(tags) for _, tags in ranked}) == 5
        assert scores == sorted(scores, reverse=True)
        assert ranked[0] == (pytest.approx(one[0][0]), one[0][1])


def test_gives_fewer_alternatives_where_there_are_no_more(tmp_path):
    (tmp_path / "short.txt").write_text("Ada B-PER\n\nvisited O\n")
    task, sentences, weights = trained(str(tmp_path / "short.txt"))
    (first, second) = task.predict(weights, sentences, 7)
    assert sorted(tags for _, tags in first) == sorted(tags for _, tags in second) == [["B-PER"], ["O"]]


def test_json_round_trip_predicts_the_same(path):
    for settings in ({}, {"bits": 0}, {"scheme": "BIOES"}):
        task, sentences, weights = trained(path, **settings)
        copy = NER.from_dict(json.loads(json.dumps(task.to_dict())))
        assert copy.to_dict() == task.to_dict()
        assert copy.predict(weights, copy.read(path), 3) == task.predict(weights, sentences, 3)


def test_written_predictions_read_back(path):
    task, sentences, weights = trained(path)
    stream = io.StringIO()
    task.write(sentences, task.predict(weights, sentences), stream)
    stream.seek(0)
    for written, sentence in zip(read_conll(stream), sentences, strict=True):
        assert written.words == sentence.words
        assert written.columns == [*sentence.columns, sentence.tags]  # the gold tags, then the predicted ones
        assert written.tags == sentence.tags  # which are right, see test_learns_its_training_data


def test_untagged_input(path):
    task, sentences, weights = trained(path)
    task = NER.from_dict(task.to_dict())
    untagged = "\n".join(" ".join(line.split()[:-1]) for line in corpus().splitlines())
    examples = task.read(io.StringIO(untagged))
    assert all(example.tags is None for example in examples)
    predictions = task.predict(weights, examples)
    assert outputs(predictions) == outputs(task.predict(weights, sentences))
    with pytest.raises(ValueError, match="these sentences have no tags"):
        task.measure(examples, outputs(predictions))
    stream = io.StringIO()
    task.write(examples, predictions, stream)
    assert stream.getvalue() == corpus() + "\n"


def test_alternatives_are_written_with_their_scores(path):
    task, sentences, weights = trained(path)
    stream = io.StringIO()
    predictions = task.predict(weights, sentences[:1], 3)
    task.write(sentences[:1], predictions, stream)
    comment, *rows = stream.getvalue().splitlines()
    assert comment.startswith("# scores ")
    assert [float(score) for score in comment.split()[2:]] == pytest.approx([s for s, _ in predictions[0]], rel=1e-5)
    assert {len(row.split()) for row in rows if row} == {3 + 3}


@pytest.mark.parametrize("columns", [1, 4])
def test_refuses_another_number_of_columns(path, tmp_path, columns):
    task, _, _ = trained(path)
    (tmp_path / "other.txt").write_text(" ".join(["cell"] * columns) + "\n")
    expected = f"other.txt: expected 3 columns, as in training, or 2 without tags; got {columns}"
    with pytest.raises(ValueError, match=expected):
        task.read(str(tmp_path / "other.txt"))
    with pytest.raises(ValueError, match="standard input: expected 3 columns"):
        task.read(io.StringIO("cell\n"))


def test_training_needs_tags(tmp_path):
    (tmp_path / "words.txt").write_text("just\nwords\n")
    with pytest.raises(ValueError, match=r"words\.txt:1: expected a word and a tag"):
        NER().read(str(tmp_path / "words.txt"))


def test_options_have_the_defaults_of_the_class():
    parser = ArgumentParser()
    NER.add_arguments(parser)
    assert NER.from_options(parser.parse_args([])) == NER()
    given = NER.from_options(parser.parse_args(["--no-rich", "--bits", "0", "--scheme", "BIOES"]))
    assert given == NER(rich=False, bits=0, scheme="BIOES")


def test_default_files():
    task = NER()
    sizes = {split: len(task.read(file)) for split, file in task.default_files().items()}
    assert sizes == {"train": 1164, "test": 303}  # as the README beside the data says


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch", "unknown task 'nosuch': expected one of ner, .*or package.module:ClassName"),
        ("no_such_module:Task", "task 'no_such_module:Task' cannot be imported: No module named"),
        ("json:NoSuchClass", "task 'json:NoSuchClass' cannot be imported"),
        ("json:loads", "task 'json:loads' must be a subclass of structsmooth.tasks.Task"),
        ("json:JSONDecoder", "must be a subclass of structsmooth.tasks.Task"),
    ],
)
def test_load_task_says_what_is_wrong(name, message):
    with pytest.raises(ValueError, match=message):
        load_task(name)


def test_load_task_finds_a_class_in_the_working_directory(tmp_path, monkeypatch):
    module = "from structsmooth.tasks.text.ner import NER\n\n\nclass Chunking(NER):\n    lam = '1/n'\n"
    (tmp_path / "tiny_user_task.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    task = load_task("tiny_user_task:Chunking")
    assert issubclass(task, Task)
    assert (task.__name__, task.lam) == ("Chunking", "1/n")
    assert load_task("ner") is NER
