"""Small problems with scores that are not linear, one for each kind of structure."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from structsmooth import BinaryGraph, Candidates, LinearChain, Max, ModuleProblem, ScoreModule, Tree
from structsmooth.problems import PartialLabels
from structsmooth.smoothing import Smoother

Example = tuple[Any, Any]


class Chain(ScoreModule):
    """A trained and a frozen layer, learned transitions, and one forbidden label."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.frozen, self.unary = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.transition = nn.Parameter(torch.zeros(3, 3))
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> LinearChain:
        unary = self.unary(torch.tanh(self.frozen(torch.tanh(self.hidden(x)))))
        forbidden = torch.zeros_like(unary, dtype=torch.bool)
        forbidden[:, 0, 2] = True
        return LinearChain(unary.masked_fill(forbidden, -torch.inf), self.transition)


class Words(ScoreModule):
    """Learned embeddings of many words, of which a sentence has few."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.hidden, self.unary = nn.Embedding(150, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.transition = nn.Parameter(torch.zeros(3, 3))

    def forward(self, x: Tensor) -> LinearChain:
        return LinearChain(self.unary(torch.tanh(self.hidden(self.embedding(x)))), self.transition)


class Branches(ScoreModule):
    """A tree whose pairwise scores are constants."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Softplus(), nn.Linear(5, 2))

    def forward(self, x: Tensor) -> Tree:
        parents = torch.tensor([-1, 0, 0]).expand(len(x), 3)
        pairwise = torch.linspace(-1, 1, 12, dtype=x.dtype).view(3, 2, 2).expand(len(x), 3, 2, 2)
        return Tree(self.layers(x), pairwise, parents)


class Choice(ScoreModule):
    """Candidates with padding, by a layer and its own product."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Candidates:
        mask = torch.ones(x.shape[:2], dtype=torch.bool)
        mask[:, -1] = False
        return Candidates((self.a(x) * self.b(x)).sum(-1), mask)


class Pixels(ScoreModule):
    """A graph cut with a learned agreement, which no transform of torch.func may see."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
        self.agreement = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> BinaryGraph:
        agree = nn.functional.softplus(self.agreement) * torch.eye(2, dtype=x.dtype)
        return BinaryGraph(self.layers(x), torch.tensor([[0, 1], [1, 2]]), agree.expand(len(x), 2, 2, 2))


def examples(labels: Callable[[torch.Generator], Tensor], parts: int = 3, n: int = 7) -> list[Example]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(parts, 4, generator=generator, dtype=torch.float64), labels(generator)) for _ in range(n)]


def chain_problem(batch_size: int = 3, smoother: Smoother | None = None) -> ModuleProblem:
    torch.manual_seed(0)
    # Without the label that is forbidden at the first position.
    data = examples(lambda generator: torch.randint(2, (5,), generator=generator), parts=5)
    return ModuleProblem(Chain().double(), data, batch_size=batch_size, smoother=smoother or Max())


def words_problem(batch_size: int = 2, smoother: Smoother | None = None) -> ModuleProblem:
    torch.manual_seed(0)
    data = [(torch.randint(150, (5,)), torch.randint(3, (5,))) for _ in range(7)]
    return ModuleProblem(Words().double(), data, batch_size=batch_size, smoother=smoother or Max())


def tree_problem() -> ModuleProblem:
    torch.manual_seed(0)
    data = examples(lambda generator: torch.randint(2, (3,), generator=generator))
    return ModuleProblem(Branches().double(), data, batch_size=3)


def candidates_problem(dtype: torch.dtype = torch.float64) -> ModuleProblem:
    torch.manual_seed(0)
    labeled = examples(lambda g: torch.randint(4, (), generator=g), parts=5)
    data = [(x.to(dtype), (y, y != torch.arange(5))) for x, y in labeled]
    return ModuleProblem(Choice().to(dtype), data, cost=None, batch_size=3)


def graph_problem() -> ModuleProblem:
    torch.manual_seed(0)
    data = examples(lambda generator: torch.randint(2, (3,), generator=generator))
    return ModuleProblem(Pixels().double(), data, batch_size=3)


def partial_problem(of: Callable[[], ModuleProblem] = tree_problem, smoother: Smoother | None = None) -> ModuleProblem:
    """The same problem, with every other label of an example unknown, and all of one example."""
    problem = of()
    data = [
        (x, PartialLabels(torch.where(known, y, -1), known))
        for i, (x, y) in enumerate(problem.dataset)  # type: ignore[arg-type]
        for known in [(torch.arange(len(y)) + i) % 2 == 0 if i != 3 else torch.zeros_like(y, dtype=torch.bool)]
    ]
    return ModuleProblem(
        problem.module, data, problem.cost, problem.batch_size, problem.collate, smoother or problem.smoother
    )


PROBLEMS = {
    "chain": chain_problem,
    "tree": tree_problem,
    "candidates": candidates_problem,
    "graph": graph_problem,
}
