"""Files as people have them: CoNLL-U, tabs, further columns, bare words and lines of text."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from attributes import sentence_attributes

from structsmooth.cli import main
from structsmooth.tasks import NER, Chunking
from structsmooth.tasks.trained import TrainedModel, load, train
from structsmooth.text.conll import read_conll, read_corpus
from structsmooth.text.corpus import Sentence
from structsmooth.text.forms import Reading
from structsmooth.text.layouts import write_conll
from structsmooth.text.templates import PLAIN, RICH, columns_of, for_columns, window

UNIVERSAL = """\
# newdoc id = letters
# sent_id = 1
# text = I don't sing.
1\tI\tI\tPRON\tPRP\tCase=Nom|Number=Sing\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tsing\tsing\tVERB\tVB\tVerbForm=Inf\t0\troot\t_\tSpaceAfter=No
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_

# sent_id = 2
1\t3 500\t3500\tNUM\tCD\tNumType=Card\t2\tnummod\t_\t_
2\tcame\tcome\tVERB\tVBD\t_\t0\troot\t_\t_
2.1\tsang\tsing\tVERB\tVBD\t_\t_\t_\t2:conj\t_

# newdoc
# sent_id = 3
1\tAda\tAda\tPROPN\tNNP\t_\t2\tnsubj\t_\t_
2\tleft\tleave\tVERB\tVBD\t_\t0\troot\t_\t_
"""
WORDS = [["I", "do", "n't", "sing", "."], ["3 500", "came"], ["Ada", "left"]]
UPOS = [["PRON", "AUX", "PART", "VERB", "PUNCT"], ["NUM", "VERB"], ["PROPN", "VERB"]]

ENTITIES = "Ada NNP B-NP B-PER\nsings VBZ B-VP O\n\nOslo NNP B-NP B-LOC\nsings VBZ B-VP O\n. . O O\n\n" * 3


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blank_pictures: None) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("words.conllu").write_text(UNIVERSAL)
    Path("entities.txt").write_text(ENTITIES)
    return tmp_path


def model_of(task: NER, path: str = "entities.txt") -> TrainedModel:
    return train(task, task.read(path), lam="0.01/n", passes=50)


# CoNLL-U.


@pytest.mark.parametrize(
    ("column", "tags"),
    [
        ("upos", UPOS),
        ("xpos", [["PRP", "VBP", "RB", "VB", "."], ["CD", "VBD"], ["NNP", "VBD"]]),
        ("feats", [["Case=Nom|Number=Sing", "_", "_", "VerbForm=Inf", "_"], ["NumType=Card", "_"], ["_", "_"]]),
        ("deprel", [["nsubj", "aux", "advmod", "root", "punct"], ["nummod", "root"], ["nsubj", "root"]]),
    ],
)
def test_a_column_of_conllu_has_the_tags(column: str, tags: list[list[str]]) -> None:
    corpus = NER(column=column).read("words.conllu")  # type: ignore[arg-type]
    assert [sentence.words for sentence in corpus] == WORDS
    assert [sentence.tags for sentence in corpus] == tags
    assert all(sentence.columns == [] for sentence in corpus)
    assert NER(column="upos").texts(corpus) == [1, 1, 2]


def test_conllu_may_be_compressed_and_read_in_parts() -> None:
    Path("words.gz").write_bytes(gzip.compress(UNIVERSAL.encode()))
    whole = list(read_corpus("words.gz", column="upos"))
    parts: list[Callable[[int], range]] = [lambda n: range(1), lambda n: range(1, n)]
    assert [s for part in parts for s in read_corpus("words.gz", column="upos", share=part)] == whole


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (UNIVERSAL.replace("1\tAda\tAda", "1\tAda"), r":18: expected a row of CoNLL-U: 10 columns.*got 9 from '1'"),
        (UNIVERSAL.replace("1\tAda", "x\tAda"), r":18: expected a row of CoNLL-U: 10 columns.*got 10 from 'x'"),
        (UNIVERSAL.replace("1\tAda\t", "1\t\t"), ":18: column 2 is empty: fill it"),
        (UNIVERSAL.replace("PROPN", "_"), ":18: the word 'Ada' has no upos: choose another column .xpos, feats, dep"),
        ("# text = nothing\n\n", "no sentences"),
    ],
)
def test_malformed_conllu_is_refused_by_its_line(text: str, message: str) -> None:
    Path("bad.txt").write_text(text)
    with pytest.raises(ValueError, match=rf"^bad\.txt.*{message}"):
        NER(column="upos").read("bad.txt")


@pytest.mark.parametrize("name", ["words.conllu", "words.txt"])
def test_conllu_without_a_column_is_refused_with_the_choice(name: str) -> None:
    Path(name).write_text(UNIVERSAL)
    with pytest.raises(ValueError, match=r"is CoNLL-U: choose .* --column upos, xpos, feats or deprel"):
        NER().read(name)


def test_columns_of_conllu_are_plain_tags() -> None:
    with pytest.raises(ValueError, match="the column upos has plain tags: leave out the scheme BIO"):
        NER(column="upos", scheme="BIO")


def test_commands_on_conllu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["--train", "words.conllu", "--test", "words.conllu", "--out", "model"]
    assert main(["train", "ner", *files, "--column", "upos", "--bits", "0", "--lam", "0.01", "--passes", "30"]) == 0
    assert "accuracy  100.00 %" in capsys.readouterr().out
    assert main(["evaluate", "model", "words.conllu"]) == 0
    assert main(["predict", "model", "words.conllu", "--json"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [json.loads(line)["tokens"] for line in lines] == WORDS
    assert [json.loads(line)["outputs"][0]["tags"] for line in lines] == UPOS
    monkeypatch.setattr("sys.stdin", io.StringIO("Ada came.\n"))
    assert main(["predict", "model"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["# text = Ada came.", "1", "2", "3", ""]
    assert [(row[1], row[3], row[9]) for row in rows[1:-1]] == [
        ("Ada", "PROPN", "_"),
        ("came", "VERB", "SpaceAfter=No"),
        (".", "PUNCT", "_"),
    ]


# Tabs.


def test_tabs_separate_columns_where_there_are_any() -> None:
    (sentence,) = read_conll(io.StringIO("3 500\tCD\tO\n New York \t NNP\tB-LOC\nis VBZ O\n"))
    assert sentence == Sentence(["3 500", "New York", "is"], [["CD", "NNP", "VBZ"]], ["O", "B-LOC", "O"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tDT\tO\nb\t\tO\n", ":2: column 2 is empty: fill it, with a hyphen for instance; one tab separates columns"),
        ("a\tO\nb\t\n", ":2: column 2 is empty: fill it"),
        (
            "a\tDT B-X\n",
            ":1: the tag 'DT B-X' has a space: give tags without, and separate all columns of a row by tabs",
        ),
    ],
)
def test_tabs_of_other_uses_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_conll(io.StringIO(text))


def test_words_with_spaces_are_written_between_tabs() -> None:
    sentences = [Sentence(["3 500", "came"], [["CD", "VBD"]], ["O", "O"]), Sentence(["He"], [["PRP"]], ["O"])]
    stream = io.StringIO()
    write_conll(sentences, [["O", "O"], ["B-X"]], stream)
    assert stream.getvalue() == "3 500\tCD\tO\tO\ncame\tVBD\tO\tO\n\nHe\tPRP\tO\tB-X\n\n"


# Further columns.


def test_columns_that_no_template_knows_have_windows() -> None:
    text = "EU NNP Geo upper B-ORG\nsays VBZ - lower O\n"
    fitted = NER(bits=0).fit(NER().read(text_file(text)))
    assert fitted.inputs.names == ["pos", "column3", "column4"]
    names = set(fitted.attributes.attributes)  # type: ignore[attr-defined]
    assert {"column3[0]=Geo", "column3[-1]=Geo", "column4[0]=upper", "column4[1]=lower", "pos[0]=NNP"} <= names
    assert not any(name.startswith(("chunk", "column3[0]=-")) for name in names)


def test_a_column_of_chunks_keeps_its_name() -> None:
    fitted = NER(bits=0).fit(NER().read("entities.txt"))
    assert fitted.inputs.names == ["pos", "chunk"]
    assert fitted.inputs.templates(RICH) == RICH
    (attributes,) = sentence_attributes(
        Sentence(["EU"], [["NNP"], ["B-NP"]]), fitted.inputs.templates(Chunking().templates)
    )
    assert "chunk[0]=B-NP" in attributes


def test_templates_of_missing_columns_are_left_out() -> None:
    assert columns_of(for_columns(RICH, [])) == {"word", "outline"}
    added = for_columns(PLAIN, ["pos", "chunk", "column4"])[len(PLAIN) :]
    assert [template.cells for template in added] == [template.cells for template in window("column4")]


# Bare words and text.


def text_file(text: str) -> str:
    Path("new.txt").write_text(text)
    return "new.txt"


@pytest.mark.parametrize("task", [NER(bits=0, words_only=True), NER(bits=10, words_only=True)], ids=["exact", "hashed"])
def test_a_tagger_of_words_takes_all_kinds_of_input(task: NER) -> None:
    model = model_of(task)
    expected = [["B-PER", "O"], ["B-LOC", "O", "O"]]
    assert model.predict("entities.txt") == expected * 3
    assert model.predict([["Ada", "sings"], ["Oslo", "sings", "."]]) == expected
    assert model.predict(["Ada sings", "Oslo sings."]) == expected
    assert model.predict([[("Ada", "NNP", "B-NP"), ("sings", "VBZ", "B-VP")]]) == expected[:1]
    assert model.predict(text_file("Ada\nsings\n\nOslo\nsings\n.\n")) == expected
    assert model.predict(text_file("Ada sings\n\nOslo sings .\n")) == expected
    assert model.predict(text_file("Ada sings\n")) == expected[:1]
    assert (
        model.predict(text_file("1\tAda\t_\t_\t_\t_\t_\t_\t_\t_\n2\tsings\t_\t_\t_\t_\t_\t_\t_\t_\n")) == expected[:1]
    )
    assert model.score("entities.txt")["f1"] == 1.0
    model.save("model")
    assert load("model").predict(["Ada sings"]) == expected[:1]


def test_files_of_other_columns_are_not_taken_for_text() -> None:
    model = model_of(NER(bits=0, words_only=True))
    with pytest.raises(
        ValueError,
        match=r"new\.txt: expected 4 columns.*or words alone; got 2. Choose .* --word-column; if .* text, give --text",
    ):
        model.predict(text_file("Ada NNP\nsings VBZ\n"))


def test_a_tagger_of_columns_names_those_that_are_missing() -> None:
    model = model_of(NER(bits=0))
    needed = r"needs pos and chunk of each word, as in Ada NNP B-NP \(in Python, .*\('Ada', 'NNP', 'B-NP'\)\); one "
    for given in (["Ada sings"], [["Ada", "sings"]]):
        with pytest.raises(ValueError, match=f"{needed}trained with --words-only .words_only=True. takes words alone"):
            model.predict(given)
    for text, count in {
        "Ada sings in Oslo.\nShe left.\n": "lines of text",
        "Ada\nsings\n": 1,
        "Ada NNP\nsings VBZ\n": 2,
    }.items():
        with pytest.raises(ValueError, match=f"expected 4 columns, .* got {count}. This tagger {needed}"):
            model.predict(text_file(text))


def test_text_that_is_no_file_belongs_into_a_list() -> None:
    model = model_of(NER(bits=0, words_only=True))
    with pytest.raises(
        FileNotFoundError, match=r"Ada sings: no such file in .*; text goes .* predict\(\['Ada sings'\]\)"
    ):
        model.predict("Ada sings")


def test_lines_of_text_on_the_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model_of(NER(bits=0, words_only=True)).save("model")
    lines = "Ada sings\n\nOslo sings\n"
    for arguments in ([], ["-"], [text_file(lines)]):
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        assert main(["predict", "model", "--text", *arguments]) == 0
        assert capsys.readouterr().out == "Ada B-PER\nsings O\n\nOslo B-LOC\nsings O\n\n"


def test_models_of_version_0_2_are_read() -> None:
    model = model_of(NER(bits=8))
    model.save("model")
    file = Path("model/model.json")
    described = json.loads(file.read_text())
    inputs = described["trained"].pop("inputs")
    del described["digest"]
    described["trained"]["columns"] = inputs["columns"]
    file.write_text(json.dumps(described))
    assert load("model").predict("entities.txt") == model.predict("entities.txt")


HIPE = """\
TOKEN\tNE-COARSE-LIT\tNE-FINE-LIT\tNEL-LIT\tMISC
# language = de
Frau\tB-pers\tB-pers.ind\tNIL\t_
# segment_iiif_link = x
Bo\tI-pers\tI-pers.ind\tNIL\tEndOfSentence
#\tO\tO\t_\tNoSpaceAfter|EndOfSentence

