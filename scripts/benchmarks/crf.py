"""The likelihood of a tagger: the regularized objective against CPU seconds, ours and CRFsuite's.

Both minimize the same function of the same attributes. CRFsuite writes it as Σ −log p + c2‖w‖², which is n times ours
for c2 = nλ/2, and needs weights for all pairs of attributes and tags, and of tags, to have the same minimum. Start and
stop scores are attributes of the first and the last token there. Seconds are those of optimization alone. The
python-crfsuite package comes with: pip install 'structsmooth[benchmarks]'.
"""

import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scripts.shared.harness import RequestError, command, cpu_clock, installed, option, print_table
from structsmooth import Entropy
from structsmooth.cli.comparison import effort, first_row
from structsmooth.history import Row
from structsmooth.problems import SparseChainProblem
from structsmooth.settings import parse_lam
from structsmooth.solvers import ExponentiatedGradient, History, ProximalSDCA, Solver
from structsmooth.tasks import NER

_ACCURACIES = (1e-2, 1e-3, 1e-4, 1e-5)
_START, _STOP = "start", "stop"
_OURS: dict[str, Solver[Any]] = {
    "ProximalSDCA": ProximalSDCA(gap_tolerance=1e-7),
    "ExponentiatedGradient": ExponentiatedGradient(gap_tolerance=1e-7),
}


@command(
    option("--train", None, "training data in CoNLL columns (default: embedded)", metavar="FILE"),
    option("--lam", "10/n", "λ, a number or c/n", metavar="C"),
    option("--passes", 25, "passes of our solvers"),
    option("--iterations", 300, "limit of CRFsuite's"),
    option("--bits", 18, "2**BITS buckets for attributes"),
)
def main(options: Namespace) -> None:
    """Train with our solvers and CRFsuite, and print what each accuracy took."""
    if (crfsuite := installed("pycrfsuite")) is None:
        raise RequestError("python-crfsuite is not installed: pip install 'structsmooth[benchmarks]'")
    problem = _likelihood(NER(bits=options.bits), options.train or NER.default_files()["train"])
    lam = parse_lam(options.lam, problem.n)
    curves = {name: ours(problem, lam, solver, options.passes) for name, solver in _OURS.items()}
    curves["CRFsuite"], weights = theirs(crfsuite, problem, lam, options.iterations)
    print(f"n = {problem.n:,}, {problem.dim:,} weights, λ = {lam:.3g}, c2 = {problem.n * lam / 2:.3g}")
    print(f"CRFsuite's last objective {curves['CRFsuite'][-1].objective:.9f}, of its weights by our oracle ", end="")
    print(f"{problem.loss(weights) + lam / 2 * float(weights @ weights):.9f}\n")
    print_table(["trainer", *(f"{accuracy:g}" for accuracy in _ACCURACIES)], rows(curves, problem.n))


def ours(problem: SparseChainProblem, lam: float, solver: Solver[Any], passes: int) -> History:
    """The history of one of our solvers, in CPU seconds."""
    solver.solve(problem.subset(torch.arange(min(problem.n, 2))), lam=lam, passes=1)  # compiles
    with cpu_clock():
        return solver.solve(problem, lam=lam, passes=passes).history


def theirs(crfsuite: Any, problem: SparseChainProblem, lam: float, iterations: int) -> tuple[History, Tensor]:
    """The losses of CRFsuite's L-BFGS, divided by n, with an iteration a pass; and its weights in our order, [dim]."""
    history = History()

    class Recorder(crfsuite.Trainer):  # type: ignore[misc]
        """Keeps the loss of every iteration."""

        def on_iteration(self, log: Any, info: dict[str, Any]) -> None:
            calls, seconds = info["num"] * problem.n, time.process_time() - started
            history.append(Row(info["num"], calls, seconds, info["loss"] / problem.n))

    possible = {"feature.possible_states": True, "feature.possible_transitions": True}
    limits = {"max_iterations": iterations, "epsilon": 1e-7, "delta": 1e-9}
    trainer = Recorder("lbfgs", {"c1": 0.0, "c2": problem.n * lam / 2, **possible, **limits})
    for items, tags in _encoded(problem):
        trainer.append(items, tags)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        started = time.process_time()
        with redirect_stdout(StringIO()):
            trainer.train(path)  # tells its hooks about iterations only while it prints them
        tagger = crfsuite.Tagger()
        tagger.open(path)
        learned = tagger.info()
        tagger.close()
    weights = torch.zeros(problem.features + problem.states + 2, problem.states, dtype=torch.float64)
    ends = {_START: -2, _STOP: -1}
    for (attribute, tag), weight in learned.state_features.items():
        weights[ends[attribute] if attribute in ends else int(attribute), int(tag)] = weight
    for (tag, following), weight in learned.transitions.items():
        weights[problem.features + int(tag), int(following)] = weight
    return history, weights.flatten()


def rows(curves: dict[str, History], n: int) -> Iterator[list[str]]:
    """Passes, or iterations, and CPU seconds until the objective is within a fraction of the least."""
    least = min(row.objective for history in curves.values() for row in history)
    for name, history in curves.items():
        first = [first_row(history, (1 + accuracy) * least, lambda row: row.objective) for accuracy in _ACCURACIES]
        yield [name, *(effort([row], n) for row in first)]


def _likelihood(task: NER, path: str) -> SparseChainProblem:
    examples = task.read(path, "train")
    hinges = task.fit(examples).problem(examples)
    assert isinstance(hinges, SparseChainProblem)
    return SparseChainProblem(hinges.sequences, hinges.labels, hinges.features, hinges.states, None, Entropy(1.0))


def _encoded(problem: SparseChainProblem) -> Iterator[tuple[list[list[str]], list[str]]]:
    """Attributes of the tokens of each sentence, and its tags, as text."""
    sequences, names = problem.sparse, [str(i) for i in range(problem.features)]
    attributes = sequences.attributes.tolist()
    tokens = [[names[i] for i in attributes[begin:end]] for begin, end in pairwise(sequences.token_offsets.tolist())]
    tags = [str(label) for label in problem.labels.tolist()]
    for begin, end in pairwise(sequences.offsets.tolist()):
        tokens[begin].append(_START)
        tokens[end - 1].append(_STOP)
        yield tokens[begin:end], tags[begin:end]
