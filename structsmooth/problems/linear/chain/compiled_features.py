"""The rows of features of tokens, sparse or dense.

Features are one of the tuples

- (attributes, token offsets): token t has attributes[token_offsets[t] : token_offsets[t + 1]], each of value 1;
- (attributes, token offsets, values): the same with values;
- (values,) [tokens, F]: all features of all tokens.

Their number is known when a loop is compiled, which leaves nothing to decide in it.
"""

from structsmooth.compiled.jit import compiled, uncounted


@uncounted
def entries(features, token):
    """Where the entries of a token begin and end."""
    if len(features) == 1:
        return 0, features[0].shape[1]
    return features[1][token], features[1][token + 1]


@uncounted
def entry(features, token, q):
    """Feature and value of entry q, which is one of this token's."""
    if len(features) == 1:
        return q, features[0][token, q]
    if len(features) == 2:
        return features[0][q], 1.0
    return features[0][q], features[2][q]


@compiled
def most_entries(features, sentence_offsets):
    """The largest number of features that a sentence may have."""
    if len(features) == 1:
        return features[0].shape[1]
    most, token_offsets = 0, features[1]
    for i in range(sentence_offsets.shape[0] - 1):
        most = max(most, token_offsets[sentence_offsets[i + 1]] - token_offsets[sentence_offsets[i]])
    return most
