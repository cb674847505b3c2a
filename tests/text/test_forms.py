"""Files as people publish them: what each is read as, or by which name it is refused, however damaged it is."""

import io
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from structsmooth.cli import main
from structsmooth.tasks import NER, Parsing
from structsmooth.tasks.alignment.data import read_pairs
from structsmooth.tasks.parsing.data import read_trees
from structsmooth.tasks.trained import TrainedModel, train
from structsmooth.text.annotated import read_documents
from structsmooth.text.conll import read_corpus
from structsmooth.text.corpus import Corpus
from structsmooth.text.forms import Reading
from structsmooth.text.gazetteer import Gazetteer
from structsmooth.text.inputs import Inputs
from structsmooth.text.lines import read_text
from structsmooth.text.standalone import Splitter

ADA = [(["Ada", "met", "Bo"], ["B-PER", "O", "B-PER"]), (["she", "left"], ["O", "O"])]
PLAIN = "Ada B-PER\nmet O\nBo B-PER\n\nshe O\nleft O\n"


def write(folder: Path, content: str | bytes, name: str = "data.txt") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def rows(corpus: Corpus) -> list[tuple[list[str], list[str] | None]]:
    return [(sentence.words, sentence.tags) for sentence in corpus]


def model() -> TrainedModel:
    """A tagger of words and tags alone."""
    task = NER(bits=6, rich=False)
    return train(task, task.read(io.StringIO(PLAIN * 3)), passes=1)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tagger() -> TrainedModel:
    return model()


# What a line is.


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\r\n"])
@pytest.mark.parametrize("blank", ["", "\u00a0", " \u200b", "\u3000\ufeff", "\x1c", "\f", "\u2800", "\u3164"])
def test_lines_end_and_are_blank_as_they_look(tmp_path: Path, end: str, blank: str) -> None:
    path = write(tmp_path, PLAIN.replace("\n\n", f"\n{blank}\n").replace("\n", end))
    assert rows(read_corpus(path)) == ADA


