"""Annotated texts in the forms of several tools: what is read, what is written, and what is refused by its line."""

import io
import json
import re
import warnings
from dataclasses import replace
from itertools import accumulate
from operator import and_
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structsmooth.cli import main
from structsmooth.tasks import NER
from structsmooth.tasks.trained import train as trained
from structsmooth.text.annotated import Form, read_documents, write_documents
from structsmooth.text.brat import annotation_lines, brat_document
from structsmooth.text.conll import read_conll, read_corpus
from structsmooth.text.corpus import Corpus, Sentence
from structsmooth.text.documents import TRAINING, Document, Segmentation, Span
from structsmooth.text.gazetteer import Gazetteer
from structsmooth.text.json_forms import document_of
from structsmooth.text.probabilities import ProbableEntity
from structsmooth.text.schemes import entities
from structsmooth.text.texts import TextCorpus, TextSentence

TEXT = "Ada met Bo."
ADA = Document(TEXT, (Span(0, 3, "PER"), Span(8, 10, "PER")))
FORMS: dict[str, Any] = {
    "doccano": {"id": 3, "text": TEXT, "label": [[8, 10, "PER"], [0, 3, "PER"]]},
    "doccano, with relations": {
        "text": TEXT,
        "entities": [
            {"id": 1, "label": "PER", "start_offset": 0, "end_offset": 3},
            {"id": 2, "label": "PER", "start_offset": 8, "end_offset": 10},
        ],
        "relations": [],
    },
    "spaCy": {"text": TEXT, "spans": [{"start": 0, "end": 3, "label": "PER"}, {"start": 8, "end": 10, "label": "PER"}]},
    "spaCy, in Python": [TEXT, {"entities": [[0, 3, "PER"], [8, 10, "PER"]]}],
    "spaCy, to_json": {
        "text": TEXT,
        "ents": [{"start": 0, "end": 3, "label": "PER"}, {"start": 8, "end": 10, "label": "PER"}],
        "tokens": [{"start": start, "end": end} for start, end in ((0, 3), (4, 7), (8, 10), (10, 11))],
    },
    "blanks at the ends": {"text": TEXT, "spans": [[0, 4, "PER"], [7, 10, "PER"]]},
    "Label Studio, small": {
        "text": TEXT,
        "label": [{"start": 0, "end": 3, "labels": ["PER"]}, {"start": 8, "end": 10, "labels": ["PER"]}],
    },
    "Label Studio": {
        "data": {"text": TEXT},
        "annotations": [
            {"was_cancelled": True, "result": []},
            {
                "result": [
                    {"type": "labels", "value": {"start": 0, "end": 3, "labels": ["PER"]}},
                    {"type": "labels", "value": {"start": 8, "end": 10, "labels": ["PER"]}},
                    {"type": "choices", "value": {"choices": ["good"]}},
                ]
            },
        ],
    },
}


@pytest.mark.parametrize("value", FORMS.values(), ids=FORMS)
def test_forms_of_json(value: Any) -> None:
    found = document_of(value)
    assert found is not None
    assert (found.text, found.spans) == (ADA.text, ADA.spans)


def test_tokens_with_tags() -> None:
    words, expected = ["Ada", "met", "Bo"], [Span(0, 3, "PER"), Span(8, 10, "PER")]
    for tags in (["B-PER", "O", "B-PER"], [1, 0, 1]):
        found = document_of({"tokens": words, "ner_tags": tags}, ["O", "B-PER"])
        assert found is not None
        assert (found.text, list(found.spans or ())) == ("Ada met Bo", expected)
    assert document_of({"text": TEXT, "spans": [], "answer": "reject"}) is None
    assert document_of({"tokens": [], "ner_tags": []}) == Document("", (), ())


