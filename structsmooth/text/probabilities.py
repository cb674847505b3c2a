"""How probable entities are in the tags of a chain, exactly, from its marginals."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from structsmooth.text.schemes import entities, forms_of, goes_on, split_tag

Floats = NDArray[np.float64]


class ProbableEntity(NamedTuple):
    """Tokens ``start`` to ``end`` (exclusive) of a sentence, their label, and how probable this entity is."""

    start: int
    end: int
    label: str
    probability: float


class EntityProbabilities:
    """Probabilities of entities under chains over some tags.

    An entity is in an output if the output has its type on these tokens and no more of it at either side. All paths of
    tags that say so count. As a chain is Markov, their probabilities are products of those of neighbouring tags.

    Args:
        tags: the S tags, in the order of the states.
    """

    def __init__(self, tags: Sequence[str]) -> None:
        self._forms = forms_of(tags)[:1]
        split = [split_tag(tag, self._forms[0]) for tag in tags]
        self._types = sorted({tag.type for tag in split})
        self._states = np.array([[t.mark != "O" and t.type == name for t in split] for name in self._types])
        self._goes_on = np.array([[goes_on(tag, following) for following in split] for tag in split])

    def of(
        self, taggings: Sequence[Sequence[Sequence[str]]], nodes: Floats, edges: Floats
    ) -> list[list[list[ProbableEntity]]]:
        """The entities of some taggings of each of B sentences, with their probabilities.

        Args:
            taggings: tags of all tokens of a sentence, any number of times for each sentence.
            nodes: marginals of the tags of each token, [B, T, S].
            edges: those of neighbouring tags, [B, T - 1, S, S].
        """
        found = [[entities(tags, self._forms) for tags in alternatives] for alternatives in taggings]
        rows = [
            (b, e.start, e.end, self._types.index(e.type), e.end < len(tags))
            for b, (alternatives, of_sentence) in enumerate(zip(taggings, found, strict=True))
            for tags, of_tagging in zip(alternatives, of_sentence, strict=True)
            for e in of_tagging
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        probabilities = iter(self._probabilities(columns, nodes, edges).tolist())
        return [
            [[ProbableEntity(e.start, e.end, e.type, next(probabilities)) for e in spans] for spans in of_sentence]
            for of_sentence in found
        ]

    def _probabilities(self, columns: NDArray[np.int64], nodes: Floats, edges: Floats) -> Floats:
        """Of paths that begin an entity, go on inside of it and end it; columns are those of the rows above."""
        b, start, end, types, followed = columns

        def following(rows: NDArray[np.int64], places: NDArray[np.int64]) -> Floats:
            """Probabilities [E, S, S] of the next tag given that of a place."""
            before, both = nodes[rows, places][:, :, None], edges[rows, places]
            return np.divide(both, before, out=np.zeros_like(both), where=before > 0)

        paths, inner, place = nodes[b, start], np.flatnonzero(start), start.copy()
        paths[inner] = (edges[b[inner], start[inner] - 1] * ~self._goes_on).sum(1)
        paths *= self._states[types]
        while (longer := np.flatnonzero(place < end - 1)).size:
            steps = following(b[longer], place[longer]) * self._goes_on
            paths[longer] = np.einsum("es,est->et", paths[longer], steps)
            place[longer] += 1
        inner = np.flatnonzero(followed)
        paths[inner] *= (following(b[inner], end[inner] - 1) * ~self._goes_on).sum(2)
        total: Floats = np.minimum(paths.sum(1), 1.0)
        return total
