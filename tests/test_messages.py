"""What commands say on standard error; what goes to a terminal has no control characters but those of Rich."""

import errno
import io
import sys
import warnings

import pytest

from structsmooth.messages import Verbosity, console, escaped, guarded, speaking, warn

FORGED = "a\x1b]0;title\x07\x9b2J\x7f\rb\tc\n"
SHOWN = "a\\x1b]0;title\\x07\\x9b2J\\x7f\\rb\tc\n"


class Terminal(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        """Yes."""
        return True


class Full(io.StringIO):
    """A stream on a full disk."""

    def write(self, text: str, /) -> int:
        """Fail."""
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("kind", "shown"), [(Terminal, SHOWN), (io.StringIO, FORGED)])
def test_control_characters_are_spelled_on_terminals_alone(
    kind: type[io.StringIO], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert escaped(FORGED) == SHOWN == escaped(SHOWN)
    streams = {name: kind() for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    with guarded():
        sys.stdout.writelines([FORGED])
        sys.stderr.write(FORGED)
    assert [stream.getvalue() for stream in streams.values()] == [shown, shown]


def test_tables_keep_the_codes_of_rich_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    with guarded():
        console().print("[red]x[/]\x1b[2J", highlight=False)
    assert "\x1b[31mx\x1b[0m" in terminal.getvalue()
    assert "\x1b[2J" not in terminal.getvalue()
    assert "\\x1b[2J" in terminal.getvalue()


def test_an_error_of_a_stream_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    with guarded(), pytest.raises(OSError, match="No space left on device: 'standard output'"):
        print("x")


def test_a_command_warns_once_and_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with speaking(Verbosity.NORMAL):
            warn("one")
            warn("one")
            told = warnings.formatwarning("two", UserWarning, "file.py", 1)
    assert capsys.readouterr().err == "structsmooth: warning: one\n" * 2
    assert told == "structsmooth: warning: two\n"
    assert warnings.formatwarning("two", UserWarning, "file.py", 1).startswith("file.py:1")
