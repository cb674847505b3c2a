"""The commands that check and convert annotated files."""

import os
import sys
import warnings
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from structsmooth.cli.flags import add_flags, from_flags
from structsmooth.cli.report import markdown_table
from structsmooth.messages import bounded, stage
from structsmooth.tasks import NER
from structsmooth.tasks.text.tagging import Tagging
from structsmooth.text.annotated import Form, read_documents, write_documents
from structsmooth.text.findings import Contents, Finding, findings
from structsmooth.text.forms import Reading


def check(options: Namespace) -> int:
    """Check annotated files before training: what each is read as, its labels, and what may spoil scores.

    The first file is to train on; others are compared with it. The exit code is 1 if a file cannot be read.
    """
    task = from_flags(NER, options)
    read = {path: _contents(task, path) for path in options.files}
    files = {path: contents for path, contents in read.items() if isinstance(contents, Contents)}
    unreadable = [found for found in read.values() if isinstance(found, Finding)]
    sizes = [
        [path, c.corpus.form, f"{len(c.corpus):,}", f"{len(c.corpus.tokens):,}", c.scheme or "plain"]
        for path, c in files.items()
    ]
    if files:
        print(markdown_table(["file", "read as", "sentences", "words", "tags"], sizes, 2))
        labels = sorted({label for contents in files.values() for label in contents.labels})
        counts = [[label, *(f"{contents.labels[label]:,}" for contents in files.values())] for label in labels]
        print("\n" + markdown_table(["label", *files], counts))
    found = [*unreadable, *(findings(files) if files else ())]
    print("\n" + (markdown_table(["file", "finding", "next step"], found, 3) if found else "nothing to mend"))
    return int(bool(unreadable))


def _contents(task: Tagging, path: str) -> Contents | Finding:
    """What a file has, or why it cannot be read."""
    try:
        with stage(f"reading {path}"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the table says it
            return Contents(task.read(path), task.plain, task.unknown)
    except (ValueError, OSError) as error:
        return Finding(path, f"cannot be read: {bounded(str(error))}", "do as the message says")


def add_check(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Add the flags of the command."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="files that train reads, the one to train on first")
    parser.add_argument("--column", help="column of CoNLL-U that has the tags, such as misc:NER, or number of a column")
    parser.add_argument("--scheme", choices=["plain"], help="tags are any, such as parts of speech, and no entities")
    parser.add_argument("--unknown", metavar="TAG", help="what stands in the place of unknown tags")
    add_flags(parser, "files of text, by default as their first lines are", Reading)


def convert(options: Namespace) -> int:
    """Convert annotated texts from one form to another.

    The input is JSON of doccano, prodigy, spaCy, Label Studio or Hugging Face, lines of it or a list; the TSV of
    WebAnno; a text with a file of brat (``.ann``) beside it, or a folder of such; CoNLL-U; or columns.
    """
    if os.path.exists(options.output) and os.path.samefile(options.input, options.output):
        raise ValueError(f"{options.output} is the file to read: give another one to write")
    documents = read_documents(options.input, from_flags(Reading, options), options.column, is_text=options.text)
    misaligned = list[str]()
    write_documents(documents, options.output, options.to, misaligned)
    labels = Counter(span.label for document in documents for span in document.spans or ())
    listed = ", ".join(f"{label} {count}" for label, count in labels.most_common())
    print(f"{options.output}: {len(documents)} texts, {labels.total()} entities ({listed or 'none'})", file=sys.stderr)
    if misaligned:
        shown = f"such as {misaligned[0]!r}"
        print(f"{len(misaligned)} entities end inside of tokens, {shown}: these tokens are split", file=sys.stderr)
    return 0


def add_convert(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Add the flags of the command."""
    parser.add_argument("input", help="an annotated file, or a folder of brat")
    parser.add_argument("output", help="the file to write")
    parser.add_argument("--to", required=True, choices=get_args(Form), help="form of the output")
    parser.add_argument("--text", action="store_true", help="the input are lines of text, each one without annotations")
    parser.add_argument("--column", help="column of CoNLL-U that has the tags, such as misc:NER")
    add_flags(parser, "files of text, by default as their first lines are", Reading)
