"""What sets of outputs over one program are made of: the parts of examples, and sparse features of parts."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.sequences import compressed_rows
from structsmooth.structures.programs import Program
from structsmooth.structures.projective_trees import projective_trees


@dataclass(frozen=True)
class ProgramParts:
    """The parts of n examples whose outputs are derivations of one program.

    A part of an example is one of the scores of the program. Outputs that need other scores are not outputs of the
    example.

    Args:
        program: the program.
        roots: the root node of each example, int64 [n].
        offsets: example i has parts offsets[i] to offsets[i + 1] - 1: int64 [n + 1].
        scores: which score of the program each part is, int32 [parts]; different ones within an example.

    Raises:
        TypeError: tensors of the wrong dtype.
        ValueError: wrong shapes, or numbers that are out of range.
    """

    program: Program
    roots: Tensor
    offsets: Tensor
    scores: Tensor

    def __post_init__(self) -> None:
        for name, dtype in (("roots", torch.int64), ("offsets", torch.int64), ("scores", torch.int32)):
            own = getattr(self, name)
            if own.dtype != dtype or own.dim() != 1:
                raise TypeError(f"{name} must be a vector of {dtype}, got {own.dtype} of shape {tuple(own.shape)}")
        if not len(self.roots) or len(self.offsets) != len(self.roots) + 1:
            raise ValueError(
                f"offsets must have one entry more than roots, which has at least one; got {len(self.offsets)} and "
                f"{len(self.roots)}"
            )
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.scores) or bool((self.offsets.diff() < 1).any()):
            raise ValueError(f"offsets must rise from 0 to the number of scores, {len(self.scores)}")
        for name, limit in (("roots", self.program.nodes), ("scores", self.program.scores)):
            own = getattr(self, name)
            if int(own.min()) < 0 or int(own.max()) >= limit:
                raise ValueError(f"{name} must be from 0 to {limit - 1}, got {int(own.min())} to {int(own.max())}")

    def __len__(self) -> int:
        return len(self.roots)

    def of(self, i: int) -> slice:
        """The parts of an example."""
        return slice(*self.offsets[i : i + 2].tolist())

    def select(self, indices: Tensor) -> tuple["ProgramParts", Tensor]:
        """Those of some examples, in that order, and the numbers of their parts."""
        rows, offsets = compressed_rows(self.offsets, indices)
        return ProgramParts(self.program, self.roots[indices], offsets, self.scores[rows]), rows

    @cached_property
    def longest(self) -> Tensor:
        """The largest number of parts of an output of each example, int64 [n]."""
        from structsmooth.structures.programs import compiled

        used = compiled.measure(self.program.arrays, self.program.scores)[2]
        return torch.from_numpy(np.maximum(used, 1)[self.roots.numpy()])

    @classmethod
    def projective_trees(cls, lengths: Tensor, single_root: bool = True) -> "ProgramParts":
        """Arcs of the projective trees of :class:`~structsmooth.ProjectiveTree` over sentences.

        Part m n + h of a sentence of n words is the arc to word m + 1 from the h-th of all places 0 (the root) to n
        without m + 1 itself; see :func:`arcs_of`.

        Args:
            lengths: numbers of words, int64 [n], each at least 1.
            single_root: whether exactly one word is a child of the root.
        """
        words = int(lengths.max())
        program = projective_trees(words, 1, single_root)
        heads, modifiers, offsets = arcs_of(lengths)
        scores = torch.where(heads > 0, (heads - 1) * words + modifiers - 1, words * words + modifiers - 1)
        return cls(program, torch.from_numpy(program.roots)[lengths - 1], offsets, scores.int())


def arcs_of(lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Heads, from 0 for the root, and modifiers, from 1, of the n² arcs of sentences of n words, and their offsets.

    Example:
        >>> arcs_of(torch.tensor([2]))
        (tensor([0, 2, 0, 1]), tensor([1, 1, 2, 2]), tensor([0, 4]))
    """
    offsets = torch.nn.functional.pad((lengths * lengths).cumsum(0), (1, 0))
    own = torch.repeat_interleave(lengths, lengths * lengths)
    place = torch.arange(len(own)) - torch.repeat_interleave(offsets[:-1], lengths * lengths)
    modifiers, heads = place // own + 1, place % own
    return heads + (heads >= modifiers), modifiers, offsets


