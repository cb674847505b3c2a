"""The tagger that is linear in features: a linear chain over tags, with its losses and its predictions."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from structsmooth.costs import Cost, Hamming, RescaledMargin, WeightedHamming
from structsmooth.models.chains import best_labels, chains, label_marginals, labelled
from structsmooth.problems import (
    DenseChainProblem,
    DifferenceProblem,
    LinearModuleProblem,
    LinearProblem,
    SparseChainProblem,
)
from structsmooth.problems.linear.chain.data import agreeing_labels
from structsmooth.scores import LinearScore, SlackRescaledScores, TransitionMask
from structsmooth.sequences import DenseSequences, MixedSequences, Sequences, SparseSequences
from structsmooth.smoothing import Entropy, Max
from structsmooth.structures import LinearChain
from structsmooth.text.probabilities import EntityProbabilities, ProbableEntity
from structsmooth.text.schemes import TagScheme, scheme_among_others, tag_pairs, transition_mask

Tag = str | int
Constraints = Literal["auto", TagScheme]
Loss = Literal["hinge", "slack", "crf", "softmax-margin"]
HINGES = ("hinge", "slack")
Sizes = tuple[int, int]
"""Numbers of features and of states."""


@dataclass(frozen=True)
class Tags:
    """The tags of training sentences, sorted.

    Attributes:
        names: the S tags.
        scheme: of tags of entities; ``None`` for other tags.
        constrained: whether predictions are well-formed in the scheme.
    """

    names: Sequence[Tag]
    scheme: TagScheme | None
    constrained: bool

    @classmethod
    def of(cls, tags: Sequence[Sequence[Tag | None]], constraints: Constraints | None) -> "Tags":
        """The tags of sentences, with the scheme that ``constraints`` names, or that the tags have.

        Raises:
            ValueError: tags of different types, or tags that are not of the scheme, or no tag that is known.
        """
        try:
            names: list[Tag] = sorted(set(chain.from_iterable(tags)) - {None})  # type: ignore[arg-type]
        except TypeError:
            raise ValueError("tags must be all strings or all integers, or None where they are unknown") from None
        if not names:
            raise ValueError("y must have a tag that is known, got None alone")
        if constraints is None or constraints == "auto":
            scheme = scheme_among_others(tag_pairs(tags)) if isinstance(names[0], str) else None  # type: ignore[arg-type]
            return cls(names, scheme, constrained=constraints is not None and scheme is not None)
        if constraints not in get_args(Constraints):
            raise ValueError(
                f"constraints must be None or one of {', '.join(get_args(Constraints))}, got {constraints!r}"
            )
        restricted = cls(names, constraints, constrained=True)
        if restricted.mask is None:
            raise ValueError(f"constraints={constraints!r} needs the tag O, for tokens outside entities; take None")
        return restricted

    @cached_property
    def mask(self) -> TransitionMask | None:
        """Which tags may follow each other, begin and end; ``None`` for all, as without a tag for any sentence."""
        if not self.constrained or self.scheme is None:
            return None
        mask = transition_mask(list(map(str, self.names)), self.scheme)
        # Without a tag that may begin, end and follow itself, as O may, some sentences would have no output at all.
        alone = mask.start + mask.stop + mask.transition.diagonal()
        return mask if bool((alone == 0).any()) else None

    def allowed(self, sets: Sequence[Collection[Tag] | None], length: int) -> Tensor:
        """Which tags each token of a sentence may have, bool [T, S].

        Args:
            sets: the allowed tags of each token, ``None`` for all.
            length: of the sentence.

        Raises:
            ValueError: another number of tokens, or a token without a tag that the training data had.
        """
        if isinstance(sets, str) or not isinstance(sets, Sequence):
            raise TypeError(f"allowed must be a list with a set of tags, or None, for each token, got {sets!r}")
        if len(sets) != length:
            raise ValueError(f"allowed must have an entry for each of {length} tokens, got {len(sets)}")
        for token, kept in enumerate(sets):
            if isinstance(kept, str) or not isinstance(kept, Collection | None):
                raise TypeError(f"allowed must have a set of tags or None for token {token}, got {kept!r}")
        found = torch.tensor([[kept is None or name in kept for name in self.names] for kept in sets], dtype=torch.bool)
        found = found.view(length, len(self.names))
        for token in (~found.any(1)).nonzero().flatten().tolist():
            raise ValueError(f"allowed has no tag of the training data for token {token}, got {sets[token]}")
        return found

    def masks(self, sets: Sequence[Sequence[Collection[Tag] | None] | None], lengths: Sequence[int]) -> list[Tensor]:
        """What :meth:`allowed` gives for each of some sentences, of which some may allow all tags."""
        found = list[Tensor]()
        try:
            for kept, length in zip(sets, lengths, strict=True):
                found.append(self.allowed([None] * length if kept is None else kept, length))
        except ValueError as error:
            raise ValueError(f"sentence {len(found) + 1}: {error}") from None
        return found

    def mask_of(self, labels: Tensor, lengths: Tensor) -> TransitionMask:
        """The mask for training on sentences of these states, [tokens], and lengths, [n].

        Raises:
            ValueError: tags without constraints, or a sentence that does not keep to them.
        """
        if self.mask is None:
            raise ValueError(
                "train_constrained needs tags of entities, O among them, and constraints that are not None"
            )
        ends = lengths.cumsum(0)
        bad = self.mask.stop[labels[ends - 1]].isinf() | self.mask.start[labels[ends - lengths]].isinf()
        inside = torch.isin(torch.arange(1, len(labels)), ends[:-1], invert=True)  # a token that follows its neighbour
        pairs = 1 + (inside & self.mask.transition[labels[:-1], labels[1:]].isinf()).nonzero().flatten()
        # The sentence of a token is the first one that ends behind it.
        bad[torch.searchsorted(ends, pairs, right=True)] = True
        if bool(bad.any()):
            first = int(bad.nonzero()[0])
            states = labels[ends[first] - lengths[first] : ends[first]]
            raise ValueError(
                f"train_constrained needs tags that are well-formed in the scheme {self.scheme}, got the sentence "
                f"{' '.join(map(str, self.named(states.tolist())))}; entity_tags(entities(tags), len(tags), scheme) "
                "gives well-formed ones"
            )
        return self.mask

    def states(self, tags: Sequence[Sequence[Tag | None]]) -> Tensor:
        """The states of all tokens of sentences, -1 for ``None``: int64 [tokens].

        Raises:
            ValueError: a tag that training sentences did not have.
        """
        numbers: dict[Tag | None, int] = {name: state for state, name in enumerate(self.names)} | {None: -1}
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
            return WeightedHamming.balanced(labels, len(self.names))
        if unknown := weights.keys() - set(self.names):
            raise ValueError(f"class_weight has tags that training sentences lack: {sorted(map(str, unknown))}")
        return WeightedHamming(tuple(weights.get(name, 1.0) for name in self.names))


@dataclass(frozen=True)
class Tagger:
    """A linear chain over tags: scores of features, of pairs of neighbouring tags, and of the first and the last tag.

    Its weights are the vector [(F + S + 2)·S] of :class:`~structsmooth.LinearScore`.

    Args:
        tags: the S tags, with their scheme.
        features: number F of features.
        transition_scale: factor of the scores of pairs of tags; the larger it is, the less they are regularized.
    """

    tags: Tags
    features: int
    transition_scale: float = 1.0

    def problem(
        self,
        sequences: Sequences,
        labels: Tensor,
        loss: Loss = "hinge",
        cost: Cost | Tensor | None = None,
        *,
        constrained: bool = False,
    ) -> LinearProblem | DifferenceProblem:
        """The mean of a loss over sentences.

        Args:
            sequences: the features of n sentences.
            labels: the states of all tokens, int64 [tokens]; -1 where they are unknown.
            loss: its name.
            cost: of wrong tags, their number if not given.
            constrained: the outputs of training are the well-formed taggings alone.

        Raises:
            ValueError: what :func:`chain_problem` refuses, or sentences that are not well-formed under constraints.
        """
        sizes, unknown = (self.features, len(self.tags.names)), labels < 0
        if is_partial := bool(unknown.any()):
            allowed = self.tags.mask if constrained else None
            # Problems have whole labels beside what is unknown of them; any that agree with the known tags do.
            labels = agreeing_labels(labels, unknown, sequences.lengths, sizes[1], allowed)
        mask = self.tags.mask_of(labels, sequences.lengths) if constrained else None
        problem = chain_problem(loss, sequences, labels, sizes, cost, mask, self.transition_scale)
        if not is_partial:
            return problem
        if not isinstance(problem, SparseChainProblem | DenseChainProblem):
            raise ValueError(f'unknown tags need the loss "hinge", "crf" or "softmax-margin", got {loss!r}')
        return problem.with_unknown(unknown)

    def best(
        self, sequences: Sequences, weights: Tensor, k: int, allowed: Sequence[Tensor] | None = None
    ) -> list[list[tuple[float, list[Any]]]]:
        """The k best taggings of each sentence with their scores, well-formed if the tags are constrained.

        They are the best ones among those of ``allowed`` tags, bool [T, S] for each sentence, if these are given.
        """
        found = best_labels(self.chains(sequences, weights, allowed), k)
        return [[(score, self.tags.named(labels)) for score, labels in ranked] for ranked in found]

    def chains(
        self, sequences: Sequences, weights: Tensor, allowed: Sequence[Tensor] | None = None
    ) -> Iterator[LinearChain]:
        """The chains of all sentences, in batches, over the taggings of :meth:`best`."""
        return chains(sequences, weights, len(self.tags.names), self.tags.mask, self.transition_scale, allowed)

    def labelled_chains(
        self, sequences: Sequences, weights: Tensor, labels: Tensor
    ) -> Iterator[tuple[LinearChain, Tensor]]:
        """The chains of all sentences, in batches, with the states [B, T] of their tags, of those [tokens] of all."""
        return labelled(self.chains(sequences, weights), labels.split(sequences.lengths.tolist()))

    def marginals(self, sequences: Sequences, weights: Tensor, allowed: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The probabilities of the tags at the tokens of each sentence, [T, S]."""
        return label_marginals(self.chains(sequences, weights, allowed))

    def log_probs(
        self,
        sequences: Sequences,
        weights: Tensor,
        scores: Sequence[Sequence[float]],
        allowed: Sequence[Tensor] | None = None,
    ) -> list[list[float]]:
        """The logarithms of the probabilities of taggings of each sentence, among the allowed ones, by their scores."""
        batches = self.chains(sequences, weights, allowed)
        log_partitions = (value for batch in batches for value in batch.logsumexp().tolist())
        # By rounding alone, the score of a sure tagging may be above the log-partition function.
        return [[min(score - log_z, 0.0) for score in row] for row, log_z in zip(scores, log_partitions, strict=True)]

    def spans(
        self,
        sequences: Sequences,
        weights: Tensor,
        taggings: Sequence[Sequence[Sequence[str]]],
        allowed: Sequence[Tensor] | None = None,
    ) -> list[list[list[ProbableEntity]]]:
        """The entities of some taggings of each sentence, with their probabilities among the allowed taggings."""
        probabilities = EntityProbabilities(list(map(str, self.tags.names)))
        found: list[list[list[ProbableEntity]]] = []
        for batch in self.chains(sequences, weights, allowed):
            nodes, edges = (part.numpy() for part in batch.marginals())
            found += probabilities.of(taggings[len(found) : len(found) + len(batch)], nodes, edges)
        return found


