"""Regret of decisions under predicted costs: shortest paths and assignments, each loss at equal oracle calls.

Features are standard normal, and costs are a polynomial of a random linear function of them, times uniform noise, as in
section 6.1 of Elmachtoub and Grigas (2022), divided by 3.5^degree: paths run through a grid, assignments pair rows with
as many columns. A linear model predicts the costs. Two-stage regression is least squares; every other loss is minimized
by Adam in the same number of calls of the max (or exp) oracle for each training example, best decisions for true costs
apart. The table has the normalized regret on test data in percent, mean ± standard deviation over seeds, and seconds of
training per run. Where PyEPO is installed, its SPO+ and its perturbed Fenchel-Young loss train the same models on the
same data with the same solver.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scripts.shared.harness import command, mean_and_spread, option
from scripts.shared.training import descend
from structsmooth import Matching, Paths, SPOPlus, StructuralHinge, Structure
from structsmooth.decisions import normalized_regret
from structsmooth.programs import PathGraph

_FEATURES = 5
_NOISE = 0.5
_BATCH = 32
_STEP = 0.05

# From predicted and true costs and the best decisions for the latter, to a loss.
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Decisions:
    """Decisions of one kind: the structure of costs [B, D], and what D is."""

    name: str
    space: Callable[[Tensor], Structure]
    costs: int
    has_exp_oracle: bool


def paths(size: int) -> Decisions:
    """Monotone paths through a grid of ``size`` times ``size`` nodes, from one corner to the opposite one."""
    nodes = np.arange(size**2).reshape(size, size)
    right = np.stack([nodes[:, :-1].ravel(), nodes[:, 1:].ravel()], 1)
    down = np.stack([nodes[:-1].ravel(), nodes[1:].ravel()], 1)
    edges = np.concatenate([right, down])
    graph = PathGraph(edges, 0, size**2 - 1)
    return Decisions("paths", lambda costs: Paths(-costs, graph), len(edges), True)


def assignments(size: int) -> Decisions:
    """Assignments of ``size`` rows to as many columns."""
    return Decisions("assignments", lambda costs: Matching(-costs.view(-1, size, size)), size**2, False)


def generate(costs: int, train: int, test: int, degree: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Features [n, p] and costs [n, D] of training and of test data."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.bernoulli(torch.full((costs, _FEATURES), 0.5), generator=generator)
    x = torch.randn(train + test, _FEATURES, generator=generator)
    clean = ((x @ hidden.T / _FEATURES**0.5 + 3) ** degree + 1) / 3.5**degree
    noise = 1 + _NOISE * (2 * torch.rand(clean.shape, generator=generator) - 1)
    data = clean * noise
    return [(x[:train], data[:train]), (x[train:], data[train:])]


def losses(decisions: Decisions, sigma: float, n: int) -> dict[str, tuple[Loss, int]]:
    """Losses by their names, and the oracle calls that one of them makes for an example."""
    spo, hinge, perturbed = SPOPlus(), StructuralHinge(), StructuralHinge.perturbed(sigma, n)
    space = decisions.space
    found: dict[str, tuple[Loss, int]] = {
        "SPO+": (lambda c, true, y: spo(space(c), space(true), y), 1),
        "perturbed": (lambda c, true, y: perturbed(space(c), y), n + 1),
        "hinge": (lambda c, true, y: hinge(space(c), y), 1),
    }
    if decisions.has_exp_oracle:
        crf = StructuralHinge.crf()
        found["crf"] = (lambda c, true, y: crf(space(c), y), 1)
    return found


def other_losses(decisions: Decisions, sigma: float, n: int) -> dict[str, tuple[Loss, int]]:
    """The losses of PyEPO, over the same solver."""
    import pyepo
    from pyepo.model.opt import optModel

    class Model(optModel):  # type: ignore[misc, unused-ignore]
        """The max oracle as a model of PyEPO."""

        def _getModel(self) -> tuple[None, list[int]]:  # noqa: N802 - their name
            self.modelSense = pyepo.EPO.MINIMIZE
            return None, list(range(decisions.costs))

        def setObj(self, c: Any) -> None:  # noqa: N802 - their name
            self.c = torch.as_tensor(c).unsqueeze(0)

        def solve(self) -> tuple[Any, float]:
            structure = decisions.space(self.c)
            value, y = structure.max()
            return structure.parts(y)[0].flatten().numpy(), -float(value)

    spo = pyepo.func.SPOPlus(Model(), processes=1)
    perturbed = pyepo.func.perturbedFenchelYoung(Model(), n_samples=n, sigma=sigma, processes=1)

    def parts(true: Tensor, y: Tensor) -> Tensor:
        return decisions.space(true).parts(y)[0].flatten(1)

    def their_spo(c: Tensor, true: Tensor, y: Tensor) -> Tensor:
        best = parts(true, y)
        loss: Tensor = spo(c, true, best, (true * best).sum(1, keepdim=True))
        return loss

    def their_perturbed(c: Tensor, true: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = perturbed(c, parts(true, y))
        return loss

    return {"SPO+, PyEPO": (their_spo, 1), "perturbed, PyEPO": (their_perturbed, n)}


def least_squares(x: Tensor, costs: Tensor) -> nn.Linear:
    """Two-stage regression."""
    solution = torch.linalg.lstsq(torch.cat([x, torch.ones(len(x), 1)], 1), costs).solution
    model = nn.Linear(x.shape[1], costs.shape[1])
    with torch.no_grad():
        model.weight.copy_(solution[:-1].T)
        model.bias.copy_(solution[-1])
    return model


def train(loss: Loss, epochs: int, x: Tensor, costs: Tensor, y: Tensor, seed: int) -> nn.Linear:
    """A linear model by Adam, with a step size that falls linearly to zero."""
    torch.manual_seed(seed)
    model = nn.Linear(x.shape[1], costs.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), _STEP)

    def loss_of(rows: Tensor, done: float) -> Tensor:
        return loss(model(x[rows]), costs[rows], y[rows])

    list(descend(optimizer, loss_of, len(x), batch=_BATCH, epochs=epochs, last=1e-3))
    return model


def compare(decisions: Decisions, degree: int, options: Any) -> dict[str, list[tuple[float, float]]]:
    """Regret in percent and seconds of each method, for each seed."""
    found: dict[str, list[tuple[float, float]]] = {}
    methods = losses(decisions, options.sigma, options.n)
    if find_spec("pyepo") is not None:
        methods |= other_losses(decisions, options.sigma, options.n)
    for seed in range(options.seeds):
        (x, costs), (test_x, test_costs) = generate(decisions.costs, options.train, options.test, degree, seed)
        y, space = decisions.space(costs).max()[1], decisions.space

        def measure(name: str, fit: Callable[[], nn.Linear]) -> None:
            start = time.perf_counter()
            model = fit()
            seconds = time.perf_counter() - start
            with torch.no_grad():
                regret = normalized_regret(space(model(test_x)), space(test_costs))  # noqa: B023 - called in the loop
            found.setdefault(name, []).append((100 * regret, seconds))

        measure("two-stage", lambda: least_squares(x, costs))  # noqa: B023 - called in the loop
        for name, (loss, calls) in methods.items():
            measure(name, lambda: train(loss, options.calls // calls, x, costs, y, seed))  # noqa: B023 - the same
    return found


@command(
    option("--size", 5, "rows of the grid, and of the assignment"),
    option("--train", 200, "training examples"),
    option("--test", 1000, "test examples"),
    option("--degrees", [1, 4, 6], "of the polynomial"),
    option("--calls", 300, "oracle calls for each training example"),
    option("--sigma", 0.5, "level of the noise"),
    option("--n", 4, "draws of noise"),
    option("--seeds", 5, "number of seeds"),
    threads=None,
    table=["decisions", "degree", "loss", "regret, %", "seconds"],
)
def main(options: Namespace) -> Iterator[list[str]]:
    """A row for each kind of decisions, degree and loss."""
    for decisions, degree in product((paths(options.size), assignments(options.size)), options.degrees):
        for name, runs in compare(decisions, degree, options).items():
            regrets, taken = zip(*runs, strict=True)
            yield [decisions.name, str(degree), name, mean_and_spread(regrets, 2), f"{mean(taken):.2f}"]
