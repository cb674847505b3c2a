"""Decisions that a solver of the user's finds: a structure from a function alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, widened

Solve = Callable[[NDArray[np.float64]], Any]


class OracleSpace(Structure):
    """Decisions, vectors of D numbers, among which a solver finds the one of the least costs: see :func:`from_oracle`.

    score(y) = ⟨scores, y⟩, so scores are minus the costs. The parts of a decision are its numbers. The solver is called
    for one example after the other, on the CPU and in float64; there are no top-K and exp oracles.

    Args:
        scores: minus the costs, [B, D], floating point.
        argmin: a decision [D] of least costs, for costs [D] as an array; never costs of NaN.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.

    Raises:
        TypeError: scores that are not floating point.
        ValueError: scores of the wrong shape, or with NaN or +inf; a decision of the wrong shape.
    """

    potential_names = ("scores",)
    field_names = ("argmin",)

    def __init__(self, scores: Tensor, argmin: Solve, *, validate_args: bool | None = None) -> None:
        self.scores, self.argmin = scores, argmin
        self.check_shapes()
        super().__init__(validate_args)

    def check_shapes(self) -> None:
        """Raise unless scores are [B, D]."""
        checks.require_scores("scores", self.scores)
        if self.scores.dim() != 2:
            raise ValueError(f"scores must have shape [B, D], got {tuple(self.scores.shape)}")
        checks.refuse_transforms("OracleSpace")

    def batched(self) -> "OracleSpace":
        """The structure itself."""
        return self

    def checked_labels(self, y: Tensor) -> Tensor:
        """Decisions in the dtype of values."""
        checks.require_tensor("y", y)
        checks.require_shape("y", y, "[B, D]", tuple(self.scores.shape))
        checks.require_device("y", y, "scores", self.scores)
        return y.to(widened(self.scores).dtype)

    def score(self, y: Tensor) -> Tensor:
        """⟨scores, y⟩: [B], differentiable."""
        y = self.checked_labels(y)
        return torch.where(y == 0, 0.0, widened(self.scores) * y).sum(1)

    def parts(self, y: Tensor) -> tuple[Tensor]:
        """The decisions themselves, [B, D]."""
        return (self.checked_labels(y),)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """The best decision, for k = 1.

        Raises:
            NotImplementedError: k > 1, or ``torch.compile``.
        """
        if check_k(k) > 1:
            raise NotImplementedError("OracleSpace has a max oracle alone: take Max(), SparseMAP() or Perturbed()")
        if torch.compiler.is_compiling():
            raise NotImplementedError("OracleSpace calls a solver in Python, which torch.compile does not trace")
        first = widened(self.scores)
        decisions = [self._decision(costs) for costs in -first.detach().double().cpu().numpy()]
        found = np.stack(decisions) if decisions else np.zeros(tuple(first.shape))
        y = torch.from_numpy(found).to(first)
        return self.score(y).unsqueeze(1), y.unsqueeze(1)

    def _decision(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        y = np.asarray(self.argmin(costs), dtype=np.float64)
        if y.shape != costs.shape:
            raise ValueError(f"argmin must return a decision of shape [D] = {costs.shape}, got {y.shape}")
        return y


def from_oracle(argmin: Solve) -> Callable[[Tensor], OracleSpace]:
    """A structure for decisions that a solver finds: as a function of their costs [B, D], which it minimizes.

    Losses and smoothers that need a max oracle alone then train what predicts the costs: ``SPOPlus``, ``Perturbed``,
    ``SparseMAP`` and ``Max``.

    Args:
        argmin: a decision [D] of least costs, for costs [D] as an array of float64.

    Example:
        The two cheapest of four items:

        >>> def two_cheapest(costs):
        ...     return (costs.argsort().argsort() < 2).astype(float)
        >>> space = from_oracle(two_cheapest)
        >>> costs = torch.tensor([[3.0, 1.0, 2.0, 5.0]])
        >>> space(costs).max()
        (tensor([-3.]), tensor([[0., 1., 1., 0.]]))
    """

    def bound(costs: Tensor) -> OracleSpace:
        checks.require_scores("costs", costs)
        return OracleSpace(-costs, argmin)

    return bound
