"""Small random structures, and their oracles by enumeration: the brute force everything is checked against."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import permutations, product

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

Potentials = tuple[Tensor, Tensor, Tensor]  # unary, transition, lengths
TreePotentials = tuple[Tensor, Tensor, Tensor, Tensor]  # unary, pairwise, parents, mask
FORMS = ("[S, S]", "[B, S, S]", "[B, T-1, S, S]")


def random_scores(generator: torch.Generator, ties: bool, forbidden: float) -> Callable[..., Tensor]:
    """Float64 scores of any shape: Gaussian, or small integers for exact ties; a fraction ``forbidden`` is -inf."""

    def scores(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        values = values.round() if ties else values
        return values.masked_fill(torch.rand(shape, generator=generator) < forbidden, -torch.inf)

    return scores


def random_chains(
    batch: int,
    steps: int,
    states: int,
    form: str = FORMS[0],
    seed: int = 0,
    lengths: list[int] | None = None,
    ties: bool = False,
    forbidden: float = 0.0,
) -> Potentials:
    """Chains with random scores."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    shape = {"[S, S]": (), "[B, S, S]": (batch,), "[B, T-1, S, S]": (batch, steps - 1)}[form]
    ends = (
        torch.randint(1, steps + 1, (batch,), generator=generator)
        if lengths is None
        else torch.tensor(lengths, dtype=torch.int64)
    )
    return scores(batch, steps, states), scores(*shape, states, states), ends


@st.composite
def small_chains(draw: st.DrawFn, ties: bool | None = None, forbidden: float | None = None) -> Potentials:
    """Chains with at most 4^5 outputs, in every form of transitions; some examples allow no output at all."""
    return random_chains(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
        draw(st.integers(1, 4)),
        draw(st.sampled_from(FORMS)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.6])) if forbidden is None else forbidden,
    )


