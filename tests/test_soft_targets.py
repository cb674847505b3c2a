"""Losses against distributions of labels: teachers, annotators and smoothed labels, by enumeration; and the risk."""

import re
from typing import Any

import pytest
import torch
from enumeration import EnumeratedChain, random_chains
from member import Member
from structure_members import enumerated, every
from torch import Tensor
from torch.testing import assert_close

from structsmooth import (
    L2,
    Candidates,
    Hamming,
    LinearChain,
    Matching,
    Max,
    MinimumRisk,
    SlackRescaledHinge,
    SparseMAP,
    StructuralHinge,
)
from structsmooth.costs import NormalizedHamming
from structsmooth.decisions import Perturbed
from structsmooth.targets import soft_labels

LENGTHS = [4, 3, 2, 4]


def chains(seed: int = 0) -> LinearChain:
    return LinearChain(*random_chains(4, 4, 3, lengths=LENGTHS, seed=seed))


def labels(seed: int = 0, annotators: int = 1) -> Tensor:
    return torch.randint(3, (4, annotators, 4), generator=torch.Generator().manual_seed(seed))


def enumerated_chain(chain: LinearChain) -> EnumeratedChain:
    return EnumeratedChain(chain.unary, chain.transition, chain.lengths)


def test_a_teacher_is_matched_by_cross_entropy() -> None:
    """−Σ_y p(y) log q(y), by enumeration; the divergence is what is left without the entropy of the teacher."""
    student, teacher = chains(0), chains(1)
    losses = StructuralHinge.crf("none")(student, teacher)
    own, other = enumerated_chain(student), enumerated_chain(teacher)
    expected = [-(p.softmax(0) * q.log_softmax(0)).sum() for p, q in zip(other.scores, own.scores, strict=True)]
    assert_close(losses, torch.stack(expected))
    assert_close(losses, teacher.cross_entropy(student))
    assert_close(losses - teacher.entropy(), teacher.kl(student))
    assert_close(StructuralHinge.crf("none")(teacher, teacher), teacher.entropy())
    assert_close(StructuralHinge.crf("token")(student, teacher), losses.sum() / sum(LENGTHS))


def test_the_gradient_is_a_difference_of_marginals() -> None:
    student, teacher = chains(0), chains(1)
    unary = student.unary.requires_grad_()
    teacher.unary.requires_grad_()
    loss = StructuralHinge.crf("sum")(student.replace(unary, student.transition), teacher)
    loss.backward()
    assert_close(unary.grad, student.marginals()[0].detach() - teacher.marginals()[0].detach())
    assert teacher.unary.grad is None  # a teacher is not trained


@pytest.mark.parametrize(
    "smoother", [Max(), L2(0.5, 4), SparseMAP(0.5), SparseMAP(0.5, "first"), Perturbed(0.5, 4, seed=0)], ids=repr
)
def test_other_losses_of_soft_labels(smoother: Any) -> None:
    """Non-negative, and the loss of the labels where all annotators agree."""
    chain, y = chains(), labels()
    loss = StructuralHinge(smoother, None, "none")
    assert_close(loss(chain, soft_labels(chain, y)), loss(chain, y[:, 0]))
    assert_close(loss(chain, soft_labels(chain, y.expand(-1, 3, -1))), loss(chain, y[:, 0]))
    mixed = soft_labels(chain, labels(1, 3))
    assert (loss(chain, mixed) >= -1e-12).all()
    if isinstance(smoother, SparseMAP):
        sparse = SparseMAP(0.5, smoother.parts).solve(chain).statistics
        assert_close(loss(chain, sparse), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-8)


def test_annotators_are_averaged() -> None:
    """Scores are linear in the parts, so the loss is the mean of the losses."""
    chain, y = chains(), labels(2, 3)
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25], [0.2, 0.3, 0.5], [0.0, 0.5, 0.5]])
    loss = StructuralHinge.crf("none")
    each = torch.stack([loss(chain, own) for own in y.unbind(1)], 1)
    assert_close(loss(chain, soft_labels(chain, y)), each.mean(1))
    assert_close(loss(chain, soft_labels(chain, y, weights)), (weights * each).sum(1))


def test_labels_are_smoothed_towards_all_that_is_allowed() -> None:
    chain, y = chains(), labels(3)
    transition = chain.transition.clone()
    transition[1, 2] = -torch.inf
    chain = chain.replace(chain.unary, transition)
    y = chain.max()[1].unsqueeze(1)
    statistics = soft_labels(chain, y, smoothing=0.3)
    uniform = chain.replace(torch.zeros_like(chain.unary), torch.where(transition > -torch.inf, 0.0, -torch.inf))
    for own, parts, m in zip(statistics, chain.parts(y[:, 0]), uniform.marginals(), strict=True):
        assert_close(own, 0.7 * parts + 0.3 * m)
    losses = StructuralHinge.crf("none")
    assert losses(chain, statistics).isfinite().all()
    assert_close(losses(chain, statistics), 0.7 * losses(chain, y[:, 0]) + 0.3 * losses(chain, uniform))
    with pytest.raises(NotImplementedError, match="Matching has no exact marginals"):
        soft_labels(Matching(torch.zeros(1, 2, 2)), torch.tensor([[[0, 1]]]), smoothing=0.1)


