"""The command ``tune``: cross-validation over the options of ``train``."""

import math
import re
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from structsmooth.checkpoint import write_atomic
from structsmooth.cli.data import add_data_flags
from structsmooth.cli.flags import from_flags
from structsmooth.cli.folds import Splits
from structsmooth.cli.layout import PRESENTATION, add_log_flags
from structsmooth.cli.main import parsed
from structsmooth.cli.report import markdown_table, progress_bar
from structsmooth.experiments import Experiment, Logs, RunFolder, RunLog, file_name, open_logs
from structsmooth.plots import plot_tuning
from structsmooth.settings import parse_lam
from structsmooth.solvers import SOLVERS, Solver, Status, solver_settings
from structsmooth.tasks import Task, load_task

# Options that runs do not depend on, and flags of train that have no place in a grid.
_NOT_SETTINGS = {"run", "command", "out", "resume", "overwrite", "train", "dev", "test", *PRESENTATION}
_NOT_TUNED = ("--test", "--resume", "--overwrite")


@dataclass(frozen=True)
class Setting:
    """A point of the grid.

    Attributes:
        values: the texts of the options that vary, by name.
        arguments: all options, as ``structsmooth train`` takes them.
        options: the same, parsed.
    """

    values: dict[str, str]
    arguments: list[str]
    options: Namespace

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values.items()) or "as given"

    @property
    def task(self) -> Task:
        """The task with its options."""
        return from_flags(load_task(self.options.task), self.options)

    @property
    def solver(self) -> Solver[Any]:
        """The solver with its hyperparameters."""
        return from_flags(SOLVERS[self.options.solver], self.options)


@dataclass(frozen=True)
class Outcome:
    """A setting and its runs, one for each split.

    Attributes:
        setting: what was tried.
        scores: the metric to watch on held-out data; NaN where training diverged.
        runs: what the runs left: metrics, passes and seconds.
    """

    setting: Setting
    scores: list[float]
    runs: list[dict[str, Any]]

    @property
    def score(self) -> float:
        """The mean over splits."""
        return fmean(self.scores)


def tune(options: Namespace) -> int:
    """Choose options of ``train`` by cross-validation, or on development data.

    Options with several values, as in ``--lam 1/n 10/n --no-rich --rich``, span a grid. Every setting is trained and
    measured on each split; test data are never used. Finished runs are kept: after an interruption the same command
    continues, and a larger grid reuses them.
    """
    if options.out is None:
        options.out = f"runs/tune-{options.task.rpartition(':')[2].lower()}"
    settings = _settings(options)
    splits = Splits(options)
    outcomes = []
    try:
        logs = open_logs(options.log_json, options.csv, options.tensorboard)
        with logs as written, RunFolder(Path(options.out)).held():
            for setting in settings:
                runs = [_run(setting, splits, name, Path(options.out), written) for name in splits.names]
                scores = [run["metrics"].get(setting.task.headline, math.nan) for run in runs]
                outcomes.append(Outcome(setting, scores, runs))
            _write_report(options, splits, ranked(outcomes))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; finished runs are in {options.out}; the same command continues"
        ) from None
    return 0


