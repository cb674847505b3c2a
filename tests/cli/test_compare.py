"""``structsmooth compare`` on a tiny corpus: what it writes, and that no stop changes it."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from structsmooth.checkpoint import load_values
from structsmooth.cli import main
from structsmooth.cli.compare import load_runs
from structsmooth.history import History
from structsmooth.tasks.text.tagging import FittedTagging

COMPILING = "structsmooth: compiling inner loops"
NAMES = ["John Smith/PER", "Ada/PER", "Acme Corp/ORG", "Paris/LOC"]
SOLVERS = ["casimir-svrg", "bcfw:sampling=uniform,steps=pairwise,sgd"]
LABELS = ["casimir-svrg", "bcfw:sampling=uniform,steps=pairwise", "sgd"]
SEEDS = (0, 3)
PASSES = 6


def corpus(verb: str) -> str:
    """16 sentences of two columns."""
    lines = []
    for pair in itertools.product(NAMES, NAMES):
        for name in pair:
            words, kind = name.split("/")
            lines += [f"{word} {'BI'[i > 0]}-{kind}" for i, word in enumerate(words.split())]
            lines.append(f"{verb} O")
        lines.append("")
    return "\n".join(lines)


def write_data(folder):
    (folder / "train.txt").write_text(corpus("visited"))
    (folder / "test.txt").write_text(corpus("met"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, blank_pictures):
    """A working directory with data files."""
    write_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The directory of a comparison that nothing stopped."""
    folder = tmp_path_factory.mktemp("unbroken")
    write_data(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        compare()
    return folder / "out"


def comparing(*options, out="out", passes=PASSES):
    data = ["--train", "train.txt", "--dev", "test.txt", "--bits", "8"]
    runs = ["--solvers", *SOLVERS, "--lams", "1/n", "--seeds", "0,3", "--passes", str(passes)]
    return ["compare", "ner", *data, *runs, "--out", out, *options]


def compare(*options, out="out", passes=PASSES):
    assert main(comparing(*options, out=out, passes=passes)) == 0


def rows(text):
    """Cells of the tables in a report by λ: those of what was reached, and those of what it took."""
    tables = []
    text = text.split("## Duality gaps")[0]
    for block in re.split(r"\n\n", text):
        lines = [line.strip("| ").split(" | ") for line in block.splitlines() if line.startswith("|")]
        if lines:
            header, _, *body = lines
            tables.append([dict(zip(header, cells, strict=True)) for cells in body])
    return dict(zip(re.findall(r"^## λ = (.*)$", text, re.M), zip(tables[::2], tables[1::2], strict=True), strict=True))


def tables(out="out"):
    """The tables without the times."""
    found = rows((Path(out) / "table.md").read_text())
    return {
        lam: [[{name: c for name, c in row.items() if "seconds" not in name} for row in table] for table in pair]
        for lam, pair in found.items()
    }


def histories(out="out"):
    """Rows of all runs by directory, without their times."""
    paths = Path(out, "runs").rglob("history.jsonl")
    return {
        path.parent.relative_to(out): [row.as_dict() | {"seconds": 0} for row in History.load(path)] for path in paths
    }


def is_stage(line):
    """Whether a line says what a command is doing, or has read."""
    told = (": read as ", " words, scheme ", " words, plain tags")
    return line.startswith(COMPILING) or line.endswith(" ...") or any(words in line for words in told)


def assert_same_comparison(one, other):
    assert tables(one) == tables(other)
    assert histories(one) == histories(other)


def test_compare_writes_tables_figures_and_runs(capsys):
    compare("--test", "test.txt", "--lams", "1/n,0.2", passes=2)
    captured = capsys.readouterr()
    assert [line for line in captured.err.splitlines() if not is_stage(line)] == []
    report = Path("out/table.md").read_text()
    assert captured.out.startswith(report)
    assert "n = 16" in report
    found = rows(report)
    assert [*found] == ["1/n = 0.0625", "0.2"]
    runs = histories()
    assert len(runs) == 3 * 2 * 2
    assert all([row["passes"] for row in history] == [0, 1, 2] for history in runs.values())
    for reached, took in found.values():
        assert [row["solver"] for row in reached] == LABELS
        grid = [*itertools.product(("0.1", "0.01", "0.001"), LABELS)]
        assert [(row["to reach"], row["solver"]) for row in took] == grid
        assert all(row["dev f1"] == row["test f1"] for row in reached)
        assert all(0 <= float(row["suboptimality"]) <= float(row["gap"]) for row in reached)
    gaps = [line.strip("| ").split(" | ") for line in report.split("## Duality gaps")[1].splitlines() if "|" in line]
    assert gaps[0][:3] == ["solver", "oracle", "λ = 1/n = 0.0625: 0.1"]
    assert [row[:2] for row in gaps[2:]] == [list(pair) for pair in zip(LABELS, ["top-K", "max", "max"], strict=True)]
    assert all(Path("out", name).is_file() for name in ("lam-1-n.png", "lam-0.2.png"))


def test_figures_are_pictures(unbroken):
    assert (unbroken / "lam-1-n.png").read_bytes().startswith(b"\x89PNG")


def test_tables_are_of_the_histories(unbroken):
    loaded = {path: History.load(path) for path in unbroken.rglob("history.jsonl")}
    bound = max(row.dual for history in loaded.values() for row in history)
    casimir = [history for path, history in loaded.items() if "casimir-svrg" in path.parts]
    reached, took = rows((unbroken / "table.md").read_text())["1/n = 0.0625"]
    assert reached[0]["objective"] == f"{sum(history.best().objective for history in casimir) / 2:.6f}"
    assert reached[0]["dev f1"] == f"{sum(history.best().metrics['dev f1'] for history in casimir) / 2:.4f}"
    first = [next(row for row in history if row.objective - bound <= 0.1) for history in casimir]
    assert took[0]["suboptimality: passes"] == f"{sum(row.passes for row in first) / 2:g}"
    assert took[0]["suboptimality: oracle calls"] == f"{sum(row.oracle_calls for row in first) / 2:,.0f}"


def test_runs_are_read_by_lam_and_solver(unbroken):
    runs = load_runs(unbroken)
    assert {lam: {label: len(found) for label, found in of_lam.items()} for lam, of_lam in runs.items()} == {
        "0.0625": dict.fromkeys(sorted(LABELS), len(SEEDS))
    }
    saved = History.load(next(unbroken.glob("runs/sgd/1-n/3/history.jsonl")))
    assert runs["0.0625"]["sgd"][1] == saved


def test_finished_runs_are_loaded(unbroken):
    shutil.copytree(unbroken / "runs", "out/runs")
    compare()
    # Seconds are the same too.
    assert Path("out/table.md").read_bytes() == (unbroken / "table.md").read_bytes()


def test_best_settings_are_shown_alone(unbroken):
    shutil.copytree(unbroken / "runs", "out/runs")
    compare("--solvers", *SOLVERS, "bcfw:sampling=gap", "--best", "--bands", "deviation")
    reached, _ = rows(Path("out/table.md").read_text())["1/n = 0.0625"]
    names = [row["solver"].partition(":")[0] for row in reached]
    assert names == ["casimir-svrg", "bcfw", "sgd"]


def test_other_runs_may_join_and_passes_may_change(unbroken):
    compare("--solvers", "sgd", passes=2)
    compare()
    assert_same_comparison("out", unbroken)
    compare("--solvers", "sgd", passes=2)
    compare("--solvers", "sgd", out="short", passes=2)
    assert tables() == tables("short")


DYING = """
import os, signal, sys, types
import structsmooth.checkpoint
from structsmooth.cli import main
from structsmooth.cli.compare import load_runs
from structsmooth.solvers.base import Run

def dying(call, left):
    def counted(*arguments, **options):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return counted

place, left = sys.argv[1], int(sys.argv[2])
if place == "rename":
    structsmooth.checkpoint.os = types.SimpleNamespace(fsync=os.fsync, replace=dying(os.replace, left))
else:
    Run.advance = dying(Run.advance, left)
sys.exit(main(sys.argv[3:]))
"""
# At the first file of all, between history and checkpoint of a complete run, in a pass, and where a run has begun.
STOPS = [("rename", 1), ("rename", 4), ("pass", 15), ("rename", 6)]


@pytest.mark.long
def test_killed_comparison_goes_on_as_if_unbroken(unbroken):
    kept = 0
    for place, count in STOPS:
        process = subprocess.run(
            [sys.executable, "-c", DYING, place, str(count), *comparing()],
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # as in this process: sums depend on the number
            capture_output=True,
            text=True,
        )
        assert process.returncode == -signal.SIGKILL, process.stderr
        assert not Path("out/table.md").exists()
        assert len(saved_rows()) >= kept
        kept = len(saved_rows())
    before = saved_rows()
    assert 0 < len(before) < 6 * (PASSES + 1)
    compare()
    assert before.items() <= saved_rows().items()  # with the seconds of what was there
    assert_same_comparison("out", unbroken)


def saved_rows():
    """Rows of all checkpoints as text, by directory and number."""
    checkpoints = Path("out/runs").rglob("checkpoint.safetensors")
    return {(path, i): json.dumps(row) for path in checkpoints for i, row in enumerate(load_values(path)["history"])}


def test_interrupted_comparison_saves_and_goes_on(unbroken, monkeypatch, capsys):
    measured = itertools.count(1)
    measure = FittedTagging.measure

    def stop_once(self, *arguments):
        if next(measured) == 11:
            raise KeyboardInterrupt
        return measure(self, *arguments)

    monkeypatch.setattr(FittedTagging, "measure", stop_once)
    assert main(comparing()) == 130
    assert "saved in out: the same command continues" in capsys.readouterr().err
    # The row that was not measured is not kept.
    assert sorted(map(len, histories().values())) == [3, 7]
    compare()
    assert_same_comparison("out", unbroken)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--bits", "9"], "bits"),
        (["--no-rich"], "rich"),
        (["--test", "test.txt"], "test"),
        (["--dev", "train.txt"], "dev"),
    ],
)
def test_other_settings_are_refused_before_anything_runs(options, name, capsys):
    compare("--solvers", "sgd", "--lams", "0.2", passes=1)
    before = histories()
    capsys.readouterr()
    # The new λ comes first.
    assert main(comparing("--solvers", "sgd", "--lams", "0.1,0.2", *options, passes=1)) == 2
    assert f"is of a run with {name} = " in capsys.readouterr().err
    assert histories() == before


