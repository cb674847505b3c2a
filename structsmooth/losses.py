"""Structured losses as torch modules: smoothed max of cost-augmented scores minus the score of the labels."""

from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from structsmooth.costs import Cost, Hamming, RescaledMargin, slack_rescaled
from structsmooth.perturbation import Noise, Perturbed
from structsmooth.settings import check_choice
from structsmooth.smoothing import L2, Entropy, Max, Smoother, SparseMAP
from structsmooth.structures.base import PartCosts, Structure, lengths_of
from structsmooth.structures.checks import require_feasible
from structsmooth.structures.distribution import excess, not_below_zero
from structsmooth.structures.forbidden import forbidden_labels

Reduction = Literal["mean", "sum", "none", "token"]
_REDUCTIONS = get_args(Reduction)  # torch.compile of torch 2.5 does not ask in a graph
# A default must be a plain value for torch.compile to build a loss inside a compiled function.
Allowed = Tensor | tuple[Tensor | None, ...]
"""What is known of labels: masks of labels, of their classes, or of parts."""
Targets = Tensor | tuple[Tensor, ...] | Structure
"""Labels, statistics of a distribution over labels, or a structure with such a distribution."""
Margin = PartCosts | Tensor | tuple[Tensor, ...] | Literal["hamming"]


class StructuralHinge(nn.Module):
    """h_μ(θ + ℓ(y, ·)) − ⟨θ, ν(y)⟩: the structural hinge loss and, depending on the settings, related losses.

    The loss is convex in θ, is to be minimized, and is non-negative for a cost with ℓ(y, y) = 0. Parts may be forbidden
    by scores of -inf, but not those of the labels: that is an error under ``validate_args`` of the structure, which
    names the examples. Without it and inside ``torch.compile``, an example whose labels are forbidden, or whose scores
    are NaN or +inf, has a loss of +inf and no gradient, and the other examples have theirs.

    Labels may be partial: with ``allowed``, the score of the labels becomes h_μ of the scores of all outputs that agree
    with what is known, and wrong labels cost where they are known. This is the marginal likelihood with ``Entropy(1)``
    and no cost, and the hinge of latent variables (Yu and Joachims 2009) with ``Max()``. It is still non-negative, but
    no longer convex.

    Labels may be soft: the statistics of a distribution over outputs in their place, or a structure that has one, such
    as a teacher's (:func:`~structsmooth.targets.soft_labels` makes others). Its expected score takes the place of the
    score of the labels. With ``StructuralHinge.crf()`` this is the cross-entropy. There must be no cost.

    Args:
        smoother: ``Max()`` for the hinge itself; ``L2(mu, k)``, ``SparseMAP(mu)`` or ``Entropy(mu)`` smooth it.
        cost: task loss that sets the margin, as in :meth:`Structure.cost_augmented`. ``"hamming"`` is ``Hamming()``;
            ``None`` is no margin.
        reduction: over the batch: ``"mean"``, ``"sum"``, ``"none"``, or ``"token"`` for the sum divided by the number
            of variables, padding and masked positions apart. A mean over nothing is 0, with gradient 0.

    Reference:
        Pillutla et al. (2019), Eqs. (4) and (7).

    Example:
        >>> import torch
        >>> from structsmooth import LinearChain
        >>> unary = torch.zeros(1, 3, 2, requires_grad=True)
        >>> loss = StructuralHinge()(LinearChain(unary, torch.zeros(2, 2)), torch.tensor([[0, 1, 1]]))
        >>> loss.item()
        3.0
    """

    def __init__(
        self, smoother: Smoother | None = None, cost: Margin | None = "hamming", reduction: Reduction = "mean"
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, _REDUCTIONS)
        if not (smoother is None or isinstance(smoother, Smoother)):
            raise TypeError(f"smoother must be a Smoother, got {type(smoother).__name__}")
        self.smoother = Max() if smoother is None else smoother
        self.cost = _hamming(cost) if isinstance(cost, str) else cost
        self.reduction = reduction

    if TYPE_CHECKING:

        def __call__(self, structure: Structure, y: Targets, allowed: Allowed | None = None) -> Tensor:
            """``nn.Module`` itself returns ``Any``."""

    @classmethod
    def crf(cls, reduction: Reduction = "mean") -> "StructuralHinge":
        """Negative log-likelihood of a conditional random field: exp oracle, no cost."""
        return cls(Entropy(1.0), None, reduction)

    @classmethod
    def perceptron(cls, reduction: Reduction = "mean") -> "StructuralHinge":
        """Structured perceptron: max oracle, no cost."""
        return cls(Max(), None, reduction)

    @classmethod
    def softmax_margin(cls, cost: Margin = "hamming", reduction: Reduction = "mean") -> "StructuralHinge":
        """Softmax-margin (Gimpel and Smith 2010): exp oracle with cost; an upper bound where that oracle is one."""
        return cls(Entropy(1.0), cost, reduction)

    @classmethod
    def sparsemap(cls, mu: float = 1.0, k: int | None = None, reduction: Reduction = "mean") -> "StructuralHinge":
        """SparseMAP loss (Niculae et al. 2018): sparse statistics, no cost; with ``k``, :meth:`top_k`."""
        return cls(SparseMAP(mu), None, reduction) if k is None else cls.top_k(mu, k, reduction)

    @classmethod
    def perturbed(
        cls, sigma: float = 1.0, n: int = 8, noise: Noise = "gaussian", reduction: Reduction = "mean"
    ) -> "StructuralHinge":
        """Fenchel-Young loss of perturbed maxima (Berthet et al. 2020): expected maximum under noise, no cost."""
        return cls(Perturbed(sigma, n, noise), None, reduction)

    @classmethod
    def top_k(cls, mu: float = 1.0, k: int = 5, reduction: Reduction = "mean") -> "StructuralHinge":
        """Top-K loss: a sparse distribution over the k best outputs, smoothed in the space of outputs, no cost."""
        return cls(L2(mu, k), None, reduction)

    def forward(self, structure: Structure, y: Targets, allowed: Allowed | None = None) -> Tensor:
        """Loss of labels ``y`` [B, ...] under ``structure``: a scalar, or [B] without reduction.

        Args:
            structure: with scores.
            y: labels; or statistics, shaped as :meth:`Structure.parts`, or a structure whose marginals they are.
            allowed: what is known of the labels, if not all is: bool, shaped as ``y``, for the labels that are known;
                or with a last dimension for classes, for those that each variable may have; or, for a loss without
                cost, a tuple of masks of parts, as :meth:`Structure.restrict` takes them.

        Raises:
            TypeError: no structure, or no tensor of labels; swapped arguments; masks of another type.
            ValueError: labels of the wrong shape or values, or labels with score -inf, or nothing that agrees with
                them; it names the example.
        """
        if isinstance(y, Structure) and isinstance(structure, Structure):
            losses, y = self._of_teacher(structure, y.detach(), allowed)
        elif isinstance(y, tuple) and isinstance(structure, Structure):
            losses = self._of_statistics(structure, y, allowed)
        else:
            check_arguments(structure, y)
            assert isinstance(y, Tensor)
            losses, _ = self.with_hinge(structure, y, allowed)
        if self.reduction == "token":
            # Any output tells how many variables there are, so the best one does where statistics are given.
            variables = y if isinstance(y, Tensor) else structure.detach().max()[1]
            return losses.sum() / lengths_of(structure, variables).sum().clamp_min(1)
        return reduced(losses, self.reduction)

    def with_hinge(
        self, structure: Structure, y: Tensor, allowed: Allowed | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Losses [B] and, if the same oracle call gives them, those without smoothing, without gradient: [B].

        With partial labels there are none without smoothing.
        """
        if self._is_likelihood:
            structure.require_probabilities()
        if self._is_likelihood and allowed is None:
            surprisal = structure.surprisal(y)
            if structure.validate_args and bool((surprisal == torch.inf).any()):
                check_agreement(structure, structure.for_differences().score(y), y)  # or it is beyond the dtype
            return surprisal, None
        dtype, structure = structure.value_dtype, structure.without_wrong().for_differences()
        if allowed is None:
            gold, penalty = structure.score(y), self.smoother.penalty(structure, y)
            augmented = structure if self.cost is None else structure.cost_augmented(y, self.cost)
        else:
            agreeing, augmented = with_partial_labels(structure, y, allowed, self.cost)
            gold, penalty = self.smoother(agreeing), None
        check_agreement(structure, gold, y if allowed is None else None)
        smoothed, largest = self.smoother.with_max(augmented)
        losses = excess(smoothed, gold if penalty is None else gold - penalty)
        # h_μ(θ + ℓ) >= θ·ν(y) + ℓ(y, y), so what is below zero is rounding; costs of parts that users give may have
        # ℓ(y, y) < 0.
        if self.cost is None or isinstance(self.cost, Cost):
            losses = not_below_zero(losses)
        if largest is None or allowed is not None:
            return losses.to(dtype), None
        return losses.to(dtype), excess(largest, gold).detach().to(dtype)

    @property
    def _is_likelihood(self) -> bool:
        """Whether the loss is minus the log-probability."""
        return self.cost is None and isinstance(self.smoother, Entropy) and self.smoother.mu == 1

    def _of_teacher(self, structure: Structure, teacher: Structure, allowed: Allowed | None) -> tuple[Tensor, Targets]:
        """Losses [B] of the marginals of another structure, and these; +inf for examples without any output there."""
        teacher.require_probabilities()
        log_z, statistics = teacher.logsumexp(), teacher.marginals()
        require_feasible(teacher, log_z)
        losses = self._of_statistics(structure, statistics, allowed)
        return torch.where(log_z.isfinite(), losses, torch.inf), statistics

    def _of_statistics(self, structure: Structure, statistics: tuple[Tensor, ...], allowed: Allowed | None) -> Tensor:
        """Losses [B] of soft labels: statistics of a distribution of outputs in place of one output."""
        if self.cost is not None or allowed is not None:
            raise TypeError(
                "soft labels take a loss without cost, such as StructuralHinge.crf(), and no allowed. With a cost, the "
                "expected loss depends on more than statistics: average it over labels, or take MinimumRisk"
            )
        if self._is_likelihood:
            structure.require_probabilities()
        dtype, structure = structure.value_dtype, structure.without_wrong().for_differences()
        expected, penalty = structure.expected_score(statistics), self.smoother.penalty(structure, statistics)
        check_agreement(structure, expected, parts=statistics)
        return not_below_zero(excess(self.smoother(structure), expected if penalty is None else expected - penalty)).to(
            dtype
        )

    def extra_repr(self) -> str:
        """Settings, for printing."""
        return f"smoother={self.smoother}, cost={self.cost}, reduction={self.reduction!r}"


def with_partial_labels(
    structure: Structure, y: Tensor, allowed: Allowed, cost: PartCosts | Tensor | tuple[Tensor, ...] | None
) -> tuple[Structure, Structure]:
    """The structure with the outputs that agree with partial labels alone, and that with costs of those that do not.

    Args:
        structure: with scores.
        y: labels [B, ...].
        allowed: as for :class:`StructuralHinge`.
        cost: of wrong labels.

    Raises:
        TypeError: masks of another type, or a cost of labels where masks are of parts.
        ValueError: masks of the wrong shape.
    """
    if isinstance(allowed, tuple):
        if cost is not None:
            raise TypeError("masks of parts do not say which labels are wrong: take a loss without cost")
        return structure.restrict(*allowed), structure
    if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
        found = allowed.dtype if isinstance(allowed, Tensor) else type(allowed).__name__
        raise TypeError(f"allowed must be a tensor of torch.bool or a tuple of such masks, got {found}")
    # Unchecked: labels that are not known may have any value, and need not make an output with the others.
    classes, count = structure.as_classes(y)
    if allowed.shape == y.shape:
        allowed = (torch.arange(count, device=y.device) == classes.unsqueeze(-1)) | ~allowed.unsqueeze(-1)
    elif allowed.shape != (*y.shape, count):
        wanted = f"{tuple(y.shape)}, as labels have, or {(*y.shape, count)}"
        raise ValueError(f"allowed must have shape {wanted}, got {tuple(allowed.shape)}")
    agreeing = structure.plus_costs(structure.class_penalties(allowed))
    if cost is None:
        return agreeing, structure
    if not isinstance(cost, Cost):
        raise TypeError(f"with partial labels the cost must be a Cost or None, got {type(cost).__name__}")
    return agreeing, structure.plus_costs(structure.potential_costs(cost.of_wrong(structure, classes, ~allowed)))


def check_agreement(
    structure: Structure, gold: Tensor, y: Tensor | None = None, parts: tuple[Tensor, ...] | None = None
) -> None:
    """Raise ``ForbiddenLabelsError`` for labels of score -inf, [B], if the structure checks values."""
    if structure.validate_args and bool((gold == -torch.inf).any()):
        raise forbidden_labels(structure, gold, y, parts)


def reduced(losses: Tensor, reduction: Reduction) -> Tensor:
    """The mean of losses [B], which is 0 if there are none, their sum, or the losses themselves."""
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" and losses.shape[0] else losses.sum()


def check_arguments(structure: object, y: object) -> None:
    """Raise ``TypeError`` unless a loss is called with a structure and a tensor of labels, in this order."""
    if isinstance(structure, Structure) and isinstance(y, Tensor):
        return
    if isinstance(y, Structure):
        raise TypeError(f"the arguments are swapped: the {type(y).__name__} comes first, as in loss(structure, labels)")
    require_structure(structure, "the first argument of a loss")
    raise TypeError(f"labels must be a tensor of integers, got {type(y).__name__}: torch.as_tensor makes one")


def require_structure(value: object, what: str) -> None:
    """Raise ``TypeError`` unless a value, which is said to be ``what``, is a structure."""
    if not isinstance(value, Structure):
        found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(
            f"{what} must be a structure bound to its potentials, got {found}: wrap scores in a structure, as in "
            "LinearChain(unary, transition)"
        )


class SlackRescaledHinge(StructuralHinge):
    """h_μ of ℓ(y, y') (1 + score(y') − score(y)): the structural hinge loss with slack rescaling.

    It takes a :class:`~structsmooth.LinearChain` or a :class:`~structsmooth.Tree`, and calls the exact oracles of
    :class:`~structsmooth.structures.SlackRescaled`. Like :class:`StructuralHinge` with a cost, it is convex and an
    upper bound on the cost of the best output, and labels must not be forbidden. But all outputs have the same margin,
    1, and the cost multiplies what is lacking: an output with many mistakes that scores low enough does not matter.

    Args:
        smoother: ``Max()`` for the hinge itself, ``L2(mu, k)`` or ``Entropy(mu)`` for a smoothed hinge.
        cost: task loss ℓ that is the same for all mistakes in an example, such as ``Hamming()``, which is also
            ``"hamming"``, and ``NormalizedHamming()``.
        reduction: as for :class:`StructuralHinge`.

    Reference:
        Tsochantaridis et al. (2005), section 2.2; Zhang et al. (2014), Eq. (42).

    Example:
        >>> import torch
        >>> from structsmooth import LinearChain
        >>> chain, y = LinearChain(torch.tensor([[[0.0, 0.5], [0.0, 5.0]]]), torch.zeros(2, 2)), torch.tensor([[1, 1]])
        >>> SlackRescaledHinge()(chain, y)  # of the output (0, 1); StructuralHinge also gives 0.5
        tensor(0.5000)
    """

    def __init__(
        self,
        smoother: Smoother | None = None,
        cost: Cost | Literal["hamming"] = "hamming",
        reduction: Reduction = "mean",
    ) -> None:
        cost = _hamming(cost) if isinstance(cost, str) else cost
        if not isinstance(cost, Cost):
            raise TypeError(f"slack rescaling needs a Cost of wrong labels, got {type(cost).__name__}")
        super().__init__(smoother, RescaledMargin(), reduction)
        self.mistakes = cost

    def with_hinge(
        self, structure: Structure, y: Tensor, allowed: Allowed | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """As in :meth:`StructuralHinge.with_hinge`, for complete labels."""
        if allowed is not None:
            raise TypeError("slack rescaling needs all labels; take StructuralHinge for partial ones")
        return super().with_hinge(slack_rescaled(structure, y, self.mistakes), y)

    def extra_repr(self) -> str:
        """Settings, for printing."""
        return f"smoother={self.smoother}, cost={self.mistakes}, reduction={self.reduction!r}"


def _hamming(name: str) -> Hamming:
    """The Hamming cost, for its name as an argument; other names raise ``TypeError``."""
    if name != "hamming":
        raise TypeError(f'cost must be a cost, part costs, "hamming" or None, got {name!r}')
    return Hamming()
