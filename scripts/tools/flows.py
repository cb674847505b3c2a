"""What four calls pass through: files, functions, and which share of the lines of these files is that of functions.

The calls are a loss of the layer of the README with its gradient, by likelihood and by hinge, the README's solver, and
the first command of the README, with its defaults. Each is made twice, with compiled loops, and what counts is what
Python enters of the library the second time. A function's lines are those from its first decorator to the last that
runs.

    python -m scripts flows
    python -m scripts flows hinge --functions
"""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from scripts.shared.harness import command, option
from structsmooth import LinearChain, LinearModuleProblem, LinearScore, ProximalBCFW, StructuralHinge
from structsmooth.cli import main as structsmooth

ROOT = Path(__file__).parents[2]
HOUSE = tuple(str(ROOT / part) + os.sep for part in ("structsmooth", "models", "tasks"))


def layer(loss: StructuralHinge) -> Callable[[], None]:
    """A step of the layer of the README."""
    x = torch.randn(32, 10, 8)
    y, scores, transition = x[..., :3].argmax(-1), torch.nn.Linear(8, 3), torch.nn.Parameter(torch.zeros(3, 3))
    return lambda: loss(LinearChain(scores(x), transition), y).backward()


def proximal_bcfw() -> Callable[[], object]:
    """The solver of the README."""
    x = torch.randn(32, 10, 8, dtype=torch.float64)
    problem = LinearModuleProblem(LinearScore(8, 3), list(zip(x, x[..., :3].argmax(-1), strict=True)))
    return lambda: ProximalBCFW(gap_tolerance=0.01).solve(problem, lam="1/n", passes=200)


def train_ner() -> None:
    """The first command of the README."""
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        structsmooth(["train", "ner", "--words-only", "--quiet", "--out", f"{folder}/run"])


FLOWS: dict[str, Callable[[], Callable[[], object]]] = {
    "crf": lambda: layer(StructuralHinge.crf()),
    "hinge": lambda: layer(StructuralHinge()),
    "proximal-bcfw": proximal_bcfw,
    "train-ner": lambda: train_ner,
}


class Walk(NamedTuple):
    """The functions of the library that a flow enters, by their files."""

    functions: dict[Path, set[CodeType]]

    @property
    def lines(self) -> int:
        """Lines of the files."""
        return sum(len(file.read_bytes().splitlines()) for file in self.functions)

    @property
    def entered(self) -> int:
        """Lines of the functions; those of a function inside of another count once."""
        return sum(len(set[int]().union(*map(lines_of, codes))) for codes in self.functions.values())

    @property
    def counts(self) -> tuple[int, int, int, int, float]:
        """Files, functions, lines of both, and their share."""
        functions = sum(map(len, self.functions.values()))
        return len(self.functions), functions, self.lines, self.entered, self.entered / self.lines


def lines_of(code: CodeType) -> range:
    """The lines of a function, or of an expression that runs as one, with those of functions inside of it."""
    own = [line for *_, line in code.co_lines() if line is not None]
    inner = [lines_of(part)[-1] for part in code.co_consts if isinstance(part, CodeType)]
    return range(code.co_firstlineno, max(own + inner) + 1)


def walk(flow: Callable[[], object]) -> Walk:
    """What a call enters, when it has been made once before."""
    flow()  # imports, compiles, and builds what is built once
    found = set[CodeType]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found.add(frame.f_code)

    sys.setprofile(note)
    try:
        flow()
    finally:
        sys.setprofile(None)
    own = sorted((code for code in found if code.co_filename.startswith(HOUSE)), key=lambda code: code.co_filename)
    return Walk({Path(file): set(codes) for file, codes in groupby(own, lambda code: code.co_filename)})


@command(
    option("flows", None, "all, if none is named", nargs="*", metavar="FLOW"),
    option("--functions", False, "also print files and functions"),
    table=["flow", "files", "functions", "lines of the files", "of the functions", "share"],
)
def main(options: Namespace) -> Iterator[list[str]]:
    """A row for each flow."""
    for name in options.flows or FLOWS:
        found = walk(FLOWS[name]())
        for file, functions in sorted(found.functions.items()) if options.functions else ():
            print(f"{file.relative_to(ROOT)}: {', '.join(sorted(code.co_name for code in functions))}")
        *counts, share = found.counts
        yield [name, *(f"{count:,}" for count in counts), f"{share:.0%}"]
