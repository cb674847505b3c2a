"""The concave-convex procedure on partial labels of any structure, by modules and by programs."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from enumerated_steps import EnumeratedSteps
from linear_problems import SPACES, agreement_bounds, examples
from small_parsers import feature_matrix, labelled_problem, pair_problem, row_problem
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.testing import assert_close

from structsmooth import (
    Entropy,
    FactorGraph,
    LinearModuleProblem,
    Max,
    ModuleProblem,
    ProximalBCFW,
    ScoreModule,
    SemiMarkov,
)
from structsmooth.factors import LocalPolytope
from structsmooth.problems import DifferenceProblem, PartialLabels, ProgramProblem
from structsmooth.solvers import ConvexConcave, Progress, ProximalSDCA, Solver, Stop
from structsmooth.structures.checks import ForbiddenLabelsError

LAM = 0.1
# Solvers of the convex problems to many digits, and μ of the objective.
EXACT: dict[str, tuple[Solver[Any], float]] = {
    "hinge": (ProximalBCFW(gap_tolerance=1e-10), 0.0),
    "likelihood": (ProximalSDCA(gap_tolerance=1e-10), 1.0),
}
every_kind = pytest.mark.parametrize("kind", EXACT)


def masked(space: str, seed: int) -> list[tuple[Tensor, PartialLabels]]:
    """Examples whose variables may have other classes than theirs, too."""
    generator, (_, shape, outputs, _) = torch.Generator().manual_seed(seed), SPACES[space]
    classes = 1 + int(torch.tensor(outputs).max())
    data = []
    for x, y in examples(shape, outputs):
        allowed = torch.rand(*y.shape, classes, generator=generator) < 0.4
        data.append((x, PartialLabels(y, allowed | (torch.arange(classes) == y.unsqueeze(-1)))))
    return data


def of_module(space: str, kind: str, seed: int = 0) -> DifferenceProblem:
    settings: dict[str, Any] = {"bounds": agreement_bounds()} if space == "graph" else {}
    if kind == "likelihood":
        settings |= {"cost": None, "smoother": Entropy(1.0)}
    return LinearModuleProblem.of_partial_labels(SPACES[space][0](), masked(space, seed), **settings)


def steps_of_module(space: str, kind: str, seed: int = 0) -> EnumeratedSteps:
    base = of_module(space, kind, seed).problem
    found = []
    for i, (_, labels) in enumerate(masked(space, seed)):
        every = torch.tensor(SPACES[space][2])
        allowed = labels.allowed.expand(*every.shape, -1).gather(-1, every.unsqueeze(-1)).squeeze(-1)
        wrong = (~allowed).double().view(len(every), -1).sum(1)
        features = torch.stack([base.adjoint(base.parts(y.flatten(), i), i) for y in every])
        found.append((features, wrong if kind == "hinge" else torch.zeros_like(wrong), wrong == 0))
    return EnumeratedSteps(found, LAM)


PROGRAMS: dict[str, Callable[..., ProgramProblem]] = {
    "rows": row_problem,
    "pairs": pair_problem,
    "labels": lambda **settings: labelled_problem(labels=2, **settings),
    "crossing, labels": lambda **settings: labelled_problem(labels=2, projective=False, **settings),
}


def of_program(name: str, kind: str, seed: int = 0) -> DifferenceProblem:
    problem = PROGRAMS[name](**({} if kind == "hinge" else {"costs": None, "smoother": Entropy(1.0)}))
    free = torch.rand(len(problem.part_labels), generator=torch.Generator().manual_seed(seed)) < 0.4
    return problem.with_allowed(free | (problem.part_labels > 0))


def steps_of_program(problem: DifferenceProblem) -> EnumeratedSteps:
    base, barriers = problem.problem, problem.agreeing.part_costs
    matrix, found = feature_matrix(base), []
    for i in range(problem.n):
        own = base.program_parts.of(i)
        # All outputs, as the best ones of scores that are all the same.
        values, y = base.structure(torch.zeros(own.stop - own.start).double(), i).topk(2000)
        outputs = torch.stack([base.parts(one, i)[0] for one in y[0][values[0] > -torch.inf]])
        agree = outputs[:, barriers[own] == -torch.inf].sum(1) == 0
        found.append((outputs @ matrix[own], outputs @ base.part_costs[own], agree))
    return EnumeratedSteps(found, LAM)


def gaussian(problem: DifferenceProblem, seed: int) -> Tensor:
    return torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stop_after_an_iteration(progress: Progress[Any]) -> None:
    if progress.row.passes:
        raise Stop


def check_steps(problem: DifferenceProblem, steps: EnumeratedSteps, kind: str, seed: int) -> None:
    """Convex problems are those by enumeration, and a step is as near to their minimum as it says."""
    mu = EXACT[kind][1]
    solver, w = ConvexConcave(inner=EXACT[kind][0], inner_passes=60), gaussian(problem, seed)
    for _ in range(2):
        assert problem.loss(w) + LAM / 2 * float(w @ w) == pytest.approx(steps.objective(w, mu), abs=1e-10)
        convex = problem.linearize(w)
        for v in (w, gaussian(problem, seed + 1)):
            assert convex.loss(v) + LAM / 2 * float(v @ v) == pytest.approx(steps.convex(w, v, mu), abs=1e-10)
        result = solver.solve(problem, lam=LAM, start=w, passes=60, callbacks=[stop_after_an_iteration])
        value, least = steps.convex(w, result.weights, mu), steps.convex(w, steps.step(w, mu), mu)
        assert -1e-6 <= value - least <= result.row.metrics["convex_gap"] + 1e-6
        assert result.row.metrics["convex_gap"] < 0.05 * value
        w = result.weights


@pytest.mark.parametrize("space", ["classes", "tree", "chain, shared", "chain, per edge"])
@every_kind
def test_steps_of_modules_are_those_by_enumeration(space: str, kind: str) -> None:
    check_steps(of_module(space, kind, 1), steps_of_module(space, kind, 1), kind, 1)


def test_steps_of_matchings_are_those_by_enumeration() -> None:
    check_steps(of_module("matching", "hinge", 1), steps_of_module("matching", "hinge", 1), "hinge", 1)


@pytest.mark.parametrize("name", PROGRAMS)
@every_kind
def test_steps_of_programs_are_those_by_enumeration(name: str, kind: str) -> None:
    problem = of_program(name, kind, 2)
    check_steps(problem, steps_of_program(problem), kind, 2)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["classes", "graph", "matching", "pairs", "crossing, labels"])
def test_the_objective_never_rises(name: str, seed: int) -> None:
    of = of_program if name in PROGRAMS else of_module
    for kind in EXACT if name not in ("graph", "matching") else ["hinge"]:
        problem = of(name, kind, seed)
        result = ConvexConcave(inner=EXACT[kind][0], inner_passes=2).solve(problem, lam=LAM, passes=8, seed=seed)
        objectives = result.history.column("objective")
        assert all(after <= before for before, after in pairwise(objectives))
        assert objectives[-1] < objectives[0]
        assert problem.loss(result.weights) + LAM / 2 * float(result.weights.square().sum()) == pytest.approx(
            objectives[-1], rel=1e-12
        )
        assert all(row.metrics["convex_gap"] >= -1e-12 for row in result.history[1:])


@pytest.mark.parametrize("smoother", [Max(), Entropy(0.7)], ids=str)
def test_the_loss_is_that_of_a_module_problem(smoother: Any) -> None:
    data, module = masked("tree", 3), SPACES["tree"][0]()
    plain = ModuleProblem(module, data, batch_size=2, smoother=smoother)
    problem = LinearModuleProblem.of_partial_labels(module, data, smoother=smoother)
    w = gaussian(problem, 0)
    assert problem.loss(w) == pytest.approx(plain.loss(w), rel=1e-12)
    assert_close(problem.loss_and_grad(w, Entropy(0.7))[1], plain.loss_and_grad(w, Entropy(0.7))[1])
    part = torch.tensor([4, 1])
    assert problem.subset(part).loss(w) == pytest.approx(plain.subset(part).loss(w), rel=1e-12)
    weights = torch.linspace(1, 2, problem.n)
    assert problem.weighted(weights).loss(w) == pytest.approx(plain.weighted(weights).loss(w), rel=1e-12)


class Pieces(ScoreModule):
    """Three kinds of segments over features of positions: x [B, T, 3], with scores of their order."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3, bias=False, dtype=torch.float64)
        self.transition = nn.Parameter(torch.zeros(3, 3, dtype=torch.float64))

    def forward(self, x: tuple[Tensor, Tensor]) -> SemiMarkov:
        return SemiMarkov(self.linear(x[0]), self.transition, lengths=x[1], durations=x[0].new_zeros(9, 3))


