"""Kernels of programs, in the interpreter, against torch in float64; run by ``tests/test_kernels_run.py``."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from interpreted.counting import DEVICE, counted, each_kernel, failing, grids, needs_interpreter
from member import Instance, Member, changed, potentials_of, with_potentials
from program_members import PROGRAMS
from torch import Tensor
from torch.testing import assert_close
from traced import traced

from structsmooth import L2, SemiMarkov, StructuralHinge
from structsmooth.programs import DynamicProgram
from structsmooth.structures.operators import OPERATORS

# What numpy says of -inf, which the interpreter computes with.
pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning")

OPTIONS: dict[str, dict[str, Any]] = {"": {}, "ties": {"ties": True}, "forbidden": {"forbidden": 0.25}}
NAMES = [name for name in PROGRAMS if name.endswith(" torch")]
# Their programs have no kind of edges that others lack, and more of them.
LONG = {"Accepted torch", "LowRankChain torch", "SiblingTree torch", "Grammar torch"}

every_program = pytest.mark.parametrize(
    ("member", "instance"),
    [
        pytest.param(
            PROGRAMS[name],
            PROGRAMS[name].random(size, **options),
            id=f"{name} {size} {how}",
            marks=() if (i + j + k) % 3 == 0 and size != "tiny" and name not in LONG else pytest.mark.long,
        )
        for i, name in enumerate(NAMES)
        for j, size in enumerate(("single", "least", "tiny"))
        for k, (how, options) in enumerate(OPTIONS.items())
        if not (how and size == "single")
    ],
)


def on(backend: str, member: Member, instance: Instance) -> DynamicProgram:
    device = "cpu" if backend == "compiled" else DEVICE
    found: DynamicProgram = partial(member.build, backend=backend)(*(tensor.to(device) for tensor in instance))
    return found


def agree(member: Member, instance: Instance, query: Callable[[DynamicProgram], Any]) -> None:
    assert_close(query(on("triton", member, instance)), query(on("torch", member, instance)))


def gradients(member: Member, instance: Instance, query: Callable[[DynamicProgram], Tensor], backend: str) -> Any:
    inputs = [scores.clone().requires_grad_() for scores in potentials_of(instance)]
    answer = query(on(backend, member, with_potentials(instance, inputs)))
    weights = torch.linspace(-1, 2, answer.numel(), dtype=answer.dtype, device=answer.device).view(answer.shape)
    total = (torch.where(answer > -torch.inf, answer, 0.0) * weights).sum()
    return torch.autograd.grad(total, inputs, materialize_grads=True)


def turned(
    member: Member, instance: Instance, query: Callable[[DynamicProgram], Tensor], backend: str, order: int = 2
) -> Any:
    """Derivatives of the gradients."""
    inputs = [scores.clone().requires_grad_() for scores in potentials_of(instance)]
    answer = query(on(backend, member, with_potentials(instance, inputs)))
    found: Any = (torch.where(answer > -torch.inf, answer, 0.0),)
    for step in range(order):
        weights = [torch.linspace(-1, 2, own.numel(), dtype=own.dtype).view(own.shape).to(own.device) for own in found]
        total = torch.stack([(w * own).sum() for w, own in zip(weights, found, strict=True)]).sum()
        found = torch.autograd.grad(total, inputs, create_graph=step < order - 1, materialize_grads=True)
    return found


@every_program
def test_oracles(member: Member, instance: Instance) -> None:
    for query in (lambda s: s.logsumexp(), lambda s: s.marginals(), lambda s: s.topk(1)[0], lambda s: s.topk(3)[0]):
        agree(member, instance, query)
    for value in (lambda s: s.logsumexp(), lambda s: s.marginals()[0]):
        found, expected = (gradients(member, instance, value, backend) for backend in ("triton", "torch"))
        assert_close(found, expected)


@every_program
def test_outputs_are_those_of_compiled_loops(member: Member, instance: Instance) -> None:
    """Torch has another order of equal scores, and other numbers of visited nodes."""
    own, compiled = (on(backend, member, instance) for backend in ("triton", "compiled"))
    for k in (1, 3):
        assert torch.equal(own.topk(k)[1].cpu(), compiled.topk(k)[1])
    draws = [structure.sample(3, torch.Generator().manual_seed(0)) for structure in (own, compiled)]
    assert torch.equal(draws[0].cpu(), draws[1])


@every_program
def test_gradients_of_the_best_values(member: Member, instance: Instance) -> None:
    own, compiled = (gradients(member, instance, lambda s: s.topk(2)[0], b) for b in ("triton", "compiled"))
    assert_close(own, compiled)


@pytest.mark.parametrize(("name", "how"), [("SemiMarkov torch", "forbidden"), ("Constituents torch", "ties")])
def test_second_derivatives_and_max_marginals(name: str, how: str) -> None:
    """Of a program whose outputs use a score several times, and of one whose edges have two tails."""
    member = PROGRAMS[name]
    instance = member.random("least", **OPTIONS[how])
    agree(member, instance, lambda s: s.max_marginals())
    for query in (lambda s: s.logsumexp(), lambda s: s.marginals()[0], L2(0.3, 3), L2(20.0, 3)):
        found, expected = (turned(member, instance, query, backend) for backend in ("triton", "compiled"))
        assert_close(found, expected)


def test_traced_results_have_the_shapes_of_real_ones() -> None:
    member = PROGRAMS["Subset torch"]
    instance = member.random("medium")
    with traced() as names:
        for query in (lambda s: s.logsumexp(), L2(20.0, 3)):
            turned(member, instance, query, "triton")
        structure = on("triton", member, instance)
        structure.max()
        structure.max_marginals()
        structure.sample(3)
    assert names == {name for name in OPERATORS if name.startswith("program_fused")}


def test_sums_are_at_least_float32() -> None:
    member = PROGRAMS["Paths torch"]
    instance = changed(member.random("tiny"), lambda scores: scores.bfloat16())
    own = on("triton", member, instance)
    double = on("torch", member, changed(instance, lambda scores: scores.double()))
    for query in (lambda s: s.logsumexp(), L2(0.5, 2)):
        assert query(own).dtype == torch.float32
        assert_close(query(own).double(), query(double), rtol=1e-6, atol=1e-6)


def test_third_derivatives() -> None:
    member = PROGRAMS["Paths torch"]
    instance = member.random("least")
    for query in (lambda s: s.logsumexp(), lambda s: s.marginals()[0]):
        found, expected = (turned(member, instance, query, backend, order=3) for backend in ("triton", "torch"))
        assert_close(found, expected)


def test_gradients_of_max_marginals() -> None:
    member = PROGRAMS["Paths torch"]
    instance = member.random("least", forbidden=0.25)
    found, expected = (gradients(member, instance, lambda s: s.max_marginals(), b) for b in ("triton", "compiled"))
    assert_close(found, expected)


@needs_interpreter
@pytest.mark.parametrize("name", ["Constituents torch", "Subset torch"])
def test_a_loss_launches_five_kernels(name: str) -> None:
    member = PROGRAMS[name]
    instance = member.random("least")
    inputs = [scores.clone().requires_grad_() for scores in potentials_of(instance)]
    for loss in (StructuralHinge.crf(), StructuralHinge(cost=member.cost), StructuralHinge(L2(), cost=member.cost)):
        with counted() as traffic:
            loss(on("triton", member, with_potentials(instance, inputs)), member.labels(inputs[0])).backward()
        assert traffic.launches == 5


@needs_interpreter
@each_kernel("adjoints", "sums", "parts", "tangents", "turned_parts")
def test_plain_torch_takes_the_place_of_sums(kernel: str) -> None:
    member = PROGRAMS["Constituents torch"]
    instance = member.random("least")
    largest = kernel in {"sums", "adjoints", "parts"}
    with failing(kernel):
        found = turned(member, instance, lambda s: s.logsumexp(), "triton")
        if largest:
            agree(member, instance, lambda s: s.max_marginals())
            agree(member, instance, lambda s: s.marginals())
    assert_close(found, turned(member, instance, lambda s: s.logsumexp(), "torch"))


@needs_interpreter
@each_kernel("follow", "best", "weighted_uses", "scores_of_outputs", "draw")
def test_plain_torch_takes_the_place_of_outputs(kernel: str) -> None:
    member = PROGRAMS["ProjectiveTree torch" if kernel == "scores_of_outputs" else "SemiMarkov torch"]
    instance = member.random("least")
    y = on("torch", member, instance).topk(2)[1][:, 1]
    with failing(kernel):
        agree(member, instance, lambda s: s.topk(2))
        agree(member, instance, lambda s: s.score(y))
        sample = on("triton", member, instance).sample(2, torch.Generator().manual_seed(0))
        pairs = [[gradients(member, instance, q, b) for b in ("triton", "torch")] for q in (L2(0.3, 3), L2(20.0, 3))]
    assert sample.shape[1] == 2
    for found, expected in pairs:
        assert_close(found, expected)


@needs_interpreter
def test_grids_of_more_scores_than_their_other_dimensions_have() -> None:
    unary, transition, durations = (torch.zeros(shape) for shape in ((2, 600, 2), (2, 2), (500, 2)))
    chain = SemiMarkov(unary.requires_grad_(), transition, durations, backend="triton")
    with grids() as found:
        chain.logsumexp().sum().backward()
        SemiMarkov(torch.zeros(1, 2, 2), transition, durations[:2], backend="triton").sample(70_000)
    assert all(len(grid) == 1 for grid in found.values())
    assert found["parts"][0] > 2 * 2**15 < found["draw"][0]


def test_float32_marginals_of_a_constant_sum_have_no_gradient() -> None:
    member = PROGRAMS["Subset torch"]
    instance = changed(member.random("tiny"), lambda scores: scores.float())
    found = gradients(member, instance, lambda s: torch.stack([m.sum() for m in s.marginals()]), "triton")
    assert max(float(gradient.abs().max()) for gradient in found) < 1e-12
