"""Problems whose objective is smoothed in the space of parts, or by noise: the same for modules and linear modules."""

import pytest
import torch
from torch.testing import assert_close

from structsmooth import Hamming, LinearModuleProblem, LinearScore, ModuleProblem, SparseMAP
from structsmooth.decisions import Perturbed
from structsmooth.smoothing import Smoother
from structsmooth.solvers import SGD, SVRG, Adam, Solver


@pytest.mark.parametrize("smoother", [SparseMAP(0.5), SparseMAP(0.5, "first"), Perturbed(0.5, 50, seed=0)], ids=repr)
def test_objectives_are_minimized(smoother: Smoother) -> None:
    generator = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(5, 4, generator=generator, dtype=torch.float64), torch.randint(3, (5,), generator=generator))
        for _ in range(8)
    ]
    problems = [
        kind(LinearScore(4, 3, torch.float64), data, Hamming(), smoother=smoother)
        for kind in (ModuleProblem, LinearModuleProblem)
    ]
    w = torch.linspace(-0.5, 0.5, problems[0].dim, dtype=torch.float64)
    losses = [problem.loss(w, smoother) for problem in problems]
    assert losses[0] > 0
    assert_close(losses[0], losses[1])
    gradients = [problem.full_pass(w, smoother).gradient for problem in problems]
    assert_close(gradients[0], gradients[1])
    solver: Solver
    for solver in (SVRG(), SGD(), Adam()):
        result = solver.solve(problems[1], lam=0.01, passes=4)
        assert result.history[-1].objective < result.history[0].objective
