"""Interactive figures: curves of a run, and tables of numbers in colours."""

import json
import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structsmooth.calibration import Reliability
from structsmooth.history import History
from structsmooth.markup import Markup, Matrix, element
from structsmooth.plots.panels import COLOURS, is_drawn, without_far_start

AXES = {"passes": "passes over the data", "seconds": "seconds", "oracle_calls": "oracle calls"}
"""Columns of a history to draw others against, with their names."""

_LOGARITHMIC = {"objective", "dual", "gap"}
_NUMBERS = {"passes": "{0.[0]}", "seconds": "{0,0.[00]}", "oracle_calls": "{0,0}"}
# Columns up to which cells have their numbers written in them.
_WRITTEN = 12
# Opacity of the strongest colour, on which numbers can still be read.
_STRONGEST = 0.8
# Height of a row, smallest and largest width of a column, room for axes, and width of a letter, in pixels.
_ROW, _NARROW, _WIDE, _MARGIN, _LETTER = 22, 12, 52, 60, 7
# Height of the bar of colours with its text, and the opacities in it, of 255.
_SCALE = 70
_LEVELS = range(0, round(255 * _STRONGEST) + 1, 4)


def bokeh() -> ModuleType:
    """Bokeh, which only reports need; ``ImportError`` says what to do where it is not installed."""
    try:
        import bokeh.embed
        import bokeh.models
        import bokeh.plotting
        import bokeh.resources
    except ImportError as error:
        raise ImportError("reports need Bokeh: pip install 'structsmooth[show]'") from error
    return bokeh


def library() -> Markup:
    """The part of Bokeh that runs in the browser, inside the page."""
    return Markup(bokeh().resources.Resources(mode="inline", components=["bokeh"]).render())


def curves(history: History, headline: str, data: str = "held-out") -> list[Markup]:
    """Objective with its lower bound, duality gap, and a held-out metric, against what the reader chooses of ``AXES``.

    Args:
        history: a run with at least one row.
        headline: name of the metric.
        data: that it was measured on.
    """
    bounded = " and lower bound" if _rows(history, "dual") else ""
    start = without_far_start(history.column(headline))[1]
    left_out = "" if start is None else f"; {start:.4g} at the start is left out"
    panels = {
        f"Objective{bounded}": ("objective", "dual"),
        "Duality gap": ("gap",),
        f"{headline.replace('_', ' ')} on {data} data{left_out}": (headline,),
    }
    drawn = {caption: [name for name in names if _rows(history, name)] for caption, names in panels.items()}
    return [_figure(_curve(history, names), caption) for caption, names in drawn.items() if names]


def heat_map(matrix: Matrix) -> Markup:
    """A matrix in colours: the value of a cell, and its share of the row if it is a count, appear under the pointer."""
    models = bokeh().models
    shares = _shares(matrix)
    there = np.isfinite(matrix.values)
    rows, columns = there.nonzero()
    cells = {
        "x": columns,
        "y": rows,
        "row": [matrix.rows[i] for i in rows],
        "column": [matrix.columns[j] for j in columns],
        "value": matrix.values[there],
        "share": shares[there],
        "colour": np.where(shares[there] < 0, COLOURS[1], COLOURS[0]),
        "strength": _STRONGEST * np.abs(shares[there]),
    }
    plot = bokeh().plotting.figure(
        **_size(matrix),
        sizing_mode="stretch_width",
        x_range=(-0.5, len(matrix.columns) - 0.5),
        y_range=(len(matrix.rows) - 0.5, -0.5),
        x_axis_label=matrix.column_title,
        y_axis_label=matrix.row_title,
        x_axis_location="above",
        tools="",
        toolbar_location=None,
    )
    source = models.ColumnDataSource(cells)
    drawn = plot.rect("x", "y", 0.94, 0.94, source=source, color="colour", alpha="strength", line_width=0)
    if matrix.counts and len(matrix.columns) <= _WRITTEN:
        written = {"text_align": "center", "text_baseline": "middle", "text_font_size": "11px"}
        plot.text("x", "y", text="value", source=source, name="written", **written)
    tips = [(f"{matrix.row_title} → {matrix.column_title}", "@row → @column")]
    tips += [("count", "@value{0,0}"), ("share", "@share{0.0%}")] if matrix.counts else [("score", "@value{0.000}")]
    plot.add_tools(models.HoverTool(renderers=[drawn], tooltips=tips))
    plot.add_layout(_scale(matrix), "below")
    _label(plot.xaxis[0], matrix.columns, math.pi / 3 if max(map(len, matrix.columns)) > 2 else 0.0)
    _label(plot.yaxis[0], matrix.rows, 0.0)
    plot.grid.visible = False
    return _figure(plot, matrix.caption)


