"""Sparse features of the parts of programs: enumeration, a module over the same trees, and plain torch steps."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from small_parsers import (
    LENGTHS,
    feature_matrix,
    labelled_problem,
    pair_problem,
    random_pairs,
    random_trees,
    row_problem,
    trees,
)
from torch import Tensor, nn
from torch.testing import assert_close

from structsmooth import BCFW, Entropy, Hamming, LinearModuleProblem, ProjectiveTree, ProximalBCFW, ScoreModule
from structsmooth.problems import LinearProblem, PairFeatures, PartRows, ProgramParts, ProgramProblem, arcs_of
from structsmooth.programs import Program
from structsmooth.solvers import Cache, DualIterate, Status
from structsmooth.solvers.bcfw.steps import epoch, plain

LAM = 0.1
EXACTLY = {"rtol": 0.0, "atol": 1e-10}
KINDS: dict[str, Callable[[], ProgramProblem]] = {
    "rows": row_problem,
    "pairs": pair_problem,
    "several roots": lambda: pair_problem(single_root=False),
    "costs": lambda: pair_problem(costs=torch.rand(39, generator=torch.Generator().manual_seed(4)).double()),
    "labels": labelled_problem,
    "crossing": lambda: pair_problem(projective=False),
    "crossing, several roots": lambda: pair_problem(single_root=False, projective=False),
    "crossing, labels": lambda: labelled_problem(labels=2, projective=False),
    "weighted": lambda: pair_problem().weighted(torch.linspace(0.5, 3.0, 5)),
}


@pytest.fixture(params=KINDS)
def problem(request: Any) -> ProgramProblem:
    return KINDS[request.param]()


def random_weights(problem: ProgramProblem, seed: int = 0) -> Tensor:
    return torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def every_tree(problem: ProgramProblem) -> list[Tensor]:
    """Parts of all outputs of each example, float64 [outputs, P]."""
    heads, modifiers, offsets = arcs_of(LENGTHS)
    parts = problem.program_parts
    single = parts.spanning == "one root" or parts.program is ProgramParts.projective_trees(LENGTHS).program
    outputs = []
    for i, words in enumerate(LENGTHS.tolist()):
        own = slice(offsets[i], offsets[i + 1])
        every = torch.tensor(trees(words, single, projective=parts.spanning == "no"))
        arcs = (every[:, modifiers[own] - 1] == heads[own]).double()
        labels = parts.alternatives
        if labels:
            chosen = torch.eye(labels)[torch.tensor(list(product(range(labels), repeat=words)))].flatten(1).double()
            arcs = torch.cat([arcs.repeat_interleave(len(chosen), 0), chosen.repeat(len(arcs), 1)], 1)
        outputs.append(arcs)
    return outputs


class Arcs(ScoreModule):
    """A table of features [n, n + 1, F], of modifiers and heads, to projective trees."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(features, dtype=torch.float64))

    def forward(self, x: tuple[Tensor, Tensor]) -> ProjectiveTree:
        scores = (x[0] @ self.weights).transpose(1, 2)
        return ProjectiveTree(scores[:, 1:], scores[:, 0], lengths=x[1])


def as_module(problem: ProgramProblem) -> LinearModuleProblem:
    """The same finite sum, over padded tables of features."""
    matrix, (heads, modifiers, offsets), words = feature_matrix(problem), arcs_of(LENGTHS), int(LENGTHS.max())
    data = []
    for i, length in enumerate(LENGTHS):
        own = slice(offsets[i], offsets[i + 1])
        table, y = torch.zeros(words, words + 1, problem.dim).double(), torch.zeros(words, dtype=torch.int64)
        table[modifiers[own] - 1, heads[own]] = matrix[own]
        used = problem.part_labels[own] > 0
        y[modifiers[own][used] - 1] = heads[own][used]
        data.append(((table, length), y))
    return LinearModuleProblem(Arcs(problem.dim), data, Hamming())


