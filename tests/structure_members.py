"""Every structure of the library, with random instances and its enumeration: what contract tests run over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from enumerated_factor_graphs import (
    EnumeratedFactorGraph,
    EnumeratedFactorGraphWithFactors,
    factor_graph,
    factor_graph_with_factors,
    final_states,
    random_factor_graphs,
    small_factor_graphs,
    small_factor_graphs_with_factors,
    with_random_factors,
)
from enumeration import (
    FORMS,
    EnumeratedBoxes,
    EnumeratedCandidates,
    EnumeratedCapacities,
    EnumeratedChain,
    EnumeratedGraph,
    EnumeratedLabels,
    EnumeratedMatching,
    EnumeratedPlacements,
    EnumeratedTree,
    EnumeratedUnmatched,
    random_candidates,
    random_capacities,
    random_chains,
    random_graphs,
    random_matchings,
    random_placements,
    random_scores,
    random_trees,
    random_unmatched,
    rest_positions,
    small_candidates,
    small_capacities,
    small_chains,
    small_graphs,
    small_labels,
    small_maps,
    small_matchings,
    small_placements,
    small_trees,
    small_unmatched,
)
from hypothesis import settings
from hypothesis import strategies as st
from member import Index, Instance, Member
from oracles import ORACLES
from plain_subwindows import PlainSubwindows
from program_members import PROGRAMS, cyclic
from torch import Tensor

from structsmooth import (
    BinaryGraph,
    Candidates,
    DeformableTree,
    HiddenMarkov,
    LinearChain,
    Matching,
    OneMinusIoU,
    Subwindows,
    Tree,
)
from structsmooth.structures import BoxCandidates, SearchSpace
from structsmooth.structures.base import widened

# Of random instances: "single" variables, "least" and "tiny" for numerical derivatives, "medium", "long" for rounding
# errors to add up, "large" enough for two threads.
SIZES: dict[str, dict[str, Any]] = {
    "chain": {
        "single": (2, 1, 3),
        "least": (2, 3, 2),
        "tiny": (2, 3, 3),
        "medium": (5, 7, 4),
        "long": (4, 50, 9),
        "large": (9, 50, 22),
    },
    "tree": {
        "single": (2, 1, 3),
        "least": (2, 3, 2),
        "tiny": (2, 4, 3),
        "medium": (5, 7, 4),
        "long": (4, 50, 9),
        "large": (9, 50, 22),
    },
    "list": {"single": (2, 1), "least": (3, 5), "tiny": (3, 5), "medium": (4, 6), "long": (4, 200)},
    "graph": {
        "single": (2, 1, 0),
        "tiny": (2, 5, 6),
        "medium": (3, 20, 30),
        "long": (2, 40, 100),
        "large": (9, 100, 150),
    },
    "factor graph": {
        "single": (2, 1, 0, 3),
        "least": (2, 3, 1, 2),
        "tiny": (2, 4, 2, 3),
        "medium": (5, 7, 4, 4),
        "long": (4, 50, 4, 4),
        "large": (9, 50, 6, 5),
    },
    "factors": {
        "single": (2, 1, 0, 3),
        "least": (2, 3, 1, 2),
        "tiny": (2, 3, 1, 3),
        "medium": (5, 6, 2, 3),
        "long": (4, 50, 1, 3),
        "large": (9, 30, 1, 3),
    },
    "matching": {
        "single": [(1, 1), (1, 1)],
        "tiny": [(3, 5), (2, 4)],
        "medium": [(12, 12), (9, 15), (12, 15), (1, 7)],
        "long": [(30, 30), (30, 40)],
        "large": [(30, 30 + 2 * b) for b in range(9)],
    },
    "placements": {
        "single": (2, 1, 2, 3),
        "tiny": (2, 3, 2, 2),
        "medium": (5, 4, 4, 3),
        "long": (4, 14, 12, 10),
        "large": (9, 6, 20, 24),
    },
    "map": {"single": (2, 1, 1), "tiny": (2, 3, 4), "medium": (4, 12, 15), "long": (2, 20, 30), "large": (9, 50, 60)},
    "bits": {"single": (2, 1, 2), "tiny": (2, 3, 2), "medium": (4, 5, 2)},
}


def diagonal(weights: Tensor) -> Tensor:
    """Partners, which matchings of all sizes have."""
    batch, size, _ = weights.shape
    return torch.arange(size, device=weights.device).expand(batch, size)


def some_indices(scores: Tensor) -> Tensor:
    """Candidates."""
    return torch.arange(len(scores), device=scores.device) * 7 % 5 % scores.shape[1]


def some_boxes(scores: Tensor) -> Tensor:
    """Boxes of maps."""
    batch, height, width = scores.shape
    b = torch.arange(batch, device=scores.device)
    x1, y1 = b % width, b * 3 % height
    return torch.stack([x1, y1, x1 + 1 + b % (width - x1), y1 + 1 + b % (height - y1)], 1)


# Chains.


def chains(size: str, form: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [3, 2], "medium": [1, 6, 2, 5, 6]}.get(size)
    return random_chains(*SIZES["chain"][size], form, lengths=lengths, **options)


def used_by_chain(unary: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    inside = torch.arange(unary.shape[1]) < lengths[:, None]
    everywhere = torch.ones(transition.shape, dtype=torch.bool)
    return inside[..., None], inside[:, 1:, None, None] if transition.dim() == 4 else everywhere


def chain_alone(b: int, unary: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Instance, tuple[Index, ...]]:
    n = int(lengths[b])
    own = transition if transition.dim() == 2 else transition[b : b + 1]
    own = own[:, : n - 1] if transition.dim() == 4 else own
    return (unary[b : b + 1, :n], own, lengths[b : b + 1]), (slice(n), slice(n - 1))


def chain(form: str, backend: Any) -> Member:
    return Member(
        partial(LinearChain, backend=backend),
        EnumeratedChain,
        2,
        partial(chains, form=form),
        lambda ties, many=False: small_chains(ties=ties),
        cyclic,
        used=used_by_chain,
        alone=chain_alone,
    )


def hidden_markov(emission: Tensor, transition: Tensor, lengths: Tensor | None = None, **options: Any) -> HiddenMarkov:
    start = torch.zeros(emission.shape[-1:], dtype=emission.dtype, device=emission.device)
    return HiddenMarkov(start, transition, emission, lengths=lengths, **options)


# Trees.


def trees(size: str, seed: int = 0, **options: Any) -> Instance:
    return random_trees(*SIZES["tree"][size], seed=seed + 2, **options)


def used_by_tree(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    return mask[..., None], (mask & (parents >= 0))[..., None, None]


def tree_alone(
    b: int, unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor
) -> tuple[Instance, tuple[Index, ...]]:
    own = mask[b].nonzero().squeeze(1)
    position = torch.full(mask[b].shape, -1).scatter(0, own, torch.arange(len(own)))
    own_parents = torch.where(parents[b, own] >= 0, position[parents[b, own].clamp_min(0)], -1)
    return (unary[b, own][None], pairwise[b, own][None], own_parents[None], mask[b, own][None]), (own, own)


def trees_to_enumerate(ties: bool | None, many: bool = False) -> st.SearchStrategy[Instance]:
    """Ties among many outputs would take long to put in order."""
    without, tied = small_trees(outputs=4**8 if many else 1000, ties=False), small_trees(outputs=300, ties=True)
    return {None: st.one_of(without, tied), False: without, True: tied}[ties]


def tree(backend: Any) -> Member:
    return Member(
        partial(Tree, backend=backend),
        EnumeratedTree,
        4,
        trees,
        trees_to_enumerate,
        cyclic,
        used=used_by_tree,
        alone=tree_alone,
        examples=settings.default.max_examples * 4 // (1 if backend == "compiled" else 5),
    )


# Deformable trees.


def placements(size: str, seed: int = 0, **options: Any) -> Instance:
    return random_placements(*SIZES["placements"][size], seed=seed + 3, **options)


def deformable_tree(unary: Tensor, deformation: Tensor, parents: Tensor, **options: Any) -> DeformableTree:
    anchors = rest_positions(len(parents)).to(parents.device)
    return DeformableTree(unary, deformation, parents, anchors, **options)


def some_positions(unary: Tensor) -> Tensor:
    return cyclic(unary.flatten(2))


def used_by_placements(unary: Tensor, deformation: Tensor, parents: Tensor) -> tuple[Tensor, ...]:
    return torch.ones_like(unary, dtype=torch.bool), (parents >= 0).view(1, -1, 1)


PLACEMENTS = Member(
    deformable_tree,
    EnumeratedPlacements,
    3,
    placements,
    lambda ties, many=False: small_placements(outputs=1000 if many else 300, ties=ties),
    some_positions,
    oracles=frozenset({"max", "topk", "max_marginals", "score"}),
    ordered=frozenset(),
    used=used_by_placements,
    examples=25,
)


# One of a list.


def lists(size: str, **options: Any) -> Instance:
    return random_candidates(*SIZES["list"][size], **options | ({"masked": 0.0} if size == "single" else {}))


def list_alone(b: int, scores: Tensor, mask: Tensor) -> tuple[Instance, tuple[Index, ...]]:
    return (scores[b, mask[b]][None], mask[b, mask[b]][None]), (mask[b],)


def boxes_on_a_grid(batch: int, count: int, seed: int = 0) -> Tensor:
    """Edges on a grid, so that overlaps can be counted cell by cell; some boxes have no area."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.randint(0, 6, (batch, count, 2), generator=generator)
    return torch.cat([corners, corners + torch.randint(0, 4, corners.shape, generator=generator)], -1).float()


