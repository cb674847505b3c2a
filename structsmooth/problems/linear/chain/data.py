"""Examples of linear chains: arrays for compiled passes, with checks, and maps from weights to potentials."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple
from zlib import crc32

import torch
from torch import Tensor

from structsmooth.compiled.arguments import checked
from structsmooth.lazy import LazyModule
from structsmooth.problems.affine import Parts
from structsmooth.scores import TransitionMask, linear_chain
from structsmooth.sequences import DenseSequences, MixedSequences, Sequences, SparseSequences, pad
from structsmooth.smoothing import L2, Entropy, Max, Smoother
from structsmooth.structures import LinearChain
from structsmooth.structures.checks import ForbiddenLabelsError

compiled_primal = LazyModule("structsmooth.problems.linear.chain.compiled_primal")


class ChainArrays(NamedTuple):
    """What compiled passes take of n sequences with S labels, as arrays.

    Attributes:
        features: as in :mod:`~structsmooth.problems.linear.chain.compiled_features`.
        offsets: where the tokens of sequences begin, [n + 1].
        labels: of tokens.
        costs: of mistakes at tokens; -inf forbids them.
        transition_scale: the feature of a transition where it occurs.
        example_weights: the weight of each sequence in means over all, [n].
        forbidden: scores [S + 2, S] of transitions, first labels and last labels, ``FORBIDDEN`` or 0; without rows if
            nothing is forbidden.
    """

    features: Any
    offsets: Any
    labels: Any
    costs: Any
    transition_scale: float
    example_weights: Any
    forbidden: Any


@dataclass(frozen=True)
class ChainData:
    """Sequences with labels and costs: arrays for compiled passes, and a feature map over the features of a sentence.

    Weights are a row of S numbers per feature, then transitions [S, S], then scores of the ends [2, S]. Potentials
    are unary scores [T, S] and transitions [S, S].
    """

    sequences: Sequences  # features of the tokens of n sequences
    labels: Tensor  # label of every token, int64 [tokens]
    costs: Tensor  # cost of a mistake at every token, float64 [tokens]
    features: int  # number F of features
    states: int  # number S of labels
    transition_scale: float  # the feature of a transition where it occurs
    normalized_weights: Tensor  # by which the sequences count in means over all, float64 [n]
    mask: TransitionMask | None = None  # 0, or −inf for what is forbidden

    @property
    def n(self) -> int:
        """Number of sequences."""
        return len(self.sequences)

    @property
    def dim(self) -> int:
        """Number of weights."""
        return (self.features + self.states + 2) * self.states

    @property
    def label_type(self) -> torch.dtype:
        """The smallest type of integers for labels, by which the outputs that examples hold are stored."""
        return torch.uint8 if self.states <= 256 else torch.int32

    @cached_property
    def digest(self) -> int:
        """A checksum of the lengths of the sequences, by which packed statistics are known to be of these sequences."""
        return crc32(_array(self.sequences.offsets))

    @cached_property
    def arrays(self) -> ChainArrays:
        """What compiled passes take."""
        tensors = map(_array, (self.sequences.offsets, self.labels, self.costs))
        forbidden = self.normalized_weights.new_empty(0, self.states)
        if self.mask is not None:
            forbidden = torch.cat([self.mask.transition, *(scores[None] for scores in self.mask[1:])]).clamp_min(
                compiled_primal.FORBIDDEN
            )
        weights = _array(self.normalized_weights)
        features, (offsets, labels, costs) = _features(self.sequences, self.features), tensors
        return ChainArrays(features, offsets, labels, costs, self.transition_scale, weights, _array(forbidden))

    def parts(self, count: int) -> list["Part"]:
        """The sequences in at most ``count`` consecutive parts, with about equal numbers of tokens."""
        tokens = len(self.labels) * torch.arange(1, count) // count
        cuts = torch.searchsorted(self.sequences.offsets, tokens).tolist()
        bounds = sorted({0, *cuts, self.n})
        return [Part(self, begin, end) for begin, end in pairwise(bounds)]

    def tokens(self, i: int) -> slice:
        """The tokens of a sequence."""
        return slice(*self.sequences.offsets[i : i + 2].tolist())

    def token_rows(self) -> tuple[Tensor, Tensor]:
        """Row of every token in the flat statistics of all sequences, and its sequence."""
        sequence = torch.repeat_interleave(self.sequences.lengths)
        return (sequence * self.states).add_(torch.arange(len(self.labels))), sequence

    def matrix(self, w: Tensor) -> Any:
        """A vector [dim] as an array of rows [F + S + 2, S], or one without elements."""
        return w.view(-1, self.states).numpy()

    def vector(self, matrix: Any) -> Tensor:
        """The inverse of :meth:`matrix`, after a compiled pass has written to the array."""
        return torch.from_numpy(matrix).view(-1)

    def checked_vector(self, name: str, w: Tensor) -> Tensor:
        """A vector of float64 [dim]."""
        return checked(name, w, torch.float64, self.dim)

    def checked_statistics(self, statistics: Tensor) -> Tensor:
        """Statistics of all sequences as rows of S."""
        size = (len(self.labels) + self.n * self.states) * self.states
        return checked("statistics", statistics, torch.float64, size).view(-1, self.states)

    def checked_order(self, order: Tensor) -> Tensor:
        """Sequences of the steps, int64 [steps, b]."""
        order = checked("order [steps, b]", order, torch.int64, -1, -1)
        unknown = order[(order < 0) | (order >= self.n)]
        if len(unknown) or not order.numel():
            found = int(unknown[0]) if len(unknown) else "none"
            raise ValueError(f"order must hold examples from 0 to {self.n - 1}, got {found}")
        return order

    def views(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A vector [dim] as rows of features [F, S], transitions [S, S] and scores of the ends [2, S]."""
        if w.shape != (self.dim,):
            raise ValueError(f"w must have shape {(self.dim,)}, got {tuple(w.shape)}")
        rows, transition, ends = w.view(-1, self.states).split([self.features, self.states, 2])
        return rows, transition, ends

    def scores(self, w: Tensor, block: int) -> Parts:
        """B_i w: unary potentials [T, S] and transitions [S, S]."""
        chain = self.chain(w, self.sequences.select(torch.tensor([block])), None)
        return chain.unary[0], chain.transition

    def chain(self, w: Tensor, sequences: Sequences, mask: TransitionMask | None) -> LinearChain:
        """Chains of some sequences, whose outputs are those that the mask allows; differentiable."""
        rows, transition, ends = self.views(w)
        transition = self.transition_scale * transition
        if mask is not None:
            transition, ends = transition + mask.transition, ends + torch.stack(mask[1:])
        return linear_chain(sequences, rows, transition, ends)

    def forbidden_labels(self) -> tuple[int, str] | None:
        """The first sequence whose labels the mask forbids, if there is one, and the reason."""
        if self.mask is None:
            return None
        offsets, sequence = self.sequences.offsets, torch.repeat_interleave(self.sequences.lengths)
        scores = self.mask.transition[self.labels.roll(1), self.labels]
        scores[offsets[:-1]] = self.mask.start[self.labels[offsets[:-1]]]
        scores[offsets[1:] - 1] += self.mask.stop[self.labels[offsets[1:] - 1]]
        found = (scores == -torch.inf).nonzero()
        if not len(found):
            return None
        token, i = int(found[0]), int(sequence[found[0]])
        return i, f", because label {int(self.labels[token])} is not allowed at its position {token - int(offsets[i])}"

    def add_adjoint(self, m: Parts, block: int, scale: float, w: Tensor) -> None:
        """w += scale · B_iᵀm in place, for statistics [T, S] and summed edges [S, S]."""
        nodes, edges = m
        rows, transition, ends = self.views(w)
        used, sums = self.sequences.transposed(nodes, self.tokens(block))
        rows[used] += scale * sums
        transition.add_(edges, alpha=scale * self.transition_scale)
        ends.add_(nodes[[0, -1]], alpha=scale)

    def squared_norm(self, m: Parts, block: int) -> float:
        """‖B_iᵀm‖²."""
        nodes, edges = m
        edges = self.transition_scale * edges
        square = self.sequences.transposed(nodes, self.tokens(block))[1].square().sum()
        return float(square + edges.square().sum() + nodes[[0, -1]].square().sum())


