"""What users launch, and the laboratory: benchmarks, comparisons, reproductions of papers, pictures, tools.

``python -m scripts`` lists all that runs, and ``python -m scripts NAME`` runs it.
"""

import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_HOMES = {"benchmark_": "benchmarks.", "compare_": "comparisons.", "train_": "comparisons.train_", "": "tools."}


class _Launcher(InspectLoader):
    """A module that runs a script which stands elsewhere now."""

    def __init__(self, home: str) -> None:
        self.home = home

    def get_source(self, fullname: str) -> str:
        return f"from {self.home} import main\n\nif __name__ == '__main__':\n    raise SystemExit(main())\n"


class _Moved(MetaPathFinder):
    """Scripts by their names of version 0.4: ``python -m scripts.benchmark_chain`` runs ``benchmarks/chain.py``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        for prefix, room in _HOMES.items():
            home = f"scripts.{room}{name.removeprefix(prefix)}"
            if package == "scripts" and name.startswith(prefix) and (spec := find_spec(home)):
                return ModuleSpec(fullname, _Launcher(home), origin=spec.origin)
        return None


sys.meta_path.append(_Moved())
