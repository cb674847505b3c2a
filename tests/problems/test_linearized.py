"""Linearized scores against finite differences, full Jacobians and the losses of perturbed structures."""

import functools
from typing import Any

import pytest
import torch
from small_networks import PROBLEMS, candidates_problem, chain_problem
from torch import Tensor
from torch.func import functional_call, jacrev
from torch.testing import assert_close

from structsmooth import (
    L2,
    SGD,
    SVRG,
    CasimirSVRG,
    Entropy,
    LinearChain,
    LinearScore,
    Max,
    ModuleProblem,
    Smoother,
    StructuralHinge,
    Structure,
)
from structsmooth.models import BiLSTMTagger
from structsmooth.problems import LinearizedProblem
from structsmooth.problems.base import Problem

every_structure = pytest.mark.parametrize("name", PROBLEMS)
ALL = torch.arange(7)


def direction(problem: Problem, seed: int = 1) -> Tensor:
    return torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def potentials(problem: ModuleProblem, w: Tensor) -> list[Tensor]:
    """Potentials of all examples that depend on the weights, by one call of the module, with a row for each."""
    structure = problem.structure(w.requires_grad_(), problem.batch(ALL)[0]).batched()
    return [p for p in structure.potentials if p.requires_grad]


def by_jacobian(problem: ModuleProblem, w: Tensor, v: Tensor, smoother: Smoother) -> Tensor:
    """Losses under θ(w) + Jv with the full Jacobian, one output after another."""
    w = w.clone()
    x, y = problem.batch(ALL)
    structure = problem.structure(w.requires_grad_(), x)
    moved = []
    for p in structure.potentials:
        if p.requires_grad:
            rows = [
                torch.autograd.grad(entry, w, retain_graph=True)[0] if bool(torch.isfinite(entry)) else 0 * w
                for entry in p.flatten()
            ]
            p = p + (torch.stack(rows) @ v).view(p.shape)
        moved.append(p.detach())
    return problem.losses_and_hinges(structure.replace(*moved), y, smoother)[0]


@every_structure
def test_losses_are_those_of_the_full_jacobian(name: str) -> None:
    problem = PROBLEMS[name]()
    w, v = problem.start(), direction(problem)
    linear = problem.linearize(w)
    assert isinstance(linear, LinearizedProblem)
    for smoother in (Max(), L2(0.7, 3)):
        losses = linear.batch_losses(w + v, ALL, smoother)
        assert_close(losses, by_jacobian(problem, w, v, smoother), rtol=0, atol=1e-10)
        assert_close(linear.batch_losses(w, ALL, smoother), problem.batch_losses(w, ALL, smoother), rtol=0, atol=1e-12)


def test_jacobian_is_that_of_torch_func() -> None:
    problem = chain_problem()
    w, v = problem.start(), direction(problem)
    x, _ = problem.batch(ALL)
    batch = problem.linearize(w).affine_batch(ALL)

    def unary(parameters: dict[str, Tensor]) -> Tensor:
        return functional_call(problem.module, parameters, (x,)).unary[:, 1:]

    jacobians = jacrev(unary)(dict(problem.parameters))
    flat = torch.cat([jacobian.flatten(3) for jacobian in jacobians.values()], -1)
    products = batch.tangents(v)
    assert_close(products[0][:, 1:], flat @ v, rtol=0, atol=1e-10)
    assert next(iter(problem.parameters)) == "transition"
    assert torch.equal(products[1], v[:9].view(3, 3).expand_as(products[1]))
    u = [direction(problem, seed)[:1] * torch.ones_like(p) for seed, p in enumerate(products)]
    inner = sum(float((a * b).sum()) for a, b in zip(u, products, strict=True))
    assert float(batch.adjoint(u) @ v) == pytest.approx(inner, rel=1e-10)


