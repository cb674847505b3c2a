"""The tutorial job of sklearn-crfsuite, with SequenceTagger and with CRFsuite: F1 or accuracy, and CPU seconds.

Features are those of its tutorial on CoNLL-2002: dictionaries of the lower-cased word, its last letters, whether it is
a title, upper case or digits, its part of speech, the same of its neighbours, and the ends of sentences. One more
tagger of ours gets bare words. CRFsuite minimizes the loss of a CRF by L-BFGS or by stochastic steps (l2sgd), or makes
passive-aggressive steps (pa), which have no regularization. Seconds of fitting and predicting include what either
library makes of its input; several --iterations, and --passes of ours, show F1 against them. With --column upos, files
are CoNLL-U, and tags are parts of speech, which are scored by accuracy. CRFsuite is optional: pip install
'structsmooth[benchmarks]'.
"""

import tempfile
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from sklearn.exceptions import ConvergenceWarning

from scripts.shared.harness import TRAIN_AND_TEST, RequestError, command, files, installed, option, print_table
from structsmooth.estimators import SequenceTagger
from structsmooth.tasks import NER
from structsmooth.text.corpus import Sentence
from structsmooth.text.scores import entity_scores
from structsmooth.text.universal import UniversalColumn

Features = dict[str, str | bool | float]
Measure = Callable[[list[list[str]], list[list[str]]], float]
_ON_WORDS = "SequenceTagger{} on words"


class Tagged(NamedTuple):
    """Sentences as dictionaries of features, and as words, and their tags."""

    X: list[list[Features]]
    words: list[list[str]]
    y: list[list[str]]


class CRFsuite:
    """CRFsuite with the methods of an estimator, as sklearn-crfsuite wraps it.

    Args:
        module: ``pycrfsuite``.
        path: of the file of its model.
        algorithm: its name in CRFsuite.
        parameters: of this algorithm.
    """

    def __init__(self, module: Any, path: Path, algorithm: str, **parameters: float | bool) -> None:
        self._module, self._path = module, str(path)
        self._algorithm, self._parameters = algorithm, parameters

    def fit(self, X: list[list[Features]], y: list[list[str]]) -> "CRFsuite":
        """Train on sentences."""
        trainer = self._module.Trainer(self._algorithm, self._parameters, verbose=False)
        for sentence, tags in zip(X, y, strict=True):
            trainer.append(sentence, tags)
        trainer.train(self._path)
        return self

    def predict(self, X: list[list[Features]]) -> list[list[str]]:
        """The best tags of sentences."""
        tagger = self._module.Tagger()
        tagger.open(self._path)
        found = [tagger.tag(sentence) for sentence in X]
        tagger.close()
        return found


@command(
    *TRAIN_AND_TEST,
    option("--column", None, "files are CoNLL-U, with the tags here", choices=get_args(UniversalColumn)),
    option("--c2", 0.1, "CRFsuite's c2; our CRF has λ = 2·c2/n"),
    option("--iterations", [100], "limits of CRFsuite's iterations; passive-aggressive steps also get a fifth"),
    option("--passes", None, "limits of our passes (default: those of SequenceTagger)", type=int, nargs="+"),
    option("--seed", 0, "of our taggers"),
)
def main(options: Namespace) -> None:
    """Train all taggers, and print their scores."""
    paths = files(options, NER)
    if options.column and options.train is None:
        raise RequestError("give --train and --test in CoNLL-U with --column")
    train, test = (tagged(paths[split], options.column) for split in ("train", "test"))
    for loss in ("hinge", "crf"):
        SequenceTagger(max_iter=1, tol=0.0, loss=loss).fit(train.X[:2], train.y[:2])  # compiles
    with tempfile.TemporaryDirectory() as folder:
        taggers = _ours(options) | _theirs(options, Path(folder))
        sizes = f"{len(train.X):,} sentences; test: {paths['test']}, {len(test.X):,} sentences"
        print(f"train: {paths['train']}, {sizes}\n")
        name, measure = ("accuracy", accuracy) if options.column else ("F1", lambda *pair: entity_scores(*pair).f1)
        header = ["tagger", name, "fit, CPU s", "predict, CPU s", "passes"]
        print_table(header, measured(taggers, train, test, measure))


