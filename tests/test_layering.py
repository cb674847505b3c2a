"""Imports only point down the layers of the library and never in a circle, wherever in a module they stand."""

import ast
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from source_tree import EVERYTHING, ROOT, modules

# Lowest first: a module may import from its own layer and from those before it. A package stands for its modules that
# are not listed themselves; "structsmooth" alone is the public interface, structsmooth/__init__.py.
LAYERS = [
    {
        "structsmooth.compiled",
        "structsmooth.data",
        "structsmooth.files",
        "structsmooth.heartbeats",
        "structsmooth.kernels",
        "structsmooth.lazy",
        "structsmooth.processes",
        "structsmooth.sequences",
        "structsmooth.settings",
        "structsmooth.sparse_vectors",
        "structsmooth.spelling",
        "structsmooth.messages",
        "structsmooth.plain",
    },
    {
        "structsmooth.structures." + name
        for name in (
            *("active_set", "base", "batch", "checks", "containers", "distribution", "noise", "operators", "scans"),
            *("derivatives", "optimal_face", "semirings", "sparse_marginals", "transforms"),
        )
    },
    {"structsmooth.structures"},
    {"structsmooth.factors", "structsmooth.programs"},
    {"structsmooth." + name for name in ("calibration", "costs", "metrics", "smoothing", "uncertainty")},
    {"structsmooth.perturbation"},
    {"structsmooth.export", "structsmooth.losses", "structsmooth.scores", "structsmooth.targets"},
    {"structsmooth.decisions", "structsmooth.risk"},
    {"structsmooth.problems.bounds", "structsmooth.problems.reductions"},
    {"structsmooth.problems.base"},
    {"structsmooth.problems.derived"},
    {"structsmooth.problems"},
    {"structsmooth.problems.linear"},
    {"structsmooth.problems.linear." + room for room in ("chain", "factor_graph", "programs")},
    {"structsmooth.problems.linear.__init__"},
    {"structsmooth.problems.__init__"},
    {"structsmooth.checkpoint", "structsmooth.history"},
    {"structsmooth.solvers." + name for name in ("averaging", "lower_bound", "state")},
    {"structsmooth.solvers." + name for name in ("progress", "step_control")},
    {"structsmooth.solvers.base"},
    {"structsmooth.solvers.dual.base"},
    {"structsmooth.solvers.primal.gradient"},
    {"structsmooth.solvers." + room for room in ("bcfw", "sdca", "sgd", "svrg")},
    {"structsmooth.solvers.primal"},
    {"structsmooth.solvers.dual"},
    {"structsmooth.solvers.soft_bcfw"},
    {"structsmooth.solvers.baselines"},
    {"structsmooth.solvers.convex_concave", "structsmooth.solvers.prox_linear"},
    {"structsmooth.solvers.registry"},
    {"structsmooth.solvers.__init__"},
    {"structsmooth"},
    {"structsmooth.models"},
    {"structsmooth.experiments"},
    {"structsmooth.text"},
    {"structsmooth.encoders"},
    {"structsmooth.markup", "structsmooth.plots"},
    {"structsmooth.tasks"},
    {
        "structsmooth.tasks." + room
        for room in ("localization", "multilabel", "ocr", "pose", "scenes", "segmentation", "segments", "text")
    },
    {"structsmooth.tasks.parsing"},
    {"structsmooth.tasks.__init__"},
    {"structsmooth.tasks.trained"},
    {"structsmooth.tasks.batches"},
    {"structsmooth.estimators", "structsmooth.report"},
    {"structsmooth.cli"},
    {"structsmooth.__main__", "scripts"},
]
HEIGHT = {unit: height for height, layer in enumerate(LAYERS) for unit in layer}


def nearest(module: str, known: Iterable[str]) -> str | None:
    """The module itself if it is among the known names, else the nearest package above it that is."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in known), None)


def unit(module: str) -> str | None:
    """The entry of the table that a module belongs to."""
    return nearest(module, HEIGHT)


def deferred(node: ast.AST) -> bool:
    """Whether a statement is for type checkers alone: ``if TYPE_CHECKING``."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(module: str, path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything a module imports; ``from a import b`` gives ``a.b``, module or not.

    The public interface may tell type checkers of names above it, which it looks up when they are asked for.
    """
    tree = ast.parse(path.read_bytes())
    if module == "structsmooth.__init__":
        tree.body = [node for node in tree.body if not deferred(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            anchor = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*anchor, *filter(None, [node.module])])
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("LazyModule", "LazyLoops"):
            yield node.lineno, ast.literal_eval(node.args[0])


def test_every_module_has_a_layer():
    unlisted = {name for name in modules(EVERYTHING) if unit(name) in (None, "structsmooth")} - {
        "structsmooth.__init__"
    }
    assert not unlisted, f"add to LAYERS of {Path(__file__).name}, at the height they import from: {unlisted}"


def test_imports_point_down():
    upward = []
    for module, path in modules(EVERYTHING).items():
        importer = unit(module)
        for line, name in imports(module, path):
            imported = unit(name)
            if imported and HEIGHT[imported] > HEIGHT.get(importer or "", len(LAYERS)):
                upward.append(f"{path.relative_to(ROOT)}:{line} imports {imported}")
    assert not upward, "imports must point down:\n" + "\n".join(upward)


def test_estimators_need_no_task():
    """Whoever takes a part of the library for other tasks takes the estimators with it."""
    files = {name.removesuffix(".__init__"): path for name, path in modules(EVERYTHING).items()}
    needed = [name for name in files if nearest(name, ["structsmooth.estimators"])]
    for module in needed:  # grows meanwhile
        path = files[module]
        inside = f"{module}.__init__" if path.name == "__init__.py" else module
        found = (nearest(name, files) for _, name in imports(inside, path))
        needed += {name for name in found if name is not None} - {*needed}
    tasks = sorted(name for name in needed if nearest(name, ["structsmooth.tasks"]))
    assert len(needed) > 50
    assert not tasks, f"estimators import tasks: {tasks}"


def test_imports_have_no_circle():
    """Modules of one layer may import each other."""
    names = {module: module.removesuffix(".__init__") for module in modules(EVERYTHING)}
    imported = {
        names[module]: {nearest(name, names.values()) for _, name in imports(module, path)} - {None, names[module]}
        for module, path in modules(EVERYTHING).items()
    }
    TopologicalSorter(imported).prepare()  # raises an error that names the circle
