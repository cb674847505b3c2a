"""SparseMAP of every structure: optimal by a certificate over all outputs, with derivatives of both orders."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from enumeration import random_chains, random_graphs, random_matchings
from hypothesis import given, settings
from hypothesis import strategies as st
from member import Instance, Member, potentials_of, with_potentials
from scipy.optimize import minimize
from structure_members import MEMBERS, enumerated, every
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BinaryGraph, Candidates, FactorGraph, LinearChain, Matching, Structure
from structsmooth.factors import LocalPolytope
from structsmooth.structures import SlackRescaled, SparseSolution, sparse_map

INF = torch.inf


def kinds(structure: Structure) -> tuple[str, ...]:
    """Which parts may count in the norm."""
    return ("first",) if structure.free_potentials == 1 else ("all", "first")


def all_parts(structure: Structure, outputs: list[Tensor], b: int) -> tuple[Tensor, Tensor, int]:
    """Scores and parts [n, D] of all allowed outputs of an example, and how many of the parts are of the first kind."""
    one = structure[torch.full((len(outputs[b]),), b)]
    scores, parts = one.score(outputs[b]), one.parts(outputs[b])
    allowed = scores > -INF
    flat = torch.cat([own.reshape(len(own), -1) for own in parts], 1).double()
    return scores[allowed], flat[allowed], parts[0][:1].numel()


def row(statistics: tuple[Tensor, ...], b: int) -> Tensor:
    return torch.cat([own[b].flatten() for own in statistics])


def assert_optimal(
    structure: Structure, outputs: list[Tensor], solution: SparseSolution, mu: float, parts: str
) -> None:
    """The solution is a distribution over outputs, and no output improves on it: a gap of zero over all of them."""
    for b in range(len(solution.value)):
        scores, vertices, first = all_parts(structure, outputs, b)
        mean, weights = row(solution.statistics, b), solution.weights[b]
        if not len(scores):
            assert solution.value[b] == -INF
            assert not mean.any()
            assert not weights.any()
            continue
        assert (weights >= -1e-12).all()
        assert_close(weights.sum(), torch.ones_like(weights[0]))
        used = structure[torch.full((len(weights),), b)]
        own = torch.cat([p.reshape(len(p), -1) for p in used.parts(solution.y[b])], 1).double()
        assert_close(weights @ own, mean, rtol=0, atol=1e-10)
        counted = mean if parts == "all" else mean[:first]
        expected = weights @ torch.where(weights > 0, used.score(solution.y[b]), 0.0)
        assert_close(solution.value[b], expected - mu / 2 * counted.square().sum(), rtol=1e-9, atol=1e-9)
        products = vertices[:, : len(counted)] @ counted
        gap = (scores - mu * products).max() - (expected - mu * counted.square().sum())
        assert -1e-9 <= gap / (mu + scores.abs().max()) <= 1e-9
        assert float(solution.gap[b]) <= 1e-8 * (mu + float(scores.abs().max()))


@every(enumerated)
def test_no_output_improves_on_the_solution(member: Member) -> None:
    @settings(max_examples=10, deadline=None)
    @given(member.small(None), st.floats(0.01, 100.0))
    def check(instance: Instance, mu: float) -> None:
        structure, twin = member.build(*instance), member.twin(*instance)
        for parts in kinds(structure):
            assert_optimal(structure, twin.outputs, sparse_map(structure, mu, parts), mu, parts)

    check()


@pytest.mark.parametrize("parts", ["all", "first"])
@pytest.mark.parametrize("mu", [0.3, 1.0, 10.0])
def test_values_are_those_of_a_quadratic_program(mu: float, parts: str) -> None:
    """Over the weights of all outputs, by another algorithm."""
    potentials = random_chains(5, 4, 2, lengths=[4, 3, 2, 4, 4])
    chain, twin = LinearChain(*potentials), MEMBERS["LinearChain [S, S] torch"].twin(*potentials)
    solution = sparse_map(chain, mu, parts)
    for b in range(5):
        scores, vertices, first = all_parts(chain, twin.outputs, b)
        counted = (vertices if parts == "all" else vertices[:, :first]).numpy()
        z, gram = scores.numpy(), counted @ counted.T
        total = {"type": "eq", "fun": lambda u: u.sum() - 1, "jac": np.ones_like}
        found = minimize(
            lambda u, z=z, gram=gram: mu / 2 * u @ gram @ u - u @ z,
            np.full(len(z), 1 / len(z)),
            jac=lambda u, z=z, gram=gram: mu * gram @ u - z,
            bounds=[(0, None)] * len(z),
            constraints=total,
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        assert abs(float(solution.value[b]) + found.fun) <= 1e-8


def test_candidates_are_projected_onto_the_simplex() -> None:
    """Each output has one part, its own: ℓ₂ smoothing of scores."""
    solution = sparse_map(Candidates(torch.tensor([[1.0, 0.5, -1.0], [0.0, -INF, 0.0]])), mu=1.0)
    assert_close(solution.statistics[0], torch.tensor([[0.75, 0.25, 0.0], [0.5, 0.0, 0.5]]))
    assert_close(solution.largest, torch.tensor([1.0, 0.0]))


@every(lambda name, member: enumerated(name) and "in Python" not in name)
def test_derivatives_of_both_orders(member: Member) -> None:
    instance = member.random("tiny", seed=3)
    potentials = tuple(p.requires_grad_() for p in potentials_of(instance))
    parts = kinds(member.build(*instance))[0]

    def value(*own: Tensor) -> Tensor:
        return sparse_map(member.build(*with_potentials(instance, own)), 0.7, parts).value

    def statistics(*own: Tensor) -> tuple[Tensor, ...]:
        return sparse_map(member.build(*with_potentials(instance, own)), 0.7, parts).statistics

    assert torch.autograd.gradcheck(value, potentials, fast_mode=True)
    assert torch.autograd.gradgradcheck(value, potentials, fast_mode=True)
    assert torch.autograd.gradcheck(statistics, potentials, fast_mode=True)
    gradients = torch.autograd.grad(value(*potentials).sum(), potentials)
    assert_close(gradients[0], statistics(*potentials)[0])  # further potentials may be shared


@every(lambda name, member: enumerated(name) and "in Python" not in name, slow=True)
def test_derivatives_where_outputs_tie(member: Member) -> None:
    """At every point where the differences of both sides agree, in batches of examples with faces of all dimensions."""
    instance, generator, points = member.random("tiny", seed=3), torch.Generator().manual_seed(0), 0
    parts, scores = kinds(member.build(*instance))[0], potentials_of(instance)
    free = len(scores) if parts == "all" else 1  # the others keep what their structure requires
    for scale in (0.0, 1.0, None):  # all outputs tie, some, or none
        tied = [p if scale is None else torch.where(p.isfinite(), (scale * p).round() * scale, p) for p in scores]
        point = [*tied[:free], *scores[free:]]
        direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) * (i < free) for i, p in enumerate(point)]

        def solved(step: float, leaves: Sequence[Tensor], along: Sequence[Tensor] = direction) -> tuple[Tensor, Tensor]:
            moved = [p + step * d for p, d in zip(leaves, along, strict=True)]
            found = sparse_map(member.build(*with_potentials(instance, moved)), 0.7, parts)
            return found.value, torch.cat([own.reshape(len(own), -1) for own in found.statistics], 1)

        (upper, up), (level, here), (lower, down) = (solved(step, point) for step in (1e-3, 0.0, -1e-3))
        smooth = (up - 2 * here + down).abs().amax(1) <= 1e-8
        points += int(smooth.sum())
        weights = torch.randn(here.shape, generator=generator, dtype=here.dtype)
        leaves = [p.clone().requires_grad_() for p in point]
        value, statistics = solved(0.0, leaves)
        slopes = torch.autograd.grad(value[smooth].sum(), leaves, create_graph=True)
        first = along(slopes, direction)
        assert_close(first, (upper - lower)[smooth].sum() / 2e-3, rtol=0, atol=1e-5)
        second = along(torch.autograd.grad(first, leaves, retain_graph=True), direction)
        assert_close(second, (upper - 2 * level + lower)[smooth].sum() / 1e-6, rtol=0, atol=1e-5)
        found = along(torch.autograd.grad((statistics * weights)[smooth].sum(), leaves), direction)
        assert_close(found, ((up - down) * weights)[smooth].sum() / 2e-3, rtol=0, atol=1e-5)
    assert points


def along(slopes: Sequence[Tensor], direction: Sequence[Tensor]) -> Tensor:
    """The derivative in a direction."""
    return torch.stack([(s * d).sum() for s, d in zip(slopes, direction, strict=True)]).sum()


def test_the_derivative_of_statistics_is_a_projection() -> None:
    """Onto the affine hull of the active set, divided by μ."""
    mu, weights = 2.0, torch.randn(1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    jacobian = torch.autograd.functional.jacobian(lambda w: Matching(w).sparse_marginals(mu)[0], weights)
    matrix = mu * jacobian.view(16, 16)
    assert_close(matrix, matrix.T)
    assert_close(matrix @ matrix, matrix)
    active = int((sparse_map(Matching(weights), mu).weights > 0).sum())
    assert active > 2
    assert round(float(matrix.trace())) == active - 1


def test_the_derivative_is_the_projection_onto_the_face_of_best_outputs() -> None:
    """For scores where outputs of positive weight tie, some others, or all; a limit on the directions is told."""
    unary, transition, _ = random_chains(3, 6, 3, "[B, T-1, S, S]", seed=1)
    leaves = [torch.stack([own[0], own[1] * 4, own[2] * 0]) for own in (unary, transition)]
    for own in leaves:
        own[1, 2:] = 0.0
        own.requires_grad_()
    outputs = [torch.cartesian_prod(*[torch.arange(3)] * 6)] * 3
    chain, mu = LinearChain(*leaves), 2.0
    solution = sparse_map(chain, mu)
    weights = [torch.randn(own.shape, dtype=own.dtype, generator=torch.Generator().manual_seed(0)) for own in leaves]
    found = torch.autograd.grad(solution.statistics, leaves, weights)
    for b in range(3):
        scores, vertices, _ = all_parts(chain, outputs, b)
        mean = row(solution.statistics, b).detach()
        slopes = scores.detach() - mu * vertices @ mean
        face = vertices[slopes >= slopes.max() - 1e-8] - mean
        assert_close(mu * row(found, b), torch.linalg.pinv(face) @ (face @ row(tuple(weights), b)))
    with pytest.warns(
        RuntimeWarning, match="leaves out directions of example 2, where more outputs tie than max_calls=20"
    ):
        sparse_map(chain, mu, max_calls=20).statistics[0].sum().backward()


def test_chains_of_fifty_take_few_calls() -> None:
    """Of the max oracle, for scores as those of trained taggers: labels differ by several μ."""
    chain = LinearChain(*random_chains(32, 50, 5, lengths=[50] * 32))
    certain = torch.nn.functional.one_hot(chain.unary[..., 0].argsort(1) % 5, 5)
    scaled = chain.replace(chain.unary + 6 * certain, chain.transition)
    calls = [sparse_map(scaled, mu).oracle_calls.median() for mu in (0.1, 0.3, 1.0)]
    assert all(few <= many for few, many in pairwise(calls))
    assert calls[-1] <= 20
    first = sparse_map(scaled, 1.0, "first").oracle_calls.median()
    assert first <= calls[-1]


def test_outputs_to_start_from_save_calls() -> None:
    chain = LinearChain(*random_chains(8, 20, 4, lengths=[20] * 8))
    before = sparse_map(chain, 0.5)
    again = sparse_map(chain, 0.5, start=before.y)
    assert_close(again.value, before.value)
    assert (again.oracle_calls == 2).all()  # the largest score, and a certificate
    near = chain.replace(chain.unary + 0.05 * chain.unary.cos(), chain.transition)
    cold, warm = sparse_map(near, 0.5), sparse_map(near, 0.5, start=before.y)
    assert_close(warm.statistics, cold.statistics, rtol=0, atol=1e-8)
    assert warm.oracle_calls.sum() < cold.oracle_calls.sum() / 2


def test_forbidden_outputs_to_start_from_are_left_out() -> None:
    weights = torch.tensor([[[0.0, -INF], [1.0, 0.0]]], dtype=torch.float64)
    start = torch.tensor([[[1, 0], [0, 1], [0, 1]]])
    assert_close(sparse_map(Matching(weights), start=start).statistics[0], torch.eye(2, dtype=torch.float64)[None])


def test_the_relaxation_of_a_factor_graph() -> None:
    """A frustrated cycle: the optimum over the local polytope is at least that over labelings, and certified there."""
    generator = torch.Generator().manual_seed(1)
    unary = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64)
    pairwise = torch.randn(2, 3, 2, 2, generator=generator, dtype=torch.float64) * 2
    graph = FactorGraph(unary, torch.tensor([[0, 1], [1, 2], [2, 0]]), pairwise)
    relaxed, exact = (sparse_map(own, 0.4) for own in (LocalPolytope(graph, method="lp"), graph))
    assert (relaxed.value >= exact.value - 1e-9).all()
    for b in range(2):
        tight = graph[b].replace(
            *(p[b : b + 1] - 0.4 * m[b : b + 1] for p, m in zip((unary, pairwise), relaxed.statistics, strict=True))
        )
        bound = LocalPolytope(tight, method="lp").max()[0]
        own = sum((p * m[b : b + 1]).sum() for p, m in zip(tight.potentials, relaxed.statistics, strict=True))
        assert_close(bound, own.view(1), rtol=0, atol=1e-7)
    nodes, edges = relaxed.statistics
    assert_close(edges.sum(3)[:, 0], nodes[:, 0])


def test_rescaled_slack() -> None:
    chain = LinearChain(*random_chains(3, 3, 2, lengths=[3, 2, 1]))
    rescaled = SlackRescaled(chain, torch.zeros(3, 3, dtype=torch.int64), torch.ones(3))
    outputs = [torch.cartesian_prod(*[torch.arange(2)] * int(n)).view(-1, int(n)) for n in chain.lengths]
    outputs = [torch.nn.functional.pad(own, (0, 3 - own.shape[1])) for own in outputs]
    assert_optimal(rescaled, outputs, sparse_map(rescaled, 0.5), 0.5, "all")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_dtypes(dtype: torch.dtype) -> None:
    weights = random_matchings([(4, 4)])[0].to(dtype)
    solution, exact = sparse_map(Matching(weights)), sparse_map(Matching(weights.double()))
    assert {own.dtype for own in (solution.value, solution.weights, *solution.statistics)} == {torch.float32}
    assert_close(solution.value, exact.value.float())
    assert_close(solution.statistics[0], exact.statistics[0].float(), rtol=0, atol=1e-6)


def test_a_limit_of_calls_is_told() -> None:
    chain = LinearChain(*random_chains(2, 12, 3, lengths=[12, 12]))
    with pytest.warns(RuntimeWarning, match=r"max_calls=3 calls .* with a gap of .* at example [01]: raise"):
        solution = sparse_map(chain, 5.0, max_calls=3)
    lacking = sparse_map(chain, 5.0).value - solution.value
    assert (lacking > 1e-6).all()
    assert (lacking <= solution.gap).all()


@pytest.mark.parametrize("name", ["BinaryGraph", "DeformableTree"])
def test_scores_that_are_restricted_are_refused(name: str) -> None:
    structure = MEMBERS[name].structure("tiny")
    with pytest.raises(NotImplementedError, match=rf'{name} finds .*: take parts="first"'):
        sparse_map(structure)


def test_bad_arguments() -> None:
    matching = Matching(torch.zeros(2, 3, 3))
    with pytest.raises(ValueError, match="parts must be one of all, first, got 'pairs'"):
        sparse_map(matching, parts="pairs")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_calls must be at least 1"):
        sparse_map(matching, max_calls=0)
    for mu in (0.0, -1.0, INF):
        with pytest.raises(ValueError, match="mu must be positive"):
            sparse_map(matching, mu)
    with pytest.raises(ValueError, match=r"start must hold outputs \[B, k, ...\].*\(2, 3\), got \(2, 3\)"):
        sparse_map(matching, start=torch.zeros(2, 3, dtype=torch.int64))
    graph = FactorGraph(*random_graphs(1, 3, 2))
    with pytest.raises(TypeError, match="LocalPolytope has points that no output has"):
        sparse_map(LocalPolytope(graph), start=torch.zeros(1, 1, 3, dtype=torch.int64))
    with pytest.raises(NotImplementedError, match="SparseMAP does not work under transforms"):
        torch.func.grad(lambda w: sparse_map(LinearChain(w, torch.zeros(2, 2))).value.sum())(torch.zeros(1, 2, 2))
    compiled = torch.compile(lambda w: sparse_map(Candidates(w)).value, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"SparseMAP searches in Python|Unsupported|Observed exception"):
        compiled(torch.zeros(1, 3))


def test_cuts_by_the_norm_of_labels() -> None:
    graph = BinaryGraph(*random_graphs(3, 6, 8, seed=2))
    outputs = [torch.cartesian_prod(*[torch.arange(2)] * 6)] * 3
    assert_optimal(graph, outputs, sparse_map(graph, 2.0, "first"), 2.0, "first")
