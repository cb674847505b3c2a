"""Chunking end to end on a tiny corpus."""

from io import StringIO

import pytest
import torch
from attributes import sentence_attributes
from small_tasks import CHUNKS

from structsmooth import BCFW
from structsmooth.costs import NormalizedHamming
from structsmooth.files import DATA_VARIABLE
from structsmooth.tasks import NER, Chunking
from structsmooth.text.corpus import Sentence
from structsmooth.text.scores import entity_scores


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


def pairs_of(sentences):
    """Words with pairs of part of speech and chunk as tags."""
    return [Sentence(s.words, [], [f"{a}|{b}" for a, b in zip(s.columns[0], s.tags, strict=True)]) for s in sentences]


def test_joint_is_a_chain_over_the_pairs_that_occur(path):
    fitted, sentences, result = trained(path, joint=True)
    by_hand = NER(scheme="plain", bits=0, words_only=True, rich=True).fit(pairs_of(Chunking().read(path)))
    assert fitted.tags == by_hand.tags
    assert fitted.attributes == by_hand.attributes
    predictions = fitted.predict(result.weights, sentences, 2)
    assert predictions == by_hand.predict(result.weights, sentences, 2)
    assert result.history[-1].gap < 0.002


def test_joint_writes_and_measures_both_columns(path, tmp_path):
    fitted, sentences, result = trained(path, joint=True)
    predictions = fitted.predict(result.weights, fitted.read(path), 2)
    stream = StringIO()
    fitted.write(fitted.read(path), predictions, stream)
    rows = [line.split() for line in stream.getvalue().splitlines() if line and not line.startswith("# ")]
    assert [row[:3] for row in rows] == [line.split() for line in CHUNKS.splitlines() if line]
    pairs = [f"{pos}|{chunk}" for _, _, _, pos, chunk, _, _ in rows]
    assert pairs == [tag for output in outputs(predictions) for tag in output]

    wrong = [["NN|B-NP"] * len(s) for s in sentences]
    metrics, table = fitted.measure(sentences, wrong)
    gold = [line.split() for line in CHUNKS.splitlines() if line]
    assert metrics["pos_accuracy"] == sum(pos == "NN" for _, pos, _ in gold) / len(gold)
    assert metrics["accuracy"] == sum(chunk == "B-NP" for _, _, chunk in gold) / len(gold)
    chunks = [s.tags for s in Chunking().read(path)]
    assert metrics["f1"] == entity_scores(chunks, [["B-NP"] * len(tags) for tags in chunks]).f1
    assert "macro F1" in table


def test_joint_is_saved_and_takes_text_and_json(path, tmp_path):
    fitted, _, result = trained(path, joint=True)
    back = Chunking.from_dict(fitted.to_dict())
    text = back.examples(["He reckons the deficit"])
    ((_, output),) = back.predict(result.weights, text)[0]
    assert ((_, output),) == (fitted.predict(result.weights, text)[0][0],)
    told = back.output_to_json(output)
    assert list(zip(told["pos"], told["tags"], strict=True)) == [tuple(tag.split("|")) for tag in output]
    assert back.output_from_json(told) == output
    with pytest.raises(TypeError, match="pos must be of type list, got str"):
        back.output_from_json({"tags": told["tags"], "pos": "NN"})


@pytest.mark.parametrize("content", ["The B-NP\ncat I-NP\n", "The DT B|NP\ncat NN I|NP\n"])
def test_joint_needs_both_columns(tmp_path, content):
    (tmp_path / "other.txt").write_text(content)
    with pytest.raises(ValueError, match=r"other\.txt: joint needs columns of words, parts of speech and chunks"):
        Chunking(joint=True).read(str(tmp_path / "other.txt"))


@pytest.mark.parametrize("settings", [{"scheme": "BIO"}, {"column": "upos"}, {"unknown": "_"}])
def test_joint_refuses_what_pairs_do_not_have(settings):
    with pytest.raises(ValueError, match="joint takes pairs of columns as they are"):
        Chunking(joint=True, **settings)
