"""What tasks on sequences show of a linear chain, and write beside its predictions."""

from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np
from torch import Tensor

from structsmooth.markup import Matrix


def transition_matrix(weights: Tensor, names: Sequence[str], transition_scale: float, what: str) -> Matrix:
    """Learned scores of pairs of labels, of first labels and of last ones, for the weights of a chain.

    Args:
        weights: (F + S + 2)·S.
        names: of the S labels.
        transition_scale: that of the problem.
        what: a label is called, such as "tag".
    """
    _, transition, ends = weights.detach().view(-1, len(names)).tensor_split([-len(names) - 2, -2])
    values = np.full((len(names) + 1, len(names) + 1), np.nan)
    values[1:, :-1] = transition_scale * transition
    values[0, :-1], values[1:, -1] = ends
    rows, columns = ["start", *names], [*names, "end"]
    return Matrix(f"Scores of pairs of {what}s", rows, columns, values, what, f"next {what}")


def write_scores(ranked: Sequence[tuple[float, Any]], stream: TextIO) -> None:
    """A comment line with the scores of alternatives; nothing where there is only one."""
    if len(ranked) > 1:
        stream.write("# scores " + " ".join(f"{score:.6g}" for score, _ in ranked) + "\n")
