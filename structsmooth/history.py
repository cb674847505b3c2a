"""The record of a training run: one row per recorded pass."""

import csv
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from io import StringIO
from pathlib import Path
from typing import Any


@dataclass
class Row:
    """State of a run after a pass.

    Attributes:
        passes: passes over the data made by stochastic steps; full passes are not counted, as in the paper.
        oracle_calls: inferences of the solver, full passes and the search for a step size included; those of
            evaluation only where they steer the step size.
        seconds: time of the solver, counted likewise.
        objective: (1/n) Σ f_i(w) + (λ/2)‖w‖² without the solver's smoothing, at the weights after the pass.
        dual: best lower bound on the optimum so far; linear problems with λ > 0 only.
        gap: objective − dual: the suboptimality is no larger.
        mu: level of smoothing.
        step_size: step size.
        metrics: what callbacks added, such as F1 on held-out data: numbers, or tensors and arrays of one. Their names
            must not be those of the columns.
    """

    passes: float
    oracle_calls: int
    seconds: float
    objective: float
    dual: float | None = None
    gap: float | None = None
    mu: float | None = None
    step_size: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """One flat dictionary; metrics stand beside the columns, as floats.

        Raises:
            TypeError: a metric that is not a number.
            ValueError: a metric with the name of a column.
        """
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "metrics"}
        if taken := sorted(self.metrics.keys() & columns):
            raise ValueError(f"metrics must have other names than the columns of a history, got {', '.join(taken)}")
        return columns | {name: _number(name, value) for name, value in self.metrics.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Row":
        """The inverse of :meth:`as_dict`."""
        names = {f.name for f in fields(cls)} - {"metrics"}
        columns = {name: value for name, value in values.items() if name in names}
        return cls(**columns, metrics={name: value for name, value in values.items() if name not in names})


class History(list[Row]):
    """Rows of a run in order; a list that saves as JSON lines."""

    def column(self, name: str) -> list[Any]:
        """Values of one column or metric, ``None`` where a row has none."""
        return [row.as_dict().get(name) for row in self]

    def best(self) -> Row:
        """The row with the smallest objective, the last among equals, with the best lower bound of all rows."""
        finite = [row for row in self if math.isfinite(row.objective)] or self
        return self.bounded(min(reversed(finite), key=lambda row: row.objective))

    def bounded(self, row: Row) -> Row:
        """The row with the best lower bound of all rows in place of its own, and its gap to that."""
        dual = max((other.dual for other in self if other.dual is not None), default=None)
        return row if dual is None else replace(row, dual=dual, gap=row.objective - dual)

    def to_json_lines(self) -> str:
        """One JSON object per row."""
        return "".join(json.dumps(row.as_dict()) + "\n" for row in self)

    def to_csv(self) -> str:
        """A table with a header and a line for each row; cells are empty where a row has no value."""
        rows = [row.as_dict() for row in self]
        table = StringIO()
        writer = csv.DictWriter(table, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return table.getvalue()

    @classmethod
    def from_json_lines(cls, lines: Iterable[str]) -> "History":
        """The inverse of :meth:`to_json_lines`."""
        return cls(Row.from_dict(json.loads(line)) for line in lines)

    @classmethod
    def load(cls, path: str | Path) -> "History":
        """Read a JSON-lines file.

        Raises:
            FileNotFoundError: no such file.
            ValueError: a line that is not a row, by path and line.
        """
        lines = enumerate(Path(path).read_text().splitlines(), 1)
        return cls(_parse_row(f"{path}:{number}", line) for number, line in lines)


def best_bound(histories: Iterable[History]) -> float:
    """The best lower bound on the optimum that runs know; their best objective if none knows any.

    A bound that the objective of another run is below is one on another objective, as with a penalty, and is left out.
    """
    rows = [row for history in histories for row in history]
    least = min((row.objective for row in rows if not math.isnan(row.objective)), default=math.nan)
    # Objectives and bounds of one optimum may cross by rounding.
    allowed = least + 1e-6 * abs(least)
    duals = [row.dual for row in rows if row.dual is not None and row.dual <= allowed]
    return max(duals, default=least)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"metric {name!r} must be a number, got {type(value).__name__}") from None


def _parse_row(place: str, line: str) -> Row:
    try:
        return Row.from_dict(json.loads(line))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{place}: not a row of a history ({error})") from None
