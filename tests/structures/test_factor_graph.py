"""What factor graphs have beyond the contract of all structures: forms of potentials, the relaxation, bad input."""

import math
from typing import Any

import pytest
import torch
from enumerated_factor_graphs import (
    EnumeratedFactorGraph,
    Graphs,
    factor_graph,
    random_factor_graphs,
    small_factor_graphs,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from structsmooth import Entropy, FactorGraph, Hamming, LinearChain, Max, StructuralHinge
from structsmooth.factors import LocalPolytope
from structsmooth.structures.factor_graph.layout import Layout, colors
from structsmooth.structures.factor_graph.relaxation_dual import RelaxationDual

CYCLE = torch.tensor([[0, 1], [1, 2], [2, 0]])
SIZES = {"mixed": (4, 6, 3, 3), "binary": (4, 9, 9, 2), "forests": (4, 8, 0, 3), "hard": (3, 12, 18, 3)}


def graphs(kind: str, seed: int = 0, **options: Any) -> FactorGraph:
    return factor_graph(*random_factor_graphs(*SIZES[kind], seed=seed, **options))


def binary_graphs(seed: int) -> FactorGraph:
    """Loops and signs of all kinds."""
    return graphs("binary", seed, forbidden=0.05 * (seed % 2))


# Forms of potentials.


def test_forms_of_pairwise_scores_are_one_graph() -> None:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(2, 3, 4, generator=generator)
    table, strengths = torch.randn(4, 4, generator=generator), torch.randn(2, 3, generator=generator)
    full = table.expand(2, 3, 4, 4)
    for pairwise in (table, table.expand(3, 4, 4), full):
        assert_close(FactorGraph(unary, CYCLE, pairwise).topk(5), FactorGraph(unary, CYCLE, full).topk(5))
    tables = strengths[:, :, None, None] * torch.eye(4)
    for edges in (CYCLE, CYCLE.expand(2, 3, 2), CYCLE.flip(1)):
        assert_close(FactorGraph(unary, edges, strengths).topk(5), FactorGraph(unary, CYCLE, tables).topk(5))
    shared = FactorGraph(unary, CYCLE, table)
    assert shared[0].pairwise is table
    assert shared.batched().pairwise.shape == (2, 3, 4, 4)


def test_gradients_of_shared_scores_are_sums() -> None:
    generator = torch.Generator().manual_seed(0)
    unary, table = torch.randn(2, 3, 4, generator=generator), torch.randn(4, 4, generator=generator)
    table.requires_grad_()
    graph = FactorGraph(unary, CYCLE, table)
    for value, statistics in ((graph.max()[0], graph.parts(graph.max()[1])), (graph.logsumexp(), graph.marginals())):
        (gradient,) = torch.autograd.grad(value.sum(), table)
        assert_close(gradient, statistics[1].sum((0, 1)).detach())


def test_a_shape_that_has_two_meanings_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one table for all edges as well as Potts strengths: give table\.expand"):
        FactorGraph(torch.zeros(3, 3, 3), CYCLE, torch.zeros(3, 3))


# The relaxation.


def in_the_local_polytope(graph: FactorGraph, node: Tensor, edge: Tensor) -> None:
    """Wherever an example has outputs."""
    some = (node.sum((1, 2)) > 0)[:, None]
    assert (node >= 0).all()
    assert (edge >= 0).all()
    assert_close(node.sum(-1), (graph.node_mask & some).double())
    assert_close(edge.sum((-1, -2)), (graph.edge_mask & some).double())
    ends = torch.where(graph.edge_mask[..., None], graph.edges, 0)
    for side, sums in enumerate((edge.sum(-1), edge.sum(-2))):
        own = node.gather(1, ends[..., side, None].expand_as(sums)) * graph.edge_mask[..., None]
        assert_close(sums, own, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["auto", "messages", "lp"])
def test_the_relaxation_brackets_the_maximum(method: Any) -> None:
    @settings(max_examples=40 if method == "auto" else 15)
    @given(small_factor_graphs())
    def check(instance: Graphs) -> None:
        graph, twin = factor_graph(*instance), EnumeratedFactorGraph(*instance)
        best, relaxation = twin.max()[0], graph.relaxed(method)
        feasible = best > -math.inf
        assert (relaxation.dual >= best - 1e-9)[feasible].all()
        assert (relaxation.value <= relaxation.dual + 1e-9)[feasible].all()
        in_the_local_polytope(graph, relaxation.unary, relaxation.pairwise)
        found = relaxation.score > -math.inf
        assert_close(graph.score(relaxation.labels)[found], relaxation.score[found])
        assert (relaxation.score <= best + 1e-9).all()
        assert_close(relaxation.score[relaxation.tight], best[relaxation.tight], rtol=1e-7, atol=1e-7)

    check()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["binary", "forests"])
