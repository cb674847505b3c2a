"""Figures of comparisons, read off their panels."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from structsmooth.history import History, Row, best_bound
from structsmooth.plots import plot_comparison, plot_history


def run(objectives, calls, dual=None, f1=None, passes=None):
    """A history with a constant lower bound and one second, and by default one pass, for every oracle call."""
    metrics = [{}] * len(objectives) if f1 is None else [{"f1": value} for value in f1]
    return History(
        Row(done, c, float(c), value, dual, None if dual is None else value - dual, metrics=m)
        for value, c, m, done in zip(objectives, calls, metrics, passes or calls, strict=True)
    )


@pytest.fixture
def drawn(monkeypatch):
    """Figures, recorded as they are saved."""
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (figures.append(self), save(self, *a, **k))[1])
    return figures


def lines(panel):
    return {line.get_label(): line.get_xydata() for line in panel.get_lines()}


def bands(panel):
    """Smallest and largest values of the bands."""
    boxes = [collection.get_paths()[0].get_extents() for collection in panel.collections]
    return [(box.y0, box.y1) for box in boxes]


def test_medians_and_bands(tmp_path, drawn):
    seeds = [run([4.0, 2.0 + spread], [10, 20], dual=1.0, f1=[0.0, spread]) for spread in (0.0, 0.5, 2.0)]
    runs = {"one": seeds, "other": [run([4.0, 3.0], [20, 40], dual=0.5, f1=[0.0, 0.25])]}
    plot_comparison(runs, tmp_path / "plot.png", n=10, metrics=["f1"], title="λ = 1")
    (figure,) = drawn
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert figure.get_suptitle() == "λ = 1"
    suboptimality, by_seconds, gap, _, f1, _ = figure.axes
    assert [panel.get_ylabel() for panel in (suboptimality, gap, f1)] == ["suboptimality", "duality gap", "f1"]
    assert [panel.get_yscale() for panel in (suboptimality, gap, f1)] == ["log", "log", "linear"]
    assert f1.get_xlabel() == "effective passes (n = 10 oracle calls)"
    # The bounds are 1 and 0.5: the better one serves all runs.
    assert lines(suboptimality)["one"] == pytest.approx(np.array([[1, 3], [2, 1.5]]))
    assert lines(suboptimality)["other"] == pytest.approx(np.array([[2, 3], [4, 2]]))
    assert lines(by_seconds)["one"] == pytest.approx(np.array([[10, 3], [20, 1.5]]))
    assert lines(gap)["other"] == pytest.approx(np.array([[2, 3.5], [4, 2.5]]))
    assert lines(f1)["one"] == pytest.approx(np.array([[1, 0], [2, 0.5]]))
    assert bands(f1)[0] == pytest.approx((0, 2))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "other"]
    (calls,) = suboptimality.child_axes
    assert calls.get_xlabel() == "oracle calls"
    assert calls.get_xlim() == pytest.approx(np.array(suboptimality.get_xlim()) * 10)


def test_seeds_are_compared_row_by_row(tmp_path, drawn):
    runs = {"one": [run([3.0, 2.0, 1.0], [10, 20, 30], dual=0.0), run([5.0, 4.0], [200, 400], dual=0.0)]}
    plot_comparison(runs, tmp_path / "plot.png", n=10)
    # Up to the end of the shortest, although the oracle calls of the two do not even overlap.
    assert lines(drawn[0].axes[0])["one"] == pytest.approx(np.array([[10.5, 4], [21, 3]]))


def test_linear_panels_show_where_most_values_are(tmp_path, drawn):
    metric = [0.0, *([0.8, 0.9] * 20)]
    history = run([2.0] * len(metric), range(1, len(metric) + 1), f1=metric)
    plot_comparison({"one": [history]}, tmp_path / "plot.png", n=1, metrics=["f1"])
    low, high = drawn[0].axes[2].get_ylim()
    assert 0.5 < low < 0.8
    assert 0.9 < high < 1.1


def test_panels_without_values_are_left_out(tmp_path, drawn):
    runs = {"one": [run([3.0, 2.0], [1, 2])], "best": [run([3.0, 1.0], [1, 2])]}
    plot_comparison(runs, tmp_path / "plot.svg", n=1, metrics=["f1"])
    assert len(drawn[0].axes) == 2
    assert lines(drawn[0].axes[0])["one"] == pytest.approx(np.array([[1, 2], [2, 1]]))
    # The best objective is at distance zero from itself, which a logarithmic axis cannot show.
    assert lines(drawn[0].axes[0])["best"] == pytest.approx(np.array([[1, 2]]))


def test_many_solvers_look_different(tmp_path, drawn):
    plot_comparison({str(i): [run([2.0, 1.5], [1, 2], dual=1.0)] for i in range(15)}, tmp_path / "plot.png", n=1)
    looks = {(line.get_color(), line.get_linestyle()) for line in drawn[0].axes[0].get_lines()}
    assert len(looks) == 15


def test_a_history_has_the_panels_that_it_can_fill(tmp_path, drawn):
    rows = run([3.0, 2.0, 1.0], [0, 10, 20], dual=1.0, f1=[0.0, 0.5, 1.0])
    plot_history(rows, tmp_path / "full.png", title="ner")
    plot_history(run([3.0, 2.0], [0, 10]), tmp_path / "bare.png")
    plot_history(run([3.0], [0], dual=3.0), tmp_path / "one.png")
    full, bare, one = drawn
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("full.png", "bare.png", "one.png"))
    assert full.get_suptitle() == "ner"
    assert [panel.get_ylabel() for panel in full.axes[::3]] == ["objective", "duality gap", "F1"]
    assert [panel.get_xlabel() for panel in full.axes[-3:]] == ["passes over the data", "oracle calls", "seconds"]
    assert full.axes[1].get_lines()[0].get_xydata() == pytest.approx(np.array([[0, 3], [10, 2], [20, 1]]))
    # No logarithmic axis has a gap of zero.
    assert full.axes[3].get_lines()[0].get_xydata() == pytest.approx(np.array([[0, 2], [10, 1]]))
    assert len(bare.axes) == 3
    assert len(one.axes) == 6
    with pytest.raises(ValueError, match="history must have at least one row"):
        plot_history(History(), tmp_path / "none.png")


@pytest.mark.parametrize("runs", [{"one": []}, {"one": [History()]}])
def test_runs_without_rows_are_refused(runs, tmp_path):
    with pytest.raises(ValueError, match="at least one row for each solver"):
        plot_comparison(runs, tmp_path / "plot.png", n=1)


def test_best_bound():
    low, high = run([2.0], [1], dual=0.5), run([3.0], [1], dual=1.0)
    assert best_bound([low, run([1.5], [1]), high]) == 1.0
    assert best_bound([low, run([0.9], [1]), high]) == 0.5, "1 bounds another objective"
    assert best_bound([run([1.0 - 1e-9], [1]), high]) == 1.0, "but for rounding"
    assert best_bound([run([2.0, 1.5], [1, 2]), run([3.0], [1])]) == 1.5


def test_estimated_gaps_are_drawn_beside_the_true_ones(tmp_path, drawn):
    history = run([4.0, 2.0], [10, 20], dual=1.0)
    history[1].metrics = {"estimated_gap": 0.25}
    plot_history(history, tmp_path / "history.png")
    plot_comparison({"one": [history], "other": [run([4.0, 3.0], [20, 40], dual=0.5)]}, tmp_path / "plot.png", n=10)
    of_run, comparison = drawn
    assert lines(of_run.axes[3])["true"] == pytest.approx(np.array([[10, 3], [20, 1]]))
    assert lines(of_run.axes[3])["estimated"] == pytest.approx(np.array([[20, 0.25]]))
    assert comparison.axes[4].get_ylabel() == "estimated gap / gap"
    assert lines(comparison.axes[4])["one"] == pytest.approx(np.array([[2, 0.25]]))


def test_means_and_deviations(tmp_path, drawn):
    seeds = [run([4.0, value], [10, 20], dual=0.0) for value in (1.0, 2.0, 3.0)]
    plot_comparison({"one": seeds, "alone": seeds[:1]}, tmp_path / "plot.png", n=10, bands="deviation")
    suboptimality = drawn[0].axes[0]
    assert lines(suboptimality)["one"] == pytest.approx(np.array([[1, 4], [2, 2]]))
    # At the second point the standard deviation of 1, 2 and 3 is 1.
    assert bands(suboptimality)[0] == pytest.approx((1, 4))
    assert bands(suboptimality)[1] == pytest.approx((1, 4))


def test_cache_hits_have_panels_if_there_are_any(tmp_path, drawn):
    history = run([4.0, 2.0], [10, 20], dual=1.0)
    history[1].metrics = {"cache_hit_rate": 0.25}
    idle = run([4.0, 3.0], [10, 20], dual=1.0)
    idle[1].metrics = {"cache_hit_rate": 0.0}
    plot_comparison({"one": [history], "idle": [idle]}, tmp_path / "plot.png", n=10)
    plot_comparison({"idle": [idle]}, tmp_path / "idle.png", n=10)
    hits = drawn[0].axes[4]
    assert hits.get_ylabel() == "share of cache hits"
    assert lines(hits)["one"] == pytest.approx(np.array([[2, 0.25]]))
    assert len(drawn[1].axes) == 4


def test_full_passes_are_left_out_of_a_third_axis(tmp_path, drawn):
    """Rows are passes of steps, and the first solver calls the oracle twice as often, for its full passes."""
    passes = [0, 1, 2]
    full, steps = run([4.0, 3.0, 2.0], [0, 20, 40], passes=passes), run([4.0, 3.0, 2.5], [0, 10, 20], passes=passes)
    runs = {"full": [full], "steps": [steps]}
    plot_comparison(runs, tmp_path / "plot.png", n=10)
    effective, _, stochastic = drawn[0].axes
    assert stochastic.get_xlabel() == "passes of steps, without full passes"
    assert lines(effective)["full"] == pytest.approx(np.array([[0, 2], [2, 1]]))
    assert lines(stochastic)["full"] == pytest.approx(np.array([[0, 2], [1, 1]]))

    plot_comparison({"steps": [steps]}, tmp_path / "plot.png", n=10)
    assert len(drawn[1].axes) == 2
