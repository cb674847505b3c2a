"""Scripts run by their names, and by those that they had before they had folders."""

import re
import sys
from importlib.util import find_spec
from runpy import run_module

import pytest
from source_tree import ROOT

from scripts.__main__ import listing, main, scripts

FOLDERS = sorted((ROOT / "scripts").glob("*/README.md"))


def test_every_file_that_runs_has_a_name_of_its_own():
    files = [path for path in (ROOT / "scripts").rglob("*.py") if re.search(r"^def main\(", path.read_text(), re.M)]
    assert {*scripts().values()} == {*files} - {ROOT / "scripts" / "__main__.py"}


def test_all_are_listed_with_a_sentence(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("\n".join(listing()) + "\n")
    for name in scripts():
        assert re.search(rf"^  {name} +\w.*[.:?]$", printed, re.M), name


@pytest.mark.parametrize("page", FOLDERS, ids=lambda page: page.parent.name)
def test_the_page_of_a_folder_names_its_scripts(page):
    runs = {name for name, path in scripts().items() if path.parent == page.parent}
    assert runs <= {*re.findall(r"\b\w+\b", page.read_text(encoding="utf-8"))}


def test_a_name_that_is_none_is_said(capsys):
    assert main(["layer"]) == 2
    assert "no script is called layer (did you mean layers?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "file"),
    [
        ("benchmark_layers", "benchmarks/layers.py"),
        ("compare_encoders", "comparisons/encoders.py"),
        ("train_networks", "comparisons/train_networks.py"),
        ("flows", "tools/flows.py"),
        ("serve", "serve.py"),
    ],
)
def test_names_of_before(before, file):
    assert find_spec(f"scripts.{before}").origin == str(ROOT / "scripts" / file)
    assert find_spec(f"scripts.{before}_of_nothing") is None


def test_names_of_before_run_what_they_ran(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["layers", "--help"])
    with pytest.raises(SystemExit) as stop:
        run_module("scripts.benchmark_layers", run_name="__main__")
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("usage: python -m scripts layers")


def test_a_file_that_runs_by_its_name_says_so(monkeypatch):
    monkeypatch.delitem(sys.modules, "scripts.benchmarks.layers", raising=False)
    with pytest.raises(SystemExit, match="this file is run by python -m scripts layers"):
        run_module("scripts.benchmarks.layers", run_name="__main__")
