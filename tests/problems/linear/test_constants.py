"""Linear modules with forbidden parts and constants, against the same problems with all of their outputs listed."""

from typing import Any

import pytest
import torch
from constant_problems import INF, LAM, SPACES, Joined, Loops, Masked, data_of, problems, wrong_data
from linear_problems import Chain, examples
from torch import Tensor
from torch.testing import assert_close

from structsmooth import (
    BCFW,
    L2,
    Entropy,
    LinearChain,
    LinearModuleProblem,
    Max,
    ModuleProblem,
    ProximalBCFW,
    SoftBCFW,
    certify,
)
from structsmooth.factors import AtMostOne, Budget
from structsmooth.solvers import SVRG, Adam, CuttingPlane, ExponentiatedGradient, IncrementalProxLinear, Status

every_space = pytest.mark.parametrize("space", SPACES)


@pytest.mark.parametrize(
    ("space", "own", "asked"),
    [
        (space, own, asked)
        for space in SPACES
        for own in (Max(), Entropy(0.5))
        for asked in (Max(), Entropy(0.5), L2(0.7, 3))
        if space != "constant reward" or Entropy(0.5) not in (own, asked)  # cuts have no exp oracle
    ],
    ids=str,
)
def test_passes_are_those_of_the_listed_problem(space: str, own: Any, asked: Any) -> None:
    problem, expected = problems(space, smoother=own)
    w = problem.start()
    for _ in range(2):  # the second time, it is known which examples have constants
        full, reference = (p.full_pass(w, asked, with_loss=True) for p in (problem, expected))
        for name in ("smoothed_loss", "loss", "expected_cost"):
            assert getattr(full, name) == pytest.approx(getattr(reference, name), abs=1e-10)
        assert_close(full.gradient, reference.gradient, rtol=0, atol=1e-10)
    for batch in torch.tensor([[0, 1], [5, 3]]):
        change = problem.gradient_change(0.3 * w, full, batch)
        assert_close(change, expected.gradient_change(0.3 * w, reference, batch), rtol=0, atol=1e-10)


class RewardedWhere(Chain):
    """Some inputs have a constant reward of the second label."""

    def forward(self, x: Tensor) -> LinearChain:
        chain = super().forward(x)
        return LinearChain(chain.unary + torch.where(x[:, :1, :1] > 0, torch.tensor([0.0, 0.7]), 0.0), chain.transition)


def test_some_examples_alone_have_constants() -> None:
    module = RewardedWhere("shared")
    data = data_of(module)
    problem = LinearModuleProblem(module, data)
    for batch in torch.arange(len(data))[:, None]:
        anew = LinearModuleProblem(module, data)  # it knows of no example
        assert_close(*(p.affine_batch(batch).oracle(p.start(), Max()).cost for p in (problem, anew)))


