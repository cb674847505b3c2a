"""The commands on trained models: what they are, predict, score and leave to be gained, and a page about them."""

import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

from structsmooth import solvers
from structsmooth.cli.data import HeldOut, form_of, note_form, read_examples
from structsmooth.cli.flags import add_flags, from_flags
from structsmooth.cli.folds import folds
from structsmooth.files import checksum, naming, writing
from structsmooth.history import History
from structsmooth.messages import counted, located, stage
from structsmooth.tasks import FittedTask, load_task
from structsmooth.tasks.base import Predictions
from structsmooth.tasks.json_lines import write_json_lines
from structsmooth.tasks.probabilities import probabilistic
from structsmooth.tasks.trained import TrainedModel, describe, load
from structsmooth.text.brat import brat_texts
from structsmooth.text.forms import Reading
from structsmooth.text.inputs import Inputs
from structsmooth.text.lines import source_name

_HELP_MODEL = "model directory, the --out of structsmooth train"
# What tasks override that have files of a kind.
_METHODS = {"pictures": "draw", "masks": "save_mask", "gazetteer": "restricted"}


def predict(options: Namespace) -> int:
    """Predict the outputs of a file, or of standard input.

    Of several models, each predicts what the one before it writes.
    """
    if options.top < 1:
        raise ValueError(f"--top must be at least 1, got {options.top}")
    if options.masks and not options.json:
        raise ValueError("--masks needs --json, whose lines name the files")
    if options.marginals and not options.json:
        raise ValueError("--marginals needs --json, whose lines have them")
    folders, file = _folders_and_file([options.model, *options.files])
    models = [
        # Only the first model reads the user's file, as its flags say; the others read what models write.
        as_read(loaded(folder, options), Reading() if number else from_flags(Reading, options), False)
        for number, folder in enumerate(folders)
    ]
    if options.split_sentences:
        models[0] = _splitting(models[0])
    if options.threshold is not None:
        models[-1] = _with_threshold(models[-1], options)
    for flag, method in _METHODS.items():
        task = models[0 if flag == "gazetteer" else -1].task
        if getattr(options, flag) and getattr(type(task), method) is getattr(FittedTask, method):
            raise ValueError(f"--{flag}: {type(task.task).__name__} has no {flag}")
    if not (Path(file).is_dir() and any(Path(file).glob("*.ann"))):
        _predict(options, models, file, options.output)
        return 0
    output = brat_folder(options.output or file, file)
    for text in brat_texts(file):
        _predict(options, models, str(text), str(output / text.with_suffix(".ann").name))
        shutil.copyfile(text, output / text.name)
    return 0


def _with_threshold(model: TrainedModel, options: Namespace) -> TrainedModel:
    """The model with another threshold of probabilities than it was trained with."""
    task = model.task.task
    if "threshold" not in vars(task):
        raise ValueError(f"--threshold: {type(task).__name__} has no threshold; alignment has one")
    if options.top > 1:
        raise ValueError("--threshold gives one alignment, and --top several: give one of them")
    changed: Any = replace(task, **{"threshold": options.threshold})
    return replace(model, task=replace(model.task, task=changed))


def _splitting(model: TrainedModel) -> TrainedModel:
    """The model that finds the sentences of texts."""
    task: Any = model.task
    if not isinstance(inputs := vars(task).get("inputs"), Inputs):
        raise ValueError(f"--split-sentences: {type(task.task).__name__} does not take text; give a tagger first")
    return replace(model, task=replace(task, inputs=inputs.splitting()))


def brat_folder(output: str, given: str) -> Path:
    """The folder, which is made, for answers about texts of a folder of brat.

    Raises:
        ValueError: it is that of the texts.
    """
    if Path(output).resolve() == Path(given).resolve():
        raise ValueError(f"{given}: a folder of brat needs --output, another folder for texts and their annotations")
    Path(output).mkdir(parents=True, exist_ok=True)
    return Path(output)