def test_exact_methods_agree_with_an_lp_solver(kind: str, seed: int) -> None:
    graph = graphs(kind, seed, forbidden=0.05 * (seed % 2))
    own, reference = graph.relaxed(), graph.relaxed("lp")
    assert_close(own.value, reference.value, rtol=1e-9, atol=1e-7)
    feasible = own.value > -math.inf
    assert_close(own.dual[feasible], reference.value[feasible], rtol=1e-9, atol=1e-7)
    if kind == "forests":
        assert (own.tight == feasible).all()
        assert_close(own.value, graph.max()[0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["mixed", "hard"])
def test_message_passing_closes_in_on_the_optimum(kind: str, seed: int) -> None:
    graph = graphs(kind, seed)
    optimum = graph.relaxed("lp").value
    widths = []
    for sweeps in (10, 100, 1000):
        interval = graph.relaxed("messages", max_sweeps=sweeps)
        assert (interval.dual >= optimum - 1e-7).all()
        assert (interval.value <= optimum + 1e-7).all()
        widths.append(float(interval.gap.sum()))
    assert widths[2] <= widths[1] <= widths[0]
    assert widths[2] < 0.02 * float(optimum.abs().sum())


@pytest.mark.parametrize("kind", SIZES)
def test_messages_move_scores_and_keep_their_sums(kind: str) -> None:
    graph = graphs(kind)
    y = torch.arange(graph.unary[..., 0].numel()).view(graph.unary.shape[:2]) % graph.unary.shape[-1]
    for method in ("auto", "messages", "lp"):
        relaxation = graph.relaxed(method)
        moved = RelaxationDual(*graph.batched()._scores()).reparameterized(relaxation.deltas)
        assert_close(graph.batched().replace(*moved).score(y), graph.score(y))
        maxima = [scores.flatten(2).amax(-1) for scores in moved]
        bound = (maxima[0] * graph.node_mask).sum(1) + (maxima[1] * graph.edge_mask).sum(1)
        assert_close(bound, relaxation.dual)


def test_the_gradient_of_the_relaxation_is_its_distributions() -> None:
    generator = torch.Generator().manual_seed(0)
    unary, strengths = torch.randn(5, 3, 2, generator=generator), torch.tensor([-3.0, -0.1, 0.0, 0.1, 3.0])
    unary, strengths = unary.requires_grad_(), strengths[:, None].expand(5, 3).clone().requires_grad_()
    relaxation = FactorGraph(unary, CYCLE, strengths).relaxed()
    agreement = relaxation.pairwise.diagonal(dim1=2, dim2=3).sum(-1)
    expected = (relaxation.unary, agreement)
    assert_close(torch.autograd.grad(relaxation.value.sum(), (unary, strengths)), expected)
    assert (relaxation.unary[0] == 0.5).any()  # neighbours that strongly disagree, on a cycle


def test_an_example_without_outputs_has_no_relaxation() -> None:
    unary = torch.zeros(2, 3, 2)
    unary[0, 1] = -math.inf
    for method in ("auto", "messages", "lp"):
        relaxation = FactorGraph(unary, CYCLE, torch.eye(2)).relaxed(method)
        assert relaxation.value.tolist() == relaxation.dual.tolist() == relaxation.score.tolist() == [-math.inf, 3.0]
        assert relaxation.gap.tolist() == [0.0, 0.0]
        assert relaxation.tight.tolist() == [False, True]
        assert not any(tensor[0].any() for tensor in (relaxation.unary, relaxation.pairwise, relaxation.labels))


def test_a_bound_holds_where_no_output_was_found() -> None:
    """Colourings of graphs, of which message passing finds none in ten sweeps."""
    unfound = 0
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        pairs, colouring = torch.combinations(torch.arange(14)), torch.randint(0, 3, (14,), generator=generator)
        allowed = pairs[colouring[pairs[:, 0]] != colouring[pairs[:, 1]]]
        edges = allowed[torch.randperm(len(allowed), generator=generator)[:32]]
        unary = 0.1 * torch.randn(1, 14, 3, generator=generator)
        graph = FactorGraph(unary, edges, torch.zeros(3, 3).fill_diagonal_(-math.inf))
        relaxation = graph.relaxed("messages", max_sweeps=10)
        assert (relaxation.dual >= graph.max()[0] - 1e-6).all()
        assert (relaxation.gap >= 0).all()
        unfound += relaxation.value.item() == -math.inf
    assert unfound


def test_a_penalty_for_what_is_forbidden_is_enough() -> None:
    """Edges that forbid all but one labeling, against large scores."""
    unary = torch.tensor([[[1000.0, 0.0], [1000.0, 0.0], [0.0, 1000.0]]], dtype=torch.float64)
    never_both_0 = torch.tensor([[-math.inf, 0.0], [0.0, 0.0]], dtype=torch.float64)
    graph = FactorGraph(unary, CYCLE, never_both_0)
    best = graph.max()[0]
    for method in ("cut", "messages", "lp"):
        relaxation = graph.relaxed(method)
        assert_close(relaxation.dual, best)
        assert_close(relaxation.score, best)
        assert relaxation.tight.all() or method == "messages"


@pytest.mark.parametrize("kind", ["mixed", "hard"])
def test_sweeps_in_torch_are_the_compiled_ones(kind: str) -> None:
    """At low temperatures, exponentials underflow; penalties of hard constraints make them do so at any."""
    graph = graphs(kind)
    problem = RelaxationDual(*graph._scores())
    for own in ([0.0, 0.0, 0.0, 0.0], [0.0, 0.1, 1.0, 3.0], [1e-6, 3e-3, 1e-2, 3e-2]):
        tau = torch.tensor(own, dtype=torch.float64)[: len(graph.unary)]
        deltas = problem.zero()
        for _ in range(3):
            for chosen in problem.independent_sets:
                deltas = problem.star(deltas, tau, chosen)
        assert_close(problem.sweep(problem.zero(), tau, 3), deltas, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_sweeps_never_raise_the_dual(tau: float) -> None:
    graph = graphs("hard")
    problem, temperatures = RelaxationDual(*graph._scores()), torch.full((3,), tau).double()
    deltas = problem.zero()
    for _ in range(20):
        before = problem.dual(deltas, temperatures)
        deltas = problem.sweep(deltas, temperatures)
        assert (problem.dual(deltas, temperatures) <= before + 1e-12).all()


@given(small_factor_graphs(outputs=4**6))
def test_neighbours_have_different_colors(instance: Graphs) -> None:
    _, edges, _, node_mask, edge_mask = instance
    color = colors(Layout(edges, node_mask, edge_mask))
    assert ((color >= 0) == node_mask).all()
    ends = torch.where(edge_mask[..., None], edges, 0)
    first, second = (color.gather(1, e) for e in ends.unbind(-1))
    assert (first != second)[edge_mask].all()


def test_methods_that_do_not_suit_are_refused() -> None:
    cycle = FactorGraph(torch.zeros(1, 3, 3), CYCLE, torch.eye(3))
    with pytest.raises(ValueError, match=r"tree.* needs graphs without cycles; example 0 has one"):
        cycle.relaxed("tree")
    with pytest.raises(ValueError, match=r"cut.* needs two states, got 3"):
        cycle.relaxed("cut")
    with pytest.raises(ValueError, match="method must be one of auto, tree, cut, expansion, messages, lp, got 'ilp'"):
        cycle.relaxed("ilp")  # type: ignore[arg-type]


# The local polytope as an output space.


def test_hinges_on_the_polytope_are_bounds_on_hinges() -> None:
    for seed in range(4):
        graph = binary_graphs(seed)
        y = torch.where(graph.node_mask, graph.max()[1], 0)
        for cost in (None, Hamming()):
            exact, relaxed = (StructuralHinge(Max(), cost, "none")(g, y) for g in (graph, LocalPolytope(graph)))
            assert (relaxed >= exact - 1e-9).all()
        smoothed, hard = (StructuralHinge(s, None, "none")(LocalPolytope(graph), y) for s in (Entropy(0.1), Max()))
        feasible = hard < math.inf
        assert (smoothed >= hard - 1e-9)[feasible].all()
        parts = graph.node_mask.sum(1) + 2 * graph.edge_mask.sum(1)
        assert (smoothed <= hard + 0.1 * math.log(2) * parts + 1e-9)[feasible].all()


@pytest.mark.parametrize("seed", range(4))
def test_the_polytope_of_a_binary_graph_has_the_optimum_of_an_lp_solver(seed: int) -> None:
    graph = graphs("binary", seed)
    unary, pairwise = (scores.detach().requires_grad_() for scores in graph.potentials)
    polytope = LocalPolytope(graph.replace(unary, pairwise))
    value, labels = polytope.max()
    assert_close(value.detach(), graph.relaxed("lp").value, rtol=1e-9, atol=1e-7)
    node, edge = torch.autograd.grad(value.sum(), (unary, pairwise))
    in_the_local_polytope(graph, node, edge)
    assert_close((node * unary).sum((1, 2)) + (edge * pairwise).sum((1, 2, 3)), value)
    assert ((node.gather(2, labels.unsqueeze(-1)).squeeze(-1) >= 0.5) | ~graph.node_mask).all()


@settings(max_examples=20)
@given(small_factor_graphs(outputs=300, ties=False), st.sampled_from([0.3, 1.0]))
def test_the_smoothed_dual_is_a_bound_whose_gradient_is_in_the_polytope(instance: Graphs, mu: float) -> None:
    unary, edges, pairwise, *masks = instance
    unary, pairwise = unary.requires_grad_(), pairwise.requires_grad_()
    graph = factor_graph(unary, edges, pairwise, *masks)
    value = Entropy(mu)(LocalPolytope(graph, max_sweeps=2000))
    exact = EnumeratedFactorGraph(*(tensor.detach() for tensor in instance)).max()[0]
    assert (value >= exact - 1e-9).all()
    feasible = value > -math.inf
    if feasible.any():
        node, edge = torch.autograd.grad(value[feasible].sum(), (unary, pairwise))
        assert_close(node.sum(-1), (graph.node_mask & feasible[:, None]).double())
        polytope = LocalPolytope(factor_graph(unary / mu, edges, pairwise / mu, *masks), max_sweeps=2000)
        assert_close((node, edge), polytope.marginals())


def test_smoothed_hinges_on_loops_have_gradients() -> None:
    unary, edges, pairwise, *masks = random_factor_graphs(2, 4, 3, 3, seed=1)

    def loss(unary: Tensor, pairwise: Tensor) -> Tensor:
        polytope = LocalPolytope(factor_graph(unary, edges, pairwise, *masks), max_sweeps=5000)
        return StructuralHinge(Entropy(0.5))(polytope, torch.zeros(2, 4, dtype=torch.int64))

    assert torch.autograd.gradcheck(loss, (unary.requires_grad_(), pairwise.requires_grad_()))


def test_the_polytope_refuses_second_derivatives() -> None:
    graph = graphs("mixed")
    unary = graph.unary.detach().requires_grad_()
    polytope = LocalPolytope(graph.replace(unary, *graph.potentials[1:]))
    (gradient,) = torch.autograd.grad(polytope.logsumexp().sum(), unary, create_graph=True)
    for value in (gradient.square().sum(), polytope.marginals()[0].sum()):
        with pytest.raises(NotImplementedError, match=r"differentiated once, .* a FactorGraph of small treewidth"):
            value.backward()


def test_the_polytope_has_no_other_oracles() -> None:
    polytope = LocalPolytope(graphs("mixed"))
    with pytest.raises(NotImplementedError, match=r"no K best points: take Max\(\) or Entropy\(mu\), not L2"):
        polytope.topk(2)
    assert_close(polytope.topk(1)[0][:, 0], polytope.max()[0])
    for oracle in ("max_marginals", lambda: polytope.sample(1)):
        with pytest.raises(NotImplementedError, match="LocalPolytope has no exact"):
            oracle() if callable(oracle) else getattr(polytope, oracle)()


def test_bounds_of_the_polytope_are_no_probabilities() -> None:
    graph, crf = graphs("mixed"), StructuralHinge.crf()
    polytope, y = LocalPolytope(graph), graph.max()[1]
    for call in (
        lambda: crf(polytope, y),
        lambda: crf(polytope, y, torch.zeros_like(y, dtype=torch.bool)),
        lambda: crf(polytope, graph.marginals()),
        lambda: crf(graph, polytope),
        lambda: polytope.log_prob(y),
        polytope.entropy,
        polytope.log_count,
        lambda: polytope.kl(polytope),
        lambda: polytope.cross_entropy(polytope),
    ):
        with pytest.raises(NotImplementedError, match="LocalPolytope has no likelihood and no entropy"):
            call()
    assert StructuralHinge.softmax_margin()(polytope, y) >= StructuralHinge.softmax_margin()(graph, y) - 1e-6


# Bad input, and limits.


@pytest.mark.parametrize(
    ("edges", "fault"),
    [
        ([[0, 3]], r"must hold nodes from 0 to 2; example 0: edge 0 is \(0, 3\)"),
        ([[0, 1], [-1, 0]], r"must hold nodes from 0 to 2; example 0: edge 1 is \(-1, 0\)"),
        ([[1, 1]], r"must join two nodes; example 0: edge 0 is \(1, 1\)"),
    ],
)
def test_edges_that_cannot_be(edges: list[list[int]], fault: str) -> None:
    with pytest.raises(ValueError, match=f"edges {fault}"):
        FactorGraph(torch.zeros(1, 3, 2), torch.tensor(edges), torch.eye(2))
    mask = torch.zeros(1, len(edges), dtype=torch.bool)  # none of them exists
    assert FactorGraph(torch.zeros(1, 3, 2), torch.tensor(edges), torch.eye(2), edge_mask=mask).max()[0] == 0


def test_edges_to_padding_are_refused() -> None:
    with pytest.raises(ValueError, match=r"edges must not lead to padding; example 1: edge 1 is \(1, 2\)"):
        FactorGraph(
            torch.zeros(2, 3, 2), CYCLE, torch.eye(2), node_mask=torch.tensor([[True] * 3, [True, True, False]])
        )


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"unary": torch.zeros(3, 2)}, r"unary must have shape \[B, N, S\]"),
        ({"unary": torch.zeros(1, 3, 2).long()}, "unary must be floating point"),
        ({"unary": torch.full((1, 3, 2), math.nan)}, r"unary must not contain NaN or \+inf"),
        ({"pairwise": torch.full((2, 2), math.inf)}, r"pairwise must not contain NaN or \+inf"),
        (
            {"pairwise": torch.zeros(4, 2, 2)},
            r"pairwise must have shape \[S, S\] = \(2, 2\), \[E, S, S\] =",
        ),
        ({"edges": torch.zeros(3, 3).long()}, r"edges must have shape \[E, 2\] or \[B, E, 2\]"),
        ({"edges": torch.zeros(3, 2)}, "edges must be integers"),
        ({"edge_mask": torch.ones(1, 2).bool()}, r"edge_mask must have shape \[B, E\] = \(1, 3\)"),
        ({"node_mask": torch.ones(1, 3)}, "node_mask must be boolean"),
        ({"max_sets": 0}, "max_sets must be at least 1"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], fault: str) -> None:
    good = {"unary": torch.zeros(1, 3, 2), "edges": CYCLE, "pairwise": torch.eye(2)}
    with pytest.raises((TypeError, ValueError), match=fault):
        FactorGraph(**good | arguments)


