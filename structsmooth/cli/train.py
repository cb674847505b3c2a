"""The command ``train``."""

import os
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import fields
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any

from structsmooth import processes
from structsmooth.checkpoint import write_atomic
from structsmooth.cli.data import (
    TrainingData,
    add_data_flags,
    add_task_flags,
    data_files,
    examples_of_hosts,
    identity,
    read_examples,
)
from structsmooth.cli.flags import add_flags, from_flags, known_solver, usable_device
from structsmooth.cli.layout import PRESENTATION, add_log_flags
from structsmooth.cli.report import history_table, progress_bar
from structsmooth.experiments import Experiment, RunFolder, open_logs
from structsmooth.history import History, Row
from structsmooth.messages import console, counted, stage
from structsmooth.plots import plot_history
from structsmooth.solvers import SOLVERS, Result, Solver, Status, solver_settings
from structsmooth.tasks import TASKS, Task, load_task
from structsmooth.tasks.probabilities import ProbabilisticTask, probabilistic
from structsmooth.tasks.text.encoded import Encoded
from structsmooth.tasks.trained import TrainedModel

# Options that may change when a run is resumed.
_NOT_SETTINGS = {
    "run",
    "command",
    "out",
    "resume",
    "overwrite",
    "passes",
    "calibrate",
    "device",
    "patience",
    "local_data",
} | {*PRESENTATION}
# Those that may differ between the processes of a run.
_PER_PROCESS = {"run", "device", *PRESENTATION}
_INTERRUPTED = 130


@contextmanager
def _only_first_speaks() -> Iterator[None]:
    """Silence all processes but the first, except for the error that may end them."""
    if processes.rank() == 0:
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def train(options: Namespace) -> int:
    """Train a model for a task and save it; ``--resume`` continues an interrupted run."""
    with processes.joined(options.patience), _only_first_speaks(), ExitStack() as held:
        return _trained(options, *processes.run_on_all_ranks(lambda: _prepared(options, held)))


def _trained(options: Namespace, solver: Solver[Any], out: Path, settings: dict[str, Any]) -> int:
    options.local_data = options.local_data and processes.count() > 1
    settings |= identity(data_files(options), solver.needs_partitions, options.local_data)
    processes.agree({name: value for name, value in vars(options).items() if name not in _PER_PROCESS} | settings)
    folder = RunFolder(out, settings)
    begun = options.resume and folder.has_checkpoint(solver)  # refused, if it is, before data are read in vain
    _say_what_is_shared(options, folder, begun)
    tuned = _prepare_encoder(options, out)
    data = TrainingData.read(options, solver.needs_partitions, options.device)
    if options.calibrate:
        _check_calibration(data)
    experiment = Experiment(solver, options.lam, options.passes, options.seed)
    lam = experiment.lam_of(data.problem, "--lam")
    show = partial(progress_bar, options.passes, data.headline, shown=data.watched_metric)
    with open_logs(options.log_json, options.csv, options.tensorboard) as logs:
        result = experiment.run(
            data.problem,
            measure=[data.measure_watched],
            log=logs.of(),
            show=lambda done: show(done=done),
            folder=folder,
            resume=options.resume,
        )
    if result.status is Status.INTERRUPTED and processes.count() > 1:
        # The others may be anywhere in their passes.
        raise KeyboardInterrupt(f"interrupted; --resume continues after the last complete pass, in {options.out}")
    with stage("measuring"):
        metrics = _report(data, result)
    if tuned is not None and "dev" in metrics:
        metrics["dev, network as tuned"] = tuned.metrics
        _compare_heads(data.headline, metrics, tuned, result.row)
    description = {"task": options.task, "settings": settings | data.forms, "n": data.problem.n, "lam": lam}
    description |= {"status": result.status.value, "message": result.message, "metrics": metrics}
    if processes.rank() == 0:
        model = TrainedModel(data.task, result.weights.cpu(), description)
        with stage("saving the model and its curves"):
            saved = _save(model, result.history, out)
        if options.calibrate:
            with stage("fitting the temperature of probabilities to the development data"):
                model = model.calibrated(data.held_out["dev"].examples)
        if data.watched and isinstance(data.task, ProbabilisticTask):
            with stage(f"measuring how unsure the model is about the {data.watched} data"):
                examples, source = data.held_out[data.watched].examples, data.files[data.watched]
                model.profiled(examples, data.vocabulary, source).save(out)
        console().print(f"\nsaved in {options.out}: {', '.join(saved)}", highlight=False)
    return {Status.INTERRUPTED: _INTERRUPTED, Status.DIVERGED: 1}.get(result.status, 0)


