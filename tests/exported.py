"""Structures for tests of exported programs, at any numbers of examples and positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import torch
from enumerated_factor_graphs import random_factor_graphs
from enumerated_programs import (
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
)
from enumeration import (
    FORMS,
    random_candidates,
    random_chains,
    random_graphs,
    random_matchings,
    random_placements,
    random_scores,
    random_trees,
    random_unmatched,
)
from member import Instance, Member, potentials_of
from structure_members import MEMBERS
from torch import Tensor, nn
from torch.export import Dim

from structsmooth import LinearChain, StructuralHinge, Structure
from structsmooth.structures import BoxCandidates

# Random instances of the structures whose names begin so, of B examples with n positions or what corresponds to them.
INSTANCES: dict[str, Callable[[int, int, int], Instance]] = {
    "LinearChain by example": lambda b, n, seed: random_chains(b, n, 3, FORMS[1], seed),
    "LinearChain by position": lambda b, n, seed: random_chains(b, n, 3, FORMS[2], seed),
    "LinearChain": lambda b, n, seed: random_chains(b, n, 3, seed=seed),
    "HiddenMarkov": lambda b, n, seed: random_chains(b, n, 3, seed=seed),
    "Accepted": lambda b, n, seed: random_acceptances(b, n, 4, FORMS[0], seed),
    "LowRankChain": lambda b, n, seed: random_rank_states(b, n, 4, FORMS[0], seed),
    "Tree": lambda b, n, seed: random_trees(b, n, 3, seed),
    "DeformableTree": lambda b, n, seed: random_placements(b, 3, n, n + 1, seed),
    "Candidates": lambda b, n, seed: random_candidates(b, n, seed, masked=0.0),
    "BoxCandidates": lambda b, n, seed: random_candidates(b, n, seed, masked=0.0),
    "BinaryGraph": lambda b, n, seed: random_graphs(b, n, n - 1, seed),
    "FactorGraph": lambda b, n, seed: random_factor_graphs(b, n, 1, 3, seed),
    "Matching with unmatched": lambda b, n, seed: random_unmatched([(n, n + 1)] * b, seed),
    "Matching": lambda b, n, seed: random_matchings([(n, n + 1)] * b, seed),
    "Subwindows": lambda b, n, seed: (random_scores(torch.Generator().manual_seed(seed), False, 0.0)(b, n, n + 1),),
    "SearchSpace": lambda b, n, seed: (random_scores(torch.Generator().manual_seed(seed), False, 0.0)(b, n, 2),),
    "SemiMarkov": lambda b, n, seed: random_segmentations(b, n, 3, 2, FORMS[0], seed),
    "ProjectiveTree": lambda b, n, seed: random_dependencies(b, n, 2, seed),
    "SpanningTree": lambda b, n, seed: random_dependencies(b, n, 2, seed),
    "SiblingTree": lambda b, n, seed: random_siblings(b, n, 2, seed),
    "Constituents": lambda b, n, seed: random_spans(b, n, 2, seed),
    "Grammar": lambda b, n, seed: random_grammars(b, n, seed),
    "Alignment": lambda b, n, seed: random_grids(b, n, n + 1, seed),
    "Paths": lambda b, n, seed: random_weights(b, 7, seed),
    "Subset": lambda b, n, seed: random_items(b, n, seed),
}


def masked_chain(unary: Tensor, transition: Tensor, mask: Tensor, start: Tensor, stop: Tensor, **options: Any) -> Any:
    return LinearChain(unary, transition, mask=mask, start=start, stop=stop, **options)


def random_masked(b: int, n: int, seed: int) -> Instance:
    scores = random_scores(torch.Generator().manual_seed(seed), False, 0.0)
    return scores(b, n, 3), scores(3, 3), scores(b, n) > -0.5, scores(3), scores(b, 3)


INSTANCES = {"LinearChain with mask and ends": random_masked, **INSTANCES}


# How transitions are given, in the names of the table.
_FORMS = {f" {FORMS[0]}": "", f" {FORMS[1]}": " by example", f" {FORMS[2]}": " by position"}
# Programs in plain torch are unrolled for the sizes of the batch that is exported.
_PROGRAMS = "Accepted", "LowRankChain", "SiblingTree", "Constituents", "Grammar", "Alignment", "Paths", "Subset"
UNROLLED = tuple(f"{name} torch" for name in _PROGRAMS)


def members() -> dict[str, Member]:
    """The structures by the names that the table of the documentation has; some have a backend behind them."""
    found = {
        reduce(lambda short, form: short.replace(*form), _FORMS.items(), name): member
        for name, member in MEMBERS.items()
        if name not in ("Subwindows in Python", "FactorGraph by search", "FactorGraph with factors", *UNROLLED)
    }
    for backend in ("compiled", "torch"):
        found[f"LinearChain with mask and ends {backend}"] = replace(
            found[f"LinearChain {backend}"], build=partial(masked_chain, backend=backend)
        )
    found["BoxCandidates"] = replace(found["Candidates"], build=boxes_anywhere)
    return found


def boxes_anywhere(scores: Tensor, mask: Tensor) -> BoxCandidates:
    """Boxes that all are the same."""
    corners = torch.arange(4).expand(*scores.shape, -1).to(scores.dtype)
    return BoxCandidates(scores, corners, mask)


def inputs(name: str, batch: int, length: int, seed: int) -> tuple[Tensor, ...]:
    """Those of a :class:`Program`."""
    instance = INSTANCES[next(prefix for prefix in INSTANCES if name.startswith(prefix))](batch, length, seed)
    return members()[name].labels(potentials_of(instance)[0]), *instance


ORACLES: dict[str, Callable[[Structure], tuple[Tensor, ...]]] = {
    "max": lambda structure: structure.max(),
    "topk": lambda structure: structure.topk(3),
    "logsumexp": lambda structure: (structure.logsumexp(),),
    "marginals": lambda structure: structure.marginals(),
    "max_marginals": lambda structure: (structure.max_marginals(),),
}
LOSSES: dict[str, Callable[[Member], StructuralHinge]] = {
    "hinge": lambda member: StructuralHinge(cost=member.cost),
    "likelihood": lambda member: StructuralHinge.crf(),
}


class Program(nn.Module):
    """The answers of oracles of a structure, as what ``torch.export`` and ``torch.onnx.export`` take."""

    def __init__(self, member: Member, oracles: tuple[str, ...]) -> None:
        super().__init__()
        self.member, self.oracles = member, oracles

    def forward(self, y: Tensor, *instance: Tensor) -> tuple[Tensor, ...]:
        """Of all oracles, one after the other; losses are those of outputs ``y``."""
        structure = self.member.build(*instance)
        answers: list[Tensor] = []
        for oracle in self.oracles:
            if oracle in LOSSES:
                answers.append(LOSSES[oracle](self.member)(structure, y))
            else:
                answers.extend(ORACLES[oracle](structure))
        return tuple(answers)


def open_sizes(exported: Instance, other: Instance) -> tuple[Any, ...]:
    """Where inputs differ, as dimensions of any size; behind the first one, the program takes them as a list."""
    first, *others = (
        {d: Dim.DYNAMIC for d, (size, another) in enumerate(zip(a.shape, b.shape, strict=True)) if size != another}
        for a, b in zip(exported, other, strict=True)
    )
    return first, tuple(others)
