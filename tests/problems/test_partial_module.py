"""Training on partial labels: losses by their definition, models that are upper bounds, and what solvers do of them."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from small_networks import chain_problem, partial_problem, tree_problem
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import default_collate

from structsmooth import (
    BCFW,
    L2,
    SGD,
    Candidates,
    CasimirSVRG,
    Entropy,
    LinearModuleProblem,
    LinearScore,
    Max,
    ModuleProblem,
    ProxLinear,
    ScoreModule,
    StructuralHinge,
)
from structsmooth.problems import LinearizedProblem, PartialLabels
from structsmooth.smoothing import Smoother
from structsmooth.solvers import SVRG, Adam, IncrementalProxLinear, Solver
from structsmooth.structures.checks import ForbiddenLabelsError

LAM = 0.05
every_smoother = pytest.mark.parametrize("smoother", [Max(), L2(0.7, 3), Entropy(0.6)], ids=str)


def weights(problem: ModuleProblem, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return problem.start() + 0.3 * torch.randn(problem.dim, generator=generator, dtype=torch.float64)


def of_linear_scores(smoother: Smoother = Max()) -> ModuleProblem:  # noqa: B008 - immutable
    """Scores of a chain that are linear in the weights, but losses that are not convex."""
    generator = torch.Generator().manual_seed(0)
    data = []
    for _ in range(8):
        y, known = torch.randint(3, (4,), generator=generator), torch.rand(4, generator=generator) < 0.5
        data.append((torch.randn(4, 2, generator=generator, dtype=torch.float64), PartialLabels(y, known)))
    return ModuleProblem(LinearScore(2, 3), data, batch_size=2, smoother=smoother)


@every_smoother
def test_losses_and_gradients_are_those_of_the_loss(smoother: Smoother) -> None:
    problem = partial_problem(chain_problem)
    problem.load(weights(problem))
    x, labels = default_collate([problem.dataset[i] for i in range(problem.n)])
    loss = StructuralHinge(smoother)(problem.module(x), labels.y, allowed=labels.allowed)
    loss.backward()
    value, gradient = problem.loss_and_grad(weights(problem, 1) * 0 + problem.start(), smoother)
    assert value == pytest.approx(loss.item(), rel=1e-12)
    trained = [p for p in problem.module.parameters() if p.requires_grad]
    assert_close(gradient, torch.cat([p.grad.flatten() for p in trained if p.grad is not None]))
    assert problem.partial


def test_labels_that_are_all_known_are_those_without_a_mask() -> None:
    complete, w = tree_problem(), weights(tree_problem())
    data = [
        (x, PartialLabels(y, torch.ones_like(y, dtype=torch.bool)))
        for x, y in map(complete.dataset.__getitem__, range(complete.n))
    ]
    problem = ModuleProblem(complete.module, data, batch_size=3)
    assert problem.loss(w) == pytest.approx(complete.loss(w), rel=1e-12)
    assert_close(problem.loss_and_grad(w, L2(0.7, 3))[1], complete.loss_and_grad(w, L2(0.7, 3))[1])
    assert not complete.partial


@every_smoother
def test_a_linearization_is_an_upper_bound_for_linear_scores(smoother: Smoother) -> None:
    """The score of the outputs that agree is convex, so that its tangent is below it; here it also is convex in w."""
    problem = of_linear_scores()
    w, v = weights(problem), weights(problem, 1)
    model = problem.linearize(w)
    assert isinstance(model, LinearizedProblem)
    assert not problem.affine
    values = []
    for t in torch.linspace(-1, 2, 7).tolist():
        u = torch.lerp(w, v, t)
        values.append(model.loss(u, smoother))
        assert values[-1] >= problem.loss(u, smoother) - 1e-12
    assert model.loss(w, smoother) == pytest.approx(problem.loss(w, smoother), rel=1e-12)
    assert min(b - 2 * m + e for b, m, e in zip(values, values[1:], values[2:], strict=False)) >= -1e-12
    assert model.loss(v, smoother) > problem.loss(v, smoother) + 1e-6


class Shared(ScoreModule):
    """Candidates whose scores are the same in all examples, so that potentials have no row for each."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.tensor([0.3, -0.2, 0.1]).double())

    def forward(self, x: Tensor) -> Candidates:
        return Unbatched(self.scores.expand(len(x), 3) + x)


