"""What commands say on standard error."""

import warnings

import pytest

from structsmooth.messages import Verbosity, speaking, warn


def test_a_command_warns_once_and_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with speaking(Verbosity.NORMAL):
            warn("one")
            warn("one")
            told = warnings.formatwarning("two", UserWarning, "file.py", 1)
    assert capsys.readouterr().err == "structsmooth: warning: one\n" * 2
    assert told == "structsmooth: warning: two\n"
    assert warnings.formatwarning("two", UserWarning, "file.py", 1).startswith("file.py:1")
