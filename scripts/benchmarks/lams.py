"""How good the default λ of the estimators are: F1 on held-out data for λ around them.

Taggers learn the first sentences of the embedded filings, or of column files, from the words alone; F1 is that of
entities. Multi-label classifiers learn the first half of data sets that scikit-learn makes up
(``make_multilabel_classification``), and F1 is the mean over examples; scikit-learn's logistic regressions, one for
each label, stand beside them.
"""

import warnings
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multioutput import MultiOutputClassifier

from scripts.shared.harness import TRAIN_AND_TEST, command, files, option, print_table, words_and_tags
from structsmooth.estimators import MultiLabelClassifier, SequenceTagger
from structsmooth.tasks import NER

_LAMS = ("10/n", "3/n", "1/n", "0.3/n", "0.1/n")


@command(
    *TRAIN_AND_TEST,
    option("--sizes", [300, 10**6], "numbers of sentences"),
    option("--examples", [100, 1000], "numbers of examples"),
    option("--seeds", 5, "number of data sets of each size"),
)
def main(options: Namespace) -> None:
    """Print both tables."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    train, test = map(words_and_tags, files(options, NER).values())
    print_table(["sentences", "loss", *_LAMS], tagger_rows(train, test, options.sizes))
    print()
    print_table(["examples", *_LAMS, "logistic regressions"], classifier_rows(options.examples, options.seeds))


def tagger_rows(train: Any, test: Any, sizes: Iterable[int]) -> Iterable[list[str]]:
    """F1 of entities of taggers that learn some of the sentences, for each loss and λ."""
    for size in sizes:
        X, y = train[0][:size], train[1][:size]
        for loss in ("hinge", "crf"):
            taggers = (SequenceTagger(loss=loss, lam=lam, max_iter=100) for lam in _LAMS)
            yield [f"{len(X):,}", loss, *(f"{tagger.fit(X, y).score(*test):.1%}" for tagger in taggers)]


def classifier_rows(sizes: Iterable[int], seeds: int) -> Iterable[list[str]]:
    """F1 of classifiers for each λ, and of logistic regressions: the mean over data sets."""
    for size in sizes:
        models = [MultiLabelClassifier(lam=lam) for lam in _LAMS]
        models.append(MultiOutputClassifier(LogisticRegression(max_iter=1000)))
        found = [
            [f1_score(Y[size:], model.fit(X[:size], Y[:size]).predict(X[size:]), average="samples") for model in models]
            for X, Y in (_labelled(2 * size, seed) for seed in range(seeds))
        ]
        yield [f"{size:,}", *(f"{f1:.1%}" for f1 in np.mean(found, axis=0))]


def _labelled(size: int, seed: int) -> tuple[Any, Any]:
    X, Y = make_multilabel_classification(size, allow_unlabeled=False, random_state=seed)
    return X, Y
