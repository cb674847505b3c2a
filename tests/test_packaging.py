"""The list of packages in pyproject.toml is complete: a wheel would silently lack what it leaves out."""

import sys

from source_tree import LIBRARY, ROOT, modules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_every_package_is_declared():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {"structsmooth": "structsmooth", **setuptools["package-dir"]}
    assert {folder: package for package, folder in folders.items()} == LIBRARY
    packages = {name.removesuffix(".__init__") for name in modules(LIBRARY) if name.endswith(".__init__")}
    assert set(setuptools["packages"]) == packages
