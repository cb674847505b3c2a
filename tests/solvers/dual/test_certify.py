"""Certificates of any weights: above the suboptimality, close to it, the same every time."""

from dataclasses import replace

import pytest
import torch
from small_problems import EnumeratedProblem, random_weights
from solver_cases import FEATURES, STATES, crf, small_problem

from structsmooth import (
    BCFW,
    SGD,
    SVRG,
    CasimirSVRG,
    Certificate,
    Cost,
    Hamming,
    LinearScore,
    ModuleProblem,
    NormalizedHamming,
    ProximalBCFW,
    SparseChainProblem,
    certify,
)
from structsmooth.problems import LinearProblem
from structsmooth.solvers.bcfw import steps
from structsmooth.solvers.bcfw.steps import epoch

every_lam = pytest.mark.parametrize("lam", [0.02, 0.2, 5.0])
every_cost = pytest.mark.parametrize("cost", [Hamming(), NormalizedHamming()], ids=str)


class PlainChain(SparseChainProblem):
    """With the passes of any linear problem."""

    block_gaps = LinearProblem.block_gaps
    dual_weights = LinearProblem.dual_weights
    label_statistics = LinearProblem.label_statistics


epoch.register(PlainChain, steps.plain)


def plain(problem: SparseChainProblem) -> PlainChain:
    sizes = (problem.features, problem.states)
    return PlainChain(problem.sequences, problem.labels, *sizes, problem.cost)


@every_lam
@every_cost
@pytest.mark.parametrize("seed", range(3))
def test_the_gap_is_above_the_suboptimality_and_close(seed: int, cost: Cost, lam: float) -> None:
    problem = small_problem(seed, cost)
    enumerated = EnumeratedProblem(problem)
    optimum = enumerated.optimum(lam)
    solvers = [CasimirSVRG(k=27), SVRG(k=27), SGD()]
    candidates = [solver.solve(problem, lam=lam, passes=5).weights for solver in solvers]
    for w in [*candidates, random_weights(problem, seed), problem.start()]:
        certificate = certify(problem, w, lam, accuracy=0.2, passes=3000)
        suboptimality = enumerated.objective(w.numpy(), lam) - optimum
        assert certificate.objective == pytest.approx(enumerated.objective(w.numpy(), lam), abs=1e-12)
        assert certificate.dual <= optimum + 1e-8
        assert certificate.suboptimality_lower_bound - 1e-8 <= suboptimality <= certificate.gap + 1e-8
        nearly_optimal = certificate.gap <= 1e-3 * certificate.objective
        assert nearly_optimal or certificate.reference_gap <= 0.2 * certificate.gap
        assert nearly_optimal or certificate.gap <= 1.25 * suboptimality + 1e-8


@pytest.mark.parametrize("passes", [0, 1, 3, 10])
def test_few_passes_give_a_bound_too(passes: int) -> None:
    problem, w = small_problem(), random_weights(small_problem())
    enumerated = EnumeratedProblem(problem)
    certificate = certify(problem, 0.1 * w, 0.2, accuracy=0.0, passes=passes, solver=BCFW(gap_tolerance=0))
    suboptimality = enumerated.objective(0.1 * w.numpy(), 0.2) - enumerated.optimum(0.2)
    assert certificate.passes == passes
    assert certificate.suboptimality_lower_bound - 1e-9 <= suboptimality <= certificate.gap + 1e-9
    assert certificate.dual == 0 if passes == 0 else certificate.dual > 0


def test_the_slack_is_the_gap_of_the_weights_of_the_dual() -> None:
    problem = small_problem()
    certificate = certify(problem, problem.start(), 0.2, passes=7, accuracy=0.0)
    own = certificate.state.weights
    objective = problem.loss(own) + 0.1 * float(own @ own)
    assert certificate.reference_gap == pytest.approx(objective - certificate.dual, abs=1e-12)
    assert certificate.suboptimality_lower_bound == pytest.approx(certificate.objective - objective, abs=1e-12)


