"""Tags of sentences: the states of a chain, and which of them may follow each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from structsmooth.costs import WeightedHamming
from structsmooth.estimators.tokens import length
from structsmooth.estimators.weights import Weighing
from structsmooth.tag_schemes import TagScheme, TransitionMask, detect_scheme, transition_mask

Tag = str | int
Constraints = Literal["auto", "IO", "IOB1", "BIO", "BIOES"]


@dataclass(frozen=True)
class Tags:
    """The tags of training sentences, sorted.

    Attributes:
        names: the S tags.
        scheme: of tags of entities; ``None`` for other tags.
        constrained: whether predictions are well-formed in the scheme.
    """

    names: list[Tag]
    scheme: TagScheme | None
    constrained: bool

    @classmethod
    def of(cls, tags: Sequence[Sequence[Tag]], constraints: Constraints | None) -> "Tags":
        """The tags of sentences, with the scheme that ``constraints`` names, or that the tags have.

        Raises:
            ValueError: tags of different types, or tags that are not of the scheme.
        """
        try:
            names = sorted(set(chain.from_iterable(tags)))
        except TypeError:
            raise ValueError("tags must be all strings or all integers") from None
        scheme = _detected(names, tags)
        if constraints is None or constraints == "auto":
            return cls(names, scheme, constrained=constraints is not None and scheme is not None)
        if constraints not in get_args(Constraints):
            raise ValueError(
                f"constraints must be None or one of {', '.join(get_args(Constraints))}, got {constraints!r}"
            )
        if "O" not in names:
            raise ValueError(f"constraints={constraints!r} needs the tag O, for tokens outside entities; take None")
        transition_mask(list(map(str, names)), constraints)
        return cls(names, constraints, constrained=True)

    @cached_property
    def mask(self) -> TransitionMask | None:
        """Which tags may follow each other, begin and end; ``None`` for all."""
        if not self.constrained or self.scheme is None:
            return None
        return transition_mask(list(map(str, self.names)), self.scheme)

    def mask_of(self, sentences: Sequence[Tensor]) -> TransitionMask:
        """The mask for training on sentences with these states, [T] each.

        Raises:
            ValueError: tags without constraints, or a sentence that does not keep to them.
        """
        if self.mask is None:
            raise ValueError(
                "train_constrained needs tags of entities, O among them, and constraints that are not None"
            )
        for states in sentences:
            forbidden = self.mask.transition[states[:-1], states[1:]].isinf()
            if bool(forbidden.any() or self.mask.start[states[0]].isinf() or self.mask.stop[states[-1]].isinf()):
                wrong = " ".join(map(str, self.named(states.tolist())))
                raise ValueError(
                    f"train_constrained needs tags that are well-formed in the scheme {self.scheme}, got the sentence "
                    f"{wrong}; entity_tags(entities(tags), len(tags), scheme) gives well-formed ones"
                )
        return self.mask

    def states(self, tags: Sequence[Sequence[Tag]]) -> Tensor:
        """The states of all tokens of sentences: int64 [tokens].

        Raises:
            ValueError: a tag that training sentences did not have.
        """
        numbers = {name: state for state, name in enumerate(self.names)}
        try:
            return torch.tensor([numbers[tag] for tag in chain.from_iterable(tags)])
        except KeyError as error:
            raise ValueError(f"tag {error.args[0]!r} is not among those of training, {self.names}") from None

    def named(self, states: Sequence[int]) -> list[Tag]:
        """The tags of states."""
        return [self.names[state] for state in states]

    def weighted_cost(self, weights: Mapping[Tag, float] | str, labels: Tensor) -> WeightedHamming:
        """The cost of wrong tags by the correct one: as given, 1 for others, or ``"balanced"``.

        Raises:
            ValueError: weights of unknown tags.
        """
        if isinstance(weights, str):
            if weights != "balanced":
                raise ValueError(f'class_weight must be a dictionary or "balanced", got {weights!r}')
            counts = torch.bincount(labels, minlength=len(self.names)).clamp_min(1)
            return WeightedHamming(tuple((len(labels) / (len(self.names) * counts.double())).tolist()))
        if unknown := weights.keys() - set(self.names):
            raise ValueError(f"class_weight has tags that training sentences lack: {sorted(map(str, unknown))}")
        return WeightedHamming(tuple(weights.get(name, 1.0) for name in self.names))


def as_sentences(X: Any) -> list[Any]:
    """X as a list of sentences.

    Raises:
        ValueError: something else, such as a string.
    """
    if isinstance(X, str | Mapping) or not hasattr(X, "__len__"):
        raise ValueError(f"X must be a list of sentences, got {type(X).__name__}")
    return list(X)


def check_sentences(
    X: Any, y: Any, sample_weight: ArrayLike | None = None
) -> tuple[list[Any], list[list[Tag]], Tensor | None]:
    """The sentences that have tokens and weight, their tags as Python's own strings and integers, and their weights.

    Raises:
        ValueError: numbers of sentences, tokens or weights that differ, no token at all, or weights below zero.
    """
    sentences, tags = as_sentences(X), [_plain(own) for own in as_sentences(y)]
    if len(sentences) != len(tags):
        raise ValueError(f"X has {len(sentences)} sentences and y has {len(tags)}")
    for number, (sentence, own) in enumerate(zip(sentences, tags, strict=True)):
        if length(sentence) != len(own):
            raise ValueError(f"sentence {number} has {length(sentence)} tokens in X and {len(own)} tags in y")
    weighing = Weighing.of(sample_weight, len(tags))
    weighing = weighing.of_rows(np.array([place for place, i in enumerate(weighing.kept) if tags[i]], dtype=np.int64))
    if not len(weighing.kept):
        raise ValueError("X must have a sentence with a token at least")
    return [sentences[i] for i in weighing.kept], [tags[i] for i in weighing.kept], weighing.weights


def strings(tags: Sequence[Sequence[Tag]]) -> list[list[str]]:
    """The tags of sentences as strings."""
    return [list(map(str, own)) for own in tags]


def _plain(tags: Any) -> list[Tag]:
    if isinstance(tags, str):
        raise ValueError(f"the tags of a sentence must be a list, got {tags!r}")
    found: list[Any] = [tag.item() if isinstance(tag, np.generic | Tensor) else tag for tag in tags]
    return found


def _detected(names: Sequence[Tag], tags: Sequence[Sequence[Tag]]) -> TagScheme | None:
    """The scheme of tags if all of them are tags of entities, and O is among them."""
    if "O" not in names:
        return None
    try:
        return detect_scheme(strings(tags))
    except ValueError:
        return None
