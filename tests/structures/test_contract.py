"""What every structure promises: oracles against enumeration, their derivatives, and what must not matter to them."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from member import Instance, Member, changed, potentials_of, rows, with_potentials
from oracles import ORACLES, K, assert_lists, assert_same_oracles, assert_sorted_and_distinct
from program_members import PROGRAMS
from structure_members import MEMBERS, enumerated, every, every_oracle, plans_when_built
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import L2, Entropy, LinearChain, Max, StructuralHinge, Structure

NAN, INF = math.nan, math.inf
both_ways = pytest.mark.parametrize("ties", [False, True])


def in_torch(name: str, member: Member, oracle: str = "max") -> bool:
    """Without compiled code, on any device."""
    return "torch" in name or "Candidates" in name


def in_batches(name: str, member: Member, oracle: str = "max") -> bool:
    """Not searched in Python, an example after the other."""
    return name not in ("SearchSpace", "Subwindows in Python", "FactorGraph by search")


def has_exp_oracle(name: str, member: Member, oracle: str = "max") -> bool:
    return "logsumexp" in member.oracles


def labels(member: Member, instance: Instance) -> Tensor:
    return member.labels(potentials_of(instance)[0])


def second_best(structure: Structure) -> Tensor:
    """Outputs that are allowed, but not the best."""
    values, y = structure.topk(2)
    assert (values > -INF).all()
    return y[:, 1]


# Against enumeration.


@every(enumerated)
def test_oracles_match_enumeration(member: Member) -> None:
    @settings(max_examples=member.examples)
    @given(member.small(None, many=True), st.integers(1, 40))
    def check(instance: Instance, k: int) -> None:
        structure, twin, y = member.build(*instance), member.twin(*instance), labels(member, instance)
        k = k if max(map(len, twin.outputs)) <= 300 else k % 12 + 1
        for oracle in member.oracles:
            actual, expected = (ORACLES[oracle](s, y) for s in (structure, twin))
            assert_close(actual, expected, rtol=1e-12, atol=1e-12, msg=oracle)
        value, best = structure.max()
        best = torch.where((value > -INF).view(-1, *[1] * (y.dim() - 1)), best, y)
        for outputs in (y, best):
            assert_close(structure.parts(outputs), twin.parts(outputs), rtol=0, atol=0)
        assert_lists(structure, structure.topk(k), twin.topk(k)[0], y)
        for name, arguments in (("max", ()), ("topk", (k,))):
            if name in member.ordered:
                assert torch.equal(*(getattr(s, name)(*arguments)[1] for s in (structure, twin))), name

    check()


@every(enumerated)
def test_outputs_without_ties_are_those_of_the_enumeration(member: Member) -> None:
    @given(member.small(False), st.integers(1, 12))
    def check(instance: Instance, k: int) -> None:
        structure, twin = member.build(*instance), member.twin(*instance)
        assert torch.equal(structure.max()[1], twin.max()[1])
        assert torch.equal(structure.topk(k)[1], twin.topk(k)[1])

    check()


@every(enumerated)
@both_ways
def test_topk_lists_everything_when_k_is_large(ties: bool, member: Member) -> None:
    for seed in range(5):
        instance = member.random("tiny", seed=seed, ties=ties)
        structure, twin = member.build(*instance), member.twin(*instance)
        k = 3 + max(len(outputs) for outputs in twin.outputs)
        assert_lists(structure, structure.topk(k), twin.topk(k)[0], labels(member, instance))
        if "topk" in member.ordered:
            assert torch.equal(structure.topk(k)[1], twin.topk(k)[1])


@every_oracle(enumerated)
def test_gradients_are_the_enumerated_statistics(member: Member, oracle: str) -> None:
    # Among ties any maximizer is a subgradient.
    ties = None if oracle in member.ordered | {"logsumexp", "marginals", "score"} else False

    @given(member.small(ties))
    def check(instance: Instance) -> None:
        actual, expected = (member.values_and_gradients(oracle, instance, b) for b in (member.build, member.twin))
        assert_close(actual, expected, rtol=1e-9, atol=1e-9)

    check()


@every(enumerated)
def test_the_gradient_among_ties_is_that_of_the_score_of_the_output(member: Member) -> None:
    @given(member.small(True))
    def check(instance: Instance) -> None:
        value, y = member.build(*instance).max()
        allowed = value > -INF
        y = torch.where(allowed.view(-1, *[1] * (y.dim() - 1)), y, labels(member, instance))
        weights = torch.where(allowed, torch.arange(1.0, 1 + len(y)).cos().to(value), 0.0)
        build, potentials = member.on(instance), potentials_of(instance)
        _, actual = vjp(lambda *scores: build(*scores).max()[0], potentials, weights)
        _, expected = vjp(lambda *scores: build(*scores).score(y), potentials, weights)
        assert_close(actual, expected)

    check()


@pytest.mark.parametrize("size", ["single", "tiny"])
@every_oracle()
def test_gradcheck(member: Member, oracle: str, size: str) -> None:
    instance = member.random(size)
    build, y = member.on(instance), labels(member, instance)

    def finite(*potentials: Tensor) -> tuple[Tensor, ...]:
        return tuple(value[value > -INF] for value in ORACLES[oracle](build(*potentials), y))

    assert torch.autograd.gradcheck(
        finite, [scores.requires_grad_() for scores in potentials_of(instance)], fast_mode=size == "tiny"
    )


@pytest.mark.parametrize(("oracle", "forbidden"), [("logsumexp", 0.0), ("logsumexp", 0.3), ("marginals", 0.0)])
@every(has_exp_oracle)
def test_second_derivatives(member: Member, oracle: str, forbidden: float) -> None:
    instance = member.random("least", forbidden=forbidden)
    potentials, build = potentials_of(instance), member.on(instance)
    allowed = [scores > -INF for scores in potentials]

    def finite(*free: Tensor) -> tuple[Tensor, ...]:
        triples = zip(potentials, allowed, free, strict=True)
        full = [torch.full_like(scores, -INF).masked_scatter(own, values) for scores, own, values in triples]
        return tuple(value[value > -INF] for value in ORACLES[oracle](build(*full)))

    free = [scores[own].requires_grad_() for scores, own in zip(potentials, allowed, strict=True)]
    assert torch.autograd.gradgradcheck(finite, free, fast_mode=True)


@every()
def test_second_derivatives_of_the_projection(member: Member) -> None:
    """ℓ₂ smoothing is quadratic where its support and the K best outputs stay the same."""
    instance = member.random("tiny")
    potentials, build = potentials_of(instance), member.on(instance)
    smoother = L2(4.0, K)

    def smoothed(*potentials: Tensor) -> Tensor:
        return smoother(build(*potentials))

    inputs = [scores.requires_grad_() for scores in potentials]
    gradients = torch.autograd.grad(smoothed(*inputs).sum(), inputs, create_graph=True)
    curvature = torch.autograd.grad(torch.stack([g.square().sum() for g in gradients]).sum(), inputs)
    assert any(slope.any() for slope in curvature)
    assert torch.autograd.gradgradcheck(smoothed, inputs, fast_mode=True)


@every_oracle()
def test_an_example_without_outputs_has_no_gradient(member: Member, oracle: str) -> None:
    instance = member.random("medium")
    potentials = potentials_of(instance)
    potentials[0][member.block] = -INF
    assert not member.build(*instance).topk(K)[1][0].any()
    answer = member.values_and_gradients(oracle, instance)
    values, gradients = answer[: -len(potentials)], answer[-len(potentials) :]
    assert not any(tensor.isnan().any() for tensor in answer)
    assert gradients[0][1:].any()
    if oracle == "marginals":
        assert not any(value[0].any() for value in values)
    elif oracle != "score":
        assert (values[0][0] == -INF).any()
        assert not values[0][0].isfinite().logical_and(values[0][0] != 0).any()
    if oracle != "score":
        assert not any(gradient[0].any() for gradient in gradients if len(gradient) == len(potentials[0]))


@every()
def test_k_may_be_a_number_of_numpy(member: Member) -> None:
    structure = member.build(*member.random("tiny"))
    for number, own in zip(structure.topk(np.int64(2)), structure.topk(2), strict=True):
        assert torch.equal(number, own)


@every()
@both_ways
def test_topk_is_sorted_distinct_and_grows_at_the_end(ties: bool, member: Member) -> None:
    instance = member.random("medium", ties=ties, forbidden=0.02)
    structure = member.build(*instance)
    values, y = structure.topk(20)  # of which lists are merged otherwise than short ones
    assert (values > -INF).sum() >= 12
    assert_sorted_and_distinct(structure, (values, y), labels(member, instance))
    for k in range(1, 12):
        assert_close(structure.topk(k), (values[:, :k], y[:, :k]), rtol=0, atol=0)
    assert_close(structure.max(), (values[:, 0], y[:, 0]), rtol=0, atol=0)


# What must not matter.


@every_oracle(
    lambda name, member, oracle: (
        not any(n in name for n in ("Subwindows", "unmatched", "capacities", "DeformableTree", *PROGRAMS))
    )
)
def test_scores_added_to_a_variable_or_an_edge_add_to_every_output(member: Member, oracle: str) -> None:
    instance = member.random("medium")
    potentials, generator = potentials_of(instance), torch.Generator().manual_seed(1)
    used = member.used(*instance) if member.used else [torch.ones(1, dtype=torch.bool)] * len(potentials)
    moved, added = list(potentials), torch.zeros(len(potentials[0]), dtype=torch.float64)
    for i, (scores, own) in enumerate(zip(potentials, used, strict=True)):
        if i == 0 or scores.dim() == 4:  # else the example has one matrix for all edges
            size = 1 if i == 0 else 2  # dimensions of the states
            shift = torch.randn(scores.flatten(-size).shape[:-1], dtype=torch.float64, generator=generator)
            moved[i] = scores + shift.view(*shift.shape, *[1] * size)
            added += (
                (shift * own.expand_as(scores).flatten(-size).any(-1)).flatten(1).sum(1) if shift.dim() > 1 else shift
            )
    other = with_potentials(instance, moved)
    inside = used[0] if oracle == "max_marginals" else torch.ones(1, dtype=torch.bool)
    for before, after in zip(member.values(oracle, instance), member.values(oracle, other), strict=True):
        expected = before + (0.0 if oracle == "marginals" else added.view(-1, *[1] * (before.dim() - 1)))
        assert_close(after, torch.where(inside, expected, before))
    assert torch.equal(member.build(*instance).topk(K)[1], member.build(*other).topk(K)[1])


@pytest.mark.parametrize("garbage", [NAN, INF, -INF, 1e300])
@every_oracle(lambda name, member, oracle: member.used is not None)
def test_padding_may_hold_anything(member: Member, oracle: str, garbage: float) -> None:
    instance = member.random("medium")
    used = member.used(*instance)
    dirty = [scores.masked_fill(~own, garbage) for scores, own in zip(potentials_of(instance), used, strict=True)]
    clean = member.values_and_gradients(oracle, instance)
    assert_close(member.values_and_gradients(oracle, with_potentials(instance, dirty)), clean, rtol=0, atol=0)
    for gradient, own in zip(clean[-len(used) :], used, strict=True):
        assert not gradient.masked_fill(own, 0.0).any()


@every(lambda name, member: name.startswith(("LinearChain", "Tree", "Matching", "FactorGraph")))
def test_labels_at_padding_do_not_matter(member: Member) -> None:
    instance = member.random("medium")
    structure, y = member.build(*instance), labels(member, instance)
    nonsense = torch.where(structure.mask, y, -100)
    assert_close(structure.score(nonsense), structure.score(y), rtol=0, atol=0)
    assert_close(structure.parts(nonsense), structure.parts(y), rtol=0, atol=0)
    assert torch.equal(structure.checked_labels(nonsense), torch.where(structure.mask, y, 0))
    assert torch.equal(structure.lengths, structure.mask.unsqueeze(2).flatten(2).any(2).sum(1))
    assert not structure.topk(K)[1].movedim(1, -1)[~structure.mask].any()


@every()
def test_every_entry_of_a_batch_stands_alone(member: Member) -> None:
    """And without its padding."""
    instance = member.random("medium")
    whole = member.build(*instance)
    values, y = whole.topk(K)
    for b in range(len(values)):
        row = slice(b, b + 1)
        own, indices = member.alone(b, *instance) if member.alone else (rows(instance, row), [...] * 2)
        single = member.build(*own)
        own_values, own_y = single.topk(K)
        assert_close(own_values, values[row])
        for k in range(int((own_values > -INF).sum())):
            for part, own_part, index in zip(whole.parts(y[:, k]), single.parts(own_y[:, k]), indices, strict=False):
                assert_close(own_part[0], part[b][index])
        for oracle in member.oracles & {"max", "logsumexp"}:
            assert_close(ORACLES[oracle](single)[0], ORACLES[oracle](whole)[0][row])
        for oracle in member.oracles & {"marginals", "max_marginals"}:
            for part, own_part, index in zip(ORACLES[oracle](whole), ORACLES[oracle](single), indices, strict=False):
                assert_close(own_part[0], part[b][index])


@every_oracle()
def test_tensors_of_the_caller_stay_as_they_are(member: Member, oracle: str) -> None:
    instance = member.random("medium")
    expected = member.values(oracle, instance)
    first = potentials_of(instance)[0]
    strided = first.transpose(0, -1).contiguous().transpose(0, -1)
    instance = tuple(strided if tensor is first else tensor for tensor in instance)
    leaf = torch.zeros_like(first, requires_grad=True)
    before = [(tensor, tensor.clone(), tensor.requires_grad, tensor._version) for tensor in (*instance, leaf)]
    values = member.values(oracle, instance)
    assert_close(values, expected, rtol=0, atol=0)
    assert not any(value.requires_grad for value in values)
    with_leaf = tuple(leaf if tensor is strided else tensor for tensor in instance)
    torch.cat([value[value > -INF] for value in member.values(oracle, with_leaf)]).sum().backward()
    for tensor, content, requires_grad, version in before:
        assert torch.equal(tensor, content)
        assert (tensor.requires_grad, tensor._version) == (requires_grad, version)
        assert tensor.grad is None or tensor is leaf


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@every_oracle()
def test_oracles_work_where_gradients_are_off(member: Member, oracle: str, context: Callable[[], Any]) -> None:
    instance = member.random("medium")
    asked = changed(instance, lambda scores: scores.clone().requires_grad_())
    expected = tuple(value.detach() for value in member.values(oracle, asked))
    near = 1e-14 if oracle == "logsumexp" else 0.0  # which has a loop of its own where no gradient is asked
    with context():
        assert_close(member.values(oracle, [tensor.clone() for tensor in instance]), expected, rtol=near, atol=near)


@every_oracle(in_batches)
def test_an_empty_batch_gives_empty_answers(member: Member, oracle: str) -> None:
    instance = rows(member.random("tiny"), slice(0))
    for tensor in member.values_and_gradients(oracle, instance):
        assert tensor.shape[0] == 0 or not tensor.any()  # what is shared by all examples
    structure = member.build(*instance)
    assert structure.max()[1].shape[0] == 0
    assert structure.cost_augmented(labels(member, instance), member.cost).topk(2)[0].shape == (0, 2)


# Precision.


@every(lambda name, member: enumerated(name) and has_exp_oracle(name, member))
def test_scores_of_any_scale_keep_their_precision(member: Member) -> None:
    """Exponentials of such scores would overflow, or underflow beside each other."""

    @given(member.small(None), st.sampled_from([100.0, 400.0, 1e3, 5e3, 1e4]))
    def check(instance: Instance, scale: float) -> None:
        wide = changed(instance, lambda scores: scores * scale)
        for oracle, tolerance in (("max", 1e-8), ("max_marginals", 1e-8), ("logsumexp", 1e-9)):
            actual, expected = (member.values_and_gradients(oracle, wide, b) for b in (member.build, member.twin))
            compared = len(actual) if oracle == "logsumexp" else 1  # among ties any maximizer is a subgradient
            assert_close(actual[:compared], expected[:compared], rtol=1e-12, atol=tolerance)
        actual, expected = (s.marginals() for s in (member.build(*wide), member.twin(*wide)))
        assert_close(actual, expected, rtol=1e-9, atol=1e-9)

    check()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@every(in_batches, slow=True)
def test_of_huge_and_tiny_scores_all_oracles_say_the_same(member: Member, dtype: torch.dtype) -> None:
    """Of huge ones, the best output has all of the probability, although their differences round by more than one."""
    for scale in (1e-30, 1e19, 1e30):
        instance = member.random("medium", seed=1, forbidden=0.0 if "graph" in str(member.build) else 0.2)
        instance = changed(instance, lambda scores, scale=scale: (scores * scale).to(dtype))
        instance = rows(instance, member.build(*instance).max()[0] > -INF)
        structure = member.build(*instance)
        value, y = structure.max()
        near = {"rtol": 0, "atol": torch.finfo(dtype).eps * 100 * (float(value.abs().max()) + scale)}
        assert_close(structure.topk(2)[0][:, 0], value, **near)
        assert_close(structure.score(y), value, **near)
        if scale > 1.0 and "logsumexp" in member.oracles:
            assert_close(structure.logsumexp(), value, **near)
            assert_close(structure.marginals(), structure.parts(y), rtol=0, atol=1e-6, check_dtype=False)


@pytest.mark.parametrize("scale", [1.0, 1e4])
@every_oracle(in_batches)
def test_float32_is_close_to_float64(member: Member, oracle: str, scale: float) -> None:
    """Relative to the largest; probabilities and sums of them lose the digits before the point of the log-partition."""
    single = changed(member.random("long", seed=1), lambda scores: (scores * scale).float())
    actual, expected = (member.values_and_gradients(oracle, i) for i in (single, changed(single, Tensor.double)))
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert a.dtype == torch.float32
        finite = e.isfinite()
        assert torch.equal(a.isfinite(), finite)
        is_value = oracle != "marginals" and i == 0
        assert (a - e)[finite].abs().max() <= (1e-6 if is_value else 1e-5) * max(1.0, e[finite].abs().max())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_oracle(in_batches)
def test_half_precision_gives_values_in_float32(member: Member, oracle: str, dtype: torch.dtype) -> None:
    """Such scores are exact in float32, in which values are returned."""
    half = changed(member.random("medium"), lambda scores: scores.to(dtype))
    actual, expected = (member.values_and_gradients(oracle, i) for i in (half, changed(half, Tensor.float)))
    for a, e in zip(actual, expected, strict=True):
        is_value = a.dtype != dtype
        assert e.dtype == torch.float32
        assert_close(a, e if is_value else e.to(dtype), **({"rtol": 0, "atol": 0} if is_value else {}))
    assert actual[0].dtype == torch.float32
    assert [gradient.dtype for gradient in actual[-len(potentials_of(half)) :]] == [dtype] * len(potentials_of(half))


@every_oracle(lambda name, member, oracle: name.startswith(("LinearChain", "Tree", "BinaryGraph", "FactorGraph")))
def test_mixed_precision_takes_the_wider_type(member: Member, oracle: str) -> None:
    first, *others = potentials_of(instance := member.random("medium"))
    mixed, wide = (with_potentials(instance, (f, *others)) for f in (first.half(), first.half().double()))
    assert_close(member.values(oracle, mixed), member.values(oracle, wide), rtol=0, atol=0)


# Devices, threads and compilation.


@every_oracle(in_torch)
def test_oracles_in_torch_never_look_at_values(member: Member, oracle: str) -> None:
    """Tensors on the meta device have none: nothing waits for a GPU."""
    instance = member.random("medium")
    y = labels(member, instance)
    shapes = [value.shape for value in member.values(oracle, instance)]
    structure = member.build(*(tensor.to("meta") for tensor in instance), validate_args=False)
    assert [value.shape for value in ORACLES[oracle](structure, y.to("meta"))] == shapes


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_oracle(lambda name, member, oracle: "compiled" not in name and in_batches(name, member))
def test_other_devices(member: Member, oracle: str) -> None:
    instance = member.random("medium")
    there = member.values_and_gradients(oracle, [tensor.cuda() for tensor in instance])
    assert all(tensor.is_cuda for tensor in there)
    assert_close(tuple(tensor.cpu() for tensor in there), member.values_and_gradients(oracle, instance))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("loss", [StructuralHinge.crf(), StructuralHinge(L2())], ids=str)
def test_other_devices_replay_graphs(loss: StructuralHinge) -> None:
    def step(unary: Tensor, transition: Tensor, y: Tensor) -> Tensor:
        return loss(LinearChain(unary, transition, validate_args=False), y)

    generator = torch.Generator("cuda").manual_seed(0)

    def inputs() -> tuple[Tensor, ...]:
        scores = [torch.randn(shape, generator=generator, device="cuda") for shape in ((3, 5, 4), (4, 4))]
        labels = torch.randint(4, (3, 5), generator=generator, device="cuda")
        return *(own.requires_grad_() for own in scores), labels

    replayed = torch.cuda.make_graphed_callables(step, inputs())
    for run in (replayed, *[torch.compile(step, mode="reduce-overhead")] * 3):
        arguments = inputs()
        values = [own(*arguments) for own in (run, step)]
        gradients = [torch.autograd.grad(value, arguments[:2]) for value in values]
        assert_close(*values)
        assert_close(*gradients)


@pytest.mark.usefixtures("two_threads")
@every_oracle(lambda name, member, oracle: not in_torch(name, member) and in_batches(name, member))
def test_threads_do_not_change_the_answer(member: Member, oracle: str) -> None:
    # The derivatives of marginals of some structures are computed by torch, whose sums depend on threads.
    run = member.values if oracle == "marginals" else member.values_and_gradients
    instance = member.random("large", forbidden=0.01)
    shared = run(oracle, instance)
    torch.set_num_threads(1)
    assert_close(shared, run(oracle, instance), rtol=1e-13, atol=1e-13)


@every(
    lambda name, member: (
        in_batches(name, member)
        and not plans_when_built(name, member)
        and (not in_torch(name, member) or enumerated(name))
    ),
    slow=True,
)
def test_losses_compile_without_graph_breaks(member: Member) -> None:
    instance = member.random("tiny")
    y = second_best(member.build(*instance))
    smoothers = [Max(), L2(0.5, 3), Entropy(0.7)][: 3 if "logsumexp" in member.oracles else 2]
    losses = [StructuralHinge(smoother, member.cost) for smoother in smoothers]

    def run(*potentials: Tensor) -> Tensor:
        structure = member.on(instance)(*potentials)
        bare = member.build(*with_potentials(instance, potentials)[: member.required])
        values = [*(loss(structure, y) for loss in losses), bare.score(y)[0]]
        if "max_marginals" in member.oracles:
            marginals = structure.max_marginals()
            values.append(torch.where(marginals > -INF, marginals, 0.0).sum())
        return torch.stack(values)

    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")  # raises at a graph break
    potentials = potentials_of(instance)
    weights = torch.arange(1.0, 1 + len(run(*potentials)), dtype=torch.float64)
    assert_close(vjp(compiled, potentials, weights), vjp(run, potentials, weights))


@pytest.mark.parametrize("oracle", ["logsumexp", "marginals", "max_marginals"])
@every(lambda name, member: not has_exp_oracle(name, member))
def test_a_missing_oracle_is_named(member: Member, oracle: str) -> None:
    structure = member.structure()
    name = type(structure).__name__
    if oracle not in member.oracles:
        # Marginals are the gradient of the log-partition function.
        named = {"marginals": "(marginals|logsumexp)"}.get(oracle, oracle)
        with pytest.raises(NotImplementedError, match=rf"{name} has no exact {named} oracle; use .* topk\(\), .* L2"):
            getattr(structure, oracle)()
    with pytest.raises(NotImplementedError, match=f"{name} has no exact logsumexp"):
        Entropy(1.0)(structure)


@every(lambda name, member: "compiled" in name)
@pytest.mark.parametrize(("size", "ties"), [("single", True), ("medium", True), ("medium", False), ("long", False)])
def test_backends_agree(member: Member, size: str, ties: bool) -> None:
    (name,) = (name for name, other in MEMBERS.items() if other is member)
    plain = MEMBERS[name.replace("compiled", "torch")]
    instance = member.random(size, ties=ties, forbidden=0.02)
    assert_same_oracles(member.build(*instance), plain.build(*instance), labels(member, instance), k=9)
    for oracle in member.oracles:
        if oracle != "max_marginals" or not ties:
            actual, expected = (m.values_and_gradients(oracle, instance) for m in (member, plain))
            assert_close(actual, expected, rtol=1e-10, atol=1e-10)


# Other potentials, and costs.


@every()
def test_replacing_keeps_everything_but_the_potentials(member: Member) -> None:
    instance, other = member.random("tiny"), member.random("tiny", seed=1)
    for options in ({}, {"validate_args": False}):
        structure = member.build(*instance, **options)
        structure.note = "of the user"
        expected = structure.topk(K)  # fills caches
        attributes = dict(vars(structure))
        moved = structure.replace(*potentials_of(other))
        assert type(moved) is type(structure)
        assert all(a is b for a, b in zip(moved.potentials, potentials_of(other), strict=True))
        for name, value in attributes.items():
            assert getattr(structure, name) is value
            cached = isinstance(getattr(type(structure), name, None), cached_property)
            if name not in structure.potential_names and not cached:
                assert getattr(moved, name) is value, name
        alike = member.build(*with_potentials(instance, potentials_of(other)), **options)
        assert_close(moved.topk(K), alike.topk(K), rtol=0, atol=0)
        assert_close(structure.topk(K), expected, rtol=0, atol=0)


@every(in_batches)
def test_batched_structures_have_a_row_for_each_example(member: Member) -> None:
    instance = member.random("medium")
    structure = member.build(*instance)
    batch, batched = len(structure.potentials[0]), structure.batched()
    assert batched is not None
    assert all(len(scores) == batch for scores in batched.potentials)
    assert (batched is structure) == all(len(scores) == batch for scores in structure.potentials)
    for oracle in member.oracles:
        own = member.values_and_gradients(oracle, instance)
        assert_close(member.values_and_gradients(oracle, instance, lambda *t: member.build(*t).batched()), own)


@every()
def test_hinges_are_bounds_on_the_cost(member: Member) -> None:
    structure = member.structure()
    y = second_best(structure)
    augmented = structure.cost_augmented(y, member.cost)
    best = structure.max()[1]
    costs = augmented.score(best) - structure.score(best)
    assert_close(augmented.score(y), structure.score(y))
    assert (costs >= 0).all()
    assert costs.any()
    hinge, smoothed = (StructuralHinge(s, member.cost, "none")(structure, y) for s in (None, L2(mu=0.5, k=5)))
    assert_close(hinge, augmented.max()[0] - structure.score(y))
    assert (hinge >= costs).all()
    assert ((smoothed - hinge >= 0) & (smoothed - hinge <= 0.25)).all()


@every()
def test_costs_may_add_to_every_kind_of_part(member: Member) -> None:
    for seed in range(5):
        instance, costs = member.random("tiny", seed=seed), potentials_of(member.random("tiny", seed=seed + 99))
        structure = member.build(*instance)
        y = second_best(structure)
        only_last = (*[torch.zeros(())] * (len(costs) - 1), costs[-1])
        for added in (costs, only_last):
            sums = [scores + part_costs for scores, part_costs in zip(potentials_of(instance), added, strict=True)]
            twin = member.twin(*with_potentials(instance, sums))
            for cost in (added, lambda structure, y, added=added: added):
                augmented = structure.cost_augmented(y, cost)
                assert_lists(augmented, augmented.topk(9), twin.topk(9)[0], y)
                expected = twin.max()[0] - structure.score(y)
                assert_close(StructuralHinge(cost=cost, reduction="none")(structure, y), expected)
            full = [part_costs.expand(scores.shape) for scores, part_costs in zip(sums, added, strict=True)]
            costs_alone = member.twin(*with_potentials(instance, full))
            assert_close(augmented.score(y) - structure.score(y), costs_alone.score(y))
