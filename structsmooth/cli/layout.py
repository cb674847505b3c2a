"""How commands look: their names, examples and the layout of help, and the flags of what they say and log."""

from argparse import ArgumentParser, HelpFormatter, Namespace
from itertools import groupby
from typing import NamedTuple

from structsmooth.messages import Verbosity

# Flags of what is said and logged, which runs do not depend on.
PRESENTATION = {"quiet", "verbose", "log_json", "csv", "tensorboard"}


class Command(NamedTuple):
    """A command: the module that has it, the first line of its help, and an example."""

    module: str
    help: str
    example: str


COMMANDS = {
    "train": Command(
        "train",
        "Train a model for a task and save it; --resume continues an interrupted run.",
        "structsmooth train ner --train train.txt --test test.txt --out runs/mine",
    ),
    "tune": Command(
        "tune",
        "Choose options of train by cross-validation, or on development data.",
        "structsmooth tune ner --train train.txt --folds 5 --lam 1/n 10/n 100/n",
    ),
    "compare": Command(
        "compare",
        "Run solvers side by side on one problem, and plot and tabulate their progress.",
        "structsmooth compare ner --solvers proximal-bcfw,sgd --lams 10/n,1/n",
    ),
    "path": Command(
        "path",
        "Compute the solutions of a task for all λ of a range, and measure them.",
        "structsmooth path ocr --epsilon 0.1 --out runs/path",
    ),
    "certify": Command(
        "trained",
        "Print a bound on how far a trained model is from the optimum, by passes over its training data.",
        "structsmooth certify runs/mine --accuracy 0.01",
    ),
    "show": Command(
        "trained",
        "Write a page about a trained model: its training, results, worst examples, and what it has learned.",
        "structsmooth show runs/mine test.txt --examples 10",
    ),
    "doctor": Command(
        "doctor",
        "Check the installation: versions, devices, threads, caches, data and a self-test.",
        "structsmooth doctor --json",
    ),
    "predict": Command(
        "trained",
        "Predict the outputs of a file, or of standard input.",
        "structsmooth predict runs/mine new.txt --top 3 --output tagged.txt",
    ),
    "evaluate": Command(
        "trained", "Measure a trained model on a labelled file.", "structsmooth evaluate runs/mine test.txt"
    ),
    "suggest": Command(
        "unlabelled",
        "Write what to annotate next: the examples that a model is least sure of, with its predictions.",
        "structsmooth suggest runs/mine pool.jsonl --count 50 --out next.jsonl",
    ),
    "drift": Command(
        "unlabelled",
        "Say whether new data differ from known data in what a model makes of them.",
        "structsmooth drift runs/mine new.jsonl --fail-below 0.001",
    ),
    "check": Command(
        "annotated",
        "Check annotated files before training: what each is read as, its labels, and what may spoil scores.",
        "structsmooth check train.jsonl test.conll",
    ),
    "convert": Command(
        "annotated",
        "Convert annotated texts from one form to another.",
        "structsmooth convert annotated.jsonl train.conll --to conll",
    ),
    "export": Command(
        "trained",
        "Write a trained model for programs that lack this library.",
        "structsmooth export runs/mine --format numpy --output tagger",
    ),
    "info": Command("trained", "Describe the model in a directory.", "structsmooth info runs/mine"),
}


class Layout(HelpFormatter):
    """The layout of all commands."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = []
        for keep, lines in groupby(text.splitlines(), key=lambda line: not line or line.startswith("  ")):
            part = "\n".join(lines)
            parts.append(part if keep else super()._fill_text(part, width, indent))
        return "\n".join(parts)


def add_log_flags(parser: ArgumentParser, what: str = "pass") -> None:
    """A flag for each kind of log, whose records are of ``what``."""
    group = parser.add_argument_group(f"logs, written after each {what}")
    group.add_argument("--log-json", metavar="FILE", help=f"a line of JSON for each {what}; - is standard error")
    group.add_argument("--csv", metavar="FILE", help=f"a table with a row for each {what}")
    help_events = "event files, those of several runs in folders (pip install 'structsmooth[tensorboard]')"
    group.add_argument("--tensorboard", metavar="DIR", help=help_events)


def add_verbosity_flags(parser: ArgumentParser) -> None:
    """Flags of commands that may take long."""
    group = parser.add_argument_group("messages on standard error")
    level = group.add_mutually_exclusive_group()
    level.add_argument("--quiet", action="store_true", help="errors alone: no stages and no progress bars")
    level.add_argument("--verbose", action="store_true", help="also each pass, and the time of each stage")


def chosen_verbosity(options: Namespace) -> Verbosity:
    """The level that flags ask for."""
    if getattr(options, "quiet", False):
        return Verbosity.QUIET
    return Verbosity.VERBOSE if getattr(options, "verbose", False) else Verbosity.NORMAL