BOXES = boxes_on_a_grid(4, 200) + torch.tensor([0, 0, 1, 1])  # with an area


def box_candidates(scores: Tensor, mask: Tensor | None = None, **options: Any) -> BoxCandidates:
    batch, count = scores.shape
    return BoxCandidates(scores, BOXES[:batch, :count].to(scores.device), mask, **options)


CANDIDATES = Member(
    Candidates,
    EnumeratedCandidates,
    1,
    lists,
    lambda ties, many=False: small_candidates(ties=ties),
    some_indices,
    block=(0,),
    used=lambda scores, mask: (mask,),
    alone=list_alone,
)


# Graph cuts.


def graphs(size: str, seed: int = 0, **options: Any) -> Instance:
    return random_graphs(*SIZES["graph"][size], seed=seed + 1, **options)


GRAPH = Member(
    BinaryGraph,
    EnumeratedGraph,
    3,
    graphs,
    lambda ties, many=False: small_graphs(ties=ties),
    cyclic,
    oracles=frozenset({"max", "topk", "max_marginals", "score"}),
    ordered=frozenset({"max"}),
)


# Factor graphs.


def factor_graphs(size: str, seed: int = 0, **options: Any) -> Instance:
    return random_factor_graphs(*SIZES["factor graph"][size], seed=seed + 2, **options)


