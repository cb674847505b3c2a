"""What users install: the wheel, and that of the source distribution, in environments outside of the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import readme
from source_tree import LIBRARY, ROOT, modules

from scripts.__main__ import load
from structsmooth.compiled import carried

pytestmark = pytest.mark.long
pytest.importorskip("setuptools", minversion="77")

DATA = {"structsmooth/py.typed", "structsmooth/report/page.css", "structsmooth/report/page.js"}


def run(*command: object, folder: Path, **variables: str) -> str:
    """What a command prints, in a folder and without the paths of this repository."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    called = [str(part) for part in command]
    done = subprocess.run(called, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, source: Path) -> Path:
    """A distribution of the sources in a folder, by the backend that pyproject.toml names."""
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    run(sys.executable, "-c", code, source / "dist", folder=source)
    (found,) = (source / "dist").glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of the sources, so that building leaves nothing in the repository."""
    copy = tmp_path_factory.mktemp("source") / "structsmooth"
    folders = {"structsmooth", "models", "tasks", "docs", "scripts", "tests"}

    def left_out(folder, names):
        top = [name for name in names if (ROOT / name).is_dir() and name not in folders]
        return top if Path(folder) == ROOT else [name for name in names if name == "__pycache__"]

    shutil.copytree(ROOT, copy, ignore=left_out)
    return copy


@pytest.fixture(scope="module")
def sdist(source) -> Path:
    return build("sdist", source)


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def wheel(request, source, tmp_path_factory) -> Path:
    if request.param == "wheel":
        return build("wheel", source)
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(request.getfixturevalue("sdist")) as archive:
        archive.extractall(unpacked)
    (folder,) = unpacked.iterdir()
    return build("wheel", folder)


def test_the_wheel_has_all_modules_and_data(wheel):
    names = {*zipfile.ZipFile(wheel).namelist()}
    data = {path.relative_to(ROOT).as_posix() for path in (ROOT / "structsmooth" / "data").rglob("*.gz")}
    files = {f"{name.replace('.', '/')}.py" for name in modules(LIBRARY)}
    assert data
    assert not (files | data | DATA) - names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"structsmooth"}


def test_the_source_distribution_has_what_tests_and_pages_need(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tests/conftest.py", "tests/long.txt", "docs/index.md", "mkdocs.yml", "Makefile", "CITATION.cff"} <= names


def installed(wheel: Path, tmp_path: Path) -> Path:
    """The programs of a new environment with a wheel."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", folder=tmp_path)
    programs = tmp_path / "env" / "bin"
    install = ("install", "--no-deps", "--no-index", "--disable-pip-version-check", wheel)
    run(sys.executable, "-m", "pip", "--python", programs / "python", *install, folder=tmp_path)
    # Dependencies are those of this environment: a path to them, whose own hooks for editable packages do not run.
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(programs / "python", "-c", where, folder=tmp_path).strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    found = run(programs / "python", "-c", "import structsmooth.tasks as t; print(t.__file__)", folder=tmp_path)
    assert found.strip() == str(packages / "structsmooth" / "tasks" / "__init__.py")
    return programs


def test_an_installed_wheel_does_what_the_readme_shows(wheel, tmp_path):
    programs = installed(wheel, tmp_path)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    for language, code, output in readme.examples():
        program = ("bash", "-e", "-c") if language == "sh" else (programs / "python", "-c")
        assert run(*program, code, folder=tmp_path, PATH=path).rstrip().endswith(output)


def test_a_wheel_that_carries_machine_code_compiles_nothing_of_the_readme(tmp_path):
    level = next(level for level, needed in carried.LEVELS.items() if needed <= carried.features())
    assert load("wheel").main(["--levels", level, "--out", str(tmp_path)]) == 0
    (wheel,) = tmp_path.glob("structsmooth-*-linux_x86_64.whl")
    programs, cache = installed(wheel, tmp_path), tmp_path / "cache"
    language, code, output = next(example for example in readme.examples() if example[0] == "python")
    assert run(programs / language, "-c", code, folder=tmp_path, NUMBA_CACHE_DIR=str(cache)).rstrip() == output
    assert not list(cache.rglob("*.nbc"))