def _folders_and_file(places: Sequence[str]) -> tuple[Sequence[str], str]:
    """The folders of models, and the file to predict: the last place, unless it has a model."""
    # A single place is a model, whether it exists or not, and the data come by standard input.
    if len(places) == 1 or (Path(places[-1]) / "model.json").exists():
        return places, "-"
    return places[:-1], places[-1]


def _predict(options: Namespace, models: Sequence[TrainedModel], file: str, output: str | None) -> None:
    """Write the predictions of models, each of what the one before it writes, into a file or to standard output."""
    source: str | TextIO = sys.stdin if file == "-" else file
    name = "standard input" if file == "-" else file
    # One model answers what arrives as it arrives; alternatives, pictures and masks are written at the end.
    if file == "-" and len(models) == options.top == 1 and not (options.pictures or options.masks):
        _answer(options, models[0], output)
        return
    for number, model in enumerate(models):
        with stage(f"reading {name}"), naming(name):
            examples = model.task.read_text(source) if options.text and not number else model.task.read(source)
        note_form(name, examples)
        if options.gazetteer and not number:
            examples = model.task.restricted(examples, options.gazetteer)
        is_last = number == len(models) - 1
        # Errors, such as of tags that no output may have, name the file.
        with stage(f"predicting {counted(len(examples), 'example')}"), located(name):
            predictions = model.alternatives(examples, options.top if is_last else 1)
        if not is_last:
            # The next model reads ``source``, from its beginning and under this name.
            model.task.write_answers(model.weights, examples, predictions, source := StringIO())
            source.seek(0)
            source.name = name = f"what model {number + 1} writes"
    if options.pictures:
        model.task.draw(examples, predictions, Path(options.pictures))
    with answers(output) as stream:
        _write(options, model, examples, predictions, stream)


def _answer(options: Namespace, model: TrainedModel, output: str | None) -> None:
    """Write the predictions of what comes by standard input, as it comes."""
    form, stream = "", None
    with ExitStack() as opened:
        for source in model.task.arriving(sys.stdin, options.text):
            name = source_name(source)
            examples = model.task.read_text(source) if options.text else model.task.read(source)
            before, form = form, form_of(examples)
            if stream is None:
                note_form(name, examples)
            elif form != before:
                raise ValueError(f"{name}: read as {form}, and what came before as {before}: give all of it in a file")
            if options.gazetteer:
                examples = model.task.restricted(examples, options.gazetteer)
            with located(name):
                predictions = model.alternatives(examples, 1)
            stream = stream or opened.enter_context(answers(output))  # a file stays as it was if nothing can be read
            _write(options, model, examples, predictions, stream)
            stream.flush()


@contextmanager
def answers(output: str | None) -> Iterator[TextIO]:
    """The file, or standard output, that answers are written to."""
    if output is None:
        yield sys.stdout
        return
    with writing(output), open(output, "w", encoding="utf-8") as stream:
        yield stream


