"""Scores of examples that are held out, and early stopping: training ends when they no longer rise."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from structsmooth.history import Row
from structsmooth.solvers import Progress, Stop


class Best(NamedTuple):
    """The weights with the best score so far, [dim], and the row of their pass."""

    score: float
    weights: Tensor
    row: Row


class ValidationScores:
    """A callback that adds ``validation_score`` to the history.

    Args:
        score: of weights; the more the better.
    """

    def __init__(self, score: Callable[[Tensor], float]) -> None:
        self._score = score

    def __call__(self, progress: Progress[Any]) -> None:
        """Add the score of the weights of a pass to its row."""
        progress.row.metrics["validation_score"] = self._score(progress.state.weights)


class Plateau:
    """A callback that ends a run when a pass lowers the objective by less than a part of it.

    Args:
        tolerance: the part.
    """

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance

    def __call__(self, progress: Progress[Any]) -> None:
        """Compare the objective with that of the pass before."""
        if len(progress.history) > 1:
            before, now = (row.objective for row in progress.history[-2:])
            if 0 <= before - now < self._tolerance * now:
                raise Stop


class EarlyStopping(ValidationScores):
    """Ends a run when the score has not risen for some passes.

    Args:
        score: of weights; the more the better.
        patience: how many passes, at least 1.
    """

    best: Best

    def __init__(self, score: Callable[[Tensor], float], patience: int) -> None:
        if patience < 1:
            raise ValueError(f"n_iter_no_change must be at least 1, got {patience}")
        super().__init__(score)
        self._patience = patience

    def __call__(self, progress: Progress[Any]) -> None:
        """Score the weights of a pass, and keep them if they are the best."""
        super().__call__(progress)
        row, weights = progress.row, progress.state.weights
        score = row.metrics["validation_score"]
        if not hasattr(self, "best") or score > self.best.score:
            self.best = Best(score, weights, row)
        elif row.passes - self.best.row.passes >= self._patience:
            raise Stop
