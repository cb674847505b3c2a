"""The commands about data that nobody has annotated: what to annotate next, and whether they differ from known data."""

import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from structsmooth.cli.data import note_form, read_examples
from structsmooth.cli.flags import add_flags, from_flags
from structsmooth.cli.report import markdown_table
from structsmooth.cli.trained import add_model, answers, as_read, brat_folder, loaded
from structsmooth.messages import counted, note, stage
from structsmooth.tasks.base import Predictions
from structsmooth.tasks.json_lines import write_json_lines
from structsmooth.tasks.probabilities import ProbabilisticTask, probabilistic
from structsmooth.tasks.profile import ENTROPY, UNKNOWN, Profile
from structsmooth.tasks.text.distribution import TaggingDistribution
from structsmooth.tasks.trained import TrainedModel
from structsmooth.text.annotated import Form, write_documents
from structsmooth.text.brat import brat_texts
from structsmooth.text.corpus import Corpus
from structsmooth.text.forms import Reading
from structsmooth.text.texts import TextCorpus
from structsmooth.uncertainty import DEFAULT, Rule, spread

_SHOWN = 60  # characters of an example


def suggest(options: Namespace) -> int:
    """Write what to annotate next: the examples that a model is least sure of, with its predictions.

    The most uncertain come first, without near-duplicates of one before, which share more than half of the distinct
    words that either has. What is written has the form of the pool, and can be corrected and trained on.
    """
    if options.count < 1:
        raise ValueError(f"--count must be at least 1, got {options.count}")
    if Path(options.out).is_file() and Path(options.out).samefile(options.pool):
        raise ValueError(f"{options.out} is the pool: give another file to write")
    model = as_read(loaded(options.model, options), from_flags(Reading, options), False)
    task = probabilistic(model.task, "suggest")
    if options.to and not (isinstance(task, TaggingDistribution) and task.finds_spans):
        raise ValueError("--to is for entities: leave it out, and the form of the pool is kept")
    pool = _pool(model, options)
    with stage(f"measuring how unsure the model is about {counted(len(pool), 'example')}"):
        chosen = _suggested(model, pool, options)
    flat = [number for group in chosen for number in group]
    with stage(f"predicting {counted(len(flat), 'example')}"):
        found = model.alternatives(pool, 1)
    predictions = [found[number] for number in flat]
    if isinstance(pool, TextCorpus) and pool.kind == "brat" and not options.to:
        _write_texts(model, pool, chosen, found, options)
        return 0
    examples = pool.chosen(flat) if isinstance(pool, Corpus) else [pool[number] for number in flat]
    if options.to:
        assert isinstance(task, TaggingDistribution)
        answered = task.answered(model.weights, examples, [ranked[0][1] for ranked in predictions])
        documents, probabilities = zip(*answered, strict=True)
        write_documents(documents, options.out, options.to, [], probabilities)
        return 0
    with answers(options.out) as stream:
        if options.json:
            write_json_lines(task, examples, predictions, stream, weights=model.weights)
        else:
            task.write_answers(model.weights, examples, predictions, stream)
    return 0


def drift(options: Namespace) -> int:
    """Say whether new data differ from known data in what a model makes of them.

    Known data are the development data of training, or the test data, whose profile the model keeps, or those of
    ``--reference``. The exit code is 1 if a test finds a difference, with ``--fail-below``.
    """
    if not 0 <= options.fail_below < 1:
        raise ValueError(f"--fail-below must be from 0 to 1, got {options.fail_below}")
    model = as_read(loaded(options.model, options), from_flags(Reading, options), False)
    task, vocabulary = probabilistic(model.task, "drift"), model.vocabulary
    with stage("measuring"):
        known = model.profile
        if options.reference:
            reference = read_examples(task, options.reference, "predict")
            known = Profile.of(task, model.weights, reference, vocabulary, options.reference)
        if known is None:
            raise ValueError(
                f"{options.model} keeps no profile of data that did not train it: give such data as --reference FILE, "
                "or train with --dev or --test by this version"
            )
        examples = _pool(model, options)
        found = known.differences(Profile.of(task, model.weights, examples, vocabulary, options.pool))
    header = ["measure", f"mean of {known.source}", f"mean of {options.pool}", "distance", "p"]
    rows = [[name, f"{d.known:.3f}", f"{d.new:.3f}", f"{d.distance:.3f}", f"{d.p:.2g}"] for name, d in found.items()]
    print(markdown_table(header, rows))
    _print_strange(task, model, examples, known, options)
    return int(any(one.p * len(found) < options.fail_below for one in found.values()))


