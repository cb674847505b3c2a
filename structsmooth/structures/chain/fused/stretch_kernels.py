"""The Triton kernel of long chains: what leads from each state at the beginning of a stretch to each at its end."""

import triton
import triton.language as tl

from structsmooth.compiled.triton_functions import add_compensated, example_and_part, finite, length_of


@triton.jit(do_not_specialize=["steps", "states", "edge_batch", "edge_step"])
def transfers(
    unary, edges, lengths, scores, offsets, lost, steps, states, edge_batch, edge_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """Log-sums, or maxima with ``MAX``, over the paths from each first state to each last: a program for each first.

    Unary scores of these two do not count. Of the paths from a state, ``scores`` [N, S, S] are relative to the sum of
    ``offsets`` and ``lost`` [N, S]. One tile holds the transitions, which all positions share.
    """
    n, start = example_and_part(states)
    columns = tl.arange(0, COLUMNS)
    inside = columns < states
    both = inside[:, None] & inside[None, :]
    cells = edges + n * edge_batch + columns[:, None] * states + columns[None, :]
    edge = tl.load(cells, mask=both, other=float("-inf"))
    length, unary = length_of(lengths, n, steps), unary + n * steps * states
    message = tl.where(columns == start, 0.0, float("-inf")).to(edge.dtype)
    offset, rest = tl.max(tl.zeros([COLUMNS], edge.dtype), 0), tl.max(tl.zeros([COLUMNS], edge.dtype), 0)
    for t in range(1, length):
        shift = finite(tl.max(message, 0))
        offset, rest = add_compensated(offset, rest, shift)
        joint = (message - shift)[:, None] + edge
        largest = tl.max(joint, 0)
        message = largest if MAX else finite(largest) + tl.log(tl.sum(tl.exp(joint - finite(largest)[None, :]), 0))
        if t + 1 < length:
            message += tl.load(unary + t * states + columns, mask=inside, other=float("-inf"))
    tl.store(scores + (n * states + start) * states + columns, message, mask=inside)
    tl.store(offsets + n * states + start, offset)
    tl.store(lost + n * states + start, rest)