def used_by_factor_graph(
    unary: Tensor, edges: Tensor, pairwise: Tensor, node_mask: Tensor, edge_mask: Tensor
) -> tuple[Tensor, ...]:
    return node_mask[..., None], edge_mask[..., None, None]


def factor_graph_alone(
    b: int, unary: Tensor, edges: Tensor, pairwise: Tensor, node_mask: Tensor, edge_mask: Tensor
) -> tuple[Instance, tuple[Index, ...]]:
    nodes, kept = node_mask[b].nonzero().squeeze(1), edge_mask[b].nonzero().squeeze(1)
    position = torch.full(node_mask[b].shape, -1).scatter(0, nodes, torch.arange(len(nodes)))
    own = (unary[b, nodes], position[edges[b, kept]], pairwise[b, kept], node_mask[b, nodes], edge_mask[b, kept])
    return tuple(tensor[None] for tensor in own), (nodes, kept)


FACTOR_GRAPH = Member(
    factor_graph,
    EnumeratedFactorGraph,
    5,
    factor_graphs,
    lambda ties, many=False: small_factor_graphs(outputs=4**6 if many else 700, ties=ties),
    cyclic,
    ordered=frozenset(),
    used=used_by_factor_graph,
    alone=factor_graph_alone,
)


def factor_graphs_with_factors(size: str, seed: int = 0, **options: Any) -> Instance:
    graphs = random_factor_graphs(*SIZES["factors"][size], seed=seed + 7, **options)
    return with_random_factors(graphs, 3, min(3, graphs[0].shape[1]), seed + 7, **options)


