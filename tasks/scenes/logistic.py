"""Multinomial logistic regression, and what it says of examples that it was not trained on."""

import torch
from torch import Tensor

_MEMORY = 10


def fit_logistic(x: Tensor, counts: Tensor, strength: float, iterations: int) -> Tensor:
    """Weights [F + 1, C], the last row a constant, that minimize the mean log loss and strength/2 times their squares.

    Args:
        x: features, float32 [n, F].
        counts: how often each row was seen with each class, [n, C].
        strength: of regularization.
        iterations: of L-BFGS, at most.
    """
    shares = counts.to(x.dtype) / counts.sum()
    seen = shares.sum(1) > 0
    x, shares = x[seen], shares[seen]
    weights = torch.zeros(x.shape[1] + 1, counts.shape[1], dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=iterations, history_size=_MEMORY, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = -(shares * log_probabilities(weights, x)).sum() + strength / 2 * weights.square().sum()
        loss.backward()
        return loss

    optimizer.step(objective)
    return weights.detach()


def log_probabilities(weights: Tensor, x: Tensor) -> Tensor:
    """Logarithms of the probabilities of classes [n, C] for features [n, F]."""
    return torch.addmm(weights[-1], x, weights[:-1]).log_softmax(1)


def out_of_fold(x: Tensor, counts: Tensor, groups: Tensor, folds: int, strength: float, iterations: int) -> Tensor:
    """Log-probabilities [n, C] of rows by models that were trained without their fold.

    Args:
        x: features, float32 [n, F].
        counts: how often each row was seen with each class, [n, C].
        groups: rows of one group are in one fold, the rest of its number by ``folds``: integers [n].
        folds: number of folds, at least 2.
        strength: of regularization.
        iterations: of L-BFGS, at most.
    """
    result = torch.zeros_like(counts, dtype=x.dtype)
    for fold in range(folds):
        held_out = groups % folds == fold
        weights = fit_logistic(x[~held_out], counts[~held_out], strength, iterations)
        result[held_out] = log_probabilities(weights, x[held_out])
    return result
