"""What to annotate next: scores on test data by the number of words annotated, for each rule that chooses examples.

A model trains on some sentences of a training file, its uncertainty about others chooses the next ones, without
near-duplicates, and so on; random choice is beside. A step annotates so many words, not sentences, as uncertain
sentences are long. Each step sees a random part of the sentences that are left. Cells are means over seeds, in percent:
F1 of entities (ner), the share of words with the right head and relation (parsing), or F1 of the boundaries of segments
(proteins of TMbed, alpha.fasta.gz, which --train and --test name; the first fold is the test data, residues are words).
"""

import random
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import mean
from typing import Any, NamedTuple, get_args

import numpy as np

from scripts.comparisons.partial_labels import RESIDUES, placed_residues
from scripts.shared.harness import TRAIN_AND_TEST, command, files, mean_and_spread, option
from structsmooth import train
from structsmooth.cli.report import markdown_table
from structsmooth.solvers import ProximalBCFW
from structsmooth.tasks import NER, Parsing, Segments, Task
from structsmooth.tasks.segments.series import Segment, Series
from structsmooth.tasks.trained import TrainedModel
from structsmooth.uncertainty import Rule, spread

RULES = ("random", *get_args(Rule))


class Setting(NamedTuple):
    """A task with its data, and how :func:`structsmooth.train` trains it."""

    task: Task
    pool: Sequence[Any]
    test: Sequence[Any]
    how: dict[str, Any]


def curve(setting: Setting, rule: str, seed: int, options: Namespace) -> list[float]:
    """The score after each step."""
    draw = random.Random(seed)
    left = draw.sample(setting.pool, len(setting.pool))
    annotated, scores = taken(left, options.words), list[float]()
    while True:
        model = train(setting.task, annotated, seed=seed, **setting.how)
        outputs = model.predict(setting.test)
        scores.append(100 * model.task.measure(setting.test, outputs)[0][setting.task.headline])
        if len(scores) > options.steps:
            return scores
        chosen = {id(one) for one in annotated}
        left = [one for one in left if id(one) not in chosen]
        seen = draw.sample(left, min(options.candidates, len(left)))
        order = seen if rule == "random" else most_uncertain(model, seen, rule, options.temperature)
        annotated += taken(order, options.words)


def most_uncertain(model: TrainedModel, examples: Sequence[Any], rule: Any, temperature: float) -> list[Any]:
    """Examples without near-duplicates, the most uncertain first."""
    task: Any = replace(model.task, temperature=temperature)  # type: ignore[call-arg]
    found = task.uncertainty(model.weights, examples, rule)
    words = [frozenset(task.words(one)) for one in examples]
    few = found.argsort(descending=True, stable=True).tolist()
    return [examples[i] for i in spread(few, words, 400)]


def taken(examples: Sequence[Any], words: int) -> list[Any]:
    """The first examples, up to so many words."""
    found, left = [], words
    for example in examples:
        if left <= 0:
            break
        found.append(example)
        left -= len(example)
    return found


def setting_of(options: Namespace) -> Setting:
    """The task, its pool, and a part of its test data."""
    if options.task == "proteins":
        paths, how = vars(options), {"solver": ProximalBCFW(), "passes": 20, "lam": "10/n"}
        task: Task = Segments(normalize=False, tolerance=5, layers=1, any_order=True)
        pool, test = (list[Any](proteins(paths[split], split == "test")) for split in ("train", "test"))
    else:
        task, how = NER() if options.task == "ner" else Parsing(bits=18), {}
        paths = files(options, type(task))
        pool, test = (list(task.read(paths[split], split)) for split in ("train", "test"))
    return Setting(task, pool, random.Random(0).sample(test, min(options.measured, len(test))), how)


def proteins(path: str, first_fold: bool) -> list[Series]:
    """The proteins of the first fold, or of the others, with a channel for each kind of residue."""
    found = []
    for fold, residues, places in placed_residues(path):
        if (fold == 0) != first_fold:
            continue
        runs, start = list[Segment](), 0
        for place, run in groupby(places):
            runs.append(Segment(start, start := start + len(list(run)), place or ""))
        signal = np.array([[one == residue for residue in RESIDUES] for one in residues], dtype=np.float32)
        segments, unmarked = ([run for run in runs if bool(run.label) == known] for known in (True, False))
        stretches = tuple((run.start, run.stop) for run in unmarked)
        found.append(Series(residues, signal, segments=tuple(segments), unmarked=stretches))
    return found


def rows_of(options: Namespace) -> Iterator[list[str]]:
    """A row for each rule."""
    setting = setting_of(options)
    for rule in options.rules:
        started = time.process_time()
        curves = [curve(setting, rule, seed, options) for seed in options.seeds]
        shown = [mean_and_spread(column, 1) for column in zip(*curves, strict=True)]
        average = mean_and_spread([mean(scores[1:]) for scores in curves], 1)
        yield [rule, *shown[:: options.every], average, f"{time.process_time() - started:.0f}"]


@command(
    option("--task", "ner", "data and model", choices=["ner", "parsing", "proteins"]),
    *TRAIN_AND_TEST,
    option("--rules", list(RULES), "rules that choose", choices=RULES),
    option("--words", 1450, "words that a step annotates; 100 sentences of CoNLL-2003 have as many", least=1),
    option("--steps", 9, "steps after the first", least=1),
    option("--every", 1, "steps of which one is shown", least=1),
    option("--seeds", [*range(5)], "seeds of the first sentences"),
    option("--candidates", 2000, "sentences that a step looks at", least=1),
    option("--measured", 1000, "test sentences that are measured", least=1),
    option("--temperature", 1.0, "by which scores are divided", least=0, above=True),
)
def main(options: Namespace) -> None:
    """Print the table."""
    header = [f"{options.words * (1 + step):,}" for step in range(0, options.steps + 1, options.every)]
    print(markdown_table(["rule", *header, "mean of steps", "CPU s"], rows_of(options)))
