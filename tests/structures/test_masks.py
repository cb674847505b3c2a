"""Chains with masks, start and stop scores: each sequence as if it stood alone, without the masked positions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth import L2, LinearChain, NormalizedHamming, StructuralHinge, transition_mask

B, T, S = 4, 6, 3
IGNORED = -100
LOSSES = {
    "crf": StructuralHinge.crf("none"),
    "hinge": StructuralHinge(L2(1.0, 3), NormalizedHamming(), "none"),
}
FORMS = {"[S, S]": (S, S), "[B, S, S]": (B, S, S), "[B, T-1, S, S]": (B, T - 1, S, S)}
both_backends = pytest.mark.parametrize("backend", ["compiled", "torch"])
every_form = pytest.mark.parametrize("form", FORMS)


class Batch:
    """Random scores, masks with holes, and labels; the first example has no position, the second one has one."""

    def __init__(self, seed: int, form: str, dtype: torch.dtype = torch.float64) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.mask = torch.rand(B, T, generator=generator) < 0.6
        self.mask[0], self.mask[1] = False, torch.arange(T) == seed % T
        self.mask[2, seed % T], self.mask[3, -1] = True, True
        labels = torch.randint(S, (B, T), generator=generator)
        self.y = torch.where(self.mask, labels, IGNORED)
        shapes = ((B, T, S), FORMS[form], (S,), (B, S))
        self.scores = [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]

    def chain(self, backend: Any, *scores: Tensor) -> LinearChain:
        unary, transition, start, stop = scores or self.scores
        return LinearChain(unary, transition, mask=self.mask, start=start, stop=stop, backend=backend)

    def positions(self, b: int) -> Tensor:
        return self.mask[b].nonzero()[:, 0]

    def alone(self, b: int, backend: Any) -> LinearChain:
        """The sequence of one example, without its masked positions; start and stop added by hand."""
        unary, transition, start, stop = self.scores
        here = self.positions(b)
        if transition.dim() == 3:
            transition = transition[b : b + 1]
        elif transition.dim() == 4:
            transition = transition[b : b + 1, here[1:] - 1]
        ends = torch.zeros(1, len(here), S, dtype=unary.dtype)
        ends[0, 0] += start
        ends[0, -1] += stop[b]
        return LinearChain(unary[b : b + 1, here] + ends, transition, backend=backend)


@both_backends
@every_form
@pytest.mark.parametrize("seed", range(5))
def test_oracles_are_those_of_each_sequence_alone(seed: int, form: str, backend: str) -> None:
    batch = Batch(seed, form)
    chain = batch.chain(backend)
    assert torch.equal(chain.lengths, batch.mask.sum(1))
    assert torch.equal(chain.mask, batch.mask)
    values, y = chain.topk(4)
    node, edge = chain.marginals()
    table = chain.max_marginals()
    indicators, pairs = chain.parts(batch.y)
    assert (y[~batch.mask.unsqueeze(1).expand_as(y)] == IGNORED).all()
    assert (node[~batch.mask] == 0).all()
    assert (table[~batch.mask] == 0).all()
    for b in range(1, B):
        here, alone = batch.positions(b), batch.alone(b, backend)
        labels = batch.y[b : b + 1, here]
        best, outputs = alone.topk(4)
        assert_close(values[b], best[0])
        assert torch.equal(y[b][best[0] > -torch.inf][:, here], outputs[0][best[0] > -torch.inf])
        assert_close(chain.logsumexp()[b], alone.logsumexp()[0])
        assert_close(chain.score(batch.y)[b], alone.score(labels)[0])
        assert_close((node[b, here], edge[b, here[1:] - 1]), tuple(m[0] for m in alone.marginals()))
        assert_close((indicators[b, here], pairs[b, here[1:] - 1]), tuple(m[0] for m in alone.parts(labels)))
        assert_close(edge[b].sum(), edge[b, here[1:] - 1].sum())
        assert_close(table[b, here], alone.max_marginals()[0])
        assert_close((chain.entropy()[b], chain.log_count()[b]), (alone.entropy()[0], alone.log_count()[0]))


@both_backends
@every_form
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_and_gradients_of_200_batches(loss: str, form: str, backend: str) -> None:
    """The semantics of a CRF layer with masks, in single precision."""
    for seed in range(200 // len(FORMS) + 1):
        batch = Batch(seed, form, torch.float32)
        losses = LOSSES[loss](batch.chain(backend), batch.y)
        expected = [
            LOSSES[loss](batch.alone(b, backend), batch.y[b : b + 1, batch.positions(b)])[0] for b in range(1, B)
        ]
        assert losses[0] == 0
        assert_close(losses[1:], torch.stack(expected), rtol=1e-6, atol=2e-6)
        actual = torch.autograd.grad(losses.sum(), batch.scores)
        assert_close(actual, torch.autograd.grad(torch.stack(expected).sum(), batch.scores), rtol=1e-6, atol=2e-6)
        assert (actual[0][~batch.mask] == 0).all()


@both_backends
@every_form
def test_decoding_of_200_batches(form: str, backend: str) -> None:
    compared = 0
    for seed in range(200 // len(FORMS) + 1):
        batch = Batch(seed, form, torch.float32)
        _, y = batch.chain(backend).max()
        for b in range(1, B):
            (first, second), outputs = (list[0] for list in batch.alone(b, backend).topk(2))
            if first - second > 1e-3:  # closer ones may be ordered by rounding
                assert torch.equal(y[b, batch.positions(b)], outputs[0])
                compared += 1
    assert compared > 190


@pytest.mark.parametrize(("form", "backend"), [("[S, S]", "torch"), ("[B, T-1, S, S]", "compiled")])
def test_masks_compile_without_graph_breaks(form: str, backend: str) -> None:
    def run(mask: Tensor, y: Tensor, *scores: Tensor) -> Tensor:
        unary, transition, start, stop = scores
        chain = LinearChain(unary, transition, mask=mask, start=start, stop=stop, backend=backend)
        return torch.cat([LOSSES["crf"](chain, y), chain.max()[1].sum(1)])

    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for seed in range(20):
        batch = Batch(seed, form)
        values = [function(batch.mask, batch.y, *batch.scores) for function in (compiled, run)]
        assert_close(*values)
        assert_close(*(torch.autograd.grad(value.sum(), batch.scores) for value in values))


@both_backends
@every_form
def test_derivatives(form: str, backend: str) -> None:
    batch = Batch(2, form)
    queries: list[Callable[[LinearChain], Tensor]] = [
        lambda chain: chain.logsumexp(),
        lambda chain: chain.max()[0],
        lambda chain: chain.max_marginals(),
        lambda chain: chain.score(batch.y),
        lambda chain: torch.cat([m.flatten() for m in chain.marginals()]),
    ]
    for query in queries:
        assert torch.autograd.gradcheck(
            lambda *scores, q=query: q(batch.chain(backend, *scores)), batch.scores, fast_mode=True
        )
    assert torch.autograd.gradgradcheck(lambda *s: batch.chain(backend, *s).logsumexp(), batch.scores, fast_mode=True)


@both_backends
@every_form
def test_samples_are_those_of_each_sequence_alone(form: str, backend: str) -> None:
    batch, n = Batch(1, form), 300
    y = batch.chain(backend).sample(n, torch.Generator().manual_seed(0))
    assert (y[~batch.mask.unsqueeze(1).expand_as(y)] == IGNORED).all()
    for b in range(1, B):
        here, alone = batch.positions(b), batch.alone(b, backend)
        frequencies = torch.nn.functional.one_hot(y[b][:, here], S).double().mean(0)
        assert_close(frequencies, alone.marginals()[0][0].detach(), rtol=0, atol=4 / n**0.5 / 2)


@both_backends
def test_masked_positions_may_hold_anything(backend: str) -> None:
    batch = Batch(1, "[S, S]")
    unary, *others = batch.scores
    expected = batch.chain(backend).topk(3)
    for garbage in (torch.nan, torch.inf, -torch.inf):
        chain = batch.chain(backend, torch.where(batch.mask.unsqueeze(-1), unary, garbage), *others)
        assert_close(chain.topk(3), expected, rtol=0, atol=0)
        loss = LOSSES["hinge"](chain, batch.y).sum()
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, batch.scores))


@both_backends
def test_a_mask_of_prefixes_is_lengths(backend: str) -> None:
    batch, lengths = Batch(5, "[S, S]"), torch.tensor([6, 1, 3, 4])
    unary, transition, start, stop = batch.scores
    ends = {"start": start, "stop": stop}
    mask = torch.arange(T) < lengths[:, None]
    masked = LinearChain(unary, transition, mask=mask, backend=backend, **ends)
    chain = LinearChain(unary, transition, lengths, backend=backend, **ends)
    assert_close(masked.logsumexp(), chain.logsumexp())
    assert_close(masked.marginals(), chain.marginals())
    assert torch.equal(torch.where(mask, masked.max()[1], 0), chain.max()[1])
    bare = LinearChain(unary, transition, lengths, backend=backend)
    y = chain.max()[1]
    last = y.gather(1, lengths[:, None] - 1)
    assert_close(chain.score(y), bare.score(y) + start[y[:, 0]] + stop.gather(1, last).squeeze(1))


@both_backends
def test_tags_are_constrained_by_one_line(backend: str) -> None:
    tags = ["O", "B-PER", "I-PER"]
    rules = transition_mask(tags, "BIO")
    mask = torch.tensor([[True, False, True, True]])
    unary = torch.tensor([[[0.0, 0.0, 9.0], [0.0, 0.0, 9.0], [0.0, 0.0, 9.0], [0.0, 5.0, 0.0]]])
    chain = LinearChain(unary, **rules._asdict(), mask=mask, backend=backend)
    assert chain.max()[1].tolist() == [[1, IGNORED, 2, 1]]


@pytest.mark.parametrize("reduction", ["token", "sum"])
def test_a_loss_of_each_token(reduction: str) -> None:
    batch = Batch(6, "[S, S]")
    chain = batch.chain("auto")
    total = LOSSES["crf"](chain, batch.y).sum()
    count = batch.mask.sum() if reduction == "token" else 1
    assert_close(StructuralHinge.crf(reduction)(chain, batch.y), total / count)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"mask": torch.ones(B, T)}, TypeError, r"mask must be boolean, got torch\.float32"),
        ({"mask": torch.ones(B, T - 1).bool()}, ValueError, r"mask must have shape \[B, T\] = \(4, 6\)"),
        (
            {"mask": torch.ones(B, T).bool(), "lengths": torch.ones(B).long()},
            ValueError,
            "lengths and mask both say which positions are in use: give one",
        ),
        ({"start": torch.zeros(S + 1)}, ValueError, r"start must have shape \[S\] or \[B, S\] with B, S = 4, 3"),
        ({"stop": torch.zeros(S, dtype=torch.int64)}, TypeError, "stop must be floating point"),
        ({"stop": torch.full((S,), torch.inf)}, ValueError, r"stop must not contain NaN or \+inf"),
    ],
)
def test_refuses(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        LinearChain(torch.zeros(B, T, S), torch.zeros(S, S), **settings)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_integers_are_masks(dtype):
    unary, mask = torch.randn(2, 3, 2), torch.tensor([[1, 0, 1], [0, 1, 1]])
    chains = [LinearChain(unary, torch.zeros(2, 2), mask=given) for given in (mask.to(dtype), mask.bool())]
    assert torch.equal(*(chain.logsumexp() for chain in chains))
    with pytest.raises(ValueError, match="mask must be boolean, or integers 0 and 1, got 0 to 2"):
        LinearChain(unary, torch.zeros(2, 2), mask=(2 * mask).to(dtype))


def test_labels_to_ignore_need_a_mask():
    chain = LinearChain(torch.randn(1, 3, 2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="got -100 to 1; -100 stands where a position is left out: give mask="):
        StructuralHinge.crf()(chain, torch.tensor([[0, 1, -100]]))
