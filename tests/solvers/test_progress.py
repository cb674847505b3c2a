"""The callback that prints how a run goes: on terminals one line, elsewhere one for each pass."""

import io

import pytest
import torch

from structsmooth import BCFW, SGD, LinearModuleProblem, LinearScore, ModuleProblem
from structsmooth.solvers import PrintProgress, Progress


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def problem() -> ModuleProblem:
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(4, 3, generator=generator), torch.tensor([0, 1, 1, 0])) for _ in range(6)]
    return ModuleProblem(LinearScore(3, 2, torch.float32), data)


def test_elsewhere_each_pass_has_a_line(problem: ModuleProblem) -> None:
    file = io.StringIO()
    result = SGD(gap_tolerance=0.0).solve(problem, lam="1/n", passes=3, callbacks=[PrintProgress(3, file)])
    lines = file.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines] == [f"pass {i} of 3" for i in range(4)]
    for line, row in zip(lines, result.history, strict=True):
        assert f": objective {row.objective:.6g}" in line
        assert f", {row.seconds:.1f} s" in line
    assert ["left" in line for line in lines] == [False, False, True, True]
    assert lines[-1].endswith("0 s left")


def test_time_left_is_a_limit_where_a_gap_may_end_the_run() -> None:
    file, module = io.StringIO(), LinearScore(3, 2)
    linear = LinearModuleProblem(module, [(torch.eye(3, dtype=torch.float64), torch.tensor([0, 1, 1]))] * 3)
    result = BCFW(gap_tolerance=0.0).solve(linear, lam="1/n", passes=3, callbacks=[PrintProgress(3, file)])
    assert result.row.gap is not None
    assert ", duality gap " in file.getvalue()
    assert file.getvalue().splitlines()[-1].endswith(", at most 0 s left")


def test_metrics_of_callbacks_before_it_are_printed(problem: ModuleProblem) -> None:
    def measure(progress: Progress) -> None:
        progress.row.metrics["accuracy"] = 0.75

    file = io.StringIO()
    SGD().solve(problem, lam="1/n", passes=1, callbacks=[measure, PrintProgress(file=file)])
    assert all(", accuracy 0.75, " in line for line in file.getvalue().splitlines())


def test_on_a_terminal_the_line_is_rewritten_and_ended(problem: ModuleProblem) -> None:
    file = Terminal()
    shown = PrintProgress(file=file)
    SGD().solve(problem, lam="1/n", passes=2, callbacks=[shown])
    assert "\n" not in file.getvalue()
    first, *others = file.getvalue().split("\r")[1:]
    assert len(others) == 2
    assert all(len(line) >= len(first.rstrip()) for line in others), "no rest of an older line stays"
    shown.finish()
    shown.finish()
    assert file.getvalue().endswith(" s\n")
    assert file.getvalue().count("\n") == 1


@pytest.mark.parametrize("stream", [Terminal, io.StringIO], ids=["terminal", "file"])
def test_verbose_runs_show_a_line_on_terminals_alone(
    stream: type[io.StringIO], problem: ModuleProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = stream()
    monkeypatch.setattr("sys.stderr", file)
    SGD().solve(problem, lam="1/n", passes=2, verbose=True)
    assert file.getvalue().count("\n") == (stream is Terminal)
    assert ("pass 2 of 2: " in file.getvalue()) == (stream is Terminal)