def used_by_factors(*instance: Tensor) -> tuple[Tensor, ...]:
    *graph, factors, scopes, transitions = instance
    used = torch.zeros(factors.shape, dtype=torch.bool)
    for b, own in enumerate(graph[3]):
        some = torch.randint(graph[0].shape[2], (500, len(own)), generator=torch.Generator().manual_seed(0))
        states = final_states(scopes[b], transitions, some)
        for f in (states[0] >= 0).nonzero()[:, 0]:
            used[b, f, states[:, f]] = True
    return *used_by_factor_graph(*graph), used


def factors_alone(b: int, *instance: Tensor) -> tuple[Instance, tuple[Index, ...]]:
    *graph, factors, scopes, transitions = instance
    own, indices = factor_graph_alone(b, *graph)
    position = torch.full(graph[3][b].shape, -1).scatter(0, indices[0], torch.arange(len(indices[0])))
    own_scopes = torch.where(scopes[b] >= 0, position[scopes[b].clamp_min(0)], -1)
    return (*own, factors[b : b + 1], own_scopes[None], transitions), (*indices, ...)


FACTORS = replace(
    FACTOR_GRAPH,
    build=factor_graph_with_factors,
    twin=EnumeratedFactorGraphWithFactors,
    required=8,
    random=factor_graphs_with_factors,
    small=lambda ties, many=False: small_factor_graphs_with_factors(outputs=729 if many else 100, ties=ties),
    used=used_by_factors,
    alone=factors_alone,
    examples=15,
)


# Matchings.


def matchings(size: str, seed: int = 0, **options: Any) -> Instance:
    return random_matchings(SIZES["matching"][size], seed=seed + 1, **options)


def matching_alone(b: int, weights: Tensor, sizes: Tensor) -> tuple[Instance, tuple[Index, ...]]:
    n, m = sizes[b].tolist()
    return (weights[b : b + 1, :n, :m], sizes[b : b + 1]), ((slice(n), slice(m)),)


