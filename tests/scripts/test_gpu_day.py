"""The script for a machine with a GPU goes on after a step that fails, and says so in a line."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# In place of Python: two steps fail, and there is no GPU.
STUB = """#!/bin/sh
case "$*" in
  *is_available*) ;;
  *doctor*) echo "something is wrong"; exit 3 ;;
  *test_contract*) echo "FAILED tests/one.py::test"; exit 1 ;;
  *) echo "ran $#" ;;
esac
"""


@pytest.mark.skipif(os.name == "nt", reason="needs bash")
def test_failing_steps_are_lines(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(STUB)
    python.chmod(0o755)
    ran = subprocess.run(
        ["bash", ROOT / "scripts" / "tools" / "gpu_day.sh", tmp_path / "out"],
        env={**os.environ, "PYTHON": str(python), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    lines = (tmp_path / "out" / "steps.txt").read_text().splitlines()
    assert lines[1] == "no GPU: a rehearsal"
    words = {line.partition(" ")[0]: line.partition(": ")[2] for line in lines if "s): " in line}
    assert words["doctor"] == "FAILED: something is wrong"
    assert words["contracts"] == "FAILED: FAILED tests/one.py::test"
    assert "FAILED tests/one.py::test" in lines
    assert all(words[name].startswith("ok: ran") for name in ("versions", "kernels", "solvers", "compiled", "table"))
    assert (tmp_path / "out" / "kernels.txt").read_text().startswith("ran")
