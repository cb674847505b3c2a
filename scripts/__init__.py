"""What users launch, and the laboratory: benchmarks, comparisons, reproductions of papers, pictures, tools.

``python -m scripts`` lists all that runs, and ``python -m scripts NAME`` runs it.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).parent
_PATHS = {"benchmark_": "benchmarks/", "compare_": "comparisons/", "train_": "comparisons/train_", "": "tools/"}


class _Moved(MetaPathFinder):
    """Scripts by their names of version 0.4: ``python -m scripts.benchmark_chain`` runs ``benchmarks/chain.py``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        for prefix, path_prefix in _PATHS.items():
            file = _HERE / f"{path_prefix}{name.removeprefix(prefix)}.py"
            if package == "scripts" and name.startswith(prefix) and file.is_file():
                return spec_from_file_location(fullname, file)
        return None


sys.meta_path.append(_Moved())
