"""Any torch module as a finite sum: against the compiled problem, and against the module's own gradient."""

from typing import Any

import numpy as np
import pytest
import torch
from small_problems import Example, collate, dense_examples, random_problem, random_weights
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.testing import assert_close

from structsmooth import (
    L2,
    CasimirSVRG,
    Entropy,
    Hamming,
    LinearChain,
    LinearScore,
    Max,
    ModuleProblem,
    ScoreModule,
    StructuralHinge,
    WeightedHamming,
)
from structsmooth.costs import Cost, NormalizedHamming
from structsmooth.problems import LinearizedProblem, ShiftedProblem, SparseChainProblem
from structsmooth.smoothing import Smoother
from structsmooth.solvers import SVRG, svrg


def dense_problem(sparse: SparseChainProblem, dtype: torch.dtype = torch.float64, batch_size: int = 2) -> ModuleProblem:
    module = LinearScore(sparse.features, sparse.states, dtype)
    examples = [(x.to(dtype), y) for x, y in dense_examples(sparse)]
    return ModuleProblem(module, examples, sparse.cost, batch_size, collate)


class Network(ScoreModule):
    """A layer that is trained, one that is not, and transitions that depend on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.frozen, self.unary = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.transition = nn.Linear(6, 9)
        self.frozen.requires_grad_(False)
        self.double()

    def forward(self, x: Tensor) -> LinearChain:
        hidden = self.frozen(torch.tanh(self.hidden(x)))
        return LinearChain(self.unary(hidden), self.transition(hidden[:, 1:]).unflatten(-1, (3, 3)))


@pytest.fixture
def network() -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Network()


@pytest.fixture
def examples() -> list[Example]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(5, 4, generator=generator, dtype=torch.float64), torch.randint(3, (5,), generator=generator))
        for _ in range(7)
    ]


@pytest.mark.parametrize("smoother", [Max(), L2(0.7, 3), Entropy(0.5)], ids=str)
@pytest.mark.parametrize("cost", [Hamming(), NormalizedHamming(), WeightedHamming((1.0, 2.0, 0.5)), None], ids=str)
def test_linear_score_is_the_sparse_chain(smoother: Smoother, cost: Cost | None) -> None:
    sparse = random_problem(cost=cost)
    dense, w = dense_problem(sparse), random_weights(sparse)
    assert (dense.n, dense.dim) == (sparse.n, sparse.dim)
    assert torch.equal(dense.start(), sparse.start())
    full, expected = (problem.full_pass(w, smoother, with_loss=True) for problem in (dense, sparse))
    assert full.smoothed_loss == pytest.approx(expected.smoothed_loss, rel=0, abs=1e-10)
    assert full.loss == pytest.approx(expected.loss, rel=0, abs=1e-10)
    assert_close(full.gradient, expected.gradient, rtol=0, atol=1e-10)
    assert full.expected_cost is None
    order = torch.tensor([[3], [0], [4], [1]])
    epochs = [
        svrg.epoch(problem, full, order, step_size=0.1, lam=0.2, kappa=0.3, center=w / 2)
        for problem, full in ((dense, full), (sparse, expected))
    ]
    assert_close(*epochs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("smoother", [L2(0.7, 3), Entropy(1.0)], ids=str)
def test_a_smooth_objective_is_that_of_the_sparse_chain(smoother: Smoother) -> None:
    hinge = random_problem(cost=None)
    sizes = (hinge.features, hinge.states)
    sparse = SparseChainProblem(hinge.sequences, hinge.labels, *sizes, None, smoother)
    dense = dense_problem(hinge)
    dense = ModuleProblem(dense.module, dense.dataset, None, 2, collate, smoother)
    w = random_weights(sparse)
    for asked in (smoother, Max()):
        full, expected = (problem.full_pass(w, asked, with_loss=True) for problem in (dense, sparse))
        assert full.loss == pytest.approx(expected.loss, rel=0, abs=1e-10)
        assert expected.loss == pytest.approx(hinge.loss(w, smoother), rel=1e-12)
        assert full.smoothed_loss == pytest.approx(hinge.loss(w, asked), rel=1e-12)
    indices = torch.tensor([4, 1])
    assert sparse.subset(indices).smoother == dense.subset(indices).smoother == smoother
    # From weights under which no two outputs have the same score: at ties, rounding chooses the K best.
    solver = SVRG(learning_rate=0.1, batch_size=1)
    results = [solver.solve(p, lam=0.1, passes=3, start=w).history for p in (dense, sparse)]
    assert results[0].column("objective") == pytest.approx(results[1].column("objective"), rel=1e-10)


@pytest.mark.parametrize("smoother", [Max(), L2(0.7, 3), Entropy(0.5)], ids=str)
def test_gradient_of_a_network_is_the_module_s_own(
    network: Network, examples: list[Example], smoother: Smoother
) -> None:
    problem = ModuleProblem(network, examples, batch_size=3)
    trained = [p for p in network.parameters() if p.requires_grad]
    assert problem.dim == sum(p.numel() for p in trained)
    w = problem.start() * 1.5 + 0.1
    value, gradient = problem.loss_and_grad(w, smoother)
    problem.load(w)
    x, y = (torch.stack(column) for column in zip(*examples, strict=True))
    loss = StructuralHinge(smoother)(network(x), y)
    loss.backward()
    assert_close(gradient, parameters_to_vector([p.grad for p in trained]), rtol=0, atol=1e-12)
    assert [value, problem.loss(w, smoother)] == pytest.approx([loss.item()] * 2, rel=1e-12)


def test_load_writes_what_start_reads(network: Network, examples: list[Example]) -> None:
    problem = ModuleProblem(network, examples)
    frozen, start = network.frozen.weight.clone(), problem.start()
    w = torch.arange(problem.dim, dtype=torch.float64)
    problem.load(w)
    assert torch.equal(problem.start(), w)
    assert torch.equal(network.hidden.weight.flatten(), w[:24])
    assert torch.equal(network.frozen.weight, frozen)
    w.zero_()
    assert not torch.equal(problem.start(), w)
    problem.load(start)
    assert torch.equal(problem.start(), start)
    assert network.hidden.weight.requires_grad


def test_training_leaves_the_module_alone_until_load(network: Network, examples: list[Example]) -> None:
    problem = ModuleProblem(network, examples, batch_size=2)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    result = SVRG(learning_rate=0.1).solve(problem, lam=0.01, passes=15)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())
    objective = problem.loss(result.weights) + 0.005 * float(result.weights.square().sum())
    assert result.row.objective == pytest.approx(objective, rel=1e-12)
    assert objective < 0.8 * result.history[0].objective
    problem.load(result.weights)
    x, y = (torch.stack(column) for column in zip(*examples, strict=True))
    assert StructuralHinge()(network(x), y).item() == pytest.approx(problem.loss(result.weights), rel=1e-12)


class Normalized(ScoreModule):
    """Batch normalization, and a buffer that is shared by two modules and changed by every call."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.unary = nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.unary.register_buffer("calls", self.calls)
        self.register_buffer("transition", torch.eye(3))
        self.double()
        self.unary.calls = self.calls

    def forward(self, x: Tensor) -> LinearChain:
        self.calls += 1
        return LinearChain(self.unary(self.norm(x.flatten(0, 1)).view(x.shape)), self.transition)


