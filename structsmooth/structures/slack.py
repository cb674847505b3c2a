"""Slack rescaling: outputs whose margins are multiplied by their costs."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from structsmooth.structures import semirings
from structsmooth.structures.base import Structure, check_k, lengths_of, widened
from structsmooth.structures.by_mistakes import by_mistakes, require_countable
from structsmooth.structures.checks import ForbiddenLabelsError, require_device, require_scores, require_shape
from structsmooth.structures.forbidden import forbidden_labels


class SlackRescaled(Structure):
    """The outputs of a chain, trees or a program, with scores relative to labels y and multiplied by the Hamming cost.

    score(y') = ℓ(y') (margin + score₀(y') − score₀(y)), with score₀ the score of the structure, and ℓ(y') the number
    of labels in which y' differs from y times the cost of a mistake. The potentials are those of the structure and the
    margin, in which scores are linear; so the statistics of an output are ℓ(y') (ν(y') − ν(y)) and ℓ(y'). With the
    margin as a cost, :class:`~structsmooth.losses.RescaledMargin`, the hinge of this structure is that of slack
    rescaling: see :class:`~structsmooth.SlackRescaledHinge`.

    Oracles are exact: the product of a program with a counter of mistakes. With up to c mistakes they take c times
    (max, top-K) and c² times (exp) the operations of the structure, or c times as many again for edges of two tails,
    and as much more memory. Max and top-K are compiled on the CPU; exp is plain torch on any device. Ties go to the
    least number of mistakes. A forbidden output has score -inf; if the labels are forbidden, all have.

    Args:
        structure: a :class:`LinearChain`, a :class:`Tree` or any :class:`DynamicProgram` of B examples, such as
            :class:`SemiMarkov`, :class:`ProjectiveTree` or :class:`Constituents`.
        y: labels, shaped as an output of :meth:`max`.
        mistake_cost: the cost of a wrong label in each example, positive: [B].

    Raises:
        TypeError: another structure, or a cost that is not floating point.
        ValueError: a tensor of the wrong shape or on another device; labels that no output has.

    Reference:
        Tsochantaridis et al. (2005); Zhang et al. (2014), Eq. (42).

    Example:
        >>> from structsmooth import LinearChain
        >>> chain = LinearChain(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]), torch.zeros(2, 2))
        >>> rescaled = SlackRescaled(chain, torch.tensor([[1, 1]]), torch.ones(1))
        >>> rescaled.score(torch.tensor([[0, 1]])), rescaled.score(torch.tensor([[0, 0]]))  # 1 · (3 − 2), 2 · (1 − 2)
        (tensor([1.]), tensor([-2.]))
        >>> rescaled.max()
        (tensor([1.]), tensor([[0, 1]]))
    """

    is_fractional: ClassVar[bool] = True
    field_names = ("structure", "y", "mistake_cost", "margin")

    def __init__(self, structure: Structure, y: Tensor, mistake_cost: Tensor) -> None:
        require_countable(structure)
        structure.checked_labels(y)
        first = structure.potentials[0]
        require_scores("mistake_cost", mistake_cost)
        require_shape("mistake_cost", mistake_cost, "[B]", (first.shape[0],))
        require_device("mistake_cost", mistake_cost, structure.potential_names[0], first)
        self.structure, self.y, self.mistake_cost = structure, y, mistake_cost
        while first.dim() > 1:
            first = first[:, 0]
        self.margin = torch.zeros_like(widened(first))
        super().__init__(structure.validate_args)

    @property
    def potentials(self) -> tuple[Tensor, ...]:
        """The potentials of the structure, and the margin [B]."""
        return (*self.structure.potentials, self.margin)

    @property
    def lengths(self) -> Tensor:
        """Number of variables of each example: int64 [B]."""
        return lengths_of(self.structure, self.y)

    def replace(self, *potentials: Tensor) -> "SlackRescaled":
        """The same outputs, labels and costs with other potentials."""
        *scores, margin = potentials
        require_scores("margin", margin)
        require_shape("margin", margin, "[B]", tuple(self.margin.shape))
        return self._rebuilt(self.structure.replace(*scores), self.y, self.mistake_cost, margin)

    def batched(self) -> "SlackRescaled":
        """The same outputs with a row for each example in all potentials."""
        structure = self.structure.batched()
        assert structure is not None  # those that can be counted have rows
        return self._rebuilt(structure, self.y, self.mistake_cost, self.margin)

    def __getitem__(self, index: Any) -> "SlackRescaled":
        rows = torch.arange(len(self), device=self.y.device)[index].view(-1)
        tensors = (tensor[rows] for tensor in (self.y, self.mistake_cost, self.margin))
        return self._rebuilt(self.structure[index], *tensors)

    def to(self, *target: torch.device | torch.dtype | str | int) -> "SlackRescaled":
        """The same outputs on another device, in another floating point dtype, or both."""
        tensors = super().to(*target)
        return self._rebuilt(self.structure.to(*target), tensors.y, tensors.mistake_cost, tensors.margin)

    def detach(self) -> "SlackRescaled":
        """The same outputs without the history of the potentials."""
        return self._rebuilt(self.structure.detach(), self.y, self.mistake_cost.detach(), self.margin.detach())

    def without_wrong(self) -> "SlackRescaled":
        """The same outputs where examples that use NaN or +inf have none, as in :class:`~structsmooth.Structure`."""
        return self._rebuilt(self.structure.without_wrong(), self.y, self.mistake_cost, self.margin)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Labels as int64, with 0 at padding."""
        return self.structure.checked_labels(y)

    def score(self, y: Tensor) -> Tensor:
        """Rescaled scores of outputs ``y``: [B], differentiable."""
        score, labels = self.structure.score(y), self.structure.score(self.y)
        return self._rescaled(score.unsqueeze(1), self._costs(y.unsqueeze(1)), labels).squeeze(1)

    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """Statistics of outputs: their costs times the parts that they have and the labels lack, and their costs."""
        costs = self._costs(y.unsqueeze(1)).squeeze(1)
        pairs = zip(self.structure.parts(y), self.structure.parts(self.y), strict=True)
        return (*(costs.view(-1, *[1] * (part.dim() - 1)) * (part - labels) for part, labels in pairs), costs)

    def _part_scores(self) -> tuple[Tensor, ...]:
        return (*self.structure._part_scores(), self.margin)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: rescaled values [B, k] in descending order and distinct labels [B, k, ...]."""
        k = check_k(k)
        labels = self.structure.score(self.y)

        def best(scores: Tensor) -> Tensor:
            """Indices [B, k] of the best rescaled scores among [B, N + 1, k]."""
            costs = self._costs_of_counts(scores.shape[1]).repeat_interleave(k, 1)
            rescaled = self._rescaled(scores.flatten(1), costs, labels)
            return rescaled.sort(dim=1, descending=True, stable=True).indices[:, :k]

        scores, y = by_mistakes(self.structure, self.y).topk(k, best)
        return self._rescaled(scores, self._costs(y), labels), y

    def logsumexp(self) -> Tensor:
        """Log-partition function [B] of the rescaled scores; twice differentiable.

        Outputs with c mistakes have scores times the cost of c mistakes: one row of the recursion for each c. Those
        without any, such as the labels, have score 0.
        """
        labels, structure = self.structure.score(self.y), self.structure.batched()
        assert structure is not None
        batch, most = len(labels), by_mistakes(structure, self.y).size - 1
        rows = torch.arange(batch, device=self.y.device).repeat_interleave(most + 1)
        costs, structure = self._costs_of_counts(most + 1), structure[rows]
        scaled = (_times(widened(p), costs.flatten()) for p in structure.potentials)
        sums = by_mistakes(structure.replace(*scaled), self.y[rows], most + 1).logsumexp()
        found = sums.view(batch, most + 1, most + 1).diagonal(dim1=1, dim2=2)  # times the cost of c, with c mistakes
        allowed = (labels > -torch.inf).unsqueeze(1)
        slack = (self.margin - torch.where(labels > -torch.inf, labels, 0.0)).unsqueeze(1)
        return semirings.logsumexp(torch.where(allowed, found + costs * slack, -torch.inf), 1)

    def _rescaled(self, scores: Tensor, costs: Tensor, labels: Tensor) -> Tensor:
        """Rescaled scores [B, K] of outputs with these scores and costs [B, K], relative to the labels' score [B]."""
        labels = labels.unsqueeze(1)
        allowed = (scores > -torch.inf) & (labels > -torch.inf)
        differences = torch.where(allowed, scores, 0.0) - torch.where(allowed, labels, 0.0)
        return torch.where(allowed, costs * (self.margin.unsqueeze(1) + differences), -torch.inf)

    def _costs(self, y: Tensor) -> Tensor:
        """Costs [B, K] of outputs [B, K, ...]."""
        correct, _ = self.structure.as_classes(self.y)
        real = getattr(self.structure, "mask", torch.ones_like(correct, dtype=torch.bool))
        wrong = [(self.structure.as_classes(output)[0] != correct) & real for output in y.unbind(1)]
        mistakes = torch.stack([mistaken.flatten(1).sum(1) for mistaken in wrong], 1)
        return self.mistake_cost.to(self.margin.dtype).unsqueeze(1) * mistakes

    def _costs_of_counts(self, count: int) -> Tensor:
        """Costs [B, count] of 0, 1, ... mistakes."""
        numbers = torch.arange(count, device=self.y.device)
        return self.mistake_cost.to(self.margin.dtype).unsqueeze(1) * numbers

    def _rebuilt(self, structure: Structure, y: Tensor, mistake_cost: Tensor, margin: Tensor) -> "SlackRescaled":
        rescaled = SlackRescaled(structure, y, mistake_cost)
        rescaled.margin = margin
        return rescaled


@forbidden_labels.register
def _(
    rescaled: SlackRescaled, scores: Tensor, y: Tensor | None = None, parts: tuple[Tensor, ...] | None = None
) -> ForbiddenLabelsError:
    """By those of the structure: where its own labels are forbidden, these forbid all outputs."""
    structure, own = rescaled.structure, rescaled.y
    forbidden = structure.score(own) == -torch.inf

    def blamed(mine: Tensor, others: Tensor) -> Tensor:
        return torch.where(forbidden.view(-1, *[1] * (mine.dim() - 1)), mine, others)

    if y is not None:
        y = blamed(own, y)
    elif parts is not None:
        parts = tuple(map(blamed, structure.parts(own), parts))  # the last is the cost
    return forbidden_labels(structure, scores, y, parts)


def _times(scores: Tensor, factors: Tensor) -> Tensor:
    """Scores [B, ...] times factors [B], which may be 0; -inf remains."""
    allowed = scores > -torch.inf
    return torch.where(allowed, torch.where(allowed, scores, 0.0) * factors.view(-1, *[1] * (scores.dim() - 1)), scores)
