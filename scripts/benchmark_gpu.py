"""The table of a GPU, run as a file, as on the machines that have one: ``python -m scripts gpu`` runs the same."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # a file that runs finds only what is beside it

from scripts.benchmarks.gpu import main

if __name__ == "__main__":
    raise SystemExit(main())
