"""Grammars: all rules or some, shared or by sentence, closed forms, constraints, and what is refused."""

import tracemalloc
from itertools import product
from math import comb

import pytest
import torch
from enumerated_programs import PRODUCTIONS, random_grammars
from enumeration import random_scores
from oracles import ORACLES
from program_members import to_the_left
from torch import Tensor
from torch.testing import assert_close

from structsmooth.programs import Program
from structsmooth.structures import Constituents, Grammar, Productions
from structsmooth.structures.inside_outside import operators
from structsmooth.structures.productions import derivations


def scores(*shape: int, seed: int = 0) -> Tensor:
    return random_scores(torch.Generator().manual_seed(seed), False, 0.0)(*shape)


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_numbers_of_trees_are_those_of_catalan(backend: str) -> None:
    for n, symbols in product(range(1, 6), (1, 2)):
        zeros = torch.zeros(1, n, symbols, dtype=torch.float64)
        dense = Grammar(zeros.new_zeros((symbols,) * 3), zeros, zeros[0, 0], backend=backend)  # type: ignore[arg-type]
        number = comb(2 * n - 2, n - 1) // n * symbols ** (2 * n - 1)
        assert_close(dense.log_count().exp(), torch.tensor([float(number)]).double())


def test_programs_are_built_in_little_memory() -> None:
    productions = Productions([*product(range(8, 16), range(16), range(16))])
    derivations.__wrapped__(2, 8, 16, productions.rules)  # compiles
    tracemalloc.start()
    try:
        program = derivations.__wrapped__(32, 8, 16, productions.rules)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(array.nbytes for array in program.arrays) < 12.5 * program.edges
    assert peak < 36 * program.edges  # 16 of the edges in any order, checks and pieces; the order itself is compiled


@pytest.mark.parametrize("shared", [True, False])
def test_all_rules_are_those_of_a_list(shared: bool) -> None:
    batch = () if shared else (2,)
    lexical, rules, start = scores(2, 4, 2), scores(*batch, 3, 3, 3, seed=1), scores(*batch, 3, seed=2)
    spans, lengths = scores(2, 4, 4, 3, seed=3), torch.tensor([4, 3])
    every = Productions([*product(range(3), repeat=3)])
    dense = Grammar(rules, lexical, start, lengths, spans=spans)
    listed = Grammar(rules.flatten(-3), lexical, start, lengths, spans=spans, productions=every)
    y = dense.max()[1]
    assert torch.equal(y, listed.max()[1])
    for oracle in ORACLES:
        for own, other in zip(ORACLES[oracle](dense, y), ORACLES[oracle](listed, y), strict=True):
            assert_close(own.reshape(2, -1), other.reshape(2, -1))
    if shared:
        batched = dense.batched()
        assert [tuple(p.shape) for p in batched.potentials[1:3]] == [(2, 3, 3, 3), (2, 3)]
        rules.requires_grad_()
        (own,) = torch.autograd.grad(dense.logsumexp().sum(), rules)
        assert_close(own, batched.marginals()[1].sum(0))


def test_one_symbol_makes_binary_trees_of_spans() -> None:
    spans = scores(2, 5, 5, 1)
    grammar = Grammar(torch.zeros(1, 1, 1), torch.zeros(2, 5, 1).double(), torch.zeros(1), spans=spans)
    trees = Constituents(spans, binary=True)
    assert_close(grammar.logsumexp(), trees.logsumexp())
    assert_close(grammar.marginals()[3], trees.marginals()[0])
    assert torch.equal(grammar.max()[1].squeeze(3), trees.max()[1])


def test_forbidden_rules_and_spans() -> None:
    lexical, rules, start, spans, lengths = random_grammars(3, 4, lengths=[4, 3, 2])
    grammar = Grammar(rules, lexical, start, lengths, spans=spans, productions=PRODUCTIONS)
    kept = torch.arange(4)[:, None] <= torch.arange(4)
    kept[1, 2] = False  # words 1 and 2 are no constituent
    restricted = grammar.restrict(None, torch.arange(6) != 4, None, kept.unsqueeze(2))
    _, counts, _, probability = restricted.marginals()
    assert not counts[:, 4].any()
    assert not probability[:, 1, 2].any()
    assert not (restricted.topk(5)[1][:, :, 1, 2] >= 0)[restricted.topk(5)[0] > -torch.inf].any()


