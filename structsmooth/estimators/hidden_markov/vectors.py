"""Hidden Markov models of vectors: of normal distributions, of mixtures of these, and of counts."""

import warnings
from collections.abc import Container
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils.validation import check_array
from torch import Tensor

from structsmooth.estimators.hidden_markov.base import HiddenMarkovEstimator, Place, log_rates, probabilities, unchanged
from structsmooth.models import HMM, GaussianEmissions, GaussianMixtureEmissions, PoissonEmissions
from structsmooth.models.emissions import Emissions


class HiddenMarkovVectors(HiddenMarkovEstimator):
    """What hidden Markov models of vectors have in common: rows with NaN where a number is missing."""

    def _checked(self, X: ArrayLike, fitting: bool = False) -> NDArray[Any]:
        x: NDArray[Any] = check_array(X, dtype=np.float64, ensure_all_finite="allow-nan")
        name = self._attributes.get("m", "lambdas_")
        if not fitting and x.shape[1] != np.shape(getattr(self, name, x))[-1]:
            raise ValueError(
                f"X must have {np.shape(getattr(self, name))[-1]} columns, as {name} has, got {x.shape[1]}"
            )
        return x

    def _centres(self, x: NDArray[Any], random: np.random.RandomState) -> KMeans:
        """Clusters of rows without NaN, one for each state."""
        known = x[~np.isnan(x).any(1)]
        if len(known) < self.n_components:
            raise ValueError(f"X must have {self.n_components} rows without NaN, for first means, got {len(known)}")
        return KMeans(self.n_components, n_init=1, random_state=random).fit(known)


class HiddenMarkovGaussians(HiddenMarkovVectors):
    """What hidden Markov models with normal distributions have in common: covariances and their least values."""

    covariance_type: Literal["diag", "full"]
    min_covar: float
    means_: NDArray[np.float64]
    _least: NDArray[np.float64] | float = 1.0

    def _start_emissions(self, x: NDArray[Any], random: np.random.RandomState, wanted: Container[str]) -> None:
        if self.min_covar < 0:
            raise ValueError(f"min_covar must be >= 0, got {self.min_covar}")
        if "m" in wanted:
            self.means_ = self._first_means(x, random)
        total = np.nanvar(x, 0)
        self._least = max(self.min_covar, np.finfo(float).eps) * self._scale(x, total)
        if "c" in wanted:
            variances = np.maximum(total, self._least)
            is_full = self.covariance_type == "full"
            shape = np.shape(self.means_)[:-1]
            first = np.tile(np.diag(variances) if is_full else variances, (*shape, *([1] * (1 + is_full))))
            setattr(self, self._attributes["c"], first)

    def _first_means(self, x: NDArray[Any], random: np.random.RandomState) -> NDArray[np.float64]:
        """Means of clusters, one for each state."""
        return np.asarray(self._centres(x, random).cluster_centers_)

    def _scale(self, x: NDArray[Any], total: NDArray[np.float64]) -> NDArray[np.float64]:
        """The variance of each column about the nearest first means; about its mean, ``total``, if that is none."""
        known, means = x[~np.isnan(x).any(1)], np.reshape(self.means_, (-1, x.shape[1]))
        rounding, within = (1e-13 * np.nanmax(np.abs(x), 0)) ** 2, total
        if len(known):
            within = np.minimum(((known - means[pairwise_distances_argmin(known, means)]) ** 2).mean(0), total)
        return np.select([within > rounding, total > rounding], [within, total], 1.0)

    def _places(self, model: HMM) -> dict[str, Place]:
        emissions: Any = model.emissions

        def inward(_: str, covariances: Tensor) -> Tensor:
            scales: Tensor = emissions.scales(covariances)
            return scales

        return super()._places(model) | {
            "m": Place(emissions.means, unchanged, Tensor.clone),
            "c": Place(emissions.scale, inward, lambda _: emissions.covariances.detach()),
        }

    def _judge(self, emissions: Any) -> None:
        states = emissions.at_least.view(self.n_components, -1).any(1).nonzero().flatten().tolist()
        if states and "c" in self.params:
            warnings.warn(
                f"min_covar = {self.min_covar} times the variance of X holds variances of states {states} up: they may "
                "have been fitted to a few equal rows. Take fewer states, or another min_covar",
                stacklevel=3,
            )