@pytest.mark.parametrize("value", [{"spans": None}, {"label": [], "entities": None}, {"answer": "accept"}])
def test_no_spans_are_an_annotation_in_all_readers(value: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"text": TEXT, **value}))
    assert read_documents(str(path)) == [Document(TEXT)]
    assert read_corpus(str(path))[0].tags == ["O"] * 4
    path.write_text(json.dumps({"text": TEXT}))
    for read in (read_documents, read_corpus):
        with pytest.raises(ValueError, match=r"data\.jsonl:1: no annotation: expected one of the keys spans"):
            read(str(path))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"text": TEXT, "label": "good"}, "expected a list of spans, got .*labels of whole texts are no spans"),
        ({"text": TEXT, "spans": [[0, 7, "A"], [4, 10, "B"]]}, "'Ada met' and 'met Bo' overlap.*Constituents"),
        ({"text": TEXT, "spans": [[0, 12, "A"]]}, "leaves the text of 11 characters"),
        ({"text": TEXT, "spans": [[3, 4, "A"]]}, "nothing but blanks"),
        ({"text": TEXT, "spans": [["0", 3, "A"]]}, "a span must have a start, an end and a label"),
        (
            {"text": TEXT, "label": [{"start": 0, "end": 3, "labels": ["PER", "ORG"]}]},
            r'a span has several labels, \["PER", "ORG"\]: .*keep one',
        ),
        ({"tokens": ["a"], "ner_tags": [1]}, "the tags are numbers: give their names in order, --names"),
        ({"tokens": ["a"], "ner_tags": ["O", "O"]}, "a tag for each of 1 tokens"),
        ({"tokens": ["a"], "ner_tags": [1.0]}, r"tags must be all names or all whole numbers, got 1\.0"),
        ({"tokens": ["a"], "ner_tags": [True]}, "tags must be all names or all whole numbers, got true"),
        ({"text": TEXT, "spans": [], "meta": "\ud800"}, r"\\ud800 is half of a character \(a lone surrogate\): take"),
        (
            {"text": TEXT, "spans": [], "allowed": ["O"]},
            r"allowed must be a list with a list of tags, or null, for each",
        ),
        ({"sentence": "a"}, "got the keys sentence"),
        (
            {"text": TEXT, "tokens": [{"start": 0, "end": 5}, {"start": 3, "end": 8}], "spans": []},
            "tokens are empty, over",
        ),
        ({"text": TEXT, "tokens": [{"start": 0, "end": 99}], "spans": []}, "tokens are empty, overlap or leave"),
        (3, "a line of JSON must be"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(value: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(FORMS["doccano"]) + "\n" + json.dumps(value) + "\n")
    with pytest.raises(ValueError, match=rf"data\.jsonl:2: .*{message}"):
        read_documents(str(path))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Texts of pieces that are words, blanks, emoji and combining marks, with some of the words as spans."""
    pieces = draw(
        st.lists(st.sampled_from(["Ada", "Zoe\u0308", "👩‍🚀", " ", "  ", "\t", "\u00a0", ".", "l'", "n't", "(x)"]))
    )
    text, spans = "", list[Span]()
    for piece in [*pieces, "end"]:
        if piece.strip() and draw(st.booleans()):
            spans.append(Span(len(text), len(text) + len(piece), draw(st.sampled_from(["PER", "LOC"]))))
        text += piece
    return Document(text, tuple(spans))


@given(st.lists(documents(), min_size=1, max_size=3))
def test_offsets_survive_all_forms(tmp_path_factory: pytest.TempPathFactory, given: list[Document]) -> None:
    folder = tmp_path_factory.mktemp("forms")
    for form, name in (("jsonl", "a.jsonl"), ("brat", "a.txt")):
        write_documents(given, str(folder / name), form, [])
        assert read_documents(str(folder / name)) == given


@settings(max_examples=3)
@given(st.lists(documents(), min_size=20, max_size=20))
def test_offsets_survive_training_and_prediction(
    tmp_path_factory: pytest.TempPathFactory, given: list[Document]
) -> None:
    folder, stream = tmp_path_factory.mktemp("round"), io.StringIO()
    write_documents(given, str(folder / "a.jsonl"), "jsonl", [])
    task = NER(bits=4, rich=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tokens that are split
        corpus = task.read(str(folder / "a.jsonl"))
    assert isinstance(corpus, TextCorpus)
    model = trained(task, corpus, passes=1)
    model.save(folder / "model")
    assert main(["predict", str(folder / "model"), str(folder / "a.jsonl"), "--output", str(folder / "b.jsonl")]) == 0
    lines = [json.loads(line) for line in (folder / "b.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == [document.text for document in given]
    assert all(line["text"][s["start"] : s["end"]] == s["text"] != "" for line in lines for s in line["spans"])
    # The right tags give the spans that annotators marked.
    answered = replace(corpus, texts=[replace(text, source="{}") for text in corpus.texts])
    marked = [[ProbableEntity(e.start, e.end, e.type, 1.0) for e in entities(s.tags or ())] for s in corpus]
    answered.write_spans(marked, stream)
    found = [json.loads(line)["spans"] for line in stream.getvalue().splitlines()]
    assert [[(s["start"], s["end"], s["label"]) for s in spans] for spans in found] == [
        list(document.spans or ()) for document in given
    ]


@given(documents())
def test_spans_are_those_of_the_tokens(document: Document) -> None:
    misaligned: list[str] = []
    (found,) = document.tagged(Segmentation(("n't",)), misaligned)
    words, starts = found[0].words, found[1]
    assert [document.text[start : start + len(word)] for word, start in zip(words, starts, strict=True)] == words
    assert "".join(words) == "".join(document.text.split())
    begins = {start for start, tag in zip(starts, found[0].tags or (), strict=True) if tag.startswith("B-")}
    assert begins == {span.start for span in document.spans}


@pytest.mark.parametrize(("form", "name"), [("conll", "out.txt"), ("conllu", "out.conllu")])
def test_command(form: Form, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.json").write_text(
        json.dumps([FORMS["Label Studio"], {"text": "Bobby left", "label": [[0, 3, "PER"]]}])
    )
    out = str(tmp_path / name)
    assert main(["convert", str(tmp_path / "in.json"), out, "--to", form]) == 0
    said = capsys.readouterr().err
    assert "2 texts, 3 entities (PER 3)" in said
    assert "1 entities end inside of tokens, such as 'Bob': these tokens are split" in said
    if form == "conll":
        assert [s.words for s in read_conll(out)] == [["Ada", "met", "Bo", "."], ["Bob", "by", "left"]]
        assert read_conll(out)[1].tags == ["B-PER", "O", "O"]
    else:
        assert [d.covered for d in read_documents(out, column="misc:NER")] == [["Ada", "Bo"], ["Bob"]]


def test_lines_of_json_are_training_data(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(json.dumps(value) for value in FORMS.values()))
    corpus = read_corpus(str(path))
    assert corpus.form == "lines of JSON, texts with spans"
    assert [s.words for s in corpus] == [["Ada", "met", "Bo", "."]] * len(FORMS)
    assert {tuple(s.tags or ()) for s in corpus} == {("B-PER", "O", "B-PER", "O")}
    half = read_corpus(str(path), share=lambda count: range(count // 2))
    assert len(half) == len(FORMS) // 2
    path.write_text(json.dumps(FORMS["spaCy"]) + '\n{"text": "she left", "meta": 3}\n')
    with pytest.raises(ValueError, match=r"data\.jsonl:2: no annotation: expected one of the keys spans, .* got text"):
        read_corpus(str(path))


def test_lists_and_folders_of_brat_are_training_data(tmp_path: Path) -> None:
    values = [value for name, value in FORMS.items() if name != "spaCy, in Python"]
    (tmp_path / "data.json").write_text(json.dumps(values, indent=2))
    (tmp_path / "line.json").write_text(json.dumps(values))
    (tmp_path / "brat").mkdir()
    for name in ("a", "b"):
        write_documents([ADA, Document(""), ADA], str(tmp_path / "brat" / f"{name}.txt"), "brat", [])
    for place, form in (
        ("data.json", "JSON, a list of texts with spans"),
        ("line.json", "JSON, a list of texts with spans"),
        ("brat", "texts with annotations of brat"),
        ("brat/a.txt", "texts with annotations of brat"),
    ):
        corpus = NER().read(str(tmp_path / place))
        assert corpus.form == form
        assert {(s.text, tuple(s.tags or ())) for s in corpus if isinstance(s, TextSentence)} == {
            (TEXT, ("B-PER", "O", "B-PER", "O") if len(s.words) == 4 else ("B-PER", "O", "B-PER")) for s in corpus
        }
        (second,) = read_corpus(str(tmp_path / place), share=lambda count: range(1, 2))
        assert second.words[:3] == ["Ada", "met", "Bo"]
    (tmp_path / "data.json").write_text(json.dumps([*values, {"text": TEXT, "label": 3}], indent=1))
    with pytest.raises(ValueError, match=rf"data\.json: example {len(values) + 1}: expected a list of spans, got 3"):
        NER().read(str(tmp_path / "data.json"))
    (tmp_path / "data.json").write_text(json.dumps(values, indent=1).replace('"text"', "text", 1))
    with pytest.raises(ValueError, match=r"data\.json:\d: expected a value of JSON in each line"):
        NER().read(str(tmp_path / "data.json"))
    (tmp_path / "data.json").write_text(json.dumps([{"text": TEXT, "tokens": [], "spans": [[0, 3, "PER"]]}]))
    with pytest.raises(ValueError, match=r"data\.json: text 1: the span 'Ada' is not covered by tokens"):
        NER().read(str(tmp_path / "data.json"))
    with pytest.raises(ValueError, match=r"got a folder without texts \(\.txt\) and files of brat"):
        NER().read(str(tmp_path))


def test_names_of_tags_that_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"tokens": ["Ada", "met"], "ner_tags": [1, 0]}))
    assert NER(names="O,B-PER").read(str(path))[0].tags == ["B-PER", "O"]
    with pytest.raises(
        ValueError, match=r"data\.jsonl:1: the tag 1 is none of the 1 that --names names, counted from 0"
    ):
        NER(names="O").read(str(path))


def test_text_that_looks_like_json_is_not(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    for mark in "[{":
        path.write_text(f"{mark} O\nAda B-PER\n")
        assert read_documents(str(path)) == [Document.of_tags([mark, "Ada"], ["O", "B-PER"])]
        assert read_corpus(str(path))[0].words == [mark, "Ada"]


HOSTILE = [
    Document("Ada met", (Span(0, 3, "first name"),)),
    Document("Ada met", (Span(0, 3, "a\tb"),)),
    Document("Ada met", (Span(0, 3, ""),)),
    Document("Ada met", (Span(0, 3, "a|b=c"),)),
    Document("-DOCSTART- x", ()),
    Document.of_tags(["New York", "fell"], ["B-LOC", "O"]),
    Document.of_tags(["New\tYork", "fell"], ["B-LOC", "O"]),
    Document.of_tags(["Ada", "\ufeff"], ["B-PER", "O"]),
    Document("\ufeffAda met", (Span(1, 4, "PER"),)),
    Document("Ada\rmet Bo", (Span(8, 10, "PER"),)),
    Document("Ada\r\nmet Bo", (Span(9, 11, "PER"),)),
    Document("Ada\u2028met\x1cBo", (Span(8, 10, "PER"),)),
    Document("# Ada met", (Span(2, 5, "PER"),)),
    Document("1 2 3", (Span(0, 1, "N"),)),
    Document("_ _ _ _", ()),
    Document(" ", ()),
]


@pytest.mark.parametrize("document", HOSTILE, ids=map(repr, HOSTILE))
@pytest.mark.parametrize("form", get_args(Form))
def test_what_is_written_can_be_read(document: Document, form: Form, tmp_path: Path) -> None:
    path = tmp_path / ("a.txt" if form == "brat" else f"a.{form}")
    try:
        write_documents([document], str(path), form, [])
        refused = ""
    except ValueError as error:
        refused = str(error)
    if refused:
        assert not list(tmp_path.iterdir())
        assert re.match("brat has|these texts cannot be written --to [b-c]", refused)
    elif document.text.strip():
        found = read_documents(str(path), column="misc:NER" if form == "conllu" else None)
        if not form.startswith("conll"):
            assert [(own.text, own.spans) for own in found] == [(document.text, document.spans)]
        else:  # a sentence for each line
            sentences = [line.sentence for own in found for line in own.tagged(TRAINING, [])]
            assert sentences == [line.sentence for line in document.tagged(TRAINING, [])]


@pytest.mark.parametrize("name", ["a", "a.ann", "a.text"])
def test_brat_needs_a_text_by_its_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{name}: brat has texts in files named \.txt"):
        write_documents([ADA], str(tmp_path / name), "brat", [])
    assert not list(tmp_path.iterdir())


def test_entities_go_over_line_breaks_and_split_tokens_are_told(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"text": "Ada\nLove Bobby\n \nleft", "label": [[0, 8, "PER"], [9, 12, "PER"]]}) + "\n")
    with (
        pytest.warns(UserWarning, match=r"data\.jsonl: 1 spans end inside of tokens, such as 'Bob': these tokens"),
        pytest.warns(UserWarning, match=r"some spans go over line breaks: 2 line breaks in a row end a sentence"),
    ):
        corpus = read_corpus(str(path))
    assert [s.words for s in corpus] == [["Ada", "Love", "Bob", "by"], ["left"]]
    assert [s.tags for s in corpus] == [["B-PER", "I-PER", "B-PER", "O"], ["O"]]
    assert NER().fit(corpus).inputs.line_breaks == NER().fit(list(corpus)).inputs.line_breaks == 2
    value = {"tokens": ["Ada", "\n", "Love", "\n", "\n", "left"], "tags": ["B-PER", "I-PER", "I-PER", "O", "O", "O"]}
    path.write_text(json.dumps(value) + "\n")
    with pytest.warns(UserWarning, match="some spans go over line breaks"):
        assert [s.tags for s in read_corpus(str(path))] == [["B-PER", "I-PER", "I-PER", "O"], ["O"], ["O"]]


BANK = "Ada works at Bank of\nAmerica.\n\nBo left.\n"


@pytest.mark.parametrize(
    ("text", "bank", "bo"),
    [
        (BANK, "13 20;21 28", "31 33"),
        (BANK, "13 28", "31 33"),
        (BANK.replace("\n", "\r\n"), "13 20;22 29", "34 36"),
        (BANK.replace("\n", "\r\n"), "13 29", "34 36"),
        (BANK.replace("\n", "\r\n"), "13 20;21 28", "31 33"),
    ],
)
def test_brat_goes_over_line_breaks_with_and_without_returns(text: str, bank: str, bo: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode())
    given = f"T1\tORG {bank}\tBank of America\nT2\tPER {bo}\tBo\n"
    (tmp_path / "a.ann").write_text(given)
    found = read_documents(str(tmp_path / "a.txt"))
    assert [d.covered for d in found] == [["Bank of\nAmerica"], ["Bo"]]
    with pytest.warns(UserWarning, match="some spans go over line breaks"):
        corpus = NER(bits=4).read(str(tmp_path / "a.txt"))
    assert [len(s.words) for s in corpus] == [7, 3]
    # Answers count as the annotations beside the text do, and have a piece in each line.
    inputs, stream = NER(bits=4).fit(corpus).inputs, io.StringIO()
    asked = inputs.read(str(tmp_path / "a.txt"), [])
    assert isinstance(asked, TextCorpus)
    asked.write_spans([[ProbableEntity(3, 6, "ORG", 1.0)], [ProbableEntity(0, 1, "PER", 1.0)]], stream)
    pieces = bank if ";" in bank else bank.replace(" ", " 20;").replace(";", ";22 ") if "\r" in text else "13 20;21 28"
    assert stream.getvalue() == given.replace(bank, pieces)


WRITTEN: list[dict[str, Any]] = [
    {
        "text": "He lives in Oslo. She left Rome. Mr. Bo met Oslo-based Lyon.",
        "label": [[12, 16], [27, 31], [44, 48], [55, 59]],
    },
    {"text": "They left\nNew\nYork. A day in Parisian\n\nLyon", "label": [[10, 18], [29, 34], [39, 43]]},
    {"text": "Ada's Rome", "label": [[0, 3], [6, 10]]},
    {"tokens": ["She", "left", "New", "\n", "York", "."], "tags": ["O", "O", "B-LOC", "I-LOC", "I-LOC", "O"]},
]
ASKED: list[dict[str, Any]] = [
    *WRITTEN,
    {"text": "Rome. Oslo's Lyon\n\n\nNew\n\nYork", "label": [[0, 4], [6, 12], [20, 29]]},
    {"text": "Oslo-based Rome left", "label": [[0, 4], [11, 15]], "allowed": [["O"], ["B-LOC"], None]},
]


def _labelled(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [v | {"label": [[*span, "LOC"] for span in v["label"]]} if "label" in v else v for v in values]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["json lines", "json list", "shards", "brat"])
def test_scores_are_those_of_the_answers(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever annotations tell of words and sentences, the score is that of the spans of ``predict``, read back."""
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(v) + "\n" for v in _labelled(WRITTEN) * 2))
    asked, test = _labelled(ASKED), tmp_path / "test.jsonl"
    test.write_text(json.dumps(asked) if form == "json list" else "".join(json.dumps(v) + "\n" for v in asked))
    gold, whole = read_documents(str(test)), str(test)
    if form == "brat":
        test, whole = tmp_path / "test.txt", str(tmp_path / "test.txt")
        stories = [replace(document, tokens=None) for document in gold]
        begins = [0, *accumulate(len(document.text) + 2 for document in stories)]
        moved = [
            Span(b + s.start, b + s.end, s.label) for b, d in zip(begins, stories, strict=False) for s in d.spans or ()
        ]
        text = "".join(f"{document.text}\n\n" for document in stories)
        test.write_text(text)
        test.with_suffix(".ann").write_text("\n".join(annotation_lines([(text, moved, ())])))
        gold = [Document(text, tuple(moved))]
    elif form == "shards":
        for number, value in enumerate(asked):
            (tmp_path / f"part{number}.jsonl").write_text(json.dumps(value))
        whole = str(tmp_path / "part*.jsonl")
    model = trained(NER(bits=8, rich=False), str(tmp_path / "train.jsonl"), passes=4)
    model.save(tmp_path / "model")
    out = tmp_path / ("out.ann" if form == "brat" else "out.jsonl")
    assert main(["predict", str(tmp_path / "model"), str(test), "--output", str(out)]) == 0
    if form == "brat":
        (tmp_path / "out.txt").write_text(text)
    answered = [set(document.spans or ()) for document in read_documents(str(out))]
    if form == "brat":  # a document for each line
        answered = [set(brat_document(text, list(enumerate(out.read_text().splitlines(), 1)), "out").spans or ())]
    right = [set(document.spans or ()) for document in gold]
    both, sizes = sum(map(len, map(and_, right, answered))), sum(map(len, right)) + sum(map(len, answered))
    assert 0 < 2 * both < sizes
    scores = model.score(whole)
    assert scores["f1"] == pytest.approx(2 * both / sizes)
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "model"), whole]) == 0
    overall = capsys.readouterr().out.split("overall")[1].split()
    assert overall[2:6] == [
        f"{2 * both / sizes:.2%}",
        str(sum(map(len, right))),
        str(sum(map(len, answered))),
        str(both),
    ]
    # However the examples were read: not by what annotations alone tell.
    read = model.task.task.read(whole, "train")
    assert model.score(read) == scores
    uncut = model.task.examples(list(read))
    assert {word for sentence in uncut for word in sentence.words} >= {"Oslo-based", "Parisian"}
    known = [sentence.allowed for sentence in uncut if sentence.allowed]
    assert known == ([] if form == "brat" else [ASKED[-1]["allowed"]])
    model.calibrated(read)


