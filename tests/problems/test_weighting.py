"""An example of weight two counts as if it were there twice."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from linear_problems import problem_of
from small_networks import chain_problem
from small_problems import random_dense_problem, random_problem
from solver_cases import crf
from torch.testing import assert_close

from structsmooth import BCFW, L2, SGD, CasimirSVRG, Entropy, Max, ProximalBCFW, SoftBCFW
from structsmooth.problems import FactorGraphProblem, FactorGraphs, LinearProblem, Problem
from structsmooth.solvers import (
    DLPW,
    SMO,
    SVRG,
    BatchExponentiatedGradient,
    CoCoA,
    CuttingPlane,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    IncrementalProxLinear,
    NSlackCuttingPlane,
    ProximalSDCA,
    Solver,
)

LAM = 0.2
TIMES = torch.tensor([2, 1, 3, 1, 2])
EXACTLY = {"rtol": 0.0, "atol": 1e-10}
LINEAR: dict[str, Callable[[], LinearProblem]] = {
    "sparse chain": random_problem,
    "dense chain": random_dense_problem,
    "tree": lambda: problem_of("tree").subset(torch.arange(5)),
}
SOLVERS: dict[str, tuple[Solver[Any], float]] = {
    "SGD": (SGD(), 0.02),
    "SVRG": (SVRG(mu=0.01, k=81), 0.01),
    "CasimirSVRG": (CasimirSVRG(k=81), 0.01),
    "IncrementalProxLinear": (IncrementalProxLinear(), 0.003),
    "FrankWolfe": (FrankWolfe(), 0.01),
    "CuttingPlane": (CuttingPlane(), 0.003),
    "NSlackCuttingPlane": (NSlackCuttingPlane(), 0.003),
    "ExcessiveGap": (ExcessiveGap(), 0.01),
    "ExponentiatedGradient": (ExponentiatedGradient(), 0.01),
    "BatchExponentiatedGradient": (BatchExponentiatedGradient(), 0.02),
    "SMO": (SMO(), 0.003),
    "Extragradient": (Extragradient(), 0.01),
    "CoCoA": (CoCoA(), 0.003),
    "BCFW, pairwise": (BCFW(steps="pairwise", cache=True), 0.003),
    "ProximalBCFW": (ProximalBCFW(), 0.003),
}


def network() -> Problem:
    return chain_problem().subset(torch.arange(5))


def repeated(problem: Problem) -> Problem:
    return problem.subset(torch.arange(problem.n).repeat_interleave(TIMES))


def weights(problem: Problem, seed: int = 0) -> torch.Tensor:
    noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return problem.start() + 0.3 * noise


@pytest.mark.parametrize("smoother", [Max(), L2(0.7, 3), Entropy(0.5)], ids=str)
@pytest.mark.parametrize(
    "build", [*LINEAR.values(), lambda: chain_problem().subset(torch.arange(5))], ids=[*LINEAR, "net"]
)
def test_passes_are_those_over_repeated_examples(build: Callable[[], Problem], smoother: Any) -> None:
    problem = build()
    w, one, many = weights(problem), problem.weighted(TIMES), repeated(problem)
    assert one.total_weight == many.total_weight == many.n
    a, b = (each.full_pass(w, smoother, with_loss=True) for each in (one, many))
    assert (a.smoothed_loss, a.loss) == pytest.approx((b.smoothed_loss, b.loss), abs=1e-10)
    assert a.expected_cost == (b.expected_cost and pytest.approx(b.expected_cost, abs=1e-10))
    assert_close(a.gradient, b.gradient, **EXACTLY)


@pytest.mark.parametrize("build", LINEAR.values(), ids=LINEAR)
def test_points_of_the_dual_are_those_over_repeated_examples(build: Callable[[], LinearProblem]) -> None:
    problem = build()
    one, many, w = problem.weighted(TIMES), repeated(problem), weights(problem)
    own, all_of_them = one.best_statistics(weights(problem, 1)), many.best_statistics(weights(problem, 1))
    assert_close(one.dual_weights(own, LAM), many.dual_weights(all_of_them, LAM), **EXACTLY)
    assert one.expected_cost(own) == pytest.approx(many.expected_cost(all_of_them), abs=1e-10)
    for name in ("block_gaps", "block_margins"):
        a, b = getattr(one, name)(w, own), getattr(many, name)(w, all_of_them)
        grouped = torch.stack([part.sum() for part in b.split(TIMES.tolist())])
        assert_close(a, grouped, **EXACTLY)


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_reach_the_optimum_over_repeated_examples(name: str) -> None:
    (solver, within), problem = SOLVERS[name], random_problem()
    many = repeated(problem)
    best = BCFW(gap_tolerance=1e-6).solve(many, lam=LAM, passes=1000).row
    result = solver.solve(problem.weighted(TIMES), lam=LAM, passes=300)
    w, last = result.weights, result.row
    objective = many.loss(w) + LAM / 2 * float(w @ w)
    assert last.objective == pytest.approx(objective, abs=1e-9)
    assert objective <= best.objective + within
    if last.dual is not None:
        assert last.dual <= best.objective + 1e-9


def test_likelihoods_have_weights_too() -> None:
    problem = crf()
    best = CasimirSVRG().solve(repeated(problem), lam=LAM, passes=60)
    for solver in (CasimirSVRG(), ExponentiatedGradient(), ProximalSDCA()):
        found = solver.solve(problem.weighted(TIMES), lam=LAM, passes=60)
        assert found.row.objective == pytest.approx(best.row.objective, abs=1e-3)


def test_weights_go_with_examples() -> None:
    problem = random_problem().weighted(TIMES)
    for part in (problem.subset(torch.tensor([2, 0])), problem.restrict(torch.tensor([2, 0]), problem.start())[0]):
        assert part.sample_weight is not None
        assert part.sample_weight.tolist() == [3, 2]
    assert problem.weighted(torch.ones(5)).normalized_weights.tolist() == [0.2] * 5


@pytest.mark.parametrize("wrong", [[1.0, 2.0], [1.0, 1.0, 0.0, 1.0, 1.0], [1.0, 1.0, float("nan"), 1.0, 1.0]], ids=str)
def test_weights_must_be_positive_and_one_for_each_example(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="sample_weight"):
        random_problem().weighted(torch.tensor(wrong))


@pytest.mark.parametrize("solver", [SoftBCFW(), DLPW()], ids=lambda solver: type(solver).__name__)
def test_solvers_that_know_no_weights_say_so(solver: Solver[Any]) -> None:
    graphs = FactorGraphs(
        torch.randn(4, 2),
        torch.tensor([0, 1, 1, 0]),
        torch.tensor([0, 2, 4]),
        torch.tensor([[0, 1], [0, 1]]),
        torch.arange(3),
    )
    problem = FactorGraphProblem(graphs, states=2).weighted(torch.tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="weights of examples"):
        solver.solve(problem, lam=LAM, passes=1)
    assert BCFW().solve(problem, lam=LAM, passes=20).row.gap < 0.1
