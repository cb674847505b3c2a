"""Hidden Markov models of symbols."""

from collections.abc import Container
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array
from torch import Tensor

from structsmooth.estimators.hidden_markov.base import HiddenMarkovEstimator, Place, probabilities
from structsmooth.models import HMM, CategoricalEmissions
from structsmooth.models.emissions import Emissions


@dataclass(eq=False, repr=False)
class CategoricalHMM(HiddenMarkovEstimator):
    """A hidden Markov model of symbols, with the words of hmmlearn.

    X has a column of symbols 0 to V - 1, a row for each observation of all sequences; -1 stands for a missing one. A
    sequence of which all are missing says nothing: its likelihood is 1 whatever the parameters. One with a symbol that
    no state emits is impossible: it is refused, and its score is minus infinity.

    Further arguments: as for :class:`GaussianHMM`.

    Args:
        n_components: number S of states.
        n_features: number V of symbols; one more than the largest in ``fit`` if not given.
        params: which parameters ``fit`` estimates: ``s`` start, ``t`` transitions, ``e`` emissions.
        init_params: which of them ``fit`` sets first; emissions are random then.

    Attributes:
        emissionprob_: [S, V].

    Raises:
        ValueError: wrong shapes, lengths, symbols or settings.

    Example:
        >>> X = np.array([[0], [0], [0], [1], [1], [1], [0], [0], [0]])
        >>> model = CategoricalHMM(n_components=2, random_state=0).fit(X)
        >>> np.diff(model.predict(X)).nonzero()[0].tolist()
        [2, 5]
    """

    _: KW_ONLY
    n_features: int | None = None
    _attributes = MappingProxyType({"s": "startprob_", "t": "transmat_", "e": "emissionprob_"})

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

    def _start_emissions(self, x: NDArray[Any], random: np.random.RandomState, wanted: Container[str]) -> None:
        if "e" in wanted:
            symbols = self.n_features or max(1, int(x.max()) + 1)
            try:
                self.emissionprob_ = random.dirichlet(np.ones(symbols), self.n_components)
            except (MemoryError, ValueError) as error:
                what = "the largest symbol" if self.n_features is None else "n_features"
                needed = 8 * self.n_components * symbols / 2**30
                raise ValueError(f"{what} must fit in memory: {symbols} symbols take {needed:,.0f} GiB") from error

    def _emissions(self) -> Emissions:
        return CategoricalEmissions(self.n_components, np.shape(self.emissionprob_)[-1])

    def _places(self, model: HMM) -> dict[str, Place]:
        return super()._places(model) | {"e": probabilities(model.get_parameter("emissions.logits"))}
