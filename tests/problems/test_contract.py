"""What every problem keeps to: passes that agree with its losses, steps, subsets, honest counts of oracle calls."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from linear_problems import SPACES, problem_of
from small_networks import PROBLEMS, chain_problem, partial_problem
from small_parsers import labelled_problem, pair_problem, row_problem
from small_problems import collate, dense_examples, random_dense_problem, random_problem
from small_problems import partial_problem as partial_chains
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BCFW, L2, Entropy, Hamming, LinearScore, Max, ModuleProblem, WeightedHamming
from structsmooth.costs import NormalizedHamming
from structsmooth.problems import (
    DifferenceProblem,
    LinearProblem,
    Problem,
    ShiftedProblem,
    SparseChainProblem,
    TiltedProblem,
)
from structsmooth.smoothing import Smoother
from structsmooth.solvers import sgd, svrg

LAM, KAPPA = 0.3, 0.7
EXACTLY = {"rtol": 0.0, "atol": 1e-10}


def likelihood() -> SparseChainProblem:
    hinge = random_problem(cost=None)
    return SparseChainProblem(hinge.sequences, hinge.labels, hinge.features, hinge.states, None, Entropy(1.0))


def boxed() -> SparseChainProblem:
    dim = random_problem().dim
    return random_problem(bounds=(torch.full((dim,), -0.3), torch.full((dim,), 0.4)))


def linear_scores() -> ModuleProblem:
    sparse = random_problem()
    return ModuleProblem(LinearScore(sparse.features, sparse.states), dense_examples(sparse), collate=collate)


def linearized(build: Callable[[], Problem]) -> Problem:
    problem = build()
    return problem.linearize(problem.start())


def weighted(build: Callable[[], Problem]) -> Problem:
    """Weights that no two examples share."""
    problem = build()
    return problem.weighted(torch.linspace(0.5, 3.0, problem.n))


def shifted(build: Callable[[], Problem]) -> Problem:
    problem = build()
    return ShiftedProblem(problem, problem.within_bounds(gaussian(problem, 5)))


def tilted(build: Callable[[], Problem]) -> Problem:
    problem = build()
    return TiltedProblem(problem, gaussian(problem, 5), 0.7)


COSTS = [Hamming(), NormalizedHamming(), WeightedHamming((1.0, 2.0, 0.5)), None]
MEMBERS: dict[str, Callable[[], Problem]] = {
    **{f"sparse chain {cost}": lambda cost=cost: random_problem(cost=cost) for cost in COSTS},
    "sparse chain, values": lambda: random_problem(valued=True),
    "sparse chain, scaled": lambda: random_problem(transition_scale=2.0),
    "dense chain": random_dense_problem,
    "dense chain, scaled": lambda: random_dense_problem(cost=NormalizedHamming(), transition_scale=0.5),
    "sparse chain, likelihood": likelihood,
    "sparse chain, bounds": boxed,
    "program, rows": row_problem,
    "program, pairs": pair_problem,
    "program, labels": labelled_problem,
    "program, pairs, bounds": lambda: pair_problem(bounds=(torch.full((64,), -0.3), torch.full((64,), 0.4))),
    "program, pairs, likelihood": lambda: pair_problem(costs=None, smoother=Entropy(1.0)),
    "weighted program, rows": lambda: weighted(row_problem),
    **{f"linear {space}": lambda space=space: problem_of(space, chunk_size=4) for space in SPACES},
    "linear classes, smooth": lambda: problem_of("classes", L2(0.5, 2), chunk_size=4),
    "network of linear scores": linear_scores,
    **{f"network {name}": build for name, build in PROBLEMS.items()},
    "network chain, likelihood": lambda: chain_problem(smoother=Entropy(1.0)),
    **{f"linearized {name}": lambda build=build: linearized(build) for name, build in PROBLEMS.items()},
    "partial network tree": partial_problem,
    "partial network chain, likelihood": lambda: partial_problem(chain_problem, Entropy(1.0)),
    "linearized partial network chain": lambda: linearized(lambda: partial_problem(chain_problem)),
    "weighted partial network tree": lambda: weighted(partial_problem),
    "weighted sparse chain": lambda: weighted(random_problem),
    "weighted sparse chain, likelihood": lambda: weighted(likelihood),
    "weighted linear tree": lambda: weighted(lambda: problem_of("tree", chunk_size=4)),
    "weighted network tree": lambda: weighted(PROBLEMS["tree"]),
    "weighted linearized tree": lambda: weighted(lambda: linearized(PROBLEMS["tree"])),
    "weighted and shifted sparse chain": lambda: weighted(lambda: shifted(random_problem)),
    "partial sparse chain": partial_chains,
    "partial dense chain": lambda: partial_chains(random_dense_problem()),
    "partial sparse chain, costs of classes": lambda: partial_chains(random_problem(cost=COSTS[2])),
    "partial sparse chain, likelihood": lambda: partial_chains(likelihood()),
    "weighted partial sparse chain": lambda: weighted(partial_chains),
    "convex partial sparse chain": lambda: linearized(lambda: partial_chains()),
    "tilted sparse chain": lambda: tilted(random_problem),
    "tilted sparse chain, likelihood": lambda: tilted(likelihood),
    "tilted linear tree": lambda: tilted(lambda: problem_of("tree")),
    "weighted and tilted sparse chain": lambda: weighted(lambda: tilted(random_problem)),
    "shifted sparse chain": lambda: shifted(random_problem),
    "shifted sparse chain, bounds": lambda: shifted(boxed),
    "shifted linear tree": lambda: shifted(lambda: problem_of("tree")),
    "shifted network tree": lambda: shifted(PROBLEMS["tree"]),
    "shifted linearized tree": lambda: shifted(lambda: linearized(PROBLEMS["tree"])),
}
every_smoother = pytest.mark.parametrize("smoother", [Max(), L2(0.7, 3)], ids=str)


@pytest.fixture(params=MEMBERS)
def problem(request: pytest.FixtureRequest) -> Problem:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MEMBERS[request.param]()


def gaussian(problem: Problem, seed: int = 0) -> Tensor:
    return torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(problem: Problem, seed: int = 0) -> Tensor:
    """Random weights within the bounds, at which no two outputs have the same score."""
    return problem.within_bounds(problem.start() + 0.3 * gaussian(problem, seed))


def losses(problem: Problem, w: Tensor, smoother: Smoother) -> Tensor:
    """Of all examples, by their weights: the objective is their mean."""
    with torch.no_grad():
        return problem.batch_losses(w, torch.arange(problem.n), smoother) * problem.n * problem.normalized_weights


def inferences(problem: Problem) -> int:
    """Oracle calls on all examples: two each where labels are partial."""
    return problem.inferences(torch.arange(problem.n))


def order(problem: Problem, steps: int = 9, size: int = 1) -> Tensor:
    return torch.randint(problem.n, (steps, size), generator=torch.Generator().manual_seed(1))


def test_starts_where_it_says(problem: Problem) -> None:
    start = problem.start()
    assert start.shape == (problem.dim,)
    assert torch.equal(problem.within_bounds(start), start)
    copy = start.clone()
    start += 1
    assert torch.equal(problem.start(), copy)
    assert problem.oracle_calls == 0


@every_smoother
def test_loss_is_the_mean_of_the_losses(problem: Problem, smoother: Smoother) -> None:
    w = weights(problem)
    assert problem.loss(w, smoother) == pytest.approx(float(losses(problem, w, smoother).mean()), abs=1e-12)
    assert problem.loss(w) == pytest.approx(float(losses(problem, w, problem.smoother).mean()), abs=1e-12)
    assert problem.oracle_calls == 2 * inferences(problem)


@every_smoother
def test_gradient_by_finite_differences(problem: Problem, smoother: Smoother) -> None:
    w, step = weights(problem), 1e-6
    _, gradient = problem.loss_and_grad(w, smoother)
    for seed in range(3):
        v = gaussian(problem, seed + 10)
        above, below = (float(losses(problem, w + t * v, smoother).mean()) for t in (step, -step))
        assert float(gradient @ v) == pytest.approx((above - below) / (2 * step), abs=1e-6)


@every_smoother
def test_a_full_pass_is_that_of_plain_torch(problem: Problem, smoother: Smoother) -> None:
    w = weights(problem)
    full = problem.full_pass(w, smoother, with_loss=True)
    expected = Problem.full_pass(problem, w, smoother, with_loss=True)
    assert full.smoothed_loss == pytest.approx(expected.smoothed_loss, abs=1e-10)
    assert full.loss == pytest.approx(problem.loss(w), abs=1e-10)
    assert_close(full.gradient, expected.gradient, **EXACTLY)
    assert full.smoother == smoother
    assert torch.equal(full.weights, w)
    assert full.weights.data_ptr() != w.data_ptr()


@every_smoother
def test_losses_and_gradient_of_a_batch(problem: Problem, smoother: Smoother) -> None:
    w, batch = weights(problem), torch.tensor([4, 0, 4])
    value, gradient = problem.batch_loss_and_grad(w, batch, smoother)
    assert float(value) == pytest.approx(float(losses(problem, w, smoother)[batch].mean()), abs=1e-12)
    assert_close(gradient, Problem.batch_loss_and_grad(problem, w, batch, smoother)[1], **EXACTLY)
    assert not value.requires_grad
    assert not gradient.requires_grad


@every_smoother
def test_change_of_the_gradient_is_the_difference_of_two(problem: Problem, smoother: Smoother) -> None:
    w, v, batch = weights(problem), weights(problem, 1), torch.tensor([4, 0, 4])
    snapshot, calls = problem.full_pass(v, smoother), problem.oracle_calls
    change = problem.gradient_change(w, snapshot, batch)
    assert 0 < problem.oracle_calls - calls <= 2 * problem.inferences(batch)
    assert_close(change, Problem.gradient_change(problem, w, snapshot, batch), **EXACTLY)


@every_smoother
@pytest.mark.parametrize("size", [1, 2])
def test_epochs_are_those_of_plain_torch(problem: Problem, smoother: Smoother, size: int) -> None:
    w, batches = weights(problem), order(problem, size=size)
    snapshot = problem.full_pass(w, smoother)
    proximal: dict[str, Any] = {"step_size": 0.02, "lam": LAM, "kappa": KAPPA, "center": weights(problem, 2)}
    expected = svrg.epoch.dispatch(object)(problem, snapshot, batches, **proximal)
    assert_close(svrg.epoch(problem, snapshot, batches, **proximal), expected, **EXACTLY)
    t = torch.arange(1, len(batches) + 1, dtype=torch.float64)
    steps: dict[str, Any] = {"step_sizes": 0.1 / (t + 3), "lam": LAM, "smoother": smoother, "averaging_weights": t}
    expected = sgd.epoch.dispatch(object)(problem, w, batches, **steps)
    assert_close(sgd.epoch(problem, w, batches, **steps), expected, **EXACTLY)


def test_copies_have_the_same_losses(problem: Problem) -> None:
    w = weights(problem)
    if isinstance(problem, LinearProblem) and problem.smoother == Max():
        BCFW().solve(problem, lam=LAM, passes=1)  # keeps graphs and examples
    copy = deepcopy(problem)
    assert torch.equal(losses(copy, w, L2()), losses(problem, w, L2()))
    calls = problem.oracle_calls
    copy.full_pass(w, Max())
    assert (problem.oracle_calls, copy.oracle_calls) == (calls, calls + inferences(problem))


def test_parts_of_it_have_its_losses(problem: Problem) -> None:
    w, indices = weights(problem), torch.tensor([4, 1, 1, 2])
    expected = (losses(problem, w, problem.smoother) * problem.total_weight / problem.n)[indices]
    restricted, used = problem.restrict(indices, w)
    for part, v in ((problem.subset(indices), w), (problem.lazy_subset(indices), w), (restricted, used)):
        assert (part.n, part.dim, part.smoother) == (4, len(v), problem.smoother)
        assert (part.batch_size, part.chunk_size) == (problem.batch_size, problem.chunk_size)
        if not isinstance(getattr(problem, "cost", None), Tensor):
            assert getattr(part, "cost", None) == getattr(problem, "cost", None)
        assert_close(losses(part, v, problem.smoother) * part.total_weight / part.n, expected, rtol=0, atol=1e-12)
        assert (part.bounds is None) == (problem.bounds is None)
        assert torch.equal(part.within_bounds(v), v)
    assert problem.oracle_calls == 0


def test_every_inference_counts(problem: Problem) -> None:
    w, each, smoother = weights(problem), inferences(problem) // problem.n, problem.smoother
    ones = torch.ones(9, dtype=torch.float64)
    for calls, run in (
        (problem.n, lambda: problem.loss(w)),
        (problem.n, lambda: problem.full_pass(w, smoother, with_loss=True)),
        (3, lambda: problem.batch_loss_and_grad(w, torch.tensor([0, 2, 2]), smoother)),
        (
            9,
            lambda: sgd.epoch(
                problem, w, order(problem), step_sizes=0.01 * ones, lam=0.1, smoother=smoother, averaging_weights=ones
            ),
        ),
    ):
        before = problem.oracle_calls
        run()
        assert problem.oracle_calls == before + each * calls


def test_arguments_are_not_mutated(problem: Problem) -> None:
    w, center, batches = weights(problem), weights(problem, 1), order(problem)
    full, ones = problem.full_pass(w, L2()), torch.ones(9, dtype=torch.float64)
    tensors = [w, center, batches, ones, full.weights, full.gradient]
    copies = [tensor.clone() for tensor in tensors]
    svrg.epoch(problem, full, batches, step_size=0.1, lam=0.1, kappa=1.0, center=center)
    sgd.epoch(problem, w, batches, step_sizes=0.1 * ones, lam=0.1, smoother=Max(), averaging_weights=ones)
    problem.gradient_change(center, full, torch.tensor([1, 2]))
    problem.loss(w)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(tensors, copies, strict=True))
    assert not w.requires_grad


def test_a_linearization_touches_the_problem(problem: Problem) -> None:
    w = weights(problem)
    linear = problem.linearize(w)
    # The convex problem of hinges with partial labels has outputs in the place of smoothed maxima.
    for smoother in [problem.smoother] if isinstance(problem, DifferenceProblem) else [Max(), L2(0.7, 3)]:
        value, gradient = problem.loss_and_grad(w, smoother)
        assert linear.loss(w, smoother) == pytest.approx(value, abs=1e-10)
        assert_close(linear.loss_and_grad(w, smoother)[1], gradient, **EXACTLY)
    if isinstance(problem, LinearProblem):
        assert linear is problem


def test_problems_whose_scores_are_affine_say_so(problem: Problem) -> None:
    """Linearized elsewhere, only these have the same losses."""
    linear, w = problem.linearize(weights(problem)), weights(problem, seed=1)
    assert linear.affine
    assert problem.affine == (linear.loss(w) == pytest.approx(problem.loss(w), rel=0, abs=1e-10))


@pytest.mark.parametrize("asked", [Max(), L2(0.7, 3)], ids=str)
def test_a_pass_of_a_linear_problem_is_a_point_of_the_dual(problem: Problem, asked: Smoother) -> None:
    """f_i(w) = ⟨ℓ_i, m_i⟩ + ⟨w, ∇f_i⟩ for the statistics m_i of a maximum: the tangent at w bounds f from below."""
    if not isinstance(problem, LinearProblem) or not isinstance(problem.smoother, Max):
        return
    w = weights(problem)
    full = problem.full_pass(w, asked)
    assert full.expected_cost is not None
    tangent = full.expected_cost + float(full.gradient @ w)
    loss = problem.loss(w)
    assert tangent == pytest.approx(loss, abs=1e-10) if asked == Max() else tangent <= loss + 1e-10
    for seed in range(1, 4):
        v = weights(problem, seed)
        assert full.expected_cost + float(full.gradient @ v) <= problem.loss(v) + 1e-10
