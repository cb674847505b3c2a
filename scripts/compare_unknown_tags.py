"""Named entities of sentences in which tags have been removed at random: F1 and CPU seconds of what can be done.

Partial labels train by all taggings that agree with the tags that are left. Beside them: sentences in which a tag is
missing are dropped, or missing tags are taken for O, or nothing is missing. Seconds are those of SequenceTagger.fit.
"""

import random
import time
import warnings
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from sklearn.exceptions import ConvergenceWarning

from structsmooth.estimators import SequenceTagger
from structsmooth.tasks import NER
from structsmooth.text.corpus import Sentence
from structsmooth.text.schemes import entities, entity_tags

Tagged = list[tuple[Any, list[str | None]]]


class Score(NamedTuple):
    """F1 on the test sentences, and what training took."""

    f1: float
    seconds: float
    passes: float
    sentences: int


def removed(sentences: Tagged, share: float, seed: int) -> Tagged:
    """Sentences in which a share of the tags is unknown."""
    generator = random.Random(seed)
    return [(x, [None if generator.random() < share else tag for tag in tags]) for x, tags in sentences]


WAYS: dict[str, Callable[[Tagged], Tagged]] = {
    "partial labels": lambda sentences: sentences,
    "complete sentences alone": lambda sentences: [(x, tags) for x, tags in sentences if None not in tags],
    "missing tags as O": lambda sentences: [(x, [tag or "O" for tag in tags]) for x, tags in sentences],
}
"""What can be done with sentences in which tags are unknown."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Train in each way with each loss, and print the table."""
    torch.set_num_threads(1)
    options = _parser().parse_args(arguments)
    files = NER.default_files() if options.train is None else {"train": options.train, "test": options.test}
    train, test = (_tagged(NER().read(files[split])) for split in ("train", "test"))
    partial = removed(train, options.share, options.seed)
    print("| loss | training data | sentences | F1 | CPU seconds | passes |\n| --- | --- | --- | --- | --- | --- |")
    for loss in options.losses:
        ways = {name: way(partial) for name, way in WAYS.items()} | {"all tags": train}
        for name, own in ways.items():
            if not own:
                print(f"| {loss} | {name} | 0 | - | - | - |")
                continue
            score = measured(SequenceTagger(loss=loss, max_iter=options.passes), own, test)
            numbers = f"{score.sentences:,} | {score.f1:.2%} | {score.seconds:.0f} | {score.passes:.0f}"
            print(f"| {loss} | {name} | {numbers} |", flush=True)
    return 0


def measured(tagger: SequenceTagger, train: Tagged, test: Tagged) -> Score:
    """The score of a tagger that is trained on some sentences."""
    (X, y), started = zip(*train, strict=True), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger.fit(X, y)
    seconds = time.process_time() - started
    return Score(tagger.score(*zip(*test, strict=True)), seconds, tagger.n_iter_, len(train))


def _tagged(sentences: Sequence[Sentence]) -> Tagged:
    """Words with their columns, and tags in BIO, which says the most of a tag whose neighbours are unknown."""
    return [
        (list(zip(s.words, *s.columns, strict=True)), [*entity_tags(entities(s.tags or []), len(s), "BIO")])
        for s in sentences
    ]


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise ArgumentTypeError(f"must be at least 0 and less than 1, got {text}")
    return value


def _parser() -> ArgumentParser:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--train", metavar="FILE", help="column file to train on (default: the embedded data)")
    parser.add_argument("--test", metavar="FILE", help="column file to measure on")
    parser.add_argument("--share", type=_share, default=0.5, help="share of the tags to remove (default: 0.5)")
    parser.add_argument("--seed", type=int, default=0, help="of the tags that are removed (default: 0)")
    parser.add_argument("--passes", type=int, default=60, help="limit on passes over the data (default: 60)")
    parser.add_argument("--losses", nargs="+", default=["hinge", "crf"], help="losses (default: hinge crf)")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
