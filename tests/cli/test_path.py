"""The commands path and certify on a tiny corpus."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from structsmooth import solvers
from structsmooth.cli import main
from structsmooth.cli.path import path_table
from structsmooth.solvers import SolutionPath
from structsmooth.tasks.trained import load

DATA = ["--train", "train.txt", "--test", "test.txt", "--bits", "8"]


def corpus(verb: str) -> str:
    sentences = [(first, second) for first in ("Ada", "Bob", "Eve") for second in ("Acme", "Initech")]
    return "\n".join(f"{first} B-PER\n{verb} O\n{second} B-ORG\n" for first, second in sentences)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.txt").write_text(corpus("joined"))
    (tmp_path / "test.txt").write_text(corpus("left"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_path_is_computed_measured_drawn_and_saved(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--epsilon", "0.5", "--lam-min", "0.05", "--lam-max", "1e9", "--grid", "--kappas", "0.5"]
    assert main(["path", "ner", *DATA, *options, "--out", "found"]) == 0
    out = capsys.readouterr().out
    assert "ε = 0.5" in out
    path = SolutionPath.load("found/path.safetensors")
    assert path.message in out
    assert path.end <= 0.05
    assert Path("found/path.png").stat().st_size > 10_000
    first, second = out.split("| λ |")[1], out.split("| values of λ |")[1]
    assert "test f1 |" in first
    assert f"| {path.breakpoints[-1].lam:.4g} |" in first
    assert "**1.0000**" in first
    costs = json.loads(Path("found/costs.json").read_text())
    assert list(costs) == ["path", "path, κ = 0.5", "grid with warm starts", "grid"]
    for name, points in costs.items():
        assert f"| {name} | {len(points)} |" in second
        assert points[-1]["gap"] <= 0.5
    assert costs["path"][-1]["lam"] == path.breakpoints[-1].lam
    assert Path("found/costs.png").stat().st_size > 10_000
    lines = [line for line in first.splitlines() if line.startswith("| ")]
    assert {line.count("|") for line in lines} == {lines[0].count("|"), 8}


def test_the_best_metrics_are_in_bold() -> None:
    rows = {1.0: {"gap": 0.1, "dev f1": 0.5}, 0.5: {"gap": 0.1, "dev f1": 0.25}}
    assert "**0.5000**" in path_table(rows)
    assert "**0.2500**" in path_table(rows, min)


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize(
    ("options", "message"),
    [(["--solver", "sgd"], "--solver of a path must be bcfw"), (["--kappas", "2"], "kappa must be below 1")],
)
def test_bad_options_of_a_path(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["path", "ner", *DATA, "--epsilon", "1", "--lam-min", "1", *options]) != 0
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("blank_pictures")
def test_the_default_tolerance_is_that_of_the_algorithm_at_a_hundredth_of_the_first_loss(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--train", "train.txt", "--bits", "8", "--lam-min", "1000/n", "--lam-max", "2000/n"]
    assert main(["path", "ner", *options, "--heuristic", "--kappa", "0.5"]) == 0
    path = SolutionPath.load("runs/ner-path/path.safetensors")
    assert path.epsilon == pytest.approx(0.01 * 3)  # the cost of three wrong tags
    assert not path.verified
    assert path.end <= 1000 / 6
    assert path.top in (2000 / 6, math.inf)
    assert "test f1" not in capsys.readouterr().out


@pytest.mark.usefixtures("blank_pictures")
def test_the_default_range_is_around_the_lam_of_the_task() -> None:
    assert main(["path", "ner", "--train", "train.txt", "--bits", "8", "--epsilon", "0.5"]) == 0
    path = SolutionPath.load("runs/ner-path/path.safetensors")
    assert path.breakpoints[0].lam == pytest.approx(1000 / 6)
    assert path.end <= 1 / 6


@pytest.mark.usefixtures("blank_pictures")
def test_a_model_is_certified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ner", *DATA, "--out", "model", "--passes", "3"]) == 0
    capsys.readouterr()
    assert main(["certify", "model", "--accuracy", "0.5"]) == 0
    printed = capsys.readouterr().out
    assert "above the optimum by" in printed
    model = load("model")
    problem = model.task.problem(model.task.read("train.txt", "train"))
    certificate = solvers.certify(problem, model.weights, 10 / 6, accuracy=0.5)
    assert str(certificate).partition("(")[0] in printed
    assert main(["certify", "model", "--passes", "0"]) == 0
    captured = capsys.readouterr()
    assert "0 dual passes" in captured.out
    assert "more --passes may raise it" in captured.err


@pytest.mark.usefixtures("blank_pictures")
def test_a_certificate_needs_the_data_of_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ner", *DATA, "--out", "model", "--passes", "1"]) == 0
    Path("train.txt").write_text(corpus("left"))
    assert main(["certify", "model"]) == 2
    assert "train.txt is not what model was trained on" in capsys.readouterr().err
    Path("train.txt").unlink()
    assert main(["certify", "model"]) == 2
    assert "train.txt" in capsys.readouterr().err


@pytest.mark.usefixtures("blank_pictures")
def test_a_grid_keeps_to_the_path(capsys: pytest.CaptureFixture[str]) -> None:
    options = [*DATA, "--epsilon", "0.5", "--lam-max", "1.1", "--lam-min", "0.2", "--grid"]
    assert main(["path", "ner", *options]) == 0
    assert "| grid | 3 | 0.25 |" in capsys.readouterr().out
    assert main(["path", "ner", *DATA, "--epsilon", "0.5", "--lam-max", "0.9", "--lam-min", "0.6", "--grid"]) == 2
    assert "no value of λ from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "-1"], "epsilon must be positive"),
        (["--kappa", "2"], "kappa must be below 1"),
        (["--lam-min", "nothing"], "--lam-min must be a number or c/n"),
        (["--lam-max", "-1"], "--lam-max must be a number or c/n"),
        (["--lam-min", "0"], "lam_min must be positive"),
    ],
)
def test_bad_options(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["path", "ner", *DATA, *options]) == 2
    assert message in capsys.readouterr().err


def test_the_task_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["path", "--grid", "ner"]) == 2
    assert "the task comes first, as in structsmooth path ner" in capsys.readouterr().err


@pytest.mark.usefixtures("blank_pictures")
def test_interrupted_paths_are_saved(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    original, left = solvers.BCFW.advance, 4

    def advance(self: solvers.BCFW, *arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(solvers.BCFW, "advance", advance)
    assert main(["path", "ner", *DATA, "--out", "found", "--grid"]) == 130
    assert "interrupted: " in capsys.readouterr().out
    assert len(SolutionPath.load("found/path.safetensors").breakpoints) > 1
