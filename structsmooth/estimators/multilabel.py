"""Multi-label classification in the form of scikit-learn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from structsmooth.estimators.base import SolvedEstimator
from structsmooth.estimators.matrices import MatrixLike, require_columns
from structsmooth.estimators.weights import SampleWeights
from structsmooth.models.label_sets import LabelPairs, LabelSets, RankedSets, Scaling, feature_scaling, label_pairs
from structsmooth.solvers import Certificate


@dataclass(kw_only=True, eq=False, repr=False)
class MultiLabelClassifier(ClassifierMixin, SolvedEstimator):
    """Sets of labels that go together: linear scores of labels, and of pairs of labels that are both present.

    The model is that of the task :class:`~structsmooth.tasks.Multilabel`. y is a matrix [n, L] with a column of two
    values, such as 0 and 1, for each label, or a data frame of such columns.

    Args:
        edges: which pairs of labels have a score: ``"full"`` for all, ``"tree"`` for those of a tree of labels that
            depend on each other, ``"none"``, or a list of pairs of columns; ``"auto"`` for full up to 30 labels, tree
            beyond.
        scaling: of features: ``"unit"`` for rows of norm 1, ``"standard"`` for mean 0 and deviation 1, or ``"none"``.
        rho: penalty of :class:`~structsmooth.SoftBCFW`, the solver ``"auto"``; chosen by it if not given.
        lam: λ, a number or ``"c/n"``.
        solver: ``"auto"``, a name in ``structsmooth.solvers.SOLVERS``, or a solver, which keeps its own tolerance.
        max_iter: limit on passes over the data.
        tol: relative duality gap to reach.
        random_state: of the order of examples.
        verbose: print a line after every pass.

    Attributes:
        classes_: the values that columns have: numbers of the labels if these are 0 and 1, or else a pair of values for
            each column.
        label_names_: names of the columns of y.
        edges_: pairs of columns with a score, [E, 2].
        edge_weights_: their scores, [E].
        coef_: scores of features for each label, [L, F]; zeros for labels that no example has.
        intercept_: [L].

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(60, 3))
        >>> Y = np.column_stack([X[:, 0] > 0, X[:, 0] + X[:, 1] > 0]).astype(int)
        >>> classifier = MultiLabelClassifier(lam="0.1/n").fit(X, Y)
        >>> classifier.score(X, Y) > 0.9  # examples without a wrong label
        True

    Reference:
        Finley and Joachims (2008); Meshi, Srebro and Hazan (2015), section 6.
    """

    edges: LabelPairs | Sequence[tuple[int, int]] = "auto"
    scaling: Scaling = "unit"
    rho: float | None = None
    lam: float | str = "0.1/n"

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.two_d_labels = True
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        tags.classifier_tags.multi_class, tags.classifier_tags.multi_label = False, True
        return tags

    def fit(self, X: MatrixLike, y: MatrixLike, sample_weight: ArrayLike | None = None) -> "MultiLabelClassifier":
        """Train on examples [n, F], an array, sparse matrix or data frame, with labels [n, L].

        Args:
            X: features.
            y: labels.
            sample_weight: weights of the examples, [n]: one of weight 2 counts as two, one of weight 0 not at all. With
                weights, the solver ``"auto"`` is proximal BCFW.

        Raises:
            ValueError: columns of more than two values, labels that no example has, pairs that are no columns, or what
                scikit-learn's estimators refuse.
        """
        names = getattr(y, "columns", None)
        X, table = self._validated(X, y)
        self._is_column = np.ndim(np.asarray(y)) == 1
        kept, weights = SampleWeights.of(sample_weight, len(table))
        X, table = X[kept], table[kept]
        self.label_names_ = [str(name) for name in (range(table.shape[1]) if names is None else names)]
        self._columns = names
        self._values = list(map(_two_values, table.T))
        self._check_choices()
        present = _present(table, self._values)
        self._known = np.flatnonzero(present.any(0))  # columns of the labels that training examples have
        if not len(self._known):
            raise ValueError("no example has a label")
        x, present = _dense(X), present[:, self._known]
        unit, scaling = self.scaling == "unit", feature_scaling(x, self.scaling)
        self.model_ = LabelSets(len(self._known), self._pairs(present), *scaling, unit)
        problem = self.model_.problem(x, present)
        if weights is None:
            self._solve(problem, "soft-bcfw", {"rho": self.rho})
        else:
            self._solve(problem, "proximal-bcfw", sample_weight=weights)
        return self

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """The best set of labels of each example: in the shape of the labels of training, and in their values."""
        found = self._decoded(np.stack([self._spread(ranked[0][1]) for ranked in self._sets(X, 1)]))
        return found[:, 0] if self._is_column else found

    def score(self, X: MatrixLike, y: MatrixLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of examples without a wrong label."""
        require_columns("y", y, self._columns)
        return float(super().score(X, y, sample_weight))

    def predict_top_k(self, X: MatrixLike, k: int) -> list[list[tuple[float, NDArray[Any]]]]:
        """The k best sets of each example with their scores, best first: rows [L]."""
        return [
            [(score, self._decoded(self._spread(labels)[None])[0]) for score, labels in ranked]
            for ranked in self._sets(X, k)
        ]

    def decision_function(self, X: MatrixLike) -> NDArray[np.float64]:
        """By how much the best set with a label scores more than the best set without it, in the shape of predictions.

        Positive for the labels of the best set; zero for labels that no training example has.

        Raises:
            NotImplementedError: so many labels with so many pairs that exact inference would take too long.
        """
        try:
            margins = self._sets(X, 1).margins()
        except NotImplementedError as error:
            raise NotImplementedError(
                f"decision_function needs exact inference, which {self.model_.count} labels with "
                f'{len(self.model_.edges)} pairs do not allow; take edges="tree", edges="none" or fewer pairs'
            ) from error
        found = self._spread(margins.numpy().T).T
        return found[:, 0] if self._is_column else found

    def certify(self, X: MatrixLike, y: MatrixLike, sample_weight: ArrayLike | None = None) -> Certificate:
        """How far the weights are from the optimum on training data, by a dual bound of exact or relaxed inference."""
        check_is_fitted(self, "weights_")
        X, table = self._validated(X, y, reset=False)
        kept, weights = SampleWeights.of(sample_weight, len(table))
        present = _present(table[kept], self._values)[:, self._known]
        return self._certificate(self.model_.problem(_dense(X[kept]), present), weights)

    @property
    def classes_(self) -> NDArray[Any] | list[NDArray[Any]]:
        """Numbers of the labels; the two values of a single column, or of each, if these are not 0 and 1."""
        check_is_fitted(self, "weights_")
        if len(self._values) == 1:
            return self._values[0]
        return np.arange(len(self._values)) if np.isin(self._values, [0, 1]).all() else list(self._values)

    @property
    def edges_(self) -> NDArray[np.int64]:
        """Pairs of columns with a score, [E, 2]."""
        check_is_fitted(self, "model_")
        return self._known[np.array(self.model_.edges, dtype=np.int64).reshape(-1, 2)]

    @property
    def edge_weights_(self) -> NDArray[np.float64]:
        """Scores of these pairs where both labels are present: [E]."""
        return self._split()[1]

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Scores of features, as they are scaled, for each label: [L, F]."""
        return self._spread(self._split()[0][:, :-1])

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """Scores of labels that do not depend on features: [L]."""
        return self._spread(self._split()[0][:, -1])

    def _split(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights of labels, the intercept last, and of pairs."""
        check_is_fitted(self, "weights_")
        unary, pairs = self.model_.split(torch.from_numpy(self.weights_))
        return unary.numpy(), pairs.numpy()

    def _check_choices(self) -> None:
        if isinstance(self.edges, str) and self.edges not in get_args(LabelPairs):
            raise ValueError(f"edges must be {', '.join(get_args(LabelPairs))} or a list of pairs, got {self.edges!r}")
        if self.scaling not in get_args(Scaling):
            raise ValueError(f"scaling must be one of {', '.join(get_args(Scaling))}, got {self.scaling!r}")

    def _pairs(self, present: NDArray[np.bool_]) -> list[tuple[int, int]]:
        """The pairs of known labels, by their places, that have a score: as chosen, or of the columns that were given.

        Args:
            present: which known labels examples have, [n, L].
        """
        if isinstance(self.edges, str):
            return label_pairs(present, self.edges)
        count, position = len(self._values), {int(column): i for i, column in enumerate(self._known)}
        pairs = {tuple(sorted(map(int, pair))) for pair in self.edges}
        if any(len(pair) != 2 or not 0 <= pair[0] < pair[1] < count for pair in pairs):
            raise ValueError(f"edges must be pairs of different columns from 0 to {count - 1}, got {self.edges}")
        return [(position[a], position[b]) for a, b in sorted(pairs) if a in position and b in position]

    def _sets(self, X: MatrixLike, k: int) -> RankedSets:
        weights = self._weights
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self.model_.best(weights, _dense(X), k)

    def _spread(self, known: ArrayLike) -> NDArray[Any]:
        """What all columns have, [L, ...], given what those of known labels have; zero for others."""
        values = np.asarray(known)
        spread = np.zeros((len(self._values), *values.shape[1:]), dtype=values.dtype)
        spread[self._known] = values
        return spread

    def _decoded(self, present: NDArray[np.bool_]) -> NDArray[Any]:
        """The values of columns, [n, L], given which of them have their second value."""
        columns = zip(self._values, present.T, strict=True)
        return np.stack([values[mask.astype(int)] for values, mask in columns], axis=1)

    def _validated(self, X: MatrixLike, y: MatrixLike, *, reset: bool = True) -> tuple[Any, NDArray[Any]]:
        require_columns("y", y, None if reset else self._columns)
        _refuse_lists(y)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=True, reset=reset)
        check_classification_targets(y)
        table = y.toarray() if sparse.issparse(y) else np.asarray(y)
        return X, table.reshape(len(table), -1)


