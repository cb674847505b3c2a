"""Soft agreement with kernels of nodes and of pairs, against the dual of its blocks by kernel values alone."""

import numpy as np
import pytest
import torch
from soft_pieces import EnumeratedDual
from torch import Tensor
from torch.testing import assert_close

from structsmooth import FactorGraph, LinearModuleProblem, SoftBCFW
from structsmooth.problems import KernelFeatures
from structsmooth.scores import PairScore

LAM, RHO, EXAMPLES, NODES, STATES = 0.5, 2.0, 3, 3, 3
EDGES = torch.tensor([[0, 1], [1, 2], [0, 2]])
NODE_KERNEL, PAIR_KERNEL = KernelFeatures("rbf", gamma=0.5), KernelFeatures("polynomial", gamma=0.3, degree=2)


def points() -> tuple[Tensor, Tensor, Tensor]:
    """Points of all nodes [n N, 2] and of all edges [n E, 4], and labels [n, N]."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(EXAMPLES, NODES, 2, generator=generator, dtype=torch.float64)
    couples = x[:, EDGES].flatten(2)
    return x.flatten(0, 1), couples.flatten(0, 1), torch.randint(STATES, (EXAMPLES, NODES), generator=generator)


def kernel_problem() -> LinearModuleProblem:
    x, couples, y = points()
    nodes = NODE_KERNEL.fit(x)(x).view(EXAMPLES, NODES, -1)
    pairs = PAIR_KERNEL.fit(couples)(couples).view(EXAMPLES, len(EDGES), -1)
    data = [((nodes[i], pairs[i], EDGES), y[i]) for i in range(EXAMPLES)]
    return LinearModuleProblem(PairScore(nodes.shape[-1], pairs.shape[-1], STATES), data)


def kernel_dual() -> EnumeratedDual:
    """Coefficients of a state of a block, and of the labels of the block, at the points; their kernel; agreement."""
    x, couples, y = points()
    costs, nodes, pairs, agree, blocks = [], [], [], [], []

    def add(i: int, scope: list[int], edge: int) -> None:
        begin = len(costs)
        for labels in np.ndindex(*len(scope) * (STATES,)):
            of_node, of_pair = (torch.zeros(len(own), STATES**k).double() for own, k in ((x, 1), (couples, 2)))
            seats = torch.zeros(EXAMPLES, len(EDGES), 2, STATES, dtype=torch.float64)
            if edge < 0:
                at = i * NODES + scope[0]
                of_node[at, labels[0]] += 1.0
                of_node[at, y[i, scope[0]]] -= 1.0
                seats[i, :, :, labels[0]] = -(scope[0] == EDGES).double()
                costs.append(float(labels[0] != y[i, scope[0]]))
            else:
                at, (a, b) = i * len(EDGES) + edge, y[i, scope].tolist()
                of_pair[at, labels[0] * STATES + labels[1]] += 1.0
                of_pair[at, a * STATES + b] -= 1.0
                seats[i, edge, [0, 1], list(labels)] = 1.0
                costs.append(0.0)
            nodes.append(of_node)
            pairs.append(of_pair)
            agree.append(seats.flatten())
        blocks.append(slice(begin, len(costs)))

    for i in range(EXAMPLES):
        for v in range(NODES):
            add(i, [v], -1)
        for c, ends in enumerate(EDGES.tolist()):
            add(i, ends, c)
    grams = NODE_KERNEL.values(x, x), PAIR_KERNEL.values(couples, couples)
    found = [torch.stack(own).transpose(1, 2) for own in (nodes, pairs)]  # [columns, labels, points]
    kernel = sum(torch.einsum("csp,pq,dsq->cd", own, gram, own) for own, gram in zip(found, grams, strict=True))
    seats = torch.stack(agree)
    hessian = kernel / (LAM * EXAMPLES**2) + seats @ seats.T / (RHO * EXAMPLES)
    return EnumeratedDual(np.array(costs) / EXAMPLES, hessian.numpy(), blocks)


def test_the_optimum_is_that_of_the_kernels() -> None:
    optimum = kernel_dual().optimum(1e-11)
    solver = SoftBCFW(rho=RHO, penalty="constant", sweeps=4, gap_tolerance=1e-6)
    last = solver.solve(kernel_problem(), lam=LAM, passes=300).history[-1]
    assert last.dual == pytest.approx(optimum, rel=1e-6)
    assert last.objective == pytest.approx(optimum, rel=1e-5)


def test_marginals_are_the_dual_coefficients() -> None:
    """Scores at new points are sums of kernel values with labels minus marginals."""
    x, couples, y = points()
    problem = kernel_problem()
    state = SoftBCFW(penalty="constant").solve(problem, lam=LAM, passes=20).state
    labels = torch.nn.functional.one_hot(y.flatten(), STATES).double()
    ends = labels.view(EXAMPLES, NODES, STATES)[:, EDGES].flatten(0, 1)
    tables = torch.einsum("es,er->esr", ends[:, 0], ends[:, 1])
    scale = LAM * EXAMPLES
    new = torch.tensor([[0.3, -1.0], [1.2, 0.4]]).double()
    rows, pairs = state.weights.split([problem.module.rows.numel(), problem.module.pairs.numel()])
    scores = NODE_KERNEL.fit(x).scores(new, rows.view(-1, STATES))
    assert_close(scores, NODE_KERNEL.values(new, x) @ (labels - state.point.nodes) / scale)
    couple = torch.cat([new[:1], new[1:]], 1)
    of_pair = PAIR_KERNEL.fit(couples).scores(couple, pairs.view(-1, STATES**2))
    assert_close(of_pair, PAIR_KERNEL.values(couple, couples) @ (tables - state.point.edges).flatten(1) / scale)


def test_graphs_of_pairs_may_be_padded() -> None:
    module = PairScore(2, 1, 2)
    with torch.no_grad():
        module.rows.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        module.pairs.copy_(torch.tensor([[[0.0, 1.0], [2.0, 3.0]]]))
    x, features = torch.eye(2).double().expand(2, -1, -1), torch.tensor([[[1.0], [9.0]], [[2.0], [9.0]]]).double()
    edges = torch.tensor([[[0, 1], [-1, -1]], [[1, 0], [-1, -1]]])
    graph = module((x, features, edges))
    assert isinstance(graph, FactorGraph)
    own, of_first, of_second = 1.0 + 2.0, 1.0, 2 * 2.0
    expected = torch.tensor([own + of_first, own + of_second], dtype=torch.float64)
    assert_close(graph.score(torch.tensor([[0, 1], [0, 1]])), expected)
    with pytest.raises(ValueError, match="features of pairs must have shape"):
        module((x, features[:, :1], edges))
