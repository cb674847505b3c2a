"""Train a task, as ``structsmooth train`` does, for launchers that take a file: ``torchrun scripts/train.py ner``."""

import sys
from collections.abc import Sequence

from structsmooth.cli import main as structsmooth


def main(arguments: Sequence[str] | None = None) -> int:
    """The command ``structsmooth train``."""
    return structsmooth(["train", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    raise SystemExit(main())
