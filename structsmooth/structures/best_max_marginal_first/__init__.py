"""Top-K from max-marginals, for any structure: best max-marginal first (Yanover and Weiss 2004)."""

import torch
from torch import Tensor

from structsmooth.structures.base import Structure, check_k


def best_max_marginal_first(structure: Structure, k: int) -> tuple[Tensor, Tensor]:
    """Top-K oracle of any structure that has ``max`` and ``max_marginals``, for ``topk`` of a new structure.

    𝒴 is split into sets of outputs, and the best output y of each set is known. The next best output overall is the
    best output with y_v = j in one of the sets, where j differs from the value of v in the best output of that set.
    The set is then split into y_v = j and y_v ≠ j. Constraints are potentials of -inf, set by
    :meth:`Structure.replace`. Max-marginals of a set bound those of its parts, so they are all computed once; an entry
    is recomputed, by the max oracle, only when it is the largest. The max oracle also returns the output, so outputs
    are distinct even where scores tie exactly.

    Costs one call of ``max_marginals``, and at least k calls of ``max`` (rarely many more), each on the whole batch.
    ``torch.compile`` cannot trace it and breaks the graph here.

    Args:
        structure: a structure whose first potentials [B, V, S] score S values of each of V variables, and whose
            outputs are [B, V].
        k: number of outputs.

    Returns:
        Values [B, k], differentiable and in descending order, and distinct outputs [B, k, V]; -inf and 0 where there
        are fewer than k outputs of finite score.

    Raises:
        TypeError: ``k`` is not an int.
        ValueError: ``k`` is less than 1, or the first potentials do not have three dimensions.

    Reference:
        Pillutla et al. (2019), Algorithm 10 and Theorem 46.

    Example:
        >>> from structsmooth import LinearChain
        >>> chain = LinearChain(torch.tensor([[[0.0, 1.0], [3.0, 5.0]]]), torch.zeros(2, 2))
        >>> values, y = best_max_marginal_first(chain, 3)
        >>> values.tolist(), y.tolist()
        ([[6.0, 5.0, 4.0]], [[[1, 1], [0, 1], [1, 0]]])
    """
    k = check_k(k)
    first = structure.potentials[0]
    if first.dim() != 3:
        raise ValueError(f"structure must have first potentials of shape [B, V, S], got {tuple(first.shape)}")
    with torch.no_grad():
        search = _Search(structure.replace(*(potentials.detach() for potentials in structure.potentials)), k)
        while search.step():
            pass
        found, y = search.results()
    scores = torch.stack([structure.score(y[:, i]) for i in range(k)], 1)
    return sorted_downwards(torch.where(found, scores, -torch.inf), y)


def sorted_downwards(values: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, V] in descending order; bounds, by which they were found, round differently."""
    if values.shape[1] == 1:
        return values, y
    values, order = values.sort(dim=1, descending=True, stable=True)
    return values, y.gather(1, order.unsqueeze(-1).expand_as(y))


class _Search:
    """The sets that 𝒴 is split into, one per output found; each example of the batch has its own sets.

    Attributes:
        outputs: the best output of each set, [B, k, V].
        allowed: the values that the set allows, bool [B, k, V, S].
        bounds: bounds on the max-marginals of the set, [B, k, V, S]; -inf for sets to come.
        count: number of sets so far, [B].
    """

    def __init__(self, structure: Structure, k: int) -> None:
        self.structure, self.k = structure, k
        first = structure.potentials[0]
        value, y = structure.max()
        table = structure.max_marginals()
        self.examples = torch.arange(len(first), device=first.device)
        self.states = torch.arange(first.shape[2], device=first.device)
        self.outputs = torch.zeros_like(y).unsqueeze(1).repeat(1, k, 1)
        self.outputs[:, 0] = y
        self.allowed = torch.ones_like(table, dtype=torch.bool).unsqueeze(1).repeat(1, k, 1, 1)
        self.bounds = torch.full_like(table, -torch.inf).unsqueeze(1).repeat(1, k, 1, 1)
        # Variables at padding have no parts, and no other values to choose from.
        self.bounds[:, 0] = torch.where(structure.parts(y)[0].any(-1, keepdim=True), table, -torch.inf)
        self.count = (value > -torch.inf).to(torch.int64)

    def step(self) -> bool:
        """Recompute the largest bound of each example, and split its set if it is still the largest."""
        candidates = self._candidates()
        bound, index = candidates.max(1)
        searching = (self.count > 0) & (self.count < self.k) & (bound > -torch.inf)
        if not bool(searching.any()):
            return False
        s, v, j = torch.unravel_index(index, self.bounds.shape[1:])
        allowed = self.allowed[self.examples, s]
        allowed[self.examples, v] = self.states == j.unsqueeze(-1)
        value, y = self._maximize(allowed)
        value = torch.where(searching, value, -torch.inf)
        self.bounds[self.examples, s, v, j] = value
        accepted = (value > -torch.inf) & (value >= self._candidates().amax(1))
        self._split(*(x[accepted] for x in (self.examples, s, v, j, allowed, value, y)))
        return True

    def results(self) -> tuple[Tensor, Tensor]:
        """Whether each of k outputs was found, [B, k], and the outputs [B, k, V]."""
        found = torch.arange(self.k, device=self.count.device) < self.count.unsqueeze(-1)
        return found, torch.where(found.unsqueeze(-1), self.outputs, 0)

    def _candidates(self) -> Tensor:
        """Bounds of allowed values other than those of the best output of each set: [B, k V S]."""
        others = self.allowed & (self.states != self.outputs.unsqueeze(-1))
        return torch.where(others, self.bounds, -torch.inf).flatten(1)

    def _maximize(self, allowed: Tensor) -> tuple[Tensor, Tensor]:
        first, *others = self.structure.potentials
        value, y = self.structure.replace(first.masked_fill(~allowed, -torch.inf), *others).max()
        return value.to(self.bounds.dtype), y

    def _split(self, b: Tensor, s: Tensor, v: Tensor, j: Tensor, allowed: Tensor, value: Tensor, y: Tensor) -> None:
        """Split set s of the examples b: the part with y_v = j, which allows ``allowed``, becomes the newest set."""
        new = self.count[b]
        self.outputs[b, new], self.allowed[b, new] = y, allowed
        self.bounds[b, new] = torch.minimum(self.bounds[b, s], value[:, None, None])
        self.allowed[b, s, v, j] = False
        self.count[b] = new + 1
