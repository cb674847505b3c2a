"""Entity F1 on held-out sentences against CPU seconds of training: this library beside python-crfsuite.

All see the same attributes. Seconds are those of optimization alone: our passes without evaluation that the solver does
not use, and CRFsuite's train(), from scratch for each number of iterations. Encoding the attributes comes before, on
both sides. CRFsuite is optional: pip install 'structsmooth[benchmarks]'.
"""

from __future__ import annotations

import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from rich.console import Console

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Train with everything there is, print the table and draw the figure."""
    torch.set_num_threads(1)
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.passes < 1 or min(options.iterations) < 1:
        parser.error("--passes and --iterations must be at least 1")
    if (options.train is None) != (options.test is None):
        parser.error("give --train and --test both, or neither for the embedded data")
    files = NER.default_files() if options.train is None else {"train": options.train, "test": options.test}
    task = NER(bits=options.bits, train_constrained=options.train_constrained)
    console = Console(stderr=True, quiet=not sys.stderr.isatty())
    points: list[Point] = []
    with console.status("encoding") as status:
        try:
            train, test = task.read(files["train"], "train"), task.read(files["test"], "test")
            points += _ours(task, train, test, options, status.update)
            crfsuite = _crfsuite()
            points += [] if crfsuite is None else _theirs(crfsuite, train, test, options, status.update)
        except (ValueError, OSError) as error:
            parser.error(str(error))
    if crfsuite is None:
        print("python-crfsuite is not installed, so only our solvers run: pip install 'structsmooth[benchmarks]'\n")
    print(f"train: {files['train']}, {len(train)} sentences; test: {files['test']}, {len(test)} sentences\n")
    print(table(points))
    if options.plot:
        _draw(points, options.plot)
        print(f"\nplot: {options.plot}")
    return 0


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
        control = solver.step_control(problem, lam)
        paid = control is not None and control.patience is not None
        with patch.object(problem, "full_pass", evaluate if paid else unpaid):
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


def table(points: Iterable[Point]) -> str:
    """The points as Markdown: all of CRFsuite's, and some of ours with the last."""
    points = list(points)
    last = {point.trainer: point.passes for point in points}
    lines = ["| trainer | passes | CPU seconds | F1 |", "| --- | ---: | ---: | ---: |"]
    for point in points:
        shown = point.trainer not in _SOLVERS or point.passes in (*_PASSES_SHOWN, last[point.trainer])
        if shown:
            lines.append(f"| {point.trainer} | {point.passes} | {point.seconds:.2f} | {point.f1:.2%} |")
    return "\n".join(lines)


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


def _crfsuite() -> Any:
    """The module ``pycrfsuite``, ``None`` if it is not installed."""
    try:
        return import_module("pycrfsuite")
    except ImportError:
        return None


def _draw(points: Sequence[Point], path: str) -> None:
    from matplotlib.figure import Figure  # slow to load, and not needed without a figure
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    panel: Any = figure.subplots()
    for trainer in dict.fromkeys(point.trainer for point in points):
        # Time zero has no place on a logarithmic axis.
        curve = [(p.seconds, p.f1) for p in points if p.trainer == trainer and p.passes > 0]
        panel.plot(*zip(*curve, strict=True), marker=".", label=trainer, linestyle="-" if trainer in _SOLVERS else "--")
    panel.set(xscale="log", xlabel="CPU seconds of training", ylabel="entity F1, held out")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()
    panel.grid(alpha=0.3)
    panel.legend()
    figure.savefig(path, dpi=120)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--train", metavar="FILE", help="training data in CoNLL columns (default: embedded)")
    parser.add_argument("--test", metavar="FILE", help="held-out data in the same columns (default: embedded)")
    parser.add_argument("--passes", type=int, default=30, help="passes of our solvers (default: 30)")
    parser.add_argument("--lam", default=NER.lam, metavar="C", help="our λ, a number or c/n (default: %(default)s)")
    parser.add_argument(
        "--bits", type=int, default=18, help="2**BITS buckets for our attributes, 0: exact (default: 18)"
    )
    parser.add_argument(
        "--train-constrained", action="store_true", help="the outputs of our training are the well-formed taggings"
    )
    parser.add_argument(
        "--iterations",
        type=int,
        nargs="+",
        default=[5, 10, 20, 40],
        metavar="N",
        help="of CRFsuite, each trained from scratch (default: 5 10 20 40)",
    )
    parser.add_argument("--plot", metavar="FILE", help="draw F1 against CPU seconds")
    return parser


if __name__ == "__main__":
    sys.exit(main())
