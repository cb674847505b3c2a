"""Programs and what is built of them: checks, caches, closed forms, and the structures' own options."""

import gc
import itertools
from math import comb
from typing import Any

import numpy as np
import pytest
import torch
from enumerated_programs import (
    EnumeratedDependencies,
    EnumeratedSegmentations,
    EnumeratedSpans,
    grid_paths_of,
    random_dependencies,
    random_segmentations,
    random_spans,
)
from enumeration import FORMS
from oracles import ORACLES, assert_lists
from torch import Tensor
from torch.testing import assert_close

from structsmooth import (
    Alignment,
    Constituents,
    Hamming,
    LinearChain,
    Paths,
    ProjectiveTree,
    SemiMarkov,
    StructuralHinge,
    Subset,
)
from structsmooth.costs import SegmentErrors, SpanErrors
from structsmooth.programs import DynamicProgram, PathGraph, Program, ProgramBuilder, cached_program
from structsmooth.structures import SiblingTree
from structsmooth.structures.programs.program import program_of

both_backends = pytest.mark.parametrize("backend", ["compiled", "torch"])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"head": []}, ValueError, "head must name at least one edge"),
        ({"head": [0, 1], "left": [-1, 1]}, ValueError, "left must be -1 or a node of lower number .* from 1 to 1"),
        ({"head": [0, 1], "right": [-1, 2]}, ValueError, "right must be -1 or a node of lower number"),
        ({"head": [0, 1], "left": [-2, 0]}, ValueError, "left must be -1 or a node"),
        ({"head": [-1, 1]}, ValueError, "left must be -1|head must not be negative"),
        ({"head": [0, 1], "index": [0, 2]}, ValueError, "index must be -1 or from 0 to 1, got 2"),
        ({"head": [0, 1, 2], "index": [0, 1]}, ValueError, "index must have one entry for each of 3 edges, .* got 2"),
        ({"head": [0.0, 1.0]}, TypeError, "head must hold integers, got float64"),
        ({"head": [0, 1], "roots": [2]}, ValueError, r"roots must be nodes from 0 to 1, got \[2\]"),
    ],
)
def test_programs_are_checked(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Program(**arguments, scores=2)  # type: ignore[arg-type]


def test_programs_measure_their_derivations() -> None:
    program = Program(head=[0, 1, 1, 2], left=[-1, 0, -1, 1], right=[-1, -1, -1, 1], index=[-1, 0, 1, 2], scores=3)
    assert (program.nodes, program.edges, program.longest, program.depth) == (3, 4, 3, 5)
    assert repr(program) == "Program(3 nodes, 4 edges, 3 scores)"


def test_a_cache_that_dropped_a_program_builds_it_again() -> None:
    @cached_program
    def steps(length: int) -> Program:
        nodes = np.arange(length)
        return Program(nodes, nodes - 1, index=nodes, scores=length)

    first = steps(3)
    handle = first.handle
    assert steps(3) is first
    assert program_of(handle) is first
    for length in range(4, 100):
        steps(length)
    del first
    gc.collect()
    assert program_of(handle).scores == 3
    assert steps(3).handle == handle


class Coins(DynamicProgram):
    """Heads or tails, where heads uses its score twice; y [B, 1]."""

    potential_names = ("scores",)

    def __init__(self, scores: Tensor, **options: object) -> None:
        self.scores = scores
        super().__init__(**options)  # type: ignore[arg-type]

    def program(self) -> Program:
        return coins()

    def program_scores(self) -> Tensor:
        return self.scores

    def derivation(self, y: Tensor) -> Tensor:
        return torch.where(y == 0, torch.zeros_like(y), torch.ones_like(y)).expand(-1, 2).where(y == 0, 2)

    def outputs(self, used: Tensor) -> Tensor:
        return (used == 2).all(2, keepdim=True).long()


@cached_program
def coins() -> Program:
    return Program(head=[0, 1, 2, 2], left=[-1, 0, 1, -1], index=[-1, 0, 0, -1], scores=2)


@both_backends
def test_a_score_may_be_used_more_than_once_or_never(backend: str) -> None:
    scores = torch.tensor([[1.0, 5.0], [-1.0, 5.0], [-torch.inf, 5.0]], dtype=torch.float64, requires_grad=True)
    structure = Coins(scores, backend=backend)
    values, y = structure.topk(2)
    assert y.squeeze(2).tolist() == [[0, 1], [1, 0], [1, 0]]
    assert_close(values, torch.tensor([[2.0, 0.0], [0.0, -2.0], [0.0, -torch.inf]]).double())
    for k in range(2):
        assert_close(structure.score(y[:, k]), values[:, k])
    probability = torch.tensor([1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(2.0)), 0.0])
    (marginals,) = structure.marginals()
    assert_close(marginals, torch.stack([2 * probability, torch.zeros(3)], 1).double())
    (gradient,) = torch.autograd.grad(structure.logsumexp().sum(), scores)
    assert_close(gradient, marginals)
    samples = structure.sample(1000, torch.Generator().manual_seed(0)).squeeze(2)
    assert_close((samples == 0).double().mean(1), probability.double(), atol=0.05, rtol=0)


