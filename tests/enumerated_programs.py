"""Small random structures whose outputs are the derivations of programs, and their enumeration."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import torch
from enumeration import FORMS, Enumeration, all_labelings, random_scores
from hypothesis import strategies as st
from torch import Tensor

from structsmooth.structures import Productions


class Counted(Enumeration):
    """Structures whose outputs have each part a number of times: what an output contains is listed in Python.

    Args:
        tables: potentials with a batch dimension.
        outputs: those of each example.
        real: which variables are.
        used: which of the first potentials are in use, if not all of real variables; broadcasts to them.
    """

    def __init__(
        self, tables: tuple[Tensor, ...], outputs: list[Tensor], real: Tensor, used: Tensor | None = None
    ) -> None:
        self.real, self.used = real, real.unsqueeze(-1) if used is None else used
        super().__init__(tables, outputs)

    @abstractmethod
    def contents(self, b: int, y: list[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The parts of an output of example b: the number of their table and their index in it."""

    def _counts(self, b: int, y: Tensor) -> tuple[Tensor, ...]:
        """[n, ...] each."""
        counts = tuple(torch.zeros(len(y), *table.shape[1:], dtype=torch.float64) for table in self.tables)
        for i, output in enumerate(y.tolist()):
            for table, index in self.contents(b, output):
                counts[table][(i, *index)] += 1
        return counts

    def _scores(self, b: int, y: Tensor) -> Tensor:
        pairs = zip(self.tables, self._counts(b, y), strict=True)
        terms = [torch.where(n > 0, table[b] * n, 0.0).reshape(len(n), -1).sum(1) for table, n in pairs]
        return torch.stack(terms).sum(0)

    def _parts(self, b: int, y: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.tensordot(weights, counts, 1) for counts in self._counts(b, y))

    def max_marginals(self) -> Tensor:
        rows = []
        for b, (y, scores) in enumerate(zip(self.outputs, self.scores, strict=True)):
            having = torch.where(
                self._counts(b, y)[0] > 0, scores.view(-1, *[1] * (self.tables[0].dim() - 1)), -torch.inf
            )
            best = having.max(0).values
            rows.append(torch.where(best > -torch.inf, best, -torch.inf).masked_fill(~self.used[b], 0.0))
        return torch.stack(rows)


