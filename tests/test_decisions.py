"""SPO+ and regret against their definitions, for structures and for a solver of one's own."""

import re
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from enumeration import random_chains, random_matchings
from torch import Tensor
from torch.testing import assert_close

from structsmooth import Candidates, Hamming, LinearChain, Matching, Paths, SparseMAP, SPOPlus, StructuralHinge, Subset
from structsmooth.decisions import Perturbed, normalized_regret, regret
from structsmooth.programs import PathGraph
from structsmooth.structures import OracleSpace, from_oracle, sparse_map

GRAPH = PathGraph([[0, 1], [1, 3], [0, 2], [2, 3], [1, 2]], source=0, target=3)
PATHS = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [1, 0, 0, 1, 1]], dtype=torch.float64)


def costs(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1


def shortest(own: np.ndarray) -> np.ndarray:
    """Among all paths."""
    paths = PATHS.numpy()
    return paths[(paths @ own).argmin()]


def by_definition(predicted: Tensor, true: Tensor) -> Tensor:
    """SPO+ over all paths, in terms of costs that are minimized."""
    best = (PATHS @ true.T).argmin(0)
    largest = (PATHS @ (true - 2 * predicted).T).amax(0)
    return largest + 2 * (predicted * PATHS[best]).sum(1) - (true * PATHS[best]).sum(1)


@pytest.mark.parametrize("space", [lambda c: Paths(-c, GRAPH), from_oracle(shortest)], ids=["program", "own"])
def test_spo_plus_is_that_of_the_paper(space: Any) -> None:
    predicted, true = costs(20, 5, seed=1).requires_grad_(), costs(20, 5, seed=2)
    losses = SPOPlus(reduction="none")(space(predicted), space(true))
    assert_close(losses, by_definition(predicted, true))
    (gradient,) = torch.autograd.grad(losses.sum(), predicted)
    # Of the paper: 2 (w*(c) − w*(2ĉ − c)).
    best, other = (PATHS[(PATHS @ own.T).argmin(0)] for own in (true, 2 * predicted - true))
    assert_close(gradient, 2 * (best - other))
    assert (losses >= regret(space(predicted), space(true)) - 1e-12).all()
    assert_close(SPOPlus(reduction="none")(space(true), space(true)), torch.zeros(20, dtype=torch.float64))


def test_spo_plus_is_a_hinge_whose_cost_is_the_regret() -> None:
    weights, true = random_matchings([(4, 4)] * 6, seed=1)[0], random_matchings([(4, 4)] * 6, seed=2)[0]
    y = Matching(true).max()[1]
    hinge = StructuralHinge(cost=-true, reduction="none")(Matching(2 * weights), y)
    constant = Matching(true).score(y)
    assert_close(SPOPlus(reduction="none")(Matching(weights), Matching(true)), hinge + constant)
    known = SPOPlus(reduction="sum")(Matching(weights), Matching(true), y)
    assert_close(known, (hinge + constant).sum())
    assert_close(SPOPlus()(Matching(weights), Matching(true)), known / 6)


@pytest.mark.parametrize("smoother", [SparseMAP(0.3), Perturbed(0.3, 4, seed=0)], ids=repr)
def test_smoothed_spo_plus(smoother: Any) -> None:
    weights, true = random_matchings([(4, 4)] * 6, seed=1)[0], random_matchings([(4, 4)] * 6, seed=2)[0]
    losses = SPOPlus(smoother, "none")(Matching(weights.requires_grad_()), Matching(true))
    assert (losses >= 0).all()
    assert_close(losses, SPOPlus(reduction="none")(Matching(weights), Matching(true)), rtol=0, atol=3.0)
    (gradient,) = torch.autograd.grad(losses.sum(), weights)
    assert ((gradient % 2).abs() > 1e-6).any()


def test_what_is_forbidden_stays_so() -> None:
    inf = torch.inf
    predicted = torch.tensor([[-inf, 1.0, 2.0]], requires_grad=True)
    true = torch.tensor([[-inf, 3.0, 1.0]])
    loss = SPOPlus()(Candidates(predicted), Candidates(true))
    assert_close(loss, torch.tensor(4.0))  # max(2 − 3, 4 − 1) − (2 − 3)
    loss.backward()
    assert_close(predicted.grad, torch.tensor([[0.0, -2.0, 2.0]]))


def test_regret_of_all_subsets() -> None:
    predicted, true = costs(30, 6, seed=3), costs(30, 6, seed=4)

    def space(own: Tensor) -> Subset:
        return Subset(torch.stack([torch.zeros_like(own), own], 2), 3)

    subsets = torch.tensor([[float(i in s) for i in range(6)] for s in combinations(range(6), 3)]).double()
    values = true @ subsets.T
    chosen = (predicted @ subsets.T).argmax(1)
    expected = values.amax(1) - values.gather(1, chosen[:, None]).squeeze(1)
    assert_close(regret(space(predicted), space(true)), expected)
    assert abs(normalized_regret(space(predicted), space(true)) - float(expected.sum() / values.amax(1).sum())) < 1e-12
    assert not regret(space(predicted.requires_grad_()), space(true)).requires_grad


# A solver of one's own.


def knapsack(value: np.ndarray) -> np.ndarray:
    """Items of weights 2, 3, 4 and 5 within 7, by trying them all."""
    best, weights = np.zeros(4), np.array([2, 3, 4, 5])
    for n in range(5):
        for chosen in combinations(range(4), n):
            y = np.isin(np.arange(4), chosen).astype(float)
            if weights @ y <= 7 and value @ y < value @ best:
                best = y
    return best


def test_a_knapsack_is_trained() -> None:
    """From its features, by each of the losses that take a max oracle alone."""
    space = from_oracle(knapsack)
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(12, 3, generator=generator), torch.randn(3, 4, generator=generator)
    true = space(-(x @ weight).exp())
    y = true.max()[1]
    losses = {
        "spo": lambda own: SPOPlus()(own, true),
        "smooth spo": lambda own: SPOPlus(SparseMAP(0.5))(own, true),
        "perturbed": lambda own: StructuralHinge.perturbed(0.5, 4)(own, y),
        "sparsemap": lambda own: StructuralHinge.sparsemap(0.5)(own, y),
    }
    for name, loss in losses.items():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 4)
        before = normalized_regret(space(model(x)), true)
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        for _ in range(30):
            optimizer.zero_grad()
            loss(space(model(x))).backward()
            optimizer.step()
        assert normalized_regret(space(model(x)), true) < before / 2, name