def random_iterate(problem: ProgramProblem) -> DualIterate:
    """Three different outputs for each example, of random weights, where it has so many."""
    generator = torch.Generator().manual_seed(3)
    alphas, stamps = torch.zeros(problem.n, 3).double(), torch.zeros(problem.n, 3, dtype=torch.int32)
    statistics, sets = [], []
    for i in range(problem.n):
        scores = torch.randn(len(problem.costs(i)[0]), generator=generator, dtype=torch.float64)
        values, (outputs,) = problem.structure(scores, i).topk(3)
        count = int((values > -torch.inf).sum())
        alphas[i, :count] = torch.randn(count, generator=generator, dtype=torch.float64).softmax(0)
        stamps[i, :count] = torch.tensor([1, 0, 2], dtype=torch.int32)[:count]
        statistics.append(alphas[i, :count] @ torch.stack([problem.parts(y, i)[0] for y in outputs[:count]]))
        sets.append(outputs.flatten().int())
    m, gaps = torch.cat(statistics), torch.ones(problem.n, dtype=torch.float64)
    return DualIterate(problem.dual_weights(m, LAM), m, gaps, torch.cat(sets), alphas, stamps)


def test_losses_by_enumeration(problem: ProgramProblem) -> None:
    w, offsets = random_weights(problem), problem.program_parts.offsets
    scores, outputs = feature_matrix(problem) @ w, every_tree(problem)
    hinges, entropies = 0.0, 0.0
    for i, parts in enumerate(outputs):
        own = slice(offsets[i], offsets[i + 1])
        margins = parts @ (scores + problem.part_costs)[own] - problem.part_labels[own].double() @ scores[own]
        hinges += float(problem.normalized_weights[i] * margins.max())
        entropies += float(problem.normalized_weights[i] * 0.5 * (margins / 0.5).logsumexp(0))
    assert problem.loss(w) == pytest.approx(hinges, abs=1e-12)
    assert problem.loss(w, Entropy(0.5)) == pytest.approx(entropies, abs=1e-12)


def test_potentials_are_the_features_times_the_weights(problem: ProgramProblem) -> None:
    w, matrix, offsets = random_weights(problem), feature_matrix(problem), problem.program_parts.offsets
    for i in range(problem.n):
        own = matrix[offsets[i] : offsets[i + 1]]
        m = torch.randn(len(own), generator=torch.Generator().manual_seed(i), dtype=torch.float64)
        assert_close(problem.potentials(w, i)[0], own @ w, **EXACTLY)
        assert_close(problem.adjoint((m,), i), own.T @ m, **EXACTLY)
        assert problem.feature_map.squared_norm((m,), i) == pytest.approx(float((own.T @ m).square().sum()), abs=1e-10)


@pytest.mark.parametrize("build", [row_problem, pair_problem])
def test_it_is_a_module_over_the_same_trees(build: Callable[[], ProgramProblem]) -> None:
    problem = build()
    module = as_module(problem)
    for seed in range(3):
        w = random_weights(problem, seed)
        assert problem.loss(w) == pytest.approx(module.loss(w), abs=1e-12)
        for smoother in (problem.smoother, Entropy(0.5)):
            assert_close(problem.loss_and_grad(w, smoother)[1], module.loss_and_grad(w, smoother)[1], **EXACTLY)
    for solver in (BCFW(gap_tolerance=1e-4), ProximalBCFW(gap_tolerance=1e-4)):
        ours, theirs = (solver.solve(p, lam=LAM, passes=2000) for p in (problem, module))
        assert ours.status is theirs.status is Status.CONVERGED
        assert ours.row.objective == pytest.approx(theirs.row.objective, rel=2e-4)
        gaps = problem.block_gaps(ours.weights, problem.label_statistics())
        assert_close(gaps, module.block_gaps(ours.weights, module.label_statistics()), **EXACTLY)


