"""Linear scores of dense and of sparse features, by the definition."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth import LinearScore, ScoreModule, StructuralHinge
from structsmooth.problems import SparseSequences

F, S = 4, 3
TOKENS = [[[0, 2], [1], []], [[3]], [[1, 1], [2, 0, 3]]]  # one token without attributes, one that lists 1 twice
Y = torch.tensor([[0, 2, 1], [1, 0, 0], [2, 2, 0]])


@pytest.fixture
def score() -> LinearScore:
    torch.manual_seed(0)
    module = LinearScore(F, S)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


def sparse() -> SparseSequences:
    flat = [token for sequence in TOKENS for token in sequence]
    return SparseSequences(
        torch.tensor([a for token in flat for a in token], dtype=torch.int32),
        torch.tensor([0, *map(len, flat)]).cumsum(0),
        torch.tensor([0, *map(len, TOKENS)]).cumsum(0),
    )


def dense() -> tuple[Tensor, Tensor]:
    features = torch.zeros(3, 3, F, dtype=torch.float64)
    for b, sequence in enumerate(TOKENS):
        for t, token in enumerate(sequence):
            for attribute in token:
                features[b, t, attribute] += 1
    return features, torch.tensor([3, 1, 2])


@pytest.mark.parametrize("x", [sparse(), dense()], ids=["sparse", "dense"])
def test_scores_by_the_definition(score: LinearScore, x: object) -> None:
    expected = []
    for tokens, y in zip(TOKENS, Y.tolist(), strict=True):
        value = score.ends[0, y[0]] + score.ends[1, y[len(tokens) - 1]]
        for t, token in enumerate(tokens):
            value = value + sum(score.rows[attribute, y[t]] for attribute in token)
            value = value + (score.transition[y[t - 1], y[t]] if t else 0)
        expected.append(value)
    assert_close(score(x).score(Y), torch.stack(expected))


def test_sparse_and_dense_features_agree(score: LinearScore) -> None:
    gradients = []
    for x in (sparse(), dense()):
        chain = score(x)
        assert chain.lengths.tolist() == [3, 1, 2]
        loss = StructuralHinge.crf()(chain, Y)
        gradients.append((loss, *torch.autograd.grad(loss, tuple(score.parameters()))))
    assert_close(*gradients)


def test_dense_features_without_lengths_fill_the_batch(score: LinearScore) -> None:
    features, _ = dense()
    assert_close(score(features).unary, score((features, torch.full((3,), 3))).unary)
    assert score(features).lengths.tolist() == [3, 3, 3]


def test_an_example_scores_the_same_in_any_batch(score: LinearScore) -> None:
    x = sparse()
    together = score(x).logsumexp()
    assert_close(torch.cat([score(x.select(torch.tensor([i]))).logsumexp() for i in range(3)]), together)


def test_garbage_at_padding_reaches_neither_loss_nor_weights(score: LinearScore) -> None:
    features, lengths = dense()
    results = []
    for value in (0.0, torch.nan):
        inside = torch.arange(3) < lengths[:, None]
        x = features.masked_fill(~inside.unsqueeze(-1), value), lengths
        loss = StructuralHinge.crf()(score(x), Y)
        results.append((loss, *torch.autograd.grad(loss, tuple(score.parameters()))))
    assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("x", [sparse(), dense()], ids=["sparse", "dense"])
def test_labels_may_be_forbidden_at_the_ends(score: LinearScore, x: object) -> None:
    with torch.no_grad():
        score.ends[0, 1] = score.ends[1, 2] = -torch.inf
    chain = score(x)
    first, last = chain.marginals()[0][:, 0], chain.marginals()[0][range(3), chain.lengths - 1]
    assert not first[:, 1].any()
    assert not last[:, 2].any()
    assert_close(first.sum(-1), torch.ones(3, dtype=torch.float64))
    assert chain.unary[0, 1].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parameters_start_at_zero_in_a_fixed_order(dtype: torch.dtype) -> None:
    parameters = dict(LinearScore(F, S, dtype=dtype).named_parameters())
    assert {name: tuple(p.shape) for name, p in parameters.items()} == {
        "rows": (F, S),
        "transition": (S, S),
        "ends": (2, S),
    }
    assert list(parameters) == ["rows", "transition", "ends"]
    assert all(p.dtype == dtype and not p.any() for p in parameters.values())


def test_score_modules_must_say_how_to_score() -> None:
    class Forgetful(ScoreModule):
        pass

    with pytest.raises(TypeError, match="forward"):
        Forgetful()
