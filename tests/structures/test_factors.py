"""Named factors against their definitions, relaxations of graphs with factors, bad factors, and limits."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from enumerated_factor_graphs import (
    EnumeratedFactorGraphWithFactors,
    GraphsWithFactors,
    factor_graph_with_factors,
    random_factor_graphs,
    small_factor_graphs_with_factors,
)
from enumeration import all_labelings
from hypothesis import given, settings
from torch import Tensor
from torch.testing import assert_close

from structsmooth import Entropy, FactorGraph, Hamming, Max, StructuralHinge
from structsmooth.factors import AtLeastOne, AtMostOne, Automaton, Budget, Count, Factor, LocalPolytope, Potts, Table
from structsmooth.structures.factor_graph import binding, expansion
from structsmooth.structures.factor_graph.reading import automata

INF = math.inf
NO_EDGES = torch.zeros(0, 2, dtype=torch.int64)
SCOPES = torch.tensor([[2, 0, 4, 1], [3, -1, 1, -1], [-1, -1, -1, -1]])  # of three examples
COUNTS, STRENGTHS = torch.tensor([[0.5, -1.0, 2.0]]).double(), torch.tensor([[1.0, -2.0, 3.0]] * 3).double()
TABLE = torch.randn(3, 3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True, eq=False)
class Even(Factor):
    """An even number of nodes has label 2."""

    def automaton(self, states: int) -> tuple[Tensor, Tensor]:
        transitions = torch.tensor([[0], [1]]).repeat(1, states)
        transitions[:, 2] = torch.tensor([1, 0])
        return transitions, torch.tensor([0.0, -INF])


def hard(allowed: bool) -> float:
    return 0.0 if allowed else -INF


# A factor, and its score of labels of the nodes that it has in example b.
DEFINED: dict[str, tuple[Factor, Callable[[Sequence[int], int], float]]] = {
    "at most one": (AtMostOne(SCOPES), lambda y, b: hard(y.count(1) <= 1)),
    "at most one 0": (AtMostOne(SCOPES, label=0), lambda y, b: hard(y.count(0) <= 1)),
    "at least one": (AtLeastOne(SCOPES, 2), lambda y, b: hard(2 in y)),
    "budget": (Budget(SCOPES, 2, label=2), lambda y, b: hard(y.count(2) <= 2)),
    "count": (Count(SCOPES, COUNTS, 2), lambda y, b: COUNTS[0, min(2, y.count(2))]),
    "Potts": (Potts(SCOPES, STRENGTHS), lambda y, b: STRENGTHS[b, y[0]] if len(set(y)) == 1 else 0.0),
    "Potts of one strength": (Potts(SCOPES, torch.tensor(-2.0)), lambda y, b: -2.0 * (len(set(y)) == 1)),
    "table": (Table(torch.tensor([4, 0, 1]), TABLE), lambda y, b: TABLE[(b, *y)]),
    "even": (Even(SCOPES), lambda y, b: hard(y.count(2) % 2 == 0)),
}
every_factor = pytest.mark.parametrize("name", DEFINED)


def scattered(factors: Sequence[Factor], seed: int = 0, **options: Any) -> FactorGraph:
    """Five nodes of three states without edges."""
    unary = torch.randn(3, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return FactorGraph(unary, NO_EDGES, torch.zeros(0, 3, 3).double(), factors=factors, **options)


def cycle(factors: Sequence[Factor], seed: int = 0, nodes: int = 5, states: int = 3) -> FactorGraph:
    unary, edges, pairwise, *_ = random_factor_graphs(3, nodes, 4, states, seed, padding=False)
    edges = torch.tensor([[v, (v + 1) % nodes] for v in range(nodes)])
    return FactorGraph(unary, edges, pairwise[:, :nodes], factors=factors)


@every_factor
def test_named_factors_are_what_they_say(name: str) -> None:
    factor, definition = DEFINED[name]
    graph, plain = scattered([factor]), scattered([])
    scopes = factor.scope.expand(3, -1)
    for y in all_labelings(5, 3):
        added = [
            float(definition([int(y[v]) for v in row if v >= 0], b)) if any(v >= 0 for v in row) else 0.0
            for b, row in enumerate(scopes.tolist())
        ]
        expected = plain.score(y.expand(3, -1)) + torch.tensor(added).double()
        assert_close(graph.score(y.expand(3, -1)), expected)


def test_places_may_have_transitions_of_their_own() -> None:
    """The sum of labels modulo four, where place p counts p + 1 times."""
    places = torch.arange(1, 4)
    transitions = (torch.arange(4)[:, None] + places[:, None, None] * torch.arange(2)) % 4
    final, unary = torch.tensor([0.0, -INF, 1.0, -INF]).double(), torch.tensor([[[0.0, 0.5]] * 3]).double()
    automaton = Automaton(torch.arange(3), transitions, final)
    graph = FactorGraph(unary, torch.zeros(0, 2).long(), torch.zeros(2, 2).double(), factors=[automaton])
    outputs = all_labelings(3, 2)
    expected = 0.5 * outputs.sum(1) + final[outputs @ places % 4]
    assert_close(torch.stack([graph.score(y[None]) for y in outputs])[:, 0], expected)
    assert_close(graph.logsumexp()[0], expected.logsumexp(0))
    assert_close(graph.max()[0][0], expected.max())


@every_factor
def test_the_relaxation_of_one_factor_is_tight(name: str) -> None:
    graph = scattered([DEFINED[name][0]])
    best = graph.max()[0]
    for method in ("auto", "lp"):
        relaxation = graph.relaxed(method)
        assert_close(relaxation.value, best)
        assert_close(relaxation.dual, best)
    assert graph.relaxed().tight.all()


@settings(max_examples=15)
@given(small_factor_graphs_with_factors(outputs=100))
def test_the_relaxation_brackets_the_maximum(instance: GraphsWithFactors) -> None:
    graph, best = factor_graph_with_factors(*instance), EnumeratedFactorGraphWithFactors(*instance).max()[0]
    relaxation, feasible = graph.relaxed(max_sweeps=100), best > -INF
    assert (relaxation.dual >= best - 1e-9)[feasible].all()
    assert (relaxation.value <= relaxation.dual + 1e-9)[feasible].all()
    found = relaxation.score > -INF
    assert_close(graph.score(relaxation.labels)[found], relaxation.score[found])
    some = (relaxation.value > -INF).double()
    assert_close(relaxation.factors.sum(-1), (instance[6] >= 0).any(-1) * some[:, None])


def test_message_passing_closes_in_on_the_optimum() -> None:
    graph = cycle([AtMostOne(torch.tensor([0, 2, 3])), Budget(torch.arange(5), 2, label=2)])
    optimum, interval = graph.relaxed("lp").value, graph.relaxed("messages", max_sweeps=2000)
    assert (interval.dual >= optimum - 1e-7).all()
    assert (interval.value <= optimum + 1e-7).all()
    assert (interval.dual - optimum).sum() < 0.02 * optimum.abs().sum()


def test_rounded_labels_keep_hard_factors() -> None:
    """Moves of single nodes cannot exchange the one node that has a label, those of a scope can."""
    exactly_one = Count(torch.arange(8), torch.tensor([-INF, 0.0, -INF]))
    factors = [exactly_one, Count(torch.arange(4), torch.tensor([0.0, 1.0]))]
    graphs = [cycle(factors, seed, nodes=8, states=2) for seed in range(5)]
    missing = torch.stack([graph.max()[0] - graph.relaxed("messages", max_sweeps=50).score for graph in graphs])
    assert missing.mean() < 0.3


def test_rounded_labels_keep_hard_factors_that_cross() -> None:
    """One of each group, and one of each group across: the search has a second start where the first one fails."""
    exactly_one = torch.tensor([-INF, 0.0, -INF])
    groups, across = torch.arange(9).view(3, 3), torch.tensor([[0, 4, 5], [1, 2, 6], [3, 7, 8]])
    factors = [Count(scope, exactly_one) for scope in (*groups, *across)]
    for seed in (0, 3, 20):
        assert (cycle(factors, seed, nodes=9, states=2).relaxed("messages", max_sweeps=50).score > -INF).all()


def test_gradients_reach_the_scores_of_factors() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((3,), (3, 1), (3, 3))
    scores = [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]
    y = torch.arange(15).view(3, 5) % 3

    def losses(*scores: Tensor) -> tuple[Tensor, ...]:
        counts, strength, table = scores
        factors = [Count(SCOPES, counts), Potts(SCOPES, strength), Table(torch.tensor([1, 4]), table)]
        graph = scattered(factors)
        hinges = [StructuralHinge(smoother, Hamming(), "none")(graph, y) for smoother in (Max(), Entropy(0.5))]
        factor_marginals = graph.marginals()[2]
        return *hinges, graph.score(y), factor_marginals.flatten(1) @ torch.arange(factor_marginals[0].numel()).double()

    assert torch.autograd.gradcheck(losses, scores)


def test_statistics_are_gradients() -> None:
    graph = cycle([AtMostOne(torch.arange(4)), Potts(SCOPES, torch.tensor(1.0).double())])
    potentials = [scores.clone().requires_grad_() for scores in graph.potentials]
    bound = graph.replace(*potentials)
    for value, statistics in (
        (bound.max()[0], graph.parts(graph.max()[1])),
        (bound.logsumexp(), graph.marginals()),
        (bound.relaxed("lp").value, tuple(vars(graph.relaxed("lp"))[n] for n in ("unary", "pairwise", "factors"))),
    ):
        assert_close(torch.autograd.grad(value.sum(), potentials), statistics)


def test_hinges_on_the_polytope_are_bounds_on_hinges() -> None:
    graph = cycle([AtMostOne(torch.arange(4)), Potts(torch.arange(1, 4), torch.tensor(1.0))])
    y = graph.max()[1]
    exact, relaxed, smooth = (
        StructuralHinge(smoother, Hamming(), "none")(own, y)
        for smoother, own in (
            (Max(), graph),
            (Max(), LocalPolytope(graph, method="lp")),
            (Entropy(0.1), LocalPolytope(graph)),
        )
    )
    assert (relaxed >= exact - 1e-9).all()
    assert (smooth >= exact - 1e-9).all()


def test_without_feasible_labels_the_value_is_minus_infinity() -> None:
    scope = torch.tensor([[0, 1], [-1, -1], [-1, -1]])
    graph = scattered([AtLeastOne(scope), Budget(scope, 1, label=0), AtMostOne(scope, 2)])
    never = graph.replace(graph.unary.masked_fill(torch.tensor([False, True, False]), -INF), *graph.potentials[1:])
    unary = never.unary.clone().requires_grad_()
    for oracle in ("max", "logsumexp", "relaxed"):
        answer = getattr(never.replace(unary, *never.potentials[1:]), oracle)()
        value = answer if isinstance(answer, Tensor) else answer[0] if isinstance(answer, tuple) else answer.value
        assert value[0] == -INF
        assert (value[1:] > -INF).all()
        (gradient,) = torch.autograd.grad(value[1:].sum() + value[:1].nan_to_num(neginf=0.0).sum(), unary)
        assert not gradient[0].any()
        assert gradient[1:].any()


def test_no_factors_are_no_potentials() -> None:
    graph = scattered([])
    assert graph.potential_names == ("unary", "pairwise")
    assert len(graph.parts(graph.max()[1])) == len(graph.marginals()) == 2
    assert graph.factors is graph.relaxed().factors is None


def test_samples_have_the_frequencies_of_the_marginals() -> None:
    graph = scattered([AtMostOne(torch.arange(5)), Even(SCOPES)])
    y = graph.sample(4000, torch.Generator().manual_seed(0))
    frequencies = torch.nn.functional.one_hot(y, 3).double().mean(1)
    assert_close(frequencies, graph.marginals()[0], rtol=0, atol=0.04)
    assert (graph.score(y[:, 0]) > -INF).all()


# Bad input, and limits.

TWO = torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: AtMostOne([0, 1]), "scope must be a torch.Tensor, got list"),
        (lambda: AtMostOne(torch.tensor([0.0, 1.0])), "scope must be integers, got torch.float32"),
        (lambda: AtMostOne(torch.tensor(1)), r"scope must have shape \[k\] or \[B, k\] with k >= 1, got \(\)"),
        (lambda: AtMostOne(NO_EDGES[0:0, 0]), r"scope must have shape .* got \(0,\)"),
        (
            lambda: AtMostOne(torch.tensor([0, 5])),
            r"scope of factors\[0\] must hold nodes from 0 to 4, or -1 at padding; example 0: \[0, 5\]",
        ),
        (lambda: AtMostOne(torch.tensor([0, -2])), r"scope of factors\[0\] must hold nodes from 0 to 4"),
        (lambda: AtMostOne(torch.tensor([0, 3, 0])), r"must hold no node twice; example 0: \[0, 3, 0\]"),
        (lambda: AtMostOne(torch.tensor([[0, 1]])), r"scope of factors\[0\] must have shape .* with B = 3"),
        (lambda: AtMostOne(torch.tensor([0]), label=3), r"factors\[0\]: label must be from 0 to 2, got 3"),
        (lambda: AtMostOne(torch.tensor([0]), label=1.0), r"factors\[0\]: label must be an int, got float"),
        (lambda: Budget(torch.tensor([0]), -1), "most must be at least 0, got -1"),
        (lambda: Count(torch.tensor([0]), torch.tensor([0, 1])), r"scores must be floating point, got torch.int64"),
        (lambda: Count(torch.tensor([0]), torch.tensor([0.0, math.nan])), r"factors must not contain NaN or \+inf"),
        (lambda: Potts(torch.tensor([0, 1]), torch.tensor(INF)), r"factors must not contain NaN or \+inf"),
        (lambda: Potts(torch.tensor([0, 1]), torch.zeros(2)), r"strength must broadcast to \[B, 3\], got shape \(2,\)"),
        (lambda: Table(torch.tensor([0, 1]), torch.zeros(3)), r"scores must have shape \(3, 3\) or \(B, 3, 3\), got"),
        (lambda: Table(torch.tensor([[0, 1], [0, -1]]), torch.zeros(3, 3)), "scope must have 2 nodes or none"),
        (lambda: Table(torch.tensor([0, 1]), torch.zeros(2, 3, 3)), r"\[B, Q\] = \(3, 9\), got \(2, 9\)"),
        (
            lambda: Automaton(torch.tensor([0]), TWO, torch.zeros(2)),
            r"transitions of factors\[0\] must have shape \[Q, 3\], or \[k, Q, 3\] with k = 1 .*, got \(2, 2\)",
        ),
        (
            lambda: Automaton(torch.tensor([0]), torch.tensor([[0, 0, 2], [0, 1, 0]]), torch.zeros(2)),
            r"transitions of factors\[0\] must lead to states from 0 to 1; entry 0, 2 is 2",
        ),
        (
            lambda: Automaton(torch.tensor([0]), torch.zeros(2, 3).long(), torch.zeros(3)),
            r"scores of factors\[0\] must have shape \[Q\] = \(2,\)",
        ),
        (lambda: TWO, r"factors\[0\] must be a Factor, got Tensor"),
    ],
)
def test_bad_factors(make: Callable[[], Any], fault: str) -> None:
    with pytest.raises((TypeError, ValueError), match=fault):
        scattered([make()])


def test_a_scope_without_its_padding_is_refused() -> None:
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1, 4] = False
    with pytest.raises(ValueError, match=r"must not hold padding; give -1 there; example 1: \[3, 4\]"):
        scattered([AtMostOne(torch.tensor([3, 4]))], node_mask=mask)


def test_factors_that_are_too_large_say_what_else_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "_MOST_ENTRIES", 1000)
    fault = r"auxiliary nodes of {} states.* \(a Count or an Automaton in place of a Table\)"
    with pytest.raises(MemoryError, match=fault.format(9)):
        scattered([Count(torch.arange(3), torch.zeros(4))])
    assert scattered([AtMostOne(torch.arange(3))]).max()[0].shape == (3,)
    table = scattered([Table(torch.arange(3), torch.zeros(3, 3, 3))])
    assert table.max()[0].shape == (3,)  # exact oracles need no auxiliary nodes of tables
    with pytest.raises(MemoryError, match=fault.format(9)):
        table.relaxed()


def test_scopes_on_a_device_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a table is read in one run, by an auxiliary node for each place, whether its rows are whole or not."""
    unary, scope = TABLE[:2, :, :2, 0].repeat(1, 2, 1)[:, :4], torch.tensor([[0, 1, 2, 3], [-1, -1, -1, -1]])

    def bound() -> FactorGraph:
        table = Table(scope, torch.arange(16.0).sin().view(2, 2, 2, 2))
        return FactorGraph(unary, NO_EDGES, torch.zeros(0, 2, 2), factors=[table])

    expected = bound()
    monkeypatch.setattr(binding, "automata", lambda *arguments: automata(*arguments[:-1], False))
    found = bound()
    assert found._roles.tables != expected._roles.tables
    assert_close(found.logsumexp(), expected.logsumexp())
    assert_close(found.topk(3), expected.topk(3))
    partly = torch.empty(1, 3, dtype=torch.int64, device="meta")  # which holds no values
    assert Table(partly, torch.empty(2, 2, 2, device="meta")).scope is partly


