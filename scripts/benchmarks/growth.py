"""Time and memory of training a tagger as its data grow: a column file, repeated.

Every measurement is a process of its own. Seconds are those of the processor: reading the file, encoding (vocabulary,
attributes and labels), and the last of two passes of a solver with its evaluation. Memory is resident: the peak; what
of it were pages mapped from files when training ended, beyond those of the libraries, which the system takes back when
memory is short; and the peak beyond the libraries in bytes for each nonzero, a token's attribute. Repetition adds no
new words, so vocabularies stay as they are.
"""

import gzip
import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.benchmarks.growth_over_hosts import LIMITS, WAYS, shown_checks, shown_limits, shown_rounds, simulated
from scripts.shared.harness import RequestError, command, in_processes, memory, option, print_table, reading, within
from scripts.shared.networks import why_not
from structsmooth.cli.flags import parse_solvers
from structsmooth.files import DATA_VARIABLE, data_file
from structsmooth.problems import SparseChainProblem
from structsmooth.processes import processors
from structsmooth.settings import Interval, parse_lam
from structsmooth.solvers import SOLVERS, Progress
from structsmooth.tasks import NER, Chunking
from structsmooth.tasks.text.tagging import Tagging
from structsmooth.text.corpus import Sentence

_TASKS: dict[str, tuple[type[Tagging], str]] = {
    "ner": (NER, "conll2003/eng.train.gz"),
    "chunking": (Chunking, "conll2000/train.txt.gz"),
}
_PASSES = 2
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(16 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}  # as the command line's


Point = dict[str, Any]
"""What one process measured, by the columns of the table."""


@command(
    option("--data", None, "column file (default: CoNLL, in STRUCTSMOOTH_DATA)", metavar="FILE"),
    option("--task", "ner", choices=list(_TASKS)),
    option("--times", [1, 3, 10, 30], "repetitions", least=1, metavar="N"),
    option(
        "--solvers", None, "solvers (default: the one of the task)", nargs="+", choices=list(SOLVERS), metavar="NAME"
    ),
    option("--attributes-cache", None, "map attributes from files in this folder", metavar="DIR"),
    option("--hosts", None, "numbers of hosts", nargs="+", type=within(Interval(2), int), metavar="K"),
    option("--simulate", False, "imitate the hosts, in place of making them of namespaces"),
    option("--ways", list(WAYS), "of training over hosts", choices=list(WAYS)),
    option("--width", 256, "of the encoder", least=1),
    option("--rate", 1.0, "of the network of namespaces, in Gbit/s", least=0, above=True, type=float),
    option("--fleet", 100, "hosts whose limits are looked for", least=2),
    option("--sentences", 1e9, "sentences of these hosts", least=1, type=float),
    option("--memory", 64.0, "memory of each, in GB", least=0, above=True, type=float),
)
def main(options: Namespace) -> None:
    """Measure every size and solver, and print the table."""
    memory()  # or it cannot be measured here
    if options.data is None and not os.environ.get(DATA_VARIABLE):
        raise RequestError(f"give --data, or set {DATA_VARIABLE} to the folder of data")
    with reading():
        data = options.data or data_file(options.task, _TASKS[options.task][1])
        if options.hosts:
            _over_hosts(data, options)
            return
        points = list(_points(data, options))
    print(f"{options.task}: {data}\n")
    print_table(list(points[0]), ([shown(value) for value in point.values()] for point in points))


def _over_hosts(data: str, options: Namespace) -> None:
    if options.simulate:
        found = simulated(data, options.width, options.hosts, options.ways)
        titles = ["CPU s a round", "MB sent", "s at 1 Gbit/s", "s at 10 Gbit/s"]
        print_table(["way", "hosts", *titles], shown_rounds(found))
        print(f"\n{options.fleet} hosts, {options.sentences:g} sentences: shares of {options.memory:g} GB and a day\n")
        titles = [*LIMITS, "first"]
        limits = shown_limits(data, options.width, options.ways, options.fleet, options.sentences, options.memory)
        print_table(["way", *titles], limits)
        return
    if (reason := why_not()) is not None:
        raise RequestError(f"{reason}; --simulate needs none")
    print(f"{processors()} processors, {options.rate:g} Gbit/s; by the model, and measured\n")
    titles = [f"{what}, {how}" for what in ("CPU s", "MB sent", "s a round") for how in ("model", "measured")]
    rows = shown_checks(data, options.width, options.hosts, options.ways, options.rate)
    print_table(["way", "hosts", *titles, "ratio"], rows)


def measure(name: str, path: str, solver: str, cache: str | None = None) -> Point:
    """Read, encode and train in this process."""
    (optimizer,) = parse_solvers([solver]).values()
    few = [Sentence(["one", "word"], [["CD", "NN"], ["O", "O"]], ["O", "I-X"])]
    optimizer.solve(NER().fit(few).problem(few), lam=1.0, passes=1)  # loads libraries and compiles
    libraries = memory()
    task = _TASKS[name][0](attributes_cache=cache)
    times = [time.process_time()]
    examples = task.read(path)
    times.append(time.process_time())
    problem = task.fit(examples).problem(examples)
    assert isinstance(problem, SparseChainProblem)
    times.append(time.process_time())
    del examples
    encoded = memory()

    def note(progress: Progress[Any]) -> None:
        times.append(time.process_time())

    optimizer.solve(problem, lam=parse_lam(task.lam, problem.n), passes=_PASSES, callbacks=(note,))
    trained, nonzeros = memory(), len(problem.sparse.attributes)
    return {
        "n": problem.n,
        "nonzeros": nonzeros,
        "solver": solver,
        "reading (s)": times[1] - times[0],
        "encoding (s)": times[2] - times[1],
        "a pass (s)": times[-1] - times[-2],
        "peak until encoded (MB)": encoded["VmHWM"],
        "peak (MB)": trained["VmHWM"],
        "of these mapped (MB)": trained["RssFile"] - libraries["RssFile"],
        "bytes per nonzero": (trained["VmHWM"] - libraries["VmRSS"]) * 2**20 / nonzeros,
    }


def shown(value: Any) -> str:
    """A cell of the table."""
    return str(value) if isinstance(value, int | str) else f"{value:.4g}"


def _points(data: str, options: Namespace) -> Iterator[Point]:
    with tempfile.TemporaryDirectory() as folder:
        for times in options.times:
            path = str(Path(folder) / "data.txt")
            _repeat(data, times, path)
            for solver in options.solvers or [_TASKS[options.task][0].solver]:
                yield in_processes(measure, options.task, path, solver, options.attributes_cache, environment=_MALLOC)


def _repeat(data: str, times: int, path: str) -> None:
    content = Path(data).read_bytes()
    text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    with open(path, "wb") as file:
        for _ in range(times):
            file.write(text + b"\n\n")
