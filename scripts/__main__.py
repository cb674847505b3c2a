"""Run a script by its name, and explain it by ``--help`` behind the name; without a name, list all."""

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import ModuleType

from structsmooth.spelling import suggestion

_HERE = Path(__file__).parent


def scripts() -> dict[str, Path]:
    """The files with a function ``main``, by the names that they run by; a package has the name of its folder."""
    files = sorted(_HERE.glob("**/*.py"), key=lambda path: (path.parent, path))
    found = [path for path in files if "\ndef main(" in path.read_text(encoding="utf-8")]
    found.remove(_HERE / "__main__.py")
    return {path.parent.name if path.stem == "__main__" else path.stem: path for path in found}


def load(name: str) -> ModuleType:
    """The module of a script."""
    return import_module(".".join(scripts()[name].relative_to(_HERE.parent).with_suffix("").parts))


def listing() -> Iterator[str]:
    """A line for each script, the first of its docstring, under the names of folders."""
    for folder, found in groupby(scripts().items(), lambda script: script[1].parent.name):
        yield f"\n{folder}"
        for name, path in found:
            docstring = str(ast.get_docstring(ast.parse(path.read_bytes())))
            yield f"  {name:<16}  {docstring.splitlines()[0]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script with the arguments behind its name; its exit code."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in scripts():
        return int(load(name).main(rest))
    if name in ("--help", "-h"):
        print("python -m scripts NAME, where NAME is one of", *listing(), sep="\n")
        return 0
    print(f"no script is called {name}{suggestion(name, scripts())}; python -m scripts lists all", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
