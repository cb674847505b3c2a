"""Any torch module that is linear in its parameters, on any structure, as a finite sum with a dual."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from structsmooth.costs import Cost, Hamming
from structsmooth.problems.affine import AffineBatch, Parts, flat, shaped
from structsmooth.problems.bounds import Bounds, checked_bounds
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.linear.batches import Constants, StructureBatch, offsets_of
from structsmooth.problems.linear.blocks import FeatureMap, OracleOutput, VectorMap, respond
from structsmooth.problems.linear.completed import Completed, agreeing_labels, completed_collate
from structsmooth.problems.linear.difference import DifferenceProblem
from structsmooth.problems.module import Dataset, Labels, ModuleProblem, stacked
from structsmooth.problems.sharding import of_examples
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures.base import PartCosts, Structure
from structsmooth.structures.checks import ForbiddenLabelsError
from structsmooth.structures.forbidden import forbidden_part


@dataclass(frozen=True)
class _Example:
    """What steps on one example need over and over, as a batch of one."""

    x: Any
    y: Tensor
    structure: Structure  # bound to potentials of zero, which require gradients
    constants: Constants  # of the potentials, in their shapes
    costs: Parts  # ℓ_i and the finite constants, in the shapes of the potentials
    parts: Parts  # ν(y_i) in the shapes of the potentials

    @property
    def label_score(self) -> float:
        """The score of the labels with all weights zero."""
        return self.constants.score(self.parts)

    def relabelled(self, y: Tensor) -> "_Example":
        """The same example with other labels."""
        y = y[None].to(self.y)
        return replace(self, y=y, parts=_parts(self.structure, y))


class LinearModuleProblem(LinearProblem):
    """The finite sum of a :class:`ModuleProblem` whose potentials are affine in the parameters.

    Every solver takes it, since it has a dual. Potentials may have any linear form, may be shared by parts (transitions
    [S, S]), and may come with any structure: parts are the gradient of its score, the adjoint is the gradient of its
    potentials. Solvers of the dual keep the input, costs and parts of every example they have seen.

    What potentials have with all parameters zero is constant. Parts of −inf are forbidden, as by a mask on transitions
    or by :class:`~structsmooth.factors.AtMostOne`: they belong to the output space, not to the dual, and the labels
    must not have them. Finite constants c_i, such as the scores of a layer that is not trained, are an offset of the
    scores: the dual has ⟨ℓ_i + c_i, m_i⟩ − ⟨c_i, ν(y_i)⟩ in the place of ⟨ℓ_i, m_i⟩. Gaps are certified as without
    constants.

    Over a
    :class:`~structsmooth.structures.LocalPolytope` the objective has the hinges of the relaxation, and the atoms of the
    dual are statistics.

    Args:
        module: maps a batch of inputs to a structure; see :class:`structsmooth.scores.ScoreModule`. Nothing but the
            finite potentials of the structure may depend on the parameters.
        dataset: pairs (x, y); or (x, (y, costs)) with part costs for each example.
        cost: task loss; ``None`` for no margin.
        batch_size: examples per stochastic step of primal solvers.
        collate: puts a list of pairs together into a batch (x, y); torch's default if not given.
        smoother: smoother of the objective; see :class:`~structsmooth.problems.Problem`.
        bounds: lower and upper bounds of the weights, [dim] each; where potentials must have a sign, such as the
            pairwise ones of a :class:`~structsmooth.structures.BinaryGraph`.
        chunk_size: examples per batch in passes over all of them; 1 where ``collate`` cannot put several together, such
            as graphs with different edges.

    Raises:
        TypeError: a size that is no int.
        ValueError: potentials that are not affine in the parameters, or bounds that leave no weights; also where
            :class:`ModuleProblem` raises it. Solvers raise it for forbidden labels, and name the example.

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
        >>> result = BCFW().solve(problem, lam=0.1, passes=50)
        >>> bool(result.row.gap < 0.01 * result.history[0].gap)
        True
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset | Sequence[tuple[Any, Any]],
        cost: PartCosts | None = Hamming(),  # noqa: B008 - immutable
        batch_size: int = 1,
        collate: Callable[[list[Any]], tuple[Any, Labels]] = stacked,
        smoother: Smoother = Max(),  # noqa: B008 - immutable
        bounds: Bounds | None = None,
        chunk_size: int = 32,
    ) -> None:
        self.module_problem = ModuleProblem(module, dataset, cost, batch_size, collate, smoother, chunk_size)
        if self.module_problem.partial:
            raise TypeError(
                "LinearModuleProblem has a dual, which partial labels do not have: take "
                "LinearModuleProblem.of_partial_labels, or ModuleProblem"
            )
        self.module, self.dataset, self.cost = module, dataset, cost
        self.n, self.dim, self.smoother = self.module_problem.n, self.module_problem.dim, smoother
        self.batch_size, self.chunk_size = batch_size, chunk_size
        self.bounds = checked_bounds(bounds, self.start())
        self.feature_map = self.make_feature_map()
        self._examples: dict[int, _Example] = {}
        self._plain = torch.zeros(self.n, dtype=torch.bool)  # examples that are known to have no finite constants
        self._check_affine()

    @classmethod
    def of_partial_labels(
        cls,
        module: nn.Module,
        dataset: Dataset | Sequence[tuple[Any, Any]],
        cost: Cost | None = Hamming(),  # noqa: B008 - immutable
        batch_size: int = 1,
        collate: Callable[[list[Any]], tuple[Any, Labels]] = stacked,
        smoother: Smoother = Max(),  # noqa: B008 - immutable
        bounds: Bounds | None = None,
        chunk_size: int = 32,
    ) -> DifferenceProblem:
        """The problem of partial labels, for :class:`~structsmooth.solvers.ConvexConcave`.

        Args:
            module: as for the class.
            dataset: pairs (x, PartialLabels(y, allowed)).
            cost: of labels that are known and wrong; ``None`` for no margin, as masks of parts need it.
            batch_size: as for the class.
            collate: puts a list of such pairs together.
            smoother: of the objective.
            bounds: of the weights.
            chunk_size: as for the class.

        Raises:
            TypeError: labels that are not partial, or a structure whose max oracle answers with statistics.
            ValueError: what the class refuses, or no output that agrees with the labels of an example, which is named.

        Example:
            Of three classes, one is ruled out for each example:

            >>> from structsmooth import Candidates, ScoreModule
            >>> from structsmooth.problems import PartialLabels
            >>> from structsmooth.solvers import ConvexConcave
            >>> class Classes(ScoreModule):
            ...     def __init__(self):
            ...         super().__init__()
            ...         self.linear = nn.Linear(3, 3, dtype=torch.float64)
            ...     def forward(self, x):
            ...         return Candidates(self.linear(x))
            >>> x, allowed = torch.eye(3).double().repeat(2, 1), 1 - torch.eye(3).roll(1, 1).repeat(2, 1)
            >>> data = [(x[i], PartialLabels(torch.tensor(0), allowed[i] > 0)) for i in range(6)]
            >>> problem = LinearModuleProblem.of_partial_labels(Classes(), data)
            >>> ConvexConcave().solve(problem, lam=0.1, passes=50).status
            <Status.CONVERGED: 'converged'>
        """
        whole = ModuleProblem(module, dataset, None, batch_size, collate, smoother, chunk_size)
        if not whole.partial:
            raise TypeError("labels must be PartialLabels(y, allowed) in all examples: take LinearModuleProblem")
        labels = agreeing_labels(whole)
        data = [(dataset[i], y) for i, y in enumerate(labels)]
        settings = (None, batch_size, partial(completed_collate, collate), smoother, bounds, chunk_size)
        return DifferenceProblem(*(cls(Completed(module, cost, agree), data, *settings) for agree in (False, True)))

    def start(self) -> Tensor:
        """The module's parameters as they are now: [dim]."""
        return self.module_problem.start()

    def to(self, device: torch.device | str) -> "LinearModuleProblem":
        """The problem itself, with its module on a device."""
        self.module_problem.to(device)
        self.bounds = checked_bounds(self.bounds, self.start())
        self.feature_map, self._examples = self.make_feature_map(), {}  # which keep tensors of the device
        return self

    def load(self, w: Tensor) -> None:
        """Write weights [dim] into the module's parameters."""
        self.module_problem.load(w)

    def batch(self, indices: Tensor) -> tuple[Any, Labels]:
        """Inputs and labels of some examples, on the device of the parameters."""
        return self.module_problem.batch(indices)

    def structure(self, w: Tensor, x: Any) -> Structure:
        """The structure of a batch of inputs under weights ``w``; differentiable."""
        return self.module_problem.structure(w, x)

    def oracle(self, potentials: Parts, block: int, smoother: Smoother = Max()) -> OracleOutput:  # noqa: B008 - immutable
        """The oracle of the structure of an example."""
        example = self.example(block)
        return respond(example.structure.replace(*example.constants.with_barriers(potentials)), smoother)

    def costs(self, block: int) -> Parts:
        """ℓ_i and the finite constants of the potentials, in their shapes."""
        return self.example(block).costs

    def expected_cost(self, statistics: Tensor) -> float:
        """(1/n) Σ ⟨ℓ_i + c_i, m_i⟩ − ⟨c_i, ν(y_i)⟩, with the constants c_i of the potentials."""
        labels = torch.tensor([self.example(block).label_score for block in range(self.blocks)], dtype=torch.float64)
        return super().expected_cost(statistics) - float(self._shared(labels).sum())

    def label_atom(self, block: int) -> Tensor:
        """The labels of an example, flat; their statistics for a fractional structure."""
        example = self.example(block)
        return flat(example.parts) if example.structure.is_fractional else example.y.flatten()

    def label_parts(self, block: int) -> Parts:
        """ν(y_i) in the shapes of the potentials."""
        return self.example(block).parts

    def parts(self, atom: Tensor, block: int) -> Parts:
        """Statistics of an atom in the shapes of the potentials: ν(y), summed over the parts that share one."""
        example = self.example(block)
        if example.structure.is_fractional:
            return shaped(atom, example.parts)
        return _parts(example.structure, atom.view(example.y.shape))

    def atom_scores(self, potentials: Parts, atoms: Tensor, block: int) -> Tensor:
        """Scores of several atoms of an example, as those of a batch of outputs: [c]."""
        example = self.example(block)
        if example.structure.is_fractional:
            return atoms @ flat(potentials)
        with torch.no_grad():
            structure = example.structure.replace(*potentials)
            return structure[torch.zeros_like(atoms[:, 0])].score(atoms.view(-1, *example.y.shape[1:]))

    def affine_batch(self, indices: Tensor) -> AffineBatch:
        """A batch of examples whose scores are affine in the weights."""
        x, labels = self.batch(indices)
        start, offsets = self.start(), None
        if not bool(self._plain[indices].all()):
            offsets = offsets_of(self.structure(torch.zeros_like(start), x))
        self._plain[indices] = offsets is None
        settings = (*self.module_problem.labels_and_settings(labels)[:2], start, offsets)
        return StructureBatch(lambda w: self.structure(w, x), *settings)

    def best_labels(self, w: Tensor) -> list[Tensor]:
        """The labels of each example that the max oracle gives at ``w``, with costs."""
        found = []
        for i in range(self.n):
            atom, y = self.call(self.augmented(w, i), i).atom, self.example(i).y
            assert atom is not None
            found.append(atom.view(y.shape)[0].cpu())
        return found

    def relabelled(self, labels: Sequence[Tensor]) -> "LinearModuleProblem":
        """The same problem with other labels of each example, shaped as an output; part costs of examples stay.

        Raises:
            NotImplementedError: the problem has a cost, which is a function of the labels.
        """
        if self.cost is not None:
            raise self._fixed_labels()
        problem = copy.copy(self)
        pairs = ((self.dataset[i], y) for i, y in enumerate(labels))
        problem.dataset = [(x, y if isinstance(old, Tensor) else (y, old[1])) for (x, old), y in pairs]
        settings = (None, self.batch_size, self.module_problem.collate, self.smoother, self.chunk_size)
        problem.module_problem = ModuleProblem(self.module, problem.dataset, *settings)
        problem.feature_map, problem.oracle_calls = problem.make_feature_map(), 0
        problem._examples = {i: example.relabelled(labels[i]) for i, example in self._examples.items()}
        return problem

    def make_feature_map(self) -> FeatureMap:
        """A map from the weights to the potentials of the examples."""
        return _AutogradFeatures(self)

    @of_examples
    def subset(self, indices: Tensor) -> "LinearModuleProblem":
        """The same problem over some of its examples."""
        return self._over(self.module_problem.subset(indices).dataset)

    @of_examples
    def lazy_subset(self, indices: Tensor) -> "LinearModuleProblem":
        """The same problem over a large part of its examples, which are read when they are needed."""
        return self._over(self.module_problem.lazy_subset(indices).dataset)

    def example(self, i: int) -> _Example:
        """Input, labels, costs and parts of an example, kept once they are known."""
        if i not in self._examples:
            self._examples[i] = self._prepared(i)
        return self._examples[i]

    def _over(self, dataset: Dataset | Sequence[tuple[Any, Any]]) -> "LinearModuleProblem":
        sizes = (self.batch_size, self.module_problem.collate, self.smoother, self.bounds, self.chunk_size)
        return type(self)(self.module, dataset, self.cost, *sizes)

    def _prepared(self, i: int) -> _Example:
        x, labels = self.batch(torch.tensor([i]))
        y, cost = self.module_problem.labels_and_settings(labels)[:2]
        with torch.no_grad():
            structure = self.structure(torch.zeros_like(self.start()), x)
        constants = Constants.of(structure.potentials)
        structure = structure.replace(*(torch.zeros_like(p).requires_grad_() for p in structure.potentials))
        y = structure.checked_labels(y)  # 0 at padding
        augmented = structure if cost is None else structure.cost_augmented(y, cost)
        costs, parts = tuple(p.detach() for p in augmented.potentials), _parts(structure, y)
        if constants.forbid(parts):
            why = forbidden_part(structure, parts, constants.barriers or (), y)
            raise ForbiddenLabelsError(int(self.numbers(torch.tensor(i))), "the problem", why)
        if constants.offsets is not None:
            costs = tuple(p + offset for p, offset in zip(costs, constants.offsets, strict=True))
        return _Example(x, y, structure, constants, costs, parts)

    def _check_affine(self) -> None:
        """θ(a/2 + b/2) = θ(a)/2 + θ(b)/2 for the first example and random weights within the bounds."""
        generator, zero = torch.Generator().manual_seed(0), torch.zeros_like(self.start())
        a, b = (torch.randn(len(zero), generator=generator).to(zero) for _ in range(2))
        a, b = self.within_bounds(a), self.within_bounds(b)
        of_sum, of_a, of_b = (self.potentials(w, 0) for w in ((a + b) / 2, a, b))
        for c, p, q in zip(of_sum, of_a, of_b, strict=True):
            scale = max(1.0, *(float(t.abs().max()) for t in (p, q))) if p.numel() else 1.0
            if p.numel() and not float((2 * c - p - q).abs().max()) <= math.sqrt(torch.finfo(c.dtype).eps) * scale:
                raise ValueError(
                    "module must be linear in its parameters, up to constants: potentials of means of weights are not "
                    "means. Take ModuleProblem"
                )
        if not self.example(0).constants.has_barriers_of(self.structure(a, self.example(0).x).potentials):
            raise ValueError(
                "module must forbid the same parts whatever its parameters are: other potentials are not finite with "
                "all of them zero than with random ones"
            )


