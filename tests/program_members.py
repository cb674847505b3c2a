"""The structures whose outputs are the derivations of programs, for contract tests."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from enumerated_programs import (
    MOVES,
    PRODUCTIONS,
    SIZE,
    EnumeratedAcceptances,
    EnumeratedDependencies,
    EnumeratedGrammars,
    EnumeratedGridPaths,
    EnumeratedPaths,
    EnumeratedRankStates,
    EnumeratedSegmentations,
    EnumeratedSiblings,
    EnumeratedSpans,
    EnumeratedSubsets,
    path_edges,
    random_acceptances,
    random_dependencies,
    random_grammars,
    random_grids,
    random_items,
    random_rank_states,
    random_segmentations,
    random_siblings,
    random_spans,
    random_weights,
    small_acceptances,
    small_dependencies,
    small_grammars,
    small_grids,
    small_items,
    small_rank_states,
    small_segmentations,
    small_siblings,
    small_spans,
    small_weights,
    threes,
)
from enumeration import FORMS
from member import Index, Instance, Member
from torch import Tensor

from structsmooth import (
    Alignment,
    Constituents,
    LinearChain,
    Paths,
    ProjectiveTree,
    SemiMarkov,
    SpanningTree,
    Subset,
)
from structsmooth.factors import Automaton
from structsmooth.programs import PathGraph
from structsmooth.structures import Accepted, Grammar, LowRankChain, SiblingTree

BACKENDS = ("compiled", "torch")

# Of random instances, as in ``structure_members``.
SEGMENTS = {
    "single": (2, 1, 3, 3),
    "least": (2, 3, 3, 3),
    "tiny": (2, 4, 3, 3),
    "medium": (5, 7, 4, 3),
    "long": (4, 50, 9, 6),
    "large": (9, 50, 12, 8),
}
DEPENDENCIES = {
    "single": (3, 2, 2),
    "least": (2, 3, 2),
    "tiny": (2, 3, 2),
    "medium": (5, 6, 2),
    "long": (4, 16, 2),
    "large": (9, 16, 2),
}
GRIDS = {
    "single": (2, 1, 1),
    "least": (2, 3, 2),
    "tiny": (2, 4, 3),
    "medium": (5, 7, 6),
    "long": (4, 40, 30),
    "large": (9, 50, 40),
}
ACCEPTANCES = {
    "single": (2, 1, 3),
    "least": (2, 3, 3),
    "tiny": (2, 3, 3),
    "medium": (5, 7, 4),
    "long": (4, 50, 9),
    "large": (9, 50, 12),
}
EDGES = {"single": (2, 1), "least": (2, 5), "tiny": (2, 7), "medium": (5, 15), "long": (4, 99), "large": (9, 999)}
ITEMS = {"single": (2, 1), "least": (2, 3), "tiny": (2, 4), "medium": (5, 7), "long": (4, 50), "large": (9, 500)}


def cyclic(first: Tensor) -> Tensor:
    """Labels for scores [B, V, S]."""
    batch, variables, states = first.shape
    return torch.arange(batch * variables, device=first.device).view(batch, variables) * 7 % 5 % states


def segmentations(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [4, 2], "medium": [1, 6, 3, 5, 6]}.get(size)
    return random_segmentations(*SEGMENTS[size], FORMS[0], lengths=lengths, **options)


def used_by_segmentation(
    unary: Tensor, transition: Tensor, durations: Tensor, segments: Tensor, lengths: Tensor
) -> tuple[Tensor, ...]:
    inside = torch.arange(unary.shape[1]) < lengths[:, None]
    everywhere = torch.ones(transition.shape, dtype=torch.bool)
    ends = torch.arange(unary.shape[1])[:, None] + torch.arange(durations.shape[-2]) + 1
    return (
        inside[..., None],
        inside[:, 1:, None, None] if transition.dim() == 4 else everywhere,
        torch.ones(durations.shape, dtype=torch.bool),
        (ends <= lengths[:, None, None])[..., None],
    )


def segmentation_alone(
    b: int, unary: Tensor, transition: Tensor, durations: Tensor, segments: Tensor, lengths: Tensor
) -> tuple[Instance, tuple[Index, ...]]:
    n, row = int(lengths[b]), slice(b, b + 1)
    own = transition if transition.dim() == 2 else transition[row]
    own, boundaries = (own[:, : n - 1], slice(n - 1)) if transition.dim() == 4 else (own, ...)
    own_durations = durations if durations.dim() == 2 else durations[row]
    return (unary[row, :n], own, own_durations, segments[row, :n], lengths[row]), (slice(n), boundaries, ..., slice(n))


def semi_markov(backend: Any) -> Member:
    return Member(
        partial(SemiMarkov, backend=backend),
        EnumeratedSegmentations,
        3,
        segmentations,
        lambda ties, many=False: small_segmentations(ties=ties, outputs=400 if many else 100),
        cyclic,
        ordered=frozenset(),
        used=used_by_segmentation,
        alone=segmentation_alone,
        examples=20,
    )


def dependencies(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [3, 2], "medium": [5, 3, 6, 2, 4]}.get(size)
    return random_dependencies(*DEPENDENCIES[size], lengths=lengths, **options)


def each_after_the_last(arcs: Tensor) -> Tensor:
    """The first word is the root, and each other one hangs on the one before it, with one of two labels."""
    batch, words, _ = arcs.shape
    m = torch.arange(words, device=arcs.device)
    return torch.where(m > 0, 1 + 2 * (m - 1) + m % 2, 0).repeat(batch, 1)


def used_by_dependencies(arcs: Tensor, root: Tensor, labels: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    inside = torch.arange(arcs.shape[1]) < lengths[:, None]
    pairs = inside[:, :, None] & inside[:, None] & ~torch.eye(arcs.shape[1], dtype=torch.bool)
    return pairs, inside, pairs[..., None]


def dependencies_alone(
    b: int, arcs: Tensor, root: Tensor, labels: Tensor, lengths: Tensor
) -> tuple[Instance, tuple[Index, ...]]:
    row, own = slice(b, b + 1), slice(int(lengths[b]))
    pairs = (own, own)
    return (arcs[row, own, own], root[row, own], labels[row, own, own], lengths[row]), (pairs, own, pairs)


def projective_tree(backend: Any) -> Member:
    return Member(
        partial(ProjectiveTree, backend=backend),
        EnumeratedDependencies,
        4,
        dependencies,
        lambda ties, many=False: small_dependencies(3, ties=ties),
        each_after_the_last,
        ordered=frozenset(),
        block=(0,),
        used=used_by_dependencies,
        alone=dependencies_alone,
        examples=20,
    )


SPANNING_TREE = replace(
    projective_tree("auto"), build=SpanningTree, twin=partial(EnumeratedDependencies, projective=False)
)


def siblings(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [3, 2], "medium": [5, 3, 6, 2, 4]}.get(size)
    return random_siblings(*DEPENDENCIES[size], lengths=lengths, **options)


def used_by_siblings(
    arcs: Tensor, root: Tensor, siblings: Tensor, labels: Tensor, lengths: Tensor
) -> tuple[Tensor, ...]:
    pairs, inside, labelled = used_by_dependencies(arcs, root, labels, lengths)
    h, s, m = torch.meshgrid(*[torch.arange(arcs.shape[1])] * 3, indexing="ij")
    between = ((h <= s) & (s < m)) | ((m < s) & (s <= h))
    return pairs, inside, pairs[:, :, None] & between, labelled


def siblings_alone(
    b: int, arcs: Tensor, root: Tensor, siblings: Tensor, labels: Tensor, lengths: Tensor
) -> tuple[Instance, tuple[Index, ...]]:
    (own_arcs, own_root, *rest), (pairs, own, _) = dependencies_alone(b, arcs, root, labels, lengths)
    return (own_arcs, own_root, siblings[b : b + 1, own, own, own], *rest), (pairs, own, (own,) * 3, pairs)


def sibling_tree_of(
    arcs: Tensor,
    root: Tensor,
    siblings: Tensor,
    labels: Tensor | None = None,
    lengths: Tensor | None = None,
    **options: Any,
) -> SiblingTree:
    return SiblingTree(arcs, siblings, root, lengths, labels=labels, **options)


def sibling_tree(backend: Any) -> Member:
    return replace(
        projective_tree(backend),
        build=partial(sibling_tree_of, backend=backend),
        twin=EnumeratedSiblings,
        required=5,
        random=siblings,
        small=lambda ties, many=False: small_siblings(3, ties=ties),
        used=used_by_siblings,
        alone=siblings_alone,
        examples=10,
    )


def spans(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [3, 2], "medium": [5, 3, 6, 2, 4]}.get(size)
    return random_spans(*DEPENDENCIES[size], lengths=lengths, **options)


def binary_tree(spans: Tensor, offset: Tensor, lengths: Tensor | None = None, **options: Any) -> Constituents:
    return Constituents(spans, lengths, offset=offset, binary=True, **options)


def beginnings(scores: Tensor) -> Tensor:
    """The tree whose constituents are single words and beginnings of the sentence."""
    batch, words, _, labels = scores.shape
    i, j = torch.arange(words, device=scores.device)[:, None], torch.arange(words, device=scores.device)
    return torch.where((i == 0) | (i == j), (i + j) % labels, -1).repeat(batch, 1, 1)


def used_by_spans(scores: Tensor, offset: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    inside = torch.arange(scores.shape[1]) < lengths[:, None]
    return (inside[:, :, None] & inside[:, None]).triu()[..., None], torch.ones_like(offset, dtype=torch.bool)


def spans_alone(b: int, scores: Tensor, offset: Tensor, lengths: Tensor) -> tuple[Instance, tuple[Index, ...]]:
    row, own = slice(b, b + 1), slice(int(lengths[b]))
    return (scores[row, own, own], offset[row], lengths[row]), ((own, own), ...)


def constituents(backend: Any) -> Member:
    return Member(
        partial(binary_tree, backend=backend),
        EnumeratedSpans,
        3,
        spans,
        lambda ties, many=False: small_spans(3, ties=ties),
        beginnings,
        ordered=frozenset(),
        block=(0,),
        used=used_by_spans,
        alone=spans_alone,
        examples=20,
    )


def grammars(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [3, 2], "medium": [5, 3, 6, 2, 4]}.get(size)
    return random_grammars(*DEPENDENCIES[size][:2], lengths=lengths, **options)


def grammar_of(
    lexical: Tensor,
    rules: Tensor,
    start: Tensor,
    spans: Tensor | None = None,
    lengths: Tensor | None = None,
    **options: Any,
) -> Grammar:
    return Grammar(rules, lexical, start, lengths, spans=spans, productions=PRODUCTIONS, **options)


def to_the_left(lexical: Tensor) -> Tensor:
    """The tree whose constituents are single words and beginnings of the sentence: 3 → 3 2, 3 → 2 and 2 → 0."""
    batch, words, _ = lexical.shape
    i, j = torch.arange(words, device=lexical.device)[:, None], torch.arange(words, device=lexical.device)
    y = torch.full((words, words, PRODUCTIONS.chain), -1, device=lexical.device)
    y[..., 0] = torch.where(i == 0, 3, torch.where(i == j, 2, -1))
    y[..., 1] = torch.where(i == j, torch.where(i == 0, 2, 0), -1)
    y[..., 2] = torch.where((i == j) & (i == 0), 0, -1)
    return y.repeat(batch, 1, 1, 1)


def used_by_grammar(
    lexical: Tensor, rules: Tensor, start: Tensor, spans: Tensor, lengths: Tensor
) -> tuple[Tensor, ...]:
    inside = torch.arange(lexical.shape[1]) < lengths[:, None]
    pairs = (inside[:, :, None] & inside[:, None]).triu()
    everywhere = [torch.ones_like(scores, dtype=torch.bool) for scores in (rules, start)]
    return inside[..., None], *everywhere, pairs[..., None]


def grammar_alone(
    b: int, lexical: Tensor, rules: Tensor, start: Tensor, spans: Tensor, lengths: Tensor
) -> tuple[Instance, tuple[Index, ...]]:
    row, own = slice(b, b + 1), slice(int(lengths[b]))
    return (lexical[row, own], rules[row], start[row], spans[row, own, own], lengths[row]), (own, ..., ..., (own, own))


def grammar(backend: Any) -> Member:
    return Member(
        partial(grammar_of, backend=backend),
        EnumeratedGrammars,
        5,
        grammars,
        lambda ties, many=False: small_grammars(3, ties=ties),
        to_the_left,
        ordered=frozenset(),
        block=(0,),
        used=used_by_grammar,
        alone=grammar_alone,
        examples=10,
    )


def grids(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [4, 2], "medium": [5, 3, 6, 2, 4]}.get(size)
    return random_grids(*GRIDS[size], lengths=lengths, **options)


def aligned(
    scores: Tensor,
    move_scores: Tensor | None = None,
    offset: Tensor | None = None,
    lengths: Tensor | None = None,
    **options: Any,
) -> Alignment:
    return Alignment(scores, MOVES, move_scores, lengths, offset=offset, **options)


def along_the_border(scores: Tensor) -> Tensor:
    """The first row, then the last column: a path for every length of the first sequence."""
    _, steps, width = scores.shape
    t, u = torch.arange(steps, device=scores.device)[:, None], torch.arange(width, device=scores.device)
    y = torch.where(t == 0, 2, torch.where(u == width - 1, 1, 0))
    return torch.where((t == 0) & (u == 0), len(MOVES) + 1, y).repeat(len(scores), 1, 1)


def used_by_grid(scores: Tensor, move_scores: Tensor, offset: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    cells = (torch.arange(scores.shape[1]) < lengths[:, :1])[:, :, None]
    return cells, cells[..., None], torch.ones_like(offset, dtype=torch.bool)


def grid_alone(
    b: int, scores: Tensor, move_scores: Tensor, offset: Tensor, lengths: Tensor
) -> tuple[Instance, tuple[Index, ...]]:
    row, own = slice(b, b + 1), slice(int(lengths[b, 0]))
    return (scores[row, own], move_scores[row, own], offset[row], lengths[row]), (own, own, ...)


def alignment(backend: Any) -> Member:
    return Member(
        partial(aligned, backend=backend),
        EnumeratedGridPaths,
        1,
        grids,
        lambda ties, many=False: small_grids(ties=ties),
        along_the_border,
        ordered=frozenset(),
        block=(0,),
        used=used_by_grid,
        alone=grid_alone,
        examples=20,
    )


GRAPHS = {edges: PathGraph(path_edges(edges), 0, edges // 2 + 1) for edges in (*range(1, 16, 2), 99, 999)}


def paths_in(weights: Tensor, offset: Tensor | None = None, **options: Any) -> Paths:
    edges = weights.shape[-1] if isinstance(weights, Tensor) and weights.dim() else 1
    return Paths(weights, GRAPHS.get(edges, GRAPHS[1]), offset=offset, **options)


def every_node(weights: Tensor) -> Tensor:
    """The path by all nodes."""
    e = torch.arange(weights.shape[1], device=weights.device)
    return (1 - e % 2).repeat(len(weights), 1)


def paths(backend: Any) -> Member:
    return Member(
        partial(paths_in, backend=backend),
        EnumeratedPaths,
        1,
        lambda size, **options: random_weights(*EDGES[size], **options),
        lambda ties, many=False: small_weights(ties=ties),
        every_node,
        ordered=frozenset(),
        block=(0,),
        used=lambda weights, offset: (torch.ones(1, 1, dtype=torch.bool), torch.ones(1, dtype=torch.bool)),
        examples=20,
    )


def items(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [4, 2], "medium": [6, 3, 5, 2, 4]}.get(size)
    return random_items(*ITEMS[size], lengths=lengths, **options)


def one_or_two(unary: Tensor, lengths: Tensor | None = None, **options: Any) -> Subset:
    return Subset(unary, SIZE, lengths, **options)


def first_item(unary: Tensor) -> Tensor:
    return (torch.arange(unary.shape[1], device=unary.device) == 0).long().repeat(len(unary), 1)


def subset(backend: Any) -> Member:
    return Member(
        partial(one_or_two, backend=backend),
        EnumeratedSubsets,
        1,
        items,
        lambda ties, many=False: small_items(ties=ties),
        first_item,
        ordered=frozenset(),
        block=(0,),
        used=lambda unary, lengths: ((torch.arange(unary.shape[1]) < lengths[:, None])[..., None],),
        alone=lambda b, unary, lengths: (
            (unary[b : b + 1, : lengths[b]], lengths[b : b + 1]),
            (slice(int(lengths[b])),),
        ),
        examples=20,
    )


def acceptances(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [3, 2], "medium": [1, 6, 3, 5, 6]}.get(size)
    return random_acceptances(*ACCEPTANCES[size], FORMS[0], lengths=lengths, **options)


THREES = {
    states: Automaton(torch.zeros(0, dtype=torch.int64), threes(states), torch.zeros(3)) for states in range(1, 13)
}


def accepted(
    unary: Tensor,
    transition: Tensor,
    arcs: Tensor,
    final: Tensor,
    lengths: Tensor | None = None,
    **options: Any,
) -> Accepted:
    chain = LinearChain(unary, transition, lengths, **options)
    return Accepted(chain, THREES[unary.shape[-1]]).replace(unary, transition, arcs, final)


def zeros(unary: Tensor) -> Tensor:
    """Labels that the first state reads, over and over."""
    return torch.zeros(unary.shape[:2], dtype=torch.int64, device=unary.device)


def used_by_acceptance(
    unary: Tensor, transition: Tensor, arcs: Tensor, final: Tensor, lengths: Tensor
) -> tuple[Tensor, ...]:
    inside = torch.arange(unary.shape[1]) < lengths[:, None]
    everywhere = [torch.ones(scores.shape, dtype=torch.bool) for scores in (transition, arcs, final)]
    return inside[..., None], *everywhere


def acceptance_alone(
    b: int, unary: Tensor, transition: Tensor, arcs: Tensor, final: Tensor, lengths: Tensor
) -> tuple[Instance, tuple[Index, ...]]:
    n, row = int(lengths[b]), slice(b, b + 1)
    own = [scores if scores.dim() == dims else scores[row] for scores, dims in ((transition, 2), (arcs, 2), (final, 1))]
    own[0], boundaries = (own[0][:, : n - 1], slice(n - 1)) if transition.dim() == 4 else (own[0], ...)
    return (unary[row, :n], *own, lengths[row]), (slice(n), boundaries, ..., ...)


def acceptance(backend: Any) -> Member:
    return Member(
        partial(accepted, backend=backend),
        EnumeratedAcceptances,
        4,
        acceptances,
        lambda ties, many=False: small_acceptances(ties=ties, outputs=300 if many else 100),
        zeros,
        ordered=frozenset(),
        used=used_by_acceptance,
        alone=acceptance_alone,
        examples=20,
    )


def rank_states(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [3, 2], "medium": [1, 6, 3, 5, 6]}.get(size)
    return random_rank_states(*ACCEPTANCES[size], FORMS[0], lengths=lengths, **options)


def rank_states_alone(
    b: int, unary: Tensor, left: Tensor, right: Tensor, lengths: Tensor
) -> tuple[Instance, tuple[Index, ...]]:
    n, row = int(lengths[b]), slice(b, b + 1)
    factors = (scores if scores.dim() == 2 else scores[row] for scores in (left, right))
    return (unary[row, :n], *factors, lengths[row]), (slice(n), ..., ...)


def used_by_rank_states(unary: Tensor, left: Tensor, right: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    inside = torch.arange(unary.shape[1]) < lengths[:, None]
    return inside[..., None], *(torch.ones(scores.shape, dtype=torch.bool) for scores in (left, right))


def low_rank_chain(backend: Any) -> Member:
    return Member(
        partial(LowRankChain, backend=backend),
        EnumeratedRankStates,
        3,
        rank_states,
        lambda ties, many=False: small_rank_states(ties=ties, outputs=300 if many else 100),
        lambda unary: unary.new_zeros(len(unary), 2 * unary.shape[1] - 1, dtype=torch.int64),
        ordered=frozenset(),
        used=used_by_rank_states,
        alone=rank_states_alone,
        examples=20,
    )


PROGRAMS = {
    **{f"LowRankChain {backend}": low_rank_chain(backend) for backend in BACKENDS},
    **{f"Accepted {backend}": acceptance(backend) for backend in BACKENDS},
    **{f"SemiMarkov {backend}": semi_markov(backend) for backend in BACKENDS},
    **{f"ProjectiveTree {backend}": projective_tree(backend) for backend in BACKENDS},
    "SpanningTree": SPANNING_TREE,
    **{f"SiblingTree {backend}": sibling_tree(backend) for backend in BACKENDS},
    **{f"Constituents {backend}": constituents(backend) for backend in BACKENDS},
    **{f"Grammar {backend}": grammar(backend) for backend in BACKENDS},
    **{f"Alignment {backend}": alignment(backend) for backend in BACKENDS},
    **{f"Paths {backend}": paths(backend) for backend in BACKENDS},
    **{f"Subset {backend}": subset(backend) for backend in BACKENDS},
}
