"""Hidden Markov models beside sums over all state sequences, and their closed forms."""

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth import HiddenMarkov


def probabilities(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64).softmax(-1)


START, TRANSITION, TABLE = probabilities(3), probabilities(3, 3, seed=1), probabilities(3, 4, seed=2)


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_likelihoods_and_posteriors_are_sums_over_state_sequences(backend: str) -> None:
    observations, lengths = torch.tensor([[0, 3, -1, 2], [1, -1, 99, 99]]), torch.tensor([4, 2])
    logs = START.log(), TRANSITION.log(), TABLE.log()
    model = HiddenMarkov(*logs, observations, lengths, backend=backend)  # type: ignore[arg-type]
    for b, length in enumerate(lengths.tolist()):
        total, posterior, best = 0.0, torch.zeros(4, 3, dtype=torch.float64), 0.0
        for y in product(range(3), repeat=length):
            p = float(START[y[0]])
            for t, state in enumerate(y):
                p *= float(TRANSITION[y[t - 1], state]) if t else 1.0
                p *= float(TABLE[state, observations[b, t]]) if observations[b, t] >= 0 else 1.0
            posterior[torch.arange(length), torch.tensor(y)] += p
            total, best = total + p, max(best, p)
        assert_close(float(model.logsumexp()[b].exp()), total, rtol=1e-12, atol=0)
        assert_close(float(model.max()[0][b].exp()), best, rtol=1e-12, atol=0)
        assert_close(model.marginals()[0][b], posterior / total, rtol=1e-12, atol=1e-12)


def test_without_observations_states_have_the_distribution_of_the_markov_chain() -> None:
    stationary = torch.linalg.matrix_power(TRANSITION, 200)[0]
    nothing = torch.full((1, 30), -1)
    model = HiddenMarkov(stationary.log(), TRANSITION.log(), TABLE.log(), nothing)
    assert_close(model.logsumexp(), torch.zeros(1, dtype=torch.float64), rtol=0, atol=1e-12)
    assert_close(model.marginals()[0][0], stationary.expand(30, 3), rtol=0, atol=1e-12)
    late = HiddenMarkov(START.log(), TRANSITION.log(), TABLE.log(), nothing).marginals()[0][0, -1]
    assert_close(late, stationary, rtol=0, atol=1e-6)


def test_second_derivatives_by_all_parameters() -> None:
    observations = torch.tensor([[0, 3, -1], [1, 2, 0]])

    def likelihood(*parameters: Tensor) -> Tensor:
        start, transition, table = (p.log_softmax(-1) for p in parameters)
        return HiddenMarkov(start, transition, table, observations, torch.tensor([3, 2])).logsumexp()

    inputs = [p.log().requires_grad_() for p in (START, TRANSITION, TABLE)]
    assert torch.autograd.gradcheck(likelihood, inputs)
    assert torch.autograd.gradgradcheck(likelihood, inputs, fast_mode=True)


@pytest.mark.parametrize(
    ("emission", "observations", "error", "message"),
    [
        (TABLE, None, ValueError, r"emission must have shape \[B, T, S\]"),
        (TABLE[0], torch.zeros(1, 2).long(), ValueError, r"emission must have shape \[S, V\]"),
        (TABLE, torch.zeros(2).long(), ValueError, r"observations must have shape \[B, T\]"),
        (TABLE, torch.zeros(1, 2), TypeError, "observations must be integers"),
        (TABLE, torch.tensor([[0, 4]]), ValueError, "observations must be from -1 to 3, got 0 to 4"),
    ],
)
def test_wrong_emissions_are_named(
    emission: Tensor, observations: Tensor | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        HiddenMarkov(START.log(), TRANSITION.log(), emission, observations)


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_filtered_states_are_those_given_the_observations_so_far(backend: str) -> None:
    lengths = torch.tensor([6, 3, 0])
    scores = torch.randn(3, 6, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    logs = START.log(), TRANSITION.log()
    model = HiddenMarkov(*logs, scores, lengths=lengths, backend=backend)  # type: ignore[arg-type]
    filtered = model.filtered_marginals()
    for t in range(6):
        prefix = HiddenMarkov(*logs, scores[:, : t + 1], lengths=lengths.clamp(max=t + 1))
        expected = torch.where((t < lengths).unsqueeze(1), prefix.marginals()[0][:, t], 0.0)
        assert_close(filtered[:, t], expected, rtol=1e-12, atol=1e-12)

    def filter_(*parameters: Tensor) -> Tensor:
        return HiddenMarkov(*parameters, lengths=lengths, backend=backend).filtered_marginals()  # type: ignore[arg-type]

    assert torch.autograd.gradcheck(filter_, [tensor.clone().requires_grad_() for tensor in (*logs, scores)])
    scores[0, 2] = -torch.inf  # nothing is possible from here on
    found = filter_(*logs, scores.requires_grad_())
    assert found[0].sum(1).round(decimals=9).tolist() == [1, 1, 0, 0, 0, 0]
    assert bool(torch.autograd.grad(found.square().sum(), scores)[0].isfinite().all())
