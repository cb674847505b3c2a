"""What partial labels are worth: scores on test data and CPU seconds of what can be done where labels are unknown.

Partial labels train by all outputs that agree with what is known. Beside them: examples in which something is unknown
are dropped, or cut to what is known; or what is unknown is taken for the commonest label; or nothing is missing.

entities: tags of CoNLL-2003, or of the embedded data, of which a share is removed at random; F1.
proteins: residues of membrane proteins whose place is unknown (TMbed, alpha.fasta.gz); accuracy on the residues whose
place is known, for each of five folds in turn.
waves: electrocardiograms with unmarked ends (LUDB); F1 of the boundaries of waves.
heads: words of a treebank, of which a share has lost its head at random; share of the words with the right head.
"""

import gzip
import random
import time
import warnings
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning

from scripts.shared.harness import TRAIN_AND_TEST, bio, command, files, option, within
from structsmooth import train
from structsmooth.estimators import SequenceTagger
from structsmooth.settings import Interval
from structsmooth.solvers import ConvexConcave
from structsmooth.tasks import NER, Parsing, Segments
from structsmooth.tasks.parsing.data import Sentence as ParsedSentence
from structsmooth.tasks.parsing.data import Tree, known_tree
from structsmooth.text.corpus import Sentence

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
Tagged = list[tuple[Any, list[Any]]]
# Trains on examples, and gives what measures the model.
Fit = Callable[[Sequence[Any]], Callable[[], float]]


class Way(NamedTuple):
    """What is done with labels of which some are unknown: examples, and how to fit a model to them and score it."""

    setting: str  # of all ways that are compared: a loss, a fold
    name: str
    examples: Sequence[Any]
    fit: Fit


def entity_ways(options: Namespace) -> Iterator[Way]:
    """Named entities, for each loss and seed."""
    whole, test = (_tagged(NER().read(path)) for path in files(options, NER).values())
    for loss in options.losses:
        for seed in options.seeds:
            partial, setting = removed(whole, options.share, seed), f"{loss}, seed {seed}"
            ways = {
                "partial labels": partial,
                "complete sentences alone": complete(partial),
                "missing tags as O": [(x, [tag or "O" for tag in tags]) for x, tags in partial],
            }
            if seed == options.seeds[0]:
                ways["all tags"] = whole
            for name, data in ways.items():
                yield Way(setting, name, data, _tagging(test, loss, options.passes or 60))


def protein_ways(options: Namespace) -> Iterator[Way]:
    """Residues of proteins, for each fold."""
    proteins = read_proteins(options.train)
    for loss in options.losses:
        for fold in options.folds:
            partial = [(x, tags) for part, x, tags in proteins if part != fold]
            test = [(x, tags) for part, x, tags in proteins if part == fold]
            commonest = Counter(tag for _, tags in partial for tag in tags if tag is not None).most_common(1)[0][0]
            ways = {
                "partial labels": partial,
                "known stretches alone": [piece for x, tags in partial for piece in known_stretches(x, tags)],
                "complete proteins alone": complete(partial),
                f"unknown as {commonest}": [(x, [tag or commonest for tag in tags]) for x, tags in partial],
            }
            for name, data in ways.items():
                yield Way(f"{loss}, fold {fold}", name, data, _tagging(test, loss, options.passes or 20, residues=True))


def wave_ways(options: Namespace) -> Iterator[Way]:
    """Waves of electrocardiograms, for each seed of the first weights."""
    task = Segments(step=5)
    whole, test = (task.read(path) for path in files(options, task).values())
    without_waves = [replace(series, unmarked=()) for series in whole]
    for seed in options.seeds:
        seeded = replace(task, seed=seed)
        ways = (
            ("partial labels", replace(seeded, unmarked="partial"), whole),
            ("marked stretches alone", seeded, whole),
            ("ends without waves", seeded, without_waves),
        )
        for name, setting, examples in ways:
            yield Way(f"seed {seed}", name, examples, _trained(setting, test, "boundary_f1", options.passes))


def head_ways(options: Namespace) -> Iterator[Way]:
    """Dependency trees, for each seed."""
    task = Parsing(labelled=False, unknown="_")
    whole, test = (task.read(path, "test")[: options.limit] for path in files(options, task).values())
    for seed in options.seeds:
        partial = without_heads(whole, options.share, seed)
        ways = {
            "partial labels": partial,
            "complete sentences alone": [s for s in partial if -1 not in known_tree(s).heads],
        }
        if seed == options.seeds[0]:
            ways["all heads"] = whole
        for name, examples in ways.items():
            solver = ConvexConcave() if name == "partial labels" else None
            yield Way(f"seed {seed}", name, examples, _trained(task, test, "uas", options.passes, solver))


DATA = {"entities": entity_ways, "proteins": protein_ways, "waves": wave_ways, "heads": head_ways}


def removed(sentences: Tagged, share: float, seed: int) -> Tagged:
    """Sentences in which a share of the tags is unknown."""
    generator = random.Random(seed)
    return [(x, [None if generator.random() < share else tag for tag in tags]) for x, tags in sentences]


def without_heads(sentences: Sequence[ParsedSentence], share: float, seed: int) -> list[ParsedSentence]:
    """Sentences in which a share of the heads is unknown."""
    generator, found = random.Random(seed), []
    for sentence in sentences:
        heads, relations, *_ = known_tree(sentence)
        known = tuple(-1 if generator.random() < share else head for head in heads)
        found.append(replace(sentence, tree=Tree(known, relations)))
    return found