class Unbatched(Candidates):
    """A structure that does not know how to separate the potentials of examples."""

    def batched(self) -> None:  # type: ignore[override]
        return None


@every_smoother
def test_structures_that_cannot_separate_examples(smoother: Smoother) -> None:
    allowed = torch.tensor([[True, True, False], [False, True, True]])
    x = torch.tensor([[0.1, 0.2, 0.3], [0.5, -0.5, 0.2]], dtype=torch.float64)
    data = [(x[i], PartialLabels(torch.tensor(0), allowed[i])) for i in range(2)]
    problem = ModuleProblem(Shared(), data, smoother=smoother)
    w = problem.start() + torch.tensor([0.3, 0.1, -0.4], dtype=torch.float64)
    model = problem.linearize(problem.start())
    (direct,) = torch.autograd.functional.jacobian(
        lambda p: StructuralHinge(smoother)(Candidates(p + x), torch.zeros(2).long(), allowed=allowed),
        (problem.start(),),
    )
    assert_close(model.loss_and_grad(problem.start(), smoother)[1], direct)
    assert model.loss(w) >= problem.loss(w) - 1e-12


SOLVERS: dict[str, Solver[Any]] = {
    "adam": Adam(),
    "sgd": SGD(),
    "svrg": SVRG(k=3),
    "casimir": CasimirSVRG(k=3),
    "prox-linear, casimir": ProxLinear(inner=CasimirSVRG(schedule="constant", k=3)),
    "prox-linear, svrg": ProxLinear(inner=SVRG(k=3)),
    "incremental": IncrementalProxLinear(),
}


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
@pytest.mark.parametrize("smoother", [Max(), Entropy(1.0)], ids=str)
def test_solvers_lower_the_objective(solver: Solver[Any], smoother: Smoother) -> None:
    for problem in (partial_problem(chain_problem, smoother), of_linear_scores(smoother)):
        history = solver.solve(problem, lam=LAM, passes=30, start=weights(problem)).history
        assert history.best().objective < 0.8 * history[0].objective
        assert history.best().dual is None


def test_prox_linear_steps_never_raise_the_objective() -> None:
    history = SOLVERS["prox-linear, svrg"].solve(partial_problem(), lam=LAM, passes=40).history
    objectives = history.column("objective")
    assert all(b <= a for a, b in pairwise(objectives))


def test_a_likelihood_with_holes_is_minimized() -> None:
    """The minimum that prox-linear steps find is a stationary point of the marginal likelihood."""
    problem = of_linear_scores(Entropy(1.0))
    result = SOLVERS["prox-linear, svrg"].solve(problem, lam=LAM, passes=300)
    gradient = problem.loss_and_grad(result.weights, Entropy(1.0))[1] + LAM * result.weights
    assert float(gradient.norm()) < 1e-3


def test_an_example_where_nothing_agrees_is_named() -> None:
    problem = of_linear_scores()
    data = [problem.dataset[i] for i in range(problem.n)]
    none = torch.zeros(4, 3, dtype=torch.bool)
    whole = [(x, PartialLabels(y.y, none if i == 5 else ~none)) for i, (x, y) in enumerate(data)]
    problem = ModuleProblem(problem.module, whole, batch_size=2)
    for run in (problem.loss, problem.linearize(problem.start()).loss):
        with pytest.raises(ForbiddenLabelsError, match="example 5"):
            run(problem.start())


def test_refuses_what_needs_convex_losses() -> None:
    problem = of_linear_scores()
    with pytest.raises(ValueError, match="labels are partial: take inner=CasimirSVRG"):
        ProxLinear(inner=BCFW()).solve(problem, lam=LAM)
    with pytest.raises(TypeError, match="a dual, which partial labels do not have"):
        LinearModuleProblem(problem.module, problem.dataset)
    with pytest.raises(
        TypeError, match="BCFW needs complete labels, since partial ones have no dual: take ConvexConcave"
    ):
        BCFW().solve(problem, lam=LAM)
