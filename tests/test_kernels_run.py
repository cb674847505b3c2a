"""Kernels for GPUs, without a GPU: Triton interprets them, which it must be told at its import, in a process each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from structsmooth.compiled.gpu import HAS_TRITON

TESTS = Path(__file__).parent


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton, which comes with torch on Linux")
@pytest.mark.parametrize("suite", ["not long", pytest.param("long", marks=pytest.mark.long)])
@pytest.mark.parametrize("file", ["chains.py", "programs.py"])
def test_interpreted(file: str, suite: str) -> None:
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
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout
    assert " skipped" not in ran.stdout  # what needs the interpreter has it
