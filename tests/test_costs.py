"""Costs against their definitions, output by output."""

from collections.abc import Callable

import pytest
import torch
from enumeration import random_chains
from member import Member, changed, potentials_of, rows, with_potentials
from structure_members import enumerated, every
from torch import Tensor
from torch.testing import assert_close

from structsmooth import Hamming, LinearChain, WeightedHamming
from structsmooth.costs import Cost, NormalizedHamming

WEIGHTS = (0.5, 2.0, 0.0, 1.5, 0.25, 3.0, 1.0)
# A cost for labels of some number of classes, and its definition.
COSTS: dict[str, tuple[Callable[[int], Cost], Callable[[list[int], list[int]], float]]] = {
    "Hamming": (
        lambda classes: Hamming(),
        lambda y, other: sum(a != b for a, b in zip(y, other, strict=True)),
    ),
    "NormalizedHamming": (
        lambda classes: NormalizedHamming(),
        lambda y, other: sum(a != b for a, b in zip(y, other, strict=True)) / len(y),
    ),
    "WeightedHamming": (
        lambda classes: WeightedHamming(WEIGHTS[:classes]),
        lambda y, other: sum(WEIGHTS[a] for a, b in zip(y, other, strict=True) if a != b),
    ),
}
every_cost = pytest.mark.parametrize("name", COSTS)


@every_cost
@every(lambda name, member: enumerated(name) and not {"torch", "Subwindows", "BoxCandidates"} & {*name.split()})
def test_cost_of_every_output(member: Member, name: str) -> None:
    instance = changed(member.random("tiny"), torch.zeros_like)
    structure, y = member.build(*instance), member.labels(potentials_of(instance)[0])
    padded = hasattr(structure, "lengths")
    real = structure.mask if padded else torch.ones_like(y, dtype=torch.bool)
    if y.shape == real.shape:  # unless rank states stand between the labels
        y = torch.where(real, y, -100)
    classes = structure.as_classes(y)[1]
    cost, definition = COSTS[name][0](classes), COSTS[name][1]
    augmented = structure.cost_augmented(y, cost)
    for b, outputs in enumerate(member.twin(*instance).outputs):
        copies = rows(with_potentials(instance, augmented.potentials), torch.full((len(outputs),), b))
        augmented_copies = member.build(*copies)
        scores = augmented_copies.score(outputs)
        allowed = scores > -torch.inf
        labels, own = structure.as_classes(y)[0][b : b + 1], augmented_copies.as_classes(outputs)[0][allowed]
        labels, own = (t[:, real[b]].flatten(1) for t in (labels, own))
        expected = [definition(labels[0].tolist(), other) for other in own.tolist()]
        assert_close(scores[allowed], torch.tensor(expected, dtype=torch.float64))
        assert 0.0 in expected


@pytest.fixture
def chain() -> LinearChain:
    unary, transition, _ = random_chains(3, 4, 3)
    return LinearChain(torch.zeros_like(unary), torch.zeros_like(transition), torch.tensor([4, 1, 3]))


@pytest.fixture
def y() -> Tensor:
    """Labels whose padding is out of range, as it may be."""
    return torch.tensor([[0, 1, 2, 1], [2, 9, -100, 9], [1, 1, 0, -100]])


@every_cost
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_costs_have_the_shape_and_type_of_the_scores(
    dtype: torch.dtype, name: str, chain: LinearChain, y: Tensor
) -> None:
    chain, cost = chain.replace(chain.unary.to(dtype), chain.transition.to(dtype)), COSTS[name][0](3)
    assert cost(chain, y).shape == chain.unary.shape
    assert cost(chain, y).dtype == dtype
    assert chain.cost_augmented(y, cost).unary.dtype == dtype


@pytest.mark.parametrize("shape", [(3,), (4, 3), (4, 1), (3, 1, 1), (1, 4, 3), ()])
def test_cost_tensors_broadcast(shape: tuple[int, ...], chain: LinearChain, y: Tensor) -> None:
    costs = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    augmented = chain.cost_augmented(y, costs)
    assert_close(augmented.unary, costs.expand(3, 4, 3))
    assert augmented.transition is chain.transition


def test_costs_do_not_vanish_beside_half_precision_scores(y: Tensor) -> None:
    """300 + 1 is 300 in bfloat16."""
    chain = LinearChain(torch.full((3, 4, 3), 300.0, dtype=torch.bfloat16), torch.zeros(3, 3), torch.tensor([4, 1, 3]))
    assert_close(chain.cost_augmented(y, Hamming()).max()[0] - chain.max()[0], torch.tensor([4.0, 1.0, 3.0]))


def test_a_cost_of_ones_own(chain: LinearChain, y: Tensor) -> None:
    class Distance(Cost):
        """Hamming, twice as dear for even labels."""

        def mistake_cost(self, y: Tensor, lengths: Tensor) -> Tensor:
            return 2.0 - y % 2

    assert_close(Distance()(chain, y)[0], torch.tensor([[0, 2, 2], [1, 0, 1], [2, 2, 0], [1, 0, 1]]).double())


def test_weights_may_come_as_a_tensor() -> None:
    assert WeightedHamming(torch.tensor(WEIGHTS)) == WeightedHamming(WEIGHTS)
