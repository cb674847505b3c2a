"""Small linear problems with forbidden parts and constants, and the same problems with all of their outputs listed."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from linear_problems import EDGES, FEATURES, Chain, Graph, examples
from torch import Tensor, nn

from structsmooth import Candidates, FactorGraph, LinearChain, LinearModuleProblem, ScoreModule
from structsmooth.factors import AtMostOne, Budget, LocalPolytope

LAM, INF = 0.05, torch.inf


class Masked(Chain):
    """Label 1 must not follow label 0."""

    def forward(self, x: Tensor) -> LinearChain:
        chain = super().forward(x)
        return LinearChain(
            chain.unary, chain.transition.masked_fill(torch.tensor([[False, True], [False, False]]), -INF)
        )


class Ends(Chain):
    """The mask is added, and depends on the input: some chains must not start with label 1."""

    def forward(self, x: Tensor) -> LinearChain:
        chain = super().forward(x)
        start = torch.where(x[:, 0, :1] > 0, torch.tensor([0.0, -INF]), torch.tensor([0.0, 0.0]))
        return LinearChain(chain.unary, chain.transition, start=start)


class Joined(ScoreModule):
    """A triangle of 2 labels with a factor over all nodes."""

    def __init__(self, *factors: Any, relaxed: bool = False) -> None:
        super().__init__()
        self.linear, self.factors, self.relaxed = nn.Linear(FEATURES, 2, dtype=torch.float64), factors, relaxed
        self.pairs = nn.Parameter(torch.zeros(2, 2, dtype=torch.float64))

    def forward(self, x: Tensor) -> FactorGraph:
        graph = FactorGraph(self.linear(x), EDGES, self.pairs, factors=self.factors)
        return LocalPolytope(graph) if self.relaxed else graph


class Rewarded(Graph):
    """A cut whose agreement has a constant reward, beside frozen scores of labels."""

    def __init__(self) -> None:
        super().__init__()
        self.agreement.requires_grad_(False).fill_(0.7)
        self.linear.bias.requires_grad_(False).copy_(torch.tensor([0.3, -0.2]))


class Both(Masked):
    """Forbidden transitions, and others that have scores but are not trained."""

    def __init__(self, form: str) -> None:
        super().__init__(form)
        self.transition.requires_grad_(False).copy_(torch.tensor([[0.4, 0.0], [-0.3, 0.1]]))


SPACES: dict[str, Callable[[], ScoreModule]] = {
    "forbidden transitions": lambda: Masked("shared"),
    "forbidden pairs": lambda: Masked("per edge"),
    "forbidden starts": lambda: Ends("per example"),
    "at most one": lambda: Joined(AtMostOne(torch.arange(3))),
    "budget": lambda: Joined(Budget(torch.arange(3), 2)),
    "constant reward": Rewarded,
    "forbidden and constant": lambda: Both("shared"),
}


def allowed(module: ScoreModule, x: Tensor) -> list[tuple[int, ...]]:
    """Outputs that may occur."""
    outputs = list(product(range(2), repeat=3))
    with torch.no_grad():
        scores = module(x.expand(len(outputs), -1, -1)).score(torch.tensor(outputs))
    return [y for y, score in zip(outputs, scores.tolist(), strict=True) if score > -INF]


def data_of(module: ScoreModule, n: int = 6) -> list[tuple[Tensor, tuple[Tensor, Tensor]]]:
    """Gaussian inputs with labels that are allowed, and costs of mistakes that no two outputs share."""
    generator = torch.Generator().manual_seed(1)
    data = []
    for x, _ in examples((3,), [0], n):
        outputs = allowed(module, x)
        y = torch.tensor(outputs[int(torch.randint(len(outputs), (1,), generator=generator))])
        costs = 0.5 + torch.rand(3, 2, generator=generator, dtype=torch.float64)
        data.append((x, (y, costs * (torch.arange(2) != y[:, None]))))
    return data


class Listed(ScoreModule):
    """The allowed outputs of another module as candidates, with the part of their scores that weights change."""

    def __init__(self, module: ScoreModule) -> None:
        super().__init__()
        self.module = module
        self.names = [name for name, p in module.named_parameters() if p.requires_grad]

    def forward(self, x: Tensor) -> Candidates:
        own = dict(self.module.named_parameters())
        zeros = {name: torch.zeros_like(own[name]) for name in self.names}
        rows = []
        for one in x:
            outputs = torch.tensor(allowed(self.module, one))
            repeated = one.expand(len(outputs), -1, -1)
            constants = torch.func.functional_call(self.module, zeros, (repeated,)).score(outputs)
            rows.append(self.module(repeated).score(outputs) - constants)
        return Candidates(torch.stack(rows))


def listed(
    module: ScoreModule, data: Sequence[tuple[Tensor, tuple[Tensor, Tensor]]], **settings: Any
) -> LinearModuleProblem:
    """The problem over candidates; constants are part of the costs, and those of the labels are subtracted."""
    rows: list[Any] = []
    for x, (y, part_costs) in data:
        outputs = torch.tensor(allowed(module, x))
        with torch.no_grad():
            structure = torch.func.functional_call(
                module,
                {name: torch.zeros_like(p) for name, p in module.named_parameters() if p.requires_grad},
                (x[None],),
            )
            costed = structure.cost_augmented(y[None], part_costs[None])
            costs = torch.cat([costed.score(output[None]) for output in outputs]) - structure.score(y[None])
        rows.append((x, (torch.tensor(outputs.tolist().index(y.tolist())), costs)))
    return LinearModuleProblem(Listed(module), rows, **settings, chunk_size=1)


def problems(space: str, **settings: Any) -> tuple[LinearModuleProblem, LinearModuleProblem]:
    module = SPACES[space]()
    with torch.no_grad():  # random weights: constants are what remains without them
        generator = torch.Generator().manual_seed(2)
        for p in module.parameters():
            if p.requires_grad:
                p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    data = data_of(module)
    return LinearModuleProblem(module, data, **settings), listed(module, data, **settings)


class Loops(ScoreModule):
    """A triangle whose scores of pairs are constant."""

    def __init__(self, table: Tensor, relaxed: bool = False, factors: Any = ()) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, 2, dtype=torch.float64)
        self.table, self.relaxed, self.factors = table.double(), relaxed, factors

    def forward(self, x: Tensor) -> FactorGraph:
        graph = FactorGraph(self.linear(x), EDGES, self.table, factors=self.factors)
        return LocalPolytope(graph) if self.relaxed else graph


def wrong_data(module: ScoreModule) -> list[tuple[Tensor, tuple[Tensor, Tensor]]]:
    """The labels of example 4 are not allowed."""
    data = data_of(module)
    x, (_, costs) = data[4]
    outputs = allowed(module, x)
    y = next(y for y in product(range(2), repeat=3) if y not in outputs)
    data[4] = (x, (torch.tensor(y), costs))
    return data
