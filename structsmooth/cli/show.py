"""The command that makes a page about a trained model."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from structsmooth.cli.stages import stage
from structsmooth.history import History
from structsmooth.report import write_report
from structsmooth.tasks.trained import load


def show(options: Namespace) -> int:
    """Write a page about a trained model: its training, results, worst examples, and what it has learned."""
    if options.examples < 0:
        raise ValueError(f"--examples must be at least 0, got {options.examples}")
    model, folder = load(options.model), Path(options.model)
    recorded = folder / "history.jsonl"
    history = History.load(recorded) if recorded.is_file() else None
    examples: Sequence[Any] = ()
    if options.file:
        with stage(f"reading {options.file}"):
            examples = model.task.read(options.file, "test")
    page = Path(options.output) if options.output else folder / "report.html"
    with stage("measuring and drawing"):
        write_report(model, page, history=history, examples=examples, count=options.examples, source=options.file or "")
    print(f"saved {page} ({page.stat().st_size / 1e6:.1f} MB)")
    return 0


def add_show(parser: ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="DIR", help="model directory, the --out of structsmooth train")
    parser.add_argument("file", metavar="FILE", nargs="?", help="labelled data to measure and show examples of")
    help_examples = "examples to show of the most wrong and of the most uncertain ones (default: 5)"
    parser.add_argument("--examples", type=int, default=5, metavar="N", help=help_examples)
    parser.add_argument("--output", metavar="PAGE", help="the page (default: DIR/report.html)")
