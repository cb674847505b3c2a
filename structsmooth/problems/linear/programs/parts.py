"""The parts of examples whose outputs are derivations of one program."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from structsmooth.lazy import LazyModule
from structsmooth.sequences import compressed_rows
from structsmooth.structures.programs import Program, ProgramBuilder, cached_program
from structsmooth.structures.projective_trees import projective_trees

compiled = LazyModule("structsmooth.structures.programs.compiled")


class Sizes(NamedTuple):
    """Numbers of a program and of its outputs."""

    depth: int
    longest: int  # scores of a derivation
    scores: int
    alternatives: int  # of a choice
    spanning: int  # whether outputs are spanning trees: 0 no, 1 with one root, 2 with any number of roots


class Examples(NamedTuple):
    """Arrays of n examples, of whose parts there are numbers throughout."""

    offsets: Any  # of their parts [n + 1]
    places: Any  # the score of the program that each part is
    roots: Any  # [n]
    choices: Any  # their numbers [n]
    labels: Any  # parts of the labels
    output_offsets: Any  # of the labels [n + 1]
    costs: Any  # of parts


class ProgramArrays(NamedTuple):
    """What compiled passes take of a problem."""

    program: Any  # its arrays
    sizes: Sizes
    features: Any  # of parts
    most: int  # features of a part
    examples: Examples
    example_weights: Any  # in means over all [n]


@dataclass(frozen=True)
class ProgramParts:
    """The parts of n examples whose outputs are derivations of one program.

    A part of an example is one of the scores of the program. Outputs that need other scores are not outputs of the
    example. Beside a derivation, outputs may make choices, each of one among so many more parts, which come last in the
    example, choice by choice: the labels of words, for instance.

    Args:
        program: the program.
        roots: the root node of each example, int64 [n].
        offsets: example i has parts offsets[i] to offsets[i + 1] - 1: int64 [n + 1].
        scores: which score of the program each part is, int32 [parts]; different ones within an example, and -1 for
            parts of choices.
        choices: number of choices of each example, int64 [n]; none if not given.
        alternatives: number of parts of each choice.
        spanning: whether derivations must also be spanning trees, with one root or several; see :meth:`spanning_trees`.

    Raises:
        TypeError: tensors of the wrong dtype.
        ValueError: wrong shapes, or numbers that are out of range.
    """

    program: Program
    roots: Tensor
    offsets: Tensor
    scores: Tensor
    choices: Tensor | None = None
    alternatives: int = 0
    spanning: Literal["no", "one root", "roots"] = "no"

    def __post_init__(self) -> None:
        for name, dtype in (("roots", torch.int64), ("offsets", torch.int64), ("scores", torch.int32)):
            array = getattr(self, name)
            if array.dtype != dtype or array.dim() != 1:
                raise TypeError(f"{name} must be a vector of {dtype}, got {array.dtype} of shape {tuple(array.shape)}")
        if not len(self.roots) or len(self.offsets) != len(self.roots) + 1:
            raise ValueError(
                f"offsets must have one entry more than roots, which has at least one; got {len(self.offsets)} and "
                f"{len(self.roots)}"
            )
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.scores) or bool((self.offsets.diff() < 1).any()):
            raise ValueError(f"offsets must rise from 0 to the number of scores, {len(self.scores)}")
        chosen = self.alternatives * self.numbers_of_choices
        if self.alternatives < 0 or len(chosen) != len(self) or int(chosen.min()) < 0:
            raise ValueError("choices must be numbers from 0, one for each root, and alternatives a number from 0")
        example = torch.repeat_interleave(self.offsets.diff())
        is_choice = torch.arange(len(example)) >= (self.offsets[1:] - chosen)[example]
        if bool((chosen >= self.offsets.diff()).any()) or bool((self.scores[is_choice] != -1).any()):
            raise ValueError("parts of choices must be the last of each example, with scores of -1, and not all")
        for name, values, limit in (
            ("roots", self.roots, self.program.nodes),
            ("scores", self.scores[~is_choice], self.program.scores),
        ):
            low, high = int(values.min()), int(values.max())
            if low < 0 or high >= limit:
                raise ValueError(f"{name} must be from 0 to {limit - 1}, got {low} to {high}")

    def __len__(self) -> int:
        return len(self.roots)

    def of(self, i: int) -> slice:
        """The parts of an example."""
        return slice(*self.offsets[i : i + 2].tolist())

    def select(self, indices: Tensor) -> tuple["ProgramParts", Tensor]:
        """The parts of some examples, in that order, and their numbers among all parts."""
        rows, offsets = compressed_rows(self.offsets, indices)
        choices = None if self.choices is None else self.choices[indices]
        return replace(
            self, roots=self.roots[indices], offsets=offsets, scores=self.scores[rows], choices=choices
        ), rows

    @cached_property
    def longest(self) -> Tensor:
        """The largest number of parts of an output of each example, int64 [n]."""
        used = compiled.measure(self.program.arrays, self.program.scores)[2]
        return torch.from_numpy(np.maximum(used, 1)[self.roots.numpy()]) + self.numbers_of_choices

    @property
    def numbers_of_choices(self) -> Tensor:
        """Number of choices of each example, int64 [n]."""
        return torch.zeros_like(self.roots) if self.choices is None else self.choices

    @classmethod
    def projective_trees(cls, lengths: Tensor, single_root: bool = True, labels: int = 0) -> "ProgramParts":
        """Arcs of the projective trees of :class:`~structsmooth.ProjectiveTree` over sentences, and labels of words.

        Part m n + h of a sentence of n words is the arc to word m + 1 from the h-th of all places 0 (the root) to n
        without m + 1 itself; see :func:`arcs_of`. If there are labels, part n² + m L + l is label l of word m + 1.

        Args:
            lengths: numbers of words, int64 [n], each at least 1.
            single_root: whether exactly one word is a child of the root.
            labels: number L of labels, one of which each word has, whatever its head is; 0 for none.
        """
        return cls._of_trees(projective_trees(int(lengths.max()), 1, single_root), lengths, labels)

    @classmethod
    def spanning_trees(cls, lengths: Tensor, single_root: bool = True, labels: int = 0) -> "ProgramParts":
        """The same for the trees of :class:`~structsmooth.SpanningTree`, whose arcs may cross.

        The derivations of the program give every word a head; those that are trees are outputs.
        """
        parts = cls._of_trees(any_heads(int(lengths.max())), lengths, labels)
        return replace(parts, spanning="one root" if single_root else "roots")

    @classmethod
    def _of_trees(cls, program: Program, lengths: Tensor, labels: int) -> "ProgramParts":
        words = int(lengths.max())
        heads, modifiers, offsets = arcs_of(lengths)
        scores = torch.where(heads > 0, (heads - 1) * words + modifiers - 1, words * words + modifiers - 1).int()
        roots = torch.from_numpy(program.roots[-words:])[lengths - 1]
        if not labels:
            return cls(program, roots, offsets, scores)
        places, offsets = behind_arcs(lengths, labels)
        every = torch.full((int(offsets[-1]),), -1, dtype=torch.int32)
        every[places] = scores
        return cls(program, roots, offsets, every, lengths, labels)


@cached_program
def any_heads(words: int) -> Program:
    """Scores as those of :func:`projective_trees`, without labels, of any heads of words; roots are the lengths."""
    builder = ProgramBuilder(scores=words * words + words)
    m, h = np.ogrid[:words, :words]
    builder.add(m, m - 1, index=h * words + m, where=h != m)
    word = np.arange(words)
    builder.add(word, word - 1, index=words * words + word)
    return builder.build(word)


def arcs_of(lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Heads, from 0 for the root, and modifiers, from 1, of the n² arcs of sentences of n words, and their offsets.

    Example:
        >>> arcs_of(torch.tensor([2]))
        (tensor([0, 2, 0, 1]), tensor([1, 1, 2, 2]), tensor([0, 4]))
    """
    offsets = torch.nn.functional.pad((lengths * lengths).cumsum(0), (1, 0))
    words = torch.repeat_interleave(lengths, lengths * lengths)
    place = torch.arange(len(words)) - torch.repeat_interleave(offsets[:-1], lengths * lengths)
    modifiers, heads = place // words + 1, place % words
    return heads + (heads >= modifiers), modifiers, offsets


def behind_arcs(lengths: Tensor, labels: int) -> tuple[Tensor, Tensor]:
    """Where the arcs of :func:`arcs_of` are if n labels of each sentence follow them, and the offsets of sentences."""
    more = labels * lengths
    shift = torch.repeat_interleave(more.cumsum(0) - more, lengths * lengths)
    return torch.arange(len(shift)) + shift, torch.nn.functional.pad((lengths * lengths + more).cumsum(0), (1, 0))
