"""Small faults in the product, one at a time: which of them do the tests find?

A fault is a comparison turned, a sign, a constant by one, an "and" for an "or", a statement left out, or an index by
one, at a place drawn by the seed. For each, the tests that run the line are run on a copy of the repository; compiled
lines, which coverage does not see, count as run by all tests of the files in Python that name a module with an entry
point that can reach them. Which tests run which lines is measured once, with --measure, and kept in build/contexts.
"""

import ast
import importlib
import os
import random
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from coverage import CoverageData

from scripts.shared.harness import RequestError, command, option
from structsmooth.compiled.digest import reached

ROOT = Path(__file__).parents[2]
_CONTEXTS = ROOT / "build" / "contexts"
_PRODUCT = {"structsmooth": "structsmooth", "models": "structsmooth.models", "tasks": "structsmooth.tasks"}
_TURNED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is"}
_TURNED |= {"in": "not in", "not in": "in", "+": "-", "-": "+", "*": "/", "/": "*", "and": "or", "or": "and"}


class Fault(NamedTuple):
    """A piece of a file, and what takes its place; ``start`` counts characters of the file."""

    path: str
    line: int
    start: int
    old: str
    new: str

    def __str__(self) -> str:
        """Where the fault is, and what stands there instead of what."""
        return f"{self.path}:{self.line}: {_short(self.old)} -> {_short(self.new)}"


@command(
    option("--measure", False, "run all tests to see which lines each runs, and stop"),
    option("--seed", 0, "of the faults that are drawn"),
    option("--count", 60, "number of faults"),
    option("--most", 300, "tests of a fault, drawn if there are more"),
    option("--jobs", os.cpu_count() or 1, "faults that are tried at once"),
    threads=None,
)
def main(options: Namespace) -> int:
    """Measure which tests run which lines, or try faults and print those that no test finds."""
    if options.measure:
        return measure()
    if not _CONTEXTS.exists():
        raise RequestError(f"{_CONTEXTS} is not there: run this with --measure first")
    tests = Tests(options.most, options.seed)
    survivors = 0
    for fault, verdict in verdicts(draw(options.seed, options.count), tests, options.jobs):
        survivors += verdict != "found"
        print(f"{verdict:10} {fault}", flush=True)
    print(f"{options.count - survivors} of {options.count} faults found")
    return 0


def measure() -> int:
    """Run all tests of the gate under coverage, with the name of each test as its context."""
    _CONTEXTS.parent.mkdir(exist_ok=True)
    arguments = ["-q", "--cov", "--cov-context=test", "--cov-report=", "--numprocesses=auto", "--dist=worksteal"]
    environment = os.environ | {"COVERAGE_FILE": str(_CONTEXTS)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=environment, check=False
    ).returncode


def draw(seed: int, count: int) -> list[Fault]:
    """Faults, each in another statement."""
    drawn = random.Random(seed)
    paths = [path for folder in _PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]
    candidates = [fault for path in paths for fault in faults(str(path.relative_to(ROOT)), path.read_text())]
    return drawn.sample(candidates, count)


def faults(path: str, text: str) -> Iterator[Fault]:
    """All faults that can be put into a file."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    source = text.encode()

    def position(line: int, column: int) -> int:
        return len(source[: starts[line - 1] + column].decode())

    for node in _executed(ast.parse(text)):
        for first, column, last, end_column, new in _replacements(node, text):
            start, end = position(first, column), position(last, end_column)
            yield Fault(path, first, start, text[start:end], new)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run, in functions and elsewhere: no docstrings, annotations, or blocks for type checkers."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            if name not in ("annotation", "returns", "decorator_list", "type_params"):
                waiting += [child for child in children if isinstance(child, ast.AST) and not _is_idle(child)]


def _is_idle(node: ast.AST) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))


def _replacements(node: ast.AST, text: str) -> Iterator[tuple[int, int, int, int, str]]:
    """Places, as lines and columns from and to, and what may stand there instead."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _turned(node.left, node.comparators[0], text)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        yield from _turned(node.left, node.right, text)
    elif isinstance(node, ast.BoolOp):
        yield from _turned(node.values[0], node.values[1], text)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.lineno, node.col_offset, node.lineno, node.col_offset + 1, ""
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield *_span(node), f"({ast.unparse(node)} + 1)"
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name):
        yield *_span(node.slice), f"{node.slice.id} - 1"
    elif isinstance(node, ast.Expr | ast.AugAssign | ast.Raise | ast.Continue):
        yield *_span(node), "pass"


