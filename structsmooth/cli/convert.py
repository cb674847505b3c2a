"""The command that converts annotated files."""

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from structsmooth.cli.flags import add_flags, from_flags
from structsmooth.text.annotated import Form, read_documents, write_documents
from structsmooth.text.forms import Reading


def convert(options: Namespace) -> int:
    """Convert annotated texts from one form to another.

    The input is JSON of doccano, prodigy, spaCy, Label Studio or Hugging Face, lines of it or a list; a text with a
    file of brat (``.ann``) beside it, or a folder of such; CoNLL-U; or columns.
    """
    documents = read_documents(options.input, from_flags(Reading, options), options.column)
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
    parser.add_argument("--column", help="column of CoNLL-U that has the tags, such as misc:NER")
    add_flags(parser, "files of text, by default as their first lines are", Reading)
