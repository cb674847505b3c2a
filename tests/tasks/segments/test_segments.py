"""Segments of time series: files, states, partial marks, measures, pictures."""

import io
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import signals
import torch

from structsmooth import BCFW, Hamming, LinearModuleProblem, ModuleProblem, ProximalBCFW, StructuralHinge, load, train
from structsmooth.cli import main
from structsmooth.problems import DifferenceProblem
from structsmooth.solvers import ConvexConcave
from structsmooth.tasks import Segments
from structsmooth.tasks.segments.data import read_series
from structsmooth.tasks.segments.grammar import Grammar
from structsmooth.tasks.segments.results import Measures, wrong_boundaries
from structsmooth.tasks.segments.series import Segment, Series, resampled


def same(first: Series, second: Series) -> bool:
    pairs = [(getattr(own, name) for own in (first, second)) for name in ("name", "rate", "segments", "unmarked")]
    return np.array_equal(first.signal, second.signal) and all(a == b for a, b in pairs)


def blank(length: int, *segments: tuple[int, int, str], unmarked: tuple[tuple[int, int], ...] = ()) -> Series:
    signal = np.zeros((length, 1), dtype=np.float32)
    return Series("s", signal, 1.0, tuple(Segment(*own) for own in segments), unmarked)


class TestFiles:
    @pytest.mark.parametrize("count", [1, 6])
    def test_archives_and_tables_read_back(self, tmp_path, count):
        expected = signals.series(count)
        archive = signals.save(tmp_path, **signals.arrays(expected))
        read = read_series(archive), read_series(signals.table(expected, tmp_path / "s.csv"))
        for own in read:
            assert len(own) == len(expected)
            assert all(map(same, own, expected))

    def test_some_of_the_series(self, tmp_path):
        path = signals.save(tmp_path)
        assert [own.name for own in read_series(f"{path}#2-3")] == ["s1", "s2"]
        with pytest.raises(ValueError, match="there are 6 series, counted from 1"):
            read_series(f"{path}#6-7")

    def test_a_single_series_needs_neither_starts_nor_names(self, tmp_path):
        one = signals.series(1)[0]
        arrays = signals.arrays([one]) | {"signal": one.signal[:, 0], "rate": np.array(250)}
        np.savez(tmp_path / "one.npz", **{key: arrays[key] for key in ("signal", "segments", "labels", "rate")})
        (read,) = read_series(str(tmp_path / "one.npz"))
        assert read.name == "1"
        assert read.rate == 250
        assert read.signal.shape == (60, 1)
        assert read.segments == one.segments

    def test_without_segments_they_are_to_be_predicted(self, tmp_path):
        for path in (
            signals.save(tmp_path, segments=None),
            signals.table(signals.series(2), tmp_path / "s.csv", labelled=False),
        ):
            assert all(own.segments is None for own in read_series(path))

    def test_standard_input_has_a_table(self, tmp_path):
        text = Path(signals.table(signals.series(2), tmp_path / "s.csv")).read_text()
        assert all(map(same, read_series(io.StringIO(text)), signals.series(2)))

    def test_recordings_of_ludb(self, tmp_path):
        signal = np.arange(2 * 40 * 2, dtype=np.int16).reshape(2, 40, 2)
        waves = np.array([[0, 0, 10, 14, 1], [0, 0, 20, 25, 2], [1, 1, 0, 4, 3], [1, 1, 30, 39, 1]])
        gain, baseline = np.full((2, 2), 4.0), np.array([[0.0, 1.0], [2.0, 3.0]])
        path = str(tmp_path / "ludb.npz")
        np.savez(path, signal=signal, waves=waves, gain=gain, baseline=baseline, leads=np.array(["ii", "v2"]))
        first, second = read_series(path)
        assert (first.name, second.name, first.rate) == ("1-ii", "2-v2", 500)
        assert first.segments == ((10, 15, "P"), (20, 26, "QRS"))
        assert first.unmarked == ((0, 10), (26, 40))
        assert np.allclose(first.signal[:, 0], signal[0, :, 0] / 4)
        assert second.segments == ((0, 5, "T"), (30, 40, "P"))
        assert second.unmarked == ()
        assert Segments().texts([first, second]) == [0, 1]
        assert [own.name for own in read_series(f"{path}#2")] == ["2-v2"]

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"signal": None}, "no array signal"),
            ({"signal": np.full((360, 2), np.nan)}, "signal must be finite numbers"),
            ({"signal": np.zeros((360, 2, 2))}, "signal must have shape"),
            ({"series_start": np.array([0, 5])}, "series_start must rise from 0 to the number of samples, 360"),
            ({"names": np.array(["a"])}, "names must be one for each of 6 series, got 1"),
            ({"rate": np.array(0)}, "rate must be positive, got 0"),
            ({"segments": np.array([[0, 1.5, 3, 0]])}, "segments must be integers"),
            ({"segments": np.array([[0, 1, 3]])}, "segments must have shape"),
            ({"segments": np.array([[6, 1, 3, 0]])}, "got series 6 and label 0"),
            ({"segments": np.array([[0, 1, 3, 2]])}, "got series 0 and label 2"),
            ({"segments": np.array([[0, 50, 61, 0]])}, "segment 50 to 61 of series s0 is not within its 60 samples"),
            ({"segments": np.array([[1, 45, 55, 0]])}, "unmarked stretch 50 to 60 of series s1 overlaps segment 45"),
            ({"labels": np.array(["a", "?"])}, "labels must be different names, none of them empty or ?"),
        ],
    )
    def test_malformed_archives(self, tmp_path, changed, message):
        path = signals.save(tmp_path, **changed)
        with pytest.raises(ValueError, match=f"^{re.escape(path)}: .*{re.escape(message)}"):
            read_series(path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("series,label\na,b\n", ":1: expected a header with the names of the channels"),
            ("x,label\n1,a\ntwo,a\n", ":3: expected 2 fields, with numbers for channels"),
            ("x,label\n1,a\n2\n3,a,b\n", ":4: expected 2 fields, with numbers for channels"),
            ("x,label\ninf,a\n", ":2: expected 2 fields, with numbers for channels"),
            ("x,label\n", ": no samples"),
        ],
    )
    def test_malformed_tables(self, tmp_path, text, message):
        path = tmp_path / "bad.csv"
        path.write_text(text)
        with pytest.raises(ValueError, match=re.escape(f"{path}{message}")):
            read_series(str(path))