def random_trees(
    batch: int, nodes: int, states: int, seed: int = 0, ties: bool = False, forbidden: float = 0.0, padding: bool = True
) -> TreePotentials:
    """Forests of different shapes, nodes and padding in any order, with random scores; nonsense at padding."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    parents = torch.randint(-9, nodes + 9, (batch, nodes), generator=generator)
    mask = torch.zeros(batch, nodes, dtype=torch.bool)
    for b in range(batch):
        order = torch.randperm(nodes, generator=generator)
        if padding:
            order = order[: int(torch.randint(1, nodes + 1, (), generator=generator))]
        mask[b, order] = True
        for i, v in enumerate(order):
            above = int(torch.randint(-1, max(i, 1), (), generator=generator))
            parents[b, v] = order[above] if 0 <= above < i else -1
    return scores(batch, nodes, states), scores(batch, nodes, states, states), parents, mask


@st.composite
def small_trees(
    draw: st.DrawFn, outputs: int = 4**8, ties: bool | None = None, forbidden: float | None = None
) -> TreePotentials:
    """Forests of at most 8 nodes, 4 states and ``outputs`` outputs; some examples allow no output at all."""
    sizes = [(nodes, states) for nodes in range(1, 9) for states in range(1, 5) if states**nodes <= outputs]
    nodes, states = draw(st.sampled_from(sizes))
    return random_trees(
        draw(st.integers(1, 3)),
        nodes,
        states,
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.6])) if forbidden is None else forbidden,
        padding=draw(st.booleans()),
    )


def all_labelings(variables: int, states: int) -> Tensor:
    """[S^V, V], in lexicographic order."""
    return torch.arange(states**variables)[:, None] // states ** torch.arange(variables - 1, -1, -1) % states


def labelings_of(mask: Tensor, states: int) -> list[Tensor]:
    """Those of the nodes [B, N] that each example has, with 0 at padding."""
    outputs = []
    for own in mask:
        labels = all_labelings(int(own.sum()), states)
        outputs.append(labels.new_zeros(len(labels), len(own)).masked_scatter(own, labels))
    return outputs


class Enumeration(ABC):
    """The queries of a structure in float64, output by output; autograd through them gives the statistics.

    Args:
        tables: potentials with a batch dimension, one tensor for each kind of part.
        outputs: those of each example [n, ...], in the order that breaks ties.
    """

    def __init__(self, tables: tuple[Tensor, ...], outputs: list[Tensor]) -> None:
        self.tables, self.outputs = tuple(table.double() for table in tables), outputs
        self.scores = [self._scores(b, y) for b, y in enumerate(self.outputs)]

    @abstractmethod
    def _scores(self, b: int, y: Tensor) -> Tensor:
        """Scores [n] of outputs ``y`` [n, ...] of example b."""

    @abstractmethod
    def _parts(self, b: int, y: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        """Weighted sum of the indicators of outputs ``y`` [n, ...]."""

    def _best(self, b: int, k: int) -> Tensor:
        """Indices of the k best outputs of example b."""
        return self.scores[b].detach().argsort(descending=True, stable=True)[:k]

    def score(self, y: Tensor) -> Tensor:
        return torch.cat([self._scores(b, y[b : b + 1]) for b in range(len(y))])

    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        one = torch.ones(1, dtype=torch.float64)
        return self._stacked([self._parts(b, y[b : b + 1], one) for b in range(len(y))])

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        values, outputs = [], []
        for b, (y, scores) in enumerate(zip(self.outputs, self.scores, strict=True)):
            best = self._best(b, k)
            best = best[scores[best] > -torch.inf]
            nothing = k - len(best)
            values.append(torch.cat([scores[best], scores.new_full((nothing,), -torch.inf)]))
            outputs.append(torch.cat([y[best], y.new_zeros(nothing, *y.shape[1:])]))
        return torch.stack(values), torch.stack(outputs)

    def max(self) -> tuple[Tensor, Tensor]:
        values, y = self.topk(1)
        return values[:, 0], y[:, 0]

    def logsumexp(self) -> Tensor:
        nothing = torch.tensor(-torch.inf, dtype=torch.float64)
        allowed = [scores[scores > -torch.inf] for scores in self.scores]
        return torch.stack([scores.logsumexp(0) if len(scores) else nothing for scores in allowed])

    def marginals(self) -> tuple[Tensor, ...]:
        rows = []
        for b, (y, scores) in enumerate(zip(self.outputs, self.scores, strict=True)):
            allowed = scores > -torch.inf
            rows.append(self._parts(b, y[allowed], scores[allowed].softmax(0)))
        return self._stacked(rows)

    @staticmethod
    def _stacked(rows: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        return tuple(torch.stack(column) for column in zip(*rows, strict=True))


class PartLists(Enumeration):
    """Structures whose outputs all have the same number of parts of each kind."""

    @abstractmethod
    def _at(self, b: int, y: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        """For each kind, the indices of the parts in outputs ``y`` [n, ...] of example b: [n, parts] each."""

    def _scores(self, b: int, y: Tensor) -> Tensor:
        pairs = zip(self.tables, self._at(b, y), strict=True)
        return torch.stack([table[b][index].sum(1) for table, index in pairs]).sum(0)

    def _parts(self, b: int, y: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            weights.new_zeros(table.shape[1:]).index_put(index, weights[:, None], accumulate=True)
            for table, index in zip(self.tables, self._at(b, y), strict=True)
        )


class Labelings(PartLists):
    """Structures whose outputs are labels of variables, [B, V, S] their unary scores and [B, V] which are real."""

    def __init__(self, tables: tuple[Tensor, ...], outputs: list[Tensor], real: Tensor) -> None:
        self.real = real
        super().__init__(tables, outputs)

    def max_marginals(self) -> Tensor:
        _, variables, states = self.tables[0].shape
        rows = []
        for b, (y, scores) in enumerate(zip(self.outputs, self.scores, strict=True)):
            for v in range(variables):
                if self.real[b, v]:
                    rows.append(torch.stack([self._largest(scores[y[:, v] == s]) for s in range(states)]))
                else:
                    rows.append(scores.new_zeros(states))
        return torch.stack(rows).view(-1, variables, states)

    @staticmethod
    def _largest(scores: Tensor) -> Tensor:
        largest = scores.max(0).values
        return largest if largest > -torch.inf else largest.detach()


class EnumeratedChain(Labelings):
    """The queries of a ``LinearChain``; ties are broken by the last label, then by the one before it."""

    def __init__(self, unary: Tensor, transition: Tensor, lengths: Tensor) -> None:
        batch, steps, states = unary.shape
        self.unary, self.lengths = unary, lengths.tolist()
        index = {2: (None, None), 3: (slice(None), None), 4: ()}[transition.dim()]
        edges = transition[index].expand(batch, steps - 1, states, states)
        outputs = [pad(all_labelings(length, states).flip(1), (0, steps - length)) for length in self.lengths]
        super().__init__((unary, edges), outputs, torch.arange(steps) < lengths[:, None])

    def _at(self, b: int, y: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        t, y = torch.arange(self.lengths[b]), y[:, : self.lengths[b]]
        return (t, y), (t[:-1], y[:, :-1], y[:, 1:])


class EnumeratedTree(Labelings):
    """The queries of a ``Tree``."""

    def __init__(self, unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> None:
        self.parents = [
            {v: parent for v, parent in enumerate(row) if mask[b, v]} for b, row in enumerate(parents.tolist())
        ]
        super().__init__((unary, pairwise), labelings_of(mask, unary.shape[2]), mask)

    def _at(self, b: int, y: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        nodes = torch.tensor(list(self.parents[b]))
        pairs = [(v, parent) for v, parent in self.parents[b].items() if parent >= 0]
        v, parent = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).T
        return (nodes, y[:, nodes]), (v, y[:, parent], y[:, v])

    def _best(self, b: int, k: int) -> Tensor:
        scores = self.scores[b].detach()
        last = scores.topk(min(k, len(scores))).values[-1]
        candidates = ((scores >= last) & (scores > -torch.inf)).nonzero().squeeze(1).tolist()
        candidates.sort(key=lambda i: (-float(scores[i]), self._rank(b, self.outputs[b][i].tolist())))
        return torch.tensor(candidates[:k], dtype=torch.int64)

    def _rank(self, b: int, y: list[int]) -> tuple[object, ...]:
        """What ties are broken by: an entry of a list ranks by its score and by the entries it was made of."""
        unary, pairwise = (table[b].detach() for table in self.tables)

        def branch(v: int) -> tuple[float, tuple[object, ...]]:
            """Score of node v and all below it, and rank; -1 stands above the roots."""
            score, rank = (0.0, ()) if v < 0 else (float(unary[v, y[v]]), ())
            for child in (child for child, parent in self.parents[b].items() if parent == v):
                below, child_rank = branch(child)
                below += 0.0 if v < 0 else float(pairwise[child, y[v], y[child]])
                score += below
                rank = (-score, rank, (-below, y[child], child_rank))
            return score, rank

        return branch(-1)[1]


Placements = tuple[Tensor, Tensor, Tensor]  # unary, deformation, parents


def rest_positions(nodes: int) -> Tensor:
    """Anchors [N, 2] of the nodes of random deformable trees, some of them between two positions of the grid."""
    return torch.arange(2 * nodes, dtype=torch.float64).view(nodes, 2) * 0.7 % 2 - 0.5


def random_placements(
    batch: int,
    nodes: int,
    height: int,
    width: int,
    seed: int = 0,
    ties: bool = False,
    forbidden: float = 0.0,
    flat: bool = False,
) -> Placements:
    """Trees with nodes in any order, often several, on a grid; squares weigh nothing if ``flat``."""
    generator = torch.Generator().manual_seed(seed)
    unary = random_scores(generator, ties, forbidden)(batch, nodes, height, width)
    deformation = random_scores(generator, ties, 0.0)(batch, nodes, 4)
    deformation[..., 1::2] = 0.0 if flat else deformation[..., 1::2].abs() + (0.0 if ties else 0.05)
    _, _, parents, _ = random_trees(1, nodes, 1, seed + 1, padding=False)
    return unary, deformation, parents[0]


@st.composite
def small_placements(draw: st.DrawFn, outputs: int = 1000, ties: bool | None = None) -> Placements:
    """At most 4 nodes on at most 4 x 4 positions and ``outputs`` outputs; some examples allow no output at all."""
    sizes = [(n, h, w) for n, h, w in product(range(1, 5), range(1, 5), range(1, 5)) if (h * w) ** n <= outputs]
    return random_placements(
        draw(st.integers(5, 6)),  # never as many as nodes
        *draw(st.sampled_from(sizes)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.7])),
        flat=draw(st.booleans()),
    )


class EnumeratedPlacements(Labelings):
    """The queries of a ``DeformableTree`` with :func:`rest_positions` as anchors."""

    def __init__(self, unary: Tensor, deformation: Tensor, parents: Tensor) -> None:
        self.parents, self.grid = parents, unary.shape[2:]
        batch, nodes = unary.shape[:2]
        outputs = [all_labelings(nodes, self.grid.numel())] * batch
        super().__init__((unary.flatten(2), deformation), outputs, torch.ones(batch, nodes, dtype=torch.bool))

    def _at(self, b: int, y: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        raise NotImplementedError

    def _springs(self, y: Tensor) -> Tensor:
        """[n, N, 4]"""
        places = torch.stack([y % self.grid[1], y // self.grid[1]], -1).double()
        d = places - places[:, self.parents.clamp_min(0)] - rest_positions(y.shape[1])
        return torch.stack([d, d**2], -1).flatten(2) * (self.parents >= 0)[:, None]

    def _scores(self, b: int, y: Tensor) -> Tensor:
        unary, deformation = (table[b] for table in self.tables)
        springs = torch.where((self.parents >= 0)[:, None], deformation, 0.0)
        return unary[torch.arange(y.shape[1]), y].sum(1) - (springs * self._springs(y)).sum((1, 2))

    def _parts(self, b: int, y: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        own = torch.nn.functional.one_hot(y, self.grid.numel()).double().unflatten(2, self.grid)
        return torch.einsum("i,ivhw->vhw", weights, own), -torch.einsum("i,ivc->vc", weights, self._springs(y))

    def max_marginals(self) -> Tensor:
        return super().max_marginals().unflatten(2, self.grid)


def random_candidates(
    batch: int, count: int, seed: int = 0, ties: bool = False, forbidden: float = 0.0, masked: float = 0.3
) -> tuple[Tensor, Tensor]:
    """Scores and mask."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)(batch, count)
    return scores, torch.rand(batch, count, generator=generator) >= masked


