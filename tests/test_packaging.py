"""What pyproject.toml declares: all packages, since a wheel would silently lack one, and the oldest versions tested."""

import sys

from source_tree import LIBRARY, ROOT, modules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_declared():
    setuptools = PYPROJECT["tool"]["setuptools"]
    folders = {"structsmooth": "structsmooth", **setuptools["package-dir"]}
    assert {folder: package for package, folder in folders.items()} == LIBRARY
    packages = {name.removesuffix(".__init__") for name in modules(LIBRARY) if name.endswith(".__init__")}
    assert set(setuptools["packages"]) == packages


def test_oldest_versions_are_those_that_are_tested():
    floors = dict(dependency.split(">=") for dependency in PYPROJECT["project"]["dependencies"])
    lines = (ROOT / "tests" / "oldest.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {name: pins.get(name) for name in floors} == floors
