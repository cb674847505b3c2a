"""Linear modules on any structure: against the sparse chain, quadratic programs, and the dual they must have."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from linear_problems import FEATURES, SPACES, Chain, Classes, Graph, examples, labelings, problem_of
from numpy.typing import NDArray
from scipy.optimize import minimize
from small_problems import collate, dense_examples, random_problem, random_weights
from torch import Tensor, nn
from torch.testing import assert_close

from structsmooth import (
    BCFW,
    L2,
    SGD,
    Candidates,
    CasimirSVRG,
    Entropy,
    Hamming,
    LinearModuleProblem,
    LinearScore,
    Max,
    ScoreModule,
    Structure,
    WeightedHamming,
)
from structsmooth.costs import NormalizedHamming
from structsmooth.problems import LinearProblem, Problem, SparseChainProblem
from structsmooth.smoothing import Smoother
from structsmooth.solvers import SVRG, Status
from structsmooth.solvers.bcfw.steps import epoch, plain

LAM = 0.2
EXACTLY = {"rtol": 0.0, "atol": 1e-9}
every_space = pytest.mark.parametrize("space", SPACES)


def dense(sparse: SparseChainProblem, **settings: Any) -> LinearModuleProblem:
    module = LinearScore(sparse.features, sparse.states)
    return LinearModuleProblem(
        module, dense_examples(sparse), sparse.cost, collate=collate, bounds=sparse.bounds, **settings
    )


def test_sequences_of_other_lengths_are_told_how_to_be_put_together() -> None:
    x = [torch.randn(n, 3) for n in (2, 4)]
    data = [(one, one.argmax(-1)) for one in x]
    w = torch.randn(sum(p.numel() for p in LinearScore(3, 3).parameters()))
    with pytest.raises(ValueError, match=r"different sizes.*: give collate=.*such as (lambda .*\)\)) for") as caught:
        LinearModuleProblem(LinearScore(3, 3, torch.float32), data).loss(w)
    line = re.findall(r"lambda .*\)\)", str(caught.value))[0]
    padded = eval(line, {"torch": torch, "pad_sequence": nn.utils.rnn.pad_sequence})
    problem = LinearModuleProblem(LinearScore(3, 3, torch.float32), data, collate=padded)
    alone = [LinearModuleProblem(LinearScore(3, 3, torch.float32), [pair]) for pair in data]
    assert problem.loss(w) == pytest.approx(sum(one.loss(w) for one in alone) / 2)


def margins(problem: LinearModuleProblem, space: str) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Rows φ(x_i, y) − φ(x_i, y_i) and costs of all outputs y of each example, from scores alone."""
    rows = []
    for i in range(problem.n):
        x, y = problem.batch(torch.tensor([i]))
        outputs = torch.tensor(SPACES[space][2])

        def scores(w: Tensor, x: Any = x, outputs: Tensor = outputs) -> Tensor:
            structure = problem.structure(w, x)
            return torch.cat([structure.score(output[None]) for output in outputs])

        features = torch.autograd.functional.jacobian(scores, torch.zeros(problem.dim, dtype=torch.float64))
        gold = outputs.tolist().index(y[0].tolist())
        costs = np.zeros(len(outputs))
        if problem.cost is not None:
            structure = problem.structure(torch.zeros(problem.dim, dtype=torch.float64), x)
            costed = structure.cost_augmented(y, problem.cost)
            costs = torch.cat([costed.score(output[None]) for output in outputs]).detach().numpy()
        rows.append(((features - features[gold]).numpy(), costs))
    return rows


