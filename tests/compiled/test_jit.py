"""Compiled code on disk is that of the sources, all of them."""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from structsmooth.compiled import carried, jit

CHAIN = """
from structsmooth.compiled.jit import compiled

@compiled
def step(x):
    return x + 1.0
"""
LOOPS = """
from structsmooth.chain.compiled import step
from structsmooth.compiled.jit import entry_point

@entry_point
def run(x):
    return step(x)
"""
COMPILING = "structsmooth: compiling inner loops"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of two compiled functions, one of which calls the other from another room."""
    root = tmp_path / "structsmooth"
    shutil.copytree(Path(jit.__file__).parent, root / "compiled", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "chain").mkdir()
    (root / "__init__.py").touch()
    (root / "chain" / "__init__.py").touch()
    (root / "chain" / "compiled.py").write_text(CHAIN)
    (root / "compiled_loops.py").write_text(LOOPS)
    return root


def run(package: Path, argument: float = 1.0, **variables: str) -> tuple[float, bool]:
    """What the compiled function gives in a new process, and whether that said that it compiles."""
    code = f"from structsmooth.compiled_loops import run; print(run({argument!r}))"
    output, errors = output_of(code, package, **variables)
    return float(output), errors.startswith(COMPILING)


def output_of(code: str, package: Path, **variables: str) -> tuple[str, str]:
    """What a new process that has the package writes to standard output and standard error."""
    folder = package.parent
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")} | variables
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment, cwd=folder
    )
    return done.stdout, done.stderr


def test_one_process_compiles_for_all_that_start_together(package: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: run(package), range(3)))
    assert sorted(answers) == [(2.0, False), (2.0, False), (2.0, True)]


def test_a_compilation_that_fails_leaves_no_lock(package: Path) -> None:
    code = """
from structsmooth.compiled_loops import run
for argument in ("text", "text", 1.0):
    try:
        print(run(argument))
    except Exception as error:
        print(type(error).__name__)
"""
    assert output_of(code, package)[0].split() == ["TypingError", "TypingError", "2.0"]


def test_entry_points_call_their_own_copies(package: Path) -> None:
    """Copies that machine code shares by name are optimized in different company, and may differ in rounding."""
    calls_itself = "return x if x < 2.0 else step(x - 1.0) + step(x - 2.0)"  # hence is not inlined
    (package / "chain" / "compiled.py").write_text(CHAIN.replace("return x + 1.0", calls_itself))
    code = "from structsmooth.compiled_loops import run; print(run(7.0)); print(run.inspect_llvm(run.signatures[0]))"
    value, _, assembly = output_of(code, package)[0].partition("\n")
    assert value == "13.0"
    assert "define internal" in assembly
    assert "define linkonce_odr" not in assembly


ROWS = """
import numpy as np
from structsmooth.compiled.jit import entry_point, vectorized

@vectorized
def step(before, edge, after):
    for p in range(after.shape[0]):
        for s in range(after.shape[0]):
            value = before[p] + edge[p, s]
            after[s] = value if value > after[s] else after[s]

@entry_point
def run(edge, rows):
    for t in range(1, rows.shape[0]):
        step(rows[t - 1], edge, rows[t])
"""


def test_vectorized_functions_go_through_rows_of_one_array_by_vectors(package: Path) -> None:
    (package / "compiled_loops.py").write_text(ROWS)
    code = "from structsmooth.compiled_loops import np, run; run(np.zeros((4, 4)), np.zeros((3, 4)))"
    assembly, _ = output_of(f"{code}; print(run.inspect_llvm(run.signatures[0]))", package)
    assert re.search(r"fcmp .*<\d+ x double>|<\d+ x double> @llvm\.max", assembly)


def test_cached_code_follows_the_sources_of_what_it_calls(package: Path) -> None:
    assert run(package) == (2.0, True)
    assert run(package) == (2.0, False)
    chain = package / "chain" / "compiled.py"
    times = chain.stat()
    chain.write_text(CHAIN.replace("1.0", "3.0"))
    os.utime(chain, ns=(times.st_atime_ns, times.st_mtime_ns))  # as an installer may set it
    assert run(package) == (4.0, True)
    assert run(package) == (4.0, False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("@compiled\ndef step", "# A step.\n\n\n@compiled\ndef step"),
        ("return x + 1.0\n", "return x + 1.0\n\n\n@compiled\ndef other(x):\n    return x\n"),
    ],
    ids=["comment", "another function"],
)
def test_other_edits_compile_nothing(package: Path, before: str, after: str) -> None:
    run(package)
    chain = package / "chain" / "compiled.py"
    chain.write_text(CHAIN.replace(before, after))
    assert chain.read_text() != CHAIN
    assert run(package) == (2.0, False)


def test_without_a_folder_of_its_own_the_cache_is_where_numba_has_it(package: Path) -> None:
    (package.parent / "cache").touch()  # hence no folder
    assert run(package) == (2.0, True)
    assert run(package) == (2.0, False)


def test_decorators_are_a_part_of_the_code(package: Path) -> None:
    assert run(package) == (2.0, True)
    chain = package / "chain" / "compiled.py"
    chain.write_text(CHAIN.replace("@compiled", "@uncounted").replace("import compiled", "import uncounted"))
    assert run(package) == (2.0, True)
    assert run(package) == (2.0, False)


def test_values_of_globals_are_a_part_of_the_code(package: Path) -> None:
    chain = package / "chain" / "compiled.py"
    chain.write_text(CHAIN.replace("@compiled", "STEP = 1.0\n\n\n@compiled").replace("+ 1.0", "+ STEP"))
    assert run(package) == (2.0, True)
    chain.write_text(chain.read_text().replace("STEP = 1.0", "STEP = 2.0"))
    assert run(package) == (3.0, True)


def test_code_is_found_again_in_another_place(package: Path) -> None:
    run(package)
    moved = package.parent / "elsewhere"
    shutil.copytree(package, moved / "structsmooth", ignore=shutil.ignore_patterns("__pycache__"))
    (moved / "cache").symlink_to(package.parent / "cache")
    assert run(moved / "structsmooth") == (2.0, False)


def test_functions_without_machine_code_say_so(package: Path) -> None:
    code = "from structsmooth.chain.compiled import step\ntry: step(1.0)\nexcept TypeError as error: print(error)"
    assert output_of(code, package)[0].strip() == "step has no machine code of its own: only entry points have"


def test_cache_is_where_numba_is_told_to_keep_it(package: Path) -> None:
    run(package)
    assert list((package.parent / "cache").rglob("structsmooth.compiled_loops.run-*.nbc"))
    assert not list(package.rglob("*.nb*"))


def test_new_types_of_arguments_are_announced_too(package: Path) -> None:
    run(package)
    assert run(package, 1) == (2.0, True)


def test_a_terminal_shows_what_is_being_compiled(package: Path) -> None:
    code = """
