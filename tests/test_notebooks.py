"""The notebooks of the documentation run, and are published with their outputs."""

import json

import pytest
from source_tree import ROOT

from scripts.tools.run_notebooks import FOLDER, executed, main

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_the_page_names_all():
    page = (ROOT / "docs" / "notebooks.md").read_text()
    assert len(NOTEBOOKS) >= 3
    assert all(f"(notebooks/{path.name})" in page for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path):
    cells = executed(path).cells
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.get("outputs", ()))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_has_outputs_and_no_warnings(path):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in cells)
    assert not [output for cell in cells for output in cell["outputs"] if output.get("name") == "stderr"]


def test_unknown_name_is_an_error(capsys):
    with pytest.raises(SystemExit):
        main(["cooking"])
    assert "there is no notebook" in capsys.readouterr().err