def test_answers_are_in_the_form_of_the_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, new = tmp_path / "train.jsonl", tmp_path / "new.jsonl"
    train.write_text("\n".join(json.dumps(FORMS["doccano"]) for _ in range(4)))
    task = NER(bits=6, rich=False)
    trained(task, task.read(str(train)), passes=3).save(tmp_path / "model")
    rejected = {"text": "Ada", "answer": "reject"}
    rows = [{"id": 7, "text": "🙂 Ada  met\nBo."}, rejected, {"tokens": ["Bo", "met"]}, {"text": " "}]
    new.write_text("\n".join(json.dumps(row) for row in rows))
    assert main(["predict", str(tmp_path / "model"), str(new)]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["text"] for row in found] == ["🙂 Ada  met\nBo.", "Bo met", " "]
    assert found[0]["id"] == 7
    spans = [[(s["start"], s["end"], s["label"], s["text"]) for s in row["spans"]] for row in found]
    assert {(2, 5, "PER", "Ada"), (11, 13, "PER", "Bo")} <= {*spans[0]}
    assert spans[1:] == [[(0, 2, "PER", "Bo")], []]
    assert all(row["text"][s["start"] : s["end"]] == s["text"] for row in found for s in row["spans"])
    assert all(0 < s["probability"] <= 1 for row in found for s in row["spans"])
    assert main(["predict", str(tmp_path / "model"), str(new), "--top", "2"]) == 2
    assert "give --json" in capsys.readouterr().err


