"""Processes share passes and steps: each makes its part of them, and one reduction puts the parts together."""

import copy
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor

from structsmooth import processes


class Shareable(Protocol):
    """What sharing asks of a problem."""

    n: int
    oracle_calls: int
    shard: "Shard | None"
    sample_weight: Tensor | None

    @property
    def total_weight(self) -> float:
        """Sum of the weights of the examples."""
        ...

    def weighted(self, sample_weight: Tensor) -> Any:
        """The same problem with weights of examples."""
        ...

    def lazy_subset(self, indices: Tensor) -> Any:
        """The same problem over a large part of its examples."""
        ...

    def inferences(self, indices: Tensor) -> int:
        """Number of oracle calls that some examples take."""
        ...

    def numbers(self, indices: Tensor) -> Tensor:
        """Numbers of some examples for messages."""
        ...


P = TypeVar("P", bound=Shareable)
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Relative to the norm of the weights: rounding stays far below, and other differences soon exceed it.
_DRIFT = 1e-6


def sharded(problem: P) -> P:
    """The problem with full passes shared out over the processes that joined.

    Call it in every process, after ``torch.distributed.init_process_group``, with the same problem, and run the same
    solver with the same seed: every process gets the weights that one process alone would, up to rounding.

    Of the examples of a stochastic step in plain torch each process takes a part, and their gradients are summed.
    Compiled steps, those of BCFW, and steps on fewer examples than processes are not shared out: every process makes
    all of them. After an epoch all go on with the weights of the first, so that processes never part. Oracle calls are
    counted as in one process.

    Args:
        problem: any problem.

    Returns:
        A shallow copy whose passes are shared out; the problem itself if there is one process, or if there are more
        processes than examples.

    Raises:
        ConnectionError: from any pass, if another process ended.
        RuntimeError: from full passes, if weights differ between processes: solvers got different seeds, or steps
            are not deterministic, as with dropout in ``train()`` mode.

    Example:
        >>> from structsmooth import LinearScore, ModuleProblem
        >>> data = [(torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])) for _ in range(8)]
        >>> problem = ModuleProblem(LinearScore(3, 2, torch.float32), data)
        >>> sharded(problem) is problem  # one process
        True
    """
    if processes.count() == 1 or problem.n < processes.count():
        return problem
    shared = copy.copy(problem)
    shared.shard = Shard(problem.lazy_subset(torch.tensor(processes.share(problem.n))))
    return shared


@dataclass(frozen=True)
class Shard:
    """What a process contributes to shared passes: its ``own`` problem, over some of the examples."""

    own: Any

    @cached_property
    def rows(self) -> slice:
        """Rows of this process in the flat statistics of all blocks of a linear problem."""
        size = len(self.own.label_statistics())
        ends = list(accumulate(processes.gathered(size), initial=0))
        return slice(*ends[processes.rank() : processes.rank() + 2])


def all_reduced(reduction: Callable[[Any, float], Any]) -> Callable[[F], F]:
    """Decorate a pass over all examples, ``method(w, *statistics, **options)``: processes share it.

    Args:
        reduction: the result over all examples, from the result over those of this process and their share of all.
    """

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def shared_pass(self: Shareable, w: Tensor, *arguments: Any, **options: Any) -> Any:
            if self.shard is None:
                return method(self, w, *arguments, **options)
            own, calls = self.shard.own, self.shard.own.oracle_calls
            # A tensor beside the weights holds the statistics of all blocks.
            mine = [argument[self.shard.rows] if isinstance(argument, Tensor) else argument for argument in arguments]
            result = getattr(own, method.__name__)(w, *mine, **options)
            self.oracle_calls += calls_of_all(w, own.oracle_calls - calls)
            return reduction(result, own.total_weight / self.total_weight)

        return cast(F, shared_pass)

    return decorate


def mean(own: float, share: float) -> float:
    """The mean over all examples."""
    return float(processes.summed(torch.tensor(own * share, dtype=torch.float64)))


def rows(own: Tensor, share: float) -> Tensor:
    """Rows of all blocks."""
    return processes.stacked_rows(own)


def mean_rows(own: Tensor, share: float) -> Tensor:
    """Rows of all blocks, each a term of a mean over all examples."""
    return processes.stacked_rows(own * share)


def shared_mean(
    problem: Shareable, indices: Tensor, means: Callable[[Tensor], tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """Means over some examples, [...] each: every process computes its part of them if they suffice for all.

    Args:
        problem: with the examples; calls that the other processes make are counted here, too.
        indices: the examples of one step, [b].
        means: the means over some of them.
    """
    if problem.shard is None or len(indices) < processes.count():
        return means(indices)
    share = processes.share(len(indices))
    own = indices[share.start : share.stop]
    parts = means(own)
    problem.oracle_calls += problem.inferences(indices) - problem.inferences(own)
    sums = processes.summed(torch.cat([part.flatten() for part in parts]) * (len(own) / len(indices)))
    pieces = sums.split([part.numel() for part in parts])
    return tuple(piece.view_as(part) for piece, part in zip(pieces, parts, strict=True))


def agreed(problem: Shareable, result: T) -> T:
    """The result of what every process does in full: all go on with that of the first, if they share ``problem``."""
    return result if problem.shard is None else _from_first(result)


def of_examples(method: F) -> F:
    """Decorate ``method(indices, ...)`` that makes a problem over some examples.

    The examples keep their weights and, for messages, their numbers. Processes share the passes of the new problem,
    too. It may come in a tuple, first.
    """

    @functools.wraps(method)
    def made(self: Shareable, indices: Tensor, *arguments: Any) -> Any:
        result = method(self, indices, *arguments)
        part, *others = result if isinstance(result, tuple) else (result,)
        part.origins = self.numbers(indices)
        if self.sample_weight is not None:
            part = part.weighted(self.sample_weight[indices])
        if self.shard is not None:
            part = sharded(part)
        return (part, *others) if isinstance(result, tuple) else part

    return cast(F, made)


def calls_of_all(w: Tensor, calls: int) -> int:
    """Oracle calls of all processes, which must have the same weights."""
    norm = float(w.norm())
    numbers = w.new_tensor([calls, norm / processes.count()], dtype=torch.float64)
    summed: float
    mean_norm: float
    summed, mean_norm = processes.summed(numbers).tolist()
    if math.isfinite(mean_norm) and not abs(norm - mean_norm) <= _DRIFT * mean_norm:
        raise RuntimeError(
            f"processes have different weights, of norm {norm:.9g} in process {processes.rank()} and "
            f"{mean_norm:.9g} on average: steps must give the same in each"
        )
    return round(summed)


def _from_first(result: Any) -> Any:
    """The tensors of the first process, in tuples and dataclasses."""
    if isinstance(result, Tensor):
        return processes.from_first(result)
    if isinstance(result, tuple):
        return tuple(map(_from_first, result))
    if is_dataclass(result) and not isinstance(result, type):
        return replace(result, **{f.name: _from_first(getattr(result, f.name)) for f in fields(result)})
    return result
