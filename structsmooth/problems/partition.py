"""Examples that are spread over processes: each process holds its own, and sees the others only in sums."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import NoReturn

from torch import Tensor

from structsmooth import processes
from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.reductions import calls_of_all, mean
from structsmooth.smoothing import Smoother

_APART = (
    "the examples of a PartitionedProblem are in their processes: CoCoA trains on them there; "
    "for other solvers, give all examples to each process, and take sharded"
)


def partitioned(local: Problem) -> Problem:
    """The problem over the examples of all processes that joined, of which each process has some.

    Call it in every process, after ``torch.distributed.init_process_group``, with the problem over the examples of this
    process alone. Memory for examples is that of the process's own. :class:`~structsmooth.solvers.CoCoA` trains on the
    result.

    Args:
        local: the problem over the process's own examples. Everything else must be the same in all processes: the
            meaning and the number of the weights, their bounds, the losses.

    Returns:
        A :class:`PartitionedProblem`; ``local`` itself if there is one process.

    Raises:
        ValueError: numbers of weights, or smoothers, that differ between processes.
        ConnectionError: here and from any pass, if another process ended.
        RuntimeError: from any pass, if weights differ between processes.

    Example:
        >>> import torch
        >>> from structsmooth import LinearModuleProblem, LinearScore, processes
        >>> from structsmooth.solvers import CoCoA
        >>> data = [(torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])) for _ in range(8)]
        >>> local = [data[i] for i in processes.share(len(data))]  # or read no others in the first place
        >>> problem = partitioned(LinearModuleProblem(LinearScore(3, 2, torch.float32), local))
        >>> problem.n
        8
        >>> result = CoCoA().solve(problem, lam=0.1, passes=5)
    """
    return local if processes.count() == 1 else PartitionedProblem(local)


class PartitionedProblem(Problem):
    """The finite sum over the examples of all processes, each of which holds its own; see :func:`partitioned`.

    Processes make passes over all examples together, each over its own. There is no way to single examples of others
    out: stochastic steps over all examples raise ``NotImplementedError``. Oracle calls are those of all processes.

    Attributes:
        local: the problem over the process's own examples.
        part: share of the process's own examples in all, by their weights if they have any.
    """

    def __init__(self, local: Problem) -> None:
        kinds = processes.gathered((local.dim, local.smoother))
        if kinds.count(kinds[0]) < len(kinds):
            found = ", ".join(f"{dim} with {smoother}" for dim, smoother in kinds)
            raise ValueError(f"problems of all processes must have the same dim and smoother, got {found}")
        self.local = local
        self.n, self.dim = sum(processes.gathered(local.n)), local.dim
        self.part = local.total_weight / sum(processes.gathered(local.total_weight))
        self.smoother, self.bounds = local.smoother, local.bounds
        self.batch_size, self.chunk_size = local.batch_size, local.chunk_size

    def start(self) -> Tensor:
        """Weights to start from: [dim]."""
        return self.local.start()

    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i(w) over the examples of all processes."""
        with self.counted(w):
            mean_loss = self.local.loss(w, smoother)
        return mean(mean_loss, self.part)

    def full_pass(
        self, w: Tensor, smoother: Smoother, *, with_loss: bool = False, with_statistics: bool = True
    ) -> FullPass:
        """One oracle call on every example of all processes; the result has no statistics of examples."""
        with self.counted(w):
            full = self.local.full_pass(w, smoother, with_loss=with_loss, with_statistics=False)
        sums = FullPass(**{f.name: getattr(full, f.name) for f in fields(FullPass)})
        return sums.all_reduced(self.part)

    @contextmanager
    def counted(self, w: Tensor) -> Iterator[None]:
        """Count the oracle calls of all processes, which must have the same weights ``w`` [dim]."""
        calls = self.local.oracle_calls
        yield
        self.oracle_calls += calls_of_all(w, self.local.oracle_calls - calls)

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> NoReturn:
        """Refused: the examples are in other processes."""
        raise NotImplementedError(_APART)

    def subset(self, indices: Tensor) -> NoReturn:
        """Refused: the examples are in other processes."""
        raise NotImplementedError(_APART)
