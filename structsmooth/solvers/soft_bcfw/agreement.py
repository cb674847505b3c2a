"""Marginals that agree, near those of a point of the soft dual of a module."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from structsmooth.problems.affine import Parts
from structsmooth.solvers.soft_bcfw.graphs import ModuleGraph, ModuleGraphs
from structsmooth.solvers.soft_bcfw.pieces import BARELY_ALLOWED, Pieces
from structsmooth.solvers.soft_bcfw.point import SoftPoint
from structsmooth.structures.factor_graph.rounding import with_marginals

# Less mass than this is missing by rounding alone.
_ROUNDING = 1e-12


def agreeing(graphs: ModuleGraphs, point: SoftPoint) -> SoftPoint:
    """Marginals of nodes, edges and factors in the local polytope near those of a point.

    A node gets the mean of its marginals, or those of the piece that constrains it: a factor that forbids labels, or
    one that stands for the whole example. Tables of edges and distributions over labels of factors are scaled down
    until none of their marginals is too large, and what is missing then is filled up by a product. An example with a
    node that several pieces constrain gets the best labels of its nodes, if all of them are allowed, or else its own.
    """
    if not graphs.has_pieces:
        return point.agreeing(graphs.graphs, 0)
    new = point.copy()
    for i, graph in enumerate(graphs.each):
        target, near = graphs.of_example(new, i), _near(graph, graphs.of_example(point, i), graphs.seats_of(i))
        for name in ("nodes", "edges", "finals", "entropies"):
            getattr(target, name).copy_(getattr(near, name))
    return new


def _near(graph: ModuleGraph, point: SoftPoint, seats: Tensor) -> SoftPoint:
    votes = point.nodes.index_add(0, seats, point.violations(seats) + point.nodes[seats])
    nodes = votes / (1 + torch.bincount(seats, minlength=len(votes)))[:, None]
    rigid, pieces = torch.zeros(len(point.edges), dtype=torch.bool), graph.pieces
    if pieces is not None:
        constrains = pieces.constrains(graph.costs)
        place = constrains[pieces.owners[0]]
        if int(torch.bincount(pieces.nodes[place], minlength=len(nodes)).max()) > 1:
            return _decoded(graph, pieces, point, nodes)
        nodes = nodes.index_copy(0, pieces.nodes[place], point.places[place])
        rigid[pieces.edges] = constrains[pieces.owners[1]]
        if len(point.finals) and not pieces.whole:
            point = _with_factors(pieces, point, nodes[pieces.nodes], constrains)
    a, b = nodes[graph.edges].unbind(1)
    edges = torch.where(rigid[:, None, None], point.edges, with_marginals(point.edges, a, b))
    return replace(point, nodes=nodes, edges=edges)


def _with_factors(pieces: Pieces, point: SoftPoint, nodes: Tensor, fixed: Tensor) -> SoftPoint:
    """The point with factors whose places have these marginals [P, S], but for those of fixed pieces."""
    (owner, _, factor), atoms, alphas = pieces.owners, point.atoms.long(), point.alphas.clone()
    labels = one_hot(atoms, nodes.shape[1]).double()  # [P, slots, S]
    rest = (1 - alphas.sum(1)).clamp_min(0.0)
    others = point.places - torch.einsum("pa,pas->ps", alphas[owner], labels)
    share = rest.clamp_min(_ROUNDING)
    others, final = (others / share[owner, None]).clamp_min(0.0), pieces.many(atoms.T)[2]
    of_others = point.finals - torch.einsum("fa,afq->fq", alphas[factor], final)
    of_others = (of_others / share[factor, None]).clamp_min(0.0)
    # The places of a piece in turn, for all pieces at once.
    first = torch.searchsorted(owner, torch.arange(pieces.count))
    number = torch.arange(len(owner)) - first[owner]
    for k in range(int(number.max()) + 1):
        at = (number == k).nonzero()[:, 0]
        piece = owner[at]
        held = torch.einsum("pa,pas->ps", alphas[piece], labels[at]) + rest[piece, None] * others[at]
        ratio = (nodes[at] / held.clamp_min(_ROUNDING)).clamp_max(1.0)
        alphas[piece] *= ratio.gather(1, atoms[at])
        rest[piece] *= torch.where(others[at] > 0, ratio, 1.0).amin(1)
    missing = nodes - torch.einsum("pa,pas->ps", alphas[owner], labels) - rest[owner, None] * others
    missing = missing.clamp_min(0.0)
    total = missing.sum(1, keepdim=True)
    missing = torch.where(total > _ROUNDING, missing / total, 1 / nodes.shape[1])
    kept = torch.where(fixed, 1.0, alphas.sum(1) + rest)
    found = torch.einsum("fa,afq->fq", alphas[factor], final) + rest[factor, None] * of_others
    found += (1 - kept[factor, None]).clamp_min(0.0) * pieces.independent(missing)
    # Entropies are concave, so that those of parts that are kept and of products count by their shares at least.
    product = -torch.special.xlogy(missing, missing).sum(1) * (1 - kept[owner]).clamp_min(0.0)
    entropies = kept.min().clamp_max(1.0) * point.entropies + product.sum()
    return replace(point, finals=torch.where(fixed[factor, None], point.finals, found), entropies=entropies)


def _decoded(graph: ModuleGraph, pieces: Pieces, point: SoftPoint, nodes: Tensor) -> SoftPoint:
    """The best labels of nodes, or the labels of the example."""
    y = nodes.argmax(1)
    best = one_hot(y, nodes.shape[1]).double()
    pairs = torch.einsum("es,er->esr", *best[graph.edges].unbind(1))
    parts: Parts = (best, pairs, pieces.parts(y[pieces.nodes])[2])[: len(graph.costs)]
    forbidden = any(bool(((m > 0) & (p <= BARELY_ALLOWED)).any()) for m, p in zip(parts, graph.costs, strict=True))
    nodes, edges, *finals = graph.label_parts if forbidden else parts
    finals = finals or [point.finals]
    return replace(point, nodes=nodes, edges=edges, finals=finals[0], entropies=torch.zeros_like(point.entropies))
