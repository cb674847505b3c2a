"""Linear chains: both backends against enumeration, against each other, and under what must not matter."""

import math
from collections.abc import Callable

import pytest
import torch
from enumeration import FORMS, EnumeratedChain, Potentials, random_chains, small_chains
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import LinearChain, StructuralHinge, lengths_from_mask
from structsmooth.compiled.threads import over_batch
from structsmooth.structures.chain import operators as compiled

BACKENDS = ["compiled", "torch"]
K = 3
VALUES: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "max": lambda chain: chain.max()[:1],
    "topk": lambda chain: chain.topk(K)[:1],
    "logsumexp": lambda chain: (chain.logsumexp(),),
    "marginals": lambda chain: chain.marginals(),
    "max_marginals": lambda chain: (chain.max_marginals(),),
    "score": lambda chain: (chain.score(some_labels(chain)),),
}

both_backends = pytest.mark.parametrize("backend", BACKENDS)
every_form = pytest.mark.parametrize("form", FORMS)
every_value = pytest.mark.parametrize("value", VALUES)


def some_labels(chain: LinearChain | EnumeratedChain) -> Tensor:
    """Labels that depend on the shape only."""
    batch, steps, states = chain.unary.shape
    return torch.arange(batch * steps).view(batch, steps) * 7 % 5 % states


def values_and_gradients(
    value: str, potentials: Potentials, structure: Callable[..., LinearChain | EnumeratedChain]
) -> tuple[Tensor, ...]:
    """Values of an oracle, then the gradients of a weighted sum of them."""
    unary, transition, lengths = potentials

    def run(unary: Tensor, transition: Tensor) -> tuple[Tensor, ...]:
        return VALUES[value](structure(unary, transition, lengths))

    weights = tuple(torch.arange(1.0, v.numel() + 1).cos().to(v.dtype).view_as(v) for v in run(unary, transition))
    values, gradients = vjp(run, (unary, transition), weights)
    return *values, *gradients


def on(backend: str) -> Callable[..., LinearChain]:
    return lambda unary, transition, lengths: LinearChain(unary, transition, lengths, backend=backend)


def medium(form: str = FORMS[0], **options: object) -> Potentials:
    return random_chains(5, 7, 4, form, lengths=[1, 6, 2, 5, 6], **options)


def assert_same_oracles(chain: LinearChain, other: LinearChain | EnumeratedChain, k: int) -> None:
    """Labels, ties included, must be identical; values may round."""
    for actual, expected in [
        (chain.max(), other.max()),
        (chain.topk(k), other.topk(k)),
        (chain.logsumexp(), other.logsumexp()),
        (chain.marginals(), other.marginals()),
        (chain.max_marginals(), other.max_marginals()),
        (chain.score(some_labels(chain)), other.score(some_labels(chain))),
        (chain.parts(some_labels(chain)), other.parts(some_labels(chain))),
    ]:
        assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@both_backends
@given(potentials=small_chains(), k=st.integers(1, 12))
def test_oracles_match_enumeration(backend: str, potentials: Potentials, k: int) -> None:
    assert_same_oracles(on(backend)(*potentials), EnumeratedChain(*potentials), k)


@both_backends
@given(potentials=small_chains(forbidden=0.0, ties=True), k=st.integers(1, 300))
def test_topk_lists_everything_when_k_is_large(backend: str, potentials: Potentials, k: int) -> None:
    assert_close(on(backend)(*potentials).topk(k), EnumeratedChain(*potentials).topk(k))


@both_backends
@pytest.mark.parametrize("value", ["max", "topk", "logsumexp", "marginals", "score"])
@given(potentials=small_chains())
def test_gradients_are_the_enumerated_statistics(value: str, backend: str, potentials: Potentials) -> None:
    actual = values_and_gradients(value, potentials, on(backend))
    assert_close(actual, values_and_gradients(value, potentials, EnumeratedChain), rtol=1e-9, atol=1e-9)


@both_backends
@given(potentials=small_chains(ties=False))  # among ties, any maximizer is a subgradient
def test_gradients_of_max_marginals_match_enumeration(backend: str, potentials: Potentials) -> None:
    actual = values_and_gradients("max_marginals", potentials, on(backend))
    assert_close(actual, values_and_gradients("max_marginals", potentials, EnumeratedChain))


