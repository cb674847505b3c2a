"""Costs against their definitions, output by output."""

from collections.abc import Callable

import pytest
import torch
from enumeration import EnumeratedChain, random_chains
from torch import Tensor
from torch.testing import assert_close

from structsmooth import Cost, Hamming, LinearChain, NormalizedHamming, WeightedHamming

WEIGHTS = (0.5, 2.0, 0.0)
DEFINITIONS: list[tuple[Cost, Callable[[list[int], list[int]], float]]] = [
    (Hamming(), lambda y, other: sum(a != b for a, b in zip(y, other, strict=True))),
    (NormalizedHamming(), lambda y, other: sum(a != b for a, b in zip(y, other, strict=True)) / len(y)),
    (WeightedHamming(WEIGHTS), lambda y, other: sum(WEIGHTS[a] for a, b in zip(y, other, strict=True) if a != b)),
]
every_cost = pytest.mark.parametrize(("cost", "definition"), DEFINITIONS, ids=["hamming", "normalized", "weighted"])


@pytest.fixture
def chain() -> LinearChain:
    unary, transition, _ = random_chains(3, 4, 3)
    return LinearChain(torch.zeros_like(unary), torch.zeros_like(transition), torch.tensor([4, 1, 3]))


@pytest.fixture
def y() -> Tensor:
    """Labels whose padding is out of range, as it may be."""
    return torch.tensor([[0, 1, 2, 1], [2, 9, -100, 9], [1, 1, 0, -100]])


@every_cost
def test_cost_of_every_output(
    cost: Cost, definition: Callable[[list[int], list[int]], float], chain: LinearChain, y: Tensor
) -> None:
    augmented = chain.cost_augmented(y, cost)
    outputs = EnumeratedChain(chain.unary, chain.transition, chain.lengths).outputs
    for b, (others, length) in enumerate(zip(outputs, chain.lengths.tolist(), strict=True)):
        single = LinearChain(
            augmented.unary[b].expand(len(others), -1, -1), chain.transition, chain.lengths[b].repeat(len(others))
        )
        expected = [definition(y[b, :length].tolist(), other[:length].tolist()) for other in others]
        assert_close(single.score(others), torch.tensor(expected, dtype=torch.float64))


@every_cost
def test_the_right_labels_cost_nothing(cost: Cost, definition: object, chain: LinearChain, y: Tensor) -> None:
    augmented = chain.cost_augmented(y, cost)
    assert not augmented.score(y).any()
    assert (augmented.unary >= 0).all()


@every_cost
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_costs_have_the_shape_and_type_of_the_scores(
    dtype: torch.dtype, cost: Cost, definition: object, chain: LinearChain, y: Tensor
) -> None:
    chain = chain.replace(chain.unary.to(dtype), chain.transition.to(dtype))
    assert cost(chain, y).shape == chain.unary.shape
    assert cost(chain, y).dtype == dtype
    assert chain.cost_augmented(y, cost).unary.dtype == dtype


def test_augmenting_adds_to_the_scores() -> None:
    unary, transition, lengths = random_chains(3, 4, 3)
    chain, y = LinearChain(unary, transition, lengths, backend="torch"), torch.ones(3, 4, dtype=torch.int64)
    costs = torch.rand(3, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    augmented = chain.cost_augmented(y, costs)
    assert_close(augmented.unary, unary + costs)
    assert augmented.transition is transition
    assert torch.equal(augmented.lengths, lengths)
    assert augmented.backend == "torch"


@pytest.mark.parametrize("shape", [(3,), (4, 3), (4, 1), (3, 1, 1), (1, 4, 3), ()])
def test_cost_tensors_broadcast(shape: tuple[int, ...], chain: LinearChain, y: Tensor) -> None:
    costs = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_close(chain.cost_augmented(y, costs).unary, costs.expand(3, 4, 3))


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
