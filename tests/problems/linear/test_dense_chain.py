"""Chains over dense features, valued attributes and scaled transitions: enumeration, and plain torch passes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_problems import EnumeratedProblem, random_dense_problem, random_problem, random_weights
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BCFW, L2, Entropy
from structsmooth.costs import NormalizedHamming
from structsmooth.problems import DenseChainProblem, LinearProblem, Problem, SparseChainProblem
from structsmooth.solvers import Cache, DualIterate, Status, sdca, sgd, svrg
from structsmooth.solvers.bcfw.steps import epoch, plain
from structsmooth.solvers.sdca import SmoothedIterate

LAM = 0.1
EXACTLY = {"rtol": 0.0, "atol": 1e-10}
ChainProblem = SparseChainProblem | DenseChainProblem
KINDS: dict[str, Callable[[], ChainProblem]] = {
    "dense": random_dense_problem,
    "dense, scaled": lambda: random_dense_problem(cost=NormalizedHamming(), transition_scale=2.0),
    "values, scaled": lambda: random_problem(valued=True, transition_scale=0.5),
    "weighted": lambda: random_problem().weighted(torch.linspace(0.5, 3.0, 5)),
}


@pytest.fixture(params=KINDS)
def problem(request: Any) -> ChainProblem:
    return KINDS[request.param]()


def order_of(problem: ChainProblem, steps: int) -> Tensor:
    """Pass by pass, so that no example follows itself: after an exact step, two outputs of an example tie."""
    order = torch.randperm(problem.n, generator=torch.Generator().manual_seed(1))
    return order.repeat(-(-steps // problem.n))[:steps]


def random_iterate(problem: ChainProblem) -> DualIterate:
    """Three different outputs for each example, away from ties."""
    generator = torch.Generator().manual_seed(3)
    alphas = torch.randn(problem.n, 3, generator=generator, dtype=torch.float64).softmax(1)
    statistics, sets = [], []
    for i, own in enumerate(alphas):
        first = torch.randint(3, problem.label_atom(i).shape, generator=generator)
        outputs = (first + torch.arange(3)[:, None]) % 3
        parts = [torch.cat([p.flatten() for p in problem.parts(y, i)]) for y in outputs]
        statistics.append(own @ torch.stack(parts))
        sets.append(outputs.flatten().int())
    m, gaps = torch.cat(statistics), torch.ones(problem.n, dtype=torch.float64)
    stamps = torch.tensor([1, 0, 2], dtype=torch.int32).repeat(problem.n, 1)
    return DualIterate(problem.dual_weights(m, LAM), m, gaps, torch.cat(sets), alphas, stamps)


def test_losses_by_enumeration(problem: ChainProblem) -> None:
    w = random_weights(problem)
    margins = [torch.from_numpy(m) for m in EnumeratedProblem(problem).margins(w.numpy())]
    shares = problem.normalized_weights.tolist()
    hinges = sum(share * float(m.max()) for share, m in zip(shares, margins, strict=True))
    assert problem.loss(w) == pytest.approx(hinges, abs=1e-12)
    entropy = sum(share * float(0.5 * (m / 0.5).logsumexp(0)) for share, m in zip(shares, margins, strict=True))
    assert problem.loss(w, Entropy(0.5)) == pytest.approx(entropy, abs=1e-12)


@pytest.mark.parametrize("smoother", [L2(0.7, 3), Entropy(0.5)], ids=str)
def test_primal_passes_are_the_default(problem: ChainProblem, smoother: Any) -> None:
    w, order = random_weights(problem), order_of(problem, 24)[:, None]
    full, default = problem.full_pass(w, smoother), Problem.full_pass(problem, w, smoother)
    assert full.smoothed_loss == pytest.approx(default.smoothed_loss, rel=0, abs=1e-10)
    assert_close(full.gradient, default.gradient, **EXACTLY)
    settings = {"step_size": 0.1, "lam": 0.3, "kappa": 0.7, "center": random_weights(problem, 2)}
    expected = svrg.epoch.dispatch(object)(problem, full, order, **settings)
    assert_close(svrg.epoch(problem, full, order, **settings), expected, **EXACTLY)
    t = torch.arange(1, 25, dtype=torch.float64)
    settings = {"step_sizes": 1 / (t + 3), "lam": 0.3, "smoother": smoother, "averaging_weights": t}
    expected = sgd.epoch.dispatch(object)(problem, w, order, **settings)
    assert_close(sgd.epoch(problem, w, order, **settings), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("steps", ["fw", "pairwise"])
def test_frank_wolfe_steps_are_the_default(problem: ChainProblem, steps: Any) -> None:
    point, order = random_iterate(problem), order_of(problem, 20)
    shares = torch.linspace(0.1, 1.0, 20, dtype=torch.float64)
    settings = {
        "lam": LAM,
        "steps": steps,
        "averaging_weights": shares,
        "cache": Cache(0.25, 1e-3),
    }  # gains of zero are ties
    reached, total = epoch(problem, point, order, **settings)
    expected, expected_total = plain(problem, point, order, **settings)
    assert_close(reached.weights, expected.weights, **EXACTLY)
    assert_close(reached.statistics, expected.statistics, **EXACTLY)
    assert_close(total, expected_total, **EXACTLY)
    assert_close(problem.dual_weights(reached.statistics, LAM), reached.weights, **EXACTLY)
    own, w = reached.statistics, reached.weights
    assert_close(problem.block_gaps(w, own), LinearProblem.block_gaps(problem, w, own), **EXACTLY)
    assert_close(problem.block_margins(w, own), LinearProblem.block_margins(problem, w, own), **EXACTLY)


def test_dual_ascent_is_the_default(problem: ChainProblem) -> None:
    point = SmoothedIterate(problem.start(), problem.label_statistics(), torch.zeros(problem.n).double())
    settings = {"lam": LAM, "smoother": Entropy(0.5)}
    reached = sdca.epoch(problem, point, order_of(problem, 20), **settings)
    expected = sdca.epoch.dispatch(object)(problem, point, order_of(problem, 20), **settings)
    assert_close((reached.weights, reached.smoothing_offset), (expected.weights, expected.smoothing_offset), **EXACTLY)


def test_features_are_linear_maps(problem: ChainProblem) -> None:
    w, generator = random_weights(problem), torch.Generator().manual_seed(2)
    for i in range(problem.n):
        m = tuple(torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in problem.potentials(w, i))
        inner = sum(float((a * b).sum()) for a, b in zip(m, problem.potentials(w, i), strict=True))
        adjoint = problem.adjoint(m, i)
        assert float(adjoint @ w) == pytest.approx(inner, abs=1e-10)
        assert problem.feature_map.squared_norm(m, i) == pytest.approx(float(adjoint.square().sum()), abs=1e-10)


def test_a_scale_regularizes_transitions_less() -> None:
    """A scale c is worth λ/c² in place of λ for transitions."""
    w = random_weights(random_dense_problem())
    plain, scaled = random_dense_problem(), random_dense_problem(transition_scale=2.0)
    rows, transition, ends = plain.views(w)
    stretched = torch.cat([rows, 2 * transition, ends]).flatten()
    assert scaled.loss(w) == pytest.approx(plain.loss(stretched), abs=1e-12)


def test_two_threads_certify_what_one_does() -> None:
    problem = random_dense_problem(tuple(3 for _ in range(20)))
    one = BCFW(gap_tolerance=1e-3).solve(problem, lam=0.1, passes=200)
    two = BCFW(gap_tolerance=1e-3, threads=2).solve(problem, lam=0.1, passes=200)
    assert one.status is two.status is Status.CONVERGED
    first, second = one.row, two.row
    assert max(first.dual, second.dual) <= min(first.objective, second.objective)
    assert first.objective == pytest.approx(second.objective, rel=1.01e-3)  # as their gaps imply


def test_subset_keeps_the_settings() -> None:
    problem = random_dense_problem(transition_scale=2.0, cost=NormalizedHamming())
    part, w = problem.subset(torch.tensor([4, 1])), random_weights(problem)
    assert part.sequences.lengths.tolist() == [3, 1]
    losses = [problem.subset(torch.tensor([i])).loss(w) for i in (4, 1)]
    assert part.loss(w) == pytest.approx(sum(losses) / 2, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"features": torch.zeros(3)}, ValueError, r"features must have 2 dimensions, got shape \(3,\)"),
        ({"features": torch.zeros(3, 2).half()}, TypeError, "features must be float32 or float64, got torch.float16"),
        ({"features": torch.full((3, 2), torch.nan)}, ValueError, "features must be finite"),
        (
            {"lengths": torch.tensor([1, 1])},
            ValueError,
            "lengths must be at least 0 and sum to the number of tokens, 3",
        ),
        ({"lengths": torch.tensor([3, 0])}, ValueError, "sequence 1 is empty"),
        ({"lengths": torch.tensor([1.0, 2.0])}, TypeError, "lengths must be int64, got torch.float32"),
        ({"labels": torch.tensor([0, 1, 2])}, ValueError, "labels must be from 0 to 1, got 0 to 2"),
        ({"transition_scale": 0.0}, ValueError, "transition_scale must be positive and finite, got 0.0"),
    ],
)
def test_refuses_bad_data(change: dict[str, Any], error: type[Exception], message: str) -> None:
    good = {"features": torch.zeros(3, 2), "labels": torch.tensor([0, 1, 1]), "lengths": torch.tensor([1, 2])}
    with pytest.raises(error, match=message):
        DenseChainProblem(**good | {"states": 2} | change)