@every_structure
def test_scores_against_finite_differences(name: str) -> None:
    """The error of linearization falls with the square of the distance; at half of it, to a quarter."""
    problem = PROBLEMS[name]()
    w, v = problem.start(), direction(problem)
    batch = problem.linearize(w).affine_batch(ALL)
    finite = [torch.isfinite(p) for p in potentials(problem, w.clone())]
    errors = []
    for t in (1e-3, 5e-4):
        now = [p.detach() for p in potentials(problem, w + t * v)]
        then = [p.detach() for p in potentials(problem, w.clone())]
        pairs = zip(now, then, batch.tangents(t * v), finite, strict=True)
        errors.append(max(float((a - b - jv)[f].abs().max()) for a, b, jv, f in pairs))
    assert 0 < errors[1] < 1e-4
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)


@every_structure
@pytest.mark.parametrize("smoother", [Max(), L2(0.7, 3)], ids=str)
def test_change_of_the_gradient_is_the_difference_of_two(name: str, smoother: Smoother) -> None:
    problem = PROBLEMS[name]()
    linear, batch = problem.linearize(problem.start()), torch.tensor([4, 0, 4])
    w, v = problem.start() + direction(problem), problem.start() - direction(problem, 2)
    snapshot = linear.full_pass(v, smoother)
    calls = problem.oracle_calls
    change = linear.gradient_change(w, snapshot, batch)
    assert problem.oracle_calls - calls == linear.oracle_calls - calls == 3  # the snapshot keeps its statistics
    gradients = [linear.batch_loss_and_grad(at, batch, smoother)[1] for at in (w, v)]
    assert_close(change, gradients[0] - gradients[1], rtol=0, atol=1e-12)
    assert_close(change, Problem.gradient_change(linear, w, snapshot, batch), rtol=0, atol=1e-12)


