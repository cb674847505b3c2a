"""Which layers of an encoder, and at which scale: scores on development data of words beside frozen features.

A job is a file of columns with tags of entities (F1), or one in CoNLL-U with the name of a column (accuracy). Features
of all layers are computed once; each cell is a linear problem, solved by the task's default, on the first sentences.

    python -m scripts encoder_layers --encoder DIR --train eng.train --dev eng.testa --layers 6 --layers 3 6
    python -m scripts encoder_layers --encoder DIR --column upos --train en.train.conllu --dev en.dev.conllu
"""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.shared.harness import command, option, print_table
from structsmooth.encoders import FrozenFeatures, PretrainedEncoder, WordsAndFrozen
from structsmooth.experiments import Experiment
from structsmooth.solvers import SOLVERS
from structsmooth.tasks import NER
from structsmooth.text.corpus import Corpus


class Columns(FrozenFeatures):
    """Some columns of features that are computed for all layers at once, and kept in a folder."""

    whole: FrozenFeatures
    columns: NDArray[np.int64]
    cache: str

    @classmethod
    def of(cls, whole: FrozenFeatures, layers: list[int], cache: str) -> "Columns":
        """Those of some layers."""
        width = whole.size // len(whole.layers)
        columns = np.concatenate([whole.layers.index(layer) * width + np.arange(width) for layer in layers])
        some = cls(whole.place, whole.digest, layers, whole.context, whole.center[columns], whole.deviation[columns])
        vars(some).update(whole=whole, columns=columns, cache=cache)
        return some

    def raw(self, corpus: Corpus, cache: str | None = None) -> NDArray[np.float32]:
        """These columns."""
        return np.ascontiguousarray(self.whole.raw(corpus, self.cache)[:, self.columns])


def rows(options: Namespace) -> Iterator[list[str]]:
    """A row for each choice of layers."""
    task = NER(words_only=True, column=options.column)
    train, dev = Corpus.of(task.read(options.train)), Corpus.of(task.read(options.dev, "test"))
    train, dev = (
        data.part(range(min(count, len(data)))) for data, count in ((train, options.sentences), (dev, options.measured))
    )
    fitted: Any = task.fit(train)

    def score(own: Any) -> str:
        result = Experiment(SOLVERS[task.solver](), task.lam, task.passes, 0).run(own.problem(train))
        outputs = [ranked[0][1] for ranked in own.predict(result.weights, dev)]
        return f"{100 * own.measure(dev, outputs)[0][task.headline]:.1f}"

    depth = PretrainedEncoder.open(options.encoder).depth
    yield ["none", *[score(fitted)] * len(options.scales)]
    with TemporaryDirectory() as cache:
        whole = FrozenFeatures.fit(options.encoder, range(depth + 1), options.context, train, cache)
        for layers in options.layers or [[layer] for layer in range(depth + 1)]:
            some = Columns.of(whole, layers, cache)
            scales = (WordsAndFrozen(fitted.attributes, some, scale) for scale in options.scales)
            yield [" ".join(map(str, layers)), *(score(replace(fitted, attributes=both)) for both in scales)]


SCALES = [0.05, 0.1, 0.2]


@command(
    option("--encoder", None, "a model and tokenizer of transformers", required=True, metavar="DIR"),
    option("--train", NER.default_files()["train"], "columns, or CoNLL-U", metavar="FILE"),
    option("--dev", NER.default_files()["test"], "the same", metavar="FILE"),
    option("--column", None, "of CoNLL-U: upos, xpos, feats or deprel"),
    option("--sentences", 1000, "first sentences to train on", least=1),
    option("--measured", 1000, "first sentences of the development file", least=1),
    option("--context", 0, "pieces of neighbouring sentences on either side", least=0),
    option("--layers", None, "a row (may be repeated; default: each layer)", action="append", nargs="+", type=int),
    option("--scales", SCALES, "factors of standardized features, a column each", least=0, above=True),
)
def main(options: Namespace) -> None:
    """Print the table."""
    print_table(["layers", *(f"scale {scale:g}" for scale in options.scales)], rows(options))
