"""Search spaces: outputs found by best-first branch and bound."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count, islice
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from structsmooth.structures.base import Structure, check_k, widened
from structsmooth.structures.checks import is_exporting, refuse_transforms, require_count

Subset = TypeVar("Subset")


class SearchSpace(Structure, Generic[Subset]):
    """An output space that is searched by repeatedly splitting its most promising part (branch and bound).

    A subclass is a structure (``potential_names``, ``score``, ``parts``) whose outputs are vectors of integers,
    int64 [B, D]. It represents sets of outputs by any type, and defines :meth:`initial`, :meth:`split`,
    :meth:`upper_bound`, :meth:`is_singleton` and :meth:`lowest`. The max and top-K oracles follow. They are correct if

    (a) bounds are finite, or -inf for a set of forbidden outputs only,
    (b) no output of a set has a score above the bound of the set,
    (c) the bound of a single output is its score.

    The search raises a ``ValueError`` for a bound of NaN or +inf. Under ``validate_args`` it also raises one for a part
    whose bound exceeds that of the set it was split from, and for a single output whose bound is not its score; both up
    to rounding, the square root of the machine epsilon of the potentials.

    Tighter bounds make the search faster. In the worst case it visits every output; only ``max_sets`` limits its time.
    There is no exp oracle. The search runs in Python, one example after the other. Values are recomputed by
    :meth:`score` and so are differentiable. Ties go to the lowest output in lexicographic order.

    Args:
        validate_args: whether to check the bounds. Default: ``Structure.validate_args_default``.
        max_sets: largest number of sets that may be queued at a time.

    Raises:
        MemoryError: more than ``max_sets`` sets would be queued.

    Reference:
        Pillutla et al. (2019), Proposition 15 and Algorithm 13.

    Example:
        Subsets of three items without neighbours. A set of outputs is the tuple of the decisions made so far.

        >>> class NoNeighbours(SearchSpace[tuple[int, ...]]):
        ...     potential_names = ("scores",)
        ...     def __init__(self, scores):
        ...         self.scores = scores  # [1, 3]
        ...         super().__init__()
        ...     def score(self, y):
        ...         return (self.scores * y).sum(1)
        ...     def parts(self, y):
        ...         return (y.to(self.scores.dtype),)
        ...     def initial(self, example):
        ...         return ()
        ...     def split(self, subset):
        ...         return (*subset, 0), (*subset, 1)
        ...     def upper_bound(self, subset):
        ...         if (1, 1) in zip(subset, subset[1:]):
        ...             return -torch.inf
        ...         decided = sum(s * y for s, y in zip(self.scores[0].tolist(), subset))
        ...         return decided + self.scores[0, len(subset):].clamp_min(0).sum().item()
        ...     def is_singleton(self, subset):
        ...         return len(subset) == 3
        ...     def lowest(self, subset):
        ...         return (*subset, 0, 0, 0)[:3]
        >>> NoNeighbours(torch.tensor([[2.0, 3.0, 2.0]])).topk(2)
        (tensor([[4., 3.]]), tensor([[[1, 0, 1],
                 [0, 1, 0]]]))
    """

    field_names: ClassVar[tuple[str, ...]] = ("max_sets",)

    def __init__(self, *, validate_args: bool | None = None, max_sets: int = 1_000_000) -> None:
        super().__init__(validate_args)
        self.max_sets = require_count("max_sets", max_sets)

    @abstractmethod
    def initial(self, example: int) -> Subset:
        """The set of all outputs of an example."""

    @abstractmethod
    def split(self, subset: Subset) -> tuple[Subset, Subset]:
        """Two disjoint, non-empty sets whose union is the set, which is no singleton."""

    @abstractmethod
    def upper_bound(self, subset: Subset) -> float:
        """A number that the score of no output in the set exceeds."""

    @abstractmethod
    def is_singleton(self, subset: Subset) -> bool:
        """Whether the set contains only one output."""

    @abstractmethod
    def lowest(self, subset: Subset) -> tuple[int, ...]:
        """The first output of the set in lexicographic order."""

    def best_first(self, example: int) -> Iterator[tuple[float, tuple[int, ...]]]:
        """All outputs of an example with their scores, in descending order of the scores."""
        frontier: list[tuple[float, tuple[int, ...], int, Subset]] = []
        serial = count()  # sets themselves are never compared

        def push(subset: Subset, above: float) -> None:
            bound = self._bound(subset, above)
            if bound == -math.inf:
                return
            if len(frontier) >= self.max_sets:
                raise MemoryError(search_too_large(example, self.max_sets))
            heappush(frontier, (-bound, self.lowest(subset), next(serial), subset))

        push(self.initial(example), math.inf)
        while frontier:
            negative_bound, lowest, _, subset = heappop(frontier)
            if self.is_singleton(subset):
                yield -negative_bound, lowest
            else:
                for part in self.split(subset):
                    push(part, -negative_bound)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle (Algorithm 13): values [B, k] in descending order and distinct outputs [B, k, D].

        Values are -inf, and outputs 0, where fewer than k outputs have a finite score.
        """
        refuse_transforms(type(self).__name__)
        k = check_k(k)
        if is_exporting():
            raise NotImplementedError(
                f"{type(self).__name__} searches in Python, which torch.export does not trace: export the module that "
                "scores, and search outside"
            )
        scores = self.potentials[0]
        if len(scores) == 0:
            raise ValueError("a search space needs at least one example")
        with torch.no_grad():
            found = [list(islice(self.best_first(b), k)) for b in range(len(scores))]
            nothing = [self.lowest(self.initial(b)) for b in range(len(scores))]
        outputs = [[y for _, y in best] + [other] * (k - len(best)) for best, other in zip(found, nothing, strict=True)]
        exists = torch.tensor([[slot < len(best) for slot in range(k)] for best in found], device=scores.device)
        y = torch.tensor(outputs, device=scores.device)
        values = torch.stack([self.score(y[:, slot]) for slot in range(k)], 1)
        if self.validate_args:
            self._check_scores(values, found)
        values, order = torch.where(exists, values, -torch.inf).sort(dim=1, descending=True, stable=True)
        y = torch.where(exists.unsqueeze(-1), y, 0)
        return values, y.gather(1, order.unsqueeze(-1).expand_as(y))

    def _bound(self, subset: Subset, above: float) -> float:
        """Upper bound of a part, given the bound of the whole."""
        bound = float(self.upper_bound(subset))
        if not bound < math.inf:
            raise ValueError(f"upper_bound must be finite or -inf, got {bound} for {subset}")
        if self.validate_args and bound > above + self._rounding(above):
            raise ValueError(
                f"upper_bound of a part must not exceed that of the whole, {above}, got {bound} for {subset}"
            )
        return min(bound, above)

    def _check_scores(self, values: Tensor, found: list[list[tuple[float, tuple[int, ...]]]]) -> None:
        for row, best in zip(values.tolist(), found, strict=True):
            for score, (bound, y) in zip(row, best, strict=False):
                if not abs(score - bound) <= self._rounding(score):
                    raise ValueError(
                        f"upper_bound of a single output must be its score, {score}, got {bound} for y = {y}"
                    )

    def _rounding(self, value: float) -> float:
        """By how much two sums of the same scores near ``value`` may differ by rounding."""
        epsilon: float = torch.finfo(widened(self.potentials[0]).dtype).eps
        return math.sqrt(epsilon) * max(1.0, abs(value))


def search_too_large(example: int, max_sets: int) -> str:
    """The error message of a search that exceeds its limit."""
    return (
        f"the search of example {example} would hold more than max_sets = {max_sets:,} sets at a time: "
        "too many outputs have almost the best score; raise max_sets, or bound scores more tightly"
    )
