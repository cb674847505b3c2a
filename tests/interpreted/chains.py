"""Kernels of chains, in the interpreter, against torch in float64; run by ``tests/test_kernels_run.py``."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from enumeration import FORMS, Potentials, random_chains
from interpreted.counting import DEVICE, computing, counted, each_kernel, failing, needs_interpreter
from torch import Tensor
from torch.testing import assert_close
from traced import traced

from structsmooth import L2, Entropy, LinearChain, StructuralHinge
from structsmooth.structures.chain.fused import stretches, tiles
from structsmooth.structures.operators import OPERATORS

# Batch, positions, states, lengths: one of each, sizes that are no power of two, and two tiles of 70 states.
SHAPES = [
    (3, 6, 5, [6, 1, 4]),
    (1, 5, 3, [5]),
    (2, 1, 4, [1, 1]),
    (2, 4, 1, [4, 3]),
    (2, 2, 2, [1, 2]),
    (1, 3, 70, [3]),
]
LOSSES = [StructuralHinge.crf(), StructuralHinge(), StructuralHinge(L2()), StructuralHinge(Entropy(0.5))]
OPTIONS: dict[str, dict[str, Any]] = {"": {}, "ties": {"ties": True}, "forbidden": {"forbidden": 0.25}}

# What numpy says of -inf, which the interpreter computes with.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(divide by zero|invalid value|All-NaN slice) encountered:RuntimeWarning"
)

every_instance = pytest.mark.parametrize(
    "instance",
    [
        pytest.param(
            random_chains(*shape, form, lengths=lengths, **options),
            id=f"{shape} {form} {name}",
            marks=() if (i + j + k) % 3 == 0 else pytest.mark.long,  # two of shape, form and options occur together
        )
        for i, (*shape, lengths) in enumerate(SHAPES)
        for j, form in enumerate(FORMS)
        for k, (name, options) in enumerate(OPTIONS.items())
        if not (name and 1 in shape[:2])
    ],
)


def on(backend: str, unary: Tensor, transition: Tensor, lengths: Tensor | None = None, **options: Any) -> LinearChain:
    own = [tensor.to(DEVICE) if isinstance(tensor, Tensor) else tensor for tensor in (unary, transition, lengths)]
    options = {name: own.to(DEVICE) if isinstance(own, Tensor) else own for name, own in options.items()}
    return LinearChain(*own, backend=backend, **options)


def agree(instance: Potentials, query: Callable[[LinearChain], Any], **tolerances: float) -> None:
    assert_close(query(on("triton", *instance)), query(on("torch", *instance)), **tolerances)


def derivatives(query: Callable[[LinearChain], tuple[Tensor, ...]], order: int) -> Callable[[LinearChain], Any]:
    """Weighted sums of derivatives of a query up to an order."""

    def of(chain: LinearChain) -> list[Tensor]:
        inputs = [scores.clone().requires_grad_() for scores in chain.potentials]
        answers, found = query(chain.replace(*inputs)), []
        for _ in range(order):
            finite = [torch.where(answer > -torch.inf, answer, 0.0) for answer in answers]
            weights = [torch.linspace(-1, 2, f.numel(), dtype=f.dtype, device=f.device).view(f.shape) for f in finite]
            total = torch.stack([(w * f).sum() for w, f in zip(weights, finite, strict=True)]).sum()
            answers = torch.autograd.grad(total, inputs, create_graph=True, materialize_grads=True)
            found += [answer.detach() for answer in answers]
        return found

    return of


@every_instance
def test_exp_oracle(instance: Potentials) -> None:
    agree(instance, lambda chain: chain.logsumexp())
    agree(instance, derivatives(lambda chain: (chain.logsumexp(),), order=2))
    agree(instance, lambda chain: chain.marginals())
    agree(instance, derivatives(lambda chain: chain.marginals(), order=1))
    agree(instance, lambda chain: chain.max_marginals())


@every_instance
def test_top_k_oracle(instance: Potentials) -> None:
    """Ties go to the same outputs, and there may be fewer than K."""
    for k in (1, 3):
        agree(instance, lambda chain, k=k: chain.topk(k))
        agree(instance, derivatives(lambda chain, k=k: (chain.topk(k)[0],), order=1))


@pytest.mark.parametrize("options", [{}, {"ties": True}, {"forbidden": 0.9}], ids=str)
def test_smoothed_maximum(options: dict[str, Any]) -> None:
    """With its second derivatives, and where fewer than K outputs are possible."""
    for mu, k in ((0.3, 3), (20.0, 4)):
        instance, smoother = random_chains(3, 4, 3, FORMS[1], lengths=[4, 1, 2], **options), L2(mu, k)
        agree(instance, lambda chain, smoother=smoother: smoother.with_max(chain))
        agree(instance, derivatives(lambda chain, smoother=smoother: (smoother(chain),), order=2))


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each position is a launch of its own, whose programs share the states in several tiles."""
    for name, size in {"WIDEST": 0, "OWN": 2, "OTHERS": 4}.items():
        monkeypatch.setattr(tiles, name, size)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(("form", "options"), [*zip(FORMS, OPTIONS.values(), strict=True)])