@pytest.mark.parametrize(
    "solver",
    [BCFW(), BCFW(sampling="uniform"), BCFW(steps="away"), BCFW(average=True), ProximalBCFW(), ProximalBCFW(kappa=2.0)],
    ids=str,
)
def test_solvers_of_the_dual(solver: BCFW) -> None:
    problem, w = small_problem(), 0.1 * random_weights(small_problem())
    optimum = EnumeratedProblem(problem).optimum(0.2)
    certificate = certify(problem, w, 0.2, solver=solver)
    assert 0 < certificate.objective - optimum <= certificate.gap <= 1.2 * (certificate.objective - optimum)


def test_the_same_certificate_every_time_and_in_plain_torch() -> None:
    w = random_weights(small_problem())
    solver = BCFW(sampling="uniform")
    first, again = (certify(small_problem(), w, 0.2, seed=3, solver=solver) for _ in range(2))
    slow = certify(plain(small_problem()), w, 0.2, seed=3, solver=solver)
    assert torch.equal(first.state.point.statistics, again.state.point.statistics)
    assert replace(first, seconds=0, state=slow.state) == replace(again, seconds=0, state=slow.state)
    assert (slow.passes, slow.oracle_calls) == (first.passes, first.oracle_calls)
    assert slow.gap == pytest.approx(first.gap, rel=1e-9)


def test_a_dual_point_serves_other_weights_and_other_lambdas() -> None:
    problem, w = small_problem(), random_weights(small_problem())
    first = certify(problem, w, 0.2, accuracy=0.01, passes=500)
    other = certify(problem, 0.5 * w, 0.2, passes=0, start=first.state)
    assert other.dual == pytest.approx(first.dual, abs=1e-12)
    assert certify(problem, w, 0.25, passes=0, start=first.state).dual > 0.9 * first.dual


def test_oracle_calls_are_those_that_were_made() -> None:
    problem = small_problem()
    certificate = certify(problem, problem.start(), 0.2, accuracy=0.0, passes=4, solver=BCFW(gap_tolerance=0))
    assert certificate.oracle_calls == problem.oracle_calls == (1 + 4 + 1) * problem.n
    assert certificate.seconds > 0


def test_stopping_on_request_gives_a_certificate() -> None:
    problem = small_problem()
    enough = 3

    class Impatient(SparseChainProblem):
        """Interrupted in some pass."""

    @epoch.register
    def _(problem: Impatient, *arguments, **options):
        nonlocal enough
        enough -= 1
        if enough < 0:
            raise KeyboardInterrupt
        return epoch.dispatch(SparseChainProblem)(problem, *arguments, **options)

    impatient = Impatient(problem.sequences, problem.labels, FEATURES, STATES)
    certificate = certify(impatient, problem.start(), 0.2, accuracy=0.0)
    assert certificate.passes == 3
    assert 0 < certificate.dual <= EnumeratedProblem(problem).optimum(0.2)


def test_float32_weights_and_a_sentence() -> None:
    problem = small_problem()
    certificate = certify(problem, random_weights(problem).float(), 0.2)
    assert isinstance(certificate, Certificate)
    assert f"{certificate.passes} dual passes" in str(certificate)


def test_bad_input() -> None:
    problem = small_problem()
    w = problem.start()
    with pytest.raises(ValueError, match=r"weights must have shape \[dim\] = \(\d+,\), got \(3,\)"):
        certify(problem, w[:3], 0.2)
    with pytest.raises(TypeError, match=r"weights must be a torch.Tensor, got list"):
        certify(problem, w.tolist(), 0.2)
    with pytest.raises(ValueError, match="finite objective"):
        certify(problem, w + torch.inf, 0.2)
    with pytest.raises(ValueError, match="lam > 0"):
        certify(problem, w, 0)
    with pytest.raises(ValueError, match="accuracy must be at least 0"):
        certify(problem, w, 0.2, accuracy=-1)
    with pytest.raises(TypeError, match="passes must be an int"):
        certify(problem, w, 0.2, passes=1.5)
    with pytest.raises(TypeError, match="start must be a BCFWState"):
        certify(problem, w, 0.2, start=w)
    with pytest.raises(ValueError, match="problem of hinges"):
        certify(crf(), w, 0.2)
    module = ModuleProblem(LinearScore(2, 2), [(torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64))])
    with pytest.raises(TypeError, match="LinearProblem"):
        certify(module, module.start(), 0.2)
