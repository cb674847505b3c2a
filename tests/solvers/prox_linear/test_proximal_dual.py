"""The dual of proximal models against full Jacobians, exact minima and other solvers."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import PROBLEMS, chain_problem
from small_problems import collate, random_problem
from small_problems import dense_examples as examples_of
from solver_cases import small_problem
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BCFW, Entropy, LinearChain, LinearModuleProblem, LinearScore, ModuleProblem, ProxLinear, Tree
from structsmooth.problems import Problem
from structsmooth.solvers.prox_linear.proximal_dual import BlockStatistics, ProximalDual, ProximalPoint, linearized

LAM, ETA, SIZE = 0.05, 0.7, 2


def noise(problem: Problem, seed: int) -> Tensor:
    return torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ragged(smoother: Any = None) -> ModuleProblem:
    """Sequences of different lengths, so that batches differ in their padding; scores are not linear."""
    data = examples_of(random_problem((3, 1, 4, 2, 3), features=4))
    module = LinearScore(4, 3, torch.float64)
    module.affine = False
    settings = {} if smoother is None else {"smoother": smoother}
    return ModuleProblem(Bent(module), data, batch_size=SIZE, collate=collate, **settings)


class Bent(torch.nn.Module):
    """The hyperbolic tangents of a chain's scores."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> LinearChain:
        chain = self.module(x)
        unary, transition = chain.potentials
        return chain.replace(2 * torch.tanh(unary), transition)


# The linearized agreement of the graph cut may be negative.
MODELS: dict[str, Callable[[], Problem]] = {
    **{name: build for name, build in PROBLEMS.items() if name != "graph"},
    "ragged": ragged,
    "likelihood": lambda: ragged(Entropy(1.0)),
    "weighted": lambda: ragged().weighted(torch.linspace(0.5, 3.0, 5)),
    "sparse chain": small_problem,
    "linear module": lambda: LinearModuleProblem(
        LinearScore(4, 3, torch.float64), examples_of(random_problem(features=4)), collate=collate
    ),
}
every_model = pytest.mark.parametrize("name", MODELS)


def dual_of(problem: Problem, center: Tensor) -> ProximalDual:
    examples = torch.from_numpy(np.random.default_rng(0).permutation(problem.n)).split(SIZE)
    return ProximalDual(linearized(problem, center), LAM, ETA, center, examples)


def labels_of(dual: ProximalDual) -> ProximalPoint:
    return dual.point(BlockStatistics.of_labels(dual.center, len(dual.examples)))


def ascended(dual: ProximalDual, passes: int) -> ProximalPoint:
    point = labels_of(dual)
    for seed in range(passes):
        point = dual.ascend(point, np.random.default_rng(seed))
    return point


def primal(problem: Problem, center: Tensor, w: Tensor) -> float:
    """The model at ``w``, by a pass over all linearized losses."""
    quadratic = LAM / 2 * w.square().sum() + (w - center).square().sum() / (2 * ETA)
    return problem.linearize(center).loss(w) + float(quadratic)


@every_model
def test_the_dual_rises_to_the_minimum_of_the_model(name: str) -> None:
    problem = MODELS[name]()
    center = problem.start() + noise(problem, 1)
    dual = dual_of(problem, center)
    point, values = labels_of(dual), []
    for seed in range(60):
        values.append(float(point.value))
        point = dual.ascend(point, np.random.default_rng(seed))
    assert all(b >= a - 1e-12 for a, b in pairwise(values))
    first = primal(problem, center, center) - values[0]
    gap = primal(problem, center, point.weights) - float(point.value)
    assert -1e-12 <= gap <= 0.05 * first
    calls = problem.oracle_calls
    assert dual.gap(point) == pytest.approx(gap, abs=1e-10)
    assert problem.oracle_calls - calls == problem.n


@every_model
def test_one_oracle_call_for_each_example_of_a_pass_and_none_for_a_point(name: str) -> None:
    problem = MODELS[name]()
    dual = dual_of(problem, problem.start())
    point, calls = labels_of(dual), problem.oracle_calls
    for passes in (1, 2):
        point = dual.ascend(point, np.random.default_rng(passes))
        assert problem.oracle_calls - calls == passes * problem.n
        assert dual.point(point.blocks).gap == torch.inf
        assert problem.oracle_calls - calls == passes * problem.n


@every_model
def test_steps_keep_weights_and_value_as_another_pass_would_find_them(name: str) -> None:
    problem = MODELS[name]()
    dual = dual_of(problem, problem.start() + noise(problem, 1))
    point = ascended(dual, 3)
    again = dual.point(point.blocks)
    assert_close(again.weights, point.weights, rtol=0, atol=1e-10)
    assert_close(again.value, point.value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["chain", "tree", "candidates", "ragged", "likelihood"])
