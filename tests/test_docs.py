"""Examples run: code blocks of the documents, and doctests of the modules."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks() -> list[object]:
    """Python blocks, padded so that a traceback has the line of the document."""
    found: list[object] = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S):
            line = text.count("\n", 0, match.start(1))
            found.append(pytest.param(path, "\n" * line + match[1], id=f"{path.name}:{line + 1}"))
    return found


def module_names() -> list[str]:
    """Every module by its installed name; models/ and tasks/ install as packages of structsmooth."""
    folders = {"structsmooth": "structsmooth", "models": "structsmooth.models", "tasks": "structsmooth.tasks"}
    return [
        ".".join([package, *path.relative_to(ROOT / folder).with_suffix("").parts]).removesuffix(".__init__")
        for folder, package in folders.items()
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


@pytest.mark.parametrize(("path", "code"), blocks())
def test_code_blocks_run(path, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(code, str(path), "exec"), {"__name__": "example"})


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(path):
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    missing = [target for target in local if not (path.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("name", module_names())
def test_doctests(name):
    torch.manual_seed(0)
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_documents_and_modules_are_found():
    assert {path.name for path in DOCUMENTS} == {"README.md", "layers.md", "structures.md", "solvers.md"}
    assert {"structsmooth.structures.chain", "structsmooth.tasks.ner", "structsmooth.models.bilstm"} <= {
        *module_names()
    }