@both_backends
@pytest.mark.parametrize("single_root", [True, False])
def test_numbers_of_projective_trees(single_root: bool, backend: str) -> None:
    for n in range(1, 7):
        zeros = torch.zeros(1, n, n, dtype=torch.float64)
        options: dict[str, Any] = {"single_root": single_root, "backend": backend}
        number = comb(3 * n - 2, n - 1) // n if single_root else comb(3 * n, n) // (2 * n + 1)
        siblings = zeros.new_zeros(1, n, n, n)
        for tree in ProjectiveTree(zeros, zeros[:, 0], **options), SiblingTree(zeros, siblings, zeros[:, 0], **options):
            assert_close(tree.log_count().exp(), torch.tensor([float(number)]).double())


@both_backends
@pytest.mark.parametrize("forbidden", [0.0, 0.2])
def test_several_roots_match_enumeration(forbidden: float, backend: str) -> None:
    arcs, root, labels, lengths = random_dependencies(4, 4, 1, lengths=[4, 1, 3, 4], forbidden=forbidden)
    tree = ProjectiveTree(arcs, root, labels, lengths, single_root=False, backend=backend)  # type: ignore[arg-type]
    twin = EnumeratedDependencies(arcs, root, labels, lengths, single_root=False)
    y = torch.zeros(4, 4, dtype=torch.int64)
    for oracle in ORACLES:
        assert_close(*(ORACLES[oracle](structure, y) for structure in (tree, twin)), rtol=1e-12, atol=1e-12)
    assert_lists(tree, tree.topk(40), twin.topk(40)[0], y)


@both_backends
@pytest.mark.parametrize(("forbidden", "ties"), [(0.0, False), (0.3, False), (0.0, True)])
def test_nested_spans_match_enumeration(forbidden: float, ties: bool, backend: str) -> None:
    spans, offset, lengths = random_spans(4, 3, 2, lengths=[3, 1, 2, 3], forbidden=forbidden, ties=ties)
    structure = Constituents(spans, lengths, offset=offset, backend=backend)  # type: ignore[arg-type]
    twin = EnumeratedSpans(spans, offset, lengths, binary=False)
    y = torch.stack([outputs[-1] for outputs in twin.outputs])
    for oracle in ORACLES:
        assert_close(*(ORACLES[oracle](s, y) for s in (structure, twin)), rtol=1e-12, atol=1e-12)
    assert_close(structure.parts(y), twin.parts(y))
    assert_lists(structure, structure.topk(30), twin.topk(30)[0], y)


@both_backends
def test_numbers_of_constituency_trees(backend: str) -> None:
    for n in range(1, 7):
        zeros = torch.zeros(1, n, n, 1, dtype=torch.float64)
        binary = Constituents(zeros, binary=True, backend=backend)  # type: ignore[arg-type]
        assert_close(binary.log_count().exp(), torch.tensor([comb(2 * n - 2, n - 1) / n]).double())
    nested = [Constituents(torch.zeros(1, n, n, 1)).log_count().exp().round().item() for n in range(1, 4)]
    assert nested == [2, 8, 48]


