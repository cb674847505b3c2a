"""Answers and derivatives under hooks of torch on what autograd saves: checkpoints, tensors kept elsewhere."""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest
import torch
from member import Member, potentials_of
from oracles import ORACLES
from structure_members import every
from torch import Tensor
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from structsmooth import L2, Entropy, FactorGraph, LinearChain, StructuralHinge, Structure
from structsmooth.decisions import IMLE, Perturbed
from structsmooth.factors import LocalPolytope
from structsmooth.structures import PartCosts, SlackRescaled

Query = Callable[[Structure, Tensor, PartCosts], Any]
Derivatives = list[Tensor]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


QUERIES: dict[str, Query] = {
    **{name: lambda s, y, cost, oracle=oracle: oracle(s, y) for name, oracle in ORACLES.items()},  # type: ignore[misc]
    "log_prob": lambda s, y, cost: s.log_prob(y),
    "entropy": lambda s, y, cost: s.entropy(),
    "kl": lambda s, y, cost: s.kl(s.replace(*(p * 1.5 for p in s.potentials))),
    "expected_cost": lambda s, y, cost: s.expected_cost(y, cost),
    "minimum_bayes_risk": lambda s, y, cost: s.minimum_bayes_risk()[0],
    "score of a sample": lambda s, y, cost: s.score(s.sample(2, seeded())[:, 1]),
    "sparse_marginals": lambda s, y, cost: s.sparse_marginals(1.0),
    "perturb_and_max": lambda s, y, cost: s.perturb_and_max(2, seeded())[0],
    "perturbed": lambda s, y, cost: Perturbed(1.0, 2, seed=0)(s),
    "IMLE": lambda s, y, cost: IMLE(1.0, 2, seed=0)(s),
    "L2": lambda s, y, cost: L2(2.0, 3)(s),
    "Entropy": lambda s, y, cost: Entropy(2.0)(s),
    "hinge": lambda s, y, cost: StructuralHinge(cost=cost)(s, y),
    "likelihood": lambda s, y, cost: StructuralHinge.crf()(s, y),
}


ONCE = ("max_marginals", "IMLE", "relaxed")  # differentiable once


def total(answer: Any) -> Tensor:
    """A weighted sum of what is finite."""
    values = answer if isinstance(answer, tuple) else (answer,)
    weighted = [torch.where(v.isfinite(), v, 0.0).flatten() * torch.arange(1.0, v.numel() + 1).cos() for v in values]
    return torch.cat(weighted).sum()


def once() -> AbstractContextManager[Any]:
    """Hooks that refuse what checkpoints refuse: to unpack a tensor twice in one backward pass."""

    def unpack(kept: tuple[Tensor, set[int]]) -> Tensor:
        tensor, passes = kept
        now = torch._C._current_graph_task_id()
        assert now not in passes, "unpacked twice"
        passes.add(now)
        return tensor

    return saved_tensors_hooks(lambda tensor: (tensor.detach(), set()), unpack)


def derivatives(value: Tensor, leaves: list[Tensor]) -> Derivatives:
    """A value, its gradients, and the gradients of their squares, unless nothing depends on anything."""
    if not value.requires_grad:
        return [value]
    gradients = torch.autograd.grad(value, leaves, create_graph=True, materialize_grads=True)
    squares = torch.stack([g.square().sum() for g in gradients]).sum()
    second = torch.autograd.grad(squares, leaves, materialize_grads=True) if squares.requires_grad else ()
    return [value, *gradients, *second]


def once_derivatives(value: Tensor, leaves: list[Tensor]) -> Derivatives:
    return [value, *torch.autograd.grad(value, leaves, materialize_grads=True)]


def plain(run: Callable[..., Tensor], leaves: list[Tensor], derive: Any) -> Derivatives:
    return derive(run(*leaves), leaves)  # type: ignore[no-any-return]


def checkpointed(run: Callable[..., Tensor], leaves: list[Tensor], derive: Any) -> Derivatives:
    return derive(checkpoint(run, *leaves, use_reentrant=False), leaves)  # type: ignore[no-any-return]


def hooked(run: Callable[..., Tensor], leaves: list[Tensor], derive: Any) -> Derivatives:
    """With the backward pass under the hooks, too."""
    with once():
        return plain(run, leaves, derive)


def offloaded(run: Callable[..., Tensor], leaves: list[Tensor], derive: Any) -> Derivatives:
    with save_on_cpu():
        value = run(*leaves)
    return derive(value, leaves)  # type: ignore[no-any-return]


WAYS = pytest.mark.parametrize("way", [checkpointed, hooked, offloaded])


def assert_same_derivatives(run: Callable[..., Tensor], potentials: tuple[Tensor, ...], way: Any, what: str) -> None:
    derive = once_derivatives if what in ONCE else derivatives
    expected, found = (by(run, [p.clone().requires_grad_() for p in potentials], derive) for by in (plain, way))
    assert_close(found, expected, rtol=1e-9, atol=1e-9, msg=lambda text: f"{what}: {text}")


@every(slow=True)
@WAYS
def test_derivatives_are_those_without_hooks(member: Member, way: Any) -> None:
    instance, answered = member.random("tiny"), set()
    y, potentials = member.labels(potentials_of(instance)[0]), potentials_of(instance)
    for name, query in QUERIES.items():
        with suppress(NotImplementedError, TypeError):  # of structures that do not have it
            query(member.build(*instance), y, member.cost)
            answered.add(name)
    assert answered >= {*member.oracles, "hinge", "L2", "perturbed"}
    for name in answered:
        run = member.on(instance, lambda *own, name=name: total(QUERIES[name](member.build(*own), y, member.cost)))
        assert_same_derivatives(run, potentials, way, name)


def relaxed(unary: Tensor, pairwise: Tensor) -> tuple[Tensor, ...]:
    space = LocalPolytope(FactorGraph(unary, torch.tensor([[0, 1], [1, 2], [2, 0]]), pairwise))
    return space.max()[0], space.logsumexp(), *space.sparse_marginals()


def rescaled(unary: Tensor, transition: Tensor) -> tuple[Tensor, ...]:
    y = torch.zeros(unary.shape[:2], dtype=torch.int64)
    space = SlackRescaled(LinearChain(unary, transition), y, unary[:, 0, 0].exp())
    return space.max()[0], space.topk(2)[0]


@WAYS
@pytest.mark.parametrize(("query", "pairs"), [(relaxed, (3, 2, 2)), (rescaled, (2, 2))])
def test_derivatives_of_structures_of_structures(query: Any, pairs: tuple[int, ...], way: Any) -> None:
    potentials = tuple(torch.randn(shape, generator=seeded(), dtype=torch.float64) for shape in ((2, 3, 2), pairs))
    assert_same_derivatives(lambda *own: total(query(*own)), potentials, way, query.__name__)
