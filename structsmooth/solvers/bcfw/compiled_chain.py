"""Steps of block-coordinate Frank-Wolfe over linear chains (Osokin et al. 2016), in the space of parts.

Statistics are T rows of nodes and S of summed edges for each example, packed as in
:mod:`structsmooth.problems.linear.chain.compiled_packed`. Examples, weights and workspaces are those of
:mod:`structsmooth.problems.linear.chain.compiled_primal`, and outputs that are held those of
:mod:`structsmooth.solvers.bcfw.compiled_active_set`.
"""

import numpy as np

from structsmooth.compiled.atomic import add_atomically, take
from structsmooth.compiled.jit import compiled, entry_point, inlined
from structsmooth.compiled.rows import fill_rows
from structsmooth.compiled.sampling import draw, set_weight, sum_tree
from structsmooth.problems.linear.chain.compiled_dual import (
    add_gathered,
    add_statistics,
    gather,
    gathered,
    mean_score,
    squared_norm,
    zero_statistics,
)
from structsmooth.problems.linear.chain.compiled_edges import clear, use
from structsmooth.problems.linear.chain.compiled_packed import clear_read, read_changed, rows_of, write_changed
from structsmooth.problems.linear.chain.compiled_primal import (
    add_label_parts_atomically,
    max_oracle,
    potentials,
    score_transitions,
    score_used_transitions,
    workspace,
)
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

# The counter of an epoch has the number of steps that threads have taken [1]. It is None for one thread, which is
# compiled apart: it neither counts nor adds atomically.


@compiled
def _add_gathered_atomically(count, length, rows, sums, node, edge, used, factor, transition_scale, out):
    """:func:`add_gathered` while other threads do the same."""
    states = node.shape[1]
    for j in range(count):
        for s in range(states):
            if sums[j, s] != 0.0:
                add_atomically(out, rows[j], s, factor * sums[j, s])
    add_label_parts_atomically(length, node, edge, used, factor, transition_scale, out)


@inlined
def _add(counter, count, length, rows, sums, node, edge, used, factor, transition_scale, out):
    """Adds as :func:`add_gathered` does, atomically if several threads make the steps."""
    if counter is None:
        add_gathered(count, length, rows, sums, node, edge, used, factor, transition_scale, out)
    else:
        _add_gathered_atomically(count, length, rows, sums, node, edge, used, factor, transition_scale, out)


@inlined
def _next_step(counter, turn):
    """The step that a thread makes when it is its turn."""
    return turn if counter is None else take(counter, 1)


@compiled
def _held_scores(transition, unary, held, alpha, stamps, scores):
    """Scores of the outputs that are held; returns the best of the cache, or none."""
    length, best = held.shape[1], NO_ATOM
    for c in range(held.shape[0]):
        if alpha[c] > 0.0 or stamps[c] > 0:
            y = held[c]
            score = unary[0, y[0]]
            for t in range(1, length):
                score += transition[y[t - 1], y[t]] + unary[t, y[t]]
            scores[c] = score
            if stamps[c] > 0 and (best == NO_ATOM or score > scores[best]):
                best = c
    return best


@inlined
def _add_output(y, length, factor, node, edge, used):
    """(node, edge) += factor * the parts of an output."""
    for t in range(length):
        node[t, y[t]] += factor
        if t > 0:
            use(used, y[t - 1])
            edge[y[t - 1], y[t]] += factor


@compiled
def _add_atom(c, length, statistics, held, alpha, factor, weight, node, edge, used):
    """(node, edge) += factor * atom c, an output that is held or what no slot holds, of that weight."""
    if c < alpha.shape[0]:
        _add_output(held[c], length, factor, node, edge, used)
        return
    # What no slot holds is a = (m - Σ_c α_c s_c) / weight, for the outputs s_c that slots hold.
    add_statistics(length, factor / weight, statistics, statistics[length:], used, node, edge)
    for other in range(alpha.shape[0]):
        if alpha[other] > 0.0:
            _add_output(held[other], length, -factor * alpha[other] / weight, node, edge, used)


@compiled
def _direction(y, length, statistics, held, alpha, atom, towards, node, edge, used):
    """(node, edge) = s - m, s - a or m - a, with the output s, the statistics m and the atom a = (number, weight)."""
    away, weight = atom
    # How often m is in it: s - m has it with -1, s - a not at all, m - a with 1.
    factor = 1.0 if not towards else 0.0 if away != NO_ATOM else -1.0
    fill_rows(node, length, 0.0)
    clear(edge, used)
    if factor != 0.0:
        add_statistics(length, factor, statistics, statistics[length:], used, node, edge)
    if towards:
        _add_output(y, length, 1.0, node, edge, used)
    if away != NO_ATOM:
        _add_atom(away, length, statistics, held, alpha, -1.0, weight, node, edge, used)