def test_launches_for_each_position(form: str, options: dict[str, Any]) -> None:
    instance = random_chains(3, 4, 5, form, lengths=[4, 1, 3], **options)
    agree(instance, lambda chain: chain.logsumexp())
    agree(instance, derivatives(lambda chain: (chain.logsumexp(),), order=2))
    agree(instance, lambda chain: chain.marginals())
    agree(instance, lambda chain: chain.topk(1))
    agree(instance, lambda chain: chain.sample(2, torch.Generator().manual_seed(0)))


@needs_interpreter
def test_launches_of_many_states() -> None:
    """One for each position but the first, and one that leads back; up to 128 states, one and one."""
    for states, launches in ((128, 2), (129, 4)):
        instance = random_chains(1, 4, states, lengths=[3])
        with counted() as traffic:
            agree(instance, lambda chain: chain.topk(1))
        assert traffic.launches == launches
    agree(instance, derivatives(lambda chain: (chain.logsumexp(),), order=1))


@every_instance
def test_scores(instance: Potentials) -> None:
    y = on("torch", *instance).topk(2)[1][:, -1]
    agree(instance, lambda chain: chain.score(y))
    agree(instance, derivatives(lambda chain: (chain.score(y),), order=1))


def test_traced_results_have_the_shapes_of_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = on("triton", *random_chains(3, 5, 4, FORMS[2]))
    with traced() as names:
        for query in (lambda c: c.marginals(), lambda c: (c.topk(3)[0], c.max_marginals(), L2(0.3, 3)(c))):
            derivatives(query, order=1)(chain)
        chain.score(chain.max()[1])
        chain.sample(3)
        monkeypatch.setattr(stretches, "_LONG", 2)
        derivatives(lambda c: (c.logsumexp(), c.max()[0]), order=1)(on("triton", *random_chains(3, 5, 4)))
    assert names == {name for name in OPERATORS if name.startswith("chain_fused")}


@every_instance
def test_samples(instance: Potentials) -> None:
    agree(instance, lambda chain: chain.sample(3, torch.Generator().manual_seed(0)))


def test_third_derivatives() -> None:
    instance = random_chains(2, 3, 2, FORMS[2], lengths=[3, 2])
    agree(instance, derivatives(lambda chain: (chain.logsumexp(),), order=3))
    agree(instance, derivatives(lambda chain: chain.marginals(), order=2))


def test_gradients_of_max_marginals() -> None:
    agree(random_chains(2, 4, 3, lengths=[4, 2]), derivatives(lambda chain: (chain.max_marginals(),), order=1))


