"""Durations within limits, probabilities of segments, and windows: against all segmentations."""

from dataclasses import fields, replace
from itertools import pairwise, product

import numpy as np
import pytest
import signals
import torch

from structsmooth import LinearChain, ProximalBCFW, SemiMarkov, train
from structsmooth.calibration import tempered
from structsmooth.tasks import Segments
from structsmooth.tasks.segments import FittedSegments
from structsmooth.tasks.segments.decoding import span_probabilities, window_of
from structsmooth.tasks.segments.durations import Limits
from structsmooth.tasks.segments.runs import Runs
from structsmooth.tasks.segments.series import Segment, Series

LEARNED = {f.name for f in fields(FittedSegments)} - {"task"}


def runs_of(y):
    edges = [0, *(t for t in range(1, len(y)) if y[t] != y[t - 1]), len(y)]
    return [(a, b, y[a]) for a, b in pairwise(edges)]


@pytest.mark.parametrize("least", [(1, 1, 1), (2, 3, 1), (9, 2, 1)])
@pytest.mark.parametrize("cut", [True, False])
def test_runs_are_those_of_the_chain_that_are_long_enough(least, cut):
    generator = torch.Generator().manual_seed(sum(least))
    unary = torch.randn(1, 5, 3, generator=generator, dtype=torch.float64)
    transition = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    transition[0, 2] = -torch.inf
    space, chain = Runs(unary, transition, least, cut), LinearChain(unary, transition)
    y = torch.tensor(
        [
            states
            for states in product(range(3), repeat=5)
            if all(b - a >= least[s] or b == 5 or (a == 0 and cut) for a, b, s in runs_of(states))
        ]
    )
    scores = torch.cat([chain.score(row[None]) for row in y])
    assert torch.allclose(torch.cat([space.score(row[None]) for row in y]), scores)
    assert torch.allclose(space.logsumexp(), scores.logsumexp(0))
    values, best = space.topk(4)
    ordered = scores.sort(descending=True)
    assert torch.allclose(values[0], ordered.values[:4])
    assert torch.equal(best[0], y[ordered.indices[:4]])
    spans = [(a, b, s) for a in range(5) for b in range(a + 1, 6) for s in range(3)]
    shares = scores.softmax(0).tolist()
    expected = [sum(p for p, row in zip(shares, y.tolist(), strict=True) if span in runs_of(row)) for span in spans]
    assert space.run_probabilities(spans) == pytest.approx(expected, abs=1e-10)
    with pytest.raises(NotImplementedError, match="no max-marginals"):
        space.max_marginals()


def test_segments_of_semi_markov_models_keep_to_limits_and_have_probabilities():
    generator = torch.Generator().manual_seed(0)
    potentials = [torch.randn(*shape, generator=generator).double() for shape in ((1, 5, 3), (3, 3), (4, 3))]
    potentials[2][1:, 2] = -torch.inf  # what lies between segments stands alone
    space = Limits([2, 1], [3, 2]).applied(SemiMarkov(*potentials), cut=True)
    assert isinstance(space, SemiMarkov)
    values, y = space.topk(10_000)
    found = y[0][values[0] > -torch.inf].tolist()
    shares = values[0][values[0] > -torch.inf].softmax(0).tolist()

    def segments_of(states):
        edges = [*(t for t, state in enumerate(states) if state >= 0), 5]
        return [(a, b, states[a]) for a, b in pairwise(edges)]

    of_labels = [[s for s in segments_of(states) if s[2] < 2] for states in found]
    for a, b, label in {span for spans in of_labels for span in spans}:
        assert b - a <= [3, 2][label]
        assert b - a >= [2, 1][label] or a == 0 or b == 5
    for spans in of_labels[:20]:
        expected = [sum(p for p, others in zip(shares, of_labels, strict=True) if span in others) for span in spans]
        assert span_probabilities(space, spans) == pytest.approx(expected, abs=1e-10)


@pytest.fixture(scope="module", params=["chain", "semi-markov"])
def model(request):
    task = Segments(model=request.param, width=5, layers=1)
    return train(task, signals.series(8), solver=ProximalBCFW(), passes=15, lam="0.1/n")


def test_no_segment_is_shorter_than_those_of_training(model):
    noisy = signals.series(6, noise=1.5, seed=3)
    shortest = dict(zip(model.task.grammar.labels, model.task.limits.shortest, strict=True))
    assert shortest == {"bump": 7, "dip": 4}
    inner = [
        s for series, found in zip(noisy, model.predict(noisy), strict=True) for s in found if s.stop < 60 and s.start
    ]
    assert inner
    assert all(s.stop - s.start >= shortest[s.label] for s in inner)
    free = replace(model.task, limits=replace(model.task.limits, shortest=[1, 1]))
    assert any(
        s.stop - s.start < shortest[s.label] for ranked in free.predict(model.weights, noisy) for s in ranked[0][1]
    )
    asked = replace(model.task.task, min_duration=12).fit(signals.series(8)).limits.shortest
    assert asked == [12, 12]


