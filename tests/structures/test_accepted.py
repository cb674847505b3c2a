"""Automata over whole sequences: patterns beside Python's regular expressions, and products with chains."""

import re
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from structsmooth import CRF, Alignment, FactorGraph, HiddenMarkov, LinearChain
from structsmooth.factors import Automaton
from structsmooth.structures import Accepted

LABELS = ["a", "b", "c"]
INF = torch.inf


def accepts(automaton: Automaton, y: tuple[int, ...]) -> bool:
    state = 0
    for label in y:
        state = int(automaton.transitions[state, label])
        if state < 0:
            return False
    return bool(automaton.scores[state] > -INF)


@st.composite
def patterns(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([*LABELS, "."]))
    parts = draw(st.lists(patterns(depth - 1), min_size=1, max_size=3))
    inner = draw(st.sampled_from([" ", " | "])).join(parts)
    return f"({inner}){draw(st.sampled_from(['', '*', '+', '?']))}"


@given(patterns())
def test_patterns_accept_what_regular_expressions_do(pattern: str) -> None:
    automaton, expression = Automaton.from_pattern(pattern, LABELS), re.compile(pattern.replace(" ", ""))
    for length in range(5):
        for y in product(range(3), repeat=length):
            expected = expression.fullmatch("".join(LABELS[label] for label in y)) is not None
            assert accepts(automaton, y) == expected