@pytest.mark.parametrize("training", [True, False])
def test_passes_leave_buffers_alone(training: bool, examples: list[Example]) -> None:
    module = Normalized().train(training)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    problem = ModuleProblem(module, examples, batch_size=3)
    w = problem.start() + 0.1
    losses = [problem.loss(w) for _ in range(2)]
    problem.loss_and_grad(w, L2())
    SVRG().solve(problem, lam=0.1, passes=2)
    assert losses[0] == losses[1] == problem.loss(w)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert before["norm.num_batches_tracked"] == 0


def test_batches(examples: list[Example]) -> None:
    sparse = random_problem()
    problem = dense_problem(sparse)
    (x, lengths), y = problem.batch(torch.tensor([1, 0, 1]))
    assert (x.shape, lengths.tolist()) == ((3, 3, sparse.features), [1, 3, 1])
    assert y[0].tolist() == [int(sparse.labels[3]), -100, -100]
    x, y = ModuleProblem(LinearScore(4, 3), examples).batch(torch.tensor([6, 2]))
    assert torch.equal(x[1], examples[2][0])
    assert torch.equal(y[0], examples[6][1])


def test_size_of_batches_changes_no_value() -> None:
    sparse = random_problem(lengths=(1, 2, 3) * 15)
    w, losses = random_weights(sparse), []
    for batch_size in (1, 40, 100):
        problem = dense_problem(sparse, batch_size=batch_size)
        losses.append(problem.loss(w, L2()))
        assert problem.oracle_calls == problem.n
    assert losses == pytest.approx([sparse.loss(w, L2())] * 3, abs=1e-12)


