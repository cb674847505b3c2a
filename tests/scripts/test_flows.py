"""What a reader meets on the way through a call does not grow: files, functions, and lines that it does not need."""

import inspect

import pytest

from scripts.tools.flows import FLOWS, walk
from structsmooth.spelling import suggestion

# At most so many files and functions, and at least this share of the lines of the files is of the functions.
BOUNDS = {
    "crf": (14, 80, 0.125),
    "hinge": (18, 138, 0.165),
    "proximal-bcfw": (39, 335, 0.22),
    "train-ner": (92, 861, 0.26),
}


def test_every_flow_has_bounds():
    assert BOUNDS.keys() == FLOWS.keys()


@pytest.mark.parametrize(
    "name", ["crf", "hinge", *(pytest.param(name, marks=pytest.mark.long) for name in ("proximal-bcfw", "train-ner"))]
)
def test_flows_do_not_grow(name):
    files, functions, lines, entered, share = walk(FLOWS[name]()).counts
    most_files, most_functions, least_share = BOUNDS[name]
    assert files <= most_files
    assert functions <= most_functions
    assert share == entered / lines >= least_share


def test_lines_of_nested_functions_count_once():
    found = walk(lambda: suggestion("bfcw", ["bcfw"]))
    (file,) = found.functions
    assert file.name == "spelling.py"
    assert found.lines == len(file.read_text().splitlines())
    assert found.entered == len(inspect.getsourcelines(suggestion)[0])