def test_masks_that_leave_nothing() -> None:
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    graph = FactorGraph(torch.zeros(2, 3, 2), CYCLE, torch.eye(2), node_mask=nothing, edge_mask=nothing)
    assert graph.max()[0].tolist() == graph.logsumexp().tolist() == [0.0, 0.0]
    assert graph.relaxed().value.tolist() == [0.0, 0.0]
    assert graph.relaxed("messages").tight.all()


def test_a_search_that_is_too_large_says_what_else_to_do() -> None:
    generator = torch.Generator().manual_seed(0)
    pairs = torch.combinations(torch.arange(12))
    graph = FactorGraph(
        torch.zeros(1, 12, 3), pairs, torch.randn(1, len(pairs), 3, 3, generator=generator), max_table=10, max_sets=3
    )
    with pytest.raises(MemoryError, match=r"more than max_sets = 3 sets.*relaxed\(\)"):
        graph.max()
    assert graph.relaxed().dual >= FactorGraph(graph.unary, graph.edges, graph.pairwise).max()[0]


def test_a_long_path_is_a_chain() -> None:
    """Nodes in any order, and edges of either direction."""
    nodes, generator = 3000, torch.Generator().manual_seed(0)
    name = torch.randperm(nodes, generator=generator)
    unary, tables = (
        torch.randn(1, n, 3, *rest, dtype=torch.float64, generator=generator)
        for n, rest in ((nodes, ()), (nodes - 1, (3,)))
    )
    chain = LinearChain(unary, tables)
    edges, flip = torch.stack([name[:-1], name[1:]], 1), torch.rand(nodes - 1, generator=generator) < 0.5
    edges, tables = (
        torch.where(flip[:, None], edges.flip(1), edges),
        torch.where(flip[:, None, None], tables.mT, tables),
    )
    order = torch.randperm(nodes - 1, generator=generator)
    graph = FactorGraph(torch.empty_like(unary).index_copy(1, name, unary), edges[order], tables[:, order])
    value, y = graph.max()
    assert_close(value, chain.max()[0])
    assert torch.equal(y[:, name], chain.max()[1])
    assert_close(graph.logsumexp(), chain.logsumexp())
    assert_close(graph.relaxed().dual, value)
