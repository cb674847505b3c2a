"""Chains of many labels whose transitions factor: sums in time linear in the number of labels."""

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures import checks, semirings
from structsmooth.structures.base import widened
from structsmooth.structures.chain import LinearChain
from structsmooth.structures.checks import check_lengths, length_mask
from structsmooth.structures.factored_sums import factor, is_narrow, log_partition
from structsmooth.structures.programs import DynamicProgram, Program, ProgramBuilder, cached_program


class LowRankChain(DynamicProgram):
    """Chains whose transitions have low rank: exp transition[i, j] = Σ_z exp(left[i, z] + right[z, j]).

    Between two labels stands a rank state z, one of R. An output is an int64 tensor [B, 2T-1] of labels, at even
    places, and of rank states, at odd ones; 0 at padding. ``logsumexp`` and the marginals of labels are those of the
    chain with dense transitions, in O(T S R) operations, not O(T S²): on the CPU as products of matrices, unless scores
    at a position differ by 600 or more or some of ``left`` or ``right`` are -inf; else as log-sums, which take longer.
    ``max`` and ``topk`` find the best labels *with* rank states; the best labels alone take O(T S²), by
    ``dense().max()``.

    Costs and ``class_marginals`` are of labels. Backends, forbidden (-inf) scores and infeasible examples are as in
    :class:`~structsmooth.programs.DynamicProgram`; oracles other than sums build its program, of O(T S R) edges.

    Args:
        unary: scores [B, T, S] of each label, floating point; of a hidden Markov model, those of emissions.
        left: scores [S, R] or [B, S, R] of each rank state after each label, logarithms of a factor.
        right: scores [R, S] or [B, R, S] of each label after each rank state.
        lengths: sequence lengths [B], integers from 0 to T; all T if not given.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.
        backend: ``"compiled"`` (CPU only), ``"triton"`` (GPU only), ``"torch"``, or ``"auto"`` for the fastest.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Siddiqi, Boots and Gordon (2010), "Reduced-rank hidden Markov models".

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> unary, left, right = (torch.randn(s, generator=generator) for s in ((1, 5, 40), (40, 2), (2, 40)))
        >>> chain = LowRankChain(unary, left, right)
        >>> torch.allclose(chain.logsumexp(), chain.dense().logsumexp())
        True
    """

    potential_names = ("unary", "left", "right")
    potential_dims = {"left": 3, "right": 3}  # noqa: RUF012 - never changed
    row_names = ("lengths",)

    def __init__(
        self,
        unary: Tensor,
        left: Tensor,
        right: Tensor,
        lengths: Tensor | None = None,
        *,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        self.unary, self.left, self.right = unary, left, right
        self.check_shapes()
        self.lengths = checks.lengths_or_all(lengths, "unary", unary)
        super().__init__(validate_args, backend)
        if self.validate_args:
            check_lengths(self.lengths, unary.shape[1], least=0)

    def check_shapes(self) -> None:
        """Raise unless scores are [B, T, S], [S, R] or [B, S, R], and [R, S] or [B, R, S]."""
        for name, scores in self.named_potentials():
            checks.require_scores(name, scores)
            checks.require_device(name, scores, "unary", self.unary)
        if self.unary.dim() != 3 or 0 in self.unary.shape[1:]:
            raise ValueError(f"unary must have shape [B, T, S] with T, S >= 1, got {tuple(self.unary.shape)}")
        (batch, _, labels), ranks = self.unary.shape, self.left.shape[-1] if self.left.dim() else 0
        for name, shape in (("left", (labels, ranks)), ("right", (ranks, labels))):
            scores = getattr(self, name)
            if not ranks or not checks.has_shape(scores, shape, (batch, *shape)):
                expected = f"{shape} or {(batch, *shape)}" if ranks else "[S, R] or [B, S, R] with R >= 1"
                raise ValueError(f"{name} must have shape {expected}, got {tuple(scores.shape)}")

    @property
    def mask(self) -> Tensor:
        """[B, T], true inside the sequences."""
        return length_mask(self.lengths, self.unary.shape[1])

    def used_scores(self, name: str) -> Tensor:
        """Scores in the dtype of sums, zero at padding."""
        scores = widened(getattr(self, name))
        return checks.inside(self.mask, scores) if name == "unary" else scores

    def _used(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.used_scores("unary"), self.used_scores("left"), self.used_scores("right")

    def dense(self) -> LinearChain:
        """The chain over labels alone, with transitions [S, S] or [B, S, S]."""
        unary, left, right = self._used()
        narrow = is_narrow(unary, left, right)
        transition = factor(right.unsqueeze(-3) if right.dim() > 2 else right, narrow).after(left).to(self.value_dtype)
        return LinearChain(self.unary, transition, self.lengths, validate_args=self.validate_args, backend=self.backend)

    def score_of_labels(self, y: Tensor) -> Tensor:
        """The score [B] of labels [B, T] in :meth:`dense`, the log-sum over their rank states, in O(T R)."""
        checks.require_outputs(y, "[B, T]", "unary", self.unary)
        unary, left, right = self._used()
        y = torch.where(self.mask, y, 0).long()
        of_labels = unary.gather(2, y.unsqueeze(2)).squeeze(2).sum(1)
        rows = (f.expand(y.shape[0], -1, -1) for f in (left, right.mT))
        after, before = (
            f.gather(1, labels.unsqueeze(2).expand(-1, -1, f.shape[2]))
            for f, labels in zip(rows, (y[:, :-1], y[:, 1:]), strict=True)
        )
        pairs = semirings.logsumexp(after + before, 2)
        return of_labels + torch.where(self.mask[:, 1:], pairs, 0.0).sum(1)

    def logsumexp(self) -> Tensor:
        """Log-partition function [B], that of :meth:`dense`; twice differentiable."""
        scores = self._used()
        return log_partition(*scores, self.lengths, is_narrow(*scores)).to(self.value_dtype)

    def marginals(self) -> tuple[Tensor, ...]:
        """Probabilities [B, T, S] of labels, and expected numbers [B, S, R] and [B, R, S] of pairs; differentiable."""
        scores, narrow = self.batched()._used(), is_narrow(*self._used())
        return semirings.marginals(
            lambda _, u, left, right: log_partition(u, left, right, self.lengths, narrow).unsqueeze(1), *scores
        )

    def program(self) -> Program:
        """The program of :func:`low_rank_chains`."""
        return low_rank_chains(*self.unary.shape[1:], self.left.shape[-1])

    def program_scores(self) -> Tensor:
        """Scores of labels [B, T S], of pairs [B, S R] and [B, R S], and 0 for each rank state at each boundary."""
        unary, left, right = self._used()
        batch, steps, _ = unary.shape
        pairs = (f.flatten().expand(batch, -1) if f.dim() == 2 else f.flatten(1) for f in (left, right))
        return torch.cat([unary.flatten(1), *pairs, unary.new_zeros(batch, (steps - 1) * left.shape[-1])], 1)

    def sizes(self) -> Tensor:
        """The root of the program for the length of each sequence: int64 [B]."""
        return self.lengths

    def checked_labels(self, y: Tensor) -> Tensor:
        """Labels and rank states as int64, with 0 at padding."""
        checks.require_integers("y", y, "hold integer labels")
        (batch, steps, labels), ranks = self.unary.shape, self.left.shape[-1]
        checks.require_shape("y", y, "[B, 2T-1]", (batch, 2 * steps - 1))
        checks.require_device("y", y, "unary", self.unary)
        y = torch.where(self._places(), y, 0).to(torch.int64)
        if self.validate_args:
            checks.require_labels(y[:, ::2], labels)
            checks.require_labels(y[:, 1::2], ranks)
        return y

    def _places(self) -> Tensor:
        """Booleans [B, 2T-1]: what outputs have."""
        return length_mask(2 * self.lengths - 1, 2 * self.unary.shape[1] - 1)

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Labels [B, T] alone, and their number."""
        return y[:, ::2], self.unary.shape[2]

    def class_marginals(self) -> Tensor:
        """Probabilities [B, T, S] of labels."""
        return self.marginals()[0]

    def derivation(self, y: Tensor) -> Tensor:
        """The scores that outputs ``y`` use: of labels, of pairs on both sides, and of rank states."""
        (_, steps, labels), ranks, t = self.unary.shape, self.left.shape[-1], torch.arange(self.unary.shape[1]).to(y)
        label, z, pairs = y[:, ::2], y[:, 1::2], steps * labels
        later = [pairs + label[:, :-1] * ranks + z, pairs + (ranks + z) * labels + label[:, 1:]]
        later.append(pairs + 2 * ranks * labels + t[:-1] * ranks + z)
        used = torch.cat([t * labels + label, *later], 1)
        inside = torch.cat([self.mask, *[self.mask[:, 1:]] * 3], 1)
        return torch.where(inside, used, pairs + 2 * ranks * labels + (steps - 1) * ranks)

    def outputs(self, used: Tensor) -> Tensor:
        """Labels at even places and rank states at odd ones, [B, K, 2T-1]."""
        (_, steps, labels), ranks = self.unary.shape, self.left.shape[-1]
        first, end = steps * labels, 2 * steps - 1
        state = used - first - 2 * ranks * labels
        place = torch.where(used < first, 2 * (used // labels), torch.where(state >= 0, 2 * (state // ranks) + 1, end))
        y = used.new_zeros(*used.shape[:2], end + 1)
        return y.scatter(2, place.clamp_max(end), torch.where(used < first, used % labels, state % ranks))[..., :end]

    def read_max_marginals(self, values: Tensor) -> Tensor:
        """The largest score [B, T, S] of an output in which each position has each label; zero at padding."""
        return checks.inside(self.mask, values[:, : self.unary.shape[1:].numel()].view(self.unary.shape))


@cached_program
def low_rank_chains(steps: int, labels: int, ranks: int) -> Program:
    """Scores of labels, pairs of labels and rank states, pairs of rank states and labels, and rank states.

    Nodes of a position: label j has been read, rank state z begins, it ends, label j is next. Roots are by length.
    """
    first, pairs = steps * labels, labels * ranks
    builder, block = ProgramBuilder(scores=first + 2 * pairs + (steps - 1) * ranks), 2 * (labels + ranks) + 1
    t, j, z = np.ogrid[:steps, :labels, :ranks]
    after = 1 + t * block  # the first of the nodes of a position: those of labels that are next
    read, begins, ends = after + labels, after + 2 * labels + 1, after + 2 * labels + 1 + ranks
    builder.add(0)
    builder.add(1 + np.arange(labels))
    builder.add(read + j, after + j, index=t * labels + j)
    builder.add(read + labels, read + j)
    builder.add(begins + z, read + j, index=first + j * ranks + z, where=t < steps - 1)
    builder.add(ends + z, begins + z, index=first + 2 * pairs + t * ranks + z, where=t < steps - 1)
    builder.add(after + block + j, ends + z, index=first + pairs + z * labels + j, where=t < steps - 1)
    return builder.build(np.append(0, (read + labels).ravel()), 1 + steps * block)
