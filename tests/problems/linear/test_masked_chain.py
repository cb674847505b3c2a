"""Chains whose labels may not follow each other freely: compiled passes against the plain ones and modules."""

from typing import Any

import pytest
import torch
from small_problems import collate, dense_examples, random_problem, random_weights
from torch import Tensor
from torch.testing import assert_close

from structsmooth import (
    BCFW,
    L2,
    SGD,
    CasimirSVRG,
    Entropy,
    LinearChain,
    LinearModuleProblem,
    LinearScore,
    Max,
    ProximalBCFW,
    WeightedHamming,
    certify,
)
from structsmooth.problems import DenseChainProblem, LinearProblem, Problem, SparseChainProblem
from structsmooth.scores import TransitionMask
from structsmooth.solvers import SVRG, ExcessiveGap, ExponentiatedGradient, ProximalSDCA, sdca, sgd, svrg
from structsmooth.solvers.baselines.exponentiated.steps import near_labels
from structsmooth.solvers.bcfw.active_set import DualIterate
from structsmooth.solvers.bcfw.steps import epoch
from structsmooth.solvers.sdca import SmoothedIterate
from structsmooth.text.schemes import transition_mask

EXACTLY, LAM, INF = {"rtol": 0.0, "atol": 1e-10}, 0.1, torch.inf
TAGS = ["O", "B-A", "I-A", "E-A", "S-A"]
# Label 3 may only begin a sequence, and 4 only end it: a column and a row of transitions are forbidden.
ENDS = torch.tensor([[0.0, 0.0, 0.0, -INF, 0.0]] * 4 + [[-INF] * 5])
MASKS = {
    "BIO": transition_mask(["O", "B-A", "I-A", "B-C", "I-C"], "BIO"),
    "BIOES": transition_mask(TAGS, "BIOES"),
    "ends": TransitionMask(ENDS, torch.zeros(5), torch.tensor([0.0, -INF, 0.0, 0.0, 0.0])),
}
COST = WeightedHamming((1.0, 2.1, 0.57, 1.3, 0.9))  # no two outputs have one score by chance
SMOOTHERS = [Max(), L2(0.7, 3), L2(5.0, 100), Entropy(0.5)]
every_mask = pytest.mark.parametrize("mask", MASKS)
every_smoother = pytest.mark.parametrize("smoother", SMOOTHERS, ids=str)


class Masked(LinearScore):
    """The scores of a sparse chain with its mask."""

    def __init__(self, problem: SparseChainProblem) -> None:
        super().__init__(problem.features, problem.states)
        assert problem.mask is not None
        self.mask = problem.mask

    def forward(self, x: Any) -> LinearChain:
        chain = super().forward(x)
        transition = chain.transition + self.mask.transition
        return LinearChain(chain.unary, transition, chain.lengths, start=self.mask.start, stop=self.mask.stop)


def problem_of(mask: str, **settings: Any) -> SparseChainProblem:
    return random_problem((3, 1, 4, 2, 3, 5), 5, cost=COST, seed=1, mask=MASKS[mask], **settings)


def module_of(problem: SparseChainProblem) -> LinearModuleProblem:
    return LinearModuleProblem(Masked(problem), dense_examples(problem), problem.cost, collate=collate)


def statistics_of(problem: LinearProblem, w: Tensor) -> Tensor:
    """Statistics between those of labels and of other outputs."""
    return torch.lerp(problem.label_statistics(), problem.best_statistics(w), 0.4)


@every_mask
@every_smoother
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_full_passes(mask: str, smoother: Any, scale: float) -> None:
    problem = problem_of(mask)
    module, w = module_of(problem), scale * random_weights(problem)
    full = problem.full_pass(w, smoother, with_loss=True)
    for reference in (Problem.full_pass(problem, w, smoother, with_loss=True), module.full_pass(w, smoother)):
        assert full.smoothed_loss == pytest.approx(reference.smoothed_loss, abs=1e-9)
        if scale > 0 or smoother == Entropy(0.5):  # else outputs tie
            assert_close(full.gradient, reference.gradient, rtol=0, atol=1e-9)
    expected = module.full_pass(w, smoother, with_loss=True)
    assert full.loss == pytest.approx(expected.loss, abs=1e-9)
    assert problem.loss(w, smoother) == pytest.approx(full.smoothed_loss, abs=1e-12)


