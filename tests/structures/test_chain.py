"""Linear chains: transitions of every form, extreme scores, and lengths and labels that lead nowhere."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from enumeration import FORMS, Potentials, random_chains
from oracles import ORACLES, K, assert_same_oracles
from refusals import Refusals, refusing
from structure_members import cyclic
from torch import Tensor
from torch.testing import assert_close

from structsmooth import LinearChain
from structsmooth.structures import lengths_from_mask

both_backends = pytest.mark.parametrize("backend", ["compiled", "torch"])
every_form = pytest.mark.parametrize("form", FORMS)


def on(backend: str) -> Callable[..., LinearChain]:
    return lambda unary, transition, lengths: LinearChain(unary, transition, lengths, backend=backend)


def medium(form: str = FORMS[0]) -> Potentials:
    return random_chains(5, 7, 4, form, lengths=[1, 6, 2, 5, 6])


@both_backends
@every_form
def test_renaming_the_states_renames_the_answers(form: str, backend: str) -> None:
    unary, transition, lengths = medium(form)
    new = torch.tensor([2, 0, 3, 1])
    chain, renamed = (
        on(backend)(unary, transition, lengths),
        on(backend)(unary[..., new], transition[..., new, :][..., new], lengths),
    )
    values, y = chain.topk(K)
    other_values, other_y = renamed.topk(K)
    assert_close(values, other_values)
    assert torch.equal(y, torch.where(chain.mask[:, None], new[other_y], 0))
    assert_close(chain.logsumexp(), renamed.logsumexp())
    node, edge = chain.marginals()
    assert_close(renamed.marginals(), (node[..., new], edge[..., new, :][..., new]))
    assert_close(renamed.max_marginals(), chain.max_marginals()[..., new])


@pytest.mark.parametrize("states", [16, 33])
def test_best_outputs_where_scores_are_peaked_in_places(states: int) -> None:
    """States that cannot be best are left out after peaks, and looked through where scores are flat."""
    generator = torch.Generator().manual_seed(0)
    peaked = torch.rand(6, 40, 1, generator=generator) < torch.linspace(0, 1, 6).view(6, 1, 1)
    unary = torch.randint(-3, 4, (6, 40, states), generator=generator) * torch.where(peaked, 20.0, 1.0).double()
    transition = torch.randn(states, states, generator=generator, dtype=torch.float64)
    chains = [LinearChain(unary, transition, backend=backend) for backend in ("compiled", "torch")]
    (value, y), (expected, wanted) = (chain.max() for chain in chains)
    assert torch.equal(y, wanted)
    assert_close(value, expected)


def test_lengths_and_mask_say_the_same() -> None:
    chain = LinearChain(*medium())
    for mask in (chain.mask, chain.mask.long()):
        assert torch.equal(lengths_from_mask(mask), chain.lengths)


@both_backends
@every_form
def test_marginals_are_consistent(form: str, backend: str) -> None:
    chain = on(backend)(*random_chains(6, 25, 6, form, forbidden=0.05))
    node, edge = chain.marginals()
    assert_close(node.sum(-1), chain.mask.double())
    inside = chain.mask[:, 1:, None]
    assert_close(edge.sum(2), node[:, 1:] * inside)
    assert_close(edge.sum(3), node[:, :-1] * inside)


@both_backends
@pytest.mark.parametrize("shape", [(4, 10, 5), (4, 50, 9), (2, 200, 20)])
@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0, 1e3, 1e4])
def test_precision_of_float32_marginals(scale: float, shape: tuple[int, int, int], backend: str) -> None:
    """Compiled sums are rounded to float32 at their end; those of torch lose what the log-partition takes."""
    for seed in range(3):
        unary, transition, lengths = random_chains(*shape, seed=seed)
        single = (unary * scale).float(), (transition * scale).float()
        double = LinearChain(single[0].double(), single[1].double(), lengths)
        unit = 1e-7 if backend == "compiled" else 2**-24 * double.logsumexp().abs().max()
        for actual, expected in zip(on(backend)(*single, lengths).marginals(), double.marginals(), strict=True):
            assert (actual - expected).abs().max() <= unit
        values = on(backend)(*single, lengths).logsumexp() / double.logsumexp() - 1
        assert values.abs().max() <= (2e-7 if backend == "compiled" else 1e-6)


def test_nan_does_not_lead_out_of_memory() -> None:
    """Of the five best prefixes at position 1 only three exist; adding NaN makes all of them candidates."""
    unary = torch.tensor([[[0.3, 0.1, 0.2], [0.5, 0.4, torch.nan], [0.0, 0.0, 100.0]]], dtype=torch.float64)
    chain = LinearChain(unary, torch.zeros(3, 3).double(), validate_args=False)
    for _ in range(100):
        used = [torch.full((3, 3, 5), 2**40 + i) for i in range(30)]
        del used  # what the compiled loop allocates holds this
        values, y = chain.topk(5)
        assert values.isnan().any()
        assert 0 <= int(y.min()) <= int(y.max()) < 3


@pytest.mark.parametrize("oracle", ["max", "topk", "logsumexp", "marginals", "max_marginals"])
@pytest.mark.parametrize("lengths", [[2, 4], [-1, 3], [2**40, 1]])
def test_lengths_do_not_lead_out_of_memory(lengths: list[int], oracle: str) -> None:
    chain = LinearChain(torch.zeros(2, 3, 2), torch.zeros(2, 2), torch.tensor(lengths), validate_args=False)
    with pytest.raises(ValueError, match=r"lengths must be from 1 to T = 3, got \["):
        ORACLES[oracle](chain)


def test_lengths_do_not_lead_out_of_memory_when_compiled() -> None:
    def value(unary: Tensor, lengths: Tensor) -> Tensor:
        return LinearChain(unary, torch.zeros(2, 2), lengths).logsumexp()

    torch.compiler.reset()
    compiled_value = torch.compile(value, fullgraph=True, backend="aot_eager")
    unary = torch.zeros(2, 3, 2)
    assert_close(compiled_value(unary, torch.tensor([2, 3])), torch.tensor([4.0, 8.0]).log())
    with pytest.raises(ValueError, match=r"lengths must be from 1 to T = 3, got \[2, 4\]"):
        compiled_value(unary, torch.tensor([2, 4]))


@pytest.mark.parametrize("label", [-1, 2, 2**40])
def test_labels_do_not_lead_out_of_memory(label: int) -> None:
    chain = LinearChain(torch.zeros(2, 3, 2), torch.zeros(2, 2), torch.tensor([3, 2]), validate_args=False)
    assert not chain.score(torch.tensor([[0, 1, 0], [1, 1, label]])).any()  # at padding
    with pytest.raises(ValueError, match=r"y must hold labels from 0 to 1, got "):
        chain.score(torch.tensor([[0, 1, 0], [1, label, 0]]))


@both_backends
def test_lengths_may_be_a_view(backend: str) -> None:
    unary, transition, _ = medium()
    views = torch.tensor(4).expand(5), torch.arange(10).remainder(6).add(1)[::2]
    for lengths in views:
        chain, copied = (on(backend)(unary, transition, given) for given in (lengths, lengths.clone().contiguous()))
        assert_same_oracles(chain, copied, cyclic(unary), k=K)


@both_backends
@every_form
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
@pytest.mark.parametrize("scale", [1e3, 1e6, 1e9])
def test_marginals_of_huge_scores_sum_to_one(scale: float, forbidden: float, form: str, backend: str) -> None:
    unary, transition, lengths = random_chains(20, 12, 5, form, forbidden=forbidden)
    chain = on(backend)(unary * scale, transition * scale, lengths)
    node, edge = chain.marginals()
    feasible = chain.max()[0] > -torch.inf
    assert feasible.any()
    assert_close(node.sum(-1), (chain.mask & feasible[:, None]).double(), rtol=0, atol=1e-12)
    assert_close(edge.sum(-1), node[:, :-1] * chain.mask[:, 1:, None], rtol=0, atol=1e-12)
    assert_close(edge.sum(-2), node[:, 1:], rtol=0, atol=1e-12)


@both_backends
@pytest.mark.parametrize("gap", [1.0, 300.0, 333.0, 334.0, 350.0, 372.0, 400.0, 700.0, 745.0, 1e3, 1e4, 1e8])
def test_equal_paths_through_a_deep_valley(gap: float, backend: str) -> None:
    """Each of two equal paths is `gap` below an unfinished one at some point: its exponential underflows."""
    unary = torch.tensor([[[0.0, -gap], [0.0, -gap], [0.0, 0.0]]], dtype=torch.float64)
    unary[0, 2, 1] = -torch.inf
    transition = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]], dtype=torch.float64)[None, None].repeat(
        1, 2, 1, 1
    )
    transition[0, 1] = torch.tensor([[-2 * gap, 0.0], [0.0, 0.0]])
    chain = on(backend)(unary, transition, torch.tensor([3]))
    assert_close(chain.logsumexp(), torch.tensor([math.log(2) - 2 * gap], dtype=torch.float64), rtol=1e-15, atol=0)
    node, edge = chain.marginals()
    assert_close(node[0, :2], torch.full((2, 2), 0.5, dtype=torch.float64), rtol=1e-7, atol=0)
    assert_close(edge[0, 1, :, 0], torch.full((2,), 0.5, dtype=torch.float64), rtol=1e-7, atol=0)


@both_backends
@pytest.mark.parametrize("scale", [100.0, 1e3])
def test_extreme_dynamic_range_against_finite_differences(scale: float, backend: str) -> None:
    """Two equal paths in a landscape of valleys, so that the derivatives are neither 0 nor 1."""
    unary, transition, lengths = random_chains(1, 4, 3, FORMS[2], lengths=[4])
    unary, transition = unary * scale, transition * scale
    chain = LinearChain(unary, transition)
    values, y = chain.topk(2)
    t = int((y[0, 0] != y[0, 1]).nonzero()[0])
    unary[0, t, y[0, 1, t]] += values[0, 0] - values[0, 1]
    inputs = unary.requires_grad_(), transition.requires_grad_()
    assert torch.autograd.gradcheck(lambda *scores: on(backend)(*scores, lengths).logsumexp(), inputs, eps=1e-4)
    assert ((LinearChain(*inputs).marginals()[0] - 0.5).abs() < 1e-9).any()


# Bad input.

B, T, S = 2, 3, 4


def chain(**changes: Any) -> LinearChain:
    good = {"unary": torch.zeros(B, T, S), "transition": torch.zeros(S, S), "lengths": torch.tensor([3, 2])}
    return LinearChain(**good | changes)


@pytest.mark.parametrize("barrier", [-440.0, -441.1, -443.9])
def test_probabilities_that_vanish_are_zero_beside_examples_without_a_way(barrier: float) -> None:
    """A probability below the least normal number, after a state that an earlier example cannot be in."""
    unary, transition = torch.zeros(2, 4, 4, dtype=torch.float64), torch.zeros(2, 3, 4, 4, dtype=torch.float64)
    unary[0, 1], unary[1, 2, 0] = -torch.inf, -300.0
    transition[1, 2, 0] = torch.tensor([barrier, *[-torch.inf] * 3])
    for found, other in zip(
        LinearChain(unary, transition).marginals(),
        LinearChain(unary[1:], transition[1:], backend="torch").marginals(),
        strict=True,
    ):
        assert_close(found[1:], other, atol=1e-300, rtol=1e-12)


CASES: Refusals = {
    "no states": (lambda: chain(unary=torch.zeros(B, T, 0)), ValueError, r"unary .* T, S >= 1, got \(2, 3, 0\)"),
    "no positions": (lambda: chain(unary=torch.zeros(B, 0, S)), ValueError, r"unary .* T, S >= 1, got \(2, 0, 4\)"),
    "transition is not square": (
        lambda: chain(transition=torch.zeros(S, S + 1)),
        ValueError,
        r"transition .* got \(4, 5\)",
    ),
    "transition of other states": (
        lambda: chain(transition=torch.zeros(2, 2)),
        ValueError,
        r"transition .* got \(2, 2\)",
    ),
    "transition of another batch": (
        lambda: chain(transition=torch.zeros(3, S, S)),
        ValueError,
        r"transition .* \(3, 4, 4\)",
    ),
    "one transition too many": (
        lambda: chain(transition=torch.zeros(B, T, S, S)),
        ValueError,
        r"transition .* \(2, 3, 4, 4\)",
    ),
    "replacing by transitions of other states": (
        lambda: chain().replace(torch.zeros(B, T, S), torch.zeros(3, 3)),
        ValueError,
        "transition must have shape",
    ),
    "lengths are a list": (lambda: chain(lengths=[3, 2]), TypeError, "lengths must be .* got list"),
    "lengths are floats": (lambda: chain(lengths=torch.tensor([3.0, 2.0])), TypeError, "lengths must be integers"),
    "lengths are a mask": (lambda: chain(lengths=torch.tensor([True, True])), TypeError, "lengths .* got torch.bool"),
    "lengths of another batch": (
        lambda: chain(lengths=torch.tensor([3])),
        ValueError,
        r"lengths .* \[B\] = \(2,\), got \(1,\)",
    ),
    "lengths are a matrix": (lambda: chain(lengths=torch.ones(B, 1).long()), ValueError, r"lengths .* got \(2, 1\)"),
    "negative length": (lambda: chain(lengths=torch.tensor([-1, 2])), ValueError, r"lengths .* got \[-1, 2\]"),
    "length beyond T": (lambda: chain(lengths=torch.tensor([3, 4])), ValueError, r"lengths .* got \[3, 4\]"),
    "lengths elsewhere": (lambda: chain(lengths=torch.ones(B).long().to("meta")), ValueError, "lengths .* got meta"),
    "unknown backend": (lambda: chain(backend="cuda"), ValueError, "backend must be .* got 'cuda'"),
    "backend is None": (lambda: chain(backend=None), ValueError, "backend must be .* got None"),
    "compiled backend elsewhere": (
        lambda: LinearChain(*(torch.zeros(n, S, S, device="meta") for n in (B, B)), backend="compiled"),
        ValueError,
        "compiled backend runs on the CPU only, got tensors on meta",
    ),
    "kernels on the CPU": (
        lambda: chain(backend="triton"),
        ValueError,
        "the Triton backend runs on GPUs only, got tensors on cpu|needs Triton, which comes with torch on Linux",
    ),
}
test_refuses = refusing(CASES)


def test_the_good_calls_behind_the_bad_ones_are_good() -> None:
    assert chain().score(torch.zeros(B, T).long()).shape == (B,)
