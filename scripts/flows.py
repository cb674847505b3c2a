"""The files and functions that three flows pass through: a hinge's backward pass, ProxLinear, and training a tagger.

    python -m scripts.flows
    python -m scripts.flows hinge --functions

Compiled loops run as Python, so that they are seen. What imports run is not counted.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

os.environ["NUMBA_DISABLE_JIT"] = "1"

import torch

from scripts.harness import command, option
from structsmooth import LinearChain, LinearScore, ModuleProblem, ProxLinear, StructuralHinge
from structsmooth.cli import main as structsmooth

ROOT = Path(__file__).resolve().parents[1]
HOUSE = tuple(str(ROOT / part) + os.sep for part in ("structsmooth", "models", "tasks"))
ROWS = "Ada B-PER\nmet O\nBo B-PER\n\nshe O\nleft O\n"


def hinge() -> None:
    """The gradient of a structural hinge over chains."""
    unary = torch.zeros(2, 3, 2, requires_grad=True)
    StructuralHinge()(LinearChain(unary, torch.zeros(2, 2)), torch.zeros(2, 3, dtype=torch.int64)).backward()


def prox_linear() -> None:
    """Two passes over four sequences."""
    examples = [(torch.zeros(3, 2, dtype=torch.float64), torch.tensor([0, 1, 0])) for _ in range(4)]
    ProxLinear().solve(ModuleProblem(LinearScore(2, 2), examples), lam=0.1, passes=2)


def train_ner() -> None:
    """The command, on two sentences; SGD, since packed statistics of dual solvers do not run as Python."""
    with TemporaryDirectory() as folder:
        (data := Path(folder, "train.txt")).write_text(ROWS)
        run = f"--train {data} --passes 2 --bits 6 --solver sgd --out {folder}/run --quiet"
        structsmooth(["train", "ner", *run.split()])


FLOWS: dict[str, Callable[[], None]] = {"hinge": hinge, "prox-linear": prox_linear, "train-ner": train_ner}


def walked(flow: Callable[[], None]) -> set[CodeType]:
    """The functions of the house that a flow calls, when it has run once before."""
    flow()  # imports, and what is built once
    found = set[CodeType]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOUSE):
            found.add(frame.f_code)

    sys.setprofile(note)
    try:
        flow()
    finally:
        sys.setprofile(None)
    return found


@command(
    option("flows", None, "all, if none is named", nargs="*", metavar="FLOW"),
    option("--functions", False, "also print files and functions"),
    threads=None,
)
def main(options: Namespace) -> None:
    """Print a line for each flow."""
    for name in options.flows or FLOWS:
        found = walked(FLOWS[name])
        files = sorted({code.co_filename for code in found})
        print(f"{name}: {len(files)} files, {len(found)} functions")
        for file in files if options.functions else ():
            functions = sorted(code.co_name for code in found if code.co_filename == file)
            print(f"  {Path(file).relative_to(ROOT)}: {', '.join(functions)}")


if __name__ == "__main__":
    raise SystemExit(main())
