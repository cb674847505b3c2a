"""Small random factor graphs, and their oracles by enumeration."""

import torch
from enumeration import Labelings, labelings_of, random_scores
from hypothesis import strategies as st
from torch import Tensor

from structsmooth import FactorGraph
from structsmooth.factors import Automaton

Graphs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # unary, edges, pairwise, node_mask, edge_mask
# As Graphs, then scores of final states, scopes and transitions.
GraphsWithFactors = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def factor_graph(
    unary: Tensor,
    edges: Tensor,
    pairwise: Tensor,
    node_mask: Tensor | None = None,
    edge_mask: Tensor | None = None,
    **options: object,
) -> FactorGraph:
    return FactorGraph(unary, edges, pairwise, node_mask=node_mask, edge_mask=edge_mask, **options)


def random_factor_graphs(
    batch: int,
    nodes: int,
    extra: int,
    states: int,
    seed: int = 0,
    ties: bool = False,
    forbidden: float = 0.0,
    padding: bool = True,
) -> Graphs:
    """Forests with up to ``extra`` more edges, different in every example; nonsense at padding."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    count = max(nodes - 1 + extra, 1)
    edges = torch.randint(-9, nodes + 9, (batch, count, 2), generator=generator)
    node_mask = torch.zeros(batch, nodes, dtype=torch.bool)
    edge_mask = torch.zeros(batch, count, dtype=torch.bool)
    for b in range(batch):
        own = torch.randperm(nodes, generator=generator)
        if padding:
            own = own[: int(torch.randint(1, nodes + 1, (), generator=generator))]
        node_mask[b, own] = True
        pairs = {tuple(sorted((i, int(torch.randint(0, i, (), generator=generator))))) for i in range(1, len(own))}
        for _ in range(extra if len(own) > 1 else 0):
            pairs.add(tuple(sorted(torch.randperm(len(own), generator=generator)[:2].tolist())))
        slots = torch.randperm(count, generator=generator)[: len(pairs)] if padding else torch.arange(len(pairs))
        turned = torch.rand(len(pairs), generator=generator) < 0.5
        ends = own[torch.tensor(sorted(pairs), dtype=torch.int64).view(-1, 2)]
        edges[b, slots] = torch.where(turned[:, None], ends.flip(1), ends)
        edge_mask[b, slots] = True
    return scores(batch, nodes, states), edges, scores(batch, count, states, states), node_mask, edge_mask


@st.composite
def small_factor_graphs(
    draw: st.DrawFn, outputs: int = 1000, ties: bool | None = None, forbidden: float | None = None
) -> Graphs:
    """Graphs of at most 8 nodes, 4 states and ``outputs`` outputs; some examples allow no output at all."""
    sizes = [(nodes, states) for nodes in range(1, 9) for states in range(1, 5) if states**nodes <= outputs]
    nodes, states = draw(st.sampled_from(sizes))
    return random_factor_graphs(
        draw(st.integers(1, 3)),
        nodes,
        draw(st.sampled_from([0, 1, 3, 12])),
        states,
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.6])) if forbidden is None else forbidden,
        padding=draw(st.booleans()),
    )


def factor_graph_with_factors(
    unary: Tensor,
    edges: Tensor,
    pairwise: Tensor,
    node_mask: Tensor,
    edge_mask: Tensor,
    factors: Tensor,
    scopes: Tensor,
    transitions: Tensor,
    **options: object,
) -> FactorGraph:
    zeros = torch.zeros(len(scopes), *transitions.shape[:2], device=scopes.device)
    automata = [Automaton(*parts) for parts in zip(scopes.unbind(1), transitions, zeros.unbind(1), strict=True)]
    graph = factor_graph(unary, edges, pairwise, node_mask, edge_mask, factors=automata, **options)
    return graph.replace(unary, pairwise, factors)


def with_random_factors(
    instance: Graphs, count: int, longest: int, seed: int, ties: bool = False, forbidden: float = 0.0
) -> GraphsWithFactors:
    """Random automata of three states; some examples lack some of the factors, and some nodes of the others."""
    unary, _, _, node_mask, _ = instance
    generator = torch.Generator().manual_seed(seed)
    scopes = torch.full((len(unary), count, longest), -1)
    for b, own in enumerate(node_mask):
        for f in range(count):
            nodes = own.nonzero()[:, 0][torch.randperm(int(own.sum()), generator=generator)]
            length = int(torch.randint(0, longest + 1, (), generator=generator))
            if f == 0 and len(nodes) >= longest:  # it can be a table
                length = longest * (length > 0)
            nodes = nodes[:length]
            slots = torch.randperm(longest, generator=generator)[: len(nodes)].sort().values
            scopes[b, f, slots] = nodes
    transitions = torch.randint(0, 3, (count, 3, unary.shape[2]), generator=generator)
    return *instance, random_scores(generator, ties, forbidden)(len(unary), count, 3), scopes, transitions


@st.composite
def small_factor_graphs_with_factors(
    draw: st.DrawFn, outputs: int = 729, ties: bool | None = None, forbidden: float | None = None
) -> GraphsWithFactors:
    """Graphs of at most 6 nodes and 3 states, with up to 3 factors."""
    sizes = [(nodes, states) for nodes in range(1, 7) for states in range(1, 4) if states**nodes <= outputs]
    nodes, states = draw(st.sampled_from(sizes))
    seed, ties = draw(st.integers(0, 2**32 - 1)), draw(st.booleans()) if ties is None else ties
    forbidden = draw(st.sampled_from([0.0, 0.2])) if forbidden is None else forbidden
    batch, extra, padding = draw(st.integers(1, 3)), draw(st.sampled_from([0, 1, 6])), draw(st.booleans())
    graphs = random_factor_graphs(batch, nodes, extra, states, seed, ties, forbidden, padding)
    return with_random_factors(graphs, draw(st.integers(1, 3)), draw(st.integers(1, 4)), seed, ties, forbidden)


def final_states(scopes: Tensor, transitions: Tensor, y: Tensor) -> Tensor:
    """Of automata that read scopes [F, K], of one example, on labels [n, N]: [n, F], or -1 without nodes."""
    ends = torch.full((len(y), len(scopes)), -1)
    for i, labels in enumerate(y.tolist()):
        for f, scope in enumerate(scopes.tolist()):
            nodes = [v for v in scope if v >= 0]
            state = 0
            for v in nodes:
                state = int(transitions[f, state, labels[v]])
            ends[i, f] = state if nodes else -1
    return ends


class EnumeratedFactorGraph(Labelings):
    """The queries of a ``FactorGraph``; ties in lexicographic order."""

    def __init__(self, unary: Tensor, edges: Tensor, pairwise: Tensor, node_mask: Tensor, edge_mask: Tensor) -> None:
        self.edges, self.edge_mask = edges, edge_mask
        super().__init__((unary, pairwise), labelings_of(node_mask, unary.shape[2]), node_mask)

    def _at(self, b: int, y: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        nodes, own = self.real[b].nonzero()[:, 0], self.edge_mask[b].nonzero()[:, 0]
        first, second = self.edges[b, own].unbind(1)
        return (nodes, y[:, nodes]), (own, y[:, first], y[:, second])


class EnumeratedFactorGraphWithFactors(EnumeratedFactorGraph):
    """The queries of a ``FactorGraph`` with factors."""

    def __init__(self, *instance: Tensor) -> None:
        *graph, factors, self.scopes, self.transitions = instance
        self.edges, self.edge_mask = graph[1], graph[4]
        potentials = (graph[0], graph[2], factors)
        Labelings.__init__(self, potentials, labelings_of(graph[3], graph[0].shape[2]), graph[3])

    def _at(self, b: int, y: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        own = (self.scopes[b] >= 0).any(-1).nonzero()[:, 0]
        states = final_states(self.scopes[b], self.transitions, y)
        return *super()._at(b, y), (own, states[:, own])
