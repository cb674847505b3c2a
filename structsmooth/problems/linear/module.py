"""Any torch module that is linear in its parameters, on any structure, as a finite sum with a dual."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from structsmooth.costs import Hamming
from structsmooth.losses import StructuralHinge
from structsmooth.problems.affine import AffineBatch, AffineProblem, Answer, StatisticsPass, by_example
from structsmooth.problems.bounds import Bounds, checked_bounds
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.linearized import Labels
from structsmooth.problems.module import Dataset, ModuleProblem
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures.base import PartCosts, Structure


@dataclass(frozen=True)
class _Example:
    """What steps on one example need over and over.

    Attributes:
        x: the input, as a batch of one.
        y: the labels, as a batch of one.
        structure: bound to potentials of zero, which require gradients.
        costs: ℓ_i in the shapes of the potentials.
        parts: ν(y_i) in those.
    """

    x: Any
    y: Tensor
    structure: Structure
    costs: tuple[Tensor, ...]
    parts: tuple[Tensor, ...]


class LinearModuleProblem(AffineProblem, ModuleProblem, LinearProblem):
    """A :class:`ModuleProblem` whose potentials are linear in the parameters: it has a dual, and every solver takes it.

    Potentials may have any linear form, may be shared by parts (transitions [S, S]), and may come with any structure;
    the gradient of its score are the parts, that of the potentials the adjoint. Solvers of the dual keep the input,
    costs and parts of every example that they have seen.

    Args:
        module: maps a batch of inputs to a structure; see :class:`structsmooth.scores.ScoreModule`. What the structure
            is besides its potentials must not depend on the parameters.
        dataset: pairs (x, y).
        cost: task loss; ``None`` for no margin.
        batch_size: examples per stochastic step of primal solvers.
        collate: puts a list of pairs together into a batch (x, y); torch's default if not given.
        smoother: of the objective; see :class:`~structsmooth.problems.Problem`.
        bounds: lower and upper bounds of the weights, [dim] each; where potentials must have a sign, such as the
            pairwise ones of a :class:`~structsmooth.structures.BinaryGraph`.
        chunk_size: examples per batch in passes over all of them; 1 where ``collate`` cannot put several together, such
            as graphs with different edges.

    Raises:
        TypeError: a size that is no int.
        ValueError: potentials that are not linear in the parameters, such as those of layers with a bias that is not
            trained, or bounds that leave no weights; also where :class:`ModuleProblem` raises it.

    Reference:
        Osokin et al. (2016), section 2.

    Example:
        A multiclass support vector machine:

        >>> from structsmooth import BCFW, Candidates, ScoreModule
        >>> class Classes(ScoreModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = nn.Linear(4, 3)
        ...     def forward(self, x):
        ...         return Candidates(self.linear(x))
        >>> data = [(torch.eye(4)[i % 4], torch.tensor(i % 3)) for i in range(12)]
        >>> problem = LinearModuleProblem(Classes(), data)
        >>> history = BCFW().solve(problem, lam=0.1, passes=50).history
        >>> bool(history[-1].gap < 0.01 * history[0].gap)
        True
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset | Sequence[tuple[Any, Any]],
        cost: PartCosts | None = Hamming(),  # noqa: B008 - immutable
        batch_size: int = 1,
        collate: Callable[[list[Any]], tuple[Any, Labels]] = default_collate,
        smoother: Smoother = Max(),  # noqa: B008 - immutable
        bounds: Bounds | None = None,
        chunk_size: int = 32,
    ) -> None:
        super().__init__(module, dataset, cost, batch_size, collate, smoother, chunk_size)
        self.bounds = checked_bounds(bounds, self.start())
        self._examples: dict[int, _Example] = {}
        self._graph: tuple[int, Tensor, tuple[Tensor, ...]] | None = None
        self._check_linear()

    def potentials(self, w: Tensor, i: int) -> tuple[Tensor, ...]:
        """B_i w: the potentials of example i, as a batch of one."""
        # A copy, since the graph stays for the adjoint, while solvers change w in place.
        w = w.detach().clone().requires_grad_()
        with torch.enable_grad():
            potentials = self.structure(w, self._example(i).x).potentials
        self._graph = (i, w, potentials)
        return tuple(p.detach() for p in potentials)

    def adjoint(self, statistics: tuple[Tensor, ...], i: int) -> Tensor:
        """B_iᵀ m: the vector [dim] with ⟨B_iᵀ m, w⟩ = ⟨m, B_i w⟩."""
        # A linear map has the same adjoint everywhere, so that of the last weights will do.
        if self._graph is None or self._graph[0] != i:
            self.potentials(torch.zeros_like(self.start()), i)
        assert self._graph is not None
        _, w, potentials = self._graph
        pairs = [(p, m) for p, m in zip(potentials, statistics, strict=True) if p.requires_grad]
        trained, weights = zip(*pairs, strict=True) if pairs else ((), ())
        return torch.autograd.grad(trained, w, weights, retain_graph=True)[0] if pairs else torch.zeros_like(w)

    def part_costs(self, i: int) -> tuple[Tensor, ...]:
        """ℓ_i in the shapes of the potentials."""
        return self._example(i).costs

    def label_output(self, i: int) -> Tensor:
        """The labels of example i, flat."""
        return self._example(i).y.flatten()

    def label_parts(self, i: int) -> tuple[Tensor, ...]:
        """ν(y_i) in the shapes of the potentials."""
        return self._example(i).parts

    def best_output(self, potentials: tuple[Tensor, ...], i: int) -> Tensor:
        """The max oracle of the structure, flat."""
        return self._example(i).structure.replace(*potentials).max()[1].flatten()

    def parts(self, output: Tensor, i: int) -> tuple[Tensor, ...]:
        """ν(y) in the shapes of the potentials: summed over the parts that share one."""
        example = self._example(i)
        return _parts(example.structure, output.view(example.y.shape))

    def affine_batch(self, indices: Tensor) -> _LinearBatch:
        """Some of the examples."""
        x, labels = self.batch(indices)
        return _LinearBatch(self, x, *self._labels_and_cost(labels))

    def full_pass(self, w: Tensor, smoother: Smoother, *, with_loss: bool = False) -> StatisticsPass:
        """As in :meth:`Problem.full_pass`; with the expected cost, and the statistics of every example."""
        result = super().full_pass(w, smoother, with_loss=with_loss)
        if smoother != self.smoother or isinstance(smoother, Max):
            return result
        # h(θ + ℓ) = ⟨θ + ℓ, m⟩ − h*(m): beside the cost there is −h*(m) ≥ 0, if the objective has this h.
        return replace(result, expected_cost=result.smoothed_loss - float(w @ result.gradient))

    def linearize(self, w: Tensor) -> LinearModuleProblem:
        """The problem itself."""
        return self

    def _over(self, dataset: Dataset | Sequence[tuple[Any, Any]]) -> LinearModuleProblem:
        settings = (self.cost, self.batch_size, self.collate, self.smoother, self.bounds, self.chunk_size)
        return LinearModuleProblem(self.module, dataset, *settings)

    def _example(self, i: int) -> _Example:
        if i not in self._examples:
            self._examples[i] = self._prepared(i)
        return self._examples[i]

    def _prepared(self, i: int) -> _Example:
        x, labels = self.batch(torch.tensor([i]))
        y, cost = self._labels_and_cost(labels)
        with torch.no_grad():
            structure = self.structure(torch.zeros_like(self.start()), x)
        if any(bool((p != 0).any()) for p in structure.potentials):
            raise ValueError(
                f"module must be linear in its parameters: with all of them zero, potentials of example {i} are not. "
                "Train its bias, or take ModuleProblem"
            )
        structure = structure.replace(*(torch.zeros_like(p).requires_grad_() for p in structure.potentials))
        y = structure.checked_labels(y)  # 0 at padding
        augmented = structure if cost is None else structure.cost_augmented(y, cost)
        return _Example(x, y, structure, tuple(p.detach() for p in augmented.potentials), _parts(structure, y))

    def _labels_and_cost(self, labels: Labels) -> tuple[Tensor, PartCosts | Tensor | None]:
        """Labels, and the part costs that come with them or the cost of the problem."""
        return (labels, self.cost) if isinstance(labels, Tensor) else labels

    def _check_linear(self) -> None:
        """θ(a/2 + b/2) = θ(a)/2 + θ(b)/2 for the first example and random weights within the bounds."""
        generator, zero = torch.Generator().manual_seed(0), torch.zeros_like(self.start())
        a, b = (torch.randn(len(zero), generator=generator).to(zero) for _ in range(2))
        a, b = self.within_bounds(a), self.within_bounds(b)
        of_sum, of_a, of_b = (self.potentials(w, 0) for w in ((a + b) / 2, a, b))
        for c, p, q in zip(of_sum, of_a, of_b, strict=True):
            scale = max(1.0, *(float(t.abs().max()) for t in (p, q))) if p.numel() else 1.0
            if p.numel() and not float((2 * c - p - q).abs().max()) <= math.sqrt(torch.finfo(c.dtype).eps) * scale:
                raise ValueError("module must be linear in its parameters: potentials of sums of weights are not sums")