@pytest.mark.parametrize("steps", ["fw", "pairwise", "away"])
@pytest.mark.parametrize("cache", [None, Cache(0.25, 1e-3)])
def test_steps_are_those_of_plain_torch(problem: ProgramProblem, steps: Any, cache: Cache | None) -> None:
    point, order = random_iterate(problem), torch.randperm(5, generator=torch.Generator().manual_seed(1)).repeat(4)
    shares = torch.linspace(0.1, 1.0, 20, dtype=torch.float64)
    settings: dict[str, Any] = {"lam": LAM, "steps": steps, "averaging_weights": shares, "cache": cache}
    reached, total = epoch(problem, point, order, **settings)
    expected, expected_total = plain(problem, point, order, **settings)
    # A step of length zero, between two outputs of the same score, may stamp one of them or not.
    for name in ("weights", "statistics", "gaps", "alphas"):
        assert_close(getattr(reached, name), getattr(expected, name), **EXACTLY)
    assert_close(total, expected_total, **EXACTLY)
    own, w = reached.statistics, reached.weights
    assert_close(problem.dual_weights(own, LAM), w, **EXACTLY)
    assert_close(problem.dual_weights(own, LAM), LinearProblem.dual_weights(problem, own, LAM), **EXACTLY)
    assert_close(problem.block_gaps(w, own), LinearProblem.block_gaps(problem, w, own), **EXACTLY)
    assert problem.expected_cost(own) == pytest.approx(LinearProblem.expected_cost(problem, own), abs=1e-12)