@pytest.mark.parametrize("word", ["s\x1che", "s\u0085he", "s\u00a0he", "s\u2028he", "\u3000", "\u200b"])
def test_what_looks_like_a_blank_may_be_in_a_word(tmp_path: Path, word: str) -> None:
    path = write(tmp_path, f"{word} O\nleft O\n")
    assert rows(read_corpus(path)) == [([word, "left"], ["O", "O"])]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_encodings(tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = PLAIN.replace("Ada", "Zoë").encode(encoding)
    path = write(tmp_path, content)
    if encoding != "utf-16":  # whose mark tells it
        with pytest.raises(ValueError, match=r":1: byte 0xeb is not utf-8; give the encoding .* --encoding latin-1"):
            read_corpus(path)
    for given in (encoding, None) if encoding == "utf-16" else (encoding,):
        monkeypatch.setattr("structsmooth.text.lines._BLOCK", 7)
        assert read_corpus(path, reading=Reading(encoding=given))[0].words == ["Zoë", "met", "Bo"]
    assert next(iter(read_text(path, encoding))) == "Zoë B-PER"
    with pytest.raises(ValueError, match=r"data\.txt:1: byte .* is not ascii"):
        read_corpus(path, reading=Reading(encoding="ascii"))
    if encoding == "utf-16":
        assert read_corpus(path, reading=Reading(encoding="utf8"))[0].words == ["Zoë", "met", "Bo"]
    if encoding == "latin-1":
        bad = write(tmp_path, b"Zo\x81 O\n", "bad.txt")
        with pytest.raises(ValueError, match=r":1: byte 0x81 is not cp1252; give the encoding"):
            read_corpus(bad, reading=Reading(encoding="cp1252"))
    with pytest.raises(ValueError, match="unknown encoding 'zlib': expected one such as latin-1"):
        read_corpus(path, reading=Reading(encoding="zlib"))


# Columns.


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (PLAIN, "2 columns, words in 1, tags in 2"),
        ("word tag\n" + PLAIN, "2 columns, words in 1, tags in 2, a header"),
        ("# id 1\n" + PLAIN, "2 columns, words in 1, tags in 2, comments left out"),
        ("###MEDLINE:1\n\n" + PLAIN, "2 columns, words in 1, tags in 2, comments left out"),
        (
            "1\tAda\tB-PER\tO\n2\tmet\tO\tO\n3\tBo\tB-PER\tB-PERpart\n\n1\tshe\tO\tO\n2\tleft\tO\tO\n",
            "4 columns, words in 2, tags in 3, numbers of words in 1, 4 left out",
        ),
        (
            "# text = Ada\n0\tAda\tB-PER\t-\t-\n1\tmet\tO\t-\t-\n2\tBo\tB-PER\t-\t-\n\n3\tshe\tO\t-\t-\n"
            "4\tleft\tO\t-\t-\n",
            "5 columns, words in 2, tags in 3, numbers of words in 1, 4 and 5 left out, comments left out",
        ),
        (
            "1 1 Ada B-PER\n1 2 met O\n1 3 Bo B-PER\n\n2 1 she O\n2 2 left O\n",
            "4 columns, words in 3, tags in 4, numbers of words in 2, 1 left out",
        ),
        (
            "d1 1 Ada B-PER\nd1 2 met O\nd1 3 Bo B-PER\n\nd1 4 she O\nd1 5 left O\n",
            "4 columns, words in 3, tags in 4, numbers of words in 2, 1 left out",
        ),
        (
            "1-1 Ada B-PER\n1-2 met O\n1-3 Bo B-PER\n\n2-1 she O\n2-2 left O\n",
            "3 columns, words in 2, tags in 3, numbers of words in 1",
        ),
        (
            "TOKEN NE-COARSE-LIT NE-FINE\nAda B-PER _\nmet O _\nBo B-PER _\n\nshe O _\nleft O _\n",
            "3 columns, words in 1, tags in 2, 3 left out, a header",
        ),
        (
            "1. Ada B-PER\n2. met O\n3. Bo B-PER\n\n1. she O\n2. left O\n",
            "3 columns, words in 2, tags in 3, numbers of words in 1",
        ),
        ("1 Ada B-PER\n1 met O\n1 Bo B-PER\n\n2 she O\n2 left O\n", "3 columns, words in 2, tags in 3, 1 left out"),
        (
            "Sentence: 1\tAda\tB-PER\nSentence: 1\tmet\tO\nSentence: 1\tBo\tB-PER\n\nSentence: 2\tshe\tO\n"
            "Sentence: 2\tleft\tO\n",
            "3 columns, words in 2, tags in 3, 1 left out",
        ),
        (
            "Sentence: 1 Ada B-PER\nSentence: 1 met O\nSentence: 1 Bo B-PER\n\nSentence: 2 she O\nSentence: 2 left O\n",
            "4 columns, words in 3, tags in 4, 1 and 2 left out",
        ),
        (
            "1-1\t0-3\tAda\tB-PER\n1-2\t4-7\tmet\tO\n1-3\t8-10\tBo\tB-PER\n\n2-1\t12-15\tshe\tO\n2-2\t16-20\tleft\tO\n",
            "4 columns, words in 3, tags in 4, numbers of words in 1, 2 left out",
        ),
        (
            "1 0 3 Ada B-PER\n2 4 7 met O\n3 8 10 Bo B-PER\n\n1 12 15 she O\n2 16 20 left O\n",
            "5 columns, words in 4, tags in 5, numbers of words in 1, 2 and 3 left out",
        ),
        ("B-PER\tAda\nO\tmet\nB-PER\tBo\n\nO\tshe\nO\tleft\n", "2 columns, words in 2, tags in 1"),
        ("Ada B-PER _\nmet O _\nBo B-PER _\n\nshe O _\nleft O _\n", "3 columns, words in 1, tags in 2, 3 left out"),
    ],
)
def test_roles_of_columns(content: str, form: str) -> None:
    corpus = read_corpus(io.StringIO(content))
    assert rows(corpus) == ADA
    assert corpus.form == form


