"""What structures without an exp oracle promise alike: what must not matter to their oracles, and precision."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from enumeration import random_graphs, random_matchings
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import BinaryGraph, Entropy, Matching
from structsmooth.structures.base import Structure


class Space(NamedTuple):
    """A structure, its arguments of random instances, and outputs it has; floating point arguments are potentials."""

    build: type[Structure]
    random: Callable[[int], Sequence[Tensor]]
    labels: Callable[[int, int], Tensor]

    def medium(self) -> Sequence[Tensor]:
        return self.random(3)

    def value(self, name: str, tensors: Sequence[Tensor]) -> Tensor:
        structure = self.build(*tensors)
        batch, variables = structure.potentials[0].shape[:2]
        return VALUES[name](structure, self.labels(batch, variables).to(tensors[0].device))

    def values_and_gradients(self, name: str, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Values of an oracle, then the gradients of a weighted sum of them."""

        def run(*potentials: Tensor) -> Tensor:
            left = iter(potentials)
            return self.value(name, [next(left) if t.is_floating_point() else t for t in tensors])

        potentials = tuple(t for t in tensors if t.is_floating_point())
        out = run(*potentials)
        values, gradients = vjp(run, potentials, torch.arange(1.0, out.numel() + 1).cos().to(out).view_as(out))
        return values, *gradients


K = 3
VALUES: dict[str, Callable[[Structure, Tensor], Tensor]] = {
    "max": lambda structure, y: structure.max()[0],
    "topk": lambda structure, y: structure.topk(K)[0],
    "max_marginals": lambda structure, y: structure.max_marginals(),
    "score": lambda structure, y: structure.score(y),
}
SPACES = {
    "BinaryGraph": Space(
        BinaryGraph,
        lambda batch: random_graphs(batch, 20, 30, seed=4),
        lambda batch, nodes: torch.arange(batch * nodes).view(batch, nodes) * 7 % 5 % 2,
    ),
    "Matching": Space(
        Matching,
        lambda batch: random_matchings([(12, 15 + 5 * b) for b in range(batch)] or [(1, 1)], seed=1),
        lambda batch, rows: torch.arange(rows).expand(batch, rows),
    ),
}

every_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
every_value = pytest.mark.parametrize("value", VALUES)


@every_space
@every_value
def test_tensors_of_the_caller_stay_as_they_are(value: str, space: Space) -> None:
    first, *others = space.medium()
    expected = space.value(value, [first, *others])
    leaf = torch.zeros_like(first, requires_grad=True)
    inputs = [t.transpose(0, 1).contiguous().transpose(0, 1) for t in (first, *others)] + [leaf]  # not contiguous
    before = [(tensor.clone(), tensor.requires_grad, tensor._version) for tensor in inputs]
    actual = space.value(value, inputs[:-1])
    assert not actual.requires_grad
    assert_close(actual, expected, rtol=0, atol=0)
    space.value(value, [leaf, *inputs[1:-1]]).sum().backward()
    for tensor, (content, requires_grad, version) in zip(inputs, before, strict=True):
        assert torch.equal(tensor, content)
        assert (tensor.requires_grad, tensor._version) == (requires_grad, version)


@every_space
@every_value
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_oracles_work_where_gradients_are_off(context: Callable[[], Any], value: str, space: Space) -> None:
    tensors = space.medium()
    expected = space.value(value, tensors)
    with context():
        assert_close(space.value(value, [tensor.clone() for tensor in tensors]), expected)


@every_space
@every_value
def test_an_empty_batch_gives_empty_answers(value: str, space: Space) -> None:
    batch = len(space.random(1)[0])
    empty = [t[:0] if len(t) == batch else t for t in space.random(1)]
    for tensor in space.values_and_gradients(value, empty):
        assert tensor.shape[0] == 0


@every_space
@every_value
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_values_in_float32(dtype: torch.dtype, value: str, space: Space) -> None:
    """Such scores are exact in float32, in which values are returned."""
    half = [t.to(dtype) if t.is_floating_point() else t for t in space.medium()]
    values, *gradients = space.values_and_gradients(value, half)
    expected, *wide = space.values_and_gradients(value, [t.float() if t.is_floating_point() else t for t in half])
    assert values.dtype == torch.float32
    assert_close(values, expected, rtol=0, atol=0)
    assert_close(gradients, [gradient.to(dtype) for gradient in wide])


@every_space
@pytest.mark.parametrize("oracle", ["logsumexp", "marginals"])
def test_there_is_no_exp_oracle(oracle: str, space: Space) -> None:
    structure = space.build(*space.medium())
    name = type(structure).__name__
    with pytest.raises(NotImplementedError, match=rf"{name} .* {oracle} .* topk\(\)"):
        getattr(structure, oracle)()
    with pytest.raises(NotImplementedError, match=name):
        Entropy(1.0)(structure)


@pytest.mark.usefixtures("two_threads")
@every_space
@every_value
def test_threads_do_not_change_the_answer(value: str, space: Space) -> None:
    tensors = space.random(17)
    shared = space.values_and_gradients(value, tensors)
    torch.set_num_threads(1)
    assert_close(shared, space.values_and_gradients(value, tensors), rtol=0, atol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_space
@every_value
def test_other_devices(value: str, space: Space) -> None:
    there = space.values_and_gradients(value, [tensor.cuda() for tensor in space.medium()])
    assert all(tensor.is_cuda for tensor in there)
    assert_close(tuple(tensor.cpu() for tensor in there), space.values_and_gradients(value, space.medium()))
