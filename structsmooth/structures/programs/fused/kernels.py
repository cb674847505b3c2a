"""Triton kernels for any program: an example is a program of the grid, which goes through the nodes level by level.

Nodes stand at their places (see :mod:`structsmooth.structures.programs.fused.tables`), and place 0 is the missing tail.
``rows`` [N + 2] are the edges into each place, ``left``, ``right`` and ``head`` [E] places, ``index`` [E] scores, P for
none; ``bounds`` [L + 1] the first places of levels. The reverse pass gathers over the edges out of each node, and
gradients over those that have a score: no additions are atomic, and results are deterministic.
"""

import triton
import triton.language as tl

from structsmooth.compiled.kernels import finite

SIZES = ["nodes", "scores", "levels", "k", "pairs", "depth", "longest", "draws"]


@triton.jit
def _edge_scores(theta, values, left, right, index, edges, real, scores):
    """Score of edges with the values of their tails; -inf where there is no edge."""
    i = tl.load(index + edges, mask=real, other=0)
    own = tl.load(theta + i, mask=real & (i < scores), other=0.0)
    first = tl.load(values + tl.load(left + edges, mask=real, other=0), mask=real, other=0.0)
    second = tl.load(values + tl.load(right + edges, mask=real, other=0), mask=real, other=0.0)
    return tl.where(real, own + first + second, float("-inf"))


