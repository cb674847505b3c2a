"""Oracles of programs in plain torch: one recursion over a semiring, level by level, from which every query is derived.

The readable reference, on any device and twice differentiable, with the signatures of the compiled operators. Shapes:
scores [B, P] of a program, which is given by its handle, ``root_index`` [B] into its roots. An output is the list [M]
of the scores that its derivation uses, filled up with P.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures import semirings
from structsmooth.structures.oracles import Traits
from structsmooth.structures.programs.levels import Level, Levels, levels_of
from structsmooth.structures.programs.program import Program
from structsmooth.structures.semirings import Log, Recursion, Semiring, TopK, inverse_cdf

traits, sums, smoothed_top_k = Traits(), None, None


def node_values(semiring: Semiring, scores: Tensor, levels: Levels) -> Tensor:
    """Semiring sums [B, 1 + N, R] of the derivations from each node, by places; the first is that of a missing tail."""
    batch = scores.shape[0]
    padded = padded_scores(scores)
    values = semiring.embed(scores.new_zeros(batch, 1))
    # V(v) = ⊕ over edges e into v of {θ(e) ⊗ V(left of e) ⊗ V(right of e)}, for all nodes of a level at once.
    for level in levels.levels:
        below = values[:, level.left]
        if level.right is not None:
            right = values[:, level.right]
            below = below + right if right.shape[-1] == 1 else semiring.product(below, right)
        sums = semiring.sum(below + padded[:, level.score].unsqueeze(-1), 2)
        values = torch.cat([values, sums], 1)
    return values


def padded_scores(scores: Tensor) -> Tensor:
    """Scores [B, P + 2], with 0 for a missing one and -inf for that of no edge."""
    return pad(pad(scores, (0, 1)), (0, 1), value=-torch.inf)


def at_root(values: Tensor, root: Tensor) -> Tensor:
    """The values [B, R] of the root of each example, among those [B, V, R] of all places."""
    index = root.view(-1, 1, 1).expand(-1, 1, values.shape[-1])
    return values.gather(1, index).squeeze(1)


def rooted(root_index: Tensor, handle: int) -> tuple[Tensor, Levels]:
    """The places [B] of the roots of examples among the levels, and these."""
    levels = levels_of(handle, root_index.device)
    return levels.roots[root_index], levels


class HasProgram(Protocol):
    """A structure whose outputs are the derivations of a program."""

    def program(self) -> Program:
        """The program."""

    def outputs(self, used: Tensor) -> Tensor:
        """The outputs [B, K, ...] that use scores [B, K, M]."""


def as_argument(space: HasProgram) -> int:
    """What stands for the program of a structure: its handle."""
    return space.program().handle


def outputs(space: HasProgram, used: Tensor) -> Tensor:
    """The outputs [B, K, ...] that :func:`top_k` has found."""
    return space.outputs(used)


def _recursion(root_index: Tensor, handle: int) -> Recursion:
    root, levels = rooted(root_index, handle)
    return lambda semiring, scores: at_root(node_values(semiring, scores, levels), root)


def log_partition(scores: Tensor, root_index: Tensor, handle: int) -> Tensor:
    """Log-partition function [B]."""
    return semirings.log_partition(_recursion(root_index, handle), scores)


def marginals(scores: Tensor, root_index: Tensor, handle: int) -> tuple[Tensor]:
    """Probabilities [B, P] of the scores, or expected numbers of their uses; differentiable."""
    return (semirings.marginals(_recursion(root_index, handle), scores)[0],)


def scores_of_outputs(scores: Tensor, used: Tensor) -> Tensor:
    """Scores [B, K] of outputs [B, K, M]."""
    real = used < scores.shape[1]
    each = scores.gather(1, torch.where(real, used, 0).flatten(1)).view(used.shape)
    return torch.where(real, each, 0.0).sum(2)


def top_k(scores: Tensor, root_index: Tensor, handle: int, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, M], which are read off the gradients of the values."""
    values, (counts,) = semirings.top_k(_recursion(root_index, handle), k, scores)
    return values, listed(counts, levels_of(handle, root_index.device).longest)


