"""Sequences of tokens described by features: sparse, dense, or both."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

# Rows of numbers that are checked at a time.
_ROWS = 1 << 12
S = TypeVar("S", bound="Sequences")


class Sequences(ABC):
    """A set of n sequences of tokens, each of which is a row of features.

    Attributes:
        offsets: sequence i has tokens offsets[i] to offsets[i + 1] - 1: int64 [n + 1].
    """

    offsets: Tensor

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """Number of tokens of each sequence: int64 [n]."""
        return self.offsets.diff()

    def tokens(self, indices: Tensor) -> Tensor:
        """Positions of the tokens of the sequences at ``indices``."""
        return self._rows(indices)[0]

    @abstractmethod
    def select(self: S, indices: Tensor) -> S:
        """The sequences at ``indices``, in that order."""

    @abstractmethod
    def check_features(self, features: int) -> None:
        """Raise ``ValueError`` unless rows of so many weights fit."""

    @abstractmethod
    def scores(self, rows: Tensor) -> Tensor:
        """Features times weights [F, S]: one row for each token, [tokens, S]."""

    @abstractmethod
    def transposed(self, nodes: Tensor, tokens: slice) -> tuple[Tensor | slice, Tensor]:
        """The transposed features of some tokens times ``nodes`` [T, S]: numbers of features, and a row for each."""

    def restricted(self: S, indices: Tensor) -> tuple[S, Tensor | slice]:
        """The sequences at ``indices``, over the features that they have alone: numbers of these; here all."""
        return self.select(indices), slice(None)

    def _rows(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Positions of the tokens of some sequences, and the offsets of these sequences."""
        if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < len(self):
            raise IndexError(f"indices must be from 0 to {len(self) - 1}")
        return compressed_rows(self.offsets, indices)

    def _check_offsets(self, name: str, end: int) -> None:
        offsets = getattr(self, name)
        if offsets.dtype != torch.int64:
            raise TypeError(f"{name} must be int64, got {offsets.dtype}")
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != end or bool((offsets.diff() < 0).any()):
            raise ValueError(f"{name} must rise from 0 to {end}")


@dataclass(frozen=True)
class SparseSequences(Sequences):
    """A set of n sequences of tokens, each of which is a set of attribute ids, in compressed rows.

    Args:
        attributes: ids of all tokens in order: int32 [nonzeros]. An id that a token lists twice counts twice.
        token_offsets: token t has attributes[token_offsets[t] : token_offsets[t + 1]]: int64 [tokens + 1].
        offsets: sequence i has tokens offsets[i] to offsets[i + 1] - 1: int64 [n + 1].
        values: the value of each entry of ``attributes``, float32 or float64 [nonzeros]; ``None`` if all are 1.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: offsets that do not start at 0, that decrease or that do not end with the data;
            values that are not finite, or another number of them than of attributes.
    """

    attributes: Tensor
    token_offsets: Tensor
    offsets: Tensor
    values: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("attributes", "token_offsets", "offsets"):
            _check_tensor(name, getattr(self, name), 1)
        if self.attributes.dtype != torch.int32:
            raise TypeError(f"attributes must be int32, got {self.attributes.dtype}")
        self._check_offsets("token_offsets", len(self.attributes))
        self._check_offsets("offsets", len(self.token_offsets) - 1)
        if self.values is not None:
            _check_values("values", self.values, 1)
            if len(self.values) != len(self.attributes):
                raise ValueError(
                    f"values must be as many as attributes, {len(self.attributes)}, got {len(self.values)}"
                )

    def select(self, indices: Tensor) -> "SparseSequences":
        """The sequences at ``indices``, in that order."""
        tokens, offsets = self._rows(indices)
        entries, token_offsets = compressed_rows(self.token_offsets, tokens)
        values = None if self.values is None else self.values[entries]
        return SparseSequences(self.attributes[entries], token_offsets, offsets, values)

    def restricted(self, indices: Tensor) -> "tuple[SparseSequences, Tensor]":
        """The sequences at ``indices``, with new numbers of the attributes that occur there: the old ones."""
        sequences = self.select(indices)
        used, attributes = sequences.attributes.unique(return_inverse=True)
        return replace(sequences, attributes=attributes.to(torch.int32)), used

    def check_features(self, features: int) -> None:
        """Raise ``ValueError`` unless all attribute ids are below the number of features."""
        _check_ids("attributes", self.attributes, features)

    def scores(self, rows: Tensor) -> Tensor:
        """Sums of the weights [F, S] of the attributes of each token, times their values: [tokens, S]."""
        values = None if self.values is None else self.values.to(rows.dtype)
        offsets = self.token_offsets.to(self.attributes.dtype)
        return embedding_bag(
            self.attributes, rows, offsets, mode="sum", per_sample_weights=values, include_last_offset=True
        )

    def transposed(self, nodes: Tensor, tokens: slice) -> tuple[Tensor | slice, Tensor]:
        """The different attributes of some tokens, and for each the sum of the ``nodes`` [T, S] of its tokens."""
        offsets = self.token_offsets[tokens.start : tokens.stop + 1]
        entries = slice(int(offsets[0]), int(offsets[-1]))
        terms = nodes[torch.repeat_interleave(offsets.diff())]
        if self.values is not None:
            terms = terms * self.values[entries, None]
        used, row = self.attributes[entries].long().unique(return_inverse=True)
        return used, nodes.new_zeros(len(used), nodes.shape[1]).index_add_(0, row, terms)


