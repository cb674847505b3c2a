"""Chains over a Gram matrix against the same chains over explicit features of the kernel."""

from typing import Any

import pytest
import torch
from small_problems import random_gram_problem, random_weights
from torch import Tensor
from torch.testing import assert_close

from structsmooth import (
    BCFW,
    CasimirSVRG,
    CuttingPlane,
    DenseChainProblem,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    GramChainProblem,
    KernelFeatures,
    LinearProblem,
    NormalizedHamming,
    NSlackCuttingPlane,
    ProximalBCFW,
    RegularizationPath,
    certify,
)
from structsmooth.solvers import DualIterate
from structsmooth.solvers.bcfw.steps import plain

LAM, STATES = 0.05, 3
LENGTHS = torch.tensor([3, 1, 4, 2, 3, 2])
CLOSELY = {"rtol": 1e-8, "atol": 1e-8}


@pytest.fixture(scope="module")
def points() -> Tensor:
    return torch.randn(15, 4, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def problems(points: Tensor) -> tuple[GramChainProblem, DenseChainProblem]:
    """One over the Gram matrix of points, and one over the points themselves."""
    labels = torch.randint(STATES, (15,), generator=torch.Generator().manual_seed(2))
    settings: dict[str, Any] = {"cost": NormalizedHamming(), "transition_scale": 2.0}
    gram = GramChainProblem(kernel(points, points), labels, LENGTHS, STATES, **settings)
    return gram, DenseChainProblem(points, labels, LENGTHS, STATES, **settings)


def kernel(x: Tensor, z: Tensor) -> Tensor:
    return x.double() @ z.double().T


def explicit(gram: GramChainProblem, dense: DenseChainProblem, w: Tensor) -> Tensor:
    """The weights that coefficients stand for."""
    rows, *others = gram.views(w)
    return torch.cat([(dense.sequences.features.double().T @ rows).flatten(), *(own.flatten() for own in others)])


def test_coefficients_are_weights_of_the_features(problems: tuple[GramChainProblem, DenseChainProblem]) -> None:
    gram, dense = problems
    a, b = (random_weights(gram, seed) for seed in (0, 1))
    x, y = (explicit(gram, dense, w) for w in (a, b))
    assert gram.inner(a, b) == pytest.approx(float(x @ y), abs=1e-9)
    for block in range(gram.n):
        m = gram.potentials(b, block)
        assert_close(gram.potentials(a, block), dense.potentials(x, block), **CLOSELY)
        assert_close(explicit(gram, dense, gram.adjoint(m, block)), dense.adjoint(m, block), **CLOSELY)
        square = gram.feature_map.squared_norm(m, block)
        assert square == pytest.approx(dense.feature_map.squared_norm(m, block), rel=1e-9)
    assert_close(
        explicit(gram, dense, gram.loss_and_grad(a, gram.smoother)[1]), dense.loss_and_grad(x, gram.smoother)[1]
    )


@pytest.mark.parametrize(
    "solver",
    [
        BCFW(sampling="uniform", gap_tolerance=0),
        BCFW(sampling="uniform", steps="fw", average=True, gap_tolerance=0),
        BCFW(sampling="uniform", steps="away", cache=True, gap_tolerance=0),
        ProximalBCFW(sampling="uniform", gap_tolerance=0),
        ExcessiveGap(gap_tolerance=0),
    ],
    ids=lambda solver: f"{type(solver).__name__}-{getattr(solver, 'steps', '')}",
)
def test_solvers_take_the_same_steps(solver: Any, problems: tuple[GramChainProblem, DenseChainProblem]) -> None:
    """As over the points, with compiled passes there.

    Runs start where no outputs have the same score, and take an example once in a pass: after a step, the scores of its
    outputs are equal.
    """
    gram, dense = problems
    start = BCFW().solve(dense, lam=LAM, passes=3).state if isinstance(solver, BCFW) else None
    own, other = (solver.solve(problem, lam=LAM, passes=4, seed=3, start=start) for problem in problems)
    for column in ("objective", "dual", "gap", "oracle_calls"):
        assert own.history.column(column) == pytest.approx(other.history.column(column), rel=1e-8, abs=1e-8)
    for block in range(gram.n):
        assert_close(gram.potentials(own.weights, block), dense.potentials(other.weights, block), **CLOSELY)
    assert own.history[-1].objective != own.history[0].objective


def test_steps_are_those_over_the_features_of_a_kernel(points: Tensor) -> None:
    """In plain torch for both."""
    rbf, order = KernelFeatures("rbf", gamma=0.2), torch.tensor([3, 0, 5, 4, 1, 3, 2, 0])
    labels = torch.randint(STATES, (15,), generator=torch.Generator().manual_seed(2))
    gram = GramChainProblem(rbf.values(points, points), labels, LENGTHS, STATES)
    dense = DenseChainProblem(rbf.fit(points)(points), labels, LENGTHS, STATES)
    ends = []
    for problem in (gram, dense):
        gaps = torch.ones(problem.n, dtype=torch.float64)
        point = DualIterate(problem.start(), problem.label_statistics(), gaps, *problem.label_sets(4))
        end, _ = plain(problem, point, order, lam=LAM, steps="pairwise")
        ends.append(end)
    assert_close(ends[0].statistics, ends[1].statistics, **CLOSELY)
    assert_close(explicit(gram, dense, ends[0].weights), ends[1].weights, **CLOSELY)
    norms = (problem.inner(end.weights, end.weights) for problem, end in zip((gram, dense), ends, strict=True))
    assert next(norms) == pytest.approx(next(norms), rel=1e-8)


def test_predictions_need_kernel_values_alone(
    points: Tensor, problems: tuple[GramChainProblem, DenseChainProblem]
) -> None:
    gram, dense = problems
    w, new, lengths = random_weights(gram), points[:7] + 0.1, torch.tensor([4, 3])
    chain = gram.predictor(w, kernel(new, points), lengths)
    rows, transition, ends = dense.views(explicit(gram, dense, w))
    unary = torch.zeros(2, 4, STATES, dtype=torch.float64)
    unary[0], unary[1, :3] = (new.double() @ rows).split([4, 3])
    unary[:, 0] += ends[0]
    unary[[0, 1], [3, 2]] += ends[1]
    assert_close(chain.unary[0], unary[0], **CLOSELY)
    assert_close(chain.unary[1, :3], unary[1, :3], **CLOSELY)
    assert_close(chain.transition, 2.0 * transition)
    assert chain.lengths.tolist() == [4, 3]
    with pytest.raises(ValueError, match=r"features must have shape \[tokens, F\] with F = 15, got \(7, 4\)"):
        gram.predictor(w, points[:7].double(), lengths)


def test_parts_of_it_keep_the_coefficients(problems: tuple[GramChainProblem, DenseChainProblem]) -> None:
    gram, _ = problems
    part, w = gram.subset(torch.tensor([4, 1])), random_weights(gram)
    assert part.dim == gram.dim
    assert part.inner(w, w) == gram.inner(w, w)
    m = part.potentials(w, 0)
    assert_close(part.adjoint(m, 0), gram.adjoint(m, 4))
    assert part.feature_map.squared_norm(m, 0) == pytest.approx(gram.feature_map.squared_norm(m, 4))


def test_certificates_hold(problems: tuple[GramChainProblem, DenseChainProblem]) -> None:
    gram, dense = problems
    w = random_weights(gram)
    certificate = certify(gram, w, LAM)
    assert certificate.gap == pytest.approx(certify(dense, explicit(gram, dense, w), LAM).gap, rel=1e-6)


@pytest.mark.parametrize(
    "solver",
    [CasimirSVRG(), CuttingPlane(), NSlackCuttingPlane(), FrankWolfe(), ExponentiatedGradient(), Extragradient()],
    ids=lambda solver: type(solver).__name__,
)
def test_other_solvers_refuse_it(solver: Any) -> None:
    message = f"{type(solver).__name__} needs weights in Euclidean space, got a GramChainProblem; take BCFW"
    with pytest.raises(TypeError, match=message):
        solver.solve(random_gram_problem(), lam=LAM)


def test_paths_refuse_it() -> None:
    with pytest.raises(TypeError, match="RegularizationPath needs weights in Euclidean space"):
        RegularizationPath(epsilon=0.1).solve(random_gram_problem(), lam_min=0.01)


def nearly(gram: Tensor, change: float) -> Tensor:
    gram = gram.clone()
    gram[0, 1] += change
    return gram


@pytest.mark.parametrize(
    ("gram", "error", "message"),
    [
        (torch.eye(3)[:2].double(), ValueError, r"gram must have shape \(3, 3\), got \(2, 3\)"),
        (torch.eye(4).double(), ValueError, r"gram must have shape \(3, 3\), got \(4, 4\)"),
        (torch.eye(3), TypeError, "gram must be torch.float64 on the CPU, got torch.float32"),
        (torch.full((3, 3), torch.nan).double(), ValueError, "the Gram matrix of the kernel must be finite"),
        (nearly(torch.eye(3).double(), 1e-3), ValueError, "must be symmetric, differs from its transpose by 0.001"),
        (torch.eye(3).double() - 0.5, ValueError, "must be positive semi-definite, has eigenvalue -0.5"),
        (torch.zeros(3, 3).double(), ValueError, "must be positive semi-definite, has eigenvalue 0"),
    ],
)
def test_refuses_what_is_no_gram_matrix(gram: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GramChainProblem(gram, torch.tensor([0, 1, 1]), torch.tensor([1, 2]), states=2)


def test_accepts_gram_matrices_without_full_rank() -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.5, 0.0]], dtype=torch.float64)
    problem = GramChainProblem(x @ x.T, torch.tensor([0, 1, 1]), torch.tensor([1, 2]), states=2)
    assert isinstance(problem, LinearProblem)
    last = ExcessiveGap().solve(problem, lam=1.0, passes=50).row
    assert last.gap is not None
    assert last.gap <= 1e-3 * last.objective
