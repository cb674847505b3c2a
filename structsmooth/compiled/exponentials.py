"""Exponentials that become vector instructions, which ``np.exp`` does not in compiled loops."""

import numpy as np

from structsmooth.compiled.jit import compiled, inlined

LOG2 = 0.6931471805599453


@inlined
def power_of_two(k):
    """2^k for a whole number k <= 0, and 0 below the range of normal numbers."""
    # The bits of 2^k are k + 1023 in the place of the exponent; all zero, from k = -1023 on, they are 0.
    return np.int64((np.int64(np.int32(k if k > -1023.0 else -1023.0)) + 1023) << 52).view(np.float64)


@inlined
def exponential_near_zero(r):
    """exp(r) for abs(r) <= log(2) / 2."""
    # exp r = 1 + r (1 + r/2 (1 + r/3 ...)) up to r^12 / 12!: the next term is below 1.7e-16.
    series = 1.0 + r / 11.0 * (1.0 + r / 12.0)
    series = 1.0 + r / 9.0 * (1.0 + r / 10.0 * series)
    series = 1.0 + r / 7.0 * (1.0 + r / 8.0 * series)
    series = 1.0 + r / 5.0 * (1.0 + r / 6.0 * series)
    series = 1.0 + r / 3.0 * (1.0 + r / 4.0 * series)
    return 1.0 + r * (1.0 + r / 2.0 * series)


@compiled
def exponentiate_row(scores):
    """Replace scores <= 0 by their exponentials, and those below 2^-1022 by 0; scores above 0, by rounding, count as 0.

    Each is exact to a few units in the last place, and to the rounding of the score.
    """
    for j in range(scores.shape[0]):
        s = 0.0 if scores[j] > 0.0 else -1e3 if scores[j] < -1e3 else scores[j]  # finite; NaN stays
        k = np.rint(s * (1.0 / LOG2))
        scores[j] = exponential_near_zero(s - k * LOG2) * power_of_two(k)
