"""The sections of a report."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from structsmooth.calibration import UNCALIBRATED
from structsmooth.history import History
from structsmooth.markup import Block, Drawing, Markup, Matrix, Table, element
from structsmooth.report.choice import Mistake, doubtful, most_confident, most_uncertain, most_wrong
from structsmooth.report.figures import AXES, curves, heat_map, reliability
from structsmooth.tasks.base import Predictions
from structsmooth.tasks.probabilities import ProbabilisticTask
from structsmooth.tasks.trained import TrainedModel, unseen_warning

# Outputs of each example that is shown.
_ALTERNATIVES = 5
# Examples whose second-best outputs are sought, which can take far longer than the best.
_SEARCHED = 1000
# Differences of scores up to this are rounding.
_ROUNDING = 1e-9
# Metrics that are known by their initials.
_MEANINGS = {
    "uas": "unlabelled attachment score, the share of words with the right head",
    "las": "labelled attachment score, the share of words with the right head and relation",
    "aer": "alignment error rate, from 0 if all sure links are found and no others but possible ones",
    "iou": "intersection over union of what was found and what is true",
    "corloc": "correct localization, the share of objects found with an intersection over union above 0.5",
    "pck": "share of joints within 0.2 of the size of the person",
    "pck10": "share of joints within 0.1 of the size of the person",
    "pcp": "percentage of correct parts, the share of limbs with both ends in place",
}


def summary(model: TrainedModel, history: History, metrics: Mapping[str, float]) -> Markup:
    """Task, solver, the metric to watch and certificate, with the settings to unfold.

    ``metrics`` are those of the examples of the page, if it has any.
    """
    about = model.description
    facts = {
        "training examples": f"{about['n']:,}",
        "λ": f"{about['lam']:.4g}",
        "solver": about["settings"].get("solver", ""),
        "status": about.get("status", ""),
    } | _headlines(model, metrics)
    pairs = [element("div", element("dt", name), element("dd", str(value))) for name, value in facts.items()]
    rows = [(name.replace("_", " "), str(value)) for name, value in about["settings"].items()]
    folded = element("details", element("summary", "Settings"), _table(Table("", ("setting", "value"), rows)))
    title = [element("h1", about["task"]), element("p", model.task.task.summary, class_="subtitle")]
    return element("header", *title, element("dl", *pairs, class_="facts"), _certificate(model, history), folded)


def training(model: TrainedModel, history: History) -> Markup:
    """Curves of a run, and a choice of what to draw them against."""
    options = [
        element(
            "label",
            element("input", type="radio", name="axis", value=name, data_label=label, checked=_checked(name)),
            label,
        )
        for name, label in AXES.items()
    ]
    choice = element("fieldset", element("legend", "Drawn against"), *options, class_="choice")
    drawn = element("div", *curves(history, model.task.task.headline, model.watched), class_="panels")
    return _section("training", "Training", choice, drawn)


def results(
    model: TrainedModel, examples: Sequence[Any], outputs: Sequence[Any], metrics: Mapping[str, float], source: str
) -> Markup:
    """Metrics of labelled examples, by class too where the task has classes."""
    rows = [(name.replace("_", " "), f"{value:.4f}") for name, value in metrics.items()]
    count = "1 example" if len(examples) == 1 else f"{len(examples):,} examples"
    origin = element("p", count, *([" of ", element("code", source)] if source else []))
    words = {word for name in metrics for word in name.split("_")}
    meanings = [f"{word}: {meaning}" for word, meaning in _MEANINGS.items() if word in words]
    blocks: list[Block] = [Table("Metrics", ("metric", "value"), rows), *model.task.show_results(examples, outputs)]
    unseen = unseen_warning(model.task, examples)
    notes = [element("p", f"{note}.", class_="note") for note in (unseen, "; ".join(meanings)) if note]
    return _section("results", "Results", origin, *notes, *_drawn(blocks))


def certainty(model: TrainedModel, examples: Sequence[Any], outputs: Sequence[Any]) -> Markup:
    """How often what is found is right, by its probability; nothing of tasks without probabilities."""
    task = model.task
    if not isinstance(task, ProbabilisticTask):
        return Markup()
    found = task.reliability(model.weights, examples, outputs)
    note = f"{UNCALIBRATED[0].upper()}{UNCALIBRATED[1:]}, and no temperature is fitted: train with --calibrate."
    if task.temperature is not None:
        note = f"Scores are divided by the temperature {task.temperature:.4g}."
    rows = [("expected calibration error", f"{found.error:.4f}"), ("parts of outputs", f"{int(found.counts.sum()):,}")]
    drawn = element("div", reliability(found), class_="panels")
    blocks = _table(Table("", ("quantity", "value"), rows)), drawn
    return _section("certainty", "How sure", element("p", note, class_="note"), *blocks)


def wrong(model: TrainedModel, examples: Sequence[Any], outputs: Sequence[Any], count: int) -> Markup:
    """The examples that the model gets most wrong."""
    found = most_wrong(model, examples, outputs, count)
    titles = [f"cost {one.cost:.4g}{'' if one.violation is None else violated(one.violation)}" for one in found]
    shown = _examples(model, examples, [one.index for one in found], titles)
    lead = element(
        "p",
        "By the cost of the best output, then by what the score of the right output lacks: it should exceed the score "
        "of every other output by the cost of that output.",
        class_="note",
    )
    return _section("wrong", "Most wrong", *([lead, *shown] if shown else [element("p", "No example is wrong.")]))


def mistakes(model: TrainedModel, examples: Sequence[Any], outputs: Sequence[Any], count: int) -> Markup:
    """The most confident mistakes with links to their examples, and what the task says of its errors."""
    listed = _linked(model, examples, most_confident(model, examples, outputs, count), "The most confident mistakes")
    of_task = model.task.show_errors(examples, outputs) if isinstance(model.task, ProbabilisticTask) else []
    content = [*_drawn(of_task), *listed] or [element("p", "No mistake, or no probabilities of parts.")]
    return _section("errors", "Errors", *content)


def doubts(model: TrainedModel, examples: Sequence[Any], folds: Sequence[Sequence[int]], count: int) -> Markup:
    """Likely mistakes of the annotation, with links to their examples."""
    found = doubtful(model, examples, folds, count)
    lead = (
        f"Where models of the other {len(folds) - 1} of {len(folds)} folds of these data are surest of something else."
    )
    listed = _linked(model, examples, found, "Likely mistakes of the annotation", "doubt")
    return _section("doubts", "Likely mistakes of the annotation", element("p", lead, class_="note"), *listed)


def _linked(
    model: TrainedModel, examples: Sequence[Any], found: Sequence[Mistake], caption: str, name: str = "mistake"
) -> list[Markup]:
    """A table of mistakes with links to their examples, and these; nothing without any."""
    indices = sorted({one.example for one in found})
    parts = {index: ", ".join(one.part for one in found if one.example == index) for index in indices}
    shown = _examples(model, examples, indices, [f"found: {names}" for names in parts.values()], name)
    rows = [
        (f"{probability:.3f}", part, element("a", f"Example {i + 1}", href=f"#{name}-{i + 1}"))
        for i, part, probability in found
    ]
    return [*_drawn([Table(caption, ("probability", "what was found", "where"), rows)]), *shown] if rows else []


def uncertain(model: TrainedModel, examples: Sequence[Any], count: int) -> Markup:
    """The examples whose best two outputs score nearly the same; nothing where the task has no alternatives."""
    searched = examples if len(examples) <= _SEARCHED else examples[:_SEARCHED]
    try:
        found = most_uncertain(model.alternatives(searched, 2), count)
        titles = [_behind(margin) for _, margin in found]
        shown = _examples(model, examples, [index for index, _ in found], titles)
    except ValueError as error:
        return _section("uncertain", "Most uncertain", element("p", f"Not shown: {error}."))
    among = "" if searched is examples else f", among the first {_SEARCHED:,} examples"
    lead = element("p", f"By the difference of the scores of the two best outputs{among}.", class_="note")
    return _section("uncertain", "Most uncertain", lead, *shown)


def learned(model: TrainedModel, examples: Sequence[Any]) -> Markup:
    """The section about the trained weights, if the task can show them."""
    blocks = model.task.show_weights(model.weights, examples)
    return _section("learned", "What the model has learned", *_drawn(blocks)) if blocks else Markup()


def more() -> Markup:
    """What a page without examples lacks."""
    command = element("code", "structsmooth show DIR FILE")
    text = ", with a labelled file, adds results, the most wrong examples and the most uncertain ones to this page."
    return element("p", command, text, class_="note")


def _behind(margin: float) -> str:
    if margin <= _ROUNDING:
        return "the two best outputs have equal scores"
    return f"the second-best output is {margin:.4g} behind"


def violated(violation: float) -> str:
    """By how much a margin is violated, in words."""
    if violation <= _ROUNDING:
        return "; the right output scores as high as it should"
    return f"; the score of the right output is {violation:.4g} lower than it should be"


def _headlines(model: TrainedModel, metrics: Mapping[str, float]) -> dict[str, str]:
    """The metric to watch, of the examples of the page, and of the data that training measured."""
    name = model.task.task.headline
    known = {"these examples": metrics, **model.description["metrics"]}
    title = "F1" if name == "f1" else name.replace("_", " ")
    return {f"{title}, {data}": f"{values[name]:.4f}" for data, values in known.items() if name in values}


def _certificate(model: TrainedModel, history: History) -> Markup:
    """The sentence about the distance of the weights from the optimum."""
    if not history:
        return element("p", model.description["message"], class_="certificate")
    row = history.best()
    line = f"Objective {row.objective:.6g}"
    if row.dual is not None and row.gap is not None:
        line += f", at least {row.dual:.6g} for any weights: at most {row.gap:.3g} above the optimum."
    else:
        line += "; no lower bound is known."
    return element("p", line, class_="certificate")


def _examples(
    model: TrainedModel, examples: Sequence[Any], chosen: Sequence[int], titles: Sequence[str], name: str = ""
) -> list[Markup]:
    """Some of the examples with their best outputs, to which links lead by a name and the number of the example."""
    picked = [examples[i] for i in chosen]
    try:
        predictions = model.alternatives(picked, _ALTERNATIVES) if picked else []
    except ValueError:  # a task without alternatives for these examples
        predictions = model.alternatives(picked, 1)
    return [
        element(
            "article",
            element("h3", f"Example {index + 1}", id=f"{name}-{index + 1}" if name else None),
            element("p", title, class_="note"),
            drawing,
        )
        for index, title, drawing in zip(chosen, titles, _drawings(model, picked, predictions), strict=True)
    ]


def _drawings(model: TrainedModel, examples: Sequence[Any], predictions: Predictions) -> list[Markup]:
    """Examples with their best outputs, whose colours fade as probabilities fall, of tasks that have these."""
    task = model.task
    if not isinstance(task, ProbabilisticTask):
        return [task.show_example(*pair) for pair in zip(examples, predictions, strict=True)]
    found = task.part_probabilities(model.weights, examples, [[ranked[0][1]] for ranked in predictions])
    columns = zip(examples, predictions, found, strict=True)
    return [task.show_example(example, ranked, probabilities) for example, ranked, (probabilities,) in columns]


def _drawn(blocks: Iterable[Block]) -> Iterable[Markup]:
    return chain.from_iterable(map(_block, blocks))


def _block(block: Block) -> list[Markup]:
    match block:
        case Table():
            return [_table(block)]
        case Drawing():
            return [element("figure", element("figcaption", block.caption), block.content)]
        case Matrix():
            folded = element("details", element("summary", f"{block.caption}, in numbers"), _table(_numbers(block)))
            return [heat_map(block), folded]


def _numbers(matrix: Matrix) -> Table:
    def text(value: Any) -> str:
        if not math.isfinite(value):
            return ""
        return f"{value:,}" if matrix.counts else f"{value:.3f}"

    rows = [(name, *map(text, row)) for name, row in zip(matrix.rows, matrix.values.tolist(), strict=True)]
    return Table("", (f"{matrix.row_title} \\ {matrix.column_title}", *matrix.columns), rows)


def _table(table: Table) -> Markup:
    caption = [element("caption", table.caption)] if table.caption else []
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in table.header)))
    rows = [
        element("tr", element("th", row[0], scope="row"), *(element("td", c) for c in row[1:])) for row in table.rows
    ]
    return element("div", element("table", *caption, head, element("tbody", *rows)), class_="scroll")


def _section(name: str, title: str, *content: Markup) -> Markup:
    return element("section", element("h2", title, id=name), *content, aria_labelledby=name)


def _checked(name: str) -> str | None:
    return "checked" if name == "passes" else None
