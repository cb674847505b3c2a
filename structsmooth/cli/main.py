"""Commands: train, evaluate, info; the others are in files of their own names."""

import ctypes
import inspect
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from rich.console import Console

from structsmooth import __version__, processes
from structsmooth.cli.certify import add_certify, certify
from structsmooth.cli.compare import add_compare, compare
from structsmooth.cli.data import HeldOut, TrainingData, add_data_flags, add_task_flags
from structsmooth.cli.doctor import add_doctor, doctor
from structsmooth.cli.flags import add_flags, from_flags, known_solver, unrecognized
from structsmooth.cli.keeper import PATIENCE, Keeper
from structsmooth.cli.layout import EXAMPLES, Layout
from structsmooth.cli.logs import add_log_flags, logs
from structsmooth.cli.model import ModelDirectory
from structsmooth.cli.path import add_path, path
from structsmooth.cli.predict import add_predict, predict
from structsmooth.cli.report import history_table, progress_bar
from structsmooth.cli.show import add_show, show
from structsmooth.cli.stages import PRESENTATION, add_verbosity_flags, chosen_verbosity, counted, stage
from structsmooth.cli.tune import add_tune, tune
from structsmooth.files import checksum
from structsmooth.messages import speaking
from structsmooth.solvers import SOLVERS, Progress, Result, Status
from structsmooth.solvers.checks import parse_lam
from structsmooth.solvers.state import Callback
from structsmooth.tasks import TASKS, Task, load_task
from structsmooth.tasks.trained import TrainedModel, describe, load

# Options that may change when a run is resumed.
_NOT_SETTINGS = {"run", "command", "out", "resume", "overwrite", "passes", *PRESENTATION}
_INTERRUPTED = 130
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _return_freed_memory()
    try:
        options = _parsed(arguments)
        if int(os.environ.get("WORLD_SIZE", 1)) > 1 and options.run is not train:
            raise ValueError(f"{options.command} runs in one process; only train runs in several")
        with speaking(chosen_verbosity(options)):
            code: int = options.run(options)
        return code
    except BrokenPipeError:
        # The reader has closed the pipe; the interpreter must not complain about it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"structsmooth: error: {_sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        if os.environ.get("RANK", "0") == "0":  # all processes of torchrun are interrupted
            print(f"structsmooth: {str(stop) or 'interrupted before the first pass; nothing to save'}", file=sys.stderr)
        return _INTERRUPTED


def _sentence(error: Exception) -> str:
    """An error in words: those of the operating system begin with a number."""
    if isinstance(error, OSError) and error.strerror is not None and error.filename is not None:
        reason = "no such file or folder; check the path" if isinstance(error, FileNotFoundError) else error.strerror
        return f"{error.filename}: {reason}"
    return str(error)


@contextmanager
def _only_first_speaks() -> Iterator[None]:
    """Silence all processes but the first, except for the error that may end them."""
    if processes.rank() == 0:
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


