"""Losses of partial labels against enumeration: smoothed maxima of all outputs, and of those that agree with them."""

from itertools import product
from typing import Any

import pytest
import torch
from structure_members import MEMBERS
from torch import Tensor
from torch.testing import assert_close

from structsmooth import (
    L2,
    Candidates,
    Constituents,
    Entropy,
    Hamming,
    LinearChain,
    Max,
    StructuralHinge,
    Structure,
    WeightedHamming,
)
from structsmooth.losses import SlackRescaledHinge
from structsmooth.smoothing import Smoother, simplex_projection

OUTPUTS = 260
NAMES = [
    "LinearChain [S, S] compiled", "LinearChain [B, T-1, S, S] torch", "Tree compiled", "Tree torch",
    "Candidates", "BinaryGraph", "FactorGraph", "FactorGraph with factors", "Matching", "Matching with unmatched",
    "SemiMarkov compiled", "ProjectiveTree compiled", "ProjectiveTree torch", "SpanningTree",
]  # fmt: skip
CLOSELY = {"rtol": 1e-5, "atol": 1e-5}
SMOOTHERS = [Max(), Entropy(0.7), L2(0.5, OUTPUTS)]
CASES = [
    pytest.param(name, smoother, id=f"{name}, {type(smoother).__name__}")
    for name, smoother in product(NAMES, SMOOTHERS)
    if not isinstance(smoother, Entropy) or "logsumexp" in MEMBERS[name].oracles
]


def smoothed(smoother: Smoother, values: Tensor) -> Tensor:
    """h_μ of the scores of some outputs, by its definition."""
    if isinstance(smoother, Entropy):
        return smoother.mu * (values / smoother.mu).logsumexp(0)
    if isinstance(smoother, L2):
        u = simplex_projection(values.detach() / smoother.mu)
        return u @ values - smoother.mu / 2 * (u @ u - 1)
    return values.max()


def outputs_of(structure: Structure) -> tuple[Tensor, Tensor]:
    """All outputs, [K, B, ...], and which of them are outputs: [K, B]."""
    values, outputs = structure.topk(OUTPUTS)
    assert bool((values[:, -1] == -torch.inf).all())  # there are no more
    return outputs.transpose(0, 1), (values > -torch.inf).T


def by_enumeration(smoother: Smoother, structure: Structure, y: Tensor, known: Tensor) -> Tensor:
    """Losses [B] with the number of wrong labels as margin, differentiable in the potentials."""
    outputs, exist = outputs_of(structure)
    there = exist.view(*exist.shape, *[1] * (outputs.dim() - 2))
    scores = torch.stack([structure.score(output) for output in torch.where(there, outputs, outputs[0])])
    classes = torch.stack([structure.as_classes(output)[0] for output in outputs])
    # Padding is the same in all outputs.
    mistakes = ((classes != structure.as_classes(y)[0]) & known).reshape(*exist.shape, -1).sum(2)
    losses = []
    for b in range(len(y)):
        own, wrong = scores[exist[:, b], b], mistakes[exist[:, b], b]
        losses.append(smoothed(smoother, own + wrong) - smoothed(smoother, own[wrong == 0]))
    return torch.stack(losses)


