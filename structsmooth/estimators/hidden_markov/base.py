"""What hidden Markov models of all emissions have in common, with the words of hmmlearn."""

import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from structsmooth.estimators.matrices import as_tensor
from structsmooth.models import HMM
from structsmooth.models.chains import batches_of
from structsmooth.models.emissions import Emissions
from structsmooth.structures import HiddenMarkov
from structsmooth.structures.checks import first_examples, require_count

H = TypeVar("H", bound="HiddenMarkovEstimator")


@dataclass
class ConvergenceMonitor:
    """What ``fit`` reports: the log-likelihood before each step.

    Args:
        tol: the least gain for which to go on.
        n_iter: limit on steps.
        verbose: whether to print each step to standard error.
        history: the log-likelihoods.
    """

    tol: float
    n_iter: int
    verbose: bool = False
    history: list[float] = field(default_factory=list)

    @property
    def iter(self) -> int:
        """The number of steps."""
        return len(self.history)

    @property
    def converged(self) -> bool:
        """Whether the last step gained less than ``tol``; unlike hmmlearn's, not at the limit on steps."""
        return self.iter > 1 and self.history[-1] - self.history[-2] < self.tol

    def report(self, log_prob: float) -> None:
        """Add the log-likelihood before a step."""
        self.history.append(log_prob)
        if self.verbose:
            gain = log_prob - self.history[-2] if self.iter > 1 else np.nan
            print(f"{self.iter:>10d} {log_prob:>16.8f} {gain:>+16.8f}", file=sys.stderr)


class Place(NamedTuple):
    """Where the model has what an attribute of the estimator says, and the maps to it and back."""

    parameter: nn.Parameter
    inward: Callable[[str, Tensor], Tensor]
    outward: Callable[[Tensor], Tensor]


def log_probabilities(name: str, probabilities: Tensor) -> Tensor:
    """Logarithms of probabilities; raises ``ValueError`` unless they sum to one in each row."""
    if bool((probabilities < 0).any() | ((probabilities.sum(-1) - 1).abs() > 1e-6).any()):
        raise ValueError(f"{name} must be probabilities that sum to 1 in each row")
    return probabilities.log()


def probabilities(parameter: nn.Parameter) -> Place:
    """The place of probabilities that the model has as logarithms."""
    return Place(parameter, log_probabilities, lambda logs: logs.softmax(-1))


def log_rates(name: str, rates: Tensor) -> Tensor:
    """Logarithms of rates; raises ``ValueError`` for negative ones."""
    if not bool((rates >= 0).all()):
        raise ValueError(f"{name} must be rates >= 0")
    return rates.log()


def unchanged(_: str, values: Tensor) -> Tensor:
    """Values that the model has as they are."""
    return values


@dataclass(eq=False, repr=False)
class HiddenMarkovParameters(BaseEstimator):
    """The parameters of all hidden Markov models."""

    n_components: int = 1
    _: KW_ONLY
    algorithm: Literal["viterbi", "map"] = "viterbi"
    training: Literal["em", "viterbi"] = "em"
    n_iter: int = 100
    tol: float = 1e-2
    verbose: bool = False
    params: str = "stmcewl"
    init_params: str = "stmcewl"
    implementation: Literal["log", "scaling"] = "log"
    random_state: Any = None


