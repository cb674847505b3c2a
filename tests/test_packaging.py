"""What is published: all packages, since a wheel would silently lack one, versions that agree, and workflows."""

import re
import sys

import pytest
from source_tree import LIBRARY, ROOT, modules

import structsmooth

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


def test_versions_agree():
    version = PYPROJECT["project"]["version"]
    released = re.search(r"^## \[(\d[\d.]*)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    citation = (ROOT / "CITATION.cff").read_text()
    assert structsmooth.__version__ == version == released[1]
    assert f"\nversion: {version}\n" in citation
    assert f'\ndate-released: "{released[2]}"\n' in citation


def test_workflows_cover_the_declared_versions():
    yaml = pytest.importorskip("yaml")
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    flows = {file.stem: yaml.safe_load(file.read_text()) for file in files}
    assert set(flows) == {"docs", "release", "tests"}
    jobs = {name: flow["jobs"] for name, flow in flows.items()}
    assert all(
        "uses" in step or "run" in step for flow in jobs.values() for job in flow.values() for step in job["steps"]
    )
    matrix = jobs["tests"]["newest"]["strategy"]["matrix"]
    prefix = "Programming Language :: Python :: "
    classified = [text.removeprefix(prefix) for text in PYPROJECT["project"]["classifiers"] if text.startswith(prefix)]
    assert matrix["python"] == [text for text in classified if "." in text]
    assert f">={matrix['python'][0]}" == PYPROJECT["project"]["requires-python"]
    assert jobs["release"]["publish"]["permissions"] == {"id-token": "write"}


def test_citation_names_the_papers():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    first = [reference["authors"][0]["family-names"] for reference in citation["references"]]
    assert first == ["Pillutla", "Osokin", "Meshi", "Zhang"]
