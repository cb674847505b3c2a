"""Small factor graph problems, and linear programs over their local polytopes."""

from dataclasses import replace
from itertools import accumulate, product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize
from torch import Tensor

from structsmooth.problems import FactorGraphProblem, FactorGraphs, Parts

# Every form of scores: states, scores of edges, and whether state 0 is a reference.
FORMS = list(product((2, 3, 4), ("potts", "table"), (False, True)))


def random_graphs(
    sizes: tuple[int, ...] = (3, 1, 4, 4), states: int = 3, seed: int = 0, forests: bool = False
) -> FactorGraphs:
    """Graphs with loops, or forests, whose nodes share rows of features and weights; costs are no whole numbers."""
    generator = torch.Generator().manual_seed(seed)
    edges: list[list[tuple[int, int]]] = []
    for size in sizes:
        pairs = [(a, b) for b in range(size) for a in range(b)]
        if forests:
            pairs = [(a, b) for a, b in pairs if a == b // 2]
        turned = torch.rand(len(pairs), generator=generator) < 0.5
        edges.append([(b, a) if turn else (a, b) for (a, b), turn in zip(pairs, turned.tolist(), strict=True)])
    nodes, count = sum(sizes), sum(map(len, edges))
    return FactorGraphs(
        features=torch.randn(nodes, 3, generator=generator, dtype=torch.float64),
        labels=torch.randint(states, (nodes,), generator=generator),
        node_offsets=torch.tensor([0, *accumulate(sizes)]),
        edges=torch.tensor([pair for own in edges for pair in own], dtype=torch.int64).view(-1, 2),
        edge_offsets=torch.tensor([0, *accumulate(map(len, edges))]),
        rows=torch.randint(nodes, (nodes,), generator=generator),
        types=torch.randint(2, (nodes,), generator=generator),
        costs=torch.rand(nodes, generator=generator, dtype=torch.float64) + 0.5,
        edge_types=torch.randint(2, (count,), generator=generator),
        edge_features=torch.randn(count, 2, generator=generator, dtype=torch.float64),
        base_scores=torch.rand(nodes, states, generator=generator, dtype=torch.float64) / 2,
    )


def shared_graphs(states: int = 2, seed: int = 0) -> tuple[FactorGraphs, FactorGraphs]:
    """Four examples with loops, of which the first and the third share their edges; and the same with edges of each."""
    generator = torch.Generator().manual_seed(seed)
    square, triangle = [(0, 1), (2, 1), (2, 3), (0, 3), (3, 1)], [(0, 1), (1, 2), (0, 2)]
    sizes, sets, count = (4, 3, 5, 3), torch.tensor([1, 0, 1, 0]), len(square) + len(triangle)
    shared = FactorGraphs(
        features=torch.randn(15, 3, generator=generator, dtype=torch.float64),
        labels=torch.randint(states, (15,), generator=generator),
        node_offsets=torch.tensor([0, *accumulate(sizes)]),
        edges=torch.tensor(triangle + square),
        edge_offsets=torch.tensor([0, len(triangle), count]),
        types=torch.randint(2, (15,), generator=generator),
        costs=torch.rand(15, generator=generator, dtype=torch.float64) + 0.5,
        edge_types=torch.randint(2, (count,), generator=generator),
        edge_features=torch.randn(count, 2, generator=generator, dtype=torch.float64),
        edge_sets=sets,
    )
    own = shared.links.edges
    of_each = {name: getattr(shared, name)[own] for name in ("edges", "edge_types", "edge_features")}
    return shared, replace(shared, **of_each, edge_offsets=shared.link_offsets, edge_sets=torch.arange(4))


def random_problem(
    states: int = 3, pairwise: Any = "potts", reference: bool = False, graphs: FactorGraphs | None = None, **more: Any
) -> FactorGraphProblem:
    graphs = random_graphs(states=states) if graphs is None else graphs
    settings = {"node_types": 2, "edge_types": 2, **more}
    return FactorGraphProblem(graphs, states, pairwise=pairwise, reference=reference, **settings)


def random_weights(problem: FactorGraphProblem, seed: int = 0) -> Tensor:
    return torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear_program(unary: Tensor, edges: Tensor, pairwise: Tensor) -> tuple[Tensor, Parts]:
    """The largest score over the local polytope and a vertex that attains it, by an LP solver."""
    (nodes, states), pairs = unary.shape, len(edges)
    size = nodes * states + pairs * states**2
    rows: list[NDArray[np.float64]] = []
    targets: list[float] = []

    def add(entries: dict[int, float], target: float) -> None:
        row = np.zeros(size)
        row[list(entries)] = list(entries.values())
        rows.append(row)
        targets.append(target)

    for i in range(nodes):
        add({i * states + s: 1.0 for s in range(states)}, 1.0)
    for c, ends in enumerate(edges.tolist()):
        start = nodes * states + c * states**2
        for end, s in product(range(2), range(states)):
            table = {start + (s * states + r if end == 0 else r * states + s): 1.0 for r in range(states)}
            add(table | {ends[end] * states + s: -1.0}, 0.0)
    potentials = torch.cat([unary.flatten(), pairwise.flatten()]).numpy()
    solution = linprog(-potentials, A_eq=np.stack(rows), b_eq=targets, bounds=(0, 1), method="highs")
    assert solution.success
    statistics = torch.from_numpy(solution.x)
    nodes_part, edges_part = statistics.split([nodes * states, pairs * states**2])
    parts = nodes_part.view(nodes, states), edges_part.view(pairs, states, states)
    return torch.tensor(-solution.fun, dtype=torch.float64), parts


def relaxed_objective(problem: FactorGraphProblem, w: Tensor, lam: float) -> float:
    """G at these weights: the objective with hinges over the local polytope."""
    total = 0.0
    for i in range(problem.n):
        unary, pairwise = problem.augmented(w, i)
        value, _ = linear_program(unary, problem.graphs.edges[problem.graphs.edges_of(i)], pairwise)
        score = sum((p * m).sum() for p, m in zip(problem.potentials(w, i), problem.label_parts(i), strict=True))
        total += float(value - score)
    return total / problem.n + lam / 2 * float(w @ w)


def relaxed_optimum(problem: FactorGraphProblem, lam: float) -> float:
    """min G by the quadratic program over w, δ and a slack for every node and edge (Eq. 2)."""
    graphs, states, dim = problem.graphs, problem.states, problem.dim
    nodes, edges = len(graphs.labels), len(graphs.edges)
    units = torch.eye(dim, dtype=torch.float64)
    columns = [[problem.potentials(unit, i) for i in range(problem.n)] for unit in units]
    unary = torch.stack([torch.cat([own[0] for own in column]) for column in columns], -1).numpy()
    pairwise = torch.stack([torch.cat([own[1] for own in column]) for column in columns], -1).numpy()
    labels = sum(problem.adjoint(problem.label_parts(i), i) for i in range(problem.n)).numpy()
    costs = torch.cat([problem.costs(i)[0] for i in range(problem.n)]).numpy()
    size = dim + edges * 2 * states + nodes + edges
    rows: list[NDArray[np.float64]] = []
    targets: list[float] = []

    def delta(c: int, end: int, s: int) -> int:
        return dim + (c * 2 + end) * states + s

    ends = graphs.ends.tolist()
    for i, s in product(range(nodes), range(states)):
        row = np.zeros(size)
        row[:dim], row[size - edges - nodes + i] = -unary[i, s], 1.0
        for c, pair in enumerate(ends):
            if i in pair:
                row[delta(c, pair.index(i), s)] = -1.0
        rows.append(row)
        targets.append(costs[i, s])
    for c, s, r in product(range(edges), range(states), range(states)):
        row = np.zeros(size)
        row[:dim], row[size - edges + c] = -pairwise[c, s, r], 1.0
        row[delta(c, 0, s)] += 1.0
        row[delta(c, 1, r)] += 1.0
        rows.append(row)
        targets.append(0.0)
    matrix, limits = np.stack(rows), np.array(targets)
    linear = np.r_[-labels, np.zeros(edges * 2 * states), np.ones(nodes + edges)] / problem.n
    start = np.r_[np.zeros(size - nodes - edges), costs.max(1), np.zeros(edges)]

    def value(v: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slope = linear.copy()
        slope[:dim] += lam * v[:dim]
        return float(linear @ v + lam / 2 * v[:dim] @ v[:dim]), slope

    constraints = {"type": "ineq", "fun": lambda v: matrix @ v - limits, "jac": lambda v: matrix}
    options = {"ftol": 1e-12, "maxiter": 1000}
    solution = minimize(value, start, jac=True, method="SLSQP", constraints=constraints, options=options)
    assert solution.success, solution.message
    return float(solution.fun)
