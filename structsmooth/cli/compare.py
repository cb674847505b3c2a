"""The command ``compare``: solvers side by side on one problem."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import torch

from structsmooth.checkpoint import write_atomic
from structsmooth.cli.comparison import best_settings, comparison_table, gaps_table
from structsmooth.cli.data import TrainingData, add_data_flags, add_task_flags, identity
from structsmooth.cli.flags import parse_solvers
from structsmooth.cli.layout import PRESENTATION, add_log_flags
from structsmooth.cli.report import progress_bar
from structsmooth.experiments import Experiment, Logs, RunFolder, file_name, open_logs
from structsmooth.history import History
from structsmooth.messages import located, stage
from structsmooth.plots import Bands, plot_comparison
from structsmooth.problems import Problem
from structsmooth.settings import parse_lam
from structsmooth.smoothing import Max
from structsmooth.solvers import SOLVERS, Solver, Status, solver_settings
from structsmooth.tasks import load_task

# Options that may change when a comparison goes on: which runs there are, how long they are, and what is shown.
_NOT_SETTINGS = {"run", "command", "out", "solvers", "lams", "seeds", "passes", "bands", "best", *PRESENTATION}
# Solvers of convex problems, one of each kind, to compare the task's solver with.
_USUAL = ("proximal-bcfw", "proximal-sdca", "casimir-svrg", "bcfw", "svrg", "sgd")
# Passes of a rehearsal: the first refresh of gaps by BCFW is among them.
_REHEARSAL = 12


@dataclass(frozen=True)
class _Run:
    """One solver at one λ with one seed, and the folder that keeps it."""

    label: str
    solver: Solver[Any]
    lam_text: str
    lam: float
    seed: int
    folder: RunFolder

    def __str__(self) -> str:
        return f"{self.label}, λ = {self.lam_text}, seed {self.seed}"


def compare(options: Namespace) -> int:
    """Run solvers side by side on one problem, and plot and tabulate their progress.

    Runs are saved while they are made: after an interruption the same command continues.
    """
    solvers = _solvers(options)
    data = TrainingData.read(options)
    problem = data.problem
    lams = {text: parse_lam(text, problem.n, "--lams") for text in _listed(options.lams)}
    if options.solvers is None:
        solvers = _suited(solvers, problem, lams)
    settings = {name: value for name, value in vars(options).items() if name not in _NOT_SETTINGS}
    settings |= identity(data.files)
    runs = list(_runs(options, solvers, lams, settings))
    with stage(f"checking {len(runs)} runs on few examples"):
        _check(problem, runs, options.passes)
    histories: dict[str, dict[str, list[History]]] = {text: {label: [] for label in solvers} for text in lams}
    title = f"{options.task}: n = {problem.n:,}, {problem.dim:,} weights, train: {data.files['train']}, "
    title += f"{options.passes} passes, median of seeds {', '.join(map(str, _seeds(options)))}"
    try:
        logs = open_logs(options.log_json, options.csv, options.tensorboard)
        with logs as written, RunFolder(Path(options.out)).held():
            for run in runs:
                histories[run.lam_text][run.label].append(_history(run, data, options.passes, written))
            _write_report(title, options, data, solvers, histories, lams)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; saved in {options.out}: the same command continues") from None
    return 0


def load_runs(out: str | Path) -> dict[str, dict[str, list[History]]]:
    """Histories of the runs that ``compare --out`` keeps, by λ and solver, one for each seed."""
    found: dict[str, dict[str, list[History]]] = {}
    for folder in sorted(Path(out, "runs").glob("*/*/*")):
        settings, history = RunFolder(folder).load_history()
        found.setdefault(f"{settings['lam']:.3g}", {}).setdefault(settings["solver"], []).append(history)
    return found


def add_compare(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """The options of the command, with the options of the task that the arguments name."""
    parser.add_argument("task", metavar="TASK", help="a task of structsmooth train")
    add_data_flags(parser)
    group = parser.add_argument_group("runs: every solver, at every λ, with every seed")
    help_solvers = (
        f"any of {', '.join(SOLVERS)}, with options of structsmooth train after a colon, as in "
        "svrg,sgd:schedule=inverse,average=false; gap_tolerance is 0 if not given (default: the task's solver, and "
        f"all of {', '.join(_USUAL)} that can solve its problem)"
    )
    group.add_argument("--solvers", nargs="+", metavar="SOLVER", help=help_solvers)
    group.add_argument("--lams", metavar="C,...", help="values of λ, numbers or c/n (default: set by the task)")
    group.add_argument(
        "--seeds", default="0,1,2", metavar="SEED,...", help="seeds of the order of examples (default: 0,1,2)"
    )
    group.add_argument("--passes", type=int, help="passes over the data (default: set by the task)")
    group.add_argument(
        "--bands",
        choices=get_args(Bands),
        default="range",
        help="lines and bands over seeds: median with smallest and largest value, or mean with one standard deviation "
        "to either side (default: range)",
    )
    group.add_argument(
        "--best",
        action="store_true",
        help="of several settings of a solver, as in sgd:learning_rate=0.1 sgd:learning_rate=1, show the one with the "
        "lowest objective among those whose metric on the development data is within 1 %% of the best",
    )
    group.add_argument("--out", metavar="DIR", help="tables, figures and runs (default: runs/compare-TASK)")
    add_log_flags(parser, "pass of each run")
    if (found := add_task_flags(parser, "compare", arguments)) is not None:
        task, name = found
        parser.set_defaults(lams=task.lam, passes=task.passes, out=f"runs/compare-{name}")


def _solvers(options: Namespace) -> dict[str, Solver[Any]]:
    """Solvers by label, with the hyperparameters of ``train`` unless others are given; the usual ones by default."""
    task = load_task(options.task)
    texts = options.solvers or list(dict.fromkeys([task.solver, *_USUAL]))
    return parse_solvers(texts, {task.solver: task.hyperparameters})


def _suited(solvers: Mapping[str, Solver[Any]], problem: Problem, lams: Mapping[str, float]) -> dict[str, Solver[Any]]:
    """The solvers that can solve the problem at every λ; the others are named on standard error."""
    faults = {label: _fault(solver, problem, lams.values()) for label, solver in solvers.items()}
    for label, fault in faults.items():
        if fault:
            print(f"structsmooth: {label} is left out: {fault}", file=sys.stderr)
    suited = {label: solver for label, solver in solvers.items() if not faults[label]}
    if not suited:
        raise ValueError("none of the usual solvers can solve this problem: give --solvers")
    return suited


def _fault(solver: Solver[Any], problem: Problem, lams: Iterable[float]) -> str:
    """Why a solver cannot solve the problem at every λ; nothing if it can."""
    try:
        for lam in lams:
            solver.check(problem, lam)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _runs(
    options: Namespace, solvers: Mapping[str, Solver[Any]], lams: Mapping[str, float], settings: dict[str, Any]
) -> Iterator[_Run]:
    for (text, lam), (label, solver), seed in product(lams.items(), solvers.items(), _seeds(options)):
        path = Path(options.out, "runs", file_name(label), file_name(text), str(seed))
        run = {"solver": label, "lam": lam, "seed": seed} | solver_settings(solver)
        yield _Run(label, solver, text, lam, seed, RunFolder(path, settings | run))


def _check(problem: Problem, runs: Sequence[_Run], passes: int) -> None:
    """Refuse what would stop a comparison midway, before it takes time.

    Every solver also makes some passes over a few examples, so that its loops are compiled before the clock runs.
    """
    for run in runs:
        run.folder.has_checkpoint(run.solver)  # raises if it is of other settings
    few = problem.subset(torch.arange(min(problem.n, 2)))
    for run in {(run.label, run.lam_text): run for run in runs}.values():
        with located(f"{run.label} at λ = {run.lam_text}", (TypeError, ValueError)):
            run.solver.solve(few, lam=run.lam, passes=min(passes, _REHEARSAL), seed=run.seed)


def _history(run: _Run, data: TrainingData, passes: int, written: Logs) -> History:
    """The history of a run up to some passes; passes that were not saved are made now."""
    headline = data.metric(list(data.held_out)[-1]) if data.held_out else ""
    result = Experiment(run.solver, run.lam, passes, run.seed).run(
        data.problem,
        measure=[data.measure_all],
        log=written.of(solver=run.label, lam=run.lam_text, seed=run.seed),
        show=lambda done: progress_bar(passes, headline, str(run), done=done),
        folder=run.folder,
        resume=True,
        whole=True,
    )
    if result.status is Status.DIVERGED:
        print(f"structsmooth: {run}: {result.message}", file=sys.stderr)
    return History(row for row in result.history if row.passes <= passes)


def _write_report(
    title: str,
    options: Namespace,
    data: TrainingData,
    solvers: Mapping[str, Solver[Any]],
    histories: Mapping[str, Mapping[str, Sequence[History]]],
    lams: Mapping[str, float],
) -> None:
    out, metrics = Path(options.out), [data.metric(split) for split in data.held_out]
    sections = [title]
    names = {text: f"λ = {text}" + (f" = {lam:.3g}" if "/" in text else "") for text, lam in lams.items()}
    for text, all_runs in histories.items():
        name = names[text]
        runs = _best_settings(all_runs, data) if options.best else all_runs
        sections += [f"## {name}", comparison_table(runs, metrics)]
        picture = out / f"lam-{file_name(text)}.png"
        plot_comparison(runs, picture, n=data.problem.n, metrics=metrics, bands=options.bands, title=name)
    oracles = {label: _oracle(solver, data.problem) for label, solver in solvers.items()}
    gaps = gaps_table({names[text]: runs for text, runs in histories.items()}, oracles, data.problem.n)
    sections += ["## Duality gaps: effective passes (n oracle calls each) and seconds", gaps]
    report = "\n\n".join(sections) + "\n"
    write_atomic(out / "table.md", report)
    print(report)
    print(f"saved in {out}: table.md, " + ", ".join(f"lam-{file_name(text)}.png" for text in lams))


def _best_settings(runs: Mapping[str, Sequence[History]], data: TrainingData) -> Mapping[str, Sequence[History]]:
    """The best setting of each solver: by the metric of development data if there are any, and never by test data."""
    metric = data.metric("dev") if "dev" in data.held_out else None
    return best_settings(runs, metric, data.task.task.headline_is_error)


def _oracle(solver: Solver[Any], problem: Problem) -> str:
    """The oracle that a solver calls on a problem: a likelihood has one oracle for all."""
    return solver.oracle if isinstance(problem.smoother, Max) else "exp"


def _listed(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in str(text).split(",")))


def _seeds(options: Namespace) -> list[int]:
    try:
        return [int(text) for text in _listed(options.seeds)]
    except ValueError:
        raise ValueError(f"--seeds must be whole numbers with commas between them, got {options.seeds!r}") from None
