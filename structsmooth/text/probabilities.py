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
        self._states = {tag.type: np.array([t.mark != "O" and t.type == tag.type for t in split]) for tag in split}
        self._goes_on = np.array([[goes_on(tag, following) for following in split] for tag in split])

    def of(self, tags: Sequence[str], nodes: Floats, edges: Floats) -> list[ProbableEntity]:
        """The entities of a tagging with their probabilities.

        Args:
            tags: of the T tokens.
            nodes: marginals of the tags of each token, [T, S].
            edges: those of neighbouring tags, [T - 1, S, S].
        """
        found = entities(tags, self._forms)
        if not found:
            return []
        before = nodes[:-1, :, None]
        following = np.divide(edges, before, out=np.zeros_like(edges), where=before > 0)
        begins = np.vstack([nodes[:1], (edges * ~self._goes_on).sum(1)])
        ends = np.vstack([(following * ~self._goes_on).sum(2), np.ones_like(nodes[:1])])
        inside = following * self._goes_on
        return [ProbableEntity(e.start, e.end, e.type, self._probability(e, begins, inside, ends)) for e in found]

    def _probability(self, entity: Entity, begins: Floats, inside: Floats, ends: Floats) -> float:
        """Of paths that begin the entity, go on inside of it, and end it."""
        paths = begins[entity.start] * self._states[entity.type]
        for place in range(entity.start, entity.end - 1):
            paths = paths @ inside[place]
        return float(min(paths @ ends[entity.end - 1], 1.0))
