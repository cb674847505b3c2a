"""Tasks of Label Studio: whose annotation counts, and to which text its regions point."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_REGIONS = ("labels", "hypertextlabels")
_BESIDE = {"annotator", "created_at", "updated_at", "lead_time"}
"""Keys of the small form that have no text to annotate."""


class Annotated(NamedTuple):
    """A text of a task, and the values of its regions; ``None`` if nobody annotated it, or these are left aside."""

    text: str
    regions: list[Any] | None


def text_of_task(task: Mapping[str, Any], annotated: bool = True, annotator: str | None = None) -> Annotated | None:
    """The text of a task and the regions of the annotation that counts; none of a value of another form.

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
        return Annotated(text, None)
    done = [a for a in given if not a.get("was_cancelled") and (annotator is None or annotator in _names(a))]
    done = [a for a in done if a.get("ground_truth")] or done
    values = [[region["value"] for region in _regions(annotation)] for annotation in done]
    if len({json.dumps(sorted(map(_essence, value))) for value in values}) > 1:
        names = ", ".join(next(_names(annotation), "unknown") for annotation in done)
        raise ValueError(
            f"{len(done)} annotations of a task differ: mark one as ground_truth in Label Studio, or choose the "
            f"annotator of one: --annotator with one of {names}"
        )
    return Annotated(text, values[0] if values else None)


def _widened(row: Mapping[str, Any]) -> dict[str, Any]:
    """A value of JSON-MIN in the form of a task; nothing of others."""
    regions = [value for values in row.values() if _has_regions(values) for value in values]
    if not regions and "annotation_id" not in row:
        return {}
    result = [{"type": _REGIONS[0], "value": value} for value in regions]
    data = {key: value for key, value in row.items() if key not in _BESIDE}
    return {"data": data, "annotations": [{"completed_by": row.get("annotator"), "result": result}]}


def _has_regions(values: Any) -> bool:
    return isinstance(values, list) and any(
        isinstance(v, Mapping) and {"start", "end", "labels"} <= {*v} for v in values
    )


def _regions(annotation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [region for region in annotation["result"] if region.get("type") in _REGIONS]


def _essence(value: Mapping[str, Any]) -> list[str]:
    """What annotations must agree in."""
    return [json.dumps(value.get(key)) for key in ("start", "end", *_REGIONS)]


def _names(annotation: Mapping[str, Any]) -> Iterator[str]:
    """What an annotator is called."""
    who = annotation.get("completed_by")
    keys = ("id", "email", "username")
    yield from (str(who[key]) for key in keys if key in who) if isinstance(who, Mapping) else [str(who)]


def _text(texts: Mapping[str, str], regions: Sequence[Mapping[str, Any]]) -> str:
    """The text to which regions point, by what they cover, or by its name."""
    names = dict.fromkeys(region.get("to_name") for region in regions)
    if len(names) > 1:
        raise ValueError(f"regions point to several texts, {', '.join(map(str, names))}: make a task for each of them")
    fitting = {key: text for key, text in texts.items() if all(_covers(text, r["value"]) for r in regions)} or texts
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    for key in (*names, "text"):
        if key in fitting:
            return fitting[key]
    if not texts:
        raise ValueError("expected a text in the data of a task of Label Studio")
    raise ValueError(
        f"which of the texts {', '.join(texts)} is annotated? Rename its key to text, or leave the others out"
    )


def _covers(text: str, value: Mapping[str, Any]) -> bool:
    """Whether a text has what a region says that it covers."""
    start, end, covered = value.get("start"), value.get("end"), value.get("text")
    return not isinstance(covered, str) or (type(start) is type(end) is int and text[start:end] == covered)