_FROM_LISTS = "sklearn.preprocessing.MultiLabelBinarizer().fit_transform(y) makes such a matrix of lists of labels"


def _refuse_lists(y: Any) -> None:
    """Raise ``ValueError`` for lists or sets of the labels of each example, which are no rows of a matrix."""
    try:
        first = [] if sparse.issparse(y) else np.asarray(y).reshape(-1)[:1].tolist()
    except ValueError:  # of different lengths
        first = [()]
    if first and isinstance(first[0], (list, tuple, set, frozenset)):
        raise ValueError(f"y must be a binary matrix [n, L], a column of 0 and 1 for each label; {_FROM_LISTS}")


def _present(table: NDArray[Any], values: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """Which entries of columns have the second of their two values: bool [n, L]."""
    for number, (column, two) in enumerate(zip(table.T, values, strict=True)):
        if not np.isin(column, two).all():
            raise ValueError(f"column {number} of y must have the values of training, {two.tolist()}")
    return np.stack([column == two[1] for column, two in zip(table.T, values, strict=True)], axis=1)


def _two_values(column: NDArray[Any]) -> NDArray[Any]:
    found = np.unique(column)
    if np.isin(found, [0, 1]).all():
        return np.array([0, 1], dtype=column.dtype)
    if len(found) != 2:
        few = "fewer" if len(found) < 2 else "multiclass"
        raise ValueError(
            "Only binary classification is supported for a label, with 2 classes such as 0 and 1. "
            f"The type of the target is {few}: got {found[:5].tolist()}. {_FROM_LISTS}"
        )
    return found


def _dense(X: Any) -> NDArray[np.float64]:
    """Features [n, F] as an array."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X)
