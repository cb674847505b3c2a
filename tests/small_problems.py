"""Small chain problems, and what they are by enumeration of all outputs."""

from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from structsmooth import Hamming, LinearChain
from structsmooth.costs import Cost
from structsmooth.problems import DenseChainProblem, DifferenceProblem, SparseChainProblem, SparseSequences
from structsmooth.problems.bounds import Bounds
from structsmooth.scores import TransitionMask

Example = tuple[Any, Tensor]
ChainProblem = SparseChainProblem | DenseChainProblem


def offsets(counts: Tensor) -> Tensor:
    """Where rows of the given sizes begin and end."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def random_problem(
    lengths: tuple[int, ...] = (3, 1, 4, 2, 3),
    states: int = 3,
    features: int = 5,
    cost: Cost | None = Hamming(),  # noqa: B008 - immutable
    seed: int = 0,
    bounds: Bounds | None = None,
    valued: bool = False,
    transition_scale: float = 1.0,
    mask: TransitionMask | None = None,
) -> SparseChainProblem:
    """Tokens of 0 to 4 attributes, some of them repeated, with values if asked for; the last attribute never occurs.

    Labels keep to the mask, if there is one.
    """
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(5, (sum(lengths),), generator=generator)
    attributes = torch.randint(features - 1, (int(counts.sum()),), generator=generator, dtype=torch.int32)
    labels = torch.randint(states, (sum(lengths),), generator=generator)
    values = torch.randn(len(attributes), generator=generator) if valued else None
    sequences = SparseSequences(attributes, offsets(counts), offsets(torch.tensor(lengths)), values)
    if mask is not None:
        labels = torch.cat([_allowed(own, mask) for own in labels.split(list(lengths))])
    return SparseChainProblem(
        sequences, labels, features, states, cost, bounds=bounds, transition_scale=transition_scale, mask=mask
    )


def _allowed(labels: Tensor, mask: TransitionMask) -> Tensor:
    """Labels that the mask allows, with as many of these as there may be."""
    unary = torch.nn.functional.one_hot(labels, len(mask.start)).double()
    chain = LinearChain(unary[None], mask.transition.double(), start=mask.start, stop=mask.stop)
    return chain.max()[1][0]


def partial_problem(problem: ChainProblem | None = None, seed: int = 0) -> DifferenceProblem:
    """About half of the labels of a problem are unknown."""
    problem = problem or random_problem()
    return problem.with_unknown(torch.rand(len(problem.labels), generator=torch.Generator().manual_seed(seed)) < 0.5)


def random_dense_problem(
    lengths: tuple[int, ...] = (3, 1, 4, 2, 3),
    states: int = 3,
    features: int = 5,
    cost: Cost | None = Hamming(),  # noqa: B008 - immutable
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    **settings: Any,
) -> DenseChainProblem:
    """Tokens of Gaussian features."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(lengths), features, generator=generator, dtype=dtype)
    labels = torch.randint(states, (sum(lengths),), generator=generator)
    return DenseChainProblem(x, labels, torch.tensor(lengths), states, cost, **settings)


def random_weights(problem: ChainProblem, seed: int = 0) -> Tensor:
    """Gaussian weights."""
    return torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense_features(problem: ChainProblem) -> Tensor:
    """Features of all tokens, or sums of the values of their attributes: [tokens, F]."""
    sequences = problem.sequences
    if not isinstance(sequences, SparseSequences):
        return sequences.features.double()
    token = torch.repeat_interleave(torch.arange(len(problem.labels)), sequences.token_offsets.diff())
    x = torch.zeros(len(problem.labels), problem.features, dtype=torch.float64)
    values = torch.ones(len(token)) if sequences.values is None else sequences.values
    return x.index_put_((token, sequences.attributes.long()), values.double(), accumulate=True)


