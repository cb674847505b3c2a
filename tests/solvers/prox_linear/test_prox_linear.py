"""Prox-linear against Algorithm 5: exact steps, Theorem 35, acceptance, step lengths, tolerances and resumption."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from small_networks import PROBLEMS, candidates_problem, chain_problem
from small_problems import random_problem
from solver_cases import Sines, sines
from torch import Tensor, nn
from torch.testing import assert_close

from structsmooth import (
    BCFW,
    SGD,
    CasimirSVRG,
    Entropy,
    LinearChain,
    LinearScore,
    ModuleProblem,
    ProximalBCFW,
    ProxLinear,
    ScoreModule,
)
from structsmooth.problems import Problem, ShiftedProblem
from structsmooth.solvers import SVRG, Progress, Status
from structsmooth.solvers.prox_linear import solver as prox_linear
from structsmooth.solvers.prox_linear.models import ProxLinearState

LAM, N, OUTPUTS, DIM = 0.05, 5, 4, 2
DUAL = ProxLinear(inner=BCFW())
casimir = partial(CasimirSVRG, schedule="constant")
# Scores are sines of inner products with unit vectors, so those of an output less those of the labels are 2-smooth.
CURVATURE = 2.0
ETA = 1 / CURVATURE


def objective(problem: Problem, w: Tensor) -> float:
    return problem.loss(w) + LAM / 2 * float(w @ w)


def model_value(problem: Problem, w: Tensor, center: Tensor, eta: float) -> float:
    """F_η(w; center)."""
    return objective(problem.linearize(center), w) + float((w - center).square().sum()) / (2 * eta)


def exact_step(problem: ModuleProblem, center: Tensor, eta: float) -> Tensor:
    """argmin F_η(·; center): a quadratic program with a slack for each example and a constraint for each output."""
    x, y = problem.batch(torch.arange(N))
    right = x[torch.arange(N), y]
    slopes = torch.cos(x @ center)[..., None] * x - (torch.cos((right * center).sum(1))[:, None] * right)[:, None]
    values = torch.sin(x @ center) - torch.sin((right * center).sum(1))[:, None]
    values += (torch.arange(OUTPUTS) != y[:, None]).double()
    a, c, z = slopes.flatten(0, 1).numpy(), values.flatten().numpy(), center.numpy()
    slack = np.repeat(np.eye(N), OUTPUTS, axis=0)

    def value(v: Any) -> tuple[float, Any]:
        w = z + v[:DIM]
        gradient = np.r_[LAM * w + v[:DIM] / eta, np.full(N, 1 / N)]
        return LAM / 2 * w @ w + v[:DIM] @ v[:DIM] / (2 * eta) + v[DIM:].mean(), gradient

    constraint = {"type": "ineq", "fun": lambda v: slack @ v[DIM:] - a @ v[:DIM] - c, "jac": lambda v: np.c_[-a, slack]}
    start = np.r_[np.zeros(DIM), np.full(N, c.max())]
    options = {"ftol": 1e-15, "maxiter": 500}
    solution = minimize(value, start, jac=True, method="SLSQP", constraints=constraint, options=options)
    return center + torch.from_numpy(solution.x[:DIM])


@dataclass
class Iteration:
    """States around an iteration, and the candidate that it found."""

    before: ProxLinearState
    after: ProxLinearState
    candidate: Tensor


def trace(solver: ProxLinear, problem: Problem, passes: int, monkeypatch: pytest.MonkeyPatch) -> list[Iteration]:
    iterations: list[Iteration] = []
    states: list[ProxLinearState] = []
    candidates: list[Tensor] = []
    models = type(solver.models)
    line_3 = models.minimize

    def spy(self: Any, *arguments: Any) -> Any:
        candidate = line_3(self, *arguments)
        candidates.append(candidate.weights)
        return candidate

    def record(progress: Progress[ProxLinearState]) -> None:
        if states:  # the candidates of iterations that were undone are left out
            iterations.append(Iteration(states[-1], progress.state, candidates[-1]))
        states.append(progress.state)

    with monkeypatch.context() as patch:
        patch.setattr(models, "minimize", spy)
        solver.solve(problem, lam=LAM, passes=passes, callbacks=[record])
    return iterations


def test_bound_and_descent_of_theorem_35(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = sines()
    iterations = trace(ProxLinear(learning_rate=ETA, inner=casimir(k=OUTPUTS)), problem, 80, monkeypatch)
    grid = torch.cartesian_prod(*[torch.linspace(-6, 6, 61, dtype=torch.float64)] * 2)
    least = min(objective(problem, w) for w in grid)
    first = objective(problem, iterations[0].before.weights)
    mappings, errors = [], []
    for k, it in enumerate(iterations, 1):
        best = exact_step(problem, it.before.weights, ETA)
        errors.append(
            model_value(problem, it.candidate, it.before.weights, ETA)
            - model_value(problem, best, it.before.weights, ETA)
        )
        mappings.append(float((it.before.weights - best).norm()) / ETA)
        assert errors[-1] >= -1e-9
        # The mapping in the history is that of an inexact minimum, which strong convexity holds close to the exact one.
        slack = (2 * max(errors[-1], 0) / (LAM + 1 / ETA)) ** 0.5 / ETA
        assert abs(it.after.mapping - mappings[-1]) <= slack + 1e-6
        assert min(mappings) ** 2 <= 2 / (ETA * k) * (first - least + sum(errors))
    values = [it.before.objective for it in iterations] + [iterations[-1].after.objective]
    assert values == sorted(values, reverse=True)
    assert first - values[-1] > 0.25
    assert mappings[-1] < 0.2 * mappings[0]


@pytest.mark.parametrize(
    "inner", [BCFW(), casimir(mu=0.01, k=OUTPUTS), SVRG(mu=0.01, k=OUTPUTS)], ids=lambda s: type(s).__name__
)
def test_a_step_with_many_passes_is_the_exact_one(inner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = sines()
    solver = ProxLinear(learning_rate=ETA, inner=inner, inner_passes=150, lipschitz=100.0)
    (it,) = trace(solver, problem, 150, monkeypatch)
    best = exact_step(problem, it.before.weights, ETA)
    # Smoothing costs μ/2 at most.
    value = model_value(problem, it.candidate, it.before.weights, ETA)
    assert -1e-12 <= value - model_value(problem, best, it.before.weights, ETA) <= 0.01 / 2 + 1e-6


def affine() -> Iterator[tuple[Problem, float]]:
    """The same examples as a sparse chain, as a module that is affine, and as one that does not say so."""
    sparse = random_problem((3, 3, 3, 3), features=5)
    rows = torch.zeros(12, 5, dtype=torch.float64)
    for token in range(12):
        begin, end = sparse.sequences.token_offsets[token : token + 2].tolist()
        rows[token].index_add_(0, sparse.sequences.attributes[begin:end].long(), torch.ones(end - begin).double())
    data = list(zip(rows.view(4, 3, 5), sparse.labels.view(4, 3), strict=True))
    silent = LinearScore(5, 3)
    silent.affine = False
    yield sparse, 1e-10
    yield ModuleProblem(LinearScore(5, 3), data, batch_size=1), 1e-10
    yield ModuleProblem(silent, data, batch_size=1), 1e-10


def test_the_first_step_on_affine_scores_is_that_of_casimir_with_a_proximal_term() -> None:
    eta, passes, start = 0.5, 4, torch.linspace(-1, 1, 30, dtype=torch.float64)
    lam, problems = LAM + 1 / eta, list(affine())
    shifted = ShiftedProblem.proximal(problems[0][0], LAM, 1 / eta, start)
    inner = casimir(mu=0.3)
    state = inner.begin(shifted, lam, start - shifted.origin, 1 / (20.0 + lam))
    rng = np.random.default_rng([0, 0])
    for _ in range(passes):
        state = inner.advance(shifted, lam, state, rng, passes)
    expected = shifted.origin + state.iterate
    solver = ProxLinear(learning_rate=eta, inner=inner, lipschitz=20.0, inner_passes=passes, accept="always")
    for problem, tolerance in problems:
        result = solver.solve(problem, lam=LAM, passes=passes, start=start)
        assert_close(result.weights, expected, rtol=0, atol=tolerance)
        assert result.history.column("passes") == [0, 4]


@pytest.mark.parametrize("accept", ["descent", "always"])
def test_acceptance(accept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With steps that are far too long some candidates are worse."""
    problem = sines()
    solver = ProxLinear(learning_rate=100.0, accept=accept, schedule="constant", inner=casimir(k=OUTPUTS))
    iterations = trace(solver, problem, 60, monkeypatch)
    worse = [objective(problem, it.candidate) > objective(problem, it.before.weights) for it in iterations]
    assert any(worse)
    assert not all(worse)
    for it, rejected in zip(iterations, worse, strict=True):
        kept = it.before.weights if rejected and accept == "descent" else it.candidate
        assert torch.equal(it.after.weights, kept)
        assert it.after.objective == pytest.approx(objective(problem, kept), rel=1e-12)


