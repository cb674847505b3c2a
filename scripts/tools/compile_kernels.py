"""Compiles every Triton kernel for two generations of GPUs, on a machine without any, and prints what each needs.

The compiler (``ptxas``) and the reader of its results (``cuobjdump``) come with Triton. A kernel that spills registers
to memory fails the command.

    python -m scripts compile_kernels
"""

import re
import subprocess
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from scripts.shared.harness import RequestError, command, option, print_table
from structsmooth.structures.chain.fused import exponential_kernels, output_kernels, stretch_kernels, wide_kernels
from structsmooth.structures.chain.fused.tiles import (
    fits_a_tile,
    row_tile,
    tiles_of,
    top_k_tiles,
    whole_tiles,
    wide_tiles,
)
from structsmooth.structures.programs.fused import output_kernels as program_output_kernels
from structsmooth.structures.programs.fused import sum_kernels
from structsmooth.structures.programs.fused.outputs import PLACES
from structsmooth.structures.programs.fused.tables import TILE

PROGRAM_MODULES = (sum_kernels, program_output_kernels)
MODULES = (stretch_kernels, exponential_kernels, output_kernels, wide_kernels, *PROGRAM_MODULES)
ARCHITECTURES = (80, 90)
STATES = (9, 32, 64, 128, 256)
RANKS = 5

# Arguments that are no pointers to numbers of the dtype of the scores.
POINTERS = {
    **dict.fromkeys(["lengths", "labels", "roots", "used"], "*i64"),
    **dict.fromkeys(["back", "ends", "firsts", "seconds", "stack"], "*i32"),
    **dict.fromkeys(["rows", "left", "right", "head", "index", "bounds", "out_rows", "out_edges"], "*i32"),
    **dict.fromkeys(["score_rows", "score_edges"], "*i32"),
}
SIZES = ["t", "steps", "states", "k", "draws", "edge_batch", "edge_step", "moved_batch", "moved_step", "pair_steps"]
PROGRAM_SIZES = ["nodes", "scores", "levels", "k", "pairs", "depth", "longest", "draws"]


class Case(NamedTuple):
    """A kernel with what it is compiled for."""

    label: str
    kernel: Any
    constants: dict[str, Any]
    dtype: str

    def compile(self, architecture: int) -> Any:
        """The compiled kernel."""
        constants = dict(self.constants)
        options: dict[str, Any] = {name: constants.pop(name) for name in ("num_warps", "maxnreg") if name in constants}
        options["enable_fp_fusion"] = True  # the default until Triton 3.9, which warns of another one
        of_programs = self.kernel.fn.__module__ in {module.__name__ for module in PROGRAM_MODULES}
        sizes = PROGRAM_SIZES if of_programs else SIZES
        pointers = {
            **POINTERS,
            **({} if of_programs else {"back": "*i16", "log_z": "*fp64"}),
            **dict.fromkeys(sizes, "i32"),
            **dict.fromkeys(constants, "constexpr"),
        }
        signature = {name: pointers.get(name, f"*{self.dtype}") for name in self.kernel.arg_names}
        source = ASTSource(fn=self.kernel, signature=signature, constexprs=constants)
        return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)


class Needs(NamedTuple):
    """What a compiled kernel needs: registers of a thread, bytes of shared memory, bytes that a thread spills."""

    registers: int
    shared: int
    spilled: int


