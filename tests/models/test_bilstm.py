import pytest
import torch

from structsmooth import L2, Entropy, LinearChain, Max, ModuleProblem, StructuralHinge
from structsmooth.checkpoint import load_state, save_state
from structsmooth.models import BiLSTMTagger
from structsmooth.solvers import SVRG, Status

VOCABULARY, STATES = 12, 3

LOSSES = {
    "hinge": StructuralHinge(),
    "smooth hinge": StructuralHinge(L2(1.0, 4)),
    "entropy hinge": StructuralHinge(Entropy(0.5)),
    "crf": StructuralHinge.crf(),
    "perceptron": StructuralHinge.perceptron(),
    "softmax margin": StructuralHinge.softmax_margin(),
    "sparsemap": StructuralHinge.sparsemap(),
    "top_k": StructuralHinge.top_k(),
}


@pytest.fixture
def tagger():
    torch.manual_seed(0)
    return BiLSTMTagger(VOCABULARY, STATES, embedding=8, hidden=6)


@pytest.fixture
def batch():
    """The label is that of the next token's id, modulo the number of states: a context is needed."""
    ids = torch.randint(VOCABULARY, (16, 7), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([7, 1, 3, 5] * 4)
    return ids, lengths, ids.roll(-1, 1) % STATES


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_adam_decreases_every_loss(tagger, batch, loss):
    ids, lengths, y = batch
    optimizer = torch.optim.Adam(tagger.parameters(), lr=0.02)
    values = []
    for _ in range(40):
        optimizer.zero_grad()
        value = loss(tagger((ids, lengths)), y)
        value.backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in tagger.parameters())
        optimizer.step()
        values.append(value.item())
    assert min(values) >= -1e-5
    assert values[-1] < 0.5 * values[0]


def test_svrg_trains_it_as_a_finite_sum(tagger, batch):
    ids, lengths, y = batch
    data = [((i, n), labels) for i, n, labels in zip(ids, lengths, y, strict=True)]
    problem = ModuleProblem(tagger, data, batch_size=4)
    start = problem.start()
    result = SVRG().solve(problem, lam=1e-3, passes=40)
    objectives = result.history.column("objective")
    assert result.status is Status.PASS_LIMIT
    assert objectives[-1] < 0.75 * objectives[0]
    assert torch.equal(problem.start(), start)  # the module is as it was, until weights are loaded
    problem.load(result.weights)
    direct = StructuralHinge()(tagger((ids, lengths)), y).item()
    assert direct == pytest.approx(problem.loss(result.weights, Max()), rel=1e-5)


def test_padding_changes_nothing(tagger, batch):
    ids, lengths, y = batch
    wide = torch.cat([ids, torch.randint(VOCABULARY, (16, 4))], 1)
    wide = torch.where(torch.arange(11) < lengths[:, None], wide, torch.randint(VOCABULARY, wide.shape))
    for i, n in enumerate(lengths.tolist()):
        alone = tagger(ids[i : i + 1, :n])
        padded = tagger((wide, lengths))
        torch.testing.assert_close(padded.unary[i, :n], alone.unary[0])
        torch.testing.assert_close(padded.logsumexp()[i], alone.logsumexp()[0])
        assert torch.equal(padded.max()[1][i, :n], alone.max()[1][0])
    value = StructuralHinge.crf()(tagger((wide, lengths)), torch.cat([y, y[:, :4]], 1))
    torch.testing.assert_close(value, StructuralHinge.crf()(tagger((ids, lengths)), y))


def test_ids_at_padding_get_no_gradient(tagger):
    ids = torch.tensor([[1, 2, 9]])
    StructuralHinge()(tagger((ids, torch.tensor([2]))), torch.tensor([[0, 1, 0]])).backward()
    gradient = tagger.embedding.weight.grad
    assert gradient[9].abs().sum() == 0 < gradient[1].abs().sum()


def test_potentials_against_lstm_of_a_full_batch(tagger, batch):
    ids, _, _ = batch
    chain = tagger(ids)
    hidden, _ = tagger.lstm(tagger.embedding(ids))
    assert isinstance(chain, LinearChain)
    torch.testing.assert_close(chain.unary, tagger.linear(hidden))
    torch.testing.assert_close(chain.transition, tagger.transition)
    assert chain.lengths.tolist() == [7] * 16


def test_saved_and_loaded_without_change(tagger, batch, tmp_path):
    ids, lengths, _ = batch
    save_state(tmp_path / "tagger.safetensors", tagger.state_dict(), {})
    other = BiLSTMTagger(VOCABULARY, STATES, embedding=8, hidden=6)
    other.load_state_dict(load_state(tmp_path / "tagger.safetensors")[0])
    assert torch.equal(other((ids, lengths)).unary, tagger((ids, lengths)).unary)


@pytest.mark.parametrize("name", ["vocabulary", "states", "embedding", "hidden", "layers"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        BiLSTMTagger(**{"vocabulary": 5, "states": 2} | {name: 0})


def test_ids_of_wrong_shape_are_refused(tagger):
    with pytest.raises(ValueError, match=r"token ids must have shape \[B, T\], got \(4,\)"):
        tagger(torch.zeros(4, dtype=torch.int64))