class _LinearBatch(AffineBatch):
    """Inputs, labels and costs of some examples, and their potentials at the last weights that were asked for."""

    def __init__(self, problem: ModuleProblem, x: Any, y: Tensor, cost: PartCosts | Tensor | None) -> None:
        self.problem, self.x, self.y, self.cost = problem, x, y, cost
        self.w: Tensor
        self.moving: list[Tensor]

    def oracle(self, w: Tensor, smoother: Smoother) -> Answer:
        """One oracle call on each example."""
        self.w = w.detach().requires_grad_()
        own, has_rows = by_example(self.problem.structure(self.w, self.x))
        self.moving = [p for p in own.potentials if p.requires_grad]
        # Leaves, so that there is a gradient in the potentials as well.
        structure = own.replace(*(p.detach().requires_grad_() if p.requires_grad else p for p in own.potentials))
        leaves = [p for p in structure.potentials if p.requires_grad]
        # Scaled costs: the derivative in the scale is their mean under the statistics.
        scale = torch.ones_like(w[0]).requires_grad_()
        costs = self.cost(structure, self.y) if callable(self.cost) else self.cost
        if costs is not None:
            costs = scale * costs if isinstance(costs, Tensor) else tuple(scale * own for own in costs)
        loss = StructuralHinge(smoother, costs, "sum")(structure, self.y)
        *statistics, cost = torch.autograd.grad(loss, (*leaves, scale), materialize_grads=True)
        return Answer(loss.detach(), statistics, has_rows, cost)

    def adjoint(self, statistics: Sequence[Tensor]) -> Tensor:
        """Σ B_iᵀ m_i: [dim]; once after an answer, for statistics in its shapes."""
        if not self.moving:
            return torch.zeros_like(self.w)
        return torch.autograd.grad(self.moving, self.w, statistics)[0]


def _parts(structure: Structure, y: Tensor) -> tuple[Tensor, ...]:
    """ν(y) in the shapes of the potentials, which require gradients: the gradient of the score."""
    with torch.enable_grad():
        score = structure.score(y)
    return torch.autograd.grad(score, structure.potentials, materialize_grads=True)