@pytest.mark.parametrize("numbers", [("1", "2"), ("1 1", "1 2"), ("1-1", "1-2")])
def test_numbers_that_begin_anew_need_blank_lines(numbers: tuple[str, str]) -> None:
    rows = f"{numbers[0]} Ada B-PER\n{numbers[1]} met O\n"
    with pytest.raises(ValueError, match="begin anew, or change, without a blank line before them"):
        read_corpus(io.StringIO(rows + rows))


@pytest.mark.parametrize(
    "content",
    [
        "7 Ada B-PER\n7 met O\n8 she O\n8 left O\n",
        "Sentence: 1\tAda\tB-PER\nSentence: 1\tmet\tO\nSentence: 2\tshe\tO\n",
        "Sentence: 1 Ada B-PER\nSentence: 1 met O\nSentence: 2 she O\n",
        "Sentence #\tWord\tTag\nSentence: 1\tAda\tB-PER\n\tmet\tO\nSentence: 2\tshe\tO\n\tleft\tO\n",  # of Kaggle
    ],
)
def test_numbers_of_sentences_need_blank_lines(content: str) -> None:
    with pytest.raises(ValueError, match="begin anew, or change, without a blank line before them: put such lines"):
        read_corpus(io.StringIO(content))


def test_numbers_alone_are_words() -> None:
    assert rows(read_corpus(io.StringIO("1 O\n2 O\n3 O\n\n3 O\n3 O\n"))) == [
        (["1", "2", "3"], ["O"] * 3),
        (["3", "3"], ["O"] * 2),
    ]


def test_a_column_of_inner_entities_is_chosen() -> None:
    content = "1\tAda\tB-PER\tO\n2\tmet\tO\tO\n3\tBo\tB-PER\tB-PART\n\n1\tshe\tO\tO\n"
    for task in (NER(column="4"), NER(tag_column=4)):
        corpus = task.read(io.StringIO(content))
        assert rows(corpus) == [(["Ada", "met", "Bo"], ["O", "O", "B-PART"]), (["she"], ["O"])]
        assert corpus.form == "4 columns, words in 2, tags in 4, numbers of words in 1, 3 left out"
        assert not task.plain
        assert corpus[0].columns == []
    unused = content.replace("\tB-PER\t", "\t_\t").replace("\tO\t", "\t_\t")
    assert NER(tag_column=4).read(io.StringIO(unused)).form == corpus.form
    assert NER().read(io.StringIO(content))[0].tags == ["B-PER", "O", "B-PER"]
    for tags in (["B-PART", "O"], ["B-PER", "O"]):  # a tagger tells them by the tags that it knows
        found = Inputs(2, [], ["Ada"]).read(io.StringIO(content), tags)[0]
        assert (found.words, found.columns) == (["Ada", "met", "Bo"], [])
        assert found.tags == (["O", "O", "B-PART"] if "B-PART" in tags else ["B-PER", "O", "B-PER"])


def test_a_title_is_wrong_and_not_the_tags_behind_it() -> None:
    with pytest.raises(ValueError, match=r":1: bad tag 'DATA'"):
        read_corpus(io.StringIO("Annotated DATA\n\n" + PLAIN))


def test_number_signs_are_words_and_comments() -> None:
    text = "# doc1\nAda NOUN\nsings VERB\n\n#tag NOUN\n# PUNCT\nends VERB\n\n# PUNCT\n! PUNCT\n"
    assert [s.words for s in read_corpus(io.StringIO(text), plain=True)] == [
        ["Ada", "sings"],
        ["#tag", "#", "ends"],
        ["#", "!"],
    ]
    with pytest.raises(ValueError, match=r":3: this line in a sentence begins with #, but has not the columns"):
        read_corpus(io.StringIO("# id 1\nAda O\n# id 2\nmet O\n"))