def default_lam(loss: Loss) -> str:
    """λ that works for most data, as a rule: likelihoods need less of it than hinges."""
    return "3/n" if loss in HINGES else "0.3/n"


def chain_problem(
    loss: Loss,
    sequences: Sequences,
    labels: Tensor,
    sizes: Sizes,
    cost: Cost | Tensor | None = None,
    mask: TransitionMask | None = None,
    transition_scale: float = 1.0,
) -> LinearProblem:
    """The mean of a loss over labelled sequences, linear in weights [(F + S + 2)·S].

    Args:
        loss: its name.
        sequences: n sequences over F features.
        labels: of all tokens, int64 [tokens].
        sizes: F and S.
        cost: task loss, the number of wrong labels if not given; or costs of wrong labels, by token: float64 [tokens].
        mask: which labels may follow each other; all if not given.
        transition_scale: factor of the scores of pairs of labels.

    Raises:
        ValueError: an unknown loss, a cost for one that has none or only the number of wrong labels, a mask or a scale
            of transitions for slack rescaling, or labels that the mask forbids.
    """
    if loss not in get_args(Loss):
        raise ValueError(f"loss must be one of {', '.join(get_args(Loss))}, got {loss!r}")
    if loss in ("crf", "slack") and cost is not None:
        what = "token_weight" if isinstance(cost, Tensor) else "class_weight"
        why = (
            "a likelihood has no costs; sample_weight counts sentences"
            if loss == "crf"
            else "it counts wrong tags alone"
        )
        raise ValueError(f'{what} needs the loss "hinge" or "softmax-margin", got {loss!r}: {why}')
    if loss == "slack" and mask is not None:
        raise ValueError('train_constrained needs the loss "hinge", "crf" or "softmax-margin", got "slack"')
    if loss == "slack" and transition_scale != 1:
        raise ValueError(f'the loss "slack" has no scale of transitions, got transition_scale={transition_scale}')
    if loss == "slack":
        return _slack_rescaled(sequences, labels, sizes)
    cost = None if loss == "crf" else Hamming() if cost is None else cost
    settings = (sizes[1], cost, Max() if loss == "hinge" else Entropy(1.0))
    scores: dict[str, Any] = {"transition_scale": transition_scale, "mask": mask}
    if isinstance(sequences, DenseSequences):
        return DenseChainProblem(sequences.features, labels, sequences.lengths, *settings, **scores)
    assert isinstance(sequences, SparseSequences | MixedSequences)
    return SparseChainProblem(sequences, labels, sizes[0], *settings, **scores)


def _slack_rescaled(sequences: Sequences, labels: Tensor, sizes: Sizes) -> LinearModuleProblem:
    """Inputs are pairs of sequences and labels; examples go by their numbers until they are in a batch."""
    data = list(enumerate(labels.split(sequences.lengths.tolist())))

    def collate(examples: list[tuple[int, Tensor]]) -> tuple[tuple[Sequences, Tensor], Tensor]:
        numbers, tags = zip(*examples, strict=True)
        y = pad_sequence(list(tags), batch_first=True)
        return (sequences.select(torch.tensor(numbers)), y), y

    module = SlackRescaledScores(LinearScore(*sizes))
    return LinearModuleProblem(module, data, RescaledMargin(), collate=collate)
