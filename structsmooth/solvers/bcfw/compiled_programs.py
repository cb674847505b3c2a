"""Steps of block-coordinate Frank-Wolfe over the derivations of programs.

Examples, outputs and workspaces are those of :mod:`structsmooth.problems.linear.programs.compiled`.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point
from structsmooth.compiled.sampling import draw, set_weight, sum_tree
from structsmooth.problems.linear.programs.compiled import (
    add_output,
    augmented,
    best,
    mean_score,
    output_score,
    touch,
    workspace,
)
from structsmooth.problems.linear.programs.compiled_features import add_features, clear, squared_norm
from structsmooth.solvers.bcfw.active_set import CLEARLY_MORE
from structsmooth.solvers.bcfw.compiled_active_set import (
    AWAY,
    BEST,
    FW,
    NO_ATOM,
    PAIRWISE,
    choice,
    remember,
    rise_of_dual,
    slots_of,
)


@compiled
def _held_scores(scores, held, alpha, stamps, found):
    """Scores of the outputs that are held; returns the best of the cache, or none."""
    hit = NO_ATOM
    for c in range(held.shape[0]):
        if alpha[c] > 0.0 or stamps[c] > 0:
            found[c] = output_score(held[c], held.shape[1], scores)
            if stamps[c] > 0 and (hit == NO_ATOM or found[c] > found[hit]):
                hit = c
    return hit


@compiled
def _set_direction(y, length, count, statistics, held, alpha, away, weight, towards, direction):
    """direction = s - m, s - a or m - a, with the output s, the statistics m and the atom a of a number and weight."""
    # How often m is in it: s - m has it with -1, s - a not at all, m - a with 1.
    factor = 1.0 if not towards else 0.0 if away != NO_ATOM else -1.0
    for p in range(count):
        direction[p] = factor * statistics[p]
    if towards:
        add_output(y, length, 1.0, direction)
    if 0 <= away < alpha.shape[0]:
        add_output(held[away], length, -1.0, direction)
    # a = (m - Σ_c α_c s_c) / weight, for the outputs s_c that slots hold.
    elif away != NO_ATOM:  # what no slot holds
        for p in range(count):
            direction[p] -= statistics[p] / weight
        for c in range(alpha.shape[0]):
            if alpha[c] > 0.0:
                add_output(held[c], length, alpha[c] / weight, direction)


@entry_point
def frank_wolfe_epoch(order, draws, data, weights, total, statistics, gaps, lam, remaining, sets, steps, cache):
    """Block-coordinate Frank-Wolfe steps (Osokin et al. 2016, Algorithms 1 to 5), in place; returns the oracle calls.

    Arguments are those of :func:`structsmooth.solvers.bcfw.compiled_chain.frank_wolfe_epoch`.
    """
    (kind, least), (caching, factor, least_gap) = steps, cache
    features, offsets, output_offsets = data.features, data.examples.offsets, data.examples.output_offsets
    work = workspace(data)
    sums, found = np.zeros(weights.shape[0]), np.zeros(sets[1].shape[1])
    scores, direction, touched, columns, y = work.scores, work.direction, work.touched, work.columns, work.y
    by_gap, averaged = draws.shape[0] > 0, remaining.shape[0] > 0
    tree, calls = sum_tree(gaps[order] if by_gap else gaps[:0]), 0
    for step in range(draws.shape[0] if by_gap else order.shape[0]):
        chosen = draw(tree, order.shape[0], draws[step]) if by_gap else step
        i = order[chosen]
        begin, first, example_weight = offsets[i], output_offsets[i], data.example_weights[i]
        length = output_offsets[i + 1] - first
        held, alpha, stamps = slots_of(i, first, length, sets)
        count = augmented(i, data, weights, 1.0, work)
        m = statistics[begin : begin + count]
        mean = mean_score(scores, m, count)
        hit = _held_scores(scores, held, alpha, stamps, found)
        if caching and hit != NO_ATOM and example_weight * (found[hit] - mean) >= max(factor * gaps[i], least_gap):
            gain = found[hit] - mean
            y[:length] = held[hit]
        else:
            gain, calls = best(i, data, work) - mean, calls + 1
            # g_i of Algorithm 1, line 6; a hit of the cache leaves the last known one.
            gaps[i] = max(gain, 0.0) * example_weight
            if by_gap:
                set_weight(tree, chosen, gaps[i])
        step_kind = kind
        if kind == BEST:
            step_kind, most = FW, 0.0
            for other in (FW, PAIRWISE, AWAY):
                rise, longest, away, weight, towards = choice(other, gain, mean, alpha, found, least)
                if rise > 0.0:
                    _set_direction(y, length, count, m, held, alpha, away, weight, towards, direction)
                    number = touch(work, count)
                    add_features(features, begin, direction, touched, number, columns, sums, 1.0)
                    norm2 = squared_norm(features, begin, direction, touched, number, columns, sums)
                    clear(features, begin, touched, number, columns, sums)
                    reached = rise_of_dual(rise, longest, norm2 * example_weight / lam)
                    if reached > most * CLEARLY_MORE:
                        step_kind, most = other, reached
        gain, longest, away, weight, towards = choice(step_kind, gain, mean, alpha, found, least)
        if gain <= 0.0:
            continue
        _set_direction(y, length, count, m, held, alpha, away, weight, towards, direction)
        number = touch(work, count)
        add_features(features, begin, direction, touched, number, columns, sums, 1.0)
        curvature = squared_norm(features, begin, direction, touched, number, columns, sums) * example_weight / lam
        # γ = gain / curvature (line 7), clipped to the longest step; without a division where the direction moves no
        # weights.
        size = longest if gain >= longest * curvature else gain / curvature
        change = -size * example_weight / lam
        add_features(features, begin, direction, touched, number, columns, weights, change)
        if averaged:
            add_features(features, begin, direction, touched, number, columns, total, change * remaining[step])
        clear(features, begin, touched, number, columns, sums)
        for j in range(number):
            m[touched[j]] += size * direction[touched[j]]
        remember(kind, caching, y, away, towards, size, longest, held, alpha, stamps)
    return calls