@pytest.mark.parametrize(
    ("rules", "symbols", "message"),
    [
        ([(0, 1, 2), (0, 3)], 3, r"rules must be 2 or 3 symbols from 0 to 2, got \(0, 3\)"),
        ([(0, 1, 2, 3)], None, "rules must be 2 or 3 symbols"),
        ([(0, 1), (0, 1)], None, r"rules must be different, got \(0, 1\) twice"),
        ([(2, 0), (0, 1), (1, 2)], None, "rules of two symbols must form no cycle, got one by which 2 derives itself"),
        ([(0, 0)], None, "must form no cycle"),
    ],
)
def test_rules_that_are_none_are_refused(rules: list[tuple[int, ...]], symbols: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Productions(rules, symbols)


def test_sizes_must_fit_the_rules() -> None:
    lexical, rules, start = torch.zeros(1, 3, 2), torch.zeros(6), torch.zeros(5)
    for arguments, message in (
        ((rules, torch.zeros(1, 3, 6), start), "lexical must have shape .* with P <= N = 5 symbols, got P = 6"),
        ((torch.zeros(7), lexical, start), r"rules must have shape \[R\] or \[B, R\] = \(1, 6\), got \(7,\)"),
        ((rules, lexical, torch.zeros(4)), r"start must have shape \[N\] or \[B, N\] = \(1, 5\), got \(4,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            Grammar(*arguments, productions=PRODUCTIONS)
    with pytest.raises(ValueError, match=r"rules must have shape \[N, N, N\] or \[B, N, N, N\] = \(1, 5, 5, 5\)"):
        Grammar(rules, lexical, start)
    with pytest.raises(ValueError, match=r"spans must have shape \[B, n, n, N\]"):
        Grammar(rules, lexical, start, spans=torch.zeros(1, 3, 3, 4), productions=PRODUCTIONS)
    grammar = Grammar(rules, lexical, start, productions=PRODUCTIONS)
    y = to_the_left(lexical)
    y[0, 0, 1, 0] = 2
    with pytest.raises(ValueError, match="y must hold labels of trees of the grammar; those of example 0 make none"):
        grammar.score(y)


def test_rules_that_make_no_sentence_longer_than_a_word() -> None:
    chains = Grammar(torch.zeros(1), torch.zeros(1, 2, 1), torch.zeros(2), productions=Productions([(1, 0)]))
    assert chains.max()[0].item() == -torch.inf
    assert (
        Grammar(*chains.potentials[1::-1], chains.start, torch.tensor([1]), productions=chains.productions).max()[0]
        == 0
    )
    with pytest.raises(ValueError, match="rules must be at least one, or symbols given, got neither"):
        Productions([])
    with pytest.raises(TypeError, match="productions must be Productions, got list"):
        Grammar(torch.zeros(1), torch.zeros(1, 2, 1), torch.zeros(2), productions=[(1, 0)])  # type: ignore[arg-type]


def peaked_grammars(scale: float, chains: bool) -> tuple[Grammar, Grammar]:
    """Random grammars over sentences of up to nine words, by spans and level by level."""
    kept = [(a, b, c) for a, b, c in product(range(2, 5), range(5), range(5)) if (a + 2 * b + c) % 3]
    productions = Productions([*kept, *([(4, 2), (3, 0), (4, 3)] if chains else [])], 5)
    lexical, rules, start = (scale * scores(*shape) for shape in ((4, 9, 3), (4, productions.count), (5,)))
    spans = scores(4, 9, 9, 5, seed=1)
    spans[:, 2, 4] = -torch.inf  # as annotations forbid
    lengths = torch.tensor([9, 0, 1, 6])
    return tuple(  # type: ignore[return-value]
        Grammar(rules, lexical, start, lengths, spans=spans, productions=productions, backend=backend)  # type: ignore[arg-type]
        for backend in ("compiled", "torch")
    )


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("chains", [True, False])
def test_sums_over_spans_are_those_of_logarithms(scale: float, chains: bool) -> None:
    by_spans, by_levels = peaked_grammars(scale, chains)
    assert_close(by_spans.logsumexp(), by_levels.logsumexp(), rtol=1e-13, atol=1e-12)
    for own, other in zip(by_spans.marginals(), by_levels.marginals(), strict=True):
        assert_close(own, other, rtol=0, atol=1e-12 * max(1.0, scale))
        assert not own[other == 0].any()


def refused(handle: int) -> Program:
    raise AssertionError("a program is built")


TINY = {
    "words": ([0.0, -1000.0], 0.0, [-torch.inf, 0.0]),
    "chains": ([-torch.inf, 0.0], -1000.0, [0.0, -torch.inf]),
    "large": ([0.0, 0.0], 1000.0, [0.0, 0.0]),
    "nothing": ([-torch.inf, -torch.inf], 0.0, [0.0, 0.0]),
}


@pytest.mark.parametrize("case", TINY)
def test_what_underflows_is_found_by_logarithms(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, chain, start = TINY[case]
    lexical = torch.tensor(words).double().expand(1, 4, 2)
    productions = Productions([(2, 0, 0), (3, 1, 1), (2, 2, 2), (3, 3, 3), (2, 0, 2), (3, 3, 1), (2, 3)])
    rules = torch.tensor([0.0] * 6 + [chain]).double()
    rows = rules, lexical, torch.tensor([-torch.inf, -torch.inf, *start]).double()
    rare, other = (Grammar(*rows, productions=productions, backend=b) for b in ("auto", "torch"))  # type: ignore[arg-type]
    assert_close(rare.logsumexp(), other.logsumexp(), rtol=1e-14, atol=0)
    for own, theirs in zip(rare.marginals(), other.marginals(), strict=True):
        assert_close(own, theirs, rtol=0, atol=1e-13)
    monkeypatch.setattr(operators, "program_of", refused)
    with pytest.raises(AssertionError, match="a program is built"):
        rare.logsumexp()
    usual = rare.replace(torch.zeros(1, 4, 2), torch.zeros(7), torch.zeros(4), rare.spans)
    assert usual.logsumexp().isfinite().all()
