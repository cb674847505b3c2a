"""What scripts share: arguments by their defaults, refusals, tables and clocks."""

from argparse import Namespace
from pathlib import Path

import pytest

from scripts.shared.harness import (
    RequestError,
    command,
    files,
    mean_and_spread,
    option,
    print_table,
    reading,
    sizes,
    timings,
)
from structsmooth.tasks import NER


def parsed(arguments, *options):
    found = []
    assert command(*options, threads=None)(lambda options: found.append(options))(arguments) == 0
    return vars(found[0])


def test_arguments_are_read_by_the_type_of_their_default():
    options = [
        option("data", None),
        option("--count", 3),
        option("--rates", [0.5]),
        option("--grids", ["3x4"], type=sizes(2)),
        option("--fast", False),
        option("--file", None),
    ]
    default = {"data": "a", "count": 3, "rates": [0.5], "grids": [(3, 4)], "fast": False, "file": None}
    assert parsed(["a"], *options) == default
    given = ["a", "--count", "5", "--rates", "1", "2", "--grids", "5x6", "--fast"]
    assert parsed(given, *options) == default | {"count": 5, "rates": [1.0, 2.0], "grids": [(5, 6)], "fast": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "0"], "--count: must be at least 1, got 0"),
        (["--rate", "nan"], "--rate: must be at least 0, got nan"),
        (["--shape", "3x4"], "--shape: must be 3 numbers with x between them"),
        (["--shape", "3x0x4"], "each at least 1"),
    ],
)
def test_wrong_arguments_are_said(arguments, message, capsys):
    options = [option("--count", 1, least=1), option("--rate", 0.5, least=0), option("--shape", "1x2x3", type=sizes(3))]
    with pytest.raises(SystemExit) as stop:
        parsed(arguments, *options)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_help_has_the_module_and_the_defaults(capsys):
    with pytest.raises(SystemExit):
        parsed(["--help"], option("--rates", [0.1, 1.0], "in %"))
    output = capsys.readouterr().out
    assert output.index("usage") < output.index(" ".join(str(__doc__).split()[:4]))
    assert "in % (default: 0.1 1)" in output


def test_what_cannot_be_done_ends_like_a_wrong_argument(capsys):
    def main(options: Namespace) -> None:
        with reading():
            Path("/no/such/file").read_text()

    with pytest.raises(SystemExit) as stop:
        command(threads=None)(main)([])
    assert stop.value.code == 2
    assert "/no/such/file" in capsys.readouterr().err
    with pytest.raises(RequestError, match="both --train and --test"):
        files(Namespace(train="one", test=None), NER)


def test_tables_are_printed_and_returned(capsys):
    table = print_table(["name", "ms"], iter([["a", 1], ["b", mean_and_spread([1.0, 3.0], 1)]]))
    assert table == "| name | ms |\n| --- | ---: |\n| a | 1 |\n| b | 2.0 ± 1.4 |"
    assert capsys.readouterr().out == table + "\n"


def test_warm_ups_are_not_timed():
    calls = []
    clock = iter(range(100))
    assert timings(lambda: calls.append(1), 3, lambda: float(next(clock)), warm_ups=2) == [1.0] * 3
    assert len(calls) == 5
