"""How probable entities are in the tags of a chain, exactly, from its marginals."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from structsmooth.text.schemes import Entity, entities, forms_of, goes_on, split_tag

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
        self._types = np.array([tag.type for tag in split])
        self._inside = np.array([tag.mark != "O" for tag in split])
        self._goes_on = np.array([[goes_on(tag, following) for following in split] for tag in split])

    def of(self, tags: Sequence[str], nodes: Floats, edges: Floats) -> list[ProbableEntity]:
        """The entities of a tagging with their probabilities.

        Args:
            tags: of the T tokens.
            nodes: marginals of the tags of each token, [T, S].
            edges: those of neighbouring tags, [T - 1, S, S].
        """
        return [
            ProbableEntity(entity.start, entity.end, entity.type, self._probability(entity, nodes, edges))
            for entity in entities(tags, self._forms)
        ]

    def _probability(self, entity: Entity, nodes: Floats, edges: Floats) -> float:
        start, end = entity.start, entity.end
        begins = nodes[start] if start == 0 else np.where(self._goes_on, 0.0, edges[start - 1]).sum(0)
        paths = np.where((self._types == entity.type) & self._inside, begins, 0.0)
        for place in range(start, end - 1):
            paths = paths @ np.where(self._goes_on, _following(nodes[place], edges[place]), 0.0)
        if end < len(nodes):
            paths = paths @ np.where(self._goes_on, 0.0, _following(nodes[end - 1], edges[end - 1]))
        return float(min(paths.sum(), 1.0))


def _following(node: Floats, edge: Floats) -> Floats:
    """Probabilities of the next tag given this one, [S, S]; zero for tags that are impossible."""
    return np.divide(edge, node[:, None], out=np.zeros_like(edge), where=node[:, None] > 0)
