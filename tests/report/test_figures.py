"""Figures of reports: what they draw, as Bokeh gets it."""

import json
import re
import sys

import numpy as np
import pytest
from bokeh.document import Document

from structsmooth.history import History, Row
from structsmooth.markup import Matrix
from structsmooth.report.figures import bokeh, curves, heat_map


def columns(figure):
    """The data sources of a figure, as Bokeh reads them."""
    text = re.search(r'<script type="application/json">(.*)</script>', figure, re.S)[1]
    plots = Document.from_json(json.loads(text)["doc"]).roots
    sources = [renderer.data_source for plot in plots for renderer in plot.renderers]
    found = {id(source): {name: list(values) for name, values in source.data.items()} for source in sources}
    return [*found.values()]


def history():
    rows = [Row(i, 10 * i, 0.5 * i, 2.0 / (i + 1), dual=None if i == 0 else 0.1 * i) for i in range(3)]
    for row in rows:
        row.gap = None if row.dual is None else row.objective - row.dual
    rows[2].metrics["f1"] = 0.75
    return History(rows)


def test_curves_have_the_history():
    objective, gap, f1 = curves(history(), "f1")
    drawn, bound = columns(objective)
    assert drawn["objective"] == [2.0, 1.0, pytest.approx(2 / 3)]
    assert drawn["passes"] == [0, 1, 2]
    assert drawn["seconds"] == [0.0, 0.5, 1.0]
    assert drawn["oracle_calls"] == [0, 10, 20]
    assert bound["dual"] == [pytest.approx(0.1), pytest.approx(0.2)]
    assert columns(gap)[0]["passes"] == [1, 2]
    assert columns(f1)[0]["f1"] == [0.75]
    assert "f1 on held-out data" in f1
    assert "f1 on dev data" in curves(history(), "f1", "dev")[2]


def plot_of(figure):
    text = re.search(r'<script type="application/json">(.*)</script>', figure, re.S)[1]
    return Document.from_json(json.loads(text)["doc"]).roots[0]


def test_the_start_does_not_squash_the_curve():
    values = [0.0, 0.80, 0.84, 0.85]
    figure = curves(History([Row(i, i, i, 1.0, metrics={"f1": f1}) for i, f1 in enumerate(values)]), "f1")[1]
    assert (columns(figure)[0]["f1"], columns(figure)[0]["passes"]) == (values[1:], [1, 2, 3])
    assert "f1 on held-out data; 0 at the start is left out" in figure


@pytest.mark.parametrize(
    ("counts", "low", "high", "title"), [(True, 0.0, 1.0, "share of the gold"), (False, -4.0, 4.0, "score")]
)
def test_heat_maps_have_a_scale(counts, low, high, title):
    values = np.array([[2.0, np.nan], [-4.0, 0.0]]) if not counts else np.array([[3, 1], [0, 0]])
    plot = plot_of(heat_map(Matrix("c", ["a", "b"], ["a", "b"], values, "gold", "found", counts)))
    (bar,) = [layout for layout in plot.below if type(layout).__name__ == "ColorBar"]
    assert (bar.color_mapper.low, bar.color_mapper.high, bar.title) == (low, high, title)
    assert bar.ticker.ticks == [low, (low + high) / 2, high]


def test_curves_leave_out_what_the_run_has_not():
    assert len(curves(History([Row(0, 0, 0.0, 1.0)]), "f1")) == 1


def test_heat_maps_have_counts_and_shares():
    (cells,) = columns(heat_map(Matrix("c", ["a", "b"], ["a", "b"], np.array([[3, 1], [0, 0]]), "gold", "found", True)))
    assert cells["value"] == [3, 1, 0, 0]
    assert cells["share"] == [0.75, 0.25, 0.0, 0.0]
    assert cells["row"] == ["a", "a", "b", "b"]
    assert cells["column"] == ["a", "b", "a", "b"]


def test_heat_maps_have_signs_and_leave_out_what_is_not_there():
    values = np.array([[2.0, np.nan], [-1.0, 0.0]])
    (cells,) = columns(heat_map(Matrix("c", ["a", "b"], ["a", "b"], values, "one", "other")))
    assert cells["value"] == [2.0, -1.0, 0.0]
    assert cells["share"] == [1.0, -0.5, 0.0]
    assert len({*cells["colour"]}) == 2


def test_names_of_classes_do_not_end_the_script():
    evil = "</script><script>alert(1)</script>"
    figure = heat_map(Matrix(evil, [evil, "b"], [evil, evil], np.ones((2, 2)), evil, evil))
    assert figure.count("</script>") == 1
    assert figure.count("<script") == 1
    assert columns(figure)[0]["row"][0] == evil


def test_without_bokeh_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(ImportError, match=r"pip install 'structsmooth\[show\]'"):
        bokeh()
