"""What a first use takes: CPU seconds of fresh processes, with an empty cache of compiled code and with a full one.

Each job runs in a process of its own, once with an empty cache and then with what that run has left there. Seconds are
those of the process and its children, the minimum over repetitions; multiples are of ``import torch``, measured in the
same repetition, so that they can be compared between machines. ``--python`` measures another environment, such as one
with the wheel of ``make wheel``.
"""

import os
import re
import resource
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from scripts.shared.harness import command, option

ROOT = Path(__file__).parents[2]
_CACHES = ("NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@command(
    option("--repeats", 3, "repetitions, of which the minimum counts"),
    option("--python", sys.executable, "of the environment that is measured", metavar="FILE"),
    table=["job", "empty cache", "full cache"],
)
def main(options: Namespace) -> Iterator[list[str]]:
    """Seconds and multiples of each job."""
    with tempfile.TemporaryDirectory() as folder:
        trained, sentence = Path(folder) / "trained", Path(folder) / "sentence.txt"
        sentence.write_text("The Bank of New York\n")
        commands = dict(jobs(trained, sentence))
        run(training(trained), Path(folder) / "of training", options.python)  # leaves the caches of the jobs empty
        rounds = [
            {name: both(job, Path(folder) / f"{turn}{name}", options.python) for name, job in commands.items()}
            for turn in range(options.repeats)
        ]
    print(f"CPU seconds, minimum of {options.repeats}; in brackets multiples of import torch\n")
    unit = next(iter(rounds[0]))
    for name in rounds[0]:
        cells = []
        for cache in range(2):
            seconds = min(turn[name][cache] for turn in rounds)
            multiple = min(turn[name][cache] / min(turn[unit]) for turn in rounds)
            cells.append(f"{seconds:.1f} ({multiple:.2f})")
        yield [name, *cells]


def training(trained: Path) -> list[str]:
    """The arguments of Python that train the tagger of the jobs into a folder."""
    return _structsmooth("train", "ner", "--words-only", "--passes", "2", "--out", str(trained))


def jobs(trained: Path, sentence: Path) -> Iterator[tuple[str, list[str]]]:
    """Names of what is measured, and arguments of Python; the first is the unit."""
    yield "import torch", ["-c", "import torch"]
    yield "import structsmooth, every name", ["-c", "from structsmooth import *"]
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    yield "tagger of the README", ["-c", blocks[0]]
    yield "loss in a loop of the README", ["-c", blocks[1]]
    yield "structsmooth predict", _structsmooth("predict", str(trained), str(sentence))


def both(job: list[str], cache: Path, python: str) -> tuple[float, float]:
    """CPU seconds with an empty cache and with a full one."""
    return _seconds(job, cache, python), _seconds(job, cache, python)


def run(job: list[str], cache: Path, python: str = sys.executable, **variables: str) -> None:
    """Run a job whose compiled code is kept in a folder; what is installed counts, not what lies in this one."""
    caches = {name: str(cache / name) for name in _CACHES}
    environment = {**os.environ, **caches, "OMP_NUM_THREADS": "1", **variables}
    subprocess.run([python, *job], check=True, env=environment, cwd=cache.parent, capture_output=True)


def _seconds(job: list[str], cache: Path, python: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(job, cache, python)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _structsmooth(*arguments: str) -> list[str]:
    return ["-m", "structsmooth", *arguments]