@triton.jit(do_not_specialize=SIZES)
def log_sums(
    theta, roots, rows, left, right, index, bounds, values, log_z, nodes, scores, levels,
    NODES: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Log-sums of the derivations from each place [B, N + 1], and from the roots [B]."""
    b = tl.program_id(0).to(tl.int64)
    theta, values = theta + b * scores, values + b * (nodes + 1)
    tl.store(values, 0.0)
    for level in range(0, levels):
        tl.debug_barrier()  # the levels below are complete
        end = tl.load(bounds + level + 1)
        for first in range(tl.load(bounds + level), end, NODES):
            place = first + tl.arange(0, NODES)
            inside = place < end
            row = tl.load(rows + place, mask=inside, other=0)
            after = tl.load(rows + place + 1, mask=inside, other=0)
            largest = tl.zeros([NODES], theta.dtype.element_ty) + float("-inf")
            total = tl.zeros([NODES], theta.dtype.element_ty)
            for j in range(0, tl.max(after - row, 0), EDGES):
                edges = row[:, None] + (j + tl.arange(0, EDGES))[None, :]
                joint = _edge_scores(theta, values, left, right, index, edges, edges < after[:, None], scores)
                larger = tl.maximum(largest, tl.max(joint, 1))
                total = total * tl.exp(largest - finite(larger)) + tl.sum(tl.exp(joint - finite(larger)[:, None]), 1)
                largest = larger
            tl.store(values + place, finite(largest) + tl.log(total), mask=inside)
    tl.debug_barrier()
    tl.store(log_z + b, tl.load(values + tl.load(roots + b)))


@triton.jit
def _shares(theta, values, adjoint, left, right, index, head, edges, real, scores):
    """Probabilities of edges: those of their heads, ``adjoint``, times their shares of these."""
    joint = _edge_scores(theta, values, left, right, index, edges, real, scores)
    above = tl.load(head + edges, mask=real, other=0)
    weight = tl.load(adjoint + above, mask=real, other=0.0)
    return tl.where(weight != 0, weight, 0.0) * tl.exp(joint - finite(tl.load(values + above, mask=real, other=0.0)))


@triton.jit(do_not_specialize=SIZES)
def adjoints(
    theta, roots, left, right, index, head, bounds, out_rows, out_edges, values, weights, adjoint,
    nodes, scores, levels,
    NODES: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Probabilities of places [B, N + 1] times the weights [B], from :func:`log_sums`; 0 without outputs."""
    b = tl.program_id(0).to(tl.int64)
    theta, values, adjoint = theta + b * scores, values + b * (nodes + 1), adjoint + b * (nodes + 1)
    root = tl.load(roots + b)
    weight = tl.where(tl.load(values + root) > float("-inf"), tl.load(weights + b), 0.0)
    for below in range(0, levels):
        level = levels - 1 - below
        end = tl.load(bounds + level + 1)
        for first in range(tl.load(bounds + level), end, NODES):
            place = first + tl.arange(0, NODES)
            inside = place < end
            row = tl.load(out_rows + place, mask=inside, other=0)
            after = tl.load(out_rows + place + 1, mask=inside, other=0)
            total = tl.where(place == root, weight, 0.0)
            for j in range(0, tl.max(after - row, 0), EDGES):
                out = row[:, None] + (j + tl.arange(0, EDGES))[None, :]
                real = out < after[:, None]
                edges = tl.load(out_edges + out, mask=real, other=0)
                total += tl.sum(_shares(theta, values, adjoint, left, right, index, head, edges, real, scores), 1)
            tl.store(adjoint + place, total, mask=inside)
        tl.debug_barrier()  # the levels above are complete


@triton.jit(do_not_specialize=SIZES)
def parts(
    theta, left, right, index, head, score_rows, score_edges, values, adjoint, out, nodes, scores,
    NODES: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Probabilities [B, P] of the scores, times the weights, from :func:`adjoints`; a program for a tile of scores."""
    b = tl.program_id(0).to(tl.int64)
    theta, values, adjoint = theta + b * scores, values + b * (nodes + 1), adjoint + b * (nodes + 1)
    i = tl.program_id(1) * NODES + tl.arange(0, NODES)
    inside = i < scores
    row = tl.load(score_rows + i, mask=inside, other=0)
    after = tl.load(score_rows + i + 1, mask=inside, other=0)
    total = tl.zeros([NODES], theta.dtype.element_ty)
    for j in range(0, tl.max(after - row, 0), EDGES):
        use = row[:, None] + (j + tl.arange(0, EDGES))[None, :]
        real = use < after[:, None]
        edges = tl.load(score_edges + use, mask=real, other=0)
        total += tl.sum(_shares(theta, values, adjoint, left, right, index, head, edges, real, scores), 1)
    tl.store(out + b * scores + i, total, mask=inside)


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
                    own = j + tl.arange(0, EDGES)
                    edges = row[:, None] + own[None, :]
                    real = edges < after[:, None]
                    i = tl.load(index + edges, mask=real, other=0)
                    base = tl.load(theta + i, mask=real & (i < scores), other=0.0)
                    tail = tl.load(left + edges, mask=real, other=0)
                    other = tl.load(right + edges, mask=real, other=0)
                    for pair in range(0, pairs):
                        first, second = tl.load(firsts + pair), tl.load(seconds + pair)
                        score = base + tl.load(values + tail * k + first, mask=real, other=float("-inf"))
                        score += tl.load(values + other * k + second, mask=real, other=float("-inf"))
                        number = ((own * k + first) * k + second)[None, :]
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
    roots, rows, left, right, index, values, back, out, used, stack, nodes, scores, k, depth, longest,
):  # fmt: skip
    """Values [B, K] of the roots, and the scores [B, K, M] that their derivations use, P behind; one program for each.

    ``stack`` [B, K, 2, D + 1] is scratch.
    """
    b, rank = tl.program_id(0).to(tl.int64), tl.program_id(1)
    values, back = values + b * (nodes + 1) * k, back + b * (nodes + 1) * k
    used, stack = used + (b * k + rank) * longest, stack + (b * k + rank) * 2 * (depth + 1)
    ranks = stack + depth + 1
    root = tl.load(roots + b)
    value = tl.load(values + root * k + rank)
    tl.store(out + b * k + rank, value)
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
    b, draw = tl.program_id(0).to(tl.int64), tl.program_id(1)
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
        number, own = tl.load(uniform + visited), tl.load(values + place)
        visited += 1
        sums, chosen, last = own * 0, after + 0, row + 0
        for j in range(0, after - row, EDGES):
            edges = row + j + tl.arange(0, EDGES)
            real = edges < after
            shares = tl.exp(_edge_scores(theta, values, left, right, index, edges, real, scores) - own)
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
