"""CoCoA over processes: dual and gap after some passes, passes to a gap, seconds, and memory.

`python -m scripts processes` measures one process, where CoCoA is BCFW, and
`torchrun --nproc-per-node 2 -m scripts processes` two. The problem is that of the task `ner` on a column
file, such as CoNLL-2003, with λ = 10/n. The first process prints the tables. Seconds are those of steps and sums,
without evaluations. Memory is that of the first process: its examples, its state after the run, and the peak of all
that the process ever had, with the libraries and the text of its examples. Two lines before the table say what reading
took. `--whole` lets each process parse all sentences, and drop those of others, as tasks do that cannot read a part.
"""

import resource
import time
from argparse import Namespace
from typing import Any

import torch

from scripts.shared.harness import RUNS_TO_A_GAP, command, option, print_table, until
from structsmooth import processes
from structsmooth.cli.comparison import first_row
from structsmooth.cli.flags import parse_solvers
from structsmooth.history import History
from structsmooth.problems import SparseChainProblem, partitioned
from structsmooth.settings import parse_lam
from structsmooth.solvers import CoCoA, State
from structsmooth.tasks import NER, Task


def spent() -> tuple[float, float]:
    """What this process has used so far: CPU seconds, and megabytes at its peak."""
    return time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def shard_problem(options: Any) -> tuple[SparseChainProblem, list[str]]:
    """The problem over the examples of this process, and what it took to read them and to compute their features."""
    task, used = NER(rich=options.rich, bits=options.bits), [spent()]
    fitted, examples = Task.fit_own(task, options.train) if options.whole else task.fit_own(options.train)
    used.append(spent())
    problem = fitted.problem(examples)
    used.append(spent())
    assert isinstance(problem, SparseChainProblem)
    lines = [
        f"{what}: {after[0] - before[0]:.1f} CPU seconds, peak {after[1] - before[1]:.0f} MB higher"
        for what, before, after in zip(("reading", "with features"), used, used[1:], strict=False)
    ]
    return problem, lines


def megabytes(*tensors: torch.Tensor) -> float:
    """Memory of some tensors."""
    return sum(tensor.nbytes for tensor in tensors) / 1e6


def row(label: str, history: History, state: State, options: Any) -> list[str]:
    """What a run reached, and when it reached the gap."""
    duals = [f"{history[passes].dual:.4f}" if passes < len(history) else "" for passes in options.at]
    reached = first_row(history, options.gap, lambda row: row.gap)
    last = history[-1]
    return [
        label,
        str(processes.count()),
        *duals,
        f"{last.gap:.4f} at {last.passes}",
        str(reached.passes) if reached else "",
        f"{reached.seconds:.1f}" if reached else "",
        f"{last.seconds / max(last.passes, 1):.3f}",
        f"{megabytes(*state.split()[0].values()):.0f}",
    ]


@command(
    *RUNS_TO_A_GAP,
    option("--whole", False, "let each process parse all sentences"),
    option("--solvers", ["cocoa", "cocoa:sampling=uniform,steps=fw"]),
    option("--at", [5, 10, 20], "passes to show"),
    option("--seed", 0, "of the steps"),
)
def main(options: Namespace) -> None:
    """Print the memory of the examples, then a row for each solver."""
    reached = until(lambda row: row.passes >= max(options.at) and row.gap is not None and row.gap <= options.gap)
    with processes.joined():
        shard, reading = shard_problem(options)
        problem, data = partitioned(shard), shard.sparse
        lam = parse_lam(options.lam, problem.n)
        rows = []
        for label, solver in parse_solvers(options.solvers).items():
            assert isinstance(solver, CoCoA)
            solver.solve(problem, lam=lam, passes=2)  # compiles what is not compiled yet
            result = solver.solve(problem, lam=lam, passes=options.limit, seed=options.seed, callbacks=[reached])
            rows.append(row(label, result.history, result.state, options))
        if processes.rank() == 0:
            examples = megabytes(data.attributes, data.token_offsets, data.offsets, shard.labels, shard.data.costs)
            print(f"{problem.n:,} examples, {problem.dim:,} weights; {shard.n:,} examples in the first process,")
            print(f"{examples:.0f} MB; peak of that process {spent()[1]:.0f} MB", *reading, "", sep="\n")
            titles = ["solver", "processes", *(f"dual at {passes}" for passes in options.at), "last gap"]
            titles += [f"passes to {options.gap}", "seconds to it", "seconds a pass", "state, MB"]
            print_table(titles, rows, text_columns=len(titles))
