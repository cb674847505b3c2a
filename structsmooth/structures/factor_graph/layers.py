"""Several layers of labels over one sequence, as the structure that answers for them."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures import checks
from structsmooth.structures.chain import LinearChain
from structsmooth.structures.factor_graph.connections import SkipEdges
from structsmooth.structures.factor_graph.graph import FactorGraph
from structsmooth.structures.factor_graph.local_polytope import LocalPolytope


class Layers:
    """Labels of several layers at each position of a sequence, such as parts of speech and chunks: a factorial CRF.

    ``structure`` is an output space for all losses and solvers, whose scores are the sums of those given below, and
    ``answered_by`` says which one:

    * ``"chain"``: a :class:`~structsmooth.LinearChain` over joint labels, if there are no skip edges and no more than
      ``max_joint`` joint labels. Those that a table ``between`` forbids at all positions, by -inf, are left out;
    * ``"elimination"``: a :class:`~structsmooth.FactorGraph`, if all oracles of it are exact (small treewidth);
    * ``"relaxation"``: the :class:`~structsmooth.factors.LocalPolytope` of this graph, whose ``max`` rounds, and whose
      ``logsumexp`` is a bound: take a hinge. ``graph`` has the graph itself, whose ``max`` may search.

    Layers may have different numbers of labels, [B, T] for each, which go in by :meth:`join`, and come out by
    :meth:`split`, :meth:`max` and :meth:`marginals`.

    Args:
        unary: scores of the labels of each layer, [B, T, S_l].
        transitions: scores of neighbouring labels of each layer, [S_l, S_l], entry [i, j] for i before j, or ``None``.
        between: scores of labels of layers a and b at one position, [S_a, S_b] or [B, T, S_a, S_b], by (a, b).
        skips: pairs of positions, as of :func:`skip_edges`, and scores [S_l, S_l] of their labels, by layer.
        lengths: of the sequences, integers [B]; all T if not given.
        max_joint: largest number of joint labels of a chain, whose oracles take their square for each position.
        max_table: as for :class:`~structsmooth.FactorGraph`.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values.

    Reference:
        Sutton, McCallum and Rohanimanesh (2007), "Dynamic Conditional Random Fields".

    Example:
        >>> from structsmooth import StructuralHinge
        >>> first, second = torch.zeros(1, 4, 3), torch.tensor([[[0.0, 1.0]] * 4])
        >>> layers = Layers([first, second], [torch.zeros(3, 3), None], {(0, 1): torch.eye(3)[:, :2]})
        >>> value, (best, _) = layers.max()
        >>> value, best, layers.answered_by
        (tensor([8.]), tensor([[1, 1, 1, 1]]), 'chain')
        >>> StructuralHinge.crf()(layers.structure, layers.join(best, torch.ones_like(best))) > 0
        tensor(True)
    """

    structure: LinearChain | FactorGraph
    answered_by: Literal["chain", "elimination", "relaxation"]

    def __init__(
        self,
        unary: Sequence[Tensor],
        transitions: Sequence[Tensor | None],
        between: Mapping[tuple[int, int], Tensor] | None = None,
        *,
        skips: Mapping[int, tuple[SkipEdges, Tensor]] | None = None,
        lengths: Tensor | None = None,
        max_joint: int = 1024,
        max_table: int = 2**21,
    ) -> None:
        self.unary, self.transitions = tuple(unary), tuple(transitions)
        self.between, self.skips = dict(between or {}), dict(skips or {})
        self._check()
        self.sizes = tuple(scores.shape[-1] for scores in self.unary)
        self.lengths = checks.lengths_or_all(lengths, "[B]", self.unary[0])
        self._max_table = max_table
        self._joint = None if self.skips else self._joint_labels(max_joint)
        if self._joint is not None:
            self.structure, self.answered_by = self._chain(self._joint), "chain"
        elif "search" not in (graph := self.graph).solved_by:
            self.structure, self.answered_by = graph, "elimination"
        else:
            self.structure, self.answered_by = LocalPolytope(graph), "relaxation"

    @property
    def graph(self) -> FactorGraph:
        """The layers as a graph: label l at position t is node l · T + t."""
        (batch, length), states, device = self.unary[0].shape[:2], max(self.sizes), self.unary[0].device
        steps, inside = torch.arange(length, device=device), checks.length_mask(self.lengths, length)
        edges, masks = [steps.new_zeros(batch, 0, 2)], [inside[:, :0]]
        tables = [self.unary[0].new_zeros(batch, 0, states, states)]

        def add(ends: Tensor, mask: Tensor, scores: Tensor) -> None:
            rows, columns = scores.shape[-2:]
            edges.append(ends.expand(batch, -1, 2))
            masks.append(mask)
            tables.append(pad(scores, (0, states - columns, 0, states - rows)).expand(batch, mask.shape[1], -1, -1))

        for layer, table in enumerate(self.transitions):
            if table is not None:
                first = layer * length + steps[:-1]
                add(torch.stack([first, first + 1], -1), inside[:, 1:], table)
        for (a, b), table in self.between.items():
            add(torch.stack([a * length + steps, b * length + steps], -1), inside, table)
        for layer, (skips, table) in self.skips.items():
            add(layer * length + skips.edges.to(device), skips.mask.to(device), table)
        return FactorGraph(
            torch.cat([pad(scores, (0, states - scores.shape[-1]), value=-torch.inf) for scores in self.unary], 1),
            torch.cat(edges, 1),
            torch.cat(tables, 1),
            node_mask=inside.repeat(1, len(self.sizes)),
            edge_mask=torch.cat(masks, 1),
            max_table=self._max_table,
        )

    def join(self, *labels: Tensor) -> Tensor:
        """An output of ``structure`` from labels [B, T] of each layer; those at padding do not matter.

        Raises:
            ValueError: labels that a layer does not have, or that ``between`` forbids together; it names the example.
        """
        inside = self._inside(labels)
        if self._joint is None:
            return torch.cat([torch.where(inside, y, 0) for y in labels], 1)
        numbers = torch.full(self.sizes, -1, device=self._joint.device)
        numbers[self._joint.unbind(1)] = torch.arange(len(self._joint), device=numbers.device)
        y = numbers[tuple(torch.where(inside, y, 0) for y in labels)]
        if bool((forbidden := (y < 0) & inside).any()):
            b, t = forbidden.nonzero()[0].tolist()
            raise ValueError(f"example {b} has labels at position {t} that a table between layers forbids together")
        return y.clamp_min(0)

    def partial(self, *labels: Tensor) -> tuple[Tensor, Tensor]:
        """What a loss takes after ``structure`` if some labels are not known, which are -1: labels, and a mask.

        So sentences with parts of speech alone and others with chunks alone train one model.
        """
        free = ~self._inside([y.clamp_min(0) for y in labels])
        states = [torch.arange(size, device=free.device) for size in self.sizes]
        each = [(y.unsqueeze(-1) == j) | ((y < 0) | free).unsqueeze(-1) for y, j in zip(labels, states, strict=True)]
        if self._joint is None:
            allowed = torch.cat([pad(known, (0, max(self.sizes) - known.shape[-1])) for known in each], 1)
        else:
            allowed = torch.stack([known[..., j] for known, j in zip(each, self._joint.T, strict=True)]).all(0)
        return allowed.to(torch.uint8).argmax(-1), allowed

    def split(self, y: Tensor) -> tuple[Tensor, ...]:
        """Labels [..., T] of each layer, 0 at padding, from outputs of ``structure``."""
        if self._joint is None:
            return y.chunk(len(self.sizes), -1)
        inside = checks.length_mask(self.lengths, self.unary[0].shape[1])
        inside = inside.view(len(inside), *[1] * (y.dim() - 2), -1)
        return tuple(torch.where(inside, own[y], 0) for own in self._joint.T)

    def max(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The value [B] of ``structure.max()``, and the labels [B, T] of each layer."""
        value, y = self.structure.max()
        return value, self.split(y)

    def marginals(self) -> tuple[Tensor, ...]:
        """Probabilities [B, T, S_l] of the labels of each layer, zero at padding; pseudo-marginals of a relaxation."""
        found = self.structure.class_marginals()
        if self._joint is None:
            nodes = found.chunk(len(self.sizes), 1)
            return tuple(own[..., :size] for own, size in zip(nodes, self.sizes, strict=True))
        none = [found.new_zeros(*found.shape[:-1], size) for size in self.sizes]
        return tuple(zeros.index_add(-1, own, found) for zeros, own in zip(none, self._joint.T, strict=True))

    def _joint_labels(self, most: int) -> Tensor | None:
        """The joint labels [P, L] that no table forbids at all positions; ``None`` if there are more than ``most``."""
        if prod(self.sizes) > 2**24:  # they are listed before those that are forbidden are left out
            return None
        axes = [torch.arange(size, device=self.unary[0].device) for size in self.sizes]
        joint = torch.cartesian_prod(*axes).view(-1, len(axes))
        for (a, b), table in self.between.items():
            if table.dim() == 2:
                joint = joint[table[joint[:, a], joint[:, b]] > -torch.inf]
        return joint if 0 < len(joint) <= most else None

    def _chain(self, joint: Tensor) -> LinearChain:
        unary = torch.stack([scores[..., own] for scores, own in zip(self.unary, joint.T, strict=True)]).sum(0)
        for (a, b), table in self.between.items():
            unary = unary + table[..., joint[:, a], joint[:, b]]
        transition = unary.new_zeros(len(joint), len(joint))
        for own, scores in zip(joint.T, self.transitions, strict=True):
            transition = transition if scores is None else transition + scores[own.unsqueeze(1), own]
        return LinearChain(unary, transition, self.lengths)

    def _inside(self, labels: Sequence[Tensor]) -> Tensor:
        """The positions [B, T] of the sequences, once labels of all layers are checked there."""
        shape = tuple(self.unary[0].shape[:2])
        inside = checks.length_mask(self.lengths, shape[1])
        for layer, (y, size) in enumerate(zip(labels, self.sizes, strict=True)):
            checks.require_integers(f"labels of layer {layer}", y)
            checks.require_shape(f"labels of layer {layer}", y, "[B, T]", shape)
            for b in (((y < 0) | (y >= size)) & inside).any(1).nonzero()[:1, 0].tolist():
                raise ValueError(f"labels of layer {layer} must be from 0 to {size - 1}; example {b}: {y[b].tolist()}")
        return inside

    def _check(self) -> None:
        """Raise unless all scores have the shapes that those of the labels ask for."""
        if not self.unary or len(self.transitions) != len(self.unary):
            counts = f"{len(self.unary)} and {len(self.transitions)}"
            raise ValueError(f"unary and transitions must have an entry for each layer, one at least, got {counts}")
        at, sizes = tuple(self.unary[0].shape[:2]), [scores.shape[-1] for scores in self.unary]
        given = [(f"unary[{k}]", scores, [(*at, sizes[k])]) for k, scores in enumerate(self.unary)]
        pairs = [(f"transitions[{k}]", table, (k, k)) for k, table in enumerate(self.transitions) if table is not None]
        pairs += [(f"scores of skips[{k}]", table, (k, k)) for k, (_, table) in self.skips.items()]
        pairs += [(f"between[{pair}]", table, pair) for pair, table in self.between.items()]
        for name, table, (a, b) in pairs:
            if not {a, b} <= {*range(len(sizes))} or (name.startswith("between") and a == b):
                raise ValueError(f"{name} must be of layers from 0 to {len(sizes) - 1}, two for a table between layers")
            by_position = [(*at, sizes[a], sizes[b])] if name.startswith("between") else []
            given.append((name, table, [(sizes[a], sizes[b]), *by_position]))
        for name, scores, shapes in given:
            checks.require_scores(name, scores)
            if not checks.has_shape(scores, *shapes):
                wanted = " or ".join(map(str, shapes))
                raise ValueError(f"{name} must have shape {wanted}, got {tuple(scores.shape)}")