def _turned(left: ast.expr, right: ast.expr, text: str) -> Iterator[tuple[int, int, int, int, str]]:
    """The operator between two operands, on the line of both, as another one."""
    if left.end_lineno == right.lineno and left.end_col_offset is not None:
        between = text.splitlines()[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
        found = re.search(r"is not|not in|[<>=!]=|\b(?:is|in|and|or)\b|[-+*/<>]", between)
        if found and found[0] in _TURNED:
            column = left.end_col_offset + len(between[: found.start()].encode())
            yield left.end_lineno, column, left.end_lineno, column + len(found[0].encode()), _TURNED[found[0]]


def _span(node: ast.expr | ast.stmt) -> tuple[int, int, int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


class Tests:
    """Which tests run which lines."""

    def __init__(self, most: int, seed: int) -> None:
        self.most, self.drawn = most, random.Random(seed)
        self.data = CoverageData(str(_CONTEXTS))
        self.data.read()

    def of(self, fault: Fault) -> list[str]:
        """The tests of a fault, at most so many."""
        if Path(fault.path).name.startswith("compiled") or "/compiled/" in fault.path:
            lists = [tests for path in _callers(fault) for tests in self.data.contexts_by_lineno(str(path)).values()]
        else:
            lists = [self.data.contexts_by_lineno(str(ROOT / fault.path)).get(fault.line, [])]
        names = {context.partition("|")[0] for contexts in lists for context in contexts} - {""}
        return sorted(names if len(names) <= self.most else self.drawn.sample(sorted(names), self.most))


def _callers(fault: Fault) -> list[Path]:
    """The files in Python that name a module with an entry point which reaches the function of the fault."""
    modules = {module for module, functions in _entry_points() if _holds(functions, fault)}
    names = [r"{}(\.| import .*\b){}".format(*module.split(".")[-2:]) for module in sorted(modules)]
    words = re.compile(rf"\b({'|'.join(names)})\b")
    paths = [path for folder in _PRODUCT if names for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in paths if not path.name.startswith("compiled") and words.search(path.read_text())]


def _entry_points() -> Iterator[tuple[str, list[object]]]:
    """The module of each entry point, and the functions that it reaches."""
    for path in sorted((ROOT / "structsmooth").rglob("compiled*.py")):
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for value in vars(module).values():
            if hasattr(value, "py_func") and value.py_func.__module__ == module.__name__:
                yield module.__name__, [function.__code__ for function in reached(value.py_func)]


def _holds(codes: list[object], fault: Fault) -> bool:
    for code in codes:
        lines = [line for _, _, line in code.co_lines() if line]  # type: ignore[attr-defined]
        if str(ROOT / fault.path) == code.co_filename and min(lines) <= fault.line <= max(lines):  # type: ignore[attr-defined]
            return True
    return False


def verdicts(drawn: list[Fault], tests: Tests, jobs: int) -> Iterator[tuple[Fault, str]]:
    """What becomes of each fault: found, survives, or no test runs its line."""
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        copies.put(_copy(ROOT / "build" / f"mutants{number}"))
    named = [(fault, tests.of(fault)) for fault in drawn]

    def verdict(pair: tuple[Fault, list[str]]) -> str:
        fault, names = pair
        if not names:
            return "no test"
        folder = copies.get()
        try:
            return "found" if is_found(fault, names, folder) else "survives"
        finally:
            copies.put(folder)

    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(drawn, pool.map(verdict, named), strict=True)


def is_found(fault: Fault, names: list[str], folder: Path, limit: float = 900.0) -> bool:
    """Whether one of the tests fails, or does not end, in a copy of the repository with the fault."""
    path = folder / fault.path
    text = path.read_text()
    assert text[fault.start : fault.start + len(fault.old)] == fault.old
    path.write_text(text[: fault.start] + fault.new + text[fault.start + len(fault.old) :])
    listed = folder / "tests.txt"
    listed.write_text("\n".join(names))
    arguments = ["-m", "pytest", "-x", "-q", "-m", "", "-p", "no:cacheprovider", f"@{listed}"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    try:
        ran = subprocess.run(
            [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, timeout=limit, check=False
        )
        return ran.returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(text)


def _copy(folder: Path) -> Path:
    """A copy of the repository in which models and tasks are found as parts of the package."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns(".*", "build", "runs", "__pycache__")
    shutil.copytree(ROOT, folder, ignore=ignored)
    for name in ("models", "tasks"):
        (folder / "structsmooth" / name).symlink_to(folder / name)
    return folder


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