@dataclass(eq=False, repr=False)
class GaussianHMM(HiddenMarkovGaussians):
    """A hidden Markov model of vectors, normally distributed in each state, with the words of hmmlearn.

    X has a row of F numbers for each observation of all sequences, one behind the other; ``lengths`` says how many rows
    each sequence has. NaN stands for what is missing, which is integrated out: any number with diagonal covariances,
    whole rows with full ones. First means, by k-means, need as many rows without NaN as states. Log-likelihoods and
    posteriors are those of hmmlearn; ``fit`` maximizes the likelihood alone, so variances have a least value in place
    of a prior, and it never falls.

    Args:
        n_components: number S of states.
        covariance_type: ``"diag"`` or ``"full"``.
        min_covar: least variance, as a share of the variance of X about the nearest first means, for each column, so
            that units do not matter; full covariances are at least the diagonal matrix of these. ``fit`` warns where it
            binds.
        algorithm: of :meth:`decode`: ``"viterbi"`` or ``"map"``.
        training: ``"em"``, or ``"viterbi"`` to take the best paths for the states.
        n_iter: limit on steps.
        tol: the least gain in log-likelihood for which to go on.
        verbose: whether to print log-likelihoods to standard error.
        params: which parameters ``fit`` estimates: ``s`` start, ``t`` transitions, ``m`` means and ``c`` covariances.
            Letters of other models are ignored.
        init_params: which of them ``fit`` sets first, means by k-means; it begins with the attributes for others, if
            they are set.
        implementation: ``"log"`` or ``"scaling"``, as in hmmlearn: here both are the same pass, scaled, with logarithms
            where it underflows.
        random_state: of first parameters and samples.

    Attributes:
        startprob_: [S].
        transmat_: [S, S].
        means_: [S, F].
        covars_: [S, F, F]; may be set as [S, F] if diagonal, too.
        monitor_: :class:`~structsmooth.estimators.hidden_markov.ConvergenceMonitor` of the last ``fit``.
        history_: the log-likelihood before each step.
        n_iter_: number of steps.

    Raises:
        ValueError: wrong shapes, lengths or settings.

    Example:
        >>> import numpy as np
        >>> X = np.concatenate([np.random.RandomState(0).normal(m, 1, (50, 1)) for m in (0, 5, 0)])
        >>> model = GaussianHMM(n_components=2, random_state=0).fit(X)
        >>> model.means_.ravel().round().tolist() in ([0.0, 5.0], [5.0, 0.0])
        True
        >>> (np.diff(model.predict(X)).nonzero()[0] + 1).tolist()
        [50, 100]

        One more observation, with what is known of the state before it:

        >>> state = model.filter_proba(X)[-1]
        >>> float(model.filter_proba([[0.1]], after=state).round(2).max())
        1.0
    """

    covariance_type: Literal["diag", "full"] = "diag"
    min_covar: float = 1e-6
    _attributes = MappingProxyType({"s": "startprob_", "t": "transmat_", "m": "means_", "c": "_covars"})

    @property
    def covars_(self) -> NDArray[np.float64]:
        """Covariances [S, F, F]."""
        own = np.asarray(self._covars)
        return np.asarray(own[..., None] * np.eye(own.shape[-1])) if self.covariance_type == "diag" else own

    @covars_.setter
    def covars_(self, covariances: ArrayLike) -> None:
        own = np.asarray(covariances, dtype=np.float64)
        if self.covariance_type == "diag" and own.ndim == 3:
            diagonal = own.diagonal(axis1=1, axis2=2)
            if (own != diagonal[..., None] * np.eye(own.shape[-1])).any():
                raise ValueError('covars_ must be diagonal with covariance_type="diag", got covariances of two columns')
            own = diagonal
        self._covars = own

    def _emissions(self) -> Emissions:
        features = np.shape(self.means_)[-1]
        return GaussianEmissions(self.n_components, features, self.covariance_type, torch.as_tensor(self._least))


