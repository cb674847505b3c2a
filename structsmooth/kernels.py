"""Features of tokens whose inner products are a kernel, exactly or by landmarks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast

import torch
from torch import Tensor

from structsmooth.settings import Positive, PositiveInt, check_settings

KernelName = Literal["rbf", "polynomial", "cosine-polynomial", "precomputed"]
Kernel = Callable[[Tensor, Tensor], Tensor]

# Entries of a block of the Gram matrix: 64 MiB.
_BLOCK = 1 << 23
# Rounding of a Gram matrix, as a fraction of its largest entry or eigenvalue: what is below it is taken for zero.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class KernelFeatures:
    """Rows R of features with R Rᵀ = K, the Gram matrix of a kernel: a linear model of them is a kernel machine.

    :meth:`fit` takes the points of training and finds the features, exact ones over all points, or those of m landmarks
    (Nyström): R(x) = k(x, Z) T for landmarks Z, where T Tᵀ is the inverse of k(Z, Z), or its pseudo-inverse.

    Args:
        kernel: ``"rbf"``: exp(−γ‖x − z‖²); ``"polynomial"``: (γ⟨x, z⟩ + 1)^degree; ``"cosine-polynomial"``: the same of
            the cosine of x and z; any positive semi-definite function of points [a, D] and [b, D], giving [a, b]; or
            ``"precomputed"``: points are rows of kernel values with all tokens of training, so that those of training
            are the Gram matrix [tokens, tokens].
        gamma: γ > 0.
        degree: of polynomials, at least 1.
        landmarks: number m of landmarks, drawn at random from the different points; ``None`` for all of these.
        seed: of the draw.

    Raises:
        ValueError: an unknown kernel, γ that is not positive, a degree or a number of landmarks below 1.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
        >>> features = KernelFeatures("polynomial", degree=2).fit(x)
        >>> r = features(x)
        >>> torch.allclose(r @ r.T, (x @ x.T + 1.0).double() ** 2)
        True

    Reference:
        Zhang, Saha and Vishwanathan (2014), Theorem 9, for kernels of structured models; Williams and Seeger (2001),
        "Using the Nyström method to speed up kernel machines".
    """

    kernel: KernelName | Kernel = "rbf"
    gamma: Positive = 1.0
    degree: PositiveInt = 3
    landmarks: PositiveInt | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not callable(self.kernel) and self.kernel not in _KERNELS:
            raise ValueError(f"kernel must be a function or one of {', '.join(_KERNELS)}, got {self.kernel!r}")
        check_settings(self)
        if self.landmarks is not None and self.kernel == "precomputed":
            raise ValueError("landmarks need a kernel of points, got kernel values; give the rows and columns of those")

    def values(self, x: Tensor, z: Tensor) -> Tensor:
        """Kernel values of points [a, D] and [b, D]: float64 [a, b]."""
        kernel = self.kernel if callable(self.kernel) else _KERNELS[self.kernel](self.gamma, self.degree)
        return kernel(_points("x", x), _points("z", z)).double()

    def fit(self, x: Tensor) -> "FittedKernel":
        """The features for points [tokens, D].

        Raises:
            ValueError: as :meth:`chosen` and :meth:`at` do.
        """
        return self.at(self.chosen(x))

    def chosen(self, x: Tensor) -> Tensor:
        """Landmarks among points [tokens, D]: float64 [m, D].

        Raises:
            ValueError: points that are not a matrix, are not finite, or are fewer than landmarks, equal ones counted
                once.
        """
        points = _points("x", x)
        if self.kernel == "precomputed":
            return points  # each token has its column, equal or not
        points = cast(Tensor, points.unique(dim=0))
        if self.landmarks is not None:
            if self.landmarks > len(points):
                raise ValueError(
                    f"landmarks must be at most the number of different tokens, {len(points)}, got {self.landmarks}"
                )
            chosen = torch.randperm(len(points), generator=torch.Generator().manual_seed(self.seed))[: self.landmarks]
            points = points[chosen.sort().values]
        return points

    def at(self, landmarks: Tensor) -> "FittedKernel":
        """The features of given landmarks [m, D], such as those of a saved model.

        Raises:
            ValueError: landmarks that are not a matrix or not finite; or their Gram matrix is not finite, not symmetric
                or not positive semi-definite.
        """
        return FittedKernel(self, _points("landmarks", landmarks))


@dataclass(frozen=True)
class FittedKernel:
    """The features of :class:`KernelFeatures` for landmarks, which are all that a saved model has to keep.

    Attributes:
        kernel: the kernel.
        landmarks: points Z, float64 [m, D].
    """

    kernel: KernelFeatures
    landmarks: Tensor

    def __post_init__(self) -> None:
        _ = self.root  # a kernel that is none is refused now

    @cached_property
    def root(self) -> Tensor:
        """T [m, r] with T Tᵀ = k(Z, Z)⁻¹: triangular, or scaled eigenvectors where k(Z, Z) is singular."""
        return _inverse_root(_checked_gram(self.kernel.values(self.landmarks, self.landmarks)))

    @property
    def size(self) -> int:
        """Number r of features of a point."""
        return self.root.shape[1]

    def __call__(self, x: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """The features of points [tokens, D]: [tokens, r]."""
        return self._by_blocks(x, self.root, dtype)

    def scores(self, x: Tensor, weights: Tensor) -> Tensor:
        """Features of points [tokens, D] times weights [r, S], by kernel values alone: [tokens, S]."""
        return self._by_blocks(x, self.root @ weights.double(), torch.float64)

    def _by_blocks(self, x: Tensor, matrix: Tensor, dtype: torch.dtype) -> Tensor:
        """k(x, Z) times a matrix, without the whole of k(x, Z)."""
        blocks = x.split(max(1, _BLOCK // len(self.landmarks)))
        return torch.cat([(self.kernel.values(block, self.landmarks) @ matrix).to(dtype) for block in blocks])


def _rbf(gamma: float, degree: int) -> Kernel:
    return lambda x, z: (-gamma * torch.cdist(x, z, compute_mode="use_mm_for_euclid_dist").square()).exp()


def _polynomial(gamma: float, degree: int) -> Kernel:
    return lambda x, z: (gamma * (x @ z.T) + 1.0) ** degree


def _cosine_polynomial(gamma: float, degree: int) -> Kernel:
    polynomial = _polynomial(gamma, degree)
    return lambda x, z: polynomial(_normalized(x), _normalized(z))


def _normalized(x: Tensor) -> Tensor:
    """Rows of length one; zero stays zero."""
    return torch.nn.functional.normalize(x, eps=torch.finfo(x.dtype).tiny)


def _precomputed(gamma: float, degree: int) -> Kernel:
    def values(x: Tensor, z: Tensor) -> Tensor:
        if x.shape[1] != len(z):
            raise ValueError(f"x must hold kernel values with all {len(z)} tokens of training, got {tuple(x.shape)}")
        return x

    return values


_KERNELS: dict[str, Callable[[float, int], Kernel]] = {
    "rbf": _rbf,
    "polynomial": _polynomial,
    "cosine-polynomial": _cosine_polynomial,
    "precomputed": _precomputed,
}


def _points(name: str, x: Tensor) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
    if x.dim() != 2 or not len(x):
        raise ValueError(f"{name} must have shape [tokens, D] with a token at least, got {tuple(x.shape)}")
    if not bool(x.isfinite().all()):
        raise ValueError(f"{name} must be finite")
    return x.double()


def _checked_gram(gram: Tensor) -> Tensor:
    """The matrix without the rounding that parts it from its transpose; raises ``ValueError`` for no Gram matrix."""
    if gram.dim() != 2 or gram.shape[0] != gram.shape[1]:
        raise ValueError(f"the kernel must give a matrix [a, b] for points [a, D] and [b, D], got {tuple(gram.shape)}")
    if not bool(gram.isfinite().all()):
        raise ValueError("the Gram matrix of the kernel must be finite")
    asymmetry, largest = float((gram - gram.T).abs().max()), float(gram.abs().max())
    if asymmetry > _ROUNDING * largest:
        raise ValueError(
            f"the Gram matrix of the kernel must be symmetric, differs from its transpose by {asymmetry:.3g}"
        )
    return (gram + gram.T) / 2


def _inverse_root(gram: Tensor) -> Tensor:
    """T with T Tᵀ = G⁻¹ for a Gram matrix G, or the pseudo-inverse if G is singular."""
    factor, failed = torch.linalg.cholesky_ex(gram)
    diagonal = factor.diagonal()
    if not failed and float(diagonal.min()) ** 2 > _ROUNDING * float(diagonal.max()) ** 2:
        identity = torch.eye(len(gram), dtype=gram.dtype)
        return cast(Tensor, torch.linalg.solve_triangular(factor, identity, upper=False).T)
    values, vectors = torch.linalg.eigh(gram)
    _check_eigenvalues(values)
    kept = values > _ROUNDING * values[-1]
    return cast(Tensor, vectors[:, kept] / values[kept].sqrt())


def _check_eigenvalues(values: Tensor) -> None:
    """Raise unless none of the rising eigenvalues is negative, and one is positive, up to rounding."""
    if values[-1] <= 0 or values[0] < -_ROUNDING * len(values) * values.abs().max():
        raise ValueError(
            f"the Gram matrix of the kernel must be positive semi-definite, has eigenvalue {values[0]:.3g}"
        )
