"""Draw the pictures of docs/gallery.md, and that of the first page.

Examples are generated, except for named entities, whose data the package has: other data sets do not state a licence
that would let us show them. Results of tasks are what ``structsmooth show`` draws, as Chromium renders it.
"""

import os
from argparse import Namespace
from pathlib import Path

import torch

from scripts.gallery import front, solvers, structures, tasks
from scripts.shared.harness import command, option
from structsmooth.files import DATA_VARIABLE


@command(
    option("--out", "docs/gallery", "folder of the pictures", metavar="DIR"),
    option("--only", None, "draw these alone", choices=("structures", "tasks", "solvers", "front")),
    option("--data", None, f"folder with the network of localization, if not that of {DATA_VARIABLE}", metavar="DIR"),
    threads=None,
    program="python -m scripts gallery",
)
def main(options: Namespace) -> None:
    """Draw the pictures into a folder."""
    if options.data:
        os.environ[DATA_VARIABLE] = options.data
    torch.manual_seed(0)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    for part in (structures, tasks, solvers, front):
        if options.only in (None, part.__name__.rpartition(".")[2]):
            part.draw_all(folder)


if __name__ == "__main__":
    raise SystemExit(main())
