"""A pretrained encoder under a chain: words, frozen features, both, and fine-tuning with and without a solved head.

Every method trains on the first sentences of the training file. Words, frozen features and both are one linear problem
each, solved by the task's default solver, in so many passes. Fine-tuning ends with the network as it was trained
(tuned) and, from the same run, with words beside its last layer in a head that is solved (head). Seconds are CPU
seconds of training on one thread, and encoding those of computing the features of the training sentences once, or of
fine-tuning in the last row.
"""

import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from scripts.shared.harness import command, mean_and_spread, option
from structsmooth.encoders import FrozenFeatures, PretrainedEncoder, WordsAndFrozen
from structsmooth.encoders.frozen import SCALE, TUNED_SCALE
from structsmooth.encoders.tuning import Network, Tagged, Tuning, tune
from structsmooth.experiments import Experiment, RunFolder
from structsmooth.solvers import SOLVERS
from structsmooth.tasks import NER
from structsmooth.text.corpus import Corpus
from structsmooth.text.encoders import DictionaryEncoder

METHODS = ("words", "frozen", "both", "tuned")


class Answer(NamedTuple):
    """F1 in percent of the first sentences and of all, CPU seconds of encoding and training, and the relative gap."""

    first: float
    f1: float
    encoding: float
    training: float
    gap: float | None = None


def scores(fitted: Any, test: Corpus, outputs: list[Any], first: int) -> tuple[float, float]:
    """F1 in percent of the first sentences, and of all."""
    parts = (min(first, len(test)), len(test))
    found = [fitted.measure(test.part(range(part)), outputs[:part])[0]["f1"] for part in parts]
    return 100 * found[0], 100 * found[1]


def linear(
    fitted: Any, train: Corpus, test: Corpus, options: Namespace, encoding: float = 0.0
) -> Iterator[tuple[str, Answer]]:
    """The default solver of the task, on its linear problem, in each number of passes."""
    problem, task = fitted.problem(train), fitted.task
    for passes in options.passes:
        started = time.process_time()
        result = Experiment(SOLVERS[task.solver](), task.lam, passes, 0).run(problem)
        seconds = time.process_time() - started
        outputs = [ranked[0][1] for ranked in fitted.predict(result.weights, test)]
        gap = None if result.row.gap is None else result.row.gap / result.row.objective
        name = f", {passes} passes" if len(options.passes) > 1 else ""
        yield name, Answer(*scores(fitted, test, outputs, options.first), encoding, seconds, gap)


class Frozen(NamedTuple):
    """Features of an encoder, how long they took, and the scale that the task gives them."""

    features: FrozenFeatures
    seconds: float
    scale: float


def beside(
    fitted: Any, attributes: DictionaryEncoder, frozen: Frozen, options: Namespace, train: Corpus, test: Corpus
) -> Iterator[tuple[str, Answer]]:
    """Attributes beside an encoder's features, at each scale."""
    scales = options.scale or [frozen.scale]
    for scale in scales:
        name = f", scale {scale:g}" if len(scales) > 1 else ""
        dense = replace(fitted, attributes=WordsAndFrozen(attributes, frozen.features, scale))
        for passes, answer in linear(dense, train, test, options, frozen.seconds):
            yield f"{name}{passes}", answer


def linear_answers(task: NER, options: Namespace, train: Corpus, test: Corpus) -> Iterator[tuple[str, Answer]]:
    """Words, frozen features, and both."""
    fitted: Any = task.fit(train)
    if "words" in options.methods:
        for passes, answer in linear(fitted, train, test, options):
            yield f"words{passes}", answer
    if not {"frozen", "both"} & {*options.methods}:
        return
    PretrainedEncoder.open(options.encoder)
    started = time.process_time()
    features = FrozenFeatures.fit(options.encoder, options.layers or None, options.context, train)
    frozen = Frozen(features, time.process_time() - started, SCALE)
    for name, attributes in (("frozen", DictionaryEncoder([])), ("both", fitted.attributes)):
        if name in options.methods:
            for row, answer in beside(fitted, attributes, frozen, options, train, test):
                yield f"{name}{row}", answer