@processes.joined()
@_only_first_speaks()
def train(options: Namespace) -> int:
    """Train a model for a task and save it; ``--resume`` continues an interrupted run."""
    directory, solver = ModelDirectory(options.out), from_flags(SOLVERS[options.solver], options)
    directory.claim(resume=options.resume, overwrite=options.overwrite)
    data = TrainingData.read(options, solver.partitions)
    problem, lam = data.problem, parse_lam(options.lam, data.problem.n, "--lam")
    settings = {name: value for name, value in vars(options).items() if name not in _NOT_SETTINGS} | data.files
    settings["train checksum"] = checksum(data.files["train"])
    if solver.state_type.partitioned:
        settings["processes"] = processes.count()
    resume = directory.load_checkpoint(solver, settings) if options.resume else None
    processes.wait()  # all have read the checkpoint that the first is about to write
    # Processes that save parts of a state must save the same pass.
    patience = 0.0 if solver.state_type.partitioned and processes.count() > 1 else PATIENCE
    keep = Keeper(lambda progress: directory.save_checkpoint(progress, settings), patience)
    done = resume[0].passes if resume else 0
    bar = progress_bar(options.passes, data.headline, done=done, shown=data.watched_metric)
    with bar as draw, logs(options) as written, keep as keeper:
        written.keep(row.as_dict() for row in (resume[1] if resume else ()))
        callbacks: tuple[Callback, ...] = (_measuring(data), keeper, written.callback(), draw)
        result = solver.solve(
            problem, lam=lam, passes=options.passes, seed=options.seed, callbacks=callbacks, resume=resume
        )
    if result.status is Status.INTERRUPTED and processes.count() > 1:
        # The others may be anywhere in their passes.
        raise KeyboardInterrupt(f"interrupted; --resume continues after the last complete pass, in {options.out}")
    with stage("measuring"):
        metrics = _report(data, result)
    description = {"task": options.task, "settings": settings, "n": problem.n, "lam": lam}
    description |= {"status": result.status.value, "message": result.message, "metrics": metrics}
    if processes.rank() == 0:
        with stage("saving the model and its curves"):
            saved = directory.save_model(TrainedModel(data.task, result.weights, description), result.history)
        Console().print(f"\nsaved in {options.out}: {', '.join(saved)}", highlight=False)
    return {Status.INTERRUPTED: _INTERRUPTED, Status.DIVERGED: 1}.get(result.status, 0)


def _measuring(data: TrainingData) -> Callback:
    """Measure after every pass, on dev data if there are any."""

    def measure(progress: Progress[Any]) -> None:
        if data.watched is not None:
            held_out = data.held_out[data.watched]
            progress.row.metrics.update(held_out.measure(data.task, progress.state.weights)[0])

    return measure


def _report(data: TrainingData, result: Result) -> dict[str, dict[str, float]]:
    """Print the history, and metrics of the weights on all held-out data; returns the metrics by split."""
    console = Console()
    console.print(history_table(result.history, data.headline, data.watched_metric))
    console.print(result.message, highlight=False)
    metrics = {}
    for split, held_out in data.held_out.items():
        metrics[split], table = held_out.measure(data.task, result.weights)
        console.print(f"\n{split}: {data.files[split]}\n{table}", highlight=False)
    return metrics


def evaluate(options: Namespace) -> int:
    """Measure a trained model on a labelled file."""
    model = load(options.model)
    held_out = HeldOut.read(model.task, options.file, "test")
    with stage(f"predicting {counted(len(held_out.examples), 'example')}"):
        _, table = held_out.measure(model.task, model.weights)
    print(table)
    return 0


