"""Help of every command: as wide as a terminal, with an example that the command takes."""

import inspect
import re
import shlex

import pytest

from structsmooth.cli import main
from structsmooth.cli.layout import COMMANDS
from structsmooth.cli.main import parser
from structsmooth.solvers import SOLVERS
from structsmooth.tasks import TASKS

WIDTH = 80


def help_of(arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_every_command_has_an_example(capsys, monkeypatch):
    commands = re.findall(r"^    (\w+) ", help_of([], capsys, monkeypatch), re.M)
    assert commands
    assert set(commands) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_list_of_commands_has_the_first_lines_of_their_help(command):
    run = parser([command]).parse_known_args(shlex.split(COMMANDS[command].example)[1:])[0].run
    assert run.__name__ == command
    assert inspect.cleandoc(run.__doc__).replace("``", "").splitlines()[0] == COMMANDS[command].help


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_ends_with_the_example(command, capsys, monkeypatch):
    text = help_of(command.split(), capsys, monkeypatch)
    assert f"example:\n  {COMMANDS[command or 'train'].example}\n" in text
    assert "``" not in text


@pytest.mark.parametrize("task", TASKS)
def test_help_of_a_task_begins_with_an_example_and_common_options(task, capsys, monkeypatch):
    text = help_of(["train", task], capsys, monkeypatch)
    (example,) = re.findall(rf"example:\n  structsmooth (train {task} .*)\\\n(.*)\n", text)
    flags = shlex.split(" ".join(example))
    options = parser(flags).parse_args(flags)
    assert (options.task, options.out) == (task, "runs/mine")
    assert options.train
    assert f"usage: structsmooth train {task} [options]" in text
    groups = ["example:", "data:", "run:", "  --out", "  --lam", "  --passes", "  --solver", "options of", "hyperparam"]
    places = [text.index(f"\n{group}") for group in [*groups, "logs, ", "messages on standard error"]]
    assert places == sorted(places)


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_are_accepted(command):
    program, *arguments = shlex.split(COMMANDS[command].example)
    assert program == "structsmooth"
    options, others = parser(arguments).parse_known_args(arguments)
    assert options.command == command
    assert others == (["--lam", "1/n", "10/n", "100/n"] if command == "tune" else [])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        *([command] for command in COMMANDS),
        *([command, task] for command in ("train", "compare", "path") for task in TASKS),
        *(["train", "ner", "--solver", solver] for solver in SOLVERS),
    ],
    ids=" ".join,
)
def test_help_fits_a_terminal(arguments, capsys, monkeypatch):
    lines = help_of(arguments, capsys, monkeypatch).splitlines()
    assert not [line for line in lines if len(line) > WIDTH]
    assert not [line for line in lines if "`" in line]  # marks of docstrings


def test_completions_can_be_made_from_the_parser():
    shtab = pytest.importorskip("shtab")
    script = shtab.complete(parser(), "bash")
    assert all(f"_shtab_structsmooth_{command}_option_strings" in script for command in COMMANDS)
