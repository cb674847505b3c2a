"""Active sets and caches of outputs in slots, compiled, as in :mod:`structsmooth.solvers.bcfw.active_set`.

Outputs are rows of integers. A slot of weight ``alpha`` > 0 is in the active set, a slot with a stamp in the cache.
"""

from structsmooth.compiled.jit import compiled, inlined

NO_ATOM = -1

# Kinds of steps. The last one is no choice of a caller, but one of the directions of "best".
FW, PAIRWISE, FW_OR_AWAY, BEST, AWAY = range(5)


@compiled
def _away_atom(alpha, scores, mean, least):
    """The worst atom, its weight and its score; atom number ``capacity`` is what the active set has no output for."""
    capacity, total, worst = alpha.shape[0], 0.0, -1
    rest = 1.0
    for c in range(capacity):
        if alpha[c] > 0.0:
            rest -= alpha[c]
            total += alpha[c] * scores[c]
            if worst < 0 or scores[c] < scores[worst]:
                worst = c
    # The mean score of m is Σ_c α_c score_c + rest · score of what no slot holds.
    if rest > least and (worst < 0 or (mean - total) / rest < scores[worst]):
        return capacity, rest, (mean - total) / rest
    return worst, alpha[worst], scores[worst]


@inlined
def slots_of(i, first, length, sets):
    """The outputs that example i holds, rows of ``length`` numbers from row ``first`` on, their weights and stamps."""
    outputs, alphas, stamps = sets
    capacity = alphas.shape[1]
    held = outputs[first * capacity : (first + length) * capacity].reshape((capacity, length))
    return held, alphas[i], stamps[i if stamps.shape[0] > 1 else 0]


@inlined
def choice(kind, gain, mean, alpha, scores, least):
    """A direction: gain, longest step, the atom to go away from, its weight, and whether to go towards an output."""
    if kind == FW:
        return gain, 1.0, NO_ATOM, 1.0, True
    away, weight, score = _away_atom(alpha, scores, mean, least)
    if kind == PAIRWISE:
        # <s - a, θ> = <s - m, θ> + <m - a, θ>.
        return gain + mean - score, weight, away, weight, True
    # An away step ends where the weight of a is 0: (1 + γ) α_a - γ = 0. With no other atom there is nowhere to go.
    if (kind == AWAY or mean - score > gain) and weight < 1.0 - least:
        return mean - score, weight / (1.0 - weight), away, weight, False
    return gain, 1.0, NO_ATOM, 1.0, True


@inlined
def rise_of_dual(gain, longest, curvature):
    """How much the best step of at most that length raises the dual."""
    # The dual along the direction is γ gain - γ² curvature / 2.
    size = longest if gain >= longest * curvature else gain / curvature
    return size * (gain - size / 2.0 * curvature)


@compiled
def _slot(y, held, alpha, stamps):
    """Slot of output y: its own, or that of the least weight, among these the one of the least stamp."""
    length, least = held.shape[1], 0
    for c in range(held.shape[0]):
        same = alpha[c] > 0.0 or stamps[c] > 0
        for t in range(length):
            same = same and held[c, t] == y[t]
        if same:
            return c
        if alpha[c] < alpha[least] or (alpha[c] == alpha[least] and stamps[c] < stamps[least]):
            least = c
    for t in range(length):
        held[least, t] = y[t]
    alpha[least] = 0.0  # its statistics stay, as part of what no slot holds
    stamps[least] = 0
    return least


@inlined
def remember(kind, caching, y, away, towards, size, longest, held, alpha, stamps):
    """Weights and stamps after a step."""
    if kind > 0:
        _reweight(y, away, towards, size, longest, held, alpha, stamps)
    if caching:
        place, latest = _slot(y, held, alpha, stamps), 0  # which may clear a stamp
        for c in range(stamps.shape[0]):  # numba compiles stamps.max() for half a second
            latest = stamps[c] if stamps[c] > latest else latest
        stamps[place] = latest + 1


@compiled
def _reweight(y, away, towards, size, longest, held, alpha, stamps):
    """Weights of the active set after a step."""
    if away == NO_ATOM or not towards:
        # A step towards s leaves (1 - γ) m, one away from a makes (1 + γ) m; a pairwise step moves weight from a to s
        # alone.
        scale = 1.0 - size if towards else 1.0 + size
        for c in range(alpha.shape[0]):
            alpha[c] *= scale
    if 0 <= away < alpha.shape[0]:
        # Exactly zero after the longest step, which rounding would miss.
        alpha[away] = 0.0 if size == longest else max(alpha[away] - size, 0.0)
    if towards:
        alpha[_slot(y, held, alpha, stamps)] += size
