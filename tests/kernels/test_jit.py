"""Compiled code on disk is that of the sources, all of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from structsmooth.kernels import jit

CHAIN = """
from structsmooth.kernels.jit import kernel

@kernel
def step(x):
    return x + 1.0
"""
SPARSE_CHAIN = """
from structsmooth.kernels.chain import step
from structsmooth.kernels.jit import entry_point

@entry_point
def run(x):
    return step(x)
"""
COMPILING = "structsmooth: compiling inner loops"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of two small kernels, one of which calls the other from another file."""
    kernels = tmp_path / "structsmooth" / "kernels"
    kernels.mkdir(parents=True)
    (kernels.parent / "__init__.py").touch()
    for name in ("__init__", "jit"):
        shutil.copy(Path(jit.__file__).with_name(f"{name}.py"), kernels)
    (kernels / "chain.py").write_text(CHAIN)
    (kernels / "sparse_chain.py").write_text(SPARSE_CHAIN)
    return kernels


def run(package: Path, argument: float = 1.0) -> tuple[float, bool]:
    """What the kernel gives in a new process, and whether that said that it compiles."""
    code = f"from structsmooth.kernels.sparse_chain import run; print(run({argument!r}))"
    folder = package.parents[1]
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment, cwd=folder
    )
    return float(done.stdout), done.stderr.startswith(COMPILING)


def test_cached_code_follows_the_sources_of_what_it_calls(package: Path) -> None:
    assert run(package) == (2.0, True)
    assert run(package) == (2.0, False)
    chain = package / "chain.py"
    times = chain.stat()
    chain.write_text(CHAIN.replace("1.0", "3.0"))
    os.utime(chain, ns=(times.st_atime_ns, times.st_mtime_ns))  # as an installer may set it
    assert run(package) == (4.0, True)
    assert run(package) == (4.0, False)


def test_cache_is_where_numba_is_told_to_keep_it(package: Path) -> None:
    run(package)
    assert list((package.parents[1] / "cache").rglob("sparse_chain.run-*.nbc"))
    assert not list(package.rglob("*.nb*"))


def test_new_types_of_arguments_are_announced_too(package: Path) -> None:
    run(package)
    assert run(package, 1) == (2.0, True)