# Unary scores, transitions, durations, scores of segments, lengths.
Segmentations = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def random_segmentations(
    batch: int,
    steps: int,
    states: int,
    longest: int,
    form: str = FORMS[0],
    seed: int = 0,
    lengths: list[int] | None = None,
    ties: bool = False,
    forbidden: float = 0.0,
) -> Segmentations:
    """Semi-Markov models with random scores."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    shape = {"[S, S]": (), "[B, S, S]": (batch,), "[B, T-1, S, S]": (batch, steps - 1)}[form]
    own = shape[:1] if form == FORMS[1] else ()
    ends = torch.randint(1, steps + 1, (batch,), generator=generator) if lengths is None else torch.tensor(lengths)
    return (
        scores(batch, steps, states),
        scores(*shape, states, states),
        scores(*own, longest, states),
        scores(batch, steps, longest, states),
        ends,
    )


@st.composite
def small_segmentations(draw: st.DrawFn, ties: bool | None = None, outputs: int = 300) -> Segmentations:
    """At most 5 positions, 3 labels and about ``outputs`` outputs; some examples allow no output at all."""
    sizes = [(t, s) for t, s in product(range(1, 6), range(1, 4)) if s * (1 + s) ** (t - 1) <= outputs]
    steps, states = draw(st.sampled_from(sizes))
    return random_segmentations(
        draw(st.integers(5, 6)),  # never as many as labels
        steps,
        states,
        draw(st.integers(1, steps + 1)),
        draw(st.sampled_from(FORMS)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.5])),
    )


def segmentations_of(length: int, steps: int, states: int, longest: int) -> Tensor:
    """All of them, [n, T], with 0 at padding."""
    outputs = []
    for y in product(range(-1, states), repeat=length):
        starts = [t for t, label in enumerate(y) if label >= 0]
        ends = [*starts[1:], length]
        if starts[:1] == [0] and all(end - start <= longest for start, end in zip(starts, ends, strict=True)):
            outputs.append([*y, *[0] * (steps - length)])
    return torch.tensor(outputs).view(-1, steps)


class EnumeratedSegmentations(Counted):
    """The queries of a ``SemiMarkov``."""

    def __init__(self, unary: Tensor, transition: Tensor, durations: Tensor, segments: Tensor, lengths: Tensor) -> None:
        batch, steps, states = unary.shape
        self.lengths, longest = lengths.tolist(), durations.shape[-2]
        transition = transition.expand(batch, states, states) if transition.dim() == 2 else transition
        tables = unary, transition, durations.expand(batch, longest, states), segments
        outputs = [segmentations_of(length, steps, states, longest) for length in self.lengths]
        super().__init__(tables, outputs, torch.arange(steps) < lengths[:, None])

    def contents(self, b: int, y: list[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        starts = [t for t, label in enumerate(y[: self.lengths[b]]) if label >= 0]
        ends = [*starts[1:], self.lengths[b]]
        for start, end in zip(starts, ends, strict=True):
            label = y[start]
            yield 2, (end - start - 1, label)
            yield 3, (start, end - start - 1, label)
            yield from ((0, (t, label)) for t in range(start, end))
            if end < self.lengths[b]:
                yield 1, (label, y[end]) if self.tables[1].dim() == 3 else (end - 1, label, y[end])


Dependencies = tuple[Tensor, Tensor, Tensor, Tensor]  # scores of arcs, roots and labels, lengths


def random_dependencies(
    batch: int,
    words: int,
    labels: int,
    seed: int = 0,
    lengths: list[int] | None = None,
    ties: bool = False,
    forbidden: float = 0.0,
) -> Dependencies:
    """Sentences with random scores of their arcs."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    ends = torch.randint(1, words + 1, (batch,), generator=generator) if lengths is None else torch.tensor(lengths)
    return scores(batch, words, words), scores(batch, words), scores(batch, words, words, labels), ends


@st.composite
def small_dependencies(draw: st.DrawFn, words: int = 3, ties: bool | None = None) -> Dependencies:
    """Sentences with two labels; some examples allow no output at all."""
    return random_dependencies(
        draw(st.integers(1, 3)),
        draw(st.integers(1, words)),
        2,
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.1, 0.4])),
    )


def is_tree(heads: tuple[int, ...]) -> bool:
    """Whether all words descend from the root, 0."""
    for word in range(1, len(heads) + 1):
        seen = set()
        while word and word not in seen:
            seen.add(word)
            word = heads[word - 1]
        if word:
            return False
    return True


def is_projective(heads: tuple[int, ...]) -> bool:
    """Whether no two arcs cross; the root is left of all words."""
    arcs = [sorted((m, h)) for m, h in enumerate(heads, 1)]
    return not any(a < c < b < d for a, b in arcs for c, d in arcs)


def trees_of(length: int, words: int, labels: int, projective: bool, single_root: bool) -> Tensor:
    """All of them, [n, words], with 0 at padding: heads and labels as one number."""
    outputs = []
    for heads in product(range(length + 1), repeat=length):
        if is_tree(heads) and (heads.count(0) == 1 or not single_root) and (is_projective(heads) or not projective):
            choices = [[0] if h == 0 else [1 + (h - 1) * labels + label for label in range(labels)] for h in heads]
            outputs += [[*y, *[0] * (words - length)] for y in product(*choices)]
    return torch.tensor(outputs)