class TestResampled:
    def test_means_of_samples(self):
        series = Series("s", np.arange(7, dtype=np.float32)[:, None], 10.0)
        found = resampled(series, 3)
        assert found.signal[:, 0].tolist() == [1, 4, 6]
        assert found.rate == pytest.approx(10 / 3)
        assert found.segments is None
        assert resampled(series, 1) is series

    def test_boundaries_are_rounded_and_segments_stay_apart(self):
        series = blank(20, (1, 2, "a"), (2, 3, "b"), (8, 13, "c"), unmarked=((13, 20),))
        found = resampled(series, 4)
        assert found.segments == ((0, 1, "a"), (1, 2, "b"), (2, 3, "c"))
        assert found.unmarked == ((3, 5),)


class TestGrammar:
    def test_states_tell_what_was_before(self):
        series = blank(12, (2, 4, "a"), (4, 6, "b"), (8, 10, "a"))
        grammar = Grammar.of([series])
        assert grammar.labels == ["a", "b"]
        assert grammar.states(series, (0, 12)).tolist() == [4, 4, 0, 0, 1, 1, 3, 3, 0, 0, 2, 2]
        assert grammar.starts(series, (0, 12)).tolist() == [4, 4, 0, -1, 1, -1, 3, 3, 0, -1, 2, 2]
        assert grammar.names() == ["a", "b", "after a", "after b", "before all"]
        assert grammar.pairs == [[0, 1], [0, 2], [1, 3], [3, 0], [4, 0]]
        assert grammar.first == [4]

    def test_segments_are_those_of_the_states(self):
        series = blank(12, (0, 2, "a"), (2, 4, "a"), (4, 5, "b"), (9, 12, "a"))
        grammar = Grammar.of([series])
        assert grammar.segments(grammar.starts(series, (0, 12)).tolist(), False) == series.segments
        merged = ((0, 4, "a"), *series.segments[2:])  # states of positions do not part them
        assert grammar.segments(grammar.states(series, (0, 12)).tolist(), True) == merged

    def test_what_follows_something_unknown_takes_the_usual_state(self):
        series = blank(20, (1, 3, "b"), (4, 6, "a"), (7, 9, "b"), (14, 16, "a"), unmarked=((10, 12),))
        grammar = Grammar.of([series])
        assert series.marked == [(0, 10), (12, 20)]
        assert grammar.previous == [3, 2]
        assert grammar.states(series, (12, 20)).tolist() == [3, 3, 0, 0, 2, 2, 2, 2]
        assert grammar.first == [4]

    def test_where_no_series_has_a_marked_begin_it_may_begin_with_all_states_that_occur(self):
        series = blank(12, (2, 4, "a"), (6, 8, "b"), unmarked=((0, 2), (8, 12)))
        assert Grammar.of([series]).first == [0, 1, 2]

    def test_what_unmarked_stretches_alone_follow_is_no_dead_end(self):
        known = blank(12, (0, 2, "b"), (2, 4, "a"), (4, 12, "b"))
        cut = blank(12, (0, 4, "s"), unmarked=((4, 12),))
        assert Grammar.of([known, cut]).pairs == [[0, 1], [1, 0], [2, 0], [2, 1], [2, 2]]
        ended = blank(4, (0, 4, "s"))  # nothing follows it, as known from the data
        assert Grammar.of([known, ended]).pairs == [[0, 1], [1, 0]]

    def test_unmarked_positions_may_have_all_states(self):
        series = blank(16, (1, 3, "a"), (4, 6, "b"), (11, 13, "a"), unmarked=((7, 9),))
        allowed = Grammar.of([series]).allowed(series)
        states = [np.flatnonzero(own).tolist() for own in allowed]
        # Before the last segment it is not known which one was before.
        unknown, open_gap = [0, 1, 2, 3, 4], [2, 3, 4]
        assert states[:7] == [[4], [0], [0], [2], [1], [1], [3]]
        assert states[7:] == [unknown, unknown, open_gap, open_gap, [0], [0], [2], [2], [2]]

    def test_any_order(self):
        grammar = Grammar.of([blank(6, (0, 2, "a"), (3, 5, "b"))], any_order=True)
        mask = grammar.transition_mask(repeats=True)
        allowed = {(i, j) for i, j in itertools.product(range(5), repeat=2) if mask[i, j] == 0}
        gaps = {(i, i) for i in range(5)} | {(0, 2), (1, 3)}
        assert allowed == gaps | {(i, j) for i in range(5) for j in range(2)}
        assert bool((grammar.first_mask() == 0).all())

    def test_nothing_to_learn_from(self):
        with pytest.raises(ValueError, match="these series have no segments to learn from"):
            Grammar.of([blank(5)])


