"""The soft dual of any module that is linear in its parameters: sweeps of examples, and exact line searches."""

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from structsmooth.problems.affine import Parts
from structsmooth.problems.bounds import step_length
from structsmooth.problems.linear.factor_graph.data import FactorGraphs
from structsmooth.problems.linear.module import LinearModuleProblem
from structsmooth.solvers.soft_bcfw.dual import LEAST_WEIGHT, SoftSteps, SoftValues, sample
from structsmooth.solvers.soft_bcfw.point import SoftPoint
from structsmooth.structures.factor_graph import FactorGraph

_FORM = (0, False)  # for compiled steps: all states have scores, and edges have tables
# The score of what is forbidden, where steps multiply it by marginals of zero.
_FORBIDDEN = -1e30


class _Graph(NamedTuple):
    """The graph of an example, without padding."""

    kept: Tensor  # the nodes that are not padding, [N]
    kept_edges: Tensor
    labels: Tensor  # [N]
    edges: Tensor  # [E, 2]
    costs: Parts  # of labels [N, S] and of pairs [E, S, S], with constants and what is forbidden, float64
    label_score: float  # of the constants

    @classmethod
    def of(cls, problem: LinearModuleProblem, i: int) -> "_Graph":
        example = problem.example(i)
        structure = example.structure.detach()
        assert isinstance(structure, FactorGraph)
        kept, kept_edges = structure.node_mask[0].nonzero()[:, 0], structure.edge_mask[0].nonzero()[:, 0]
        number = structure.node_mask[0].cumsum(0) - 1
        edges = number[structure.edges.view(-1, 2)[kept_edges]]
        graph = cls(kept, kept_edges, example.y[0][kept], edges, (), example.label_score)
        nodes, pairs = graph.without_padding(structure.replace(*example.constants.with_barriers(example.costs)))
        return graph._replace(costs=(nodes.clamp_min(_FORBIDDEN), pairs.clamp_min(_FORBIDDEN)))

    def without_padding(self, structure: FactorGraph) -> tuple[Tensor, Tensor]:
        """Potentials of nodes [N, S] and edges [E, S, S] in float64; differentiable."""
        whole = structure.batched()
        return whole.unary[0][self.kept].double(), whole.pairwise[0][self.kept_edges].double()

    def at_labels(self, nodes: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Entries of the labels: [N] and [E]."""
        a, b = self.labels[self.edges].unbind(1)
        return nodes[torch.arange(len(nodes)), self.labels], edges[torch.arange(len(edges)), a, b]

    def cost(self, nodes: Tensor, edges: Tensor) -> float:
        """⟨ℓ + c, μ⟩ − ⟨c, ν(y)⟩ of marginals μ, with the constants c."""
        return _inner(self.costs, (nodes, edges)) - self.label_score

    def arrays(self, nodes: Tensor, edges: Tensor) -> tuple[Any, ...]:
        """Potentials as compiled steps take them: weights of a feature of one, for each statistic its own."""
        (count, states), pairs = nodes.shape, len(edges)
        degrees = torch.bincount(self.edges.flatten(), minlength=count)
        numbers = torch.stack([torch.zeros_like(self.labels), torch.arange(count), self.labels, degrees], 1)
        constants = nodes - nodes.gather(1, self.labels[:, None])
        node_data = (numbers, torch.cat([torch.ones(count, 1).double(), constants], 1), torch.ones(1, 1).double())
        ends = torch.cat([self.edges, torch.arange(pairs)[:, None]], 1)
        edge_data = (ends, torch.ones(pairs).double(), torch.ones(pairs, 1).double())
        weights = (torch.zeros(count, states, 1).double(), edges.reshape(pairs, 1, states**2).clone())
        return tuple(tuple(t.numpy() for t in tensors) for tensors in (node_data, edge_data, weights))


class _Graphs(NamedTuple):
    """The graphs of all examples of a problem, one by one and together."""

    each: list[_Graph]
    graphs: FactorGraphs
    states: int

    @classmethod
    def of(cls, problem: LinearModuleProblem) -> "_Graphs":
        each = [_graph(problem, i) for i in range(problem.n)]
        states = {graph.costs[0].shape[1] for graph in each}
        if len(states) > 1:
            raise ValueError(f"SoftBCFW needs as many states in all examples, got {sorted(states)}; take BCFW")
        labels, edges = [graph.labels for graph in each], [graph.edges for graph in each]
        nodes = torch.cat(labels)
        graphs = FactorGraphs(torch.zeros(len(nodes), 0), nodes, _offsets(labels), torch.cat(edges), _offsets(edges))
        return cls(each, graphs, *states)


# They cost as much as several steps, and passes need them again.
_KNOWN: WeakKeyDictionary[LinearModuleProblem, _Graphs] = WeakKeyDictionary()


@dataclass(frozen=True)
class ModuleSoftDual:
    """The soft dual of a linear module over factor graphs, as ``SoftDual`` is that of a :class:`FactorGraphProblem`.

    A step takes an example. Its nodes and edges are swept as if weights changed with each statistic alone: with
    ‖Bᵀm‖² = c‖m‖², where c is measured along the change of a first sweep at fixed weights. Then its marginals, and the
    weights with them, go towards what the sweeps found by an exact line search. At its start the dual rises as that of
    the sweeps did, so it never decreases. A step takes the potentials of the example and two adjoints, however many
    blocks the graph has.

    Raises:
        TypeError: examples that are no :class:`~structsmooth.FactorGraph`.
        ValueError: bounds, factors of more than two nodes, or different numbers of states.
    """

    problem: LinearModuleProblem
    lam: float

    def __post_init__(self) -> None:
        if self.problem.bounds is not None:
            raise ValueError("SoftBCFW does not keep the bounds of the problem; take BCFW")

    @property
    def graphs(self) -> FactorGraphs:
        """The graphs of all examples, without features."""
        return self._known.graphs

    def labels(self) -> SoftPoint:
        """The point of the labels: w = 0, δ = 0."""
        return SoftPoint.of_labels(self.graphs, self._known.states, torch.zeros_like(self.problem.start()), potts=False)

    def weights(self, point: SoftPoint) -> Tensor:
        """Ψμ, [dim], of the marginals of a point."""
        labels = self.labels()
        change, w = replace(labels, nodes=labels.nodes - point.nodes, edges=labels.edges - point.edges), labels.weights
        for i in range(self.problem.n):
            w = w + _adjoint(*self._potentials(w, i), self._own(change, i))
        return w / (self.lam * self.problem.n)

    def with_multipliers(self, point: SoftPoint, rho: float) -> SoftPoint:
        """The point with δ in place of δ̄."""
        return point.with_multipliers(self.graphs.ends, rho)

    def values(self, point: SoftPoint, rho: float) -> SoftValues:
        """Values of a point, by the potentials of all examples."""
        from structsmooth.solvers.soft_bcfw import compiled  # numba loads with the first pass

        total, sums = torch.zeros(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
        for i, graph in enumerate(self._graphs):
            arrays, own = graph.arrays(*self._augmented(self._potentials(point.weights, i)[1], i)), self._own(point, i)
            compiled.values(*arrays, _arrays(own), 1 / rho, _FORM, sums.numpy())
            sums[0] += sum(float(part.sum()) for part in graph.at_labels(*graph.costs)) - graph.label_score
            sums[2] = graph.cost(own.nodes, own.edges)
            total += sums
        square = self.lam / 2 * float(point.weights.double().square().sum())
        return SoftValues.of(total, self.problem.n, square, rho, point.multipliers.numel())

    def near(self, point: SoftPoint) -> tuple[Tensor, float]:
        """Marginals μ' that agree, near those of a point: (1/n) Σ Bᵀ(μ' − ν(y)) [dim], and their mean cost.

        If these have forbidden pairs, the cost is so negative that the labels alone are the better bound.
        """
        near = point.agreeing(self.graphs, 0)
        own = (self._own(near, i) for i in range(self.problem.n))
        cost = sum(graph.cost(one.nodes, one.edges) for graph, one in zip(self._graphs, own, strict=True))
        return -self.lam * self.weights(near).double(), cost / self.problem.n

    def scale(self) -> float:
        """κ_0, as that of ``SoftDual``."""
        zero, labels, norm, loss = torch.zeros_like(self.problem.start()), self.labels(), 0.0, 0.0
        for i in sample(self.problem.n):
            (w, potentials), own, states = self._potentials(zero, i), self._own(labels, i), self._known.states
            augmented = self._augmented(potentials, i)
            best = one_hot(augmented[0].argmax(1), states).double()
            pairs = torch.einsum("es,er->esr", *best[self._graphs[i].edges].unbind(1))
            change = replace(own, nodes=best - own.nodes, edges=pairs - own.edges)
            loss += max(0.0, _inner(augmented, (change.nodes, change.edges)))
            norm += float(_adjoint(w, potentials, change).double().square().sum())
        return norm / (self.problem.n * loss) if loss > 0 else 0.0

    def sweep_examples(
        self, point: SoftPoint, order: Tensor, rho: float, steps: SoftSteps = "pairwise", sweeps: int = 1
    ) -> SoftPoint:
        """A step on each example of an order in turn, with so many sweeps."""
        point = replace(point, weights=point.weights.clone(), nodes=point.nodes.clone(), edges=point.edges.clone())
        for i in order.tolist():
            self._step(point, i, rho, steps, sweeps)
        return point

    def _step(self, point: SoftPoint, i: int, rho: float, steps: SoftSteps, sweeps: int) -> None:
        """A step on an example, in place."""
        (w, potentials), own = self._potentials(point.weights, i), self._own(point, i)
        augmented = self._augmented(potentials, i)
        probe = self._swept(own, augmented, i, rho, steps, 1, 0.0)
        square = _inner((probe.nodes, probe.edges), (probe.nodes, probe.edges))
        if square == 0:
            return
        norm = float(_adjoint(w, potentials, probe).double().square().sum())
        change = self._swept(own, augmented, i, rho, steps, sweeps, norm / square)
        ends, scale = self._graphs[i].edges, self.lam * self.problem.n
        deltas, violation = own.with_multipliers(ends, rho).multipliers, change.disagreement(ends)
        direction = _adjoint(w, potentials, change) / scale
        rise = _inner(augmented, (change.nodes, change.edges)) - float((deltas * violation).sum())
        curvature = scale * float(direction.double().square().sum()) + float(violation.square().sum()) / rho
        size = step_length(rise, curvature)
        nodes, edges = self._rows(i)
        point.nodes[nodes] += size * change.nodes
        point.edges[edges] += size * change.edges
        point.weights.sub_(direction, alpha=size)

    def _swept(
        self, own: SoftPoint, augmented: Parts, i: int, rho: float, steps: SoftSteps, sweeps: int, norm: float
    ) -> SoftPoint:
        """How the marginals of an example change in sweeps, if ‖Bᵀm‖² were ``norm`` times ‖m‖²."""
        from structsmooth.solvers.soft_bcfw import compiled  # numba loads with the first pass

        new = replace(own, nodes=own.nodes.clone(), edges=own.edges.clone())
        offsets = tuple(torch.tensor([0, len(part)]).numpy() for part in (own.nodes, own.edges))
        schedule = (torch.zeros(1, dtype=torch.int64).numpy(), sweeps, offsets)
        scales = (norm / (self.lam * self.problem.n), 1 / rho, LEAST_WEIGHT, steps == "pairwise")
        compiled.sweep_examples(*schedule, *self._graphs[i].arrays(*augmented), _arrays(new), scales, _FORM)
        return replace(new, nodes=new.nodes - own.nodes, edges=new.edges - own.edges)

    def _potentials(self, w: Tensor, i: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Weights that require a gradient, and the potentials of an example under them, without padding."""
        w = w.detach().clone().requires_grad_()
        with torch.enable_grad():
            example = self.problem.example(i)
            structure = self.problem.structure(w, example.x)
            assert isinstance(structure, FactorGraph)
            structure = structure.replace(*example.constants.without(structure.potentials))
            return w, self._graphs[i].without_padding(structure)

    def _augmented(self, potentials: Parts, i: int) -> tuple[Tensor, Tensor]:
        """θ + ℓ of an example."""
        nodes, edges = (p.detach() + c for p, c in zip(potentials, self._graphs[i].costs, strict=True))
        return nodes, edges

    def _own(self, point: SoftPoint, i: int) -> SoftPoint:
        """What a point has for an example."""
        nodes, edges = self._rows(i)
        return SoftPoint(point.weights, point.nodes[nodes], point.edges[edges], point.multipliers[edges])

    def _rows(self, i: int) -> tuple[slice, slice]:
        return self.graphs.nodes_of(i), self.graphs.edges_of(i)

    @property
    def _graphs(self) -> list[_Graph]:
        return self._known.each

    @property
    def _known(self) -> _Graphs:
        if self.problem not in _KNOWN:
            _KNOWN[self.problem] = _Graphs.of(self.problem)
        return _KNOWN[self.problem]