def reliability(found: Reliability) -> Markup:
    """The share of predictions that are right against their probability, by bins; on the line they are calibrated."""
    models, filled = bokeh().models, found.counts > 0
    columns = {"probability": found.confidence, "right": found.accuracy, "count": found.counts}
    cells = {name: values[filled].numpy() for name, values in columns.items()}
    cells["size"] = 6 + 18 * np.sqrt(cells["count"] / max(cells["count"].max(initial=1), 1))
    plot = bokeh().plotting.figure(
        height=300,
        sizing_mode="stretch_width",
        x_range=(-0.03, 1.03),
        y_range=(-0.06, 1.06),
        x_axis_label="probability",
        y_axis_label="share that is right",
        tools="",
        toolbar_location=None,
    )
    plot.line([0, 1], [0, 1], color=COLOURS[1], line_dash="dashed")
    source = models.ColumnDataSource(cells)
    plot.line("probability", "right", source=source, color=COLOURS[0])
    dots = plot.scatter("probability", "right", source=source, size="size", color=COLOURS[0], alpha=_STRONGEST)
    tips = [("probability", "@probability{0.0%}"), ("right", "@right{0.0%}"), ("predictions", "@count{0,0}")]
    plot.add_tools(models.HoverTool(renderers=[dots], tooltips=tips))
    return _figure(plot, "What is right, by its probability")


def _curve(history: History, names: Sequence[str]) -> Any:
    """Columns of a history against passes, which the page exchanges for another axis."""
    models = bokeh().models
    scale = "log" if names[0] in _LOGARITHMIC else "linear"
    axes = {"x_axis_label": AXES["passes"], "y_axis_type": scale}
    plot = bokeh().plotting.figure(height=260, sizing_mode="stretch_width", tools="", toolbar_location=None, **axes)
    plot.xaxis[0].name = "chosen"
    labels = {"dual": "lower bound"}
    for name, colour in zip(names, COLOURS, strict=False):
        source = models.ColumnDataSource({key: _rows(history, name).column(key) for key in (*AXES, name)})
        label = {"legend_label": labels.get(name, name)} if len(names) > 1 else {}
        plot.line("passes", name, source=source, color=colour, line_width=2, name="curve", **label)
        dots = plot.scatter("passes", name, source=source, color=colour, size=6, name="curve", **label)
        tips = [(labels.get(name, name).replace("_", " "), f"@{{{name}}}{{0.00000}}")]
        tips += [(axis, f"@{key}{_NUMBERS[key]}") for key, axis in AXES.items()]
        plot.add_tools(models.HoverTool(renderers=[dots], tooltips=tips))
    if len(names) > 1:
        plot.legend[0].background_fill_alpha = 0.0
        plot.legend[0].border_line_alpha = 0.0
        plot.legend[0].orientation = "horizontal"
        plot.add_layout(plot.legend[0], "above")
    return plot


def _rows(history: History, name: str) -> History:
    """The rows of a history whose value can be drawn: not infinite ones, nor a start that is far from all others."""
    log = name in _LOGARITHMIC
    values = history.column(name) if log else without_far_start(history.column(name))[0]
    return History(row for row, value in zip(history, values, strict=True) if is_drawn(value, log))


def _shares(matrix: Matrix) -> NDArray[np.float64]:
    """How dark each cell is: its share of the row for counts, and else of the largest absolute value."""
    values = np.asarray(matrix.values, dtype=np.float64)
    if matrix.counts:
        whole: NDArray[np.float64] = values / np.maximum(values.sum(1, keepdims=True), 1)
        return whole
    return np.asarray(values / max(_largest(values), 1e-300))


def _largest(values: NDArray[Any]) -> float:
    """The largest absolute value of those that are finite; 0 if none is."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _size(matrix: Matrix) -> dict[str, int]:
    """The height of a heat map in pixels, and bounds of its width."""
    left, above = (_LETTER * max(map(len, names)) + _MARGIN for names in (matrix.rows, matrix.columns))
    count = len(matrix.columns)
    widths = {"min_width": _NARROW * count + left, "max_width": max(_WIDE * count + left, 260)}
    return {"height": _ROW * len(matrix.rows) + above + _SCALE} | widths


def _scale(matrix: Matrix) -> Any:
    """What the colours of a heat map mean: a bar of them with numbers."""
    models = bokeh().models
    falling, rising = ([f"{colour}{level:02x}" for level in _LEVELS] for colour in (COLOURS[1], COLOURS[0]))
    high = 1.0 if matrix.counts else _largest(matrix.values) or 1.0
    low = 0.0 if matrix.counts else -high
    return models.ColorBar(
        color_mapper=models.LinearColorMapper(
            palette=rising if matrix.counts else falling[::-1] + rising, low=low, high=high
        ),
        formatter=models.NumeralTickFormatter(format="0%" if matrix.counts else "0.[00]"),
        ticker=models.FixedTicker(ticks=[low, (low + high) / 2, high]),
        title=f"share of the {matrix.row_title}" if matrix.counts else "score",
        background_fill_alpha=0.0,
        height=8,
        bar_line_width=0,
    )


def _label(axis: Any, names: Sequence[str], turn: float) -> None:
    """Names instead of numbers at the ticks of an axis."""
    axis.ticker = list(range(len(names)))
    axis.major_label_overrides = dict(enumerate(names))
    axis.major_label_orientation = turn
    axis.axis_line_width = 0
    axis.major_tick_line_width = 0


def _figure(plot: Any, caption: str) -> Markup:
    """A figure, whose description the page hands to Bokeh."""
    plot.background_fill_color = plot.border_fill_color = plot.outline_line_color = None
    plot.min_border_right = 12
    item = json.dumps(bokeh().embed.json_item(plot)).replace("<", "\\u003c")
    return element(
        "figure",
        element("figcaption", caption),
        element("div", class_="plot", role="img", aria_label=caption),
        element("script", Markup(item), type="application/json"),
    )
