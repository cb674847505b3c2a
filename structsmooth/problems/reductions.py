"""What processes that share a pass exchange: each makes its part, and one reduction puts the parts together."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from structsmooth import processes

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

# Relative to the norm of the weights: rounding stays far below, and other differences soon exceed it.
_DRIFT = 1e-6


@dataclass(frozen=True)
class Shard:
    """What a process contributes to shared passes: its ``local`` problem, over some of the examples."""

    local: Any

    @cached_property
    def rows(self) -> slice:
        """Rows of this process in the flat statistics of all blocks of a linear problem."""
        size = len(self.local.label_statistics())
        ends = list(accumulate(processes.gathered(size), initial=0))
        return slice(*ends[processes.rank() : processes.rank() + 2])


def all_reduced(reduction: Callable[[Any, float], Any]) -> Callable[[F], F]:
    """Decorate a pass over all examples, ``method(w, *statistics, **options)``: processes share it.

    Args:
        reduction: the result over all examples, from the result over those of this process and their share of all.
    """

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def shared_pass(self: Any, w: Tensor, *arguments: Any, **options: Any) -> Any:
            if self.shard is None:
                return method(self, w, *arguments, **options)
            local, calls = self.shard.local, self.shard.local.oracle_calls
            # A tensor beside the weights holds the statistics of all blocks.
            mine = [argument[self.shard.rows] if isinstance(argument, Tensor) else argument for argument in arguments]
            result = getattr(local, method.__name__)(w, *mine, **options)
            self.oracle_calls += calls_of_all(w, local.oracle_calls - calls)
            return reduction(result, local.total_weight / self.total_weight)

        return cast(F, shared_pass)

    return decorate


def mean(value: float, share: float) -> float:
    """The mean over the examples of all processes, given the mean over the share of this one."""
    return float(processes.summed(torch.tensor(value * share, dtype=torch.float64)))


def rows(local_rows: Tensor, share: float) -> Tensor:
    """The rows of the blocks of all processes, given those of this one."""
    return processes.stacked_rows(local_rows)


def mean_rows(local_rows: Tensor, share: float) -> Tensor:
    """The rows of the blocks of all processes, each of which is a term of a mean over all examples."""
    return processes.stacked_rows(local_rows * share)


def shared_mean(problem: Any, indices: Tensor, means: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Means over some examples, [...] each: every process computes its part of them if they suffice for all.

    Args:
        problem: with the examples; calls that the other processes make are counted here, too.
        indices: the examples of one step, [b].
        means: the means over some of them.
    """
    if problem.shard is None or len(indices) < processes.count():
        return means(indices)
    share = processes.share(len(indices))
    local = indices[share.start : share.stop]
    parts = means(local)
    problem.oracle_calls += problem.inferences(indices) - problem.inferences(local)
    sums = processes.summed(torch.cat([part.flatten() for part in parts]) * (len(local) / len(indices)))
    pieces = sums.split([part.numel() for part in parts])
    return tuple(piece.view_as(part) for piece, part in zip(pieces, parts, strict=True))


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


def agreed(problem: Any, result: T) -> T:
    """The result of what every process does in full: all go on with that of the first, if they share ``problem``."""
    return result if problem.shard is None else _from_first(result)


def _from_first(result: Any) -> Any:
    """The tensors of the first process, in tuples and dataclasses."""
    if isinstance(result, Tensor):
        return processes.from_first(result)
    if isinstance(result, tuple):
        return tuple(map(_from_first, result))
    if is_dataclass(result) and not isinstance(result, type):
        return replace(result, **{f.name: _from_first(getattr(result, f.name)) for f in fields(result)})
    return result