def test_kept_statistics_after_another_linearization(name: str) -> None:
    """They are planes below the losses there, too, by full Jacobians; weights are the minimum over these planes."""
    problem = MODELS[name]()
    assert isinstance(problem, ModuleProblem)
    blocks = ascended(dual_of(problem, problem.start() + noise(problem, 1)), 3).blocks
    center = problem.start() + noise(problem, 2)
    dual = dual_of(problem, center)
    point, slopes, constants = dual.point(blocks), [], []
    for examples, statistics, constant in zip(dual.examples, blocks.statistics, blocks.constants, strict=True):
        w = center.clone().requires_grad_()
        structure = problem.structure(w, problem.batch(examples)[0]).batched()
        moving = torch.cat([p.flatten() for p in structure.potentials if p.requires_grad])
        finite = torch.isfinite(moving)
        assert not statistics[~finite].any()
        (slope,) = torch.autograd.grad(moving[finite] @ statistics[finite], w, retain_graph=True)
        slopes.append(slope)
        constants.append(constant + moving.detach()[finite] @ statistics[finite] - slope @ center)
    slope, constant = torch.stack(slopes).sum(0) / problem.n, torch.stack(constants).sum() / problem.n
    expected = (center / ETA - slope) / (LAM + 1 / ETA)
    assert_close(point.weights, expected, rtol=0, atol=1e-10)
    quadratic = LAM / 2 * expected.square().sum() + (expected - center).square().sum() / (2 * ETA)
    assert_close(point.value, constant + slope @ expected + quadratic, rtol=0, atol=1e-10)
    for seed in range(5):
        w = center + noise(problem, seed)
        for own_slope, own_constant, examples in zip(slopes, constants, dual.examples, strict=True):
            losses = dual.problem.batch_losses(w, examples, problem.smoother)
            assert own_slope @ w + own_constant <= losses.sum() + 1e-10


@pytest.mark.parametrize(("name", "structure"), [("chain", LinearChain), ("tree", Tree)])
def test_structures_without_potentials_for_each_example(
    name: str, structure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are fixed, so that examples may share potentials."""
    problem = MODELS[name]()
    dual = dual_of(problem, problem.start() + noise(problem, 1))
    expected = ascended(dual, 3)
    monkeypatch.setattr(structure, "batched", lambda _: None)
    point = ascended(dual, 3)
    assert_close(point.weights, expected.weights, rtol=0, atol=1e-10)
    assert_close(point.value, expected.value, rtol=0, atol=1e-10)


def test_the_reported_gap_is_that_of_the_model() -> None:
    problem, states = chain_problem(), []
    solver = ProxLinear(
        learning_rate=ETA, inner=BCFW(), inner_stop="gradient", inner_passes=40, accept="always", tolerance=0.5
    )
    solver.solve(problem, lam=LAM, passes=60, callbacks=[lambda progress: states.append(progress.state)])
    assert len(states) > 4
    for k, (before, after) in enumerate(pairwise(states), 1):
        dual = dual_of(problem, before.weights)
        point = ProximalDual(dual.problem, LAM, ETA, before.weights, solver.blocks(problem)).point(after.blocks)
        gap = primal(problem, before.weights, after.weights) - float(point.value)
        assert after.model_gap == solver.metrics(after)["model_gap"] == pytest.approx(gap, abs=1e-10)
        assert after.model_gap <= 0.5 / k or after.passes - before.passes == 40 or after.passes == 60


@pytest.mark.parametrize("affine", [True, False])
def test_affine_scores_have_the_optimum_of_bcfw(affine: bool) -> None:
    data = examples_of(random_problem(features=4))
    module = LinearScore(4, 3, torch.float64)
    best = BCFW(gap_tolerance=1e-6).solve(LinearModuleProblem(module, data, collate=collate), lam=LAM, passes=3000)
    module.affine = affine
    problem = ModuleProblem(module, data, batch_size=SIZE, collate=collate)
    last = ProxLinear(inner=BCFW()).solve(problem, lam=LAM, passes=400).row
    assert best.row.dual <= last.objective + 1e-9
    assert last.objective == pytest.approx(best.row.objective, rel=1e-3)


def test_needs_statistics() -> None:
    class Own(ModuleProblem):
        def linearize(self, w: Tensor) -> Problem:
            return Bare()

    problem = chain_problem()
    problem.__class__ = Own
    with pytest.raises(
        TypeError, match=r"ProxLinear\(inner=BCFW\(\)\) needs a linearization with statistics, got a Bare"
    ):
        ProxLinear(inner=BCFW()).solve(problem, lam=LAM, passes=1)


class Bare(Problem):
    """A problem without statistics."""

    n = dim = 1

    def start(self) -> Tensor:
        return torch.zeros(1)

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Any) -> Tensor:
        return w.expand(len(indices))

    def subset(self, indices: Tensor) -> Problem:
        return self
