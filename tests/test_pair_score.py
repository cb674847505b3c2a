"""Features and kernels of pairs, in chains and in trees, against the dual of all outputs with their kernel."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BCFW, LinearChain, LinearModuleProblem, Tree
from structsmooth.problems import KernelFeatures
from structsmooth.scores import PairScore

EXAMPLES, NODES, STATES, LAM = 3, 3, 2, 0.2
PARENTS = torch.tensor([[-1, 0, 0], [-1, 0, 1], [1, -1, 1]])
NODE_KERNEL, PAIR_KERNEL = KernelFeatures("rbf", gamma=0.5), KernelFeatures("polynomial", gamma=0.3, degree=2)


def points(tree: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Points of nodes [n, N, 2] and of pairs [n, N or N - 1, 4], and labels."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(EXAMPLES, NODES, 2, generator=generator, dtype=torch.float64)
    if tree:
        above = torch.stack([own[parents.clamp_min(0)] for own, parents in zip(x, PARENTS, strict=True)])
        couples = torch.cat([above, x], -1)
    else:
        couples = torch.cat([x[:, :-1], x[:, 1:]], -1)
    return x, couples, torch.randint(STATES, (EXAMPLES, NODES), generator=generator)


def problem_of(tree: bool) -> LinearModuleProblem:
    x, couples, y = points(tree)
    node, pair = NODE_KERNEL.fit(x.flatten(0, 1)), PAIR_KERNEL.fit(couples.flatten(0, 1))
    nodes, pairs = (
        node(x.flatten(0, 1)).view(*x.shape[:2], -1),
        pair(couples.flatten(0, 1)).view(*couples.shape[:2], -1),
    )
    data: list[Any] = [
        ((nodes[i], pairs[i], PARENTS[i]) if tree else (nodes[i], pairs[i]), y[i]) for i in range(EXAMPLES)
    ]
    return LinearModuleProblem(PairScore(nodes.shape[-1], pairs.shape[-1], STATES), data)


def kernel_dual(tree: bool) -> float:
    """max Σ α ℓ − (λ/2)‖Σ α ψ/λ‖², with inner products of the ψ by the kernels alone; α_i/n sums to 1/n."""
    x, couples, y = points(tree)
    outputs = [torch.tensor(own) for own in product(range(STATES), repeat=NODES)]

    def ends(i: int, own: Tensor) -> list[tuple[int, int, int]]:
        """Number of the pair, and its two labels."""
        if not tree:
            return [(t, int(own[t]), int(own[t + 1])) for t in range(NODES - 1)]
        return [(v, int(own[p]), int(own[v])) for v, p in enumerate(PARENTS[i].tolist()) if p >= 0]

    def kernel(i: int, a: Tensor, j: int, b: Tensor) -> float:
        of_nodes, of_pairs = NODE_KERNEL.values(x[i], x[j]), PAIR_KERNEL.values(couples[i], couples[j])
        same = float((of_nodes * (a[:, None] == b[None])).sum())
        return same + sum(float(of_pairs[s, t]) for s, *one in ends(i, a) for t, *other in ends(j, b) if one == other)

    rows = [(i, own) for i in range(EXAMPLES) for own in outputs]
    gram = np.array(
        [
            [
                kernel(i, y[i], j, y[j]) - kernel(i, a, j, y[j]) - kernel(i, y[i], j, b) + kernel(i, a, j, b)
                for j, b in rows
            ]
            for i, a in rows
        ]
    )
    costs = np.array([float((own != y[i]).sum()) for i, own in rows])
    groups = np.array([[float(i == g) for i, _ in rows] for g in range(EXAMPLES)])

    def minus_dual(alpha: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        product_ = gram @ alpha / (LAM * EXAMPLES**2)
        return float(alpha @ product_ / 2 - costs @ alpha / EXAMPLES), product_ - costs / EXAMPLES

    start = np.array([float(torch.equal(own, y[i])) for i, own in rows])
    solution = minimize(
        minus_dual,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * len(rows),
        constraints={"type": "eq", "fun": lambda alpha: groups @ alpha - 1, "jac": lambda alpha: groups},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return -float(solution.fun)


@pytest.mark.parametrize("tree", [False, True], ids=["chain", "tree"])
def test_the_optimum_is_that_of_the_kernel_machine(tree: bool) -> None:
    row = BCFW(gap_tolerance=1e-10).solve(problem_of(tree), lam=LAM, passes=3000).row
    assert -1e-12 <= row.gap <= 1e-9
    assert row.objective == pytest.approx(kernel_dual(tree), abs=1e-8)


@pytest.mark.parametrize("kind", ["chain", "lengths", "tree"])
def test_potentials(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    module = PairScore(4, 5, STATES)
    for parameter in module.parameters():
        parameter.data.normal_(generator=generator)
    nodes = torch.randn(3, NODES, 4, generator=generator).double()
    pairs = torch.randn(3, NODES - (kind != "tree"), 5, generator=generator).double()
    lengths = torch.tensor([3, 1, 2])
    structure = module({"chain": (nodes, pairs), "lengths": (nodes, pairs, lengths)}.get(kind, (nodes, pairs, PARENTS)))
    y = torch.randint(STATES, (3, NODES), generator=generator)
    assert isinstance(structure, Tree if kind == "tree" else LinearChain)
    for b, own in enumerate(y.tolist()):
        length = int(lengths[b]) if kind == "lengths" else NODES
        expected = sum(nodes[b, v] @ module.rows[:, own[v]] for v in range(length))
        for v in range(length):
            above = int(PARENTS[b, v]) if kind == "tree" else v - 1
            if above >= 0:
                expected = expected + pairs[b, v if kind == "tree" else v - 1] @ module.pairs[:, own[above], own[v]]
        assert_close(structure.score(y)[b], expected)


def test_padding_does_not_matter() -> None:
    nodes, pairs, lengths = torch.ones(2, 3, 2).double(), torch.ones(2, 2, 2).double(), torch.tensor([3, 1])
    nodes[1, 1:], pairs[1] = torch.nan, torch.nan
    module = PairScore(2, 2, STATES)
    module((nodes, pairs, lengths)).logsumexp().sum().backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in module.parameters() if parameter.grad is not None)


def test_what_does_not_fit_is_refused() -> None:
    module, nodes, pairs = PairScore(2, 3, STATES), torch.ones(1, 3, 2).double(), torch.ones(1, 2, 3).double()
    with pytest.raises(ValueError, match=r"features of pairs must have shape \(1, 2, 3\), got \(1, 3, 3\)"):
        module((nodes, torch.ones(1, 3, 3).double()))
    with pytest.raises(ValueError, match=r"features of nodes must have shape \(1, 3, 2\), got \(1, 3, 4\)"):
        module((torch.ones(1, 3, 4).double(), pairs))
    with pytest.raises(TypeError, match=r"features of pairs must have the dtype of the weights, torch\.float64, got"):
        module((nodes, pairs.float()))
    for counts, message in (
        ((0, 1, 1), "features must"),
        ((1, 0, 1), "pair_features must"),
        ((1, 1, 0), "states must"),
    ):
        with pytest.raises(ValueError, match=f"{message} be at least 1, got 0"):
            PairScore(*counts)
    with pytest.raises(TypeError, match=r"dtype must be floating point, got torch\.int64"):
        PairScore(1, 1, 2, torch.int64)