@dataclass(frozen=True)
class Part:
    """Some consecutive sequences, for compiled passes over them."""

    data: ChainData
    begin: int
    end: int

    @property
    def arrays(self) -> ChainArrays:
        """The arrays of :attr:`ChainData.arrays` for these sequences; tokens keep their numbers."""
        # Unpacked: _replace would take a tenth of the time of a pass over a short sequence.
        features, offsets, labels, costs, scale, weights, forbidden = self.data.arrays
        offsets, weights = offsets[self.begin : self.end + 1], weights[self.begin : self.end]
        return ChainArrays(features, offsets, labels, costs, scale, weights, forbidden)

    def examples(self, values: Tensor) -> Any:
        """Rows of these sequences, as an array."""
        return values[self.begin : self.end].numpy()


def _features(sequences: Sequences, features: int) -> tuple[Any, ...]:
    """The arrays of one of the kinds of :mod:`~structsmooth.problems.linear.chain.compiled_features`."""
    if isinstance(sequences, MixedSequences):
        block, center, scale = map(_array, (sequences.block, sequences.center, sequences.scale))
        return *_features(sequences.sparse, features), block, features - block.shape[1], center, scale
    if isinstance(sequences, SparseSequences):
        tensors = (sequences.attributes, sequences.token_offsets)
        return tuple(map(_array, tensors if sequences.values is None else (*tensors, sequences.values)))
    if isinstance(sequences, DenseSequences):
        return (_array(sequences.features),)
    raise TypeError(f"sequences must be sparse, dense or mixed ones, got {type(sequences).__name__}")


