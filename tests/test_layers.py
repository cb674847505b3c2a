"""Losses as layers inside other torch code: compilers, mixed precision, data parallelism, transforms, copies."""

import copy
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from structsmooth import (
    L2,
    Candidates,
    Entropy,
    LinearChain,
    Max,
    SlackRescaledHinge,
    StructuralHinge,
    Structure,
    Tree,
    WeightedHamming,
)
from structsmooth.models import BiLSTMTagger
from structsmooth.smoothing import Smoother

LOSSES = {
    "hinge": StructuralHinge(),
    "smoothed": StructuralHinge(L2(0.5, 3)),
    "crf": StructuralHinge.crf(),
    "softmax_margin": StructuralHinge.softmax_margin(),
    "perceptron": StructuralHinge.perceptron(),
    "top_k": StructuralHinge.top_k(k=3),
    "weighted": StructuralHinge(cost=WeightedHamming((1.0, 2.0, 0.5)), reduction="none"),
}
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
both_backends = pytest.mark.parametrize("backend", ["compiled", "torch"])
B, T, S = 4, 6, 3
LENGTHS = torch.tensor([6, 1, 4, 5])
PARENTS = torch.tensor([-1, 0, 0, 1, 1, -1]).expand(B, T)

# Structures of potentials that require a gradient, and labels.
BATCHED: dict[str, Callable[[Tensor], Structure]] = {
    "chain": lambda unary: LinearChain(unary, unary[0, :S].detach().cos(), LENGTHS[: len(unary)]),
    "tree": lambda unary: Tree(unary, unary.detach().unsqueeze(-1).cos() * unary.unsqueeze(-2), PARENTS[: len(unary)]),
    "candidates": lambda unary: Candidates(unary[:, 0]),
}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def labels(structure: Structure) -> Tensor:
    """Those of a wrong output, as a rule."""
    return structure.topk(2)[1][:, 1]


class Tagger(nn.Module):
    """A linear layer under a chain."""

    def __init__(self, backend: str = "auto") -> None:
        super().__init__()
        self.linear = nn.Linear(5, S)
        self.transition = nn.Parameter(normal(S, S, seed=1))
        self.backend = backend
        with torch.no_grad():
            self.linear.weight.copy_(normal(S, 5, seed=2))

    def forward(self, x: Tensor) -> LinearChain:
        return LinearChain(self.linear(x), self.transition, LENGTHS.clamp_max(x.shape[1]), backend=self.backend)


X, Y = normal(B, T, 5), torch.arange(B * T).view(B, T) % S


def losses_and_gradients(run: Callable[[Tensor], Tensor], module: nn.Module) -> tuple[Tensor, ...]:
    """Losses of three positions, and the gradients of a weighted sum of them."""
    values = run(X[:, :3])
    weights = torch.arange(1.0, 1 + len(values))
    return values, *torch.autograd.grad((weights * values).sum(), list(module.parameters()))


@both_backends
def test_training_steps_compile_as_one_graph(backend: str) -> None:
    tagger = Tagger(backend)

    def run(x: Tensor) -> Tensor:
        chain = tagger(x)
        return torch.stack([loss(chain, Y[:, :3]).mean() for loss in LOSSES.values()])

    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert_close(losses_and_gradients(compiled, tagger), losses_and_gradients(run, tagger))


BUILT = {
    "hinge": StructuralHinge,
    "smoothed": lambda: StructuralHinge(L2(0.5, 3).with_mu(0.7)),
    "softmax_margin": StructuralHinge.softmax_margin,
    "weighted": lambda: StructuralHinge(cost=WeightedHamming((1.0, 2.0, 0.5))),
    "slack": SlackRescaledHinge,
}


@pytest.mark.parametrize("build", BUILT.values(), ids=BUILT)
def test_losses_can_be_built_inside_compiled_functions(build: Callable[[], StructuralHinge]) -> None:
    chain = Tagger("torch")(X[:, :3]).detach()

    def run(unary: Tensor) -> Tensor:
        return build()(chain.replace(unary, chain.transition), Y[:, :3])

    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert_close(compiled(chain.unary), run(chain.unary))


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="inductor needs a C++ compiler")
def test_inductor_compiles_the_training_step() -> None:
    code = """
import torch, test_layers as layers
tagger, losses = layers.Tagger(), [layers.LOSSES[name] for name in ("smoothed", "crf")]
run = lambda x: torch.stack([loss(tagger(x), layers.Y[:, :3]) for loss in losses])
compiled = torch.compile(run, fullgraph=True, backend="inductor")
torch.testing.assert_close(*(layers.losses_and_gradients(step, tagger) for step in (compiled, run)))
print("same")
"""
    assert process(code).communicate(timeout=3600)[0] == "same\n"


def process(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A new process that can import this file."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{code}"
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)


