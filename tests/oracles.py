"""Values of the oracles with their gradients, for the tests of structures."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

K = 3
ORACLES: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "max": lambda structure, y=None: structure.max()[:1],
    "topk": lambda structure, y=None: structure.topk(K)[:1],
    "logsumexp": lambda structure, y=None: (structure.logsumexp(),),
    "marginals": lambda structure, y=None: structure.marginals(),
    "max_marginals": lambda structure, y=None: (structure.max_marginals(),),
    "score": lambda structure, y: (structure.score(y),),
}


def values_and_gradients(
    oracle: str, build: Callable[..., Any], *potentials: Tensor, y: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Values of an oracle of ``build(*potentials)``, then the gradients of a weighted sum of them."""

    def run(*potentials: Tensor) -> tuple[Tensor, ...]:
        return ORACLES[oracle](build(*potentials), y)

    weights = tuple(torch.arange(1.0, v.numel() + 1).cos().to(v).view_as(v) for v in run(*potentials))
    values, gradients = vjp(run, potentials, weights)
    return *values, *gradients


def assert_same_oracles(actual: Any, expected: Any, y: Tensor, k: int) -> None:
    """Outputs, ties included, must be identical; values may round."""
    for name, arguments in [("max", ()), ("topk", (k,)), ("score", (y,)), ("parts", (y,))]:
        assert_close(
            getattr(actual, name)(*arguments), getattr(expected, name)(*arguments), rtol=1e-10, atol=1e-10, msg=name
        )
    for name in ("logsumexp", "marginals", "max_marginals"):
        assert_close(ORACLES[name](actual), ORACLES[name](expected), rtol=1e-10, atol=1e-10, msg=name)


def assert_lists(structure: Any, answer: tuple[Tensor, Tensor], expected: Tensor, stand_in: Tensor | int = 0) -> None:
    """Of top-K: sorted values as expected, and distinct outputs of that score."""
    assert_close(answer[0], expected, rtol=1e-12, atol=1e-12)
    assert_sorted_and_distinct(structure, answer, stand_in)


def assert_sorted_and_distinct(structure: Any, answer: tuple[Tensor, Tensor], stand_in: Tensor | int = 0) -> None:
    """Of top-K: outputs have the scores given, and are zero where there are no more.

    A structure in which zeros are no output needs a ``stand_in`` to score in their place.
    """
    values, y = answer
    assert (values[:, 1:] <= values[:, :-1]).all()
    for row, outputs in zip(values, y, strict=True):
        found = row > -torch.inf
        assert not outputs[~found].any()
        assert len(outputs[found].unique(dim=0)) == found.sum()
    for value, outputs in zip(values.T, y.transpose(0, 1), strict=True):
        found = value > -torch.inf
        scored = torch.where(found.view(-1, *[1] * (outputs.dim() - 1)), outputs, stand_in)
        assert_close(structure.score(scored)[found], value[found], rtol=1e-12, atol=1e-12)


def assert_best_at_any_scale(structure: Any, twin: Any, *potentials: Tensor) -> None:
    """Relative to the largest potential of each example, no output is better than the one returned."""
    finite = torch.cat([p.nan_to_num(neginf=0.0).abs().flatten(1) for p in potentials], 1)
    largest = torch.where(finite.any(1), finite.amax(1), 1.0)
    for actual, expected in [
        (structure.max()[0], twin.max()[0]),
        (structure.topk(5)[0], twin.topk(5)[0]),
        (structure.max_marginals(), twin.max_marginals()),
    ]:
        unit = largest.view(-1, *[1] * (actual.dim() - 1))
        assert_close(actual / unit, expected / unit, rtol=1e-14, atol=1e-14)