class HiddenMarkovEstimator(HiddenMarkovParameters):
    """What hidden Markov models of all emissions have in common.

    X has a row for each observation of all sequences, one behind the other, and ``lengths`` says how many rows each
    sequence has; without ``lengths``, X is one sequence. As in hmmlearn, parameters may also be set as attributes
    (``startprob_``, ``transmat_`` and those of emissions), without ``fit`` or for it to begin with. Sequences that the
    model makes impossible are refused by their numbers, but by :meth:`score`, which warns and is minus infinity.
    """

    startprob_: NDArray[np.float64]
    transmat_: NDArray[np.float64]
    emissionprob_: NDArray[np.float64]
    weights_: NDArray[np.float64]
    lambdas_: NDArray[np.float64]
    monitor_: ConvergenceMonitor
    history_: list[float]
    n_iter_: int
    n_features_in_: int
    _attributes: ClassVar[Mapping[str, str]] = {"s": "startprob_", "t": "transmat_"}  # by their letters in params

    def fit(self: H, X: ArrayLike, lengths: ArrayLike | None = None) -> H:
        """Estimate the parameters of observations X [n, F] of sequences with ``lengths``, by steps of Baum and Welch.

        Raises:
            ValueError: wrong settings, lengths that do not sum to n, or fewer observations than states, missing ones
                aside.
        """
        _require_one_of(("em", "viterbi"), training=self.training)
        _require_one_of(("viterbi", "map"), algorithm=self.algorithm)
        _require_one_of(("log", "scaling"), implementation=self.implementation)
        require_count("n_components", self.n_components)
        x = self._checked(X, fitting=True)
        # NaN marks missing numbers, and -1 missing symbols.
        known = int((~(np.isnan(x) if x.dtype.kind == "f" else x < 0)).any(1).sum())
        if known < self.n_components:
            raise ValueError(f"X must have an observation for each of {self.n_components} states, got {known}")
        self.n_features_in_ = x.shape[1]
        batches = list(self._batches(x, lengths))
        self._initialize(x)
        model = self._model()
        places = self._places(model)
        for letter, place in places.items():
            place.parameter.requires_grad_(letter in self.params)
        self.monitor_ = ConvergenceMonitor(self.tol, self.n_iter, self.verbose)
        while self.monitor_.iter < self.n_iter and not self.monitor_.converged:
            self.monitor_.report(model.em_step(batches, viterbi=self.training == "viterbi"))
        if not self.monitor_.converged:
            message = f"{type(self).__name__}: {self.n_iter} steps do not suffice"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        self.history_, self.n_iter_ = self.monitor_.history, self.monitor_.iter
        for letter, place in places.items():
            if letter in self.params:
                setattr(self, self._attributes[letter], place.outward(place.parameter.detach()).numpy())
        self._judge(model.emissions)
        return self

    def score(self, X: ArrayLike, lengths: ArrayLike | None = None) -> float:
        """The log-likelihood of all sequences; minus infinity, with a warning, if one is impossible."""
        total = 0.0
        for first, structure in self._structures(X, lengths):
            values = structure.logsumexp()
            try:
                _require_possible(first, structure, values)
            except ValueError as error:
                warnings.warn(str(error), RuntimeWarning, stacklevel=2)
            total += float(values.sum())
        return total

    def aic(self, X: ArrayLike, lengths: ArrayLike | None = None) -> float:
        """Akaike's information criterion: twice the number of free parameters minus twice the log-likelihood."""
        return 2 * self._free() - 2 * self.score(X, lengths)

    def bic(self, X: ArrayLike, lengths: ArrayLike | None = None) -> float:
        """The Bayesian information criterion: as :meth:`aic`, with log(n) in place of 2 for each parameter."""
        return self._free() * float(np.log(len(self._checked(X)))) - 2 * self.score(X, lengths)

    def _free(self) -> int:
        # S - 1 of the first state and S (S - 1) of transitions.
        return self.n_components**2 - 1 + self._model().emissions.free

    def get_stationary_distribution(self) -> NDArray[np.float64]:
        """The distribution [S] of states that transitions leave as it is.

        Raises:
            ValueError: several, where the states fall into groups without transitions between them.
        """
        transition = self._model().transition.detach().exp().numpy()
        # π (P - I) = 0 and Σ π = 1.
        equations = np.vstack([transition.T - np.eye(len(transition)), np.ones(len(transition))])
        found, _, rank, _ = np.linalg.lstsq(equations, np.eye(len(equations))[-1], rcond=None)
        if rank < len(transition):
            raise ValueError("transmat_ must have one stationary distribution, got several: states that never meet")
        found = found.clip(0)
        return np.asarray(found / found.sum())

    def score_samples(self, X: ArrayLike, lengths: ArrayLike | None = None) -> tuple[float, NDArray[np.float64]]:
        """The log-likelihood, and the probabilities [n, S] of states given all observations of their sequence."""
        value, rows = 0.0, []
        for first, structure in self._structures(X, lengths):
            with torch.enable_grad():  # posteriors are the gradient, of the same pass
                scores = structure.unary.requires_grad_()
                values = structure.replace(scores, structure.transition).logsumexp()
                (posteriors,) = torch.autograd.grad(values.sum(), scores)
            _require_possible(first, structure, values.detach())
            value += float(values.detach().sum())
            rows.append(posteriors[structure.mask].numpy())
        return value, np.concatenate(rows)

    def predict_proba(self, X: ArrayLike, lengths: ArrayLike | None = None) -> NDArray[np.float64]:
        """The probabilities [n, S] of states given all observations of their sequence."""
        return self.score_samples(X, lengths)[1]

    def filter_proba(
        self, X: ArrayLike, lengths: ArrayLike | None = None, after: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """The probabilities [n, S] of states given the observations of their sequence so far.

        Args:
            X: observations [n, F].
            lengths: of the sequences.
            after: probabilities [S] of the state just before X, with which a sequence goes on: the last row of what
                this method found for its earlier observations. Each new one then takes a step, not a pass.
        """
        rows = []
        for first, structure in self._structures(X, lengths, after):
            found = structure.filtered_marginals()
            possible = (found.sum(2) > 0) | ~structure.mask
            _require_possible(first, structure, torch.where(possible.all(1), 0.0, -torch.inf))
            rows.append(found[structure.mask].numpy())
        return np.concatenate(rows)

    def predict_next(
        self, X: ArrayLike, lengths: ArrayLike | None = None, after: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """The expected next observation [n, F] after each one; for symbols, the probabilities [n, V] of each next one.

        It is given the observations so far, with arguments as for :meth:`filter_proba`.
        """
        model = self._model()
        following = self.filter_proba(X, lengths, after) @ model.transition.detach().exp().numpy()
        return np.asarray(following @ model.emissions.expected().detach().numpy())

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
        _require_one_of(("viterbi", "map"), algorithm=algorithm)
        if algorithm == "map":
            probabilities = self.predict_proba(X, lengths)
            return float(probabilities.max(1).sum()), probabilities.argmax(1)
        value, states = 0.0, []
        for first, structure in self._structures(X, lengths):
            values, y = structure.max()
            _require_possible(first, structure, values)
            value += float(values.sum())
            states.append(y[structure.mask].numpy())
        return value, np.concatenate(states)

    def predict(self, X: ArrayLike, lengths: ArrayLike | None = None) -> NDArray[np.int64]:
        """States [n], as :meth:`decode` finds them."""
        return self.decode(X, lengths)[1]

    def sample(
        self, n_samples: int = 1, random_state: Any = None, currstate: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Observations [n_samples, F] of one sequence from the model, and its states, the first of them ``currstate``.

        A first state that is not given is drawn, too.
        """
        model = self._model()  # checks parameters that were set by hand
        if currstate is not None and not 0 <= currstate < self.n_components:
            raise ValueError(f"currstate must be a state from 0 to {self.n_components - 1}, got {currstate}")
        random = check_random_state(self.random_state if random_state is None else random_state)
        first, after = np.cumsum(self.startprob_), np.cumsum(self.transmat_, 1)
        states = np.empty(n_samples, np.int64)
        for t, uniform in enumerate(random.uniform(size=n_samples)):
            row = after[states[t - 1]] if t else first
            states[t] = np.searchsorted(row, uniform * row[-1], side="right")
            # Drawn even if it is given, so that later states have the same random numbers.
            states[0] = states[0] if currstate is None else currstate
        generator = torch.Generator().manual_seed(int(random.randint(2**31)))
        return model.emissions.sample(torch.from_numpy(states), generator).numpy().reshape(n_samples, -1), states

    @abstractmethod
    def _checked(self, X: ArrayLike, fitting: bool = False) -> NDArray[Any]:
        """Observations [n, F] as an array."""

    def _observed(self, x: NDArray[Any]) -> Tensor:
        """Observations as a tensor for emissions."""
        return as_tensor(x)

    @abstractmethod
    def _start_emissions(self, x: NDArray[Any], random: np.random.RandomState, wanted: Container[str]) -> None:
        """Set the first parameters of emissions, as far as their letters are ``wanted``."""

    @abstractmethod
    def _emissions(self) -> Emissions:
        """Emissions of the right size."""

    def _places(self, model: HMM) -> dict[str, Place]:
        """The places of all attributes in the model, by the letters of these."""
        return {"s": probabilities(model.start), "t": probabilities(model.transition)}

    def _judge(self, emissions: Any) -> None:
        """Warn of estimates that cannot be trusted."""

    def _initialize(self, x: NDArray[Any]) -> None:
        random, states = check_random_state(self.random_state), self.n_components
        wanted = {letter for letter, name in self._attributes.items() if not hasattr(self, name)}
        wanted |= set(self.init_params)
        if "s" in wanted:
            self.startprob_ = np.full(states, 1 / states)
        if "t" in wanted:
            self.transmat_ = np.full((states, states), 1 / states)
        self._start_emissions(x, random, wanted)

    def _model(self) -> HMM:
        check_is_fitted(self, list(self._attributes.values()))
        model = HMM(self._emissions())
        for letter, place in self._places(model).items():
            name, shape = self._attributes[letter], tuple(place.parameter.shape)
            values = np.asarray(getattr(self, name), dtype=np.float64)
            name = name.strip("_") + "_"
            if values.shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {values.shape}")
            with torch.no_grad():
                place.parameter.copy_(place.inward(name, as_tensor(values)))
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
    def _structures(
        self, X: ArrayLike, lengths: ArrayLike | None, after: ArrayLike | None = None
    ) -> Iterator[tuple[int, HiddenMarkov]]:
        """Structures over the states of batches of sequences, with the number of the first sequence of each."""
        model, x, first = self._model(), self._checked(X), 0
        if after is not None:
            if lengths is not None and np.size(lengths) != 1:
                raise ValueError(f"after must be for one sequence, got {np.size(lengths)} lengths")
            before = log_probabilities("after", as_tensor(np.asarray(after, np.float64).reshape(self.n_components)))
            model.start.copy_((before.exp() @ model.transition.exp()).log())
        for batch in self._batches(x, lengths):
            yield first, model(batch)
            first += len(batch[1])


def _require_one_of(values: tuple[str, str], **setting: str) -> None:
    """Raise ``ValueError`` unless a setting has one of two values."""
    for name, value in setting.items():
        if value not in values:
            raise ValueError(f'{name} must be "{values[0]}" or "{values[1]}", got {value!r}')


def _require_possible(first: int, structure: HiddenMarkov, values: Tensor) -> None:
    """Raise ``ValueError`` if a log-probability [B] is minus infinity, in a batch whose first sequence has a number."""
    if wrong := first_examples(values == -torch.inf):
        row = int((structure.filtered_marginals()[wrong[0]].sum(1) == 0).int().argmax())
        raise ValueError(
            f"X must be possible, and the model gives sequence {first + wrong[0]} probability 0: no state can have its "
            f"row {row} after the rows before. Mark that row as missing, or give it a probability above 0"
        )