def test_columns_are_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, "DT the NN\nNN dog VB\n")
    corpus = read_corpus(path, plain=True, reading=Reading(word_column=2, tag_column=1))
    assert rows(corpus) == [(["the", "dog"], ["DT", "NN"])]
    for chosen in (Reading(4), Reading(2, 2), Reading(0, 1), Reading(tag_column=4)):
        with pytest.raises(ValueError, match=r"data.txt: expected two of its 3 columns, counted from 1, got --word"):
            read_corpus(path, plain=True, reading=chosen)
    words = "".join(f"NN word{i}\n" for i in range(120))
    with pytest.raises(ValueError, match=r"rows of 120 different tags for 1 words: .* by --word-column"):
        read_corpus(io.StringIO(words), plain=True)


@pytest.mark.parametrize(
    "content",
    [
        "17 Ada B-PER\n18 met O\n\n19 Bo B-PER\n",
        "1 Ada B-PER\n3 met O\n\n1 Bo B-PER\n",
        "1\tAda\tB-PER\t-\tann1\n2\tmet\tO\t-\tann0\n\n1\tBo\tB-PER\t-\tann1\n",
        "Ada B-PER 0.9\nmet O 1.0\n\nBo B-PER 0.7\n",
        "B-PER Ada NNP\nO met VBD\n\nB-PER Bo NNP\n",
    ],
)
def test_words_and_tags_stand_among_other_columns(content: str) -> None:
    corpus = read_corpus(io.StringIO(content))
    assert rows(corpus) == [(["Ada", "met"], ["B-PER", "O"]), (["Bo"], ["B-PER"])]


def test_words_in_the_place_of_chunks_are_text() -> None:
    inputs = Inputs(4, ["pos", "chunk"], ["Ada", "NNP", "B-NP"])
    assert len(inputs.read(io.StringIO("Ada NNP B-NP\nsings VBZ B-VP\n"), ["O"])[0]) == 2
    with pytest.raises(
        ValueError, match=r"got lines of text\. This tagger needs pos and chunk of each word, as in Ada"
    ):
        inputs.read(io.StringIO("Ada lives here\nBo went home\n"), ["O"])


# Other forms.

FORMS = {
    "XML or HTML": '<doc id="1">\n<s>Ada met Bo</s>\n</doc>\n',
    "CSV": "id,text\n1,Ada met Bo\n2,she left\n",
    "YAML": "version: 2\nnlu:\n- intent: greet\n  examples: |\n    - hey\n",
    "YAML ": "- text: Ada met Bo\n- text: she left\n",
    "strings in quotation marks": '"Ada met Bo"\n"she, Love, left"\n',
    "strings in quotation marks, as": '"Ada met Bo",PER\n"she left",\n',
    "ARFF": "% title\n@relation words\n@attribute a real\n",
    "the standoff annotation of brat": "T1\tPER 0 3\tAda\nT2\tPER 8 10\tBo\n",
    "the TSV of WebAnno, older than version 3": "#FORMAT=WebAnno TSV 2\n\n1-1\t0-3\tAda\t_\n",
    "a treebank in brackets": "( (S (NP-SBJ (NNP Ada)) (VP (VBD left))))\n",
    "words and tags with commas": "Ada/B-PER met/O Bo/B-PER\nshe/O left/O\n",
    "whole sentences between tabs": "Ada sings\tB-PER O\nBo left Rome\tB-PER O B-LOC\n",
    "no text": "Ada\0 met\0\n",
    "rows of changing length": "1 a N 2\n2 b V 0\n\n1 c N 2 A0\n2 d V 0 V\n\n1 e P 2 A0 A0\n2 f V 0 V _\n",
}


@pytest.mark.parametrize(("form", "content"), FORMS.items())
def test_other_forms_are_refused_by_name(form: str, content: str, tmp_path: Path, tagger: TrainedModel) -> None:
    path = write(tmp_path, content)
    for read in (read_corpus, lambda path: read_corpus(path, plain=True), tagger.predict):
        with pytest.raises(
            ValueError, match=rf"data\.txt: expected a word in each line, .*; got {form.strip()}.*: convert it"
        ):
            read(path)