@every(enumerated)
def test_expected_scores_of_every_structure(member: Member) -> None:
    """Of one output they are its score; of a mixture, the mixture of the scores."""
    structure = member.structure("tiny", seed=2)
    values, y = structure.topk(2)
    assert_close(structure.expected_score(tuple(structure.parts(y[:, 0]))), structure.score(y[:, 0]))
    if bool((values > -torch.inf).all()):
        half = soft_labels(structure, y)
        assert_close(structure.expected_score(half), values.mean(1))
        losses = StructuralHinge(Max(), None, "none")(structure, half)
        assert_close(losses, (values[:, 0] - values[:, 1]) / 2)


def test_forbidden_labels_have_no_loss() -> None:
    scores = Candidates(torch.tensor([[0.0, -torch.inf]]))
    half = (torch.tensor([[0.5, 0.5]]),)
    assert scores.expected_score(half).tolist() == [-torch.inf]
    with pytest.raises(ValueError, match="example 0 of the batch are forbidden"):
        StructuralHinge.crf()(scores, half)
    assert scores.expected_score((torch.tensor([[1.0, 0.0]]),)).tolist() == [0.0]


def test_bad_targets() -> None:
    chain, y = chains(), labels(0, 2)
    soft = soft_labels(chain, y)
    for loss in (StructuralHinge(), SlackRescaledHinge()):
        with pytest.raises(TypeError, match="soft labels take a loss without cost"):
            loss(chain, soft)
    with pytest.raises(TypeError, match=r"soft labels take a loss without cost.* no allowed.* average it over labels"):
        StructuralHinge.crf()(chain, soft, allowed=y[:, 0] >= 0)
    with pytest.raises(ValueError, match="statistics must have a tensor for each of 2 kinds, got 1"):
        StructuralHinge.crf()(chain, soft[:1])
    with pytest.raises(ValueError, match=re.escape("statistics of unary must have shape (4, 4, 3), got (2, 4, 3)")):
        StructuralHinge.crf()(chain, (soft[0][:2], soft[1]))
    with pytest.raises(TypeError, match="statistics must be a tuple"):
        chain.expected_score(soft[0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=re.escape("y must have shape [B, A, ...] with B = 4 and A >= 1")):
        soft_labels(chain, y[:2])
    for weights in (torch.ones(4, 2), torch.tensor([[2.0, -1.0]]).expand(4, -1)):
        with pytest.raises(ValueError, match="weights must not be negative, and those of the annotators"):
            soft_labels(chain, y, weights)
    with pytest.raises(ValueError, match=r"smoothing must be from 0 to 1, got 1\.5"):
        soft_labels(chain, y, smoothing=1.5)
    with pytest.raises(TypeError, match=r"weights must be a torch\.Tensor"):
        soft_labels(chain, y, [0.5, 0.5])  # type: ignore[arg-type]


# The risk.


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("cost", [Hamming(), NormalizedHamming()], ids=repr)
def test_the_risk_by_enumeration(cost: Any, temperature: float) -> None:
    chain, y = chains(4), labels(5)[:, 0]
    twin = enumerated_chain(chain)
    expected = []
    for b, (outputs, scores) in enumerate(zip(twin.outputs, twin.scores, strict=True)):
        mistakes = (outputs != y[b])[:, : LENGTHS[b]].sum(1).double()
        expected.append((scores / temperature).softmax(0) @ (mistakes if cost == Hamming() else mistakes / LENGTHS[b]))
    risks = MinimumRisk(cost, temperature, "none")(chain, y)
    assert_close(risks, torch.stack(expected))
    assert_close(MinimumRisk(cost, temperature)(chain, y), risks.mean())
    assert_close(MinimumRisk(cost, temperature, "sum")(chain, y), risks.sum())


def test_the_risk_is_trained_to_the_cost_of_the_best_output() -> None:
    chain, y = chains(4), labels(5)[:, 0]
    unary = chain.unary.requires_grad_()
    assert torch.autograd.gradcheck(lambda u: MinimumRisk()(chain.replace(u, chain.transition), y), unary)
    best = chain.max()[1]
    cost = ((best != y) & chain.mask).sum(1).double()
    assert_close(MinimumRisk(temperature=1e-3, reduction="none")(chain.detach(), y), cost, rtol=0, atol=1e-6)


def test_bad_settings_of_the_risk() -> None:
    with pytest.raises(ValueError, match="temperature must be positive"):
        MinimumRisk(temperature=0.0)
    with pytest.raises(ValueError, match="reduction must be one of mean, sum, none"):
        MinimumRisk(reduction="token")  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="Matching has no exact"):
        MinimumRisk()(Matching(torch.zeros(1, 2, 2)), torch.tensor([[0, 1]]))
    with pytest.raises(TypeError, match="the first argument of a loss must be a structure"):
        MinimumRisk()(torch.zeros(2), torch.zeros(2))  # type: ignore[arg-type]
    assert repr(MinimumRisk()) == "MinimumRisk(cost=Hamming(), temperature=1.0, reduction='mean')"