@dataclass(frozen=True)
class PartRows:
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

    @property
    def most(self) -> int:
        """The most features that a part has."""
        return int(self.offsets.diff().max())

    @property
    def arrays(self) -> tuple[Any, ...]:
        """For compiled passes."""
        return self.columns.numpy(), self.offsets.numpy()

    def select(self, parts: Tensor) -> "PartRows":
        """Those of some parts."""
        rows, offsets = compressed_rows(self.offsets, parts)
        return PartRows(self.columns[rows], offsets, self.features)


@dataclass(frozen=True)
class PairFeatures:
    """Hashed features of parts that are about two tokens each, computed where they are needed.

    A part about the tokens a and b, d = b - a apart, has the features ``(first_keys[a, k] + second_keys[b, k] +
    distance_keys[d, k]) mod 2**32``, of which the upper ``bits`` count: one for each of the K columns of keys, except
    the last J. For these it has a feature for each token c between a and b, with ``between_keys[c, j]`` as one more
    term of the sum. Keys are random numbers, the same for equal properties: as a hash, such sums are universal.

    So a feature of two properties takes two additions, whatever the properties are, and the features of sentences of n
    words need memory for n keys and not for n².

    Args:
        first: a of each part, int32 [parts].
        second: b of each part, int32 [parts].
        first_keys: uint32 [tokens, K].
        second_keys: uint32 [tokens, K].
        distance_keys: of the distances -R to R, uint32 [2R + 1, K]; larger ones count as R.
        between_keys: uint32 [tokens, J].
        bits: there are 2**bits features; from 1 to 30.

    Raises:
        TypeError: tensors of the wrong dtype.
        ValueError: shapes that do not fit, or tokens that are out of range.
    """

    first: Tensor
    second: Tensor
    first_keys: Tensor
    second_keys: Tensor
    distance_keys: Tensor
    between_keys: Tensor
    bits: int

    def __post_init__(self) -> None:
        if self.first.dtype != torch.int32 or self.second.dtype != torch.int32:
            raise TypeError(f"first and second must be int32, got {self.first.dtype} and {self.second.dtype}")
        names = ("first_keys", "second_keys", "distance_keys", "between_keys")
        for name in names:
            own = getattr(self, name)
            if own.dtype != torch.uint32 or own.dim() != 2:
                raise TypeError(f"{name} must be a matrix of uint32, got {own.dtype} of shape {tuple(own.shape)}")
        tokens, templates = self.first_keys.shape
        if self.first.shape != self.second.shape or self.second_keys.shape != (tokens, templates):
            raise ValueError("first and second, and first_keys and second_keys, must have the same shapes")
        if self.distance_keys.shape[1] != templates or self.distance_keys.shape[0] % 2 != 1:
            raise ValueError(f"distance_keys must have shape [2R + 1, K] with K = {templates}")
        if self.between_keys.shape[0] != tokens or self.between_keys.shape[1] > templates:
            raise ValueError(f"between_keys must have shape [tokens, J] with {tokens} tokens and J <= {templates}")
        if not 1 <= self.bits <= 30:
            raise ValueError(f"bits must be from 1 to 30, got {self.bits}")
        for name in ("first", "second"):
            own = getattr(self, name)
            if len(own) and not 0 <= int(own.min()) <= int(own.max()) < tokens:
                raise ValueError(f"{name} must be from 0 to {tokens - 1}")

    def __len__(self) -> int:
        return len(self.first)

    @property
    def features(self) -> int:
        """2**bits."""
        return 1 << self.bits

    @property
    def most(self) -> int:
        """The most features that a part has."""
        templates, between = self.first_keys.shape[1], self.between_keys.shape[1]
        gap = max(int((self.second - self.first).abs().max()) - 1, 0) if len(self) else 0
        return templates - between + between * gap

    @property
    def arrays(self) -> tuple[Any, ...]:
        """For compiled passes."""
        tensors = (self.first, self.second, self.first_keys, self.second_keys, self.distance_keys, self.between_keys)
        return *(tensor.numpy() for tensor in tensors), 32 - self.bits

    def select(self, parts: Tensor) -> "PairFeatures":
        """Those of some parts."""
        return replace(self, first=self.first[parts], second=self.second[parts])
