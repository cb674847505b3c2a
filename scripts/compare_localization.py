"""Solvers on object localization, class by class, each with as many oracle calls.

Scores of boxes are linear in their features, or a small network of them. Each class is a problem of its own. Every run
gets the same number of oracle calls for each training image, searches for step sizes included; measured are the weights
of the last pass within them. Each table has one measure, as median over seeds: the objective on training images,
metrics on test images, and seconds without evaluation. Runs are kept as they end: after a stop of any kind the same
command goes on.

Solvers are written as for structsmooth compare. Hyperparameters of the default lists are powers of ten, chosen by
the objective of one class, sheep, with one seed.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from itertools import product
from typing import Any

from torch import Tensor

from scripts.equal_calls import Reached, check_settings, comparison_options, going_on, kept_run, print_measures
from scripts.harness import command, files
from structsmooth.cli.flags import add_flags, from_flags, parse_solvers
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


def compare(options: Namespace) -> None:
    """Make the runs that are missing, and print the tables."""
    solvers = parse_solvers(options.solvers or _SOLVERS[options.head])
    paths = files(options, Localization)
    reached: Reached = {}
    check_settings(options)
    for label in options.classes or _ANIMALS:
        task = replace(from_flags(Localization, options), classes=[label])
        train = task.read(paths["train"], "train")[: options.limit]
        fitted = task.fit(train)
        test, problem = fitted.read(paths["test"], "test"), fitted.problem(train)

        def measure(w: Tensor, fitted: Any = fitted, test: Any = test) -> dict[str, float]:
            metrics: dict[str, float] = fitted.measure(test, [ranked[0][1] for ranked in fitted.predict(w, test)])[0]
            return metrics

        for seed, (name, solver) in product(options.seeds, solvers.items()):
            file = f"{options.head}-{label}-{name}"
            history = kept_run(file, solver, problem, seed, options, measure)
            reached.setdefault((name, label), []).append(history)
    title = f"{options.head}: {{}} after {options.calls} oracle calls an image, λ = {options.lam}"
    print_measures(reached, _MEASURES, title)


@command(
    *comparison_options("training images of a class", "runs/compare-localization"),
    lambda parser: add_flags(parser, "options of localization", Localization),
    threads=None,
)
def main(options: Namespace) -> None:
    """Compare solvers on object localization."""
    with going_on():
        compare(options)


if __name__ == "__main__":
    raise SystemExit(main())
