"""Linear chains over sparse attributes, with compiled passes in the space of parts (CPU, float64)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from structsmooth.costs import Cost, Hamming
from structsmooth.losses import StructuralHinge
from structsmooth.problems.base import FullPass
from structsmooth.problems.bounds import Bounds, checked_bounds
from structsmooth.problems.linear.active_set import LEAST_REST, Cache, Steps
from structsmooth.problems.linear.base import DualIterate, LinearProblem
from structsmooth.scores import linear_chain
from structsmooth.sequences import SparseSequences, pad
from structsmooth.smoothing import L2, Entropy, Max, Smoother
from structsmooth.structures import LinearChain


@dataclass(frozen=True)
class ChainPass(FullPass):
    """A full pass that keeps the statistics of every example."""

    node: Tensor = field(kw_only=True)
    """Marginals of all tokens: [tokens, S]."""
    edge: Tensor = field(kw_only=True)
    """Marginals of neighbouring pairs, summed over each sequence: [n, S, S]."""

    per_example: ClassVar[tuple[str, ...]] = ("node", "edge")


class SparseChainProblem(LinearProblem):
    """Structural hinge losses of :class:`~structsmooth.scores.LinearScore` over sparse sequences.

    The passes are compiled: a step costs one oracle call and the example's nonzeros. The statistics of the snapshot
    are stored, T·S + S² numbers an example, and dense terms reach a row of weights when it is next touched. Weights
    are one row of S numbers per attribute, then transitions [S, S], then scores of the first and the last label. The
    passes take vectors that are float64 [dim], and orders that are int64 [steps, b]; they refuse all others.

    Args:
        sequences: attributes of the tokens of n sequences.
        labels: label of every token: int64 [tokens], from 0 to states - 1.
        features: number of attributes; ids are below it.
        states: number S of labels.
        cost: task loss; ``None`` for no margin.
        smoother: of the objective; see :class:`~structsmooth.problems.Problem`. A conditional random field has
            ``cost=None`` and ``smoother=Entropy(1.0)``.
        bounds: lower and upper bounds of the weights, [dim] each; steps within bounds are plain torch.

    Raises:
        TypeError: labels that are not int64.
        ValueError: no sequences, labels or attribute ids out of range, not as many labels as tokens, a cost for
            another number of states, or bounds that leave no weights.
    """

    def __init__(
        self,
        sequences: SparseSequences,
        labels: Tensor,
        features: int,
        states: int,
        cost: Cost | None = Hamming(),  # noqa: B008 - immutable
        smoother: Smoother = Max(),  # noqa: B008 - immutable
        bounds: Bounds | None = None,
    ) -> None:
        tokens = int(sequences.offsets[-1])
        if len(sequences) == 0:
            raise ValueError("sequences must hold at least one sequence, got none")
        if labels.dtype != torch.int64:
            raise TypeError(f"labels must be int64, got {labels.dtype}")
        if labels.shape != (tokens,):
            raise ValueError(f"labels must have shape [tokens] = {(tokens,)}, got {tuple(labels.shape)}")
        for name, ids, size in (("labels", labels, states), ("attributes", sequences.attributes, features)):
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
                raise ValueError(f"{name} must be from 0 to {size - 1}, got {int(ids.min())} to {int(ids.max())}")
        _smoothing(smoother)  # refuses what the kernels do not know
        self.sequences, self.labels, self.cost, self.smoother = sequences, labels, cost, smoother
        self.features, self.states = features, states
        self.n, self.dim = len(sequences), (features + states + 2) * states
        self.bounds = checked_bounds(bounds, self.start())
        if cost is not None:
            cost.check_classes(states)
        lengths = torch.repeat_interleave(sequences.lengths, sequences.lengths)
        costs = torch.zeros(tokens, dtype=torch.float64) if cost is None else cost.mistake_cost(labels, lengths)
        self._costs = _checked("costs of mistakes", costs, torch.float64, tokens)

    def start(self) -> Tensor:
        """Zeros."""
        return torch.zeros(self.dim, dtype=torch.float64)

    def views(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A vector [dim] as attribute rows [F, S], transitions [S, S] and scores of the ends [2, S]."""
        if w.shape != (self.dim,):
            raise ValueError(f"w must have shape {(self.dim,)}, got {tuple(w.shape)}")
        rows, rest = w.split([self.features * self.states, (self.states + 2) * self.states])
        transition, ends = rest.view(-1, self.states).split([self.states, 2])
        return rows.view(-1, self.states), transition, ends

    def structure(self, w: Tensor, indices: Tensor) -> LinearChain:
        """Chains of some examples under weights ``w``; differentiable."""
        return linear_chain(self.sequences.select(indices), *self.views(w))

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples, in plain torch: [b]."""
        y = pad(self.labels[self.sequences.tokens(indices)], self.sequences.lengths[indices])
        losses: Tensor = StructuralHinge(smoother, self.cost, "none")(self.structure(w, indices), y)
        return losses

    def potentials(self, w: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """B_i w: unary potentials [T, S] and transitions [S, S] of example i."""
        unary, transition = self.structure(w, torch.tensor([i])).potentials
        return unary[0], transition

    def adjoint(self, statistics: tuple[Tensor, ...], i: int) -> Tensor:
        """B_iᵀ m: the vector [dim] with ⟨B_iᵀ m, w⟩ = ⟨m, B_i w⟩, for statistics [T, S] and summed edges [S, S]."""
        w = self.start().requires_grad_()
        return torch.autograd.grad(self.potentials(w, i), w, statistics)[0]

    def part_costs(self, i: int) -> tuple[Tensor, Tensor]:
        """ℓ_i: costs of labels [T, S], and of transitions [S, S], which are zero."""
        tokens = self._tokens(i)
        wrong = 1 - one_hot(self.labels[tokens], self.states)
        return self._costs[tokens, None] * wrong, torch.zeros(self.states, self.states, dtype=torch.float64)

    def label_output(self, i: int) -> Tensor:
        """Labels of example i: int64 [T]."""
        return self.labels[self._tokens(i)]

    def best_output(self, potentials: tuple[Tensor, ...], i: int) -> Tensor:
        """The max oracle of :class:`~structsmooth.structures.LinearChain`: int64 [T]."""
        unary, transition = potentials
        y: Tensor = LinearChain(unary[None], transition).max()[1][0]
        return y

    def parts(self, output: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """Nodes [T, S] and summed edges [S, S] of one labelling."""
        node = one_hot(output, self.states).double()
        return node, node[:-1].T @ node[1:]

    def label_statistics(self) -> Tensor:
        """Parts of the labels; T rows of S nodes, then S rows of summed edges for each example, flat."""
        statistics = torch.zeros(len(self.labels) + self.n * self.states, self.states, dtype=torch.float64)
        rows, sequence = self._token_rows()
        statistics[rows, self.labels] = 1
        inner = torch.ones(len(rows), dtype=torch.bool).index_fill_(0, self.sequences.offsets[:-1], False)
        edge_rows = (self.sequences.offsets[1:] + torch.arange(self.n) * self.states)[sequence[inner]]
        edges = (edge_rows + self.labels.roll(1)[inner], self.labels[inner])
        return statistics.index_put_(edges, statistics.new_ones(()), accumulate=True).view(-1)

    def expected_cost(self, statistics: Tensor) -> float:
        """(1/n) Σ ⟨ℓ_i, m_i⟩."""
        right = self._checked_statistics(statistics)[self._token_rows()[0], self.labels]
        return float(self._costs @ (1 - right)) / self.n

    def dual_weights(self, statistics: Tensor, lam: float) -> Tensor:
        """v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim], compiled."""
        from structsmooth.problems.linear.sparse_chain import compiled_dual

        v, statistics = self.start(), self._checked_statistics(statistics)
        compiled_dual.dual_weights(self._data, statistics.numpy(), -1 / (lam * self.n), self._matrix(v))
        return v

    def block_gaps(self, w: Tensor, statistics: Tensor) -> Tensor:
        """The block gaps g_i of all examples, by one oracle call on each: [n], compiled."""
        from structsmooth.problems.linear.sparse_chain import compiled_dual

        w, statistics = self._checked_vector("w", w), self._checked_statistics(statistics)
        gaps = w.new_empty(self.n)
        compiled_dual.block_gaps(self._data, self._matrix(w), statistics.numpy(), gaps.numpy())
        self.oracle_calls += self.n
        return gaps

    def block_margins(self, w: Tensor, statistics: Tensor) -> Tensor:
        """(1/n) ⟨θ_i + ℓ_i, m_i − ν(y_i)⟩ of all examples: [n], compiled."""
        from structsmooth.problems.linear.sparse_chain import compiled_dual

        w, statistics = self._checked_vector("w", w), self._checked_statistics(statistics)
        margins = w.new_empty(self.n)
        compiled_dual.block_margins(self._data, self._matrix(w), statistics.numpy(), margins.numpy())
        return margins

    def best_statistics(self, w: Tensor) -> Tensor:
        """Statistics of all examples that are the parts of the outputs of the max oracle at ``w``, compiled."""
        full = self.full_pass(w, Max())
        lengths = self.sequences.lengths.tolist()
        pieces = zip(full.node.split(lengths), full.edge, strict=True)
        return torch.cat([part for piece in pieces for part in piece]).view(-1)

    def frank_wolfe_epoch(
        self,
        point: DualIterate,
        order: Tensor,
        *,
        lam: float,
        steps: Steps = "fw",
        shares: Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[DualIterate, Tensor | None]:
        """The epoch of :meth:`LinearProblem.frank_wolfe_epoch`, compiled where there are no bounds."""
        if self.bounds is not None:
            return super().frank_wolfe_epoch(point, order, lam=lam, steps=steps, shares=shares, cache=cache)
        from structsmooth.problems.linear.sparse_chain import compiled_dual

        start = self._checked_vector("point.weights", point.weights)
        statistics = self._checked_statistics(point.statistics).clone()
        gaps = _checked("point.gaps", point.gaps, torch.float64, self.n).clone()
        examples, draws = self._checked_choices(order)
        w, total, remaining = start.clone(), start.new_empty(0), start.new_empty(0)
        if shares is not None:
            shares = _checked("shares", shares, torch.float64, len(order))
            remaining = shares.flip(0).cumsum(0).flip(0)
            total = start * shares.sum()
        needed = steps != "fw" or cache is not None
        sets = self._checked_sets(point) if needed else self._no_sets
        self.oracle_calls += compiled_dual.frank_wolfe_epoch(
            examples.numpy(),
            draws.numpy(),
            self._data,
            self._matrix(w),
            self._matrix(total),
            statistics.numpy(),
            gaps.numpy(),
            float(lam),
            remaining.numpy(),
            tuple(tensor.numpy() for tensor in sets),
            (_STEPS[steps], LEAST_REST),
            (False, 0.0, 0.0) if cache is None else (True, float(cache.factor), float(cache.least)),
        )
        if needed:
            point = replace(point, outputs=sets[0], alphas=sets[1], stamps=sets[2])
        new = replace(point, weights=w, statistics=statistics.view(-1), gaps=gaps)
        return new, None if shares is None else total

    def subset(self, indices: Tensor) -> SparseChainProblem:
        """The same problem over some of its examples."""
        labels = self.labels[self.sequences.tokens(indices)]
        sequences, sizes = self.sequences.select(indices), (self.features, self.states)
        return SparseChainProblem(sequences, labels, *sizes, self.cost, self.smoother, self.bounds)

    def restrict(self, indices: Tensor, w: Tensor) -> tuple[SparseChainProblem, Tensor]:
        """The same problem over some of its examples and the attributes that occur there, with their weights."""
        subset = self.subset(indices)
        used, attributes = subset.sequences.attributes.unique(return_inverse=True)
        sequences = replace(subset.sequences, attributes=attributes.to(torch.int32))
        bounds = self.bounds and (self._rows(self.bounds[0], used), self._rows(self.bounds[1], used))
        sizes = (len(used), self.states)
        part = SparseChainProblem(sequences, subset.labels, *sizes, self.cost, self.smoother, bounds)
        return part, self._rows(w, used)

    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i(w), without the regularizer; under the problem's own smoother, if no other is given."""
        return self.full_pass(w, smoother or self.smoother).smoothed_loss

    def full_pass(self, w: Tensor, smoother: Smoother, *, with_loss: bool = False) -> ChainPass:
        """One oracle call on every example; a loss without smoothing comes with it."""
        from structsmooth.problems.linear.sparse_chain import compiled_primal  # numba loads with the first pass

        w = self._checked_vector("w", w)
        gradient = torch.zeros_like(w)
        node = w.new_empty(len(self.labels), self.states)
        edge = w.new_empty(self.n, self.states, self.states)
        smoothed, loss, cost = compiled_primal.full_pass(
            self._data, self._matrix(w), _smoothing(smoother), node.numpy(), edge.numpy(), self._matrix(gradient)
        )
        self.oracle_calls += self.n
        if not isinstance(self.smoother, Max):
            own = smoother == self.smoother
            loss = smoothed if own else self.loss(w) if with_loss else None
            # h(θ + ℓ) = ⟨θ + ℓ, m⟩ − h*(m): beside the cost there is −h*(m) ≥ 0, which no other statistics are sure of.
            cost = smoothed - float(w @ gradient) if own else cost
        return ChainPass(w.clone(), smoother, smoothed, gradient, loss, cost, node=node, edge=edge)

    def svrg_epoch(
        self,
        snapshot: FullPass,
        order: Tensor,
        *,
        step_size: float,
        lam: float,
        kappa: float = 0.0,
        center: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The epoch of :meth:`Problem.svrg_epoch`, compiled for steps of one example."""
        shrink = step_size * (lam + kappa)
        order = self._checked_order(order)
        if order.shape[1] > 1 or not isinstance(snapshot, ChainPass):
            return super().svrg_epoch(snapshot, order, step_size=step_size, lam=lam, kappa=kappa, center=center)
        from structsmooth.problems.linear.sparse_chain import compiled_primal

        steps, sums = len(order), _power_sums(shrink, len(order))
        start = self._checked_vector("snapshot.weights", snapshot.weights)
        drift = self._checked_vector("snapshot.gradient", snapshot.gradient)
        node = _checked("snapshot.node", snapshot.node, torch.float64, len(self.labels), self.states)
        edge = _checked("snapshot.edge", snapshot.edge, torch.float64, self.n, self.states, self.states)
        w, total = start.clone(), torch.zeros_like(start)
        if center is not None:
            drift = torch.sub(drift, self._checked_vector("center", center), alpha=kappa)
        compiled_primal.svrg_epoch(
            order[:, 0].numpy(),
            self._data,
            self._matrix(w),
            self._matrix(drift),
            self._matrix(total),
            _smoothing(snapshot.smoother),
            node.numpy(),
            edge.numpy(),
            (float(step_size), float(shrink), sums.numpy()),
        )
        self.oracle_calls += steps
        # The dense terms of the sum of the iterates, in closed form.
        total.add_(start, alpha=float(sums[steps + 1] - 1))
        total.sub_(drift, alpha=step_size * float(sums.sum() - sums[-1]))
        return w, total.div_(steps)

    def sgd_epoch(
        self, w: Tensor, order: Tensor, *, step_sizes: Tensor, lam: float, smoother: Smoother, shares: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The epoch of :meth:`Problem.sgd_epoch`, compiled for steps of one example."""
        order, w = self._checked_order(order), self._checked_vector("w", w)
        if order.shape[1] > 1:
            return super().sgd_epoch(w, order, step_sizes=step_sizes, lam=lam, smoother=smoother, shares=shares)
        from structsmooth.problems.linear.sparse_chain import compiled_primal

        w, total = w.clone(), torch.zeros_like(w)
        vectors = (self._matrix(w), self._matrix(total))
        rates = {"step_sizes": step_sizes, "shares": shares}
        steps = (_checked(name, rate, torch.float64, len(order)).numpy() for name, rate in rates.items())
        compiled_primal.sgd_epoch(order[:, 0].numpy(), self._data, *vectors, _smoothing(smoother), float(lam), *steps)
        self.oracle_calls += len(order)
        return w, total

    @property
    def _data(self) -> tuple[Any, ...]:
        s = self.sequences
        tensors = (s.attributes, s.token_offsets, s.offsets, self.labels, self._costs)
        return tuple(tensor.contiguous().numpy() for tensor in tensors)

    def _rows(self, w: Tensor, attributes: Tensor) -> Tensor:
        """The part of a vector [dim] that is of some attributes, or of none."""
        rows, transition, ends = self.views(w)
        return torch.cat([rows[attributes], transition, ends]).flatten()

    def _matrix(self, w: Tensor) -> Any:
        return w.view(-1, self.states).numpy()

    def _checked_vector(self, name: str, w: Tensor) -> Tensor:
        return _checked(name, w, torch.float64, self.dim)

    def _tokens(self, i: int) -> slice:
        return slice(*self.sequences.offsets[i : i + 2].tolist())

    def _token_rows(self) -> tuple[Tensor, Tensor]:
        """Row of every token in the statistics, and its sequence."""
        sequence = torch.repeat_interleave(self.sequences.lengths)
        return torch.arange(len(self.labels)) + sequence * self.states, sequence

    def _checked_statistics(self, statistics: Tensor) -> Tensor:
        size = (len(self.labels) + self.n * self.states) * self.states
        return _checked("statistics", statistics, torch.float64, size).view(-1, self.states)

    @property
    def _no_sets(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sets without slots."""
        slots = torch.empty(self.n, 0, dtype=torch.int32)
        return slots.view(-1), slots.double(), slots

    def _checked_sets(self, point: DualIterate) -> tuple[Tensor, Tensor, Tensor]:
        """Copies of what the examples hold."""
        alphas = _checked("point.alphas", point.alphas, torch.float64, self.n, -1).clone()
        stamps = _checked("point.stamps", point.stamps, torch.int32, *alphas.shape).clone()
        outputs = _checked("point.outputs", point.outputs, torch.int32, len(self.labels) * alphas.shape[1]).clone()
        return outputs, alphas, stamps

    def _checked_choices(self, order: Tensor) -> tuple[Tensor, Tensor]:
        """Examples and draws as the kernel has them: one of the two is empty."""
        if isinstance(order, Tensor) and order.dtype == torch.float64:
            draws = _checked("order [steps]", order, torch.float64, -1)
            if not ((draws >= 0) & (draws < 1)).all():
                raise ValueError("order must hold draws from [0, 1)")
            return torch.empty(0, dtype=torch.int64), draws
        examples = _checked("order [steps]", order, torch.int64, -1)
        return self._checked_order(examples[:, None])[:, 0], torch.empty(0, dtype=torch.float64)

    def _checked_order(self, order: Tensor) -> Tensor:
        order = _checked("order [steps, b]", order, torch.int64, -1, -1)
        unknown = order[(order < 0) | (order >= self.n)]
        if len(unknown) or not order.numel():
            found = int(unknown[0]) if len(unknown) else "none"
            raise ValueError(f"order must hold examples from 0 to {self.n - 1}, got {found}")
        return order


# As the kernels have them.
_STEPS = {"fw": 0, "pairwise": 1, "away": 2}


def _checked(name: str, tensor: Tensor, dtype: torch.dtype, *shape: int) -> Tensor:
    """A tensor without gaps, if it is what compiled code expects; a size of -1 may be any."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if (tensor.dtype, tensor.device.type) != (dtype, "cpu"):
        raise TypeError(f"{name} must be {dtype} on the CPU, got {tensor.dtype} on {tensor.device}")
    if tensor.dim() != len(shape) or any(size not in (-1, own) for size, own in zip(shape, tensor.shape, strict=True)):
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
    return tensor.detach().contiguous()


def _smoothing(smoother: Smoother) -> tuple[float, int]:
    """Level and kind of smoothing as the kernels have it."""
    if isinstance(smoother, Entropy):
        return float(smoother.mu), 0
    if isinstance(smoother, L2):
        return float(smoother.mu), smoother.k
    if isinstance(smoother, Max):
        return 1.0, 1
    raise TypeError(f"compiled chain passes know Max, L2 and Entropy, got {type(smoother).__name__}")


def _power_sums(shrink: float, steps: int) -> Tensor:
    """1 + c + ... + c^(g-1) for c = 1 - shrink and g = 0, ..., steps + 1; also where c is 1 to rounding."""
    if not 0 <= shrink < 1:
        raise ValueError(f"step_size * (lam + kappa) must be in [0, 1), got {shrink}")
    g = torch.arange(steps + 2, dtype=torch.float64)
    return -torch.expm1(g * math.log1p(-shrink)) / shrink if shrink > 0 else g
