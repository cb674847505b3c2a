"""A structure of a user, written and trained through public contracts alone."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad
from torch.testing import assert_close

from structsmooth import L2, Entropy, Hamming, Max, ModuleProblem, Structure
from structsmooth.smoothing import Smoother, simplex_projection
from structsmooth.solvers import SVRG
from structsmooth.structures import semirings
from structsmooth.structures.semirings import Semiring


class Pairs(Structure):
    """Two of N items, which have y_v = 1; unary [B, N, 2] scores leaving and taking each item."""

    potential_names = ("unary",)
    labels_are_classes = True

    def __init__(self, unary: Tensor) -> None:
        self.unary = unary

    def recursion(self, semiring: Semiring, unary: Tensor) -> Tensor:
        sums = semiring.embed(torch.tensor([[0.0, -torch.inf, -torch.inf]]).to(unary))  # 0 to 2 items are taken
        for leave, take in unary.permute(1, 2, 0)[..., None, None]:
            sums = semiring.sum(torch.stack([sums + leave, pad(sums, (0, 0, 1, -1), value=-torch.inf) + take], 1), 1)
        return sums[:, -1]

    def score(self, y: Tensor) -> Tensor:
        return self.unary.gather(2, y.unsqueeze(2)).sum((1, 2))

    def parts(self, y: Tensor) -> tuple[Tensor]:
        return (one_hot(y, 2).to(self.unary.dtype),)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        values, (taken,) = semirings.top_k(self.recursion, k, self.unary)
        return values, taken.argmax(-1)

    def logsumexp(self) -> Tensor:
        return semirings.log_partition(self.recursion, self.unary)


class Scores(torch.nn.Linear):
    def forward(self, x: Tensor) -> Pairs:
        return Pairs(pad(super().forward(x), (1, 0)))


@pytest.mark.parametrize("smoother", [Max(), L2(0.5, 15), Entropy(0.5)], ids=["max", "l2", "entropy"])
def test_it_is_trained_with_every_smoother(smoother: Smoother) -> None:
    x = torch.randn(20, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.zeros(20, 6, dtype=torch.int64).scatter(1, x.sum(2).topk(2).indices, 1)
    problem = ModuleProblem(Scores(3, 1, dtype=x.dtype), list(zip(x, y, strict=True)), smoother=smoother)
    w = SVRG().solve(problem, lam=0.01, passes=10).weights.requires_grad_()
    structure = problem.structure(w, x)
    assert (structure.max()[1] == y).all(1).sum() >= 18
    pairs = one_hot(torch.combinations(torch.arange(6)), 6).sum(1).unsqueeze(1).expand(-1, 20, -1)
    z = torch.stack([structure.cost_augmented(y, Hamming()).score(pair) for pair in pairs], 1)
    u = simplex_projection(z.detach() / 0.5)
    l2 = (u * z).sum(1) - 0.25 * (u.square().sum(1) - 1)
    largest = {"Max": z.amax(1), "L2": l2, "Entropy": 0.5 * (z / 0.5).logsumexp(1)}[type(smoother).__name__]
    loss = (largest - structure.score(y)).mean()
    assert_close(problem.loss_and_grad(w.detach(), smoother), (loss.item(), *torch.autograd.grad(loss, w)))
