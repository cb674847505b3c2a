"""Small linear problems, one for each kind of structure, given with all of its outputs."""

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from structsmooth import (
    BinaryGraph,
    Candidates,
    Hamming,
    LinearChain,
    LinearModuleProblem,
    Matching,
    Max,
    ScoreModule,
    Tree,
    WeightedHamming,
)
from structsmooth.costs import NormalizedHamming
from structsmooth.smoothing import Smoother

FEATURES = 3
EDGES = torch.tensor([[0, 1], [1, 2], [0, 2]])
PARENTS = torch.tensor([[1, -1, 1, 2]])


class Classes(ScoreModule):
    """Multiclass: x [B, F] to the scores of 4 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, 4, dtype=torch.float64)

    def forward(self, x: Tensor) -> Candidates:
        return Candidates(self.linear(x))


class Graph(ScoreModule):
    """A triangle: x [B, 3, F]; agreement has a weight that must not be negative."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, 2, dtype=torch.float64)
        self.agreement = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> BinaryGraph:
        contrast = (x[:, EDGES[:, 0]] - x[:, EDGES[:, 1]]).square().sum(-1)
        agree = (-contrast).exp() * self.agreement
        return BinaryGraph(self.linear(x), EDGES, agree[..., None, None] * torch.eye(2, dtype=x.dtype))


class Branches(ScoreModule):
    """A tree of 4 nodes and 2 labels: x [B, 4, F]; the scores of pairs are shared by all nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, 2, dtype=torch.float64)
        self.pairs = nn.Parameter(torch.zeros(2, 2, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tree:
        return Tree(self.linear(x), self.pairs.expand(*x.shape[:2], 2, 2), PARENTS.expand(len(x), -1))


class Pairs(ScoreModule):
    """Assignments of 3 to 3: x [B, 3, 3, F]."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(FEATURES, dtype=torch.float64))

    def forward(self, x: Tensor) -> Matching:
        return Matching(x @ self.weights)


class Chain(ScoreModule):
    """Sequences of 3 tokens with 2 labels: x [B, 3, F]; transitions in the form that is asked for."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.linear = form, nn.Linear(FEATURES, 2, dtype=torch.float64)
        self.transition = nn.Parameter(torch.zeros(2, 2, dtype=torch.float64))

    def forward(self, x: Tensor) -> LinearChain:
        forms = {
            "shared": self.transition,
            "per example": x.mean((1, 2))[:, None, None] * self.transition,
            "per edge": x[:, 1:].mean(2)[..., None, None] * self.transition,
        }
        return LinearChain(self.linear(x), forms[self.form])


def examples(shape: tuple[int, ...], outputs: list[Any], n: int = 6) -> list[tuple[Tensor, Tensor]]:
    """Gaussian inputs and random outputs."""
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(outputs), (n,), generator=generator).tolist()
    return [
        (torch.randn(*shape, FEATURES, generator=generator, dtype=torch.float64), torch.tensor(outputs[c]))
        for c in chosen
    ]


def labelings(nodes: int) -> list[Any]:
    return list(product(range(2), repeat=nodes))


PERMUTATIONS = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
# Module, shape of an input without its features, all outputs, cost.
SPACES: dict[str, tuple[Callable[[], ScoreModule], tuple[int, ...], list[Any], Any]] = {
    "classes": (Classes, (), [0, 1, 2, 3], Hamming()),
    "graph": (Graph, (3,), labelings(3), NormalizedHamming()),
    "tree": (Branches, (4,), labelings(4), WeightedHamming((1.0, 2.0))),
    "matching": (Pairs, (3, 3), PERMUTATIONS, Hamming()),
    "chain, shared": (lambda: Chain("shared"), (3,), labelings(3), Hamming()),
    "chain, per example": (lambda: Chain("per example"), (3,), labelings(3), Hamming()),
    "chain, per edge": (lambda: Chain("per edge"), (3,), labelings(3), NormalizedHamming()),
}


def problem_of(space: str, smoother: Smoother = Max(), **settings: Any) -> LinearModuleProblem:  # noqa: B008
    module, shape, outputs, cost = SPACES[space]
    settings.setdefault("bounds", agreement_bounds() if space == "graph" else None)
    return LinearModuleProblem(module(), examples(shape, outputs), cost, smoother=smoother, **settings)


def agreement_bounds() -> tuple[Tensor, Tensor]:
    lower = torch.full((2 * FEATURES + 3,), -torch.inf)
    lower[0] = 0  # parameters of the module itself come first
    return lower, torch.full_like(lower, torch.inf)
