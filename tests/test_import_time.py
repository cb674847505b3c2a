"""Importing the library is cheap: dependencies that only parts of it need are imported on first use."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module

import pytest
from source_tree import ROOT

import structsmooth

DEFERRED = {"matplotlib", "numba", "rich", "scipy", "sklearn", "torchvision"}


def imported_by(code: str) -> set[str]:
    """The modules that some code imports in a process of its own."""
    printed = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], check=True, capture_output=True, text=True
    )
    return {*printed.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize(
    ("code", "deferred"),
    [
        ("import structsmooth", {"torch", "numpy", *DEFERRED}),
        ("import structsmooth; structsmooth.BCFW, structsmooth.LinearChain", DEFERRED),
    ],
    ids=["names", "what they stand for"],
)
def test_import_defers_heavy_dependencies(code: str, deferred: set[str]) -> None:
    assert deferred.isdisjoint(imported_by(code))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]], ids=" ".join)
def test_the_program_answers_without_torch(arguments: list[str]) -> None:
    assert {"torch", "numpy", *DEFERRED}.isdisjoint(imported_by(called(arguments)))


@pytest.mark.parametrize(
    ("arguments", "tasks"),
    [
        (["train", "ner", "--help"], {"structsmooth.tasks.text"}),
        (["compare", "multilabel", "--help"], {"structsmooth.tasks.multilabel"}),
        (["info", "--help"], set()),
    ],
    ids=" ".join,
)
def test_a_command_loads_the_task_that_it_runs(arguments: list[str], tasks: set[str]) -> None:
    rooms = {name for name in imported_by(called(arguments)) if name.startswith("structsmooth.tasks.")}
    assert {name for name in rooms if (ROOT / "tasks" / name.split(".")[2]).is_dir() and name.count(".") == 2} == tasks


def test_a_command_loads_the_solver_and_the_structures_that_it_runs() -> None:
    loaded = imported_by(called(["train", "ner", "--help"]))
    assert {"structsmooth.solvers.dual.proximal", "structsmooth.structures.chain"} <= loaded
    assert {"structsmooth.solvers.soft_bcfw", "structsmooth.structures.factor_graph"}.isdisjoint(loaded)


def called(arguments: list[str]) -> str:
    """The code of a call of the program that ends it."""
    return f"""
from structsmooth.cli import main
try:
    main({arguments})
except SystemExit:
    pass"""


@pytest.mark.parametrize("name", ["", "models", "plots", "problems", "solvers", "structures", "tasks"])
def test_names_are_what_type_checkers_see(name: str) -> None:
    package = import_module(f"structsmooth.{name}".rstrip("."))
    statements = ast.parse(inspect.getsource(package)).body
    deferred = [node for block in statements if isinstance(block, ast.If) for node in block.body]
    imports = [node for node in (*statements, *deferred) if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: str(node.module) for node in imports for alias in node.names if alias.asname}
    own = {"TASKS", "load_task"} if name == "tasks" else set()
    assert {*package.__all__} == seen.keys() | own <= {*dir(package)}
    for known, module in seen.items():
        assert getattr(package, known) is getattr(import_module(module), known)


def test_names_that_have_moved_say_where_they_are() -> None:
    names = ["Cost", "DynamicProgram", "SVRG", "SlackRescaled", "regret", "soft_labels", "transition_mask"]
    for name in names:
        with pytest.warns(
            DeprecationWarning, match=f"^structsmooth.{name} is now structsmooth[.a-z_]*.{name}$"
        ) as told:
            moved = getattr(structsmooth, name)
        module = str(told[0].message).rpartition(" ")[2].removesuffix(f".{name}")
        assert moved is getattr(import_module(module), name)
        assert name not in structsmooth.__all__


def test_the_face_is_that_of_a_first_day() -> None:
    assert len(structsmooth.__all__) <= 46
    assert not {"BCFW", "CRF", "LinearChain", "StructuralHinge", "train"} - {*structsmooth.__all__}


def test_packages_are_attributes_and_other_names_are_not() -> None:
    code = "import structsmooth; print(structsmooth.solvers.SOLVERS['bcfw'].__name__)"
    assert "structsmooth.solvers" in imported_by(code)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = structsmooth.nothing  # type: ignore[attr-defined]
