"""SparseMAP: the max over distributions of outputs, less the squared norm of their statistics, by an active set."""

import warnings
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from structsmooth.settings import check_choice, check_number
from structsmooth.structures.active_set import ActiveSets, affine_optimum, inner_products, nonzeros, weighted_sum
from structsmooth.structures.checks import MU, refuse_transforms, require_count
from structsmooth.structures.derivatives import apart_from_hooks
from structsmooth.structures.optimal_face import Best, FaceDirections

RegularizedParts = Literal["all", "first"]
_ROUNDING = 64 * torch.finfo(torch.float64).eps
_TIE = 1e-9  # difference of scores, in units of μ, that counts as none


class SparseSolution(NamedTuple):
    """The solution of SparseMAP for a batch: a distribution over A or fewer outputs of each example.

    Attributes:
        value: h_μ(θ), [B]; differentiable.
        statistics: Σ_j u_j ν(y_j), one tensor per kind of part; differentiable.
        weights: u, [B, A], zero where an example has fewer outputs; differentiable. Their derivative leaves the weights
            of all other outputs at zero: where scores tie, take that of the statistics.
        y: the outputs, [B, A, ...].
        gap: upper bounds [B] on what h_μ lacks: duality gaps of the last oracle calls.
        oracle_calls: calls of the max oracle for each example, int64 [B].
        largest: the largest score of an output, without gradient, [B].
    """

    value: Tensor
    statistics: tuple[Tensor, ...]
    weights: Tensor
    y: Tensor
    gap: Tensor
    oracle_calls: Tensor
    largest: Tensor


def sparse_map(
    structure: Any,
    mu: float = 1.0,
    parts: RegularizedParts = "all",
    *,
    tolerance: float = 1e-9,
    max_calls: int = 1000,
    start: Tensor | None = None,
) -> SparseSolution:
    """max ⟨θ, m⟩ − (μ/2)‖m‖² over the convex hull of the outputs' parts: exact, by calls of the max oracle.

    Each call adds the best output for the scores θ − μ m to the active set, whose quadratic program is solved exactly,
    and bounds what is lacking by the gap ⟨θ − μ m, ν(y) − m⟩. The active set of the solution is found after finitely
    many calls, usually a few more than it has outputs. Calls are batched over the examples that are not done, and made
    in float64.

    The first derivative of the value is the statistics m. The derivative of m is, divided by μ, the projection onto the
    directions of the face of all outputs that are best for θ − μ m, more of which may be needed than have a weight.
    The backward pass finds them by further calls of the oracle: two where the active set lacks none, and else some for
    each direction that it lacks, in few batches. Where m lies on the boundary of that face, it has no derivative; this
    one is then the limit of those at nearby scores for which m lies inside.

    Args:
        structure: with scores and a max oracle. Where that oracle is a relaxation (``LocalPolytope``), so is this.
        mu: level of smoothing, > 0.
        parts: which parts count in the norm: ``"all"``, or the ``"first"`` kind alone, such as the labels of variables.
        tolerance: gap at which to stop, in units of μ.
        max_calls: limit on the calls of the oracle for an example, and on the directions that the backward pass adds; a
            warning says where it is reached.
        start: outputs [B, k, ...] to start from, such as those of an earlier solution for similar scores.

    Raises:
        ValueError: ``mu`` not positive, or ``start`` of the wrong shape.
        NotImplementedError: parts whose scores are restricted, such as the pairs of ``BinaryGraph``; transforms of
            ``torch.func``, ``torch.compile``.
        TypeError: ``start`` for a structure whose oracle is a relaxation.

    Reference:
        Niculae et al. (2018), section 3, for ``parts="first"``; Nocedal and Wright (2006), chapter 16.

    Example:
        >>> from structsmooth import Matching
        >>> solution = sparse_map(Matching(torch.tensor([[[1.0, 0.5], [0.2, 0.0]]])), mu=1.0)
        >>> solution.statistics[0]
        tensor([[[0.5750, 0.4250],
                 [0.4250, 0.5750]]])
        >>> solution.oracle_calls
        tensor([3])
    """
    refuse_transforms("SparseMAP")
    if torch.compiler.is_compiling():
        raise NotImplementedError(
            "SparseMAP searches in Python, which torch.compile does not trace: call it outside the compiled function"
        )
    check_number("mu", mu, MU)
    check_choice("parts", parts, get_args(RegularizedParts))
    require_count("max_calls", max_calls)
    structure = structure.without_wrong()
    with torch.no_grad():
        search = _Search(structure, mu, parts, max_calls)
        search.run(tolerance, start)
    return search.solution()