@both_backends
@every_form
@every_value
def test_an_example_without_outputs_has_no_gradient(value: str, form: str, backend: str) -> None:
    unary, transition, lengths = random_chains(2, 4, 3, form, lengths=[3, 4])
    unary[0, 1] = -torch.inf
    *values, unary_gradient, _ = values_and_gradients(value, (unary, transition, lengths), on(backend))
    assert not any(v.isnan().any() for v in values)
    if value != "score":
        assert not unary_gradient[0].any()
    assert unary_gradient[1].any()


@both_backends
@pytest.mark.parametrize("ties", [False, True])
def test_topk_is_sorted_distinct_and_grows_at_the_end(backend: str, ties: bool) -> None:
    chain = on(backend)(*random_chains(6, 30, 9, FORMS[2], lengths=[30, 3, 2, 17, 29, 8], ties=ties, forbidden=0.1))
    values, y = chain.topk(12)
    assert (values.diff() <= 0).all()
    assert all(len(row.unique(dim=0)) == 12 for row in y)
    for j in range(12):
        assert_close(chain.score(y[:, j]), values[:, j])
        assert_close(chain.topk(j + 1), (values[:, : j + 1], y[:, : j + 1]))


@pytest.mark.parametrize("ties", [False, True])
@every_form
@every_value
def test_backends_agree(value: str, form: str, ties: bool) -> None:
    potentials = random_chains(8, 12, 5, form, ties=ties, forbidden=0.1)
    fast, plain = (on(backend)(*potentials) for backend in BACKENDS)
    assert_same_oracles(fast, plain, k=9)
    if value != "max_marginals" or not ties:
        fast, plain = (values_and_gradients(value, potentials, on(backend)) for backend in BACKENDS)
        assert_close(fast, plain, rtol=1e-10, atol=1e-10)


@both_backends
@every_form
@every_value
@pytest.mark.parametrize("steps", [1, 3])
def test_gradcheck(value: str, form: str, steps: int, backend: str) -> None:
    unary, transition, lengths = random_chains(2, steps, 3, form, lengths=[steps, max(1, steps - 1)])
    inputs = unary.requires_grad_(), transition.requires_grad_()
    assert torch.autograd.gradcheck(lambda *scores: VALUES[value](on(backend)(*scores, lengths)), inputs)


@both_backends
@every_form
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_second_derivatives_of_the_log_partition(forbidden: float, form: str, backend: str) -> None:
    unary, transition, lengths = random_chains(2, 3, 2, form, seed=5, lengths=[3, 2], forbidden=forbidden)
    masks = unary > -torch.inf, transition > -torch.inf
    inputs = [scores[mask].requires_grad_() for scores, mask in zip((unary, transition), masks, strict=True)]

    def log_partition(*free: Tensor) -> Tensor:
        full = (
            torch.full_like(scores, -torch.inf).masked_scatter(mask, values)
            for scores, mask, values in zip((unary, transition), masks, free, strict=True)
        )
        return on(backend)(*full, lengths).logsumexp()

    assert torch.autograd.gradgradcheck(log_partition, inputs)


@both_backends
@every_form
def test_second_derivatives_of_the_marginals(form: str, backend: str) -> None:
    unary, transition, lengths = random_chains(2, 3, 2, form, lengths=[3, 2])
    inputs = unary.requires_grad_(), transition.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda *scores: on(backend)(*scores, lengths).marginals(), inputs)