def add_predict(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Arguments of the command."""
    add_model(parser)
    help_files = "further models, each for what the one before it writes, and last the data (default: standard input)"
    parser.add_argument("files", metavar="FILE", nargs="*", help=help_files)
    help_text = "the data are lines of text, each a sentence (default: found out from the data)"
    parser.add_argument("--text", action="store_true", help=help_text)
    help_split = "find the sentences of texts, too, as in the training data (default: each line of text is a sentence)"
    parser.add_argument("--split-sentences", action="store_true", help=help_split)
    help_top = "write the K best outputs with their scores; in column files the best is the first added column"
    add_flags(parser, "files of text, by default as their first lines are", Reading)
    parser.add_argument("--top", type=int, default=1, metavar="K", help=help_top)
    help_threshold = "of alignment: write all links that are at least this probable (default: as in training)"
    parser.add_argument("--threshold", type=float, metavar="P", help=help_threshold)
    parser.add_argument("--output", metavar="FILE", help="where to write (default: standard output)")
    parser.add_argument("--json", action="store_true", help="write a line of JSON for each example")
    help_marginals = "with --json: also the probability of each label at each position, of taggers and segments"
    parser.add_argument("--marginals", action="store_true", help=help_marginals)
    add_gazetteer(parser)
    parser.add_argument("--masks", metavar="DIR", help="with --json: also save masks of images as PNG files")
    parser.add_argument("--pictures", metavar="DIR", help="also save pictures of the predictions")


def add_gazetteer(parser: ArgumentParser) -> None:
    """What is known of phrases, for predictions and their measures."""
    help_gazetteer = "phrases that are entities wherever they occur: in each line a phrase, a tab and a type"
    parser.add_argument("--gazetteer", metavar="FILE", help=help_gazetteer)


def as_read(model: TrainedModel, reading: Reading, columns_of_training: bool = True) -> TrainedModel:
    """A model whose task reads files as a command says, or as in training."""
    task, given = model.task.task, vars(reading)
    if missing := [name for name, value in given.items() if value is not None and name not in vars(task)]:
        raise ValueError(f"--{missing[0].replace('_', '-')}: {type(task).__name__} has no such choice for its files")
    # Choices that are not given stay those of training, or are found out from the file anew; an encoding always stays.
    kept = given if columns_of_training else ["encoding"]
    changed = [name for name in given if name in vars(task) and not (given[name] is None and name in kept)]
    return replace(model, task=replace(model.task, task=replace(task, **{name: given[name] for name in changed})))


def _write(
    options: Namespace, model: TrainedModel, examples: Sequence[Any], predictions: Predictions, stream: TextIO
) -> None:
    if options.json:
        masks = Path(options.masks) if options.masks else None
        marginals = None
        if options.marginals:
            marginals = probabilistic(model.task, "--marginals").marginals(model.weights, examples)
        write_json_lines(model.task, examples, predictions, stream, masks, model.weights, marginals)
    else:
        model.task.write_answers(model.weights, examples, predictions, stream)


def evaluate(options: Namespace) -> int:
    """Measure a trained model on a labelled file."""
    model = as_read(loaded(options.model, options), from_flags(Reading, options))
    examples = HeldOut.read(model.task, options.file, "test").examples
    if options.gazetteer:
        examples = model.task.restricted(examples, options.gazetteer)
    with stage(f"predicting {counted(len(examples), 'example')}"):
        outputs = model.predict(examples)
    tables = [model.task.measure(examples, outputs)[1]]
    if options.measure:
        tables += ["", str(probabilistic(model.task, "--measure").measure_overlaps(examples, outputs))]
    print("\n".join(tables))
    return 0


def export(options: Namespace) -> int:
    """Write a trained model for programs that lack this library."""
    model, output = loaded(options.model, options), Path(options.output)
    if options.format == "numpy":
        model.task.write_standalone(model.weights, output)
    else:
        model.task.write_exported(model.weights, output, options.format)
    return 0


def add_export(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Arguments of the command."""
    add_model(parser)
    help_format = (
        "onnx and pt2: for segments, a file with all that predict does, from samples; numpy: for taggers, a "
        "folder with the weights and a program in Python and numpy; onnx: for taggers with an encoder, a folder with "
        "their network and a program in Python, onnxruntime and tokenizers"
    )
    parser.add_argument("--format", required=True, choices=("onnx", "pt2", "numpy"), help=help_format)
    parser.add_argument("--output", metavar="PATH", required=True, help="the file or folder to write")


def info(options: Namespace) -> int:
    """Describe the model in a directory."""
    description = describe(options.model)
    for name in ("structsmooth", "task", "n", "lam", "message"):
        print(f"{name:13} {description[name]}")
    for name, value in description["settings"].items():
        print(f"  {name:20} {value}")
    if temperature := description["trained"].get("temperature"):
        print(f"{'temperature':13} {temperature:.4g}")
    for split, metrics in description["metrics"].items():
        print(f"{split:13} " + "  ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    return 0


def certify(options: Namespace) -> int:
    """Print a bound on how far a trained model is from the optimum, by passes over its training data."""
    model = loaded(options.model, options)
    description, settings = model.description, model.description["settings"]
    if "train checksum" not in settings:
        raise ValueError(f"{options.model} was trained in Python: certify it there, by structsmooth.certify")
    if checksum(settings["train"]) != settings["train checksum"]:
        raise ValueError(f"{settings['train']} is not what {options.model} was trained on: it has changed since")
    problem = model.task.problem(read_examples(model.task, settings["train"], "train"))
    limits = {"passes": options.passes, "seed": options.seed}
    with stage(f"bounding the optimum, by up to {options.passes} passes over {problem.n:,} examples"):
        certificate = solvers.certify(problem, model.weights, description["lam"], accuracy=options.accuracy, **limits)
    print(certificate)
    if certificate.reference_gap > options.accuracy * certificate.gap:
        print("the lower bound can be better: more --passes may raise it", file=sys.stderr)
    return 0


def add_certify(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Arguments of the command."""
    add_model(parser)
    parser.add_argument("--accuracy", type=float, default=0.1, help="relative accuracy of the distance (default: 0.1)")
    parser.add_argument("--passes", type=int, default=100, help="limit on passes over the data (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same certificate (default: 0)")


def show(options: Namespace) -> int:
    """Write a page about a trained model: its training, results, worst examples, and what it has learned."""
    from structsmooth.report import write_report  # with what draws figures

    if options.examples < 0:
        raise ValueError(f"--examples must be at least 0, got {options.examples}")
    if (options.errors or options.folds is not None) and not options.file:
        raise ValueError("--errors and --folds need a file with labels: structsmooth show DIR FILE --errors")
    model, folder = loaded(options.model, options), Path(options.model)
    if options.folds is not None:
        probabilistic(model.task, "--folds")
    recorded = folder / "history.jsonl"
    history = History.load(recorded) if recorded.is_file() else None
    examples: Sequence[Any] = ()
    if options.file:
        examples = read_examples(model.task, options.file, "test")
    form = form_of(examples)
    source = f"{options.file} ({form})" if form else options.file or ""
    page = Path(options.output) if options.output else folder / "report.html"
    with stage("measuring and drawing"):
        parts = (
            folds(model.task.task.texts(examples), len(examples), options.folds, 0) if options.folds is not None else []
        )
        how = {"count": options.examples, "source": source, "errors": options.errors, "folds": parts}
        write_report(model, page, history=history, examples=examples, **how)
    print(f"saved {page} ({page.stat().st_size / 1e6:.1f} MB)")
    return 0


def add_show(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Arguments of the command."""
    add_model(parser)
    parser.add_argument("file", metavar="FILE", nargs="?", help="labelled data to measure and show examples of")
    help_examples = "examples to show of the most wrong and of the most uncertain ones (default: 5)"
    parser.add_argument("--examples", type=int, default=5, metavar="N", help=help_examples)
    help_errors = "also the most confident mistakes, what is found in part, and what is taken for what; needs FILE"
    parser.add_argument("--errors", action="store_true", help=help_errors)
    help_folds = (
        "also likely mistakes of the labels of FILE: what models of K - 1 of K folds of it are surest of against "
        "them; trains K times"
    )
    parser.add_argument("--folds", type=int, metavar="K", help=help_folds)
    parser.add_argument("--output", metavar="PAGE", help="the page (default: DIR/report.html)")


def add_evaluate(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Arguments of the command."""
    add_model(parser)
    parser.add_argument("file", metavar="FILE", help="labelled data in the layout of the training data")
    help_measure = (
        "also measure entities that are found in part (strict, exact, partial, type), and which types are confused"
    )
    parser.add_argument("--measure", choices=["partial"], help=help_measure)
    add_gazetteer(parser)
    add_flags(parser, "files of text, by default as their first lines are", Reading)


def add_info(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="DIR", help=_HELP_MODEL)


def add_model(parser: ArgumentParser) -> None:
    """The model of a command, and its task if it is none of the package."""
    parser.add_argument("model", metavar="DIR", help=_HELP_MODEL)
    help_task = "the model's task if it is your own, as package.module:ClassName; its code is executed"
    parser.add_argument("--task", metavar="TASK", help=help_task)


def loaded(folder: str, options: Namespace) -> TrainedModel:
    """The model in a folder; only a task that the arguments name is imported beside those of the package."""
    return load(folder, None if options.task is None else load_task(options.task))