@pytest.mark.parametrize(("name", "smoother"), CASES)
def test_losses_and_gradients_are_those_of_the_definition(name: str, smoother: Smoother) -> None:
    member = MEMBERS[name]
    structure = member.structure("least" if name.startswith(("Linear", "Tree", "Semi", "Proj", "Span")) else "tiny")
    leaves = [p.detach().requires_grad_() for p in structure.potentials]
    structure = structure.replace(*leaves)
    outputs, exist = outputs_of(structure)
    y = outputs[exist.long().sum(0) // 2, torch.arange(outputs.shape[1])]
    known = torch.rand(y.shape, generator=torch.Generator().manual_seed(3)) < 0.5
    loss = StructuralHinge(smoother, Hamming(), "none")
    if name.startswith("SemiMarkov"):  # labels depend on those before, up to padding
        known &= structure.mask
    losses = loss(structure, y if name.startswith("SemiMarkov") else torch.where(known, y, -1), allowed=known)
    expected = by_enumeration(smoother, structure, y, known)
    assert_close(losses, expected, check_dtype=False, **CLOSELY)
    assert bool((losses >= -1e-6).all())
    for leaf in leaves:
        own, other = (gradient(values, leaf) for values in (losses, expected))
        assert_close(own, other, **CLOSELY)


def gradient(values: Tensor, leaf: Tensor) -> Tensor:
    return torch.autograd.grad(values.sum(), leaf, retain_graph=True, materialize_grads=True, allow_unused=True)[0]


def test_classes_that_variables_may_have() -> None:
    """A mask of classes: the labels that are known are the special case of one class."""
    chain = MEMBERS["LinearChain [S, S] compiled"].structure("least")
    y = chain.max()[1]
    known = torch.zeros(y.shape, dtype=torch.bool)
    known[:, 0] = True
    classes = torch.ones(*y.shape, chain.unary.shape[-1], dtype=torch.bool)
    classes[:, 0] = y[:, :1] == torch.arange(classes.shape[-1])
    loss = StructuralHinge(Entropy(1.0), "hamming", "none")
    assert torch.equal(loss(chain, y, allowed=known), loss(chain, y, allowed=classes))
    assert_close(loss(chain, y, allowed=torch.ones_like(known)), loss(chain, y))
    assert bool((StructuralHinge.crf("none")(chain, y, allowed=torch.zeros_like(known)).abs() < 1e-6).all())


def test_masks_of_parts() -> None:
    """Where the absence of a part is a class, only parts can be forbidden, and without a cost of labels."""
    spans = Constituents(torch.zeros(1, 3, 3, 2))
    y = spans.max()[1]
    no_label = torch.tensor([True, False])  # label 1 nowhere
    loss = StructuralHinge.crf("none")
    restricted = spans.restrict(no_label)
    assert_close(loss(spans, y, allowed=(no_label,)), spans.logsumexp() - restricted.logsumexp())
    with pytest.raises(NotImplementedError, match="Constituents cannot require spans"):
        loss(spans, y, allowed=torch.ones_like(y, dtype=torch.bool))
    with pytest.raises(TypeError, match="masks of parts do not say which labels are wrong"):
        StructuralHinge()(spans, y, allowed=(no_label,))


def test_a_latent_class_is_learned() -> None:
    """Two clusters have one label each of two that are known together: their classes are found."""
    noise = 0.2 * torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    x = noise + torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0]]).repeat_interleave(20, 0)
    allowed = torch.tensor([[True, True, False]] * 40 + [[False, False, True]] * 20)
    weights = torch.tensor([[0.1, -0.1, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.5)
    for _ in range(200):
        optimizer.zero_grad()
        StructuralHinge.crf()(Candidates(x @ weights), torch.zeros(60).long(), allowed=allowed).backward()
        optimizer.step()
    best = (x @ weights).argmax(1)
    assert bool((best[:40] < 2).all())
    assert bool((best[40:] == 2).all())


def chain() -> LinearChain:
    return LinearChain(torch.zeros(2, 3, 2), torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("loss", "allowed", "error", "message"),
    [
        (StructuralHinge(), torch.ones(2, 3), TypeError, "allowed must be a tensor of torch.bool or a tuple"),
        (StructuralHinge(), "all", TypeError, "got str"),
        (StructuralHinge(), torch.ones(2, 2) > 0, ValueError, r"allowed must have shape \(2, 3\), as labels have, or"),
        (StructuralHinge(), torch.zeros(2, 3, 2) > 0, ValueError, "examples 0, 1"),
        (SlackRescaledHinge(), torch.ones(2, 3) > 0, TypeError, "slack rescaling needs all labels"),
        (StructuralHinge(None, torch.ones(2)), torch.ones(2, 3) > 0, TypeError, "the cost must be a Cost or None"),
        (
            StructuralHinge.crf(),
            (torch.ones(2),),
            TypeError,
            "tensor of torch.bool, got torch.float32",
        ),
        (StructuralHinge.crf(), (None, None, None, None, None), ValueError, "restrict takes a mask for each of"),
        (StructuralHinge.crf(), (torch.ones(5) > 0,), ValueError, "must broadcast to the potentials"),
    ],
)
def test_refuses(loss: StructuralHinge, allowed: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        loss(chain(), torch.zeros(2, 3, dtype=torch.int64), allowed=allowed)


def test_costs_of_classes_are_those_of_known_labels() -> None:
    y, known = torch.tensor([[0, 1, 1]]), torch.tensor([[True, False, True]])
    single = LinearChain(torch.zeros(1, 3, 2), torch.zeros(2, 2))
    assert StructuralHinge(cost=WeightedHamming((2.0, 5.0)))(single, y, allowed=known).item() == 7.0
