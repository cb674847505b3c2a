"""Tasks of Label Studio: the text to which regions point, and the annotation that counts."""

from typing import Any

import pytest

from structsmooth.text.documents import Document, Span
from structsmooth.text.json_forms import document_of, json_documents

MET = "Ada met Bo"
ADA, BO = (0, 3, "Ada"), (8, 10, "Bo")


def value(place: tuple[int, int, str], *labels: str) -> dict[str, Any]:
    start, end, text = place
    return {"start": start, "end": end, "text": text, "labels": [*labels]}


def annotation(*values: dict[str, Any], to: str = "text", **other: Any) -> dict[str, Any]:
    return {"result": [{"type": "labels", "to_name": to, "value": value} for value in values], **other}


def task(*annotations: dict[str, Any], **data: str) -> dict[str, Any]:
    return {"data": data or {"text": MET}, "annotations": [*annotations]}


PER, ORG = value(ADA, "PER"), value(ADA, "ORG")
HYPERTEXT = {"start": 0, "end": 3, "text": "Ada", "hypertextlabels": ["PER"]}
READ = Document(MET, (Span(0, 3, "PER"),))
SMALL = {"id": 1, "Full_Text": MET, "created_at": "2026-01-01T00:00:00Z", "annotator": 1, "annotation_id": 7}


@pytest.mark.parametrize(
    ("given", "annotator"),
    [
        (task(annotation(ORG), annotation(PER, ground_truth=True)), None),
        (task(annotation(PER), annotation(PER)), None),
        (task({"result": [{"type": "hypertextlabels", "to_name": "text", "value": HYPERTEXT}]}), None),
        ({**SMALL, "label": [HYPERTEXT]}, None),
        (task(annotation(ORG, was_cancelled=True), annotation(PER)), None),
        (task(annotation(ORG, completed_by=1), annotation(PER, completed_by=2)), "2"),
        (task(annotation(ORG, completed_by={"id": 1}), annotation(PER, completed_by={"email": "a@b.org"})), "a@b.org"),
        (task(annotation(PER), title="Who met", body=MET), None),  # by what is covered
        (task(annotation(PER, to="body"), title=MET, body=MET), None),  # by the name
        (task(annotation(PER, to="body"), text="Who met", body=MET), None),
        (task(annotation(PER, to="text"), text="Who met", body=MET), None),  # the name of a tag is not that of its key
        ({**SMALL, "label": [PER]}, None),
        ({**SMALL, "entities of the text": [PER]}, "1"),
    ],
)
def test_text_and_annotation_that_count(given: dict[str, Any], annotator: str | None) -> None:
    assert document_of(given, annotator=annotator) == READ
    assert document_of(given, annotated=False) == Document(MET, None)


def test_texts_that_nobody_annotated_are_left_out() -> None:
    assert document_of(task()) is document_of(task(annotation(was_cancelled=True))) is None
    assert document_of({**SMALL}) == document_of(task(annotation())) == Document(MET, ())
    assert document_of({**SMALL, "label": [PER]}, annotator="2") is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            task(annotation(PER, completed_by=3), annotation(ORG, completed_by={"email": "a@b.org"})),
            r"2 annotations of a task differ: mark one alone as ground_truth .* --annotator with one of 3, a@b\.org",
        ),
        (task(annotation(PER), annotation()), "2 annotations of a task differ.* Studio$"),
        (task(annotation(), title="Who", body=MET), "which of the texts title, body is annotated"),
        (task(annotation(PER, to="title"), text="Who"), "the text has 'Who' from 0 to 3, and not 'Ada'"),
        (
            {
                "data": {"a": MET, "b": MET},
                "annotations": [{"result": [*annotation(PER)["result"], *annotation(PER, to="b")["result"]]}],
            },
            "regions point to several texts, text, b",
        ),
        ({"data": {"number": 3}, "annotations": []}, "expected a text in the data"),
    ],
)
def test_what_a_task_does_not_tell_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        document_of(given)


def test_an_annotator_who_is_nowhere_is_named() -> None:
    with pytest.raises(ValueError, match=r"in\.json: no text with annotations by Zoë"):
        list(
            json_documents(
                ['{"text": "a", "label": [], "annotator": 1, "annotation_id": 2}'], "in.json", annotator="Zoë"
            )
        )
