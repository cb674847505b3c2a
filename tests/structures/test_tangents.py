"""Derivatives of marginals by compiled loops, beside those of plain torch."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth import Hamming, LinearChain, Structure, Tree

PARENTS = torch.tensor([[-1, 0, 0, 1, 1], [-1, 0, 1, -1, 3], [-1, 0, -1, -1, -1]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()


def chain(unary: Tensor, edges: Tensor, backend: str) -> Structure:
    return LinearChain(unary, edges[:, 1:], torch.tensor([5, 4, 1]), backend=backend)  # type: ignore[arg-type]


def shared_chain(unary: Tensor, edges: Tensor, backend: str) -> Structure:
    return LinearChain(unary, edges[0, 0], torch.tensor([5, 4, 1]), backend=backend)  # type: ignore[arg-type]


def tree(unary: Tensor, edges: Tensor, backend: str) -> Structure:
    return Tree(unary, edges, PARENTS, MASK, backend=backend)  # type: ignore[arg-type]


def entropy(structure: Structure) -> Tensor:
    return structure.entropy()


def weighted_marginals(structure: Structure) -> Tensor:
    return torch.stack([(m * (1 + torch.arange(m.numel()).view(m.shape).sin())).sum() for m in structure.marginals()])


def expected_cost(structure: Structure) -> Tensor:
    return structure.expected_cost(torch.zeros(3, 5, dtype=torch.int64), Hamming())


@pytest.mark.parametrize("build", [chain, shared_chain, tree])
@pytest.mark.parametrize("answer", [entropy, weighted_marginals, expected_cost])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_derivatives_of_marginals_are_those_of_plain_torch(
    build: Callable[[Tensor, Tensor, str], Structure], answer: Callable[[Structure], Tensor], scale: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    unary = scale * torch.randn(3, 5, 3, generator=generator, dtype=torch.float64)
    unary[1, 2, 0] = -torch.inf
    edges = scale * torch.randn(3, 5, 3, 3, generator=generator, dtype=torch.float64)
    edges[0, 0, 1, 1] = -torch.inf
    potentials = unary.requires_grad_(), edges.requires_grad_()

    def slopes(backend: str) -> tuple[Tensor, ...]:
        return torch.autograd.grad(answer(build(*potentials, backend)).sum(), potentials)

    for found, wanted in zip(slopes("compiled"), slopes("torch"), strict=True):
        assert_close(found, wanted, rtol=1e-9, atol=1e-11 * scale)


def test_chains_of_one_position_have_no_transitions() -> None:
    unary, edges = torch.randn(2, 1, 3, requires_grad=True), torch.zeros(2, 0, 3, 3, requires_grad=True)
    slope, none = torch.autograd.grad(LinearChain(unary, edges).entropy().sum(), (unary, edges))
    assert none.shape == edges.shape
    assert_close(slope, torch.autograd.grad(LinearChain(unary, edges, backend="torch").entropy().sum(), unary)[0])