def tuned_network(encoder: PretrainedEncoder, fitted: Any, train: Tagged, settings: Tuning) -> tuple[Network, float]:
    """The network as the last epoch left it, whatever its score, and CPU seconds."""
    networks = list[Network]()

    def measure(network: Network) -> tuple[float, dict[str, float]]:
        networks.append(network)
        return float(len(networks)), {}

    with TemporaryDirectory() as folder:
        started = time.process_time()
        tune(encoder, fitted.tagger.tags, train, settings, RunFolder(Path(folder)), measure=measure)
        return networks[-1], time.process_time() - started


def tuned_answers(
    task: NER, options: Namespace, train: Corpus, test: Corpus, seed: int, folder: Path
) -> Iterator[tuple[str, Answer]]:
    """A tuned encoder as it was trained, and with words in a head that is solved."""
    fitted: Any = task.fit(train)
    encoder = PretrainedEncoder.own(options.encoder)
    tagged = Tagged.of(encoder, train, fitted.states(train), options.context)
    held_out = Tagged.of(encoder, test, torch.zeros(len(test.tokens)), options.context)  # its tags are measured alone
    settings = Tuning(None, options.epochs, options.batch, options.step, "fp32", seed)
    network, seconds = tuned_network(encoder, fitted, tagged, settings)
    outputs = network.predicted(held_out)
    yield "tuned", Answer(*scores(fitted, test, outputs, options.first), 0.0, seconds)
    encoder.save(folder / str(seed))
    features = FrozenFeatures.fit(str(folder / str(seed)), [encoder.depth], options.context, train)
    frozen = Frozen(features, seconds, TUNED_SCALE)
    for row, answer in beside(fitted, fitted.attributes, frozen, options, train, test):
        yield f"head{row}", answer


def cells(count: int, name: str, several: list[Answer]) -> list[str]:
    """The row of a method that learned from so many sentences, of several runs if they differ."""
    f1 = (mean_and_spread(values, 1) for values in ([a.first for a in several], [a.f1 for a in several]))
    times = [f"{mean(values):.0f}" for values in zip(*((a.encoding, a.training) for a in several), strict=True)]
    gap = "" if several[0].gap is None else f"{max(a.gap or 0 for a in several):.1%}"
    return [f"{count:,}", name, *f1, *times, gap]


@command(
    option("--encoder", None, "a model and tokenizer of transformers", required=True, metavar="DIR"),
    option("--train", NER.default_files()["train"], "columns", metavar="FILE"),
    option("--test", NER.default_files()["test"], "columns", metavar="FILE"),
    option("--sentences", [300, 1000], "first sentences to train on", least=1),
    option("--first", 1500, "sentences of the test file that are measured apart from all", least=1),
    option("--layers", None, "of frozen features (default: the middle and the last one)", nargs="+", type=int),
    option("--scale", None, "factors of features (default: the task's)", least=0, above=True, type=float, nargs="+"),
    option("--context", 0, "pieces of neighbouring sentences on either side", least=0),
    option("--methods", list(METHODS), "tuned has the row of its solved head as well", choices=METHODS),
    option("--passes", [NER.passes], "of linear problems", least=1),
    option("--seeds", [0], "of fine-tuning, which is averaged over them", least=0),
    option("--epochs", 2, "passes of fine-tuning", least=1),
    option("--batch", 16, "sentences of a step", least=1),
    option("--step", 2e-4, "largest step size of the encoder", least=0, above=True),
    table=("sentences", "method", "F1 of the first", "F1", "encoding, s", "training, s", "gap"),
    text_columns=2,
)
def main(options: Namespace) -> Iterator[list[str]]:
    """A row for each number of sentences and method."""
    task = NER(words_only=True)
    everything, test = task.read(options.train), task.read(options.test, "test")
    assert isinstance(everything, Corpus)
    assert isinstance(test, Corpus)
    for count in options.sentences:
        train = everything.part(range(min(count, len(everything))))
        for name, answer in linear_answers(task, options, train, test):
            yield cells(len(train), name, [answer])
        answers: dict[str, list[Answer]] = {}
        for seed in options.seeds if "tuned" in options.methods else ():
            with TemporaryDirectory() as folder:
                for name, answer in tuned_answers(task, options, train, test, seed, Path(folder)):
                    answers.setdefault(name, []).append(answer)
        for name, several in answers.items():
            yield cells(len(train), name, several)
