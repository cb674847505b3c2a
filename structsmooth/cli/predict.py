"""The command that predicts the outputs of a file."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

from structsmooth.cli.stages import counted, stage
from structsmooth.files import read_lines
from structsmooth.tasks import FittedTask
from structsmooth.tasks.base import Predictions
from structsmooth.tasks.json_lines import write_json_lines
from structsmooth.tasks.trained import load

# What tasks override that have files of a kind.
_METHODS = {"pictures": "draw", "masks": "save_mask"}


def predict(options: Namespace) -> int:
    """Predict the outputs of a file, or of standard input."""
    if options.top < 1:
        raise ValueError(f"--top must be at least 1, got {options.top}")
    if options.masks and not options.json:
        raise ValueError("--masks needs --json, whose lines name the files")
    model = load(options.model)
    for flag, method in _METHODS.items():
        if getattr(options, flag) and getattr(type(model.task), method) is getattr(FittedTask, method):
            raise ValueError(f"--{flag}: {type(model.task.task).__name__} has no {flag}")
    with stage(f"reading {'standard input' if options.file == '-' else options.file}"):
        examples = _read(model.task, options.file, options.text)
    with stage(f"predicting {counted(len(examples), 'example')}"):
        predictions = model.alternatives(examples, options.top)
    if options.pictures:
        model.task.draw(examples, predictions, Path(options.pictures))
    with open(options.output, "w", encoding="utf-8") if options.output else nullcontext(sys.stdout) as stream:
        _write(options, model.task, examples, predictions, stream)
    return 0


def add_predict(parser: ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="DIR", help="model directory, the --out of structsmooth train")
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="data (default: standard input)")
    help_text = "the data are lines of text, each a sentence (default: found out from the data)"
    parser.add_argument("--text", action="store_true", help=help_text)
    help_top = "write the K best outputs with their scores; in column files the best is the first added column"
    parser.add_argument("--top", type=int, default=1, metavar="K", help=help_top)
    parser.add_argument("--output", metavar="FILE", help="where to write (default: standard output)")
    parser.add_argument("--json", action="store_true", help="write a line of JSON for each example")
    parser.add_argument("--masks", metavar="DIR", help="with --json: also save masks of images as PNG files")
    parser.add_argument("--pictures", metavar="DIR", help="also save pictures of the predictions")


def _read(task: FittedTask, file: str, text: bool) -> Sequence[Any]:
    """The examples of a file or of standard input."""
    if not text:
        return task.read(sys.stdin if file == "-" else file)
    if not task.takes_text:
        raise ValueError(f"--text: {type(task.task).__name__} does not take lines of text")
    lines = sys.stdin if file == "-" else read_lines(file)
    return task.examples([line for line in lines if line.strip()])


def _write(
    options: Namespace, task: FittedTask, examples: Sequence[Any], predictions: Predictions, stream: TextIO
) -> None:
    if options.json:
        write_json_lines(task, examples, predictions, stream, Path(options.masks) if options.masks else None)
    else:
        task.write(examples, predictions, stream)