@dataclass(frozen=True)
class DenseSequences(Sequences):
    """A set of n sequences of tokens, each of which is a row of numbers.

    Args:
        features: rows of all tokens in order: float32 or float64 [tokens, F].
        offsets: sequence i has tokens offsets[i] to offsets[i + 1] - 1: int64 [n + 1].

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: features that are not finite; offsets that do not start at 0, that decrease or that do not end with
            the data.
    """

    features: Tensor
    offsets: Tensor

    def __post_init__(self) -> None:
        _check_values("features", self.features, 2)
        _check_tensor("offsets", self.offsets, 1)
        self._check_offsets("offsets", len(self.features))

    @classmethod
    def of(cls, features: Tensor, lengths: Tensor) -> "DenseSequences":
        """The sequences whose numbers of tokens are ``lengths``, int64 [n]."""
        _check_tensor("lengths", lengths, 1)
        if lengths.dtype != torch.int64:
            raise TypeError(f"lengths must be int64, got {lengths.dtype}")
        if bool((lengths < 0).any()) or int(lengths.sum()) != len(features):
            raise ValueError(f"lengths must be at least 0 and sum to the number of tokens, {len(features)}")
        return cls(features, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))

    def select(self, indices: Tensor) -> "DenseSequences":
        """The sequences at ``indices``, in that order."""
        tokens, offsets = self._rows(indices)
        return DenseSequences(self.features[tokens], offsets)

    def check_features(self, features: int) -> None:
        """Raise ``ValueError`` unless tokens have so many features."""
        if self.features.shape[1] != features:
            raise ValueError(
                f"features must have shape [tokens, F] with F = {features}, got {tuple(self.features.shape)}"
            )

    def scores(self, rows: Tensor) -> Tensor:
        """Scores of the tokens, features times weights [F, S]: [tokens, S]."""
        return self.features.to(rows.dtype) @ rows

    def transposed(self, nodes: Tensor, tokens: slice) -> tuple[Tensor | slice, Tensor]:
        """All features, and the transposed features of some tokens times ``nodes`` [T, S]."""
        return slice(None), self.features[tokens].to(nodes.dtype).T @ nodes