def _graph(problem: LinearModuleProblem, i: int) -> _Graph:
    example = problem.example(i)
    if not isinstance(example.structure, FactorGraph):
        raise TypeError(f"SoftBCFW needs a FactorGraph in every example, got {type(example.structure).__name__}")
    if example.structure.factors is not None:
        raise ValueError("SoftBCFW takes no factors of more than two nodes; take BCFW over a LocalPolytope")
    return _Graph.of(problem, i)


def _offsets(rows: list[Tensor]) -> Tensor:
    return torch.tensor([0, *accumulate(map(len, rows))])


def _beside(constants: Tensor) -> Tensor:
    """Squared norms of features, which there are none of, and constants: [N, 1 + S]."""
    return torch.nn.functional.pad(constants, (1, 0))


def _arrays(point: SoftPoint) -> tuple[Any, ...]:
    tensors = (point.nodes, point.edges.flatten(1), point.multipliers, torch.zeros_like(point.nodes))
    return tuple(tensor.numpy() for tensor in tensors)


def _inner(a: Parts, b: Parts) -> float:
    return sum(float((p * q).sum()) for p, q in zip(a, b, strict=True))


def _adjoint(w: Tensor, potentials: Parts, m: SoftPoint) -> Tensor:
    """Bᵀm of the potentials under w, for the marginals of a point: [dim]."""
    trained = [(p, own) for p, own in zip(potentials, (m.nodes, m.edges), strict=True) if p.requires_grad]
    if not trained:
        return torch.zeros_like(w)
    outputs, weights = zip(*trained, strict=True)
    return torch.autograd.grad(outputs, w, weights, retain_graph=True, materialize_grads=True)[0]
