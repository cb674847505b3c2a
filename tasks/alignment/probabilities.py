"""Probabilities of links under the distribution of all matchings, in which words may stay without a link."""

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]

# Words of the shorter sentence up to which sums are exact; they take 2 to the power of this many numbers a word.
MOST_EXACT = 10
_ROUNDS, _TOLERANCE = 10_000, 1e-10  # of logarithms


def link_probabilities(scores: Table) -> Table:
    """The probability of each link: [N, M], float64.

    A matching y has probability proportional to the exponential of the sum of the scores of its links. Sums are exact
    where the shorter sentence has at most ``MOST_EXACT`` words. They are #P-complete (a permanent), and those of longer
    sentences are of belief propagation, which converges to its only fixed point, in 10,000 rounds at most.

    Args:
        scores: of links, relative to no link, of each source and target word: [N, M].

    Reference:
        Ryser (1963) for sums over sets of columns; Bayati, Gamarnik, Katz, Nair and Tetali (2007), "Simple
        Deterministic Approximation Algorithms for Counting Matchings".

    Example:
        >>> link_probabilities(np.zeros((1, 3)))  # one of three links, or none
        array([[0.25, 0.25, 0.25]])
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.shape[0] < scores.shape[1]:
        return link_probabilities(scores.T).T
    return _exact(scores) if scores.shape[1] <= MOST_EXACT else _propagated(scores)


def _exact(scores: Table) -> Table:
    """Sums over the sets of columns that the rows before and after each row take; all in logarithms."""
    rows, columns = scores.shape
    # By the number whose bits are the set: what is before takes exactly it, what comes after keeps clear of it.
    before, after = np.full((rows + 1, 1 << columns), -np.inf), np.zeros((rows + 1, 1 << columns))
    before[0, 0] = 0.0
    for i in range(rows):
        before[i + 1] = before[i]
        for j in range(columns):
            _add(_halves(before[i + 1], j)[:, 1], scores[i, j] + _halves(before[i], j)[:, 0])
    for i in reversed(range(rows)):
        after[i] = after[i + 1]
        for j in range(columns):
            _add(_halves(after[i], j)[:, 0], scores[i, j] + _halves(after[i + 1], j)[:, 1])
    found = np.zeros_like(scores)
    for i, j in np.ndindex(rows, columns):
        sets = _halves(before[i], j)[:, 0] + _halves(after[i + 1], j)[:, 1]
        found[i, j] = np.exp(scores[i, j] + np.logaddexp.reduce(sets, axis=None) - after[0, 0])
    return found


def _add(sums: Table, others: Table) -> None:
    """Logarithms of sums, in place."""
    np.logaddexp(sums, others, out=sums)


def _halves(sums: Table, column: int) -> Table:
    """A view [sets of later columns, without or with the column, sets of earlier ones] of sums by sets."""
    return sums.reshape(-1, 2, 1 << column)


def _propagated(scores: Table) -> Table:
    """Belief propagation: each word tells the others, for each link, the odds that it has no link but this."""
    to_columns, to_rows = np.zeros_like(scores), np.zeros_like(scores)  # logarithms
    for _ in range(_ROUNDS):
        last, to_columns = to_columns, -_others(scores + to_rows)
        to_rows = -_others((scores + to_columns).T).T
        if np.abs(to_columns - last).max() < _TOLERANCE:
            break
    return np.asarray(np.exp(-np.logaddexp(0.0, -(scores + to_columns + to_rows))))


def _others(logs: Table) -> Table:
    """log(1 + Σ exp) over the other entries of each row: those before, and those behind."""
    ends = np.zeros((len(logs), 1))
    before = np.logaddexp.accumulate(np.hstack([ends, logs[:, :-1]]), axis=1)
    behind = np.logaddexp.accumulate(np.hstack([ends - np.inf, logs[:, :0:-1]]), axis=1)[:, ::-1]
    return np.asarray(np.logaddexp(before, behind))
