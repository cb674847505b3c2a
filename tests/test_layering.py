"""Imports only point down the layers of the library, wherever in a module they stand."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Folder -> the package it installs as.
FOLDERS = {
    "structsmooth": "structsmooth",
    "models": "structsmooth.models",
    "tasks": "structsmooth.tasks",
    "scripts": "scripts",
}

# Lowest first: a module may import from its own layer and from those before it. A package stands for all its modules
# that are not listed themselves; "structsmooth" alone is the public interface, structsmooth/__init__.py.
LAYERS = [
    {"structsmooth.compiled", "structsmooth.data", "structsmooth.processes", "structsmooth.sequences"},
    {"structsmooth.structures." + name for name in ("base", "checks", "operators", "semirings")},
    {"structsmooth.structures"},
    {"structsmooth.costs", "structsmooth.metrics", "structsmooth.smoothing", "structsmooth.tag_schemes"},
    {"structsmooth.losses", "structsmooth.scores"},
    {"structsmooth.problems.base", "structsmooth.problems.bounds"},
    {"structsmooth.problems"},
    {"structsmooth.problems.linear"},
    {"structsmooth.problems.linear.sparse_chain"},
    {"structsmooth.problems.__init__", "structsmooth.problems.sharding"},
    {"structsmooth.checkpoint", "structsmooth.history"},
    {"structsmooth.solvers.state", "structsmooth.solvers.lower_bound"},
    {"structsmooth.solvers.step_control"},
    {"structsmooth.solvers.base", "structsmooth.solvers.run"},
    {"structsmooth.solvers.primal"},
    {"structsmooth.solvers.dual"},
    {"structsmooth.solvers"},
    {"structsmooth"},
    {"structsmooth.models"},
    {"structsmooth.plots"},
    {"structsmooth.tasks." + name for name in ("base", "chains", "files")},
    {"structsmooth.tasks." + room for room in ("localization", "ocr", "segmentation", "text")},
    {"structsmooth.tasks"},
    {"structsmooth.cli"},
    {"scripts"},
]
HEIGHT = {unit: height for height, layer in enumerate(LAYERS) for unit in layer}


def unit(module: str) -> str | None:
    """The entry of the table that a module belongs to: itself, or the nearest package that is listed."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in HEIGHT), None)


def modules() -> dict[str, Path]:
    """Every module of the project by its installed name; that of a package ends in ``__init__``."""
    return {
        ".".join([package, *path.relative_to(ROOT / folder).with_suffix("").parts]): path
        for folder, package in FOLDERS.items()
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def imports(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and absolute name of all that a module imports; ``from a import b`` gives ``a.b``, be it module or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            anchor = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*anchor, *filter(None, [node.module])])
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def test_every_module_has_a_layer():
    unlisted = {name for name in modules() if unit(name) in (None, "structsmooth")} - {"structsmooth.__init__"}
    assert not unlisted, f"add to LAYERS of {Path(__file__).name}, at the height they import from: {unlisted}"


def test_imports_point_down():
    upward = []
    for module, path in modules().items():
        importer = unit(module)
        for line, name in imports(module, ast.parse(path.read_bytes())):
            imported = unit(name)
            if imported and HEIGHT[imported] > HEIGHT.get(importer or "", len(LAYERS)):
                upward.append(f"{path.relative_to(ROOT)}:{line} imports {imported}")
    assert not upward, "imports must point down:\n" + "\n".join(upward)
