"""The list of packages in pyproject.toml is complete: a wheel would silently lack what it leaves out."""

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]


def test_every_package_is_declared():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {"structsmooth": "structsmooth", **setuptools["package-dir"]}
    present = {
        ".".join([package, *path.parent.relative_to(ROOT / folder).parts])
        for package, folder in folders.items()
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert set(setuptools["packages"]) == present