def test_factors_are_bound_outside_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def best(unary: Tensor) -> Tensor:
        graph = FactorGraph(unary, NO_EDGES, torch.zeros(0, 3, 3).double(), factors=[AtMostOne(torch.arange(5))])
        return graph.max()[0]

    unary = scattered([]).unary
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):  # which names the cause in new versions of torch alone
        torch.compile(best, fullgraph=True, backend="aot_eager")(unary)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(NotImplementedError, match=r"must be built outside torch\.compile"):
        best(unary)


@pytest.mark.parametrize("factors", [(), ("budget",) * 3, ("budget", "potts", "table")], ids=len)
def test_a_search_over_labels_finds_what_elimination_finds(factors: tuple[str, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    nodes, states = 7, 3
    score = partial(torch.randn, dtype=torch.float64, generator=generator)
    made = {
        "budget": lambda scope: Budget(scope[:5], 2),
        "potts": lambda scope: Potts(scope[:4], score(states)),
        "table": lambda scope: Table(scope[:3], score(2, *[states] * 3)),
    }
    own = [made[name](torch.randperm(nodes, generator=generator)) for name in factors]
    edges = torch.tensor([[0, 1], [4, 3], [2, 6], [5, 0]])
    scores = score(2, nodes, states), edges, score(2, 4, states, states)
    exact, searched = (FactorGraph(*scores, factors=own, max_table=entries) for entries in (2**18, 1))
    (values, y), (found, outputs) = (graph.topk(9) for graph in (exact, searched))
    assert_close(found, values)
    assert torch.equal(outputs, y)


def test_budgets_that_overlap_are_eliminated_by_a_search() -> None:
    """Elimination would take tables of 10⁹ entries, and a search over counters never ends."""
    generator = torch.Generator().manual_seed(0)
    gain = torch.randn(1, 20, dtype=torch.float64, generator=generator)
    scopes = [torch.randperm(20, generator=generator)[:16] for _ in range(3)]
    unary = torch.stack([torch.zeros_like(gain), gain], 2)
    graph = FactorGraph(unary, torch.zeros(0, 2).long(), torch.zeros(2, 2), factors=[Budget(own, 6) for own in scopes])
    value, y = graph.max()
    relaxation = graph.relaxed()
    assert all(int(y[0, own].sum()) <= 6 for own in scopes)
    assert relaxation.value <= value + 1e-9
    assert value <= relaxation.dual + 1e-9