def optimum(problem: LinearModuleProblem, space: str) -> float:
    """min F within the bounds: the primal quadratic program with a slack for each example."""
    n, dim, rows = problem.n, problem.dim, margins(problem, space)
    slack = np.repeat(np.eye(n), [len(costs) for _, costs in rows], axis=0)
    matrix = np.hstack([-np.vstack([features for features, _ in rows]), slack])
    costs = np.concatenate([costs for _, costs in rows])
    bounds = [(None, None)] * dim
    if problem.bounds is not None:
        bounds = list(zip(*(bound.tolist() for bound in problem.bounds), strict=True))
    solution = minimize(
        lambda v: (LAM / 2 * v[:dim] @ v[:dim] + v[dim:].mean(), np.r_[LAM * v[:dim], np.full(n, 1 / n)]),
        np.r_[np.zeros(dim), np.full(n, costs.max())],
        jac=True,
        method="SLSQP",
        bounds=bounds + [(None, None)] * n,
        constraints={"type": "ineq", "fun": lambda v: matrix @ v - costs, "jac": lambda v: matrix},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    w = solution.x[:dim]
    return float(np.mean([(features @ w + costs).max() for features, costs in rows]) + LAM / 2 * w @ w)


class PlainSparse(SparseChainProblem):
    """The sparse chain with the plain steps, which break ties by the same roundings."""


epoch.register(PlainSparse, plain)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("sampling", ["uniform", "gap"])
@pytest.mark.parametrize("steps", ["fw", "pairwise", "away"])
def test_steps_are_those_of_the_sparse_chain(steps: Any, sampling: Any, average: bool, bounded: bool) -> None:
    compiled = random_problem(seed=1, cost=WeightedHamming((1.0, 2.1, 0.57)))
    bounds = (torch.full((compiled.dim,), -0.3), torch.full((compiled.dim,), 0.4)) if bounded else None
    sizes = (compiled.features, compiled.states)
    sparse = PlainSparse(compiled.sequences, compiled.labels, *sizes, compiled.cost, bounds=bounds)
    solver, iterates = BCFW(sampling=sampling, steps=steps, average=average, gap_tolerance=0), []
    # An exact pairwise step leaves two outputs with the same score: the next on the example breaks a tie by rounding.
    passes = 2 if steps == "pairwise" else 8
    for problem in (sparse, dense(sparse)):
        states: list[Tensor] = []
        callback = lambda progress, states=states: states.append(progress.state.weights.clone())  # noqa: E731
        solver.solve(problem, lam=LAM, passes=passes, callbacks=[callback])
        iterates.append(torch.stack(states))
    assert_close(*iterates, **EXACTLY)
    assert iterates[0][-1].abs().max() > 0.1


# Without pairwise steps, whose ties are broken by rounding.
@pytest.mark.parametrize(
    "solver", [BCFW(steps="fw"), CasimirSVRG(), SVRG(), SGD()], ids=lambda solver: type(solver).__name__
)
def test_solvers_do_what_they_do_with_the_compiled_chain(solver: Any) -> None:
    sparse = random_problem(seed=1)
    results = [solver.solve(problem, lam=LAM, passes=8) for problem in (sparse, dense(sparse))]
    assert_close(*(result.weights for result in results), rtol=0, atol=1e-8)
    for name in ("objective", "dual", "gap"):
        assert results[0].history.column(name) == pytest.approx(results[1].history.column(name), abs=1e-8)


@pytest.mark.parametrize("own", [Max(), Entropy(0.5), L2(0.7, 3)], ids=str)
@pytest.mark.parametrize("asked", [Max(), Entropy(0.5), L2(0.7, 3)], ids=str)
@pytest.mark.parametrize("cost", [Hamming(), NormalizedHamming(), None], ids=str)
def test_full_passes_are_those_of_the_sparse_chain(cost: Any, asked: Smoother, own: Smoother) -> None:
    sparse = random_problem(cost=cost)
    sparse = SparseChainProblem(sparse.sequences, sparse.labels, sparse.features, sparse.states, cost, own)
    w = random_weights(sparse)
    for chunk_size in (1, 2, 100):
        problem = dense(sparse, smoother=own, chunk_size=chunk_size)
        full, expected = (p.full_pass(w, asked, with_loss=True) for p in (problem, sparse))
        for name in ("smoothed_loss", "loss", "expected_cost"):
            assert getattr(full, name) == pytest.approx(getattr(expected, name), abs=1e-10)
        assert_close(full.gradient, expected.gradient, rtol=0, atol=1e-10)
        # The top-K oracle gives the max as well.
        once = asked == own or (asked, own) == (L2(0.7, 3), Max())
        assert (full.smoother, problem.oracle_calls) == (asked, problem.n * (1 if once else 2))
        assert torch.equal(full.weights, w)
        default = Problem.full_pass(problem, w, asked)
        assert full.smoothed_loss == pytest.approx(default.smoothed_loss, abs=1e-12)
        assert problem.full_pass(w, asked).loss is None


@every_space
@pytest.mark.parametrize("smoother", [Max(), L2(0.7, 3)], ids=str)
def test_change_of_the_gradient_takes_one_oracle_call(space: str, smoother: Smoother) -> None:
    problem, generator = problem_of(space, chunk_size=4), torch.Generator().manual_seed(0)
    gaussian = torch.randn(problem.dim, generator=generator, dtype=torch.float64)
    w, v = problem.within_bounds(gaussian), problem.within_bounds(-gaussian)
    snapshot = problem.full_pass(v, smoother)
    for batch in torch.tensor([[0, 1], [5, 5], [3, 2]]):
        calls = problem.oracle_calls
        change = problem.gradient_change(w, snapshot, batch)
        assert problem.oracle_calls - calls == 2
        assert_close(change, Problem.gradient_change(problem, w, snapshot, batch), rtol=0, atol=1e-10)


@every_space
@pytest.mark.parametrize("steps", ["fw", "pairwise", "away"])
def test_reaches_the_optimum_of_the_quadratic_program(steps: Any, space: str) -> None:
    problem = problem_of(space)
    best = optimum(problem, space)
    result = BCFW(steps=steps, gap_tolerance=2e-2).solve(problem, lam=LAM, passes=500)
    last = result.row
    assert last.dual is not None
    assert last.dual <= best + 1e-7
    assert best <= last.objective + 1e-7
    assert result.status is Status.CONVERGED
    if problem.bounds is not None:
        assert (result.weights >= problem.bounds[0]).all()


@every_space
@pytest.mark.parametrize("solver", [CasimirSVRG(k=3), SVRG(), SGD()], ids=lambda s: type(s).__name__)
def test_lower_bounds_of_primal_solvers(solver: Any, space: str) -> None:
    # Without bounds the pairs of a graph may stop to be supermodular; those of these data do not.
    problem = problem_of(space, bounds=None) if space != "graph" else problem_of("chain, shared")
    best = optimum(problem, space if space != "graph" else "chain, shared")
    history = solver.solve(problem, lam=LAM, passes=6).history
    duals = history.column("dual")
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(duals))
    assert all(dual <= best + 1e-7 for dual in duals)
    assert duals[-1] > 0
    assert all(row.objective >= best - 1e-7 for row in history)


