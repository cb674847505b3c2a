"""Taggers of sequences in the form of scikit-learn."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import eq
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from structsmooth.costs import Cost
from structsmooth.estimators import tagger_files
from structsmooth.estimators.base import LastFit
from structsmooth.estimators.matrices import check_columns
from structsmooth.estimators.outputs import Outputs
from structsmooth.estimators.sentences import (
    TokenWeights,
    as_sentences,
    check_partial,
    check_sentences,
    stream_of,
    strings,
)
from structsmooth.estimators.tagger_probabilities import TaggerProbabilities
from structsmooth.estimators.tokens import EncoderSettings, KernelSettings, Template, fit_features, length
from structsmooth.estimators.validation import EarlyStopping, Plateau, ValidationScores
from structsmooth.kernels import Kernel, KernelName
from structsmooth.metrics import MatchCounts
from structsmooth.problems import Problem
from structsmooth.sequences import Sequences
from structsmooth.solvers import Certificate, ProximalBCFW
from structsmooth.text.scores import entity_matches
from structsmooth.text.tagger import HINGES, Constraints, Loss, Tag, Tags, default_lam

T = TypeVar("T")

Allowed = Sequence[Sequence[Collection[Tag] | None] | None]
"""For each sentence the tags that each of its tokens may have; ``None`` where nothing is known."""


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceTagger(TaggerProbabilities):
    """Tags of the tokens of sentences, by a linear chain: a structural SVM or a conditional random field.

    X is a list of sentences, and y a list of their tags, strings or integers. The tokens of a sentence are words;
    tuples or lists of a word, its part of speech and its chunk tag; dictionaries of features as in sklearn-crfsuite,
    with booleans, numbers, strings, several strings or dictionaries; lists of features such as ``w=Ada``, as in
    python-crfsuite; or the rows of an array or sparse matrix [T, F].

    The objective is (1/n) Σ f_i(w) + (λ/2)‖w‖² over n sentences. Training stops when the duality gap is at most ``tol``
    times the objective, and warns if ``max_iter`` passes did not get there.

    ``None`` in y is a tag that is unknown. Sentences then train by all taggings that agree with the other tags:
    ``"crf"`` by their marginal likelihood, ``"hinge"`` by the best of them, and wrong tags cost where they are known.
    Such an objective is not convex, and there is no gap. The solver for hinges is
    :class:`~structsmooth.solvers.ConvexConcave`, which stops when its convex problem could be lowered by ``tol`` times
    the objective at most; for likelihoods it is :class:`~structsmooth.SGD`, until a pass lowers the objective by less.

    Args:
        loss: ``"hinge"`` for the structural SVM with the number of wrong tags as cost; ``"crf"`` for the likelihood of
            a conditional random field; ``"softmax-margin"`` for the likelihood with this cost; ``"slack"`` for the
            hinge with slack rescaling, whose passes are plain torch: for few sentences and features.
        lam: λ, a number or ``"c/n"``; ``"auto"`` for ``"3/n"`` with a hinge, and ``"0.3/n"`` with a likelihood. It is
            2·c2/n for the c2 of CRFsuite, and 1/(C·n) for the C of an SVM.
        constraints: the scheme that predicted tags are well-formed in; ``"auto"`` for that of the training tags, if all
            of them are such tags and O is one; ``None`` for no constraints.
        train_constrained: the constraints hold in training too, whose tags must keep to them; the marginals of
            ``loss="crf"`` then are those of the model. Not for ``"slack"``.
        template: attributes of words: ``"rich"``, ``"plain"`` or ``"chunking"``.
        kernel: of rows of numbers: ``"rbf"``, ``"polynomial"``, ``"cosine-polynomial"``, ``"precomputed"`` or a
            function; see :class:`~structsmooth.problems.KernelFeatures`. ``None`` for linear scores.
        gamma: γ of the kernel; ``"scale"`` for 1 / (F · variance of the features).
        degree: of polynomial kernels.
        landmarks: number of tokens that a kernel compares others to; all different ones if not given.
        encoder: a pretrained encoder of transformers, a folder or a name: frozen features of its layers stand beside
            the attributes of words, and the model is still linear, with a gap.
        layers: of the encoder, with 0 for its embeddings; the middle and the last one if not given.
        encoder_scale: factor of its standardized features; the larger it is, the less they are regularized.
        class_weight: what a wrong tag costs, by the correct tag; ``"balanced"`` for n_tokens / (n_tags · count). They
            are 1 if not given, and for tags that are not named. For ``"hinge"`` and ``"softmax-margin"``.
        solver: ``"auto"``, a name in ``structsmooth.solvers.SOLVERS``, or a solver, which keeps its own tolerance.
        max_iter: limit on passes over the data.
        tol: relative duality gap to reach.
        random_state: of the order of sentences, and of landmarks.
        warm_start: begin where the last ``fit`` ended, if it was of the same data, for instance with another λ. The
            tagger then keeps what solvers of the dual store for each sentence.
        early_stopping: keep a part of the sentences out of training, and the weights that score best on it; stop when
            the score has not risen for a while.
        validation_fraction: the part.
        n_iter_no_change: how many passes the score may stay below the best.
        verbose: print a line after every pass.

    Attributes:
        classes_: tags, sorted: the states of the chain.
        scheme_: the scheme of the tags; ``None`` if they are no tags of entities.
        feature_names_in_: names of the columns, if sentences are data frames.
        features_: the features of tokens, with ``names``.
        transition_weights_: scores [S, S] of a tag, the row, before another, the column.
        feature_weights_: scores [F, S] of features.
        end_weights_: scores [2, S] of the first tag and of the last one.
        temperature_: by which scores are divided to be log-probabilities: 1 for a likelihood, what :meth:`calibrate`
            has fitted, or ``None``.

    Raises:
        ValueError: sentences of mixed kinds, tags that do not match them, or parameters that do not go together.

    Example:
        >>> X = [["Ada", "sleeps"], ["Bo", "sings"], ["they", "sing"]]
        >>> y = [["B-PER", "O"], ["B-PER", "O"], ["O", "O"]]
        >>> tagger = SequenceTagger(lam="1/n").fit(X, y)
        >>> tagger.predict([["Ada", "sings"]])
        [['B-PER', 'O']]
        >>> bool(tagger.gap_ <= 0.01 * tagger.objective_)
        True

    Reference:
        Lafferty, McCallum and Pereira (2001) for the CRF; Taskar, Guestrin and Koller (2003) for the hinge.
    """

    loss: Loss = "hinge"
    lam: float | str = "auto"
    constraints: Constraints | None = "auto"
    train_constrained: bool = False
    template: Template = "rich"
    kernel: KernelName | Kernel | None = None
    gamma: float | Literal["scale"] = "scale"
    degree: int = 3
    landmarks: int | None = None
    encoder: str | None = None
    layers: list[int] | None = None
    encoder_scale: float = 0.1
    class_weight: dict[Any, float] | Literal["balanced"] | None = None
    warm_start: bool = False
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 5

    def fit(
        self,
        X: Sequence[Any],
        y: Sequence[Sequence[Tag | None]],
        X_dev: Sequence[Any] | None = None,
        y_dev: Sequence[Sequence[Tag]] | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        token_weight: TokenWeights | None = None,
    ) -> "SequenceTagger":
        """Train on tagged sentences; empty ones are left out.

        Args:
            X: sentences.
            y: their tags, ``None`` where they are unknown.
            X_dev: sentences to score after every pass, as ``validation_score`` in ``history_``. With
                ``early_stopping``, they are the ones that choose the weights, and all of X trains.
            y_dev: their tags.
            sample_weight: weights of the sentences: one of weight 2 counts as two, one of weight 0 not at all.
            token_weight: for each sentence what a wrong tag of each of its tokens costs, 1 if not given; times the
                weight of its class. For ``"hinge"`` and ``"softmax-margin"``.
        """
        if (X_dev is None) != (y_dev is None):
            raise ValueError("X_dev and y_dev must be given both or not at all; weights go by name: sample_weight=...")
        sentences, tags, token_costs, weights = check_partial(X, y, sample_weight, token_weight)
        check_columns(self, sentences, reset=True)
        # Before sentences are held out, whose tags are known, too.
        self.tags_, held_out = Tags.of(tags, self.constraints), None
        if X_dev is not None:
            held_out = check_sentences(X_dev, y_dev)[:2]
        elif self.early_stopping:
            split = {"test_size": self.validation_fraction, "random_state": self._seed()}
            part, rest = train_test_split(np.arange(len(tags)), **split)
            held_out = check_sentences([sentences[i] for i in rest], [tags[i] for i in rest])[:2]
            sentences, tags = ([rows[i] for i in part] for rows in (sentences, tags))
            token_costs = None if token_costs is None else [token_costs[i] for i in part]
            weights = None if weights is None else weights[torch.from_numpy(part)]
        kernel = self.kernel and KernelSettings(self.kernel, self.gamma, self.degree, self.landmarks, self._seed())
        network = None if self.encoder is None else EncoderSettings(self.encoder, self.layers, self.encoder_scale)
        self.features_, sequences = fit_features(sentences, self.template, kernel, network)
        labels = self.tags_.states(tags)
        data = (self.loss, sequences.lengths, labels, self.features_.size)
        start = self._last.start(*data) if self.warm_start and hasattr(self, "_last") else None
        problem = self._problem(sequences, labels, token_costs)
        validation = self._validation(*held_out) if held_out else None
        settings: dict[str, Any] = {"start": start, "validation": validation, "sample_weight": weights}
        default = "proximal-bcfw" if self.loss in HINGES else "proximal-sdca"
        if problem.partial and self.loss in HINGES:
            default, inner = "convex-concave", ProximalBCFW(gap_tolerance=self.tol / 2)
            settings["hyperparameters"] = {"inner": inner}
        elif problem.partial:
            default, settings["until"] = "sgd", Plateau(self.tol) if self.solver == "auto" else None
        result = self._solve(problem, default, **settings)
        self._forget_temperature()
        if self.warm_start:
            self._last = LastFit(*data, result.state)
        return self

    def partial_fit(
        self, X: Sequence[Any], y: Sequence[Sequence[Tag]], classes: Sequence[Tag] | None = None
    ) -> "SequenceTagger":
        """Make one pass over a batch of a stream, by SGD or Adam; step sizes and averages continue those of others.

        After :meth:`fit`, a stream goes on from the fitted weights, with the features and the tags of that fit.

        Args:
            X: sentences of the kind that was fitted; of a new stream, matrices [T, F], such as those of
                :class:`sklearn.feature_extraction.FeatureHasher`.
            y: their tags.
            classes: all tags of a new stream, which they begin.
        """
        sentences, tags, _ = check_sentences(X, y)
        is_new = self._stream is None and (classes is not None or not hasattr(self, "weights_"))
        check_columns(self, sentences, reset=is_new)
        if not is_new and classes is not None and (others := {*classes} - {*self.tags_.names}):
            raise ValueError(f"classes has tags that this stream does not know: {sorted(map(str, others))}")
        if is_new:
            self.tags_, self.features_ = stream_of(self, sentences, classes)
        start = None if is_new else self._weights
        self._solve_more(self._problem(self.features_.encode(sentences), self.tags_.states(tags)), start)
        self._forget_temperature()
        return self

    def predict(self, X: Sequence[Any], *, allowed: Allowed | None = None) -> list[list[Tag]]:
        """The best tags of each sentence, well-formed under ``constraints``.

        Args:
            X: sentences.
            allowed: what is known of them: for each sentence the sets of tags that its tokens may have, ``None`` for a
                token or a sentence of which nothing is known. The best of the allowed taggings is exact.

        Raises:
            ValueError: a sentence that has no allowed tagging.
        """
        found = self.predict_top_k(X, 1, allowed=allowed)
        if [] in found:
            raise ValueError(f"sentence {found.index([])} has no allowed tagging that is well-formed")
        return Outputs(ranked[0][1] for ranked in found)

    def predict_top_k(
        self, X: Sequence[Any], k: int, *, allowed: Allowed | None = None, log_prob: bool = False
    ) -> list[list[tuple[float, list[Tag]]]]:
        """The k best taggings of each sentence with their scores, best first; fewer where there are no more.

        Args:
            X: sentences.
            k: at least 1.
            allowed: as for :meth:`predict`.
            log_prob: whether the numbers are logarithms of the probabilities of whole taggings among the allowed ones,
                in place of scores.
        """
        masks = None if allowed is None else self._masks(as_sentences(X), allowed)

        def best(sequences: Sequences, weights: Tensor) -> list[list[tuple[float, list[Tag]]]]:
            found = self._tagger.best(sequences, weights, k, masks)
            if not log_prob:
                return found
            scores = [[score for score, _ in ranked] for ranked in found]
            log_probs = self._tagger.log_probs(sequences, weights, scores, masks)
            pairs = zip(log_probs, found, strict=True)
            return [[(value, tags) for value, (_, tags) in zip(*pair, strict=True)] for pair in pairs]

        return self._over(X, best, lambda: [(0.0, [])], self._checked_temperature() if log_prob else 1.0)

    def _masks(self, sentences: Sequence[Any], allowed: Allowed) -> list[Tensor]:
        """Which tags the tokens of each sentence that is not empty may have."""
        if isinstance(allowed, str) or not isinstance(allowed, Sequence):
            raise TypeError(f"allowed must be a list with an entry for each sentence, got {allowed!r}")
        if len(allowed) != len(sentences):
            raise ValueError(f"allowed must have an entry for each of {len(sentences)} sentences, got {len(allowed)}")
        sizes = [(length(sentence), sets) for sentence, sets in zip(sentences, allowed, strict=True)]
        return [self.tags_.allowed([None] * size if sets is None else sets, size) for size, sets in sizes if size]

    def score(self, X: Sequence[Any], y: Sequence[Sequence[Tag]], sample_weight: ArrayLike | None = None) -> float:
        """F1 of entities, as ``conlleval`` computes it, if tags are those of entities; else the share of right tags."""
        sentences, tags, weights = check_sentences(X, y, sample_weight)
        found = self.predict(sentences)
        if self.scheme_ is None:
            # With as many predicted as right tags, the F1 below is the share of right ones.
            matches = [MatchCounts(sum(map(eq, *pair)), *map(len, pair)) for pair in zip(found, tags, strict=True)]
        else:
            matches = entity_matches(strings(tags), strings(found))
        table = np.array([(counts.correct, counts.predicted, counts.gold) for counts in matches], dtype=np.float64)
        correct, predicted, gold = (np.ones(len(table)) if weights is None else weights.numpy()) @ table
        return float(2 * correct / (predicted + gold)) if correct else 0.0

    def certify(
        self, X: Sequence[Any], y: Sequence[Sequence[Tag]], sample_weight: ArrayLike | None = None
    ) -> Certificate:
        """How far the weights are from the optimum on training data, by a dual bound of their own; for the hinge."""
        check_is_fitted(self, "weights_")
        sentences, tags, weights = check_sentences(X, y, sample_weight)
        check_columns(self, sentences, reset=False)
        return self._certificate(self._problem(self.features_.encode(sentences), self.tags_.states(tags)), weights)

    def save(self, path: str | Path) -> None:
        """Write ``model.safetensors`` and ``model.json`` into a folder, which is made if need be.

        Raises:
            ValueError: a parameter that JSON cannot hold, such as a kernel that is a function.
        """
        tagger_files.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "SequenceTagger":
        """The tagger that :meth:`save` wrote into a folder, or a model of the tasks NER and chunking; executes no code.

        What only an estimator keeps, such as its history and gap, is unknown of a task's model: empty, or NaN. In turn,
        :func:`structsmooth.load` and the commands open the folder of a tagger of words.

        Raises:
            FileNotFoundError: no tagger in the folder.
            ValueError: other or damaged files.
        """
        tagger: SequenceTagger = tagger_files.load(cls, Path(path))
        return tagger

    @property
    def _lam_rule(self) -> float | str:
        return default_lam(self.loss) if self.lam == "auto" else self.lam

    def _validation(self, X: Sequence[Any], y: Sequence[Sequence[Tag]]) -> ValidationScores:
        """The callback that scores held-out sentences, and may stop the run."""

        def score_at(weights: Tensor) -> float:
            # ``score`` predicts with the weights of the estimator.
            self.weights_ = weights.numpy()
            return self.score(X, y)

        return EarlyStopping(score_at, self.n_iter_no_change) if self.early_stopping else ValidationScores(score_at)

    def _problem(self, sequences: Sequences, labels: Tensor, token_weight: Sequence[Tensor] | None = None) -> Problem:
        """The finite sum over sentences."""
        by_class = None if self.class_weight is None else self.tags_.weighted_cost(self.class_weight, labels)
        cost: Cost | Tensor | None = by_class
        if token_weight is not None:
            weights = torch.cat(list(token_weight))
            cost = weights if by_class is None else weights * by_class.mistake_cost(labels, sequences.lengths)
        return self._tagger.problem(sequences, labels, self.loss, cost, constrained=self.train_constrained)
