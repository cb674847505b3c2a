"""House rules: short files, single inheritance of code, and privacy of rooms (a room is a folder)."""

import ast
import importlib
import inspect
import re
from abc import ABC
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, Protocol

from source_tree import EVERYTHING, LIBRARY, ROOT, module_names, modules

LONGEST = 400

# Private names of other libraries, and why they are used.
FOREIGN = {
    "_asdict": "public, of named tuples",
    "_fields": "public, of named tuples",
    "_replace": "public, of named tuples",
    "_cache": "numba does not tell otherwise whether a compiled function is on disk",
    "_C": "torch does not tell otherwise whether one of its transforms is active",
    "_are_functorch_transforms_active": "the same",
    "_DisableFuncTorch": "and there is no other way to leave them for a moment",
    "_schema": "torch does not tell otherwise how many arguments an operator has",
    "_base": "torch does not tell otherwise whose memory a view has",
    "_len_torch_dispatch_stack": "torch does not tell otherwise whether a mode looks at all operators",
    "_len_torch_function_stack": "nor whether one looks at all functions",
    "_is_profiler_enabled": "nor whether a profiler does",
    "_get_tracing_state": "nor, where types are checked, whether it traces",
    "_current_level": "nor whether forward-mode derivatives are being computed",
    "_dynamo_marked_constant": "the decorator that sets it imports the compiler",
    "_exit": "the end of a process whose main thread waits in a call that nothing else ends",
    "_get_backend": "torch has no other access to the parts of a group of processes",
    "_higher_order_ops": "torch has no other scan for graphs with an open number of steps",
    "_pytree": "torch has no other access to containers that it does not know",
}


def test_files_are_short():
    """Compiled loops may be longer: numba compiles a file at a time, and inlines what stands together."""
    files = [path for path in modules(LIBRARY).values() if not path.name.startswith("compiled")]
    lines = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    long = {name: count for name, count in lines.items() if count > LONGEST}
    assert not long, f"more than {LONGEST} lines: {long}"


def concrete(cls: type) -> bool:
    """Mixins of scikit-learn are no classes to make objects of."""
    mixin = cls.__module__.startswith("sklearn.") and cls.__name__.endswith("Mixin")
    return cls not in (ABC, Generic, Protocol) and not inspect.isabstract(cls) and not mixin


def test_classes_inherit_from_one_concrete_class():
    imported = [importlib.import_module(name) for name in module_names(LIBRARY)]
    classes = {cls for module in imported for cls in vars(module).values() if inspect.isclass(cls)}
    own = [cls for cls in classes if cls.__module__.startswith("structsmooth")]
    several = {cls.__qualname__: cls.__bases__ for cls in own if sum(map(concrete, cls.__bases__)) > 1}
    assert not several


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(tree: ast.Module) -> Iterator[str]:
    """Functions, classes and variables of a module, and the attributes that objects give themselves."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(ast.Name("self"), name, ast.Store()):
                yield name


def used(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of what a module imports, and of the attributes it reads or sets."""
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                paths = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
                yield from ((node.lineno, name) for path in paths for name in path.split("."))
            case ast.Attribute(attr=name):
                yield node.lineno, name


def test_private_names_stay_in_their_room():
    of_room: dict[Path, set[str]] = defaultdict(set)
    uses: list[tuple[Path, int, str]] = []
    for path in modules(EVERYTHING).values():
        tree = ast.parse(path.read_bytes())
        of_room[path.parent].update(defined(tree))
        uses += [(path, line, name) for line, name in used(tree) if private(name)]
    trespasses = [
        f"{path.relative_to(ROOT)}:{line} uses {name}"
        for path, line, name in uses
        if name not in of_room[path.parent] | FOREIGN.keys()
    ]
    assert not trespasses, "private names of another room:\n" + "\n".join(trespasses)


def test_long_tests_are_tests():
    for line in (ROOT / "tests" / "long.txt").read_text(encoding="utf-8").splitlines()[1:]:
        path, *_, name = line.split()[1].split("::")
        text = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert f"def {name}(" in text or f"\n{name} = " in text, line


def test_baselines_say_why_they_are_kept():
    folder = ROOT / "structsmooth" / "solvers" / "baselines"
    reasons = ast.get_docstring(ast.parse((folder / "__init__.py").read_bytes()))
    named = re.findall(r"^\* ``(\w+)``: ", reasons, re.M)
    kept = {path.stem for path in folder.iterdir() if not path.stem.startswith(("_", "compiled"))}
    assert sorted(named) == sorted(kept)
