"""The picture of the first page: a sentence with its entities and their probabilities, and a gap that closes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from structsmooth.estimators import SequenceTagger
from structsmooth.plots.panels import COLOURS
from structsmooth.tasks import NER

SENTENCE = (
    "Borrower , with offices in Cambridge , Massachusetts , will repay Silicon Valley Bank , and Bank will lend to "
    "Akamai Technologies ."
)
_LABELS = {"ORG": COLOURS[0], "LOC": COLOURS[1], "PER": COLOURS[2], "MISC": COLOURS[3]}
_TEXT = "#123456"  # stands for the colour of text, which depends on the scheme of the reader
_STYLE = "<style>svg{color:#222}@media (prefers-color-scheme:dark){svg{color:#ddd}}</style>"
_WIDTH, _LINE = 56, 0.33  # characters in a line, and its height as a share of the panel


def draw_all(folder: Path) -> None:
    """Train a tagger on the data of the package, and draw what it says of a sentence beside its training."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    sentences = NER().read(NER.default_files()["train"])
    tagger = SequenceTagger(loss="crf", lam="0.3/n", tol=2e-3)
    tagger.fit([sentence.words for sentence in sentences], [sentence.tags or [] for sentence in sentences])
    parts = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings: dict[Any, Any] = {**dict.fromkeys(parts, _TEXT), "svg.hashsalt": "front", "font.size": 9}
    with rc_context(settings):
        figure = Figure(figsize=(9, 2.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
        words = SENTENCE.split()
        _sentence(left, words, tagger.predict_spans([words])[0])
        _gap(right, tagger.history_)
        path = folder / "front.svg"
        figure.savefig(path, transparent=True, metadata={"Date": None})
    drawing = path.read_text(encoding="utf-8").replace(_TEXT, "currentColor")
    path.write_text(drawing.replace(" <metadata>", f" {_STYLE}\n <metadata>", 1), encoding="utf-8")


def _sentence(panel: Any, words: Sequence[str], spans: Sequence[Any]) -> None:
    """The words, and the label and the probability below each entity."""
    panel.set(xlim=(0, _WIDTH), ylim=(0, 1), title="entities, and how sure the tagger is of them")
    panel.axis("off")
    column, row, starts = 0, 0.82, []
    for word in words:
        if column + len(word) > _WIDTH:
            column, row = 0, row - _LINE
        starts.append((column, row))
        panel.text(column, row, word, family="monospace", fontsize=11)
        column += len(word) + 1
    for span in spans:
        (first, row), (last, _) = starts[span.start], starts[span.end - 1]
        end, colour = last + len(words[span.end - 1]), _LABELS[span.label]
        panel.plot([first, end], [row - 0.06] * 2, color=colour, linewidth=2.5)
        panel.text(first, row - 0.17, f"{span.label} {span.probability:.0%}", fontsize=8)


def _gap(panel: Any, history: Any) -> None:
    """The objective, its lower bound, and the gap between them."""
    rows = [row for row in history if row.passes > 0]
    passes = [row.passes for row in rows]
    upper, lower = [row.objective for row in rows], [row.dual for row in rows]
    panel.fill_between(passes, lower, upper, color=COLOURS[5], alpha=0.3)
    panel.plot(passes, upper, color=COLOURS[0], label="objective")
    panel.plot(passes, lower, color=COLOURS[1], label="lower bound")
    panel.set(xscale="log", ylim=(0, 3 * upper[-1]), xlabel="passes over the data", title="the duality gap closes")
    panel.legend(frameon=False)