def info(options: Namespace) -> int:
    """Describe the model in a directory."""
    description = describe(options.model)
    for name in ("structsmooth", "task", "n", "lam", "message"):
        print(f"{name:13} {description[name]}")
    for name, value in description["settings"].items():
        print(f"  {name:20} {value}")
    for split, metrics in description["metrics"].items():
        print(f"{split:13} " + "  ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    return 0


def _parsed(arguments: Sequence[str]) -> Namespace:
    """The options that arguments give; what ``tune`` does not know is its grid."""
    expected = parser(arguments)
    options, others = expected.parse_known_args(arguments)
    if "choices" in options:
        options.choices = others
    elif len(others) == 1 and "file" in options and options.file in (None, "-") and not others[0].startswith("--"):
        options.file = others[0]  # argparse looks for an optional file before the flags alone
    elif others:
        expected.error(unrecognized(others, (f"--{name.replace('_', '-')}" for name in vars(options))))
    return options


def parser(arguments: Sequence[str] = ()) -> ArgumentParser:
    """The parser for some arguments: the flags of ``train`` depend on the task and the solver that they name."""
    whole = ArgumentParser(
        "structsmooth",
        description="Structured prediction by smoothed inference.",
        epilog=f"example:\n  {EXAMPLES['train']}\n\nstructsmooth COMMAND --help explains a command.",
        formatter_class=Layout,
    )
    whole.add_argument("--version", action="version", version=__version__)
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(run: Callable[[Namespace], int], notes: str = "", **settings: Any) -> ArgumentParser:
        text = inspect.cleandoc(str(run.__doc__)).replace("``", "")
        settings |= {"description": text, "epilog": f"{notes}example:\n  {EXAMPLES[run.__name__]}"}
        command = commands.add_parser(run.__name__, help=text.splitlines()[0], formatter_class=Layout, **settings)
        command.set_defaults(run=run)
        if run not in (info, train):  # that of train comes last in its help
            add_verbosity_flags(command)
        return command

    # Without abbreviations: other flags depend on --solver, which must be found before they are known.
    _add_train(add(train, _task_list(), allow_abbrev=False, usage="structsmooth train TASK [options]"), arguments)
    add_tune(add(tune, allow_abbrev=False), _parsed)
    add_compare(add(compare), arguments)
    add_path(add(path), arguments)
    add_certify(add(certify))
    add_show(add(show))
    add_doctor(add(doctor))
    add_predict(add(predict))
    evaluation, description = add(evaluate), add(info)
    for command in (evaluation, description):
        command.add_argument("model", metavar="DIR", help="model directory, the --out of structsmooth train")
    evaluation.add_argument("file", metavar="FILE", help="labelled data in the layout of the training data")
    return whole


def _add_train(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    parser.add_argument("task", metavar="TASK", help="a task below, or your own as package.module:ClassName")
    add_data_flags(parser)
    run = parser.add_argument_group("run")
    run.add_argument("--out", metavar="DIR", help="model directory (default: runs/TASK)")
    run.add_argument("--lam", metavar="C", help="regularization λ, a number or c/n (default: set by the task)")
    run.add_argument("--passes", type=int, help="passes over the data (default: set by the task)")
    run.add_argument("--seed", type=int, default=0, help="same seed, same result (default: 0)")
    present = run.add_mutually_exclusive_group()
    present.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out, if there is one")
    present.add_argument("--overwrite", action="store_true", help="replace the model or run in --out, if there is one")
    help_solver = f"one of {', '.join(SOLVERS)} (default: set by the task)"
    run.add_argument("--solver", type=known_solver, metavar="SOLVER", help=help_solver)
    if (found := add_task_flags(parser, "train", arguments)) is not None:
        task, name = found
        solver = _chosen_solver(arguments, task)
        defaults = task.hyperparameters if solver == task.solver else {}
        add_flags(parser, f"hyperparameters of {solver} (--solver selects another solver)", SOLVERS[solver], defaults)
        parser.set_defaults(solver=solver, lam=task.lam, passes=task.passes, out=f"runs/{name}")
        parser.usage, parser.epilog = f"structsmooth train {arguments[1]} [options]", None
        example = f"structsmooth train {arguments[1]} --out runs/mine \\\n    {task.example}"
        parser.description = f"{task.summary}\n\nexample:\n  {example}"
    add_log_flags(parser)
    add_verbosity_flags(parser)


def _chosen_solver(arguments: Sequence[str], task: type[Task]) -> str:
    """The solver that the arguments name, found before its flags are known, or else the solver of the task."""
    early = ArgumentParser("structsmooth train", add_help=False, allow_abbrev=False)
    early.add_argument("--solver", type=known_solver)
    return early.parse_known_args(arguments)[0].solver or task.solver


def _return_freed_memory() -> None:
    """Let glibc return large tensors to the system when they are freed: its heap fragments over them.

    Tensors of a stochastic step stay: they are asked for again at once, and new memory takes longer than computing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 16 << 20)
        mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def _task_list() -> str:
    return "tasks:\n" + "".join(f"  {name:12} {load_task(name).summary}\n" for name in TASKS) + "\n"
