"""Entity F1 on held-out sentences against CPU seconds of training: this library beside python-crfsuite.

All see the same attributes. Seconds are those of optimization alone: our passes without evaluation that the solver does
not use, and CRFsuite's train(), from scratch for each number of iterations. Encoding the attributes comes before, on
both sides. CRFsuite is optional: pip install 'structsmooth[benchmarks]'.
"""

from __future__ import annotations

import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from rich.console import Console

from scripts.harness import (
    TRAIN_AND_TEST,
    command,
    files,
    installed,
    option,
    picture,
    plain_ticks,
    print_table,
    reading,
)
from structsmooth import SGD, ProximalSDCA
from structsmooth.problems import FullPass, Problem
from structsmooth.solvers import Progress, Solver, Status
from structsmooth.solvers.checks import parse_lam
from structsmooth.tasks import NER, FittedTask
from structsmooth.text.corpus import Sentence
from structsmooth.text.scores import entity_scores
from structsmooth.text.templates import RICH, sentence_attributes

_SOLVERS: dict[str, Solver[Any]] = {"proximal-sdca": ProximalSDCA(gap_tolerance=0.0), "sgd": SGD(gap_tolerance=0.0)}
_PASSES_SHOWN = (1, 2, 5, 10, 20, 50, 100)
_CRFSUITE = ("lbfgs", "l2sgd", "pa")


class Point(NamedTuple):
    """A trained model: how, after how many passes or iterations and CPU seconds, and its F1."""

    trainer: str
    passes: int
    seconds: float
    f1: float


class Stopwatch:
    """CPU seconds since it was made, except those spent in :meth:`paused`."""

    def __init__(self) -> None:
        self._started = time.process_time()

    @property
    def seconds(self) -> float:
        """The time so far."""
        return time.process_time() - self._started

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the watch for a while."""
        started = time.process_time()
        yield
        self._started += time.process_time() - started


@command(
    *TRAIN_AND_TEST,
    option("--passes", 30, "passes of our solvers", least=1),
    option("--lam", NER.lam, "our λ, a number or c/n", metavar="C"),
    option("--bits", 18, "2**BITS buckets for our attributes, 0: exact"),
    option("--train-constrained", False, "the outputs of our training are the well-formed taggings"),
    option("--iterations", [5, 10, 20, 40], "of CRFsuite, each trained from scratch", least=1, metavar="N"),
    option("--plot", None, "draw F1 against CPU seconds", metavar="FILE"),
)
def main(options: Namespace) -> None:
    """Train with everything there is, print the table and draw the figure."""
    paths = files(options, NER)
    task = NER(bits=options.bits, train_constrained=options.train_constrained)
    console = Console(stderr=True, quiet=not sys.stderr.isatty())
    crfsuite = installed("pycrfsuite")
    with console.status("encoding") as status, reading():
        train, test = task.read(paths["train"], "train"), task.read(paths["test"], "test")
        points = list(_ours(task, train, test, options, status.update))
        if crfsuite is not None:
            points += _theirs(crfsuite, train, test, options, status.update)
    if crfsuite is None:
        print("python-crfsuite is not installed, so only our solvers run: pip install 'structsmooth[benchmarks]'\n")
    print(f"train: {paths['train']}, {len(train)} sentences; test: {paths['test']}, {len(test)} sentences\n")
    print_table(["trainer", "passes", "CPU seconds", "F1"], rows(points))
    if options.plot:
        _draw(points, options.plot)
        print(f"\nplot: {options.plot}")


def train_ours(
    task: FittedTask, problem: Problem, lam: float, passes: int, test: Sequence[Sentence]
) -> Iterator[Point]:
    """One point per pass of each solver."""
    for name, solver in _SOLVERS.items():
        solver.solve(problem.subset(torch.arange(min(problem.n, 2))), lam=lam, passes=1)  # compiles
        points: list[Point] = []
        watch = Stopwatch()

        def measure(progress: Progress[Any], name: str = name, watch: Stopwatch = watch) -> None:
            with watch.paused():
                outputs = [ranked[0][1] for ranked in task.predict(progress.state.weights, test)]
                f1 = task.measure(test, outputs)[0]["f1"]
            points.append(Point(name, int(progress.row.passes), watch.seconds, f1))  # noqa: B023 - called in this turn

        evaluate = problem.full_pass

        def unpaid(*args: Any, watch: Stopwatch = watch, **kwargs: Any) -> FullPass:
            with watch.paused():
                return evaluate(*args, **kwargs)  # noqa: B023 - called in this turn

        # A solver that steers by evaluations pays for them; one that does not, makes no other full passes.
        with patch.object(problem, "full_pass", evaluate if solver.counts_evaluations else unpaid):
            result = solver.solve(problem, lam=lam, passes=passes, callbacks=(measure,))
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        yield from points


def train_crfsuite(
    crfsuite: Any,
    algorithm: str,
    iterations: Sequence[int],
    train: Iterable[tuple[Any, list[str]]],
    test: Sequence[tuple[Any, list[str]]],
) -> Iterator[Point]:
    """One point per number of iterations, each trained from scratch with default regularization.

    Args:
        crfsuite: the module ``pycrfsuite``.
        algorithm: as CRFsuite names it.
        iterations: limits on its iterations; ``l2sgd`` and ``pa`` call a pass over the data one.
        train: item sequences with tags.
        test: likewise.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        for limit in iterations:
            trainer = crfsuite.Trainer(algorithm, {"max_iterations": limit}, verbose=False)
            for items, tags in train:
                trainer.append(items, tags)
            watch = Stopwatch()
            trainer.train(path)
            seconds = watch.seconds
            tagger = crfsuite.Tagger()
            tagger.open(path)
            f1 = entity_scores([tags for _, tags in test], [tagger.tag(items) for items, _ in test]).f1
            tagger.close()
            yield Point(f"crfsuite {algorithm}", limit, seconds, f1)


