"""Exported programs: on other sizes than those they were exported with, in onnxruntime, and without this library."""

import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from exported import ORACLES, Program, inputs, members, open_sizes
from torch.testing import assert_close

from structsmooth import LinearChain, Matching, ProjectiveTree
from structsmooth.export import Decoder, Exported, exporting
from structsmooth.structures.programs.scanned import LOG, MAX, Scanned

PAGE = Path(__file__).parents[1] / "docs" / "layers.md"
MEMBERS = members()
# Sizes of the batch that is exported, which differ from those that stay as they are, and of those that it then takes.
EXPORTED, SIZES = (7, 6), {"same sizes": [(7, 6)], "any batch": [(5, 6), (2, 6)], "any length": [(5, 9), (2, 2)]}


def exports(name: str, oracles: Sequence[str], sizes: list[tuple[int, int]]) -> None:
    """The answers of an exported program are those of the structure on batches of other sizes and scores."""
    program, given = Program(MEMBERS[name], tuple(oracles)), inputs(name, *EXPORTED, seed=0)
    others = [inputs(name, *size, seed=1) for size in sizes]
    expected = [program(*other) for other in (given, *others)][1:]  # numba compiles what is new, too
    with exporting(plain_torch=name.endswith("torch")):
        exported = torch.export.export(program, given, dynamic_shapes=open_sizes(given, others[0]), strict=False)
    called = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
    assert not (name.endswith("torch") and any("structsmooth" in operator for operator in called))
    for other, answers in zip(others, expected, strict=True):
        assert_close(exported.module()(*other), answers)


def oracles_of(name: str) -> list[str]:
    """The oracles that a structure has, and losses by them."""
    found = [oracle for oracle in ORACLES if oracle in MEMBERS[name].oracles]
    return [*found, "hinge", *["likelihood"] * ("logsumexp" in found)]


def table() -> dict[str, dict[str, list[str]]]:
    """Oracles that the document says are exported, by structure and sizes."""
    text = re.search(r"<!-- exports -->\n\n(.*?)\n\n", PAGE.read_text(encoding="utf-8"), re.S)
    assert text, "docs/layers.md has no table of exports"
    head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text[1].splitlines()]
    cells: dict[str, dict[str, list[str]]] = {}
    for names, *row in lines:
        for name in names.split(", "):
            meant = {"all": oracles_of(name), "none": []}
            cells[name] = {size: meant.get(cell, cell.split(", ")) for size, cell in zip(head[1:], row, strict=True)}
    return cells


def test_the_table_has_every_structure() -> None:
    cells = table()
    assert sorted(cells) == sorted(MEMBERS)
    assert {tuple(row) for row in cells.values()} == {tuple(SIZES)}


@pytest.mark.long
@pytest.mark.parametrize(("name", "size"), [*product(MEMBERS, SIZES)])
def test_cells_are_true(name: str, size: str) -> None:
    torch.compiler.reset()  # which remembers the sizes of the cells before
    if claimed := table()[name][size]:
        # Scans of several oracles in one graph may fix sizes.
        for oracles in [[oracle] for oracle in claimed] if name.endswith("torch") else [claimed]:
            exports(name, oracles, SIZES[size])


def test_some_cells() -> None:
    exports("SemiMarkov compiled", ["max", "marginals"], SIZES["any length"])


def in_onnxruntime(name: str, oracles: Sequence[str], batches: int, folder: Path) -> None:
    """ONNX programs answer as the structure does, on random batches of other sizes."""
    program, given = Program(MEMBERS[name], tuple(oracles)).eval(), inputs(name, *EXPORTED, seed=0)
    sizes, file = open_sizes(given, inputs(name, 5, 9, seed=0)), folder / "program.onnx"
    torch.onnx.export(program, given, file, dynamo=True, dynamic_shapes=sizes, verbose=False)
    session = onnxruntime.InferenceSession(file)
    names = [found.name for found in session.get_inputs()]
    for seed in range(batches):
        other = inputs(name, 1 + seed % 4, 1 + seed % 7, seed)
        found = session.run(None, {key: tensor.numpy() for key, tensor in zip(names, other, strict=True)})
        assert_close(tuple(map(torch.from_numpy, found)), program(*other))