def test_a_solver_of_ones_own_is_a_structure() -> None:
    values = costs(5, 4).neg().requires_grad_()
    space = from_oracle(knapsack)(values)
    value, y = space.max()
    assert isinstance(space, OracleSpace)
    assert y.tolist() == [knapsack(own).tolist() for own in values.detach().numpy()]
    assert_close(value, -(values * y).sum(1))
    (gradient,) = torch.autograd.grad(value.sum(), values)
    assert_close(gradient, -y)
    assert_close(space.parts(y)[0], y)
    assert len(space[1:3]) == 2
    assert space.to(torch.float32).max()[1].dtype == torch.float32
    solution = sparse_map(space, 0.1)
    assert (solution.gap < 1e-8).all()


def test_solvers_of_ones_own_have_their_limits() -> None:
    space = from_oracle(lambda own: own[:-1])(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=re.escape("argmin must return a decision of shape [D] = (3,), got (2,)")):
        space.max()
    with pytest.raises(NotImplementedError, match="OracleSpace has a max oracle alone"):
        space.topk(2)
    with pytest.raises(NotImplementedError, match="OracleSpace has no exact logsumexp"):
        space.logsumexp()
    with pytest.raises(ValueError, match=re.escape("scores must have shape [B, D], got (3,)")):
        from_oracle(shortest)(torch.zeros(3))
    with pytest.raises(TypeError, match="costs must be floating point"):
        from_oracle(shortest)(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=re.escape("y must have shape [B, D] = (2, 3), got (3,)")):
        space.score(torch.zeros(3))
    with pytest.raises(ValueError, match="scores must not contain NaN"):
        from_oracle(shortest)(torch.full((1, 3), torch.nan))
    with pytest.raises(NotImplementedError, match="OracleSpace does not work under transforms"):
        torch.func.grad(lambda c: from_oracle(shortest)(c).max()[0].sum())(torch.zeros(1, 5))


def test_bad_arguments() -> None:
    chain, other = LinearChain(*random_chains(2, 3, 2)), LinearChain(*random_chains(2, 4, 2))
    for function in (regret, SPOPlus()):
        with pytest.raises(TypeError, match="the second argument must be a structure"):
            function(chain, torch.zeros(2))
        with pytest.raises(TypeError, match="true scores must be bound to a LinearChain, got Candidates"):
            function(chain, Candidates(torch.zeros(2, 3)))
        with pytest.raises(ValueError, match="true scores must have the shapes of the predicted ones"):
            function(chain, other)
    with pytest.raises(ValueError, match="reduction must be one of mean, sum, none, got 'token'"):
        SPOPlus(reduction="token")
    assert repr(SPOPlus()) == "SPOPlus(smoother=Max(), reduction='mean')"
    assert StructuralHinge(cost=Hamming())(chain, chain.max()[1]) >= 0
