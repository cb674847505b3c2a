"""Factor graphs: labels of nodes with scores for labels and for pairs at the edges of any graph."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, widened_pair
from structsmooth.structures.factor_graph import forms, operators
from structsmooth.structures.factor_graph.binding import bind
from structsmooth.structures.factor_graph.exact import Way
from structsmooth.structures.factor_graph.expansion import Automata, Roles
from structsmooth.structures.factor_graph.factors import Factor
from structsmooth.structures.factor_graph.layout import (
    Expanded,
    Layout,
    Tabled,
    check_edges,
    checked,
    joint_states,
    score,
)
from structsmooth.structures.factor_graph.local_search import LocalSearch
from structsmooth.structures.factor_graph.relaxation import Relaxation, RelaxationMethod, relax


class FactorGraph(Structure):
    """All labelings of N nodes by S states, bound to unary scores and to scores of pairs at the edges of any graph.

    score(y) = Σ_v unary[b, v, y_v] + Σ_e pairwise[b, e, y_a, y_b], with (a, b) the ends of edge e, + Σ_f of the scores
    of ``factors``, which join any number of nodes. The graphs of a batch may differ in nodes, edges and scopes, and
    scores may have any signs. An output is an int64 tensor [B, N]. Labels at padding are ignored in arguments and 0 in
    results. -inf forbids what it scores. An example without any allowed output has value -inf and zero gradient.

    Exact oracles are NP-hard in general. Each example is solved by the first of these that applies:

    * a graph without cycles: dynamic programming, as for :class:`~structsmooth.Tree`;
    * small treewidth: elimination of the nodes, in the better of two greedy orders (min-fill and min-weight), if no
      table has more than ``max_table`` entries;
    * else branch and bound from the relaxation, for ``max`` and ``topk`` alone, within ``max_sets``.

    :meth:`relaxed` bounds the maximum in any graph. Where all graphs are supermodular with two states,
    :class:`~structsmooth.BinaryGraph` is exact and faster.

    Whatever the dtype, scores are summed in float64 on the CPU. Tensors on other devices are copied to it.

    With factors there is a third kind of potentials, and of parts: scores [B, F, Q] of the final states of automata.

    Args:
        unary: scores [B, N, S] of each label, floating point; -inf for states that a node does not have.
        edges: ends a and b of each edge, integers [E, 2] for all examples or [B, E, 2]; a ≠ b. The scores of edges that
            join the same nodes add up; one edge with their sum makes the relaxation tighter.
        pairwise: scores of pairs: [S, S] for all edges, [E, S, S] or [B, E, S, S], entry [..., i, j] for y_a = i and
            y_b = j; or Potts strengths [B, E], the score of y_a = y_b.
        node_mask: [B, N], false at padding; all true if not given.
        edge_mask: [B, E], false where an example has no such edge; its ends and scores are ignored.
        factors: scores of the labels of several nodes together, such as :class:`~structsmooth.factors.AtMostOne`.
        max_table: largest number of entries of a table in elimination, per example; all tables of an elimination may
            have 16 times as many, of about 50 bytes each.
        max_sets: largest number of sets that a search may queue at a time.
        validate_args: whether to check values too: NaN, +inf, edges, ranges of labels. Costs a few reductions, and a
            synchronization on a GPU. Default: ``Structure.validate_args_default``.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, tensors on different devices, an edge from a node to itself or to
            padding, or a ``pairwise`` that could be a table for all edges as well as Potts strengths.
        MemoryError: a search exceeds ``max_sets``, or factors have too many states.
        NotImplementedError: factors under ``torch.compile``, where graphs made outside may be used.

    Reference:
        Koller and Friedman (2009), chapters 9 and 13; Meshi, Srebro and Hazan (2015), section 3.

    Example:
        Three nodes on a cycle, each of which prefers a label other than those of its neighbours:

        >>> edges = torch.tensor([[0, 1], [1, 2], [2, 0]])
        >>> graph = FactorGraph(torch.tensor([[[0.0, 0.5], [0.0, 0.2], [0.0, 0.1]]]), edges, -torch.eye(2))
        >>> graph.max()
        (tensor([-0.3000]), tensor([[1, 1, 0]]))
        >>> relaxation = graph.relaxed()  # each node takes both labels by halves, and no edge agrees
        >>> relaxation.value, relaxation.tight
        (tensor([0.4000]), tensor([False]))
    """

    labels_are_classes = True
    potential_names: tuple[str, ...] = ("unary", "pairwise")
    field_names: ClassVar[tuple[str, ...]] = (
        *("potential_names", "edges", "node_mask", "edge_mask", "max_table", "max_sets", "factors"),
        *("scopes", "transitions", "_owners", "_pairs", "_middles", "_halves", "_roles"),
    )
    factors: Tensor | None = None
    scopes: Tensor
    transitions: Tensor
    _roles: Roles

    def __init__(
        self,
        unary: Tensor,
        edges: Tensor,
        pairwise: Tensor,
        *,
        node_mask: Tensor | None = None,
        edge_mask: Tensor | None = None,
        factors: Sequence[Factor] = (),
        max_table: int = 2**21,
        max_sets: int = 100_000,
        validate_args: bool | None = None,
    ) -> None:
        self.unary, self.pairwise = unary, pairwise
        checks.require_scores("unary", unary)
        if unary.dim() != 3 or 0 in unary.shape[1:]:
            raise ValueError(f"unary must have shape [B, N, S] with N, S >= 1, got {tuple(unary.shape)}")
        self.edges, self.node_mask, self.edge_mask = checked(unary, edges, node_mask, edge_mask)
        self.max_table = checks.require_count("max_table", max_table)
        self.max_sets = checks.require_count("max_sets", max_sets)
        self.check_shapes()
        super().__init__(validate_args)
        if self.validate_args:
            check_edges(self._layout)
        if factors:
            self.potential_names = ("unary", "pairwise", "factors")
            self.factors, bound, roles = bind(factors, unary, self._layout, self.validate_args)
            self.scopes, self.transitions, self._owners = bound.scopes, bound.transitions, bound.owners
            self._pairs, self._middles, self._halves = bound.pairs, bound.middles, bound.halves
            self._roles = roles
            if self.validate_args:
                self.check_values("factors")

    def check_shapes(self) -> None:
        """Raise unless pairwise scores have one of their forms, and those of factors are [B, F, Q]."""
        checks.require_scores("pairwise", self.pairwise)
        forms.check_form(self.pairwise, self.unary.shape[0], self.edges.shape[-2], self.unary.shape[-1])
        checks.require_device("pairwise", self.pairwise, "unary", self.unary)
        if "factors" in self.potential_names:
            self._automata.check_scores(self.potentials[2], self.unary)

    def used_scores(self, name: str) -> Tensor:
        """Scores of nodes [B, N, S], edges [B, E, S, S] or factors [B, F, Q], zero where examples have none."""
        if name == "unary":
            return checks.inside(self.node_mask, self.unary)
        if name == "pairwise":
            return checks.inside(self.edge_mask, self._tables)
        return checks.inside(self._automata.possible(), self._final_scores)

    @property
    def lengths(self) -> Tensor:
        """Number of nodes of each example: int64 [B]."""
        return self.node_mask.sum(1)

    @property
    def mask(self) -> Tensor:
        """``node_mask``."""
        return self.node_mask

    def batched(self) -> "FactorGraph":
        """The same graphs with tables [B, E, S, S]."""
        return self if self.pairwise.dim() == 4 else self.replace(self.unary, self._tables, *self.potentials[2:])

    @property
    def solved_by(self) -> list[Way]:
        """Which exact oracle solves each example: ``"tree"``, ``"elimination"`` or ``"search"``, as listed above."""
        return operators.ways(self._tabled, self.max_table)

    def score(self, y: Tensor) -> Tensor:
        """Score of the labelings ``y`` [B, N]: [B], differentiable."""
        y = self.checked_labels(y)
        total = score(*self._accumulated(), self._layout, y)
        return total if self.factors is None else total + self._automata.score(self._final_scores, y)

    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """Indicators of labels [B, N, S] and of pairs [B, E, S, S], zero where there is no node or edge.

        With factors, also of final states [B, F, Q].
        """
        y = self.checked_labels(y)
        unary, states = self._accumulated()[0], self.unary.shape[-1]
        nodes = torch.nn.functional.one_hot(y, states).to(unary.dtype)
        edges = (
            torch.nn.functional.one_hot(joint_states(y, self._layout, states), states**2)
            .to(unary.dtype)
            .unflatten(-1, (states, states))
        )
        nodes, edges = nodes * self.node_mask.unsqueeze(-1), edges * self.edge_mask[:, :, None, None]
        return (nodes, edges) if self.factors is None else (nodes, edges, self._automata.parts(y, unary.dtype))

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct labelings [B, k, N].

        Values are -inf, and labels 0, where fewer than k labelings have a finite score.

        Raises:
            MemoryError: a search exceeds ``max_sets``; :meth:`relaxed` gives a labeling and a bound.
        """
        k = check_k(k)
        nodes = self.unary.shape[1]
        values, y = operators.top_k(*self._tabled, k, self.max_table, self.max_sets, nodes)
        return self.with_gradients(values, y[..., :nodes])

    def logsumexp(self) -> Tensor:
        """Log-partition function [B]; twice differentiable.

        Raises:
            NotImplementedError: elimination would take tables of more than ``max_table`` entries.
        """
        return operators.marginals(self._tabled, self.max_table)[0]

    def marginals(self) -> tuple[Tensor, ...]:
        """Marginals of labels [B, N, S], of pairs [B, E, S, S] and, with factors, of final states; differentiable.

        Raises:
            NotImplementedError: elimination would take tables of more than ``max_table`` entries.
        """
        _, node, edge, final = operators.marginals(self._tabled, self.max_table)
        (_, nodes, states), edges = self.unary.shape, self.edges.shape[-2]
        parts = node[:, :nodes, :states], edge[:, :edges, :states, :states]
        return parts if self.factors is None else (*parts, self._roles.joined(self._counters.final(node, edge), final))

    def entropy(self) -> Tensor:
        """As in :class:`~structsmooth.structures.distribution.Distribution`, at any scale of the scores."""
        rounded = super().entropy()
        exact: Tensor = operators.entropy(*self._tabled, self.max_table)
        return rounded + (exact - rounded).detach()  # with the gradient of the first

    def max_marginals(self) -> Tensor:
        """Largest score [B, N, S] of a labeling with y_v = j (Definition 13); zero on padding.

        Raises:
            NotImplementedError: elimination would take tables of more than ``max_table`` entries.
        """
        _, nodes, states = self.unary.shape
        return operators.max_marginals(*self._tabled, self.max_table)[:, :nodes, :states]

    def relaxed(
        self, method: RelaxationMethod = "auto", *, tolerance: float = 1e-6, max_sweeps: int = 500
    ) -> Relaxation:
        """The linear programming relaxation of the max oracle, which holds in any graph.

        Args:
            method: ``"tree"``: dynamic programming, for graphs without cycles; ``"cut"``: roof duality, one minimum
                cut, for two states; ``"expansion"``: ten sweeps of messages, then expansion moves, minimum cuts, where
                s[i, i] + s[j, k] >= s[j, i] + s[i, k] in every table s, as of Potts strengths that are not negative;
                ``"messages"``: block coordinate descent on the dual, on any device; ``"lp"``: HiGHS, for small graphs
                (needs scipy). Moves and messages leave an interval. ``"auto"`` takes the first of the first two that
                suits an example; else up to 16,384 labels and pairs ``"messages"``, and ``"lp"`` if they leave an
                interval; beyond, ``"expansion"`` where it suits, and else ``"messages"``.
            tolerance: width of the interval, relative to the bound, at which ``"messages"`` stops.
            max_sweeps: limit on its sweeps over the nodes.

        Raises:
            ImportError: ``method="lp"`` without scipy.
            ValueError: a method that does not suit the graphs.

        Reference:
            Boykov, Veksler and Zabih (2001), on expansion moves; Meshi et al. (2010), on messages.
        """
        search = None if self.factors is None else LocalSearch(self._automata, self.factors.detach().double())
        found = relax(*self._scores(), method, tolerance, max_sweeps, search).to(self._dtype)
        return found if self.factors is None else found.restricted(self._contracted(found.unary, found.pairwise))

    def inverse_cdf(self, uniform: Tensor) -> Tensor:
        """Samples [B, n, N] at uniform numbers of that shape, as in ``Distribution``; with factors, at more numbers."""
        return operators.sample(*self._tabled, uniform, self.max_table)[..., : self.unary.shape[1]]

    def checked_labels(self, y: Tensor) -> Tensor:
        """Labels as int64, with 0 at padding."""
        return checks.checked_classes(self, y, "[B, N]", self.unary.shape[-1], self.node_mask)

    def _rows(self) -> tuple[str, ...]:
        shared = {"edges": self.edges.dim() == 2, "pairwise": forms.is_shared(self.pairwise, self.edge_mask)}
        names = (*self.potential_names, "edges", "node_mask", "edge_mask", "scopes")
        return tuple(name for name in names if not shared.get(name))

    def _part_scores(self) -> tuple[Tensor, ...]:
        return self.unary, self._tables, *self.potentials[2:]

    def _draws(self) -> tuple[int, ...]:
        return (self.unary.shape[1] + (0 if self.factors is None else len(self._roles.places)),)

    @property
    def _tables(self) -> Tensor:
        """Pairwise scores [B, E, S, S]."""
        return forms.tables(self.pairwise, self.edge_mask, self.unary.shape[-1])

    @property
    def _layout(self) -> Layout:
        return Layout(self.edges.expand(*self.edge_mask.shape, 2), self.node_mask, self.edge_mask)

    @property
    def _automata(self) -> Automata:
        return Automata(self.scopes, self.transitions, self._owners, self._pairs, self._middles, self._halves)

    @property
    def _counters(self) -> Automata:
        """The factors that exact oracles solve by auxiliary nodes: all but tables."""
        return self._automata.some(self._roles)

    @property
    def _tabled(self) -> Tabled:
        """The graph that exact oracles solve, in the dtype that sums use: without tables, one that no example has."""
        sound = self.without_wrong()
        graph, (batch, _, states) = Expanded(*sound._accumulated(), *sound._layout), sound.unary.shape
        none = graph.edges.new_zeros(1, 1, 1, states)
        tables = graph.unary.new_zeros(batch, 1, 1), none[0, :, :, :1].expand(batch, -1, -1) - 1, none
        if sound.factors is not None:
            scores, roles = sound._final_scores, sound._roles
            graph = sound._counters.expanded(graph, scores[:, roles.counters])
            if roles.tables:
                tables = scores[:, roles.tables], sound.scopes[:, roles.tables], sound.transitions[[*roles.tables]]
        finals, scopes, transitions = tables
        return Tabled(graph.unary, graph.pairwise, finals, *graph[2:], scopes, transitions)

    @property
    def _expanded(self) -> Expanded:
        """The pairwise graph of the relaxation, in the dtype that sums use: with factors, one with more nodes."""
        sound = self.without_wrong()
        graph = Expanded(*sound._accumulated(), *sound._layout)
        return graph if sound.factors is None else sound._automata.expanded(graph, sound._final_scores)

    def _contracted(self, node: Tensor, edge: Tensor) -> tuple[Tensor, ...]:
        """Distributions of the parts of this graph, given those of nodes and edges of the expanded one."""
        if self.factors is None:
            return node, edge
        (_, nodes, states), edges = self.unary.shape, self.edges.shape[-2]
        return node[:, :nodes, :states], edge[:, :edges, :states, :states], self._automata.final(node, edge)

    def _scores(self) -> tuple[Tensor, Tensor, Layout]:
        """Scores of the expanded graph in float64, zero where there is no node or edge, and its layout."""
        return self._expanded.in_float64()

    @property
    def _dtype(self) -> torch.dtype:
        """The dtype of values of the graph."""
        return self._accumulated()[0].dtype

    @property
    def _final_scores(self) -> Tensor:
        """Scores of final states [B, F, Q] in the dtype that sums use."""
        return self.potentials[2].to(self._dtype)

    def _accumulated(self) -> tuple[Tensor, Tensor]:
        """Scores of nodes and pairs in the dtype that sums use."""
        unary = self.unary
        if self.factors is not None:
            unary = unary.to(torch.promote_types(unary.dtype, self.factors.dtype))
        return widened_pair(unary, self._tables)
