"""SMO on marginals against all outputs, and its guarantees."""

from itertools import pairwise, product

import pytest
import torch
from small_problems import random_dense_problem, random_problem
from solver_cases import LAM, bounded_problem, crf, minimizer, moments_of, objective, small_problem
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BinaryGraph, LinearModuleProblem, ScoreModule
from structsmooth.problems import SparseChainProblem
from structsmooth.scores import TransitionMask
from structsmooth.solvers import SMO
from structsmooth.solvers.baselines.smo import SMOState

SOLVER = SMO(gap_tolerance=0)


def statistics_of(problem: SparseChainProblem, state: SMOState) -> Tensor:
    """Nodes and summed edges of all examples, from the pairs."""
    pieces = []
    for pairs in state.point.pairs.split(problem.sequences.lengths.tolist()):
        pieces += [pairs.sum(1).flatten(), pairs[1:].sum(0).flatten()]
    return torch.cat(pieces)


def test_marginals_are_consistent_and_have_the_weights_and_the_value() -> None:
    problem = small_problem()
    for state, _ in moments_of(SOLVER, problem, 40):
        assert float(state.point.pairs.min()) >= -1e-15
        for pairs in state.point.pairs.split(problem.sequences.lengths.tolist()):
            assert_close(pairs[1:].sum(2), pairs[:-1].sum(1), rtol=0, atol=1e-13)
            assert_close(pairs.sum((1, 2)), torch.ones(len(pairs), dtype=torch.float64), rtol=0, atol=1e-13)
            assert not pairs[0, 1:].any()
        statistics = statistics_of(problem, state)
        v = problem.dual_weights(statistics, LAM)
        assert_close(state.weights, v, rtol=0, atol=1e-12)
        assert state.dual == pytest.approx(problem.expected_cost(statistics) - LAM / 2 * float(v @ v), abs=1e-12)


def test_steps_are_those_of_the_most_violating_pair() -> None:
    """By enumeration of the labellings of one example: best of all, worst with mass, and the best point between."""
    problem = random_problem((4,), 3, 5, seed=4)
    outputs = [torch.tensor(y) for y in product(range(3), repeat=4)]
    states = [state for state, _ in moments_of(SOLVER, problem, 12)]
    for old, new in pairwise(states):
        augmented = problem.augmented(old.weights, 0)
        scores = problem.atom_scores(augmented, torch.stack(outputs), 0)
        held = torch.stack([old.point.pairs[range(4), [0, *y[:-1].tolist()], y].min() for y in outputs])
        best, worst = outputs[int(scores.argmax())], outputs[int(scores.where(held > 1e-12, torch.inf).argmin())]
        direction = [a - b for a, b in zip(problem.parts(best, 0), problem.parts(worst, 0), strict=True)]
        change = -problem.adjoint(tuple(direction), 0) / LAM
        only = [t for t in range(4) if (best[t], t and best[t - 1]) != (worst[t], t and worst[t - 1])]
        longest = min(float(old.point.pairs[t, int(worst[t - 1]) if t else 0, worst[t]]) for t in only)
        gain = float(scores.max() - scores[held > 1e-12].min())
        size = min(longest, gain / (LAM * float(change @ change)))
        assert_close(new.weights, old.weights + size * change, rtol=0, atol=1e-10)
        assert new.oracle_calls == old.oracle_calls + 2


@pytest.mark.parametrize("bounded", [False, True])
def test_optimum(bounded: bool) -> None:
    problem = bounded_problem() if bounded else small_problem()
    result = SMO(gap_tolerance=1e-10).solve(problem, lam=LAM, passes=300)
    assert -1e-12 <= result.row.gap <= 1e-9
    assert result.row.objective == pytest.approx(objective(problem, minimizer(bounded=bounded)), abs=1e-8)
    assert all(a <= b + 1e-13 for a, b in pairwise(result.history.column("dual")))


def test_dense_features_and_forbidden_transitions() -> None:
    dense = SMO(gap_tolerance=1e-5).solve(random_dense_problem(), lam=LAM, passes=300).row
    assert 0 <= dense.gap + 1e-12 <= 1e-5 * dense.objective + 1e-12
    ends = torch.zeros(3, dtype=torch.float64)
    mask = TransitionMask(torch.zeros(3, 3, dtype=torch.float64).fill_diagonal_(-torch.inf), ends, ends)
    problem = random_problem(mask=mask)
    result = SMO(gap_tolerance=1e-5).solve(problem, lam=LAM, passes=300)
    assert 0 <= result.row.gap + 1e-12 <= 1e-5 * result.row.objective + 1e-12
    inner = torch.ones(len(problem.labels), dtype=torch.bool).index_fill_(0, problem.sequences.offsets[:-1], False)
    assert not result.state.point.pairs[inner].diagonal(dim1=1, dim2=2).any()


class Pixels(ScoreModule):
    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> BinaryGraph:
        return BinaryGraph(
            torch.stack([-x, x], -1) * self.weights, torch.tensor([[0, 1]]), x.new_zeros(len(x), 1, 2, 2)
        )


def test_what_it_cannot_train_is_refused() -> None:
    with pytest.raises(ValueError, match="SMO needs a problem of hinges"):
        SOLVER.solve(crf(), lam=LAM)
    with pytest.raises(TypeError, match="start must be None, got Tensor: runs start from the labels"):
        SOLVER.solve(small_problem(), lam=LAM, start=small_problem().start())
    graphs = LinearModuleProblem(Pixels(), [(torch.ones(2, dtype=torch.float64), torch.tensor([0, 1]))])
    with pytest.raises(TypeError, match="SMO needs a SparseChainProblem or a DenseChainProblem, got LinearModule"):
        SOLVER.solve(graphs, lam=LAM)