class EnumeratedDependencies(Counted):
    """The queries of a ``ProjectiveTree`` or a ``SpanningTree``."""

    def __init__(
        self,
        arcs: Tensor,
        root: Tensor,
        labels: Tensor,
        lengths: Tensor,
        projective: bool = True,
        single_root: bool = True,
        siblings: tuple[Tensor, ...] = (),
    ) -> None:
        self.lengths, (_, words, _, self.labels) = lengths.tolist(), labels.shape
        outputs = [trees_of(length, words, self.labels, projective, single_root) for length in self.lengths]
        inside = torch.arange(words) < lengths[:, None]
        super().__init__((arcs, root, *siblings, labels), outputs, inside, inside[:, :, None] & inside[:, None])

    def contents(self, b: int, y: list[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        for m, code in enumerate(y[: self.lengths[b]]):
            if code == 0:
                yield 1, (m,)
            else:
                h, label = divmod(code - 1, self.labels)
                yield 0, (h, m)
                yield 2, (h, m, label)


Siblings = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # of arcs, roots, siblings and labels, lengths


def random_siblings(batch: int, words: int, labels: int, seed: int = 0, **options: Any) -> Siblings:
    """Sentences with random scores of arcs and of neighbouring siblings; options of :func:`random_dependencies`."""
    arcs, root, of_labels, lengths = random_dependencies(batch, words, labels, seed, **options)
    scores = random_scores(torch.Generator().manual_seed(seed + 1), options.get("ties", False), 0.0)
    return arcs, root, scores(batch, words, words, words), of_labels, lengths


@st.composite
def small_siblings(draw: st.DrawFn, words: int = 3, ties: bool | None = None) -> Siblings:
    """As :func:`small_dependencies`, with labels or without."""
    arcs, root, labels, lengths = draw(small_dependencies(words, ties))
    siblings = random_scores(torch.Generator().manual_seed(draw(st.integers(0, 9))), bool(ties), 0.0)
    return arcs, root, siblings(*arcs.shape, arcs.shape[1]), labels, lengths


class EnumeratedSiblings(EnumeratedDependencies):
    """The queries of a ``SiblingTree``."""

    def __init__(self, arcs: Tensor, root: Tensor, siblings: Tensor, labels: Tensor, lengths: Tensor) -> None:
        super().__init__(arcs, root, labels, lengths, siblings=(siblings,))

    def contents(self, b: int, y: list[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        yield from ((table if table < 2 else 3, part) for table, part in super().contents(b, y))
        modifiers = defaultdict[int, list[int]](list)
        for m, code in enumerate(y[: self.lengths[b]]):
            if code:
                modifiers[(code - 1) // self.labels].append(m)
        for h, own in modifiers.items():
            for side in ([m for m in own if m > h], [m for m in reversed(own) if m < h]):
                yield from ((2, (h, s, m)) for s, m in pairwise([h, *side]))


Spans = tuple[Tensor, Tensor, Tensor]  # scores of spans, offsets, lengths


def random_spans(
    batch: int,
    words: int,
    labels: int,
    seed: int = 0,
    lengths: list[int] | None = None,
    ties: bool = False,
    forbidden: float = 0.0,
) -> Spans:
    """Sentences with random scores of their spans."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    ends = torch.randint(1, words + 1, (batch,), generator=generator) if lengths is None else torch.tensor(lengths)
    return scores(batch, words, words, labels), random_scores(generator, ties, 0.0)(batch), ends


@st.composite
def small_spans(draw: st.DrawFn, words: int = 3, ties: bool | None = None) -> Spans:
    """Sentences with at most two labels; some examples allow no output at all."""
    return random_spans(
        draw(st.integers(1, 3)),
        draw(st.integers(1, words)),
        draw(st.integers(1, 2)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.5])),
    )


def nested_spans_of(length: int, words: int, labels: int, binary: bool) -> Tensor:
    """All sets of labelled spans, or all binary trees, [n, words, words] with -1 where there is no constituent."""
    spans = [(i, j) for i in range(length) for j in range(i, length)]
    outputs = []
    for classes in product(range(-1, labels), repeat=len(spans)):
        kept = [span for span, label in zip(spans, classes, strict=True) if label >= 0]
        crossing = any(i < k <= j < m for i, j in kept for k, m in kept)
        if not crossing and (len(kept) == 2 * length - 1 or not binary):
            y = torch.full((words, words), -1)
            for (i, j), label in zip(spans, classes, strict=True):
                y[i, j] = label
            outputs.append(y)
    return torch.stack(outputs)


class EnumeratedSpans(Counted):
    """The queries of ``Constituents``."""

    def __init__(self, spans: Tensor, offset: Tensor, lengths: Tensor, binary: bool = True) -> None:
        self.lengths, (_, _, words, labels) = lengths.tolist(), spans.shape
        outputs = [nested_spans_of(length, words, labels, binary) for length in self.lengths]
        inside = torch.arange(words) < lengths[:, None]
        real = (inside[:, :, None] & inside[:, None]).triu()
        super().__init__((spans, offset), outputs, real)

    def contents(self, b: int, y: list[list[int]]) -> Iterator[tuple[int, tuple[int, ...]]]:  # type: ignore[override]
        yield 1, ()
        for i, row in enumerate(y[: self.lengths[b]]):
            yield from ((0, (i, j, label)) for j, label in enumerate(row[: self.lengths[b]]) if label >= 0)


Grammars = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # scores of words, rules, starts and spans, lengths
# Symbols 0 and 1 may be words; there are chains of rules, also down to one that is a word itself.
RULES = [(3, 2), (2, 0), (3, 3, 2), (2, 1, 0), (4, 3), (0, 1)]
PRODUCTIONS = Productions(RULES)


def random_grammars(
    batch: int,
    words: int,
    seed: int = 0,
    lengths: list[int] | None = None,
    ties: bool = False,
    forbidden: float = 0.0,
) -> Grammars:
    """Sentences with random scores of trees of the same rules."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    ends = torch.randint(1, words + 1, (batch,), generator=generator) if lengths is None else torch.tensor(lengths)
    finite = random_scores(generator, ties, 0.0)
    rules, start = finite(batch, len(RULES)), finite(batch, PRODUCTIONS.symbols)
    return scores(batch, words, 2), rules, start, scores(batch, words, words, PRODUCTIONS.symbols), ends


@st.composite
def small_grammars(draw: st.DrawFn, words: int = 3, ties: bool | None = None) -> Grammars:
    """At most 32 trees a sentence; some examples allow none."""
    return random_grammars(
        draw(st.integers(1, 3)),
        draw(st.integers(1, words)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.05, 0.2])),
    )


# The parts of a tree: words by their preterminal, rules, and spans with a symbol.
Derivation = tuple[tuple[int, tuple[int, ...]], ...]


def grammar_trees_of(i: int, j: int, symbol: int) -> list[Derivation]:
    """All trees of the words i to j under a symbol."""
    trees: list[Derivation] = [((0, (i, symbol)),)] if i == j and symbol < 2 else []
    for r, (head, *tails) in enumerate(RULES):
        if head == symbol and len(tails) == 1:
            trees += [((1, (r,)), *below) for below in grammar_trees_of(i, j, tails[0])]
        elif head == symbol:
            for k in range(i, j):
                both = product(grammar_trees_of(i, k, tails[0]), grammar_trees_of(k + 1, j, tails[1]))
                trees += [((1, (r,)), *left, *right) for left, right in both]
    return [((3, (i, j, symbol)), *tree) for tree in trees]


class EnumeratedGrammars(Counted):
    """The queries of a ``Grammar`` with ``PRODUCTIONS``."""

    def __init__(self, lexical: Tensor, rules: Tensor, start: Tensor, spans: Tensor, lengths: Tensor) -> None:
        _, words, _ = lexical.shape
        self.known: dict[str, Derivation] = {}
        outputs = []
        for length in lengths.tolist():
            trees = [((2, (top,)), *tree) for top in range(5) for tree in grammar_trees_of(0, length - 1, top)]
            outputs.append(torch.stack([self.output(tree, length, words) for tree in trees]))
        self.lengths = lengths.tolist()
        tables = lexical, rules, start, spans
        inside = torch.arange(words) < lengths[:, None]
        real = (inside[:, :, None] & inside[:, None]).triu().unsqueeze(3).expand(spans.shape)
        super().__init__(tables, outputs, real, inside.unsqueeze(2))

    def output(self, tree: Derivation, length: int, words: int) -> Tensor:
        y = torch.full((words, words, PRODUCTIONS.chain), -1)
        for kind, part in tree:  # symbols of one span from the top down
            if kind == 3:
                i, j, symbol = part
                y[i, j, (y[i, j] >= 0).sum()] = symbol
        self.known[str(y[:length, :length].tolist())] = tree
        return y

    def contents(self, b: int, y: list[list[list[int]]]) -> Iterator[tuple[int, tuple[int, ...]]]:  # type: ignore[override]
        length = self.lengths[b]
        yield from self.known[str([row[:length] for row in y[:length]])]


Grids = tuple[Tensor, Tensor, Tensor, Tensor]  # scores of cells and of moves, offsets, lengths
MOVES = ((1, 0), (0, 1), (1, 1))


def random_grids(
    batch: int,
    steps: int,
    width: int,
    seed: int = 0,
    lengths: list[int] | None = None,
    ties: bool = False,
    forbidden: float = 0.0,
) -> Grids:
    """Pairs of sequences with random scores; the first ones may have padding."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    ends = torch.randint(1, steps + 1, (batch,), generator=generator) if lengths is None else torch.tensor(lengths)
    return (
        scores(batch, steps, width),
        scores(batch, steps, width, len(MOVES)),
        random_scores(generator, ties, 0.0)(batch),
        torch.stack([ends, torch.full_like(ends, width)], 1),
    )


@st.composite
def small_grids(draw: st.DrawFn, ties: bool | None = None) -> Grids:
    """At most 4 x 3 cells, so 25 paths; some examples allow none."""
    return random_grids(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.1, 0.4])),
    )


def grid_paths_of(
    steps: int, width: int, moves: tuple[tuple[int, int], ...], shape: tuple[int, int] | None = None
) -> Tensor:
    """All paths through a grid, [n, T, U], which may have padding."""
    outputs = []

    def extend(y: Tensor, t: int, u: int) -> None:
        if (t, u) == (steps - 1, width - 1):
            outputs.append(y)
        for m, (along, across) in enumerate(moves):
            if t + along < steps and u + across < width:
                longer = y.clone()
                longer[t + along, u + across] = m + 1
                extend(longer, t + along, u + across)

    start = torch.zeros(shape or (steps, width), dtype=torch.int64)
    start[0, 0] = len(moves) + 1
    extend(start, 0, 0)
    return torch.stack(outputs)


class EnumeratedGridPaths(Counted):
    """The queries of an ``Alignment`` with ``MOVES``."""

    def __init__(self, scores: Tensor, move_scores: Tensor, offset: Tensor, lengths: Tensor) -> None:
        _, steps, width = scores.shape
        outputs = [grid_paths_of(*own, MOVES, (steps, width)) for own in lengths.tolist()]
        self.lengths = lengths[:, 0].tolist()
        real = (torch.arange(steps) < lengths[:, :1]).unsqueeze(2).expand(scores.shape)
        super().__init__((scores, move_scores, offset), outputs, real, real)

    def contents(self, b: int, y: list[list[int]]) -> Iterator[tuple[int, tuple[int, ...]]]:  # type: ignore[override]
        yield 2, ()
        for t, row in enumerate(y[: self.lengths[b]]):
            for u, entered in enumerate(row):
                if entered:
                    yield 0, (t, u)
                if 0 < entered <= len(MOVES):
                    yield 1, (t, u, entered - 1)


Weights = tuple[Tensor, Tensor]  # scores of edges, offsets


def path_edges(count: int) -> list[list[int]]:
    """An odd number of edges of a graph: from each of its nodes to the next, and to the one behind that."""
    return [[e // 2, e // 2 + 1 + e % 2] for e in range(count)]


def random_weights(batch: int, edges: int, seed: int = 0, ties: bool = False, forbidden: float = 0.0) -> Weights:
    """Random scores of the edges of a graph."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    return scores(batch, edges), random_scores(generator, ties, 0.0)(batch)


@st.composite
def small_weights(draw: st.DrawFn, ties: bool | None = None) -> Weights:
    """Graphs of at most 13 edges; some examples allow no path."""
    return random_weights(
        draw(st.integers(1, 3)),
        draw(st.sampled_from(range(1, 15, 2))),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.1, 0.4])),
    )