def joined(count):
    """A long series of some short ones, and its segments."""
    parts = signals.series(count, noise=0.8)
    segments = [Segment(60 * i + a, 60 * i + b, label) for i, own in enumerate(parts) for a, b, label in own.segments]
    return Series("long", np.concatenate([own.signal for own in parts]), 1.0, tuple(segments))


def test_windows_leave_no_seams(model):
    long = joined(12)
    whole, windowed = (replace(model.task, task=replace(model.task.task, window=w)) for w in (10_000, 90))
    ((score, segments),) = whole.predict(model.weights, [long])[0]
    ((other, found),) = windowed.predict(model.weights, [long])[0]
    assert found == segments
    assert other == pytest.approx(score)
    (exact,), (near,) = (task.part_probabilities(model.weights, [long], [[segments]])[0] for task in (whole, windowed))
    assert near == pytest.approx(exact, abs=1e-3)
    tiny = replace(model.task, task=replace(model.task.task, window=3))
    assert tiny.predict(model.weights, [long])[0][0][1]


def test_probabilities_of_predicted_segments_are_calibrated_by_one_number(model):
    held_out = signals.series(10, noise=0.6, seed=5)
    assert model.task.temperature is None
    calibrated = model.calibrated(held_out)
    assert calibrated.task.temperature > 0
    outputs = calibrated.predict(held_out)
    before, after = (m.task.reliability(m.weights, held_out, outputs) for m in (model, calibrated))
    assert int(after.counts.sum()) > 30
    assert after.error < before.error
    restored = FittedSegments.from_learned(
        model.task.task, {k: v for k, v in calibrated.task.to_dict().items() if k in LEARNED}
    )
    assert restored == calibrated.task


def test_probabilities_agree_with_samples_of_states(model):
    (series,) = signals.series(1, noise=1.0, seed=9)
    (ranked,) = model.task.predict(model.weights, [series])
    ((found,),) = model.task.part_probabilities(model.weights, [series], [[ranked[0][1]]])
    decoder_scores = model.task.limits.applied(
        tempered(model.task.module(model.weights)(model.task._part(model.task.signal(series), (0, 60))), None), True
    )
    draws = decoder_scores.sample(3000, torch.Generator().manual_seed(0))[0].tolist()
    drawn = [model.task.grammar.segments(y, not model.task.task.has_durations) for y in draws]
    shares = [sum(segment in segments for segments in drawn) / len(drawn) for segment in ranked[0][1]]
    assert found == pytest.approx(shares, abs=0.04)
    (marginals,) = model.task.marginals(model.weights, [series])
    inside = [{(t, s.label) for s in segments for t in range(s.start, s.stop)} for segments in drawn]
    for label, values in marginals.items():
        shares = [sum((t, label) in one for one in inside) / len(inside) for t in range(60)]
        assert values == pytest.approx(shares, abs=0.04)
    windowed = replace(model.task, task=replace(model.task.task, window=40)).marginals(model.weights, [series])[0]
    assert all(windowed[label] == pytest.approx(marginals[label], abs=0.2) for label in marginals)


def test_options_are_checked():
    with pytest.raises(ValueError, match="chains have no longest segment"):
        Segments(max_duration=5)
    with pytest.raises(ValueError, match="max_duration must be at least min_duration, 6, got 5"):
        Segments(model="semi-markov", min_duration=6, max_duration=5)
    with pytest.raises(ValueError, match="max_duration of bump must be at least min_duration, 6, got 5"):
        Segments(model="semi-markov", min_duration=6, max_duration="bump=5")
    for wrong in ("a", "a=0", "a=2,a=3", "=3", "a=x"):
        with pytest.raises(ValueError, match=f"as in helix=7,strand=3; got '{wrong}'"):
            Segments(min_duration=wrong)
    with pytest.raises(ValueError, match="min_duration: no label c in the training data, but bump, dip"):
        Segments(min_duration="c=3").fit(signals.series(8))
    limits = Segments(model="semi-markov", step=2, max_duration=30).fit(signals.series(8)).limits
    assert limits.longest == [15, 15]


def test_limits_that_are_asked_for_count_whatever_training_data_have():
    for option, expected in (({"min_duration": 40}, [[40, 40], [40, 40]]), ({"max_duration": 3}, [[3, 3], [3, 3]])):
        limits = Segments(model="semi-markov", **option).fit(signals.series(8)).limits
        assert [limits.shortest, limits.longest] == expected
    given = (
        Segments(model="semi-markov", step=2, min_duration="bump=9", max_duration="bump=20,dip=30")
        .fit(signals.series(8))
        .limits
    )
    free = Segments(model="semi-markov", step=2).fit(signals.series(8)).limits
    assert [given.shortest, given.longest] == [[5, free.shortest[1]], [10, 15]]
    equal = Segments(model="semi-markov", step=5, min_duration=7, max_duration=7).fit(signals.series(8)).limits
    assert equal.shortest == equal.longest == [2, 2]


def test_windows_are_as_large_as_memory_lets_them():
    assert window_of(longest=10, states=5) == 83886