import sys
sys.stderr.isatty = lambda: True
from structsmooth.compiled_loops import run
run(1.0)
"""
    announcement, *shown = output_of(code, package)[1].split("\033[K")
    assert announcement.startswith(COMPILING)
    assert [line.strip() for line in shown] == ["structsmooth.compiled_loops.run", ""]


def test_the_clock_stands_still_while_loops_are_compiled(package: Path) -> None:
    code = """
from time import perf_counter
from structsmooth.compiled import clock
from structsmooth.compiled_loops import run
for argument in (1.0, 2.0, 1, 2):
    started, counted = perf_counter(), clock.seconds()
    run(argument)
    counted = clock.seconds() - counted
    print(counted, perf_counter() - started - counted)
"""

    def left_out() -> list[bool]:
        rows = [tuple(map(float, line.split())) for line in output_of(code, package)[0].splitlines()]
        assert all(counted >= 0 for counted, _ in rows)
        return [compilation > 1e-3 for _, compilation in rows]

    assert left_out() == [True, False, True, False]
    assert left_out() == [False] * 4


def test_users_without_a_folder_for_code_compile_in_every_process(package: Path, tmp_path: Path) -> None:
    code = """
from numba.core.caching import CacheImpl
CacheImpl._locator_classes = CacheImpl._locator_classes[:1]  # as if a folder that is given alone could be written
from structsmooth.compiled_loops import run
print(run(1.0))
"""
    for _ in range(2):
        output, errors = output_of(code, package, NUMBA_CACHE_DIR="", TMPDIR=str(tmp_path))
        assert float(output) == 2.0
        assert errors.startswith(COMPILING)
        assert not list(tmp_path.glob("structsmooth-*"))


@pytest.fixture
def wheel(package: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package with machine code as a wheel carries it, and an empty cache."""
    if not carried.LEVELS["x86-64-v3"] <= carried.features():
        pytest.skip("the processor has not all instructions of x86-64-v3")
    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):  # as of tests without special instructions
        monkeypatch.delenv(name, raising=False)
    run(package, NUMBA_CPU_NAME="x86-64-v3", NUMBA_CPU_FEATURES="")
    shutil.move(package.parent / "cache" / "structsmooth.compiled", _carried(package))
    return package


def _carried(package: Path) -> Path:
    return package / carried.FOLDER.relative_to(Path(carried.__file__).parents[1])


def test_code_of_the_wheel_is_not_compiled(wheel: Path) -> None:
    assert run(wheel) == (2.0, False)
    assert not list((wheel.parent / "cache").rglob("*.nbc"))
    assert run(wheel, 1) == (2.0, True)  # of other types


def test_code_of_other_sources_is_not_loaded(wheel: Path) -> None:
    chain = wheel / "chain" / "compiled.py"
    chain.write_text(CHAIN.replace("1.0", "3.0"))
    assert run(wheel) == (4.0, True)
    (index,) = (wheel.parent / "cache").rglob("*.nbi")
    (foreign,) = _carried(wheel).glob("*.nbi")
    shutil.move(foreign, foreign.with_name(index.name))  # what is inside counts, too
    shutil.rmtree(wheel.parent / "cache")
    assert run(wheel) == (4.0, True)


@pytest.mark.parametrize("size", [0, 20])
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_damaged_code_of_the_wheel_is_compiled_again(wheel: Path, suffix: str, size: int) -> None:
    for path in _carried(wheel).glob(f"*{suffix}"):
        os.truncate(path, size)
    assert run(wheel) == (2.0, True)
    assert run(wheel) == (2.0, False)


@pytest.mark.parametrize(
    "variables",
    [{"NUMBA_ENABLE_AVX": "0"}, {"NUMBA_CPU_NAME": "generic"}],
    ids=["a processor without instructions", "another processor is asked for"],
)
def test_code_for_other_processors_is_not_loaded(wheel: Path, variables: dict[str, str]) -> None:
    assert run(wheel, **variables) == (2.0, True)


def test_code_of_other_versions_of_the_compiler_is_not_loaded(wheel: Path) -> None:
    _carried(wheel).rename(_carried(wheel).with_name("numba-0.1-llvmlite-0.1"))
    assert run(wheel) == (2.0, True)