class _AutogradFeatures(VectorMap):
    """The potentials of a module as a function of its parameters; the adjoint is their gradient.

    The graph of the last block stays.
    """

    def __init__(self, problem: LinearModuleProblem) -> None:
        self.problem = problem
        self.graph: tuple[int, Tensor, Parts] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the graph, which cannot be copied."""
        return {"problem": self.problem, "graph": None, "last": None}

    def scores(self, w: Tensor, block: int) -> Parts:
        # A copy, since the graph stays for the adjoint, while solvers change w in place.
        w = w.detach().clone().requires_grad_()
        with torch.enable_grad():
            example = self.problem.example(block)
            potentials = example.constants.without(self.problem.structure(w, example.x).potentials)
        self.graph = (block, w, potentials)
        return tuple(p.detach() for p in potentials)

    def vector(self, m: Parts, block: int) -> Tensor:
        # A linear map has the same adjoint everywhere, so that at the last weights will do.
        if self.graph is None or self.graph[0] != block:
            self.scores(torch.zeros_like(self.problem.start()), block)
        assert self.graph is not None
        _, w, potentials = self.graph
        pairs = [(p, weight) for p, weight in zip(potentials, m, strict=True) if p.requires_grad]
        trained, weights = zip(*pairs, strict=True) if pairs else ((), ())
        return torch.autograd.grad(trained, w, weights, retain_graph=True)[0] if pairs else torch.zeros_like(w)


def _parts(structure: Structure, y: Tensor) -> Parts:
    """ν(y) in the shapes of the potentials, which require gradients: the gradient of the score."""
    with torch.enable_grad():
        score = structure.score(y)
    return torch.autograd.grad(score, structure.potentials, materialize_grads=True)
