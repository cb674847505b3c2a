"""Multi-class support vector machines in the form of scikit-learn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from structsmooth.estimators.base import SolvedEstimator
from structsmooth.estimators.matrices import MatrixLike, as_tensor, dense_sequences, fitted_kernel, sparse_sequences
from structsmooth.estimators.weights import SampleWeights
from structsmooth.kernels import Kernel, KernelName
from structsmooth.problems import LinearProblem
from structsmooth.solvers import Certificate
from structsmooth.text.tagger import chain_problem


@dataclass(kw_only=True, eq=False, repr=False)
class MulticlassSVM(ClassifierMixin, SolvedEstimator):
    """The multi-class support vector machine of Crammer and Singer, linear or with a kernel.

    The loss of an example is max_j (1[j ≠ y] + s_j) − s_y for the scores s of all classes together, and the objective
    is the mean loss plus (λ/2)‖w‖². An example is a chain of length one, so training takes the compiled passes of
    chains, which store classes² numbers for each example. An intercept is the sum of two weights, those of the first
    and of the last position of a chain, so it is penalized half as much as other weights. The objective is that of
    ``LinearSVC(multi_class="crammer_singer", intercept_scaling=2**0.5)``, divided by C·n.

    Args:
        lam: λ, a number or ``"c/n"``. It is 1/(C·n) for the C of :class:`sklearn.svm.LinearSVC`.
        kernel: ``"rbf"``, ``"polynomial"``, ``"cosine-polynomial"`` or a function; see
            :class:`~structsmooth.KernelFeatures`. ``None`` for linear scores.
        gamma: γ of the kernel; ``"scale"`` for 1 / (F · variance of the features).
        degree: of polynomial kernels.
        landmarks: number of examples that a kernel compares others to; all different ones if not given.
        class_weight: weights of examples by their class, which multiply ``sample_weight``; ``"balanced"`` for
            n / (S · count). They are 1 if not given, and for classes that are not named.
        solver: ``"auto"``, a name in ``structsmooth.solvers.SOLVERS``, or a solver, which keeps its own tolerance.
        max_iter: limit on passes over the data.
        tol: relative duality gap to reach.
        random_state: of the order of examples, and of landmarks.
        verbose: print a line after every pass.

    Attributes:
        classes_: [S].
        coef_: scores of features for each class, [S, F]; with a kernel, of its features.
        intercept_: [S].

    Example:
        >>> import numpy as np
        >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]] * 4)
        >>> y = np.array(["up", "right", "down"] * 4)
        >>> svm = MulticlassSVM(lam="1/n").fit(X, y)
        >>> svm.predict(X[:3]).tolist()
        ['up', 'right', 'down']

    Reference:
        Crammer and Singer (2001), "On the algorithmic implementation of multiclass kernel-based vector machines".
    """

    lam: float | str = "1/n"
    kernel: KernelName | Kernel | None = None
    gamma: float | Literal["scale"] = "scale"
    degree: int = 3
    landmarks: int | None = None
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None
    max_iter: int = 1000
    tol: float = 1e-3

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "MulticlassSVM":
        """Train on examples [n, F], an array, sparse matrix or data frame, with labels [n].

        Args:
            X: features.
            y: labels.
            sample_weight: weights of the examples, [n]: one of weight 2 counts as two, one of weight 0 not at all.

        Raises:
            ValueError: fewer than two classes, or what scikit-learn's estimators refuse.
        """
        X, y, weights = self._validated(X, y, sample_weight)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have two classes at least, got 1 class: {self.classes_.tolist()}")
        X, states, weights = self._weighted(X, y, weights)
        if self.kernel is not None:
            settings = (self.kernel, self.gamma, self.degree, self.landmarks, self._seed())
            self.kernel_ = fitted_kernel(*settings, X)
        self._solve(self._problem(X, states), "proximal-bcfw", sample_weight=weights)
        return self

    def decision_function(self, X: MatrixLike) -> NDArray[np.float64]:
        """Scores [n, S]; for two classes, [n], positive where the second one is ahead."""
        check_is_fitted(self, "weights_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        if self.kernel is None:
            found = X @ self.coef_.T
        else:
            found = self.kernel_.scores(as_tensor(X), as_tensor(self.coef_.T)).numpy()
        scores: NDArray[np.float64] = np.asarray(found + self.intercept_)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """The class with the largest score: [n]."""
        scores = self.decision_function(X)
        best = scores.argmax(1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        found: NDArray[Any] = self.classes_[best]
        return found

    def certify(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Certificate:
        """How far the weights are from the optimum on training data, by a dual bound of their own."""
        check_is_fitted(self, "weights_")
        X, y, weights = self._validated(X, y, sample_weight, reset=False)
        if not np.isin(y, self.classes_).all():
            raise ValueError(f"y must have the classes of training, {self.classes_.tolist()}")
        X, states, weights = self._weighted(X, y, weights)
        return self._certificate(self._problem(X, states), weights)

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Weights of features, [S, F]."""
        return self._rows[: -len(self.classes_) - 2].T

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """Scores that do not depend on features, [S]: a token that is alone is the first one and the last one."""
        intercept: NDArray[np.float64] = self._rows[-2:].sum(0)
        return intercept

    @property
    def _rows(self) -> NDArray[np.float64]:
        check_is_fitted(self, "weights_")
        return self.weights_.reshape(-1, len(self.classes_))

    def _validated(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool = True
    ) -> tuple[Any, NDArray[Any], Tensor | None]:
        """The examples that have weight, with their labels and weights."""
        rows, labels = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, reset=reset)
        kept, weights = SampleWeights.of(sample_weight, len(labels))
        return rows[kept], labels[kept], weights

    def _weighted(self, X: Any, y: NDArray[Any], weights: Tensor | None) -> tuple[Any, Tensor, Tensor | None]:
        """Features, states and weights of the examples whose classes have weight."""
        states = np.searchsorted(self.classes_, y).astype(np.int64)
        kept, weights = SampleWeights.by_class(weights, self.class_weight, self.classes_, states)
        return X[kept], torch.from_numpy(states[kept]), weights

    def _problem(self, X: Any, states: Tensor) -> LinearProblem:
        """The finite sum over chains of length one."""
        if self.kernel is not None:
            X = self.kernel_(as_tensor(X)).numpy()
        sequences = (dense_sequences if isinstance(X, np.ndarray) else sparse_sequences)(X, [1] * len(states))
        return chain_problem("hinge", sequences, states, (X.shape[1], len(self.classes_)))
