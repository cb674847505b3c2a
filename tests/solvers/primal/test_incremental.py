"""Incremental prox-linear steps: the formulas, the bound, planes in fewer bits, and memory."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import Chain, chain_problem, examples
from small_problems import EnumeratedProblem, random_problem
from solver_cases import LAM, moments_of, objective, small_problem
from torch import Tensor

from structsmooth import Entropy, IncrementalProxLinear, Max, ModuleProblem, Problem
from structsmooth.solvers.primal.incremental import scales_of
from structsmooth.solvers.primal.planes import Gradients, Planes


def by_hand(problem: Problem, lam: float, eta: float, passes: int, seed: int) -> tuple[Tensor, float, list[float]]:
    """Weights after some passes, the last sum of block gaps, and all η, from the formulas for each block."""
    blocks = np.array_split(np.random.default_rng(0).permutation(7), [3, 6])  # of 3, 3 and 1 examples
    shares = [len(block) / 7 for block in blocks]
    g, c, w = [torch.zeros(problem.dim).double() for _ in blocks], [0.0] * 3, problem.start()
    etas, before, gap = [eta], math.inf, math.inf
    for passed in range(passes):
        square, total = (sum(p * g_i**power for p, g_i in zip(shares, g, strict=True)) for power in (2, 1))
        scales = (square / square.mean() + 0.01).sqrt() if passed else torch.ones_like(w)
        least = 0.05 if gap < 0.1 * before and not problem.affine else 0.0
        proximal, gap, seen = torch.maximum(scales / eta, torch.tensor(lam / 0.4)), 0.0, 0.0
        a = lam + proximal
        w = (proximal * w - total) / a
        for i in np.random.default_rng([seed, passed]).permutation(3):
            f, gradient = problem.batch_loss_and_grad(w, torch.from_numpy(blocks[i]), problem.smoother)
            d, below = gradient - g[i], float(f - c[i] - g[i] @ w)
            c[i] += min(below, 0.0)
            below = max(below, 0.0)
            gap += shares[i] * below
            seen += shares[i] * float(f)
            gamma = min(max(below / (shares[i] * float(d @ (d / a))), least), 1.0)
            c[i] += gamma * (float(f - gradient @ w) - c[i])
            g[i], w = g[i] + gamma * d, w - gamma * shares[i] / a * d
        seen += lam / 2 * float(w @ w)
        eta = max(0.7 * eta, min(eta, 0.05 * etas[0])) if seen > before else max(eta, min(1.2 * eta, 0.4 / lam))
        before = seen
        etas.append(eta)
    return w, gap, etas


@pytest.mark.parametrize("affine", [True, False], ids=["affine", "not affine"])
@pytest.mark.parametrize("smoother", [Max(), Entropy(1.0)], ids=str)
@pytest.mark.parametrize("eta", [0.3, 30.0])
def test_steps_follow_the_formulas(smoother: Any, eta: float, affine: bool) -> None:
    problem = chain_problem(smoother=smoother)
    problem.module.affine = affine  # planes of what says that it is affine never forget
    result = IncrementalProxLinear(learning_rate=eta).solve(problem, lam=0.5, passes=12, seed=2)
    expected, gap, etas = by_hand(problem, 0.5, eta, passes=12, seed=2)
    assert result.history.column("step_size") == pytest.approx(etas)
    torch.testing.assert_close(result.state.iterate, expected, rtol=0, atol=1e-10)
    assert result.history[-1].metrics["model_gap"] == pytest.approx(gap, abs=1e-10)


def test_the_first_step_size_makes_the_linearized_loss_of_a_typical_step_zero() -> None:
    problem = chain_problem(batch_size=1)
    state = moments_of(IncrementalProxLinear(), problem, passes=1)[0][0]
    answers = [problem.batch_loss_and_grad(problem.start(), torch.tensor([i]), Max()) for i in range(7)]
    squares = torch.stack([gradient.square() for _, gradient in answers]).mean(0)
    torch.testing.assert_close(state.scales, (squares / squares.mean() + 0.01).sqrt(), rtol=1e-12, atol=0)
    # A full step on a block with zero planes changes its linearized loss by -η/n ⟨g, g/D⟩.
    fall = state.step_size / 7 * torch.stack([g @ (g / state.scales) for _, g in answers]).mean()
    assert float(fall) == pytest.approx(float(torch.stack([loss for loss, _ in answers]).mean()), rel=1e-12)


def test_scales_are_the_root_mean_square_of_gradients_over_their_mean() -> None:
    gradients = Gradients([*torch.tensor([[3.0, 0.0, 1.0], [3.0, 0.0, -5.0]]).double()], [], 3)
    squares = Planes(gradients, torch.zeros(2).double(), torch.tensor([0.25, 0.75]).double()).mean_square()
    assert squares.tolist() == [9.0, 0.0, 19.0]
    mean = 28 / 3
    assert scales_of(squares).tolist() == pytest.approx(
        [math.sqrt(9 / mean + 0.01), 0.1, math.sqrt(19 / mean + 0.01)], rel=1e-12
    )
    assert scales_of(torch.zeros(3)).tolist() == [1.0, 1.0, 1.0]


def test_weights_are_an_average_of_the_iterates() -> None:
    moments = moments_of(IncrementalProxLinear(), chain_problem(), passes=4)
    iterates = torch.stack([state.iterate for state, _ in moments[1:]])
    powers = torch.tensor([math.perm(t + 7, 8) for t in range(1, 5)]).double()
    torch.testing.assert_close(moments[-1][0].weights, powers @ iterates / powers.sum(), rtol=0, atol=1e-12)


def test_the_step_size_follows_the_objective_that_the_steps_saw() -> None:
    moments = moments_of(IncrementalProxLinear(learning_rate=0.3), chain_problem(), passes=40)
    states = [state for state, _ in moments]
    fell = [after.seen < before.seen for before, after in pairwise(states)]
    expected = [
        min(1.2 * state.step_size, 0.4 / LAM) if smaller else max(0.7 * state.step_size, 0.05 * 0.3)
        for state, smaller in zip(states, fell, strict=False)
    ]
    assert [state.step_size for state in states[1:]] == pytest.approx(expected)
    assert set(fell) == {True, False}


def test_the_step_size_grows_up_to_a_limit_by_lam() -> None:
    def step_sizes(eta: float) -> list[float | None]:
        return (
            IncrementalProxLinear(learning_rate=eta)
            .solve(small_problem(), lam=16.0, passes=60)
            .history.column("step_size")
        )

    assert max(step_sizes(0.01)) == pytest.approx(0.4 / 16)
    assert max(step_sizes(1.0)) == 1.0  # as given


def test_the_step_size_stays_above_a_part_of_the_first() -> None:
    """Where F no longer falls, every second pass shrinks it."""
    step_sizes = (
        IncrementalProxLinear(gap_tolerance=0).solve(small_problem(), lam=LAM, passes=400).history.column("step_size")
    )
    assert min(step_sizes) == pytest.approx(0.05 * step_sizes[0])


def test_planes_bound_the_minimum_of_the_model() -> None:
    """And of the problem, by a bound that is close in the end."""
    problem = small_problem()
    moments = moments_of(IncrementalProxLinear(gap_tolerance=0), problem, 60)
    for before, after in [(moments[at][0], moments[at + 1][0]) for at in (0, 2, 8, 59)]:
        u, center = after.iterate, before.iterate
        scales = before.scales if len(before.scales) else scales_of(before.planes.mean_square())
        curvature = (scales / before.step_size).clamp(min=LAM / 0.4)

        def proximity(w: Tensor, curvature: Tensor = curvature, center: Tensor = center) -> float:
            return float(curvature / 2 @ (w - center).square())

        total = LAM + curvature
        best = torch.from_numpy(
            EnumeratedProblem(problem).minimizer(total.numpy(), (curvature * center / total).numpy())
        )
        gradient, constant = after.planes.mean()
        bound = constant + float(gradient @ u + LAM / 2 * u @ u) + proximity(u)
        reached = objective(problem, best) + proximity(best)
        assert bound <= reached + 1e-9
    assert reached - bound <= 0.02 * reached
    last = moments[-1][1][-1]
    assert 0 <= last.gap <= 0.02 * last.objective


def test_a_pass_calls_the_oracle_once_for_each_example() -> None:
    estimated = IncrementalProxLinear(batch_size=2).solve(chain_problem(), lam=LAM, passes=3).history
    assert estimated.column("oracle_calls") == [7, 14, 21, 28]
    given = IncrementalProxLinear(learning_rate=0.1).solve(chain_problem(), lam=LAM, passes=3).history
    assert given.column("oracle_calls") == [7, 14, 21, 28]


def test_a_given_step_size_leaves_few_calls_before_the_first_pass() -> None:
    """They tell whether planes are sparse."""
    problem = random_problem(lengths=(2,) * 30)
    for learning_rate, calls in ((None, 30), (0.1, 10)):
        solver = IncrementalProxLinear(learning_rate=learning_rate, batch_size=1)
        assert solver.solve(problem, lam=LAM, passes=0).history[0].oracle_calls == calls


@pytest.mark.parametrize("planes", ["float16", "bfloat16"])
def test_planes_in_fewer_bits(planes: Any) -> None:
    exact = IncrementalProxLinear().solve(chain_problem(), lam=LAM, passes=30)
    rounded = IncrementalProxLinear(planes=planes).solve(chain_problem(), lam=LAM, passes=30)
    assert rounded.state.planes.gradients.dtype == getattr(torch, planes)
    assert not torch.equal(exact.weights, rounded.weights)
    assert rounded.history[-1].objective == pytest.approx(exact.history[-1].objective, rel=0.03)


def test_refuses_planes_that_take_too_much_memory() -> None:
    problem = chain_problem(batch_size=1)
    mebibytes = 2 * 7 * problem.dim * 8 / 2**20
    IncrementalProxLinear(memory=mebibytes / 1024 * 1.01).solve(problem, lam=LAM, passes=1)
    small = mebibytes / 1024 * 0.99
    with pytest.raises(ValueError, match=r"planes of 7 blocks of \d+ weights take .* GiB.*larger batch_size"):
        IncrementalProxLinear(memory=small).solve(problem, lam=LAM)
    IncrementalProxLinear(memory=small, batch_size=4).solve(problem, lam=LAM, passes=1)
    IncrementalProxLinear(memory=small, planes="bfloat16").solve(problem, lam=LAM, passes=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parameters_of_several_types(dtype: torch.dtype) -> None:
    torch.manual_seed(0)

    module = Chain().double()
    module.hidden.to(dtype)
    module.hidden.register_forward_pre_hook(lambda layer, inputs: inputs[0].to(dtype))
    module.hidden.register_forward_hook(lambda layer, inputs, output: output.double())
    data = examples(lambda generator: torch.randint(2, (5,), generator=generator), parts=5)
    problem = ModuleProblem(module, data, batch_size=3)
    result = IncrementalProxLinear().solve(problem, lam=0.01, passes=30)
    assert result.state.planes.gradients.dtype == result.weights.dtype == torch.float64
    assert result.row.objective < 0.6 * result.history[0].objective
    problem.load(result.weights)
    assert module.hidden.weight.dtype == dtype


def test_a_state_of_other_blocks_is_refused() -> None:
    short = IncrementalProxLinear(batch_size=2).solve(chain_problem(), lam=LAM, passes=1)
    with pytest.raises(ValueError, match=r"planes of 4 of 4 blocks, but .* give 2 of 2"):
        IncrementalProxLinear(batch_size=4).solve(chain_problem(), lam=LAM, resume=(short.state, short.history))


def test_no_loss_no_step() -> None:
    """Zero gradients give no step size, and no direction."""
    problem = small_problem(cost=None)
    result = IncrementalProxLinear().solve(problem, lam=LAM, passes=3)
    assert torch.equal(result.weights, problem.start())