def test_text_is_no_training_data_and_tables_are_no_text(tmp_path: Path, tagger: TrainedModel) -> None:
    lines = write(tmp_path, "Ada met Bo\nRome fell\nshe saw Love\n")
    assert [len(tags) for tags in tagger.predict(lines)] == [3, 2, 3]
    for plain in (False, True):
        with pytest.raises(ValueError, match="got lines of text: convert it"):
            read_corpus(lines, plain=plain)
    assert len(tagger.predict(write(tmp_path, "3 men left the house and saw the sea .\n"))[0]) == 10  # as in CoNLL-U
    indented = write(tmp_path, "\tAda met Bo\nRome fell\n\u200b\nshe saw Love\n")
    assert [len(tags) for tags in tagger.predict(indented)] == [3, 2, 3]
    with pytest.raises(ValueError, match=r"got 2\. Choose the words by --word-column; if these .* give --text"):
        tagger.predict(write(tmp_path, "Ada left\nBo left\nshe met\n"))
    with pytest.raises(ValueError, match=r"got 3\. Choose the words by --word-column; if these .* give --text"):
        tagger.predict(write(tmp_path, "Ada left O\nBo left O\nshe met O\n"))
    assert len(tagger.predict(write(tmp_path, "1\tAda\n2\tmet\n\n1\tshe\n2\tleft\n"))) == 2


def test_messages_are_short_whatever_the_file_has(tmp_path: Path) -> None:
    for word in ("/" + "x" * 10**6, "/" + "x " * 10**5):
        with pytest.raises(ValueError, match=r"data\.txt:2: ") as refused:
            read_corpus(write(tmp_path, f"Ada\tO\nBo\t{word}y\n"))
        assert len(str(refused.value)) < 1000


def test_a_treebank_without_its_text_is_refused(tmp_path: Path) -> None:
    sentence = "".join(f"{i}\t_\t_\tNOUN\t_\t_\t{i - 1}\tdep\t_\t_\n" for i in (1, 2, 3)) + "\n"
    path, short = write(tmp_path, sentence), write(tmp_path, (sentence.partition("3\t")[0] + "\n") * 2, "short.txt")
    reads = [f for p in (path, short) for f in (partial(read_corpus, p, column="upos"), partial(Parsing().read, p))]
    for read in reads:
        with pytest.raises(ValueError, match="whose text may not be published"):
            read()


def test_commands_say_what_they_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], blank_pictures: None
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "NN;dog\n".replace(";", "\t") + "VB\tsings\n\nNN\tcat\nVB\truns\n", "train.txt")
    write(tmp_path, "chié\nsings\n".encode("latin-1"), "new.txt")
    options = ["--scheme", "plain", "--word-column", "2", "--tag-column", "1", "--bits", "6", "--passes", "1"]
    assert main(["train", "ner", "--train", "train.txt", "--test", "train.txt", "--out", "model", *options]) == 0
    form = "train.txt: read as 2 columns, words in 2, tags in 1"
    assert capsys.readouterr().err.count(f"structsmooth: {form}\n") == 2
    assert '"train read as": "2 columns, words in 2, tags in 1"' in Path("model/model.json").read_text()
    assert main(["predict", "model", "new.txt", "--encoding", "latin-1"]) == 0
    found = capsys.readouterr()
    assert "structsmooth: new.txt: read as a word in each line\n" in found.err
    assert found.out.startswith("chié ")
    assert main(["evaluate", "model", "train.txt", "--quiet"]) == 0
    assert form not in capsys.readouterr().err
    assert main(["predict", "model", "new.txt", "--encoding", "latin-1", "--text"]) == 0
    assert capsys.readouterr().out.count("\n\n") == 2


# Damaged files.

