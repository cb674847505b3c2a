"""Packages and modules whose names load when they are asked for."""

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

_NONE: Mapping[str, str] = MappingProxyType({})


def lazy_names(
    package: str, homes: Mapping[str, str], moved: Mapping[str, str] = _NONE, others: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, whose names load when they are first asked for.

    So do the modules of the package. Editors and type checkers read the same names from imports under
    ``if TYPE_CHECKING``; a test compares both. A name that is also that of a module must be imported at once, since the
    module would take its place.

    Args:
        package: its name.
        homes: for each module, the names that the package has from it, divided by spaces.
        moved: likewise names that stood in the package once: a :class:`DeprecationWarning` says where they are now.
        others: names that the package has at once, which belong to ``__all__`` as well.
    """
    module = sys.modules[package]
    found = {name: home for home, names in homes.items() for name in names.split()}
    gone = {name: home for home, names in moved.items() for name in names.split()}
    exported = sorted([*found, *others.split()])

    def get(name: str) -> Any:
        if name in gone:
            warnings.warn(f"{package}.{name} is now {gone[name]}.{name}", DeprecationWarning, stacklevel=2)
            return getattr(import_module(gone[name]), name)
        if name in found:
            setattr(module, name, getattr(import_module(found[name]), name))
            return getattr(module, name)
        if name.isidentifier() and not name.startswith("_") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*vars(module), *exported}), exported


class LazyModule:
    """A module that loads when a name of it is first asked for, such as compiled loops, which need numba.

    Args:
        name: of the module, absolute.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


class LazyLoops(LazyModule):
    """A module of functions alone, which loads when one of them is first called: so operators can name their loops."""

    def __getattr__(self, name: str) -> Any:
        found = cache(lambda: getattr(import_module(self._name), name))
        loop = vars(self)[name] = lambda *arguments: found()(*arguments)
        return loop
