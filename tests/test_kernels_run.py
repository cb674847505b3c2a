"""What runs on GPUs, without one, in a process each: kernels in Triton's interpreter, solvers on a device in Python.

Triton must be told at its import, and torch before its first backward pass.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from card import needs_card

from structsmooth.compiled.gpu import HAS_TRITON

TESTS = Path(__file__).parent

suites = pytest.mark.parametrize("suite", ["not long", pytest.param("long", marks=pytest.mark.long)])


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton, which comes with torch on Linux")
@suites
@pytest.mark.parametrize("file", ["chains.py", "programs.py"])
def test_interpreted(file: str, suite: str) -> None:
    run(file, suite, "1")


@needs_card
@suites
def test_solvers(suite: str) -> None:
    run("solvers.py", suite, "0")


def run(file: str, suite: str, interpret: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-m",
        suite,
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        TESTS / "interpreted" / file,
    ]
    environment = {**os.environ, "TRITON_INTERPRET": interpret, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout
    assert " skipped" not in ran.stdout  # what needs the interpreter has it
