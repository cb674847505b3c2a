"""Arrays, sparse matrices and data frames with a row for each token, as sequences of features."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor

from structsmooth.kernels import FittedKernel, Kernel, KernelFeatures, KernelName
from structsmooth.sequences import DenseSequences, SparseSequences

MatrixLike = Any
"""Rows of numbers as users give them: an array, a sparse matrix or a data frame."""


def is_matrix(value: Any) -> bool:
    """Whether a value has two dimensions: an array, tensor, sparse matrix or data frame."""
    return len(getattr(value, "shape", ())) == 2


def check_columns(estimator: BaseEstimator, matrices: Iterable[Any], *, reset: bool) -> None:
    """Compare the columns of data frames with ``feature_names_in_``, as scikit-learn does, or take those of the first.

    Raises:
        ValueError: other names than those of training, or another order.
    """
    distinct = {tuple(map(str, getattr(matrix, "columns", ()))): matrix for matrix in matrices}
    for number, matrix in enumerate(distinct.values()):
        validate_data(estimator, matrix, reset=reset and not number, skip_check_array=True, ensure_2d=False)


def require_columns(name: str, frame: Any, known: Iterable[str] | None) -> None:
    """Raise ``ValueError`` for a data frame with other columns than those that are ``known``, if they are."""
    if known is not None and list(found := getattr(frame, "columns", known)) != list(known):
        raise ValueError(f"{name} must have the columns {list(known)} in this order, as in training; got {list(found)}")


def stacked(matrices: Sequence[Any], width: int | None = None) -> Any:
    """The rows of all matrices: an array of float32 or float64, or a matrix in compressed rows if any is sparse.

    Raises:
        ValueError: something that is no matrix of numbers, or not as wide as ``width``, or as the first one.
    """
    width = matrices[0].shape[1] if width is None else width
    for number, matrix in enumerate(matrices):
        if not is_matrix(matrix) or matrix.shape[1] != width:
            found = tuple(matrix.shape) if hasattr(matrix, "shape") else type(matrix).__name__
            raise ValueError(f"sentence {number} must be a matrix [tokens, {width}], got {found}")
    if any(map(sparse.issparse, matrices)):
        return sparse.vstack([sparse.csr_matrix(matrix) for matrix in matrices], format="csr")
    rows = np.concatenate([np.asarray(matrix) for matrix in matrices])
    return rows if rows.dtype == np.float32 else rows.astype(np.float64)


def dense_sequences(rows: NDArray[np.floating], lengths: Sequence[int]) -> DenseSequences:
    """Sequences of some lengths of the rows of an array."""
    return DenseSequences.of(as_tensor(rows), torch.tensor(lengths))


def sparse_sequences(rows: Any, lengths: Sequence[int]) -> SparseSequences:
    """Sequences of some lengths of the rows of a sparse matrix: values in float32, or none if all are 1."""
    rows = sparse.csr_matrix(rows, dtype=np.float32, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return SparseSequences(
        torch.from_numpy(rows.indices.astype(np.int32)),
        torch.from_numpy(rows.indptr.astype(np.int64)),
        torch.from_numpy(np.cumsum([0, *lengths], dtype=np.int64)),
        None if (rows.data == 1).all() else torch.from_numpy(rows.data),
    )


def require_finite(rows: Any, lengths: Sequence[int], names: Sequence[str]) -> None:
    """Raise ``ValueError`` for a feature that is not finite, by its name, token and sentence.

    Args:
        rows: of all tokens, an array or a matrix in compressed rows.
        lengths: of the sentences.
        names: of the features.
    """
    values = rows.data if sparse.issparse(rows) else rows
    if np.isfinite(values).all():
        return
    found = sparse.coo_matrix(rows)  # of which NaN and infinities are entries
    places = np.flatnonzero(~np.isfinite(found.data))
    place = places[np.argmin(found.row[places])]
    row, name, value = int(found.row[place]), names[found.col[place]], found.data[place]
    ends = np.cumsum(lengths)
    sentence = int(np.searchsorted(ends, row, side="right"))
    token = row - int(ends[sentence]) + lengths[sentence]
    raise ValueError(
        f"features must be finite numbers, got {value} for {name!r} of token {token} in sentence {sentence}: "
        "leave out what is unknown, or replace it"
    )


def fitted_kernel(
    kernel: KernelName | Kernel, gamma: float | str, degree: int, landmarks: int | None, seed: int, rows: Any
) -> FittedKernel:
    """A kernel at landmarks among rows of numbers; ``gamma="scale"`` is 1 / (F · variance), as in scikit-learn."""
    points = as_tensor(rows)
    if isinstance(gamma, str):
        if gamma != "scale":
            raise ValueError(f'gamma must be a number or "scale", got {gamma!r}')
        variance = float(points.var(correction=0))
        gamma = 1.0 / (points.shape[1] * variance) if variance > 0 else 1.0
    return KernelFeatures(kernel, gamma, degree, landmarks, seed).fit(points)


def as_tensor(rows: Any) -> Tensor:
    """Rows of an array or of a sparse matrix; a copy if torch could not share them, such as those of a mapped file."""
    return torch.from_numpy(np.require(rows.toarray() if sparse.issparse(rows) else rows, requirements=["C", "W"]))