def used_by_matching(weights: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
    inside = [torch.arange(count) < sizes[:, i : i + 1] for i, count in enumerate(weights.shape[1:])]
    return (inside[0][:, :, None] & inside[1][:, None],)


MATCHING = Member(
    Matching,
    EnumeratedMatching,
    1,
    matchings,
    lambda ties, many=False: small_matchings(ties=ties),
    diagonal,
    oracles=GRAPH.oracles,
    ordered=frozenset(),
    used=used_by_matching,
    alone=matching_alone,
)


def unmatched(size: str, seed: int = 0, **options: Any) -> Instance:
    """The first row of the first of medium ones must have a partner, so that it can be left without an output."""
    instance = random_unmatched([size[::-1] for size in SIZES["matching"][size]], seed=seed + 1, **options)
    if size == "medium":
        instance[2][0, 0] = -torch.inf
    return instance


def matching_with_unmatched(
    weights: Tensor, sizes: Tensor, rows: Tensor | None = None, columns: Tensor | None = None, **options: Any
) -> Matching:
    return Matching(weights, sizes, unmatched_rows=rows, unmatched_columns=columns, **options)


def one_pair(weights: Tensor) -> Tensor:
    """The first row with the first column, and nobody else."""
    return torch.where(torch.arange(weights.shape[1], device=weights.device) > 0, -1, 0).repeat(len(weights), 1)


def unmatched_alone(b: int, *instance: Tensor) -> tuple[Instance, tuple[Index, ...]]:
    (weights, sizes), (pairs,) = matching_alone(b, *instance[:2])
    alone = (scores[b : b + 1, own] for scores, own in zip(instance[2:], pairs, strict=True))
    return (weights, sizes, *alone), (pairs, *pairs)


def used_by_unmatched(*instance: Tensor) -> tuple[Tensor, ...]:
    (pairs,) = used_by_matching(*instance[:2])
    return pairs, pairs.any(2), pairs.any(1)


UNMATCHED = replace(
    MATCHING,
    build=matching_with_unmatched,
    twin=EnumeratedUnmatched,
    required=4,
    random=unmatched,
    small=lambda ties, many=False: small_unmatched(ties=ties),
    labels=one_pair,
    used=used_by_unmatched,
    alone=unmatched_alone,
)


def capacities(size: str, seed: int = 0, **options: Any) -> Instance:
    """The first row of the first of medium ones must have all its partners."""
    instance = random_capacities(SIZES["matching"][size], seed=seed + 1, **options)
    if size == "medium":
        instance[2][0, 0] = -torch.inf
    return instance


def matching_with_capacities(
    weights: Tensor,
    sizes: Tensor,
    alone: Tensor | None = None,
    rows: Tensor | int = 2,
    columns: Tensor | int = 2,
    **options: Any,
) -> Matching:
    return Matching(weights, sizes, unmatched_rows=alone, row_capacities=rows, column_capacities=columns, **options)


def first_pair(weights: Tensor) -> Tensor:
    """The first row with the first column, and nobody else."""
    y = torch.zeros(weights.shape, dtype=torch.int64, device=weights.device)
    y[:, 0, 0] = 1
    return y


def capacities_alone(b: int, *instance: Tensor) -> tuple[Instance, tuple[Index, ...]]:
    (weights, sizes), (pairs,) = matching_alone(b, *instance[:2])
    alone, rows, columns = (own[b : b + 1, index] for own, index in zip(instance[2:], (pairs[0], *pairs), strict=True))
    return (weights, sizes, alone, rows, columns), (pairs, pairs[:1])


def used_by_capacities(*instance: Tensor) -> tuple[Tensor, ...]:
    (pairs,) = used_by_matching(*instance[:2])
    return pairs, pairs.any(2)


CAPACITIES = replace(
    UNMATCHED,
    build=matching_with_capacities,
    twin=EnumeratedCapacities,
    required=5,
    random=capacities,
    small=lambda ties, many=False: small_capacities(ties=ties),
    labels=first_pair,
    used=used_by_capacities,
    alone=capacities_alone,
)


# Search spaces.


def maps(size: str, seed: int = 0, ties: bool = False, forbidden: float = 0.0) -> Instance:
    return (random_scores(torch.Generator().manual_seed(seed), ties, forbidden)(*SIZES["map"][size]),)


SUBWINDOWS = Member(
    Subwindows,
    EnumeratedBoxes,
    1,
    maps,
    lambda ties, many=False: small_maps(ties=ties),
    some_boxes,
    cost=lambda structure, y: 1 - structure.parts(y)[0],
    oracles=frozenset({"max", "topk", "score"}),
    block=(0,),
)

Prefix = tuple[int, tuple[int, ...]]  # an example, and its first labels


class Bits(SearchSpace[Prefix]):
    """Labels 0 and 1 with unary scores [B, D, 2]; a set of outputs is given by its first labels.

    The bound of a set is raised by ``slack`` for each label that is open: it is loose then, but right.
    """

    labels_are_classes = True
    potential_names = ("unary",)
    field_names = ("slack", "bounds")

    def __init__(self, unary: Tensor, slack: float = 0.0, **options: Any) -> None:
        self.unary, self.slack = unary, slack
        super().__init__(**options)
        self.bounds = 0

    def score(self, y: Tensor) -> Tensor:
        return widened(self.unary).gather(2, y.unsqueeze(-1)).sum((1, 2))

    def parts(self, y: Tensor) -> tuple[Tensor]:
        return (torch.nn.functional.one_hot(y, 2).to(widened(self.unary).dtype),)

    def initial(self, example: int) -> Prefix:
        return example, ()

    def split(self, subset: Prefix) -> tuple[Prefix, Prefix]:
        example, labels = subset
        return (example, (*labels, 0)), (example, (*labels, 1))

    def upper_bound(self, subset: Prefix) -> float:
        self.bounds += 1
        example, labels = subset
        decided = sum(float(self.unary[example, d, label]) for d, label in enumerate(labels))
        rest = self.unary[example, len(labels) :]
        return decided + float(rest.amax(1).sum()) + self.slack * len(rest)

    def is_singleton(self, subset: Prefix) -> bool:
        return len(subset[1]) == self.unary.shape[1]

    def lowest(self, subset: Prefix) -> tuple[int, ...]:
        return subset[1] + (0,) * (self.unary.shape[1] - len(subset[1]))


def bits(size: str, seed: int = 0, ties: bool = False, forbidden: float = 0.0) -> Instance:
    return (random_scores(torch.Generator().manual_seed(seed), ties, forbidden)(*SIZES["bits"][size]),)


SEARCH = Member(
    Bits,
    EnumeratedLabels,
    1,
    bits,
    lambda ties, many=False: small_labels(ties=ties),
    cyclic,
    oracles=SUBWINDOWS.oracles,
)

MEMBERS = {
    **{f"LinearChain {form} {backend}": chain(form, backend) for backend in ("compiled", "torch") for form in FORMS},
    "HiddenMarkov": replace(chain(FORMS[0], "auto"), build=hidden_markov),
    **{f"Tree {backend}": tree(backend) for backend in ("compiled", "torch")},
    "DeformableTree": PLACEMENTS,
    "Candidates": CANDIDATES,
    "BoxCandidates": replace(CANDIDATES, build=box_candidates, cost=OneMinusIoU()),
    "BinaryGraph": GRAPH,
    "FactorGraph": FACTOR_GRAPH,
    "FactorGraph by search": replace(
        FACTOR_GRAPH, build=partial(factor_graph, max_table=1), oracles=frozenset({"max", "topk", "score"}), examples=20
    ),
    "FactorGraph with factors": FACTORS,
    "Matching": MATCHING,
    "Matching with unmatched": UNMATCHED,
    "Matching with capacities": CAPACITIES,
    "Subwindows": SUBWINDOWS,
    "Subwindows in Python": replace(SUBWINDOWS, build=PlainSubwindows),
    "SearchSpace": SEARCH,
    **PROGRAMS,
}


# One of each kind, for what takes seconds for each.
REPRESENTATIVES = {
    f"LinearChain {FORMS[0]} compiled",
    f"LinearChain {FORMS[2]} torch",
    "Tree compiled",
    "BinaryGraph",
    "FactorGraph",
    "Matching",
    "SemiMarkov compiled",
    "Subset torch",
}


def every(condition: Callable[[str, Member], bool] = lambda name, member: True, *, slow: bool = False) -> Any:
    """Run a test for every member of which the condition holds; a slow one for others than representatives rarely."""
    chosen = [
        pytest.param(member, id=name, marks=pytest.mark.long if slow and name not in REPRESENTATIVES else ())
        for name, member in MEMBERS.items()
        if condition(name, member)
    ]
    return pytest.mark.parametrize("member", chosen)


def every_oracle(condition: Callable[[str, Member, str], bool] = lambda name, member, oracle: True) -> Any:
    """Run a test for every oracle of every member."""
    pairs = {
        f"{name}: {oracle}": (member, oracle)
        for name, member in MEMBERS.items()
        for oracle in ORACLES
        if oracle in member.oracles and condition(name, member, oracle)
    }
    return pytest.mark.parametrize(("member", "oracle"), pairs.values(), ids=pairs)


def enumerated(name: str, *_: Any) -> bool:
    """Small chains come in all forms, so that those of one form stand for the others."""
    return not name.startswith("LinearChain") or FORMS[0] in name


def plans_when_built(name: str, *_: Any) -> bool:
    """By values of its arguments: it cannot be built under ``torch.compile`` or on the meta device."""
    return name == "FactorGraph with factors"