def test_derivatives_by_differences() -> None:
    unary, transition, lengths = random_chains(2, 2, 2, FORMS[1])
    inputs = unary.requires_grad_(), transition.requires_grad_()

    def log_z(unary: Tensor, transition: Tensor) -> Tensor:
        return on("triton", unary, transition, lengths).logsumexp()

    assert torch.autograd.gradcheck(log_z, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(log_z, inputs, fast_mode=True)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # that of torch for jvp
def test_transforms() -> None:
    unary, transition, lengths = random_chains(2, 2, 2)
    unary = unary.to(DEVICE)

    def gradient(backend: str) -> Callable[[Tensor], Tensor]:
        return torch.func.grad(lambda scores: on(backend, scores, transition, lengths).logsumexp().sum())

    own, expected = gradient("triton"), gradient("torch")
    assert_close(torch.func.jvp(own, (unary,), (unary.cos(),)), torch.func.jvp(expected, (unary,), (unary.cos(),)))
    both = torch.stack([unary, unary.sin()])
    assert_close(torch.func.vmap(own)(both), torch.func.vmap(expected)(both))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_sums_are_at_least_float32(dtype: torch.dtype) -> None:
    unary, transition, lengths = (t.to(dtype) if t.is_floating_point() else t for t in random_chains(2, 8, 5))
    double = on("torch", unary.double(), transition.double(), lengths)
    own = on("triton", unary, transition, lengths)
    assert own.logsumexp().dtype == torch.float32
    assert_close(own.logsumexp().double(), double.logsumexp(), rtol=2e-7, atol=0)
    assert_close(own.marginals()[0].double(), double.marginals()[0], rtol=0, atol=1e-6)
    assert_close(own.max()[0].double(), double.max()[0], rtol=2e-7, atol=0)
    assert torch.equal(own.max()[1], double.max()[1])
    assert_close(own.max_marginals().double(), double.max_marginals(), rtol=2e-7, atol=0)


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.long)])
def test_long_chains_lose_no_digits(apart: bool, request: pytest.FixtureRequest) -> None:
    """Large scores at 120 positions: without what rounding took, log-sums err by 3e-7 here."""
    if apart:
        request.getfixturevalue("wide")
    unary, transition, _ = random_chains(1, 120, 3)
    single = (unary * 30).float(), (transition * 30).float()
    own, double = on("triton", *single), on("torch", *(scores.double() for scores in single))
    assert_close(own.logsumexp().double(), double.logsumexp(), rtol=1e-7, atol=0)
    assert_close(own.max()[0].double(), double.max()[0], rtol=1e-7, atol=0)
    assert_close(own.marginals()[0].double(), double.marginals()[0], rtol=0, atol=3e-5)