@pytest.mark.parametrize(
    ("pattern", "states"),
    [("a", 2), (". *", 1), ("(a | b b*)*", 1), (". * a b . *", 3), ("(a | b)* a (a | b) (a | b)", 8), ('"a" b?', 3)],
)
def test_automata_are_the_least(pattern: str, states: int) -> None:
    assert len(Automaton.from_pattern(pattern, ["a", "b"]).transitions) == states


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("", "no label where one must be, at place 0"),
        ("a |", "no label where one must be, at place 3"),
        ("(a b", "a bracket that is not closed, at place 4"),
        ("a )", r"an operator without what it is for, at place 1"),
        ("* a", "no label where one must be, at place 0"),
        ("a d", "the label 'd', which is none of a, b, c, at place 1"),
        (f"(a | b)* a{' (a | b)' * 20}", "more than 20000 states"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Automaton.from_pattern(pattern, LABELS)


def test_arcs_have_scores_and_may_not_be_ambiguous() -> None:
    automaton = Automaton.from_arcs([(0, 0, 0, 2.0), (0, 1, 1), (1, 1, 1)], {0: 0.5, 1: -1.0}, labels=2)
    chain = LinearChain(torch.zeros(1, 2, 2), torch.zeros(2, 2))
    values, y = Accepted(chain, automaton).topk(4)
    assert y[0].tolist() == [[0, 0], [0, 1], [1, 1], [0, 0]]  # the last place is empty
    assert values.tolist() == [[4.5, 1.0, -1.0, -INF]]
    with pytest.raises(ValueError, match="two from 0 with label 1"):
        Automaton.from_arcs([(0, 1, 0), (0, 1, 1)], {1: 0.0}, labels=2)
    with pytest.raises(ValueError, match="labels from 0 to 1"):
        Automaton.from_arcs([(0, 2, 0)], {0: 0.0}, labels=2)
    named = Automaton.from_arcs([(0, "a", 0, 2.0), (0, 1, 1), (1, "b", 1)], {0: 0.5, 1: -1.0}, labels=["a", "b"])
    assert torch.equal(named.transitions, automaton.transitions)
    listed = Automaton.from_arcs([(0, 0, 0), (0, 1, 1), (1, 1, 1)], [0], labels=2)
    assert listed.scores.tolist() == [0.0, -INF]
    with pytest.raises(ValueError, match=r"numbers of labels or the names given as labels, got \(0, 'c', 0\)"):
        Automaton.from_arcs([(0, "c", 0)], {0: 0.0}, labels=["a", "b"])


def scores(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_grid_with_alternatives_is_an_alignment() -> None:
    """Columns are labels; without alternatives, the product is the grid with its two moves."""
    frames = scores(2, 6, 4)
    lengths = torch.tensor([6, 5])
    chain = LinearChain(frames, torch.zeros(4, 4, dtype=torch.float64), lengths)
    columns = list("wxyz")
    straight = Accepted(chain, Automaton.from_pattern("w+ x+ y+ z+", columns))
    grid = Alignment(frames, ((1, 0), (1, 1)), lengths=torch.stack([lengths, torch.full((2,), 4)], 1))
    assert_close(straight.logsumexp(), grid.logsumexp())
    assert_close(straight.max()[0], grid.max()[0])
    assert_close(straight.marginals()[0], grid.marginals()[0])
    either = Accepted(chain, Automaton.from_pattern("w+ (x+ | y+) z+", columns))
    one, other = (Accepted(chain, Automaton.from_pattern(f"w+ {x}+ z+", columns)) for x in "xy")
    assert_close(either.logsumexp(), torch.logaddexp(one.logsumexp(), other.logsumexp()))
    assert_close(either.max()[0], torch.maximum(one.max()[0], other.max()[0]))


def test_it_is_the_factor_graph_with_the_same_automaton() -> None:
    pattern, unary, transition = ". * a b . *", scores(2, 4, 3), scores(3, 3, seed=1)
    accepted = Accepted(LinearChain(unary, transition), Automaton.from_pattern(pattern, LABELS))
    edges = torch.tensor([[0, 1], [1, 2], [2, 3]])
    factor = Automaton.from_pattern(pattern, LABELS, scope=torch.arange(4))
    graph = FactorGraph(unary, edges, transition, factors=[factor])
    assert_close(accepted.logsumexp(), graph.logsumexp())
    assert torch.equal(accepted.max()[1], graph.max()[1])
    assert_close(accepted.marginals()[0], graph.marginals()[0])
    with pytest.raises(ValueError, match="scope must name the nodes"):
        FactorGraph(unary, edges, transition, factors=[Automaton.from_pattern(pattern, LABELS)])
    with pytest.raises(ValueError, match="scope of automaton must be empty"):
        Accepted(LinearChain(unary, transition), factor)


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_masks_starts_and_empty_sequences_are_those_of_the_chain(backend: str) -> None:
    everything = Automaton.from_pattern(". *", LABELS)
    unary, transition, start = scores(3, 5, 3).requires_grad_(), scores(3, 3, seed=1), scores(3, seed=2)
    mask = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
    for options in ({"mask": mask}, {"lengths": torch.tensor([5, 0, 2])}):
        chain = LinearChain(unary, transition, start=start, backend=backend, **options)  # type: ignore[arg-type]
        accepted = Accepted(chain, everything)
        assert_close(accepted.logsumexp(), chain.logsumexp())
        assert_close(torch.autograd.grad(accepted.logsumexp().sum(), unary), (chain.marginals()[0],))
        assert torch.equal(accepted.max()[1], chain.max()[1])
        assert_close(accepted.score(chain.max()[1]), chain.max()[0])
        assert_close(accepted.max_marginals(), chain.max_marginals())


def test_layers_and_hidden_markov_models_may_be_constrained() -> None:
    layer, emissions = CRF(["O", "B", "I"]).double(), scores(2, 5, 3)
    words = Automaton.from_pattern("(O | B I*)*", ["O", "B", "I"])
    accepted = Accepted(layer(emissions, torch.ones(2, 5).bool()), words)
    y = accepted.max()[1]
    assert not (y[:, 0] == 2).any()
    assert not ((y[:, :-1] == 0) & (y[:, 1:] == 2)).any()
    assert accepted.score(torch.full((2, 5), 2)).tolist() == [-INF, -INF]
    hidden = HiddenMarkov(scores(3), scores(3, 3), emissions)
    assert (Accepted(hidden, words).logsumexp() < hidden.logsumexp()).all()
    samples = Accepted(hidden, words).sample(20, torch.Generator().manual_seed(0))
    assert all(accepts(words, tuple(y)) for y in samples.flatten(0, 1).tolist())


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda c, a: Accepted(c.unary, a), TypeError, "chain must be LinearChain, got Tensor"),
        (lambda c, a: Accepted(c, a.transitions), TypeError, "automaton must be Automaton, got Tensor"),
        (
            lambda c, a: Accepted(c, Automaton.from_pattern("a", ["a"])),
            ValueError,
            "automaton must read the 3 labels of the chain, got one of 1",
        ),
        (lambda c, a: Automaton.from_pattern(5, LABELS), TypeError, "pattern must be a text, as in .* got 5"),
        (lambda c, a: Automaton.from_pattern(None, LABELS), TypeError, "pattern must be a text, as in .* got None"),
        (lambda c, a: Accepted(c, a).replace(c.unary, c.transition, a.scores, a.scores), ValueError, "arcs must have"),
        (
            lambda c, a: Automaton(a.scope, a.transitions[0], a.scores),
            ValueError,
            r"transitions must have shape \[Q, S",
        ),
        (lambda c, a: Automaton(a.scope, a.transitions + 9, a.scores), ValueError, "transitions must lead to states"),
        (lambda c, a: Automaton(a.scope, a.transitions.double(), a.scores), TypeError, "transitions must be integers"),
        (lambda c, a: Accepted(c, a).score(torch.full((1, 2), 3)), ValueError, "y must hold labels from 0 to 2"),
    ],
)
def test_wrong_arguments_are_named(build, error: type[Exception], message: str) -> None:
    chain = LinearChain(torch.zeros(1, 2, 3), torch.zeros(3, 3))
    with pytest.raises(error, match=message):
        build(chain, Automaton.from_pattern("a b*", LABELS))