@both_backends
@every_value
def test_scores_added_to_a_position_add_to_every_output(value: str, backend: str) -> None:
    unary, transition, lengths = medium()
    shift = torch.randn(unary.shape[:2], dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    chain, moved = on(backend)(unary, transition, lengths), on(backend)(unary + shift[..., None], transition, lengths)
    added = (shift * chain.mask).sum(1)
    for before, after in zip(VALUES[value](chain), VALUES[value](moved), strict=True):
        expected = before + (0 if value == "marginals" else added.view(-1, *[1] * (before.dim() - 1)))
        inside = chain.mask.unsqueeze(-1) if value == "max_marginals" else torch.tensor(True)
        assert_close(after, torch.where(inside, expected, before))
    assert_close(chain.topk(K)[1], moved.topk(K)[1])


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


@both_backends
@every_value
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e300])
def test_padding_may_hold_anything(garbage: float, value: str, backend: str) -> None:
    unary, transition, lengths = medium(FORMS[2])
    clean = values_and_gradients(value, (unary, transition, lengths), on(backend))
    inside = torch.arange(7) < lengths[:, None]
    dirty = unary.masked_fill(~inside[..., None], garbage), transition.masked_fill(~inside[:, 1:, None, None], garbage)
    assert_close(values_and_gradients(value, (*dirty, lengths), on(backend)), clean, rtol=0, atol=0)
    for gradient, mask in zip(clean[-2:], (inside, inside[:, 1:]), strict=True):
        assert not gradient[~mask].any()


@both_backends
@every_form
def test_every_entry_of_a_batch_stands_alone(form: str, backend: str) -> None:
    unary, transition, lengths = medium(form)
    chain = on(backend)(unary, transition, lengths)
    values, y = chain.topk(K)
    node, edge = chain.marginals()
    for b, n in enumerate(lengths.tolist()):
        own = transition if form == "[S, S]" else transition[b : b + 1, : n - 1 if form == "[B, T-1, S, S]" else None]
        alone = LinearChain(unary[b : b + 1, :n], own, backend=backend)
        assert_close(alone.topk(K), (values[b : b + 1], y[b : b + 1, :, :n]))
        assert_close(alone.logsumexp(), chain.logsumexp()[b : b + 1])
        assert_close(alone.marginals(), (node[b : b + 1, :n], edge[b : b + 1, : n - 1]))
        assert_close(alone.max_marginals(), chain.max_marginals()[b : b + 1, :n])


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
@every_value
def test_tensors_of_the_caller_stay_as_they_are(value: str, backend: str) -> None:
    unary, transition, lengths = medium()
    leaf = torch.zeros_like(unary, requires_grad=True)
    inputs = (unary.transpose(0, 1).contiguous().transpose(0, 1), transition, lengths, leaf)  # one not contiguous
    before = [(tensor.clone(), tensor.requires_grad, tensor._version) for tensor in inputs]
    outputs = VALUES[value](on(backend)(*inputs[:3]))
    assert not any(output.requires_grad for output in outputs)
    sum(output.sum() for output in VALUES[value](on(backend)(leaf, transition, lengths))).backward()
    for tensor, (content, requires_grad, version) in zip(inputs, before, strict=True):
        assert torch.equal(tensor, content)
        assert (tensor.requires_grad, tensor._version) == (requires_grad, version)
    assert transition.grad is None


@both_backends
@every_value
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_oracles_work_where_gradients_are_off(context: Callable[[], object], value: str, backend: str) -> None:
    potentials = medium()
    expected = VALUES[value](on(backend)(*potentials))
    with context():
        assert_close(VALUES[value](on(backend)(*(tensor.clone() for tensor in potentials))), expected)


@both_backends
def test_an_empty_batch_gives_empty_answers(backend: str) -> None:
    for form in FORMS:
        for value in VALUES:
            *values, unary, transition = values_and_gradients(
                value, random_chains(0, 3, 2, form, lengths=[]), on(backend)
            )
            assert all(v.shape[0] == 0 for v in values)
            assert unary.shape[0] == 0
            assert not transition.any()


# Precision. Float16 and bfloat16 scores are exact in float32, in which their sums are accumulated.


@both_backends
@every_value
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_float32_is_close_to_float64(scale: float, value: str, backend: str) -> None:
    """Relative to the largest; probabilities and sums of them lose the digits before the point of the log-partition."""
    unary, transition, lengths = random_chains(4, 50, 9, seed=3)
    single = ((unary * scale).float(), (transition * scale).float(), lengths)
    *actual, a_unary, a_transition = values_and_gradients(value, single, on(backend))
    double = (single[0].double(), single[1].double(), lengths)
    *expected, e_unary, e_transition = values_and_gradients(value, double, on(backend))
    for pairs, tolerance in [
        (zip(actual, expected, strict=True), 1e-5 if value == "marginals" else 1e-6),
        ([(a_unary, e_unary), (a_transition, e_transition)], 1e-5),
    ]:
        for a, e in pairs:
            assert a.dtype == torch.float32
            assert (a - e).abs().max() <= tolerance * max(1.0, e.abs().max())


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