def test_masks_and_ends() -> None:
    unary, transition, _ = random_chains(3, 6, 4)
    mask = torch.tensor([[1, 0, 1, 1, 0, 1], [0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]).bool()
    start, stop = unary[0, 0], unary[0, 1]
    ends: dict[str, Any] = {"mask": mask, "start": start, "stop": stop}
    a, b = (on(backend, unary, transition, **ends) for backend in ("triton", "torch"))
    for query in (lambda c: c.logsumexp(), lambda c: c.marginals(), lambda c: c.topk(2)):
        assert_close(query(a), query(b))


def test_what_is_out_of_range_is_not_read() -> None:
    """Lengths count as the nearest that there are, and labels that are no state give NaN."""
    unary, transition, _ = random_chains(2, 3, 2)
    lengths = torch.tensor([-1, 9]), torch.tensor([1, 3])
    wrong, right = (on("triton", unary, transition, own, validate_args=False) for own in lengths)
    assert_close(wrong.logsumexp(), right.logsumexp())
    score = right.score(torch.tensor([[0, 0, 0], [0, 2, 0]]).to(DEVICE))
    assert score.isnan().tolist() == [False, True]


def test_results_are_deterministic() -> None:
    instance = random_chains(3, 6, 5)
    first, second = (derivatives(lambda c: (c.logsumexp(),), order=2)(on("triton", *instance)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("form", FORMS[:2])
@pytest.mark.parametrize("steps", [2, pytest.param(3, marks=pytest.mark.long)])
def test_long_chains_in_stretches(form: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lengths that end at an end of a stretch, within one, and before the last ones."""
    instance = random_chains(3, 7, 3, form, forbidden=0.2, lengths=[7, 4, 1])
    y = torch.tensor([[0, 1, 2, 0, 1, 2, 0]] * 3).to(DEVICE)
    monkeypatch.setattr(stretches, "STEPS", steps)
    monkeypatch.setattr(stretches, "_LONG", 2)
    for values in (LinearChain.logsumexp, lambda chain: finite(chain.surprisal(y)), lambda chain: chain.max()[0]):
        agree(instance, values)
        agree(instance, derivatives(lambda chain, values=values: (values(chain),), order=1))
    agree(instance, derivatives(lambda chain: (chain.logsumexp(),), order=2))
    agree(instance, lambda chain: chain.marginals())
    chain = on("triton", *instance)
    best, found = chain.max()
    assert_close(chain.score(found), torch.where(best > -torch.inf, best, chain.score(found)))
    assert chain[:0].max()[0].shape == (0,)


@needs_interpreter
@pytest.mark.parametrize("kernel", ["transfers", "score", "backward"])
def test_plain_torch_takes_the_place_of_stretches(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = random_chains(3, 7, 3, forbidden=0.2, lengths=[7, 4, 1])
    y = torch.tensor([[0, 1, 2, 0, 1, 2, 0]] * 3)
    monkeypatch.setattr(stretches, "STEPS", 2)
    monkeypatch.setattr(stretches, "_LONG", 2)
    with failing(kernel):
        agree(instance, derivatives(lambda chain: (finite(chain.surprisal(y)), chain.max()[0]), order=1))
        agree(instance, lambda chain: chain.marginals())


@needs_interpreter
def test_plain_torch_gives_wrong_examples_no_gradient() -> None:
    unary, transition, _ = random_chains(2, 4, 3)
    unary[0, 1, 2] = torch.nan
    y = torch.ones(2, 4, dtype=torch.int64)
    query = derivatives(lambda chain: (finite(StructuralHinge.crf("none")(chain, y)),), order=2)
    with failing("forward"):
        assert_close(*(query(on(backend, unary, transition, validate_args=False)) for backend in ("triton", "torch")))


def test_stretches_lose_nothing_to_states_that_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "STEPS", 20)
    monkeypatch.setattr(stretches, "_LONG", 2)
    unary, transition, _ = random_chains(1, 61, 3)
    transition[2] = -torch.inf
    instance = unary.float() - 300, transition.float(), torch.tensor([61])
    chain, wide = on("triton", *instance), on("torch", *instance).to(torch.float64)
    assert_close(chain.marginals()[0].double(), wide.marginals()[0], rtol=0, atol=1e-4)


def test_likelihoods_of_large_scores_keep_their_digits() -> None:
    unary, transition, lengths = random_chains(2, 5, 3)
    chain = on("triton", (unary + 1000).float(), transition.float(), lengths)
    y = chain.max()[1]
    for values in (chain.surprisal(y), -chain.log_prob(y)):
        assert_close(values.double(), chain.to(torch.float64).surprisal(y), rtol=1e-4, atol=0)


def finite(values: Tensor) -> Tensor:
    return torch.where(values.isfinite(), values, 0.0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("states", [3, pytest.param(70, marks=pytest.mark.long)])
def test_likelihoods_of_wrong_examples_are_infinite(form: str, states: int) -> None:
    """They have no gradient of any order, and other examples do not notice."""
    unary, transition, _ = random_chains(4, 4, states, form)
    unary[0, 1, 2], unary[1, 2, 1], unary[2, 3, 0] = torch.nan, -torch.inf, torch.inf
    y = torch.ones(4, 4, dtype=torch.int64, device=DEVICE)
    query = derivatives(lambda chain: (finite(StructuralHinge.crf("none")(chain, y)),), order=2)
    chains = [on(backend, unary, transition, validate_args=False) for backend in ("triton", "torch")]
    assert_close(*map(query, chains))
    losses = StructuralHinge.crf("none")(chains[0], y.where(y.new_ones(4).cumsum(0) < 4, states))
    assert losses.tolist() == [torch.inf] * 4


@needs_interpreter
@pytest.mark.parametrize(("loss", "launches"), list(zip(LOSSES, (4, 5, 4, 4), strict=True)), ids=str)
def test_a_loss_launches_few_kernels(loss: StructuralHinge, launches: int) -> None:
    unary, transition, lengths = random_chains(2, 3, 4)
    y = torch.zeros(2, 3, dtype=torch.int64)
    inputs = unary.requires_grad_(), transition.requires_grad_()
    with counted() as traffic:
        loss(on("triton", *inputs, lengths), y).backward()
    assert traffic.launches == launches


@needs_interpreter
def test_a_likelihood_launches_nothing_between_its_kernels() -> None:
    """Apart from four kernels: of the mean and its gradient, where values are finite, and of a sum of transitions."""
    unary, transition, lengths = random_chains(2, 3, 4)
    chain = on("triton", unary.requires_grad_(), transition.requires_grad_(), lengths, validate_args=False)
    y = torch.zeros(2, 3, dtype=torch.int64)
    with computing() as names:
        StructuralHinge.crf()(chain, y).backward()
    assert names == ["chain_fused_filter", "mean", "ones_like", "div", "mul", "chain_fused_smooth", "sum"]


@needs_interpreter
@pytest.mark.parametrize(
    ("query", "most"), [(LinearChain.logsumexp, 3), (lambda c: StructuralHinge()(c, torch.zeros(1, 128).long()), 3.5)]
)
def test_bytes_of_values_with_gradients(query: Callable[[LinearChain], Tensor], most: float) -> None:
    """Of a sequence of 128 positions and 32 states, forward and backward: 3.5 times inputs and gradients at most."""
    unary, transition = torch.randn(1, 128, 32, requires_grad=True), torch.randn(32, 32, requires_grad=True)
    with counted() as traffic:
        query(on("triton", unary, transition)).backward()
    arguments = sum(2 * tensor.nbytes for tensor in (unary, transition))
    assert arguments < traffic.bytes <= most * arguments


@needs_interpreter
@each_kernel("backward", "forward", "tangent", "sample", "top_k", "score", "parts", "max_marginals")
def test_plain_torch_takes_their_place(kernel: str) -> None:
    instance, y = random_chains(2, 4, 3, FORMS[0], lengths=[4, 2]), torch.tensor([[0, 1, 2, 0], [2, 1, 0, 0]])
    with failing(kernel):
        agree(instance, derivatives(lambda chain: (chain.logsumexp(),), order=2))
        agree(instance, derivatives(lambda chain: chain.marginals(), order=1))
        agree(instance, derivatives(lambda chain: (chain.topk(2)[0], L2(0.3, 3)(chain), chain.score(y)), order=1))
        for query in (lambda chain: chain.topk(3), lambda chain: chain.max_marginals(), L2(20.0, 3).with_max):
            agree(instance, query)
        agree(instance, lambda chain: chain.sample(3, torch.Generator().manual_seed(0)))


@needs_interpreter
@pytest.mark.usefixtures("wide")
@each_kernel("forward_step", "backward_step")
def test_plain_torch_takes_the_place_of_launches_for_each_position(kernel: str) -> None:
    instance = random_chains(2, 4, 3, FORMS[0], lengths=[4, 2])
    with failing(kernel):
        if kernel == "forward_step":
            agree(instance, lambda chain: chain.sample(3, torch.Generator().manual_seed(0)))
            agree(instance, lambda chain: chain.topk(1))
        agree(instance, derivatives(lambda chain: (chain.logsumexp(),), order=2))


def test_tiles_of_thousands_of_states() -> None:
    for states in (2049, 5000, 20_000):
        assert all(tile > 0 for tile in tiles.tiles_of(states, 4).values())


def test_float32_marginals_of_a_constant_sum_have_no_gradient() -> None:
    unary, transition, lengths = random_chains(2, 5, 3, FORMS[0], lengths=[5, 3])
    chain = on("triton", unary.float(), transition.float(), lengths)
    found = derivatives(lambda chain: (torch.stack([m.sum() for m in chain.marginals()]),), order=1)(chain)
    assert max(float(gradient.abs().max()) for gradient in found) < 1e-12
