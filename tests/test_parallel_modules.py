"""Modules that return structures, under data parallelism: two processes get the gradients of one.

torch looks for tensors in the output of a module. What it overlooks it would not wait for, average or gather. What is a
parameter itself it would count twice, or free before the output is used.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from enumeration import FORMS
from member import Instance, Member, changed, potentials_of, with_potentials
from structure_members import MEMBERS, every
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _find_tensors  # where find_unused_parameters looks
from torch.testing import assert_close
from torch.utils import _pytree as pytree
from two_processes import ended, started

from structsmooth import CRF, L2, LinearChain, Max, Structure
from structsmooth.factors import LocalPolytope
from structsmooth.models.heads import TaggingHead
from structsmooth.structures import SlackRescaled

ROUNDS = 3  # a static graph is learned in the first
Build = Callable[..., Structure]


def rescaled(unary: Tensor, transition: Tensor, lengths: Tensor) -> SlackRescaled:
    """A structure inside another."""
    chain, y = LinearChain(unary, transition, lengths), torch.zeros(unary.shape[:2], dtype=torch.int64)
    return SlackRescaled(chain, y, torch.ones(len(unary), dtype=unary.dtype))


def cases() -> dict[str, tuple[Build, Instance]]:
    """What makes a structure, and of what."""
    members = {n: m for n, m in MEMBERS.items() if not n.startswith("LinearChain") or FORMS[0] in n}
    graph, chain = MEMBERS["FactorGraph"], MEMBERS[f"LinearChain {FORMS[0]} compiled"]
    return {name: (member.build, member.random("tiny")) for name, member in members.items()} | {
        "LocalPolytope": (lambda *instance: LocalPolytope(graph.build(*instance)), graph.random("tiny")),
        "SlackRescaled": (rescaled, chain.random("tiny")),
    }


class Scaled(nn.Module):
    """A structure of potentials times a factor, which depends on the input and on weights; others are parameters."""

    def __init__(self, build: Build, instance: Instance) -> None:
        super().__init__()
        self.build, self.instance = build, instance
        factors = torch.full((3,), 0.5, dtype=torch.float64)
        self.weights = nn.ParameterList([factors, *(p.clone() for p in potentials_of(instance)[1:])])

    def forward(self, x: Tensor) -> Structure:
        factors, *others = self.weights
        first = potentials_of(self.instance)[0] * (1 + (x * factors).mean())
        return self.build(*with_potentials(self.instance, [first, *others]))


class WithSpareLayer(Scaled):
    """The same with weights that are not used."""

    def __init__(self, build: Build, instance: Instance) -> None:
        super().__init__(build, instance)
        self.spare = nn.Linear(2, 2, dtype=torch.float64)


class Chain(nn.Module):
    """As the documentation has it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.transition = nn.Linear(3, 2), nn.Parameter(torch.zeros(2, 2))

    def forward(self, x: Tensor) -> LinearChain:
        return LinearChain(self.linear(x), self.transition)


