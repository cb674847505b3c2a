"""Train a task's model, as ``structsmooth train`` does: ``python scripts/train.py ner --out runs/ner``."""

import sys

from structsmooth.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
