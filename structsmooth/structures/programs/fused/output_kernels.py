"""Triton kernels that find, count and score the outputs of any program.

Shapes are those of :mod:`structsmooth.structures.programs.fused.sum_kernels`. Outputs are lists of the scores that
they use, P where there is none: int64 [B, K, M].
"""

import triton
import triton.language as tl

from structsmooth.compiled.triton_functions import example_and_part, project
from structsmooth.structures.programs.fused.sum_kernels import edge_scores

SIZES = ["nodes", "scores", "levels", "k", "pairs", "depth", "longest", "draws"]


@triton.jit(do_not_specialize=SIZES)
def best(
    theta, rows, left, right, index, bounds, firsts, seconds, values, back, nodes, scores, levels, k, pairs,
    NODES: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """The K best values of each place [B, N + 1, K], and where they come from [B, N + 1, K].

    With ranks i and j of the tails, only pairs with (i + 1) (j + 1) <= K can count: ``firsts`` and ``seconds`` [pairs].
    In K rounds, the best candidate behind the last one is taken; ties go to the lowest (edge K + i) K + j.
    """
    b = tl.program_id(0).to(tl.int64)
    theta, values, back = theta + b * scores, values + b * (nodes + 1) * k, back + b * (nodes + 1) * k
    for rank in range(0, k):
        tl.store(values + rank, tl.where(tl.cast(rank, tl.int32) == 0, 0.0, float("-inf")))
    for level in range(0, levels):
        tl.debug_barrier()  # the levels below are complete
        end = tl.load(bounds + level + 1)
        for start in range(tl.load(bounds + level), end, NODES):
            place = start + tl.arange(0, NODES)
            inside = place < end
            row = tl.load(rows + place, mask=inside, other=0)
            after = tl.load(rows + place + 1, mask=inside, other=0)
            degree = tl.max(after - row, 0)
            last = tl.zeros([NODES], theta.dtype.element_ty) + float("inf")
            last_origin = tl.full([NODES], -1, tl.int32)
            for rank in range(0, k):
                found = tl.zeros([NODES], theta.dtype.element_ty) + float("-inf")
                origin = tl.full([NODES], 2147483647, tl.int32)
                for j in range(0, degree, EDGES):
                    position = j + tl.arange(0, EDGES)
                    edges = row[:, None] + position[None, :]
                    real = edges < after[:, None]
                    i = tl.load(index + edges, mask=real, other=0)
                    base = tl.load(theta + i, mask=real & (i < scores), other=0.0)
                    tail = tl.load(left + edges, mask=real, other=0)
                    other = tl.load(right + edges, mask=real, other=0)
                    for pair in range(0, pairs):
                        first, second = tl.load(firsts + pair), tl.load(seconds + pair)
                        score = base + tl.load(values + tail * k + first, mask=real, other=float("-inf"))
                        score += tl.load(values + other * k + second, mask=real, other=float("-inf"))
                        number = ((position * k + first) * k + second)[None, :]
                        behind = (score < last[:, None]) | ((score == last[:, None]) & (number > last_origin[:, None]))
                        score = tl.where(real & behind, score, float("-inf"))
                        top = tl.max(score, 1)
                        where = tl.where((score == top[:, None]) & real & behind, number, 2147483647)
                        lowest = tl.min(where, 1)
                        better = (top > found) | ((top == found) & (lowest < origin))
                        found, origin = tl.where(better, top, found), tl.where(better, lowest, origin)
                tl.store(values + place * k + rank, found, mask=inside)
                tl.store(back + place * k + rank, origin, mask=inside)
                last, last_origin = found, origin


@triton.jit(do_not_specialize=SIZES)
def follow(
    roots, rows, left, right, index, values, back, out, used, stack, mu, smoothed, weights,
    nodes, scores, k, depth, longest,
    RANKS: tl.constexpr,
):  # fmt: skip
    """Values [B, K] of the roots, and the scores [B, K, M] that their derivations use, P behind; one program for each.

    ``stack`` [B, K, 2, D + 1] is scratch. With ``RANKS``, also the smoothed maximum [B] of the values and its weights
    [B, K].
    """
    b, rank = example_and_part(k)
    values, back = values + b * (nodes + 1) * k, back + b * (nodes + 1) * k
    used, stack = used + (b * k + rank) * longest, stack + (b * k + rank) * 2 * (depth + 1)
    ranks = stack + depth + 1
    root = tl.load(roots + b)
    value = tl.load(values + root * k + rank)
    tl.store(out + b * k + rank, value)
    if RANKS > 0:  # noqa: SIM102 - known when the kernel is compiled, unlike the rank
        if rank == 0:
            places = tl.arange(0, RANKS)
            asked = places < k
            found = tl.load(values + root * k + places, mask=asked, other=float("-inf"))
            largest, shares = project(found, places, tl.load(mu))
            tl.store(smoothed + b, largest)
            tl.store(weights + b * k + places, shares, mask=asked)
    tl.store(stack, root)
    tl.store(ranks, rank)
    top = tl.where(value > float("-inf"), 1, 0)
    count = tl.where(value > float("-inf"), 0, 0)
    while top > 0:
        tl.debug_barrier()  # what was pushed is there
        top -= 1
        place = tl.load(stack + top)
        origin = tl.load(back + place * k + tl.load(ranks + top))
        tl.debug_barrier()  # and read, before something else takes its place
        edge = tl.load(rows + place) + origin // (k * k)
        i, first, second = tl.load(index + edge), tl.load(left + edge), tl.load(right + edge)
        tl.store(used + count, i, mask=i < scores)
        count += tl.where(i < scores, 1, 0)
        tl.store(stack + top, second, mask=second > 0)
        tl.store(ranks + top, origin % k, mask=second > 0)
        top += tl.where(second > 0, 1, 0)
        tl.store(stack + top, first, mask=first > 0)
        tl.store(ranks + top, origin // k % k, mask=first > 0)
        top += tl.where(first > 0, 1, 0)


@triton.jit(do_not_specialize=SIZES)
def draw(
    theta, roots, rows, left, right, index, values, uniform, used, stack, nodes, scores, draws, depth, longest,
    EDGES: tl.constexpr,
):  # fmt: skip
    """Scores [B, n, M] that samples use, at uniform numbers [B, n, D] for the nodes in the order of visits.

    ``used`` is P before, and -1 afterwards where there is no output; ``stack`` [B, n, D + 1] is scratch.
    """
    b, draw = example_and_part(draws)
    theta, values = theta + b * scores, values + b * (nodes + 1)
    used, uniform = used + (b * draws + draw) * longest, uniform + (b * draws + draw) * depth
    stack += (b * draws + draw) * (depth + 1)
    root = tl.load(roots + b)
    possible = tl.load(values + root) > float("-inf")
    tl.store(stack, root)
    top, count, visited = tl.where(possible, 1, 0), tl.where(possible, 0, 0), tl.where(possible, 0, 0)
    if not possible:
        for m in range(0, longest):
            tl.store(used + m, -1)
    while top > 0:
        tl.debug_barrier()  # what was pushed is there
        top -= 1
        place = tl.load(stack + top)
        tl.debug_barrier()  # and read, before something else takes its place
        row, after = tl.load(rows + place), tl.load(rows + place + 1)
        number, log_sum = tl.load(uniform + visited), tl.load(values + place)
        visited += 1
        sums, chosen, last = log_sum * 0, after + 0, row + 0
        for j in range(0, after - row, EDGES):
            edges = row + j + tl.arange(0, EDGES)
            real = edges < after
            shares = tl.exp(edge_scores(theta, values, left, right, index, edges, real, scores) - log_sum)
            reached = (shares > 0) & (sums + tl.cumsum(shares, 0) > number)
            chosen = tl.minimum(chosen, tl.min(tl.where(reached, edges, after), 0))
            last = tl.maximum(last, tl.max(tl.where(shares > 0, edges, row), 0))
            sums += tl.sum(shares, 0)
        edge = tl.minimum(chosen, last)
        i, first, second = tl.load(index + edge), tl.load(left + edge), tl.load(right + edge)
        tl.store(used + count, i, mask=i < scores)
        count += tl.where(i < scores, 1, 0)
        tl.store(stack + top, second, mask=second > 0)
        top += tl.where(second > 0, 1, 0)
        tl.store(stack + top, first, mask=first > 0)
        top += tl.where(first > 0, 1, 0)


@triton.jit(do_not_specialize=SIZES)
def weighted_uses(weights, used, out, scores, k, longest, PLACES: tl.constexpr):
    """Adds to ``out`` [B, P] how often outputs use each score, times the weights [B, K] of outputs.

    Outputs come one after the other, and all numbers that one of them adds are equal: so additions may be atomic, and
    the sums are the same in any order.
    """
    b = tl.program_id(0).to(tl.int64)
    weights, used, out = weights + b * k, used + b * k * longest, out + b * scores
    for rank in range(0, k):
        tl.debug_barrier()  # the outputs before have been added
        weight = tl.load(weights + rank)
        for first in range(0, longest, PLACES):
            place = first + tl.arange(0, PLACES)
            i = tl.load(used + rank * longest + place, mask=place < longest, other=-1)
            tl.atomic_add(out + i, tl.where(i >= 0, weight, 0.0), mask=(i >= 0) & (i < scores))


@triton.jit(do_not_specialize=SIZES)
def scores_of_outputs(theta, used, out, scores, k, longest, PLACES: tl.constexpr):
    """Scores [B, K] of outputs, a program for each."""
    b, rank = example_and_part(k)
    theta, used = theta + b * scores, used + (b * k + rank) * longest
    total = tl.zeros([PLACES], theta.dtype.element_ty)
    for first in range(0, longest, PLACES):
        place = first + tl.arange(0, PLACES)
        i = tl.load(used + place, mask=place < longest, other=-1)
        total += tl.load(theta + i, mask=(i >= 0) & (i < scores), other=0.0)
    tl.store(out + b * k + rank, tl.sum(total, 0))
