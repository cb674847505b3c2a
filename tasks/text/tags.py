"""The gold tags of corpora, and the states of chains that they are."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.tag_schemes import TagScheme, entities, entity_tags
from structsmooth.tasks.text.corpus import Corpus, Sentence, Token
from structsmooth.tasks.text.windows import Windows

_UNTAGGED = "these sentences have no tags: training and evaluation need them in the last column"


def gold_tags(sentence: Sentence) -> list[str]:
    """The tags of a sentence that must have them."""
    if sentence.tags is None:
        raise ValueError(_UNTAGGED)
    return sentence.tags


def well_formed(corpus: Corpus, scheme: TagScheme) -> tuple[list[str], NDArray[np.int32]]:
    """Tags in a scheme for the same entities, and which of them each token has."""
    found = Windows(corpus, 1).combinations([(gold_tag, offset) for offset in (-1, 0, 1)])
    # The neighbours of a tag decide where its entity begins and ends.
    around = [[tag or "O" for tag in tags] for tags in found.distinct]
    return [entity_tags(entities(tags), 3, scheme)[1] for tags in around], found.keys


def gold_by_sentence(corpus: Corpus) -> Iterator[list[str]]:
    """The tags of each sentence of a corpus."""
    tags = list(map(gold_tag, corpus.distinct))
    for start, stop in pairwise(corpus.offsets.tolist()):
        yield [tags[number] for number in corpus.tokens[start:stop].tolist()]


def gold_tag(token: Token) -> str:
    """The tag of a token that must have one."""
    if token.tag is None:
        raise ValueError(_UNTAGGED)
    return token.tag


def tags_of(corpus: Corpus, scheme: TagScheme | None) -> tuple[list[str], NDArray[np.int32]]:
    """Distinct tags, in a scheme or as they are, and which of them each token has."""
    if scheme is None:
        return list(map(gold_tag, corpus.distinct)), corpus.tokens
    return well_formed(corpus, scheme)


def labels_of(corpus: Corpus, scheme: TagScheme | None, tags: Sequence[str]) -> Tensor:
    """The states of all tokens: the numbers of their tags."""
    index = {tag: state for state, tag in enumerate(tags)}
    found, which = tags_of(corpus, scheme)
    if unknown := set(found) - index.keys():
        raise ValueError(f"tags that the training data did not have: {', '.join(sorted(unknown))}")
    return torch.from_numpy(np.array([index[tag] for tag in found])[which])


def unknown_tags(corpus: Corpus, scheme: TagScheme | None, tags: Sequence[str]) -> Counter[str]:
    """How many tokens have each tag that is not among ``tags``."""
    found, which = tags_of(corpus, scheme)
    counts = Counter[str]()
    for tag, count in zip(found, np.bincount(which, minlength=len(found)).tolist(), strict=True):
        if tag not in tags:
            counts[tag] += count
    return counts
