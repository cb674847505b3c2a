"""Label sequences that a finite automaton accepts, with the scores of a chain: the product of both."""

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import widened
from structsmooth.structures.chain import LinearChain
from structsmooth.structures.chain.compaction import compact_edges, compact_nodes, spread_labels, spread_nodes
from structsmooth.structures.checks import length_mask
from structsmooth.structures.factor_graph.factors import Automaton
from structsmooth.structures.programs import DynamicProgram, Program, ProgramBuilder, cached_program

Arcs = tuple[tuple[int, int, int], ...]  # states, labels that are read there, next states


class Accepted(DynamicProgram):
    """The label sequences of a chain that an automaton accepts.

    score(y) is that of the chain, plus the scores of the arcs that read y, and of the state in which they end. Max and
    exp oracle take O(T A S) operations per example for A arcs, or less where states are reached or left by few labels,
    such as O(T A) for a grid; top-K up to K times that. All examples share one program, of about 20 bytes for each of
    these edges. From some 10⁷ edges on, such as 1,000 frames and a lexicon of 10⁴ arcs, k2 is the better choice: it
    composes while it reads, drops what is far from the best, and takes an automaton for each example.

    Backends, forbidden (-inf) scores and infeasible examples are as in :class:`~structsmooth.programs.DynamicProgram`,
    outputs, lengths and masks as in :class:`~structsmooth.LinearChain`.

    Args:
        chain: scores of label sequences, such as those of :class:`~structsmooth.HiddenMarkov` or
            :class:`~structsmooth.CRF`.
        automaton: what is accepted. The scores of its arcs and of its final states, [Q] or [B, Q], are potentials.

    Raises:
        TypeError: no chain, no automaton, or a tensor of the wrong dtype.
        ValueError: an automaton of other labels than the chain, or with a scope.

    Reference:
        Mohri, Pereira and Riley (2002), "Weighted finite-state transducers in speech recognition".

    Example:
        >>> from structsmooth.factors import Automaton
        >>> one = Automaton.from_pattern("O* B-PER I-PER* O*", ["O", "B-PER", "I-PER"])  # exactly one person
        >>> unary = torch.tensor([[[0.0, 3.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 1.0]]])
        >>> Accepted(LinearChain(unary, torch.zeros(3, 3)), one).max()
        (tensor([4.]), tensor([[1, 0, 0]]))
    """

    labels_are_classes = True
    potential_names = ("unary", "transition", "arcs", "final")
    potential_dims = {"transition": 3, "arcs": 3, "final": 2}  # noqa: RUF012 - never changed
    row_names = ("lengths", "mask", "_order")
    field_names = ("_label_at_padding", "read", "read_tensor", "states")

    def __init__(self, chain: LinearChain, automaton: Automaton) -> None:
        for name, given, kind in (("chain", chain, LinearChain), ("automaton", automaton, Automaton)):
            if not isinstance(given, kind):
                raise TypeError(f"{name} must be {kind.__name__}, got {type(given).__name__}")
        self.unary, self.transition, device = chain.unary, chain.transition, chain.unary.device
        self.lengths, self.mask, self._order = chain.lengths, chain.mask, chain._order
        self._label_at_padding = chain._label_at_padding
        self.read, (self.states, labels) = automaton.listed, automaton.transitions.shape[-2:]
        if labels != chain.unary.shape[-1]:
            raise ValueError(
                f"automaton must read the {chain.unary.shape[-1]} labels of the chain, got one of {labels}"
            )
        self.read_tensor = torch.tensor(automaton.listed, device=device).view(-1, 3)
        zeros = automaton.scores.new_zeros(()).expand(self.states, labels)
        self.final, self.arcs = (
            automaton.scores.to(device),
            (zeros if automaton.arcs is None else automaton.arcs).to(device),
        )
        super().__init__(chain.validate_args, chain.backend)

    def check_shapes(self) -> None:
        """Raise unless the scores fit to those of a chain, and of the arcs and final states of an automaton."""
        checks.require_chain(self.unary, self.transition)
        batch, _, labels = self.unary.shape
        for name, shape in (("arcs", (self.states, labels)), ("final", (self.states,))):
            scores = getattr(self, name)
            checks.require_scores(name, scores)
            checks.require_device(name, scores, "unary", self.unary)
            if not checks.has_shape(scores, shape, (batch, *shape)):
                raise ValueError(f"{name} must have shape {shape} or {(batch, *shape)}, got {tuple(scores.shape)}")
        if not self.read:
            raise ValueError("scope of automaton must be empty: it reads the labels of a chain in turn")

    def used_scores(self, name: str) -> Tensor:
        """Scores in the dtype of sums, without holes, zero at padding."""
        found, inside = widened(getattr(self, name)), length_mask(self.lengths, self.unary.shape[1])
        if name == "unary":
            found = found if self._order is None else compact_nodes(found, self._order, self.lengths)
            return checks.inside(inside, found)
        if name != "transition" or found.dim() < 4:
            return found
        return checks.inside(inside[:, 1:], found if self._order is None else compact_edges(found, self._order))

    def program(self) -> Program:
        """The program of :func:`accepted`."""
        return accepted(*self.unary.shape[1:], self.states, self.read, self.transition.dim() == 4)

    def program_scores(self) -> Tensor:
        """Scores of arcs at all positions, of pairs of labels, of final states, and of what is refused: [B, P]."""
        unary, pairs, arcs, final = map(self.used_scores, self.potential_names)
        q, j, _ = self.read_tensor.T
        taken = unary.index_select(2, j) + arcs.flatten(-2).index_select(-1, q * unary.shape[2] + j).unsqueeze(-2)
        final = torch.cat([final, final.new_full((*final.shape[:-1], 1), -torch.inf)], -1)
        pairs = pairs.flatten() if pairs.dim() == 2 else pairs.flatten(1)
        return torch.cat([taken.flatten(1), *(scores.expand(unary.shape[0], -1) for scores in (pairs, final))], 1)

    def sizes(self) -> Tensor:
        """The root of the program for the length of each sequence: int64 [B]."""
        return self.lengths

    def checked_labels(self, y: Tensor) -> Tensor:
        """Labels as int64, with 0 at padding."""
        return checks.checked_classes(self, y, "[B, T]", self.unary.shape[2], self.mask)

    def derivation(self, y: Tensor) -> Tensor:
        """The arcs that read ``y``, pairs of labels and the final state; the last score where there is no such arc."""
        (_, steps, states), count = self.unary.shape, self.states
        q, j, r = self.read_tensor.T
        arcs = y.new_full((count + 1, states), len(q)).index_put((q, j), torch.arange(len(q), device=y.device))
        after = torch.cat([r, r.new_full((1,), count)])
        y = y if self._order is None else y.gather(1, self._order)
        inside, t = length_mask(self.lengths, steps), torch.arange(steps, device=y.device)
        state, taken = torch.zeros_like(y[:, 0]), []
        for here, label in zip(inside.T, y.T, strict=True):
            taken.append(arcs[state, label])
            state = torch.where(here, after[taken[-1]], state)
        used, each = torch.stack(taken, 1), self.transition.dim() == 4
        final = steps * len(q) + (steps - 1 if each else 1) * states**2
        used = torch.where(used < len(q), t * len(q) + used, final + count)
        pairs = steps * len(q) + each * t[:-1] * states**2 + y[:, :-1] * states + y[:, 1:]
        placed = torch.where(torch.cat([inside, inside[:, 1:]], 1), torch.cat([used, pairs], 1), final + count + 1)
        return torch.cat([placed, final + state.unsqueeze(1)], 1)

    def outputs(self, used: Tensor) -> Tensor:
        """Labels [B, K, T] of the arcs among the scores that outputs use."""
        steps, labels = self.unary.shape[1], self.read_tensor[:, 1]
        y = used.new_zeros(*used.shape[:2], steps + 1)
        y = y.scatter(2, (used // len(labels)).clamp_max(steps), labels[used % len(labels)])[..., :steps]
        return y if self._order is None else spread_labels(y, self._order, self.mask, self._label_at_padding)

    def read_max_marginals(self, values: Tensor) -> Tensor:
        """The largest score [B, T, S] of an accepted sequence with y_t = j; zero at padding."""
        labels = self.read_tensor[:, 1]
        arcs = values[:, : self.unary.shape[1] * len(labels)].view(*self.unary.shape[:2], len(labels))
        best = arcs.new_full(self.unary.shape, -torch.inf).scatter_reduce(2, labels.expand(arcs.shape), arcs, "amax")
        return checks.inside(self.mask, best if self._order is None else spread_nodes(best, self._order, self.mask))


@cached_program
def accepted(steps: int, states: int, count: int, read: Arcs, each: bool) -> Program:
    """Scores of arcs by position, of pairs of labels (by boundary, if each has its own), of final states, and one more.

    Nodes of a position say that an arc is next, or that label j has led to state r: A and G of them, and a root.
    """
    q, j, r = np.array(read).T
    (labels, ends), group = np.unique([j, r], axis=1, return_inverse=True)
    final = steps * len(q) + (steps - 1 if each else 1) * states**2
    builder, block = ProgramBuilder(scores=final + count + 1), len(q) + len(labels) + 1
    builder.add(0, index=final)
    builder.add(1 + np.flatnonzero(q == 0))
    t, (g, a) = np.arange(steps)[:, None], np.nonzero(ends[:, None] == q)
    begin, reached = 1 + t * block, 1 + t * block + len(q)
    pairs = steps * len(q) + each * (t - 1) * states**2 + labels[g] * states + j[a]
    builder.add(begin + a, reached - block + g, index=pairs, where=t > 0)
    builder.add(reached + group.reshape(-1), begin + np.arange(len(q)), index=t * len(q) + np.arange(len(q)))
    builder.add(begin + block - 1, reached + np.arange(len(labels)), index=final + ends)
    return builder.build(np.append(0, begin + block - 1), 1 + steps * block)
