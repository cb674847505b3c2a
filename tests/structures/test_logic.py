"""Factors of truth values and tables of many nodes, against enumeration of all labels."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from enumeration import all_labelings
from torch import Tensor
from torch.testing import assert_close

from structsmooth import FactorGraph
from structsmooth.factors import And, AtLeastOne, AtMostOne, Automaton, Budget, Count, Factor, Or, Table
from structsmooth.structures.factor_graph.order import elimination_order

INF = math.inf
NO_EDGES = torch.zeros(0, 2, dtype=torch.int64)
SCOPES = torch.tensor([[2, 0, 4, 1], [3, 1, -1, -1], [-1, -1, -1, -1]])  # of three examples
NEGATED = torch.tensor([False, True, False, True])
SCORES = torch.tensor([0.5, -1.0, 2.0]).double()


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def hard(allowed: bool) -> float:
    return 0.0 if allowed else -INF


def literals(y: Sequence[int], label: int, negated: Tensor | None) -> list[bool]:
    signs = [False] * len(y) if negated is None else negated.tolist()
    return [(own == label) != sign for own, sign in zip(y, signs, strict=False)]


# Kinds of factors for a scope, a label and negated nodes; and their scores of truth values.
LOGIC: dict[str, tuple[Callable[..., Factor], Callable[[list[bool]], float]]] = {
    "at most one": (AtMostOne, lambda own: hard(sum(own) <= 1)),
    "at least one": (AtLeastOne, lambda own: hard(any(own))),
    "budget": (lambda scope, *more: Budget(scope, 2, *more), lambda own: hard(sum(own) <= 2)),
    "count": (lambda scope, *more: Count(scope, SCORES, *more), lambda own: float(SCORES[min(2, sum(own))])),
    "or": (Or, lambda own: hard(own[0] == any(own[1:]))),
    "and": (And, lambda own: hard(own[0] == all(own[1:]))),
}


def graph_of(factors: Sequence[Factor], nodes: int = 5, states: int = 3, batch: int = 3, seed: int = 0) -> FactorGraph:
    """Nodes without edges."""
    tables = torch.zeros(0, states, states).double()
    return FactorGraph(normal(batch, nodes, states, seed=seed), NO_EDGES, tables, factors=factors)


def enumerated(graph: FactorGraph) -> tuple[Tensor, Tensor]:
    """Scores [B, Y] of all labelings, and these [Y, N]."""
    nodes, states = graph.unary.shape[1:]
    every = torch.stack(list(all_labelings(nodes, states)))
    return torch.stack([graph.score(y.expand(len(graph), -1)) for y in every], 1), every


def check_oracles(graph: FactorGraph) -> None:
    """All queries agree with the sums over labelings."""
    scores, every = enumerated(graph)
    batch, total = len(graph), scores.logsumexp(1)
    assert_close(graph.logsumexp(), total)
    values, y = graph.topk(5)
    assert_close(values, scores.topk(5).values)
    assert_close(torch.stack([graph.score(own) for own in y.unbind(1)], 1)[values > -INF], values[values > -INF])
    parts = [graph.parts(y.expand(batch, -1)) for y in every]
    probabilities = (scores - total[:, None]).exp()
    for kind, marginals in enumerate(graph.marginals()):
        stacked = torch.stack([own[kind].double() for own in parts], 1)
        assert_close(marginals, (probabilities.view(batch, -1, *[1] * (stacked.dim() - 2)) * stacked).sum(1))
    relaxation = graph.relaxed()  # of one factor, tight
    assert_close(relaxation.value, scores.amax(1))
    assert_close(graph.score(relaxation.labels), scores.amax(1))


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("negated", [None, NEGATED], ids=["plain", "negated"])
@pytest.mark.parametrize("name", LOGIC)
def test_logic_is_what_it_says(name: str, negated: Tensor | None, label: int) -> None:
    kind, definition = LOGIC[name]
    graph, plain = graph_of([kind(SCOPES, label, negated)]), graph_of([])
    for y in all_labelings(5, 3):
        rows = [[int(y[v]) for v in row if v >= 0] for row in SCOPES.tolist()]
        added = [definition(literals(own, label, negated)) if own else 0.0 for own in rows]
        assert_close(graph.score(y.expand(3, -1)), plain.score(y.expand(3, -1)) + torch.tensor(added).double())
    check_oracles(graph)


def test_outputs_without_inputs() -> None:
    """Nothing is no disjunction, and every conjunction."""
    for kind, expected in ((Or, [0, 2]), (And, [1])):
        scores, every = enumerated(graph_of([kind(torch.tensor([0]))], nodes=1))
        assert every[scores[0] > -INF][:, 0].tolist() == expected


def test_and_is_or_of_what_is_not() -> None:
    """Of all literals."""
    first = graph_of([And(torch.arange(4), 1, NEGATED)])
    second = graph_of([Or(torch.arange(4), 1, ~NEGATED)])
    assert_close(enumerated(first)[0], enumerated(second)[0])


def test_circuits_of_gates_are_trained_like_other_graphs() -> None:
    """Exclusive or of two inputs by three gates, whose nodes between have scores of their own."""
    both, neither, out = 3, 4, 2
    gates = [
        And(torch.tensor([both, 0, 1])),
        And(torch.tensor([neither, 0, 1]), negated=torch.tensor([False, True, True])),
        Or(torch.tensor([out, both, neither]), negated=torch.tensor([True, False, False])),
    ]
    graph = graph_of(gates, states=2)
    check_exclusive = [[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]
    y = graph.topk(8)[1][0]
    assert sorted(row[:3].tolist() for row in y[graph.topk(8)[0][0] > -INF]) == check_exclusive
    unary = graph.unary.clone().requires_grad_()
    graph.replace(unary, *graph.potentials[1:]).logsumexp().sum().backward()
    assert_close(unary.grad, graph.marginals()[0])


def test_tables_for_each_place() -> None:
    """An automaton that accepts one word: the label of each place is its number."""
    places = torch.arange(3)
    transitions = torch.where(torch.arange(3) == places[:, None, None], torch.tensor([[0], [1]]), 1)
    word = Automaton(torch.tensor([4, 2, 0]), transitions, torch.tensor([0.0, -INF]))
    _, y = graph_of([word]).max()
    assert y[:, [4, 2, 0]].tolist() == [[0, 1, 2]] * 3
    check_oracles(graph_of([word, Count(SCOPES, SCORES)][:1]))


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize(("size", "states"), [(2, 3), (3, 3), (4, 3), (5, 2), (6, 2)])
def test_tables_of_many_nodes(size: int, states: int, forbidden: bool) -> None:
    """They are read from both ends; some examples have none."""
    order = torch.randperm(6, generator=torch.Generator().manual_seed(size))[:size]
    scope = torch.stack([order, torch.full_like(order, -1), order.flip(0)])
    scores = normal(3, *[states] * size)
    if forbidden:
        scores = scores.masked_fill(normal(*scores.shape, seed=1) > 0.5, -INF)
    graph, plain = graph_of([Table(scope, scores)], 6, states), graph_of([], 6, states)
    for y in all_labelings(6, states):
        own = [scores[(b, *y[scope[b]].tolist())] if b != 1 else 0.0 for b in range(3)]
        assert_close(graph.score(y.expand(3, -1)), plain.score(y.expand(3, -1)) + torch.tensor(own).double())
    check_oracles(graph)


def test_gradients_reach_the_scores_of_tables() -> None:
    scope, table = torch.tensor([3, 0, 2, 1]), normal(2, 2, 2, 2).requires_grad_()

    def values(table: Tensor) -> tuple[Tensor, ...]:
        graph = graph_of([Table(scope, table), AtMostOne(torch.arange(5))], states=2)
        return graph.logsumexp(), graph.marginals()[2].flatten(1) @ torch.arange(2 * 16).double(), graph.max()[0]

    assert torch.autograd.gradcheck(values, table)


@pytest.mark.parametrize("loops", [False, True])
def test_tables_of_many_nodes_among_edges(loops: bool) -> None:
    """Elimination, branch and bound and relaxations see them in halves; rounded labels keep them."""
    edges = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0], [4, 5]] if loops else [[4, 5], [3, 4]])
    table = torch.full((2, 2, 2, 2, 2), -INF)
    for seed in range(8):  # few labelings are allowed
        table[tuple(torch.randint(2, (5,), generator=torch.Generator().manual_seed(seed)).tolist())] = float(seed)
    unary, pairwise = normal(4, 6, 2), normal(4, len(edges), 2, 2, seed=1)
    for options in ({}, {"max_table": 1}):
        graph = FactorGraph(unary, edges, pairwise, factors=[Table(torch.arange(5), table)], **options)
        scores, every = enumerated(graph)
        best, y = graph.max()
        assert_close(best, scores.amax(1))
        assert torch.equal(y, every[scores.argmax(1)])
        for method in ("auto", "messages", "lp"):
            relaxation = graph.relaxed(method)  # type: ignore[arg-type]
            assert (relaxation.dual >= best - 1e-9).all()
            assert (relaxation.score > -INF).all()
            assert_close(graph.score(relaxation.labels), relaxation.score)


def test_wide_tables_are_those_of_one_joint_table() -> None:
    """In any order of their scopes, over nodes that lack some states; with first and second derivatives."""
    sizes, scopes = [3, 2, 3, 2, 1, 3, 2, 2], [(0, 1, 4, 6, 2), (5, 3, 2, 7, 0), (6, 1), (7, 4, 5)]
    missing = torch.arange(3) >= torch.tensor(sizes)[:, None]
    unary = normal(2, 8, 3).masked_fill(missing, -INF)
    tables = [normal(2, *[3] * len(scope), seed=f) for f, scope in enumerate(scopes)]
    tables[0] = torch.where(tables[0] > 1, -INF, tables[0])
    y = torch.cartesian_prod(*map(torch.arange, sizes))

    def oracles(unary: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
        factors = [Table(torch.tensor(scope), table) for scope, table in zip(scopes, tables, strict=True)]
        graph = FactorGraph(unary, NO_EDGES, torch.zeros(0, 3, 3).double(), factors=factors)
        return graph.logsumexp(), graph.topk(5)[0], graph.max_marginals().masked_fill(missing, 0.0)

    def joint(unary: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
        pairs = zip(scopes, tables, strict=True)
        of_tables = [table[(slice(None), *y[:, list(own)].unbind(1))] for own, table in pairs]
        scores = torch.stack([unary[:, torch.arange(8), y].sum(2), *of_tables]).sum(0)
        with_states = [[scores[:, y[:, v] == j].amax(1) for j in range(size)] for v, size in enumerate(sizes)]
        padded = [torch.stack([*own, *[torch.zeros(2)] * (3 - len(own))], 1) for own in with_states]
        return scores.logsumexp(1), scores.topk(5).values, torch.stack(padded, 1)

    scores = [t.requires_grad_() for t in (unary, *tables)]
    derivatives = []
    for run in (oracles, joint):
        values = run(*scores)
        first = torch.autograd.grad(sum((v * v).sum() for v in values), scores, create_graph=True)
        smooth = torch.autograd.grad(run(*scores)[0].sum(), scores, create_graph=True)
        second = torch.autograd.grad(sum((g * g.detach().cos()).sum() for g in smooth), scores)
        derivatives.append((values, first, second))
    assert_close(*derivatives)


@pytest.mark.parametrize(
    ("scopes", "sizes", "order"),
    [
        (((0, 2), (2, 1), (1, 3), (3, 0)), (2, 2, 10, 10), (2, 3, 0, 1)),  # by min-fill alone, tables of 200 entries
        (((0, 1), (0, 2), (0, 3)), (10, 2, 2, 2), (1, 2, 0, 3)),  # by min-weight alone, one of 80
    ],
)
def test_the_better_order_of_elimination_is_taken(
    scopes: tuple[tuple[int, ...], ...], sizes: tuple[int, ...], order: tuple[int, ...]
) -> None:
    assert elimination_order((0, 1, 2, 3), scopes, sizes, limit=79) == order
    assert elimination_order((0, 1, 2, 3), scopes, sizes) == order
    assert elimination_order((0, 1, 2, 3), scopes, sizes, limit=19) == ()


BAD: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: AtMostOne(torch.arange(3), 1, torch.zeros(3)),
        r"factors\[0\]: negated must be boolean, got torch.float32",
    ),
    (lambda: Or(torch.arange(3), 1, [True]), r"factors\[0\]: negated must be a torch.Tensor, got list"),
    (lambda: And(torch.arange(3), 1, NEGATED), r"factors\[0\]: negated must have shape \[k\] = \(3,\), got \(4,\)"),
    (lambda: Or(torch.arange(3), 7), r"factors\[0\]: label must be from 0 to 2, got 7"),
    (
        lambda: Count(torch.tensor([[0, -1, 1, 2]] * 3), SCORES, 1, NEGATED),
        r"scope of factors\[0\] must have padding at the end of rows: its places have their own transitions",
    ),
    (
        lambda: Automaton(torch.arange(3), torch.full((3, 2, 3), 2), torch.zeros(2)),
        r"transitions of factors\[0\] must lead to states from 0 to 1; entry 0, 0, 0 is 2",
    ),
    (
        lambda: Automaton(torch.arange(3), torch.zeros(2, 2, 3).long(), torch.zeros(2)),
        r"shape \[Q, 3\], or \[k, Q, 3\] with k = 3 for places of its scope, got \(2, 2, 3\)",
    ),
]


@pytest.mark.parametrize(("make", "fault"), BAD, ids=[fault for _, fault in BAD])
def test_bad_factors(make: Callable[[], Any], fault: str) -> None:
    with pytest.raises((TypeError, ValueError), match=fault):
        graph_of([make()])
