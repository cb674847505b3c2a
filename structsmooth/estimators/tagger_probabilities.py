"""How probable taggings, tags and entities are under a fitted tagger."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from structsmooth.calibration import UNCALIBRATED, fitted_temperature
from structsmooth.estimators.matrices import check_columns
from structsmooth.estimators.outputs import Outputs
from structsmooth.estimators.sentences import as_sentences, check_same_lengths, check_sentences
from structsmooth.estimators.tagger_weights import TaggerWeights
from structsmooth.estimators.tokens import length
from structsmooth.sequences import Sequences
from structsmooth.text.probabilities import ProbableEntity
from structsmooth.text.tagger import Loss, Tag, Tagger
from structsmooth.uncertainty import DEFAULT, Rule, joined, uncertainty

T = TypeVar("T")
C = TypeVar("C", bound="TaggerProbabilities")


class TaggerProbabilities(TaggerWeights):
    """The Gibbs distribution over taggings: log-probabilities are scores divided by a temperature, up to a constant.

    A likelihood trains them for the temperature 1. A hinge trains no probabilities: those of its scores come with a
    warning until :meth:`calibrate` has fitted a temperature.

    Attributes:
        temperature_: 1 after training by a likelihood, the fitted one after :meth:`calibrate`, else ``None``.
    """

    loss: Loss
    temperature_: float | None = None

    def calibrate(self: C, X: Sequence[Any], y: Sequence[Sequence[Tag]]) -> C:
        """Fit the temperature to tagged sentences that did not train the weights, by their likelihood."""
        check_is_fitted(self, "weights_")
        sentences, tags, _ = check_sentences(X, y)
        check_columns(self, sentences, reset=False)
        sequences, weights = self.features_.scored(sentences, self._weights, len(self.tags_.names))
        known = self._tagger.labelled_chains(sequences, weights, self.tags_.states(tags))
        self.temperature_ = fitted_temperature(known)
        return self

    def predict_marginals(self, X: Sequence[Any]) -> list[list[dict[Tag, float]]]:
        """The probability of every tag at each token."""

        def marginals(sequences: Sequences, weights: Tensor) -> list[list[dict[Tag, float]]]:
            found = self._tagger.marginals(sequences, weights)
            return [[dict(zip(self.tags_.names, row, strict=True)) for row in rows.tolist()] for rows in found]

        return self._over(X, marginals, list, self._checked_temperature())

    def predict_spans(self, X: Sequence[Any]) -> list[list[ProbableEntity]]:
        """The entities of the best tags of each sentence: ``start`` and ``end`` of tokens, ``label``, ``probability``.

        The probability that an entity of this label and these ends is in the output is exact.

        Raises:
            ValueError: tags that are not those of entities.
        """
        check_is_fitted(self, "weights_")
        if self.scheme_ is None:
            raise ValueError("predict_spans needs tags of entities, such as B-PER, I-PER and O")

        def spans(sequences: Sequences, weights: Tensor) -> list[list[ProbableEntity]]:
            best = [[ranked[0][1]] for ranked in self._tagger.best(sequences, weights, 1)]
            return [found for (found,) in self._tagger.spans(sequences, weights, best)]

        return self._over(X, spans, list, self._checked_temperature())

    def uncertainty(self, X: Sequence[Any], by: Rule = DEFAULT) -> NDArray[np.float64]:
        """How unsure the tagger is about each sentence, the larger the less sure: [n].

        Args:
            X: sentences.
            by: ``"length-normalized"`` for the exact entropy of all taggings in nats, divided by the number of tokens;
                ``"entropy"`` for all of it; ``"margin"`` for the difference of the log-probabilities of the second-best
                tagging and the best one, -inf where there is only one.

        Raises:
            ValueError: an unknown rule.

        Example:
            Which sentences to annotate next::

                order = tagger.uncertainty(pool).argsort()[::-1]
        """

        def values(sequences: Sequences, weights: Tensor) -> list[float]:
            found = [uncertainty(chain, by) for chain in self._tagger.chains(sequences, weights)]
            numbers, lengths = range(len(sequences.lengths)), sequences.lengths
            return cast(list[float], joined([(numbers, torch.cat(found))], lengths, by).tolist())

        sure = -np.inf if by == "margin" else 0.0
        return np.array(self._over(X, values, lambda: sure, self._checked_temperature()))

    def log_prob(self, X: Sequence[Any], y: Sequence[Sequence[Tag]]) -> NDArray[np.float64]:
        """The logarithm of the probability of a whole tagging of each sentence, [n]; -inf if it is not well-formed.

        Raises:
            ValueError: tags that training sentences did not have, or other numbers of tags than of tokens.
        """
        sentences, tags = check_same_lengths(X, y)
        states = self.tags_.states(tags) if hasattr(self, "tags_") else None

        def log_probs(sequences: Sequences, weights: Tensor) -> list[float]:
            assert states is not None
            batches = self._tagger.labelled_chains(sequences, weights, states)
            return [value for chain, y_batch in batches for value in chain.log_prob(y_batch).tolist()]

        return np.array(self._over(sentences, log_probs, float, self._checked_temperature()))

    def _forget_temperature(self) -> None:
        """What is known of the temperature of new weights: likelihoods train them for 1."""
        self.temperature_ = 1.0 if self.loss == "crf" else None

    @property
    def _tagger(self) -> Tagger:
        return Tagger(self.tags_, self.features_.size)

    def _checked_temperature(self) -> float:
        """The temperature; 1, with a warning, if there is none."""
        check_is_fitted(self, "weights_")
        if self.temperature_ is None:
            warnings.warn(f"{UNCALIBRATED}: see calibrate(X_dev, y_dev), or take loss='crf'", stacklevel=3)
        return self.temperature_ or 1.0

    def _over(
        self,
        X: Sequence[Any],
        of: Callable[[Sequences, Tensor], list[T]],
        empty: Callable[[], T],
        temperature: float = 1.0,
    ) -> list[T]:
        """What a function gives for the sequences of sentences and weights; ``empty()`` for empty ones."""
        weights, sentences = self._weights / temperature, as_sentences(X)
        full = [sentence for sentence in sentences if length(sentence)]
        check_columns(self, full, reset=False)
        if not full:
            return Outputs(empty() for _ in sentences)
        found = iter(of(*self.features_.scored(full, weights, len(self.tags_.names))))
        return Outputs(next(found) if length(sentence) else empty() for sentence in sentences)