@pytest.mark.parametrize("form", FORMS)
def test_segments_of_one_position_make_a_chain(form: str) -> None:
    unary, transition, durations, _, lengths = random_segmentations(5, 6, 3, 1, form)
    start, stop = torch.randn(3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    ends = {"start": start, "stop": stop}
    model = SemiMarkov(unary, transition, torch.zeros_like(durations), lengths=lengths, **ends)
    chain = LinearChain(unary, transition, lengths, **ends)
    for oracle in ("max", "topk", "logsumexp", "max_marginals"):
        assert_close(ORACLES[oracle](model), ORACLES[oracle](chain))
    assert torch.equal(model.max()[1], chain.max()[1])
    assert_close(model.marginals()[0], chain.marginals()[0])


def test_numbers_of_segmentations() -> None:
    zeros = torch.zeros(1, 6, 3, dtype=torch.float64)
    durations = torch.zeros(6, 3, dtype=torch.float64)
    different = torch.zeros(3, 3, dtype=torch.float64).fill_diagonal_(-torch.inf)
    assert_close(SemiMarkov(zeros, torch.zeros(3, 3), durations).log_count().exp(), torch.tensor([3.0 * 4**5]).double())
    assert_close(SemiMarkov(zeros, different, durations).log_count().exp(), torch.tensor([3.0**6]).double())


def test_labels_must_be_outputs() -> None:
    model = SemiMarkov(torch.zeros(1, 4, 2), torch.zeros(2, 2), torch.zeros(2, 2))
    for y, message in (
        ([-1, 0, 0, 0], "where segments start, the first position among them"),
        ([0, -1, -1, 1], "segments of at most K = 2 positions"),
        ([0, 2, 0, 0], "labels from 0 to 1"),
        ([0, -2, 0, 0], "labels from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=message):
            model.score(torch.tensor([y]))
    tree = ProjectiveTree(torch.zeros(1, 4, 4), torch.zeros(1, 4))
    for y, message in (
        ([2, 1, 0, 3], r"make trees, got heads \[2, 1, 0, 3\]"),
        ([0, 0, 1, 1], "make trees with one root; see single_root"),
        ([3, 4, 0, 3], "make projective trees; SpanningTree takes all"),
        ([2, 0, 2, 5], "labels from 0 to 4"),
    ):
        with pytest.raises(ValueError, match=message):
            tree.score(torch.tensor([y]))
    crossing, missing = torch.full((2, 1, 3, 3), -1)
    crossing[0, [0, 1], [1, 2]] = 0
    missing[0, [0, 1, 2, 0], [0, 1, 2, 2]] = 0
    spans = torch.zeros(1, 3, 3, 1)
    for binary, wrong, message in (
        (False, crossing, "nested spans; those of example 0 cross"),
        (True, missing, "the 2 n - 1 spans of a binary tree"),
        (False, missing + 1, "labels from 0 to 0, and -1"),
    ):
        with pytest.raises(ValueError, match=message):
            Constituents(spans, binary=binary).score(wrong)
    with pytest.raises(ValueError, match="make trees, got"):  # the last word is padding
        ProjectiveTree(torch.zeros(1, 4, 4), torch.zeros(1, 4), lengths=torch.tensor([3])).score(
            torch.tensor([[0, 4, 1, 0]])
        )


def test_lengths_are_checked_by_compiled_oracles() -> None:
    zeros, lengths = torch.zeros(2, 3, 2), torch.tensor([3, 4])
    model = SemiMarkov(zeros, torch.zeros(2, 2), torch.zeros(2, 2), lengths=lengths, validate_args=False)
    with pytest.raises(ValueError, match=r"lengths must be from 0 to 3, got \[3, 4\]"):
        model.max()


def test_builders_take_arrays_that_broadcast() -> None:
    builder = ProgramBuilder(scores=4)
    t, before, after = np.ogrid[1:3, :2, :2]
    builder.add(head=np.arange(2))
    builder.add(2 * t + after, 2 * (t - 1) + before, index=2 * before + after)
    builder.add(head=6, left=[4, 5])
    program = builder.build()
    assert (program.nodes, program.edges, program.longest) == (7, 12, 2)


@both_backends
def test_transforms_take_the_reference(backend: str) -> None:
    unary = torch.randn(3, 4, 2, dtype=torch.float64)

    def log_z(row: Tensor) -> Tensor:
        return SemiMarkov(row[None], torch.zeros(2, 2), torch.zeros(3, 2)).logsumexp()[0]

    expected = SemiMarkov(unary, torch.zeros(2, 2), torch.zeros(3, 2), backend=backend)  # type: ignore[arg-type]
    assert_close(torch.func.vmap(log_z)(unary), expected.logsumexp())
    assert_close(torch.func.vmap(torch.func.grad(log_z))(unary), expected.marginals()[0])


def test_errors_of_segments_and_spans_are_those_of_all_outputs() -> None:
    unary, transition, durations, segments, lengths = (torch.zeros_like(t) for t in random_segmentations(2, 4, 2, 3))
    lengths = torch.tensor([4, 3])
    twin = EnumeratedSegmentations(unary, transition, durations, segments, lengths)
    for scores in (None, segments):
        for b, length in enumerate(lengths.tolist()):
            for gold in twin.outputs[b][::7]:
                model = SemiMarkov(unary, transition, durations, scores, lengths)
                y = torch.stack([twin.outputs[e][0] if e != b else gold for e in range(2)])
                augmented = model.cost_augmented(y, SegmentErrors())
                for other in twin.outputs[b]:
                    rows = torch.stack([y[e] if e != b else other for e in range(2)])
                    wrong = len(set(pieces(gold, length)) ^ set(pieces(other, length)))
                    assert augmented.score(rows).tolist() == [wrong if e == b else 0 for e in range(2)]
    spans, offset, lengths = random_spans(1, 3, 2, lengths=[3])
    structure = Constituents(torch.zeros_like(spans), lengths)
    outputs = EnumeratedSpans(spans, offset, lengths, binary=False).outputs[0]
    for gold in outputs[::50]:
        missed = structure.cost_augmented(gold[None], SpanErrors())
        classes = structure.cost_augmented(gold[None], Hamming())
        for other in outputs[::7]:
            both = (gold >= 0) & (other >= 0) & (gold != other)
            differ = int((gold != other).sum())
            assert missed.score(other[None]) == differ + int(both.sum())
            assert classes.score(other[None]) == differ
    with pytest.raises(TypeError, match="SegmentErrors is a cost of SemiMarkov, got Constituents"):
        StructuralHinge(cost=SegmentErrors())(structure, outputs[:1])
    with pytest.raises(TypeError, match="SpanErrors is a cost of Constituents, got SemiMarkov"):
        StructuralHinge(cost=SpanErrors())(model, y)


def pieces(y: Tensor, length: int) -> list[tuple[int, int, int]]:
    """Starts, ends and labels of the segments of an output [T]."""
    starts = [t for t in range(length) if y[t] >= 0]
    return [(a, b, int(y[a])) for a, b in zip(starts, [*starts[1:], length], strict=True)]


def assert_oracles(structure: DynamicProgram, outputs: Tensor) -> None:
    """All oracles of a structure of one example against its outputs [n, ...], scored one by one."""
    rows = structure[torch.zeros(len(outputs), dtype=torch.int64)]
    scores = rows.score(outputs)
    allowed = scores > -torch.inf
    values, y = structure.topk(len(outputs) + 1)
    assert_close(values[0, : len(outputs)], scores.sort(descending=True).values)
    assert values[0, -1] == -torch.inf
    assert len(y[0, : int(allowed.sum())].flatten(1).unique(dim=0)) == allowed.sum()
    assert_close(structure.logsumexp()[0], scores[allowed].logsumexp(0))
    p, parts = scores.softmax(0), rows.parts(outputs)
    for marginals, own in zip(structure.marginals(), parts, strict=True):
        assert_close(marginals[0], torch.tensordot(p, own, 1))
    first = parts[0]
    having = torch.where(first > 0, scores.view(-1, *[1] * (first.dim() - 1)), -torch.inf)
    assert_close(structure.max_marginals()[0], having.amax(0))
    assert torch.autograd.gradgradcheck(
        lambda *potentials: structure.replace(*potentials).logsumexp(),
        [potential.requires_grad_() for potential in structure.potentials],
        fast_mode=True,
    )


def product_of(count: int, choices: int) -> Tensor:
    return torch.cartesian_prod(*[torch.arange(choices)] * count).view(-1, count)


@both_backends
@pytest.mark.parametrize("size", [0, 2, (1, 3), (4, 9)])
def test_subsets_match_enumeration(size: int | tuple[int, int], backend: str) -> None:
    unary = torch.randn(2, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    low, high = (size, size) if isinstance(size, int) else size
    subset = Subset(unary, size, torch.tensor([4, 3]), backend=backend)  # type: ignore[arg-type]
    taken = product_of(4, 2)
    fits = (taken.sum(1) >= low) & (taken.sum(1) <= high)
    assert_oracles(Subset(unary[:1], size, backend=backend), taken[fits])  # type: ignore[arg-type]
    number = [sum(comb(n, k) for k in range(low, high + 1)) for n in (4, 3)]
    assert_close(subset.log_count().exp(), torch.tensor(number).double())
    assert subset.mask.tolist() == [[True] * 4, [True] * 3 + [False]]
    if number[1]:
        hinge = StructuralHinge(cost=Hamming(), reduction="none")(subset, subset.max()[1])
        assert (hinge >= 0).all()


def test_subsets_refuse_other_sizes() -> None:
    unary = torch.zeros(1, 3, 2)
    with pytest.raises(ValueError, match="size must be a number >= 0, or the least and the largest number, got -1"):
        Subset(unary, -1)
    with pytest.raises(ValueError, match="y must take from 1 to 1 items, got \\[2\\]"):
        Subset(unary, 1).score(torch.tensor([[1, 1, 0]]))
    with pytest.raises(ValueError, match=r"unary must have shape \[B, N, 2\]"):
        Subset(unary[..., 0], 1)


@both_backends
def test_paths_match_enumeration(backend: str) -> None:
    edges = [[4, 1], [1, 3], [4, 2], [2, 3], [1, 2], [1, 2], [3, 0], [5, 4]]  # node 5 is behind the source
    graph = PathGraph(edges, source=4, target=3)
    weights = torch.randn(1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    chosen = [[0, 1], [2, 3], [0, 4, 3], [0, 5, 3]]
    y = torch.stack([torch.zeros(8, dtype=torch.int64).index_fill(0, torch.tensor(path), 1) for path in chosen])
    structure = Paths(weights, graph, offset=torch.ones(1).double(), backend=backend)  # type: ignore[arg-type]
    assert_oracles(structure, y)
    for gold in y:
        augmented = structure.cost_augmented(gold[None], Hamming())
        for other in y:
            differ = (gold != other).sum()
            assert_close(augmented.score(other[None]) - structure.score(other[None]), differ[None].double())
    risk, best = structure.minimum_bayes_risk()
    p = torch.stack([structure.log_prob(path[None]).exp()[0] for path in y])
    risks = torch.stack([(p * (y != path).sum(1)).sum() for path in y])
    assert_close(risk[0], risks.min())
    assert torch.equal(best[0], y[risks.argmin()])


def test_graphs_of_paths_have_no_cycles() -> None:
    with pytest.raises(ValueError, match=r"edges must form no cycle; nodes \[1, 2\]"):
        PathGraph([[0, 1], [1, 2], [2, 1]], 0, 2)
    with pytest.raises(ValueError, match=r"edges must be nodes >= 0 in pairs"):
        PathGraph([0, 1], 0, 1)
    with pytest.raises(ValueError, match=r"weights must have shape \[B, E\] with E = 1"):
        Paths(torch.zeros(1, 2), PathGraph([[0, 1]], 0, 1))


@both_backends
@pytest.mark.parametrize("moves", [((1, 0), (0, 1), (1, 1)), ((1, 0), (1, 1)), ((1, 0), (1, 2), (0, 1))])
def test_alignments_match_enumeration(moves: tuple[tuple[int, int], ...], backend: str) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 4, 3, dtype=torch.float64, generator=generator)
    move_scores = torch.randn(2, 4, 3, len(moves), dtype=torch.float64, generator=generator)
    outputs = grid_paths_of(4, 3, moves)
    one = Alignment(scores[:1], moves, move_scores[:1], backend=backend)  # type: ignore[arg-type]
    assert_oracles(one, outputs)
    both = Alignment(scores, moves, lengths=torch.tensor([[4, 3], [3, 2]]), backend=backend)  # type: ignore[arg-type]
    alone = Alignment(scores[1:, :3, :2], moves, backend=backend)  # type: ignore[arg-type]
    assert_close(both.logsumexp()[1:], alone.logsumexp())
    assert torch.equal(both.max()[1][1:, :3, :2], alone.max()[1])
    assert not both.max()[1][1, 3:].any()
    assert not both.marginals()[0][1, :, 2:].any()


def test_alignments_give_the_edit_distance() -> None:
    first, second = "kitten", "sitting"
    cells = torch.zeros(1, len(first) + 1, len(second) + 1)
    moves = torch.full((1, *cells.shape[1:], 3), -1.0)
    for t, a in enumerate(first, 1):
        for u, b in enumerate(second, 1):
            moves[0, t, u, 2] = 0.0 if a == b else -1.0
    assert Alignment(cells, move_scores=moves).max()[0] == -3


def test_alignments_refuse_wrong_moves() -> None:
    scores = torch.zeros(1, 2, 2)
    for moves in ((), ((0, 0),), ((1, -1),)):
        with pytest.raises(ValueError, match="moves must be pairs of steps"):
            Alignment(scores, moves)
    with pytest.raises(ValueError, match="moves must differ"):
        Alignment(scores, ((1, 1), (1, 1)))
    with pytest.raises(ValueError, match="lengths must be from 0 to T, U"):
        Alignment(scores, lengths=torch.tensor([[3, 1]]))


def test_marginals_of_segments_of_huge_scores_sum_to_one() -> None:
    """At these, log-sums round by more than one."""
    for scale, backend in itertools.product((1e17, 1e19), ("compiled", "torch")):
        scores = [torch.randn(s, generator=torch.Generator().manual_seed(1)) for s in ((60, 6, 3), (3, 3), (4, 3))]
        labels = SemiMarkov(*(scale * s.double() for s in scores), backend=backend).marginals()[0]
        assert_close(labels.sum(2), torch.ones_like(labels[..., 0]))
