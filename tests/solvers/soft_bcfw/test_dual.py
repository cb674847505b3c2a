"""The soft dual: compiled steps against plain ones, values, drift, and marginals that agree."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from factor_graphs import FORMS, random_graphs, random_problem, relaxed_objective, shared_graphs
from soft_reference import ReferenceSteps, deltas
from torch import Tensor
from torch.testing import assert_close

from structsmooth import FactorGraphs
from structsmooth.solvers.soft_bcfw.dual import SoftDual, SoftSteps
from structsmooth.solvers.soft_bcfw.point import SoftPoint, short_form

LAM, RHO = 0.1, 0.7
EXACTLY = {"rtol": 0.0, "atol": 1e-10}
every_form = pytest.mark.parametrize(("states", "pairwise", "reference"), FORMS)
every_kind = pytest.mark.parametrize("steps", ["pairwise", "fw"])


def soft_dual(states: int, pairwise: str, reference: bool) -> SoftDual:
    return SoftDual(random_problem(states, pairwise, reference), LAM)


def random_point(dual: SoftDual, seed: int = 0) -> SoftPoint:
    """Marginals in the interior of the simplices, and multipliers."""
    generator = torch.Generator().manual_seed(seed)
    graphs, states = dual.problem.graphs, dual.problem.states

    def distributions(count: int, size: int) -> Tensor:
        return torch.rand(count, size, generator=generator, dtype=torch.float64).add(0.1).log().softmax(1)

    count, binary = len(graphs.ends), dual.labels().binary
    edges = distributions(count, states**2).view(-1, states, states)
    if dual.problem.feature_map.potts:
        diagonal = edges.diagonal(dim1=1, dim2=2)
        edges = torch.cat([diagonal, edges.sum(2) - diagonal, edges.sum(1) - diagonal], 1)
    edges = short_form(edges) if binary else edges
    multipliers = torch.randn(count, 2, 1 if binary else states, generator=generator, dtype=torch.float64)
    point = SoftPoint(dual.problem.start(), distributions(len(graphs.labels), states), edges, multipliers)
    return replace(point, weights=dual.weights(point))


def constants(graphs: FactorGraphs) -> Tensor:
    """What states of nodes score without weights: [nodes, S]."""
    labels = graphs.labels[:, None]
    costs = graphs.costs[:, None].expand_as(graphs.base_scores).scatter(1, labels, 0.0)
    return costs + graphs.base_scores - graphs.base_scores.gather(1, labels)


def permutation(count: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).permutation(count))


def tensors(point: SoftPoint) -> tuple[Tensor, ...]:
    return point.weights, point.nodes, point.edges, point.multipliers


@every_kind
@every_form
def test_compiled_steps_are_the_plain_ones(states: int, pairwise: str, reference: bool, steps: SoftSteps) -> None:
    """Each block once, from a random point: a step leaves two corners of its block with the same score."""
    dual = soft_dual(states, pairwise, reference)
    point, order = random_point(dual), permutation(dual.blocks)
    before = [tensor.clone() for tensor in tensors(point)]
    compiled = dual.sweep_blocks(point, order, RHO, steps)
    plain = ReferenceSteps(dual, RHO, steps).sweep(point, order)
    assert_close(tensors(compiled), tensors(plain), **EXACTLY)
    assert all(map(torch.equal, tensors(point), before))
    assert not torch.equal(compiled.edges, point.edges)


@every_form
def test_a_long_run_of_compiled_steps_is_the_plain_one(states: int, pairwise: str, reference: bool) -> None:
    dual = soft_dual(states, pairwise, reference)
    point, order = random_point(dual), torch.from_numpy(np.random.default_rng(1).integers(dual.blocks, size=150))
    compiled = dual.sweep_blocks(point, order, RHO, "fw")
    assert_close(tensors(compiled), tensors(ReferenceSteps(dual, RHO, "fw").sweep(point, order)), **EXACTLY)


@every_kind
@every_form
def test_examples_in_turn_are_their_blocks_in_turn(
    states: int, pairwise: str, reference: bool, steps: SoftSteps
) -> None:
    dual = soft_dual(states, pairwise, reference)
    graphs, order = dual.problem.graphs, permutation(dual.problem.n, 3)
    nodes = len(graphs.labels)
    blocks: list[int] = []
    for i in order.tolist():
        own, links = graphs.nodes_of(i), graphs.links_of(i)
        for _ in range(2):
            blocks += [*range(own.start, own.stop), *range(nodes + links.start, nodes + links.stop)]
    point = random_point(dual)
    swept = dual.sweep_examples(point, order, RHO, steps, sweeps=2)
    assert_close(tensors(swept), tensors(dual.sweep_blocks(point, torch.tensor(blocks), RHO, steps)), **EXACTLY)


@every_form
def test_values_from_the_definition(states: int, pairwise: str, reference: bool) -> None:
    """g_ρ and f_ρ from maxima and means of all blocks, and the identity of their difference."""
    dual = soft_dual(states, pairwise, reference)
    problem, point = dual.problem, random_point(dual)
    blocks = ReferenceSteps(dual, RHO)
    nodes = [blocks.node(point, i) for i in range(len(point.nodes))]
    edges = [blocks.edge(point, c) for c in range(len(point.edges))]
    maxima = 0.0
    for block in nodes + edges:
        scores = block.corners @ block.statistics.T @ block.potentials
        maxima += float(scores.max())
    for i in range(problem.n):
        parts = zip(problem.potentials(point.weights, i), problem.label_parts(i), strict=True)
        maxima -= float(sum((p * m).sum() for p, m in parts))
    violation = point.ends() - point.nodes[problem.graphs.ends]
    square = LAM / 2 * float(point.weights.square().sum())
    penalty = float(violation.square().sum() / (2 * RHO))
    own = float((constants(problem.graphs) * point.nodes).sum())
    dual_sum = own - penalty - float((violation * deltas(point, problem.graphs.ends, torch.inf)).sum())
    values = dual.values(point, RHO)
    assert values.hard == pytest.approx(maxima / problem.n + square, abs=1e-10)
    assert values.soft == pytest.approx(values.hard + penalty / problem.n, abs=1e-10)
    assert values.dual == pytest.approx(dual_sum / problem.n - square, abs=1e-10)
    assert values.disagreement == pytest.approx(float(violation.square().mean().sqrt()), abs=1e-10)
    assert values.gaps == pytest.approx(values.soft - values.dual, abs=1e-10)


@every_kind
@every_form
def test_every_step_raises_the_dual(states: int, pairwise: str, reference: bool, steps: SoftSteps) -> None:
    dual = soft_dual(states, pairwise, reference)
    point, generator = replace(random_point(dual), multipliers=dual.labels().multipliers), np.random.default_rng(0)
    last = dual.values(point, RHO)
    for block in generator.integers(dual.blocks, size=200).tolist():
        point = dual.sweep_blocks(point, torch.tensor([block]), RHO, steps)
        values = dual.values(point, RHO)
        assert values.dual >= last.dual - 1e-12
        last = values
    assert (point.nodes >= 0).all()
    assert (point.edges >= 0).all()
    assert_close(point.nodes.sum(1), torch.ones(len(point.nodes)).double(), **EXACTLY)
    assert_close(point.ends().sum(2), torch.ones(len(point.edges), 2).double(), **EXACTLY)


@every_kind
@every_form
def test_weights_do_not_drift(states: int, pairwise: str, reference: bool, steps: SoftSteps) -> None:
    dual = soft_dual(states, pairwise, reference)
    point = dual.labels()
    for k in range(100):
        point = dual.sweep_examples(dual.with_multipliers(point, RHO), permutation(dual.problem.n, k), RHO, steps)
    assert_close(dual.weights(point), point.weights, **EXACTLY)
    assert float(point.weights.norm()) > 0.1


@every_kind
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(("states", "pairwise"), [(2, "potts"), (3, "table")])
def test_edges_that_examples_share_are_those_of_each(
    states: int, pairwise: str, reference: bool, steps: SoftSteps
) -> None:
    shared, repeated = (
        SoftDual(random_problem(states, pairwise, reference, graphs), LAM) for graphs in shared_graphs(states)
    )
    point = other = random_point(repeated)
    for k in range(5):
        order, blocks = permutation(4, k), permutation(shared.blocks, k)
        point, other = (
            dual.sweep_blocks(dual.sweep_examples(dual.with_multipliers(p, RHO), order, RHO, steps), blocks, RHO, steps)
            for dual, p in ((shared, point), (repeated, other))
        )
    assert_close(tensors(point), tensors(other), **EXACTLY)
    assert shared.values(point, RHO) == repeated.values(point, RHO)
    assert shared.bound(point) == pytest.approx(repeated.bound(point), abs=1e-12)
    assert_close(shared.weights(point), point.weights, **EXACTLY)


@every_form
def test_compiled_multipliers_are_the_plain_ones(states: int, pairwise: str, reference: bool) -> None:
    dual = soft_dual(states, pairwise, reference)
    point = random_point(dual)
    plain = point.with_multipliers(dual.problem.graphs.ends.flatten(), RHO)
    assert_close(tensors(dual.with_multipliers(point, RHO)), tensors(plain), **EXACTLY)


def extreme(near: SoftPoint, graphs: FactorGraphs, most: bool) -> SoftPoint:
    """The same marginals of nodes, with all agreement of links that they allow, or with the least."""
    a, b = near.nodes[graphs.ends].unbind(1)
    diagonal = torch.minimum(a, b) if most else (a + b - 1).clamp_min(0)
    edges = torch.cat([diagonal, a - diagonal, b - diagonal], 1)
    return replace(near, edges=short_form(edges) if near.binary else edges)


@every_form
def test_bound_from_its_definition(states: int, pairwise: str, reference: bool) -> None:
    """The best of a family of marginals that agree, by a search over the shares of each type, and over the line."""
    dual, shares = soft_dual(states, pairwise, reference), torch.linspace(0, 1, 1001, dtype=torch.float64)
    graphs, scores = dual.problem.graphs, dual.problem.feature_map
    for seed in range(3):
        near = (point := random_point(dual, seed)).agreeing(graphs, int(reference))
        ends = [extreme(near, graphs, most) for most in (False, True)] if scores.potts else [near]
        nodes, pairs = scores.views(dual.weights(near))
        ways = [torch.lerp(pairs, scores.views(dual.weights(p))[1], shares.view(-1, 1, 1, 1)) for p in ends]
        least = torch.cat(ways).square().sum((2, 3)).amin(0)  # of each type
        cost = float((constants(graphs) * near.nodes).sum()) / dual.problem.n
        values = shares * cost - LAM / 2 * shares**2 * float(nodes.square().sum() + least.sum())
        assert float(values.max()) - 1e-12 <= dual.bound(point) <= float(values.max()) + 1e-4


@every_form
def test_start(states: int, pairwise: str, reference: bool) -> None:
    dual = soft_dual(states, pairwise, reference)
    point = dual.labels()
    values = dual.values(point, RHO)
    assert not dual.weights(point).any()
    assert values.dual == values.disagreement == dual.bound(point) == 0
    losses = constants(dual.problem.graphs).max(1).values
    assert values.soft == pytest.approx(float(losses.sum()) / dual.problem.n, abs=1e-12)


@every_form
def test_agreeing_marginals_are_in_the_local_polytope(states: int, pairwise: str, reference: bool) -> None:
    dual = soft_dual(states, pairwise, reference)
    graphs, first = dual.problem.graphs, int(reference)
    for seed in range(5):
        point = random_point(dual, seed)
        if seed % 2:
            point = dual.sweep_examples(point, permutation(dual.problem.n), RHO)
        near = point.agreeing(graphs, first)
        assert_close(near.ends(), near.nodes[graphs.ends], **EXACTLY)
        assert_close(near.nodes.sum(1), torch.ones(len(near.nodes)).double(), **EXACTLY)
        assert (near.edges >= -1e-12).all()
        if point.potts:  # a table with these marginals off the diagonal exists
            _, a, b = near.potts_form.tensor_split(3, 1)
            assert (a + b <= a.sum(1, keepdim=True) + 1e-12).all()
        again = near.agreeing(graphs, first)
        assert_close(again.nodes, near.nodes, **EXACTLY)
        if point.potts:
            assert_close(*(p.potts_form[:, first:states].sum(1) for p in (again, near)), **EXACTLY)
        else:
            assert_close(again.edges, near.edges, **EXACTLY)


@pytest.mark.parametrize(
    ("states", "pairwise", "reference"), [(2, "potts", True), (3, "potts", False), (3, "table", False)]
)
def test_bounds_hold(states: int, pairwise: str, reference: bool) -> None:
    """f of marginals that agree is below, and g above, the relaxed objective of any weights."""
    dual = soft_dual(states, pairwise, reference)
    point = dual.labels()
    for k in range(30):
        point = dual.sweep_examples(dual.with_multipliers(point, RHO), permutation(dual.problem.n, k), RHO)
        if k % 10 == 0:
            objective = relaxed_objective(dual.problem, point.weights, LAM)
            assert dual.bound(point) <= objective + 1e-9
            assert objective <= dual.values(point, RHO).hard + 1e-9


def test_graphs_without_edges() -> None:
    dual = SoftDual(random_problem(graphs=random_graphs((1, 1, 1))), LAM)
    point = dual.sweep_examples(dual.labels(), torch.arange(3), RHO)
    values = dual.values(point, RHO)
    assert values.disagreement == 0
    assert values.gaps == pytest.approx(values.soft - values.dual, abs=1e-12)
    assert values.soft == pytest.approx(relaxed_objective(dual.problem, point.weights, LAM), abs=1e-9)