def _print_strange(
    task: ProbabilisticTask, model: TrainedModel, examples: Sequence[Any], known: Profile, options: Namespace
) -> None:
    """The examples that are least like known ones: those of largest entropy by size."""
    values = task.uncertainty(model.weights, examples, "length-normalized").tolist()
    order = sorted(range(len(values)), key=lambda i: -values[i])[: options.examples]
    measured = known.measures.get(ENTROPY, [])
    rows = []
    for i in order:
        share = sum(one >= values[i] for one in measured) / max(len(measured), 1)
        unknown = "" if model.vocabulary is None else f"{model.vocabulary.unknown(task.words(examples[i])):.0%}"
        begin = " ".join(task.words(examples[i])) or str(next(iter(task.input_to_json(examples[i]).values()), ""))
        rows.append([begin[:_SHOWN], f"{i + 1}", f"{values[i]:.3f}", f"{share:.1%}", unknown])
    if rows:
        header = ["most uncertain", "example", ENTROPY, "known ones as uncertain", UNKNOWN]
        print("\n" + markdown_table(header, rows))


def add_drift(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Arguments of the command."""
    add_model(parser)
    parser.add_argument("pool", metavar="NEW", help="data as predict takes them, without labels")
    help_reference = "known data to compare with, which did not train the model (default: what the model keeps)"
    parser.add_argument("--reference", metavar="FILE", help=help_reference)
    help_fail = "exit code 1 if a p-value times the number of measures is below P (default: 0, never)"
    parser.add_argument("--fail-below", type=float, default=0.0, metavar="P", help=help_fail)
    help_examples = "examples to list, the most uncertain first (default: 5)"
    parser.add_argument("--examples", type=int, default=5, metavar="N", help=help_examples)
    parser.add_argument("--text", action="store_true", help="the data are lines of text, each a sentence")
    add_flags(parser, "files of text, by default as their first lines are", Reading)


def _pool(model: TrainedModel, options: Namespace) -> Sequence[Any]:
    """The examples to choose from."""
    if not options.text:
        return read_examples(model.task, options.pool, "predict")
    with stage(f"reading {options.pool}"):
        examples = model.task.read_text(options.pool)
    note_form(options.pool, examples)
    return examples


def _suggested(model: TrainedModel, pool: Sequence[Any], options: Namespace) -> list[list[int]]:
    """The numbers of the examples of each text, or what else is annotated at once, the most uncertain first."""
    task = probabilistic(model.task, "suggest")
    members: dict[int, list[int]] = {}
    for number, group in enumerate(task.groups(pool)):
        members.setdefault(group, []).append(number)
    listed = list(members.values())
    place = {number: i for i, numbers in enumerate(listed) for number in numbers}
    found = model.uncertainty(pool, options.by, [place[number] for number in range(len(pool))])
    examples = list(pool)
    words = [frozenset(word for i in numbers for word in task.words(examples[i])) for numbers in listed]
    order: list[int] = (-found).argsort(stable=True).tolist()
    chosen = spread(order, words, options.count)
    size = sum(len(examples[i]) for group in chosen for i in listed[group])
    passed = order.index(chosen[-1]) + 1 - len(chosen) if chosen else 0
    what = f"{len(chosen):,} of {len(listed):,}, {size:,} {'words' if any(words) else 'samples'} in all"
    note(f"{options.out}: {what}; {counted(passed, 'near-duplicate')} left out")
    return [listed[group] for group in chosen]


def _write_texts(
    model: TrainedModel, pool: TextCorpus, chosen: Sequence[Sequence[int]], found: Predictions, options: Namespace
) -> None:
    """Copy texts of brat into a folder, with annotations beside them."""
    texts, output = brat_texts(options.pool), brat_folder(options.out, options.pool)
    for group in chosen:
        assert pool.documents is not None
        text, examples = texts[int(pool.documents[group[0]])], pool.chosen(group)
        with answers(str(output / text.with_suffix(".ann").name)) as stream:
            model.task.write_answers(model.weights, examples, [found[number] for number in group], stream)
        shutil.copyfile(text, output / Path(text).name)


def add_suggest(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Arguments of the command."""
    add_model(parser)
    parser.add_argument(
        "pool", metavar="POOL", help="data to choose from, as predict takes them; labels are left aside"
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="what to annotate next; a folder for one of brat")
    help_count = "texts, sentences or series to choose, whatever a line or file of the pool has (default: 50)"
    parser.add_argument("--count", type=int, default=50, metavar="N", help=help_count)
    help_by = (
        "what is uncertain: a small margin between the two best outputs, a large entropy of all outputs, or one that "
        f"is divided by the number of words or samples (default: {DEFAULT})"
    )
    parser.add_argument("--by", choices=get_args(Rule), default=DEFAULT, help=help_by)
    written = parser.add_mutually_exclusive_group()
    help_to = f"form of texts with entities, one of {', '.join(get_args(Form))}: jsonl is for prodigy"
    written.add_argument("--to", choices=get_args(Form), metavar="FORM", help=f"{help_to} (default: as the pool)")
    written.add_argument("--json", action="store_true", help="write a line of JSON for each example, as predict does")
    parser.add_argument("--text", action="store_true", help="the pool is lines of text, each a sentence")
    add_flags(parser, "files of text, by default as their first lines are", Reading)