def paths_of(edges: int) -> Tensor:
    """All paths from the first to the last node of :func:`path_edges`, [n, E]."""
    outputs = []

    def extend(used: list[int], node: int) -> None:
        if node == edges // 2 + 1:
            outputs.append([int(e in used) for e in range(edges)])
        for e, (start, end) in enumerate(path_edges(edges)):
            if start == node:
                extend([*used, e], end)

    extend([], 0)
    return torch.tensor(outputs)


class EnumeratedPaths(Counted):
    """The queries of ``Paths`` in :func:`path_edges`."""

    def __init__(self, weights: Tensor, offset: Tensor) -> None:
        everywhere = torch.ones(weights.shape, dtype=torch.bool)
        super().__init__((weights, offset), [paths_of(weights.shape[1])] * len(weights), everywhere, everywhere)

    def contents(self, b: int, y: list[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        yield 1, ()
        yield from ((0, (e,)) for e, taken in enumerate(y) if taken)


Items = tuple[Tensor, Tensor]  # scores of leaving and taking items, lengths
SIZE = (1, 2)  # of subsets


def random_items(
    batch: int,
    items: int,
    seed: int = 0,
    lengths: list[int] | None = None,
    ties: bool = False,
    forbidden: float = 0.0,
) -> Items:
    """Random scores of items."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    ends = torch.randint(1, items + 1, (batch,), generator=generator) if lengths is None else torch.tensor(lengths)
    return scores(batch, items, 2), ends


@st.composite
def small_items(draw: st.DrawFn, ties: bool | None = None) -> Items:
    """At most 5 items; some examples allow no subset."""
    return random_items(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.5])),
    )


class EnumeratedSubsets(Counted):
    """The queries of a ``Subset`` of 1 or 2 items."""

    def __init__(self, unary: Tensor, lengths: Tensor) -> None:
        items, self.lengths = unary.shape[1], lengths.tolist()
        y = all_labelings(items, 2)
        fits = (y.sum(1) >= SIZE[0]) & (y.sum(1) <= SIZE[1])
        outputs = [y[fits & (y[:, length:] == 0).all(1)] for length in self.lengths]
        super().__init__((unary,), outputs, torch.arange(items) < lengths[:, None])

    def contents(self, b: int, y: list[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        yield from ((0, (v, taken)) for v, taken in enumerate(y[: self.lengths[b]]))


# Unary scores, transitions, scores of arcs and of final states, lengths.
Acceptances = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def threes(states: int) -> Tensor:
    """An automaton that counts labels 1 up to three, and then from 0; after the first, it refuses the last label."""
    table = torch.arange(3).unsqueeze(1).repeat(1, states)
    if states > 1:
        table[:, 1] = torch.tensor([1, 2, 0])
        table[1, -1] = -1 if states > 2 else 2
    return table


def random_acceptances(
    batch: int,
    steps: int,
    states: int,
    form: str = FORMS[0],
    seed: int = 0,
    lengths: list[int] | None = None,
    ties: bool = False,
    forbidden: float = 0.0,
) -> Acceptances:
    """Chains and scores of :func:`threes`."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)
    shape = {"[S, S]": (), "[B, S, S]": (batch,), "[B, T-1, S, S]": (batch, steps - 1)}[form]
    own = shape[:1] if form == FORMS[1] else ()
    ends = torch.randint(1, steps + 1, (batch,), generator=generator) if lengths is None else torch.tensor(lengths)
    return (
        scores(batch, steps, states),
        scores(*shape, states, states),
        scores(*own, 3, states),
        scores(*own, 3),
        ends,
    )


@st.composite
def small_acceptances(draw: st.DrawFn, ties: bool | None = None, outputs: int = 300) -> Acceptances:
    """At most 5 positions, 4 labels and about ``outputs`` outputs; some examples allow no output at all."""
    sizes = [(t, s) for t, s in product(range(1, 6), range(1, 5)) if s**t <= outputs]
    return random_acceptances(
        draw(st.integers(5, 6)),  # never as many as labels
        *draw(st.sampled_from(sizes)),
        draw(st.sampled_from(FORMS)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.1, 0.3])),
    )


