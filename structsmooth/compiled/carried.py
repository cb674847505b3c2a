"""Machine code that a wheel carries: of one version of Python, numba and llvmlite, for processors of a level.

It is a folder of files as numba's cache has them, made by ``make wheel``. All of what machine code depends on is in the
name of a file or of the folder, in the stamp of the sources inside, or in the key of the level.
"""

from functools import cache
from pathlib import Path

import llvmlite
import numba
from numba.core.codegen import get_host_cpu_features

FOLDER = Path(__file__).parent / "carried" / f"numba-{numba.__version__}-llvmlite-{llvmlite.__version__}"
_SECOND = {"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
_THIRD = _SECOND | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_FOURTH = _THIRD | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
LEVELS = {"x86-64-v4": _FOURTH, "x86-64-v3": _THIRD}  # of the psABI, as LLVM has them


@cache
def levels() -> list[str]:
    """Those whose code this process may run, the highest first; none if numba is told what to compile for."""
    told = [getattr(numba.config, name) for name in ("CPU_NAME", "CPU_FEATURES")]
    if not FOLDER.is_dir() or told != [None, None]:
        return []
    return [level for level, needed in LEVELS.items() if needed <= features()]


def features() -> set[str]:
    """The special instructions that this processor has, and numba may use."""
    return {feature[1:] for feature in get_host_cpu_features().split(",") if feature.startswith("+")}