def test_entities_in_the_last_column_of_a_treebank(tmp_path: Path) -> None:
    row = "{}\t{}\t_\t_\t_\t_\t0\t_\t_\t{}\n"
    words = [("Ada", "NER=B-PER"), ("met", "_"), ("Bo", "SpaceAfter=No|NER=B-PER"), (".", "NER=O")]
    path = tmp_path / "data.conllu"
    path.write_text("# text = Ada met Bo.\n" + "".join(row.format(i, *word) for i, word in enumerate(words, 1)) + "\n")
    task = NER(bits=6, column="misc:NER")
    assert not task.plain
    corpus = task.read(str(path))
    assert corpus[0].tags == ["B-PER", "O", "B-PER", "O"]
    assert task.fit(corpus).task.scheme == "BIO"
    (document,) = read_documents(str(path), column="misc:NER")
    assert (document.text, document.covered) == ("Ada met Bo.", ["Ada", "Bo"])
    path.write_text(path.read_text().replace("\n3", "\n# so a sentence ends\n3"))
    assert [d.text for d in read_documents(str(path), column="misc:NER")] == ["Ada met", "Bo."]
    with pytest.raises(
        ValueError, match="column must be upos, xpos, feats or deprel, or misc:NER for instance, got 'ner'"
    ):
        NER(column="ner")


