"""What Triton kernels share. They run on GPUs, and on the CPU in Triton's interpreter (TRITON_INTERPRET=1)."""

import triton
import triton.language as tl


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
