"""Prints the test files that the changes of the working tree can reach by imports: what make test-changed runs.

Packages that load names when they are asked for stand for the modules that have these names. Changes to other files
than Python's reach the tests of the documentation and of the house.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from source_tree import EVERYTHING, ROOT, modules

_ALWAYS = ["tests/test_docs.py", "tests/test_house.py", "tests/test_layering.py", "tests/test_packaging.py"]


def main() -> int:
    """Print the files, one on a line."""
    changed = {
        ROOT / line for line in _git("diff", "--name-only", "HEAD") + _git("ls-files", "-o", "--exclude-standard")
    }
    tests = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if changed & reached(path)]
    print("\n".join(dict.fromkeys([*(str(path.relative_to(ROOT)) for path in tests), *_ALWAYS])))
    return 0


def reached(path: Path) -> set[Path]:
    """A file, and all that it imports, directly or through others, with the packages of these."""
    found = [path]
    for file in found:  # grows meanwhile
        found += [other for other in dict.fromkeys(_imported(file)) if other not in found]
    return {*found, *(parent / "__init__.py" for file in found for parent in file.parents if ROOT in parent.parents)}


def _imported(path: Path) -> Iterator[Path]:
    for source, name in _named(path):
        home = _FILES.get(f"{source}.{name}") or _home(source, name)
        if home is not None:
            yield home


def _home(source: str, name: str) -> Path | None:
    """The file of a module that has a name, found through the packages that import it from elsewhere."""
    path = _FILES.get(source)
    if path is not None and path.name == "__init__.py":
        for module, found in _named(path):
            if found == name and module != source:
                return _FILES.get(f"{module}.{name}") or _home(module, name)
    return path


def _named(path: Path) -> list[tuple[str, str]]:
    """Modules, and the names that a file imports from them."""
    if path not in _NAMED:
        tree = ast.parse(path.read_bytes())
        nodes = list(ast.walk(tree))
        froms = [(str(n.module), alias.name) for n in nodes if isinstance(n, ast.ImportFrom) for alias in n.names]
        _NAMED[path] = froms + [(alias.name, "") for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    return _NAMED[path]


def _git(*arguments: str) -> list[str]:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return ran.stdout.splitlines()


_NAMED: dict[Path, list[tuple[str, str]]] = {}
_FILES = {name.removesuffix(".__init__"): path for name, path in modules(EVERYTHING).items()}
_FILES |= {path.stem: path for path in (ROOT / "tests").glob("*.py")}  # tests import what they share by these names


if __name__ == "__main__":
    sys.exit(main())