@st.composite
def small_candidates(draw: st.DrawFn, ties: bool | None = None) -> tuple[Tensor, Tensor]:
    """At most 9 candidates; some examples have none."""
    return random_candidates(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 9)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.6])),
        masked=draw(st.sampled_from([0.0, 0.3, 0.8])),
    )


class EnumeratedCandidates(PartLists):
    """The queries of ``Candidates``: what is masked or forbidden has no score, and no gradient."""

    def __init__(self, scores: Tensor, mask: Tensor) -> None:
        allowed = torch.where(mask & (scores > -torch.inf), scores, -torch.inf)
        super().__init__((allowed,), [torch.arange(scores.shape[1])] * len(scores))

    def _at(self, b: int, y: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        return ((y[:, None],),)

    def max_marginals(self) -> Tensor:
        return self.tables[0]


class EnumeratedLabels(Labelings):
    """The queries of variables that do not interact; ties are broken by the first label, then by the second one."""

    def __init__(self, unary: Tensor) -> None:
        batch, variables, states = unary.shape
        outputs = [all_labelings(variables, states)] * batch
        super().__init__((unary,), outputs, torch.ones(batch, variables, dtype=torch.bool))

    def _at(self, b: int, y: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        return ((torch.arange(y.shape[1]), y),)


@st.composite
def small_labels(draw: st.DrawFn, ties: bool | None = None) -> tuple[Tensor]:
    """Scores [B, D, 2] of at most 5 labels; sometimes none is allowed."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    ties = draw(st.booleans()) if ties is None else ties
    scores = random_scores(generator, ties, draw(st.sampled_from([0.0, 0.3])))
    return (scores(draw(st.integers(1, 3)), draw(st.integers(1, 5)), 2),)


@st.composite
def small_maps(draw: st.DrawFn, ties: bool | None = None) -> tuple[Tensor]:
    """Maps of at most 225 boxes; sometimes none is allowed."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    ties = draw(st.booleans()) if ties is None else ties
    scores = random_scores(generator, ties, draw(st.sampled_from([0.0, 0.2, 0.7, 1.0])))
    return (scores(draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 5))),)


