"""Structures whose outputs are the derivations of a program."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, widened
from structsmooth.structures.derivatives import pullbacks
from structsmooth.structures.operators import with_gradients_of_scores
from structsmooth.structures.oracles import BackendQueries, Oracles
from structsmooth.structures.programs import fused, operators, reference
from structsmooth.structures.programs.counters import ByCount, by_count
from structsmooth.structures.programs.program import Program, SymbolicProgram

S = TypeVar("S", bound="LinearlyScored")
P = TypeVar("P", bound="DynamicProgram")


class LinearlyScored(Structure):
    """Outputs that are lists of scores, which are a linear function of the potentials.

    With P scores and a linear map A, the score of an output that uses the scores u is ⟨A θ, u⟩, and its parts are Aᵀ u:
    the adjoint is found by automatic differentiation.
    """

    potential_dims: Mapping[str, int] = {}  # of potentials that have fewer if all examples share them

    @abstractmethod
    def program_scores(self) -> Tensor:
        """Scores [B, P] of the program: a linear function of the potentials, finite at padding."""

    @abstractmethod
    def derivation(self, y: Tensor) -> Tensor:
        """The scores of the program that outputs ``y`` [B, ...] use: int64 [B, M], in any order; P for none."""

    @abstractmethod
    def outputs(self, used: Tensor) -> Tensor:
        """The outputs [B, K, ...] that use the scores ``used`` [B, K, M], in any order; P for none."""

    def batched(self: S) -> S:
        """The same outputs with a row for each example in all potentials."""
        batch = self.potentials[0].shape[0]
        rows = [p.expand(batch, *p.shape) if self._is_shared(n) else p for n, p in self.named_potentials()]
        return self if all(new is old for new, old in zip(rows, self.potentials, strict=True)) else self.replace(*rows)

    def score(self, y: Tensor) -> Tensor:
        """Scores of outputs ``y``: [B], differentiable."""
        used = self.derivation(self.checked_labels(y)).unsqueeze(1)
        return self._scores_of_outputs(self.program_scores(), used).squeeze(1)

    def _scores_of_outputs(self, scores: Tensor, used: Tensor) -> Tensor:
        """Scores [B, K] of outputs that use [B, K, M] of the scores [B, P] of the program; differentiable."""
        return reference.scores_of_outputs(scores, used)

    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """Indicators of the parts of outputs ``y``, or their numbers, in the shapes of :meth:`batched` potentials."""
        used, scores = self.derivation(self.checked_labels(y)), self.program_scores()
        ones = scores.new_ones(used.shape[0], 1)
        return self._statistics(operators.weighted_uses(ones, used.unsqueeze(1), scores.shape[1]))

    def named_potentials(self) -> list[tuple[str, Tensor]]:
        """Pairs of the name of a potential and the potential."""
        return list(zip(self.potential_names, self.potentials, strict=True))

    def listed(self, values: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """Values [B, K], and the outputs that use the scores ``used`` [B, K, M]; 0 where values are -inf."""
        return values, _where_feasible(values, self.outputs(used))

    def _statistics(self, parts: Tensor) -> tuple[Tensor, ...]:
        """Statistics in the space of potentials, from those [B, P] of the scores: the adjoint of the linear map."""
        whole = self.batched()

        def scores(*potentials: Tensor) -> Tensor:
            return whole.replace(*potentials).program_scores()

        return pullbacks(scores, [parts], [torch.zeros_like(p, dtype=parts.dtype) for p in whole.potentials])[0]

    def _part_scores(self) -> tuple[Tensor, ...]:
        return tuple(widened(p) for p in self.batched().potentials)

    def _is_shared(self, name: str) -> bool:
        return bool(getattr(self, name).dim() < self.potential_dims.get(name, 0))

    def _rows(self) -> tuple[str, ...]:
        names = [name for name in self.potential_names if not self._is_shared(name)]
        return (*names, *self.row_names)


class ProgramQueries(BackendQueries, Protocol):
    """Queries of programs: functions of scores [B, P], ``root_index`` [B] and what stands for the program."""

    @property
    def as_argument(self) -> Callable[..., Any]:
        """What stands for the program of a structure."""

    @property
    def outputs(self) -> Callable[..., Tensor]:
        """The outputs [B, K, ...] of a structure that ``top_k`` has found."""

    @property
    def scores_of_outputs(self) -> Callable[..., Tensor]:
        """Scores [B, K] of outputs that use [B, K, M] of the scores [B, P] of the program; differentiable."""


class DynamicProgram(LinearlyScored):
    """Outputs that are the derivations of a :class:`~structsmooth.programs.Program`: all oracles follow from it.

    A subclass names its potentials in ``potential_names`` and defines

    * :meth:`program`, the program for its sizes;
    * :meth:`program_scores`, the scores of the program as a linear function of the potentials;
    * :meth:`derivation`, the scores of the program that an output uses, and :meth:`outputs`, the reverse;
    * :meth:`sizes`, if examples have different roots, and ``potential_dims``, if they may share potentials.

    The oracles max, top-K and exp, max-marginals and samples take one compiled pass over the program for each example
    on the CPU, on every core that torch may use, and sum in float64 whatever the dtype. On GPUs, they are Triton
    kernels where Triton is installed, which take the nodes of an example level by level. On other devices, and with
    ``backend="torch"``, they are plain torch, level by level. -inf forbids what it scores. An example without
    any allowed output has value -inf, zero statistics and zero gradient. Ties go to the edges that the program names
    first.

    For E edges, max and exp oracle take O(E) operations per example, top-K O(E + K N) to O(K E), and for edges with two
    tails at worst O(K log K E).

    Args:
        validate_args: as for :class:`~structsmooth.Structure`.
        backend: ``"compiled"`` (CPU only), ``"triton"`` (GPU only), ``"torch"``, or ``"auto"`` for the fastest.

    Reference:
        Huang (2008), on dynamic programs as hypergraphs; Huang and Chiang (2005), on their K best derivations; Li and
        Eisner (2009), on first and second derivatives.
    """

    oracles: Oracles[ProgramQueries] = Oracles(
        cpu=operators,  # loops that numba compiles
        cuda=fused,  # kernels that Triton compiles
        plain=reference,  # torch, level by level
        export=reference,
        open_sizes=lambda space: space.has_open_sizes(),
    )
    field_names: ClassVar[tuple[str, ...]] = ("backend",)
    backend: checks.Backend = "auto"

    def __init__(self, validate_args: bool | None = None, backend: checks.Backend = "auto") -> None:
        self.backend = backend
        self.check_shapes()
        checks.check_backend(backend, self.potentials[0].device, kernels=True)
        super().__init__(validate_args)

    @abstractmethod
    def program(self) -> Program:
        """The program: a :func:`~structsmooth.programs.cached_program` function of sizes."""

    def sizes(self) -> Tensor:
        """Which of the roots of the program each example has: int64 [B]. Default: the first."""
        first = self.potentials[0]
        return torch.zeros(first.shape[0], dtype=torch.int64, device=first.device)

    def for_differences(self: P) -> P:
        """The program itself where passes are kernels, which lose little."""
        return self if self.oracles.traits.keeps_digits else super().for_differences()

    def smoothed_top_k(self, mu: float, k: int) -> tuple[Tensor, Tensor] | None:
        """By kernels on GPUs, as in :class:`~structsmooth.Structure`."""
        smoothed_top_k = self.oracles.smoothed_top_k
        if smoothed_top_k is None:
            return None
        smoothed, _, values, _ = smoothed_top_k(*self._arguments(), check_k(k), mu)
        return smoothed, values[:, 0].detach()

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct outputs [B, k, ...].

        Values are -inf, and outputs 0, where fewer than k outputs have a finite score.
        """
        k, oracles, (scores, *program) = check_k(k), self.oracles, self._arguments()
        if oracles.traits.differentiates_top_k:
            values, found = oracles.top_k(scores, *program, k)
        else:
            values, found = oracles.top_k(scores.detach(), *program, k)
            values = with_gradients_of_scores(values, lambda s: oracles.scores_of_outputs(s, found), scores)
        return values, _where_feasible(values, oracles.outputs(self, found))

    def logsumexp(self) -> Tensor:
        """Log-partition function [B]; twice differentiable."""
        return self.oracles.log_partition(*self._arguments())

    def marginals(self) -> tuple[Tensor, ...]:
        """Probabilities of the parts, or expected numbers, shaped as :meth:`parts`; differentiable."""
        return self._statistics(*self.oracles.marginals(*self._arguments()))

    def sums(self) -> tuple[Tensor, Tensor]:
        """The log-partition function [B], and the probabilities [B, P] of the scores of the program; differentiable."""
        oracles, arguments = self.oracles, self._arguments()
        if oracles.sums is None:
            return oracles.log_partition(*arguments), oracles.marginals(*arguments)[0]
        log_z, probabilities = oracles.sums(*arguments)
        return log_z, probabilities

    def max_marginals(self) -> Tensor:
        """Largest score of an output that has each of the first parts (Definition 13), shaped as :meth:`parts`."""
        values = self.oracles.max_marginals(*self._arguments())
        best = self.read_max_marginals(values)
        return torch.where(best > -torch.inf, best, -torch.inf)  # without the gradient of what is impossible

    def topk_by_count(self, counts: Sequence[Tensor], most: int, k: int = 1) -> tuple[Tensor, Tensor]:
        """The k best outputs for each number of something: of mistakes, of segments, of words with a label.

        Args:
            counts: how much each part counts, whole numbers that broadcast to the potentials, one tensor for each; no
                output may have less than 0 in all.
            most: the largest number; outputs with more are left out.
            k: number of outputs for each.

        Returns:
            Values [B, most + 1, k], differentiable, -inf where there are fewer outputs; outputs [B, most + 1, k, ...].
        """
        k, counter = check_k(k), self.by_count(counts, most + 1)
        batch, size = len(self.potentials[0]), counter.size
        values, y = counter.topk(k, lambda scores: torch.arange(size * k, device=scores.device).expand(batch, -1))
        return values.unflatten(1, (size, k)), _where_feasible(values, y).unflatten(1, (size, k))

    def logsumexp_by_count(self, counts: Sequence[Tensor], most: int) -> Tensor:
        """Log-partition functions [B, most + 1] of the outputs with each number of something; twice differentiable.

        Arguments are those of :meth:`topk_by_count`. Their gradients are marginals under the condition that an output
        has that number.
        """
        return self.by_count(counts, most + 1).logsumexp()

    def by_count(self, counts: Sequence[Tensor], size: int | None = None) -> ByCount:
        """The product of the program with a counter from 0 to size - 1, or as far as needed; see :meth:`topk_by_count`.

        Raises:
            ValueError: the wrong number of counts; under ``validate_args``, an output whose count is negative.
        """
        whole = self.batched()
        if len(counts) != len(whole.potentials):
            raise ValueError(
                f"counts must have one tensor for each of {len(whole.potentials)} potentials, got {len(counts)}"
            )
        pairs = zip(counts, whole.potentials, strict=True)
        added = whole.replace(*(count.detach().to(torch.float64).expand(p.shape) for count, p in pairs))
        if size is None:
            size = 1 + _largest_count(added)
        if self.validate_args and bool((added.replace(*(-p for p in added.potentials)).max()[0] > 0).any()):
            raise ValueError("counts of an output must not be negative in all")
        numbers, program = added.program_scores().round().long(), self.program()
        return by_count(self.program_scores(), numbers, self.sizes(), program, size, self.is_compiled, self.outputs)

    def read_max_marginals(self, values: Tensor) -> Tensor:
        """Max-marginals of the first potentials, from those [B, P] of the scores of the program.

        As it is, the first scores must be the first potentials, in the same order.
        """
        first = self.potentials[0]
        return values[:, : math.prod(first.shape[1:])].view(first.shape)

    def inverse_cdf(self, uniform: Tensor) -> Tensor:
        """Samples at uniform numbers, as in :class:`~structsmooth.structures.distribution.Distribution`."""
        used = self.oracles.sample(*self._arguments(), uniform)
        feasible = used[..., 0] >= 0
        y = self.outputs(torch.where(used >= 0, used, self.program().scores))
        return torch.where(feasible.view(*feasible.shape, *[1] * (y.dim() - 2)), y, 0)

    def _arguments(self) -> tuple[Tensor, Tensor, Any]:
        """What oracles take: scores, the roots of examples, and what stands for the program."""
        return self.program_scores(), self.sizes(), self.oracles.as_argument(self)

    def _scores_of_outputs(self, scores: Tensor, used: Tensor) -> Tensor:
        return self.oracles.scores_of_outputs(scores, used)

    def _draws(self) -> tuple[int, ...]:
        return (self.program().depth,)

    @property
    def is_compiled(self) -> bool:
        """Whether oracles are compiled loops."""
        return self.oracles is type(self).oracles.cpu

    def has_open_sizes(self) -> bool:
        """Whether levels cannot be unrolled into an exported graph, or only to operators that ONNX does not have."""
        is_symbolic = checks.is_exporting() and isinstance(self.program(), SymbolicProgram)
        return is_symbolic or checks.exports_plain_torch()


def _where_feasible(values: Tensor, y: Tensor) -> Tensor:
    """Outputs [B, K, ...], 0 where values [B, K] are -inf."""
    return torch.where((values > -torch.inf).view(*values.shape, *[1] * (y.dim() - 2)), y, 0)


def _largest_count(added: DynamicProgram) -> int:
    """The largest count of an output, or the number of its variables where Python may not read values."""
    y = added.max()
    if checks.can_read_values():
        return int(y[0].clamp_min(0).max()) if len(y[0]) else 0
    return y[1].shape[1:].numel()
