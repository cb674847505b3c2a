"""Tasks of Label Studio: whose annotation counts, and to which text its regions point."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_REGIONS = ("labels", "hypertextlabels")
_BESIDE = {"annotator", "created_at", "updated_at", "lead_time"}  # keys of JSON-MIN that have no text to annotate


def text_of_task(
    task: Mapping[str, Any], annotated: bool = True, annotator: str | None = None
) -> tuple[str, list[Any] | None] | None:
    """The text of a task, and its regions unless there are none or they are not wanted; none of another form.

    Args:
        task: of the form JSON, or of JSON-MIN, where texts and regions have keys of their own.
        annotated: whether the regions are wanted.
        annotator: whose annotation counts, by number, name or address. Otherwise it is the one that is marked as ground
            truth, or any that nobody cancelled, if they agree.

    Raises:
        ValueError: annotations that disagree, or several texts to which the regions may point.
    """
    task = task if isinstance(task.get("data"), Mapping) else _widened(task)
    if not task:
        return None
    given = task.get("annotations", task.get("completions", []))
    text = _text({k: v for k, v in task["data"].items() if isinstance(v, str)}, [r for a in given for r in _regions(a)])
    if not annotated:
        return text, None
    done = [a for a in given if not a.get("was_cancelled") and (annotator is None or annotator in _names(a))]
    done = [a for a in done if a.get("ground_truth")] or done
    values = [[region["value"] for region in _regions(annotation)] for annotation in done]
    essence = ("start", "end", *_REGIONS)
    if len({json.dumps(sorted([json.dumps(one.get(k)) for k in essence] for one in listed)) for listed in values}) > 1:
        names = ", ".join(_names(annotation)[0] for annotation in done if annotation.get("completed_by") is not None)
        others = f", or choose the annotator of one: --annotator with one of {names}" if names else ""
        raise ValueError(
            f"{len(done)} annotations of a task differ: mark one alone as ground_truth in Label Studio{others}"
        )
    return text, values[0] if values else None


def task_of(
    text: str, spans: Iterable[tuple[int, int, str]], probabilities: Sequence[float] | None = None
) -> dict[str, Any]:
    """A task with an annotation; or with a prediction, if spans have probabilities.

    Its regions are those of the template for named entities: labels with the name ``label`` of the text ``text``.
    """
    result: list[dict[str, Any]] = [
        {
            "from_name": "label",
            "to_name": "text",
            "type": _REGIONS[0],
            "value": {"start": start, "end": end, "text": text[start:end], "labels": [label]},
        }
        for start, end, label in spans
    ]
    if probabilities is None:
        return {"data": {"text": text}, "annotations": [{"result": result}]}
    regions = [region | {"score": score} for region, score in zip(result, probabilities, strict=True)]
    prediction = {"model_version": "structsmooth", "score": min(probabilities, default=1.0), "result": regions}
    return {"data": {"text": text}, "predictions": [prediction]}


def _widened(row: Mapping[str, Any]) -> dict[str, Any]:
    """A value of JSON-MIN in the form of a task; nothing of others."""
    listed = [one for value in row.values() if isinstance(value, list) for one in value if isinstance(one, Mapping)]
    regions = [one for one in listed if {"start", "end"} <= one.keys() and not one.keys().isdisjoint(_REGIONS)]
    result = [{"type": _REGIONS[0], "value": one} for one in regions]
    if not result and "annotation_id" not in row:
        return {}
    data = {key: value for key, value in row.items() if key not in _BESIDE}
    return {"data": data, "annotations": [{"completed_by": row.get("annotator"), "result": result}]}


def _regions(annotation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [region for region in annotation["result"] if region.get("type") in _REGIONS]


def _names(annotation: Mapping[str, Any]) -> list[str]:
    """What an annotator is called."""
    who = annotation.get("completed_by")
    return [str(who[k]) for k in ("id", "email", "username") if k in who] if isinstance(who, Mapping) else [str(who)]


def _text(texts: Mapping[str, str], regions: Sequence[Mapping[str, Any]]) -> str:
    """The text to which regions point, by what they cover, or by its name."""
    names = [*dict.fromkeys(str(region.get("to_name")) for region in regions)]
    if len(names) > 1:
        raise ValueError(f"regions point to several texts, {', '.join(names)}: make a task for each of them")
    fitting = {key: text for key, text in texts.items() if all(_covers(text, r["value"]) for r in regions)} or texts
    keys = [key for key in (*names, "text", *fitting) if key in fitting]
    if not keys:
        raise ValueError("expected a text in the data of a task of Label Studio")
    if len(fitting) > 1 and keys[0] not in (*names, "text"):
        raise ValueError(f"which of the texts {', '.join(fitting)} is annotated? Rename its key to text")
    return fitting[keys[0]]


def _covers(text: str, value: Mapping[str, Any]) -> bool:
    """Whether a text has what a region says that it covers."""
    start, end, covered = value.get("start"), value.get("end"), value.get("text")
    return not isinstance(covered, str) or (type(start) is type(end) is int and text[start:end] == covered)
