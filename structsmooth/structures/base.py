"""What every structure offers: an output space bound to a batch of potentials."""

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, TypeVar, cast

import torch
from torch import Tensor

from structsmooth.structures.checks import (
    can_read_values,
    is_below_infinity,
    require_below_infinity,
    require_count,
    require_device,
    require_scores,
    without_parameters,
)
from structsmooth.structures.distribution import Distribution
from structsmooth.structures.operators import with_gradients_of_scores
from structsmooth.structures.sparse_marginals import sparse_map

S = TypeVar("S", bound="Structure")


class PartCosts(Protocol):
    """A task loss that decomposes over parts; see :mod:`structsmooth.costs`."""

    def __call__(self, structure: Any, y: Tensor, /) -> Tensor | tuple[Tensor, ...]:
        """Costs to add to the first potentials of ``structure``, or one tensor for each of its potentials."""
        ...


class Structure(Distribution):
    """An output space 𝒴 bound to a batch of B potentials θ, in the manner of ``torch.distributions``.

    The score of an output is ⟨θ, ν(y)⟩, with ν(y) the 0/1 indicator of its parts. The oracles max, top-K and exp
    return values that are differentiable with respect to the potentials; their gradients are the oracles'
    statistics (Pillutla et al. 2019, Lemma 7). A tensor handed in is never changed.

    Shapes are always checked. Values (NaN, ranges of labels and lengths) are checked under ``validate_args``, which
    defaults to ``Structure.validate_args_default`` and is off inside ``torch.compile`` and ``torch.func`` transforms.

    A subclass names the attributes that hold its potentials in ``potential_names``, other tensors with a row for each
    example in ``row_names``, others in ``field_names``, and defines :meth:`score`, :meth:`parts` and :meth:`topk`. To
    check its potentials, it defines :meth:`check_shapes` and, for more than NaN and +inf, :meth:`check_values`; if
    outputs do not use all scores, :meth:`used_scores`. It calls this constructor once the potentials are set.

    Args:
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.
    """

    validate_args_default: ClassVar[bool] = __debug__
    is_fractional: ClassVar[bool] = False  # whether the max oracle may answer with statistics that no output has
    free_potentials: ClassVar[int | None] = None  # how many of the first may have any values; None if all may
    field_names: ClassVar[tuple[str, ...]] = ("_validate_args",)
    _validate_args: bool = False

    def __init__(self, validate_args: bool | None = None) -> None:
        self._validate_args = self.validate_args_default if validate_args is None else validate_args
        names = [name for name in self.potential_names if hasattr(self, name)]  # a subclass may set them later
        for name in names:
            setattr(self, name, without_parameters(getattr(self, name)))
        self._check_potentials(names)

    @property
    def validate_args(self) -> bool:
        """Whether values are checked: as asked for, where Python may read them."""
        return self._validate_args and can_read_values()

    def replace(self: S, *potentials: Tensor) -> S:
        """The same output space with other potentials; the first of them must keep its shape and device.

        Everything else is shared with this structure. Potentials that remain the same tensor are not checked again.

        Raises:
            TypeError: potentials of the wrong dtype.
            ValueError: the wrong number of potentials, or wrong shapes, devices or values.
        """
        names, before = self.potential_names, self.potentials
        _check_number(names, potentials)
        _check_fit(names[0], potentials[0], before[0])
        structure = self._changed(dict(zip(names, map(without_parameters, potentials), strict=True)))
        structure.check_shapes()
        changed = [name for name, new, old in zip(names, potentials, before, strict=True) if new is not old]
        structure._check_potentials(changed)
        return structure

    def _check_potentials(self, names: Iterable[str]) -> None:
        for name in names if self.validate_args else ():
            self.check_values(name)

    def check_values(self, name: str) -> None:
        """Raise ``ValueError`` for wrong values of the potentials called ``name``, whose shape is correct.

        Default: for NaN and +inf among those that outputs use.
        """
        # One reduction in the usual case.
        if not is_below_infinity(getattr(self, name)):
            require_below_infinity(name, self.used_scores(name), shared=name not in self._rows())

    def used_scores(self, name: str) -> Tensor:
        """The potentials called ``name``, with 0 where no output uses them, such as at padding. Default: all."""
        return cast(Tensor, getattr(self, name))

    def without_wrong(self: S) -> S:
        """The structure in which examples that use NaN or +inf have no output; itself if values are checked.

        So what holds for an example without outputs holds for a wrong one: its value is -inf, its statistics and
        gradients are zero, and other examples do not notice.
        """
        if self.validate_args:
            return self
        # Without a reduction that Python waits for on a GPU.
        readable = can_read_values() and self.potentials[0].device.type == "cpu"
        if readable and all(map(is_below_infinity, self.potentials)):
            return self
        rows = self._rows()
        found = [(name, ~(self.used_scores(name) < torch.inf)) for name in self.potential_names]
        examples = [wrong.unsqueeze(-1).flatten(1).any(1) if name in rows else wrong.any() for name, wrong in found]
        wrong = torch.stack([flags.expand(self.potentials[0].shape[0]) for flags in examples]).any(0)

        def forbidden(name: str, scores: Tensor) -> Tensor:
            if name not in rows:
                return torch.where(scores < torch.inf, scores, 0.0)
            fill = -torch.inf if name in self.potential_names[: self.free_potentials] else 0.0
            return torch.where(wrong.view(-1, *[1] * (scores.dim() - 1)), fill, scores)

        return self._mapped(forbidden, self.potential_names)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Labels as int64, with 0 at padding.

        Args:
            y: labels, shaped as an output of :meth:`max`, with any values at padding.

        Raises:
            TypeError: not a tensor of integers.
            ValueError: the wrong shape or device; under ``validate_args``, labels that no output has.
        """
        return y

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Labels ``y`` as classes 0 to S - 1, and their number S.

        Raises:
            TypeError: outputs are no labels, or the space does not say what its positions are.
        """
        self._require_classes()
        return y, self.potentials[0].shape[-1]

    def potential_costs(self, costs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Costs of classes, [B, ..., S], as costs of potentials."""
        return costs

    def class_penalties(self, allowed: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Costs of potentials that forbid classes: 0 where ``allowed`` [B, ..., S] is true, and -inf elsewhere."""
        return self.potential_costs(torch.where(allowed, 0.0, -torch.inf).to(self.potentials[0].dtype))

    def batched(self: S) -> S | None:
        """The same structure with a row for each example in all of its potentials; ``None`` if that is impossible."""
        return None

    @abstractmethod
    def score(self, y: Tensor) -> Tensor:
        """Score ⟨θ, ν(y)⟩ of outputs ``y``: [B], differentiable."""

    @abstractmethod
    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """Indicators ν(y), one tensor per kind of part."""

    @abstractmethod
    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order, and the distinct outputs [B, k, ...].

        Where 𝒴 has fewer than k outputs of finite score, values are -inf and outputs 0.
        """

    def smoothed_top_k(self, mu: float, k: int) -> tuple[Tensor, Tensor] | None:
        """What the smoother ``L2(mu, k)`` computes, if kernels do: h_μ and, without gradient, the largest score, [B].

        ``None``, as by default, lets the smoother find both from :meth:`topk`.
        """
        return None

    def with_gradients(self, values: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Values [B, K], to the last digit, with the gradients of the scores of their outputs y [B, K, ...] (Lemma 7).

        So an oracle may find both in any way. There is no gradient where a value is -inf.
        """

        def scores(*potentials: Tensor) -> Tensor:
            # One conversion for all outputs, and no checks: where there is no output, y is none.
            wide = dict(zip(self.potential_names, map(widened, potentials), strict=True))
            space = self._changed({**wide, "_validate_args": False})
            return torch.stack([space.score(output) for output in y.unbind(1)], 1)

        return with_gradients_of_scores(values, scores, *self.potentials), y

    def max(self) -> tuple[Tensor, Tensor]:
        """Max oracle: the largest score [B] and an output that attains it (ties: the lowest index)."""
        values, y = self.topk(1)
        return values.select(1, 0), y.select(1, 0)

    def max_with_bound(self) -> tuple[Tensor, Tensor]:
        """The value of the max oracle, and a number that no point of the space exceeds, without gradient: [B] each.

        They are equal, but for a relaxation that was not solved to the end.
        """
        value, _ = self.max()
        return value, value.detach()

    def logsumexp(self) -> Tensor:
        """Exp oracle: log Σ exp score(y), [B]; its gradient is the marginals."""
        raise self._no_oracle("logsumexp")

    def marginals(self) -> tuple[Tensor, ...]:
        """Marginals of the Gibbs distribution exp(score), shaped as :meth:`parts`."""
        raise self._no_oracle("marginals")

    def max_marginals(self) -> Tensor:
        """Largest score with each variable fixed to each value (Definition 13), shaped as the unary potentials."""
        raise self._no_oracle("max_marginals")

    def sparse_marginals(self, mu: float = 1.0) -> tuple[Tensor, ...]:
        """Statistics of a few outputs, shaped as :meth:`parts`: those nearest to θ/μ in the convex hull of all ν(y).

        For every structure with a max oracle. They are differentiable, and so a layer may return them where marginals
        would be dense or too hard; see :func:`~structsmooth.structures.sparse_map`, which has the outputs and more
        settings.

        Reference:
            Niculae et al. (2018).

        Example:
            >>> import torch
            >>> from structsmooth import Subset
            >>> gain = torch.tensor([[1.0, 0.7, 0.6, -3.0]])
            >>> Subset(torch.stack([torch.zeros(1, 4), gain], -1), size=2).sparse_marginals()[0][..., 1]
            tensor([[0.7833, 0.6333, 0.5833, 0.0000]])
        """
        return sparse_map(self, mu).statistics

    def cost_augmented(self: S, y: Tensor, cost: PartCosts | Tensor | tuple[Tensor, ...]) -> S:
        """The structure with potentials θ + ℓ(y, ·).

        Args:
            y: labels, shaped as an output of :meth:`max`.
            cost: a cost; or part costs, as a tensor that broadcasts to the first potentials, or as a tuple of one
                tensor for each of the potentials, of a shape that broadcasts to theirs.

        Raises:
            TypeError: a cost that is none of these.
            ValueError: labels or part costs of the wrong shape or values.
        """
        self.checked_labels(y)
        # torch.compile of torch 2.5 would hash the cost to call it, which it cannot yet if it made the cost.
        return self.plus_costs(cost.__call__(self, y) if callable(cost) else cost)

    def plus_costs(self: S, costs: Tensor | tuple[Tensor, ...]) -> S:
        """The structure with part costs added to its potentials, as :meth:`cost_augmented` takes them."""
        first, *others = self.potentials
        if isinstance(costs, Tensor):
            return self.replace(_augmented(first, costs), *others)
        if not isinstance(costs, tuple) or not all(isinstance(cost, Tensor) for cost in costs):
            wanted = "a cost, a tensor of part costs or a tuple of one tensor for each of the potentials"
            raise TypeError(f"cost must be {wanted}, got {type(costs).__name__}")
        if len(costs) != 1 + len(others):
            raise ValueError(f"cost must have one tensor for each of {1 + len(others)} potentials, got {len(costs)}")
        return self.replace(*map(_augmented, (first, *others), costs))

    def restrict(self: S, *allowed: Tensor | None) -> S:
        """The same space without the outputs that have a part which is not allowed.

        Args:
            allowed: masks of the parts that are allowed, for the first potentials or all: bool, of shapes that
                broadcast to theirs; ``None`` for all parts.

        Raises:
            TypeError: a mask that is not a tensor of bool.
            ValueError: too many masks, or one of a wrong shape.

        Example:
            >>> import torch
            >>> from structsmooth import LinearChain
            >>> chain = LinearChain(torch.zeros(1, 3, 2), torch.zeros(2, 2)).restrict(torch.tensor([True, False]))
            >>> chain.logsumexp()  # label 0 everywhere
            tensor([0.])
        """
        if len(allowed) > len(self.potentials):
            raise ValueError(f"restrict takes a mask for each of {len(self.potentials)} potentials, got {len(allowed)}")
        for mask in allowed:
            if not (mask is None or (isinstance(mask, Tensor) and mask.dtype == torch.bool)):
                found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
                raise TypeError(f"allowed must be a tensor of torch.bool, got {found}")
        restricted = [
            scores if mask is None else _augmented(scores, torch.where(mask, 0.0, -torch.inf))
            for scores, mask in zip(self.potentials, allowed, strict=False)
        ]
        return self.replace(*restricted, *self.potentials[len(allowed) :])

    def _no_oracle(self, oracle: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} has no exact {oracle} oracle; use max() or topk(), e.g. the L2 smoother"
        )


