"""What every structure offers: an output space bound to a batch of potentials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

S = TypeVar("S", bound="Structure")


class PartCosts(Protocol):
    """A task loss that decomposes over parts; see :mod:`structsmooth.costs`."""

    def __call__(self, structure: Structure, y: Tensor) -> Tensor:
        """Cost of each value of each variable, shaped as the first potentials of ``structure``."""
        ...


class Structure(ABC):
    """An output space 𝒴 bound to a batch of B potentials θ, in the manner of ``torch.distributions``.

    The score of an output is ⟨θ, ν(y)⟩, with ν(y) the 0/1 indicator of its parts. The oracles max, top-K and exp
    return values that are differentiable with respect to the potentials; their gradients are the oracles'
    statistics (Pillutla et al. 2019, Lemma 7). A tensor handed in is never changed.

    Shapes are always checked. Values (NaN, ranges of labels and lengths) are checked under ``validate_args``, which
    defaults to ``Structure.validate_args_default`` and is off inside ``torch.compile`` and ``torch.func`` transforms.
    """

    validate_args_default: ClassVar[bool] = __debug__

    @property
    @abstractmethod
    def potentials(self) -> tuple[Tensor, ...]:
        """The tensors this structure was built from."""

    @abstractmethod
    def replace(self: S, *potentials: Tensor) -> S:
        """The same output space with other potentials."""

    def batched(self: S) -> S | None:
        """The same structure with a row for each example in each of the potentials; ``None`` if there is no such."""
        return None

    @abstractmethod
    def score(self, y: Tensor) -> Tensor:
        """Score ⟨θ, ν(y)⟩ of outputs ``y``: [B], differentiable."""

    @abstractmethod
    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """Indicators ν(y), one tensor per kind of part."""

    @abstractmethod
    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k], sorted downwards, and the distinct outputs [B, k, ...].

        Where 𝒴 has fewer than k outputs of finite score, values are -inf and outputs 0.
        """

    def max(self) -> tuple[Tensor, Tensor]:
        """Max oracle: the largest score [B] and an output that attains it (ties: the lowest index)."""
        values, y = self.topk(1)
        return values[:, 0], y[:, 0]

    def logsumexp(self) -> Tensor:
        """Exp oracle: log Σ exp score(y), [B]; its gradient is the marginals."""
        raise self._no_oracle("logsumexp")

    def marginals(self) -> tuple[Tensor, ...]:
        """Marginals of the Gibbs distribution exp(score), shaped as :meth:`parts`."""
        raise self._no_oracle("marginals")

    def max_marginals(self) -> Tensor:
        """Largest score with each variable fixed to each value (Definition 13), shaped as the unary potentials."""
        raise self._no_oracle("max_marginals")

    def cost_augmented(self: S, y: Tensor, cost: PartCosts | Tensor) -> S:
        """The structure with potentials θ + ℓ(y, ·).

        Args:
            y: labels, shaped as an output of :meth:`max`.
            cost: a cost, or a tensor of part costs that broadcasts to the first potentials.
        """
        self._check_labels(y)
        if not isinstance(cost, Tensor) and not callable(cost):
            raise TypeError(f"cost must be a cost or a tensor of part costs, got {type(cost).__name__}")
        part_costs = cost if isinstance(cost, Tensor) else cost(self, y)
        first, *others = self.potentials
        pairs = zip(reversed(part_costs.shape), reversed(first.shape), strict=False)
        if part_costs.dim() > first.dim() or any(size not in (1, full) for size, full in pairs):
            raise ValueError(
                f"cost must broadcast to the potentials of shape {tuple(first.shape)}, got {tuple(part_costs.shape)}"
            )
        return self.replace(widened(first) + part_costs, *others)

    def _check_labels(self, y: Tensor) -> Tensor:
        """``y`` as int64 with 0 at padding; a structure raises here what is wrong with it."""
        return y

    def _no_oracle(self, oracle: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} has no exact {oracle} oracle; use max() or topk(), e.g. the L2 smoother"
        )


def lengths_from_mask(mask: Tensor) -> Tensor:
    """Lengths [B] of a mask [B, T] that is true on a prefix of every row.

    Raises:
        ValueError: if a row has a hole or starts with padding: positions inside a sequence cannot be skipped.

    Example:
        >>> lengths_from_mask(torch.tensor([[True, True, False], [True, True, True]]))
        tensor([2, 3])
    """
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask must be a torch.Tensor, got {type(mask).__name__}")
    if mask.dim() != 2:
        raise ValueError(f"mask must have shape [B, T], got {tuple(mask.shape)}")
    mask = mask.bool()
    lengths = mask.sum(-1)
    prefix = torch.arange(mask.shape[1], device=mask.device) < lengths[:, None]
    if mask.shape[0] and not bool(lengths.all()):
        raise ValueError(f"mask must be true on a prefix of every row; row {int((lengths == 0).nonzero()[0])} is empty")
    if not torch.equal(prefix, mask):
        row = int((prefix != mask).any(-1).nonzero()[0])
        raise ValueError(f"mask must be true on a prefix of every row; row {row} has a hole")
    return lengths


def check_k(k: int) -> int:
    """``k`` if it is a positive int, else a clear error."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"k must be an int, got {type(k).__name__}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    return k


def widened(scores: Tensor) -> Tensor:
    """Scores in the dtype that sums use: at least float32."""
    return scores.float() if scores.dtype.itemsize < 4 else scores


def widened_pair(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two kinds of scores in the dtype that their sums use: at least float32."""
    dtype = torch.promote_types(first.dtype, second.dtype)
    return widened(first.to(dtype)), widened(second.to(dtype))