@every_mask
@every_smoother
def test_stochastic_epochs_are_the_plain_ones(mask: str, smoother: Any) -> None:
    problem = problem_of(mask)
    order, w = torch.tensor([[3], [0], [5], [3], [1], [2]]), 0.5 * random_weights(problem)
    snapshot = problem.full_pass(w, smoother)
    settings = {"step_size": 0.05, "lam": LAM, "kappa": 0.2, "center": 0.1 * w}
    compiled, plain = (steps(problem, snapshot, order, **settings) for steps in both(svrg.epoch))
    for a, b in zip(compiled, plain, strict=True):
        assert_close(a, b, **EXACTLY)
    rates = torch.full((len(order),), 0.05, dtype=torch.float64)
    settings = {"step_sizes": rates, "lam": LAM, "smoother": smoother, "averaging_weights": rates}
    compiled, plain = (steps(problem, w, order, **settings) for steps in both(sgd.epoch))
    for a, b in zip(compiled, plain, strict=True):
        assert_close(a, b, **EXACTLY)


def both(steps: Any) -> tuple[Any, Any]:
    """The compiled loop and the plain one."""
    return steps, steps.dispatch(object)


class Plain:
    """The plain passes of a compiled problem."""

    def __init__(self, problem: SparseChainProblem) -> None:
        self.problem = problem

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **settings: getattr(LinearProblem, name)(self.problem, *arguments, **settings)


@every_mask
@every_smoother
def test_dual_epochs_are_the_plain_ones(mask: str, smoother: Any) -> None:
    problem, order = problem_of(mask), torch.tensor([3, 0, 5, 3, 1, 2])
    w = random_weights(problem)
    statistics = statistics_of(problem, w)
    v = problem.dual_weights(statistics, LAM)
    for name in ("expected_cost", "block_gaps", "block_margins"):
        arguments = (statistics,) if name == "expected_cost" else (w, statistics)
        own, plain = (torch.as_tensor(getattr(p, name)(*arguments)) for p in (problem, Plain(problem)))
        assert_close(own, plain, **EXACTLY)
    assert_close(v, Plain(problem).dual_weights(statistics, LAM), **EXACTLY)
    smoothed = SmoothedIterate(v, statistics, torch.zeros(problem.n, dtype=torch.float64))
    compiled, plain = (steps(problem, smoothed, order, lam=LAM, smoother=smoother) for steps in both(sdca.epoch))
    for name in vars(compiled):
        assert_close(getattr(compiled, name), getattr(plain, name), **EXACTLY)
    point = DualIterate(v, problem.packed(statistics), torch.ones(problem.n, dtype=torch.float64))
    own, _ = epoch(problem, point, order, lam=LAM)
    expected, _ = epoch.dispatch(object)(problem, point, order, lam=LAM)
    assert_close(own.weights, expected.weights, **EXACTLY)
    assert_close(problem.unpacked(own.statistics), problem.unpacked(expected.statistics), **EXACTLY)


@every_mask
def test_gibbs_distributions_are_the_plain_ones(mask: str) -> None:
    problem = problem_of(mask)
    found, expected = (steps(problem, 2.0) for steps in both(near_labels))
    for a, b in zip(found[1:], expected[1:], strict=True):  # log-potentials of what is forbidden differ
        assert_close(a, b, **EXACTLY)


