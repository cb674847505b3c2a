"""Calibrated probabilities: how often what is said to have a probability is true, and one number that mends it."""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.structures import Structure

UNCALIBRATED = "a hinge has trained these scores, so that their probabilities are not calibrated"
"""What is to be said of the probabilities of such scores without a fitted temperature."""

# The least and the largest temperature, and halvings of the range of its logarithm.
_LEAST, _LARGEST, _HALVINGS = 1e-3, 1e3, 20


@dataclass(frozen=True)
class Reliability:
    """Predictions by their probability, in bins of equal width from 0 to 1.

    Attributes:
        counts: predictions in each bin, int64 [bins].
        confidence: their mean probability, float64 [bins]; 0 in empty bins.
        accuracy: the share of them that is right, float64 [bins]; 0 in empty bins.

    Reference:
        Naeini, Cooper and Hauskrecht (2015); Guo et al. (2017), "On Calibration of Modern Neural Networks".

    Example:
        >>> found = Reliability.of([0.95, 0.95, 0.55], [True, False, True], bins=2)
        >>> found.counts.tolist(), round(found.error, 4)
        ([0, 3], 0.15)
    """

    counts: Tensor
    confidence: Tensor
    accuracy: Tensor

    @classmethod
    def of(cls, probabilities: Sequence[float], right: Sequence[bool], bins: int = 10) -> "Reliability":
        """The bins of predictions with these probabilities, of which some are right.

        Raises:
            ValueError: numbers of both that differ, or probabilities below 0 or above 1.
        """
        if len(probabilities) != len(right):
            raise ValueError(f"right must be known of {len(probabilities)} predictions, got {len(right)}")
        p = torch.tensor(probabilities, dtype=torch.float64)
        if not bool(((p >= 0) & (p <= 1)).all()):
            raise ValueError("probabilities must be from 0 to 1")
        places = (p * bins).long().clamp_max(bins - 1)
        counts = torch.bincount(places, minlength=bins)
        sums = (torch.zeros(bins).double().index_add(0, places, x) for x in (p, torch.tensor(right).double()))
        return cls(counts, *(total / counts.clamp_min(1) for total in sums))

    @property
    def error(self) -> float:
        """The expected calibration error: the mean distance of probability and share of right ones; 0 of nothing."""
        distances = self.counts * (self.confidence - self.accuracy).abs()
        return float(distances.sum() / self.counts.sum().clamp_min(1))


def tempered(structure: Structure, temperature: float | None) -> Structure:
    """The same outputs with scores in float64 that are divided by a temperature, if there is one."""
    wide = structure.to(torch.float64)
    return wide if temperature is None else wide.replace(*(scores / temperature for scores in wide.potentials))


def fitted_temperature(known: Iterable[tuple[Structure, Tensor]]) -> float:
    """The temperature T that makes known outputs most probable if p(y) is proportional to exp(score(y) / T).

    The log-likelihood is concave in 1/T, so that halving a range finds its maximum. T is from 0.001 to 1000; a warning
    tells if it is one of these, such as the least one, where all known outputs are the best.

    Args:
        known: batches of structures with an exp oracle, and their outputs [B, ...]. Those that a structure does not
            have, of score -inf, are left out.

    Raises:
        ValueError: no output that its structure has.

    Example:
        >>> from structsmooth import Candidates
        >>> sure = Candidates(torch.tensor([[4.0, 0.0]] * 4))
        >>> round(fitted_temperature([(sure, torch.tensor([0, 0, 0, 1]))]), 2)
        3.64

    Reference:
        Guo et al. (2017), for classifiers.
    """
    batches = []
    for structure, y in known:
        structure = structure.detach().to(torch.float64)
        score = structure.score(y)
        possible = (score > -torch.inf).nonzero().flatten()
        if len(possible):
            batches.append((structure[possible], score[possible]))
    if not batches:
        raise ValueError("a temperature needs labelled examples whose labels the model can predict")
    least, largest = low, high = math.log(_LEAST), math.log(_LARGEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        excess = sum(_expected(structure, math.exp(middle)) - float(score.sum()) for structure, score in batches)
        # At low temperatures the best outputs are too probable, which score more than known ones.
        low, high = (middle, high) if excess > 0 else (low, middle)
    if low == least:
        _warn_of_limit(_LEAST, "as high as the best outputs, so that no temperature is low enough")
    if high == largest:
        _warn_of_limit(_LARGEST, "no higher than other outputs, so that no temperature is high enough")
    return math.exp((low + high) / 2)


def _warn_of_limit(temperature: float, reason: str) -> None:
    text = f"the labels score {reason}: it is {temperature:g}; calibrate on more examples"
    warnings.warn(text, stacklevel=3)


def _expected(structure: Structure, temperature: float) -> float:
    """The sum over examples of the expected score under the distribution of a temperature."""
    with torch.no_grad():
        return float(structure.expected_score(tempered(structure, temperature).marginals()).sum())