@both_backends
@every_value
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_accumulated_in_float32(dtype: torch.dtype, value: str, backend: str) -> None:
    unary, transition, lengths = medium()
    half = unary.to(dtype), transition.to(dtype)
    *values, unary_gradient, transition_gradient = values_and_gradients(value, (*half, lengths), on(backend))
    *expected, first, second = values_and_gradients(value, (half[0].float(), half[1].float(), lengths), on(backend))
    assert_close(values, expected, rtol=0, atol=0)
    assert_close((unary_gradient, transition_gradient), (first.to(dtype), second.to(dtype)))


@both_backends
def test_mixed_precision_takes_the_wider_type(backend: str) -> None:
    unary, transition, lengths = medium()
    chain = on(backend)(unary.half(), transition, lengths)
    assert_close(chain.logsumexp(), on(backend)(unary.half().double(), transition, lengths).logsumexp())


def test_nan_does_not_lead_out_of_memory() -> None:
    """Of the five best prefixes at position 1 only three exist; adding NaN makes all of them candidates."""
    unary = torch.tensor([[[0.3, 0.1, 0.2], [0.5, 0.4, torch.nan], [0.0, 0.0, 100.0]]], dtype=torch.float64)
    chain = LinearChain(unary, torch.zeros(3, 3).double(), validate_args=False)
    for _ in range(100):
        used = [torch.full((3, 3, 5), 2**40 + i) for i in range(30)]
        del used  # what the kernel allocates holds this
        values, y = chain.topk(5)
        assert values.isnan().any()
        assert 0 <= int(y.min()) <= int(y.max()) < 3


@pytest.mark.parametrize("value", ["max", "topk", "logsumexp", "marginals", "max_marginals"])
@pytest.mark.parametrize("lengths", [[2, 0], [2, 4], [-1, 3], [2**40, 1]])
def test_lengths_do_not_lead_out_of_memory(lengths: list[int], value: str) -> None:
    chain = LinearChain(torch.zeros(2, 3, 2), torch.zeros(2, 2), torch.tensor(lengths), validate_args=False)
    with pytest.raises(ValueError, match=r"lengths must be from 1 to T = 3, got \["):
        VALUES[value](chain)


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


@every_form
def test_derivatives_of_weighted_parts_are_scores(form: str) -> None:
    unary, transition, lengths = medium(form)
    transition = LinearChain(unary, transition)._accumulated()[1]
    _, y = LinearChain(*medium(form)).topk(K)
    weights = torch.randn(5, K, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)

    def parts(weights: Tensor) -> tuple[Tensor, Tensor]:
        return compiled.weighted_parts(weights, y, lengths, 4, transition.shape)

    assert_close(vjp(parts, weights, (unary, transition))[1], compiled.scores(unary, transition, lengths, y))
    assert torch.autograd.gradcheck(parts, weights)
    assert torch.autograd.gradgradcheck(parts, weights)


@both_backends
def test_lengths_may_be_a_view(backend: str) -> None:
    unary, transition, _ = medium()
    views = torch.tensor(4).expand(5), torch.arange(10).remainder(6).add(1)[::2]
    for lengths in views:
        chain, copied = (on(backend)(unary, transition, given) for given in (lengths, lengths.clone().contiguous()))
        assert_same_oracles(chain, copied, k=K)


@both_backends
@given(potentials=small_chains())
def test_large_scores(backend: str, potentials: Potentials) -> None:
    unary, transition, lengths = potentials
    large = unary * 1e4, transition * 1e4, lengths
    chain, twin = on(backend)(*large), EnumeratedChain(*large)
    for actual, expected in [
        (chain.max()[0], twin.max()[0]),
        (chain.logsumexp(), twin.logsumexp()),
        (chain.max_marginals(), twin.max_marginals()),
    ]:
        assert_close(actual, expected, rtol=1e-12, atol=1e-8)
    assert_close(chain.marginals(), twin.marginals(), rtol=1e-9, atol=1e-9)


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
@given(potentials=small_chains(ties=False), scale=st.sampled_from([100.0, 400.0, 1e3, 5e3]))
def test_extreme_dynamic_range(backend: str, potentials: Potentials, scale: float) -> None:
    unary, transition, lengths = potentials
    wide = unary * scale, transition * scale, lengths
    actual = values_and_gradients("logsumexp", wide, on(backend))
    assert_close(actual, values_and_gradients("logsumexp", wide, EnumeratedChain), rtol=1e-12, atol=1e-9)


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