def _prepared(options: Namespace, held: ExitStack) -> tuple[Solver[Any], Path, dict[str, Any]]:
    """The solver, the folder of the run, which is held, and the settings that a run must have to go on."""
    if options.device != "cpu" and load_task(options.task).cpu_alone and not getattr(options, "tune", None):
        raise ValueError(f"--device: {options.task} has no module, and trains on the CPU alone; got {options.device}")
    solver, out = from_flags(SOLVERS[options.solver], options), Path(options.out)
    if processes.rank() == 0:
        held.enter_context(RunFolder(out).held())
    RunFolder(out).claim(resume=options.resume, overwrite=options.overwrite)
    settings = {name: value for name, value in vars(options).items() if name not in _NOT_SETTINGS}
    settings |= solver_settings(solver)
    if options.device != "cpu":
        settings["device"] = options.device  # to which the tensors of a checkpoint return
    return solver, out, settings


def _say_what_is_shared(options: Namespace, folder: RunFolder, begun: bool) -> None:
    """Say what follows if machines have folders of their own; refuse what needs one that all see."""
    if processes.count() == 1 or folder.is_shared():
        return
    if getattr(options, "tune", None):
        raise ValueError(f"--tune needs an --out that all processes see, and {options.out} is on disks of their own")
    console().print(
        f"{options.out} is on disks of their own: the model will be on {gethostname()}, where process 0 runs, and "
        "checkpoints stay where they are made; --resume finds them on whichever machines start again",
        highlight=False,
    )
    if options.resume and not begun:
        console().print("--resume: none of these machines has a checkpoint, so that the run begins anew")


def _prepare_encoder(options: Namespace, out: Path) -> Row | None:
    """Tune the encoder of a task of text, if that is asked for, and keep features beside the run: the epoch it has."""
    if getattr(options, "encoder", None) is None:
        return None
    if "attributes_cache" in options:
        options.attributes_cache = options.attributes_cache or str(out.parent / "features")
    task, files = from_flags(load_task(options.task), options), data_files(options)
    if not isinstance(task, Encoded) or task.tune is None:
        return None
    dev = None
    train = (examples_of_hosts if options.local_data else partial(read_examples, split="train"))(task, files["train"])
    if "dev" in files:
        dev = read_examples(task, files["dev"], "dev")
    how = {"device": options.device, "seed": options.seed, "resume": options.resume}
    try:
        with stage(f"tuning the encoder, {counted(task.epochs, 'epoch')}"):
            task, history = task.tuned(train, dev, out / "encoder", **how)
    except KeyboardInterrupt:
        remedy = f"--resume continues after the last complete epoch, in {options.out}"
        raise KeyboardInterrupt(f"interrupted while the encoder was tuned; {remedy}") from None
    console().print(history_table(history, task.headline, f"dev {task.headline}"))
    vars(options).update({f.name: getattr(task, f.name) for f in fields(Encoded)}, device="cpu")
    return max(history, key=lambda row: row.metrics.get(task.headline, row.passes))


def _compare_heads(headline: str, metrics: dict[str, dict[str, float]], tuned: Row, solved: Row) -> None:
    """Say what a head that is solved gains over the network of a tuned encoder."""
    before, after = tuned.metrics[headline], metrics["dev"][headline]
    certified = "" if solved.gap is None else f", whose objective is at most {solved.gap:.3g} above its optimum"
    console().print(
        f"\ndev {headline}: {before:.4f} by the network as epoch {tuned.passes:g} left it; {after:.4f} "
        f"({after - before:+.4f}) by the head that was solved{certified}",
        highlight=False,
    )


def _check_calibration(data: TrainingData) -> None:
    """Refuse to calibrate before the training, not behind it."""
    if "dev" not in data.held_out:
        raise ValueError("--calibrate needs development data, which do not train the model: give --dev")
    probabilistic(data.task, "--calibrate")


