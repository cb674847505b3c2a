"""Linear modules over the local polytope: the answers of their oracles are statistics."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from factor_graphs import relaxed_objective, relaxed_optimum
from torch import Tensor, nn
from torch.testing import assert_close

from structsmooth import (
    BCFW,
    SGD,
    CuttingPlane,
    FactorGraph,
    FactorGraphProblem,
    FactorGraphs,
    FrankWolfe,
    LinearModuleProblem,
    LinearProblem,
    LocalPolytope,
    Max,
    ModuleProblem,
    Problem,
    ProximalBCFW,
    ScoreModule,
    certify,
)
from structsmooth.problems.affine import flat
from structsmooth.problems.linear.base import BlockBatch
from structsmooth.solvers import Solver

LAM, EXAMPLES, NODES, FEATURES = 0.5, 5, 4, 3
EDGES = torch.tensor([[0, 1], [2, 1], [2, 3], [0, 3], [0, 2]])


class Loops(ScoreModule):
    """A graph with loops: x [B, N, F]; the scores of pairs are shared by all edges."""

    def __init__(self, states: int, method: Any, expanded: bool, max_sweeps: int = 500) -> None:
        super().__init__()
        self.labels = nn.Parameter(torch.zeros(states, FEATURES, dtype=torch.float64))
        self.pairs = nn.Parameter(torch.zeros(states, states, dtype=torch.float64))
        self.method, self.expanded, self.max_sweeps = method, expanded, max_sweeps

    def forward(self, x: Tensor) -> LocalPolytope:
        pairs = self.pairs.expand(len(EDGES), -1, -1) if self.expanded else self.pairs
        graph = FactorGraph(x @ self.labels.T, EDGES, pairs)
        return LocalPolytope(graph, method=self.method, max_sweeps=self.max_sweeps)


def data(states: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(EXAMPLES, NODES, FEATURES, generator=generator, dtype=torch.float64)
    return x, torch.randint(states, (EXAMPLES, NODES), generator=generator)


def module_problem(states: int, method: Any = "auto", expanded: bool = False, **settings: Any) -> LinearModuleProblem:
    return LinearModuleProblem(Loops(states, method, expanded, **settings), list(zip(*data(states), strict=True)))


def test_atoms_are_scored_together() -> None:
    problem = module_problem(2)
    w = torch.randn(problem.dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    augmented = problem.augmented(w, 0)
    answers = (problem.oracle(tuple(sign * p for p in augmented), 0).atom for sign in (1, -1))
    atoms = torch.stack([atom for atom in answers if atom is not None])
    scores = problem.atom_scores(augmented, atoms, 0)
    assert_close(scores, LinearProblem.atom_scores(problem, augmented, atoms, 0))
    assert scores[0] > scores[1]


def graph_problem(states: int, inference: Any = "relaxed") -> FactorGraphProblem:
    x, y = data(states)
    graphs = FactorGraphs(
        features=x.flatten(0, 1),
        labels=y.flatten(),
        node_offsets=NODES * torch.arange(EXAMPLES + 1),
        edges=EDGES.repeat(EXAMPLES, 1),
        edge_offsets=len(EDGES) * torch.arange(EXAMPLES + 1),
    )
    return FactorGraphProblem(graphs, states, pairwise="table", bias=False, inference=inference)


@pytest.mark.parametrize("expanded", [False, True])
def test_responses_are_those_of_the_relaxed_problem(expanded: bool) -> None:
    problem, expected = module_problem(2, expanded=expanded), graph_problem(2)
    w = 0.2 * torch.randn(problem.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w[-4:] -= 3 * torch.eye(2, dtype=torch.float64).flatten()  # nodes must differ, which triangles cannot
    assert problem.loss(w) == pytest.approx(expected.loss(w), abs=1e-12)
    fractional = 0
    for block in range(problem.n):
        own, other = (p.oracle(p.augmented(w, block), block) for p in (problem, expected))
        assert_close(own.value, other.value, rtol=0, atol=1e-12)
        assert own.atom is not None
        assert_close(own.atom, flat(own.statistics), rtol=0, atol=0)
        assert_close(own.statistics[0][0], other.statistics[0], rtol=0, atol=1e-9)
        assert all(map(torch.equal, problem.parts(own.atom, block), own.statistics))
        assert own.atom.shape == problem.label_atom(block).shape
        assert_close(problem.adjoint(own.statistics, block), expected.adjoint(other.statistics, block))
        fractional += bool((own.statistics[0] % 1 != 0).any())
    assert fractional > 0


SOLVERS = {
    "pairwise": BCFW(gap_tolerance=1e-7),
    "away, cache": BCFW(steps="away", cache=True, gap_tolerance=1e-7),
    "proximal": ProximalBCFW(gap_tolerance=1e-7),
}


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
def test_solvers_of_the_dual_reach_the_optimum(solver: BCFW) -> None:
    result = solver.solve(module_problem(2), lam=LAM, passes=1000)
    last, least = result.row, relaxed_optimum(graph_problem(2), LAM)
    assert last.gap is not None
    assert -1e-12 <= last.gap < 1e-6
    assert last.objective == pytest.approx(least, abs=2e-6)
    assert all(a <= b + 1e-12 for a, b in pairwise(result.history.column("dual")))


def test_more_states_by_linear_programs() -> None:
    last = BCFW(gap_tolerance=0).solve(module_problem(3, "lp"), lam=2.0, passes=20).row
    least = relaxed_optimum(graph_problem(3), 2.0)
    assert last.dual is not None
    assert last.dual - 1e-7 <= least <= last.objective + 1e-7
    assert last.objective - last.dual <= 0.02 * last.objective


def test_certificates() -> None:
    problem, least = module_problem(2), relaxed_optimum(graph_problem(2), LAM)
    w = torch.zeros(problem.dim, dtype=torch.float64)
    certificate = certify(problem, w, LAM, accuracy=1e-3)
    suboptimality = problem.loss(w) - least
    assert certificate.suboptimality_lower_bound - 1e-7 <= suboptimality <= certificate.gap + 1e-7
    assert certificate.gap == pytest.approx(suboptimality, rel=2e-3)


def test_a_run_resumes_with_its_atoms() -> None:
    solver, moments = BCFW(gap_tolerance=0), list[Any]()
    whole = solver.solve(
        module_problem(2), lam=LAM, passes=6, callbacks=[lambda p: moments.append((replace(p.state), p.history[:]))]
    )
    state, _ = moments[3]
    assert state.point.outputs.dtype == torch.float64
    rest = solver.solve(module_problem(2), lam=LAM, passes=6, resume=(state, type(whole.history)(whole.history[:4])))
    assert torch.equal(rest.weights, whole.weights)


def away(problem: Problem, seed: int) -> Tensor:
    """Weights under which neighbours in triangles would like to differ."""
    w = 0.2 * torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    w[-9:] -= 3 * torch.eye(3, dtype=torch.float64).flatten()
    return w


@pytest.mark.parametrize("sweeps", [10, 30, 500])
def test_objectives_are_bounds_however_few_sweeps_messages_make(sweeps: int) -> None:
    """Above the linear programs, and below them where the value of the point was taken; in every kind of problem."""
    linear, slack = module_problem(3, "messages", max_sweeps=sweeps), 0.0
    module = ModuleProblem(linear.module, linear.dataset, linear.cost, chunk_size=2)
    by_blocks = CountedBlocks(linear.module, linear.dataset, linear.cost)
    for seed in range(6):
        w = away(linear, seed)
        exact, indices = relaxed_objective(graph_problem(3), w, 0.0), torch.arange(EXAMPLES)
        losses = [problem.loss(w) for problem in (linear, module, by_blocks)]
        losses += [
            problem.full_pass(w, Max(), with_loss=True, with_statistics=kept).loss
            for problem in (linear, module, by_blocks)
            for kept in (False, True)
        ]
        losses.append(module.linearize(w).loss(w))
        for loss in losses:
            assert loss == pytest.approx(losses[0], abs=1e-5)  # examples of a batch stop together
            assert loss >= exact - 1e-12
        below = float(linear.batch_losses(w, indices, Max()).mean())
        assert below <= exact + 1e-9
        slack = max(slack, losses[0] - below)
    assert sweeps == 500 or slack > 1e-3  # else nothing is tested


@pytest.mark.parametrize("inference", ["relaxed", "lp"])
def test_objectives_of_factor_graph_problems_are_bounds(inference: str) -> None:
    problem = graph_problem(3, inference)
    for seed in range(6):
        w = away(problem, seed)
        exact = relaxed_objective(problem, w, 0.0)
        assert -1e-12 <= problem.loss(w) - exact <= 1e-5
        assert problem.full_pass(w, Max(), with_loss=True).loss == pytest.approx(problem.loss(w), abs=1e-12)


class CountedBlocks(LinearModuleProblem):
    """Batches block by block."""

    def affine_batch(self, indices: Tensor) -> BlockBatch:
        return BlockBatch(self, indices)


@pytest.mark.parametrize("solver", [BCFW(), FrankWolfe(), CuttingPlane(), ProximalBCFW(), SGD()], ids=str)
def test_gaps_are_never_negative(solver: Solver[Any]) -> None:
    """With point and bound far apart: the objective is above the optimum, and the dual below."""
    least = relaxed_optimum(graph_problem(3), 0.1)
    history = (
        replace(solver, gap_tolerance=0).solve(module_problem(3, "messages", max_sweeps=10), lam=0.1, passes=15).history
    )
    for row in history:
        assert row.dual is not None
        assert row.dual - 1e-9 <= least <= row.objective + 1e-9
        assert row.gap is not None
        assert row.gap >= 0
