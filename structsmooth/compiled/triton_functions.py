"""What Triton kernels share. They run on GPUs, and on the CPU in Triton's interpreter (TRITON_INTERPRET=1)."""

import triton
import triton.language as tl


@triton.jit
def example_and_part(parts):
    """The example of a program, int64, and which of so many parts of it: grids have one dimension."""
    i = tl.program_id(0)
    return (i // parts).to(tl.int64), i % parts


@triton.jit
def finite(scores):
    """Scores, with 0 in place of -inf."""
    return tl.where(scores > float("-inf"), scores, 0.0)


@triton.jit
def add_compensated(total, lost, term):
    """The sum of ``total`` and ``term``, and ``lost`` with what rounding took from it (Knuth's two-sum)."""
    raised = total + term
    part = raised - total
    return raised, lost + ((total - (raised - part)) + (term - part))


@triton.jit
def length_of(lengths, b, steps):
    """The length of a sequence, from 1 to ``steps`` whatever stands there: nothing beyond its row is read."""
    return tl.minimum(tl.maximum(tl.load(lengths + b), 1), steps).to(tl.int32)


@triton.jit
def first_reached(weights, uniform, places):
    """The first place at which cumulative weights exceed the fraction ``uniform`` of their sum; 0 if all are zero.

    Never a place of weight zero otherwise.
    """
    possible = weights > 0
    reached = possible & (tl.cumsum(weights, 0) > uniform * tl.sum(weights, 0))
    last = tl.max(tl.where(possible, places, 0), 0)
    first = tl.min(tl.where(reached, places, 2147483647), 0)
    return tl.minimum(first, last)


@triton.jit
def project(values, ranks, mu):
    """The smoothed maximum of values in descending order, -inf at the end, and the weights that attain it.

    Weights are the projection of values / μ onto the simplex, and what they attain is ⟨u, z⟩ − (μ/2)(‖u‖² − 1).
    """
    largest = tl.max(values, 0)
    possible = values > float("-inf")
    below = tl.where(possible, values - finite(largest), 0.0)
    # The support comes first: a value belongs to it if those before are not more than μ above it in all.
    support = possible & ((ranks + 1) * below > tl.cumsum(below, 0) - mu)
    size = tl.sum(support.to(below.dtype), 0)
    share = 1 / tl.where(size > 0, size, 1)
    mean = tl.sum(tl.where(support, below, 0.0), 0) * share
    deviations = tl.where(support, below - mean, 0.0)
    smoothed = largest + (mean + tl.sum(deviations * deviations, 0) / (2 * mu) + mu / 2 * (1 - share))
    return smoothed, tl.where(support, share + deviations / mu, 0.0)
