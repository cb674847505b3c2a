"""Sparse features of parts, stored or computed where they are needed."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from structsmooth.lazy import LazyModule
from structsmooth.sequences import compressed_rows

compiled = LazyModule("structsmooth.problems.linear.programs.compiled")

F = TypeVar("F", bound="PartFeatures")


class PartFeatures(ABC):
    """Sparse features of parts.

    Attributes:
        features: number of features.
    """

    features: Any  # a field or a property

    @abstractmethod
    def __len__(self) -> int:
        """Number of parts."""

    @property
    @abstractmethod
    def most(self) -> int:
        """The most features that a part has."""

    @property
    @abstractmethod
    def arrays(self) -> tuple[Any, ...]:
        """The arrays by which compiled passes find the features of a part."""

    @property
    def rows(self) -> tuple[tuple[Any, ...], int]:
        """The arrays, and the most features that a part has: what compiled passes take of features."""
        return self.arrays, self.most

    @abstractmethod
    def select(self: F, parts: Tensor) -> F:
        """The features of some of the parts."""

    def scores(self, w: Tensor, parts: slice = slice(0, None)) -> Tensor:
        """Scores of consecutive parts, the sums of the weights [features] of their features: float64 [parts]."""
        begin, end, _ = parts.indices(len(self))
        scores = torch.empty(end - begin, dtype=torch.float64)
        compiled.part_scores(*self.rows, begin, w.detach().numpy(), scores.numpy())
        return scores


@dataclass(frozen=True)
class PartRows(PartFeatures):
    """Features of parts in compressed rows, each of value 1.

    Args:
        columns: features of all parts, int32 [nonzeros]; one that a part has twice counts twice.
        offsets: part p has columns[offsets[p] : offsets[p + 1]]: int64 [parts + 1].
        features: number of features.

    Raises:
        TypeError: tensors of the wrong dtype.
        ValueError: offsets that do not fit, or columns that are out of range.
    """

    columns: Tensor
    offsets: Tensor
    features: int

    def __post_init__(self) -> None:
        if self.columns.dtype != torch.int32 or self.offsets.dtype != torch.int64:
            raise TypeError(f"columns must be int32 and offsets int64, got {self.columns.dtype}, {self.offsets.dtype}")
        if not len(self.offsets) or self.offsets[0] != 0 or self.offsets[-1] != len(self.columns):
            raise ValueError(f"offsets must rise from 0 to the number of columns, {len(self.columns)}")
        if bool((self.offsets.diff() < 0).any()):
            raise ValueError("offsets must not fall")
        if len(self.columns) and not 0 <= int(self.columns.min()) <= int(self.columns.max()) < self.features:
            raise ValueError(f"columns must be from 0 to features - 1 = {self.features - 1}")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def most(self) -> int:
        """The most features that a part has."""
        return int(self.offsets.diff().max())

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arrays by which compiled passes find the features of a part."""
        return self.columns.numpy(), self.offsets.numpy()

    def select(self, parts: Tensor) -> "PartRows":
        """The features of some of the parts."""
        rows, offsets = compressed_rows(self.offsets, parts)
        return PartRows(self.columns[rows], offsets, self.features)