@entry_point
def frank_wolfe_epoch(
    order, draws, data, weights, total, packed, changes, gaps, lam, remaining, sets, steps, cache, counter
):
    """Block-coordinate Frank-Wolfe steps (Algorithms 1 to 5), in place; returns the number of oracle calls.

    ``changes`` have what becomes of the packed statistics, which stay as they are.
    ``order`` has the example of each step; with ``draws``, these choose among its examples by their gaps. ``total``
    becomes the sum of what each step changes, times ``remaining``; without ``remaining`` it stays as it is.

    With a counter, several threads make the steps of one epoch: they add to the same weights, and each takes the next
    step that is left. No two of them may have the same example.
    """
    (kind, least), (caching, factor, least_gap) = steps, cache
    states = weights.shape[1]
    work = workspace(data, states, ())
    node, edge, used, unary, y = work.node, work.edge[0], work.used, work.unary, work.labels[0]
    transition, offsets, transition_scale = work.transition, data.offsets, data.transition_scale
    slots, rows, sums = gathered(data, weights)
    statistics = zero_statistics(work, states)
    by_gap, averaged = draws.shape[0] > 0, remaining.shape[0] > 0
    tree, scores, calls = sum_tree(gaps[order] if by_gap else gaps[:0]), np.zeros(sets[1].shape[1]), 0
    end = draws.shape[0] if by_gap else order.shape[0]
    score_transitions(data, weights, 1.0, work)
    for turn in range(end):
        step = _next_step(counter, turn)
        if step >= end:
            break
        chosen = draw(tree, order.shape[0], draws[step]) if by_gap else step
        i = order[chosen]
        example_weight = data.example_weights[i]
        begin, past = rows_of(i, offsets, states)
        first, length = offsets[i], offsets[i + 1] - offsets[i]
        read_changed(i, begin, past, length, packed, changes, statistics, used)
        held, alpha, stamps = slots_of(i, first, length, sets)
        if counter is not None:  # other threads have changed weights
            score_transitions(data, weights, 1.0, work)
        potentials(i, data, weights, 1.0, unary, transition)
        mean = mean_score(transition, length, unary, statistics, used)
        hit = _held_scores(transition, unary, held, alpha, stamps, scores)
        if caching and hit != NO_ATOM and example_weight * (scores[hit] - mean) >= max(factor * gaps[i], least_gap):
            gain = scores[hit] - mean
            for t in range(length):
                y[t] = held[hit, t]
        else:
            gain, calls = max_oracle(transition, length, work) - mean, calls + 1
            # g_i of Algorithm 1, line 6; a hit of the cache leaves the last known one.
            gaps[i] = max(gain, 0.0) * example_weight
            if by_gap:
                set_weight(tree, chosen, gaps[i])
        step_kind = kind
        if kind == BEST:
            step_kind, most = FW, 0.0
            for other in (FW, PAIRWISE, AWAY):
                rise, longest, away, weight, towards = choice(other, gain, mean, alpha, scores, least)
                if rise > 0.0:
                    _direction(y, length, statistics, held, alpha, (away, weight), towards, node, edge, used)
                    count = gather(first, length, data, node, slots, rows, sums)
                    norm2 = squared_norm(count, length, sums, node, edge, used, transition_scale)
                    reached = rise_of_dual(rise, longest, norm2 * example_weight / lam)
                    if reached > most * CLEARLY_MORE:
                        step_kind, most = other, reached
        gain, longest, away, weight, towards = choice(step_kind, gain, mean, alpha, scores, least)
        if gain > 0.0:
            _direction(y, length, statistics, held, alpha, (away, weight), towards, node, edge, used)
            count = gather(first, length, data, node, slots, rows, sums)
            norm2 = squared_norm(count, length, sums, node, edge, used, transition_scale)
            curvature = norm2 * example_weight / lam
            # γ = gain / curvature (line 7), clipped to the longest step; without a division where the direction moves
            # no weights.
            size = longest if gain >= longest * curvature else gain / curvature
            change = -size * example_weight / lam
            _add(counter, count, length, rows, sums, node, edge, used, change, transition_scale, weights)
            if averaged:
                change *= remaining[step]
                _add(counter, count, length, rows, sums, node, edge, used, change, transition_scale, total)
            # Only transitions from these labels have changed; with other threads all are scored anew before each step.
            if counter is None:
                score_used_transitions(data, weights, work)
            add_statistics(length, size, node, edge, used, statistics, statistics[length:])
            write_changed(i, begin, past, length, statistics, used, changes)
            remember(kind, caching, y, away, towards, size, longest, held, alpha, stamps)
        clear(edge, used)
        clear_read(length, statistics, used)
    return calls
