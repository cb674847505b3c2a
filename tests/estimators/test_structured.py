"""Score modules as estimators: convex and deep ones, outputs of several lengths, scikit-learn's tools."""

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from structsmooth import SGD, Candidates, Entropy, Hamming, LinearChain, LinearScore, ScoreModule
from structsmooth.estimators import StructuredEstimator

X = torch.randn(16, 4, 3, generator=torch.Generator().manual_seed(0))
Y = (X[..., 0] > 0).long()


class Ranker(ScoreModule):
    """Two layers under the scores of three classes."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.ELU(), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> Candidates:
        return Candidates(self.net(x))


class Tagger(ScoreModule):
    """A chain over padded sentences."""

    affine = True

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2, bias=False)

    def forward(self, x: tuple[torch.Tensor, torch.Tensor]) -> LinearChain:
        features, lengths = x
        return LinearChain(self.linear(features), torch.zeros(2, 2), lengths=lengths)


def padded(pairs):
    """As for a ``DataLoader``: it knows no pairs without outputs."""
    inputs, outputs = zip(*pairs, strict=True)
    x = pad_sequence(inputs, batch_first=True), torch.tensor([len(own) for own in inputs])
    return x, pad_sequence(outputs, batch_first=True)


def padded_apart(X, y=None):
    x = pad_sequence(X, batch_first=True), torch.tensor([len(own) for own in X])
    return x, None if y is None else pad_sequence(y, batch_first=True)


def padded_by_outputs(pairs):
    (features, _), labels = padded(pairs)
    return (features, torch.tensor([len(own) for _, own in pairs])), labels


def ranker(**settings):
    torch.manual_seed(0)
    return StructuredEstimator(Ranker(), lam="0.1/n", **{"max_iter": 20, **settings})


def test_convex_scores_end_at_a_certified_gap():
    module = LinearScore(3, 2)
    estimator = StructuredEstimator(module, tol=1e-3).fit(X, Y)
    assert estimator.gap_ <= 1e-3 * estimator.objective_
    assert estimator.certify(X, Y).objective == pytest.approx(estimator.objective_)
    assert not any(parameter.any() for parameter in module.parameters()), "fit trains a copy"
    found = estimator.predict(X)
    assert found.shape == (16, 4)
    assert estimator.score(X, Y) == -(found != Y.numpy()).sum() / 16
    for few in (0, -1):
        with pytest.raises(ValueError, match="k must be"):
            estimator.predict_top_k(X, few)
    best, second = estimator.predict_top_k(X, 2)[3]
    assert best[0] > second[0]
    assert best[1].tolist() == found[3].tolist() != second[1].tolist()
    assert StructuredEstimator(module, smoother=Entropy(), solver="casimir-svrg").fit(X, Y).score(X, Y) > -1


def test_arrays_and_lists_are_the_same_problem():
    expected = StructuredEstimator(LinearScore(3, 2)).fit(X, Y).objective_
    for inputs, outputs in ((X.numpy(), Y.numpy()), (list(X), Y.tolist()), (list(X.double().numpy()), list(Y))):
        assert StructuredEstimator(LinearScore(3, 2)).fit(inputs, outputs).objective_ == pytest.approx(
            expected, rel=1e-3
        )


@pytest.mark.parametrize("collate", [padded, padded_apart])
def test_outputs_of_several_lengths(collate):
    inputs = [X[i, : 1 + i % 4] for i in range(16)]
    outputs = [Y[i, : 1 + i % 4] for i in range(16)]
    estimator = StructuredEstimator(Tagger(), lam="0.1/n", collate=collate, batch_size=5).fit(inputs, outputs)
    found = estimator.predict(inputs)
    assert [len(own) for own in found] == [len(own) for own in outputs]
    wrong = sum(int((own != y.numpy()).sum()) for own, y in zip(found, outputs, strict=True))
    assert estimator.score(inputs, outputs) == -wrong / 16
    joined = cross_val_predict(clone(estimator), inputs, outputs, cv=3)
    assert [len(own) for own in joined] == [len(own) for own in outputs]


def test_predictions_do_not_depend_on_outputs_that_stand_in():
    inputs = [X[i, : 1 + i % 4] for i in range(16)]
    outputs = [Y[i, : 1 + i % 4] for i in range(16)]
    estimator = StructuredEstimator(Tagger(), lam="0.1/n", collate=padded_by_outputs).fit(inputs, outputs)
    assert estimator.score(inputs, outputs) <= 0, "with outputs, nothing stands in"
    with pytest.raises(ValueError, match=r"the same inputs whatever the outputs are.* collate\(X, y=None\)"):
        estimator.predict(inputs)


def test_deep_scores():
    inputs, classes = X[:, 0].numpy(), Y.sum(1).clamp_max(2).numpy()
    estimator = ranker().fit(inputs, classes)
    first = estimator.history_[0].objective
    assert np.isnan(estimator.gap_)
    assert estimator.objective_ < 0.5 * first
    assert estimator.predict(inputs).shape == (16,)
    assert estimator.score(inputs, classes) == pytest.approx((estimator.predict(inputs) == classes).mean() - 1)
    again = ranker(warm_start=True).fit(inputs, classes).fit(inputs, classes)
    assert again.history_[0].objective < 0.5 * first
    stopped = ranker(solver=SGD(), early_stopping=True, validation_fraction=0.25, max_iter=50).fit(inputs, classes)
    scores = [row.metrics["validation_score"] for row in stopped.history_]
    assert max(scores) > -1
    assert stopped.n_iter_ == scores.index(max(scores)) + stopped.n_iter_no_change == scores.index(max(scores)) + 5


def test_predictions_are_made_in_evaluation_mode():
    inputs, classes = X[:, 0], Y[:, 0]
    module = Ranker()
    module.net.append(nn.Dropout(0.9))
    estimator = StructuredEstimator(module, max_iter=1).fit(inputs, classes)
    first, second = (estimator.predict_top_k(inputs, 3) for _ in range(2))
    assert first == second
    assert estimator.module_.training, "and training goes on in its own mode"


class Impossible(Ranker):
    """No class is allowed."""

    def forward(self, x: torch.Tensor) -> Candidates:
        return Candidates(torch.full_like(self.net(x), -torch.inf))


def test_inputs_without_outputs():
    estimator = ranker(max_iter=1).fit(X[:, 0], Y[:, 0])
    estimator.module_ = Impossible()
    assert estimator.predict_top_k(X[:2, 0], 2) == [[], []]
    with pytest.raises(ValueError, match="input 0 has no output"):
        estimator.predict(X[:2, 0])


def test_grid_searches_and_pickles(tmp_path):
    inputs, classes = X[:, 0], Y[:, 0]
    search = GridSearchCV(ranker(max_iter=5), {"lam": [0.01, 100.0]}, cv=2).fit(inputs, classes)
    assert search.best_params_ == {"lam": 0.01}
    joblib.dump(search.best_estimator_, tmp_path / "model.joblib")
    assert joblib.load(tmp_path / "model.joblib").predict(inputs).tolist() == search.predict(inputs).tolist()


def test_bad_input():
    with pytest.raises(ValueError, match="X has 16 examples and y has 15"):
        StructuredEstimator(LinearScore(3, 2)).fit(X, Y[:15])
    with pytest.raises(ValueError, match="number of examples"):
        StructuredEstimator(LinearScore(3, 2)).fit(X[:0], Y[:0])
    with pytest.raises(ValueError, match="solver must be auto"):
        StructuredEstimator(LinearScore(3, 2), solver="best").fit(X, Y)
    with pytest.raises(NotFittedError):
        StructuredEstimator(LinearScore(3, 2), cost=Hamming()).predict(X)
    with pytest.raises(ValueError, match="y must"):
        StructuredEstimator(LinearScore(3, 2)).fit(X, Y + 1)