class TestMeasures:
    def test_by_hand(self):
        series = blank(100, (10, 20, "a"), (30, 40, "b"), (50, 60, "a"), unmarked=((80, 100),))
        found = [Segment(11, 22, "a"), Segment(33, 37, "b"), Segment(70, 75, "b"), Segment(85, 90, "a")]
        measures = Measures.of([series], [found], tolerance=2)
        a, b = measures.boundaries["a"], measures.boundaries["b"]
        assert (a.gold, a.predicted, a.correct) == (4, 2, 2)  # what was found where nothing is marked does not count
        assert (b.gold, b.predicted, b.correct) == (2, 4, 0)
        a, b = measures.segments["a"], measures.segments["b"]
        assert (a.gold, a.predicted, a.correct) == (2, 1, 1)
        assert (b.gold, b.predicted, b.correct) == (1, 2, 0)  # 4 of 10 samples are not more than half
        assert measures.metrics()["accuracy"] == pytest.approx((80 - 3 - 6 - 10 - 5) / 80)
        assert wrong_boundaries(series, found, 2) == 2 + 6
        assert wrong_boundaries(series, series.segments, 0) == 0

    def test_each_boundary_counts_once(self):
        series = blank(30, (10, 20, "a"))
        measures = Measures.of([series], [[Segment(9, 10, "a"), Segment(11, 20, "a")]], tolerance=3)
        assert (measures.boundaries["a"].correct, measures.boundaries["a"].predicted) == (2, 4)

    def test_as_many_as_possible_are_matched(self):
        rng = np.random.default_rng(0)
        for _ in range(50):
            true, own = (sorted(rng.choice(12, 4, replace=False).tolist()) for _ in range(2))
            series = blank(20, *((t, t + 1, "a") for t in true))
            measures = Measures.of([series], [[Segment(t, t + 1, "a") for t in own]], tolerance=1)
            orders = itertools.permutations(own)
            most = max(sum(abs(a - b) <= 1 for a, b in zip(true, order, strict=True)) for order in orders)
            assert measures.boundaries["a"].correct == 2 * most

    def test_the_tolerance_is_in_units_of_time(self):
        series = Series("s", np.zeros((100, 1), dtype=np.float32), 50.0, (Segment(10, 20, "a"),))
        found = [[Segment(15, 20, "a")]]
        right = [Measures.of([series], found, tolerance).boundaries["a"].correct for tolerance in (0.099, 0.1)]
        assert right == [1, 2]