@pytest.mark.parametrize(("chunk_size", "largest"), [(1, 3), (5, 5), (100, 23)])
def test_passes_over_all_examples_take_chunks(chunk_size: int, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sparse, sizes = random_problem(lengths=(1, 2, 3, 2) * 5 + (1, 2, 1)), []
    plain = dense_problem(sparse, batch_size=3)
    problem = ModuleProblem(plain.module, plain.dataset, plain.cost, 3, plain.collate, chunk_size=chunk_size)
    batch = ModuleProblem.batch

    def watched(self: ModuleProblem, indices: Tensor) -> Any:
        sizes.append(len(indices))
        return batch(self, indices)

    monkeypatch.setattr(ModuleProblem, "batch", watched)
    w = random_weights(sparse)
    for p in (
        problem,
        LinearizedProblem(problem, w),
        problem.lazy_subset(torch.arange(problem.n)),
        ShiftedProblem(problem, 0 * w),
    ):
        sizes.clear()
        full = p.full_pass(w, L2())
        assert (sum(sizes), max(sizes)) == (problem.n, largest)
        assert_close(full.gradient, sparse.full_pass(w, L2()).gradient, rtol=0, atol=1e-12)


def test_single_precision() -> None:
    sparse = random_problem()
    single, w = dense_problem(sparse, torch.float32), random_weights(sparse)
    full = single.full_pass(w.float(), L2(0.7, 3))
    assert full.gradient.dtype == single.start().dtype == torch.float32
    assert_close(full.gradient.double(), sparse.full_pass(w, L2(0.7, 3)).gradient, rtol=0, atol=1e-5)
    result = CasimirSVRG().solve(single, lam=0.1, passes=15)
    assert result.weights.dtype == torch.float32
    assert result.row.objective < 0.8 * result.history[0].objective


def test_restricted_problem_has_all_weights() -> None:
    problem, w = dense_problem(random_problem()), torch.zeros(0)
    part, weights = problem.restrict(torch.tensor([4, 1, 1]), w)
    assert (part.n, part.dim) == (3, problem.dim)
    assert weights is w


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": []}, "number of examples must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
        (
            {"module": LinearScore(4, 3).requires_grad_(False)},
            "number of trainable parameters must be at least 1, got 0",
        ),
    ],
)
def test_refuses_nothing_to_train(change: dict[str, Any], message: str, examples: list[Example]) -> None:
    with pytest.raises(ValueError, match=message):
        ModuleProblem(**{"module": LinearScore(4, 3), "dataset": examples} | change)


def test_refuses_modules_that_return_scores(examples: list[Example]) -> None:
    problem = ModuleProblem(nn.Linear(4, 3).double(), examples)
    with pytest.raises(TypeError, match=r"^the forward of Linear must be a structure .* got a tensor of shape .*wrap"):
        problem.loss(problem.start())


class Mixed(ScoreModule):
    """A body in half precision under a head that is not, with tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.again, self.head = nn.Linear(4, 4).bfloat16(), nn.Linear(4, 4).bfloat16(), nn.Linear(4, 3)
        self.again.weight = self.body.weight
        self.transition = nn.Parameter(torch.zeros(3, 3))

    def forward(self, x: Tensor) -> LinearChain:
        return LinearChain(self.head(torch.tanh(self.again(self.body(x.bfloat16()))).float()), self.transition)


def test_parameters_of_several_dtypes_keep_their_own(examples: list[Example]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Mixed()
    problem = ModuleProblem(module, examples, batch_size=3)
    w = problem.start()
    assert (w.dtype, problem.dim) == (torch.float32, 9 + 16 + 4 + 4 + 15)
    value, gradient = problem.loss_and_grad(w, L2())
    x, y = (torch.stack(column) for column in zip(*examples, strict=True))
    loss = StructuralHinge(L2())(module(x), y)
    assert value == pytest.approx(loss.item(), rel=1e-6)
    parameters = list(module.parameters())
    expected = torch.autograd.grad(loss, parameters)
    assert_close(gradient, torch.cat([g.flatten().float() for g in expected]), rtol=2e-2, atol=2e-3)
    problem.load(w + 1e-3)
    assert [p.dtype for p in parameters] == [torch.float32] + [torch.bfloat16] * 3 + [torch.float32] * 2


def test_refuses_modules_that_torch_would_not_restore(network: Network, examples: list[Example]) -> None:
    network.again = network.hidden
    with pytest.raises(ValueError, match="one submodule under two names, 'hidden' and 'again': register it once"):
        ModuleProblem(network, examples)
    computed = Network()
    computed._parameters["twice"] = computed.transition.weight * 2
    with pytest.raises(ValueError, match=r"parameter 'twice' is computed from other tensors"):
        ModuleProblem(computed, examples)


def test_sizes_may_be_numbers_of_numpy(examples: list[Example]) -> None:
    problem = ModuleProblem(LinearScore(4, 3), examples, batch_size=np.int64(2), chunk_size=np.int32(3))
    assert (type(problem.batch_size), type(problem.chunk_size)) == (int, int)


def test_refuses_half_an_example(examples: list[Example]) -> None:
    with pytest.raises(TypeError, match="batch_size must be an int, got float"):
        ModuleProblem(LinearScore(4, 3), examples, batch_size=2.5)
