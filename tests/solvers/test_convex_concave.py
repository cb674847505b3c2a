"""The concave-convex procedure against its steps by enumeration; monotone, resumable, and finding what is hidden."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from enumerated_steps import EnumeratedSteps
from linear_problems import problem_of
from small_networks import partial_problem as partial_network
from small_problems import partial_problem, random_problem
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BCFW, CasimirSVRG, Entropy, LinearScore, Max, ModuleProblem, ProximalBCFW
from structsmooth.problems import DenseChainProblem, DifferenceProblem, PartialLabels, SparseChainProblem, TiltedProblem
from structsmooth.problems.linear.chain.data import agreeing_labels
from structsmooth.scores import TransitionMask
from structsmooth.solvers import SVRG, ConvexConcave, Progress, ProximalSDCA, Solver, Status, Stop
from structsmooth.solvers.convex_concave import ConvexConcaveState
from structsmooth.structures.checks import ForbiddenLabelsError

LAM, LENGTHS = 0.1, (3, 2, 1, 3)
# Solvers of the convex problems to many digits, and of the whole.
EXACT: dict[str, tuple[Solver[Any], float]] = {
    "hinge": (ProximalBCFW(gap_tolerance=1e-10), 0.0),
    "likelihood": (ProximalSDCA(gap_tolerance=1e-10), 1.0),
}
every_kind = pytest.mark.parametrize("kind", EXACT)


def chains(kind: str, seed: int) -> DifferenceProblem:
    hinge = random_problem(LENGTHS, 2, 3, seed=seed)
    if kind == "hinge":
        return partial_problem(hinge, seed)
    sizes = (hinge.features, hinge.states)
    return partial_problem(SparseChainProblem(hinge.sequences, hinge.labels, *sizes, None, Entropy(1.0)), seed)


def gaussian(problem: DifferenceProblem, seed: int) -> Tensor:
    return torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def objective(problem: Any, w: Tensor) -> float:
    return float(problem.loss(w)) + LAM / 2 * float(w @ w)


def enumerated(problem: DifferenceProblem) -> EnumeratedSteps:
    """Features and costs of all outputs of each example, and which agree with the labels."""
    base, known = problem.problem, problem.agreeing.data.costs == -torch.inf
    examples = []
    for i in range(problem.n):
        tokens = base.data.tokens(i)
        y, own = base.labels[tokens], known[tokens]
        outputs = torch.cartesian_prod(*[torch.arange(base.states)] * len(y)).view(-1, len(y))
        wrong = (outputs != y) & own
        features = torch.stack([base.adjoint(base.parts(output, i), i) for output in outputs])
        costs = wrong.double().sum(1) if isinstance(problem.smoother, Max) else torch.zeros(len(outputs)).double()
        examples.append((features, costs, ~wrong.any(1)))
    return EnumeratedSteps(examples, LAM)


def stop_after_an_iteration(progress: Progress[Any]) -> None:
    if progress.row.passes:
        raise Stop


@every_kind
@pytest.mark.parametrize("seed", range(4))
def test_steps_are_those_by_enumeration(kind: str, seed: int) -> None:
    inner, mu = EXACT[kind]
    problem = chains(kind, seed)
    start = gaussian(problem, seed)
    steps = enumerated(problem)
    solver = ConvexConcave(inner=inner, inner_passes=400, gap_tolerance=0)
    w = start
    for _ in range(2):
        expected = steps.step(w, mu)
        result = solver.solve(problem, lam=LAM, start=w, passes=400, callbacks=[stop_after_an_iteration])
        assert_close(result.weights, expected, rtol=0, atol=1e-3)
        assert objective(problem, result.weights) == pytest.approx(objective(problem, expected), abs=1e-6)
        w = result.weights


@every_kind
@pytest.mark.parametrize("seed", range(20))
def test_the_objective_never_rises(kind: str, seed: int) -> None:
    problem = chains(kind, seed)
    inner = EXACT[kind][0]
    # Few passes leave convex problems unfinished.
    for passes in (2, 25):
        result = ConvexConcave(inner=inner, inner_passes=passes).solve(problem, lam=LAM, passes=10 * passes, seed=seed)
        objectives = result.history.column("objective")
        assert all(after <= before for before, after in pairwise(objectives))
        assert objectives[-1] < objectives[0]
        assert objective(problem, result.weights) == pytest.approx(objectives[-1], rel=1e-12)
        for row in result.history[1:]:
            assert row.metrics["convex_gap"] >= -1e-12
            assert row.metrics["bound_decrease"] >= -1e-12
        assert result.row.dual is None


@every_kind
def test_a_run_ends_at_a_critical_point(kind: str) -> None:
    problem = chains(kind, 1)
    solver = ConvexConcave(inner=EXACT[kind][0], inner_passes=200, gap_tolerance=1e-4)
    result = solver.solve(problem, lam=LAM, passes=20000, start=gaussian(problem, 1))
    assert result.status is Status.CONVERGED
    assert "what could be gained is below the tolerance" in result.message
    best = enumerated(problem).step(result.weights, EXACT[kind][1])
    assert objective(problem, best) >= (1 - 1e-3) * result.row.objective


def test_all_labels_known_is_one_convex_problem() -> None:
    problem = random_problem(LENGTHS, 2, 3)
    whole = problem.with_unknown(torch.zeros(len(problem.labels), dtype=torch.bool))
    expected = ProximalBCFW(gap_tolerance=1e-8).solve(problem, lam=LAM, passes=400).row.objective
    for own in (whole, problem):
        result = ConvexConcave(inner=ProximalBCFW(gap_tolerance=1e-8), gap_tolerance=1e-6).solve(
            own, lam=LAM, passes=400
        )
        assert result.status is Status.CONVERGED
        assert result.row.objective == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("inner", "kind"), [(BCFW(), "hinge"), (ProximalSDCA(), "likelihood"), (SVRG(), "likelihood")], ids=str
)
def test_states_survive_files(inner: Solver[Any], kind: str) -> None:
    solver = ConvexConcave(inner=inner, inner_passes=3)
    result = solver.solve(chains(kind, 2), lam=LAM, passes=9)
    state = ConvexConcaveState.joined(*result.state.split())
    assert type(state.inner) is type(result.state.inner)
    runs = [
        solver.solve(chains(kind, 2), lam=LAM, passes=18, resume=(own, result.history)) for own in (state, result.state)
    ]
    assert torch.equal(runs[0].weights, runs[1].weights)
    assert torch.equal(solver.solve(chains(kind, 2), lam=LAM, passes=18).weights, runs[0].weights)


def test_dual_points_are_kept_from_problem_to_problem() -> None:
    """A solver that began anew each time would need more passes."""
    problem = chains("hinge", 3)
    inner = ProximalBCFW(gap_tolerance=1e-6)
    warm = ConvexConcave(inner=inner, inner_passes=1000).solve(problem, lam=LAM, passes=3000)
    first = inner.solve(problem.linearize(warm.weights), lam=LAM, passes=1000)
    assert warm.history[-1].passes - warm.history[-2].passes < first.row.passes


@pytest.mark.parametrize("steps", ["fw", "away"])
def test_other_steps(steps: Any) -> None:
    problem = chains("hinge", 1)
    settings = {"inner_passes": 10, "gap_tolerance": 1e-3}
    start = gaussian(problem, 1)
    solvers = (ConvexConcave(inner=ProximalBCFW(steps=own), **settings) for own in (steps, None))
    results = [solver.solve(problem, lam=LAM, passes=600, start=start) for solver in solvers]
    assert results[0].row.objective == pytest.approx(results[1].row.objective, rel=0.05)


def test_an_unfinished_convex_problem_is_continued() -> None:
    """With a single pass for each, many iterations find nothing better, and still the run gets to the end."""
    problem = chains("hinge", 1)
    short = ConvexConcave(inner=EXACT["hinge"][0], inner_passes=1, gap_tolerance=1e-3)
    result = short.solve(problem, lam=LAM, passes=2000, start=gaussian(problem, 1))
    objectives = result.history.column("objective")
    assert result.status is Status.CONVERGED
    assert any(after == before for before, after in pairwise(objectives[:-1]))
    long = replace(short, inner_passes=200).solve(problem, lam=LAM, passes=20000, start=gaussian(problem, 1))
    assert result.row.objective < 1.05 * long.row.objective


def hidden_boundaries(n: int = 60) -> tuple[DenseChainProblem, Tensor, Tensor]:
    """Three segments each, of which one token is known, so that their boundaries are hidden: labels, unknown tokens."""
    generator = torch.Generator().manual_seed(0)
    labels, unknown = [], torch.ones(n, 12, dtype=torch.bool)
    for i in range(n):
        cuts = [0, *(1 + torch.randperm(10, generator=generator)[:2].sort().values).tolist(), 12]
        for label, (begin, end) in enumerate(pairwise(cuts)):
            labels += [label] * (end - begin)
            unknown[i, begin + torch.randint(end - begin, (1,), generator=generator)] = False
    y = torch.tensor(labels)
    x = torch.eye(3)[y] + 0.5 * torch.randn(len(y), 3, generator=generator)
    return DenseChainProblem(x, y, torch.full((n,), 12), 3), y, unknown.flatten()


@every_kind
def test_hidden_boundaries_of_segments_are_found(kind: str) -> None:
    problem, y, unknown = hidden_boundaries()
    without_costs = problem.relabelled(y, 0 * problem.data.costs)
    known = ProximalBCFW().solve(problem, lam=0.1, passes=100).weights
    if kind == "likelihood":
        features, lengths = problem.sequences.features, problem.sequences.lengths
        problem = DenseChainProblem(features, y, lengths, 3, None, Entropy(1.0))
    partial = problem.with_unknown(unknown)
    solver = ConvexConcave(inner=replace(EXACT[kind][0], gap_tolerance=1e-3), inner_passes=12)
    result = solver.solve(partial, lam=0.1, passes=400)

    def right(w: Tensor) -> float:
        return float((without_costs.best_labels(w) == y)[unknown].double().mean())

    assert result.status is Status.CONVERGED
    assert right(result.weights) > 0.95
    assert right(result.weights) > right(known) - 0.02


def test_linear_scores_of_modules() -> None:
    generator = torch.Generator().manual_seed(0)
    data = [
        (
            torch.randn(4, 2, generator=generator, dtype=torch.float64),
            PartialLabels(torch.randint(3, (4,), generator=generator), torch.rand(4, generator=generator) < 0.5),
        )
        for _ in range(8)
    ]
    problem = ModuleProblem(LinearScore(2, 3), data, batch_size=2, smoother=Entropy(1.0))
    solver = ConvexConcave(inner=CasimirSVRG(), inner_passes=3)
    objectives = solver.solve(problem, lam=LAM, passes=30).history.column("objective")
    assert all(after <= before for before, after in pairwise(objectives))
    assert objectives[-1] < 0.9 * objectives[0]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="needs scores that are linear: take ProxLinear"):
        ConvexConcave().solve(partial_network(), lam=LAM)
    for inner in (ConvexConcave(), "bcfw"):
        with pytest.raises(TypeError, match="inner must be a solver of convex problems, such as ProximalBCFW"):
            ConvexConcave(inner=inner)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ProximalBCFW needs a LinearProblem, got TiltedProblem"):
        ConvexConcave().solve(chains("likelihood", 0), lam=LAM)
    problem = random_problem()
    with pytest.raises(TypeError, match=r"unknown must be a tensor of torch\.bool, got torch\.int64"):
        problem.with_unknown(problem.labels)
    with pytest.raises(ValueError, match=r"unknown must have shape \[tokens\]"):
        problem.with_unknown(torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"slope must have shape \[dim\]"):
        TiltedProblem(problem, torch.zeros(2), 0.0)
    tree = problem_of("tree")
    with pytest.raises(NotImplementedError, match="cannot exchange its labels; without a cost"):
        tree.relabelled(tree.best_labels(tree.start()))


def test_labels_that_agree_keep_to_the_mask() -> None:
    """Three labels in their order, of which the first and the last are known."""
    n, inf = 3, torch.inf
    forward = torch.tensor([[0.0, 0.0, -inf], [-inf, 0.0, 0.0], [-inf, -inf, 0.0]])
    mask = TransitionMask(forward, torch.tensor([0.0, -inf, -inf]), torch.tensor([-inf, -inf, 0.0]))
    y = torch.tensor([0, 0, 1, 1, 1, 2]).repeat(n)
    unknown = torch.tensor([False, True, True, True, True, False]).repeat(n)
    problem = DenseChainProblem(torch.ones(len(y), 1), y, torch.full((n,), 6), 3, mask=mask)
    partial = problem.with_unknown(unknown)
    completed = partial.problem.labels
    assert torch.equal(completed[~unknown], y[~unknown])
    steps = completed.view(n, 6).diff(dim=1)
    assert bool(((steps >= 0) & (steps <= 1)).all())
    assert partial.loss(gaussian(partial, 0)) >= 0
    y[7], unknown[7] = 2, False
    with pytest.raises(ForbiddenLabelsError, match="example 1"):
        agreeing_labels(y, unknown, torch.full((n,), 6), 3, mask)
