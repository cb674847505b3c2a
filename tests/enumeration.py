"""Small random chains, and their oracles by enumeration: the brute force everything is checked against."""

from collections.abc import Callable
from itertools import product

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

Potentials = tuple[Tensor, Tensor, Tensor]  # unary, transition, lengths
FORMS = ("[S, S]", "[B, S, S]", "[B, T-1, S, S]")


def random_chains(
    batch: int,
    steps: int,
    states: int,
    form: str = FORMS[0],
    seed: int = 0,
    lengths: list[int] | None = None,
    ties: bool = False,
    forbidden: float = 0.0,
) -> Potentials:
    """Float64 scores: Gaussian, or small integers for exact ties; a fraction ``forbidden`` of them is -inf."""
    generator = torch.Generator().manual_seed(seed)

    def scores(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        values = values.round() if ties else values
        return values.masked_fill(torch.rand(shape, generator=generator) < forbidden, -torch.inf)

    shape = {"[S, S]": (), "[B, S, S]": (batch,), "[B, T-1, S, S]": (batch, steps - 1)}[form]
    ends = (
        torch.randint(1, steps + 1, (batch,), generator=generator)
        if lengths is None
        else torch.tensor(lengths, dtype=torch.int64)
    )
    return scores(batch, steps, states), scores(*shape, states, states), ends


@st.composite
def small_chains(draw: st.DrawFn, ties: bool | None = None, forbidden: float | None = None) -> Potentials:
    """Chains with at most 4^5 outputs, in every form of transitions; some examples allow no output at all."""
    return random_chains(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
        draw(st.integers(1, 4)),
        draw(st.sampled_from(FORMS)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.6])) if forbidden is None else forbidden,
    )


class EnumeratedChain:
    """The queries of a ``LinearChain`` in float64, output by output; autograd through them gives the statistics.

    Outputs of an example are listed in the order that breaks ties: by the last label, then by the one before it.
    """

    def __init__(self, unary: Tensor, transition: Tensor, lengths: Tensor) -> None:
        batch, self.steps, self.states = unary.shape
        self.unary, self.lengths = unary.double(), lengths.tolist()
        index = {2: (None, None), 3: (slice(None), None), 4: ()}[transition.dim()]
        self.edges = transition.double()[index].expand(batch, self.steps - 1, self.states, self.states)
        self.outputs = [
            pad(torch.tensor([y[::-1] for y in product(range(self.states), repeat=length)]), (0, self.steps - length))
            for length in self.lengths
        ]
        self.scores = [self._scores(b, y) for b, y in enumerate(self.outputs)]

    def _at(self, b: int, y: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Indices of the labels and of the pairs in outputs ``y`` [N, T]."""
        t, y = torch.arange(self.lengths[b]), y[:, : self.lengths[b]]
        return (t, y), (t[:-1], y[:, :-1], y[:, 1:])

    def _scores(self, b: int, y: Tensor) -> Tensor:
        labels, pairs = self._at(b, y)
        return self.unary[b][labels].sum(1) + self.edges[b][pairs].sum(1)

    def _parts(self, b: int, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted sum of the indicators of outputs ``y`` [N, T]."""
        shapes = (self.steps, self.states), (self.steps - 1, self.states, self.states)
        node, edge = (
            weights.new_zeros(shape).index_put(index, weights[:, None], accumulate=True)
            for shape, index in zip(shapes, self._at(b, y), strict=True)
        )
        return node, edge

    def _each(self, query: Callable[[Tensor, Tensor], Tensor], *, empty: Tensor) -> Tensor:
        """``query(outputs, scores)`` of the allowed outputs of every example; ``empty`` where there are none."""
        rows = [(y[s > -torch.inf], s[s > -torch.inf]) for y, s in zip(self.outputs, self.scores, strict=True)]
        return torch.stack([query(y, s) if len(y) else empty for y, s in rows])

    def score(self, y: Tensor) -> Tensor:
        return torch.cat([self._scores(b, y[b : b + 1]) for b in range(len(y))])

    def parts(self, y: Tensor) -> tuple[Tensor, Tensor]:
        one = torch.ones(1, dtype=torch.float64)
        node, edge = zip(*(self._parts(b, y[b : b + 1], one) for b in range(len(y))), strict=True)
        return torch.stack(node), torch.stack(edge)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        def best(scores: Tensor) -> Tensor:
            return scores.detach().argsort(descending=True, stable=True)[:k]

        def padded(rows: Tensor, value: float) -> Tensor:
            return torch.cat([rows, rows.new_full((k - len(rows), *rows.shape[1:]), value)])

        nothing = torch.full((k,), -torch.inf, dtype=torch.float64)
        values = self._each(lambda _, s: padded(s[best(s)], -torch.inf), empty=nothing)
        return values, self._each(
            lambda y, s: padded(y[best(s)], 0), empty=torch.zeros(k, self.steps, dtype=torch.int64)
        )

    def max(self) -> tuple[Tensor, Tensor]:
        values, y = self.topk(1)
        return values[:, 0], y[:, 0]

    def logsumexp(self) -> Tensor:
        return self._each(lambda _, s: s.logsumexp(0), empty=torch.tensor(-torch.inf, dtype=torch.float64))

    def marginals(self) -> tuple[Tensor, Tensor]:
        rows = []
        for b, (y, scores) in enumerate(zip(self.outputs, self.scores, strict=True)):
            allowed = scores > -torch.inf
            rows.append(self._parts(b, y[allowed], scores[allowed].softmax(0)))
        node, edge = zip(*rows, strict=True)
        return torch.stack(node), torch.stack(edge)

    def max_marginals(self) -> Tensor:
        rows = []
        for y, scores, length in zip(self.outputs, self.scores, self.lengths, strict=True):
            best = [[self._best(scores[y[:, t] == s]) for s in range(self.states)] for t in range(length)]
            best += [[scores.new_zeros(())] * self.states] * (self.steps - length)
            rows.append(torch.stack([torch.stack(row) for row in best]))
        return torch.stack(rows)

    @staticmethod
    def _best(scores: Tensor) -> Tensor:
        best = scores.max(0).values
        return best if best > -torch.inf else best.detach()