class Layer(nn.Module):
    """A layer over features that depend on the input."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer.double()

    def forward(self, x: Tensor) -> Structure:
        structure: Structure = self.layer((x + torch.arange(8).view(2, 4, 1)).cos())
        return structure


def layers() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    made = {"CRF": nn.Sequential(nn.Linear(3, 2), CRF(2)), "TaggingHead": TaggingHead(3, 2), "documented": Chain()}
    return {name: Layer(layer) for name, layer in made.items()}


def modules(kind: type[Scaled] = Scaled) -> dict[str, nn.Module]:
    return {name: kind(build, instance) for name, (build, instance) in cases().items()} | layers()


def used_weights(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for name, parameter in module.named_parameters() if "spare" not in name]


def loss(structure: Structure) -> Tensor:
    """A smoothed max, or the max where there are no two best outputs; of all examples together."""
    smoother = Max() if isinstance(structure, LocalPolytope) else L2(3.0, 2)
    return smoother(structure).sum()


def inputs(rank: int) -> Tensor:
    return torch.arange(3, dtype=torch.float64) - 0.7 * rank


def sharded(module: nn.Module) -> nn.Module:
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # torch 2.5
        from torch.distributed._composable.fsdp import fully_shard
    return fully_shard(module, mesh=distributed.init_device_mesh("cpu", (2,)))


MODES: dict[str, tuple[type[Scaled], Callable[[nn.Module], nn.Module]]] = {
    "plain": (Scaled, DistributedDataParallel),
    "static_graph": (Scaled, lambda module: DistributedDataParallel(module, static_graph=True)),
    "find_unused_parameters": (
        WithSpareLayer,
        lambda module: DistributedDataParallel(module, find_unused_parameters=True),
    ),
    "fully_shard": (WithSpareLayer, sharded),
    "nested": (WithSpareLayer, lambda module: sharded(nn.Sequential(sharded(module)))),
}


def train(mode: str, folder: str) -> None:
    """One of the two processes: gradients of every structure in every round."""
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    kind, wrap = MODES[mode]
    gradients = {}
    for name, module in modules(kind).items():
        parallel = wrap(module)
        for i in range(ROUNDS):
            parallel.zero_grad()
            loss(parallel(inputs(rank))).backward()
            own = [parameter.grad for parameter in used_weights(module)]
            gradients[name, i] = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in own]
    torch.save(gradients, Path(folder) / f"{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.parametrize("mode", MODES)
def test_two_processes_get_the_gradients_of_one(mode: str, tmp_path: Path) -> None:
    code = f"import test_parallel_modules\ntest_parallel_modules.train({mode!r}, {str(tmp_path)!r})"
    ends = ended(started(code))
    assert [status for status, _, _ in ends] == [0, 0], ends
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, module in modules().items():
            total = torch.stack([loss(module(inputs(r))) for r in range(2)]).mean()
            expected = list(torch.autograd.grad(total, used_weights(module)))
            assert all(gradient.any() for gradient in expected), f"{name} does not depend on its weights"
            for i in range(ROUNDS):
                assert_close(found[name, i], expected, msg=lambda text, name=name: f"{name}: {text}")


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("unused", [False, True])
@pytest.mark.usefixtures("alone")
def test_one_process_gets_its_own_gradients(unused: bool) -> None:
    for name, module in layers().items():
        expected = list(torch.autograd.grad(loss(module(inputs(0))), used_weights(module)))
        parallel = DistributedDataParallel(module, find_unused_parameters=unused)
        loss(parallel(inputs(0))).backward()
        found = [parameter.grad for parameter in used_weights(module)]
        assert_close(found, expected, msg=lambda text, name=name: f"{name}: {text}")


@every()
def test_structures_have_nothing_where_a_parameter_is(member: Member) -> None:
    for view in (lambda p: p, lambda p: p[...]):
        instance = changed(member.random("tiny"), lambda p, view=view: view(nn.Parameter(p)))
        structure = member.build(*instance)
        others = [view(nn.Parameter(p.detach().clone())) for p in structure.potentials]
        for space, given in ((structure, potentials_of(instance)), (structure.replace(*others), others)):
            assert not storages(given) & storages(pytree.tree_leaves(space))


def storages(tensors: Iterable[Tensor]) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()}


@every()
def test_batches_are_pytrees_and_have_fields(member: Member) -> None:
    structure = member.structure("tiny")
    leaves, spec = pytree.tree_flatten(structure)
    assert len(leaves) >= len(structure.potentials)
    assert all(isinstance(leaf, Tensor) for leaf in leaves)
    assert all(any(leaf is scores for leaf in leaves) for scores in structure.potentials)
    assert {id(leaf) for leaf in leaves} == {id(tensor) for tensor in _find_tensors(structure)}
    potentials = [id(scores) for scores in structure.potentials]
    halved = pytree.tree_map(lambda t: t / 2 if id(t) in potentials else t, structure)
    assert type(halved) is type(structure)
    assert pytree.tree_structure(halved) == spec
    expected = structure.replace(*(scores / 2 for scores in structure.potentials))
    assert_close(halved.topk(2), expected.topk(2))


def test_names_of_leaves() -> None:
    pairs, _ = pytree.tree_flatten_with_path({"chain": LinearChain(torch.zeros(1, 2, 3), torch.zeros(3, 3))})
    names = {pytree.keystr(path) for path, _ in pairs}
    assert names == {"['chain'].unary", "['chain'].transition", "['chain'].lengths"}


class Trained(nn.Module):
    """A loss over a layer, as wrappers of whole training loops take it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return loss(self.layer(x))


def step(folder: str, wrapper: str) -> None:
    """One of the two processes: the weights after a step of each layer, by accelerate or by Lightning."""
    for name, layer in layers().items():
        module = Trained(layer)
        (by_accelerate if wrapper == "accelerate" else by_lightning)(module)
        torch.save(module.state_dict(), Path(folder) / f"{name} {os.environ['RANK']}.pt")


def by_accelerate(module: nn.Module) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    wrapped, optimizer = accelerator.prepare(module, torch.optim.SGD(module.parameters(), 0.5))
    accelerator.backward(wrapped(inputs(accelerator.process_index)))
    optimizer.step()


def by_lightning(module: nn.Module) -> None:
    from lightning import LightningModule, Trainer
    from lightning.fabric.plugins.environments import TorchElasticEnvironment

    class Loop(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def training_step(self, batch: Any, _index: int) -> Tensor:
            value: Tensor = self.module(inputs(self.global_rank))
            return value

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.5)

    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp_find_unused_parameters_true",
        max_steps=1,
        plugins=[TorchElasticEnvironment()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Loop(), torch.utils.data.DataLoader(torch.zeros(2, 1)))


@pytest.mark.long
@pytest.mark.parametrize("wrapper", ["accelerate", "lightning"])
def test_training_loops_of_others_make_the_step_of_one_process(wrapper: str, tmp_path: Path) -> None:
    pytest.importorskip(wrapper)
    code = f"import test_parallel_modules\ntest_parallel_modules.step({str(tmp_path)!r}, {wrapper!r})"
    ends = ended(started(code, TORCHELASTIC_RUN_ID="test", GROUP_RANK="0"))
    assert [status for status, _, _ in ends] == [0, 0], ends
    for name, layer in layers().items():
        module = Trained(layer)
        optimizer = torch.optim.SGD(module.parameters(), 0.5)
        torch.stack([module(inputs(r)) for r in range(2)]).mean().backward()
        optimizer.step()
        for rank in range(2):
            assert_close(torch.load(tmp_path / f"{name} {rank}.pt", weights_only=True), dict(module.state_dict()))