@dataclass(eq=False, repr=False)
class GMMHMM(HiddenMarkovGaussians):
    """A hidden Markov model of vectors, with a mixture of normal distributions in each state.

    It is as :class:`GaussianHMM`, with K normal distributions in a state.

    Further arguments: as for :class:`GaussianHMM`.

    Args:
        n_components: number S of states.
        n_mix: number K of normal distributions in each.
        min_covar: as for :class:`GaussianHMM`.
        covariance_type: ``"diag"`` or ``"full"``.
        params: which parameters ``fit`` estimates: ``s`` start, ``t`` transitions, ``m`` means, ``c`` covariances and
            ``w`` weights.
        init_params: which of them ``fit`` sets first, means by k-means within k-means.

    Attributes:
        weights_: [S, K].
        means_: [S, K, F].
        covars_: [S, K, F], or [S, K, F, F].

    Raises:
        ValueError: wrong shapes, lengths or settings.

    Example:
        >>> import numpy as np
        >>> X = np.concatenate([np.random.RandomState(0).normal(m, 1, (50, 1)) for m in (0, 9, 50, 0, 9)])
        >>> model = GMMHMM(n_components=2, n_mix=2, random_state=0).fit(X)
        >>> (np.diff(model.predict(X)).nonzero()[0] + 1).tolist()
        [100, 150]
    """

    n_mix: int = 1
    min_covar: float = 1e-6
    _: KW_ONLY
    covariance_type: Literal["diag", "full"] = "diag"
    _attributes = MappingProxyType(
        {"s": "startprob_", "t": "transmat_", "w": "weights_", "m": "means_", "c": "covars_"}
    )

    def _start_emissions(self, x: NDArray[Any], random: np.random.RandomState, wanted: Container[str]) -> None:
        if "w" in wanted:
            self.weights_ = np.full((self.n_components, self.n_mix), 1 / self.n_mix)
        super()._start_emissions(x, random, wanted)

    def _first_means(self, x: NDArray[Any], random: np.random.RandomState) -> NDArray[np.float64]:
        found, known, means = self._centres(x, random), x[~np.isnan(x).any(1)], []
        for state in range(self.n_components):
            rows = known[found.labels_ == state]
            rows = rows if len(np.unique(rows, axis=0)) >= self.n_mix else known
            means.append(KMeans(self.n_mix, n_init=1, random_state=random).fit(rows).cluster_centers_)
        return np.stack(means)

    def _emissions(self) -> Emissions:
        sizes = self.n_components, self.n_mix, np.shape(self.means_)[-1]
        return GaussianMixtureEmissions(*sizes, self.covariance_type, torch.as_tensor(self._least))

    def _places(self, model: HMM) -> dict[str, Place]:
        return super()._places(model) | {"w": probabilities(model.get_parameter("emissions.logits"))}


@dataclass(eq=False, repr=False)
class PoissonHMM(HiddenMarkovVectors):
    """A hidden Markov model of counts, with Poisson distributions in each state, with the words of hmmlearn.

    X has a row of F counts for each observation; NaN stands for a missing one.

    Further arguments: as for :class:`GaussianHMM`.

    Args:
        n_components: number S of states.
        params: which parameters ``fit`` estimates: ``s`` start, ``t`` transitions, ``l`` rates.
        init_params: which of them ``fit`` sets first, rates by k-means.

    Attributes:
        lambdas_: rates [S, F].

    Raises:
        ValueError: wrong shapes, lengths or settings, or numbers that are no counts.

    Example:
        >>> import numpy as np
        >>> X = np.concatenate([np.random.RandomState(0).poisson(rate, (50, 1)) for rate in (2, 20, 2)])
        >>> model = PoissonHMM(n_components=2, random_state=0).fit(X)
        >>> (np.diff(model.predict(X)).nonzero()[0] + 1).tolist()
        [50, 100]
    """

    _attributes = MappingProxyType({"s": "startprob_", "t": "transmat_", "l": "lambdas_"})

    def _checked(self, X: ArrayLike, fitting: bool = False) -> NDArray[Any]:
        x = super()._checked(X, fitting)
        wrong = x[(x < 0) | (x != np.floor(x)) & ~np.isnan(x)]
        if wrong.size:
            raise ValueError(f"X must hold counts: integers >= 0, or NaN where one is missing; got {wrong[0]}")
        return x

    def sample(
        self, n_samples: int = 1, random_state: Any = None, currstate: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Counts [n_samples, F], int64, and states, as for the other models."""
        x, states = super().sample(n_samples, random_state, currstate)
        return x.astype(np.int64), states

    def _start_emissions(self, x: NDArray[Any], random: np.random.RandomState, wanted: Container[str]) -> None:
        if "l" in wanted:  # a rate of zero would stay so
            self.lambdas_ = np.maximum(self._centres(x, random).cluster_centers_, 0.1 * np.nanmean(x, 0))

    def _emissions(self) -> Emissions:
        return PoissonEmissions(self.n_components, np.shape(self.lambdas_)[-1])

    def _places(self, model: HMM) -> dict[str, Place]:
        return super()._places(model) | {"l": Place(model.get_parameter("emissions.logs"), log_rates, Tensor.exp)}
