"""What a tagger has learned, by the names of tags and features."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from structsmooth.estimators.base import LastFit, SolvedEstimator
from structsmooth.estimators.tokens import TokenFeatures
from structsmooth.text.schemes import TagScheme
from structsmooth.text.tagger import Tag, Tags

R = TypeVar("R")


class TaggerWeights(SolvedEstimator):
    """The weights of a linear chain over named features."""

    tags_: Tags
    features_: TokenFeatures
    _last: LastFit

    @property
    def classes_(self) -> NDArray[Any]:
        """The tags, sorted: [S]."""
        return np.array(self.tags_.names)

    @property
    def scheme_(self) -> TagScheme | None:
        """The scheme of the training tags; ``None`` if they are no tags of entities."""
        return self.tags_.scheme

    @property
    def feature_weights_(self) -> NDArray[np.float64]:
        """Scores of features for each tag, [F, S], in the order of ``features_.names``."""
        return self._rows[: -len(self.tags_.names) - 2]

    @property
    def transition_weights_(self) -> NDArray[np.float64]:
        """Scores of a tag, the row, before another, the column: [S, S]."""
        return self._rows[-len(self.tags_.names) - 2 : -2]

    @property
    def end_weights_(self) -> NDArray[np.float64]:
        """Scores of the first tag and of the last one: [2, S]."""
        return self._rows[-2:]

    @property
    def state_features_(self) -> dict[tuple[str, Tag], float]:
        """Scores that are not zero, by feature and tag, as sklearn-crfsuite has them."""
        return _table(self.features_.names, self.tags_.names, self.feature_weights_)

    @property
    def transition_features_(self) -> dict[tuple[Tag, Tag], float]:
        """Scores that are not zero, by a tag and the next one, as sklearn-crfsuite has them."""
        return _table(self.tags_.names, self.tags_.names, self.transition_weights_)

    def top_features(self, k: int = 10) -> dict[Tag, list[tuple[str, float]]]:
        """The k features that speak most for each tag, with their scores."""
        best = np.argsort(-self.feature_weights_, axis=0, kind="stable")[:k].T
        names, weights = self.features_.names, self.feature_weights_
        return {
            tag: [(names[i], float(weights[i, state])) for i in rows]
            for state, (tag, rows) in enumerate(zip(self.tags_.names, best, strict=True))
        }

    @property
    def _rows(self) -> NDArray[np.float64]:
        check_is_fitted(self, "weights_")
        return self.weights_.reshape(-1, len(self.tags_.names))


def _table(rows: Sequence[R], columns: Sequence[Tag], weights: NDArray[np.float64]) -> dict[tuple[R, Tag], float]:
    return {(rows[i], columns[j]): float(weights[i, j]) for i, j in zip(*weights.nonzero(), strict=True)}
