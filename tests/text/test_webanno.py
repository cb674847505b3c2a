"""The TSV of WebAnno: entities of several words and of parts of words, by the feature of a layer."""

import json
from pathlib import Path

import pytest

from structsmooth.cli import main
from structsmooth.tasks import NER
from structsmooth.tasks.trained import train
from structsmooth.text.annotated import read_documents
from structsmooth.text.conll import read_corpus
from structsmooth.text.documents import Document, Span
from structsmooth.text.forms import Reading
from structsmooth.text.webanno import webanno_documents

HEAD = """#FORMAT=WebAnno TSV 3.3
#T_SP=de.tudarmstadt.ukp.dkpro.core.api.lexmorph.type.pos.POS|PosValue
#T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value
#T_SP=custom.Sign|
#T_RL=de.tudarmstadt.Dependency|DependencyType|BT_POS


"""
ROWS = """#Text=😀 Ada Love-Bo # .
1-1\t0-2\t😀\tX\t_\t_\t_\t_\t_\t
1-2\t3-6\tAda\tNE\thttp://a|b[1]\tPER[1]\t_\tdep\t1-1\t
1-3\t7-14\tLove-Bo\tNE\t_\t_\t_\t_\t_\t
1-3.1\t7-11\tLove\t_\thttp://a|b[1]\tPER[1]\t_\t_\t_\t
1-3.2\t12-14\tBo\t_\t*\tA\\[B\\]\\|\\_\t_\t_\t_\t
1-4\t15-16\t#\t_\t_\t_\t*\t_\t_\t
1-5\t16-17\t.\t_\t_\t_\t*[2]\t_\t_\t

#Text=Oslo
2-1\t20-24\tOslo\tNE\t*\tLOC\t_\t_\t_\t
"""
TEXT = "😀 Ada Love-Bo #."


def write(folder: Path, content: str) -> str:
    path = folder / "data.tsv"
    path.write_text(content, encoding="utf-8")
    return str(path)


def test_entities_of_a_feature(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + ROWS)
    named = [(TEXT, (Span(2, 10, "PER"), Span(11, 13, "A[B]|_"))), ("Oslo", (Span(0, 4, "LOC"),))]
    assert [(d.text, d.spans) for d in read_documents(path)] == named
    assert [(d.text, d.spans) for d in read_documents(path, Reading(tag_column="NamedEntity.value"))] == named
    signs = read_documents(path, Reading(tag_column="Sign."))[0]
    assert signs.spans == (Span(14, 15, "Sign"), Span(15, 16, "Sign"))
    assert signs.tokens == ((0, 1), (2, 5), (6, 13), (14, 15), (15, 16))
    with pytest.warns(UserWarning, match="end inside of tokens"):
        corpus = read_corpus(path)
    assert corpus[0].words == ["😀", "Ada", "Love", "-", "Bo", "#", "."]
    assert corpus[0].tags == ["O", "B-PER", "I-PER", "O", "B-A[B]|_", "O", "O"]
    assert list(webanno_documents(HEAD.splitlines() + ROWS.splitlines(), path, annotated=False))[1] == Document(
        "Oslo", None, ((0, 4),)
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("A\\[B\\]\\|\\_", "*", r"data\.tsv:13: the entity of 'Bo' has no value"),
        ("\tLOC\t", "\tPER[1]\t", r"data\.tsv:18: the entity of 'Oslo' has begun in a sentence before"),
        ("\tLOC\t", "\tLOC|PER\t", r"data\.tsv:18: the spans 'Oslo' and 'Oslo' overlap"),
        ("7-14\tLove", "7\tLove", r"data\.tsv:11: expected 1-1, 0-3, a word and 6 features between tabs, got '1-3"),
        ("LOC\t_\t_\t_\t", "LOC", r"data\.tsv:18: expected 1-1, 0-3, a word and 6 features"),
        ("ner.type.NamedEntity", "Mark", r"by --tag-column, of POS\.PosValue, Mark\.identifier, Mark\.value, Sign\.$"),
    ],
)
def test_what_no_tags_can_say_is_refused_by_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write(tmp_path, (HEAD + ROWS).replace(old, new))
    with pytest.raises(ValueError, match=message):
        read_documents(path)


def test_answers_are_lines_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = HEAD + ROWS.split("\n\n")[1].replace("2-1\t20-24", "1-1\t0-4")
    path, model = write(tmp_path, rows), str(tmp_path / "model")
    task = NER(bits=6, rich=False, words_only=True)
    train(task, task.read(path), passes=5).save(model)
    assert main(["predict", model, path, "--quiet"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "Oslo"
    assert [s["label"] for s in answer["spans"]] == ["LOC"]
