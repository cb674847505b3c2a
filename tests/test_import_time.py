"""Importing the library is cheap: dependencies that only parts of it need are imported on first use."""

import subprocess
import sys

DEFERRED = {"matplotlib", "numba", "rich", "scipy", "sklearn", "torchvision"}


def test_import_defers_heavy_dependencies():
    code = "import sys, structsmooth; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert DEFERRED.isdisjoint(imported.split())
