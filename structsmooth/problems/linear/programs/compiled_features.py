"""The features of parts: rows that are stored, or hashes that are computed where they are needed.

Features are one of the tuples

- (columns, row offsets): part p has the features columns[row_offsets[p] : row_offsets[p + 1]], each of value 1;
- (first, second, kinds, keys of firsts, keys of seconds, keys of distances, keys of kinds, columns of kinds, keys of
  betweens, shift): those of :class:`structsmooth.problems.PairFeatures`, which drop ``shift`` bits of sums of keys.

Their number is known when a loop is compiled, which leaves nothing to decide in it.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, uncounted


@uncounted
def columns_of(features, part, columns):
    """Writes the features of a part to ``columns``, and returns their number."""
    if len(features) == 2:
        begin = features[1][part]
        count = features[1][part + 1] - begin
        for q in range(count):
            columns[q] = features[0][begin + q]
        return count
    first, second, kind, distances = features[0][part], features[1][part], features[2][part], features[5]
    of_first, of_second, of_kind = features[3][first], features[4][second], features[6][kind]
    reach = distances.shape[0] // 2
    of_distance, between, shift = distances[min(max(second - first, -reach), reach) + reach], features[8], features[9]
    begin, end = features[7][kind]
    # The last kinds of features, as many as ``between`` has columns, are those of the words in between.
    plain, q = min(end, of_first.shape[0] - between.shape[1]), 0
    for k in range(begin, plain):
        # Sums of keys are modulo 2^32, and their upper bits are the number of the column.
        columns[q] = np.uint32(of_first[k] + of_second[k] + of_distance[k] + of_kind[k]) >> shift
        q += 1
    low, high = min(first, second), max(first, second)
    for k in range(max(begin, plain), end):
        ends = of_first[k] + of_second[k] + of_distance[k] + of_kind[k]
        for token in range(low + 1, high):
            columns[q] = np.uint32(ends + between[token, k - plain]) >> shift
            q += 1
    return q


@compiled
def add_features(features, begin, direction, touched, number, columns, out, factor):
    """out += factor * B^T direction, for the parts of an example that starts at ``begin``; ``touched`` ones alone."""
    for j in range(number):
        p = touched[j]
        change = factor * direction[p]
        for q in range(columns_of(features, begin + p, columns)):
            out[columns[q]] += change


@compiled
def squared_norm(features, begin, direction, touched, number, columns, sums):
    """|B^T direction|^2, where ``sums`` holds B^T direction."""
    total = 0.0
    for j in range(number):
        p = touched[j]
        score = 0.0
        for q in range(columns_of(features, begin + p, columns)):
            score += sums[columns[q]]
        total += direction[p] * score
    return total


@compiled
def clear(features, begin, touched, number, columns, sums):
    """Zeros in ``sums`` at the features of ``touched`` parts."""
    for j in range(number):
        for q in range(columns_of(features, begin + touched[j], columns)):
            sums[columns[q]] = 0.0