# Exact pairwise steps leave two outputs with one score: the next step on the example breaks a tie by rounding.
# Proximal steps meet such a tie in their sixth pass.
@every_space
@pytest.mark.parametrize(
    ("solver", "passes"),
    [
        (BCFW(steps="fw", gap_tolerance=0), 6),
        (BCFW(steps="fw", cache=True, sampling="uniform", gap_tolerance=0), 6),
        (ProximalBCFW(steps="fw", gap_tolerance=0), 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_certified_gaps_are_those_of_the_listed_problem(space: str, solver: Any, passes: int) -> None:
    problem, expected = problems(space)
    histories = [solver.solve(p, lam=LAM, passes=passes).history for p in (problem, expected)]
    for name in ("objective", "dual", "gap"):
        assert histories[0].column(name) == pytest.approx(histories[1].column(name), abs=1e-9)
    assert histories[0].column("dual")[-1] > 0


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(space, marks=pytest.mark.long if space in ("at most one", "budget", "forbidden pairs") else ())
        for space in SPACES
    ],
)
@pytest.mark.parametrize(
    "solver", [pytest.param(BCFW, marks=pytest.mark.long), ProximalBCFW], ids=lambda solver: solver.__name__
)
def test_certified_optima_are_those_of_the_listed_problem(space: str, solver: Any) -> None:
    problem, expected = problems(space)
    result, reference = (solver(gap_tolerance=1e-2).solve(p, lam=LAM, passes=500) for p in (problem, expected))
    assert {result.status, reference.status} == {Status.CONVERGED}
    certificates = [certify(p, result.weights, LAM, passes=100) for p in (problem, expected)]
    for one, other in (certificates, certificates[::-1]):
        assert one.objective == pytest.approx(result.row.objective, abs=1e-10)
        assert -1e-10 <= one.gap <= 1.2e-2 * one.objective
        # Both bound one optimum, and each to within a tenth of its gap.
        assert other.dual - 1e-10 <= one.dual + one.reference_gap


@pytest.mark.parametrize("forbidden", [False, pytest.param(True, marks=pytest.mark.long)])
def test_soft_agreement_on_graphs_with_constants(forbidden: bool) -> None:
    """The relaxation is that of ``BCFW`` over the local polytope."""
    table = torch.tensor([[0.0, -INF if forbidden else -0.4], [0.2, 0.0]])
    data = data_of(Loops(table))
    problem, relaxed = (LinearModuleProblem(Loops(table, relaxed), data) for relaxed in (False, True))
    reference = BCFW(gap_tolerance=1e-4).solve(relaxed, lam=LAM, passes=1000).row
    history = SoftBCFW(gap_tolerance=1e-3).solve(problem, lam=LAM, passes=1000).history
    assert all(row.dual <= reference.objective + 1e-9 for row in history if row.dual is not None)
    assert all(row.objective >= reference.dual - 1e-9 for row in history)
    assert history[-1].objective <= 1.01 * reference.objective
    if not forbidden:  # where pairs are forbidden, marginals that agree may lie far from those of the run
        assert history[-1].gap <= 0.02 * history[-1].objective


@pytest.mark.parametrize(
    "factors", [(), pytest.param((AtMostOne(torch.arange(3)),), marks=pytest.mark.long)], ids=["pairs", "factor"]
)
def test_relaxations_keep_to_what_is_allowed(factors: Any) -> None:
    table = torch.tensor([[0.0, -INF], [0.2, 0.0]]) if not factors else torch.zeros(2, 2)
    module = Loops(table, relaxed=True, factors=factors)
    problem = LinearModuleProblem(module, data_of(Loops(table, factors=factors)))
    result = BCFW(gap_tolerance=2e-2).solve(problem, lam=LAM, passes=500)
    assert result.status is Status.CONVERGED
    for i in range(problem.n):
        statistics = problem.block_statistics(problem.unpacked(result.state.point.statistics), i)
        barriers = problem.example(i).constants.barriers
        assert barriers is not None
        assert all(not bool(m[own == -INF].any()) for m, own in zip(statistics, barriers, strict=True))
    certificate = certify(problem, result.weights, LAM, passes=20)
    assert 0 <= certificate.gap <= 3e-2 * certificate.objective


FORBIDDEN = "labels of example 4 of the problem are forbidden: their score is -inf, because .*Correct them"


@pytest.mark.parametrize("problem_type", [LinearModuleProblem, ModuleProblem])
@pytest.mark.parametrize("solver", [SVRG(), IncrementalProxLinear(), Adam()], ids=lambda solver: type(solver).__name__)
def test_forbidden_labels_are_named(problem_type: Any, solver: Any) -> None:
    problem = problem_type(Masked("shared"), wrong_data(Masked("shared")))
    with pytest.raises(ValueError, match=FORBIDDEN):
        solver.solve(problem, lam=LAM, passes=2)
    for indices in ([1, 4], [4], [5, 4, 0]):
        with pytest.raises(ValueError, match=FORBIDDEN):
            problem.batch_loss_and_grad(problem.start(), torch.tensor(indices), Max())


@pytest.mark.parametrize("solver", [BCFW(), ProximalBCFW(), ExponentiatedGradient(), CuttingPlane()], ids=str)
@pytest.mark.parametrize("factor", [AtMostOne(torch.arange(3)), Budget(torch.arange(3), 2)], ids=["one", "budget"])
def test_forbidden_labels_are_named_by_solvers_of_the_dual(solver: Any, factor: Any) -> None:
    problem = LinearModuleProblem(Joined(factor), wrong_data(Joined(factor)))
    with pytest.raises(ValueError, match=FORBIDDEN):
        solver.solve(problem, lam=LAM, passes=2)


def test_refuses_modules_that_forbid_other_parts_with_other_weights() -> None:
    class Logarithm(Chain):
        def forward(self, x: Tensor) -> LinearChain:
            chain = super().forward(x)
            mask = self.transition.detach() == 0
            return LinearChain(chain.unary, chain.transition.masked_fill(mask & torch.eye(2).bool(), -INF))

    with pytest.raises(ValueError, match="module must forbid the same parts whatever its parameters are"):
        LinearModuleProblem(Logarithm("shared"), [(x, torch.tensor([0, 1, 0])) for x, _ in examples((3,), [0])])