def padded(pairs: list[Any]) -> tuple[tuple[Tensor, Tensor], PartialLabels]:
    x, labels = zip(*pairs, strict=True)
    y, allowed = (pad_sequence(list(own), batch_first=True) for own in zip(*labels, strict=True))
    return (pad_sequence(list(x), batch_first=True), torch.tensor(list(map(len, x)))), PartialLabels(y, allowed)


@every_kind
def test_hidden_boundaries_of_segments_are_found(kind: str) -> None:
    """Of each of three segments, one position is known; sequences differ in their lengths."""
    generator, data, right = torch.Generator().manual_seed(0), [], []
    for i in range(20):
        length = 9 + i % 3
        cuts = [0, *(1 + torch.randperm(length - 2, generator=generator)[:2].sort().values).tolist(), length]
        y, allowed = torch.empty(length, dtype=torch.int64), torch.ones(length, 3, dtype=torch.bool)
        for label, (begin, end) in enumerate(pairwise(cuts)):
            y[begin:end] = label
            allowed[begin + int(torch.randint(end - begin, (1,), generator=generator))] = torch.arange(3) == label
        x = (torch.eye(3)[y] + 0.5 * torch.randn(length, 3, generator=generator)).double()
        data.append((x, PartialLabels(torch.zeros_like(y), allowed)))
        right.append(y)
    settings: dict[str, Any] = {} if kind == "hinge" else {"cost": None, "smoother": Entropy(1.0)}
    module = Pieces()
    problem = LinearModuleProblem.of_partial_labels(module, data, collate=padded, **settings)
    solver = ConvexConcave(inner=replace(EXACT[kind][0], gap_tolerance=1e-3), inner_passes=12)
    result = solver.solve(problem, lam=0.1, passes=100)
    problem.problem.module_problem.load(result.weights)
    x, _ = padded(data)
    with torch.no_grad():
        classes, _ = module(x).as_classes(module(x).max()[1])
    found = torch.cat([own[: len(y)] for own, y in zip(classes, right, strict=True)])
    assert float((found == torch.cat(right)).double().mean()) > 0.9