def test_other_data_are_refused(folder, capsys):
    compare("--solvers", "sgd", "--lams", "0.2", passes=1)
    (folder / "test.txt").write_text(corpus("left"))
    assert main(comparing("--solvers", "sgd", "--lams", "0.2", passes=1)) == 2
    assert "is of a run with dev checksum = " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--solvers", "newton"], "unknown solver 'newton': expected one of casimir-svrg, bcfw"),
        (["--solvers", "bfcw"], "unknown solver 'bfcw' (did you mean bcfw?): expected one of"),
        (["--solvers", "bcfw:stps=away"], "bcfw has no option 'stps' (did you mean steps?): expected one of"),
        (["--solvers", "sgd:kappa=1"], "sgd has no option 'kappa': expected one of gap_tolerance"),
        (["--solvers", "svrg:mu=much"], "svrg: mu must be of type FLOAT, got 'much'"),
        (["--solvers", "svrg:mu=-1"], "svrg:mu=-1: mu must be positive and finite, got -1.0"),
        (["--solvers", "mu=1"], "--solvers begins with 'mu=1'"),
        (["--solvers", "sgd,sgd"], "--solvers has sgd twice"),
        (["--solvers", ","], "--solvers needs at least one solver"),
        (["--lams", "little"], "--lams must be a number or c/n with c >= 0, such as 0.1 or"),
        (["--lams", "1,"], "--lams must be a number or c/n with c >= 0, such as 0.1 or"),
        (["--lams", "0"], "bcfw:sampling=uniform,steps=pairwise at λ = 0: BCFW needs lam > 0"),
        (["--seeds", "0,one"], "--seeds must be whole numbers with commas between them, got '0,one'"),
        (["--seeds", "-1"], "seed must be at least 0, got -1"),
        (["--passes", "-1"], "passes must be at least 0, got -1"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, message, capsys):
    assert main(comparing(*options)) == 2
    captured = capsys.readouterr()
    (line,) = (line for line in captured.err.splitlines() if not is_stage(line))
    assert captured.out == ""
    assert line.startswith("structsmooth: error: ")
    assert message in line
    assert not Path("out").exists()