@pytest.mark.parametrize("model", ["chain", "semi-markov"])
class TestModels:
    def test_what_is_not_marked_does_not_matter(self, model):
        examples = signals.series(4)
        task = Segments(model=model, layers=1, width=3, normalize=False)
        fitted = task.fit(examples)
        other = [
            Series(s.name, np.where(np.arange(60)[:, None] < 52, s.signal, 7.0), s.rate, s.segments, s.unmarked)
            if s.unmarked
            else s
            for s in examples
        ]
        problems = [fitted.problem(own) for own in (examples, other)]
        w = torch.randn(problems[0].dim, generator=torch.Generator().manual_seed(0)).double()
        assert problems[0].n == 4
        assert problems[0].loss(w) == pytest.approx(problems[1].loss(w), rel=1e-12)

    def test_the_loss_is_the_hinge_of_the_marked_stretches(self, model):
        examples = signals.series(2)
        fitted = Segments(model=model, layers=1, width=3).fit(examples)
        problem = fitted.problem(examples)
        w = torch.randn(problem.dim, generator=torch.Generator().manual_seed(0)).double()
        module, loss = fitted.module(), StructuralHinge(cost=Hamming(), reduction="none")
        torch.nn.utils.vector_to_parameters(w, module.parameters())
        losses = [loss(module(x), y).item() for x, y in (problem.batch(torch.tensor([i])) for i in range(2))]
        assert problem.loss(w) == pytest.approx(np.mean(losses))

    def test_the_loss_of_whole_series_sums_over_what_agrees_with_the_marks(self, model):
        examples = signals.series(4)
        for layers in (1, 2):
            fitted = Segments(model=model, layers=layers, width=3, unmarked="partial").fit(examples)
            problem, module = fitted.problem(examples), fitted.module()
            w = torch.randn(problem.dim, generator=torch.Generator().manual_seed(0)).to(problem.start())
            torch.nn.utils.vector_to_parameters(w, module.parameters())
            losses = []
            for own in examples:
                data = LinearModuleProblem if layers == 1 else ModuleProblem
                part = fitted.problem([own])
                assert isinstance(part, DifferenceProblem if own.unmarked and layers == 1 else data)
                x = (torch.from_numpy(fitted.signal(own)[None]), torch.tensor([60]), torch.tensor([True]))
                y, allowed = torch.zeros(1, 60).long(), torch.from_numpy(fitted.grammar.allowed(own))[None]
                losses.append(float(StructuralHinge()(module(x), y, allowed).detach()))
            assert problem.loss(w) == pytest.approx(np.mean(losses), rel=1e-5)

    def test_unmarked_stretches_teach_what_they_agree_with(self, model):
        examples = signals.series(12)
        hidden = [Series(s.name, s.signal, s.rate, s.segments[:3], ((s.segments[2].stop, 60),)) for s in examples]
        task = Segments(model=model, layers=1, width=5, unmarked="partial")
        fitted = task.fit(hidden)
        marked = ProximalBCFW().solve(
            Segments(model=model, layers=1, width=5).fit(hidden).problem(hidden), lam=0.01, passes=20
        )
        result = ConvexConcave(inner_passes=8).solve(fitted.problem(hidden), lam=0.01, passes=16, start=marked.weights)
        assert result.row.objective < result.history[0].objective
        found = [ranked[0][1] for ranked in fitted.predict(result.weights, examples)]
        assert fitted.measure(examples, found)[0]["boundary_f1"] > 0.95

    def test_nothing_that_training_data_never_have_is_predicted(self, model):
        examples = signals.series(4)
        fitted = Segments(model=model, layers=1, width=3).fit(examples)
        w = torch.randn(fitted.problem(examples).dim, generator=torch.Generator().manual_seed(0)).double()
        for ranked in fitted.predict(w, examples, 3):
            for _, segments in ranked:
                assert [s.label for s in segments] == (["bump", "dip"] * len(segments))[: len(segments)]
                assert all(0 <= a.start < a.stop < b.start for a, b in itertools.pairwise(segments))

    def test_small_networks_learn(self, model, tmp_path):
        examples = signals.series(8)
        trained = train(Segments(model=model, layers=2, width=5, hidden=6), examples, passes=12)
        assert trained.score(signals.series(8, seed=1))["boundary_f1"] > 0.9
        trained.save(tmp_path / "model")
        assert load(tmp_path / "model").predict(examples) == trained.predict(examples)


