"""The rows of features of tokens: attributes, a dense block, or both.

Features are one of the tuples

- (attributes, token offsets): token t has attributes[token_offsets[t] : token_offsets[t + 1]], each of value 1;
- (attributes, token offsets, values): the same with values;
- (block,) [tokens, F]: all features of all tokens;
- (attributes, token offsets, block, first, center, scale): attributes of value 1, and behind them the numbers of a
  block [tokens, D] minus their center [D], times their scale [D], whose weights begin at row ``first``.

Their kind is known when a loop is compiled, which leaves nothing to decide in it. Attributes go entry by entry. A block
goes sentence by sentence, along its rows: its weights are turned around once, [S, D], and then the inner loops are D
long, which makes them vector loops, where the S states of an entry are too few. Centers and scales only meet what is
turned around: (x - c) * a @ W = x @ (a W) - c @ (a W).
"""

import numpy as np

from structsmooth.compiled.jit import compiled, inlined, uncounted


@uncounted
def entries(features, token):
    """Where the entries of a token begin and end, attributes first."""
    if len(features) == 1:
        return 0, features[0].shape[1]
    if len(features) == 6:
        # Entries beyond the token's attributes, whose numbers the next token's attributes have too, are those of the
        # block.
        return features[1][token], features[1][token + 1] + features[2].shape[1]
    return features[1][token], features[1][token + 1]


@uncounted
def attributes(features, token):
    """Where the entries of a token that are attributes begin and end."""
    if len(features) == 1:
        return 0, 0
    return features[1][token], features[1][token + 1]


@uncounted
def entry(features, token, q):
    """Feature and value of entry q, which is one of this token's."""
    if len(features) == 1:
        return q, features[0][token, q]
    if len(features) == 2:
        return features[0][q], 1.0
    if len(features) == 3:
        return features[0][q], features[2][q]
    column = q - features[1][token + 1]
    if column < 0:
        return features[0][q], 1.0
    return np.int32(features[3] + column), features[5][column] * (features[2][token, column] - features[4][column])


@compiled
def most_entries(features, sentence_offsets):
    """The largest number of features that a sentence may have."""
    if len(features) == 1:
        return features[0].shape[1]
    most, token_offsets = 0, features[1]
    for i in range(sentence_offsets.shape[0] - 1):
        most = max(most, token_offsets[sentence_offsets[i + 1]] - token_offsets[sentence_offsets[i]])
    if len(features) == 6:
        most += features[2].shape[1]
    return most


@compiled
def add_block_scores(features, begin, length, weights, unary):
    """unary += the block of some tokens times its weights."""
    if len(features) == 1:
        _add_products(features[0], None, 0, begin, length, weights, unary)
    if len(features) == 6:
        _add_products(features[2], (features[4], features[5]), features[3], begin, length, weights, unary)


@compiled
def add_block_parts(features, begin, length, node, factor, out):
    """out += factor * the transposed block of some tokens times ``node`` [T, S]."""
    if len(features) == 1:
        _add_transposed(features[0], None, 0, begin, length, node, factor, out)
    if len(features) == 6:
        _add_transposed(features[2], (features[4], features[5]), features[3], begin, length, node, factor, out)


@compiled
def gather_block(features, begin, length, node, rows, sums, count):
    """What :func:`add_block_parts` adds to zeros goes behind ``count`` rows; returns the number of rows then."""
    if len(features) == 1:
        return _gather(features[0], None, 0, begin, length, node, rows, sums, count)
    if len(features) == 6:
        return _gather(features[2], (features[4], features[5]), features[3], begin, length, node, rows, sums, count)
    return count


@inlined
def _add_products(block, scaling, first, begin, length, weights, unary):
    states, columns = weights.shape[1], block.shape[1]
    turned, shift = np.empty((states, columns)), np.zeros(states)
    for d in range(columns):
        for s in range(states):
            turned[s, d] = weights[first + d, s]
    if scaling is not None:
        center, scale = scaling
        for s in range(states):
            for d in range(columns):
                turned[s, d] *= scale[d]
                shift[s] -= center[d] * turned[s, d]
    for t in range(length):
        for s in range(states):
            total = shift[s]
            for d in range(columns):
                total += block[begin + t, d] * turned[s, d]
            unary[t, s] += total


@inlined
def _products(block, scaling, begin, length, node, turned):
    """The transposed block times statistics, turned [S, D]; returns whether any of the statistics is not zero."""
    used = False
    turned[:] = 0.0
    for s in range(node.shape[1]):
        mass = 0.0
        for t in range(length):
            value = node[t, s]
            if value != 0.0:  # most statistics are
                used = True
                mass += value
                for d in range(block.shape[1]):
                    turned[s, d] += value * block[begin + t, d]
        if scaling is not None:
            center, scale = scaling
            for d in range(block.shape[1]):
                turned[s, d] = scale[d] * (turned[s, d] - mass * center[d])
    return used


@inlined
def _add_transposed(block, scaling, first, begin, length, node, factor, out):
    states, columns = node.shape[1], block.shape[1]
    turned = np.empty((states, columns))
    if _products(block, scaling, begin, length, node, turned):
        for d in range(columns):
            for s in range(states):
                out[first + d, s] += factor * turned[s, d]


@inlined
def _gather(block, scaling, first, begin, length, node, rows, sums, count):
    states, columns = node.shape[1], block.shape[1]
    turned = np.empty((states, columns))
    if not _products(block, scaling, begin, length, node, turned):
        return count
    for d in range(columns):
        rows[count + d] = first + d
        for s in range(states):
            sums[count + d, s] = turned[s, d]
    return count + columns