def test_spans_that_say_what_they_cover_are_compared_with_the_text(tmp_path: Path) -> None:
    value = {
        "text": "\U0001f600 Bo",
        "spans": [{"start": 3, "end": 5, "label": "PER", "text": "Bo"}],
    }  # as UTF-16 counts
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(value))
    with pytest.raises(ValueError, match="has 'o' from 3 to 5, and not 'Bo': offsets count characters"):
        read_documents(str(path))


def test_entities_in_several_pieces_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Bo met Eve\n")
    (tmp_path / "a.ann").write_text("T1\tPER 0 2;7 10\tBo Eve\n")
    with pytest.raises(ValueError, match="'Bo Eve' is in several pieces"):
        read_documents(str(tmp_path / "a.txt"))


@pytest.mark.parametrize("offsets", ["0 12", "7 12", "-3 10", "11 11", "3 2", "0 2;7 12"])
def test_offsets_beyond_a_text_are_refused_by_their_line(tmp_path: Path, offsets: str) -> None:
    (tmp_path / "a.txt").write_text("Bo met Eve\n")
    (tmp_path / "a.ann").write_text(f"T1\tPER 0 2\tBo\nT2\tPER {offsets}\tEve\n")
    with pytest.raises(ValueError, match=r"a\.ann:2: "):
        read_documents(str(tmp_path / "a.txt"))


def test_phrases_that_no_tags_can_mark_are_left_out() -> None:
    known = Gazetteer([(["New", "York"], "LOC"), (["York"], "LOC")])
    corpus = Corpus.of([Sentence(["New", "York"], []), Sentence(["York"], [])])
    with pytest.warns(UserWarning, match=r"'New York' \(LOC\)"):
        sets = known.restricted(corpus, ["B-LOC", "O"], "BIO").allowed
    assert list(sets)[1] == [{"B-LOC"}]


def test_lines_of_text_become_texts_without_annotations(tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text('Ada met Bo.\n\n"1\t2" he said\n', encoding="utf-8")
    given, out = str(tmp_path / "new.txt"), tmp_path / "new.jsonl"
    assert main(["convert", given, str(out), "--to", "jsonl", "--text"]) == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows == [{"text": "Ada met Bo.", "spans": []}, {"text": '"1\t2" he said', "spans": []}]