def no_class_penalties(structure: Structure, what: str) -> NotImplementedError:
    """The error of a structure where a class of a variable is the absence of a part, which no score can forbid."""
    name = type(structure).__name__
    return NotImplementedError(
        f"{name} cannot require {what}, since their absence is no part: give masks of its potentials, in a tuple"
    )


def _check_number(names: tuple[str, ...], potentials: tuple[Tensor, ...]) -> None:
    if len(potentials) != len(names):
        wanted = {1: "one tensor of potentials", 2: "two potentials"}.get(len(names), f"{len(names)} potentials")
        raise ValueError(f"replace takes {wanted}, {' and '.join(names)}, got {len(potentials)}")


def _check_fit(name: str, scores: Any, old: Tensor) -> None:
    """Raise unless new potentials are floating point, with the shape and the device of those that they replace."""
    require_scores(name, scores)
    if scores.shape != old.shape:
        raise ValueError(f"{name} must have shape {tuple(old.shape)} as before, got {tuple(scores.shape)}")
    require_device(name, scores, "what it replaces", old)


def _augmented(scores: Tensor, costs: Tensor) -> Tensor:
    """Potentials, widened, with costs added that broadcast to them."""
    missing = scores.dim() - costs.dim()
    fits = missing >= 0 and all(
        size in (full, 1) for size, full in zip(costs.shape, scores.shape[missing:], strict=True)
    )
    if not fits:
        raise ValueError(
            f"cost must broadcast to the potentials of shape {tuple(scores.shape)}, got {tuple(costs.shape)}"
        )
    return widened(scores) + costs


