"""Several threads make the steps of SGD: what holds in whatever order they make them."""

import copy
from dataclasses import replace

import pytest
import torch
from linear_problems import problem_of
from refusals import refusing
from small_problems import random_problem, random_weights
from solver_cases import LAM, small_problem
from torch import Tensor
from torch.testing import assert_close

from structsmooth import L2, SGD, certify
from structsmooth.cli.flags import parse_solvers
from structsmooth.problems import SparseChainProblem
from structsmooth.problems.reductions import Shard
from structsmooth.smoothing import Entropy, Max, Smoother
from structsmooth.solvers import sgd

SEVERAL = SGD(threads=2)


def larger_problem(states: int = 3) -> SparseChainProblem:
    """Large enough that threads work at the same time."""
    return random_problem(tuple(1 + i % 8 for i in range(2000)), states, 40)


def learnable_problem() -> SparseChainProblem:
    """Labels that are the best under some weights."""
    problem = larger_problem()
    _, y = problem.structure(random_weights(problem), torch.arange(problem.n)).max()
    lengths = problem.sequences.lengths
    labels = y[torch.arange(y.shape[1]) < lengths[:, None]]
    return SparseChainProblem(problem.sequences, labels, problem.features, problem.states)


@pytest.mark.parametrize("smoother", [Max(), L2(0.7, 3), Entropy(0.5)], ids=str)
@pytest.mark.parametrize("shrink", [0.0, 0.3, 1.0, 1.7])
def test_single_steps_are_those_of_one_thread(shrink: float, smoother: Smoother) -> None:
    problem = small_problem()
    w, one = random_weights(problem), torch.ones(1, dtype=torch.float64)
    for i in torch.arange(3 * problem.n) % problem.n:
        settings = {"step_sizes": 0.1 * one, "lam": 10 * shrink, "smoother": smoother, "averaging_weights": 0.3 * one}
        alone, own_total = sgd.epoch(problem, w, i.view(1, 1), **settings)
        w, total = sgd.epoch(problem, w, i.view(1, 1), threads=2, **settings)
        assert_close(w, alone, rtol=0, atol=1e-12)
        assert_close(total, own_total, rtol=0, atol=1e-12)


def step_sizes_of(shrinks: list[float], steps: int) -> Tensor:
    """Step sizes times λ, from which steps take turns."""
    return torch.tensor(shrinks, dtype=torch.float64).repeat(-(-steps // len(shrinks)))[:steps]


@pytest.mark.parametrize("shrinks", [[1e-6], [0.01], [0.6], [0.2, 1.0, 0.1], [0.1, 0.9999, 1.9, 2.3]], ids=str)
@pytest.mark.parametrize("count", [2, 5])
def test_no_thread_loses_what_another_adds(count: int, shrinks: list[float]) -> None:
    """With λ so large that weights stay near zero, every step is towards the most costly output."""
    problem, lam = larger_problem(states=2), 1e9
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(problem.n, generator=generator)[:, None]
    shares = torch.rand(problem.n, generator=generator, dtype=torch.float64)
    settings = {
        "lam": lam,
        "step_sizes": step_sizes_of(shrinks, problem.n) / lam,
        "smoother": Max(),
        "averaging_weights": shares,
    }
    start = random_weights(problem) / lam
    alone, own_total = sgd.epoch(problem, start, order, **settings)
    calls = problem.oracle_calls
    shared, total = sgd.epoch(problem, start, order, threads=count, **settings)
    assert problem.oracle_calls == 2 * calls
    assert_close(lam * shared, lam * alone, rtol=0, atol=1e-9)
    assert_close(lam * total, lam * own_total, rtol=1e-9, atol=1e-9)
    assert float(lam * alone.abs().max()) > 1e-4


@pytest.mark.parametrize("solver", [SGD(), SGD(schedule="inverse-sqrt", average=False)], ids=str)
def test_the_objective_is_near_that_of_one_thread(solver: SGD) -> None:
    problem = learnable_problem()
    lam = 10 / problem.n
    alone, shared = (replace(solver, threads=count).solve(problem, lam=lam, passes=10) for count in (1, 4))
    start, own, other = alone.history[0].objective, alone.history[-1].objective, shared.history[-1].objective
    assert own < 0.5 * start
    assert other - own < 0.1 * (start - own)
    assert shared.history[-1].dual <= own
    assert shared.history[-1].passes == 10


def test_resumes() -> None:
    problem = small_problem()
    first = SEVERAL.solve(problem, lam=LAM, passes=2)
    result = SEVERAL.solve(problem, lam=LAM, passes=30, resume=(first.state, first.history))
    assert [row.passes for row in result.history] == list(range(31))
    assert certify(problem, result.weights, LAM).dual <= result.row.objective + 1e-9


def test_is_a_flag() -> None:
    (solver,) = parse_solvers(["sgd:threads=2"]).values()
    assert solver.threads == 2


def in_processes() -> SparseChainProblem:
    problem = copy.copy(small_problem())
    problem.shard = Shard(problem)
    return problem


test_refuses = refusing(
    {
        "no threads": (lambda: SGD(threads=0), ValueError, "threads must be at least 1, got 0"),
        "half a thread": (lambda: SGD(threads=1.5), TypeError, "threads must be an int, got float"),
        "steps in plain torch": (
            lambda: SEVERAL.solve(problem_of("classes"), lam=LAM),
            ValueError,
            "threads must be 1 for a LinearModuleProblem, got 2: only the steps of a SparseChainProblem",
        ),
        "an epoch in plain torch": (
            lambda: sgd.epoch(
                problem_of("classes"),
                problem_of("classes").start(),
                torch.tensor([[0]]),
                step_sizes=torch.ones(1),
                lam=LAM,
                smoother=Max(),
                averaging_weights=torch.ones(1),
                threads=2,
            ),
            ValueError,
            "threads must be 1 for a LinearModuleProblem, got 2",
        ),
        "batches": (
            lambda: SGD(threads=3, batch_size=2).solve(small_problem(), lam=LAM),
            ValueError,
            "threads must be 1 for steps on 2 examples, got 3: only steps on one example",
        ),
        "processes": (
            lambda: SEVERAL.check(in_processes(), LAM),
            ValueError,
            "threads must be 1 in several processes, got 2: .*take one process with more threads",
        ),
    }
)