def listed(counts: Tensor, longest: int) -> Tensor:
    """Lists [..., M] of the indices that are counted [..., P], each as often as it counts; P behind them."""
    reached = counts.round().long().cumsum(-1)
    places = torch.arange(longest, device=counts.device).expand(*counts.shape[:-1], longest)
    return torch.searchsorted(reached, places.contiguous(), right=True)


def max_marginals(scores: Tensor, root_index: Tensor, handle: int) -> Tensor:
    """Largest value [B, P] of an output that uses each score."""
    root, levels = rooted(root_index, handle)
    count = scores.shape[1]
    values, padded = node_values(TopK(1), scores, levels).squeeze(-1), padded_scores(scores)
    around = torch.full_like(values, -torch.inf).scatter(1, root.unsqueeze(1), 0.0)
    best = torch.full_like(padded, -torch.inf)
    end = values.shape[1]
    # A(left of e) = max over e of {A(head of e) + θ(e) + V(right of e)}, and likewise to the right: ``around`` is A.
    for level in reversed(levels.levels):
        nodes = slice(end - len(level.score), end)
        base = padded[:, level.score] + around[:, nodes].unsqueeze(-1)
        left = values[:, level.left]
        right = torch.zeros_like(left) if level.right is None else values[:, level.right]
        best = _raised(best, level.score, base + left + right)
        around = _raised(around, level.left, base + right)
        if level.right is not None:
            around = _raised(around, level.right, base + left)
        end = nodes.start
    return best[:, :count]


def _raised(values: Tensor, places: Tensor, candidates: Tensor) -> Tensor:
    """Values [B, V], each the largest of itself and the candidates [B, n, R] at its places [n, R]."""
    index = places.flatten().expand(values.shape[0], -1)
    return values.scatter_reduce(1, index, candidates.flatten(1), "amax")


def sample(scores: Tensor, root_index: Tensor, handle: int, uniform: Tensor) -> Tensor:
    """Outputs [B, n, M] at uniform numbers [B, n, D], one for each node of a derivation in the order of visits.

    Those of an example without any are -1.
    """
    root, levels = rooted(root_index, handle)
    longest = levels.longest
    batch, n, depth = uniform.shape
    values, padded = node_values(Log(), scores, levels).squeeze(-1), padded_scores(scores)
    nodes = levels.nodes
    example = torch.arange(batch, device=scores.device)[:, None]
    stack = torch.zeros(batch, n, depth + 2, dtype=torch.int64, device=scores.device)
    stack[..., 1] = root[:, None]
    top = torch.ones(batch, n, dtype=torch.int64, device=scores.device)
    used = torch.full((batch, n, longest + 1), scores.shape[1], device=scores.device)
    count = torch.zeros_like(top)
    for d in range(depth):
        # Place 0 of the stack holds the missing node, of which nothing follows.
        node = stack.gather(2, top.unsqueeze(2)).squeeze(2)
        edge = inverse_cdf(_scores_into(node, example, values, padded, nodes), uniform[..., d]).unsqueeze(-1)
        index = nodes.score[node].gather(2, edge).squeeze(2)
        real = (index < scores.shape[1]) & (top > 0)
        used = used.scatter(2, torch.where(real, count, longest).unsqueeze(2), index.unsqueeze(2))
        count = count + real
        top = (top - 1).clamp_min(0)
        for tails in (nodes.right, nodes.left):
            if tails is not None:
                tail = tails[node].gather(2, edge).squeeze(2)
                top = top + (tail > 0)
                # Without a tail, what is written is what stands there, the missing node at place 0 or a node.
                kept = stack.gather(2, top.unsqueeze(2)).squeeze(2)
                stack = stack.scatter(2, top.unsqueeze(2), torch.where(tail > 0, tail, kept).unsqueeze(2))
    feasible = values.gather(1, root.unsqueeze(1)) > -torch.inf
    return torch.where(feasible.unsqueeze(2), used[..., :longest], -1)


def _scores_into(node: Tensor, example: Tensor, values: Tensor, padded: Tensor, nodes: Level) -> Tensor:
    """Scores [B, n, R] of the edges into nodes [B, n]."""
    rows = example.unsqueeze(2)
    scores = padded[rows, nodes.score[node]] + values[rows, nodes.left[node]]
    return scores if nodes.right is None else scores + values[rows, nodes.right[node]]
