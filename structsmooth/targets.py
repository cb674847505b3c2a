"""Soft targets: labels that are a distribution over outputs, as the statistics of its parts."""

import torch
from torch import Tensor

from structsmooth.settings import Interval, check_number
from structsmooth.structures.base import Structure
from structsmooth.structures.checks import require_shape, require_tensor


def soft_labels(
    structure: Structure, y: Tensor, weights: Tensor | None = None, *, smoothing: float = 0.0
) -> tuple[Tensor, ...]:
    """Statistics of several annotators' labels, of smoothed labels, or of both, as targets of a loss.

    They are (1 − ε) Σ_a weights_a ν(y_a) + ε m, with m the marginals of the uniform distribution over the outputs that
    the structure allows. With :class:`~structsmooth.StructuralHinge` they count as the distribution itself would, since
    scores are linear in the parts.

    Args:
        structure: the outputs; what it forbids has no weight in m.
        y: labels [B, A, ...] of A annotators.
        weights: of the annotators in each example, [B, A], not negative and with sum 1; equal ones if not given. An
            annotator without labels for an example has weight 0 there, and any labels that the structure takes.
        smoothing: ε, from 0 to 1; more than 0 needs the exp oracle.

    Returns:
        Statistics, shaped as :meth:`Structure.parts`, without gradient.

    Raises:
        TypeError: labels or weights that are no tensors.
        ValueError: wrong shapes; weights that are negative or do not sum to 1.
        NotImplementedError: ``smoothing`` for a structure without an exp oracle.

    Reference:
        Szegedy et al. (2016), section 7, on label smoothing of classes.

    Example:
        Two of three annotators agree:

        >>> from structsmooth import Candidates
        >>> scores = Candidates(torch.zeros(1, 4))
        >>> soft_labels(scores, torch.tensor([[2, 2, 0]]))
        (tensor([[0.3333, 0.0000, 0.6667, 0.0000]]),)
        >>> soft_labels(scores, torch.tensor([[2]]), smoothing=0.2)
        (tensor([[0.0500, 0.0500, 0.8500, 0.0500]]),)
    """
    require_tensor("y", y)
    check_number("smoothing", smoothing, Interval(0, 1))
    batch = len(structure)
    if y.dim() < 2 or len(y) != batch or not y.shape[1]:
        raise ValueError(f"y must have shape [B, A, ...] with B = {batch} and A >= 1 annotators, got {tuple(y.shape)}")
    if weights is None:
        weights = torch.full(y.shape[:2], 1 / y.shape[1], device=y.device)
    require_tensor("weights", weights)
    require_shape("weights", weights, "[B, A]", tuple(y.shape[:2]))
    if structure.validate_args and not bool(((weights >= 0).all(1) & ((weights.sum(1) - 1).abs() < 1e-4)).all()):
        raise ValueError("weights must not be negative, and those of the annotators of an example must sum to 1")
    structure = structure.detach()
    mixed: list[Tensor] = []
    for labels, weight in zip(y.unbind(1), weights.unbind(1), strict=True):
        parts = structure.parts(labels)
        terms = [(1 - smoothing) * weight.to(p).view(-1, *[1] * (p.dim() - 1)) * p for p in parts]
        mixed = [a + b for a, b in zip(mixed, terms, strict=True)] if mixed else terms
    if smoothing:
        mixed = [a + smoothing * b for a, b in zip(mixed, structure.feasible().marginals(), strict=True)]
    return tuple(mixed)
