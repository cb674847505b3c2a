"""A linear problem of one's own: words letter by letter, a block for each, whose atoms are statistics."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from structsmooth import BCFW, SVRG, Candidates, LinearProblem, Max, Smoother
from structsmooth.problems import OracleOutput, Parts, respond

X = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)  # 6 words of 3 letters
GOLD = one_hot(torch.randint(3, (6, 3), generator=torch.Generator().manual_seed(1)), 3).double()


class Words(LinearProblem):
    def __init__(self, x: Tensor, gold: Tensor) -> None:
        self.x, self.gold, self.feature_map = x.flatten(0, 1), gold.flatten(0, 1), self
        self.words, self.n, self.dim, self.blocks = (x, gold), len(x), 12, 3 * len(x)

    def blocks_of(self, indices: Tensor) -> list[int]:
        return [3 * i + letter for i in indices.tolist() for letter in range(3)]

    def subset(self, indices: Tensor) -> "Words":
        return Words(*(t[indices] for t in self.words))

    def scores(self, w: Tensor, block: int) -> Parts:
        return (w.view(3, 4) @ self.x[block],)

    def add_adjoint(self, m: Parts, block: int, scale: float, w: Tensor) -> None:
        w.view(3, 4).addr_(m[0], self.x[block], alpha=scale)

    def squared_norm(self, m: Parts, block: int) -> float:
        return float(m[0].square().sum() * self.x[block].square().sum())

    def oracle(self, potentials: Parts, block: int, smoother: Smoother = Max()) -> OracleOutput:  # noqa: B008 - immutable
        response = respond(Candidates(potentials[0][None]), smoother)
        statistics = response.statistics[0][0]
        return OracleOutput(response.value, (statistics,), statistics)

    def costs(self, block: int) -> Parts:
        return (1 - self.gold[block],)

    def label_atom(self, block: int) -> Tensor:
        return self.gold[block]

    def parts(self, atom: Tensor, block: int) -> Parts:
        return (atom,)


@pytest.mark.parametrize("solver", [SVRG(mu=0.01), BCFW(sampling="uniform"), BCFW(sampling="uniform", cache=True)])
def test_solvers_take_it(solver: SVRG | BCFW) -> None:
    result = solver.solve(Words(X, GOLD), lam=0.1, passes=60)
    scores, last = X @ result.weights.view(3, 4).T, result.row
    hinges = (scores + 1 - GOLD).amax(2) - (scores * GOLD).sum(2)
    assert last.objective == pytest.approx(float(hinges.sum(1).mean() + 0.05 * result.weights.square().sum()))
    assert 0 <= last.gap < 0.05 * last.objective
