"""Triton kernels for sums over any program: an example is a program of the grid, which takes the nodes level by level.

Nodes stand at their places (see :mod:`structsmooth.structures.programs.fused.tables`), and place 0 is the missing tail.
``rows`` [N + 2] are the edges into each place, ``left``, ``right`` and ``head`` [E] places, ``index`` [E] scores, P for
none; ``bounds`` [L + 1] the first places of levels. The reverse pass gathers over the edges out of each node, and
statistics over those that have a score: no additions are atomic, and results are deterministic.

With ``MAX``, sums are maxima and products sums: then reverse passes give max-marginals.
"""

import triton
import triton.language as tl

from structsmooth.compiled.triton_functions import example_and_part, finite

SIZES = ["nodes", "scores", "levels"]


@triton.jit
def _added(theta, values, left, right, index, edges, real, scores):
    """What edges have by themselves, plus what their tails have; 0 where there is no edge."""
    i = tl.load(index + edges, mask=real, other=0)
    score = tl.load(theta + i, mask=real & (i < scores), other=0.0)
    first = tl.load(values + tl.load(left + edges, mask=real, other=0), mask=real, other=0.0)
    second = tl.load(values + tl.load(right + edges, mask=real, other=0), mask=real, other=0.0)
    return score + first + second


@triton.jit
def edge_scores(theta, values, left, right, index, edges, real, scores):
    """Score of edges with the values of their tails; -inf where there is no edge."""
    return tl.where(real, _added(theta, values, left, right, index, edges, real, scores), float("-inf"))


