"""Steps of the concave-convex procedure by enumeration of all outputs."""

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor


class EnumeratedSteps:
    """The exact convex problems of partial labels.

    Args:
        examples: of each, the features [outputs, dim] and costs [outputs] of all outputs, and which agree with the
            labels, bool [outputs].
        lam: λ.
    """

    def __init__(self, examples: list[tuple[Tensor, Tensor, Tensor]], lam: float) -> None:
        self.examples, self.lam = [tuple(own.numpy() for own in example) for example in examples], lam

    def objective(self, w: Tensor, mu: float) -> float:
        """F(w), with hinges if ``mu`` is 0."""
        total = 0.0
        for features, costs, agree in self.examples:
            scores = features @ w.numpy()
            total += _largest(scores + costs, mu) - _largest(scores[agree], mu)
        return total / len(self.examples) + self.lam / 2 * float(w @ w)

    def convex(self, w: Tensor, v: Tensor, mu: float) -> float:
        """The objective of the convex problem at w, for weights v."""
        total = 0.0
        for (features, costs, agree), target in zip(self.examples, self._targets(w, mu), strict=True):
            here = _largest(features[agree] @ w.numpy(), mu)
            tangent = here + target @ (v - w).numpy()
            total += _largest(features @ v.numpy() + costs, mu) - tangent
        return total / len(self.examples) + self.lam / 2 * float(v @ v)

    def step(self, w: Tensor, mu: float) -> Tensor:
        """argmin of the convex problem at w, [dim]: a quadratic program, or a smooth problem if ``mu`` is not 0."""
        targets = self._targets(w, mu)
        return torch.from_numpy(self._smooth(w.numpy(), targets) if mu else self._program(targets))

    def _targets(self, w: Tensor, mu: float) -> list[Any]:
        """Mean features of the outputs that agree: of the best one, or under their distribution."""
        targets = []
        for features, _, agree in self.examples:
            scores = features[agree] @ w.numpy()
            shares = np.exp((scores - scores.max()) / mu) if mu else (np.arange(len(scores)) == scores.argmax()) * 1.0
            targets.append(shares / shares.sum() @ features[agree])
        return targets

    def _smooth(self, start: Any, targets: list[Any]) -> Any:
        """With μ = 1."""

        def objective(v: Any) -> tuple[float, Any]:
            value, gradient = self.lam / 2 * v @ v, self.lam * v
            for (features, costs, _), target in zip(self.examples, targets, strict=True):
                z = features @ v + costs
                u = np.exp(z - z.max())
                value += (z.max() + np.log(u.sum()) - target @ v) / len(targets)
                gradient = gradient + (u / u.sum() @ features - target) / len(targets)
            return value, gradient

        return minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 5000}).x

    def _program(self, targets: list[Any]) -> Any:
        n, dim = len(targets), len(targets[0])
        rows = np.concatenate([f - t for (f, _, _), t in zip(self.examples, targets, strict=True)])
        bounds = np.concatenate([costs for _, costs, _ in self.examples])
        slack = np.repeat(np.eye(n), [len(costs) for _, costs, _ in self.examples], axis=0)
        constraint = {
            "type": "ineq",
            "fun": lambda v: slack @ v[dim:] - rows @ v[:dim] - bounds,
            "jac": lambda v: np.c_[-rows, slack],
        }

        def value(v: Any) -> tuple[float, Any]:
            return self.lam / 2 * v[:dim] @ v[:dim] + v[dim:].mean(), np.r_[self.lam * v[:dim], np.full(n, 1 / n)]

        start = np.r_[np.zeros(dim), np.full(n, bounds.max())]
        options = {"ftol": 1e-14, "maxiter": 1000}
        return minimize(value, start, jac=True, method="SLSQP", constraints=constraint, options=options).x[:dim]


def _largest(scores: Any, mu: float) -> float:
    """The largest score, or with μ = 1 the logarithm of the sum of exponentials."""
    return float(scores.max() + np.log(np.exp(scores - scores.max()).sum()) if mu else scores.max())
