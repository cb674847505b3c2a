"""Best max-marginal first: against enumeration and the top-K oracles of structures, and for a new structure."""

from typing import Any

import pytest
import torch
from enumeration import (
    FORMS,
    EnumeratedChain,
    EnumeratedMatching,
    Graphs,
    Potentials,
    Weights,
    random_chains,
    small_chains,
    small_graphs,
    small_matchings,
)
from hypothesis import given
from hypothesis import strategies as st
from oracles import assert_lists
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import L2, BinaryGraph, LinearChain, Matching, Structure
from structsmooth.structures import best_max_marginal_first
from structsmooth.structures.base import check_k

BACKENDS = ["compiled", "torch"]
both_backends = pytest.mark.parametrize("backend", BACKENDS)


@both_backends
@given(potentials=small_chains(), k=st.integers(1, 12))
def test_chains(backend: str, potentials: Potentials, k: int) -> None:
    chain = LinearChain(*potentials, backend=backend)
    values, y = best_max_marginal_first(chain, k)
    assert_lists(chain, (values, y), EnumeratedChain(*potentials).topk(k)[0])
    assert_close(values, chain.topk(k)[0], rtol=1e-12, atol=1e-12)
    assert not (y * ~chain.mask[:, None]).any()


@given(potentials=small_chains(ties=False))
def test_chains_without_ties_have_the_outputs_of_their_own_oracle(potentials: Potentials) -> None:
    chain = LinearChain(*potentials)
    assert_close(best_max_marginal_first(chain, 5), chain.topk(5), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("forbidden", [0.0, 0.2])
def test_it_lists_everything_when_k_is_large(forbidden: float, ties: bool) -> None:
    potentials = random_chains(3, 4, 3, lengths=[4, 3, 1], ties=ties, forbidden=forbidden)
    chain = LinearChain(*potentials)
    assert_lists(chain, best_max_marginal_first(chain, 90), EnumeratedChain(*potentials).topk(90)[0])


def test_all_scores_equal() -> None:
    chain = LinearChain(torch.zeros(2, 4, 3), torch.zeros(3, 3), torch.tensor([4, 2]))
    values, y = best_max_marginal_first(chain, 90)
    assert (values > -torch.inf).sum(1).tolist() == [81, 9]
    assert_lists(chain, (values, y), chain.topk(90)[0])


@given(graph=small_graphs(), k=st.integers(1, 300))
def test_graphs_search_alike_in_compiled_code(graph: Graphs, k: int) -> None:
    structure = BinaryGraph(*graph)
    assert_close(best_max_marginal_first(structure, k), structure.topk(k), rtol=1e-13, atol=1e-13)


@given(weights=small_matchings(), k=st.integers(1, 20))
def test_matchings(weights: Weights, k: int) -> None:
    matching = Matching(*weights)
    assert_lists(matching, best_max_marginal_first(matching, k), EnumeratedMatching(*weights).topk(k)[0])


@given(weights=small_matchings(ties=False))
def test_matchings_search_alike_in_compiled_code(weights: Weights) -> None:
    matching = Matching(*weights)
    assert_close(best_max_marginal_first(matching, 9), matching.topk(9), rtol=1e-13, atol=1e-13)


@both_backends
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_the_oracle_of_the_structure(form: str, backend: str) -> None:
    unary, transition, lengths = random_chains(2, 4, 2, form, lengths=[4, 2])
    weights = torch.arange(1.0, 7, dtype=torch.float64).cos().view(2, 3)

    def general(unary: Tensor, transition: Tensor) -> Tensor:
        return best_max_marginal_first(LinearChain(unary, transition, lengths, backend=backend), 3)[0]

    def own(unary: Tensor, transition: Tensor) -> Tensor:
        return LinearChain(unary, transition, lengths).topk(3)[0]

    assert_close(vjp(general, (unary, transition), weights), vjp(own, (unary, transition), weights))
    inputs = unary.requires_grad_(), transition.requires_grad_()
    assert torch.autograd.gradcheck(general, inputs)


def test_an_example_without_outputs_has_no_gradient() -> None:
    unary = torch.zeros(2, 3, 2, dtype=torch.float64)
    unary[0, 1] = -torch.inf
    unary.requires_grad_()
    values, y = best_max_marginal_first(LinearChain(unary, torch.zeros(2, 2, dtype=torch.float64)), 9)
    assert (values[0] == -torch.inf).all()
    assert not y[0].any()
    (gradient,) = torch.autograd.grad(values[values > -torch.inf].sum(), unary)
    assert_close(gradient, torch.stack([torch.zeros(3, 2), torch.full((3, 2), 4.0)]).double())


class Subsets(Structure):
    """Subsets of exactly r of N items: y_v = 1 if v is in. Has nothing but the max oracle and max-marginals."""

    labels_are_classes = True

    def __init__(self, unary: Tensor, r: int) -> None:
        self.unary, self.r = unary, r

    @property
    def potentials(self) -> tuple[Tensor]:
        return (self.unary,)

    def replace(self, *potentials: Tensor) -> "Subsets":
        return Subsets(*potentials, self.r)

    def score(self, y: Tensor) -> Tensor:
        return self.unary.gather(2, y.unsqueeze(-1)).sum((1, 2))

    def parts(self, y: Tensor) -> tuple[Tensor]:
        return (torch.nn.functional.one_hot(y, 2),)

    def max(self) -> tuple[Tensor, Tensor]:
        order = (self.unary[..., 1] - self.unary[..., 0]).argsort(dim=1, descending=True, stable=True)
        y = torch.zeros_like(order).scatter(1, order[:, : self.r], 1)
        return self.score(y), y

    def max_marginals(self) -> Tensor:
        out = torch.empty_like(self.unary)
        for v in range(out.shape[1]):
            for j in range(2):
                fixed = self.unary.clone()
                fixed[:, v, 1 - j] = -torch.inf
                out[:, v, j] = self.replace(fixed).max()[0]
        return out

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        return best_max_marginal_first(self, k)


@pytest.mark.parametrize("ties", [False, True])
def test_a_new_structure_gets_topk_for_free(ties: bool) -> None:
    unary = torch.randn(3, 7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unary = unary.round() if ties else unary
    subsets = Subsets(unary, 3)
    scores = []
    for items in torch.combinations(torch.arange(7), 3):
        y = torch.zeros(3, 7, dtype=torch.int64)
        y[:, items] = 1
        scores.append(subsets.score(y))
    best = torch.stack(scores, 1).sort(1, descending=True).values
    for k in (1, 10, 35):
        values, y = subsets.topk(k)
        assert (y.sum(2) == 3).all()
        assert_lists(subsets, (values, y), best[:, :k])
    assert (L2(mu=1.0, k=10)(subsets) >= best[:, 0]).all()


def test_float32_and_inference_mode() -> None:
    unary, transition, lengths = random_chains(4, 8, 4)
    chain = LinearChain(unary.float(), transition.float(), lengths)
    values, y = best_max_marginal_first(chain, 6)
    assert values.dtype == torch.float32
    assert_close(values, chain.topk(6)[0])
    with torch.inference_mode():
        assert_close(best_max_marginal_first(chain, 6), (values, y))


def test_an_empty_batch_gives_empty_answers() -> None:
    values, y = best_max_marginal_first(LinearChain(torch.zeros(0, 3, 2), torch.zeros(2, 2)), 4)
    assert (values.shape, y.shape) == ((0, 4), (0, 4, 3))


@pytest.mark.parametrize("k", [0, -1, 2.0, True, None])
def test_refuses_a_bad_k(k: Any) -> None:
    chain = LinearChain(torch.zeros(1, 3, 2), torch.zeros(2, 2))
    with pytest.raises((TypeError, ValueError), match="k must be"):
        best_max_marginal_first(chain, k)
    with pytest.raises((TypeError, ValueError), match="k must be"):
        check_k(k)


def test_refuses_potentials_of_another_shape() -> None:
    class Candidates(Subsets):
        pass

    with pytest.raises(ValueError, match=r"structure must have first potentials of shape \[B, V, S\], got \(2, 5\)"):
        best_max_marginal_first(Candidates(torch.zeros(2, 5), 1), 2)