def features(sentence: Sentence, position: int) -> Features:
    """The features of a token."""
    found: Features = {"bias": 1.0, **_form("", sentence, position)}
    word = sentence.words[position]
    found |= {"word[-3:]": word[-3:], "word[-2:]": word[-2:], "word.isdigit()": word.isdigit()}
    found |= {"BOS": True} if position == 0 else _form("-1:", sentence, position - 1)
    found |= {"EOS": True} if position == len(sentence) - 1 else _form("+1:", sentence, position + 1)
    return found


def _form(prefix: str, sentence: Sentence, position: int) -> Features:
    """The features that a token shares with its neighbours."""
    word, pos = sentence.words[position], sentence.pos[position]
    return {
        f"{prefix}word.lower()": word.lower(),
        f"{prefix}word.istitle()": word.istitle(),
        f"{prefix}word.isupper()": word.isupper(),
        f"{prefix}postag": pos,
        f"{prefix}postag[:2]": pos[:2],
    }


def tagged(path: str, column: UniversalColumn | None = None) -> Tagged:
    """The sentences of a file, in columns or in CoNLL-U."""
    sentences = list(NER(column=column).read(path, "train"))
    X = [[features(sentence, position) for position in range(len(sentence))] for sentence in sentences]
    return Tagged(X, [sentence.words for sentence in sentences], [sentence.tags or [] for sentence in sentences])


def accuracy(y: list[list[str]], found: list[list[str]]) -> float:
    """The share of tokens whose tag was found."""
    pairs = [pair for true, tags in zip(y, found, strict=True) for pair in zip(true, tags, strict=True)]
    return sum(gold == tag for gold, tag in pairs) / len(pairs)


def measured(taggers: dict[str, Any], train: Tagged, test: Tagged, measure: Measure) -> Iterator[list[str]]:
    """Scores on test sentences and CPU seconds of taggers that are trained here."""
    for name, tagger in taggers.items():
        X, X_test = (train.words, test.words) if name.endswith("on words") else (train.X, test.X)
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the table has the gap
            tagger.fit(X, train.y)
        trained = time.process_time()
        found = tagger.predict(X_test)
        done = time.process_time()
        passes = f"{tagger.n_iter_}, gap {tagger.gap_ / tagger.objective_:.1%}" if hasattr(tagger, "gap_") else "-"
        yield [name, f"{measure(test.y, found):.2%}", f"{trained - started:.1f}", f"{done - trained:.1f}", passes]


def _ours(options: Namespace) -> dict[str, Any]:
    """The default tagger on words and on dictionaries, and one with CRFsuite's objective."""
    likelihood: dict[str, Any] = {"loss": "crf", "lam": f"{2 * options.c2:g}/n"}
    taggers: dict[str, Any] = {}
    for passes in options.passes or [None]:
        limit: dict[str, Any] = {} if passes is None else {"max_iter": passes}
        for name, settings in ((_ON_WORDS, {}), ("SequenceTagger{}", {}), ("SequenceTagger{}", likelihood)):
            shown = ", ".join(f"{key}={value!r}" for key, value in (settings | limit).items())
            taggers[name.format(f"({shown})")] = SequenceTagger(**settings, **limit, random_state=options.seed)
    return taggers


def _theirs(options: Namespace, folder: Path) -> dict[str, Any]:
    """CRFsuite as in its tutorial, without the L1 norm, and by other steps; nothing if it is not installed."""
    if (module := installed("pycrfsuite")) is None:
        print("python-crfsuite is not installed, so only our taggers run: pip install 'structsmooth[benchmarks]'\n")
        return {}
    c2, taggers = {"c2": options.c2}, {}
    for limit in options.iterations:
        for algorithm, settings, count in (
            ("lbfgs", {"c1": 0.1, **c2}, limit),
            ("lbfgs", {"c1": 0.0, **c2}, limit),
            ("l2sgd", c2, limit),
            ("pa", {}, max(1, limit // 5)),
            ("pa", {}, limit),
        ):
            shown = "".join(f", {key}={value:g}" for key, value in settings.items())
            parameters = settings | {"feature.possible_transitions": True, "max_iterations": count}
            name = f"CRFsuite, {algorithm}{shown}, {count} iterations"
            taggers[name] = CRFsuite(module, folder / "model", algorithm, **parameters)
    return taggers
