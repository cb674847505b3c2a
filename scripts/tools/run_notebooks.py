"""Execute the notebooks of the documentation, and store their outputs in them."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from scripts.shared.harness import RequestError, command, option

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"


def executed(path: Path) -> Any:
    """The notebook with fresh outputs; the first cell that fails is an error.

    Times of execution are not stored, so that a notebook that prints the same stays the same.
    """
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=600, record_timing=False).execute()
    return notebook


@command(option("names", None, "such as tagging (default: all)", nargs="*"), threads=None)
def main(options: Namespace) -> None:
    """Execute the named notebooks, or all."""
    for name in options.names or sorted(path.stem for path in FOLDER.glob("*.ipynb")):
        path = FOLDER / f"{name}.ipynb"
        if not path.exists():
            raise RequestError(f"there is no notebook {path}")
        nbformat.write(executed(path), path)  # type: ignore[no-untyped-call]
        print(path)