def lengths_of(structure: Structure, y: Tensor) -> Tensor:
    """Number of variables of each example, [B]: the structure's ``lengths``, or as many as outputs ``y`` have.

    Where variables are pairs of positions, such as spans, they are those of the structure's ``mask``.
    """
    lengths, mask = getattr(structure, "lengths", None), getattr(structure, "mask", None)
    if lengths is not None and isinstance(mask, Tensor) and mask.dim() > 2:
        return mask.flatten(1).sum(1)
    if lengths is None:
        return torch.full(y.shape[:1], math.prod(y.shape[1:]), device=y.device)
    return torch.as_tensor(lengths)


def lengths_from_mask(mask: Tensor) -> Tensor:
    """Lengths [B] of a mask [B, T] that is true on a prefix of every row; ``LinearChain(mask=...)`` takes any mask.

    Under ``torch.compile`` the mask is trusted.

    Raises:
        ValueError: a row has a hole or starts with padding; positions inside a sequence cannot be skipped.

    Example:
        >>> lengths_from_mask(torch.tensor([[True, True, False], [True, True, True]]))
        tensor([2, 3])
    """
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask must be a torch.Tensor, got {type(mask).__name__}")
    if mask.dim() != 2:
        raise ValueError(f"mask must have shape [B, T], got {tuple(mask.shape)}")
    mask = mask.bool()
    lengths = mask.sum(-1)
    if not can_read_values():
        return lengths
    prefix = torch.arange(mask.shape[1], device=mask.device) < lengths[:, None]
    for wrong, fault in ((lengths == 0, "is empty"), ((prefix != mask).any(-1), "has a hole or starts with padding")):
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise ValueError(
                f"mask must be true on a prefix of every row; row {row} {fault}: LinearChain(mask=...) takes any mask"
            )
    return lengths


def check_k(k: int) -> int:
    """``k`` if it is a positive int; raises ``TypeError`` or ``ValueError`` otherwise."""
    return require_count("k", k)


def widened(scores: Tensor) -> Tensor:
    """Scores in the dtype of their sums: at least float32."""
    return scores.float() if scores.dtype.itemsize < 4 else scores


def widened_pair(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two kinds of scores in the dtype of their sums: at least float32."""
    dtype = torch.promote_types(first.dtype, second.dtype)
    return widened(first.to(dtype)), widened(second.to(dtype))
