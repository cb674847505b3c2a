"""Metrics of predicted sets of labels, and how a set looks in reports."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from structsmooth import markup
from structsmooth.markup import Markup, chips, differences, joined

Table = NDArray[np.bool_]


def measures(truth: Table, found: Table) -> dict[str, float]:
    """Metrics of predicted labels [n, L]: a set that is empty and should be counts as found.

    ``hamming`` is the fraction of wrong labels, ``subset_accuracy`` that of examples without a wrong label. Means over
    examples are ``example_f1`` and ``jaccard``; ``micro_f1`` is over all labels of all examples, ``macro_f1`` the mean
    over labels.
    """
    right, either = truth & found, truth | found
    return {
        "example_f1": float(_f1(right.sum(1), truth.sum(1), found.sum(1)).mean()),
        "hamming": float((truth != found).mean()),
        "subset_accuracy": float((truth == found).all(1).mean()),
        "micro_f1": float(_f1(right.sum(), truth.sum(), found.sum())),
        "macro_f1": float(_f1(right.sum(0), truth.sum(0), found.sum(0)).mean()),
        "jaccard": float(np.where(either.any(1), right.sum(1) / np.maximum(either.sum(1), 1), 1.0).mean()),
    }


def table(names: list[str], truth: Table, found: Table) -> str:
    """The metrics, and precision, recall and F1 of each label."""
    lines = [f"{name:16} {100 * value:6.2f} %" for name, value in measures(truth, found).items()]
    wide = max(map(len, names))
    lines += ["", f"{'label':{wide}}  precision  recall      F1  examples"]
    for name, (precision, recall, f1), examples in _by_label(names, truth, found):
        lines.append(f"{name:{wide}}  {precision:9.2%}  {recall:6.2%}  {f1:6.2%}  {examples:8}")
    return "\n".join(lines)


def label_table(names: list[str], truth: Table, found: Table) -> markup.Table:
    """Precision, recall and F1 of each label."""
    labels = _by_label(names, truth, found)
    rows = [(name, *(f"{share:.1%}" for share in shares), f"{examples:,}") for name, shares, examples in labels]
    return markup.Table("Labels", ("label", "precision", "recall", "F1", "gold"), rows)


def example_markup(gold: Collection[str] | None, ranked: Sequence[tuple[float, tuple[str, ...]]]) -> Markup:
    """The predicted labels, which of them are right, those that were missed, and alternatives."""
    return joined([chips(ranked[0][1], gold), differences(ranked)])


def _by_label(names: list[str], truth: Table, found: Table) -> Iterator[tuple[str, tuple[float, float, float], int]]:
    """Each label with its precision, recall and F1, and the number of examples that have it."""
    for i, name in enumerate(names):
        right, true, guessed = (int(t[:, i].sum()) for t in (truth & found, truth, found))
        f1 = float(_f1(np.array(right), np.array(true), np.array(guessed)))
        yield name, (right / max(guessed, 1), right / max(true, 1), f1), true


def _f1(right: NDArray[np.int64], true: NDArray[np.int64], found: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(true + found > 0, 2 * right / np.maximum(true + found, 1), 1.0)