@every_loss
@both_backends
def test_autocast_rounds_the_scores_and_nothing_behind_them(loss: StructuralHinge, backend: str) -> None:
    tagger = Tagger(backend)
    with torch.autocast("cpu", torch.bfloat16):
        chain = tagger(X)
        assert chain.unary.dtype == torch.bfloat16
        value = loss(chain, Y)
        assert value.dtype == torch.float32
    unary, transition = (scores.detach().float().requires_grad_() for scores in chain.potentials)
    exact = loss(LinearChain(unary, transition, LENGTHS, backend=backend), Y)
    assert_close(value, exact, rtol=1e-6, atol=1e-6)
    weights = torch.autograd.grad(value.sum(), tagger.transition, retain_graph=True)
    assert_close(weights, torch.autograd.grad(exact.sum(), transition, retain_graph=True), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        full = tagger(X)
        rounding = (chain.unary - full.unary).abs().max()
        assert 0 < rounding < 0.05
        # Both the smoothed max and the score of the labels move by no more than the scores of T positions.
        assert (value - loss(full, Y)).abs().max() <= 2 * T * rounding + 1e-5


TRAIN = """
import torch, test_layers as layers
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
rank, store = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
tagger, ids, y, lengths = layers.tagging()
half = slice(2 * rank, 2 * rank + 2)
for name in ("smoothed", "crf"):
    tagger.zero_grad()
    replica = DistributedDataParallel(tagger)
    layers.LOSSES[name](replica((ids[half], lengths[half])), y[half]).backward()
    torch.save([parameter.grad for parameter in tagger.parameters()], f"{store}.{name}.{rank}")
distributed.destroy_process_group()
"""


def tagging() -> tuple[BiLSTMTagger, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return BiLSTMTagger(10, S, embedding=4, hidden=4), torch.arange(B * T).view(B, T) % 10, Y, LENGTHS


def test_two_processes_get_the_gradients_of_one(tmp_path) -> None:
    store = str(tmp_path / "store")
    for replica in [process(TRAIN, str(rank), store) for rank in range(2)]:
        replica.communicate(timeout=3600)
        assert replica.returncode == 0
    tagger, ids, y, lengths = tagging()
    for name in ("smoothed", "crf"):
        loss = LOSSES[name](tagger((ids, lengths)), y)
        expected = list(torch.autograd.grad(loss, list(tagger.parameters())))
        for rank in range(2):
            assert_close(torch.load(f"{store}.{name}.{rank}", weights_only=True), expected)


@every_loss
@pytest.mark.parametrize("build", BATCHED.values(), ids=BATCHED)
def test_functional_gradients(build: Callable[[Tensor], Structure], loss: StructuralHinge) -> None:
    unary = normal(B, T, S)
    y = labels(build(unary))
    actual = torch.func.grad(lambda scores: loss(build(scores), y).sum())(unary)
    leaf = unary.clone().requires_grad_()
    assert_close(actual, torch.autograd.grad(loss(build(leaf), y).sum(), leaf)[0])
    assert actual.any()


@every_loss
@pytest.mark.parametrize("build", BATCHED.values(), ids=BATCHED)
def test_vmap_over_batches(build: Callable[[Tensor], Structure], loss: StructuralHinge) -> None:
    """Gradients of every example by itself too."""
    batches = normal(5, 2, T, S)
    y = torch.stack([labels(build(unary)) for unary in batches])

    def total(unary: Tensor, y: Tensor) -> Tensor:
        return loss(build(unary), y).sum()

    expected = [torch.func.grad_and_value(total)(*pair) for pair in zip(batches, y, strict=True)]
    gradients, values = torch.func.vmap(torch.func.grad_and_value(total))(batches, y)
    assert_close(values, torch.stack([value for _, value in expected]))
    assert_close(gradients, torch.stack([gradient for gradient, _ in expected]))


@pytest.mark.parametrize("smoother", [Entropy(1.0), L2(5.0, 4)], ids=["entropy", "l2"])
@both_backends
def test_gradients_of_smooth_losses_can_be_penalized(backend: str, smoother: Smoother) -> None:
    """Double backward through module and oracle; the directional derivative against finite differences."""
    tagger, loss = Tagger(backend).double(), StructuralHinge(smoother)
    x = X.double().requires_grad_()

    def penalty() -> Tensor:
        (gradient,) = torch.autograd.grad(loss(tagger(x), Y), x, create_graph=True)
        return gradient.square().sum()

    (second,) = torch.autograd.grad(penalty(), tagger.transition)
    direction, step = normal(S, S, seed=3).double(), 1e-5
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            tagger.transition += sign * step * direction
        values.append(penalty().detach())
        with torch.no_grad():
            tagger.transition -= sign * step * direction
    assert second.any()
    assert_close((second * direction).sum(), (values[0] - values[1]) / (2 * step), rtol=1e-6, atol=1e-9)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # that of torch for jvp
@every_loss
@pytest.mark.parametrize("build", BATCHED.values(), ids=BATCHED)
def test_hessians(build: Callable[[Tensor], Structure], loss: StructuralHinge) -> None:
    """Against differences of gradients; they are zero where the loss is piecewise linear."""
    structure = build(normal(B, T, S).double())
    scores, *others = structure.potentials
    y = labels(structure)

    def total(scores: Tensor) -> Tensor:
        return loss(structure.replace(scores, *others), y).sum()

    hessian = torch.func.hessian(total)(scores).view(scores.numel(), *scores.shape)
    step = 1e-6 * torch.eye(scores.numel(), dtype=scores.dtype).view(-1, *scores.shape)
    gradient = torch.func.vmap(torch.func.grad(total))
    assert_close(hessian, (gradient(scores + step) - gradient(scores - step)) / 2e-6, rtol=1e-6, atol=1e-8)
    assert bool(hessian.any()) == (not isinstance(loss.smoother, Max))


@every_loss
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
def test_losses_can_be_copied_and_have_no_state(loss: StructuralHinge, duplicate: Callable[..., nn.Module]) -> None:
    twin, chain = duplicate(loss), Tagger()(X)
    assert repr(twin) == repr(loss)
    assert_close(twin(chain, Y), loss(chain, Y), rtol=0, atol=0)
    assert not loss.state_dict()
    assert not list(loss.parameters())