def _array(tensor: Tensor) -> Any:
    return tensor.contiguous().numpy()


def summed(vectors: Sequence[Tensor]) -> Tensor:
    """The sum of vectors; it replaces the first."""
    for vector in vectors[1:]:
        vectors[0].add_(vector)
    return vectors[0]


def smoothing(smoother: Smoother) -> tuple[()] | tuple[float] | tuple[float, int]:
    """A smoother as compiled passes take it: (μ,) for the entropy, (μ, K) for top-K, () without smoothing."""
    if isinstance(smoother, Entropy):
        return (float(smoother.mu),)
    if isinstance(smoother, Max) or (isinstance(smoother, L2) and smoother.k == 1):
        return ()
    if isinstance(smoother, L2):
        return float(smoother.mu), smoother.k
    raise TypeError(f"compiled chain passes know Max, L2 and Entropy, got {type(smoother).__name__}")


def checked_mask(mask: TransitionMask | None, states: int) -> TransitionMask | None:
    """The mask in float64, if its scores are 0 or −inf and of the right shapes."""
    if mask is None:
        return None
    shapes = {"transition": (states, states), "start": (states,), "stop": (states,)}
    for name, shape in shapes.items():
        scores = getattr(mask, name, None)
        if not isinstance(scores, Tensor) or scores.shape != shape:
            found = type(scores).__name__ if not isinstance(scores, Tensor) else f"shape {tuple(scores.shape)}"
            raise ValueError(f"mask must have a tensor {name} of shape {shape}, got {found}; see transition_mask")
        if not bool(((scores == 0) | (scores == -torch.inf)).all()):
            raise ValueError(f"mask must hold 0 for what is allowed and -inf for what is not, got others in {name}")
    return TransitionMask(*(getattr(mask, name).detach().double() for name in shapes))


# Sequences that are completed together.
_CHUNK = 512


def agreeing_labels(
    labels: Tensor, unknown: Tensor, lengths: Tensor, states: int, mask: TransitionMask | None = None
) -> Tensor:
    """Labels with others in the place of unknown ones, such that the mask allows them.

    Args:
        labels: label of every token, int64 [tokens], with any values where they are unknown.
        unknown: bool [tokens].
        lengths: number of tokens of each of n sequences, int64 [n].
        states: number S of labels.
        mask: which labels may follow each other, begin and end; all if not given.

    Raises:
        TypeError: ``unknown`` is no tensor of bool.
        ValueError: another number of labels; or no labels that the mask allows agree with those of a sequence, which is
            named.
    """
    if not isinstance(unknown, Tensor) or unknown.dtype != torch.bool:
        found = unknown.dtype if isinstance(unknown, Tensor) else type(unknown).__name__
        raise TypeError(f"unknown must be a tensor of torch.bool, got {found}")
    if unknown.shape != labels.shape:
        raise ValueError(f"unknown must have shape [tokens] = {tuple(labels.shape)}, got {tuple(unknown.shape)}")
    completed = labels.masked_fill(unknown, 0)
    if mask is None:
        return completed
    ends = lengths.cumsum(0)
    for part in torch.arange(len(lengths)).split(_CHUNK):
        tokens = slice(int(ends[part[0]] - lengths[part[0]]), int(ends[part[-1]]))
        y, free = pad(labels[tokens], lengths[part]), pad(unknown[tokens], lengths[part])
        allowed = free.unsqueeze(-1) | (torch.arange(states) == y.unsqueeze(-1))
        unary = torch.where(allowed, 0.0, -torch.inf).to(mask.transition)
        chain = LinearChain(unary, mask.transition, lengths[part], start=mask.start, stop=mask.stop)
        values, best = chain.max()
        if bool((values == -torch.inf).any()):
            raise ForbiddenLabelsError(int(part[values == -torch.inf][0]), "the problem")
        completed[tokens] = best[torch.arange(best.shape[1]) < lengths[part, None]]
    return completed
