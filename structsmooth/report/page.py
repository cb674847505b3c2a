"""A page about a trained model."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from structsmooth.checkpoint import write_atomic
from structsmooth.history import History
from structsmooth.markup import Markup, element, joined
from structsmooth.report import sections
from structsmooth.report.figures import library
from structsmooth.tasks.trained import TrainedModel


def write_report(
    model: TrainedModel,
    path: str | Path,
    *,
    history: History | None = None,
    examples: Sequence[Any] = (),
    count: int = 5,
    source: str = "",
    errors: bool = False,
    folds: Sequence[Sequence[int]] = (),
) -> None:
    """Write one HTML file about a trained model, which loads nothing from elsewhere.

    It has the settings, the certificate and the curves of the run; with examples also their metrics, how far
    probabilities are to be believed, and the examples that are most wrong and most uncertain, drawn as the task draws
    them; and what the model has learned.

    Args:
        model: the trained model.
        path: of the file.
        history: of its training.
        examples: labelled ones, as the task reads them.
        count: number of examples to show of each kind.
        source: where the examples are from.
        errors: whether to add a section about errors, with the most confident mistakes first.
        folds: numbers of the examples of each fold, if there is to be a section about likely mistakes of their labels.

    Raises:
        ImportError: Bokeh is not installed.
        ValueError: a negative ``count``, or examples without labels.
    """
    if count < 0:
        raise ValueError(f"count must be at least 0, got {count}")
    scripts = library()
    history = history or History()
    outputs = [ranked[0][1] for ranked in model.alternatives(examples, 1)] if examples else []
    metrics = model.task.measure(examples, outputs)[0] if examples else {}
    parts = [sections.summary(model, history, metrics)]
    if history:
        parts.append(sections.training(model, history))
    if examples:
        parts.append(sections.results(model, examples, outputs, metrics, source))
        parts.append(sections.certainty(model, examples, outputs))
        if errors:
            parts.append(sections.mistakes(model, examples, outputs, count))
        if folds:
            parts.append(sections.doubts(model, examples, folds, count))
        if count:
            parts.append(sections.wrong(model, examples, outputs, count))
            parts.append(sections.uncertain(model, examples, count))
    else:
        parts.append(sections.more())
    parts.append(sections.learned(model, examples))
    write_atomic(path, _page(f"{model.description['task']} · structsmooth", scripts, joined(parts)))


# The browser refuses to load anything that is not in the page.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def _page(title: str, scripts: Markup, content: Markup) -> Markup:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", _file("page.css")),
        scripts,
    )
    body = element("body", element("main", content), element("script", _file("page.js")))
    return joined([Markup("<!DOCTYPE html>"), element("html", head, body, lang="en")])


def _file(name: str) -> Markup:
    return Markup(files("structsmooth.report").joinpath(name).read_text(encoding="utf-8"))
