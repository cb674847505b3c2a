"""Builds a wheel that carries machine code of what the README runs, which is then compiled nowhere.

The code is for levels of processors, and of the Python, numba and llvmlite that run this; others compile as from any
wheel.

    python -m scripts wheel --levels x86-64-v3 x86-64-v4 --out dist
"""

import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from scripts.benchmarks.first_use import ROOT, jobs, run, training
from scripts.shared.harness import command, option
from structsmooth.compiled import carried

_PARTS = ("structsmooth", "models", "tasks")
_FILES = ("pyproject.toml", "README.md", "LICENSE")
_BUILD = """
import sys
from setuptools import build_meta
build_meta.build_wheel(sys.argv[1], {"--build-option": sys.argv[2:]})
"""


@command(
    option("--levels", [*carried.LEVELS], "of processors", choices=[*carried.LEVELS]),
    option("--out", "dist", "folder of the wheel", metavar="DIR"),
)
def main(options: Namespace) -> None:
    """Build the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        source, cache = Path(folder) / "source", Path(folder) / "cache"
        copy_sources(source)
        compile_jobs(options.levels, cache)
        found = sorted(cache.rglob("*.nb?"))
        to = source / carried.FOLDER.relative_to(Path(carried.__file__).parents[2])
        to.mkdir(parents=True)
        for path in found:
            shutil.copy(path, to)
        tags = "--python-tag", f"cp{sys.version_info[0]}{sys.version_info[1]}", "--plat-name", "linux_x86_64"
        out = str(Path(options.out).absolute())
        subprocess.run([sys.executable, "-c", _BUILD, out, *tags], cwd=source, check=True, capture_output=True)
    print(f"{len(found)} files of machine code in a wheel in {options.out}")


def copy_sources(folder: Path) -> None:
    """What a wheel is built from, so that building leaves nothing in the repository."""
    folder.mkdir()
    for name in _PARTS:
        ignored = shutil.ignore_patterns("__pycache__", *(_PARTS if name == "structsmooth" else ()))
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in _FILES:
        shutil.copy(ROOT / name, folder)


def compile_jobs(levels: list[str], cache: Path) -> None:
    """Run the jobs of the README, compiled for processors of each level."""
    trained, sentence = cache / "trained", cache / "sentence.txt"
    cache.mkdir()
    sentence.write_text("The Bank of New York\n")
    rules = {"NUMBA_CPU_FEATURES": "", "NUMBA_DISABLE_INTEL_SVML": "1"}
    for level in levels:
        shutil.rmtree(trained, ignore_errors=True)
        for job in [training(trained), *dict(jobs(trained, sentence)).values()]:
            # Of the sources that the wheel has, whatever is installed.
            run(job, cache, NUMBA_CPU_NAME=level, PYTHONPATH=str(ROOT), **rules)
