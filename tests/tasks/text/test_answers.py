"""Predictions in the form in which the sentences came, and what is known of them."""

import io
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treebanks

from structsmooth.cli import main
from structsmooth.tasks import NER, Parsing
from structsmooth.tasks.trained import TrainedModel, load, train
from structsmooth.text.annotated import read_documents
from structsmooth.text.gazetteer import Gazetteer
from structsmooth.text.schemes import entities
from structsmooth.text.standalone import Splitter

TEXTS = {
    "Ada met Bo.": [(0, 3, "PER"), (8, 10, "PER")],
    "she left Oslo": [(9, 13, "LOC")],
    "Ada Love saw New York": [(0, 8, "PER"), (13, 21, "LOC")],
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tagger of entities, of one of parts of speech, and of a parser."""
    folder = tmp_path_factory.mktemp("models")
    lines = [json.dumps({"text": text, "label": spans}) for text, spans in TEXTS.items()]
    (folder / "train.jsonl").write_text("\n".join(lines * 3))
    path = treebanks.write(folder, labelled=True)
    for name, task, data in (
        ("ner", NER(bits=8, rich=False), str(folder / "train.jsonl")),
        ("pos", NER(bits=8, rich=False, column="upos"), path),
        ("parser", Parsing(bits=10), path),
    ):
        train(task, task.read(data), passes=4).save(folder / name)
    return folder


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Standard output of a command, given standard input."""

    def run(*arguments: object, given: str = "") -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        assert main(list(map(str, arguments))) == 0
        return capsys.readouterr().out

    return run


def spans_of(value: dict[str, Any]) -> list[tuple[int, int, str]]:
    assert all(value["text"][s["start"] : s["end"]] == s["text"] and 0 < s["probability"] <= 1 for s in value["spans"])
    return [(s["start"], s["end"], s["label"]) for s in value["spans"]]


def test_lists_of_json_come_back_as_lists(models: Path, tmp_path: Path, output: Any) -> None:
    tasks = [{"id": i, "data": {"text": text}, "annotations": []} for i, text in enumerate(TEXTS)]
    (tmp_path / "new.json").write_text(json.dumps(tasks))
    found = json.loads(output("predict", models / "ner", tmp_path / "new.json"))
    assert [{k: value[k] for k in ("id", "data", "annotations")} for value in found] == tasks
    assert list(map(spans_of, found)) == list(TEXTS.values())


def test_what_is_annotated_is_no_part_of_the_question(models: Path, output: Any) -> None:
    """Spans do not split tokens, and overlapping ones are no error."""
    texts = [
        {"text": "Ada met Bo.", "spans": spans} for spans in ([], [[0, 2, "PER"]], [[0, 2, "A"], [1, 3, "B"]], "x")
    ]
    given = "".join(json.dumps(text) + "\n" for text in texts)
    lines = output("predict", models / "ner", given=given).splitlines()
    assert len(lines) == 4
    assert len({tuple(spans_of(json.loads(line))) for line in lines}) == 1


def test_annotations_of_brat(models: Path, tmp_path: Path, output: Any) -> None:
    folder = tmp_path / "brat"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text("she left Oslo\n\n Ada met Bo.\n")
        (folder / f"{name}.ann").write_text("T1\tPER 0 3\tshe\n" if name == "a" else "")
    expected = "T1\tLOC 9 13\tOslo\nT2\tPER 16 19\tAda\nT3\tPER 24 26\tBo\n"
    assert output("predict", models / "ner", folder / "a.txt") == expected
    for flags in ([], ["--output", str(folder)]):  # no annotation is overwritten
        assert main(["predict", str(models / "ner"), str(folder), *flags]) == 2
    assert (folder / "a.ann").read_text() == "T1\tPER 0 3\tshe\n"
    output("predict", models / "ner", folder, "--output", tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"a.txt", "a.ann", "b.txt", "b.ann"}
    assert (tmp_path / "out/b.ann").read_text() == expected
    assert [document.covered for document in read_documents(str(tmp_path / "out"))] == [["Oslo"], ["Ada", "Bo"]] * 2


BANK = (
    "# newdoc id = 1\n# text = they sees the dog\n1-2\tthe old\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No\n"
    "1\tthe\tthe \tX\tY\tCase=Nom|Number=Plur\t2\tdet\t2:det\tGloss=a b|NER=B-LOC\n"
    "1.1\told\told\t_\t_\t_\t_\t_\t0:root\t_\n2\tdog\t_\t_\t_\t_\t0\t_\t_\tRef=1\n"
    "3\tMary\t_\t_\t_\t_\t1\tdep\t_\t_\n\n\n# sent_id = 2\n1\tAda\t_\t_\t_\t_\t0\t_\t_\tNER=O\n\n"
)


def cells_of(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.split("\n")]


def test_treebanks_come_back_but_for_one_column(models: Path, output: Any) -> None:
    for name in ("pos", "ner"):
        tags = [t for ranked in load(models / name).predict([["the", "dog", "Mary"], ["Ada"]]) for t in ranked]
        expected = cells_of(BANK)
        misc = [f"Gloss=a b|NER={tags[0]}", "Ref=1|NER=", "NER=", f"NER={tags[3]}"]
        for row, tag, value in zip((row for row in expected if row[0].isdigit()), tags, misc, strict=True):
            if name == "pos":
                row[3] = tag
            elif not value.endswith("="):
                row[9] = value
            elif tag != "O":  # which need not be said
                row[9] = f"{value}{tag}"
        assert cells_of(output("predict", models / name, given=BANK)) == expected
        assert cells_of(output("predict", models / name, given=BANK.replace("\n", "\r\n"))) == expected
    columns = output("predict", models / "pos", "--top", "2", given=BANK)
    assert [len(row.split()) for row in columns.splitlines() if row.startswith("Mary")] == [3]


def test_parses_come_back_but_for_the_tree(models: Path, output: Any) -> None:
    given = BANK.replace("\n\n\n", "\n\n")
    one, two = cells_of(output("predict", models / "parser", given=given)), cells_of(given)
    assert [row[:6] + row[9:] for row in one] == [row[:6] + row[9:] for row in two]


def test_columns_keep_their_separators(models: Path, output: Any) -> None:
    for between in ("\t", " "):
        given = f"Ada{between}O\nmet{between}O\n\nBo{between}O\n"
        assert output("predict", models / "ner", given=given).splitlines()[1] == f"met{between}O{between}O"


def test_tokens_of_texts_have_offsets(models: Path, output: Any) -> None:
    text, tokens = "🙂 Ada  met Bo.", ["🙂", "Ada", "met", "Bo", "."]
    for given, flags in ((f"{text}\n", ["--text"]), (json.dumps({"text": text}), [])):
        line = json.loads(output("predict", models / "ner", "--json", *flags, given=given))
        assert line["text"] == text
        assert [text[start:end] for start, end in line["offsets"]] == line["tokens"] == tokens
    assert json.loads(output("predict", models / "ner", "--json", given="Ada\nmet\n")).keys() == {"tokens", "outputs"}


def test_text_is_tagged_and_parsed(
    models: Path, output: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "the dog sees the old cat.\nthe child likes the dog and the cat.\n"
    tagged = output("predict", models / "pos", given=text)
    assert tagged.startswith("# text = the dog sees the old cat.\n1\tthe\t_\tDET\t")
    assert "\tcat\t_\tNOUN\t_\t_\t_\t_\t_\tSpaceAfter=No\n" in tagged
    parsed = output("predict", models / "parser", "-", given=tagged)
    assert {line.split("\t")[6] for line in parsed.split("\n") if line[:1].isdigit()} > {"0", "2"}
    assert output("predict", models / "pos", models / "parser", given=text) == parsed
    (tmp_path / "new.txt").write_text(text)
    assert output("predict", models / "pos", models / "parser", "--quiet", tmp_path / "new.txt") == parsed
    assert (
        output("predict", models / "pos", models / "parser", tmp_path / "new.txt", "--output", tmp_path / "out") == ""
    )
    assert (tmp_path / "out").read_text() == parsed
    assert main(["predict", str(models / "pos"), str(tmp_path / "none"), str(tmp_path / "new.txt")]) == 2
    (tmp_path / "words.txt").write_text("the\ndog\n")
    with pytest.raises(AssertionError):
        output("predict", models / "pos", models / "parser", tmp_path / "words.txt")
    assert "what model 1 writes:1: expected a row of CoNLL-U: 10 columns" in capsys.readouterr().err


# What is known.


def every(model: TrainedModel, words: list[str]) -> list[tuple[float, list[str]]]:
    """All well-formed taggings of a sentence with their scores."""
    return model.alternatives([words], 5 ** len(words))[0]


def test_allowed_tags(models: Path, output: Any) -> None:
    """The best tagging, and the probability of its entities, by enumeration of those that are allowed."""
    model, words = load(models / "ner"), ["Ada", "met", "Bo"]
    for first, last in product([None, ["O"], ["B-LOC", "O"]], [None, ["I-LOC"], ["B-PER", "I-PER"]]):
        allowed = [first, None, last]
        fitting = [
            (score, tags)
            for score, tags in every(model, words)
            if all(kept is None or tag in kept for kept, tag in zip(allowed, tags, strict=True))
        ]
        given = json.dumps({"tokens": words, "allowed": allowed})
        line, value = (json.loads(output("predict", models / "ner", *flags, given=given)) for flags in (["--json"], []))
        assert line["outputs"][0]["tags"] == fitting[0][1]
        weights = np.exp(np.array([score for score, _ in fitting]) - fitting[0][0])
        for entity, span in zip(entities(fitting[0][1]), value["spans"], strict=True):
            has = np.array([entity in entities(tags) for _, tags in fitting])
            assert span["probability"] == pytest.approx(weights[has].sum() / weights.sum(), abs=1e-10)
    for wrong, message in (
        ([None], "text 1: allowed must have an entry for each of 3 tokens, got 1"),
        ([["I-PER"], None, None], "sentence 1 has no tagging that is well-formed and allowed"),
        ([["X"], None, None], "sentence 1: allowed has no tag of the training data for token 0"),
        ("O", "allowed must be a list with a list of tags, or null"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            model.predict(model.task.read(io.StringIO(json.dumps({"tokens": words, "allowed": wrong}))))


def test_errors_of_allowed_tags_name_the_file_and_the_sentence(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new.jsonl"
    for wrong, message in ((["X"], "allowed has no tag of the training data"), (["I-PER"], "has no tagging")):
        rows = [{"tokens": ["Bo"]}, {"tokens": ["Bo"], "allowed": [wrong]}]
        new.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        assert main(["predict", str(models / "ner"), str(new)]) == 2
        said = capsys.readouterr().err
        assert f"{new}: sentence 2" in said
        assert message in said


def test_phrases_are_entities(models: Path, tmp_path: Path, output: Any) -> None:
    file, words = tmp_path / "known.tsv", ["Ada", "met", "Bo", "Rome"]
    file.write_text("met Bo\tLOC\nmet\tPER\nO'Neil's\tPER\n\n")
    found = output("predict", models / "ner", "--gazetteer", file, given="Ada met Bo Rome\nhe met Ada\n")
    rows = [row.split() for row in found.splitlines() if row]
    assert rows[5] == ["met", "B-PER"]
    model, known = load(models / "ner"), Gazetteer.read(str(file), Splitter())
    sets = known.allowed(words, model.task.to_dict()["tags"], "BIO")
    taggings = [tags for _, tags in every(model, words)]
    fitting = [tags for tags in taggings if all(kept is None or t in kept for kept, t in zip(sets, tags, strict=True))]
    assert fitting == [tags for tags in taggings if ("LOC", 1, 3) in entities(tags)]
    assert [row[1] for row in rows[:4]] == fitting[0]
    for gold, score in (([row[1] for row in rows[:4]], 1.0), (["O"] * 3 + ["B-PER"], 0.0)):  # of these predictions
        labelled = tmp_path / "gold.conll"
        labelled.write_text("".join(f"{word} {tag}\n" for word, tag in zip(words, gold, strict=True)) + "\n")
        measured = output("evaluate", models / "ner", labelled, "--gazetteer", file)
        (row,) = (line for line in measured.splitlines() if line.startswith("overall"))
        assert row.split()[1:4] == [f"{score:.2%}"] * 3  # precision, recall and F1
    for text, message in (
        ("met Bo\tX\n", "types that the tagger does not know, X: expected some of LOC, PER"),
        ("met Bo PER\n", "known.tsv:1: expected a phrase, a tab and a type, got 'met Bo PER'"),
        ("\n", "no phrases"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            model.task.restricted(model.task.read(io.StringIO("Ada met Bo\n")), str(file))
    assert main(["predict", str(models / "pos"), "--gazetteer", str(file)]) == 2
    assert main(["predict", str(models / "parser"), "--gazetteer", str(file)]) == 2


@pytest.mark.parametrize("scheme", ["IO", "IOB1", "IOE2", "BIOES", "BMEWO"])
def test_phrases_in_other_schemes(scheme: Any) -> None:
    tags = {"IO": ["I-A"], "IOB1": ["B-A", "I-A"], "IOE2": ["I-A", "E-A"], "BIOES": ["B-A", "I-A", "E-A", "S-A"]}
    names = [*tags.get(scheme, ["B-A", "M-A", "E-A", "W-A"]), "O"]
    known = Gazetteer([(["x", "y"], "A"), (["z"], "A")])
    sets = known.allowed(["u", "x", "y", "v", "z"], names, scheme)
    kept = [names if one is None else one for one in sets]
    found = {tuple(entities(tagging)) for tagging in product(*kept)}
    assert all({("A", 1, 3), ("A", 4, 5)} <= {*one} for one in found if scheme in ("IO", "IOB1"))
    assert any({("A", 1, 3), ("A", 4, 5)} <= {*one} for one in found)
