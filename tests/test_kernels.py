"""Features whose inner products are kernel values."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BCFW, ProximalBCFW
from structsmooth.problems import DenseChainProblem, KernelFeatures
from structsmooth.solvers import ExcessiveGap


def points(n: int = 30, d: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_definition(name: str, x: Tensor, z: Tensor, gamma: float, degree: int) -> Tensor:
    if name == "rbf":
        return (-gamma * (x[:, None] - z[None]).square().sum(-1)).exp()
    if name == "cosine-polynomial":
        x, z = x / x.norm(dim=1, keepdim=True), z / z.norm(dim=1, keepdim=True)
    return (gamma * (x @ z.T) + 1) ** degree


@pytest.mark.parametrize(
    ("name", "degree"),
    # The last two have fewer features than points: their Gram matrices are singular.
    [("rbf", 3), ("polynomial", 5), ("polynomial", 2), ("cosine-polynomial", 1)],
)
def test_features_have_the_inner_products_of_the_kernel(name: Any, degree: int) -> None:
    x, new = points(), points(7, seed=1)
    features = KernelFeatures(name, gamma=0.3, degree=degree).fit(torch.cat([x, x[:3]]))
    r = features(x)
    assert len(features.landmarks) == 30
    assert_close(r @ r.T, by_definition(name, x, x, 0.3, degree), rtol=1e-6, atol=1e-6)
    assert_close(features(new) @ r.T, by_definition(name, new, x, 0.3, degree), rtol=1e-6, atol=1e-6)


def test_rank_is_that_of_the_kernel() -> None:
    assert KernelFeatures("polynomial", degree=1).fit(points()).size == 5
    assert KernelFeatures("rbf").fit(points()).size == 30


def test_scores_need_no_features() -> None:
    x, new = points(), points(7, seed=1)
    features = KernelFeatures("rbf", gamma=0.3).fit(x)
    weights = points(30, 3, seed=2)
    assert_close(features.scores(new, weights), features(new) @ weights, rtol=1e-8, atol=1e-8)


def test_landmarks_are_enough_to_save() -> None:
    x = points()
    features = KernelFeatures("rbf", gamma=0.3, landmarks=12, seed=3).fit(x)
    assert features(x, torch.float32).dtype == torch.float32
    assert features(x).shape == (30, 12)
    again = KernelFeatures("rbf", gamma=0.3, landmarks=12).at(features.landmarks)
    assert torch.equal(again(x), features(x))
    # Exact where both points are landmarks, and never above the kernel on the diagonal.
    z = features.landmarks
    assert_close(features(z) @ features(z).T, by_definition("rbf", z, z, 0.3, 1), rtol=1e-8, atol=1e-8)
    assert float(features(x).square().sum(1).max()) <= 1 + 1e-8


def test_a_gram_matrix_takes_the_place_of_points() -> None:
    """The same model as with the kernel itself, by its values alone."""
    x, new, rbf = points(), points(7, seed=1), KernelFeatures("rbf", gamma=0.3)
    gram, values = rbf.values(x, x), rbf.values(new, x)
    features = KernelFeatures("precomputed").fit(gram)
    r = features(gram)
    assert_close(r @ r.T, gram, rtol=1e-8, atol=1e-8)
    assert_close(features(values) @ r.T, values, rtol=1e-8, atol=1e-8)
    labels, lengths = torch.arange(30) % 3, torch.tensor([10, 12, 8])
    problem = DenseChainProblem(r.float(), labels, lengths, states=3)
    of_points = DenseChainProblem(rbf.fit(x)(x).float(), labels, lengths, states=3)
    for solver in (BCFW(steps="fw"), ProximalBCFW(steps="fw"), ExcessiveGap()):
        ends = [solver.solve(p, lam=0.05, passes=4) for p in (problem, of_points)]
        assert ends[0].history.column("objective") == pytest.approx(ends[1].history.column("objective"), rel=1e-6)
    rows = problem.views(ends[0].weights)[0]
    assert_close(features.scores(values, rows), features(values) @ rows, rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match=r"x must hold kernel values with all 30 tokens of training, got \(7, 29\)"):
        features(values[:, 1:])
    with pytest.raises(ValueError, match="landmarks need a kernel of points"):
        KernelFeatures("precomputed", landmarks=3)


def test_a_function_is_a_kernel() -> None:
    x = points()
    features = KernelFeatures(lambda a, b: a @ b.T + 2).fit(x)
    assert_close(features(x) @ features(x).T, x @ x.T + 2, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "gaussian"}, "kernel must be a function or one of rbf, polynomial, cosine-polynomial"),
        ({"gamma": 0.0}, "gamma must be positive and finite, got 0.0"),
        ({"gamma": float("nan")}, "gamma must be positive and finite, got nan"),
        ({"degree": 0}, "degree must be at least 1, got 0"),
        ({"landmarks": 0}, "landmarks must be at least 1, got 0"),
    ],
)
def test_refuses_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelFeatures(**settings)


@pytest.mark.parametrize(
    ("settings", "x", "message"),
    [
        ({}, torch.zeros(3), r"x must have shape \[tokens, D\] with a token at least, got \(3,\)"),
        ({}, torch.full((3, 2), torch.nan), "x must be finite"),
        ({"landmarks": 3}, torch.tensor([[0.0], [1.0], [1.0]]), "at most the number of different tokens, 2, got 3"),
        ({"kernel": lambda x, z: x[:, :1] + 2 * z[:, 0]}, points(), "must be symmetric"),
        ({"kernel": lambda x, z: -(x @ z.T)}, points(), "must be positive semi-definite"),
        ({"kernel": lambda x, z: (x @ z.T).log()}, points(), "Gram matrix of the kernel must be finite"),
        ({"kernel": lambda x, z: x[:, 0]}, points(), r"the kernel must give a matrix"),
    ],
)
def test_refuses_what_is_no_kernel(settings: dict[str, Any], x: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelFeatures(**settings).fit(x)
