"""Packages and modules whose names load when they are asked for."""

import ast
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package that imports names under ``if TYPE_CHECKING`` alone.

    Its import statements stand there once, for editors and type checkers to read, and for this function: a name loads
    its module when it is first asked for, and so does a module of the package. ``__all__`` has the names that are
    imported ``as`` themselves, there or at once. Others have moved to the module that they are imported from, and a
    :class:`DeprecationWarning` says so. A name that is also that of a module must be imported at once, since the module
    would take its place.
    """
    module = sys.modules[package]
    assert module.__spec__ is not None
    source: str = module.__spec__.loader.get_source(package)  # type: ignore[union-attr]
    statements = ast.parse(source).body
    blocks = [statement.body for statement in statements if isinstance(statement, ast.If)]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}
    imports += [node for node in statements if isinstance(node, ast.ImportFrom)]
    exported = sorted(alias.asname for node in imports for alias in node.names if alias.asname)

    def get(name: str) -> Any:
        if name in homes and name not in exported:
            warnings.warn(f"{package}.{name} is now {homes[name]}.{name}", DeprecationWarning, stacklevel=2)
            return getattr(import_module(homes[name]), name)
        if name in homes:
            setattr(module, name, getattr(import_module(homes[name]), name))
            return getattr(module, name)
        if name.isidentifier() and not name.startswith("_") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*vars(module), *module.__all__}), exported


class LazyModule:
    """A module that loads when a name of it is first asked for, such as compiled loops, which need numba.

    Args:
        name: of the module, absolute.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