@every_mask
@pytest.mark.parametrize(
    "solver",
    [
        BCFW(steps="fw", gap_tolerance=0),
        BCFW(steps="fw", cache=True, gap_tolerance=0),
        ProximalBCFW(steps="fw", gap_tolerance=0),
        CasimirSVRG(k=3),
        ProximalSDCA(k=3),
        CasimirSVRG(smoothing="entropy"),
        SVRG(),
        SGD(),
        ExponentiatedGradient(),
        ExcessiveGap(),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_solvers_do_what_they_do_with_the_module(mask: str, solver: Any) -> None:
    problem = problem_of(mask)
    results = [solver.solve(p, lam=LAM, passes=4) for p in (problem, module_of(problem))]
    for name in ("objective", "dual", "gap"):
        assert results[0].history.column(name) == pytest.approx(results[1].history.column(name), abs=1e-7)
    assert_close(results[0].weights, results[1].weights, rtol=0, atol=1e-6)


@every_mask
@pytest.mark.parametrize("solver", [BCFW, ProximalBCFW], ids=lambda solver: solver.__name__)
@pytest.mark.parametrize("threads", [1, 2])
def test_certified_optima(mask: str, solver: Any, threads: int) -> None:
    problem = problem_of(mask)
    result = solver(gap_tolerance=1e-3, threads=threads).solve(problem, lam=LAM, passes=1000)
    certificate = certify(module_of(problem), result.weights, LAM, passes=200)
    assert 0 <= certificate.gap <= 1.2e-3 * certificate.objective
    free = SparseChainProblem(problem.sequences, problem.labels, problem.features, problem.states, COST)
    assert problem.loss(result.weights) <= free.loss(result.weights) + 1e-12  # fewer outputs


def test_parts_and_other_features_keep_the_mask() -> None:
    problem, indices = problem_of("BIO"), torch.tensor([4, 2, 0])
    w = random_weights(problem)
    (part, own), dense = problem.restrict(indices, w), module_of(problem)
    expected = dense.subset(indices).loss(w)
    assert problem.subset(indices).loss(w) == pytest.approx(expected, abs=1e-12)
    assert part.loss(own) == pytest.approx(expected, abs=1e-12)
    x = torch.cat([x for x, _ in dense_examples(problem)])
    lengths, settings = problem.sequences.lengths, {"cost": COST, "mask": MASKS["BIO"]}
    of_features = DenseChainProblem(x, problem.labels, lengths, 5, **settings)
    assert of_features.subset(indices).loss(w) == pytest.approx(expected, abs=1e-12)


# Bad input.


def test_forbidden_labels_are_named() -> None:
    problem = problem_of("BIO")
    for example, labels in ((2, [0, 2, 0, 0]), (0, [2, 2, 2]), (3, [1, 4])):
        wrong = list(problem.labels.split(problem.sequences.lengths.tolist()))
        wrong[example] = torch.tensor(labels)
        with pytest.raises(ValueError, match=f"labels of example {example} of the problem are forbidden"):
            SparseChainProblem(problem.sequences, torch.cat(wrong), 5, 5, mask=MASKS["BIO"])
    with pytest.raises(ValueError, match="labels of example 0 of the problem are forbidden"):  # by their last label
        SparseChainProblem(problem.sequences, torch.zeros_like(problem.labels) + 1, 5, 5, mask=MASKS["ends"])


def test_refuses_other_masks() -> None:
    problem, (transition, start, stop) = problem_of("BIO"), MASKS["BIO"]
    wrong = {
        r"mask must have a tensor start of shape \(5,\), got shape \(4,\)": TransitionMask(transition, start[1:], stop),
        "mask must hold 0 for what is allowed and -inf for what is not, got others in stop": TransitionMask(
            transition, start, stop + 1
        ),
    }
    for message, mask in wrong.items():
        with pytest.raises(ValueError, match=message):
            SparseChainProblem(problem.sequences, problem.labels, 5, 5, mask=mask)
    with pytest.raises(
        ValueError, match=r"mask must have a tensor transition of shape .* got NoneType; see transition_mask"
    ):
        SparseChainProblem(problem.sequences, problem.labels, 5, 5, mask=transition)  # type: ignore[arg-type]
