"""Every script runs at a small size and prints its table."""

import re
import runpy
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SENTENCES = """
Smith NNP - I-PER
lent VBD - O
money NN - O

the DT - O
Bank NNP - I-ORG
of IN - I-ORG
Ohio NNP - I-ORG
paid VBD - O

Jones NNP - I-PER
left VBD - O
Ohio NNP - I-LOC
"""


def load(name):
    """A script as a module; they are no package."""
    spec = spec_from_file_location(f"scripts_{name}", ROOT / "scripts" / f"{name}.py")
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(output):
    """Cells of the one table in an output: a header, a ruler and lines of equal width."""
    lines = re.findall(r"^\| (.*) \|$", output, re.MULTILINE)
    header, ruler, *body = ([cell.strip() for cell in line.split("|")] for line in lines)
    assert all(set(cell) <= set(":-") for cell in ruler)
    assert {len(cells) for cells in (ruler, *body)} == {len(header)}
    return [dict(zip(header, cells, strict=True)) for cells in body]


@pytest.fixture
def data(tmp_path):
    """A column file with a few short sentences."""
    path = tmp_path / "data.txt"
    path.write_text(SENTENCES * 5)
    return str(path)


def test_train_is_the_command(data, tmp_path, monkeypatch, capsys):
    path = str(ROOT / "scripts" / "train.py")
    out = tmp_path / "model"
    options = ["ner", "--train", data, "--passes", "2", "--bits", "8", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [path, *options])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(path, run_name="__main__")
    assert stop.value.code == 0
    assert (out / "model.safetensors").is_file()
    assert str(out) in capsys.readouterr().out.replace("\n", "")


SMALL = ["--n", "20", "--T", "3", "--S", "2", "--K", "2", "--A", "4", "--F", "64", "--repeats", "1"]
SWEEPS = {"n": ["5", "10"], "T": ["2", "4"], "S": ["2", "3"], "K": ["1", "2"], "A": ["2"], "F": ["32"]}


def test_benchmark_chain_sweeps_one_size_at_a_time(tmp_path, capsys):
    plot = tmp_path / "plot.png"
    sweeps = [text for name, values in SWEEPS.items() for text in (f"--sweep-{name}", *values)]
    assert load("benchmark_chain").main([*SMALL, *sweeps, "--plot", str(plot)]) == 0
    table = rows(capsys.readouterr().out)
    assert [(row["size"], row["value"]) for row in table] == [(s, v) for s, values in SWEEPS.items() for v in values]
    assert all(float(row[step]) > 0 for row in table for step in ("SVRG step", "BCFW step"))
    assert plot.stat().st_size > 0


def test_benchmark_cuts_times_every_oracle(capsys):
    sizes = ["--graphs", "4x5", "--matchings", "3x3", "2x5"]
    assert load("benchmark_cuts").main([*sizes, "--k", "3", "--repeats", "1"]) == 0
    table = rows(capsys.readouterr().out)
    assert [row.pop("structure") + row.pop("size") for row in table] == ["BinaryGraph4x5", "Matching3x3", "Matching2x5"]
    assert all(set(row) == {"max", "max_marginals", "topk(3)"} for row in table)
    assert all(float(cell) > 0 for row in table for cell in row.values())


def test_benchmark_chain_of_a_file(data, capsys):
    assert load("benchmark_chain").main(["--file", data, "--sweep-n", "4", "--sweep-K", "2", "--repeats", "1"]) == 0
    output = capsys.readouterr().out
    assert [(row["size"], row["value"]) for row in rows(output)] == [("n", "4"), ("n", "15"), ("K", "2")]
    assert "n = 15, T = 3.7 on average" in output


def test_benchmark_chain_generates_what_it_says():
    problem = load("benchmark_chain").generate(n=6, T=5, S=3, A=4, F=50, seed=0)
    assert (problem.n, problem.states, problem.features) == (6, 3, 50)
    assert problem.sequences.lengths.tolist() == [5] * 6
    assert problem.sequences.token_offsets.diff().unique().tolist() == [4]


OURS = [("casimir-svrg", "1"), ("casimir-svrg", "2"), ("sgd", "1"), ("sgd", "2")]
NER_OPTIONS = ["--bits", "8", "--passes", "2", "--iterations", "1", "2"]


def test_benchmark_ner_without_crfsuite(data, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycrfsuite", None)
    assert load("benchmark_ner").main(["--train", data, "--test", data, *NER_OPTIONS]) == 0
    output = capsys.readouterr().out
    assert "python-crfsuite is not installed" in output
    table = rows(output)
    assert [(row["trainer"], row["passes"]) for row in table] == OURS
    assert table[-1]["F1"] == "100.00%"


def test_benchmark_ner_with_crfsuite(data, tmp_path, capsys):
    plot = tmp_path / "plot.png"
    assert load("benchmark_ner").main(["--train", data, "--test", data, *NER_OPTIONS, "--plot", str(plot)]) == 0
    table = rows(capsys.readouterr().out)
    theirs = [(f"crfsuite {algorithm}", n) for algorithm in ("lbfgs", "l2sgd", "pa") for n in "12"]
    assert [(row["trainer"], row["passes"]) for row in table[4:]] == theirs
    assert plot.stat().st_size > 0


def test_stopwatch_leaves_pauses_out():
    watch = load("benchmark_ner").Stopwatch()
    with watch.paused():
        total = sum(range(10**6))
    assert total > 0
    before = watch.seconds
    sum(range(10**6))
    assert watch.seconds > 2 * before


def test_compare_solvers_ranks_every_variant(data, tmp_path, capsys):
    plot = tmp_path / "plot.png"
    options = ["--train", data, "--bits", "8", "--passes", "12", "--lam", "0.1", "--plot", str(plot)]
    assert load("compare_solvers").main(options) == 0
    table = rows(capsys.readouterr().out)
    assert len(table) == len({(row["solver"], row["schedule"], row["warm start"]) for row in table}) == 15
    final = [float(row["12 passes"]) for row in table]
    assert final == sorted(final)
    assert [row["within 1%"] == "yes" for row in table] == [value <= 1.01 * final[0] for value in final]
    assert all(float(row["10 passes"]) > 0 for row in table)
    assert plot.stat().st_size > 0


def test_compare_solvers_gives_mu_to_constant_smoothing_only():
    compare = load("compare_solvers")
    changed = {str(a) for a, b in zip(compare.variants(0.3), compare.variants(), strict=True) if a.solver != b.solver}
    warm_starts = ("prox-center", "extrapolation", "prev-iterate")
    assert changed == {"SVRG constant", *(f"CasimirSVRG constant {name}" for name in warm_starts)}


@pytest.mark.parametrize("arguments", [["--passes", "0"], ["--task", "nothing"], ["--lam", "-1"]])
def test_compare_solvers_refuses(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        load("compare_solvers").main(arguments)
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err.replace("unknown task", "--task")


@pytest.mark.parametrize("name", ["benchmark_chain", "benchmark_ner", "compare_solvers"])
def test_help(name, capsys):
    with pytest.raises(SystemExit) as stop:
        load(name).main(["--help"])
    assert stop.value.code == 0
    assert "--plot FILE" in capsys.readouterr().out
