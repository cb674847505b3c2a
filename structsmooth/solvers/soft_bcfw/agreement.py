"""Marginals that agree, near those of a point of the soft dual of a module."""

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
    new = SoftPoint(**{name: tensor.clone() for name, tensor in vars(point).items()})
    for i, graph in enumerate(graphs.each):
        target, seats = graphs.own(new, i), graphs.seats_of(i)
        nodes, edges, *finals = _near(graph, graphs.own(point, i), seats)
        target.nodes.copy_(nodes)
        target.edges.copy_(edges)
        if finals:
            target.finals.copy_(finals[0])
    return new


def _near(graph: ModuleGraph, own: SoftPoint, seats: Tensor) -> Parts:
    votes = own.nodes.index_add(0, seats, own.violations(seats) + own.nodes[seats])
    nodes = votes / (1 + torch.bincount(seats, minlength=len(votes)))[:, None]
    rigid = torch.zeros(len(own.edges), dtype=torch.bool)
    pieces, finals = graph.pieces, own.finals
    if pieces is not None:
        constrains = pieces.constrains(graph.costs)
        place = constrains[pieces.owners[0]]
        if int(torch.bincount(pieces.nodes[place], minlength=len(nodes)).max()) > 1:
            return _decoded(graph, pieces, nodes)
        nodes = nodes.index_copy(0, pieces.nodes[place], own.places[place])
        rigid[pieces.edges] = constrains[pieces.owners[1]]
        if len(finals) and not pieces.whole:
            free = _factors(pieces, own, nodes[pieces.nodes])
            finals = torch.where(constrains[pieces.owners[2]][:, None], finals, free)
    a, b = nodes[graph.edges].unbind(1)
    edges = torch.where(rigid[:, None, None], own.edges, with_marginals(own.edges, a, b))
    return (nodes, edges, finals)[: len(graph.costs)]


def _factors(pieces: Pieces, own: SoftPoint, nodes: Tensor) -> Tensor:
    """Marginals of final states [F, Q] of factors whose places have these marginals [P, S]."""
    atoms = own.atoms.long()
    labels = one_hot(atoms, nodes.shape[1]).double()  # [P, slots, S]
    alphas, owner = own.alphas.clone(), pieces.owners[0]
    # The places of a piece in turn, for all pieces at once.
    first = torch.searchsorted(owner, torch.arange(pieces.count))
    number = torch.arange(len(owner)) - first[owner]
    for k in range(int(number.max()) + 1):
        at = (number == k).nonzero()[:, 0]
        held = torch.einsum("pa,pas->ps", alphas[owner[at]], labels[at])
        ratio = (nodes[at] / held.clamp_min(_ROUNDING)).clamp_max(1.0)
        alphas[owner[at]] *= ratio.gather(1, atoms[at])
    missing = (nodes - torch.einsum("pa,pas->ps", alphas[owner], labels)).clamp_min(0.0)
    rest = missing.sum(1, keepdim=True)
    product = pieces.independent(torch.where(rest > _ROUNDING, missing / rest, 1 / nodes.shape[1]))
    factor = pieces.owners[2]
    final = torch.einsum("fa,afq->fq", alphas[factor], pieces.many(atoms.T)[2])
    return final + (1 - alphas.sum(1)).clamp_min(0.0)[factor][:, None] * product


def _decoded(graph: ModuleGraph, pieces: Pieces, nodes: Tensor) -> Parts:
    """The parts of the best labels of nodes, or of the labels of the example."""
    y = nodes.argmax(1)
    best = one_hot(y, nodes.shape[1]).double()
    pairs = torch.einsum("es,er->esr", *best[graph.edges].unbind(1))
    parts = (best, pairs, pieces.parts(y[pieces.nodes])[2])[: len(graph.costs)]
    forbidden = any(bool(((m > 0) & (p <= BARELY_ALLOWED)).any()) for m, p in zip(parts, graph.costs, strict=True))
    return graph.label_parts if forbidden else parts