def chain_cases(dtype: str) -> Iterator[Case]:
    """Kernels of chains, for all numbers of states."""
    size = {"fp32": 4, "fp64": 8}[dtype]
    for states in STATES:
        tiles, kept = tiles_of(states, size), whole_tiles(states, size, edge_step=0)["SHARED"]
        heavy = tiles_of(states, size, heavy=True)
        for shared in {kept, False}:
            label = f"{states} states" + ", shared transitions" * shared
            for largest in (False, True):
                sizes = {**tiles, "SHARED": shared, "MAX": largest}
                yield Case(label + ", max" * largest, exponential_kernels.forward, sizes, dtype)
            for summed in (True, False):
                sizes = {**tiles, "SHARED": shared, "SUMMED": summed}
                yield Case(label + ", summed" * summed, exponential_kernels.backward, sizes, dtype)
        for summed in (True, False):
            label = f"{states} states" + ", summed" * summed
            yield Case(label, exponential_kernels.tangent, {**heavy, "SUMMED": summed}, dtype)
        best = [top_k_tiles(states, RANKS, size, step) for step in (0, states**2)]
        for tile, smoothed in ((best[0], False), (best[0], True), *[(best[1], False)] * best[0]["SHARED"]):
            label = f"{states} states, {RANKS} best" + ", shared transitions" * tile["SHARED"] + ", smoothed" * smoothed
            yield Case(label, output_kernels.top_k, {**tile, "SMOOTHED": smoothed}, dtype)
        yield Case(f"{states} states", output_kernels.max_marginals, tiles, dtype)
        for taken in (False, True):
            sizes = {**(heavy if taken else tiles), "SUBTRACTED": taken}
            yield Case(f"{states} states" + ", taken" * taken, output_kernels.parts, sizes, dtype)
        for largest in (False, True) if fits_a_tile(states) else ():
            label = f"{states} states" + ", max" * largest
            yield Case(label, stretch_kernels.transfers, {**tiles, "MAX": largest}, dtype)
    for states in (*STATES, 2048):
        for largest in (False, True):
            label, row = f"{states} states" + ", max" * largest, row_tile(states, size)
            yield Case(label, exponential_kernels.sample, {**row, "MAX": largest}, dtype)
    for either in (False, True):
        _, tiles = wide_tiles(1, 2048, size)
        yield Case("many states" + ", max" * either, wide_kernels.forward_step, {**tiles, "MAX": either}, dtype)
        yield Case("many states" + ", summed" * either, wide_kernels.backward_step, {**tiles, "SUMMED": either}, dtype)
        sizes = {"POSITIONS": 128, "SUBTRACTED": either}
        yield Case("any states" + ", taken" * either, output_kernels.score, sizes, dtype)


def program_cases(dtype: str) -> Iterator[Case]:
    """Kernels of programs, which are the same for all of them."""
    for kernel in (sum_kernels.sums, sum_kernels.adjoints, sum_kernels.parts):
        for largest in (False, True):
            yield Case("any program" + ", max" * largest, kernel, {**TILE, "MAX": largest}, dtype)
    for kernel in (sum_kernels.tangents, sum_kernels.turned_parts, program_output_kernels.best):
        yield Case("any program", kernel, TILE, dtype)
    for ranks in (0, 8):
        label = "any program" + ", smoothed" * (ranks > 0)
        yield Case(label, program_output_kernels.follow, {"RANKS": ranks, "num_warps": 1}, dtype)
    yield Case("any program", program_output_kernels.draw, {"EDGES": 32, "num_warps": 1}, dtype)
    for kernel in (program_output_kernels.weighted_uses, program_output_kernels.scores_of_outputs):
        yield Case("any program", kernel, {"PLACES": PLACES, "num_warps": 1}, dtype)


def cases() -> Iterator[Case]:
    """The cases of all kernels."""
    for dtype in ("fp32", "fp64"):
        yield from chain_cases(dtype)
        yield from program_cases(dtype)


def needs(compiled: Any) -> Needs:
    """What a compiled kernel needs, read from its machine code."""
    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [str(folder / "cuobjdump"), "-res-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", text)
    if found is None:
        raise ValueError(f"cuobjdump did not say what the kernel needs: {text}")
    registers, stack, _, local = map(int, found.groups())
    return Needs(registers, compiled.metadata.shared, stack + local)


@command(option("--only", None, "part of the names of kernels to compile (default: all)"), threads=None)
def main(options: Namespace) -> int:
    """Print the table; the code says whether kernels spill."""
    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    if not (folder / "ptxas").exists():
        raise RequestError(f"this build of Triton has no compiler for NVIDIA's GPUs: {folder / 'ptxas'} is missing")
    spilling = 0

    def rows() -> Iterator[list[object]]:
        nonlocal spilling
        for case in cases():
            name = f"{case.kernel.fn.__module__.removeprefix('structsmooth.structures.')}.{case.kernel.fn.__name__}"
            for architecture in ARCHITECTURES if (options.only or "") in name else ():
                needed = needs(case.compile(architecture))
                spilling += needed.spilled > 0
                yield [name, case.label, case.dtype, architecture, *needed]

    print_table(["kernel", "for", "dtype", "sm", "registers", "shared bytes", "spilled bytes"], rows(), text_columns=3)
    print(f"\n{spilling or 'No'} kernels spill registers.")
    return min(1, spilling)