def _report(data: TrainingData, result: Result) -> dict[str, dict[str, float]]:
    """Print the history, and metrics of the weights on all held-out data; returns the metrics by split."""
    shown = console()
    shown.print(history_table(result.history, data.headline, data.watched_metric))
    shown.print(result.message, highlight=False)
    metrics = {}
    for split, held_out in data.held_out.items():
        metrics[split], table = held_out.measure(data.task, result.weights)
        shown.print(f"\n{split}: {data.files[split]}\n{table}", highlight=False)
    return metrics


def _save(model: TrainedModel, history: History, folder: Path) -> list[str]:
    """Save a trained model, its history and pictures of both: what was saved."""
    model.save(folder)
    write_atomic(folder / "history.jsonl", history.to_json_lines())
    about = model.description
    title = f"{about['task']}: {about['settings']['solver']}, λ = {about['lam']:.3g}"
    metric = model.task.task.headline
    label = f"{model.watched} {metric.replace('_', ' ').upper()}"
    plot_history(history, folder / "curves.png", metric, title, label)
    return ["model", "history.jsonl", "curves.png", *model.task.draw_model(model.weights, folder)]


def add_train(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """The options of the command, with those of the task and of the solver that the arguments name."""
    parser.add_argument("task", metavar="TASK", help="a task below, or your own as package.module:ClassName")
    add_data_flags(parser)
    run = parser.add_argument_group("run")
    run.add_argument("--out", metavar="DIR", help="model directory (default: runs/TASK)")
    run.add_argument("--lam", metavar="C", help="regularization λ, a number or c/n (default: set by the task)")
    run.add_argument("--passes", type=int, help="passes over the data (default: set by the task)")
    run.add_argument("--seed", type=int, default=0, help="same seed, same result (default: 0)")
    help_calibrate = "fit one number to the development data, with which probabilities are calibrated; keep it in --out"
    run.add_argument("--calibrate", action="store_true", help=help_calibrate)
    help_device = "where scores of a module are computed and learned, such as cuda; predictions are made on the CPU"
    run.add_argument("--device", type=usable_device, default="cpu", help=f"{help_device} (default: cpu)")
    help_patience = "seconds after which the other processes of a run end because one of them is not heard of"
    run.add_argument("--patience", type=float, default=60.0, metavar="S", help=f"{help_patience} (default: 60)")
    help_local = "each host of a run over several has training files of its own at --train, which all train on"
    run.add_argument("--local-data", action="store_true", help=help_local)
    present = run.add_mutually_exclusive_group()
    present.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out, if there is one")
    present.add_argument("--overwrite", action="store_true", help="replace the model or run in --out, if there is one")
    help_solver = f"one of {', '.join(SOLVERS)} (default: set by the task)"
    run.add_argument("--solver", type=known_solver, metavar="SOLVER", help=help_solver)
    if (found := add_task_flags(parser, "train", arguments)) is not None:
        task, name = found
        solver = _chosen_solver(arguments, task)
        defaults = task.hyperparameters if solver == task.solver else {}
        add_flags(parser, f"hyperparameters of {solver} (--solver selects another)", SOLVERS[solver], defaults)
        parser.set_defaults(solver=solver, lam=task.lam, passes=task.passes, out=f"runs/{name}")
        parser.usage, parser.epilog = f"structsmooth train {arguments[1]} [options]", None
        example = f"structsmooth train {arguments[1]} --out runs/mine \\\n    {task.example}"
        parser.description = f"{task.summary}\n\nexample:\n  {example}"
    else:
        tasks = "".join(f"  {name:12} {load_task(name).summary}\n" for name in TASKS)
        parser.usage, parser.epilog = "structsmooth train TASK [options]", f"tasks:\n{tasks}\n{parser.epilog}"
    add_log_flags(parser)


def _chosen_solver(arguments: Sequence[str], task: type[Task]) -> str:
    """The solver that the arguments name, found before its flags are known, or else that of the task's options."""
    early = ArgumentParser("structsmooth train", add_help=False, allow_abbrev=False, exit_on_error=False)
    early.add_argument("--solver", type=known_solver)
    add_flags(early, "", task)
    try:
        found = early.parse_known_args(arguments)[0]
        return found.solver or from_flags(task, found).preferred_solver
    except (ArgumentError, ValueError):
        return task.solver  # the whole parser says what is wrong