@triton.jit(do_not_specialize=SIZES)
def sums(
    theta, roots, rows, left, right, index, bounds, values, at_root, nodes, scores, levels,
    NODES: tl.constexpr, EDGES: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """Log-sums, or maxima, of the derivations from each place [B, N + 1], and from the roots [B]."""
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
                joint = edge_scores(theta, values, left, right, index, edges, edges < after[:, None], scores)
                larger = tl.maximum(largest, tl.max(joint, 1))
                if not MAX:
                    total *= tl.exp(largest - finite(larger))
                    total += tl.sum(tl.exp(joint - finite(larger)[:, None]), 1)
                largest = larger
            tl.store(values + place, largest if MAX else finite(largest) + tl.log(total), mask=inside)
    tl.debug_barrier()
    tl.store(at_root + b, tl.load(values + tl.load(roots + b)))


@triton.jit
def _shares(theta, values, left, right, index, head, edges, real, scores):
    """The places of the heads of edges, and the shares of edges in the sums of their heads."""
    joint = edge_scores(theta, values, left, right, index, edges, real, scores)
    above = tl.load(head + edges, mask=real, other=0)
    return above, tl.exp(joint - finite(tl.load(values + above, mask=real, other=0.0)))


@triton.jit
def _probabilities(theta, values, adjoint, left, right, index, head, edges, real, scores):
    """Probabilities of edges: those of their heads, ``adjoint``, times their shares of these."""
    above, shares = _shares(theta, values, left, right, index, head, edges, real, scores)
    weight = tl.load(adjoint + above, mask=real, other=0.0)
    return tl.where(weight != 0, weight, 0.0) * shares


@triton.jit
def _best_around(theta, values, around, place, left, right, index, head, edges, real, scores):
    """Of derivations by the edges out of places, the best without the part below the places."""
    i = tl.load(index + edges, mask=real, other=0)
    best = tl.load(theta + i, mask=real & (i < scores), other=0.0)
    first = tl.load(left + edges, mask=real, other=0)
    other = tl.where(first == place[:, None], tl.load(right + edges, mask=real, other=0), first)
    best += tl.load(values + other, mask=real, other=0.0)
    return best + tl.load(around + tl.load(head + edges, mask=real, other=0), mask=real, other=float("-inf"))


@triton.jit
def _best_through(theta, values, around, left, right, index, head, edges, real, scores):
    """The best derivations that use each of the edges."""
    joint = edge_scores(theta, values, left, right, index, edges, real, scores)
    return joint + tl.load(around + tl.load(head + edges, mask=real, other=0), mask=real, other=float("-inf"))


@triton.jit(do_not_specialize=SIZES)
def adjoints(
    theta, roots, left, right, index, head, bounds, out_rows, out_edges, values, weights, adjoint,
    nodes, scores, levels,
    NODES: tl.constexpr, EDGES: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """Probabilities of places [B, N + 1] times the weights [B], from :func:`sums`; 0 without outputs.

    With ``MAX``, the best of what is around each place in a derivation, which has no weights.
    """
    b = tl.program_id(0).to(tl.int64)
    theta, values, adjoint = theta + b * scores, values + b * (nodes + 1), adjoint + b * (nodes + 1)
    root = tl.load(roots + b)
    at_root, elsewhere = tl.load(values + root) * 0, tl.load(values) * 0
    if MAX:
        at_root, elsewhere = elsewhere, elsewhere + float("-inf")
    else:
        at_root = tl.where(tl.load(values + root) > float("-inf"), tl.load(weights + b), 0.0)
    for below in range(0, levels):
        level = levels - 1 - below
        end = tl.load(bounds + level + 1)
        for first in range(tl.load(bounds + level), end, NODES):
            place = first + tl.arange(0, NODES)
            inside = place < end
            row = tl.load(out_rows + place, mask=inside, other=0)
            after = tl.load(out_rows + place + 1, mask=inside, other=0)
            total = tl.where(place == root, at_root, elsewhere)
            for j in range(0, tl.max(after - row, 0), EDGES):
                out = row[:, None] + (j + tl.arange(0, EDGES))[None, :]
                real = out < after[:, None]
                edges = tl.load(out_edges + out, mask=real, other=0)
                if MAX:
                    terms = _best_around(theta, values, adjoint, place, left, right, index, head, edges, real, scores)
                    total = tl.maximum(total, tl.max(terms, 1))
                else:
                    terms = _probabilities(theta, values, adjoint, left, right, index, head, edges, real, scores)
                    total += tl.sum(terms, 1)
            tl.store(adjoint + place, total, mask=inside)
        tl.debug_barrier()  # the levels above are complete


@triton.jit(do_not_specialize=SIZES)
def parts(
    theta, left, right, index, head, score_rows, score_edges, values, adjoint, out, nodes, scores,
    NODES: tl.constexpr, EDGES: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """Probabilities [B, P] of the scores, times the weights, from :func:`adjoints`; or their max-marginals.

    A program for a tile of scores.
    """
    b, tile = example_and_part(tl.cdiv(scores, NODES))
    theta, values, adjoint = theta + b * scores, values + b * (nodes + 1), adjoint + b * (nodes + 1)
    i = tile * NODES + tl.arange(0, NODES)
    inside = i < scores
    row = tl.load(score_rows + i, mask=inside, other=0)
    after = tl.load(score_rows + i + 1, mask=inside, other=0)
    total = tl.zeros([NODES], theta.dtype.element_ty)
    if MAX:
        total += float("-inf")
    for j in range(0, tl.max(after - row, 0), EDGES):
        use = row[:, None] + (j + tl.arange(0, EDGES))[None, :]
        real = use < after[:, None]
        edges = tl.load(score_edges + use, mask=real, other=0)
        if MAX:
            terms = _best_through(theta, values, adjoint, left, right, index, head, edges, real, scores)
            total = tl.maximum(total, tl.max(terms, 1))
        else:
            terms = _probabilities(theta, values, adjoint, left, right, index, head, edges, real, scores)
            total += tl.sum(terms, 1)
    tl.store(out + b * scores + i, total, mask=inside)


@triton.jit
def _turned(
    theta, direction, values, moved, adjoint, slope, left, right, index, head, edges, real, scores,
):  # fmt: skip
    """Probabilities of edges, and their derivatives in the direction."""
    above, shares = _shares(theta, values, left, right, index, head, edges, real, scores)
    change = _added(direction, moved, left, right, index, edges, real, scores)
    change -= tl.load(moved + above, mask=real, other=0.0)
    weight = shares * tl.load(adjoint + above, mask=real, other=0.0)
    return weight, shares * tl.load(slope + above, mask=real, other=0.0) + weight * change


@triton.jit(do_not_specialize=SIZES)
def tangents(
    theta, direction, roots, rows, left, right, index, head, bounds, out_rows, out_edges, values, weights,
    moved, adjoint, slope, at_root, nodes, scores, levels,
    NODES: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Derivatives in the direction [B, P] of :func:`sums`, ``moved`` [B, N + 1], and of :func:`adjoints`, ``slope``.

    A log-sum moves by the expected move of what it sums. ``at_root`` [B] are the moves of the log-partition function.
    """
    b = tl.program_id(0).to(tl.int64)
    theta, direction, values = theta + b * scores, direction + b * scores, values + b * (nodes + 1)
    moved, adjoint, slope = moved + b * (nodes + 1), adjoint + b * (nodes + 1), slope + b * (nodes + 1)
    tl.store(moved, 0.0)
    for level in range(0, levels):
        tl.debug_barrier()  # the levels below are complete
        end = tl.load(bounds + level + 1)
        for first in range(tl.load(bounds + level), end, NODES):
            place = first + tl.arange(0, NODES)
            inside = place < end
            row = tl.load(rows + place, mask=inside, other=0)
            after = tl.load(rows + place + 1, mask=inside, other=0)
            total = tl.zeros([NODES], theta.dtype.element_ty)
            for j in range(0, tl.max(after - row, 0), EDGES):
                edges = row[:, None] + (j + tl.arange(0, EDGES))[None, :]
                real = edges < after[:, None]
                _, shares = _shares(theta, values, left, right, index, head, edges, real, scores)
                total += tl.sum(shares * _added(direction, moved, left, right, index, edges, real, scores), 1)
            tl.store(moved + place, total, mask=inside)
    tl.debug_barrier()
    root = tl.load(roots + b)
    feasible = tl.load(values + root) > float("-inf")
    tl.store(at_root + b, tl.where(feasible, tl.load(moved + root), 0.0))
    weight = tl.where(feasible, tl.load(weights + b), 0.0)
    for below in range(0, levels):
        level = levels - 1 - below
        end = tl.load(bounds + level + 1)
        for first in range(tl.load(bounds + level), end, NODES):
            place = first + tl.arange(0, NODES)
            inside = place < end
            row = tl.load(out_rows + place, mask=inside, other=0)
            after = tl.load(out_rows + place + 1, mask=inside, other=0)
            total, turned = tl.where(place == root, weight, 0.0), tl.zeros([NODES], theta.dtype.element_ty)
            for j in range(0, tl.max(after - row, 0), EDGES):
                out = row[:, None] + (j + tl.arange(0, EDGES))[None, :]
                real = out < after[:, None]
                edges = tl.load(out_edges + out, mask=real, other=0)
                probability, turn = _turned(
                    theta, direction, values, moved, adjoint, slope, left, right, index, head, edges, real, scores
                )
                total += tl.sum(probability, 1)
                turned += tl.sum(turn, 1)
            tl.store(adjoint + place, total, mask=inside)
            tl.store(slope + place, turned, mask=inside)
        tl.debug_barrier()  # the levels above are complete


@triton.jit(do_not_specialize=SIZES)
def turned_parts(
    theta, direction, left, right, index, head, score_rows, score_edges, values, moved, adjoint, slope, out,
    nodes, scores,
    NODES: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Derivatives [B, P] in the direction of what :func:`parts` gives, from :func:`tangents`."""
    b, tile = example_and_part(tl.cdiv(scores, NODES))
    theta, direction, values = theta + b * scores, direction + b * scores, values + b * (nodes + 1)
    moved, adjoint, slope = moved + b * (nodes + 1), adjoint + b * (nodes + 1), slope + b * (nodes + 1)
    i = tile * NODES + tl.arange(0, NODES)
    inside = i < scores
    row = tl.load(score_rows + i, mask=inside, other=0)
    after = tl.load(score_rows + i + 1, mask=inside, other=0)
    total = tl.zeros([NODES], theta.dtype.element_ty)
    for j in range(0, tl.max(after - row, 0), EDGES):
        use = row[:, None] + (j + tl.arange(0, EDGES))[None, :]
        real = use < after[:, None]
        edges = tl.load(score_edges + use, mask=real, other=0)
        _, turn = _turned(
            theta, direction, values, moved, adjoint, slope, left, right, index, head, edges, real, scores
        )
        total += tl.sum(turn, 1)
    tl.store(out + b * scores + i, total, mask=inside)