class Relaxed(ScoreModule):
    """The relaxation of a tree."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2, dtype=torch.float64)

    def forward(self, x: Tensor) -> LocalPolytope:
        edges = torch.tensor([[0, 1], [1, 2], [2, 3]])
        return LocalPolytope(FactorGraph(self.linear(x), edges, torch.eye(2, dtype=torch.float64)))


def test_refusals() -> None:
    module, data = SPACES["classes"][0](), masked("classes", 0)
    with pytest.raises(TypeError, match="labels must be PartialLabels"):
        LinearModuleProblem.of_partial_labels(module, [(x, labels.y) for x, labels in data])
    none = torch.zeros(4, dtype=torch.bool)
    nothing = [(x, PartialLabels(y.y, none if i == 2 else y.allowed)) for i, (x, y) in enumerate(data)]
    with pytest.raises(ForbiddenLabelsError, match="example 2 of the problem"):
        LinearModuleProblem.of_partial_labels(module, nothing)
    with pytest.raises(TypeError, match=r"take LinearModuleProblem\.of_partial_labels, or ModuleProblem"):
        LinearModuleProblem(module, data)
    with pytest.raises(TypeError, match="max oracle of LocalPolytope answers with statistics"):
        LinearModuleProblem.of_partial_labels(Relaxed(), masked("tree", 0))
    problem = pair_problem()
    with pytest.raises(TypeError, match=r"allowed must be a tensor of torch\.bool, got torch\.int64"):
        problem.with_allowed(problem.part_labels)
    with pytest.raises(ValueError, match=r"allowed must have shape \(39,\)"):
        problem.with_allowed(torch.ones(2, dtype=torch.bool))
    allowed = torch.ones(39, dtype=torch.bool)
    allowed[problem.program_parts.of(2)] = False
    with pytest.raises(ForbiddenLabelsError, match="example 2 of the problem"):
        problem.with_allowed(allowed)
