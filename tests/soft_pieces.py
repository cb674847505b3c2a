"""Small problems with factors of several nodes, and the optimum of their soft dual by enumeration of all blocks."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn

from structsmooth import FactorGraph, LinearModuleProblem, Max, ScoreModule, Structure
from structsmooth.factors import AtMostOne, Count, LocalPolytope, Table
from structsmooth.smoothing import Smoother

MAX = Max()
NODES, EDGES = 5, [(0, 1), (1, 2), (2, 3), (3, 0)]
TRIPLES, COUNTED, EXCLUDED = [(0, 1, 2), (2, 3, 4)], [1, 2, 3, 4], [0, 3, 4]


class Factors(ScoreModule):
    """A cycle of four of five nodes, two tables of three nodes, a count of four and perhaps a constraint on three."""

    def __init__(self, states: int = 2, logic: bool = False, pairs: bool = True, relaxed: bool = False) -> None:
        super().__init__()
        self.states, self.logic, self.edges, self.relaxed = states, logic, EDGES if pairs else [], relaxed
        shapes = ((3, states), (states, states), (2, *3 * (states,)), (4,))
        self.own, self.pair, self.triple, self.count = (
            nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in shapes
        )

    def forward(self, x: Tensor) -> Structure:
        tables = torch.einsum("bdk,kpqr->dbpqr", x[:, :2, :2], self.triple)
        factors: list[Any] = [Table(torch.tensor(scope), own) for scope, own in zip(TRIPLES, tables, strict=True)]
        factors.append(Count(torch.tensor(COUNTED), self.count * x[:, 2, :1]))
        if self.logic:
            factors.append(AtMostOne(torch.tensor(EXCLUDED)))
        edges = torch.tensor(self.edges, dtype=torch.int64).view(-1, 2)
        graph = FactorGraph(x @ self.own, edges, self.pair.expand(len(edges), -1, -1), factors=factors)
        return LocalPolytope(graph, method="lp") if self.relaxed else graph


def factor_problem(
    n: int = 4, seed: int = 0, states: int = 2, logic: bool = False, smoother: Smoother = MAX, **more: Any
) -> LinearModuleProblem:
    generator, data = torch.Generator().manual_seed(seed), []
    while len(data) < n:
        x = torch.randn(NODES, 3, generator=generator, dtype=torch.float64)
        y = torch.randint(states, (NODES,), generator=generator)
        if not logic or int((y[EXCLUDED] == 1).sum()) <= 1:
            data.append((x, y))
    return LinearModuleProblem(Factors(states, logic, **more), data, smoother=smoother)


def blocks_of(module: Factors, by: str) -> list[tuple[list[int], list[int], list[int]]]:
    """Scope, edges and factors of each block of an example."""
    factors = [list(scope) for scope in [*TRIPLES, COUNTED, *([EXCLUDED] if module.logic else [])]]
    edges = list(range(len(module.edges)))
    blocks = [([v], [], []) for v in range(NODES)]
    if by == "whole":
        return [*blocks, (list(range(NODES)), edges, list(range(len(factors))))]
    if by == "forests":  # all edges of the cycle but the last, and that
        blocks += [([0, 1, 2, 3], edges[:3], []), ([0, 3], edges[3:], [])]
    else:
        blocks += [(list(module.edges[c]), [c], []) for c in edges]
    return blocks + [(scope, [], [f]) for f, scope in enumerate(factors)]


@dataclass(frozen=True)
class EnumeratedDual:
    """f_ρ(μ) = ⟨c, μ⟩ − μᵀHμ/2 for μ in a simplex for each block, whose labelings are columns."""

    cost: NDArray[np.float64]
    hessian: NDArray[np.float64]
    blocks: list[slice]

    @classmethod
    def of(cls, problem: LinearModuleProblem, lam: float, rho: float, by: str = "factors") -> "EnumeratedDual":
        costs, features, seats, blocks = [], [], [], []
        for i in range(problem.n):
            barriers = problem.example(i).constants.barriers
            label = problem.adjoint(problem.label_parts(i), i)
            found = blocks_of(problem.module, by)
            messages = [(k, v) for k, (scope, _, _) in enumerate(found) if len(scope) > 1 for v in scope]
            for k, (scope, edges, factors) in enumerate(found):
                begin = len(costs)
                for labels in product(range(problem.module.states), repeat=len(scope)):
                    y = torch.zeros(NODES, dtype=torch.int64)
                    y[scope] = torch.tensor(labels)
                    parts = _restricted(problem.parts(y, i), scope, edges, factors)
                    if barriers is not None and any(
                        bool((m * p < 0).any()) for m, p in zip(parts, barriers, strict=True)
                    ):
                        continue
                    costs.append(sum(float((m * c).sum()) for m, c in zip(parts, problem.costs(i), strict=True)))
                    features.append(problem.adjoint(parts, i))
                    row = torch.zeros(problem.n, len(messages), problem.module.states, dtype=torch.float64)
                    for m, (block, v) in enumerate(messages):
                        if v in scope and (block == k or len(scope) == 1):
                            row[i, m, y[v]] = 1.0 if block == k else -1.0
                    seats.append(row.flatten())
                blocks.append(slice(begin, len(costs)))
            # The features of the labels are taken off once for each example, which is from the first of its blocks.
            first = blocks[-len(found)]
            features[first] = [own - label for own in features[first]]
        psi, agree = (torch.stack(rows).numpy() for rows in (features, seats))
        n = problem.n
        return cls(np.array(costs) / n, psi @ psi.T / (lam * n**2) + agree @ agree.T / (rho * n), blocks)

    def optimum(self, tolerance: float) -> float:
        """The largest value, by pairwise steps on blocks until the gap, which bounds the error, is small enough."""
        mu = np.zeros(len(self.cost))
        mu[[block.start for block in self.blocks]] = 1.0
        gradient = self.cost - self.hessian @ mu
        while True:
            gap = 0.0
            for block in self.blocks:
                own, held = gradient[block], mu[block] > 0
                best, worst = own.argmax(), np.where(held, own, np.inf).argmin()
                gap += own[best] - own @ mu[block]
                s, v = block.start + best, block.start + worst
                curvature = self.hessian[s, s] + self.hessian[v, v] - 2 * self.hessian[s, v]
                if s == v:
                    continue
                size = min(mu[v], (gradient[s] - gradient[v]) / max(curvature, 1e-300))
                mu[s] += size
                mu[v] = 0.0 if size == mu[v] else mu[v] - size
                gradient -= size * (self.hessian[:, s] - self.hessian[:, v])
            if gap < tolerance:
                return float(self.cost @ mu - mu @ self.hessian @ mu / 2)

    def smoothed_optimum(self, weight: float) -> float:
        """The largest value with ``weight`` times the entropies of blocks, by quasi-Newton steps on logits."""
        cost, hessian = torch.from_numpy(self.cost), torch.from_numpy(self.hessian)

        def minus(z: Any) -> tuple[float, Any]:
            logits = torch.from_numpy(z).requires_grad_()
            logs = torch.cat([logits[block].log_softmax(0) for block in self.blocks])
            mu = logs.exp()
            value = cost @ mu - mu @ hessian @ mu / 2 - weight * mu @ logs
            (gradient,) = torch.autograd.grad(-value, logits)
            return -float(value.detach()), gradient.numpy()

        options = {"maxiter": 20000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 50}
        return -float(minimize(minus, 0 * self.cost, jac=True, method="L-BFGS-B", options=options).fun)


def _restricted(parts: Any, scope: list[int], edges: list[int], factors: list[int]) -> tuple[Tensor, ...]:
    """The parts of a block: of its node if it has one alone, of its edges and of its factors."""
    nodes, pairs, finals = (torch.zeros_like(part) for part in parts)
    if len(scope) == 1:
        nodes[:, scope] = parts[0][:, scope]
    pairs[edges] = parts[1][edges]
    finals[:, factors] = parts[2][:, factors]
    return nodes, pairs, finals