# Threads and compilation.


@pytest.mark.usefixtures("two_threads")
@every_value
def test_threads_do_not_change_the_answer(value: str) -> None:
    potentials = random_chains(33, 20, 20, forbidden=0.01)
    shared = values_and_gradients(value, potentials, on("compiled"))
    torch.set_num_threads(1)
    assert_close(shared, values_and_gradients(value, potentials, on("compiled")), rtol=1e-13, atol=1e-13)


@pytest.mark.usefixtures("two_threads")
def test_large_batches_are_shared_between_threads() -> None:
    ranges: list[tuple[int, int]] = []
    over_batch(lambda *bounds: ranges.append(bounds), 65, 10**7)
    assert sorted(ranges) == [(0, 32), (32, 65)]
    ranges.clear()
    over_batch(lambda *bounds: ranges.append(bounds), 65, 1000)
    assert ranges == [(0, 65)]


@pytest.mark.usefixtures("two_threads")
def test_an_error_in_a_thread_reaches_the_caller() -> None:
    def fail(begin: int, end: int) -> None:
        if begin > 0:
            raise MemoryError

    with pytest.raises(MemoryError):
        over_batch(fail, 65, 10**7)


@pytest.mark.parametrize(
    "loss",
    [StructuralHinge(), StructuralHinge.crf(), StructuralHinge.softmax_margin(), StructuralHinge.sparsemap(k=3)],
    ids=["hinge", "crf", "softmax_margin", "sparsemap"],
)
@pytest.mark.parametrize(("backend", "form"), [("torch", FORMS[0]), *(("compiled", form) for form in FORMS)])
def test_losses_compile_without_graph_breaks(backend: str, form: str, loss: StructuralHinge) -> None:
    unary, transition, lengths = medium(form)
    y = some_labels(LinearChain(unary, transition))

    def run(unary: Tensor, transition: Tensor) -> Tensor:
        return loss(on(backend)(unary, transition, lengths), y)

    torch.compiler.reset()
    compiled_run = torch.compile(run, fullgraph=True, backend="aot_eager")  # raises at a graph break
    assert_close(vjp(compiled_run, (unary, transition)), vjp(run, (unary, transition)))


@pytest.mark.parametrize("edges", [1, 2])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # by opcheck
def test_operators_are_registered_correctly(edges: int) -> None:
    unary, transition, lengths = random_chains(2, 3, 2, FORMS[2], lengths=[3, 2])
    inputs = unary.requires_grad_(), transition[:edges, :edges].clone().requires_grad_(), lengths
    torch.library.opcheck(compiled.top_k, (*inputs, 3))
    torch.library.opcheck(compiled.marginals, (*inputs, edges > 1))
    torch.library.opcheck(compiled.max_marginals, inputs)
    y, weights = torch.tensor([[[0, 1, 1]], [[1, 0, 9]]]), torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(compiled.scores, (*inputs, y))
    torch.library.opcheck(compiled.weighted_parts, (weights, y, lengths, 2, inputs[1].shape))


@pytest.mark.parametrize("shape", [(3, 3), (4, 3, 3), (4, 4, 3, 3)], ids=str)
def test_batched_chains_have_transitions_of_their_own(shape: tuple[int, ...]) -> None:
    unary, transition = torch.randn(4, 5, 3), torch.randn(shape, requires_grad=True)
    chain = LinearChain(unary, transition, torch.tensor([5, 1, 3, 4]))
    batched = chain.batched()
    assert batched is chain or len(shape) == 2
    assert len(batched.transition) == 4
    assert_close(batched.max()[0], chain.max()[0])
    gradients = [torch.autograd.grad(c.logsumexp().sum(), transition)[0] for c in (chain, batched)]
    assert_close(*gradients)