def add_tune(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """The options of the command; the others are those of ``train``."""
    parser.add_argument("task", metavar="TASK", help="a task of structsmooth train")
    add_data_flags(parser, ("train", "dev"))
    group = parser.add_argument_group(
        "search", "Any other options are those of structsmooth train, with one value or several."
    )
    group.add_argument(
        "--folds",
        type=int,
        metavar="K",
        help="folds of the training data, texts kept whole (default: 5, without --dev)",
    )
    group.add_argument("--random", type=int, metavar="N", help="try only N settings of the grid, drawn at random")
    group.add_argument("--seed", type=int, default=0, help="of folds, draws and training (default: 0)")
    group.add_argument("--out", metavar="DIR", help="table, figure and runs (default: runs/tune-TASK)")
    add_log_flags(parser, "pass of each run")
    parser.set_defaults(choices=[])


def axes(arguments: Sequence[str]) -> dict[str, list[list[str]]]:
    """The choices for each option, as arguments: ``--lam 1 2 --rich`` gives two for lam and one for rich.

    Raises:
        ValueError: a value without an option before it, an option that is not tuned, or the same choice twice.
    """
    found: dict[str, list[list[str]]] = {}
    for token in arguments:
        if token.startswith("--"):
            flag, equals, value = token.partition("=")
            if flag in _NOT_TUNED:
                raise ValueError(f"{flag} is an option of structsmooth train alone")
            choices = found.setdefault(re.sub("^--(no-)?", "", flag), [])
            choices.append([flag, value] if equals else [flag])
        elif not found:
            raise ValueError(f"expected an option of structsmooth train before {token!r}")
        # The first value of a flag; each further one is another choice for it.
        elif len(choices[-1]) == 1:
            choices[-1].append(token)
        else:
            choices.append([flag, token])
    for name, choices in found.items():
        if len({*map(tuple, choices)}) < len(choices):
            raise ValueError(f"the same value twice for --{name}")
    return found


def ranked(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes from the best to the worst; what diverged is the worst, and equals keep their order."""
    sign = 1 if outcomes[0].setting.task.headline_is_error else -1
    return sorted(outcomes, key=lambda outcome: math.inf if math.isnan(outcome.score) else sign * outcome.score)


def _settings(options: Namespace) -> list[Setting]:
    """The grid, or a part of it drawn at random, checked before anything takes time."""
    grid = axes(options.choices)
    points = list(product(*grid.values()))
    if options.random is not None:
        if not 1 <= options.random <= len(points):
            raise ValueError(f"--random must be from 1 to the size of the grid, {len(points)}, got {options.random}")
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(options.seed))
        points = [points[i] for i in sorted(order[: options.random].tolist())]
    # All are parsed before the first run, so that an option that does not exist costs no training.
    settings = []
    for point in points:
        chosen = dict(zip(grid, point, strict=True))
        arguments = [part for choice in point for part in choice] + ["--seed", str(options.seed)]
        values = {name: choice[-1].removeprefix("--") for name, choice in chosen.items() if len(grid[name]) > 1}
        chosen_options = parsed(["train", options.task, *arguments])
        setting = Setting(values, arguments, chosen_options)
        parse_lam(chosen_options.lam, 1, "--lam")
        _ = setting.task, setting.solver
        settings.append(setting)
    return settings


def _run(setting: Setting, splits: Splits, name: str, out: Path, written: Logs) -> dict[str, Any]:
    """What a run left; it is made now if it was not finished before."""
    settings = {key: value for key, value in vars(setting.options).items() if key not in _NOT_SETTINGS}
    settings |= solver_settings(setting.solver)
    place = out / "runs" / file_name(str(setting)) / name
    folder = RunFolder(place, settings | splits.files | {"split": name})
    log = written.of(setting=str(setting), split=name)
    if (record := folder.finished()) is not None:
        log.keep(record["history"])
        return record
    record = _trained(setting, splits, name, folder, log)
    folder.finish(record)
    return record


def _trained(setting: Setting, splits: Splits, name: str, folder: RunFolder, log: RunLog) -> dict[str, Any]:
    options = setting.options
    fitted, problem, held_out = splits.of(setting.task, name)
    result = Experiment(setting.solver, options.lam, options.passes, options.seed).run(
        problem,
        log=log,
        show=lambda done: progress_bar(options.passes, "", f"{setting}, {name}", done=done),
        folder=folder,
        resume=True,
        whole=True,
    )
    diverged, last = result.status is Status.DIVERGED, result.history[-1]
    return {
        "metrics": {} if diverged else held_out.measure(fitted, result.weights)[0],
        "message": result.message,
        "passes": last.passes,
        "seconds": last.seconds,
        "history": [row.as_dict() for row in result.history],
    }


def _write_report(options: Namespace, splits: Splits, outcomes: Sequence[Outcome]) -> None:
    out, best, headline = Path(options.out), outcomes[0], outcomes[0].setting.task.headline
    title = f"{options.task}: {headline} on {'dev' if splits.dev else f'{splits.count} folds'}, seed {options.seed}"
    report = f"{title}, best first\n\n{table(outcomes, headline)}\n"
    write_atomic(out / "table.md", report)
    saved = ["table.md"]
    if best.setting.values:
        plot_tuning(list(_points(outcomes)), out / "tuning.png", headline, title)
        saved.append("tuning.png")
    train = ["structsmooth", "train", options.task, "--train", splits.train, *best.setting.arguments]
    print(f"{report}\nsaved in {out}: {', '.join(saved)}\n\nbest: {shlex.join(train)}")


def table(outcomes: Sequence[Outcome], headline: str) -> str:
    """A row for each setting, in Markdown: means and deviations over splits, mean passes and seconds."""
    names = list(outcomes[0].setting.values)
    rows = []
    for outcome in outcomes:
        costs = ([run[name] for run in outcome.runs] for name in ("passes", "seconds"))
        passes, seconds = map(fmean, costs)
        deviation = f"{stdev(outcome.scores):.4f}" if len(outcome.scores) > 1 else ""
        score = "diverged" if math.isnan(outcome.score) else f"{outcome.score:.4f}"
        rows.append([*outcome.setting.values.values(), score, deviation, f"{passes:g}", f"{seconds:.2f}"])
    return markdown_table([*names, headline, "deviation", "passes", "seconds"], rows, len(names))


def _points(outcomes: Sequence[Outcome]) -> Iterator[tuple[Mapping[str, str], list[float]]]:
    """Values and scores of the settings that did not diverge."""
    for outcome in outcomes:
        if not math.isnan(outcome.score):
            yield outcome.setting.values, outcome.scores
