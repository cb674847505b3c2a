"""What to annotate next: scores on test data by the number of words annotated, for each rule that chooses examples.

A model trains on some sentences of a training file, its uncertainty about others chooses the next ones, without
near-duplicates, and so on; random choice is beside. A step annotates so many words, not sentences, as uncertain
sentences are long. Each step sees a random part of the sentences that are left. Cells are means over seeds: F1 of
entities (ner), or the share of words with the right head and relation (parsing), in percent.
"""

import random
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any, get_args

from scripts.shared.harness import TRAIN_AND_TEST, command, files, mean_and_spread, option
from structsmooth import train
from structsmooth.cli.report import markdown_table
from structsmooth.tasks import NER, Parsing, Task
from structsmooth.tasks.trained import TrainedModel
from structsmooth.uncertainty import Rule, spread

RULES = ("random", *get_args(Rule))


def curve(
    task: Task, pool: Sequence[Any], test: Sequence[Any], rule: str, seed: int, options: Namespace
) -> list[float]:
    """The score after each step."""
    draw = random.Random(seed)
    left = draw.sample(pool, len(pool))
    annotated, scores = taken(left, options.words), list[float]()
    while True:
        model = train(task, annotated, seed=seed)
        outputs = model.predict(test)
        scores.append(100 * model.task.measure(test, outputs)[0][task.headline])
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


def data_of(options: Namespace) -> tuple[Task, list[Any], list[Any]]:
    """The task, its pool, and its test data."""
    task: Task = NER() if options.task == "ner" else Parsing(bits=18)
    paths = files(options, type(task))
    return task, list(task.read(paths["train"])), list(task.read(paths["test"], "test"))


def rows_of(options: Namespace) -> Iterator[list[str]]:
    """A row for each rule."""
    task, pool, test = data_of(options)
    test = random.Random(0).sample(test, min(options.measured, len(test)))
    for rule in options.rules:
        started = time.process_time()
        curves = [curve(task, pool, test, rule, seed, options) for seed in options.seeds]
        shown = [mean_and_spread(column, 1) for column in zip(*curves, strict=True)]
        average = mean(score for scores in curves for score in scores[1:])
        yield [rule, *shown[:: options.every], f"{average:.2f}", f"{time.process_time() - started:.0f}"]


@command(
    option("--task", "ner", "data and model", choices=["ner", "parsing"]),
    *TRAIN_AND_TEST,
    option("--rules", list(RULES), "rules that choose", choices=RULES),
    option("--words", 1450, "words that a step annotates; 100 sentences of CoNLL-2003 have as many", least=1),
    option("--steps", 9, "steps after the first", least=1),
    option("--every", 1, "steps of which one is shown", least=1),
    option("--seeds", [0, 1], "seeds of the first sentences"),
    option("--candidates", 2000, "sentences that a step looks at", least=1),
    option("--measured", 1000, "test sentences that are measured", least=1),
    option("--temperature", 1.0, "by which scores are divided", least=0, above=True),
)
def main(options: Namespace) -> None:
    """Print the table."""
    header = [f"{options.words * (1 + step):,}" for step in range(0, options.steps + 1, options.every)]
    print(markdown_table(["rule", *header, "mean of steps", "CPU s"], rows_of(options)))
