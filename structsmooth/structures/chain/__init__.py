"""Linear chains: sequences of labels with scores for labels and for pairs of neighbouring labels."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, widened_pair
from structsmooth.structures.chain import fused, operators, reference
from structsmooth.structures.chain.compaction import (
    check_ends,
    compact_edges,
    compact_nodes,
    compact_order,
    spread_edges,
    spread_labels,
    spread_nodes,
    with_ends,
    with_start,
)
from structsmooth.structures.distribution import inner_products
from structsmooth.structures.forbidden import Index, part_in_words
from structsmooth.structures.operators import is_on_cpu, with_gradients_of_scores
from structsmooth.structures.oracles import BackendQueries, Oracles


class ChainQueries(BackendQueries, Protocol):
    """Queries of chains: functions of unary [B, T, S], transition [1 or B, 1 or T-1, S, S] and lengths [B]."""

    @property
    def scores(self) -> Callable[..., Tensor]:
        """Scores [B, K] of outputs [B, K, T]; differentiable."""

    @property
    def surprisals(self) -> Callable[..., Tensor] | None:
        """Minus the log-probabilities [B] of outputs [B, T], without large sums between; differentiable."""

    @property
    def node_marginals(self) -> Callable[..., Tensor]:
        """The first of the marginals alone, [B, T, S]; differentiable."""

    @property
    def filtered(self) -> Callable[..., Tensor]:
        """Marginals [B, T, S] of each position without the scores behind it; differentiable."""


class LinearChain(Structure):
    """All label sequences of given lengths, bound to unary and transition scores.

    score(y) = Σ_t unary[b, t, y_t] + Σ_t transition[..., y_t, y_{t+1}], over the first ``lengths[b]`` positions. An
    output is an int64 tensor [B, T]. Labels at padding are ignored in arguments and 0 in results. Complexity per
    example: max and exp oracle O(T S²), top-K O(K T S²), at worst K times that.

    With a ``mask``, sequences consist of the positions where it is true: padding may be on either side, and neighbours
    across a hole are neighbours. All tensors keep the positions of the caller. Where the mask is false, labels are -100
    in results and ignored in arguments. An example without any position has one output, of score 0.

    On the CPU a compiled pass computes value and statistics together, on every core that torch may use, and sums in
    float64 whatever the dtype. On GPUs, all oracles are Triton kernels where Triton is installed, as it is with torch
    on Linux; a few long sequences are cut into stretches, and where several of their outputs are the best, any of them
    is found. On other devices, and with ``backend="torch"``, oracles are a vectorized torch recursion. Both sum in the
    dtype of the potentials (float16 and bfloat16 in float32). -inf forbids a label or a transition. An example without
    any allowed output has value -inf, zero statistics and zero gradient.

    For scores up to 1e4 in magnitude, the error of values, relative to the largest, is 1e-12 in float64. In float32 it
    is 2e-7 when compiled or by Triton, and 1e-6 by torch. Marginals, and the gradient of the log-partition function,
    lose the digits that this function has before the decimal point: their error is about its magnitude times the
    rounding unit of the sums, 1e-16 in float64 and 6e-8 in float32. So the error of float32 marginals is 1e-7 when
    compiled; with ``backend="torch"`` it is 1e-5 for 50 positions, 9 labels and scores around 1, but 1e-3 for scores in
    the hundreds. Kernels lose nothing to the length: their error is the rounding unit times the scores of a position.

    Args:
        unary: scores [B, T, S] of each label, floating point.
        transition: scores [S, S], [B, S, S] or [B, T-1, S, S]; entry [..., i, j] is for y_t = i, y_{t+1} = j.
        lengths: sequence lengths [B], integers from 0 to T, on a GPU from 1; all T if not given.
        mask: positions that belong to the sequences, [B, T] of booleans or 0 and 1, in place of ``lengths``. With
            transitions [B, T-1, S, S], the pair of a position and its predecessor across a hole has the scores of the
            entry just before the position.
        start: scores [S] or [B, S] of the first label of a sequence, which are added to its unary scores.
        stop: scores [S] or [B, S] of the last label.
        validate_args: whether to check values too: NaN, +inf, lengths, ranges of labels. Costs a reduction, and a
            synchronization on a GPU. Default: ``Structure.validate_args_default``. Compiled oracles always check
            lengths.
        backend: ``"compiled"`` (CPU only), ``"triton"`` (GPU only), ``"torch"``, or ``"auto"`` for the fastest.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, tensors on different devices, or both ``lengths`` and ``mask``.

    Reference:
        Pillutla et al. (2019), Example 5 and Algorithms 1 to 3.

    Example:
        >>> chain = LinearChain(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]), torch.zeros(2, 2))
        >>> chain.max()
        (tensor([3.]), tensor([[0, 1]]))
        >>> unary = torch.tensor([[[0.0, 1.0], [5.0, 0.0], [3.0, 0.0]]])
        >>> LinearChain(unary, torch.zeros(2, 2), mask=torch.tensor([[True, False, True]])).max()
        (tensor([4.]), tensor([[   1, -100,    0]]))
    """

    oracles: Oracles[ChainQueries] = Oracles(
        cpu=operators,  # loops that numba compiles
        cuda=fused,  # kernels that Triton compiles
        plain=reference,  # torch, position by position
        export=reference,
    )
    labels_are_classes = True
    potential_names = ("unary", "transition")
    row_names = ("lengths", "_mask", "_order")
    field_names = ("backend", "_label_at_padding")

    def __init__(
        self,
        unary: Tensor,
        transition: Tensor,
        lengths: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        start: Tensor | None = None,
        stop: Tensor | None = None,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        self.unary, self.transition = unary, transition
        self.backend: checks.Backend = backend
        self.check_shapes()
        self._mask = mask = None if mask is None else checks.as_mask("mask", mask)
        self._order: Tensor | None = None
        self._label_at_padding = 0 if mask is None else checks.IGNORED
        self.lengths = checks.lengths_or_all(lengths, "unary", unary) if mask is None else self._masked(mask, lengths)
        if lengths is not None and checks.can_read_values() and is_on_cpu(self.lengths) and bool((lengths == 0).any()):
            self._mask = checks.length_mask(self.lengths, unary.shape[1])
            self._order = compact_order(self._mask)
        super().__init__(validate_args)
        if self.validate_args and lengths is not None:
            checks.check_lengths(self.lengths, unary.shape[1], least=0)
        if start is not None or stop is not None:
            check_ends(unary, self.validate_args, start=start, stop=stop)
            if start is not None and stop is None and self._mask is None:  # the usual hidden Markov model
                self.unary = with_start(unary, start)
            else:
                self.unary = with_ends(unary, self.mask, start, stop)

    def _masked(self, mask: Tensor, lengths: Tensor | None) -> Tensor:
        """Lengths of the sequences that the mask leaves."""
        if lengths is not None:
            raise ValueError("lengths and mask both say which positions are in use: give one of them")
        checks.require_shape("mask", mask, "[B, T]", tuple(self.unary.shape[:2]))
        checks.require_device("mask", mask, "unary", self.unary)
        self._order = compact_order(mask)
        return mask.sum(1)

    def check_shapes(self) -> None:
        """Raise unless scores are [B, T, S] and [S, S], [B, S, S] or [B, T-1, S, S], on a device of the backend."""
        checks.require_chain(self.unary, self.transition)
        checks.check_backend(self.backend, self.unary.device, kernels=True)

    def used_scores(self, name: str) -> Tensor:
        """Scores without holes, zero at padding."""
        unary, transition = reference.masked(*self._accumulated(), self._compact_mask)
        return unary if name == "unary" else transition

    @property
    def mask(self) -> Tensor:
        """[B, T], true inside the sequences."""
        return self._compact_mask if self._mask is None else self._mask

    @property
    def _compact_lengths(self) -> Tensor:
        """Lengths for oracles: an example without any position has one output, of length 1."""
        return self.lengths if self._order is None else self.lengths.clamp_min(1)

    @property
    def _compact_mask(self) -> Tensor:
        return checks.length_mask(self._compact_lengths, self.unary.shape[1])

    def batched(self) -> "LinearChain":
        """The same sequences, each with its own transitions."""
        if self.transition.dim() > 2:
            return self
        return self.replace(self.unary, self.transition.expand(self.unary.shape[0], -1, -1))

    def score(self, y: Tensor) -> Tensor:
        """Score of the label sequences ``y`` [B, T]: [B], differentiable."""
        oracles = self.oracles
        y = y if oracles.traits.checks_labels else self.checked_labels(y)
        return oracles.scores(*self._arguments(), self._compact(y).unsqueeze(1)).squeeze(1)

    def parts(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Indicators of labels [B, T, S] and of neighbouring pairs [B, T-1, S, S], zero on padding."""
        y = self._compact(self.checked_labels(y))
        unary, _ = self._accumulated()
        nodes = torch.nn.functional.one_hot(y, unary.shape[-1]).to(unary.dtype) * self._compact_mask.unsqueeze(-1)
        return self._spread(nodes, nodes[:, :-1].unsqueeze(-1) * nodes[:, 1:].unsqueeze(-2))

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct label sequences [B, k, T] (Algorithm 2).

        Values are -inf, and labels 0, where fewer than k sequences have a finite score.
        """
        k, oracles, (unary, transition, lengths) = check_k(k), self.oracles, self._arguments()
        if oracles.traits.differentiates_top_k:
            values, y = oracles.top_k(unary, transition, lengths, k)
            return values, self._spread_labels(y)
        values, y = oracles.top_k(unary.detach(), transition.detach(), lengths, k)

        def scores(unary: Tensor, transition: Tensor) -> Tensor:
            return reference.scores(unary, transition, lengths, y)

        return with_gradients_of_scores(values, scores, unary, transition), self._spread_labels(y)

    def smoothed_top_k(self, mu: float, k: int) -> tuple[Tensor, Tensor] | None:
        """By a kernel on GPUs, as in :class:`~structsmooth.Structure`."""
        smoothed_top_k = self.oracles.smoothed_top_k
        if smoothed_top_k is None:
            return None
        smoothed, _, values, _ = smoothed_top_k(*self._arguments(), check_k(k), mu)
        return smoothed, values[:, 0].detach()

    def logsumexp(self) -> Tensor:
        """Log-partition function [B] (Algorithm 3); twice differentiable."""
        return self.oracles.log_partition(*self._arguments())

    def surprisal(self, y: Tensor) -> Tensor:
        """As for all distributions, by one pass."""
        oracles = self.oracles
        if oracles.surprisals is None:
            return super().surprisal(y)
        chain = self if oracles.traits.checks_scores else self.without_wrong()
        return oracles.surprisals(*chain._arguments(), chain._compact(y))

    def marginals(self) -> tuple[Tensor, Tensor]:
        """Marginals of labels [B, T, S] and of neighbouring pairs [B, T-1, S, S]; differentiable."""
        nodes, edges = self.oracles.marginals(*self._arguments())
        return self._spread(nodes, edges)

    def class_marginals(self) -> Tensor:
        """Marginals of labels [B, T, S] alone: those of pairs take S times the memory, unless they are summed."""
        nodes = self.oracles.node_marginals(*self._arguments())
        return nodes if self._order is None else spread_nodes(nodes, self._order, self.mask)

    def max_marginals(self) -> Tensor:
        """Largest score [B, T, S] of a sequence with y_t = j (Definition 13); zero on padding."""
        values = self.oracles.max_marginals(*self._arguments())
        return values if self._order is None else spread_nodes(values, self._order, self.mask)

    def _log_partition_and_expected_score(self) -> tuple[Tensor, Tensor]:
        """As for all distributions; of transitions that are shared, the marginals are summed over positions."""
        sums = self.oracles.sums
        if sums is None:
            return super()._log_partition_and_expected_score()
        unary, transition, lengths = self._arguments()
        log_z, *marginals = sums(unary, transition, lengths)
        return log_z, inner_products(marginals, (unary, transition))

    def _part_scores(self) -> tuple[Tensor, Tensor]:
        """Unary scores and transitions [1 or B, 1 or T-1, S, S] in the dtype that sums use."""
        unary, transition = widened_pair(self.unary, self.transition)
        # [S, S] as [1, 1, S, S], and [B, S, S] as [B, 1, S, S].
        if transition.dim() == 2:
            transition = transition.view(1, 1, *transition.shape)
        elif transition.dim() == 3:
            transition = transition.unsqueeze(1)
        return unary, transition

    def inverse_cdf(self, uniform: Tensor) -> Tensor:
        """Samples at uniform numbers, as in :class:`~structsmooth.structures.distribution.Distribution`."""
        return self._spread_labels(self.oracles.sample(*self._arguments(), uniform))

    def for_differences(self) -> "LinearChain":
        """The chain itself where passes are kernels, which lose little."""
        return self if self.oracles.traits.keeps_digits else super().for_differences()

    def _arguments(self) -> tuple[Tensor, Tensor, Tensor]:
        """What oracles take: scores without holes, and lengths."""
        return *self._accumulated(), self._compact_lengths

    def _accumulated(self) -> tuple[Tensor, Tensor]:
        """Unary scores and transitions in the dtype that sums use, those in use first."""
        unary, transition = self._part_scores()
        if self._order is not None:
            unary = compact_nodes(unary, self._order, self.lengths)
            transition = compact_edges(transition, self._order) if self.transition.dim() == 4 else transition
        return unary, transition

    def _compact(self, y: Tensor) -> Tensor:
        """Labels [B, T] as int64, without holes."""
        checks.require_outputs(y, "[B, T]", "unary", self.unary)
        return y.to(torch.int64) if self._order is None else torch.where(self.mask, y, 0).long().gather(1, self._order)

    def _spread(self, nodes: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Marginals or parts of nodes and edges, at the positions of the caller."""
        if self._order is None:
            return nodes, edges
        return spread_nodes(nodes, self._order, self.mask), spread_edges(edges, self._order)

    def _spread_labels(self, y: Tensor) -> Tensor:
        """Labels [B, K, T] at the positions of the caller."""
        return y if self._order is None else spread_labels(y, self._order, self.mask, self._label_at_padding)

    def _rows(self) -> tuple[str, ...]:
        return super()._rows() if self.transition.dim() > 2 else ("unary", *self.row_names)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Labels as int64, with 0 at padding."""
        return checks.checked_classes(self, y, "[B, T]", self.unary.shape[-1], self.mask)


@part_in_words.register
def _(structure: LinearChain, name: str, index: Index, y: list[int]) -> str:
    t, *labels = index
    if name == "unary":
        return f"label {labels[0]} at position {t}"
    return f"label {labels[1]} after label {labels[0]}, from position {t} to {t + 1},"
