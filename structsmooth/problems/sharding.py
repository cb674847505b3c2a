"""Finite sums whose full passes are shared out over processes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from structsmooth import processes
from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.derived import DerivedProblem
from structsmooth.problems.linear.active_set import Cache, Steps
from structsmooth.problems.linear.base import DualIterate, LinearProblem
from structsmooth.smoothing import Smoother

# Of the norm of the weights: rounding stays far below, and what is not rounding soon gets above.
_DRIFT = 1e-6


def sharded(problem: Problem) -> Problem:
    """The problem with full passes shared out over the processes that joined; itself if there are more than examples.

    Call it in every process, after ``torch.distributed.init_process_group``, with the same problem, and run the same
    solver with the same seed: all get the weights that one process would, but for rounding.

    Args:
        problem: any.

    Returns:
        A :class:`LinearProblem` for one, else a :class:`ShardedProblem`; the problem itself where there is one process.

    Example:
        >>> from structsmooth import LinearScore, ModuleProblem
        >>> data = [(torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])) for _ in range(8)]
        >>> problem = ModuleProblem(LinearScore(3, 2, torch.float32), data)
        >>> sharded(problem) is problem  # one process
        True
    """
    if processes.count() == 1 or problem.n < processes.count():
        return problem
    return ShardedLinearProblem(problem) if isinstance(problem, LinearProblem) else ShardedProblem(problem)


class ShardedProblem(DerivedProblem):
    """A problem whose losses and full passes are shared out over processes, each with a range of the examples.

    Sums over examples are then added up, and every process gets the same. Stochastic steps are not shared out: every
    process makes all of them, and at the end of an epoch goes on with the weights of the first, so that processes
    never part. A solver has to make the same calls in each process, as it does with the same seed. Oracle calls are
    those of one process: steps count once, though all make them.

    Args:
        problem: with at least as many examples as there are processes.
        own: the same problem over the examples of this process; taken from the problem if not given.

    Raises:
        ConnectionError: from any pass, if another process ended.
        RuntimeError: from full passes, if weights differ between processes: solvers got different seeds, or steps do
            not give the same each time, as with dropout in ``train()`` mode.
    """

    def __init__(self, problem: Problem, own: Problem | None = None) -> None:
        super().__init__(problem)
        self.own = problem.share(torch.tensor(processes.share(problem.n))) if own is None else own
        self.bounds = problem.bounds

    def start(self) -> Tensor:
        """The start of the problem in the first process: [dim]."""
        return processes.from_first(self.problem.start())

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples: [b]."""
        return self.problem.batch_losses(w, indices, smoother)

    def subset(self, indices: Tensor) -> Problem:
        """The same problem over some of its examples, shared out."""
        return sharded(self.problem.subset(indices))

    def restrict(self, indices: Tensor, w: Tensor) -> tuple[Problem, Tensor]:
        """The same problem over some of its examples, without the weights that they do not use, shared out."""
        part, weights = self.problem.restrict(indices, w)
        return sharded(part), weights

    def linearize(self, w: Tensor) -> Problem:
        """The linearized problem, shared out."""
        linear = self.problem.linearize(w)
        return self if linear is self.problem else ShardedProblem(linear, self.own.linearize(w))

    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i(w), each process with its share of the examples."""
        calls = self.own.oracle_calls
        (loss,) = self._means(w, [self.own.loss(w, smoother)], calls)
        return loss

    def full_pass(self, w: Tensor, smoother: Smoother, *, with_loss: bool = False) -> FullPass:
        """One oracle call on every example, each process with its share of them."""
        calls = self.own.oracle_calls
        full = self.own.full_pass(w, smoother, with_loss=with_loss)
        names = [name for name in ("smoothed_loss", "loss", "expected_cost") if getattr(full, name) is not None]
        means = self._means(w, [getattr(full, name) for name in names], calls)
        gradient = processes.summed(full.gradient * (self.own.n / self.n))
        changes: dict[str, Any] = dict(zip(names, means, strict=True))
        changes |= {name: _of_all(getattr(full, name)) for name in full.per_example}
        return replace(full, gradient=gradient, **changes)

    def batch_loss_and_grad(self, w: Tensor, indices: Tensor, smoother: Smoother) -> tuple[Tensor, Tensor]:
        """Mean loss over some examples [] and its gradient [dim], in every process."""
        return self.problem.batch_loss_and_grad(w, indices, smoother)

    def gradient_change(self, w: Tensor, snapshot: FullPass, indices: Tensor) -> Tensor:
        """As in :meth:`Problem.gradient_change`, in every process."""
        return self.problem.gradient_change(w, snapshot, indices)

    def svrg_epoch(
        self,
        snapshot: FullPass,
        order: Tensor,
        *,
        step_size: float,
        lam: float,
        kappa: float = 0.0,
        center: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The epoch of the problem, in every process."""
        last, mean = self.problem.svrg_epoch(snapshot, order, step_size=step_size, lam=lam, kappa=kappa, center=center)
        return processes.from_first(last), processes.from_first(mean)

    def sgd_epoch(
        self, w: Tensor, order: Tensor, *, step_sizes: Tensor, lam: float, smoother: Smoother, shares: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The epoch of the problem, in every process."""
        last, total = self.problem.sgd_epoch(w, order, step_sizes=step_sizes, lam=lam, smoother=smoother, shares=shares)
        return processes.from_first(last), processes.from_first(total)

    def _means(self, w: Tensor, own: list[float], calls: int) -> list[float]:
        """Means over all examples from those over the own; counts the oracle calls that they took, ``calls`` before."""
        norm, made = float(w.norm()), self.own.oracle_calls - calls
        numbers = [value * self.own.n / self.n for value in own] + [made, norm / processes.count()]
        *means, made, mean_norm = processes.summed(w.new_tensor(numbers, dtype=torch.float64)).tolist()
        if math.isfinite(mean_norm) and not abs(norm - mean_norm) <= _DRIFT * mean_norm:
            raise RuntimeError(
                f"processes have different weights, of norm {norm:.9g} in process {processes.rank()} and "
                f"{mean_norm:.9g} on average: steps must give the same in each"
            )
        self.oracle_calls += round(made)
        return means


def _of_all(rows: Tensor | list[Any] | None) -> Tensor | list[Any] | None:
    """What a full pass keeps of each example, from all processes."""
    if isinstance(rows, Tensor):
        return processes.stacked_rows(rows)
    return None if rows is None else processes.concatenated(rows)


class ShardedLinearProblem(ShardedProblem, LinearProblem):
    """A linear problem whose losses, full passes and block gaps are shared out over processes.

    Args:
        problem: with at least as many examples as there are processes.
    """

    problem: LinearProblem
    own: LinearProblem

    def __init__(self, problem: LinearProblem) -> None:
        super().__init__(problem)

    def linearize(self, w: Tensor) -> LinearProblem:
        """The problem itself."""
        return self

    def potentials(self, w: Tensor, i: int) -> tuple[Tensor, ...]:
        """B_i w: the potentials of example i."""
        return self.problem.potentials(w, i)

    def adjoint(self, statistics: tuple[Tensor, ...], i: int) -> Tensor:
        """B_iᵀ m: the vector [dim] with ⟨B_iᵀ m, w⟩ = ⟨m, B_i w⟩."""
        return self.problem.adjoint(statistics, i)

    def part_costs(self, i: int) -> tuple[Tensor, ...]:
        """ℓ_i in the shapes of the potentials."""
        return self.problem.part_costs(i)

    def label_output(self, i: int) -> Tensor:
        """y_i: integers [m_i]."""
        return self.problem.label_output(i)

    def best_output(self, potentials: tuple[Tensor, ...], i: int) -> Tensor:
        """The max oracle: [m_i]."""
        return self.problem.best_output(potentials, i)

    def parts(self, output: Tensor, i: int) -> tuple[Tensor, ...]:
        """ν(y): the parts of an output of example i."""
        return self.problem.parts(output, i)

    def label_statistics(self) -> Tensor:
        """Statistics of all examples that are the parts of their labels: [size]."""
        return self.problem.label_statistics()

    def label_sets(self, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
        """Active sets and caches of the labels alone."""
        return self.problem.label_sets(capacity)

    def expected_cost(self, statistics: Tensor) -> float:
        """(1/n) Σ ⟨ℓ_i, m_i⟩."""
        return self.problem.expected_cost(statistics)

    def dual_weights(self, statistics: Tensor, lam: float) -> Tensor:
        """v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim]."""
        return self.problem.dual_weights(statistics, lam)

    def block_gaps(self, w: Tensor, statistics: Tensor) -> Tensor:
        """The block gaps g_i of all examples, each process with its share of them: [n]."""
        gaps = self.own.block_gaps(w, statistics[self._own_statistics])
        self.oracle_calls += self.n
        return processes.stacked_rows(gaps * (self.own.n / self.n))

    def block_margins(self, w: Tensor, statistics: Tensor) -> Tensor:
        """(1/n) ⟨θ_i + ℓ_i, m_i − ν(y_i)⟩ of all examples, each process with its share of them: [n]."""
        margins = self.own.block_margins(w, statistics[self._own_statistics])
        return processes.stacked_rows(margins * (self.own.n / self.n))

    def best_statistics(self, w: Tensor) -> Tensor:
        """Statistics of all examples at ``w``, each process with its share of them: [size]."""
        statistics = self.own.best_statistics(w)
        self.oracle_calls += self.n
        return processes.stacked_rows(statistics)

    def frank_wolfe_epoch(
        self,
        point: DualIterate,
        order: Tensor,
        *,
        lam: float,
        steps: Steps = "fw",
        shares: Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[DualIterate, Tensor | None]:
        """The epoch of the problem, in every process."""
        point, total = self.problem.frank_wolfe_epoch(point, order, lam=lam, steps=steps, shares=shares, cache=cache)
        point = DualIterate(**{name: processes.from_first(tensor) for name, tensor in vars(point).items()})
        return point, None if total is None else processes.from_first(total)

    @cached_property
    def _own_statistics(self) -> slice:
        """Where the statistics of the own examples are among those of all."""
        ends = list(accumulate(processes.gathered(len(self.own.label_statistics())), initial=0))
        return slice(*ends[processes.rank() : processes.rank() + 2])