@pytest.mark.parametrize("lipschitz", [None, 1e-3])
def test_an_explosion_halves_the_step_where_all_is_accepted(lipschitz: float | None) -> None:
    solver = ProxLinear(learning_rate=1e4, lipschitz=lipschitz, accept="always")
    history = solver.solve(candidates_problem(), lam=1e-3, passes=60).history
    assert history[0].step_size == 1e4 > 10 * history[1].step_size
    values = history.column("objective")
    assert all(value <= 2 * min(values[: k + 1]) or value < 0.1 * values[0] for k, value in enumerate(values))
    assert values[-1] < 0.2 * values[0]


@pytest.mark.parametrize("eta", [None, 1e4])
def test_step_lengths_follow_the_error_of_the_model(eta: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, factors = candidates_problem(), []
    solver = ProxLinear(inner=casimir(k=OUTPUTS))
    if eta is not None:
        monkeypatch.setattr(prox_linear, "first_step_length", lambda _: eta)
    for it in trace(solver, problem, 25, monkeypatch):
        w, used = it.before.weights, it.before.step_size
        linearized = objective(problem.linearize(w), it.candidate)
        error, gain = objective(problem, it.candidate) - linearized, it.before.objective - linearized
        proximity = float((it.candidate - w).square().sum()) / (2 * used)
        factors.append(it.after.step_size / used)
        wanted, held = proximity / (2 * max(error, 1e-12)), 0.1 * gain <= proximity <= gain
        assert (factors[-1] < 1) == (error > proximity)
        assert (factors[-1] > 1) == (wanted >= 2 and held)
        if factors[-1] != 1:
            assert factors[-1] == pytest.approx(min(max(wanted, 0.1), 10.0), rel=1e-3)
        assert it.after.lipschitz == it.before.lipschitz * (1 if gain >= proximity else 2)
    assert min(factors) < 1 if eta == 1e4 else max(factors) > 1


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_the_first_step_length_suits_the_scale_of_the_scores(scale: float) -> None:
    problem = sines()
    inputs = [(x * scale, y) for x, y in problem.dataset]
    scaled = ModuleProblem(problem.module, inputs, batch_size=1)
    start = problem.start()
    eta = DUAL.first_state(problem, 0.0, start, 0).step_size
    assert DUAL.first_state(scaled, 0.0, start / scale, 0).step_size == pytest.approx(eta / scale**2)


@pytest.mark.parametrize("tolerance", [0.01, 0.001])
def test_the_gradient_rule_keeps_its_promise(tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """F_η(ŵ_k; w_{k-1}) is within ε_0/k of its minimum, exactly so for an objective that is smooth itself."""
    hinges = sines()
    problem = ModuleProblem(hinges.module, hinges.dataset, None, 1, smoother=Entropy(1.0))
    solver = ProxLinear(learning_rate=ETA, inner_stop="gradient", tolerance=tolerance, inner_passes=100)
    iterations = trace(solver, problem, 120, monkeypatch)[:10]
    for k, it in enumerate(iterations, 1):
        assert it.after.passes - it.before.passes < 100
        model = ShiftedProblem.proximal(problem.linearize(it.before.weights), LAM, 1 / ETA, it.before.weights)
        a = LAM + 1 / ETA

        def value(v: Any, model: Problem = model, a: float = a) -> tuple[float, Any]:
            loss, gradient = model.loss_and_grad(torch.from_numpy(v), problem.smoother)
            return loss + a / 2 * v @ v, gradient.numpy() + a * v

        found = (it.candidate - model.origin).numpy()
        least = minimize(value, found, jac=True, method="L-BFGS-B", options={"ftol": 1e-16, "gtol": 1e-12}).fun
        assert value(found)[0] - least <= tolerance / k
    assert {it.after.passes - it.before.passes for it in iterations} != {1}


def test_the_rule_of_the_gradient_has_the_constant_of_strong_convexity(monkeypatch: pytest.MonkeyPatch) -> None:
    """‖∇‖² ≤ 2(λ + 1/η)ε, and not less or more."""
    problem, inner = sines(), casimir(k=OUTPUTS)
    solver = ProxLinear(learning_rate=ETA, inner_stop="gradient", tolerance=0.05, inner_passes=30, inner=inner)
    for it in trace(solver, problem, 100, monkeypatch):
        passes = it.after.passes - it.before.passes
        model = ShiftedProblem.proximal(problem.linearize(it.before.weights), LAM, 1 / ETA, it.before.weights)
        v = it.candidate - model.origin
        gradient = model.full_pass(v, inner.smooth(it.after.mu)).gradient
        square = float((gradient + (LAM + 1 / ETA) * v).square().sum())
        if passes < 30 and it.after.passes < 100:
            assert square <= 2 * (LAM + 1 / ETA) * 0.05 / it.after.iteration


@pytest.mark.parametrize(("schedule", "levels"), [("adaptive", [0.6, 0.3, 0.2]), ("constant", [0.6, 0.6, 0.6])])
def test_levels_of_smoothing(schedule: Any, levels: list[float]) -> None:
    history = (
        ProxLinear(inner=casimir(mu=0.6), schedule=schedule, inner_passes=2).solve(sines(), lam=LAM, passes=6).history
    )
    assert history.column("inner_mu") == [None, *(pytest.approx(level) for level in levels)]
    assert history.column("passes") == [0, 2, 4, 6]
    assert all(value > 0 for value in history.column("gradient_mapping")[1:])


@pytest.mark.parametrize(("inner", "passes"), [(BCFW(), [0, 2, 4, 6, 7]), (SVRG(), [0, 5, 7])])
def test_the_limit_cuts_the_last_iteration_short(inner: Any, passes: list[int]) -> None:
    assert ProxLinear(inner=inner).solve(sines(), lam=LAM, passes=7).history.column("passes") == passes


@pytest.mark.parametrize("eta", [None, ETA])
def test_oracle_calls(eta: float | None) -> None:
    """An iteration takes two for each pass, of which one is the evaluation; and one for its model if η adapts."""
    solver = ProxLinear(schedule="constant", lipschitz=10.0, learning_rate=eta)
    history = solver.solve(sines(), lam=LAM, passes=10).history
    assert history.column("oracle_calls") == [
        N,
        (1 + (11 if eta is None else 10)) * N,
        (1 + (22 if eta is None else 20)) * N,
    ]


def test_a_rejected_candidate_takes_another_pass_if_the_level_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    for schedule, more in (("adaptive", 1), ("constant", 0)):
        solver = ProxLinear(
            learning_rate=100.0, lipschitz=0.1, schedule=schedule, inner=casimir(k=OUTPUTS), inner_passes=1
        )
        iterations = trace(solver, sines(), 20, monkeypatch)
        assert len({torch.equal(it.before.weights, it.after.weights) for it in iterations}) == 2
        for it in iterations:
            rejected = torch.equal(it.before.weights, it.after.weights)
            assert it.after.oracle_calls - it.before.oracle_calls == (2 + more * rejected) * N


@pytest.mark.parametrize("inner_stop", ["budget", "gradient"])
def test_oracle_calls_of_bcfw(inner_stop: Any) -> None:
    """One for each pass and one for F, and one after each pass for the gap, where that is asked for."""
    solver = ProxLinear(inner=BCFW(), inner_passes=3, inner_stop=inner_stop, tolerance=1e-9)
    history = solver.solve(sines(), lam=LAM, passes=6).history
    each = 4 if inner_stop == "budget" else 7
    assert history.column("oracle_calls") == [N, (1 + each) * N, (1 + 2 * each) * N]


@pytest.mark.parametrize(("copies", "seen"), [(1, N), (24, 20)])
def test_the_first_constant_takes_a_few_examples(copies: int, seen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    estimate, spent = CasimirSVRG.try_step_sizes, []

    def watched(self: CasimirSVRG, problem: Problem, *arguments: Any) -> dict[float, float]:
        calls, tried = problem.oracle_calls, estimate(self, problem, *arguments)
        assert problem.n == seen
        spent.append(problem.oracle_calls - calls)
        return tried

    monkeypatch.setattr(CasimirSVRG, "try_step_sizes", watched)
    problem = ModuleProblem(Sines(), list(sines().dataset) * copies, batch_size=1)
    state = ProxLinear().first_state(problem, LAM, None, 0)
    assert state.lipschitz > 0
    (calls,) = spent
    assert problem.oracle_calls == problem.n + calls  # η and F(w_0) take a pass


# Graph cuts have no exp oracle.
@pytest.mark.parametrize(
    ("name", "smoothing"),
    [(name, kind) for name in PROBLEMS for kind in ("l2", "entropy") if (name, kind) != ("graph", "entropy")],
)
def test_every_structure(name: str, smoothing: Any) -> None:
    problem = PROBLEMS[name]()
    history = ProxLinear(inner=casimir(smoothing=smoothing, k=4)).solve(problem, lam=1e-3, passes=25).history
    values = history.column("objective")
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.7 * values[0]


def test_a_likelihood_in_single_precision() -> None:
    problem = chain_problem()
    data = [(x.float(), y) for x, y in problem.dataset]
    single = ModuleProblem(problem.module.float(), data, None, 3, smoother=Entropy(1.0))
    result = DUAL.solve(single, lam=1e-3, passes=25)
    assert result.weights.dtype == torch.float32
    assert result.row.objective < 0.7 * result.history[0].objective


def test_at_a_stationary_point_nothing_happens() -> None:
    """Labels win by far: the loss is zero, and so is the minimum of every model."""
    chain = ModuleProblem(Fixed(), [(torch.zeros(3, 2), torch.tensor([0, 1, 1]))], batch_size=1)
    result = DUAL.solve(chain, lam=0.0, passes=10)
    assert result.history.column("objective") == [0.0] * 6
    assert torch.equal(result.weights, chain.start())
    assert result.status is Status.PASS_LIMIT


class Fixed(ScoreModule):
    """Scores that are far from each other."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.tensor([[9.0, 0.0], [0.0, 9.0], [0.0, 9.0]]))

    def forward(self, x: Tensor) -> LinearChain:
        return LinearChain(torch.asinh(self.scores).expand(len(x), 3, 2) * 3 + x, torch.zeros(2, 2))


def test_refuses_to_resume_with_other_blocks() -> None:
    result = DUAL.solve(sines(), lam=LAM, passes=2)
    with pytest.raises(ValueError, match="the state has statistics of 5 blocks, but this batch_size gives 3"):
        ProxLinear(batch_size=2, inner=BCFW()).solve(sines(), lam=LAM, passes=4, resume=(result.state, result.history))


def test_the_inner_solver_is_what_runs() -> None:
    """Casimir-SVRG by default; what it is given is what its oracle gets."""
    assert ProxLinear().oracle == "top-K"
    assert ProxLinear(inner=casimir(smoothing="entropy")).oracle == "exp"
    assert DUAL.oracle == "max"
    assert {"inner_mu", "gradient_mapping"} == ProxLinear().solve(sines(), lam=LAM, passes=5).history[-1].metrics.keys()


@pytest.mark.parametrize(
    ("inner", "error", "message"),
    [
        (SGD(), TypeError, "inner must be a CasimirSVRG, an SVRG or a BCFW, got SGD"),
        ("bcfw", TypeError, "inner must be a CasimirSVRG, an SVRG or a BCFW, got 'bcfw'"),
        (ProximalBCFW(), TypeError, "inner must be"),
        (BCFW(steps="pairwise"), ValueError, 'has only steps="fw", since the outputs of single examples are not kept'),
        (BCFW(sampling="gap"), ValueError, 'has only sampling="uniform"'),
        (BCFW(cache=True), ValueError, "has no cache of its own; got True"),
        (BCFW(threads=2), ValueError, "has no threads of its own; got 2"),
        (CasimirSVRG(lipschitz=2.0), ValueError, "has no lipschitz of its own; got 2.0"),
        (SVRG(learning_rate=0.1), ValueError, "has no learning_rate of its own; got 0.1"),
        (SVRG(batch_size=2), ValueError, "has no batch_size of its own; got 2"),
    ],
)
def test_refuses_other_inner_solvers(inner: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ProxLinear(inner=inner)


def test_needs_a_linearization() -> None:
    with pytest.raises(NotImplementedError, match="has no linearization"):
        DUAL.solve(Opaque(), lam=LAM)


class Opaque(Problem):
    """A sum of one loss that says nothing of its scores."""

    n = dim = 1

    def start(self) -> Tensor:
        return torch.ones(1)

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Any) -> Tensor:
        return w.square().expand(len(indices))

    def subset(self, indices: Tensor) -> Problem:
        return self
