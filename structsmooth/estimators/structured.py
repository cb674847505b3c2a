"""Score modules over any structure in the form of scikit-learn."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from structsmooth.costs import Hamming
from structsmooth.estimators.base import SolvedEstimator
from structsmooth.estimators.collating import Collate, Pair
from structsmooth.estimators.matrices import check_columns
from structsmooth.estimators.outputs import Outputs
from structsmooth.estimators.validation import EarlyStopping
from structsmooth.estimators.weights import SampleWeights
from structsmooth.problems import LinearModuleProblem, ModuleProblem
from structsmooth.problems.module import to_device
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers import Certificate
from structsmooth.structures import Structure
from structsmooth.structures.base import PartCosts, check_k, lengths_of
from structsmooth.uncertainty import Rule, uncertainty

T = TypeVar("T")


@dataclass(kw_only=True, eq=False, repr=False)
class StructuredEstimator(SolvedEstimator):
    """Any score module, over any structure.

    X is a sequence of inputs, and y a sequence of outputs: lists, or arrays and tensors whose first dimension is that
    of examples. Where the module says that its scores are ``affine``, training is convex and ends at a duality gap of
    ``tol`` times the objective. Other modules train for ``max_iter`` passes, and their gap is not known. Training and
    prediction run on the device of the module.

    Args:
        module: maps a batch of inputs to a structure; see :class:`~structsmooth.ScoreModule`. ``fit`` trains a copy.
        cost: task loss; ``None`` for no margin.
        smoother: of the losses: :class:`~structsmooth.Entropy` for likelihoods.
        lam: λ, a number or ``"c/n"``.
        solver: ``"auto"`` for proximal BCFW where scores are affine and for incremental prox-linear steps elsewhere;
            a name in ``structsmooth.solvers.SOLVERS``; or a solver, which keeps its own tolerance.
        batch_size: examples per step, and per batch of predictions.
        collate: puts a list of pairs (x, y) together into a batch (X, y), as for a torch ``DataLoader``. Where outputs
            are to be predicted, y is that of a training example, and not used. A function ``collate(X, y=None)`` gets
            lists of inputs and of outputs instead, and ``None`` for outputs to be predicted. If not given, inputs and
            outputs are stacked.
        max_iter: limit on passes over the data.
        tol: relative duality gap to reach.
        random_state: of the order of examples.
        warm_start: begin at the weights of the last ``fit``; solvers of the dual begin anew.
        early_stopping: keep a part of the examples out of training, and the weights that score best on it; stop when
            the score has not risen for a while.
        validation_fraction: the part.
        n_iter_no_change: how many passes the score may stay below the best.
        verbose: print a line after every pass.

    Attributes:
        module_: the trained module.

    Raises:
        ValueError: X and y of different lengths, no examples, or what :class:`~structsmooth.ModuleProblem` refuses.

    Example:
        >>> import torch
        >>> from structsmooth import LinearScore
        >>> X = torch.randn(20, 5, 3, generator=torch.Generator().manual_seed(0))  # 20 sequences of five tokens
        >>> y = (X[..., 0] > 0).long()
        >>> estimator = StructuredEstimator(LinearScore(3, 2), lam="0.1/n").fit(X, y)
        >>> estimator.predict(X).shape
        (20, 5)
        >>> bool(estimator.score(X, y) > -0.5)  # minus the mean number of wrong labels
        True
    """

    module: nn.Module = field(kw_only=False)
    cost: PartCosts | None = Hamming()  # noqa: RUF009 - immutable
    smoother: Smoother = Max()  # noqa: RUF009 - immutable
    lam: float | str = "1/n"
    batch_size: int = 16
    collate: Callable[..., Pair] | None = None
    max_iter: int = 100
    warm_start: bool = False
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 5

    def fit(self, X: Sequence[Any], y: Sequence[Any], sample_weight: ArrayLike | None = None) -> "StructuredEstimator":
        """Train a copy of the module.

        Args:
            X: inputs.
            y: outputs.
            sample_weight: weights of the examples: one of weight 2 counts as two, one of weight 0 not at all.
        """
        if not (self.warm_start and hasattr(self, "module_")):
            self.module_ = deepcopy(self.module)
        check_columns(self, X, reset=True)
        (examples, weights), early = self._weighted_pairs(X, y, sample_weight), None
        self._collate = Collate(self.collate, [output for _, output in examples])
        if self.early_stopping:
            split = {"test_size": self.validation_fraction, "random_state": self._seed()}
            part, rest = train_test_split(np.arange(len(examples)), **split)
            examples, held_out = ([examples[i] for i in rows] for rows in (part, rest))
            weights = None if weights is None else weights[torch.from_numpy(part)]
            # ``problem`` is made below, before anything calls this.
            early = EarlyStopping(lambda w: self._score_at(w, problem, held_out), self.n_iter_no_change)
        problem = self._problem(examples)
        default = "proximal-bcfw" if isinstance(problem, LinearModuleProblem) else "incremental-prox-linear"
        self._solve(problem, default, validation=early, sample_weight=weights)
        problem.load(self._weights)
        return self

    def predict(self, X: Sequence[Any]) -> NDArray[Any] | list[NDArray[Any]]:
        """The best output of each input, without padding: an array where all have one shape, else a list of arrays."""
        ranked = self.predict_top_k(X, 1)
        if [] in ranked:
            raise ValueError(f"input {ranked.index([])} has no output: all of its scores are -inf")
        found = Outputs(best[0][1] for best in ranked)
        return np.stack(found) if len({output.shape for output in found}) == 1 else found

    def uncertainty(self, X: Sequence[Any], by: Rule = "margin") -> NDArray[np.float64]:
        """How unsure the model is about each input, the larger the less sure: [n].

        Args:
            X: inputs.
            by: ``"margin"`` for the score of the second-best output minus that of the best one; ``"entropy"`` for the
                entropy of the distribution in which scores are log-probabilities, up to a constant, in nats; and
                ``"length-normalized"`` for the same, divided by the length of the output.

        Raises:
            ValueError: an unknown rule.
            NotImplementedError: an entropy of a structure without an exp oracle.
        """
        check_is_fitted(self, "weights_")
        found, inputs = [np.zeros(0)], [x for x, _ in self._pairs(X)]
        for number, batch in enumerate(self._batches(inputs)):
            structure = self._structure(self._collate.inputs(batch, check=number == 0))
            values = uncertainty(structure, by)
            if by == "length-normalized":
                values = values / lengths_of(structure, structure.max()[1]).clamp_min(1)
            found.append(values.numpy(force=True))
        return np.concatenate(found)

    def predict_top_k(self, X: Sequence[Any], k: int) -> list[list[tuple[float, NDArray[Any]]]]:
        """The k best outputs of each input with their scores, best first; fewer where there are no more."""
        check_is_fitted(self, "weights_")
        ranked, k = [], check_k(k)
        inputs = [x for x, _ in self._pairs(X)]
        for number, batch in enumerate(self._batches(inputs)):
            structure = self._structure(self._collate.inputs(batch, check=number == 0))
            values, y = structure.topk(k) if k > 1 else (found.unsqueeze(1) for found in structure.max())
            for scores, outputs, length in zip(
                values.tolist(), y, lengths_of(structure, y[:, 0]).tolist(), strict=True
            ):
                best = zip(scores, outputs, strict=True)
                ranked.append([(score, _trimmed(output, length)) for score, output in best if score > -np.inf])
        return ranked

    def score(self, X: Sequence[Any], y: Sequence[Any], sample_weight: ArrayLike | None = None) -> float:
        """Minus the mean task loss of predictions, by ``cost``, or the number of wrong labels without one."""
        check_is_fitted(self, "weights_")
        return self._score_of(*self._weighted_pairs(X, y, sample_weight))

    def certify(self, X: Sequence[Any], y: Sequence[Any], sample_weight: ArrayLike | None = None) -> Certificate:
        """How far the weights are from the optimum on training data, by a dual bound of their own: of affine scores."""
        check_is_fitted(self, "weights_")
        examples, weights = self._weighted_pairs(X, y, sample_weight)
        return self._certificate(self._problem(examples), weights)

    def _problem(self, examples: list[Pair]) -> ModuleProblem | LinearModuleProblem:
        """The finite sum of the losses of examples."""
        linear = getattr(self.module_, "affine", False)
        kind = LinearModuleProblem if linear else ModuleProblem
        return kind(self.module_, examples, self.cost, self.batch_size, self._collate, self.smoother)

    def _pairs(self, X: Sequence[Any], y: Sequence[Any] | None = None) -> list[Pair]:
        """Inputs with their outputs, or with ``None``; real numbers in the dtype of the module."""
        if y is not None and len(X) != len(y):
            raise ValueError(f"X has {len(X)} examples and y has {len(y)}")
        check_columns(self, X, reset=False)
        dtype = next(self.module_.parameters()).dtype
        outputs = [None] * len(X) if y is None else [_as_labels(labels) for labels in y]
        return [(_as_input(x, dtype), output) for x, output in zip(X, outputs, strict=True)]

    def _weighted_pairs(
        self, X: Sequence[Any], y: Sequence[Any], sample_weight: ArrayLike | None
    ) -> tuple[list[Pair], Tensor | None]:
        """The examples that have weight, and their weights."""
        pairs = self._pairs(X, y)
        kept, weights = SampleWeights.of(sample_weight, len(pairs))
        return [pairs[i] for i in kept], weights

    def _batches(self, examples: Sequence[T]) -> Iterator[Sequence[T]]:
        return (examples[begin : begin + self.batch_size] for begin in range(0, len(examples), self.batch_size))

    def _structure(self, x: Any) -> Structure:
        """The structure of a batch of inputs under the trained module, in evaluation mode."""
        with torch.no_grad(), _evaluating(self.module_):
            structure: Structure = self.module_(to_device(x, self._device))
        return structure

    @property
    def _device(self) -> torch.device:
        return next(self.module_.parameters()).device

    def _score_of(self, examples: list[Pair], weights: Tensor | None = None) -> float:
        cost = Hamming() if self.cost is None else self.cost
        batches = map(self._collate, self._batches(examples))
        losses = torch.cat([_losses(self._structure(x), to_device(y, self._device), cost).cpu() for x, y in batches])
        weights = torch.ones_like(losses) if weights is None else weights.to(losses)
        return -float(weights @ losses / weights.sum())

    def _score_at(self, weights: Tensor, problem: ModuleProblem | LinearModuleProblem, held_out: list[Pair]) -> float:
        self.weights_ = weights.numpy()
        problem.load(weights)
        return self._score_of(held_out)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Let a module predict, without dropout and the like, as long as the block lasts."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


def _losses(structure: Structure, y: Tensor, cost: PartCosts) -> Tensor:
    """Task losses [B] of the best outputs: their score where potentials are costs alone."""
    _, found = structure.max()
    zero = structure.replace(*(torch.zeros_like(potential) for potential in structure.potentials))
    return zero.cost_augmented(y, cost).score(found)


def _trimmed(y: Tensor, length: int) -> NDArray[Any]:
    """An output without padding."""
    return np.asarray((y[:length] if y.dim() else y).numpy(force=True))


def _as_input(x: Any, dtype: torch.dtype) -> Any:
    if isinstance(x, np.ndarray):
        x = torch.from_numpy(np.require(x, requirements=["C", "W"]))
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x


def _as_labels(y: Any) -> Any:
    return torch.as_tensor(np.asarray(y)) if isinstance(y, list | np.ndarray | np.generic | int) else y