@every_space
def test_parts_potentials_and_adjoint(space: str) -> None:
    problem, generator = problem_of(space), torch.Generator().manual_seed(3)
    w = torch.rand(problem.dim, generator=generator, dtype=torch.float64)
    for i in range(problem.n):
        potentials, (features, costs) = problem.potentials(w, i), margins(problem, space)[i]
        gold = sum(float((p * m).sum()) for p, m in zip(potentials, problem.label_parts(i), strict=True))
        for row, cost, output in zip(features, costs, SPACES[space][2], strict=True):
            parts = problem.parts(torch.tensor(output).flatten(), i)
            assert [p.shape for p in parts] == [p.shape for p in potentials]
            score = sum(float((p * m).sum()) for p, m in zip(potentials, parts, strict=True))
            assert score - gold == pytest.approx(float(row @ w.numpy()), abs=1e-10)
            direction = tuple(m - n for m, n in zip(parts, problem.label_parts(i), strict=True))
            assert_close(problem.adjoint(direction, i), torch.from_numpy(row), rtol=0, atol=1e-10)
            assert sum(float((c * m).sum()) for c, m in zip(problem.costs(i), parts, strict=True)) == (
                pytest.approx(cost, abs=1e-12)
            )
        augmented = tuple(p + c for p, c in zip(potentials, problem.costs(i), strict=True))
        atoms = torch.stack([torch.tensor(output).flatten() for output in SPACES[space][2]])
        one_by_one = LinearProblem.atom_scores(problem, augmented, atoms, i)
        assert_close(problem.atom_scores(augmented, atoms, i), one_by_one, rtol=0, atol=1e-12)
        response = problem.oracle(augmented, i)
        assert response.atom is not None
        best = problem.parts(response.atom, i)
        assert all(map(torch.equal, best, response.statistics))
        value = sum(float((p * m).sum()) for p, m in zip(augmented, best, strict=True))
        assert value - gold == pytest.approx(float((features @ w.numpy() + costs).max()), abs=1e-10)


