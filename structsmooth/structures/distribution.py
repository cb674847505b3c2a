"""The Gibbs distribution over the outputs of a structure: what follows from the exp oracle; perturb and max."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import reduce
from itertools import zip_longest
from typing import Any, ClassVar, TypeVar

import torch
from torch import Generator, Tensor

from structsmooth.structures.batch import Batch
from structsmooth.structures.checks import require_count
from structsmooth.structures.noise import gumbel_noise, uniform_numbers

D = TypeVar("D", bound="Distribution")


class Distribution(Batch, ABC):
    """The distribution p(y) = exp(score(y)) / Z over the outputs of a structure.

    All queries but :meth:`perturb_and_max` need the exp oracle, and raise ``NotImplementedError`` without it. What has
    probability 0 does not count: 0 · (−inf) = 0. For an example without outputs, entropy, cross-entropy, divergence
    and expected cost are 0, ``log_prob`` and ``log_count`` -inf, the least risk +inf, and samples 0.
    """

    @abstractmethod
    def replace(self: D, *potentials: Tensor) -> D:
        """The same outputs with other potentials."""

    @abstractmethod
    def cost_augmented(self: D, y: Tensor, cost: Any) -> D:
        """The same outputs with costs added to the potentials."""

    @abstractmethod
    def without_wrong(self: D) -> D:
        """The same outputs, but none for examples with wrong scores."""

    @abstractmethod
    def score(self, y: Tensor) -> Tensor:
        """Scores [B] of outputs ``y``."""

    @abstractmethod
    def max(self) -> tuple[Tensor, Tensor]:
        """Max oracle: the largest scores [B], and outputs that have them."""

    @abstractmethod
    def logsumexp(self) -> Tensor:
        """Exp oracle: the log-partition function [B]."""

    @abstractmethod
    def marginals(self) -> tuple[Tensor, ...]:
        """Probabilities of the parts of outputs, a tensor for each kind of part."""

    @abstractmethod
    def potential_costs(self, costs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Costs of classes as costs of potentials."""

    labels_are_classes: ClassVar[bool] = False
    """Whether each position has one label, and label j of position v is the part [v, j] of the first kind."""

    def class_marginals(self) -> Tensor:
        """Probabilities of the classes of variables.

        Raises:
            TypeError: outputs are no labels, or the space does not say what its positions are.
        """
        found = self.marginals()[0]
        self._require_classes()
        return found

    def _require_classes(self) -> None:
        if not self.labels_are_classes:
            raise TypeError(
                f"{type(self).__name__} does not say what its positions are, so Hamming() and other costs of labels "
                "cannot count wrong ones: write cost=lambda structure, y: costs, a tensor for its first potentials, or "
                "cost=None; or say labels_are_classes = True in the class if y_v = j is the part [v, j] of its first "
                "potentials, and else define as_classes, potential_costs and class_marginals"
            )

    @abstractmethod
    def _no_oracle(self, oracle: str) -> NotImplementedError:
        """The error to raise for an oracle that the structure does not have."""

    def _part_scores(self) -> tuple[Tensor, ...]:
        """Scores of the parts, which broadcast to :meth:`marginals`; anything at padding."""
        return self.potentials

    def require_probabilities(self) -> None:
        """Raise ``NotImplementedError`` unless ``logsumexp`` is the log-partition function, and no bound on it."""

    def _draws(self) -> tuple[int, ...]:
        """Shape of the uniform numbers for one sample of one example."""
        return tuple(self.potentials[0].shape[1:-1])

    def inverse_cdf(self, uniform: Tensor) -> Tensor:
        """Outputs at numbers [B, n, ...], uniform on [0, 1): one for each variable of each output."""
        raise self._no_oracle("sample")

    def sample(self, n: int, generator: Generator | None = None) -> Tensor:
        """Exact, independent samples: int64 [B, n, ...], at padding as from :meth:`max`.

        Each variable is drawn given those drawn before it, by the inverse of its cumulative distribution at a uniform
        number. So a generator in the same state gives the same samples on every backend and device, up to rounding.

        Args:
            n: number of samples of each example, >= 1.
            generator: source of the uniform numbers, on any device; torch's global one if not given.

        Raises:
            NotImplementedError: the structure has no exp oracle; see :meth:`perturb_and_max`.
            TypeError: ``n`` is not an int.
            ValueError: ``n`` is less than 1.

        Example:
            >>> from structsmooth import LinearChain
            >>> chain = LinearChain(torch.tensor([[[9.0, 0.0], [0.0, 9.0]]]), torch.zeros(2, 2))
            >>> chain.sample(3, torch.Generator().manual_seed(0)).tolist()
            [[[0, 1], [0, 1], [0, 1]]]
        """
        n = require_count("n", n)
        first = self.potentials[0]
        with torch.no_grad():
            return self.inverse_cdf(uniform_numbers((len(first), n, *self._draws()), generator, first.device))

    def log_prob(self, y: Tensor) -> Tensor:
        """Log-probability of outputs ``y`` [B, ...]: [B], differentiable; -inf where they are forbidden.

        Example:
            >>> from structsmooth import Candidates
            >>> Candidates(torch.zeros(1, 4)).log_prob(torch.tensor([2])).exp()
            tensor([0.2500])
        """
        return -self.to(torch.float64).surprisal(y).to(self.value_dtype)

    def surprisal(self, y: Tensor) -> Tensor:
        """Minus the log-probability of outputs ``y`` [B, ...]: [B], differentiable; +inf where they are forbidden."""
        self.require_probabilities()
        wide = self.without_wrong().for_differences()
        return not_below_zero(excess(wide.logsumexp(), wide.score(y))).to(self.value_dtype)

    def for_differences(self: D) -> D:
        """The same outputs with scores in float64, in which large sums are subtracted from each other."""
        return self.to(torch.float64)

    @property
    def value_dtype(self) -> torch.dtype:
        """The dtype of values: that of the scores, and at least float32."""
        return reduce(torch.promote_types, [p.dtype for p in self.potentials], torch.float32)

    def log_count(self) -> Tensor:
        """Logarithm of the number of feasible outputs: [B]; without gradient, since it depends on no finite score.

        Example:
            >>> from structsmooth import LinearChain
            >>> never_twice_1 = torch.tensor([[0.0, 0.0], [0.0, -torch.inf]])
            >>> LinearChain(torch.randn(1, 4, 2), never_twice_1).log_count().exp().round()
            tensor([8.])
        """
        self.require_probabilities()
        return self.feasible().logsumexp()

    def entropy(self) -> Tensor:
        """Entropy −Σ p(y) log p(y) in nats: [B], differentiable.

        It is the log-partition function minus the expected score, both in float64, so its error is about 1e-16 times
        their magnitude: where scores are large, the digits that these have before the point are lost.

        Example:
            >>> from structsmooth import Candidates
            >>> Candidates(torch.zeros(1, 4)).entropy().exp()
            tensor([4.])
        """
        self.require_probabilities()
        wide = self.to(torch.float64)
        log_z, expected = wide._log_partition_and_expected_score()
        entropy = not_below_zero(excess(log_z, expected))
        return torch.where(log_z > -torch.inf, entropy, 0.0).to(self.value_dtype)

    def cross_entropy(self: D, other: D) -> Tensor:
        """Cross-entropy −Σ p(y) log q(y) with q that of ``other``: [B], differentiable with respect to both.

        +inf where ``other`` forbids what has a probability above 0 (in floating point). Errors as for :meth:`entropy`.

        Args:
            other: the same outputs with other potentials, as :meth:`replace` returns.

        Raises:
            TypeError: ``other`` is of another class.
            ValueError: its first potentials are of another shape, or, under ``validate_args``, its lengths differ.

        Example:
            >>> from structsmooth import Candidates
            >>> fair, forbidding = Candidates(torch.zeros(1, 2)), Candidates(torch.tensor([[0.0, -torch.inf]]))
            >>> forbidding.cross_entropy(fair), fair.cross_entropy(forbidding)
            (tensor([0.6931]), tensor([inf]))
        """
        return self._divergence(other, relative=False)

    def kl(self: D, other: D) -> Tensor:
        """Kullback-Leibler divergence Σ p(y) log(p(y) / q(y)), with q that of ``other``: [B], differentiable.

        Arguments, errors and infinities are those of :meth:`cross_entropy`.

        Example:
            >>> from structsmooth import Candidates
            >>> fair, biased = Candidates(torch.zeros(1, 2)), Candidates(torch.tensor([[0.75, 0.25]]).log())
            >>> fair.kl(fair), biased.kl(fair)
            (tensor([0.]), tensor([0.1308]))
        """
        return self._divergence(other, relative=True)

    def expected_cost(self, y: Tensor, cost: Any) -> Tensor:
        """Expectation of the cost ℓ(y, Y) over outputs Y of the distribution: [B], differentiable.

        Args:
            y: labels, shaped as an output of :meth:`max`.
            cost: as in :meth:`cost_augmented`.

        Raises:
            TypeError: a cost that :meth:`cost_augmented` refuses.
            ValueError: labels or part costs that :meth:`cost_augmented` refuses.

        Example:
            >>> from structsmooth import Candidates, Hamming
            >>> Candidates(torch.zeros(1, 4)).expected_cost(torch.tensor([2]), Hamming())
            tensor([0.7500])
        """
        # Scores of 0 plus costs; what is forbidden stays so, and has no probability.
        return self._expected(self.feasible().cost_augmented(y, cost)._part_scores())

    def minimum_bayes_risk(self, cost: Callable[[Any, Tensor], Any] | None = None) -> tuple[Tensor, Tensor]:
        """The least expected cost E ℓ(Y, y) of a feasible output y: risks [B], differentiable, and outputs [B, ...].

        Marginals and the max oracle suffice for costs that decompose over the variables, ℓ(y, y') = Σ_v ℓ_v(y_v, y'_v):
        the score of y'_v = j' is minus its risk Σ_j p(Y_v = j) ℓ_v(j, j').

        Args:
            cost: a cost that decomposes over the variables, such as :class:`~structsmooth.WeightedHamming`; it is
                called for labels that are all equal, once for each of the S labels. The Hamming cost if not given.

        Raises:
            TypeError: a cost that is not called, or that gives several tensors of costs.

        Reference:
            Kumar and Byrne (2004).

        Example:
            Each of three outputs has probability 1/3, and (0, 0) differs from the others the least:

            >>> from structsmooth import LinearChain
            >>> never_twice_1 = torch.tensor([[0.0, 0.0], [0.0, -torch.inf]])
            >>> LinearChain(torch.zeros(1, 2, 2), never_twice_1).minimum_bayes_risk()
            (tensor([0.6667]), tensor([[0, 0]]))
        """
        space, marginals = self.feasible(), self.class_marginals()
        risk = marginals.sum(-1, keepdim=True) - marginals
        for j in range(0 if cost is None else marginals.shape[-1]):
            assert cost is not None
            y = torch.full(marginals.shape[:-1], j, dtype=torch.int64, device=marginals.device)
            of_classes = getattr(cost, "of_classes", None)
            costs = cost(space, y) if of_classes is None else of_classes(space, y, marginals.shape[-1])
            if not isinstance(costs, Tensor):
                raise TypeError(f"cost must decompose over variables: a tensor of costs, got {type(costs).__name__}")
            probability = marginals[..., j : j + 1]
            expected = probability * torch.where(probability > 0, costs, 0.0)
            risk = expected if j == 0 else risk + expected
        lowered = self.potential_costs(-risk)
        lowered = lowered if isinstance(lowered, tuple) else (lowered,)
        pairs = zip_longest(space.potentials, lowered)
        values, y = space.replace(*(p if minus is None else p + minus for p, minus in pairs)).max()
        return -values, y

    def perturb_and_max(self, n: int, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Values [B, n] and outputs [B, n, ...] of the max oracle under Gumbel noise; for every structure.

        Independent noise of mean zero is added to each entry of the first potentials. The outputs are samples of the
        perturb-and-MAP distribution, which is near the Gibbs distribution but equal to it only for
        :class:`~structsmooth.Candidates`. Where the first potentials score the labels of variables, the expectation
        of the values is an upper bound on the log-partition function. Values are differentiable; the gradient of their
        mean estimates the perturbed marginals. An example without any allowed output has values -inf and outputs 0.

        Args:
            n: number of samples of each example, >= 1; each takes one call of the max oracle.
            generator: as for :meth:`sample`.

        Raises:
            TypeError: ``n`` is not an int.
            ValueError: ``n`` is less than 1.

        Reference:
            Papandreou and Yuille (2011); Hazan and Jaakkola (2012).

        Example:
            >>> from structsmooth import Matching
            >>> values, y = Matching(torch.zeros(1, 3, 3)).perturb_and_max(200, torch.Generator().manual_seed(0))
            >>> bool(values.mean() > torch.tensor(6.0).log())  # of 3! matchings
            True
        """
        n = require_count("n", n)
        first, *others = self.potentials
        answers = [self.replace(first + gumbel_noise(first, generator)[0], *others).max() for _ in range(n)]
        values, outputs = zip(*answers, strict=True)
        return torch.stack(values, 1), torch.stack(outputs, 1)

    def feasible(self: D) -> D:
        """The same feasible outputs, each with score 0 in at least float32."""
        return self.replace(*(_zeros(p).masked_fill(p == -torch.inf, -torch.inf) for p in self.potentials))

    def _log_partition_and_expected_score(self) -> tuple[Tensor, Tensor]:
        """The log-partition function and the expected score: [B] each, differentiable."""
        return self.logsumexp(), self._expected(self._part_scores())

    def _expected(self, part_scores: Iterable[Tensor]) -> Tensor:
        """Expected sum of the scores of parts: [B]; -inf where a part of positive probability is forbidden."""
        return inner_products(self.marginals(), part_scores)

    def expected_score(self, statistics: tuple[Tensor, ...]) -> Tensor:
        """The expected score ⟨θ, m⟩ of a distribution with statistics m: [B], differentiable.

        -inf where a part of positive probability is forbidden.

        Args:
            statistics: shaped as :meth:`Structure.parts`: marginals of another structure, a mean of parts.

        Raises:
            TypeError: no tuple of tensors.
            ValueError: the wrong number of tensors, or shapes that do not fit the potentials.

        Example:
            >>> from structsmooth import Candidates
            >>> Candidates(torch.tensor([[1.0, 3.0]])).expected_score((torch.tensor([[0.5, 0.5]]),))
            tensor([2.])
        """
        if not isinstance(statistics, tuple) or not all(isinstance(statistic, Tensor) for statistic in statistics):
            raise TypeError("statistics must be a tuple of one tensor for each kind of part, as marginals() returns")
        scores = self._part_scores()
        if len(statistics) != len(scores):
            raise ValueError(f"statistics must have a tensor for each of {len(scores)} kinds, got {len(statistics)}")
        for name, statistic, part_scores in zip(self.potential_names, statistics, scores, strict=False):
            fits = statistic.shape[:1] == (len(self),) and statistic.dim() == part_scores.dim()
            pairs = zip(statistic.shape[1:], part_scores.shape[1:], strict=False)
            if not (fits and all(scored in (1, size) for size, scored in pairs)):
                shape = (len(self), *part_scores.shape[1:])
                raise ValueError(f"statistics of {name} must have shape {shape}, got {tuple(statistic.shape)}")
        return inner_products(statistics, scores)

    def _divergence(self: D, other: D, relative: bool) -> Tensor:
        """Cross-entropy; minus the entropy if ``relative``, without the digits that the difference of both loses."""
        self.require_probabilities()
        _require_outputs_of(self, other)
        dtype, wide, other = self.value_dtype, self.to(torch.float64), other.to(torch.float64)
        pairs = zip(wide._part_scores(), other._part_scores(), strict=True)
        expected = wide._expected([other_score - score if relative else other_score for score, other_score in pairs])
        log_z, other_log_z = wide.logsumexp(), other.logsumexp()
        divergence = not_below_zero(excess(other_log_z - log_z if relative else other_log_z, expected))
        return torch.where(log_z > -torch.inf, divergence, 0.0).to(dtype)


def inner_products(statistics: Iterable[Tensor], part_scores: Iterable[Tensor]) -> Tensor:
    """Sums [B] of the scores of parts times their statistics; -inf where what is forbidden has some."""
    sums = []
    for probability, scores in zip(statistics, part_scores, strict=True):
        used, forbidden = probability != 0, scores == -torch.inf
        terms = probability * torch.where(used & ~forbidden, scores, 0.0)
        terms = torch.where(used & forbidden, -torch.inf, terms)
        sums.append(by_example(terms))
    return torch.stack(sums).sum(0)


def excess(largest: Tensor, others: Tensor) -> Tensor:
    """By how much (smoothed) maxima exceed other scores: [B]; +inf, without gradient, where that is no number."""
    return (largest - others).nan_to_num(torch.inf, torch.inf, torch.inf)


def not_below_zero(difference: Tensor) -> Tensor:
    """A difference that only rounding makes negative, as zero where it is; its gradient is as it was."""
    return difference - difference.detach().clamp_max(0)


def by_example(values: Tensor) -> Tensor:
    """The sum of the values [B, ...] of each example: [B]."""
    return values.flatten(1).sum(1) if values.dim() > 1 else values


def _require_outputs_of(structure: Any, other: Any) -> None:
    if type(other) is not type(structure):
        raise TypeError(f"other must be a {type(structure).__name__}, got {type(other).__name__}")
    shape, expected = (tuple(s.potentials[0].shape) for s in (other, structure))
    if shape != expected:
        raise ValueError(f"other must have first potentials of shape {expected}, got {shape}")
    if structure.validate_args and hasattr(structure, "lengths") and not torch.equal(structure.lengths, other.lengths):
        raise ValueError("other must have the lengths of this structure")


def _zeros(scores: Tensor) -> Tensor:
    return torch.zeros_like(scores, dtype=torch.promote_types(scores.dtype, torch.float32))
