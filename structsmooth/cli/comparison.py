"""Tables of a comparison of solvers, in Markdown."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from structsmooth.cli.report import markdown_table
from structsmooth.history import History, Row, best_bound

_ACCURACIES = (0.1, 0.01, 0.001)
_NOT_REACHED = "-"
# Share of the best held-out metric that a setting may be behind.
_BEHIND = 0.01


def comparison_table(runs: Mapping[str, Sequence[History]], metrics: Sequence[str]) -> str:
    """Final results of solvers on one objective, and their costs of reaching gaps and suboptimalities.

    Cells are medians over the histories of a solver, one for each seed; the first table has a column for each metric.
    """
    bound = best_bound(history for histories in runs.values() for history in histories)
    return f"{_final(runs, metrics, bound)}\n\n{_reaching(runs, bound)}"


def gaps_table(runs: Mapping[str, Mapping[str, Sequence[History]]], oracles: Mapping[str, str], n: int) -> str:
    """What gaps cost on all objectives: effective passes, n oracle calls each, and seconds.

    This is the form of Table 1 of Zhang et al. (2014), with measurements in place of bounds.

    Args:
        runs: histories by objective and solver, one for each seed; cells are medians over them.
        oracles: the kind of oracle that each solver calls.
        n: number of examples.
    """
    header = ["solver", "oracle", *(f"{name}: {accuracy:g}" for name in runs for accuracy in _ACCURACIES)]
    rows = [
        [
            label,
            oracle,
            *(
                effort([first_row(history, accuracy, lambda row: row.gap) for history in by_solver[label]], n)
                for by_solver in runs.values()
                for accuracy in _ACCURACIES
            ),
        ]
        for label, oracle in oracles.items()
    ]
    return markdown_table(header, rows, text_columns=2)


def best_settings(
    runs: Mapping[str, Sequence[History]], metric: str | None, is_error: bool = False
) -> dict[str, Sequence[History]]:
    """The best setting of each solver: that of the lowest objective among those with a good metric.

    Good is what ends within 1 % of the solver's best setting, so that the choice is not one of training alone.

    Args:
        runs: histories on one objective, one for each seed, by solver and options, as in ``sgd:learning_rate=0.1``.
        metric: a metric on held-out data; without one, the objective decides.
        is_error: whether smaller values of the metric are better.

    Reference:
        Pillutla et al. (2019), section 7.3, "Tuning Criteria".
    """
    settings: dict[str, list[str]] = {}
    for label in runs:
        settings.setdefault(label.partition(":")[0], []).append(label)
    chosen = (_best(labels, runs, metric, -1 if is_error else 1) for labels in settings.values())
    return {label: runs[label] for label in chosen}


def _best(labels: Sequence[str], runs: Mapping[str, Sequence[History]], metric: str | None, sign: int) -> str:
    returned = {label: [history.best() for history in runs[label]] for label in labels}
    good: Sequence[str] = labels
    if metric is not None:
        scores = {label: sign * median(row.metrics[metric] for row in rows) for label, rows in returned.items()}
        best = max(scores.values())
        good = [label for label in labels if scores[label] >= best - _BEHIND * abs(best)]
    return min(good, key=lambda label: median(row.objective for row in returned[label]))


def _final(runs: Mapping[str, Sequence[History]], metrics: Sequence[str], bound: float) -> str:
    header = ["solver", "passes", "oracle calls", "seconds", "objective", "gap", "suboptimality", *metrics]
    rows = []
    for label, histories in runs.items():
        returned = [history.best() for history in histories]
        columns = [[row.metrics.get(metric) for row in returned] for metric in metrics]
        rows.append(
            [
                label,
                *_cost([history[-1] for history in histories]),
                _cell([row.objective for row in returned], "{:.6f}"),
                _cell([row.gap for row in returned], "{:.2g}"),
                _cell([row.objective - bound for row in returned], "{:.2g}"),
                *(_cell(column, "{:.4f}") for column in columns),
            ]
        )
    return markdown_table(header, rows)


def _reaching(runs: Mapping[str, Sequence[History]], bound: float) -> str:
    costs = ("passes", "oracle calls", "seconds")
    measures = ("gap", "suboptimality")
    header = ["to reach", "solver", *(f"{measure}: {cost}" for measure in measures for cost in costs)]
    rows = [
        [
            f"{accuracy:g}",
            label,
            *_cost([first_row(history, accuracy, lambda row: row.gap) for history in histories]),
            *_cost([first_row(history, accuracy, lambda row: row.objective - bound) for history in histories]),
        ]
        for accuracy in _ACCURACIES
        for label, histories in runs.items()
    ]
    return markdown_table(header, rows, text_columns=2)


def first_row(history: History, accuracy: float, value: Callable[[Row], float | None]) -> Row | None:
    """The first row whose value is no larger than an accuracy."""
    return next((row for row in history if (v := value(row)) is not None and v <= accuracy), None)


def _cost(rows: Sequence[Row | None]) -> list[str]:
    """Median passes, oracle calls and seconds at some rows of the runs; a run without such a row never got there."""
    return [
        _cell([math.inf if row is None else row.passes for row in rows], "{:g}"),
        _cell([math.inf if row is None else row.oracle_calls for row in rows], "{:,.0f}"),
        _cell([math.inf if row is None else row.seconds for row in rows], "{:.2f}"),
    ]


def effort(rows: Sequence[Row | None], n: int) -> str:
    """Median effective passes and seconds at some rows of the runs."""
    passes = _cell([math.inf if row is None else row.oracle_calls / n for row in rows], "{:.3g}")
    seconds = _cell([math.inf if row is None else row.seconds for row in rows], "{:.2g} s")
    return passes if passes == _NOT_REACHED else f"{passes}, {seconds}"


def _cell(values: Iterable[float | None], layout: str) -> str:
    """The median; it is not reached if half the runs or more did not reach it."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    middle = median(known)
    return layout.format(middle) if math.isfinite(middle) else _NOT_REACHED