class EnumeratedBoxes(Enumeration):
    """The queries of ``Subwindows``."""

    def __init__(self, scores: Tensor) -> None:
        batch, height, width = scores.shape
        corners = torch.cartesian_prod(*(torch.arange(size + 1) for size in (width, height, width, height)))
        boxes = corners[(corners[:, :2] < corners[:, 2:]).all(1)]
        super().__init__((scores,), [boxes] * batch)

    def _covered(self, y: Tensor) -> Tensor:
        """[n, H, W]"""
        rows, columns = (torch.arange(size) for size in self.tables[0].shape[1:])
        x1, y1, x2, y2 = y[..., None].unbind(1)
        return ((rows >= y1) & (rows < y2))[:, :, None] & ((columns >= x1) & (columns < x2))[:, None]

    def _scores(self, b: int, y: Tensor) -> Tensor:
        return torch.where(self._covered(y), self.tables[0][b], 0.0).sum((1, 2))

    def _parts(self, b: int, y: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        return ((self._covered(y) * weights[:, None, None]).sum(0),)


Graphs = tuple[Tensor, Tensor, Tensor]  # unary, edges, pairwise


def random_graphs(
    batch: int, nodes: int, edges: int, seed: int = 0, ties: bool = False, forbidden: float = 0.0
) -> Graphs:
    """Binary graphs with random edges, parallel ones among them, and random scores, supermodular by a margin."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    ends = torch.stack([torch.randperm(nodes, generator=generator)[:2] for _ in range(edges)]) if edges else None
    tables = scores(batch, edges, 4)
    s00, s01, s10, s11 = tables.unbind(-1)
    needed = s01 + s10
    s00, s11 = (torch.where(needed > -torch.inf, s.nan_to_num(neginf=0.0), s) for s in (s00, s11))
    lacking = torch.where(needed > -torch.inf, needed - s00 - s11, 0.0).clamp_min(0.0)
    lacking = lacking if ties else torch.where(lacking > 0, lacking + 0.01, 0.0)
    pairwise = torch.stack([s00 + lacking, s01, s10, s11], -1).unflatten(-1, (2, 2))
    return scores(batch, nodes, 2), torch.zeros(0, 2, dtype=torch.int64) if ends is None else ends, pairwise


@st.composite
def small_graphs(draw: st.DrawFn, ties: bool | None = None, forbidden: float | None = None) -> Graphs:
    """Graphs of at most 8 nodes and 12 edges; some examples allow no output at all."""
    nodes = draw(st.integers(1, 8))
    return random_graphs(
        draw(st.integers(1, 3)),
        nodes,
        draw(st.integers(0, 12)) if nodes > 1 else 0,
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.1, 0.3])) if forbidden is None else forbidden,
    )


class EnumeratedGraph(Labelings):
    """The queries of a ``BinaryGraph``; ties are broken by the lexicographic order."""

    def __init__(self, unary: Tensor, edges: Tensor, pairwise: Tensor) -> None:
        self.edges = edges
        batch, nodes, _ = unary.shape
        outputs = [all_labelings(nodes, 2)] * batch
        super().__init__((unary, pairwise), outputs, torch.ones(batch, nodes, dtype=torch.bool))

    def _at(self, b: int, y: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        first, second = self.edges.unbind(1)
        return (torch.arange(y.shape[1]), y), (torch.arange(len(first)), y[:, first], y[:, second])


Weights = tuple[Tensor, Tensor]  # weights, sizes


def random_matchings(
    sizes: list[tuple[int, int]], seed: int = 0, ties: bool = False, forbidden: float = 0.0
) -> Weights:
    """Matchings of the given rows and columns with random weights, the largest of them without padding."""
    scores = random_scores(torch.Generator().manual_seed(seed), ties, forbidden)
    rows, columns = (max(size) for size in zip(*sizes, strict=True))
    return scores(len(sizes), rows, columns), torch.tensor(sizes)


@st.composite
def small_matchings(draw: st.DrawFn, ties: bool | None = None, forbidden: float | None = None) -> Weights:
    """Up to three matchings of different sizes, at most 5 rows and 5 columns or 4 and 6; some allow no output."""
    size = st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(n, 5 if n == 5 else 6)))
    return random_matchings(
        draw(st.lists(size, min_size=1, max_size=3)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.6])) if forbidden is None else forbidden,
    )


class EnumeratedMatching(Labelings):
    """The queries of a ``Matching``."""

    def __init__(self, weights: Tensor, sizes: Tensor) -> None:
        self.rows = sizes[:, 0].tolist()
        rows = weights.shape[1]
        outputs = [pad(torch.tensor(list(permutations(range(m), n))), (0, rows - n)) for n, m in sizes.tolist()]
        super().__init__((weights,), outputs, torch.arange(rows) < sizes[:, :1])

    def _at(self, b: int, y: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        return ((torch.arange(self.rows[b]), y[:, : self.rows[b]]),)

    @staticmethod
    def _largest(scores: Tensor) -> Tensor:
        # No matching has a partner behind the last column.
        return Labelings._largest(scores) if len(scores) else scores.new_tensor(-torch.inf)


Unmatched = tuple[Tensor, Tensor, Tensor, Tensor]  # weights, sizes, scores of unmatched rows and columns


def random_unmatched(
    sizes: list[tuple[int, int]], seed: int = 0, ties: bool = False, forbidden: float = 0.0
) -> Unmatched:
    """Matchings with scores of rows and columns that stay alone; there may be more rows than columns."""
    weights, size = random_matchings(sizes, seed, ties, forbidden)
    scores = random_scores(torch.Generator().manual_seed(seed + 1), ties, forbidden)
    batch, rows, columns = weights.shape
    return weights, size, scores(batch, rows), scores(batch, columns)


@st.composite
def small_unmatched(draw: st.DrawFn, ties: bool | None = None) -> Unmatched:
    """Up to three examples of at most 4 rows and 4 columns, each; some allow no output."""
    return random_unmatched(
        draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.6])),
    )


class EnumeratedUnmatched(EnumeratedMatching):
    """The queries of a ``Matching`` with unmatched rows, columns or both; partner -1 is none."""

    def __init__(
        self, weights: Tensor, sizes: Tensor, unmatched_rows: Tensor | None, unmatched_columns: Tensor | None
    ) -> None:
        self.rows, self.columns = sizes.T.tolist()
        batch, rows, columns = weights.shape
        if unmatched_rows is None:
            unmatched_rows = torch.full((batch, rows), -torch.inf)
        if unmatched_columns is None:
            unmatched_columns = torch.zeros(batch, columns)
        outputs = [pad(partial_matchings(n, m), (0, rows - n)) for n, m in sizes.tolist()]
        tables = weights, unmatched_rows, unmatched_columns
        Labelings.__init__(self, tables, outputs, torch.arange(rows) < sizes[:, :1])

    def _left(self, b: int, y: Tensor) -> Tensor:
        """[n, M], the columns that no row takes."""
        m = self.columns[b]
        taken = (y[:, : self.rows[b], None] == torch.arange(m)).any(1)
        return pad(~taken, (0, self.tables[0].shape[2] - m))

    def _scores(self, b: int, y: Tensor) -> Tensor:
        weights, rows, columns = (table[b] for table in self.tables)
        with_nobody, n = torch.cat([weights, rows[:, None]], 1), self.rows[b]
        chosen = with_nobody[torch.arange(n), y[:, :n]].sum(1)  # the last entry, -1, is that of nobody
        return chosen + torch.where(self._left(b, y), columns, 0.0).sum(1)

    def _parts(self, b: int, y: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        n, (_, rows, columns) = self.rows[b], self.tables[0].shape
        own = torch.nn.functional.one_hot(y[:, :n] % (columns + 1), columns + 1).double()
        pairs = pad(torch.einsum("i,ivj->vj", weights, own), (0, 0, 0, rows - n))
        return pairs[:, :-1], pairs[:, -1], weights @ self._left(b, y).double()


class EnumeratedCapacities(Enumeration):
    """The queries of a ``Matching`` with capacities of rows, and a score of the places of rows that stay free."""

    def __init__(self, weights: Tensor, sizes: Tensor, alone: Tensor, rows: Tensor, columns: Tensor) -> None:
        self.rows, self.shape = rows, weights.shape[1:]
        outputs = []
        for (n, m), own, taken in zip(sizes.tolist(), rows, columns, strict=True):
            y = all_labelings(n * m, 2).view(-1, n, m)
            y = y[(y.sum(2) <= own[:n]).all(1) & (y.sum(1) <= taken[:m]).all(1)]
            outputs.append(pad(y, (0, self.shape[1] - m, 0, self.shape[0] - n)))
        self.inside = torch.arange(self.shape[0]) < sizes[:, :1], torch.arange(self.shape[1]) < sizes[:, 1:]
        super().__init__((weights, alone), outputs)

    def _free(self, b: int, y: Tensor) -> Tensor:
        return torch.where(self.inside[0][b], self.rows[b] - y.sum(2), 0)

    def _scores(self, b: int, y: Tensor) -> Tensor:
        weights, alone = (table[b] for table in self.tables)
        free = self._free(b, y)
        pairs = torch.where(y > 0, weights, 0.0).sum((1, 2))
        return pairs + torch.where(free > 0, free * torch.where(free > 0, alone, 0.0), 0.0).sum(1)

    def _parts(self, b: int, y: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        return torch.einsum("i,ivj->vj", weights, y.double()), weights @ self._free(b, y).double()

    def max_marginals(self) -> Tensor:
        rows = []
        for y, scores, own in zip(self.outputs, self.scores, self.inside[0], strict=True):
            for v, j in product(*map(range, self.shape)):
                found = scores[y[:, v, j] > 0]
                rows.append(
                    Labelings._largest(pad(found, (0, 1), value=-torch.inf)) if own[v] else scores.new_zeros(())
                )
        return torch.stack(rows).view(-1, *self.shape)


Capacities = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # weights, sizes, scores of free places, places


def random_capacities(
    sizes: list[tuple[int, int]], seed: int = 0, ties: bool = False, forbidden: float = 0.0
) -> Capacities:
    """Matchings of rows and columns with one to three places."""
    weights, size, alone, columns = random_unmatched(sizes, seed, ties, forbidden)
    places = [torch.randint(1, 4, x.shape, generator=torch.Generator().manual_seed(seed)) for x in (alone, columns)]
    return weights, size, alone, places[0], places[1]


@st.composite
def small_capacities(draw: st.DrawFn, ties: bool | None = None) -> Capacities:
    """Up to three examples of at most 3 rows and 3 columns, each; some allow no output."""
    return random_capacities(
        draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.6])),
    )


def partial_matchings(rows: int, columns: int) -> Tensor:
    """All of them, [n, rows], with -1 for rows without a partner."""
    outputs = product(range(-1, columns), repeat=rows)
    return torch.tensor([y for y in outputs if len({j for j in y if j >= 0}) == sum(j >= 0 for j in y)])
