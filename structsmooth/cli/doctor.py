"""The command ``doctor``: whether an installation works, and what to do if it does not."""

import json
import os
import platform
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.markup import escape
from rich.table import Table

from structsmooth import __version__, processes
from structsmooth.cli.self_test import check_oracles, check_training
from structsmooth.files import DATA_VARIABLE
from structsmooth.messages import console, stage
from structsmooth.tasks import TASKS, load_task

# Modules that each optional extra of the package brings.
EXTRAS = {
    "lp": ["scipy"],
    "sklearn": ["sklearn"],
    "encoders": ["transformers", "accelerate"],
    "images": ["torchvision", "cv2"],
    "show": ["bokeh"],
    "tensorboard": ["tensorboard"],
}


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        name: what was looked at.
        value: what was found.
        advice: what to do, where something is wrong; empty where all is well.
    """

    name: str
    value: str
    advice: str = ""


def doctor(options: Namespace) -> int:
    """Check the installation: versions, devices, threads, caches, data and a self-test.

    The self-test takes about five seconds. On the first use, it compiles the loops of all structures, for a minute or
    two. The exit code is 1 if something is wrong; then the output says what to do.
    """
    findings = {}
    for section, check in _CHECKS.items():
        with stage(f"checking {section}"):
            findings[section] = list(check())
    faults = [finding for found in findings.values() for finding in found if finding.advice]
    if options.json:
        print(json.dumps({"ok": not faults} | {name: [asdict(f) for f in found] for name, found in findings.items()}))
    else:
        _show(findings, faults)
    return 1 if faults else 0


def add_doctor(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")


def check_versions() -> Iterator[Finding]:
    """Python and the libraries that computations depend on."""
    yield Finding("python", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    yield Finding("structsmooth", __version__)
    for name in ("torch", "numba", "numpy"):
        yield Finding(name, version(name))


def check_devices() -> Iterator[Finding]:
    """Graphics processors that torch can use."""
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
    yield Finding("CUDA", f"{', '.join(names) or 'no device'} ({built})")


def check_threads() -> Iterator[Finding]:
    """Numbers of threads; more of them than processors wait for each other."""
    import numba

    processors = processes.processors()
    yield Finding("processors", str(processors))
    threads = torch.get_num_threads()
    crowded = f"set OMP_NUM_THREADS={processors}: more threads than processors wait for each other"
    yield Finding("torch", str(threads), crowded if threads > processors else "")
    yield Finding("numba", str(numba.get_num_threads()))
    yield Finding("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "not set"))


def check_cache() -> Iterator[Finding]:
    """Where the compiler keeps its loops."""
    try:
        from structsmooth.structures.chain.compiled import batch_top_k
    except RuntimeError as error:  # numba has found no folder for its cache
        yield Finding("compiled loops", str(error), "set NUMBA_CACHE_DIR to a folder that you can write into")
        return
    yield check_folder("compiled loops", Path(batch_top_k.stats.cache_path), "NUMBA_CACHE_DIR")


def check_folder(name: str, folder: Path, variable: str) -> Finding:
    """Whether a folder can be written into; the variable is what names another one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return Finding(name, f"{folder}, writable")
    except OSError as error:
        return Finding(name, f"{folder}: {error}", f"set {variable} to a folder that you can write into")


def check_data() -> Iterator[Finding]:
    """Data of tasks in the folder that a variable names; a task whose data are not there takes files as arguments."""
    folder = os.environ.get(DATA_VARIABLE)
    missing = folder and not Path(folder).is_dir()
    advice = f"set {DATA_VARIABLE} to a folder that exists, or unset it" if missing else ""
    yield Finding(DATA_VARIABLE, folder or "not set (optional)", advice)
    for name in TASKS:
        yield Finding(name, _default_data(name))


def check_extras() -> Iterator[Finding]:
    """Optional libraries: absent ones are no fault, but those that cannot be imported are."""
    for extra, modules in EXTRAS.items():
        absent = [module for module in modules if find_spec(module) is None]
        if absent:
            yield Finding(extra, f"not installed (optional): pip install 'structsmooth[{extra}]'")
            continue
        try:
            shown = [f"{module} {_module_version(module)}" for module in modules]
            yield Finding(extra, ", ".join(shown))
        except (ImportError, OSError, RuntimeError) as error:  # a library of the system is missing, or versions clash
            yield Finding(extra, str(error), f"reinstall it: pip install --force-reinstall 'structsmooth[{extra}]'")


def check_computations() -> Iterator[Finding]:
    """Small computations with known results, on every device."""
    for device in ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]:
        yield _tested(f"oracles, {device}", partial(check_oracles, device))
    yield _tested("training", check_training)


_CHECKS: dict[str, Callable[[], Iterator[Finding]]] = {
    "versions": check_versions,
    "devices": check_devices,
    "threads": check_threads,
    "cache": check_cache,
    "data": check_data,
    "extras": check_extras,
    "self-test": check_computations,
}


def _show(findings: dict[str, list[Finding]], faults: list[Finding]) -> None:
    table = Table(box=None, show_header=False)
    for overflow in ("ellipsis", "ellipsis", "fold"):
        table.add_column(overflow=overflow)
    for section, found in findings.items():
        for finding in found:
            mark = "[red]✗[/]" if finding.advice else "[green]✓[/]"
            table.add_row(section if finding is found[0] else "", f"{mark} {finding.name}", escape(finding.value))
    shown = console()
    shown.print(table, highlight=False)
    for fault in faults:
        print(f"structsmooth: {fault.name}: {fault.advice}", file=sys.stderr)
    shown.print("\nall is well" if not faults else f"\nwrong: {', '.join(fault.name for fault in faults)}")


def _tested(name: str, test: Callable[[], str]) -> Finding:
    try:
        return Finding(name, test())
    except Exception as error:  # whatever is wrong with an installation may raise anything
        advice = "mend other faults first; if this one remains, reinstall structsmooth and report this output"
        return Finding(name, f"{type(error).__name__}: {error}", advice)


def _default_data(task: str) -> str:
    try:
        files = load_task(task).default_files()
    except (ValueError, FileNotFoundError) as error:
        return f"not found (optional): {error}"
    return ", ".join(dict.fromkeys(files.values()))


def _module_version(name: str) -> str:
    module = import_module(name)
    try:
        return str(getattr(module, "__version__", None) or version(name))
    except PackageNotFoundError:
        return "of unknown version"
