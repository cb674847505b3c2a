"""Processes share passes and steps over the examples of a problem that each of them has."""

import copy
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from structsmooth import processes
from structsmooth.problems.base import Problem
from structsmooth.problems.reductions import Shard

P = TypeVar("P", bound=Problem)
F = TypeVar("F", bound=Callable[..., Any])


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


def of_examples(method: F) -> F:
    """Decorate ``method(indices, ...)`` that makes a problem over some examples.

    The examples keep their weights and, for messages, their numbers. Processes share the passes of the new problem,
    too. It may come in a tuple, first.
    """

    @functools.wraps(method)
    def made(self: Problem, indices: Tensor, *arguments: Any) -> Any:
        result = method(self, indices, *arguments)
        part, *others = result if isinstance(result, tuple) else (result,)
        part.origins = self.numbers(indices)
        if self.sample_weight is not None:
            part = part.weighted(self.sample_weight[indices])
        if self.shard is not None:
            part = sharded(part)
        return (part, *others) if isinstance(result, tuple) else part

    return cast(F, made)
