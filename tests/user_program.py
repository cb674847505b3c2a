"""A user's program as type checkers see it; `make lint` checks it, nothing runs it."""

import torch
from torch import Tensor, nn
from typing_extensions import assert_type

from structsmooth import BCFW, L2, LinearChain, LinearModuleProblem, ScoreModule, StructuralHinge, Structure, Tree, load
from structsmooth.models import BiLSTMTagger
from structsmooth.tasks.trained import TrainedModel


class Tagger(ScoreModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.transition = nn.Parameter(torch.zeros(3, 3))

    def forward(self, x: Tensor) -> LinearChain:
        return LinearChain(self.linear(x), self.transition)


def distance(chain: LinearChain, y: Tensor) -> Tensor:
    """A cost for one kind of structure."""
    return (torch.arange(chain.unary.shape[-1]) - y.unsqueeze(-1)).abs().float()


x, y = torch.zeros(2, 5, 4), torch.zeros(2, 5, dtype=torch.int64)
loss = StructuralHinge(L2(mu=1.0, k=3), cost=distance)
assert_type(Tagger()(x), Structure)
assert_type(BiLSTMTagger(9, 3)(y), LinearChain)
assert_type(loss(Tagger()(x), y), Tensor)
assert_type(Tagger().forward(x).to(torch.float64)[:1], LinearChain)
assert_type(Tree(x, torch.zeros(2, 5, 4, 4), y).max(), tuple[Tensor, Tensor])
problem = LinearModuleProblem(Tagger(), [(x[0], y[0])], cost=distance)
assert_type(problem.start(), Tensor)
result = BCFW().solve(problem, lam=0.1, passes=3)
assert_type(result.weights, Tensor)
assert_type(load("runs/ner"), TrainedModel)