def test_examples_that_share_potentials_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their statistics cannot be told apart."""
    problem = chain_problem()
    linear, batch = problem.linearize(problem.start()), torch.tensor([4, 0, 4])
    w, v = problem.start() + direction(problem), problem.start() - direction(problem, 2)
    change = linear.gradient_change(w, linear.full_pass(v, L2(0.7, 3)), batch)
    monkeypatch.setattr(LinearChain, "batched", lambda _: None)
    snapshot, calls = linear.full_pass(v, L2(0.7, 3)), problem.oracle_calls
    assert snapshot.statistics is None
    assert_close(linear.gradient_change(w, snapshot, batch), change, rtol=0, atol=1e-12)
    assert problem.oracle_calls - calls == 6


@every_structure
@pytest.mark.parametrize(("smoother", "passes"), [(Max(), 1), (L2(0.7, 3), 1), (Entropy(0.7), 2)], ids=str)
def test_smoothed_and_plain_loss_by_one_oracle_call(name: str, smoother: Smoother, passes: int) -> None:
    if name == "graph" and isinstance(smoother, Entropy):
        return  # graph cuts have no exp oracle
    problem = PROBLEMS[name]()
    for weighted in (problem, problem.weighted(torch.linspace(0.5, 3.0, problem.n))):
        linear, calls = weighted.linearize(problem.start()), weighted.oracle_calls
        full = linear.full_pass(problem.start(), smoother, with_loss=True)
        assert weighted.oracle_calls - calls == passes * problem.n
        assert full.loss == pytest.approx(weighted.loss(problem.start()), rel=1e-12)
        assert full.smoothed_loss == pytest.approx(weighted.loss(problem.start(), smoother), rel=1e-12)


def test_it_is_convex_where_the_problem_is_not() -> None:
    problem = candidates_problem()
    linear = problem.linearize(problem.start())

    def curvature(p: Problem) -> list[float]:
        pairs = [(3 * direction(p, seed), 3 * direction(p, seed + 100)) for seed in range(30)]
        return [(p.loss(a) + p.loss(b)) / 2 - p.loss((a + b) / 2) for a, b in pairs]

    assert min(curvature(linear)) >= -1e-12
    assert min(curvature(problem)) < -0.1


@functools.cache
def best_objective() -> float:
    """Of the problem of the test below, almost."""
    problem = chain_problem(batch_size=1)
    linear = problem.linearize(problem.start())
    return min(s.solve(linear, lam=0.1, passes=60).row.objective for s in (CasimirSVRG(), SVRG()))


@pytest.mark.parametrize("solver", [CasimirSVRG(), SVRG(), SGD()], ids=lambda s: type(s).__name__)
def test_convex_solvers_run_on_it(solver: Any) -> None:
    problem = chain_problem(batch_size=1)
    linear = problem.linearize(problem.start())
    result = solver.solve(linear, lam=0.1, passes=30)
    first = result.history[0].objective
    assert result.row.objective - best_objective() < 0.1 * (first - best_objective())


def test_a_likelihood_stays_one() -> None:
    problem = chain_problem(smoother=Entropy(1.0))
    linear = problem.linearize(problem.start())
    assert linear.smoother == linear.subset(torch.tensor([1])).smoother == Entropy(1.0)
    assert linear.loss(problem.start()) == pytest.approx(problem.loss(problem.start()), rel=1e-12)


def test_recurrent_modules() -> None:
    torch.manual_seed(0)
    tagger = BiLSTMTagger(9, 3, embedding=4, hidden=3).double()
    ids, lengths = torch.randint(9, (6, 5)), torch.tensor([5, 1, 3, 5, 2, 4])
    data = [((i, n), i % 3) for i, n in zip(ids, lengths, strict=True)]
    problem = ModuleProblem(tagger, data, batch_size=3)
    w, v = problem.start(), direction(problem)
    linear = problem.linearize(w)
    chains = [problem.structure(w + t * v, problem.batch(torch.arange(6))[0]).unary.detach() for t in (1e-4, -1e-4)]
    (unary, transition) = linear.affine_batch(torch.arange(6)).tangents(v)
    inside = torch.arange(5) < lengths[:, None]
    assert_close(unary[inside], ((chains[0] - chains[1]) / 2e-4)[inside], rtol=0, atol=1e-6)
    assert torch.equal(transition, v[:9].view(3, 3).expand(6, 3, 3))
    result = SVRG().solve(linear, lam=0.01, passes=5)
    assert result.row.objective < result.history[0].objective


def test_affine_problems_are_their_own_linearization() -> None:
    data = [(torch.randn(4, 3), torch.tensor([0, 1, 1, 0]))]
    problem = ModuleProblem(LinearScore(3, 2, torch.float32), data)
    assert problem.linearize(torch.ones(problem.dim)) is problem
    linear = chain_problem().linearize(chain_problem().start())
    assert linear.linearize(linear.start()) is linear


def test_the_module_and_the_weights_stay_as_they_are() -> None:
    problem = chain_problem()
    before = {name: tensor.clone() for name, tensor in problem.module.state_dict().items()}
    w = problem.start()
    linear = problem.linearize(w)
    w += 1
    assert torch.equal(linear.start(), problem.start())
    SVRG().solve(linear, lam=0.1, passes=2)
    assert torch.equal(linear.start(), problem.start())
    assert all(torch.equal(tensor, before[name]) for name, tensor in problem.module.state_dict().items())
    assert all(p.grad is None for p in problem.module.parameters())


def test_refuses_weights_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"w must have shape \[dim\] = \(\d+,\), got \(3,\)"):
        chain_problem().linearize(torch.zeros(3))


class Own(Problem):
    """A problem that knows nothing of linearization."""

    n = dim = 1

    def start(self) -> Tensor:
        return torch.zeros(1)

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        return w.expand(len(indices))

    def subset(self, indices: Tensor) -> Problem:
        return self


def test_problems_without_a_linearization_say_so() -> None:
    with pytest.raises(NotImplementedError, match="Own has no linearization"):
        Own().linearize(torch.zeros(1))


def test_costs_that_examples_bring() -> None:
    problem = candidates_problem()
    x, (y, costs) = problem.batch(ALL)
    structure: Structure = problem.module(x)
    expected = StructuralHinge(cost=costs.double(), reduction="none")(structure, y)
    assert_close(problem.batch_losses(problem.start(), ALL, Max()), expected)
    assert not torch.equal(expected, StructuralHinge(cost=None, reduction="none")(structure, y))