# language = fr
Rome\tB-loc\tB-loc.adm\tQ1\t_
"""


def test_sentences_of_hipe_end_by_its_last_column_and_columns_have_names(tmp_path: Path) -> None:
    (path := tmp_path / "hipe.tsv").write_text(HIPE)
    words = [["Frau", "Bo"], ["#"], ["Rome"]]
    coarse, fine = [["B-pers", "I-pers"], ["O"], ["B-loc"]], [["B-pers.ind", "I-pers.ind"], ["O"], ["B-loc.adm"]]
    for column, tags in (("NE-COARSE-LIT", coarse), (2, coarse), ("2", coarse), ("NE-FINE-LIT", fine)):
        corpus = NER(tag_column=column).read(str(path))
        assert [(s.words, s.columns, s.tags) for s in corpus] == [(w, [], t) for w, t in zip(words, tags, strict=True)]
    read = read_corpus(str(path), plain=True, reading=Reading("NE-COARSE-LIT", "NEL-LIT"))
    assert (read[0].words, read[0].columns[0], read[0].tags) == (["B-pers", "I-pers"], fine[0], ["NIL", "NIL"])
    with pytest.raises(
        ValueError, match="several columns have tags: choose one by --tag-column, of NE-COARSE-LIT, NE-F"
    ):
        read_corpus(str(path))
    with pytest.raises(ValueError, match=r"no column 'NE': give one of the header, TOKEN, NE-COARSE-LIT, NE-F"):
        read_corpus(str(path), reading=Reading(tag_column="NE"))
    (tmp_path / "bare.tsv").write_text("Bo\tB-pers\n")
    with pytest.raises(ValueError, match=r"no column 'NE': give its number: there is no header"):
        read_corpus(str(tmp_path / "bare.tsv"), reading=Reading(tag_column="NE"))
