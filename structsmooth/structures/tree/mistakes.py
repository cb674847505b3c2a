"""Outputs of trees by number of mistakes: trees of one shape are a program; in torch, a recursion over polynomials."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures.checks import can_read_values
from structsmooth.structures.programs import Program, ProgramBuilder, cached_program
from structsmooth.structures.programs.counters import ByCount, Polynomials, listed_by_programs
from structsmooth.structures.semirings import Semiring
from structsmooth.structures.tree import Tree, reference

_PADDING = -2


def by_mistakes(tree: Tree, y: Tensor) -> ByCount:
    """The outputs of trees by the number of labels in which they differ from ``y`` [B, N]."""
    unary, pairwise, *_ = tree._arguments()
    (batch, nodes, states), labels = unary.shape, tree.checked_labels(y)
    wrong = (torch.arange(states, device=y.device) != labels.unsqueeze(-1)) & tree.mask.unsqueeze(-1)
    forest = reference.forest(tree.parents, tree.mask)
    ordered = pad(wrong.gather(1, forest.nodes.unsqueeze(-1).expand_as(wrong)), (0, 0, 0, 1)).long()

    def recursion(semiring: Semiring, unary: Tensor, pairwise: Tensor) -> Tensor:
        polynomials = _Mistakes(semiring, 1 + nodes, ordered)
        return polynomials.split(reference.recursion(polynomials, unary, pairwise, forest))

    plain = ByCount((unary, pairwise), recursion, 1 + nodes, lambda parts: parts[0].argmax(-1))
    if not (batch and tree.oracles is Tree.oracles.cpu and can_read_values()):
        return plain
    shapes: dict[tuple[int, ...], list[int]] = {}
    for b, parents in enumerate(torch.where(tree.mask, tree.parents, _PADDING).tolist()):
        shapes.setdefault(tuple(parents), []).append(b)
    root = torch.zeros(batch, dtype=torch.int64)
    groups = [(labelings(shape, states), torch.tensor(rows), root[rows]) for shape, rows in shapes.items()]
    counts = pad(wrong.flatten(1).long(), (0, nodes * states**2))

    def outputs(used: Tensor) -> Tensor:
        place = torch.where(used < nodes * states, used // states, nodes)
        y = torch.zeros(*used.shape[:2], nodes + 1, dtype=torch.int64)
        return y.scatter(2, place, used % states)[..., :nodes]

    scores = torch.cat([unary.flatten(1), pairwise.flatten(1)], 1)
    return replace(plain, listing=listed_by_programs(scores, counts, groups, plain.size, outputs))


class _Mistakes(Polynomials):
    """Scores [B, N + 1, S] of nodes, and of what all roots hang on, have ``wrong`` [B, N + 1, S] mistakes."""

    def __init__(self, semiring: Semiring, size: int, wrong: Tensor) -> None:
        super().__init__(semiring, size)
        self.wrong = wrong

    def embed(self, scores: Tensor) -> Tensor:
        """Scores as polynomials with one coefficient: that of the mistakes which their states are."""
        return self.shifted(super().embed(scores), self.wrong)


@cached_program
def labelings(parents: tuple[int, ...], states: int) -> Program:
    """Scores of labels (node, label), then of pairs (node, label of its parent, own label).

    Of the branch of a node there is one program node for each label; another one each adds the branch of a child, and
    what all roots hang on has one label.

    Args:
        parents: of each node; -1 for a root, and -2 for no node.
        states: number of labels S.
    """
    count = len(parents)
    builder = ProgramBuilder(scores=count * states * (1 + states))
    children: dict[int, list[int]] = {v: [] for v in (-1, *range(count))}
    for v, parent in enumerate(parents):
        if parent != _PADDING:
            children[parent].append(v)
    order = [-1]
    for v in order:
        order += children[v]
    label, next_node = np.arange(states), 0
    last: dict[int, np.ndarray] = {}
    for v in reversed(order):
        above = 1 if v < 0 else states
        branch = next_node + np.arange(above)
        builder.add(branch, index=-1 if v < 0 else v * states + label)
        next_node += above
        for child in children[v]:
            sent, joined = next_node + np.arange(above), next_node + above + np.arange(above)
            pairs = count * states + (child * states + label[:, None]) * states + label
            builder.add(sent[:, None], last.pop(child), index=-1 if v < 0 else pairs)
            builder.add(joined, branch, sent)
            branch, next_node = joined, next_node + 2 * above
        last[v] = branch
    return builder.build()
