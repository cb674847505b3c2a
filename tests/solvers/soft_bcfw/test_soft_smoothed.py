"""Soft agreement with smoothed maxima, against the smooth problem of weights and messages by quasi-Newton steps."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from scipy.optimize import minimize
from soft_pieces import EnumeratedDual, factor_problem
from torch import Tensor
from torch.testing import assert_close

from structsmooth import L2, LBFGS, Entropy, FactorGraph, LinearModuleProblem, SoftBCFW
from structsmooth.factors import LocalPolytope
from structsmooth.scores import PairScore
from structsmooth.solvers.soft_bcfw.dual import SoftValues
from structsmooth.solvers.soft_bcfw.pieces import Decomposition
from structsmooth.solvers.soft_bcfw.smoothed import SmoothedSoftDual

LAM, RHO = 0.2, 1.5


class Relaxed(PairScore):
    """The local polytopes of the graphs."""

    def forward(self, x: Any) -> LocalPolytope:
        return LocalPolytope(super().forward(x), tolerance=1e-12, max_sweeps=5000)


def smooth_problem(level: float, states: int = 3, relaxed: bool = False) -> LinearModuleProblem:
    """Four graphs of four nodes with cycles, one with fewer edges."""
    generator, data = torch.Generator().manual_seed(0), []
    for i in range(4):
        edges = (
            torch.tensor([[0, 1], [1, 2], [2, 0], [2, 3]]) if i else torch.tensor([[3, 1], [0, 2], [-1, -1], [-1, -1]])
        )
        x, f = (torch.randn(4, k, generator=generator, dtype=torch.float64) for k in (3, 2))
        data.append(((x, f, edges), torch.randint(states, (4,), generator=generator)))
    module = (Relaxed if relaxed else PairScore)(3, 2, states)
    return LinearModuleProblem(module, data, smoother=Entropy(level))


def least_objective(problem: LinearModuleProblem, level: float, rho: float) -> float:
    """min over w and δ of the smoothed maxima of all nodes and edges and (ρ/(2n))‖δ‖², by L-BFGS."""
    whole: list[tuple[FactorGraph, Any]] = []
    for i in range(problem.n):
        structure = problem.example(i).structure
        assert isinstance(structure, FactorGraph)
        whole.append((structure, problem.example(i)))
    kept = [structure.edge_mask[0] for structure, _ in whole]
    ends = [structure.edges.view(-1, 2)[own] for (structure, _), own in zip(whole, kept, strict=True)]
    sizes = [2 * len(own) * whole[0][0].unary.shape[2] for own in ends]

    def value(point: Tensor) -> Tensor:
        w, *deltas = point.split([problem.dim, *sizes])
        total = LAM / 2 * w @ w
        for i, own in enumerate(deltas):
            example = whole[i][1]
            unary, pairwise = problem.structure(w, example.x).potentials
            label = sum((p * m).sum() for p, m in zip((unary, pairwise), example.parts, strict=True))
            unary, pairwise = unary[0] + example.costs[0][0], (pairwise[0] + example.costs[1][0])[kept[i]]
            delta = own.view(-1, 2, unary.shape[1])
            received = unary.index_add(0, ends[i].flatten(), delta.flatten(0, 1))
            left = pairwise - delta[:, 0, :, None] - delta[:, 1, None, :]
            maxima = sum(level * (own_scores.flatten(1) / level).logsumexp(1).sum() for own_scores in (received, left))
            total = total + (maxima - label + rho / 2 * own @ own) / problem.n
        return total

    def both(x: Any) -> tuple[float, Any]:
        point = torch.from_numpy(x).requires_grad_()
        found = value(point)
        (gradient,) = torch.autograd.grad(found, point)
        return float(found.detach()), gradient.numpy()

    options = {"maxiter": 20000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 50}
    start = torch.zeros(problem.dim + sum(sizes), dtype=torch.float64).numpy()
    return float(minimize(both, start, jac=True, method="L-BFGS-B", options=options).fun)


@pytest.mark.parametrize("level", [0.2, 1.0, 5.0])
def test_a_constant_penalty_has_the_optimum_of_the_smooth_problem(level: float) -> None:
    problem = smooth_problem(level)
    optimum = least_objective(problem, level, RHO)
    solver = SoftBCFW(rho=RHO, penalty="constant", sweeps=3, gap_tolerance=1e-9)
    rows = solver.solve(problem, lam=LAM, passes=300).history
    assert all(a.dual <= b.dual + 1e-12 for a, b in pairwise(rows))
    assert rows[-1].dual - 1e-8 <= optimum <= rows[-1].objective + 1e-8
    assert rows[-1].dual == pytest.approx(optimum, rel=1e-6)


def test_multipliers_have_the_optimum_of_the_smoothed_local_polytope() -> None:
    """Its oracle is message passing at a temperature, with quasi-Newton steps on the weights."""
    level = 1.0
    problem, rival = smooth_problem(level), smooth_problem(level, relaxed=True)
    optimum = least_objective(problem, level, 0.0)
    result = SoftBCFW(sweeps=3, gap_tolerance=1e-6).solve(problem, lam=LAM, passes=300)
    last = result.history[-1]
    assert last.dual - 1e-7 <= optimum <= last.objective + 1e-7
    assert last.objective == pytest.approx(optimum, rel=1e-4)
    assert last.dual == pytest.approx(optimum, rel=1e-4)
    same = LBFGS().solve(rival, lam=LAM, passes=60).row
    assert optimum - 1e-6 <= same.objective <= (1 + 1e-3) * optimum
    full = rival.loss(result.weights, Entropy(level)) + LAM / 2 * float(result.weights @ result.weights)
    assert full == pytest.approx(optimum, rel=1e-4)


def test_points_belong_to_their_values() -> None:
    problem = smooth_problem(0.5)
    state = SoftBCFW(penalty="constant").solve(problem, lam=LAM, passes=5).state
    dual = SmoothedSoftDual(problem, LAM, level=0.5)
    values = dual.values(state.point, state.rho)
    assert isinstance(values, SoftValues)
    assert values.gaps == pytest.approx(values.soft - values.dual, abs=1e-10)
    assert_close(dual.weights(state.point), state.weights)
    for marginals in (state.point.nodes, state.point.edges):
        assert marginals.min() >= 0
        assert_close(marginals.flatten(1).sum(1), torch.ones(len(marginals)).double())


def test_smoothed_hinges_tend_to_hinges() -> None:
    """By at most h log of the numbers of states (Proposition 9), which holds for each block."""
    graph = smooth_problem(1.0)
    hard = LinearModuleProblem(graph.module, graph.dataset)
    solver = SoftBCFW(rho=RHO, penalty="constant", sweeps=3)
    optimum = solver.solve(hard, lam=LAM, passes=150).row
    for level in (0.3, 0.05):
        row = solver.solve(smooth_problem(level), lam=LAM, passes=100).row
        blocks = 4 * torch.tensor(3.0).log() + 3.5 * torch.tensor(9.0).log()
        assert optimum.dual - 1e-9 <= row.objective
        assert row.dual <= optimum.objective + level * float(blocks) + 1e-9


@pytest.mark.parametrize(("by", "logic"), [("factors", False), ("factors", True), ("whole", True)])
@pytest.mark.parametrize("level", [0.5, 3.0])
def test_factors_are_smoothed_too(by: Decomposition, logic: bool, level: float) -> None:
    """Their distributions are known by means and by a bound on the entropy, which tends to it."""
    problem = factor_problem(2, logic=logic, smoother=Entropy(level))
    optimum = EnumeratedDual.of(problem, LAM, RHO, by).smoothed_optimum(level / problem.n)
    solver = SoftBCFW(rho=RHO, penalty="constant", decomposition=by, sweeps=3, gap_tolerance=1e-8)
    rows = solver.solve(problem, lam=LAM, passes=120).history
    assert all(a.dual <= b.dual + 1e-12 for a, b in pairwise(rows))
    assert rows[-1].dual - 1e-8 <= optimum <= rows[-1].objective + 1e-8
    assert rows[-1].dual == pytest.approx(optimum, rel=1e-4)


@pytest.mark.parametrize("by", ["factors", "whole"])
def test_multipliers_close_the_gap_of_smoothed_factors(by: Decomposition) -> None:
    rows = SoftBCFW(decomposition=by, sweeps=2).solve(factor_problem(smoother=Entropy(1.0)), lam=LAM, passes=60).history
    assert rows[-1].gap < 0.01 * rows[-1].objective
    assert all(row.dual <= rows[-1].objective + 1e-9 for row in rows)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="decomposition='forests' has no smoothed maxima; take 'factors' or 'whole'"):
        SoftBCFW(decomposition="forests").solve(smooth_problem(1.0), lam=1)
    with pytest.raises(ValueError, match="SoftBCFW needs a problem of hinges or likelihoods"):
        SoftBCFW().solve(factor_problem(smoother=L2(1.0, 2)), lam=1)
