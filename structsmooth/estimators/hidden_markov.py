"""Hidden Markov models with the words of hmmlearn."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from structsmooth.estimators.matrices import as_tensor
from structsmooth.models import HMM, CategoricalEmissions, GaussianEmissions
from structsmooth.models.chains import batches_of
from structsmooth.models.hidden_markov import Emissions
from structsmooth.structures import HiddenMarkov
from structsmooth.structures.checks import require_count

H = TypeVar("H", bound="HiddenMarkovEstimator")


@dataclass(kw_only=True, eq=False, repr=False)
class HiddenMarkovParameters(BaseEstimator):
    """The parameters of all hidden Markov models."""

    n_components: int = 1
    algorithm: Literal["viterbi", "map"] = "viterbi"
    training: Literal["em", "viterbi"] = "em"
    n_iter: int = 100
    tol: float = 1e-2
    init_params: str = "stmce"
    random_state: Any = None


class HiddenMarkovEstimator(HiddenMarkovParameters):
    """What hidden Markov models of all emissions have in common.

    X has a row for each observation of all sequences, one behind the other, and ``lengths`` says how many rows each
    sequence has; without ``lengths``, X is one sequence. As in hmmlearn, parameters may also be set as attributes
    (``startprob_``, ``transmat_`` and those of emissions), without ``fit`` or for it to begin with.
    """

    startprob_: NDArray[np.float64]
    transmat_: NDArray[np.float64]
    means_: NDArray[np.float64]
    covars_: NDArray[np.float64]
    emissionprob_: NDArray[np.float64]
    history_: list[float]
    n_iter_: int
    n_features_in_: int
    _first_set: ClassVar[Mapping[str, str]]  # parameters by their letters in init_params

    def fit(self: H, X: ArrayLike, lengths: ArrayLike | None = None) -> H:
        """Estimate the parameters of observations X [n, F] of sequences with ``lengths``, by steps of Baum and Welch.

        Raises:
            ValueError: lengths that do not sum to n, fewer observations than states, missing ones aside, or parameters
                that ``init_params`` does not name and that are not set either.
        """
        if self.training not in ("em", "viterbi"):
            raise ValueError(f'training must be "em" or "viterbi", got {self.training!r}')
        if self.algorithm not in ("viterbi", "map"):
            raise ValueError(f'algorithm must be "viterbi" or "map", got {self.algorithm!r}')
        require_count("n_components", self.n_components)
        x = self._checked(X, fitting=True)
        known = int((~(np.isnan(x) if x.dtype.kind == "f" else x < 0)).any(1).sum())
        if known < self.n_components:
            raise ValueError(f"X must have an observation for each of {self.n_components} states, got {known}")
        self.n_features_in_ = x.shape[1]
        batches = list(self._batches(x, lengths))
        self._initialize(x)
        model, self.history_ = self._model(), []
        for _ in range(self.n_iter):
            self.history_.append(model.em_step(batches, viterbi=self.training == "viterbi"))
            if len(self.history_) > 1 and self.history_[-1] - self.history_[-2] < self.tol:
                break
        else:
            message = f"{type(self).__name__}: {self.n_iter} steps do not suffice"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        self.n_iter_ = len(self.history_)
        with torch.no_grad():
            self.startprob_ = model.start.softmax(0).numpy()
            self.transmat_ = model.transition.softmax(1).numpy()
            self._keep(model.emissions)
        return self

    def score(self, X: ArrayLike, lengths: ArrayLike | None = None) -> float:
        """The log-likelihood of all sequences."""
        return sum(float(structure.logsumexp().sum()) for structure in self._structures(X, lengths))

    def score_samples(self, X: ArrayLike, lengths: ArrayLike | None = None) -> tuple[float, NDArray[np.float64]]:
        """The log-likelihood, and the probabilities [n, S] of states given all observations of their sequence."""
        value, rows = 0.0, []
        for structure in self._structures(X, lengths):
            with torch.enable_grad():  # posteriors are the gradient, of the same pass
                scores = structure.unary.requires_grad_()
                total = structure.replace(scores, structure.transition).logsumexp().sum()
                (posteriors,) = torch.autograd.grad(total, scores)
            value += float(total.detach())
            rows.append(posteriors[structure.mask].numpy())
        return value, np.concatenate(rows)

    def predict_proba(self, X: ArrayLike, lengths: ArrayLike | None = None) -> NDArray[np.float64]:
        """The probabilities [n, S] of states given all observations of their sequence."""
        return self.score_samples(X, lengths)[1]

    def decode(
        self, X: ArrayLike, lengths: ArrayLike | None = None, algorithm: str | None = None
    ) -> tuple[float, NDArray[np.int64]]:
        """States [n] of all sequences, and their value.

        Args:
            X: observations [n, F].
            lengths: of the sequences.
            algorithm: ``"viterbi"`` for the sequences that are most probable as a whole, with their joint
                log-probability; ``"map"`` for the most probable state of each observation, with the sum of their
                probabilities. That of the estimator if not given.
        """
        algorithm = self.algorithm if algorithm is None else algorithm
        if algorithm not in ("viterbi", "map"):
            raise ValueError(f'algorithm must be "viterbi" or "map", got {algorithm!r}')
        if algorithm == "map":
            probabilities = self.predict_proba(X, lengths)
            return float(probabilities.max(1).sum()), probabilities.argmax(1)
        found = [(structure.mask, *structure.max()) for structure in self._structures(X, lengths)]
        states = [y[mask].numpy() for mask, _, y in found]
        return sum(float(values.sum()) for _, values, _ in found), np.concatenate(states)

    def predict(self, X: ArrayLike, lengths: ArrayLike | None = None) -> NDArray[np.int64]:
        """States [n], as :meth:`decode` finds them."""
        return self.decode(X, lengths)[1]

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Observations [n_samples, F] of one sequence from the model, and its states."""
        self._model()  # checks parameters that were set by hand
        random = check_random_state(self.random_state if random_state is None else random_state)
        first, after = np.cumsum(self.startprob_), np.cumsum(self.transmat_, 1)
        states = np.empty(n_samples, np.int64)
        for t, uniform in enumerate(random.uniform(size=n_samples)):
            row = after[states[t - 1]] if t else first
            states[t] = np.searchsorted(row, uniform * row[-1], side="right")
        return self._drawn(states, random), states

    @abstractmethod
    def _checked(self, X: ArrayLike, fitting: bool = False) -> NDArray[Any]:
        """Observations [n, F] as an array."""

    @abstractmethod
    def _observed(self, x: NDArray[Any]) -> Tensor:
        """Observations as a tensor for emissions."""

    @abstractmethod
    def _start_emissions(self, x: NDArray[Any], random: np.random.RandomState) -> None:
        """Set the first parameters of emissions."""

    @abstractmethod
    def _emissions(self) -> Emissions:
        """Emissions with the parameters of the estimator."""

    @abstractmethod
    def _keep(self, emissions: Any) -> None:
        """Set the parameters of the estimator to those of emissions."""

    @abstractmethod
    def _drawn(self, states: NDArray[np.int64], random: np.random.RandomState) -> NDArray[Any]:
        """Random observations [n, F] in given states [n]."""

    def _initialize(self, x: NDArray[Any]) -> None:
        random, states = check_random_state(self.random_state), self.n_components
        if "s" in self.init_params:
            self.startprob_ = np.full(states, 1 / states)
        if "t" in self.init_params:
            self.transmat_ = np.full((states, states), 1 / states)
        self._start_emissions(x, random)
        missing = [f"{name} ({letter!r})" for letter, name in self._first_set.items() if not hasattr(self, name)]
        if missing:
            raise ValueError(
                f"init_params = {self.init_params!r} leaves parameters to begin with to be set, and there is no "
                f"{', '.join(missing)}: set these attributes, or add their letters"
            )

    def _model(self) -> HMM:
        check_is_fitted(self, list(self._first_set.values()))
        model = HMM(self._emissions())
        with torch.no_grad():
            model.start.copy_(_log("startprob_", self.startprob_, (self.n_components,)))
            model.transition.copy_(_log("transmat_", self.transmat_, (self.n_components, self.n_components)))
        return model

    def _batches(self, x: NDArray[Any], lengths: ArrayLike | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Padded batches of sequences, with their lengths."""
        sizes = np.asarray([len(x)] if lengths is None else lengths)
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 1).any() or sizes.sum() != len(x):
            raise ValueError(f"lengths must be integers >= 1 that sum to the {len(x)} rows of X, got {sizes.tolist()}")
        sequences = self._observed(x).split(sizes.tolist())
        for indices in batches_of(sizes.tolist()):
            yield pad_sequence([sequences[i] for i in indices], batch_first=True), torch.tensor(sizes[indices])

    @torch.no_grad()
    def _structures(self, X: ArrayLike, lengths: ArrayLike | None) -> Iterator[HiddenMarkov]:
        model, x = self._model(), self._checked(X)
        for batch in self._batches(x, lengths):
            yield model(batch)


@dataclass(kw_only=True, eq=False, repr=False)
class GaussianHMM(HiddenMarkovEstimator):
    """A hidden Markov model of vectors, normally distributed in each state, with the words of hmmlearn.

    X has a row of F numbers for each observation of all sequences, one behind the other; ``lengths`` says how many rows
    each sequence has. NaN stands for what is missing, which is integrated out: any number with diagonal covariances,
    whole rows with full ones. First means, by k-means, need as many rows without NaN as states. Log-likelihoods and
    posteriors are those of hmmlearn; ``fit`` maximizes the likelihood alone, so variances have a least value in place
    of a prior, and it never falls.

    Args:
        n_components: number S of states.
        covariance_type: ``"diag"`` or ``"full"``.
        min_covar: least variance; with full covariances, least eigenvalue.
        algorithm: of :meth:`decode`: ``"viterbi"`` or ``"map"``.
        training: ``"em"``, or ``"viterbi"`` to take the best paths for the states.
        n_iter: limit on steps.
        tol: the least gain in log-likelihood for which to go on.
        init_params: which parameters ``fit`` sets first: ``s`` start, ``t`` transitions, ``m`` means (by k-means) and
            ``c`` covariances. It begins with the attributes for others.
        random_state: of first parameters and samples.

    Attributes:
        startprob_: [S].
        transmat_: [S, S].
        means_: [S, F].
        covars_: [S, F], or [S, F, F].
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
    """

    covariance_type: Literal["diag", "full"] = "diag"
    min_covar: float = 1e-3
    _first_set = MappingProxyType({"s": "startprob_", "t": "transmat_", "m": "means_", "c": "covars_"})

    def _checked(self, X: ArrayLike, fitting: bool = False) -> NDArray[Any]:
        x: NDArray[Any] = check_array(X, dtype=np.float64, ensure_all_finite="allow-nan")
        if not fitting and x.shape[1] != np.shape(getattr(self, "means_", x))[1]:
            raise ValueError(f"X must have {np.shape(self.means_)[1]} columns, as means_ has, got {x.shape[1]}")
        return x

    def _observed(self, x: NDArray[Any]) -> Tensor:
        return as_tensor(x)

    def _start_emissions(self, x: NDArray[Any], random: np.random.RandomState) -> None:
        known = x[~np.isnan(x).any(1)]
        if "m" in self.init_params:
            if len(known) < self.n_components:
                raise ValueError(f"X must have {self.n_components} rows without NaN, for first means, got {len(known)}")
            self.means_ = KMeans(self.n_components, n_init=1, random_state=random).fit(known).cluster_centers_
        if "c" in self.init_params:
            variances = np.nanvar(x, 0).clip(self.min_covar)
            shape = (self.n_components, *([1] * (2 if self.covariance_type == "full" else 1)))
            self.covars_ = np.tile(np.diag(variances) if self.covariance_type == "full" else variances, shape)

    def _emissions(self) -> Emissions:
        states, features = self.n_components, np.shape(self.means_)[-1]
        emissions = GaussianEmissions(states, features, self.covariance_type, self.min_covar)
        shape = (states, features) if self.covariance_type == "diag" else (states, features, features)
        with torch.no_grad():
            emissions.means.copy_(_parameters("means_", self.means_, (states, features)))
            emissions.set_covariances(_parameters("covars_", self.covars_, shape))
        return emissions

    def _keep(self, emissions: Any) -> None:
        self.means_, self.covars_ = emissions.means.detach().numpy(), emissions.covariances.numpy()

    def _drawn(self, states: NDArray[np.int64], random: np.random.RandomState) -> NDArray[Any]:
        emissions: Any = self._emissions()
        noise = random.standard_normal((len(states), emissions.means.shape[1]))
        if self.covariance_type == "diag":
            away = np.sqrt(self.covars_)[states] * noise
        else:
            away = np.einsum("nfg,ng->nf", emissions.factors.detach().numpy()[states], noise)
        return np.asarray(np.asarray(self.means_)[states] + away)


@dataclass(kw_only=True, eq=False, repr=False)
class CategoricalHMM(HiddenMarkovEstimator):
    """A hidden Markov model of symbols, with the words of hmmlearn.

    X has a column of symbols 0 to V - 1, a row for each observation of all sequences; -1 stands for a missing one. A
    sequence of which all are missing says nothing: its likelihood is 1 whatever the parameters.

    Args:
        n_components: number S of states.
        n_features: number V of symbols; one more than the largest in ``fit`` if not given.
        algorithm: as for :class:`GaussianHMM`.
        training: as for :class:`GaussianHMM`.
        n_iter: limit on steps.
        tol: the least gain in log-likelihood for which to go on.
        init_params: which parameters ``fit`` sets first: ``s`` start, ``t`` transitions, ``e`` emissions (random).
        random_state: of first parameters and samples.

    Attributes:
        startprob_: [S].
        transmat_: [S, S].
        emissionprob_: [S, V].
        history_: the log-likelihood before each step.
        n_iter_: number of steps.

    Raises:
        ValueError: wrong shapes, lengths, symbols or settings.

    Example:
        >>> X = np.array([[0], [0], [0], [1], [1], [1], [0], [0], [0]])
        >>> model = CategoricalHMM(n_components=2, random_state=0).fit(X)
        >>> np.diff(model.predict(X)).nonzero()[0].tolist()
        [2, 5]
    """

    n_features: int | None = None
    _first_set = MappingProxyType({"s": "startprob_", "t": "transmat_", "e": "emissionprob_"})

    def _checked(self, X: ArrayLike, fitting: bool = False) -> NDArray[Any]:
        x: NDArray[Any] = check_array(X, dtype=None)
        if x.dtype.kind not in "iu" or x.shape[1] != 1 or x.min() < -1:
            raise ValueError(f"X must be a column of symbols >= 0, or -1, [n, 1], got {x.dtype} {list(x.shape)}")
        symbols = self.n_features if fitting else np.shape(getattr(self, "emissionprob_", np.zeros((1, 0))))[1]
        if symbols and x.max() >= symbols:
            raise ValueError(f"X must hold symbols from 0 to {symbols - 1}, got {x.max()}")
        return x

    def _observed(self, x: NDArray[Any]) -> Tensor:
        return torch.from_numpy(x[:, 0].astype(np.int64))

    def _start_emissions(self, x: NDArray[Any], random: np.random.RandomState) -> None:
        if "e" in self.init_params:
            symbols = self.n_features or max(1, int(x.max()) + 1)
            try:
                self.emissionprob_ = random.dirichlet(np.ones(symbols), self.n_components)
            except (MemoryError, ValueError) as error:
                what = "the largest symbol" if self.n_features is None else "n_features"
                needed = 8 * self.n_components * symbols / 2**30
                raise ValueError(f"{what} must fit in memory: {symbols} symbols take {needed:,.0f} GiB") from error

    def _emissions(self) -> Emissions:
        emissions = CategoricalEmissions(self.n_components, np.shape(self.emissionprob_)[-1])
        with torch.no_grad():
            emissions.logits.copy_(_log("emissionprob_", self.emissionprob_, tuple(emissions.logits.shape)))
        return emissions

    def _keep(self, emissions: Any) -> None:
        self.emissionprob_ = emissions.logits.softmax(1).numpy()

    def _drawn(self, states: NDArray[np.int64], random: np.random.RandomState) -> NDArray[Any]:
        shares = np.cumsum(self.emissionprob_, 1)[states]
        return np.asarray((shares <= random.uniform(size=(len(states), 1)) * shares[:, -1:]).sum(1, keepdims=True))


def _parameters(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Tensor:
    """Parameters that may have been set by hand, as a tensor."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return as_tensor(array)


def _log(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Tensor:
    """Logarithms of probabilities that may have been set by hand."""
    probabilities = _parameters(name, values, shape)
    if bool((probabilities < 0).any() | ((probabilities.sum(-1) - 1).abs() > 1e-6).any()):
        raise ValueError(f"{name} must be probabilities that sum to 1 in each row")
    return probabilities.log()
