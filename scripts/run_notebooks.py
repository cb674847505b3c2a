"""Execute the notebooks of the documentation, and store their outputs in them."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def executed(path: Path) -> Any:
    """The notebook with fresh outputs; the first cell that fails is an error.

    Times of execution are not stored, so that a notebook that prints the same stays the same.
    """
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=600, record_timing=False).execute()
    return notebook


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute the named notebooks, or all."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="such as tagging (default: all)")
    names = parser.parse_args(arguments).names or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        path = FOLDER / f"{name}.ipynb"
        if not path.exists():
            parser.error(f"there is no notebook {path}")
        nbformat.write(executed(path), path)  # type: ignore[no-untyped-call]
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
