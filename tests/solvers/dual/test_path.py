"""Regularization paths: the guarantee at and between breakpoints, Algorithm 6, storage, what grids cost."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from small_problems import EnumeratedProblem, random_problem, random_weights
from solver_cases import FEATURES, LENGTHS, STATES, bounded_problem, crf, small_problem
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BCFW, Hamming, LinearScore, ModuleProblem, ProximalBCFW, WeightedHamming
from structsmooth.costs import Cost, NormalizedHamming
from structsmooth.plots import plot_path
from structsmooth.problems import LinearProblem, SparseChainProblem
from structsmooth.solvers import Breakpoint, RegularizationPath, SolutionPath, Status, grid_search
from structsmooth.solvers.bcfw.steps import epoch, plain
from structsmooth.solvers.dual.path.walk import first_lam

LAM_MIN, EPSILON = 0.05, 0.2
COSTS = [Hamming(), NormalizedHamming(), WeightedHamming((1.0, 2.0, 0.5))]
VARIANTS = {
    "gap": BCFW(),
    "uniform": BCFW(sampling="uniform"),
    "pairwise": BCFW(steps="pairwise"),
    "away": BCFW(steps="away", capacity=2),
    "average": BCFW(average=True),
    "proximal": ProximalBCFW(),
}
every_variant = pytest.mark.parametrize("solver", VARIANTS.values(), ids=VARIANTS.keys())
every_cost = pytest.mark.parametrize("cost", COSTS, ids=str)


def random_lams(path: SolutionPath, number: int = 15) -> list[float]:
    """From the end of the path to ten times its first breakpoint."""
    first = max(path.end, LAM_MIN)
    draws = np.random.default_rng(0).uniform(math.log(first), math.log(10 * path.breakpoints[0].lam), number)
    return [first, *np.exp(draws).tolist()]


def suboptimality(problem: SparseChainProblem, enumerated: EnumeratedProblem, w: Tensor, lam: float) -> float:
    return enumerated.objective(w.numpy(), lam) - enumerated.optimum(lam)


@every_variant
def test_between_breakpoints_no_gap_is_above_epsilon(solver: BCFW) -> None:
    """True gaps at random values of λ, by enumeration of all outputs and a quadratic program."""
    problem = small_problem()
    enumerated = EnumeratedProblem(problem)
    path = RegularizationPath(EPSILON, solver=solver).solve(problem, lam_min=LAM_MIN)
    assert path.status is Status.CONVERGED
    assert path.end <= LAM_MIN
    for lam in random_lams(path):
        gap = suboptimality(problem, enumerated, path.weights_at(lam), lam)
        assert -1e-8 <= gap <= path.gap_at(lam) + 1e-7
        assert path.gap_at(lam) <= EPSILON + 1e-12


@pytest.mark.parametrize("kappa", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("seed", range(3))
@every_cost
def test_gaps_are_those_of_the_stored_weights(cost: Cost, seed: int, kappa: float) -> None:
    problem = small_problem(seed, cost)
    enumerated = EnumeratedProblem(problem)
    path = RegularizationPath(EPSILON, kappa).solve(problem, lam_min=LAM_MIN)
    for j, point in [*enumerate(path.breakpoints)][::5]:
        w = path.weights(j)
        assert torch.equal(w.float().double(), w)
        assert point.loss == pytest.approx(enumerated.objective(w.numpy(), 0.0), abs=1e-10)
        assert point.objective == pytest.approx(enumerated.objective(w.numpy(), point.lam), abs=1e-10)
    assert all(0 <= point.gap <= kappa * EPSILON for point in path.breakpoints)
    for point, after in pairwise(path.breakpoints):
        # The step down goes as far as the guarantee, and not further.
        assert after.lam == point.least_lam(EPSILON) < point.lam
        assert point.gap_at(after.lam) == pytest.approx(EPSILON, abs=1e-12)


def test_the_gap_between_breakpoints_is_that_of_a_dual_point() -> None:
    """Proposition 1, with the dual points of every λ at hand."""
    problem = small_problem()
    path = RegularizationPath(EPSILON).solve(problem, lam_min=LAM_MIN)
    labels = problem.label_statistics()
    best = problem.best_statistics(problem.start())
    for lam in (path.breakpoints[0].lam * s for s in (1, 0.995, 0.99)):
        statistics = torch.lerp(labels, best, lam / path.breakpoints[0].lam)
        w = path.weights(0)
        dual = problem.expected_cost(statistics) - lam / 2 * float(problem.dual_weights(statistics, lam).square().sum())
        objective = problem.loss(w) + lam / 2 * float(w @ w)
        assert path.breakpoints[0].gap_at(lam) == pytest.approx(objective - dual, abs=1e-9)


@every_cost
def test_above_the_first_breakpoint_gaps_fall_with_lambda(cost: Cost) -> None:
    problem = small_problem(cost=cost)
    enumerated = EnumeratedProblem(problem)
    path = RegularizationPath(EPSILON).solve(problem, lam_min=LAM_MIN)
    first = path.breakpoints[0]
    for scale in (1.0, 1.5, 4.0, 100.0):
        w = path.weights_at(scale * first.lam)
        assert_close(w, path.weights(0) / scale)
        gap = suboptimality(problem, enumerated, w, scale * first.lam)
        assert -1e-9 <= gap <= path.gap_at(scale * first.lam) + 1e-7
        assert path.gap_at(scale * first.lam) == pytest.approx(first.gap / scale)


@pytest.mark.parametrize("seed", range(4))
@every_cost
def test_the_first_lambda_is_that_of_algorithm_6(seed: int, cost: Cost) -> None:
    """It may be above it by the share of the costs, 1% of ‖ψ‖² at most."""
    problem = small_problem(seed, cost)
    enumerated = EnumeratedProblem(problem)
    best = problem.best_statistics(problem.start())
    psi = problem.dual_weights(best, 1.0).numpy()
    chosen = [
        differences[costs.argmax()] for differences, costs in zip(enumerated.differences, enumerated.costs, strict=True)
    ]
    assert np.allclose(psi, -np.mean(chosen, axis=0))
    thetas = [(differences @ psi).max() for differences in enumerated.differences]
    exact = (psi @ psi + np.mean(thetas)) / EPSILON
    assert exact <= first_lam(problem, best, EPSILON) <= exact + 0.0101 * psi @ psi / EPSILON


def cone_problem() -> SparseChainProblem:
    """A third of the weights is at least zero, and a third at most."""
    free = small_problem()
    kinds = torch.arange(free.dim) % 3
    lower = torch.where(kinds == 0, 0.0, -torch.inf).double()
    return random_problem(
        LENGTHS, STATES, FEATURES, seed=2, bounds=(lower, torch.where(kinds == 1, 0.0, torch.inf).double())
    )


@pytest.mark.parametrize(
    ("solver", "number"),
    [(BCFW(), 50), (BCFW(steps="away", capacity=2, cache=True), 15)],
    ids=["pairwise", "away, cache"],
)
def test_paths_within_bounds_of_zero(solver: BCFW, number: int) -> None:
    """Proposition 1 and (12) hold as they are: multiples of weights stay within such bounds."""
    problem = cone_problem()
    assert problem.bounds is not None
    enumerated = EnumeratedProblem(problem)
    path = RegularizationPath(EPSILON, solver=solver).solve(problem, lam_min=LAM_MIN)
    assert path.status is Status.CONVERGED
    assert path.end <= LAM_MIN
    assert len(path.breakpoints) > 2
    reached = torch.zeros(problem.dim, dtype=torch.bool)
    for lam in random_lams(path, number):
        w = path.weights_at(lam)
        assert torch.equal(w, problem.within_bounds(w))
        gap = suboptimality(problem, enumerated, w, lam)
        assert -1e-8 <= gap <= path.gap_at(lam) + 1e-7
        assert path.gap_at(lam) <= EPSILON + 1e-12
        reached |= w == 0
    assert reached.any()


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_where_to_begin(scale: float) -> None:
    problem = small_problem()
    enumerated = EnumeratedProblem(problem)
    whole = RegularizationPath(EPSILON).solve(problem, lam_min=LAM_MIN)
    lam_max = scale * whole.breakpoints[0].lam
    path = RegularizationPath(EPSILON).solve(problem, lam_min=LAM_MIN, lam_max=lam_max)
    assert path.breakpoints[0].lam == lam_max
    if scale < 1:
        assert path.top == lam_max
        with pytest.raises(ValueError, match=r"lam must be positive and from .* to .*, got"):
            path.weights_at(1.001 * lam_max)
    else:
        assert path.top == math.inf
        assert path.gap_at(7 * lam_max) < path.breakpoints[0].gap
    for lam in (0.999 * lam_max, lam_max, 0.1 * lam_max):
        assert suboptimality(problem, enumerated, path.weights_at(lam), lam) <= EPSILON


def test_a_path_that_needs_no_more_breakpoints_is_good_for_all_smaller_lambda() -> None:
    """Sequences of one token, each with an attribute of its own: the loss can be zero."""
    problem = random_problem((1,) * 3, 2, 6, seed=1)
    path = RegularizationPath(0.3).solve(problem, lam_min=1e-9)
    assert path.end == 0
    assert path.breakpoints[-1].loss <= 0.3
    assert torch.equal(path.weights_at(1e-12), path.weights(-1))
    for lam in (1e-9, 1e-3):
        w = path.weights_at(lam)
        assert problem.loss(w) + lam / 2 * float(w @ w) <= 0.3 + EnumeratedProblem(problem).optimum(lam) + 1e-6
    with pytest.raises(ValueError, match="lam must be positive"):
        path.weights_at(0.0)


def test_weights_are_those_of_the_piece() -> None:
    path = RegularizationPath(EPSILON).solve(small_problem(), lam_min=LAM_MIN)
    points = path.breakpoints
    for j, (point, after) in enumerate(pairwise(points)):
        for lam in (point.lam, (point.lam + after.lam) / 2, math.nextafter(after.lam, math.inf)):
            assert path.index(lam) == j
            assert torch.equal(path.weights_at(lam), path.weights(j))
    assert path.index(points[-1].lam) == path.index(path.end) == len(points) - 1
    with pytest.raises(ValueError, match="lam must be positive and from"):
        path.weights_at(0.999 * path.end)


def test_costs_are_counted_and_paths_are_deterministic() -> None:
    problem = small_problem()
    path, again = (RegularizationPath(EPSILON).solve(p, lam_min=LAM_MIN, seed=3) for p in (problem, small_problem()))
    last = path.breakpoints[-1]
    assert last.oracle_calls == problem.oracle_calls
    assert problem.oracle_calls % problem.n == 0
    for name in ("passes", "oracle_calls", "seconds"):
        column = [getattr(point, name) for point in path.breakpoints]
        assert column == sorted(column)
    # A pass at each breakpoint but the first, a check at each, and three calls of Algorithm 6 and the first check.
    assert last.oracle_calls >= (2 + last.passes + len(path.breakpoints)) * problem.n
    for j, (a, b) in enumerate(zip(path.breakpoints, again.breakpoints, strict=True)):
        assert (a.lam, a.gap, a.loss, a.passes) == (b.lam, b.gap, b.loss, b.passes)
        assert torch.equal(path.weights(j), again.weights(j))


def test_a_heuristic_path_checks_nothing_but_its_beginning() -> None:
    problem = small_problem()
    path = RegularizationPath(EPSILON, verified=False, solver=BCFW(refresh=10**6)).solve(problem, lam_min=LAM_MIN)
    last = path.breakpoints[-1]
    assert not path.verified
    assert last.oracle_calls == problem.oracle_calls == (3 + last.passes) * problem.n
    assert all(point.gap <= 0.7 * EPSILON for point in path.breakpoints)
    first = path.breakpoints[0]
    w = path.weights(0)
    assert first.loss == pytest.approx(problem.loss(w), abs=1e-10)
    assert path.end <= LAM_MIN


@pytest.mark.parametrize("verified", [True, False])
def test_saves_and_loads(verified: bool, tmp_path: Path) -> None:
    path = RegularizationPath(EPSILON, verified=verified).solve(small_problem(), lam_min=LAM_MIN)
    path.save(tmp_path / "path")
    loaded = SolutionPath.load(tmp_path / "path")
    assert loaded.breakpoints == path.breakpoints
    names = ("epsilon", "verified", "dim", "top", "status", "end", "message")
    assert [getattr(loaded, name) for name in names] == [getattr(path, name) for name in names]
    for lam in random_lams(path):
        assert torch.equal(loaded.weights_at(lam), path.weights_at(lam))
    (tmp_path / "path").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="damaged"):
        SolutionPath.load(tmp_path / "path")


def test_weights_that_are_always_zero_take_no_memory() -> None:
    """The last attribute of these problems never occurs."""
    path = SolutionPath(0.1, True, 5)
    point = Breakpoint(1.0, 0.05, 0.5, 0.6, 0, 0, 0.0)
    rows = torch.tensor([[0, 1, 0, 2, 0], [3, 0, 0, 4, 0], [0, 0, 0, 0, 5]], dtype=torch.float64)
    for row in rows:
        path.append(point, row)
    assert [len(values) for values in path._values] == [2, 3, 4]
    assert all(torch.equal(path.weights(j), row) for j, row in enumerate(rows))


class Interrupted(SparseChainProblem):
    """Ctrl-C in a pass."""

    left = 10**9


@epoch.register
def _(problem: Interrupted, *arguments, **options):
    problem.left -= 1
    if problem.left < 0:
        raise KeyboardInterrupt
    return epoch.dispatch(SparseChainProblem)(problem, *arguments, **options)


def interrupted(passes: int) -> Interrupted:
    problem = small_problem()
    copy = Interrupted(problem.sequences, problem.labels, FEATURES, STATES)
    copy.left = passes
    return copy


def test_stopping_on_request_keeps_what_was_reached() -> None:
    path = RegularizationPath(EPSILON).solve(interrupted(12), lam_min=LAM_MIN)
    whole = RegularizationPath(EPSILON).solve(small_problem(), lam_min=LAM_MIN)
    assert path.status is Status.INTERRUPTED
    assert 1 < len(path.breakpoints) < len(whole.breakpoints)
    assert [p.gap for p in path.breakpoints] == [p.gap for p in whole.breakpoints[: len(path.breakpoints)]]
    assert path.gap_at(path.end) <= EPSILON + 1e-12
    with pytest.raises(KeyboardInterrupt):
        RegularizationPath(EPSILON).solve(interrupted(0), lam_min=LAM_MIN, lam_max=1.0)
    rows = grid_search(interrupted(12), [1.0, 0.3, 0.1], epsilon=1e-6)
    assert len(rows) < 3


def test_too_few_passes_end_a_path() -> None:
    path = RegularizationPath(1e-4).solve(small_problem(), lam_min=LAM_MIN, passes=1)
    assert path.status is Status.PASS_LIMIT
    assert path.end > LAM_MIN
    assert path.gap_at(path.end) <= 1e-4 + 1e-12
    assert "pass limit" in path.message
    with pytest.raises(ValueError, match=r"passes must be enough to begin at lam = 0\.1"):
        RegularizationPath(1e-6).solve(small_problem(), lam_min=0.05, lam_max=0.1, passes=1)


def test_callbacks_see_every_breakpoint() -> None:
    seen: list[int] = []
    path = RegularizationPath(EPSILON).solve(
        small_problem(), lam_min=LAM_MIN, callbacks=[lambda path: seen.append(len(path.breakpoints))]
    )
    assert seen == [*range(1, len(path.breakpoints) + 1)]


@pytest.mark.parametrize("warm_start", [True, False])
def test_grids_reach_the_tolerance(warm_start: bool) -> None:
    problem = small_problem()
    enumerated, lams = EnumeratedProblem(problem), [4.0, 1.0, 0.5, 0.2, 0.1]
    rows = grid_search(problem, lams, epsilon=0.03, warm_start=warm_start)
    assert [row.lam for row in rows] == lams
    assert rows[-1].oracle_calls == problem.oracle_calls
    for row in rows:
        assert row.gap <= 0.03
        assert -1e-8 <= row.objective - enumerated.optimum(row.lam) <= row.gap + 1e-8


def test_warm_starts_save_oracle_calls_and_paths_have_more_values() -> None:
    problem = random_problem((3, 4, 2, 3) * 5, seed=4)
    path = RegularizationPath(EPSILON).solve(problem, lam_min=LAM_MIN)
    lams = [2.0**k for k in range(15, -6, -1)]
    warm, cold = (grid_search(problem, lams, epsilon=EPSILON, warm_start=start) for start in (True, False))
    assert warm[-1].oracle_calls < cold[-1].oracle_calls
    assert len(path.breakpoints) > len(lams)


def test_paths_and_grids_take_lam_as_a_share_of_the_examples() -> None:
    problem = small_problem()
    n = problem.n
    path, same = (
        RegularizationPath(EPSILON).solve(small_problem(), lam_min=least, lam_max=most)
        for least, most in (("0.5/n", "4/n"), (0.5 / n, 4 / n))
    )
    assert path.top == 4 / n
    assert [point.lam for point in path.breakpoints] == [point.lam for point in same.breakpoints]
    assert [row.lam for row in grid_search(problem, ["2/n", 1 / n, "0.5/n"])] == [2 / n, 1 / n, 0.5 / n]


def test_too_few_passes_of_a_grid_show_in_its_gaps() -> None:
    (row,) = grid_search(small_problem(), [0.05], epsilon=1e-6, passes=1)
    assert row.gap > 1e-6
    assert row.passes == 1


@pytest.mark.parametrize("seed", range(4))
@every_cost
def test_compiled_passes_are_the_default(seed: int, cost: Cost) -> None:
    problem = random_problem(cost=cost, seed=seed)
    w = random_weights(problem, seed)
    best = LinearProblem.best_statistics(problem, w)
    assert_close(problem.best_statistics(w), best, rtol=0, atol=0)
    assert problem.oracle_calls == 2 * problem.n
    statistics = torch.lerp(problem.label_statistics(), best, 0.3)
    margins = problem.block_margins(w, statistics)
    assert_close(margins, LinearProblem.block_margins(problem, w, statistics), rtol=0, atol=1e-10)
    assert problem.oracle_calls == 2 * problem.n
    assert float((margins + problem.block_gaps(w, statistics)).sum()) == pytest.approx(problem.loss(w), abs=1e-10)


def test_any_linear_problem_has_a_path() -> None:
    """By passes in plain torch."""

    class Plain(SparseChainProblem):
        """With the passes of any linear problem."""

        best_statistics = LinearProblem.best_statistics
        block_gaps = LinearProblem.block_gaps
        block_margins = LinearProblem.block_margins
        dual_weights = LinearProblem.dual_weights

    epoch.register(Plain, plain)
    problem = small_problem()
    enumerated, chain = EnumeratedProblem(problem), Plain(problem.sequences, problem.labels, FEATURES, STATES)
    path = RegularizationPath(0.5, 0.5).solve(chain, lam_min=0.5)
    assert path.end <= 0.5
    assert chain.oracle_calls == path.breakpoints[-1].oracle_calls
    for lam in random_lams(path, 10):
        if lam >= path.end:
            assert (
                suboptimality(problem, enumerated, path.weights_at(lam), lam) <= path.gap_at(lam) + 1e-7 <= 0.5 + 2e-7
            )


def test_a_picture(tmp_path: Path) -> None:
    path = RegularizationPath(EPSILON).solve(small_problem(), lam_min=LAM_MIN)
    plot_path(path, tmp_path / "path.png", {"f1": ([1.0, 0.1], [0.5, 0.6])}, "a title")
    assert (tmp_path / "path.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="at least one breakpoint"):
        plot_path(SolutionPath(0.1, True, 3), tmp_path / "none.png")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: RegularizationPath(0.0), "epsilon must be positive"),
        (lambda p: RegularizationPath(kappa=1.0), "kappa must be below 1"),
        (lambda p: RegularizationPath(kappa=0.0), "kappa must be positive"),
        (lambda p: RegularizationPath().solve(p, lam_min=0.0), "lam_min must be positive"),
        (lambda p: RegularizationPath().solve(p, lam_min=0.1, lam_max=0.01), "lam_max must be at least lam_min"),
        (lambda p: RegularizationPath().solve(p, lam_min=0.1, passes=-1), "passes must be at least 0"),
        (lambda p: RegularizationPath().solve(p, lam_min="0/n"), "lam_min must be positive"),
        (lambda p: RegularizationPath().solve(p, lam_min="1/m"), "lam_min must be a number or c/n with c >= 0"),
        (lambda p: grid_search(p, [0.1, 0.2]), "lams must be positive and falling"),
        (lambda p: grid_search(p, ["1/n", "2/n"]), "lams must be positive and falling, got 1/n, 2/n"),
        (lambda p: grid_search(p, ["a tenth"]), "lams must be a number or c/n"),
        (lambda p: RegularizationPath().solve(small_problem(cost=None), lam_min=0.1), "zero weights as its optimum"),
    ],
)
def test_bad_input(call: Callable[[SparseChainProblem], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(small_problem())


def test_other_problems_are_refused() -> None:
    with pytest.raises(ValueError, match="problem of hinges"):
        RegularizationPath().solve(crf(), lam_min=0.1)
    with pytest.raises(ValueError, match="takes bounds of zero and of infinity alone"):
        RegularizationPath().solve(bounded_problem(), lam_min=0.1)
    module = ModuleProblem(LinearScore(2, 2), [(torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64))])
    with pytest.raises(TypeError, match="LinearProblem"):
        RegularizationPath().solve(module, lam_min=0.1)
    with pytest.raises(TypeError, match="LinearProblem"):
        grid_search(module, [0.1])
