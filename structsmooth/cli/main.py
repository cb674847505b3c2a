"""The program: which command its arguments name, and what becomes of errors.

Importing it loads neither torch nor a task; the command that is named loads what it needs.
"""

import ctypes
import errno
import inspect
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module

from structsmooth import __version__
from structsmooth.cli.layout import COMMANDS, Layout, add_verbosity_flags, chosen_verbosity
from structsmooth.messages import STANDARD_OUTPUT, bounded, guarded, speaking
from structsmooth.spelling import suggestion

_INTERRUPTED = 130
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@guarded()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _return_freed_memory()
    try:
        options = parsed(arguments)
        if int(os.environ.get("WORLD_SIZE", 1)) > 1 and options.command != "train":
            raise ValueError(f"{options.command} runs in one process; only train runs in several")
        with speaking(chosen_verbosity(options)):
            code: int = options.run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has closed the pipe
        _discard_output()
        return 1
    except (ValueError, TypeError, OSError, ImportError, MemoryError, RecursionError) as error:
        if getattr(error, "filename", None) == STANDARD_OUTPUT:
            _discard_output()
        print(f"structsmooth: error: {bounded(_sentence(error), 2000)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        if os.environ.get("RANK", "0") == "0":  # all processes of torchrun are interrupted
            print(f"structsmooth: {str(stop) or 'interrupted before the first pass; nothing to save'}", file=sys.stderr)
        return _INTERRUPTED


def _discard_output() -> None:
    """Let the interpreter not complain at exit, too, that standard output takes no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: Exception) -> str:
    """An error in words: those of the operating system begin with a number."""
    if isinstance(error, MemoryError):
        return f"this machine has not enough memory for it: {error}".removesuffix(": ")
    if isinstance(error, OSError) and error.strerror is not None and error.filename is not None:
        missing = error.strerror == os.strerror(errno.ENOENT)
        reason = "no such file or folder; check the path" if missing else error.strerror
        return f"{error.filename}: {reason}"
    return str(error)


def parsed(arguments: Sequence[str]) -> Namespace:
    """The options that arguments give; what ``tune`` does not know is its grid."""
    expected = parser(arguments)
    options, others = expected.parse_known_args(arguments)
    if "choices" in options:
        options.choices = others
    elif len(others) == 1 and "file" in options and options.file in (None, "-") and not others[0].startswith("--"):
        options.file = others[0]  # argparse looks for an optional file before the flags alone
    elif "files" in options and not any(other.startswith("--") for other in others):
        options.files += others
    elif others:
        expected.error(_unrecognized(others, options))
    return options


def _unrecognized(others: Sequence[str], options: Namespace) -> str:
    """What is said of arguments that no flag takes."""
    flags = [f"--{name.replace('_', '-')}" for name in vars(options)]
    shown = (other + (suggestion(other, flags) if other.startswith("--") else "") for other in others)
    return f"unrecognized arguments: {' '.join(shown)}"


def parser(arguments: Sequence[str] | None = None) -> ArgumentParser:
    """The parser for some arguments: a command's flags depend on the task and the solver that they name.

    Args:
        arguments: of the command line; those of other commands than the one that is named are left out. Without any,
            the parser has the flags of all commands.
    """
    whole = ArgumentParser(
        "structsmooth",
        description="Structured prediction by smoothed inference.",
        epilog=f"example:\n  {COMMANDS['train'].example}\n\nstructsmooth COMMAND --help explains a command.",
        formatter_class=Layout,
    )
    whole.add_argument("--version", action="version", version=__version__)
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, text, example) in COMMANDS.items():
        # Without abbreviations: other flags depend on --solver, which must be found before they are known.
        abbreviated, epilog = name not in ("train", "tune"), f"example:\n  {example}"
        command = commands.add_parser(name, help=text, epilog=epilog, formatter_class=Layout, allow_abbrev=abbreviated)
        if arguments is None or name in arguments[:1]:
            home = import_module(f"structsmooth.cli.{module}")
            run = getattr(home, name)
            command.description = inspect.cleandoc(run.__doc__).replace("``", "")
            command.set_defaults(run=run)
            getattr(home, f"add_{name}")(command, arguments or ())
            if name != "info":
                add_verbosity_flags(command)
    return whole


def _return_freed_memory() -> None:
    """Let glibc return large tensors to the system when they are freed: its heap fragments over them.

    Tensors of a stochastic step stay: they are asked for again at once, and new memory takes longer than computing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 16 << 20)
        mallopt(_M_TRIM_THRESHOLD, 64 << 20)