def complete(sentences: Tagged) -> Tagged:
    """The sentences all of whose tags are known."""
    return [(x, tags) for x, tags in sentences if None not in tags]


def known_stretches(x: Any, tags: Sequence[Any]) -> Tagged:
    """The stretches of a sequence whose tags are known."""
    found, at = [], 0
    for is_known, run in groupby(tags, lambda tag: tag is not None):
        stop = at + len(list(run))
        if is_known:
            found.append((x[at:stop], list(tags[at:stop])))
        at = stop
    return found


def read_proteins(path: str) -> list[tuple[int, Any, list[str | None]]]:
    """Fold, letters in a window around each residue, and place of each residue, ``None`` if it is unknown."""
    return [(fold, _windows(sequence), tags) for fold, sequence, tags in placed_residues(path)]


def placed_residues(path: str) -> Iterator[tuple[int, str, list[str | None]]]:
    """Fold and residues of each protein of a file, and the place of each residue, ``None`` if it is unknown.

    A segment through the membrane has another tag for each side that it leads to.
    """
    with gzip.open(path, "rt") as file:
        lines = file.read().split("\n")
    for header, sequence, labels in zip(lines[::3], lines[1::3], lines[2::3], strict=False):
        tags: list[str | None] = []
        for letter, run in groupby(labels.upper()):
            count, before = len(list(run)), len(tags)
            if letter in "HB":
                leads_to = labels[before + count : before + count + 1]
                comes_from = labels[before - 1 : before]
                letter += "1" if leads_to == "1" or comes_from == "2" else "2"
            tags += [None if letter == "U" else letter] * count
        yield int(header.rsplit("fold=", 1)[1]), sequence, tags


def _windows(sequence: str) -> Any:
    """Which letters are at which places around each residue: a sparse matrix [T, F]."""
    numbers = np.array([RESIDUES.find(letter) for letter in sequence]) + 1
    length, places = len(numbers), np.arange(-_REACH, _REACH + 1)
    at = np.arange(length)[:, None] + places
    letters = np.where((at >= 0) & (at < length), numbers[at.clip(0, length - 1)], _LETTERS - 1)
    columns = letters + _LETTERS * (places + _REACH)
    rows = np.arange(length).repeat(len(places))
    return csr_matrix((np.ones(columns.size), (rows, columns.ravel())), (length, _LETTERS * len(places)))


# Letters on both sides of a residue that its score sees; kinds of letters: another one, 20 amino acids, and none.
_REACH, _LETTERS = 10, 22


def _tagging(test: Tagged, loss: Any, passes: int, residues: bool = False) -> Fit:
    """Fit a tagger; entity F1 on test sentences, or accuracy on the residues of test proteins whose place is known."""
    inputs, known = zip(*test, strict=True)

    def fit(examples: Sequence[Any]) -> Callable[[], float]:
        tagger = SequenceTagger(loss=loss, max_iter=passes).fit(*zip(*examples, strict=True))

        def accuracy() -> float:
            pairs = zip(chain.from_iterable(tagger.predict(list(inputs))), chain.from_iterable(known), strict=True)
            return float(np.mean([a == b for a, b in pairs if b is not None]))

        return accuracy if residues else lambda: float(tagger.score(inputs, known))

    return fit


def _trained(task: Any, test: Sequence[Any], metric: str, passes: int | None, solver: Any = None) -> Fit:
    """Train a task; a metric on test examples."""

    def fit(examples: Sequence[Any]) -> Callable[[], float]:
        model = train(task, examples, solver=solver, passes=passes)
        return lambda: float(model.score(test)[metric])

    return fit


def _tagged(sentences: Sequence[Sentence]) -> Tagged:
    """Words with their columns, and tags in BIO, which says the most of a tag whose neighbours are unknown."""
    return [(list(zip(s.words, *s.columns, strict=True)), [*bio(s)]) for s in sentences]


@command(
    option("data", None, "what to compare on; --train of proteins is the file of all", choices=DATA),
    *TRAIN_AND_TEST,
    option("--share", 0.5, "share of the labels to remove", type=within(Interval(0, 0.99), float)),
    option("--seeds", [0], "of what is removed, or of weights"),
    option("--folds", [*range(5)], "of proteins"),
    option("--limit", None, "number of sentences with trees to read (default: all)", type=int),
    option("--passes", None, "limit on passes over the data (default: that of the model)", type=int),
    option("--losses", ["hinge"], "losses of taggers"),
    table=["data", "setting", "training labels", "examples", "score", "CPU seconds"],
    text_columns=6,
)
def main(options: Namespace) -> Iterator[list[str]]:
    """Scores and seconds of each way, and means of the ways that there are several times."""
    scores: dict[str, list[tuple[float, float]]] = {}
    for way in DATA[options.data](options):
        row = [options.data, way.setting, way.name, f"{len(way.examples):,}"]
        if not way.examples:
            yield [*row, "-", "-"]
            continue
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            score_on_test = way.fit(way.examples)
        seconds = time.process_time() - started
        score = score_on_test()
        scores.setdefault(way.name, []).append((score, seconds))
        yield [*row, f"{score:.2%}", f"{seconds:.0f}"]
    for name, runs in scores.items():
        if len(runs) > 1:
            mean, deviation, seconds = np.mean(runs, 0)[0], np.std(runs, 0, ddof=1)[0], np.mean(runs, 0)[1]
            yield [options.data, "mean", name, "", f"{mean:.2%} ± {deviation:.2%}", f"{seconds:.0f}"]