@dataclass(frozen=True)
class MixedSequences(Sequences):
    """A set of n sequences of tokens, each of which is a set of attribute ids beside a row of numbers.

    For attributes of words beside features of a network. A number x counts as (x - center)·scale: the larger the
    scale, the less its weights are regularized. Numbers stand behind the attributes: with F features in all, the last D
    rows of the weights are theirs.

    Args:
        sparse: the attributes, each of value 1.
        block: the numbers of all tokens in order: float32 or float64 [tokens, D].
        center: what is subtracted from the numbers of each column: float64 [D].
        scale: by which they are multiplied then: float64 [D].

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: numbers that are not finite, or of other tokens; attributes with values.

    Example:
        >>> ids, ends = torch.tensor([0, 1, 1], dtype=torch.int32), torch.tensor([0, 1, 2, 3])
        >>> sparse, block = SparseSequences(ids, ends, torch.tensor([0, 3])), torch.tensor([[2.0], [4.0], [0.0]])
        >>> both = MixedSequences(sparse, block, torch.tensor([2.0]).double(), torch.tensor([0.5]).double())
        >>> both.scores(torch.tensor([[10.0], [20.0], [1.0]])).flatten()
        tensor([10., 21., 19.])
    """

    sparse: SparseSequences
    block: Tensor
    center: Tensor
    scale: Tensor

    def __post_init__(self) -> None:
        _check_values("block", self.block, 2)
        tokens, columns = len(self.sparse.token_offsets) - 1, self.block.shape[1]
        if len(self.block) != tokens:
            raise ValueError(f"block must have a row for each of {tokens} tokens, got {len(self.block)}")
        if self.sparse.values is not None:
            raise ValueError("sparse must have attributes of value 1, got values")
        for name in ("center", "scale"):
            _check_values(name, numbers := getattr(self, name), 1)
            if numbers.dtype != torch.float64 or len(numbers) != columns:
                raise ValueError(f"{name} must be float64 [{columns}], got {numbers.dtype} [{len(numbers)}]")

    @property
    def offsets(self) -> Tensor:  # type: ignore[override]
        """Sequence i has tokens offsets[i] to offsets[i + 1] - 1: int64 [n + 1]."""
        return self.sparse.offsets

    def select(self, indices: Tensor) -> "MixedSequences":
        """The sequences at ``indices``, in that order."""
        return replace(self, sparse=self.sparse.select(indices), block=self.block[self.tokens(indices)])

    def restricted(self, indices: Tensor) -> "tuple[MixedSequences, Tensor]":
        """As of its attributes; columns of the block have their numbers from the end, -D to -1."""
        sparse, used = self.sparse.restricted(indices)
        part = replace(self, sparse=sparse, block=self.block[self.tokens(indices)])
        return part, torch.cat([used, self._columns])

    def check_features(self, features: int) -> None:
        """Raise ``ValueError`` unless all attribute ids are below the number of features that are not in the block."""
        self.sparse.check_features(features - len(self.scale))

    def scores(self, rows: Tensor) -> Tensor:
        """Scores of the tokens, attributes and numbers times weights [F, S]: [tokens, S]."""
        of_attributes, of_block = rows.tensor_split([-len(self.scale)])
        return self.sparse.scores(of_attributes) + self._numbers(slice(None), rows.dtype) @ of_block

    def transposed(self, nodes: Tensor, tokens: slice) -> tuple[Tensor | slice, Tensor]:
        """As of its attributes, and the transposed numbers of some tokens times ``nodes``, numbered from the end."""
        used, sums = self.sparse.transposed(nodes, tokens)
        assert isinstance(used, Tensor)
        return torch.cat([used, self._columns]), torch.cat([sums, self._numbers(tokens, nodes.dtype).T @ nodes])

    @property
    def _columns(self) -> Tensor:
        return torch.arange(-len(self.scale), 0)

    def _numbers(self, tokens: slice, dtype: torch.dtype) -> Tensor:
        """What the numbers of some tokens count as: [T, D]."""
        return ((self.block[tokens] - self.center) * self.scale).to(dtype)


def compressed_rows(offsets: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the entries of some compressed rows, and the offsets of these rows when concatenated."""
    counts = offsets.diff()[indices]
    ends = counts.cumsum(0)
    positions = torch.arange(int(counts.sum()), device=offsets.device)
    # Entry p of the result is at p plus how much further its row begins in what it is taken from.
    shift = torch.repeat_interleave(offsets[indices] - (ends - counts), counts)
    return positions + shift, torch.cat([ends.new_zeros(1), ends])


def pad(values: Tensor, lengths: Tensor) -> Tensor:
    """Values of consecutive tokens [tokens, ...] as a batch [B, T, ...], T >= 1, with zeros at padding."""
    mask = torch.arange(max(int(lengths.max()), 1), device=values.device) < lengths[:, None]
    padded = values.new_zeros(*mask.shape, *values.shape[1:])
    return padded.masked_scatter(mask.view(*mask.shape, *[1] * (values.dim() - 1)).expand_as(padded), values)


def check_labelled(sequences: Sequences, labels: Tensor, features: int, states: int) -> None:
    """Raise unless there is a sequence, a token in each, a label of every token, and all are in range."""
    tokens = int(sequences.offsets[-1])
    if len(sequences) == 0:
        raise ValueError("sequences must hold at least one sequence, got none")
    if labels.dtype != torch.int64:
        raise TypeError(f"labels must be int64, got {labels.dtype}")
    if labels.shape != (tokens,):
        raise ValueError(f"labels must have shape [tokens] = {(tokens,)}, got {tuple(labels.shape)}")
    _check_ids("labels", labels, states)
    sequences.check_features(features)
    if bool((sequences.lengths == 0).any()):
        raise ValueError(f"sequence {int((sequences.lengths == 0).nonzero()[0])} is empty")


def _check_ids(name: str, ids: Tensor, size: int) -> None:
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise ValueError(f"{name} must be from 0 to {size - 1}, got {int(ids.min())} to {int(ids.max())}")


def _check_tensor(name: str, tensor: Tensor, dimensions: int) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.dim() != dimensions:
        wanted = "one dimension" if dimensions == 1 else f"{dimensions} dimensions"
        raise ValueError(f"{name} must have {wanted}, got shape {tuple(tensor.shape)}")


def _check_values(name: str, values: Tensor, dimensions: int) -> None:
    _check_tensor(name, values, dimensions)
    if values.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} must be float32 or float64, got {values.dtype}")
    # In parts, since numbers mapped from a file may be more than memory takes.
    if not all(bool(part.isfinite().all()) for part in values.split(_ROWS)):
        raise ValueError(f"{name} must be finite")
