"""Structures as objects: batches that can be indexed, moved, detached, copied and printed."""

import copy

import numpy as np
import pytest
import torch
from member import Member, potentials_of
from oracles import K
from structure_members import every
from torch.autograd import forward_ad
from torch.testing import assert_close

from structsmooth import BinaryGraph, LinearChain, StructuralHinge, Structure


@every(lambda name, member: name != "SearchSpace")
def test_examples_of_a_batch(member: Member) -> None:
    structure = member.structure("medium")
    batch = len(structure)
    assert batch == len(structure.potentials[0])
    values, y = structure.topk(K)
    for index in (1, slice(0, 2), slice(1, None), torch.tensor([1, 0, 1]), torch.arange(batch) == 1):
        part, rows = structure[index], torch.arange(batch)[index].view(-1)
        assert type(part) is type(structure)
        assert_close(part.topk(K), (values[rows], y[rows]), rtol=0, atol=0)
    assert_close(structure[-1].topk(K), structure[batch - 1].topk(K))
    assert len(list(structure)) == len(structure[np.int64(1)]) * batch == batch
    with pytest.raises(IndexError, match=f"example {batch} of a batch of {batch}"):
        structure[batch]


@every()
def test_other_dtypes(member: Member) -> None:
    structure = member.structure("tiny")
    moved = structure.to(torch.float32)
    assert all(scores.dtype == torch.float32 for scores in moved.potentials)
    assert all(scores.dtype == torch.float64 for scores in structure.potentials)
    assert_close(moved.max()[0], structure.max()[0].float(), rtol=1e-5, atol=1e-5)
    same = structure.to("cpu")
    assert all(a is b for a, b in zip(same.potentials, structure.potentials, strict=True))
    assert_close(structure.to(torch.device("cpu"), torch.float32).max(), moved.max(), rtol=0, atol=0)


@every()
def test_detached_and_copied(member: Member) -> None:
    instance = member.random("tiny")
    potentials = potentials_of(instance)
    structure = member.on(instance)(*(p.clone().requires_grad_() for p in potentials))
    assert {*structure.attributes()} <= {*type(structure)._fields}  # which all are declared
    assert not any(p.requires_grad for p in structure.detach().potentials)
    assert all(p.requires_grad for p in structure.potentials)
    twin = copy.copy(structure)
    assert all(a is b for a, b in zip(twin.potentials, structure.potentials, strict=True))
    deep = copy.deepcopy(structure.detach())
    assert_close(deep.topk(K), structure.topk(K), rtol=0, atol=0)


@every()
def test_printed(member: Member) -> None:
    structure = member.structure("tiny")
    text = repr(structure)
    assert text.startswith(f"{type(structure).__name__}({structure.potential_names[0]}: float64 [")
    assert len(text) < 300


def test_printed_chain() -> None:
    chain = LinearChain(torch.zeros(2, 5, 3), torch.zeros(3, 3))
    assert repr(chain) == "LinearChain(unary: float32 [2, 5, 3], transition: float32 [3, 3], lengths: int64 [2])"


@every(lambda name, member: "Python" not in name and name != "SearchSpace", slow=True)
def test_losses_of_structures_built_outside_compile(member: Member) -> None:
    instance = member.random("tiny")
    structure, y = member.build(*instance, validate_args=True), member.labels(potentials_of(instance)[0])
    loss = StructuralHinge(cost=member.cost, reduction="none")

    def run(structure: Structure, y: torch.Tensor) -> torch.Tensor:
        doubled = structure.replace(*(2 * potentials for potentials in structure.potentials))
        return torch.stack([loss(structure, y), loss(doubled, y)])

    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert_close(compiled(structure, y), run(structure, y))


# Of torch itself, when it first makes a dual tensor.
from_torch = pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")


@from_torch
@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_forward_mode_derivatives(backend: str) -> None:
    unary, tangent = torch.randn(2, 2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with forward_ad.dual_level():
        chain = LinearChain(forward_ad.make_dual(unary, tangent), torch.zeros(3, 3).double(), backend=backend)
        derivative = forward_ad.unpack_dual(chain.logsumexp()).tangent
    node, _ = LinearChain(unary, torch.zeros(3, 3).double()).marginals()
    assert_close(derivative, (node * tangent).sum((1, 2)))


@from_torch
def test_forward_mode_derivatives_of_cuts() -> None:
    unary, tangent = torch.randn(2, 2, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(unary, tangent)
        value, y = BinaryGraph(dual, torch.tensor([[0, 1]]), torch.zeros(2, 1, 2, 2).double()).max()
        derivative = forward_ad.unpack_dual(value).tangent
    assert_close(derivative, tangent.gather(2, y.unsqueeze(2)).sum((1, 2)))
