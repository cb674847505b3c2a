"""Structural hinge losses over the derivations of programs, with sparse features of their parts (CPU, float64)."""

import copy
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from structsmooth.compiled import threads
from structsmooth.compiled.arguments import checked
from structsmooth.lazy import LazyModule
from structsmooth.problems.affine import Parts
from structsmooth.problems.base import FullPass
from structsmooth.problems.bounds import Bounds, checked_bounds
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.linear.blocks import OracleOutput, respond
from structsmooth.problems.linear.difference import DifferenceProblem
from structsmooth.problems.linear.programs.features import PartFeatures
from structsmooth.problems.linear.programs.parts import Examples, ProgramArrays, ProgramParts, Sizes
from structsmooth.problems.linear.programs.structure import PartScores, SpanningScores, with_choices
from structsmooth.problems.reductions import all_reduced, mean, mean_rows
from structsmooth.problems.sharding import of_examples
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures import Structure
from structsmooth.structures.checks import ForbiddenLabelsError

compiled = LazyModule("structsmooth.problems.linear.programs.compiled")

P = TypeVar("P", bound="ProgramProblem")


class ProgramProblem(LinearProblem):
    """Structural hinge losses over outputs that are derivations of a program, with sparse features of their parts.

    Spanning trees, which are no derivations, are outputs too; see
    :meth:`~structsmooth.problems.ProgramParts.spanning_trees`. The score of an output is the sum of the scores of its
    parts, and that of a part the sum of the weights of its features: :class:`~structsmooth.problems.PartRows` stores
    them, :class:`~structsmooth.problems.PairFeatures` computes them where they are needed. Full passes for losses, gaps
    and gradients without smoothing, and steps of :class:`~structsmooth.BCFW` and :class:`~structsmooth.ProximalBCFW`,
    are compiled; they take float64 vectors [dim].
    Steps of other solvers, and all that is smoothed, are plain torch.

    Args:
        parts: the program, and the parts of the n examples.
        features: of all parts.
        labels: how often the labels have each part, int64 [parts].
        costs: part costs ℓ_i, float64 [parts]. The default is 1 for each part that the labels do not have: for trees,
            the number of wrong heads, and of wrong labels of words. ``None`` for no margin.
        smoother: smoother of the objective; see :class:`~structsmooth.problems.Problem`.
        bounds: lower and upper bounds of the weights, [dim] each; steps within bounds are plain torch.

    Raises:
        TypeError: tensors of the wrong dtype.
        ValueError: tensors of the wrong shape, or labels that are no output.

    Example:
        The best of two ways from 0 to 2, directly or by 1, of which each part has a feature of its own:

        >>> from structsmooth import BCFW
        >>> from structsmooth.problems import PartRows, ProgramParts
        >>> from structsmooth.programs import Program
        >>> program = Program(head=[0, 1, 2, 2], left=[-1, 0, 1, 0], index=[-1, 0, 1, 2], scores=3)
        >>> parts = ProgramParts(program, torch.tensor([2]), torch.tensor([0, 3]), torch.arange(3).int())
        >>> features = PartRows(torch.arange(3).int(), torch.arange(4), features=3)
        >>> problem = ProgramProblem(parts, features, labels=torch.tensor([1, 1, 0]))
        >>> BCFW().solve(problem, lam=0.1, passes=5).weights > 0
        tensor([ True,  True, False])
    """

    def __init__(
        self,
        parts: ProgramParts,
        features: PartFeatures,
        labels: Tensor,
        costs: Tensor | Literal["mistakes"] | None = "mistakes",
        smoother: Smoother = Max(),  # noqa: B008 - immutable
        bounds: Bounds | None = None,
    ) -> None:
        count = len(parts.scores)
        if len(features) != count:
            raise ValueError(f"features must be of {count} parts, got {len(features)}")
        checked("labels", labels, torch.int64, count)
        if costs is None:
            costs = torch.zeros(count, dtype=torch.float64)
        elif isinstance(costs, str):
            if costs != "mistakes":
                raise ValueError(f'costs must be "mistakes", None or a tensor, got {costs!r}')
            costs = (labels == 0).double()
        self.program_parts, self.part_features, self.smoother = parts, features, smoother
        self.part_labels, self.part_costs = labels, checked("costs", costs, torch.float64, count)
        self.n, self.dim = len(parts), features.features
        self.bounds = checked_bounds(bounds, self.start())
        self._outputs, self._ends = self._packed_outputs()
        self.feature_map = _SparseMap(parts, features)
        self._check_labels()

    def with_allowed(self: P, allowed: Tensor) -> DifferenceProblem:
        """The problem of partial labels, of which some parts are allowed.

        :class:`~structsmooth.solvers.ConvexConcave` minimizes it. Outputs agree with the labels if all of their parts
        are allowed, whatever the labels of this problem are. Parts that are allowed cost nothing; others cost what they
        do in this problem.

        Args:
            allowed: bool [parts].

        Raises:
            TypeError: not a tensor of bool.
            ValueError: another number of parts, or no output of an example agrees; it is named.

        Example:
            Of the two ways from 0 to 2, nothing is known in one example, and the longer one is right in the other:

            >>> from structsmooth.problems import PartRows, ProgramParts
            >>> from structsmooth.programs import Program
            >>> from structsmooth.solvers import ConvexConcave
            >>> program = Program(head=[0, 1, 2, 2], left=[-1, 0, 1, 0], index=[-1, 0, 1, 2], scores=3)
            >>> roots, offsets, scores = torch.tensor([2, 2]), torch.tensor([0, 3, 6]), torch.arange(3).repeat(2).int()
            >>> parts = ProgramParts(program, roots, offsets, scores)
            >>> features = PartRows(torch.arange(3).repeat(2).int(), torch.arange(7), features=3)
            >>> problem = ProgramProblem(parts, features, labels=torch.tensor([1, 1, 0]).repeat(2))
            >>> partial = problem.with_allowed(torch.tensor([True, True, True, True, True, False]))
            >>> ConvexConcave().solve(partial, lam=0.1, passes=20).weights > 0
            tensor([ True,  True, False])
        """
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
            found = allowed.dtype if isinstance(allowed, Tensor) else type(allowed).__name__
            raise TypeError(f"allowed must be a tensor of torch.bool, got {found}")
        checked("allowed", allowed, torch.bool, len(self.part_labels))
        barriers, values = torch.where(allowed, 0.0, -torch.inf).double(), torch.empty(self.n, dtype=torch.float64)
        compiled.largest_scores(self.arrays, barriers.numpy(), values.numpy())
        if bool((values == -torch.inf).any()):
            first = (values == -torch.inf).nonzero()[0]
            raise ForbiddenLabelsError(int(self.numbers(first)), "the problem")
        labels = self.relabelled(self.part_labels, barriers).best_labels(self.start())
        costs = torch.where(allowed, 0.0, self.part_costs)
        return DifferenceProblem(self.relabelled(labels, costs), self.relabelled(labels, barriers))

    def best_labels(self, w: Tensor) -> Tensor:
        """How often the outputs that the max oracle gives at ``w``, with costs, have each part: int64 [parts]."""
        counts = torch.zeros_like(self.part_labels)
        compiled.best_parts(self.arrays, self.checked_vector("w", w).numpy(), counts.numpy())
        self.oracle_calls += self.n
        return counts

    def relabelled(self: P, labels: Tensor, costs: Tensor | None = None) -> P:
        """The same problem with other labels, int64 [parts], which are not checked, and costs, if these change."""
        problem = copy.copy(self)
        problem.part_labels, problem.part_costs = labels, self.part_costs if costs is None else costs
        problem._outputs, problem._ends = problem._packed_outputs()
        problem.oracle_calls = 0
        return problem

    def structure(self, potentials: Tensor, block: int) -> Structure:
        """The outputs of an example, bound to scores [P] of its parts."""
        parts, choices = self.program_parts, int(self.program_parts.numbers_of_choices[block])
        if parts.spanning != "no":
            return SpanningScores(potentials[None], int(parts.longest[block]) - choices, parts.spanning == "one root")
        program, root, places = parts.program, int(parts.roots[block]), parts.scores[parts.of(block)].long()
        # Parts of choices have no score in the program: they are numbered behind it, in order.
        if choices:
            places = torch.where(places < 0, program.scores + (places < 0).cumsum(0) - 1, places)
            program = with_choices(program.handle, root, choices, parts.alternatives)
            root = program.nodes - 1
        return PartScores(potentials[None], program, places, root, int(parts.longest[block]))

    def oracle(self, potentials: Parts, block: int, smoother: Smoother = Max()) -> OracleOutput:  # noqa: B008 - immutable
        """The oracle of the program."""
        response = respond(self.structure(potentials[0], block), smoother)
        return OracleOutput(response.value, (response.statistics[0][0],), response.atom)

    def costs(self, block: int) -> Parts:
        """ℓ_i: costs [P] of the parts of an example."""
        return (self.part_costs[self.program_parts.of(block)],)

    def label_atom(self, block: int) -> Tensor:
        """Numbers of the parts of the labels within the example, in rising order, with -1 in front: int64 [m]."""
        return self._outputs[self._ends[block] : self._ends[block + 1]].long()

    def label_parts(self, block: int) -> Parts:
        """How often the labels have each part, [P]."""
        return (self.part_labels[self.program_parts.of(block)].double(),)

    def parts(self, atom: Tensor, block: int) -> Parts:
        """How often an output has each part, [P]."""
        begin, end = self.program_parts.offsets[block : block + 2].tolist()
        return (torch.bincount(atom[atom >= 0], minlength=end - begin).double(),)

    def label_statistics(self) -> Tensor:
        """Parts of the labels, [parts]."""
        return self.part_labels.double()

    def expected_cost(self, statistics: Tensor) -> float:
        """(1/n) Σ ⟨ℓ_i, m_i⟩, compiled."""
        cost: float = compiled.expected_cost(self.arrays, self.checked_statistics(statistics).numpy())
        return cost

    def dual_weights(self, statistics: Tensor, lam: float) -> Tensor:
        """v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim], compiled."""
        v = self.start()
        compiled.dual_weights(self.arrays, self.checked_statistics(statistics).numpy(), -1 / lam, v.numpy())
        return v

    @all_reduced(mean_rows)
    def block_gaps(self, w: Tensor, statistics: Tensor) -> Tensor:
        """The block gaps g_i of all examples, by one oracle call on each: [n], compiled."""
        w, gaps = self.checked_vector("w", w), torch.empty(self.n, dtype=torch.float64)
        compiled.block_gaps(self.arrays, w.numpy(), self.checked_statistics(statistics).numpy(), gaps.numpy())
        self.oracle_calls += self.n
        return gaps

    @all_reduced(mean)
    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i(w), compiled without smoothing."""
        if not isinstance(smoother or self.smoother, Max):
            return super().loss(w, smoother)
        return self._passed(w, w.new_empty(0))[0]

    @all_reduced(FullPass.all_reduced)
    def full_pass(
        self, w: Tensor, smoother: Smoother, *, with_loss: bool = False, with_statistics: bool = True
    ) -> FullPass:
        """As in :meth:`Problem.full_pass`, compiled without smoothing; it keeps no statistics."""
        if not isinstance(smoother, Max):
            return super().full_pass(w, smoother, with_loss=with_loss, with_statistics=with_statistics)
        gradient = self.start()
        loss, cost = self._passed(w, gradient)
        objective = self.objective_loss(w, smoother, loss, with_loss)
        expected = cost if isinstance(self.smoother, Max) else None
        return FullPass(w.clone(), smoother, loss, gradient, objective, expected)

    @of_examples
    def subset(self: P, indices: Tensor) -> P:
        """The same problem over some of its examples."""
        parts, rows = self.program_parts.select(indices)
        features, labels, costs = self.part_features.select(rows), self.part_labels[rows], self.part_costs[rows]
        return type(self)(parts, features, labels, costs, self.smoother, self.bounds)

    def _packed_outputs(self) -> tuple[Tensor, Tensor]:
        """The parts of the labels of all examples, int32 with -1 in front, and their offsets [n + 1]."""
        parts, labels = self.program_parts, self.part_labels
        if bool((labels < 0).any()):
            raise ValueError("labels must not be negative: they say how often the labels have each part")
        lengths = parts.longest
        ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        example = torch.repeat_interleave(parts.offsets.diff())
        used = torch.repeat_interleave(labels)
        counts = torch.bincount(example[used], minlength=len(parts))
        if bool((counts > lengths).any()):
            i = int((counts > lengths).nonzero()[0])
            raise ValueError(f"labels of example {i} have {int(counts[i])} parts: outputs have at most {lengths[i]}")
        rank = torch.arange(len(used)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        outputs = torch.full((int(ends[-1]),), -1, dtype=torch.int32)
        outputs[(ends[1:] - counts)[example[used]] + rank] = (used - parts.offsets[example[used]]).int()
        return outputs, ends

    def _check_labels(self) -> None:
        """The labels are an output if the best one, by the number of parts that it shares with them, has all."""
        known, values = self.part_labels > 0, torch.empty(self.n, dtype=torch.float64)
        # One part too many costs more than all others can give, so that no other output reaches the number of known
        # parts.
        scores = torch.where(known, 1.0, -1.0 - self.program_parts.program.longest).double()
        compiled.largest_scores(self.arrays, scores.numpy(), values.numpy())
        example = torch.repeat_interleave(self.program_parts.offsets.diff())
        counts = torch.bincount(example, self.part_labels.double(), self.n)
        if bool((values != counts).any()):
            raise ValueError(f"labels of example {int((values != counts).long().argmax())} are no output of it")

    @property
    def arrays(self) -> ProgramArrays:
        """What all compiled passes take."""
        parts, program = self.program_parts, self.program_parts.program
        spanning = ("no", "one root", "roots").index(parts.spanning)
        sizes = Sizes(program.depth, program.longest, program.scores, parts.alternatives, spanning)
        labels = (self._outputs, self._ends, self.part_costs)
        tensors = (parts.offsets, parts.scores, parts.roots, parts.numbers_of_choices, *labels)
        examples, weights = Examples(*(tensor.numpy() for tensor in tensors)), self.normalized_weights.numpy()
        return ProgramArrays(program.arrays, sizes, *self.part_features.rows, examples, weights)

    def _passed(self, w: Tensor, gradient: Tensor) -> tuple[float, float]:
        """Mean loss and cost of the best outputs; the gradient is added if there is an array for it."""
        w, arrays, count = self.checked_vector("w", w), self.arrays, min(threads.of_passes(), self.n)
        cuts = [self.n * k // count for k in range(count + 1)]
        gradients = [gradient, *(torch.zeros_like(gradient) for _ in range(count - 1))]

        def pass_over(k: int) -> tuple[float, float]:
            out = gradients[k].numpy()
            sums: tuple[float, float] = compiled.full_pass(arrays, w.numpy(), out, cuts[k], cuts[k + 1])
            return sums

        losses, costs = zip(*threads.on_threads(pass_over, count), strict=True)
        # In the order of threads, so that rounding does not depend on which one ends first.
        for other in gradients[1:]:
            gradient += other
        self.oracle_calls += self.n
        return sum(losses), sum(costs)

    def checked_vector(self, name: str, w: Tensor) -> Tensor:
        """A vector of float64 [dim]."""
        return checked(name, w, torch.float64, self.dim)

    def checked_statistics(self, statistics: Tensor) -> Tensor:
        """Statistics of all examples, float64 [parts]."""
        return checked("statistics", self.unpacked(statistics), torch.float64, len(self.part_labels))


class _SparseMap:
    """Scores of parts as sums of the weights of their features."""

    def __init__(self, parts: ProgramParts, features: PartFeatures) -> None:
        self.program_parts, self.features = parts, features
        self._sums: Any = None

    def scores(self, w: Tensor, block: int) -> Parts:
        """Scores [P] of the parts of an example."""
        return (self.features.scores(w, self.program_parts.of(block)),)

    def add_adjoint(self, m: Parts, block: int, scale: float, w: Tensor) -> None:
        """w += scale · B_iᵀm in place."""
        begin, direction = self.program_parts.of(block).start, m[0].detach().contiguous().numpy()
        compiled.add_adjoint(*self.features.rows, begin, direction, float(scale), w.numpy())

    def squared_norm(self, m: Parts, block: int) -> float:
        """‖B_iᵀm‖²."""
        if self._sums is None:
            self._sums = torch.zeros(self.features.features, dtype=torch.float64)
        begin, direction = self.program_parts.of(block).start, m[0].detach().contiguous().numpy()
        norm: float = compiled.norm_of_adjoint(*self.features.rows, begin, direction, self._sums.numpy())
        return norm