def test_chains_in_onnxruntime(tmp_path: Path) -> None:
    in_onnxruntime("LinearChain torch", ["topk", "logsumexp"], 200, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["SemiMarkov torch", "ProjectiveTree torch", "LinearChain with mask and ends torch"])
def test_decoders_in_onnxruntime(name: str, tmp_path: Path) -> None:
    in_onnxruntime(name, ["max", "logsumexp"], 200, tmp_path)


@pytest.mark.parametrize("name", ["SemiMarkov compiled", "ProjectiveTree compiled", "several roots"])
@pytest.mark.parametrize("seed", range(4))
def test_scans_are_the_oracles(name: str, seed: int) -> None:
    """The recursions of plain torch with open sizes, beside those of programs."""
    is_tree = name == "several roots"
    _, *given = inputs("ProjectiveTree compiled" if is_tree else name, 4, 5, seed)
    structure: Any = ProjectiveTree(*given, single_root=False) if is_tree else MEMBERS[name].build(*given)
    scans: Scanned = structure
    value, uses = scans.sweep(LOG, structure.program_scores())
    assert_close((value, uses), structure.sums())
    value, uses = scans.sweep(MAX, structure.program_scores())
    assert_close((value, scans.outputs_of_uses(uses)), structure.max())


@pytest.mark.long
def test_a_saved_program_needs_torch_alone(tmp_path: Path) -> None:
    chain = Decoder(lambda x: LinearChain(x[0], x[1]))
    inputs = torch.randn(3, 4, 2), torch.randn(2, 2)
    Exported(chain, inputs, ({0: "batch", 1: "length"}, {})).save(tmp_path / "chain.pt2", "pt2")
    x = torch.randn(2, 7, 2), torch.randn(2, 2)
    torch.save((x, chain(*x)), tmp_path / "answer.pt")
    code = (
        "import sys, torch; program = torch.export.load('chain.pt2').module(); x, y = torch.load('answer.pt');"
        "torch.testing.assert_close(program(*x), y); assert 'structsmooth' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_what_has_no_plain_torch_says_so() -> None:
    weights = (torch.randn(2, 3, 3),)
    with (
        exporting(plain_torch=True),
        pytest.raises(NotImplementedError, match="matching top k has no form in plain torch"),
    ):
        torch.export.export(Decoder(lambda x: Matching(x)), weights, strict=False)


@pytest.mark.long
def test_programs_load_where_this_library_is_imported(tmp_path: Path) -> None:
    """A program of operators builds its dynamic programs where it runs."""
    given, other = inputs("Subset compiled", 3, 4, 0), inputs("Subset compiled", 5, 6, 1)
    program = Program(MEMBERS["Subset compiled"], ("max", "marginals"))
    with exporting():
        exported = torch.export.export(program, given, dynamic_shapes=open_sizes(given, other), strict=False)
    torch.export.save(exported, tmp_path / "subset.pt2")
    torch.save((other, program(*other)), tmp_path / "answer.pt")
    code = (
        "import torch; from structsmooth import Subset; x, y = torch.load('answer.pt');"
        "torch.testing.assert_close(torch.export.load('subset.pt2').module()(*x), y)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def works(name: str, oracle: str, size: str) -> bool:
    """Whether an oracle is exported."""
    try:
        exports(name, [oracle], SIZES[size])
    except (AssertionError, NotImplementedError, RuntimeError, torch._dynamo.exc.UserError):
        return False
    return True


if __name__ == "__main__":  # prints the table
    for name in MEMBERS:
        found = [[oracle for oracle in oracles_of(name) if works(name, oracle, size)] for size in SIZES]
        row = ["all" if cell == oracles_of(name) else ", ".join(cell) or "none" for cell in found]
        print("|".join(["", f" {name} ", *(f" {cell} " for cell in row), ""]), flush=True)