def dense_examples(problem: ChainProblem) -> list[Example]:
    """Features [T, F] and labels [T] of each sequence."""
    sizes = problem.sequences.lengths.tolist()
    return list(zip(dense_features(problem).split(sizes), problem.labels.split(sizes), strict=True))


def collate(examples: list[Example]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Padded inputs with lengths; labels at padding are no labels."""
    x, y = zip(*examples, strict=True)
    padded = pad_sequence(x, batch_first=True, padding_value=torch.nan).nan_to_num(7.0)
    return (padded, torch.tensor([len(labels) for labels in y])), pad_sequence(y, batch_first=True, padding_value=-100)


class EnumeratedProblem:
    """Joint feature maps and costs of all outputs of all examples, less those of the labels."""

    def __init__(self, problem: ChainProblem) -> None:
        self.problem, self.x = problem, dense_features(problem).numpy()
        self.differences: list[NDArray[np.float64]] = []
        self.costs: list[NDArray[np.float64]] = []
        for i in range(problem.n):
            begin, end = problem.sequences.offsets[i : i + 2].tolist()
            labels = problem.labels[begin:end]
            mistakes = np.zeros(end - begin)
            if problem.cost is not None:
                mistakes = problem.cost.mistake_cost(labels, torch.tensor(end - begin)).numpy()
            outputs = np.array(list(product(range(problem.states), repeat=end - begin)))
            features = np.stack([self._features(begin, y) for y in outputs])
            self.differences.append(features - self._features(begin, labels.numpy()))
            self.costs.append((outputs != labels.numpy()) @ mistakes)

    def _features(self, begin: int, y: NDArray[np.int64]) -> NDArray[np.float64]:
        problem = self.problem
        rows = np.zeros((problem.features + problem.states + 2, problem.states))
        for t, label in enumerate(y):
            rows[: problem.features, label] += self.x[begin + t]
            if t > 0:
                rows[problem.features + y[t - 1], label] += problem.transition_scale
        rows[-2, y[0]] += 1
        rows[-1, y[-1]] += 1
        return rows.ravel()

    def margins(self, w: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """ℓ_i(y) + ⟨w, φ(x_i, y) − φ(x_i, y_i)⟩ of all outputs of each example."""
        return [a @ w + c for a, c in zip(self.differences, self.costs, strict=True)]

    def objective(self, w: NDArray[np.float64], lam: float) -> float:
        """(1/n) Σ f_i(w) + (λ/2)‖w‖², without smoothing."""
        return float(np.mean([margins.max() for margins in self.margins(w)]) + lam / 2 * w @ w)

    def optimum(self, lam: float) -> float:
        """min F: the primal quadratic program with a slack for each example and a constraint for each output."""
        return self.objective(self.minimizer(lam), lam)

    def minimizer(self, lam: float | NDArray[np.float64], center: Any = 0.0) -> NDArray[np.float64]:
        """The weights that solve it, within the bounds of the problem.

        The regularizer may be any Σ_j λ_j/2 (w_j − c_j)².
        """
        n, dim = self.problem.n, self.problem.dim
        slack = np.repeat(np.eye(n), [len(costs) for costs in self.costs], axis=0)
        matrix, costs = np.hstack([-np.vstack(self.differences), slack]), np.concatenate(self.costs)
        free = torch.full((dim,), torch.inf)
        lower, upper = self.problem.bounds or (-free, free)
        solution = minimize(
            lambda v: (
                (lam / 2 * (v[:dim] - center)) @ (v[:dim] - center) + v[dim:].mean(),
                np.r_[lam * (v[:dim] - center), np.full(n, 1 / n)],
            ),
            np.r_[np.zeros(dim), np.full(n, costs.max())],
            jac=True,
            method="SLSQP",
            bounds=[*zip(lower.tolist(), upper.tolist(), strict=True), *[(None, None)] * n],
            constraints={"type": "ineq", "fun": lambda v: matrix @ v - costs, "jac": lambda v: matrix},
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        minimizer: NDArray[np.float64] = solution.x[:dim]
        return minimizer