def test_durations_are_learned():
    """The signal does not tell how long a segment is, but all are of the same length."""
    rng = np.random.default_rng(0)
    examples = []
    for _ in range(12):
        start = int(rng.integers(3, 20))
        signal = rng.normal(0, 0.1, (40, 1))
        signal[start] = 5.0
        examples.append(Series("s", signal.astype(np.float32), 1.0, (Segment(start, start + 9, "a"),)))
    errors = {}
    for model in ("chain", "semi-markov"):
        task = Segments(model=model, layers=1, width=3, tolerance=0.5, min_duration=1)
        trained = train(task, examples[:8], solver=BCFW(), lam=0.01, passes=40)
        errors[model] = sum(map(task.fit(examples[:8]).mistake, examples[8:], trained.predict(examples[8:])))
    assert errors["semi-markov"] == 0 < errors["chain"]


def test_other_numbers_of_channels_are_refused():
    examples = signals.series(2)
    fitted = Segments(layers=1, width=3).fit(examples)
    w = torch.zeros(fitted.problem(examples).dim).double()
    with pytest.raises(ValueError, match="series s must have 2 channels, as in training, got 1"):
        fitted.predict(w, [blank(10)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "tree"}, "model must be one of chain, semi-markov, got 'tree'"),
        ({"step": 0}, "step must be at least 1, got 0"),
        ({"width": 4}, "width must be odd, so that a position is in the middle, got 4"),
        ({"tolerance": -1.0}, "tolerance must be at least 0 and finite, got -1.0"),
        ({"rate": 0.0}, "rate must be positive, got 0.0"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        Segments(**settings)


def test_labels_that_training_data_do_not_have():
    fitted = Segments().fit([blank(9, (1, 3, "a"))])
    assert fitted.unseen_labels([blank(9, (1, 3, "b"), (4, 6, "b"), (7, 8, "a"))]) == {"b": 2}


def test_pictures_and_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, settings = signals.save(tmp_path), ["--layers", "1", "--width", "3", "--solver", "bcfw"]
    assert main(["train", "segments", "--train", path, *settings, "--passes", "3", "--out", "model"]) == 0
    command = ["predict", "model", path, "--json", "--pictures", "drawn", "--output", "out.jsonl"]
    assert main(command) == 0
    drawn = sorted((tmp_path / "drawn").iterdir())
    assert [file.name for file in drawn] == [f"{number:04}.png" for number in range(1, 7)]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in drawn)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["series"] for line in lines] == [f"s{number}" for number in range(6)]
    start, stop, label = lines[0]["outputs"][0]["segments"][0]
    assert 0 <= start < stop <= 60
    assert label in signals.SHAPES


def test_long_signals_are_drawn_by_their_extremes():
    signal = np.zeros((5000, 1), dtype=np.float32)
    signal[1234], signal[3210] = 9.0, -9.0
    series = Series("long", signal, 500.0, (Segment(1200, 1300, "a"),), ((4000, 5000),))
    fitted = Segments().fit([series])
    text = fitted.show_example(series, [(1.0, series.segments), (0.5, ())])
    points = [float(point.split(",")[1]) for point in text.partition('points="')[2].partition('"')[0].split()]
    assert len(points) == 2 * 720
    assert min(points) == pytest.approx(6)
    assert max(points) == pytest.approx(104)
    assert "without a 1200 to 1300" in text
    assert text.count("<rect") == 1 + 2 + 1
