"""Block-coordinate Frank-Wolfe: certificates, the explicit dual, compiled against plain steps, a toy example."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag
from scipy.optimize import minimize
from small_problems import EnumeratedProblem, random_problem, random_weights
from solver_cases import ALL, BLOCKWISE, FEATURES, LAM, LENGTHS, STATES, bounded_problem, moments_of, small_problem
from torch import Tensor
from torch.nn.functional import one_hot
from torch.testing import assert_close

from structsmooth import BCFW, Candidates, Hamming, LinearModuleProblem, Max, ScoreModule, WeightedHamming
from structsmooth.costs import Cost, NormalizedHamming
from structsmooth.problems import LinearProblem, OracleOutput, Parts, Problem, SparseChainProblem, respond
from structsmooth.smoothing import Smoother
from structsmooth.solvers import DualIterate, Progress, Result, Status, Stop
from structsmooth.solvers.bcfw import BCFWState
from structsmooth.solvers.bcfw.active_set import ActiveSet, Steps
from structsmooth.solvers.bcfw.steps import epoch, plain

CAPACITY = 3
# Without cost the optimum is w = 0, where all outputs have the same score, and rounding breaks the ties.
COSTS = [Hamming(), NormalizedHamming(), WeightedHamming((1.0, 2.0, 0.5))]
EXACTLY = {"rtol": 0.0, "atol": 1e-10}
every_variant = pytest.mark.parametrize("solver", BLOCKWISE.values(), ids=BLOCKWISE.keys())


def test_pairwise_steps_are_those_of_smo() -> None:
    """The pair of outputs that violates optimality most, of all pairs with weight to give, and the best step for it."""
    problem, solver = small_problem(), BCFW(sampling="uniform", capacity=ALL, gap_tolerance=0)
    enumerated, state = EnumeratedProblem(problem), solver.solve(problem, lam=LAM, passes=4).state
    assert isinstance(state, BCFWState)
    for block in range(problem.n):
        rows, margins = enumerated.differences[block], enumerated.margins(state.point.weights.numpy())[block]
        alpha, stepped = outputs_of(problem, state.point, block), torch.tensor([block])
        give, take = min(alpha, key=lambda y: float(margins[y])), int(margins.argmax())
        size = LAM * problem.n * (margins[take] - margins[give]) / max(np.square(rows[take] - rows[give]).sum(), 1e-12)
        size = min(size, alpha[give])
        point, _ = epoch(problem, state.point, stepped, lam=LAM, steps="pairwise")
        expected = alpha | {take: alpha.get(take, 0.0) + size}
        expected[give] -= size
        after = outputs_of(problem, point, block)
        assert after == pytest.approx({y: weight for y, weight in expected.items() if weight > 0}, abs=1e-10)


def outputs_of(problem: SparseChainProblem, point: DualIterate, block: int) -> dict[int, float]:
    """The active set of an example: weights by number of the output, in the order of an enumeration."""
    held = ActiveSet.of(problem, point, block)
    base = STATES ** torch.arange(held.atoms.shape[1]).flip(0)
    numbers = (held.atoms.long() * base).sum(1).tolist()
    return {y: weight for y, weight in zip(numbers, held.alpha.tolist(), strict=True) if weight > 0}


def iterate(problem: SparseChainProblem, seed: int = 0) -> DualIterate:
    """A random dual iterate: two random outputs in the active set, a third in the cache, and a rest of several."""
    generator = torch.Generator().manual_seed(seed)
    alphas = 0.3 * torch.rand(problem.n, CAPACITY, generator=generator, dtype=torch.float64)
    alphas[:, 2:] = 0
    statistics, sets = [], []
    for i, own in enumerate(alphas):
        length = len(problem.label_atom(i))
        outputs = torch.randint(STATES, (8, length), generator=generator)
        rest = torch.rand(8 - CAPACITY, generator=generator, dtype=torch.float64)
        shares = torch.cat([own, rest / rest.sum() * (1 - own.sum())])
        outputs[1] = (outputs[0] + 1) % STATES
        statistics.append(
            shares @ torch.stack([torch.cat([p.flatten() for p in problem.parts(y, i)]) for y in outputs])
        )
        sets.append(outputs[:CAPACITY].flatten().to(problem.data.label_type))
    m = torch.cat(statistics)
    gaps = torch.rand(problem.n, generator=generator, dtype=torch.float64)
    stamps = torch.tensor([1, 0, 2], dtype=torch.int32).repeat(problem.n, 1)
    return DualIterate(problem.dual_weights(m, LAM), m, gaps, torch.cat(sets), alphas, stamps)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cost", [Hamming(), NormalizedHamming(), None], ids=str)
@pytest.mark.parametrize("name", [name for name, solver in BLOCKWISE.items() if not solver.average])
def test_the_gap_is_the_sum_of_the_block_gaps(name: str, cost: Cost | None, seed: int) -> None:
    problem = small_problem(seed, cost)
    for state, history in moments_of(BLOCKWISE[name], problem, passes=60, seed=seed):
        row, gaps = history[-1], problem.block_gaps(state.weights, state.point.statistics)
        assert row.gap == pytest.approx(float(gaps.sum()), rel=0, abs=1e-9)
        assert (gaps >= -1e-12).all()
        assert row.objective == pytest.approx(
            EnumeratedProblem(problem).objective(state.weights.numpy(), LAM), rel=0, abs=1e-12
        )
        assert_close(problem.dual_weights(state.point.statistics, LAM), state.weights, rtol=0, atol=1e-12)
        assert row.step_size is None


@pytest.mark.parametrize("name", BLOCKWISE)
def test_weights_stay_within_bounds_with_an_exact_gap(name: str) -> None:
    problem = bounded_problem()
    optimum = EnumeratedProblem(problem).optimum(LAM)
    assert problem.bounds is not None
    at_bounds, last = 0, 0.0
    for state, history in moments_of(BLOCKWISE[name], problem, passes=12):
        w, row = problem.within_bounds(state.point.weights), history[-1]
        assert ((state.weights >= problem.bounds[0]) & (state.weights <= problem.bounds[1])).all()
        if not BLOCKWISE[name].average:
            gaps = problem.block_gaps(w, state.point.statistics)
            assert row.gap == pytest.approx(float(gaps.sum()), rel=0, abs=1e-9)
        assert_close(problem.dual_weights(state.point.statistics, LAM), state.point.weights, rtol=0, atol=1e-12)
        objective = EnumeratedProblem(problem).objective(state.weights.numpy(), LAM)
        assert row.objective == pytest.approx(objective, rel=0, abs=1e-12)
        assert last - 1e-12 <= row.dual <= optimum + 1e-9 <= row.objective + 2e-9
        at_bounds, last = int((w != state.point.weights).sum()), row.dual
    assert at_bounds >= 5
    assert row.gap < 0.2 * optimum


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bounded", [False, True])
def test_the_dual_is_that_of_a_quadratic_program(bounded: bool, seed: int) -> None:
    """max bᵀα − (λ/2)‖Aα − β‖² − λ(uᵀβ₊ − lᵀβ₋) over a simplex for each example, β = β₊ − β₋ (eq. 53)."""
    problem = bounded_problem(seed, (2, 1, 2)) if bounded else random_problem((2, 1, 2), 3, FEATURES, seed=seed)
    free = torch.full((problem.dim,), torch.inf, dtype=torch.float64)
    lower, upper = (bound.numpy() for bound in problem.bounds or (-free, free))
    above, below = (np.eye(problem.dim)[np.isfinite(bound)].T for bound in (upper, lower))
    outputs = EnumeratedProblem(problem)
    size = sum(len(c) for c in outputs.costs)
    columns = np.hstack([-np.vstack(outputs.differences).T / (LAM * problem.n), -above, below])
    at = LAM * np.r_[-upper[np.isfinite(upper)], lower[np.isfinite(lower)]]
    costs = np.r_[np.concatenate(outputs.costs) / problem.n, at]
    sums = np.hstack([block_diag(*[np.ones((1, len(c))) for c in outputs.costs]), np.zeros((problem.n, len(at)))])
    solution = minimize(
        lambda a: (LAM / 2 * (columns @ a) @ (columns @ a) - costs @ a, LAM * columns.T @ (columns @ a) - costs),
        np.r_[np.concatenate([np.full(len(c), 1 / len(c)) for c in outputs.costs]), np.zeros(len(at))],
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * size + [(0, None)] * len(at),
        constraints={"type": "eq", "fun": lambda a: sums @ a - 1, "jac": lambda a: sums},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    result = BCFW(steps="pairwise", gap_tolerance=0.01).solve(problem, lam=LAM, passes=3000)
    last = result.row
    assert result.status is Status.CONVERGED
    assert last.dual - 1e-8 <= -solution.fun <= last.dual + last.gap + 1e-8
    distance = float((result.weights - torch.from_numpy(columns @ solution.x)).norm())
    assert distance <= math.sqrt(2 * last.gap / LAM) + 1e-6


def test_outputs_of_older_versions_are_known() -> None:
    problem = small_problem()
    point, order = iterate(problem), torch.arange(problem.n)
    assert point.outputs.dtype == torch.uint8
    older = replace(point, outputs=point.outputs.int())
    own, other = (epoch(problem, p, order, lam=LAM, steps="pairwise")[0] for p in (point, older))
    assert all(map(torch.equal, vars(own).values(), vars(other).values()))


@pytest.mark.parametrize("states", [256, 257])
def test_labels_of_outputs_take_little_room(states: int) -> None:
    problem = random_problem((2, 3, 1), states)
    plain = LinearProblem.label_sets(problem, 4)
    for own, expected in zip(problem.label_sets(4), plain, strict=True):
        assert torch.equal(own, expected.to(own.dtype))
    assert problem.label_sets(4)[0].dtype == (torch.uint8 if states == 256 else torch.int32)
    state = BCFW().solve(problem, lam=LAM, passes=2).state
    assert set(state.point.outputs.tolist()) - set(problem.labels.tolist())


@pytest.mark.parametrize("steps", ["pairwise", "away"])
def test_active_sets_are_what_the_statistics_are_made_of(steps: Steps) -> None:
    """With room for every output nothing is left for the rest."""
    problem = small_problem()
    state, _ = moments_of(BCFW(steps=steps, capacity=27, gap_tolerance=0), problem, passes=60)[-1]
    statistics = torch.zeros_like(problem.label_statistics())
    tokens, begin = 0, 0
    for i, length in enumerate(LENGTHS):
        outputs = state.point.outputs[27 * tokens : 27 * (tokens + length)].view(27, length).long()
        parts = [torch.cat([p.flatten() for p in problem.parts(y, i)]) for y in outputs]
        statistics[begin : begin + len(parts[0])] = state.point.alphas[i] @ torch.stack(parts)
        tokens, begin = tokens + length, begin + len(parts[0])
    assert_close(state.point.alphas.sum(1), torch.ones(problem.n, dtype=torch.float64), rtol=0, atol=1e-12)
    assert_close(statistics, problem.unpacked(state.point.statistics), rtol=0, atol=1e-10)
    assert (state.point.alphas > 0).sum() > problem.n


@pytest.mark.parametrize("steps", ["pairwise", "away"])
def test_active_sets_reach_an_accuracy_that_frank_wolfe_does_not(steps: Steps) -> None:
    """They leave outputs behind; Frank-Wolfe steps take ever smaller steps towards them and back."""
    problem = small_problem()
    gaps = [
        BCFW(sampling="uniform", steps=kind, gap_tolerance=0).solve(problem, lam=LAM, passes=400).row.gap
        for kind in ("fw", steps)
    ]
    assert gaps[1] < 1e-2 * gaps[0]


@pytest.mark.parametrize("seed", range(4))
def test_compiled_passes_are_the_default(seed: int) -> None:
    problem = random_problem(seed=seed)
    assert torch.equal(problem.label_statistics(), LinearProblem.label_statistics(problem))
    for own, other in zip(problem.label_sets(3), LinearProblem.label_sets(problem, 3), strict=True):
        assert torch.equal(own.to(other.dtype), other)  # labels take a byte
    statistics, w = iterate(problem, seed).statistics, random_weights(problem, seed)
    expected = LinearProblem.expected_cost(problem, statistics)
    assert problem.expected_cost(statistics) == pytest.approx(expected, rel=0, abs=1e-12)
    assert_close(problem.dual_weights(statistics, 0.3), LinearProblem.dual_weights(problem, statistics, 0.3), **EXACTLY)
    assert_close(problem.block_gaps(w, statistics), LinearProblem.block_gaps(problem, w, statistics), **EXACTLY)


def test_a_step_is_the_best_of_its_line() -> None:
    """The dual after a step beats all points of the segment between m_i and the output of the oracle."""
    problem = small_problem()
    start = iterate(problem)
    for i in range(problem.n):
        after, _ = epoch(problem, start, torch.tensor([i]), lam=LAM)
        corner, _ = epoch(problem, start, torch.tensor([i]), lam=1e9)  # γ = 1
        best = dual(problem, after.statistics)
        for share in torch.linspace(0, 1, 11, dtype=torch.float64):
            assert dual(problem, torch.lerp(start.statistics, corner.statistics, share)) <= best + 1e-12
        assert best >= dual(problem, start.statistics) - 1e-12


def dual(problem: LinearProblem, statistics: Tensor) -> float:
    return problem.expected_cost(statistics) - LAM / 2 * float(problem.dual_weights(statistics, LAM).square().sum())


def test_the_average_weighs_iterates_by_their_number() -> None:
    problem = small_problem()
    solver = BCFW(sampling="uniform", steps="fw", average=True)
    point, iterates = DualIterate(problem.start(), problem.label_statistics(), torch.zeros(problem.n).double()), []
    for passed in range(4):  # the same steps, one by one
        state = BCFWState(problem.start(), point=point, passes=passed)
        for choice in solver.order(problem, state, np.random.default_rng([0, passed])):
            point, _ = epoch(problem, point, choice[None], lam=LAM)
            iterates.append(point.weights)
    shares = torch.arange(1, len(iterates) + 1, dtype=torch.float64)
    average = shares @ torch.stack(iterates) / shares.sum()
    assert_close(solver.solve(problem, lam=LAM, passes=4).weights, average, rtol=0, atol=1e-12)


class Toy(LinearProblem):
    """Appendix C: n - 1 examples that one step solves together, and one that takes K; label 0 of K + 1 is right."""

    def __init__(self, n: int, k: int) -> None:
        self.n, self.dim, self.k, self.feature_map = n, k + 1, k, self

    def start(self) -> Tensor:
        return torch.zeros(self.dim, dtype=torch.float64)

    def scores(self, w: Tensor, block: int) -> Parts:
        scores = -w[: self.k] / math.sqrt(2) if block == 0 else -w[self.k].expand(self.k)
        return (torch.cat([w.new_zeros(1), scores]),)

    def add_adjoint(self, m: Parts, block: int, scale: float, w: Tensor) -> None:
        zero = self.start().requires_grad_()
        w += scale * torch.autograd.grad(self.scores(zero, block), zero, m)[0]

    def squared_norm(self, m: Parts, block: int) -> float:
        return float(self.adjoint(m, block).square().sum())

    def oracle(self, potentials: Parts, block: int, smoother: Smoother = Max()) -> OracleOutput:  # noqa: B008 - immutable
        response = respond(Candidates(potentials[0][None]), smoother)
        return replace(response, statistics=(response.statistics[0][0],))

    def costs(self, block: int) -> Parts:
        return (1 - self.label_parts(block)[0],)

    def label_atom(self, block: int) -> Tensor:
        return torch.zeros(1, dtype=torch.int64)

    def parts(self, atom: Tensor, block: int) -> Parts:
        return (one_hot(atom[0], self.k + 1).double(),)

    def subset(self, indices: Tensor) -> Problem:
        raise AssertionError("no step size to be estimated")


def test_gap_sampling_keeps_to_the_hard_example() -> None:
    """Uniform sampling makes K passes, gap sampling about n + K steps: min(n, K)/2 times fewer for n = K."""
    n = k = 30
    results: dict[str, Result] = {}
    for sampling in ("uniform", "gap"):
        solver = BCFW(sampling=sampling, steps="fw", gap_tolerance=1e-9)
        results[sampling] = solver.solve(Toy(n, k), lam=1 / n, passes=2 * k)
        assert results[sampling].status is Status.CONVERGED
        expected = torch.full((k + 1,), math.sqrt(0.5) / k, dtype=torch.float64)
        expected[k] = 1
        assert_close(results[sampling].weights, expected, rtol=0, atol=1e-6)
    calls = {name: result.history[-1].oracle_calls for name, result in results.items()}
    assert calls["uniform"] == n * k
    assert calls["gap"] <= 3 * n


def test_examples_are_drawn_in_proportion_to_their_gaps() -> None:
    """With λ so small that no step changes the weights by much, and one step in an epoch."""
    problem, counts = small_problem(), torch.zeros(len(LENGTHS))
    start, wanted = iterate(problem), torch.tensor([0.1, 0.0, 0.4, 0.2, 0.3], dtype=torch.float64)
    draws = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    for steps in (epoch, plain):
        counts.zero_()
        for draw in draws:
            # All gaps but one stay: that of the example that was drawn.
            after, _ = steps(problem, replace(start, gaps=7 * wanted), draw[None], lam=LAM)
            changed = (after.gaps != 7 * wanted).nonzero()
            counts[changed] += 1
        assert counts.tolist() == (1000 * wanted).round().tolist()


@pytest.mark.parametrize("count", [1, 2])
def test_without_draws_there_are_no_steps(count: int) -> None:
    problem = small_problem()
    start = iterate(problem)
    after, _ = epoch(problem, start, torch.empty(0, dtype=torch.float64), lam=LAM, threads=count)
    assert torch.equal(after.statistics, start.statistics)


@pytest.mark.parametrize("steps", [epoch, plain], ids=["compiled", "plain"])
def test_without_gaps_all_examples_are_as_likely(steps: Callable[..., Any]) -> None:
    problem = small_problem()
    start = replace(iterate(problem), gaps=torch.zeros(problem.n, dtype=torch.float64))
    for i in range(problem.n):
        draw = torch.tensor([(i + 0.5) / problem.n], dtype=torch.float64)
        after, _ = steps(problem, start, draw, lam=LAM)
        expected, _ = steps(problem, start, torch.tensor([i]), lam=LAM)
        assert torch.equal(after.statistics, expected.statistics)


@pytest.mark.parametrize("lam", [LAM, pytest.param(2 * LAM, marks=pytest.mark.long), LAM / 2])
@every_variant
def test_warm_start_from_a_solution_for_any_lambda(solver: BCFW, lam: float) -> None:
    problem = small_problem()
    solution = solver.solve(problem, lam=LAM, passes=60)
    state, copies = solution.state, [tensor.clone() for tensor in solution.state.split()[0].values()]
    warm = solver.solve(problem, lam=lam, passes=20, start=state)
    cold = solver.solve(problem, lam=lam, passes=20)
    first = warm.history[0]
    # The dual iterate is the same, its weights are those of the new λ.
    w = LAM / lam * state.point.weights
    assert first.objective == pytest.approx(problem.loss(w) + lam / 2 * float(w @ w), rel=1e-12)
    assert first.passes == 0
    assert first.gap < 0.5 * cold.history[0].gap
    if lam == LAM:
        assert warm.history[-1].gap < cold.history[-1].gap
        assert first.dual == pytest.approx(solution.history[-1].dual, abs=1e-12)
    assert all(map(torch.equal, copies, state.split()[0].values()))


@pytest.mark.parametrize("refresh", [1, 2, 10])
def test_a_refresh_takes_a_step_with_every_oracle_call(refresh: int) -> None:
    problem, passes = small_problem(), 25
    history = BCFW(refresh=refresh, gap_tolerance=0).solve(problem, lam=LAM, passes=passes).history
    evaluations = len(history)
    assert problem.oracle_calls == history[-1].oracle_calls + evaluations * problem.n
    assert history[-1].oracle_calls == problem.n * passes
    assert (passes - 1) // refresh <= history[-1].metrics["refreshes"] < passes


@pytest.mark.parametrize("refresh", [1, 4, "never"])
@pytest.mark.parametrize("bounded", [False, True])
def test_gap_passes_look_at_all_gaps_and_make_no_steps(refresh: Any, bounded: bool) -> None:
    """Algorithm 2 as printed: the gaps of the iterate, for n calls more, after every so many passes of steps."""
    problem, passes = (bounded_problem if bounded else small_problem)(), 9
    solver = BCFW(steps="fw", refresh=refresh, gap_passes=True, gap_tolerance=0)
    for state, history in moments_of(solver, problem, passes)[1:]:
        looks = state.passes // solver.refresh_period
        assert state.refreshes == looks
        assert history[-1].oracle_calls == problem.n * (state.passes + looks)
        true = problem.block_gaps(state.weights, state.point.statistics).clamp_min(0)
        if looks and state.passes % solver.refresh_period == 0:
            assert_close(state.point.gaps, true, **EXACTLY)
            assert history[-1].gap == pytest.approx(state.gap, abs=1e-10)
        order = solver.order(problem, state, np.random.default_rng(0))
        assert order.dtype == torch.float64


def test_a_gap_pass_leaves_the_iterate_where_it_is() -> None:
    problem = small_problem()
    states = [
        BCFW(refresh=refresh, gap_passes=True, gap_tolerance=0).solve(problem, lam=LAM, passes=3).state
        for refresh in (3, 4)
    ]
    assert [state.refreshes for state in states] == [1, 0]
    assert torch.equal(states[0].point.weights, states[1].point.weights)
    assert not torch.equal(states[0].point.gaps, states[1].point.gaps)


@pytest.mark.parametrize("gap_passes", [False, True])
def test_gaps_are_never_refreshed(gap_passes: bool) -> None:
    problem = small_problem()
    solver = BCFW(refresh="never", gap_passes=gap_passes, gap_tolerance=0)
    last = solver.solve(problem, lam=LAM, passes=25).history[-1]
    assert last.metrics["refreshes"] == 0
    assert last.oracle_calls == 25 * problem.n


@pytest.mark.parametrize(("estimate", "stale"), [(0.0, True), (0.45, True), (0.55, False), (1.8, False), (2.2, True)])
@pytest.mark.parametrize("cache", [False, True])
def test_gaps_that_disagree_with_the_last_ones_found_are_refreshed(cache: bool, estimate: float, stale: bool) -> None:
    problem, solver = small_problem(), BCFW(cache=cache, refresh=100)
    state = solver.solve(problem, lam=LAM, passes=1).state
    gaps = torch.full((problem.n,), estimate * state.gap / problem.n, dtype=torch.float64)
    before = problem.oracle_calls
    new = solver.advance(problem, LAM, state.moved(gaps=gaps), np.random.default_rng(0), 1)
    assert new.refreshes == stale
    assert (new.gap == float(new.point.gaps.sum())) == stale
    if stale or not cache:
        assert problem.oracle_calls - before == problem.n
        assert new.hits == 0
    order = solver.order(problem, state.moved(gaps=gaps), np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(problem.n)) if stale else order.dtype == torch.float64


@every_variant
def test_metrics_are_estimates_hits_and_refreshes(solver: BCFW) -> None:
    problem, moments = small_problem(), moments_of(solver, small_problem(), passes=25)
    assert moments[0][1][0].metrics == {}
    for state, history in moments[1:]:
        row = history[-1]
        calls = row.oracle_calls - (problem.n * state.refreshes if solver.gap_passes else 0)
        assert row.metrics["estimated_gap"] == float(state.point.gaps.sum())
        assert row.metrics["cache_hit_rate"] == pytest.approx(1 - calls / (problem.n * state.passes))
        assert row.metrics["refreshes"] == state.refreshes < state.passes
    adaptive = solver.samples_gaps or solver.cache
    assert state.refreshes >= 24 // solver.refresh_period if adaptive else state.refreshes == 0


def two_classes() -> LinearModuleProblem:
    """40 points around two centers."""
    generator = torch.Generator().manual_seed(6)
    y = torch.arange(40) % 2
    x = torch.tensor([[-3.0, 4.0], [2.0, 1.0]], dtype=torch.float64)[y]
    x += torch.randn(40, 2, generator=generator, dtype=torch.float64)
    return LinearModuleProblem(Classes(), list(zip(x, y, strict=True)))


class Classes(ScoreModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2, dtype=torch.float64)

    def forward(self, x: Tensor) -> Candidates:
        return Candidates(self.linear(x))


def test_stale_gaps_do_not_mislead_gap_sampling() -> None:
    """A support vector machine, λ = 1/(nC), to a gap of 1e-6 in about as many calls as by uniform sampling."""
    c = 1000

    def stop(progress: Progress[BCFWState]) -> None:
        if progress.row.gap is not None and progress.row.gap <= 1e-6:
            raise Stop

    calls = {}
    for sampling in ("gap", "uniform"):
        solver = BCFW(sampling=sampling, gap_tolerance=0)
        result = solver.solve(two_classes(), lam=1 / (40 * c), passes=200, callbacks=[stop])
        assert result.status is Status.STOPPED, sampling
        calls[sampling] = result.history[-1].oracle_calls
    assert calls["gap"] <= 1.5 * calls["uniform"]


def test_a_state_without_refreshes_resumes() -> None:
    """Checkpoints of older versions have no such field."""
    problem = small_problem()
    tensors, numbers = BCFW().solve(problem, lam=LAM, passes=3).state.split()
    del numbers["refreshes"]
    assert BCFWState.joined(tensors, numbers).refreshes == 0


@pytest.mark.parametrize(
    ("order", "error", "message"),
    [
        (torch.tensor([5]), ValueError, "order must hold examples from 0 to 4, got 5"),
        (torch.tensor([[0]]), ValueError, r"order \[steps\] must have shape \(-1,\), got \(1, 1\)"),
        (torch.tensor([0], dtype=torch.int32), TypeError, r"order \[steps\] must be torch.int64"),
        (torch.tensor([1.0], dtype=torch.float64), ValueError, r"order must hold draws from \[0, 1\)"),
    ],
)
def test_compiled_steps_refuse(order: Tensor, error: type[Exception], message: str) -> None:
    problem = small_problem()
    with pytest.raises(error, match=message):
        epoch(problem, iterate(problem), order, lam=LAM)