class EnumeratedAcceptances(Counted):
    """The queries of an ``Accepted`` with :func:`threes`."""

    def __init__(self, unary: Tensor, transition: Tensor, arcs: Tensor, final: Tensor, lengths: Tensor) -> None:
        batch, steps, states = unary.shape
        self.lengths, self.after = lengths.tolist(), threes(states).tolist()
        transition = transition.expand(batch, states, states) if transition.dim() == 2 else transition
        tables = unary, transition, arcs.expand(batch, 3, states), final.expand(batch, 3)
        outputs = []
        for length in self.lengths:
            y = all_labelings(length, states)
            kept = [self.walk(own) is not None for own in y.tolist()]
            outputs.append(torch.nn.functional.pad(y[torch.tensor(kept)], (0, steps - length)))
        super().__init__(tables, outputs, torch.arange(steps) < lengths[:, None])

    def walk(self, y: list[int]) -> list[int] | None:
        """The states before each label and behind the last one; none if some label cannot be read."""
        states = [0]
        for label in y:
            states.append(self.after[states[-1]][label])
            if states[-1] < 0:
                return None
        return states

    def contents(self, b: int, y: list[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        y = y[: self.lengths[b]]
        states = self.walk(y)
        assert states is not None
        yield from ((0, (t, label)) for t, label in enumerate(y))
        yield from ((2, (state, label)) for state, label in zip(states, y, strict=False))
        yield 3, (states[-1],)
        for t, pair in enumerate(pairwise(y)):
            yield 1, pair if self.tables[1].dim() == 3 else (t, *pair)


RankStates = tuple[Tensor, Tensor, Tensor, Tensor]  # unary scores, both factors, lengths
RANKS = 3


def random_rank_states(
    batch: int,
    steps: int,
    states: int,
    form: str = FORMS[0],
    seed: int = 0,
    lengths: list[int] | None = None,
    ties: bool = False,
    forbidden: float = 0.0,
) -> RankStates:
    """Chains with transitions of rank three."""
    generator = torch.Generator().manual_seed(seed)
    scores, own = random_scores(generator, ties, forbidden), (batch,) if form == FORMS[1] else ()
    ends = torch.randint(1, steps + 1, (batch,), generator=generator) if lengths is None else torch.tensor(lengths)
    factors = scores(*own, states, RANKS), scores(*own, RANKS, states)
    return scores(batch, steps, states), *factors, ends


@st.composite
def small_rank_states(draw: st.DrawFn, ties: bool | None = None, outputs: int = 300) -> RankStates:
    """At most 4 positions, 4 labels and about ``outputs`` outputs; some examples allow no output at all.

    Rank states at two boundaries between three equal labels may be exchanged: only shorter chains have no ties.
    """
    longest = 2 if ties is False else 4
    sizes = [(t, s) for t in range(1, longest + 1) for s in range(1, 5) if s**t * RANKS ** (t - 1) <= outputs]
    return random_rank_states(
        draw(st.integers(5, 6)),  # never as many as labels
        *draw(st.sampled_from(sizes)),
        draw(st.sampled_from(FORMS[:2])),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.1, 0.3])),
    )


class EnumeratedRankStates(Counted):
    """The queries of a ``LowRankChain``."""

    def __init__(self, unary: Tensor, left: Tensor, right: Tensor, lengths: Tensor) -> None:
        batch, steps, states = unary.shape
        self.lengths = lengths.tolist()
        tables = unary, left.expand(batch, states, RANKS), right.expand(batch, RANKS, states)
        outputs = []
        for length in self.lengths:
            choices = [range(RANKS if place % 2 else states) for place in range(2 * length - 1)]
            y = torch.tensor(list(product(*choices))).view(-1, 2 * length - 1)
            outputs.append(torch.nn.functional.pad(y, (0, 2 * (steps - length))))
        super().__init__(tables, outputs, torch.arange(steps) < lengths[:, None])

    def contents(self, b: int, y: list[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        y = y[: 2 * self.lengths[b] - 1]
        yield from ((0, (t, label)) for t, label in enumerate(y[::2]))
        yield from ((1, pair) for pair in zip(y[:-1:2], y[1::2], strict=True))
        yield from ((2, pair) for pair in zip(y[1::2], y[2::2], strict=True))