TREES = "# sent_id = 1\n1\tAda\tAda\tPROPN\tNNP\t_\t2\tnsubj\t_\t_\n2\tleft\tleave\tVERB\tVBD\t_\t0\troot\t_\t_\n\n"
NUMBERED = "#\thttp://a\n1\tAda\tB-PER\tO\n2\tmet\tO\tO\n\n#\thttp://b\n1\tshe\tO\tO\n1.1\tso\tO\tO\n2\tleft\tO\tO\n"
TAGS_FIRST = "B-PER\tAda\nO\tmet\n\nO\tshe\nO\tleft\n"
TEXTS = [
    '{"text": "Ada met Bo.", "label": [[0, 3, "PER"]], "allowed": null}\n["Bo", {"entities": [[0, 2, "PER"]]}]\n',
    '{"tokens": ["Ada", "met"], "ner_tags": ["B-PER", "O"], "allowed": [["O"], null]}\n',
    '[{"data": {"text": "Ada"}, "annotations": [{"result": [{"type": "labels", "value": {"start": 0, "end": 3, '
    '"labels": ["PER"]}}]}]},\n {"text": "Bo", "tokens": [{"start": 0, "end": 2}], "spans": []}]\n',
]
READERS: list[tuple[Callable[[str, TrainedModel], Any], list[str]]] = [
    (lambda path, _: read_corpus(path), [PLAIN, NUMBERED, TAGS_FIRST, *FORMS.values()]),
    (lambda path, _: read_corpus(path, plain=True), [PLAIN, NUMBERED, "# a\n" + PLAIN, *FORMS.values()]),
    (lambda path, _: read_corpus(path, tagged=False), ["a\nb\n\nc\n", PLAIN]),
    (lambda path, _: read_corpus(path, column="upos"), [TREES]),
    (lambda path, _: read_corpus(path, reading=Reading(encoding="utf-16")), [PLAIN]),
    (lambda path, model: model.task.read(path), [PLAIN, NUMBERED, "Ada met Bo\nshe left\n", TREES, *FORMS.values()]),
    (lambda path, _: read_trees(path), [TREES]),
    (lambda path, _: read_corpus(path), TEXTS),
    (lambda path, model: model.task.read(path), TEXTS),
    (lambda path, _: read_documents(path), [*TEXTS, PLAIN, NUMBERED]),
    (lambda path, _: read_documents(path, column="misc:NER"), [TREES]),
    (lambda path, _: Gazetteer.read(path, Splitter()), ["Ada Love\tPER\nRome\tLOC\n"]),
    (lambda path, _: read_pairs(path), ["la maison ||| the house ||| 0-0 1-1\nfleur ||| flower\n"]),
]
PIECES = ["B-PER", '{"', *"\n\r\t #\0\x1c\u00a0\ufeff1-[<,O_"]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A file with some bytes replaced, left out, repeated or put in."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(content) + 1)
        stop = min(len(content), start + rng.choice([0, 0, 1, 2, 10]))
        piece = rng.choice([rng.choice(PIECES).encode(), bytes([rng.randrange(256)]), content[start:stop] * 2, b""])
        content = content[:start] + piece + content[stop:]
    return content


def end(read: Callable[[], Any]) -> Exception | None:
    """The error that reading ends in."""
    try:
        read()
    except Exception as error:  # whatever it is
        return error
    return None


def outcomes(count: int, seed: int, path: Path, tagger: TrainedModel) -> dict[str, int]:
    """How many damaged files are read and refused; any other end is an error of its own."""
    rng, ends = random.Random(seed), {"read": 0, "refused": 0}
    for _ in range(count):
        read, files = rng.choice(READERS)
        path.write_bytes(content := damaged(rng.choice(files).encode(rng.choice(["utf-8", "utf-8", "utf-16"])), rng))
        error = end(lambda read=read: read(str(path), tagger))
        assert error is None or (isinstance(error, ValueError) and str(path) in str(error)), (content, error)
        assert len(str(error)) < 1000, content
        ends["read" if error is None else "refused"] += 1
    return ends


def test_damaged_files_are_read_or_refused_by_their_name(tmp_path: Path, tagger: TrainedModel) -> None:
    ends = outcomes(300, 0, tmp_path / "damaged.txt", tagger)
    assert min(ends.values()) > 50