def rows(points: Sequence[Point]) -> Iterator[list[str]]:
    """All points of CRFsuite's, and some of ours with the last."""
    last = {point.trainer: point.passes for point in points}
    for point in points:
        if point.trainer not in _SOLVERS or point.passes in (*_PASSES_SHOWN, last[point.trainer]):
            yield [point.trainer, str(point.passes), f"{point.seconds:.2f}", f"{point.f1:.2%}"]


def _ours(
    task: NER, train: Sequence[Sentence], test: Sequence[Sentence], options: Namespace, report: Callable[[str], object]
) -> Iterator[Point]:
    fitted = task.fit(train)
    problem = fitted.problem(train)
    lam = parse_lam(options.lam, problem.n)
    report("training with our solvers")
    return train_ours(fitted, problem, lam, options.passes, test)


def _theirs(
    crfsuite: Any,
    train: Sequence[Sentence],
    test: Sequence[Sentence],
    options: Namespace,
    report: Callable[[str], object],
) -> Iterator[Point]:
    encoded = [[_encoded(crfsuite, sentence) for sentence in sentences] for sentences in (train, test)]
    for algorithm in _CRFSUITE:
        report(f"training with crfsuite {algorithm}")
        yield from train_crfsuite(crfsuite, algorithm, options.iterations, *encoded)


def _encoded(crfsuite: Any, sentence: Sentence) -> tuple[Any, list[str]]:
    if sentence.tags is None:
        raise ValueError("these sentences have no tags: training and evaluation need them in the last column")
    return crfsuite.ItemSequence(sentence_attributes(sentence, RICH)), sentence.tags


def _draw(points: Sequence[Point], path: str) -> None:
    with picture(path, (7, 4.5)) as (panel,):
        for name in dict.fromkeys(point.trainer for point in points):
            # Time zero has no place on a logarithmic axis.
            curve = [(p.seconds, p.f1) for p in points if p.trainer == name and p.passes > 0]
            panel.plot(*zip(*curve, strict=True), marker=".", label=name, linestyle="-" if name in _SOLVERS else "--")
        panel.set(xscale="log", xlabel="CPU seconds of training", ylabel="entity F1, held out")
        plain_ticks(panel.xaxis)


if __name__ == "__main__":
    raise SystemExit(main())
