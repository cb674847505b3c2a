"""The soft dual of any module that is linear in its parameters: sweeps of examples, and exact line searches."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from structsmooth.lazy import LazyModule
from structsmooth.problems.affine import Parts
from structsmooth.problems.bounds import step_length
from structsmooth.problems.linear.module import LinearModuleProblem
from structsmooth.solvers.soft_bcfw.agreement import agreeing
from structsmooth.solvers.soft_bcfw.dual import LEAST_WEIGHT, SoftSteps, SoftValues, sample
from structsmooth.solvers.soft_bcfw.graphs import ModuleGraph, ModuleGraphs, inner, without_padding
from structsmooth.solvers.soft_bcfw.pieces import BARELY_ALLOWED, FORBIDDEN, Decomposition, Held, Norms
from structsmooth.solvers.soft_bcfw.point import SoftPoint
from structsmooth.structures.factor_graph import FactorGraph

compiled = LazyModule("structsmooth.solvers.soft_bcfw.compiled")

_FORM = (0, False)  # for compiled steps: all states have scores, and edges have tables


class Sweeps(NamedTuple):
    """How the blocks of an example are swept: with ρ and a kind of steps, so many times."""

    rho: float
    steps: SoftSteps
    times: int


@dataclass(frozen=True)
class ModuleSoftDual:
    """The soft dual of a linear module over factor graphs, as ``SoftDual`` is that of a :class:`FactorGraphProblem`.

    A step takes an example. Its blocks are swept as if weights changed with each statistic alone: with
    ‖Bᵀm‖² = c‖m‖², where c is measured along the change of a first sweep at fixed weights. Then its marginals, and the
    weights with them, go towards what the sweeps found by an exact line search. At its start the dual rises as that of
    the sweeps did, so it never decreases. A step takes the potentials of the example and two adjoints, however many
    blocks the graph has.

    Blocks are nodes, edges that are alone, and pieces: factors, forests of edges, or all edges and factors.

    Raises:
        TypeError: examples that are no :class:`~structsmooth.FactorGraph`.
        ValueError: bounds, different numbers of states, or exact inference on a ``LocalPolytope``.
    """

    problem: LinearModuleProblem
    lam: float
    decomposition: Decomposition = "factors"

    def __post_init__(self) -> None:
        if self.problem.bounds is not None:
            raise ValueError("SoftBCFW does not keep the bounds of the problem; take BCFW")

    @property
    def mean_degree(self) -> float:
        """In how many blocks a node is besides its own, on average."""
        return self._all.mean_degree

    def labels(self) -> SoftPoint:
        """The point of the labels: w = 0, δ = 0."""
        return self._all.labels(torch.zeros_like(self.problem.start()))

    def weights(self, point: SoftPoint) -> Tensor:
        """Ψμ, [dim], of the marginals of a point."""
        labels = self.labels()
        w, change = labels.weights, _minus(labels, point)
        for i in range(self.problem.n):
            w = w + _adjoint(*self._potentials(w, i), self._all.of_example(change, i))
        return w / (self.lam * self.problem.n)

    def with_multipliers(self, point: SoftPoint, rho: float) -> SoftPoint:
        """The point with δ in place of δ̄."""
        return point.with_multipliers(self._all.seats, rho)

    def values(self, point: SoftPoint, rho: float) -> SoftValues:
        """Values of a point, by the potentials of all examples."""
        total = torch.zeros(5, dtype=torch.float64)
        for i in range(self.problem.n):
            augmented = self._augmented(self._potentials(point.weights, i)[1], i)
            total += self._sums(self._all.of_example(point, i), augmented, i, rho)
        square = self.lam / 2 * float(point.weights.double().square().sum())
        return SoftValues.of(total, self.problem.n, square, rho, point.multipliers.numel())

    def _sums(self, point: SoftPoint, augmented: Parts, i: int, rho: float) -> Tensor:
        """Sums over the blocks of an example, see :meth:`SoftValues.of`: float64 [5]."""
        graph, deltas, sums = self._all.each[i], self._deltas(point, i, rho), torch.zeros(5, dtype=torch.float64)
        compiled.values(*graph.arrays(*augmented[:2]), _arrays(graph, point, deltas), 1 / rho, _FORM, sums.numpy())
        sums[0] += graph.at_labels(graph.costs) - graph.label_score
        sums[2] = graph.cost(_parts(point, augmented))
        if graph.pieces is not None:
            held, scores = _held(graph, point), _scores(graph, deltas, augmented)
            best = graph.pieces.parts(graph.pieces.best(scores))
            sums[0] += inner(scores, best) - inner(scores[1:], graph.pieces.of_example(graph.label_parts)[1:])
            sums[1] += inner(scores, best) - inner(scores, held.parts)
            count = len(held.parts[0])
            violation = point.violations(self._all.seats_of(i))[-count:]
            sums[3] += float(violation.square().sum())
            sums[4] += float((point.multipliers[-count:] * violation).sum())
        return sums

    def near(self, point: SoftPoint) -> tuple[Tensor, float]:
        """Marginals μ' that agree, near those of a point: (1/n) Σ Bᵀ(μ' − ν(y)) [dim], and their mean cost.

        If these have forbidden pairs, the cost is so negative that the labels alone are the better bound.
        """
        near, graphs = agreeing(self._all, point), self._all.each
        cost = sum(graph.cost(_parts(self._all.of_example(near, i), graph.costs)) for i, graph in enumerate(graphs))
        return -self.lam * self.weights(near).double(), cost / self.problem.n

    def scale(self) -> float:
        """κ_0, at which a typical first step of an example would be a full one, as for ``SoftDual``."""
        zero, labels, norm, loss = torch.zeros_like(self.problem.start()), self.labels(), 0.0, 0.0
        for i in sample(self.problem.n):
            (w, potentials), graph = self._potentials(zero, i), self._all.each[i]
            example, augmented = self._all.of_example(labels, i), self._augmented(potentials, i)
            states = augmented[0].argmax(1)
            best = one_hot(states, self._all.states).double()
            pairs = torch.einsum("es,er->esr", *best[graph.edges].unbind(1))
            change = replace(example, nodes=best - example.nodes, edges=pairs - example.edges)
            if graph.pieces is not None and len(example.finals):
                finals = graph.pieces.parts(states[graph.pieces.nodes])[2] - example.finals
                allowed = (augmented[2] > BARELY_ALLOWED) | (finals <= 0)
                change = replace(change, finals=torch.where(allowed.all(1, keepdim=True), finals, 0.0))
            loss += max(0.0, inner(augmented, _parts(change, augmented)))
            norm += float(_adjoint(w, potentials, change).double().square().sum())
        return norm / (self.problem.n * loss) if loss > 0 else 0.0

    def sweep_examples(
        self, point: SoftPoint, order: Tensor, rho: float, steps: SoftSteps = "pairwise", sweeps: int = 1
    ) -> SoftPoint:
        """A step on each example of an order in turn, with so many sweeps."""
        new = point.copy()
        for i in order.tolist():
            self._step(new, i, Sweeps(rho, steps, sweeps))
        return new

    def _step(self, point: SoftPoint, i: int, sweeps: Sweeps) -> None:
        """A step on an example, in place."""
        rho = sweeps.rho
        (w, potentials), example = self._potentials(point.weights, i), self._all.of_example(point, i)
        augmented, graph = self._augmented(potentials, i), self._all.each[i]
        labels = self._best(example, augmented, i, rho)  # both sweeps begin with these
        probe = _minus(self._swept(example, augmented, i, sweeps._replace(times=1), 0.0, labels), example)
        parts = _parts(probe, augmented)
        square = inner(parts, parts)
        if square == 0:
            return
        norm = float(_adjoint(w, potentials, probe).double().square().sum())
        swept = self._swept(example, augmented, i, sweeps, norm / square, labels)
        change = _minus(swept, example)
        deltas, violation = self._deltas(example, i, rho), change.violations(self._all.seats_of(i))
        scale = self.lam * self.problem.n
        direction = _adjoint(w, potentials, change) / scale
        rise = inner(augmented, _parts(change, augmented)) - float((deltas * violation).sum())
        rise += self._smoothing(swept) - self._smoothing(example)
        curvature = scale * float(direction.double().square().sum()) + float(violation.square().sum()) / rho
        size = step_length(rise, curvature)
        example.nodes.add_(size * change.nodes)
        mixed = None if graph.pieces is None else graph.pieces.mixed(_held(graph, example), _held(graph, swept), size)
        example.edges.add_(size * change.edges)
        if graph.pieces is not None and mixed is not None:
            example.edges[graph.pieces.edges] = mixed.parts[1]
            example.places.copy_(mixed.parts[0])
            example.finals.copy_(mixed.parts[2].view_as(example.finals))
            example.atoms.copy_(mixed.atoms)
            example.alphas.copy_(mixed.alphas)
            example.entropies.add_(size * (swept.entropies - example.entropies))
        point.weights.sub_(direction, alpha=size)

    def _best(self, point: SoftPoint, augmented: Parts, i: int, rho: float) -> Tensor | None:
        """The best labels of the pieces of an example, if it has any."""
        graph = self._all.each[i]
        if graph.pieces is None:
            return None
        return graph.pieces.best(_scores(graph, self._deltas(point, i, rho), augmented))

    def _smoothing(self, point: SoftPoint) -> float:
        """What the dual has for smoothing, over the blocks of a point: nothing here."""
        return 0.0

    def _swept(
        self, point: SoftPoint, augmented: Parts, i: int, sweeps: Sweeps, norm: float, labels: Tensor | None
    ) -> SoftPoint:
        """The marginals of an example after sweeps, if ‖Bᵀm‖² were ``norm`` times ‖m‖².

        The best ``labels`` of pieces at the start are known.
        """
        graph, per_weight, (rho, steps, _) = self._all.each[i], norm / (self.lam * self.problem.n), sweeps
        new = replace(point, nodes=point.nodes.clone(), edges=point.edges.clone())
        scales = (per_weight, 1 / rho, LEAST_WEIGHT, steps == "pairwise")
        # Compiled steps make all sweeps at once, unless there are steps on pieces between.
        rounds, at_once = (1, sweeps.times) if graph.pieces is None else (sweeps.times, 1)
        scores = augmented
        for k in range(rounds):
            if k > 0:
                change = _parts(_minus(new, point), augmented)
                scores = tuple(p - per_weight * m for p, m in zip(augmented, change, strict=True))
            if graph.pieces is not None:
                held, piece_scores = _held(graph, new), _scores(graph, self._deltas(new, i, rho), scores)
                labels = graph.pieces.best(piece_scores) if k > 0 or labels is None else labels
                held = graph.pieces.step(held, piece_scores, labels, Norms(1 / rho, per_weight), steps)
                new = _with(graph, new, held)
            schedule = (torch.zeros(1, dtype=torch.int64).numpy(), at_once)
            arrays = _arrays(graph, new, self._deltas(new, i, rho))
            compiled.sweep_examples(*schedule, *graph.arrays(*scores[:2]), arrays, scales, _FORM)
        return new

    def _deltas(self, point: SoftPoint, i: int, rho: float) -> Tensor:
        """δ_ci of all rows of messages of an example: [rows, S]."""
        return point.multipliers.view(-1, self._all.states) + point.violations(self._all.seats_of(i)) / rho

    def _potentials(self, w: Tensor, i: int) -> tuple[Tensor, Parts]:
        """Weights that require a gradient, and the potentials of an example under them, without padding."""
        w = w.detach().clone().requires_grad_()
        with torch.enable_grad():
            example = self.problem.example(i)
            structure = self.problem.structure(w, example.x)
            assert isinstance(structure, FactorGraph)
            structure = structure.replace(*example.constants.without(structure.potentials))
            return w, without_padding(self._all.each[i].kept, structure)

    def _augmented(self, potentials: Parts, i: int) -> Parts:
        """θ + ℓ of an example."""
        return tuple(p.detach() + c for p, c in zip(potentials, self._all.each[i].costs, strict=True))

    @property
    def _all(self) -> ModuleGraphs:
        return ModuleGraphs.of(self.problem, self.decomposition)


def _minus(a: SoftPoint, b: SoftPoint) -> SoftPoint:
    """The point whose marginals are the differences of those of two points."""
    names = ("nodes", "edges", "places", "finals")
    return replace(a, **{name: getattr(a, name) - getattr(b, name) for name in names})


def _parts(point: SoftPoint, like: Parts) -> Parts:
    """Statistics of an example, of as many kinds as potentials have."""
    return (point.nodes, point.edges, point.finals)[: len(like)]


def _held(graph: ModuleGraph, point: SoftPoint) -> Held:
    """The part of a point that belongs to the pieces of an example."""
    assert graph.pieces is not None
    return Held(graph.pieces.of_example((point.places, point.edges, point.finals)), point.atoms, point.alphas)


def _with(graph: ModuleGraph, point: SoftPoint, held: Held) -> SoftPoint:
    """The point of an example with other distributions of its pieces."""
    assert graph.pieces is not None
    places, edges, finals = held.parts
    edges = point.edges.index_copy(0, graph.pieces.edges, edges)
    return replace(point, places=places, edges=edges, finals=finals, atoms=held.atoms, alphas=held.alphas)


def _scores(graph: ModuleGraph, deltas: Tensor, augmented: Parts) -> Parts:
    """θ̂ of the pieces of an example, given messages of all rows; what a node forbids, its places do too."""
    assert graph.pieces is not None
    allowed = graph.costs[0][graph.pieces.nodes] > BARELY_ALLOWED
    places = torch.where(allowed, -deltas[len(deltas) - len(allowed) :], FORBIDDEN)
    return graph.pieces.of_example((places, *augmented[1:]))


def _arrays(graph: ModuleGraph, point: SoftPoint, deltas: Tensor) -> tuple[Any, ...]:
    """Marginals and messages of nodes and of edges that are alone, as compiled steps take them."""
    (_, states), count = point.nodes.shape, len(graph.alone)
    received, multipliers = torch.zeros_like(point.nodes), point.multipliers
    if graph.pieces is not None:
        received.index_add_(0, graph.pieces.nodes, deltas[2 * count :])
        multipliers = multipliers[: 2 * count].view(count, 2, states)
    tensors = (point.nodes, point.edges[:count].flatten(1), multipliers, received)
    return tuple(tensor.numpy() for tensor in tensors)


def _adjoint(w: Tensor, potentials: Parts, m: SoftPoint) -> Tensor:
    """Bᵀm of the potentials under w, for the marginals of a point: [dim]."""
    parts = _parts(m, potentials)
    trained = [(p, weight) for p, weight in zip(potentials, parts, strict=True) if p.requires_grad]
    if not trained:
        return torch.zeros_like(w)
    outputs, weights = zip(*trained, strict=True)
    return torch.autograd.grad(outputs, w, weights, retain_graph=True, materialize_grads=True)[0]
