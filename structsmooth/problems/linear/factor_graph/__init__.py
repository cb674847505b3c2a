"""Factor graphs of any shapes over dense features: their exact and their relaxed structural hinges."""

from typing import Literal, get_args

import torch
from torch import Tensor

from structsmooth.lazy import LazyModule
from structsmooth.problems.affine import Parts
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.linear.blocks import OracleOutput
from structsmooth.problems.linear.factor_graph.data import FactorGraphs
from structsmooth.problems.linear.factor_graph.scores import GraphScores
from structsmooth.problems.sharding import of_examples
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures.checks import require_count
from structsmooth.structures.factor_graph import FactorGraph
from structsmooth.structures.factor_graph.elimination import MOST_OUTPUTS
from structsmooth.structures.factor_graph.layout import Layout
from structsmooth.structures.factor_graph.relaxation_dual import RelaxationDual

compiled_scores = LazyModule("structsmooth.problems.linear.factor_graph.compiled_scores")
compiled = LazyModule("structsmooth.structures.factor_graph.compiled")
graph_cut = LazyModule("structsmooth.structures.graph_cut.compiled")

Pairwise = Literal["potts", "table"]
Inference = Literal["exact", "relaxed", "lp"]


class FactorGraphProblem(LinearProblem):
    """Structural hinge losses of labelled graphs, linear in dense features of nodes and edges.

    A node with features x in state s scores ⟨w_s, x⟩, with weights of its type, and its base score. An edge with
    features f scores ⟨w, f⟩ if its nodes agree (``"potts"``), or ⟨w_{s,r}, f⟩ for the pair of their states
    (``"table"``). Weights are [types, S', D] of nodes, then [types, De] or [types, De, S', S'] of edges, where S' is S,
    or S - 1 with a reference.

    Blocks of the dual are examples, and its statistics are those of nodes [N, S] and edges [E, S, S].
    :class:`~structsmooth.SoftBCFW` splits examples further, into nodes and edges, and needs no inference.

    Args:
        graphs: the examples.
        states: number S of labels of a node.
        pairwise: form of the scores of edges.
        reference: state 0 has no weights: a node in state 0 scores 0, and so do its edges. For labels that are absent
            or present, this is Σ ⟨w_i, x⟩ y_i + Σ w_ij y_i y_j.
        bias: append a constant feature to those of the nodes. Without it, relaxations are less often tight.
        node_types: number of types of nodes; as many as occur if not given.
        edge_types: number of types of edges; as many as occur if not given.
        inference: ``"exact"`` for outputs; ``"relaxed"`` for vertices of the local polytope, which make the objective
            an upper bound on the exact one. Their atoms are statistics. ``"lp"`` for the same by a solver of linear
            programs (HiGHS in scipy), as other implementations have it: far slower than cuts.

    Raises:
        TypeError: numbers that are not whole, or graphs of another type.
        ValueError: fewer states or types than occur, no examples, or an unknown setting.

    Example:
        >>> import torch
        >>> from structsmooth import SoftBCFW
        >>> from structsmooth.problems import FactorGraphs
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(20, 4, generator=generator)  # two labels of one input each, with an edge between them
        >>> graphs = FactorGraphs(
        ...     features=x,
        ...     labels=torch.stack([x[:, 0] > 0, x[:, 0] + x[:, 1] > 0], 1).flatten().long(),
        ...     node_offsets=2 * torch.arange(21),
        ...     edges=torch.tensor([[0, 1]]).repeat(20, 1),
        ...     edge_offsets=torch.arange(21),
        ...     rows=torch.arange(20).repeat_interleave(2),
        ...     types=torch.tensor([0, 1]).repeat(20),
        ... )
        >>> problem = FactorGraphProblem(graphs, states=2, reference=True)
        >>> problem.dim  # four features and a bias for each label, and one pair
        11
        >>> result = SoftBCFW().solve(problem, lam=0.01, passes=200)
        >>> result.row.gap < 0.01
        True
    """

    feature_map: GraphScores

    def __init__(
        self,
        graphs: FactorGraphs,
        states: int,
        *,
        pairwise: Pairwise = "potts",
        reference: bool = False,
        bias: bool = True,
        node_types: int | None = None,
        edge_types: int | None = None,
        inference: Inference = "exact",
    ) -> None:
        if not isinstance(graphs, FactorGraphs):
            raise TypeError(f"graphs must be FactorGraphs, got {type(graphs).__name__}")
        if not len(graphs):
            raise ValueError("graphs must hold an example at least, got none")
        for name, value, choices in (("pairwise", pairwise, Pairwise), ("inference", inference, Inference)):
            if value not in get_args(choices):
                raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")
        self.graphs, self.states, self.bias, self.inference = graphs, require_count("states", states), bias, inference
        _require_above("states", self.states, "labels", graphs.labels)
        if graphs.base_scores.shape[1] not in (0, self.states):
            raise ValueError(f"base_scores must be for {self.states} states, got {graphs.base_scores.shape[1]}")
        node_types = _count("node_types", node_types, "types", graphs.types)
        edge_types = _count("edge_types", edge_types, "edge_types", graphs.edge_types)
        x = graphs.features
        features = torch.cat([x, x.new_ones(len(x), 1)], 1) if bias else x
        form = (pairwise == "potts", bool(reference))
        self.feature_map = GraphScores(graphs, features, self.states, *form, node_types, edge_types)
        self.n, self.dim = len(graphs), self.feature_map.dim

    def views(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """A vector [dim] as weights of nodes [types, S', D] and of edges [types, De] or [types, De, S', S']."""
        unary, pairwise = self.feature_map.views(w)
        weighted = self.feature_map.weighted
        return unary, pairwise[..., 0] if self.feature_map.potts else pairwise.unflatten(-1, (weighted, weighted))

    def oracle(self, potentials: Parts, block: int, smoother: Smoother = Max()) -> OracleOutput:  # noqa: B008 - immutable
        """The max oracle of an example: exact, or over the local polytope."""
        if not isinstance(smoother, Max):
            raise NotImplementedError(
                f"FactorGraphProblem has no oracle for {smoother}; take Max(), as dual solvers do, or a ModuleProblem"
            )
        (unary, pairwise), edges = potentials, self.graphs.edges[self.graphs.edges_of(block)]
        if self.inference != "exact":
            respond = respond_relaxed if self.inference == "relaxed" else respond_by_program
            value, bound, statistics = respond(unary, edges, pairwise)
            return OracleOutput(value, statistics, torch.cat([part.flatten() for part in statistics]), bound)
        value, labels = respond_exactly(unary, edges, pairwise)
        return OracleOutput(value, self.parts(labels, block), labels)

    def parts(self, atom: Tensor, block: int) -> Parts:
        """Statistics of nodes [N, S] and edges [E, S, S], of labels or of a vertex of the local polytope."""
        if atom.is_floating_point():
            return self._as_parts(atom, block)
        edges = self.graphs.edges_of(block)
        node = torch.zeros(len(atom), self.states, dtype=torch.float64)
        edge = node.new_zeros(edges.stop - edges.start, self.states, self.states)
        compiled_scores.mark_parts(atom.numpy(), self.graphs.edges[edges].numpy(), node.numpy(), edge.numpy())
        return node, edge

    def block_statistics(self, statistics: Tensor, block: int) -> Parts:
        """Views of the statistics of an example among those of all."""
        return self._as_parts(statistics[slice(*self.part_offsets[block : block + 2])], block)

    def costs(self, block: int) -> Parts:
        """ℓ_i: costs of labels, with base scores minus those of the true ones [N, S], and zeros of pairs [E, S, S]."""
        nodes, edges = self.graphs.nodes_of(block), self.graphs.edges_of(block)
        count = edges.stop - edges.start
        costs = self.feature_map.constants[nodes]
        return costs, costs.new_zeros(count, self.states, self.states)

    def label_atom(self, block: int) -> Tensor:
        """Labels of an example, int64 [N], or their statistics for relaxed inference."""
        labels = self.graphs.labels[self.graphs.nodes_of(block)]
        if self.inference == "exact":
            return labels
        return torch.cat([part.flatten() for part in self.parts(labels, block)])

    def _as_parts(self, vector: Tensor, block: int) -> Parts:
        """Views of a vector in the shapes of the potentials of an example."""
        nodes = self.graphs.nodes_of(block)
        size = (nodes.stop - nodes.start) * self.states
        return vector[:size].view(-1, self.states), vector[size:].view(-1, self.states, self.states)

    @of_examples
    def subset(self, indices: Tensor) -> "FactorGraphProblem":
        """The same problem over some of its examples."""
        return FactorGraphProblem(
            self.graphs.select(indices),
            self.states,
            pairwise="potts" if self.feature_map.potts else "table",
            reference=self.feature_map.reference,
            bias=self.bias,
            node_types=self.feature_map.node_types,
            edge_types=self.feature_map.edge_types,
            inference=self.inference,
        )


def _count(name: str, given: int | None, numbers_name: str, numbers: Tensor) -> int:
    """The number of types as given, or as many as occur."""
    if given is None:
        return int(numbers.max()) + 1 if len(numbers) else 1
    _require_above(name, require_count(name, given), numbers_name, numbers)
    return given


def _require_above(name: str, count: int, numbers_name: str, numbers: Tensor) -> None:
    if len(numbers) and int(numbers.max()) >= count:
        raise ValueError(f"{name} must be more than the largest of {numbers_name}, {int(numbers.max())}, got {count}")


def respond_exactly(unary: Tensor, edges: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score [] of an output of a graph, and its labels [N].

    Args:
        unary: potentials of nodes, float64 [N, S].
        edges: the two nodes of each edge, int64 [E, 2].
        pairwise: potentials of edges, float64 [E, S, S]; entry [e, s, r] is for edges[e, 0] in state s.

    Raises:
        MemoryError: a graph that exact inference gives up on; see :class:`~structsmooth.FactorGraph`.
    """
    nodes, states = unary.shape
    if states**nodes > MOST_OUTPUTS:
        value, y = _graph(unary, edges, pairwise).max()
        return value[0], y[0]
    # A graph of its own would take far longer than the enumeration.
    labels = torch.zeros(nodes, dtype=torch.int64)
    scores = (scores.detach().contiguous().numpy() for scores in (unary, pairwise))
    value = compiled.best_output(*scores, edges.contiguous().numpy(), labels.numpy())
    return unary.new_tensor(value), labels


def respond_relaxed(unary: Tensor, edges: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor, Parts]:
    """The score [] of a point of the local polytope, a bound [] of all, and its statistics [N, S], [E, S, S]."""
    if unary.shape[1] == 2:
        # As in `respond_exactly`: the cut takes far less time than the graph and the bounds on it.
        node, edge = torch.zeros_like(unary), torch.zeros_like(pairwise)
        tensors = (unary, pairwise, edges, node, edge, pairwise.new_empty(0, 2, 2))
        graph_cut.half_integral(*(t.detach().contiguous().numpy() for t in tensors))
        value = (unary * node).sum() + (pairwise * edge).sum()
        return value, value, (node, edge)
    relaxation = _graph(unary, edges, pairwise).relaxed()
    value = relaxation.value[0]
    return value, torch.maximum(relaxation.dual[0], value), (relaxation.unary[0], relaxation.pairwise[0])


def respond_by_program(unary: Tensor, edges: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor, Parts]:
    """As :func:`respond_relaxed`, by HiGHS.

    Raises:
        ImportError: scipy is not installed.
    """
    from structsmooth.structures.factor_graph import linear_program  # scipy is optional

    masks = (torch.ones(1, len(rows), dtype=torch.bool) for rows in (unary, edges))
    problem = RelaxationDual(unary.detach()[None], pairwise.detach()[None], Layout(edges[None], *masks))
    marginals, deltas = linear_program.solve(problem)
    value, bound = problem.value(marginals)[0], problem.dual(deltas)[0]  # a bound whatever the tolerances of HiGHS
    return value, torch.maximum(bound, value), (marginals.node[0], marginals.edge[0])


def _graph(unary: Tensor, edges: Tensor, pairwise: Tensor) -> FactorGraph:
    return FactorGraph(unary.unsqueeze(0), edges, pairwise.unsqueeze(0), validate_args=False)