def test_the_task_comes_first(capsys):
    assert main(["compare", "--passes", "2", "ner"]) == 2
    assert "the task comes first, as in structsmooth compare ner" in capsys.readouterr().err


def test_help_has_the_options_of_the_task(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["compare", "ner", "--help"])
    assert stop.value.code == 0
    output = capsys.readouterr().out
    assert all(text in output for text in ("--solvers", "--seeds", "--bits", "default: 0,1,2"))


def test_usual_solvers_are_those_that_can_solve_the_problem(capsys):
    options = ["--train", "train.txt", "--bits", "8", "--lams", "0", "--seeds", "0", "--passes", "2", "--out", "out"]
    assert main(["compare", "ner", *options]) == 0
    captured = capsys.readouterr()
    assert [row["solver"] for row in rows(captured.out)["0"][0]] == [
        "proximal-bcfw",
        "proximal-sdca",
        "casimir-svrg",
        "svrg",
    ]
    assert "structsmooth: bcfw is left out: BCFW needs lam > 0" in captured.err
    assert "structsmooth: sgd is left out: " in captured.err


def test_hyperparameters_of_the_task_are_defaults(folder):
    (folder / "averaged.py").write_text(
        "from structsmooth.tasks import NER\n\n\n"
        "class Averaged(NER):\n"
        '    solver, hyperparameters = "bcfw", {"average": True, "refresh": 3}\n'
    )
    options = ["--train", "train.txt", "--bits", "8", "--seeds", "0", "--passes", "1", "--out", "out"]
    assert main(["compare", "averaged:Averaged", *options, "--solvers", "bcfw,bcfw:refresh=4,casimir-svrg"]) == 0
    settings = [load_values(path)["settings"] for path in sorted(folder.glob("out/runs/bcfw*/*/*/*.safetensors"))]
    assert sorted((s["average"], s["refresh"]) for s in settings) == [(True, 3), (True, 4)]