@dataclass(frozen=True)
class PairFeatures(PartFeatures):
    """Hashed features of parts that are about two tokens each, computed where they are needed.

    A part of kind r about the tokens a and b, d = b - a apart, has a feature for each column k of its kind: the upper
    ``bits`` of the sum of ``first_keys[a, k]``, ``second_keys[b, k]``, ``distance_keys[d, k]`` and ``kind_keys[r, k]``
    modulo 2**32. In the last J columns it has one for each token c between a and b, with ``between_keys[c, j]`` as one
    more term. Keys are random numbers, the same for equal properties: as a hash, such sums are universal.

    So a feature of two properties takes a few additions, whatever the properties are, and the features of a sentence of
    n words need memory for n keys and not for n².

    Args:
        first: a of each part, int32 [parts].
        second: b of each part, int32 [parts].
        first_keys: uint32 [tokens, K].
        second_keys: uint32 [tokens, K].
        distance_keys: of the distances -R to R, uint32 [2R + 1, K]; larger ones count as R.
        between_keys: uint32 [tokens, J].
        bits: there are 2**bits features; from 1 to 30.
        kinds: r of each part, int32 [parts]; all 0 if not given.
        kind_keys: uint32 [kinds, K]; zeros if not given.
        kind_columns: the first column of each kind, and the one behind its last: int64 [kinds, 2]; all if not given.

    Raises:
        TypeError: tensors of the wrong dtype.
        ValueError: shapes that do not fit, or numbers that are out of range.
    """

    first: Tensor
    second: Tensor
    first_keys: Tensor
    second_keys: Tensor
    distance_keys: Tensor
    between_keys: Tensor
    bits: int
    kinds: Tensor | None = None
    kind_keys: Tensor | None = None
    kind_columns: Tensor | None = None

    def __post_init__(self) -> None:
        indices = {"first": self.first, "second": self.second, "kinds": self._kinds}
        for name, tensor in indices.items():
            if tensor.dtype != torch.int32 or tensor.shape != (len(self),):
                raise TypeError(f"{name} must be int32 [parts], got {tensor.dtype} of shape {tuple(tensor.shape)}")
        (tokens, columns), kinds = self.first_keys.shape, len(self._kind_keys)
        if len(self.distance_keys) % 2 != 1 or self.between_keys.shape[1:].numel() > columns:
            raise ValueError(
                f"distance_keys must have shape [2R + 1, K], and between_keys [tokens, J] with J <= K = {columns}"
            )
        keys = {
            "first_keys": (self.first_keys, (tokens, columns)),
            "second_keys": (self.second_keys, (tokens, columns)),
            "distance_keys": (self.distance_keys, (len(self.distance_keys), columns)),
            "between_keys": (self.between_keys, (tokens, self.between_keys.shape[-1])),
            "kind_keys": (self._kind_keys, (kinds, columns)),
        }
        for name, (tensor, shape) in keys.items():
            if tensor.dtype != torch.uint32 or tensor.shape != shape:
                raise TypeError(f"{name} must be uint32 of shape {shape}, got {tensor.dtype} of {tuple(tensor.shape)}")
        if not 1 <= self.bits <= 30:
            raise ValueError(f"bits must be from 1 to 30, got {self.bits}")
        for name, tensor in indices.items():
            limit = kinds if name == "kinds" else tokens
            if len(tensor) and not 0 <= int(tensor.min()) <= int(tensor.max()) < limit:
                raise ValueError(f"{name} must be from 0 to {limit - 1}")
        ranges = self._kind_columns
        begin, end = ranges[:, 0], ranges[:, -1]
        if ranges.shape != (kinds, 2) or not bool(((begin >= 0) & (begin <= end) & (end <= columns)).all()):
            raise ValueError(f"kind_columns must be rising pairs of numbers from 0 to {columns} for {kinds} kinds")

    def __len__(self) -> int:
        return len(self.first)

    @property
    def features(self) -> int:
        """Number of weights: 2**bits."""
        return 1 << self.bits

    @cached_property
    def most(self) -> int:
        """The most features that a part has."""
        columns, between = self.first_keys.shape[1], self.between_keys.shape[1]
        # The last J columns have as many features as tokens between the two, perhaps none.
        gap = max(int((self.second - self.first).abs().max()) - 1, 0) if len(self) else 0
        return columns - between + between * gap

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arrays by which compiled passes find the features of a part."""
        indices = (self.first, self.second, self._kinds)
        keys = (self.first_keys, self.second_keys, self.distance_keys, self._kind_keys)
        tensors = (*indices, *keys, self._kind_columns, self.between_keys)
        return *(tensor.numpy() for tensor in tensors), 32 - self.bits

    def select(self, parts: Tensor) -> "PairFeatures":
        """The features of some of the parts."""
        kinds = None if self.kinds is None else self.kinds[parts]
        return replace(self, first=self.first[parts], second=self.second[parts], kinds=kinds)

    @property
    def _kinds(self) -> Tensor:
        return torch.zeros_like(self.first) if self.kinds is None else self.kinds

    @property
    def _kind_keys(self) -> Tensor:
        return torch.zeros_like(self.first_keys[:1]) if self.kind_keys is None else self.kind_keys

    @property
    def _kind_columns(self) -> Tensor:
        if self.kind_columns is not None:
            return self.kind_columns
        return torch.tensor([[0, self.first_keys.shape[1]]]).repeat(len(self._kind_keys), 1)
