"""Solvers on object localization, class by class, each with as many oracle calls.

Scores of boxes are linear in their features, or a small network of them. Each class is a problem of its own. Every run
gets the same number of oracle calls for each training image, searches for step sizes included; measured are the weights
of the last pass within them. Each table has one measure, as median over seeds: the objective on training images,
metrics on test images, and seconds without evaluation. Runs are kept as they end: after a stop of any kind the same
command goes on.

Solvers are written as for structsmooth compare. Hyperparameters of the default lists are powers of ten, chosen by
the objective of one class, sheep, with one seed.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from scripts.shared.comparing import Measure, compare, comparison_options
from scripts.shared.harness import command, files
from structsmooth.cli.data import HeldOut
from structsmooth.cli.flags import add_flags, from_flags
from structsmooth.problems import Problem
from structsmooth.tasks import Localization

_SOLVERS = {
    "linear": [
        "incremental-prox-linear",
        "casimir-svrg:mu=1,k=10,learning_rate=0.001",
        "svrg:k=10,learning_rate=0.001",
        "sgd:learning_rate=0.001",
        "adam:learning_rate=0.0001",
        "proximal-bcfw",
        "bcfw",
        "frank-wolfe",
    ],
    "elu": [
        "incremental-prox-linear",
        "prox-linear:inner=casimir-svrg:schedule=constant:k=10",
        "prox-linear:inner=casimir-svrg:schedule=constant:k=10:mu=0.1,schedule=constant,lipschitz=100,learning_rate=10",
        "sgd:schedule=constant,learning_rate=0.01,average=false",
        "sgd:schedule=inverse-sqrt,learning_rate=0.01,average=false",
        "sgd:schedule=inverse,learning_rate=0.01,average=false",
        "adam:learning_rate=0.001",
    ],
}
_ANIMALS = ["cat", "cow", "dog", "horse", "sheep"]
_MEASURES = {"objective": "{:.4f}", "corloc": "{:.3f}", "ap": "{:.3f}", "seconds": "{:.0f}"}


def columns(options: Namespace) -> Iterator[tuple[str, Callable[[int], tuple[Problem, Measure]]]]:
    """The problem of each class, and metrics on its test images."""
    paths = files(options, Localization)
    for label in options.classes or _ANIMALS:
        task = replace(from_flags(Localization, options), classes=[label])
        train = task.read(paths["train"], "train")[: options.limit]
        fitted = task.fit(train)
        held_out, problem = HeldOut(fitted.read(paths["test"], "test")), fitted.problem(train)

        def measure(w: Tensor, fitted: Any = fitted, held_out: HeldOut = held_out) -> dict[str, float]:
            return held_out.measure(fitted, w)[0]

        yield f"{options.head}-{label}", partial(_same_for_all_seeds, problem, measure)


def _same_for_all_seeds(problem: Problem, measure: Measure, seed: int) -> tuple[Problem, Measure]:
    return problem, measure


@command(
    *comparison_options("training images of a class", "runs/compare-localization"),
    lambda parser: add_flags(parser, "options of localization", Localization),
    threads=None,
)
def main(options: Namespace) -> None:
    """Compare solvers on object localization."""
    title = f"{options.head}: {{}} after {options.calls} oracle calls an image, λ = {options.lam}"
    compare(options, partial(columns, options), _SOLVERS[options.head], _MEASURES, title)