def test_the_adjoint_is_that_of_its_example() -> None:
    problem = problem_of("tree")
    w = torch.ones(problem.dim, dtype=torch.float64)
    expected = []
    for i in range(problem.n):
        problem.potentials(w, i)
        expected.append(problem.adjoint(problem.label_parts(i), i))
    problem.potentials(w, 0)
    for i, vector in reversed(list(enumerate(expected))):
        assert torch.equal(problem.adjoint(problem.label_parts(i), i), vector)


class Table(ScoreModule):
    """Scores that are the parameters themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(1, 3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Candidates:
        return Candidates(self.scores.expand(len(x), -1))


def test_the_adjoint_is_no_view_of_the_statistics() -> None:
    problem = LinearModuleProblem(Table(), [(torch.zeros(1), torch.tensor(1))])
    statistics = problem.label_parts(0)
    problem.adjoint(statistics, 0).mul_(7)
    assert statistics[0].tolist() == [[0, 1, 0]]
    result = BCFW(steps="fw").solve(problem, lam=1.0, passes=100)
    assert result.weights.tolist() == pytest.approx([-1 / 3, 2 / 3, -1 / 3], abs=1e-6)


def test_weights_may_change_between_potentials_and_adjoint() -> None:
    problem = problem_of("classes")
    w = torch.ones(problem.dim, dtype=torch.float64)
    problem.potentials(w, 0)
    expected = problem.adjoint(problem.label_parts(0), 0)
    w += 1
    assert torch.equal(problem.adjoint(problem.label_parts(0), 0), expected)


class Frozen(Chain):
    """Transitions that are not trained: they are no potentials that depend on weights."""

    def __init__(self, transition: Tensor) -> None:
        super().__init__("shared")
        self.transition.requires_grad_(False).copy_(transition)


def test_potentials_that_are_zero_for_all_weights() -> None:
    data = examples((3,), labelings(3))
    problem = LinearModuleProblem(Frozen(torch.zeros(2, 2)), data)
    assert problem.dim == 2 * FEATURES + 2
    assert problem.adjoint(problem.label_parts(0), 0).shape == (problem.dim,)
    result = BCFW(gap_tolerance=1e-2).solve(problem, lam=LAM, passes=500)
    assert result.row.gap < 0.02 * result.history[0].objective


class Nonlinear(Classes):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Candidates:
        return Candidates(self.function(super().forward(x).scores))


@pytest.mark.parametrize("function", [torch.tanh, torch.relu, torch.abs, torch.square], ids=lambda f: f.__name__)
def test_refuses_modules_that_are_not_linear(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match="module must be linear in its parameters"):
        LinearModuleProblem(Nonlinear(function), examples((), [0, 1, 2, 3]))


def test_refuses_other_sizes_and_bounds() -> None:
    data = examples((), [0, 1])
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        LinearModuleProblem(Classes(), data, chunk_size=0)
    with pytest.raises(TypeError, match="batch_size must be an int, got float"):
        LinearModuleProblem(Classes(), data, batch_size=1.5)
    with pytest.raises(ValueError, match=r"lower bounds must have shape \[dim\] = \(16,\)"):
        LinearModuleProblem(Classes(), data, bounds=(torch.zeros(2), torch.ones(2)))


def test_pairs_that_may_stop_to_be_supermodular_need_bounds() -> None:
    with pytest.raises(ValueError, match="pairwise must be supermodular"):
        LinearModuleProblem(Graph(), examples((3,), labelings(3)))


def test_single_precision() -> None:
    module = Classes().float()
    data = [(x.float(), y) for x, y in examples((), [0, 1, 2, 3])]
    result = BCFW(gap_tolerance=1e-2).solve(LinearModuleProblem(module, data), lam=LAM, passes=300)
    assert result.weights.dtype == torch.float32
    assert result.row.objective == pytest.approx(optimum(problem_of("classes"), "classes"), rel=1e-2)


def test_training_leaves_the_module_alone_until_load() -> None:
    problem = problem_of("classes")
    before = {name: tensor.clone() for name, tensor in problem.module.state_dict().items()}
    result = BCFW().solve(problem, lam=LAM, passes=3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in problem.module.state_dict().items())
    problem.load(result.weights)
    structure: Structure = problem.module(torch.stack([x for x, _ in problem.dataset]))
    assert torch.equal(torch.cat([p.detach().flatten() for p in problem.module.parameters()]), result.weights)
    assert structure.max()[1].shape == (problem.n,)
