"""The best outputs of a linear chain for each number of mistakes, and the loop over a batch; see :mod:`.compiled`."""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point
from structsmooth.compiled.k_best import merge
from structsmooth.structures.chain.compiled import edge_index


@compiled
def top_k_by_mistakes(unary, transition, length, correct, k, score, back, values, labels):
    """Fills ``values`` [T + 1, k], ``labels`` [T + 1, k, T]; row c: the best outputs with c labels not ``correct``.

    ``score[t, c, s]`` lists the k best prefixes that end in state s with c mistakes, ``back`` where their last entries
    come from: scratch, [T, T + 1, S, k]. Where there are fewer, values are -inf and labels what they were.
    """
    states = unary.shape[1]
    values[:] = -np.inf
    score[:length] = -np.inf
    for s in range(states):
        score[0, int(s != correct[0]), s, 0] = unary[0, s]
    # π^(j)_t(c, s) = ψ_t(s) + max^(j) over p, l of {π^(l)_{t-1}(c - [s is a mistake], p) + ψ_{t-1,t}(p, s)}.
    for t in range(1, length):
        edge = transition[edge_index(transition, t)]
        for c in range(t + 2):
            for s in range(states):
                m = c - int(s != correct[t])
                # t labels before this one have 0 to t mistakes.
                if not 0 <= m <= t:
                    continue
                before, best, origin = score[t - 1, m], score[t, c, s], back[t, c, s]
                for p in range(states):
                    merge(best, origin, before[p], edge[p, s], p * k, 1)
                for j in range(k):
                    best[j] += unary[t, s]
    for c in range(length + 1):
        ends = labels[c, :, length - 1]
        for s in range(states):
            merge(values[c], ends, score[length - 1, c, s], 0.0, s * k, 1)
        for j in range(k):
            if values[c, j] > -np.inf:
                _read_off(back, length, correct, c, labels[c, j])


@compiled
def _read_off(back, length, correct, c, labels):
    """Labels of an output with c mistakes, whose last entry is in ``labels``."""
    k, entry = back.shape[3], labels[length - 1]
    for t in range(length - 1, -1, -1):
        s, j = entry // k, entry % k
        labels[t] = s
        if t > 0:
            entry = back[t, c, s, j]
            c -= int(s != correct[t])


@entry_point
def batch_top_k_by_mistakes(unary, transition, lengths, correct, k, values, labels, begin, end):
    """Examples ``begin`` to ``end``: fills ``values`` [B, T + 1, k] and ``labels`` [B, T + 1, k, T], zero before."""
    _, steps, states = unary.shape
    score = np.empty((steps, steps + 1, states, k))
    back = np.zeros((steps, steps + 1, states, k), np.int64)
    for b in range(begin, end):
        edges = transition[b if transition.shape[0] > 1 else 0]
        top_k_by_mistakes(unary[b], edges, lengths[b], correct[b], k, score, back, values[b], labels[b])
