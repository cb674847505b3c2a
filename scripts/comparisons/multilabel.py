"""Multi-label classifiers side by side: labels with all pairs, with a tree of pairs, alone, and logistic regressions.

The data are archives with the parts train and test, as for ``structsmooth train multilabel``. The λ of each model is
chosen on the last quarter of the training examples, in random order, by ``--by``. Then the model is trained on all of
them, and measured on the test examples. CPU seconds are those of that training, and those of all this for one model.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from scripts.shared.harness import command, option, print_table
from structsmooth import SoftBCFW
from structsmooth.models.label_sets import LabelPairs
from structsmooth.tasks import Multilabel
from structsmooth.tasks.multilabel import FittedMultilabel
from structsmooth.tasks.multilabel.data import Example

_METRICS = {"hamming": min, "example_f1": max, "subset_accuracy": max, "micro_f1": max, "macro_f1": max}
# From training examples and λn to a fitted task and weights.
Training = Callable[[Sequence[Example], float], tuple[FittedMultilabel, Tensor]]


def structured(
    train: Sequence[Example], strength: float, pairs: LabelPairs, passes: int
) -> tuple[FittedMultilabel, Tensor]:
    """Hinges over the local polytope, with some pairs of labels."""
    fitted = Multilabel(pairs=pairs).fit(train)
    problem = fitted.problem(train)
    return fitted, SoftBCFW().solve(problem, lam=strength / problem.n, passes=passes).weights


def logistic(train: Sequence[Example], strength: float) -> tuple[FittedMultilabel, Tensor]:
    """A logistic regression for each label, with the same features, bias and regularizer."""
    fitted = Multilabel(pairs="none").fit(train)
    problem = fitted.problem(train)
    x, y = problem.feature_map.features, problem.graphs.labels.view(problem.n, -1).double()
    weights = torch.zeros(y.shape[1], x.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=300, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        losses = binary_cross_entropy_with_logits(x @ weights.T, y, reduction="sum")
        total = (losses + strength / 2 * weights.square().sum()) / len(x)
        total.backward()
        return total

    optimizer.step(loss)
    return fitted, torch.cat([weights.detach().flatten(), problem.start()[weights.numel() :]])


def measured(
    training: Training, train: Sequence[Example], strength: float, held_out: Sequence[Example]
) -> tuple[dict[str, float], float]:
    """Metrics on held-out examples, and CPU seconds of training."""
    started = time.process_time()
    fitted, weights = training(train, strength)
    seconds = time.process_time() - started
    outputs = [ranked[0][1] for ranked in fitted.predict(weights, held_out)]
    return fitted.measure(held_out, outputs)[0], seconds


def chosen(training: Training, train: Sequence[Example], strengths: Sequence[float], by: str) -> float:
    """The best λn, trained on three quarters and measured on the last."""
    order = np.random.default_rng(0).permutation(len(train)).tolist()
    first, last = ([train[i] for i in part] for part in (order[: -len(train) // 4], order[-len(train) // 4 :]))
    found = {strength: measured(training, first, strength, last)[0][by] for strength in strengths}
    return _METRICS[by](found, key=lambda strength: found[strength])


@command(
    option("data", None, "npz archives", nargs="+", metavar="FILE"),
    option("--by", "hamming", "metric that chooses λ", choices=_METRICS),
    option("--models", ["full", "tree", "none", "logistic"], metavar="MODEL"),
    option("--strengths", [0.1, 0.3, 1.0, 3.0, 10.0], metavar="LAMBDA_N"),
    option("--passes", 50, "of training with hinges"),
)
def main(options: Namespace) -> None:
    """Print a table for each archive."""
    for path in options.data:
        train, test = (Multilabel().read(f"{path}#{part}") for part in ("train", "test"))
        print(f"\n{path}: n = {len(train)}, {len(test)} test examples\n")
        columns = ["model", "λn", *_METRICS, "training", "all, CPU s"]
        print_table(columns, (cells(model, train, test, options) for model in options.models), len(columns))


def cells(model: Any, train: Sequence[Example], test: Sequence[Example], options: Namespace) -> list[str]:
    """The row of a model."""
    training = logistic if model == "logistic" else partial(structured, pairs=model, passes=options.passes)
    started = time.process_time()
    strength = chosen(training, train, options.strengths, options.by)
    metrics, seconds = measured(training, train, strength, test)
    total = time.process_time() - started
    numbers = (f"{metrics[name]:.4f}" for name in _METRICS)
    return [model, f"{strength:g}", *numbers, f"{seconds:.1f}", f"{total:.1f}"]
