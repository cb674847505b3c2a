"""Draw the pictures of docs/gallery.md.

Examples are generated, except for named entities, whose data the package has: other data sets do not state a licence
that would let us show them. Results of tasks are what ``structsmooth show`` draws, as Chromium renders it.
"""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import torch

from scripts.gallery import solvers, structures, tasks
from structsmooth.files import DATA_VARIABLE


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the pictures into a folder."""
    parser = ArgumentParser("python -m scripts.gallery", description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", default="docs/gallery", metavar="DIR", help="folder of the pictures")
    parser.add_argument("--only", choices=("structures", "tasks", "solvers"), help="draw these alone")
    help_data = f"folder with the weights of the network of localization (default: the one that {DATA_VARIABLE} names)"
    parser.add_argument("--data", metavar="DIR", help=help_data)
    options = parser.parse_args(arguments)
    if options.data:
        os.environ[DATA_VARIABLE] = options.data
    torch.manual_seed(0)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    for part in (structures, tasks, solvers):
        if options.only in (None, part.__name__.rpartition(".")[2]):
            part.draw_all(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