def test_steps_may_be_drawn_by_gap(problem: ProgramProblem) -> None:
    draws = torch.rand(12, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    reached, _ = epoch(problem, random_iterate(problem), draws, lam=LAM)
    expected, _ = plain(problem, random_iterate(problem), draws, lam=LAM)
    assert_close(reached.weights, expected.weights, **EXACTLY)
    assert_close(reached.gaps, expected.gaps, **EXACTLY)


def test_outputs_may_have_a_part_twice() -> None:
    """Two steps, each by way 0 or 1, whose scores both steps share: three outputs have different parts."""
    program = Program(head=[0, 1, 1, 2, 2], left=[-1, 0, 0, 1, 1], index=[-1, 0, 1, 0, 2], scores=3)
    parts = ProgramParts(program, torch.tensor([2]), torch.tensor([0, 3]), torch.arange(3).int())
    rows = PartRows(torch.arange(3).int(), torch.arange(4), features=3)
    problem = ProgramProblem(parts, rows, torch.tensor([2, 0, 0]))
    w = torch.tensor([1.0, 1.5, 2.5], dtype=torch.float64)
    assert problem.label_atom(0).tolist() == [0, 0]
    assert problem.loss(w) == pytest.approx(1.5 + 2.5 + 2 - 2)
    assert problem.loss_and_grad(w, problem.smoother)[1].tolist() == [-2.0, 1.0, 1.0]


def test_examples_have_no_outputs_with_parts_of_others() -> None:
    """Without its part 1, the example has one output alone."""
    program = Program(head=[0, 0], index=[0, 1], scores=2)
    offsets = torch.tensor([0, 1, 3])
    parts = ProgramParts(program, torch.zeros(2).long(), offsets, torch.tensor([0, 0, 1]).int())
    rows = PartRows(torch.arange(3).int(), torch.arange(4), features=3)
    problem = ProgramProblem(parts, rows, torch.tensor([1, 1, 0]))
    w = torch.tensor([-7.0, 0.0, 5.0], dtype=torch.float64)
    assert problem.loss(w) == pytest.approx((0 + 5 + 1) / 2)
    assert problem.subset(torch.tensor([0])).loss(w) == 0.0


def test_refuses_labels_that_are_no_output() -> None:
    parts, labels = ProgramParts.projective_trees(LENGTHS), random_trees(LENGTHS)
    wrong = labels.clone()
    wrong[:9] = torch.tensor([0, 1, 0, 0, 1, 0, 0, 0, 1])  # heads 2, 1 and 3: a circle
    with pytest.raises(ValueError, match="labels of example 0 are no output of it"):
        ProgramProblem(parts, random_pairs(LENGTHS), wrong)
    with pytest.raises(ValueError, match="labels of example 1 have 2 parts: outputs have at most 1"):
        ProgramProblem(parts, random_pairs(LENGTHS), labels.index_fill(0, torch.tensor([9]), 2))
    with pytest.raises(ValueError, match="labels must not be negative"):
        ProgramProblem(parts, random_pairs(LENGTHS), -labels)
    with pytest.raises(ValueError, match="features must be of 39 parts, got 9"):
        ProgramProblem(parts, random_pairs(LENGTHS[:1]), labels)
    with pytest.raises(ValueError, match='costs must be "mistakes", None or a tensor'):
        ProgramProblem(parts, random_pairs(LENGTHS), labels, costs="hamming")  # type: ignore[arg-type]


PROGRAM = Program(head=[0, 1, 2, 2], left=[-1, 0, 1, 0], index=[-1, 0, 1, 2], scores=3)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"roots": torch.tensor([2.0])}, TypeError, "roots must be a vector of torch.int64, got torch.float32"),
        ({"roots": torch.tensor([3])}, ValueError, "roots must be from 0 to 2, got 3 to 3"),
        ({"scores": torch.tensor([0, 1, 3]).int()}, ValueError, "scores must be from 0 to 2, got 0 to 3"),
        ({"offsets": torch.tensor([0, 2])}, ValueError, "offsets must rise from 0 to the number of scores, 3"),
        ({"offsets": torch.tensor([0, 1, 3])}, ValueError, "offsets must have one entry more than roots"),
        ({"choices": torch.tensor([1]), "alternatives": 2}, ValueError, "parts of choices must be the last"),
        (
            {"choices": torch.tensor([-1]), "alternatives": 2},
            ValueError,
            "choices must be numbers from 0, one",
        ),
    ],
)
def test_refuses_parts_that_do_not_fit(change: dict[str, Any], error: type[Exception], message: str) -> None:
    good = {"roots": torch.tensor([2]), "offsets": torch.tensor([0, 3]), "scores": torch.arange(3).int()}
    with pytest.raises(error, match=message):
        ProgramParts(PROGRAM, **good | change)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"columns": torch.arange(3)}, TypeError, "columns must be int32 and offsets int64, got torch.int64"),
        ({"offsets": torch.tensor([0, 2])}, ValueError, "offsets must rise from 0 to the number of columns, 3"),
        ({"offsets": torch.tensor([0, 2, 1, 3])}, ValueError, "offsets must not fall"),
        ({"features": 2}, ValueError, "columns must be from 0 to features - 1 = 1"),
    ],
)
def test_refuses_rows_that_do_not_fit(change: dict[str, Any], error: type[Exception], message: str) -> None:
    good: dict[str, Any] = {"columns": torch.arange(3).int(), "offsets": torch.tensor([0, 1, 3]), "features": 3}
    with pytest.raises(error, match=message):
        PartRows(**good | change)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"first": torch.tensor([0])}, TypeError, r"first must be int32 \[parts\], got torch.int64"),
        ({"second": torch.tensor([0, 1]).int()}, TypeError, r"second must be int32 \[parts\]"),
        ({"second": torch.tensor([2]).int()}, ValueError, "second must be from 0 to 1"),
        ({"kinds": torch.tensor([1]).int()}, ValueError, "kinds must be from 0 to 0"),
        (
            {"first_keys": torch.zeros(2, 3)},
            TypeError,
            r"first_keys must be uint32 of shape \(2, 3\), got",
        ),
        ({"distance_keys": torch.zeros(2, 3, dtype=torch.uint32)}, ValueError, r"shape \[2R \+ 1, K\]"),
        ({"between_keys": torch.zeros(2, 4, dtype=torch.uint32)}, ValueError, r"\[tokens, J\] with J <= K = 3"),
        ({"kind_columns": torch.tensor([[0, 4]])}, ValueError, "rising pairs of numbers from 0 to 3 for 1 kinds"),
        ({"bits": 31}, ValueError, "bits must be from 1 to 30, got 31"),
    ],
)
def test_refuses_pairs_that_do_not_fit(change: dict[str, Any], error: type[Exception], message: str) -> None:
    keys = torch.zeros(2, 3, dtype=torch.uint32)
    good: dict[str, Any] = {"first": torch.zeros(1).int(), "second": torch.ones(1).int()}
    good |= {"first_keys": keys, "second_keys": keys, "bits": 4}
    good |= {"distance_keys": torch.zeros(3, 3, dtype=torch.uint32), "between_keys": keys[:, :1]}
    with pytest.raises(error, match=message):
        PairFeatures(**good | change)
