"""Compiled passes over sparse chains against enumeration and against the plain torch passes they replace."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from small_problems import EnumeratedProblem, random_problem, random_weights
from torch import Tensor
from torch.testing import assert_close

from structsmooth import L2, Entropy, Hamming, Max, WeightedHamming
from structsmooth.costs import Cost, NormalizedHamming
from structsmooth.problems import Problem, SparseChainProblem, SparseSequences
from structsmooth.smoothing import Smoother
from structsmooth.solvers import sgd, svrg

EXACTLY, CLOSE = {"rtol": 0.0, "atol": 1e-10}, {"rel": 0.0, "abs": 1e-10}  # of tensors, of numbers
# More outputs than there are, too: with 100 the smaller examples have none left.
SMOOTHERS = [Max(), L2(0.7, 1), L2(0.7, 3), L2(5.0, 100), Entropy(0.5)]
COSTS = [Hamming(), NormalizedHamming(), WeightedHamming((1.0, 2.0, 0.5)), None]

every_smoother = pytest.mark.parametrize("smoother", SMOOTHERS, ids=str)
every_cost = pytest.mark.parametrize("cost", COSTS, ids=str)


def random_order(problem: SparseChainProblem, steps: int, size: int = 1) -> Tensor:
    return torch.randint(problem.n, (steps, size), generator=torch.Generator().manual_seed(1))


@every_cost
def test_losses_by_enumeration(cost: Cost | None) -> None:
    problem = random_problem(cost=cost)
    w = random_weights(problem)
    margins = [torch.from_numpy(m) for m in EnumeratedProblem(problem).margins(w.numpy())]
    assert problem.loss(w) == pytest.approx(sum(float(m.max()) for m in margins) / problem.n, abs=1e-12)
    entropy = sum(float(0.5 * (m / 0.5).logsumexp(0)) for m in margins) / problem.n
    assert problem.loss(w, Entropy(0.5)) == pytest.approx(entropy, abs=1e-12)
    best = torch.stack([m.topk(2).values for m in margins])
    first = (0.5 + (best[:, 0] - best[:, 1]) / 2).clamp(max=1.0)  # of L2(1.0, 2), the projection of two scores
    shares = torch.stack([first, 1 - first], 1)
    smoothed = (shares * best).sum(1) - (shares.square().sum(1) - 1) / 2
    assert problem.loss(w, L2(1.0, 2)) == pytest.approx(float(smoothed.mean()), abs=1e-12)


def test_statistics_of_many_states_reach_the_gradient() -> None:
    """Of the best outputs, most of whose rows are zero, those that are not in the labels."""
    problem = random_problem(states=130)
    w = random_weights(problem)
    compiled, default = problem.full_pass(w, Max()), Problem.full_pass(problem, w, Max())
    assert_close(compiled.gradient, default.gradient, **EXACTLY)


@every_smoother
@every_cost
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_full_pass_is_the_default(smoother: Smoother, cost: Cost | None, scale: float) -> None:
    problem = random_problem(cost=cost)
    w = scale * random_weights(problem)
    compiled = problem.full_pass(w, smoother, with_loss=True)
    default = Problem.full_pass(problem, w, smoother, with_loss=True)
    assert compiled.smoothed_loss == pytest.approx(default.smoothed_loss, **CLOSE)
    assert compiled.loss == pytest.approx(default.loss, **CLOSE)
    assert_close(compiled.gradient, default.gradient, **EXACTLY)
    assert_close(compiled.weights, w, **EXACTLY)
    assert compiled.smoother == smoother
    assert problem.loss(w, smoother) == compiled.smoothed_loss
    value, gradient = problem.loss_and_grad(w, smoother)
    assert value == compiled.smoothed_loss
    assert torch.equal(gradient, compiled.gradient)


@every_smoother
@every_cost
def test_full_pass_keeps_the_statistics(smoother: Smoother, cost: Cost | None) -> None:
    problem = random_problem(cost=cost)
    w = random_weights(problem)
    full = problem.full_pass(w, smoother)
    expected_cost, gradient = 0.0, torch.zeros_like(w)
    for i in range(problem.n):
        index = torch.tensor([i])
        tokens = problem.sequences.tokens(index)
        chain, y = problem.structure(w.clone().requires_grad_(), index), problem.labels[tokens][None]
        costs = torch.zeros_like(chain.unary) if cost is None else cost(chain, y)
        smoothed = smoother(chain.cost_augmented(y, costs)).sum()
        node, edge = torch.autograd.grad(smoothed, chain.potentials)
        assert_close(full.node[tokens], node[0], **EXACTLY)
        assert_close(full.edge[i], edge, **EXACTLY)
        expected_cost += float((costs * node).sum()) / problem.n
        parts, pairs = chain.parts(y)
        gradient += problem.adjoint((node[0] - parts[0], edge - pairs[0].sum(0)), i).detach() / problem.n
    assert full.expected_cost == pytest.approx(expected_cost, **CLOSE)
    assert_close(full.gradient, gradient, **EXACTLY)


@every_smoother
@pytest.mark.parametrize(
    ("step_size", "lam", "kappa"),
    [(0.1, 0, 0), (0.1, 0.3, 0), (0.1, 0, 0.7), (0.1, 0.3, 0.7), (0.1, 1e-13, 0), (0.6, 0.3, 0.7), (0.99, 1, 0)],
)
def test_svrg_epoch_is_the_default(smoother: Smoother, step_size: float, lam: float, kappa: float) -> None:
    problem = random_problem()
    w, center = random_weights(problem, 1), random_weights(problem, 2) if kappa else None
    for order in random_order(problem, 36).split(12):
        snapshot = problem.full_pass(w, smoother)
        settings = {"step_size": step_size, "lam": lam, "kappa": kappa, "center": center}
        w, mean = svrg.epoch(problem, snapshot, order, **settings)
        assert_close((w, mean), svrg.epoch.dispatch(object)(problem, snapshot, order, **settings), **EXACTLY)


@pytest.mark.parametrize("smoother", [Max(), L2(0.7, 3)], ids=str)
def test_a_pass_without_statistics_is_the_same(smoother: Smoother) -> None:
    problem = random_problem()
    w = random_weights(problem)
    with_them, without = (problem.full_pass(w, smoother, with_statistics=kept) for kept in (True, False))
    assert not hasattr(without, "node")
    for name, value in vars(without).items():
        assert value is getattr(with_them, name) or torch.equal(
            *map(torch.as_tensor, (value, getattr(with_them, name)))
        )


def test_steps_of_all_examples_are_gradient_descent() -> None:
    problem, smoother, lam, kappa, eta = random_problem(), L2(0.7, 3), 0.3, 0.7, 0.1
    start, center = random_weights(problem), random_weights(problem, 1)
    v = w = start
    for _ in range(3):
        v = v - eta * (problem.loss_and_grad(v, smoother)[1] + lam * v + kappa * (v - center))
        w = w - eta * (problem.loss_and_grad(w, smoother)[1] + lam * w)
    full, order = problem.full_pass(start, smoother), torch.arange(problem.n).expand(3, -1)
    proximal = {"kappa": kappa, "center": center}
    assert_close(svrg.epoch(problem, full, order, step_size=eta, lam=lam, **proximal)[0], v, **EXACTLY)
    steps, shares = torch.tensor([eta] * 3, dtype=torch.float64), torch.tensor([0.0, 0.0, 2.0])
    last, total = sgd.epoch(
        problem, start, order, step_sizes=steps, lam=lam, smoother=smoother, averaging_weights=shares
    )
    assert_close(last, w, **EXACTLY)
    assert_close(total, 2 * w, **EXACTLY)


def test_potentials_and_adjoint_are_adjoint() -> None:
    problem = random_problem()
    w, generator = random_weights(problem), torch.Generator().manual_seed(2)
    for i, length in enumerate(problem.sequences.lengths.tolist()):
        unary, transition = problem.potentials(w, i)
        assert unary.shape == (length, problem.states)
        node = torch.randn(unary.shape, generator=generator, dtype=torch.float64)
        edge = torch.randn(transition.shape, generator=generator, dtype=torch.float64)
        inner = float((node * unary).sum() + (edge * transition).sum())
        assert float(problem.adjoint((node, edge), i) @ w) == pytest.approx(inner, abs=1e-10)


@every_cost
def test_restricted_problem_drops_the_attributes_that_do_not_occur(cost: Cost | None) -> None:
    problem, indices = random_problem(features=100, cost=cost), torch.tensor([4, 1, 1, 2])
    w = random_weights(problem)
    subset, (part, weights) = problem.subset(indices), problem.restrict(indices, w)
    used = subset.sequences.attributes.unique()
    assert (part.n, part.features, len(weights)) == (4, len(used), part.dim)
    assert part.dim < subset.dim
    whole, small = subset.full_pass(w, L2(0.7, 3)), part.full_pass(weights, L2(0.7, 3))
    assert small.smoothed_loss == whole.smoothed_loss
    settings = {"step_size": 0.1, "lam": 0.3, "kappa": 0.7}
    expected = problem.views(svrg.epoch(subset, whole, random_order(part, 9), center=0.5 * w, **settings)[1])
    reached = part.views(svrg.epoch(part, small, random_order(part, 9), center=0.5 * weights, **settings)[1])
    assert_close(reached, (expected[0][used], *expected[1:]), **EXACTLY)


def test_restricted_problem_without_attributes() -> None:
    sequences = SparseSequences(torch.zeros(0, dtype=torch.int32), torch.tensor([0, 0, 0]), torch.tensor([0, 2]))
    problem = SparseChainProblem(sequences, torch.tensor([0, 1]), features=5, states=3)
    w = random_weights(problem)
    part, weights = problem.restrict(torch.tensor([0]), w)
    assert torch.equal(weights, w[5 * 3 :])
    assert part.loss(weights) == problem.loss(w)
    value, _ = part.batch_loss_and_grad(weights, torch.tensor([0]), Max())
    assert float(value) == pytest.approx(problem.loss(w), abs=1e-12)


def test_every_inference_counts() -> None:
    problem, smoother = random_problem(), L2()
    w, singles, pairs = problem.start(), random_order(problem, 7), random_order(problem, 7, 2)
    ones = torch.ones(7, dtype=torch.float64)
    full = problem.full_pass(w, smoother)

    def stepped(order: Tensor) -> object:
        return sgd.epoch(problem, w, order, step_sizes=ones, lam=0.1, smoother=smoother, averaging_weights=ones)

    for calls, run in [
        (5, lambda: problem.full_pass(w, smoother, with_loss=True)),
        (5, lambda: problem.loss(w)),
        (3, lambda: problem.batch_loss_and_grad(w, torch.tensor([0, 2, 2]), smoother)),
        (7, lambda: svrg.epoch(problem, full, singles, step_size=0.1, lam=0.1)),
        (2 * 2 * 7, lambda: svrg.epoch(problem, full, pairs, step_size=0.1, lam=0.1)),
        (7, lambda: stepped(singles)),
        (2 * 7, lambda: stepped(pairs)),
        (0, lambda: problem.potentials(w, 0)),
    ]:
        before = problem.oracle_calls
        run()
        assert problem.oracle_calls == before + calls
    assert random_problem().oracle_calls == 0


def test_arguments_are_not_mutated() -> None:
    problem = random_problem()
    w, center = random_weights(problem), random_weights(problem, 1)
    full, order = problem.full_pass(w, L2()), random_order(problem, 9)
    ones = torch.ones(9, dtype=torch.float64)
    tensors = [w, center, full.weights, full.gradient, full.node, full.edge, order, ones, problem.labels]
    copies = [tensor.clone() for tensor in tensors]
    svrg.epoch(problem, full, order, step_size=0.1, lam=0.1, kappa=1.0, center=center)
    sgd.epoch(problem, w, order, step_sizes=0.1 * ones, lam=0.1, smoother=Max(), averaging_weights=ones)
    problem.adjoint(problem.potentials(w, 0), 0)
    assert full.weights.data_ptr() != w.data_ptr()
    assert not w.requires_grad
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(tensors, copies, strict=True))


def test_start_and_views() -> None:
    problem = random_problem(states=2, features=3)
    assert torch.equal(problem.start(), torch.zeros(14, dtype=torch.float64))
    rows, transition, ends = problem.views(torch.arange(14.0))
    assert rows.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert transition.tolist() == [[6, 7], [8, 9]]
    assert ends.tolist() == [[10, 11], [12, 13]]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labels": torch.tensor([0, 1, 2], dtype=torch.int32)}, TypeError, "labels must be int64, got torch.int32"),
        ({"labels": torch.tensor([0, 1])}, ValueError, r"labels must have shape \[tokens\] = \(3,\), got \(2,\)"),
        ({"labels": torch.tensor([[0, 1, 2]])}, ValueError, r"labels must have shape .*, got \(1, 3\)"),
        ({"labels": torch.tensor([0, 1, 3])}, ValueError, "labels must be from 0 to 2, got 0 to 3"),
        ({"labels": torch.tensor([0, -1, 2])}, ValueError, "labels must be from 0 to 2, got -1 to 2"),
        ({"states": 2}, ValueError, "labels must be from 0 to 1, got 0 to 2"),
        ({"cost": WeightedHamming((1.0, 2.0))}, ValueError, "weights must be one per class, 3, got 2"),
        ({"cost": WeightedHamming((1.0,) * 4)}, ValueError, "weights must be one per class, 3, got 4"),
        ({"features": 4}, ValueError, "attributes must be from 0 to 3, got 0 to 4"),
        ({"attributes": torch.tensor([0, -2], dtype=torch.int32)}, ValueError, "attributes must be from 0 .* -2 to 0"),
    ],
)
def test_refuses_bad_data(change: dict[str, object], error: type[Exception], message: str) -> None:
    arguments = {"labels": torch.tensor([0, 1, 2]), "features": 5, "states": 3} | change
    attributes = arguments.pop("attributes", torch.tensor([0, 4], dtype=torch.int32))
    sequences = SparseSequences(attributes, torch.tensor([0, 1, 1, 2]), torch.tensor([0, 3]))
    with pytest.raises(error, match=message):
        SparseChainProblem(sequences, **arguments)


def test_refuses_no_sequences() -> None:
    with pytest.raises(ValueError, match="sequences must hold at least one sequence, got none"):
        random_problem().subset(torch.zeros(0, dtype=torch.int64))


def test_refuses_costs_of_another_number_of_tokens() -> None:
    class Short(Hamming):
        def mistake_cost(self, y: Tensor, lengths: Tensor) -> Tensor:
            return super().mistake_cost(y, lengths)[1:]

    with pytest.raises(ValueError, match=r"costs of mistakes must have shape \(13,\), got \(12,\)"):
        random_problem(cost=Short())


D = 30  # dim of random_problem


@pytest.mark.parametrize(
    ("argument", "value", "error", "message"),
    [
        *(
            (name, value, error, message)
            for name in ("w", "center")
            for value, error, message in [
                (torch.zeros(D - 1).double(), ValueError, rf"{name} must have shape \({D},\), got \({D - 1},\)"),
                (torch.zeros(3, D // 3).double(), ValueError, rf"{name} must have shape \({D},\), got \(3, {D // 3}\)"),
                (torch.zeros(D), TypeError, rf"{name} must be torch.float64 on the CPU, got torch.float32 on cpu"),
                (
                    torch.zeros(D).double().to("meta"),
                    TypeError,
                    rf"{name} must be .* on the CPU, .* on meta",
                ),
                ([0.0] * D, TypeError, rf"{name} must be a torch.Tensor, got list"),
            ]
        ),
        ("order", torch.tensor([[0], [5]]), ValueError, "order must hold examples from 0 to 4, got 5"),
        ("order", torch.tensor([[0], [-1]]), ValueError, "order must hold examples from 0 to 4, got -1"),
        ("order", torch.tensor([[0, 1], [2, 5]]), ValueError, "order must hold examples from 0 to 4, got 5"),
        ("order", torch.zeros(0, 1).long(), ValueError, "order must hold examples from 0 to 4, got none"),
        ("order", torch.zeros(3, 0).long(), ValueError, "order must hold examples from 0 to 4, got none"),
        ("order", torch.zeros(3).long(), ValueError, r"order \[steps, b\] must have shape .* got \(3,\)"),
        ("order", torch.zeros(3, 1).int(), TypeError, "order .* must be torch.int64 on the CPU, got torch.int32"),
        ("order", [[0], [1]], TypeError, "order .* must be a torch.Tensor, got list"),
        ("step_sizes", torch.zeros(2).double(), ValueError, r"step_sizes must have shape \(3,\), got \(2,\)"),
        ("step_sizes", torch.zeros(3), TypeError, "step_sizes must be torch.float64"),
        (
            "averaging_weights",
            torch.zeros(4).double(),
            ValueError,
            r"averaging_weights must have shape \(3,\), got \(4,\)",
        ),
        ("averaging_weights", torch.zeros(3).long(), TypeError, "averaging_weights must be torch.float64"),
        ("weights", torch.zeros(D + 3).double(), ValueError, "snapshot.weights must have shape"),
        ("gradient", torch.zeros(D), TypeError, "snapshot.gradient must be torch.float64"),
        ("node", torch.zeros(12, 3).double(), ValueError, r"snapshot.node must have shape \(13, 3\), got \(12, 3\)"),
        ("edge", torch.zeros(5, 3, 2).double(), ValueError, r"snapshot.edge must have shape \(5, 3, 3\)"),
    ],
)
def test_passes_refuse_what_would_corrupt_memory(
    argument: str, value: Any, error: type[Exception], message: str
) -> None:
    problem = random_problem()
    assert problem.dim == D
    w, order, ones = problem.start(), torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, dtype=torch.float64)
    snapshot = problem.full_pass(w, L2())
    steps = {"w": w, "order": order, "step_sizes": ones, "lam": 0.1, "smoother": L2(), "averaging_weights": ones}
    proximal = {"snapshot": snapshot, "order": order, "step_size": 0.1, "lam": 0.1, "kappa": 0.1, "center": w}
    assert len(sgd.epoch(problem, **steps)[0]) == len(svrg.epoch(problem, **proximal)[0]) == D
    passes = [(problem.full_pass, {"w": w, "smoother": L2()}), (partial(sgd.epoch, problem), steps)]
    passes.append((partial(svrg.epoch, problem), proximal))
    calls = [(run, arguments | {argument: value}) for run, arguments in passes if argument in arguments]
    if hasattr(snapshot, argument):
        calls.append((partial(svrg.epoch, problem), proximal | {"snapshot": replace(snapshot, **{argument: value})}))
    assert calls
    for run, arguments in calls:
        with pytest.raises(error, match=message):
            run(**arguments)


def test_arguments_with_gaps_and_gradients() -> None:
    problem = random_problem()
    ones = torch.ones(7, dtype=torch.float64)
    order, w, center = random_order(problem, 7), random_weights(problem), random_weights(problem, 1)

    def passes(w: Tensor, center: Tensor, order: Tensor, rates: Tensor) -> list[Tensor]:
        full = problem.full_pass(w, L2())
        ends = svrg.epoch(problem, full, order, step_size=0.1, lam=0.1, kappa=0.2, center=center)
        sums = sgd.epoch(problem, w, order, step_sizes=rates, lam=0.1, smoother=L2(), averaging_weights=rates)
        return [full.gradient, full.weights, *ends, *sums]

    def spread(tensor: Tensor) -> Tensor:
        """The same numbers, each with another one behind it."""
        return torch.stack([tensor, tensor - 7], -1)[..., 0]

    arguments = (w, center, order, ones)
    gaps = [spread(tensor) for tensor in arguments]
    assert not any(tensor.is_contiguous() for tensor in gaps)
    gaps[0] = gaps[0].requires_grad_()
    for actual, expected in zip(passes(*gaps), passes(*arguments), strict=True):
        assert torch.equal(actual, expected)
        assert not actual.requires_grad


@pytest.mark.parametrize("lam", [2.0, -0.1, math.nan])
def test_refuses_a_step_that_overshoots_the_regularizer(lam: float) -> None:
    problem = random_problem()
    with pytest.raises(ValueError, match=r"step_size \* \(lam \+ kappa\) must be in \[0, 1\)"):
        svrg.epoch(problem, problem.full_pass(problem.start(), L2()), random_order(problem, 3), step_size=0.5, lam=lam)


def test_refuses_an_unknown_smoother() -> None:
    class Other(Max):
        pass

    problem = random_problem()
    problem.full_pass(problem.start(), Other())  # a kind of Max
    with pytest.raises(TypeError, match="compiled chain passes know Max, L2 and Entropy, got function"):
        problem.full_pass(problem.start(), lambda structure: structure.max()[0])


@every_smoother
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1, 2])
def test_losses_and_gradients_of_batches_are_the_default(smoother: Smoother, weighted: bool, size: int) -> None:
    problem = random_problem()
    if weighted:
        problem = problem.weighted(torch.linspace(0.5, 3, problem.n, dtype=torch.float64))
    w, batches = random_weights(problem), torch.tensor([4, 0, 2, 2]).split(size)
    compiled, calls = list(problem.losses_and_grads(w, batches, smoother)), problem.oracle_calls
    default = list(Problem.losses_and_grads(problem, w, batches, smoother))
    assert calls == problem.oracle_calls - calls == 4
    for own, expected in zip(compiled, default, strict=True):
        assert_close(own, expected, **EXACTLY)
