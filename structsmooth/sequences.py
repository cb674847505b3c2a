"""Sequences of tokens described by sparse binary attributes."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SparseSequences:
    """A set of n sequences of tokens, each of which is a set of attribute ids, in compressed rows.

    Args:
        attributes: ids of all tokens in order: int32 [nonzeros]. An id that a token lists twice counts twice.
        token_offsets: token t has attributes[token_offsets[t] : token_offsets[t + 1]]: int64 [tokens + 1].
        offsets: sequence i has tokens offsets[i] to offsets[i + 1] - 1: int64 [n + 1].

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: offsets that do not start at 0, that decrease or that do not end with the data; an empty sequence.
    """

    attributes: Tensor
    token_offsets: Tensor
    offsets: Tensor

    def __post_init__(self) -> None:
        for name in ("attributes", "token_offsets", "offsets"):
            if not isinstance(getattr(self, name), Tensor):
                raise TypeError(f"{name} must be a torch.Tensor, got {type(getattr(self, name)).__name__}")
            if getattr(self, name).dim() != 1:
                raise ValueError(f"{name} must have one dimension, got shape {tuple(getattr(self, name).shape)}")
        ends = {"token_offsets": len(self.attributes), "offsets": len(self.token_offsets) - 1}
        if self.attributes.dtype != torch.int32:
            raise TypeError(f"attributes must be int32, got {self.attributes.dtype}")
        for name, end in ends.items():
            offsets = getattr(self, name)
            if offsets.dtype != torch.int64:
                raise TypeError(f"{name} must be int64, got {offsets.dtype}")
            if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != end or bool((offsets.diff() < 0).any()):
                raise ValueError(f"{name} must rise from 0 to {end}")
        if bool((self.lengths == 0).any()):
            raise ValueError(f"sequence {int((self.lengths == 0).nonzero()[0])} is empty")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """Number of tokens of each sequence: int64 [n]."""
        return self.offsets.diff()

    def select(self, indices: Tensor) -> "SparseSequences":
        """The sequences at ``indices``, in that order."""
        if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < len(self):
            raise IndexError(f"indices must be from 0 to {len(self) - 1}")
        tokens, offsets = compressed_rows(self.offsets, indices)
        entries, token_offsets = compressed_rows(self.token_offsets, tokens)
        return SparseSequences(self.attributes[entries], token_offsets, offsets)

    def tokens(self, indices: Tensor) -> Tensor:
        """Positions of the tokens of the sequences at ``indices``."""
        return compressed_rows(self.offsets, indices)[0]


def compressed_rows(offsets: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the entries of some compressed rows, and the offsets of these rows when concatenated."""
    counts = offsets.diff()[indices]
    ends = counts.cumsum(0)
    positions = torch.arange(int(counts.sum()), device=offsets.device)
    shift = torch.repeat_interleave(offsets[indices] - (ends - counts), counts)
    return positions + shift, torch.cat([ends.new_zeros(1), ends])


def pad(values: Tensor, lengths: Tensor) -> Tensor:
    """Values of consecutive tokens [tokens, ...] as a batch [B, T, ...], with zeros at padding."""
    mask = torch.arange(int(lengths.max()), device=values.device) < lengths[:, None]
    padded = values.new_zeros(*mask.shape, *values.shape[1:])
    return padded.masked_scatter(mask.view(*mask.shape, *[1] * (values.dim() - 1)).expand_as(padded), values)


def check_labelled(sequences: SparseSequences, labels: Tensor, features: int, states: int) -> None:
    """Raise unless there is a sequence, a label of every token, and all are in range."""
    tokens = int(sequences.offsets[-1])
    if len(sequences) == 0:
        raise ValueError("sequences must hold at least one sequence, got none")
    if labels.dtype != torch.int64:
        raise TypeError(f"labels must be int64, got {labels.dtype}")
    if labels.shape != (tokens,):
        raise ValueError(f"labels must have shape [tokens] = {(tokens,)}, got {tuple(labels.shape)}")
    for name, ids, size in (("labels", labels, states), ("attributes", sequences.attributes, features)):
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
            raise ValueError(f"{name} must be from 0 to {size - 1}, got {int(ids.min())} to {int(ids.max())}")