class _Search:
    """The state of a search, in units of μ: the linear part of the objective is θ/μ."""

    def __init__(self, structure: Any, mu: float, parts: RegularizedParts, max_calls: int) -> None:
        free = structure.free_potentials
        if parts == "all" and free is not None and free < len(structure.potentials):
            name, first = type(structure).__name__, structure.potential_names[0]
            raise NotImplementedError(
                f'{name} finds the best outputs for some scores only: take parts="first", the norm of the statistics '
                f"of {first} alone, whose scores may have any values"
            )
        self.structure, self.mu, self.parts, self.max_calls = structure, mu, parts, max_calls
        # Scores that this makes of allowed ones are allowed.
        space = structure.detach().to(torch.float64)._changed({"_validate_args": False})
        self.shapes = [part.shape for part in space.parts(space.max()[1])]
        expanded = _expanded(space, self.shapes)
        if parts == "all" or space.is_fractional:
            space = space.replace(*expanded)
        self.space, flat = space, _flat(expanded)
        self.largest, self.y, self.best = _oracle(space)
        self.feasible = self.largest > -torch.inf
        # Nothing uses what is forbidden, and padding may hold anything.
        self.scores = torch.where(flat.isfinite(), flat, 0.0) / mu
        sizes = [shape[1:].numel() for shape in self.shapes]
        counted = [torch.full((size,), parts == "all" or i == 0) for i, size in enumerate(sizes)]
        metric = torch.cat(counted).to(flat.device)
        self.sets = ActiveSets(len(flat), metric)
        self.outputs = self.y.unsqueeze(1).expand(-1, self.sets.active.shape[1], *self.y.shape[1:]).clone()
        self.gap, self.calls = self.largest.new_zeros(len(flat)), torch.ones_like(self.feasible, dtype=torch.int64)
        self.face: FaceDirections | None = None

    def run(self, tolerance: float, start: Tensor | None) -> None:
        """Add outputs until no gap is above the tolerance."""
        rows = self.feasible.nonzero().squeeze(1)
        self._add(rows, self.y[rows], self.best[rows])
        if start is not None:
            self._add_known(start, tolerance)
        # ⟨θ - μ m, ν(y) - m⟩ for the best y bounds what m lacks; examples leave when theirs is small enough.
        while len(rows):
            mean = self.sets.mean(rows)
            y, vertices = self._statistics(rows, mean * self.sets.metric)
            self.gap[rows], going = self._improves(rows, vertices, mean, tolerance)
            self.calls[rows] += 1
            late = going & (self.calls[rows] >= self.max_calls)
            if bool(late.any()):
                b = int(rows[late.long().argmax()])
                warnings.warn(
                    f"SparseMAP stops after max_calls={self.max_calls} calls of the max oracle, with a gap of "
                    f"{self.mu * float(self.gap[b]):.3g} at example {b}: raise max_calls, or lower mu",
                    RuntimeWarning,
                    stacklevel=2,
                )
            going &= ~late
            rows, y, vertices = rows[going], y[going], vertices[going]
            self._add(rows, y, vertices)

    def _improves(self, rows: Tensor, vertices: Tensor, mean: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
        """Gaps [b] at the statistics ``mean`` towards vertices [b, D], and whether these improve on it."""
        slopes = self.scores[rows] - mean * self.sets.metric
        gap, rounding = _gaps(slopes, vertices, mean)
        return gap, (gap > tolerance + rounding) & ~self.sets.has(rows, vertices)

    def _add(self, rows: Tensor, y: Tensor, vertices: Tensor) -> None:
        """Add outputs of some examples, with their statistics, to the active sets."""
        if not len(rows):
            return
        slots = self.sets.add(rows, vertices, (self.scores[rows] * vertices).sum(1))
        more = self.sets.active.shape[1] - self.outputs.shape[1]
        if more:
            self.outputs = torch.cat([self.outputs, self.outputs[:, :1].expand(-1, more, *y.shape[1:])], 1)
        self.outputs[rows, slots] = y

    def _add_known(self, start: Tensor, tolerance: float) -> None:
        """Add outputs that the caller knows, where they are allowed and differ, without calls of the oracle."""
        if self.space.is_fractional:
            raise TypeError(f"{type(self.structure).__name__} has points that no output has: leave start out")
        if start.dim() != 1 + self.y.dim() or start.shape[2:] != self.y.shape[1:] or len(start) != len(self.y):
            wanted = f"[B, k, ...] with B and ... as {tuple(self.y.shape)}"
            raise ValueError(f"start must hold outputs {wanted}, got {tuple(start.shape)}")
        known = [_flat(self.space.parts(y)).double() for y in start.unbind(1)]
        index, values = (flat.unflatten(0, start.shape[1::-1]).transpose(0, 1) for flat in nonzeros(torch.cat(known)))
        allowed = torch.stack([self.space.score(y) > -torch.inf for y in start.unbind(1)], 1)
        rows = (self.feasible & allowed.any(1)).nonzero().squeeze(1)
        while len(rows):
            mean = self.sets.mean(rows)
            slopes = inner_products(self.scores[rows] - mean * self.sets.metric, index[rows], values[rows])
            best = torch.where(allowed[rows], slopes, -torch.inf).argmax(1)
            vertices = torch.stack([known[k][b] for b, k in zip(rows.tolist(), best.tolist(), strict=True)])
            _, going = self._improves(rows, vertices, mean, tolerance)
            rows, best, vertices = rows[going], best[going], vertices[going]
            self._add(rows, start[rows, best], vertices)

    def _statistics(self, rows: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor]:
        """The best outputs of examples whose scores are less by μ times ``penalty`` [b, D], and their parts."""
        space = self.space[rows]
        lessened = [self.mu * part.view(len(rows), *shape[1:]) for part, shape in self._split(penalty)]
        first, *others = space.potentials
        if self.parts == "all":
            others = [scores - reduction for scores, reduction in zip(others, lessened[1:], strict=True)]
        return _oracle(space.replace(first - lessened[0], *others))[1:]

    def _split(self, flat: Tensor) -> list[tuple[Tensor, torch.Size]]:
        sizes = [shape[1:].numel() for shape in self.shapes]
        return list(zip(flat.split(sizes, 1), self.shapes, strict=True))

    def derivative(self, gradient: Tensor) -> Tensor:
        """The product of numbers [B, D] with the Jacobian of the statistics, which is symmetric."""
        if self.face is None:
            with torch.no_grad():
                self.face = self._face()
        return self.face.project(gradient) / self.mu

    def _face(self) -> FaceDirections:
        """The directions of the faces of outputs that are best for θ/μ − m."""
        face, rows = FaceDirections(self.sets), self.feasible.nonzero().squeeze(1)
        mean = self.sets.mean(torch.arange(len(self.scores), device=rows.device))
        slopes = self.scores - mean * self.sets.metric
        unit = _TIE + _gaps(slopes, mean, mean)[1]

        def best(rows: Tensor, step: Tensor) -> Best:
            point = mean[rows]
            _, vertices = self._statistics(rows, point * self.sets.metric - step)
            gain, rounding = _gaps(slopes[rows], vertices, point)
            return Best(vertices - point, gain, -gain <= _TIE + rounding)

        left = face.complete(rows, unit, best, self.max_calls)
        if len(left):
            warnings.warn(
                f"the derivative of SparseMAP leaves out directions of example {int(left[0])}, where more outputs tie "
                f"than max_calls={self.max_calls}: raise max_calls",
                RuntimeWarning,
                stacklevel=2,
            )
        return face

    def solution(self) -> SparseSolution:
        """The optimum as a function of the scores: weights for these active sets, statistics on the whole face."""
        kept = self.sets.active.any(0)
        # An example without outputs has no active slot; one slot keeps shapes above zero.
        kept[0] = True
        active, feasible, products = self.sets.active[:, kept], self.feasible, self.sets.products[:, kept][:, :, kept]
        index = self.sets.index[:, kept]
        values = torch.where(active.unsqueeze(2), self.sets.values[:, kept], 0.0)
        scores = _flat(_expanded(self.structure, self.shapes))
        used = torch.zeros_like(self.scores).scatter_add(1, index.flatten(1), values.abs().flatten(1)) != 0
        linear = inner_products(torch.where(used, scores, 0.0).double(), index, values) / self.mu
        largest = torch.where(active, linear.detach(), -torch.inf).amax(1, keepdim=True)
        largest = torch.where(feasible.unsqueeze(1), largest, 0.0)
        below = torch.where(active, linear - largest, 0.0)
        weights, _ = affine_optimum(products, active, below)
        found = weights.detach()
        mean = weighted_sum(found, index, values, len(self.sets.metric))
        square = (mean.square() * self.sets.metric).sum(1)
        # h_μ / μ = ⟨θ/μ, m⟩ - |m|² / 2, with the largest score apart, so that small differences keep their digits.
        value = largest.squeeze(1) + (found * below.detach()).sum(1) - square / 2
        value = torch.where(feasible, self.mu * value, -torch.inf)
        dtype = scores.dtype
        value, mean = _Optimum.apply(scores, value.to(dtype), mean, self)
        statistics = tuple(part.view(shape).to(dtype) for part, shape in self._split(mean))
        gap, calls = self.mu * self.gap.clamp_min(0.0), self.calls
        outputs, largest = self.outputs[:, kept], self.largest
        return SparseSolution(value, statistics, weights.to(dtype), outputs, gap.to(dtype), calls, largest.to(dtype))


class _Optimum(torch.autograd.Function):
    """Value [B] and statistics [B, D] of a search as functions of the scores [B, D] (Lemma 7)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, mean: Tensor, search: _Search) -> tuple[Tensor, Tensor]:
        ctx.search = search
        ctx.save_for_backward(scores, value, mean)
        ctx.set_materialize_grads(False)
        return value.clone(), mean.clone()

    @staticmethod
    def backward(ctx: Any, of_value: Tensor | None, of_mean: Tensor | None) -> tuple[Tensor | None, ...]:
        scores, *found = ctx.saved_tensors
        gradient = torch.zeros_like(found[1])
        if of_value is not None:
            gradient = gradient + of_value.unsqueeze(1) * _Optimum.apply(scores, *found, ctx.search)[1]
        if of_mean is not None:
            gradient = gradient + ctx.search.derivative(of_mean)
        return gradient.to(scores.dtype), None, None, None


def _gaps(slopes: Tensor, vertices: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """By how much vertices [b, D] are better than a mean [b, D] for scores ``slopes``, and how much is rounding."""
    rounding = _ROUNDING * (slopes.abs() * (vertices + mean).abs()).sum(1)
    return (slopes * (vertices - mean)).sum(1), rounding


def _oracle(space: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The largest scores [B], outputs [B, ...] that have them, and their statistics [B, D]."""
    if not space.is_fractional:
        largest, y = space.max()
        return largest, y, _flat(space.parts(y)).double()
    with torch.enable_grad(), apart_from_hooks():
        leaves = [scores.detach().requires_grad_() for scores in space.potentials]
        largest, y = space.replace(*leaves).max()
        statistics = torch.autograd.grad(largest.sum(), leaves, materialize_grads=True)
    return largest.detach(), y, _flat(statistics)


def _expanded(structure: Any, shapes: list[torch.Size]) -> list[Tensor]:
    """Scores of all parts, in the shapes of the parts and at least in float32."""
    scores = [part.float() if part.dtype.itemsize < 4 else part for part in structure._part_scores()]
    return [part.expand(shape) for part, shape in zip(scores, shapes, strict=True)]


def _flat(parts: Any) -> Tensor:
    """Parts of each example in one row: [B, D]."""
    dtype = parts[0].dtype
    for part in parts:
        dtype = torch.promote_types(dtype, part.dtype)
    return torch.cat([part.to(dtype).reshape(len(part), part.shape[1:].numel()) for part in parts], 1)
