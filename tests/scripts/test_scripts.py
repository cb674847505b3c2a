"""Every script runs at a small size and prints its table."""

import gzip
import json
import re
import runpy
import sys
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import signals
import small_encoders
import torch
import treebanks
from small_tasks import write_pairs

from scripts.__main__ import load
from scripts.benchmarks import growth_over_hosts
from scripts.shared.traffic import imitated
from structsmooth import processes
from structsmooth.cli import main
from structsmooth.compiled.gpu import HAS_TRITON
from structsmooth.tasks import NER
from structsmooth.tasks.alignment.data import SentencePair
from structsmooth.tasks.alignment.features import GROUPS
from structsmooth.tasks.alignment.lexicon import Lexicon

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

counts_memory = pytest.mark.skipif(not Path("/proc/self/clear_refs").is_file(), reason="memory as Linux counts it")


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
    sweeps = [text for name, values in SWEEPS.items() for text in (f"--sweep-{name}", *values)]
    assert load("chain").main([*SMALL, *sweeps]) == 0
    table = rows(capsys.readouterr().out)
    assert [(row["size"], row["value"]) for row in table] == [(s, v) for s, values in SWEEPS.items() for v in values]
    assert all(float(row[step]) > 0 for row in table for step in ("SVRG step", "BCFW step"))


def test_benchmark_gaps_counts_passes_to_each_gap(capsys):
    assert load("gaps").main(["points", "--limit", "3"]) == 0
    table = rows(capsys.readouterr().out)
    assert [(row["λ"], row["solver"]) for row in table] == [
        (lam, f"bcfw:sampling={sampling}") for lam in ("0.001/n", "0.1/n") for sampling in ("uniform", "gap")
    ]
    for row in table:
        dual, objective = json.loads(row["dual and objective"])
        assert row["gap 1e-06"] == "-"
        assert 0 < objective - dual <= 1


@pytest.mark.parametrize(
    ("problems", "same"),
    [
        (["counts", "counts-relaxed"], [(0, 1, 4, 5), (2, 3)]),  # hinges of the relaxation, and exact ones
        (["smoothed", "smoothed-relaxed", "--level", "0.5"], [(0, 1, 2)]),
    ],
)
def test_benchmark_gaps_brackets_the_same_optima(problems, same, tmp_path, capsys):
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(6, 3)), generator.integers(2, size=(6, 3))
    np.savez(tmp_path / "data.npz", X_train=x, Y_train=y)
    options = ["--data", str(tmp_path / "data.npz"), "--rows", "5", "--lams", "0.5", "--gaps", "0.01"]
    assert load("gaps").main([*problems, *options, "--relative", "--budget", "1"]) == 0
    intervals = [json.loads(row["dual and objective"]) for row in rows(capsys.readouterr().out)]
    assert sorted(i for group in same for i in group) == list(range(len(intervals)))
    for group in same:
        assert max(intervals[i][0] for i in group) <= min(intervals[i][1] for i in group) + 2e-4


def test_benchmark_gaps_certifies_soft_agreement(tmp_path, capsys):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(30, 4))
    y = (x[:, :3] + generator.normal(size=(30, 3)) > 0).astype(np.uint8)
    np.savez(tmp_path / "data.npz", X_train=x, Y_train=y)
    printed = "soft-bcfw:rho=1,penalty=constant,steps=fw,order=uniform"
    solvers = ["soft-bcfw:rho=1,penalty=constant", "soft-bcfw:rho=1,penalty=multipliers", printed]
    options = ["--data", str(tmp_path / "data.npz"), "--lams", "0.1", "--limit", "200", "--gaps", "0.1", "0.001"]
    assert load("gaps").main(["pairs", *options, "--solvers", *solvers]) == 0
    table = rows(capsys.readouterr().out)
    assert [row["solver"] for row in table] == solvers
    for row in table:
        least, most = json.loads(row["dual and objective"])
        assert least <= most
        assert row["gap 0.1"] != "-"
    assert [row["gap 0.001"] == "-" for row in table] == [False, False, True]


def test_benchmark_gaps_needs_data(capsys):
    with pytest.raises(SystemExit):
        load("gaps").main(["points", "pairs"])
    assert "pairs needs --data" in capsys.readouterr().err


def test_compare_decisions_has_every_loss(capsys, monkeypatch):
    module = load("decisions")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    small = ["--size", "3", "--train", "40", "--test", "50", "--degrees", "2", "--calls", "20", "--seeds", "2"]
    assert module.main(small) == 0
    found = rows(capsys.readouterr().out)
    names = ["two-stage", "SPO+", "perturbed", "hinge"]
    assert [(row["decisions"], row["loss"]) for row in found] == [
        *(("paths", name) for name in (*names, "crf")),
        *(("assignments", name) for name in names),
    ]
    assert all(0 <= float(row["regret, %"].split()[0]) < 60 for row in found)


def test_compare_targets_has_every_setting(data, capsys):
    arguments = ["--train", data, "--test", data, "--epochs", "6", "--labelled", "0.2", "--seeds", "2"]
    assert load("targets").main(arguments) == 0
    found = {row["targets"]: float(row["F1, %"].split()[0]) for row in rows(capsys.readouterr().out)}
    assert len(found) == 11
    assert {name.split(":")[0] for name in found} == {"labels", "annotators", "teacher"}
    assert found["labels: gold"] == 100.0
    assert found["annotators: majority"] >= 50.0


def test_compare_annotation_begins_alike(data, capsys):
    sizes = ["--words", "10", "--steps", "1", "--candidates", "10", "--seeds", "0", "--rules", "random", "margin"]
    assert load("annotation").main(["--train", data, "--test", data, *sizes]) == 0
    first, second = rows(capsys.readouterr().out)
    assert (first["rule"], second["rule"]) == ("random", "margin")
    assert first["10"] == second["10"]
    assert float(second["20"]) == 100


def test_annotation_of_proteins_counts_residues(tmp_path, capsys):
    file = tmp_path / "p.fasta.gz"
    one = ">p|fold={}\nKRSALVILAVFLNNGS\n1111HHHHHHHH{}\n"
    file.write_bytes(gzip.compress("".join(one.format(i % 5, ("2222", "2UUU")[i > 4]) for i in range(10)).encode()))
    script = load("annotation")
    pool = script.proteins(str(file), first_fold=False)
    for series, (_, _, tags) in zip(
        pool, (one for one in load("partial_labels").read_proteins(str(file)) if one[0]), strict=True
    ):
        assert [s.label for s in series.segments for _ in range(s.start, s.stop)] == [tag for tag in tags if tag]
        assert series.unmarked == (((13, 16),) if None in tags else ())
    sizes = ["--words", "20", "--steps", "2", "--seeds", "0", "1", "--rules", "random", "entropy"]
    assert script.main(["--task", "proteins", "--train", str(file), "--test", str(file), *sizes]) == 0
    first, second = rows(capsys.readouterr().out)
    assert first["20"] == second["20"]
    assert second["60"].split()[0] == "100.0"


def test_jobs_of_a_page_run_in_folders_of_their_own(tmp_path, capsys):
    page = tmp_path / "page.md"
    job = (
        "## {0}\n\n```python\nfrom pathlib import Path\n\nassert not list(Path().iterdir())\nPath('{0}').touch()\n```\n"
    )
    page.write_text("# Jobs\n\n" + job.format("one") + job.format("two"))
    assert load("jobs_page").main(["--page", str(page)]) == 0
    found = rows(capsys.readouterr().out)
    assert [(row["job"], row["lines"]) for row in found] == [("one", "3"), ("two", "3")]
    assert all(float(row["CPU s"]) >= 0 for row in found)
    page.write_text("## three\n```python\nraise ValueError('none')\n```\n")
    with pytest.raises(SystemExit):
        load("jobs_page").main(["--page", str(page)])
    assert "ValueError: none" in capsys.readouterr().err


def test_raw_text_finds_what_is_written(tmp_path, capsys):
    """A treebank of alike sentences, whose trees and boundaries models of it find in its text."""
    tree = "1 {} _ NOUN _ _ 2 nsubj _ _\n2 {} _ VERB _ _ 0 root _ SpaceAfter=No\n3 . _ PUNCT _ _ 2 punct _ _\n\n"
    pairs = [("Birds", "sing"), ("Cats", "sleep"), ("Dogs", "bark"), ("Bees", "hum")]
    bank = ""
    for number, (name, verb) in enumerate([(name, verb) for name, _ in pairs for _, verb in pairs]):
        bank += f"# newdoc = {number}\n" * (number % 8 == 0) + f"# newpar = {number}\n" * (number % 4 == 0)
        bank += f"# text = {name} {verb}.\n" + tree.replace(" ", "\t").format(name, verb)
    path = tmp_path / "bank.conllu"
    path.write_text(bank)
    for task, option in (("ner", ["--column", "upos"]), ("parsing", ["--bits", "12"])):
        assert main(["train", task, *option, "--train", str(path), "--out", str(tmp_path / task), "--quiet"]) == 0
    capsys.readouterr()
    assert load("raw_text").main([str(tmp_path / "ner"), str(tmp_path / "parsing"), str(path)]) == 0
    output = capsys.readouterr().out
    assert "0 of 16 sentences have other words than in the treebank" in output
    boundaries, trees = output.split("\n\n")[0], output.split("\n\n")[-1]
    found = {(row["a line for each"], row["boundaries by"]): row["F1"] for row in rows(boundaries)}
    assert found["document", "none"] == "0.0"
    assert found["paragraph", "none"] == "25.0"  # 2 of 14
    assert found["document", "structsmooth"] == found["paragraph", "structsmooth"] == "100.0"
    scores = {row["what is given"]: (row["words"], row["LAS"]) for row in rows(trees)}
    whole = scores.pop("a line for each paragraph")
    assert set(scores.values()) == {("100.0", "100.0")}
    assert whole == ("100.0", "75.0")  # four sentences have one root


def test_benchmark_sparse_map_counts_calls(capsys):
    assert load("sparse_map").main(["--chains", "2", "--images", "1", "--epochs", "1", "--mu", "0.1"]) == 0
    found = rows(capsys.readouterr().out)
    assert [row["parts"] for row in found] == [*["all", "first"] * 4, "first"]
    assert all(int(row["calls"]) > int(row["outputs"]) >= 1 for row in found)


def test_compare_multilabel_chooses_lambda(tmp_path, capsys):
    generator = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 80), ("test", 40)):
        x = generator.normal(size=(count, 4))
        arrays |= {f"X_{part}": x, f"Y_{part}": (x[:, :3] + x[:, 1:] > 0).astype(np.uint8)}
    np.savez(tmp_path / "data.npz", **arrays)
    options = ["--models", "full", "none", "logistic", "--strengths", "0.01", "1000", "--passes", "20"]
    assert load("multilabel").main([str(tmp_path / "data.npz"), *options]) == 0
    output = capsys.readouterr().out
    assert "n = 80, 40 test examples" in output
    table = rows(output)
    assert [row["model"] for row in table] == ["full", "none", "logistic"]
    assert all(row["λn"] == "0.01" and float(row["hamming"]) < 0.2 for row in table)


def test_compare_constituents_has_every_parser(tmp_path, capsys):
    path = tmp_path / "trees.ptb"
    path.write_text("(ROOT (S (NP (DT a) (NN dog)) (VP (VBZ barks)) (. .)))\n(ROOT (NP (NN rain) (. .)))\n")
    assert load("constituents").main(["--train", str(path), "--test", str(path), "--passes", "9"]) == 0
    table = rows(capsys.readouterr().out)
    assert [row["parser"] for row in table] == ["grammar"] * 2 + ["grammar with parents"] * 2 + ["spans"]
    assert table[1]["F1"] == table[-1]["F1"] == "100.0"


def test_compare_alignment_has_all_baselines(tmp_path, capsys):
    path = write_pairs(tmp_path, True)
    options = ["--pairs", "5", "--draws", "1", "--passes", "2", "--ablations"]
    assert load("alignment").main([path, *options]) == 0
    table = rows(capsys.readouterr().out.partition("| words")[0])
    assert [row["alignment"].split(",")[0] for row in table[:7]] == ["Dice", *["Model 1"] * 5, "matching"]
    assert [row["alignment"].split()[-1] for row in table[7:]] == list(GROUPS)
    assert all(re.fullmatch(r"\d+\.\d %", row[name]) for row in table for name in ("precision", "recall", "aer"))


def test_grown_alignments_are_between_intersection_and_union():
    grown = load("alignment").grown
    one, other = {(0, 0), (1, 1), (3, 3)}, {(0, 0), (1, 2), (3, 3), (3, 0)}
    assert grown(one, other) == {(0, 0), (1, 1), (1, 2), (3, 3)}  # (3, 0) is beside no link
    assert grown(set(), other) == set()


def test_competitive_linking_takes_the_largest_first():
    pairs = [SentencePair(("a", "b"), ("x", "y")), SentencePair(("a",), ("x",)), SentencePair(("b",), ("x",))]
    links = load("alignment").competitive
    assert links(Lexicon.of(pairs), pairs[0], 0.0) == {(0, 0), (1, 1)}
    assert links(Lexicon.of(pairs), pairs[0], 0.7) == {(0, 0)}


def test_benchmark_processes_measures_one_process_too(data, capsys):
    options = ["--train", data, "--bits", "8", "--limit", "8", "--at", "2", "5", "--gap", "0.5"]
    assert load("processes").main(options) == 0
    table = rows(capsys.readouterr().out)
    assert [row["solver"] for row in table] == ["cocoa", "cocoa:sampling=uniform,steps=fw"]
    assert all(0 < float(row["dual at 2"]) <= float(row["dual at 5"]) for row in table)
    assert {row["processes"] for row in table} == {"1"}


def test_benchmark_threads_compares_with_one(data, capsys):
    options = [
        "--train",
        data,
        "--bits",
        "8",
        "--seeds",
        "1",
        "--threads",
        "2",
        "3",
        "--solvers",
        "bcfw",
        "proximal-bcfw",
        "sgd",
    ]
    assert load("threads").main([*options, "--limit", "40", "--passes", "3"]) == 0
    table = rows(capsys.readouterr().out)
    works = ("full pass", "bcfw", "proximal-bcfw", "sgd")
    assert [(row["work"], row["threads"]) for row in table] == [(work, count) for work in works for count in "123"]
    assert all(0 < float(row["passes"]) < 40 for row in table[3:9])
    assert all(row["passes"] == "3" for row in table[9:])


def test_benchmark_jobs_times_searches_and_fits(data, capsys):
    assert load("jobs").main(["--train", data, "--jobs", "1", "--trials", "1"]) == 0
    table = rows(capsys.readouterr().out)
    assert [row["work"] for row in table] == ["first grid search", "grid search", "fit"]
    assert all(float(row["wall s"]) > 0 for row in table)


def test_benchmark_grids_times_every_case(capsys):
    assert load("grids").main(["--ctc", "1x5x2", "--alignments", "1x4", "--repeats", "1"]) == 0
    table = rows(capsys.readouterr().out)
    assert [row["case"].split(", ")[1] for row in table] == ["loss", "gradient", "path", "gradient", "path"]
    assert all(float(row["ours"]) >= 0 for row in table)


def test_benchmark_oracles_times_every_oracle(capsys):
    sizes = ["--graphs", "4x5", "--matchings", "3x3", "2x5", "--images", "6x8", "--grids", "3x4", "--nodes", "3"]
    sizes += ["--tables", "2"]
    assert load("oracles").main([*sizes, "--labels", "8x3", "--k", "3", "--repeats", "1"]) == 0
    first, _, second = capsys.readouterr().out.partition("| Potts grid")
    assert [row["Potts grid"] for row in rows("| Potts grid" + second)] == ["8x8, 3 labels"]
    table = rows(first)
    assert [(row.pop("structure"), row.pop("size"), row.pop("scores")) for row in table] == [
        ("BinaryGraph", "4x5", "8"),
        ("FactorGraph of tables", "2", "64"),
        ("Matching", "3x3", "9"),
        ("Matching", "2x5", "10"),
        ("Subwindows, clusters", "6x8", "48"),
        ("Subwindows, noise", "6x8", "48"),
        ("DeformableTree, Gaussian", "3x4", "36"),
        ("DeformableTree, smooth", "3x4", "36"),
    ]
    assert [row["max_marginals"] for row in table[4:6]] == ["—", "—"]
    assert [row["max of Tree"] == "—" for row in table] == [True] * 6 + [False] * 2
    assert all(float(cell) >= 0 for row in table for cell in row.values() if cell != "—")


@pytest.mark.filterwarnings("ignore:.*torch_struct.* does not define `arg_constraints`")
@pytest.mark.parametrize("largest", ["0", "1e6"])
def test_benchmark_programs_times_every_oracle(largest, capsys):
    sizes = ["--batch", "2", "--words", "4", "--segments", "5x2x3", "--repeats", "1", "--largest", largest]
    sizes += [
        "--hidden-markov",
        "2",
        "--steps",
        "30",
        "--grammars",
        "3x2",
        "--low-rank",
        "4x3x2",
        "--accepted",
        "4x2x3",
    ]
    assert load("programs").main(sizes) == 0
    *table, hidden_markov = rows(capsys.readouterr().out)
    assert (hidden_markov["structure"], hidden_markov["edges"]) == ("hidden Markov, T = 30, S = 2", "120")
    for oracle in ("exp", "max"):
        assert re.fullmatch(r"[\d.]+, [\d.]+ ns \(.*\).*", hidden_markov[oracle])
    assert [(row["structure"], row["edges"]) for row in table] == [
        ("constituency, n = 4", "25"),
        ("projective, one root, n = 4", "61"),
        ("semi-Markov, T = 5, K = 2, S = 3", "81"),
        ("grammar, n = 3, N = 2", "29"),
        ("low rank, T = 4, S = 3, R = 2", "70"),
        ("accepted, T = 4, S = 2, Q = 3", "67"),
    ]
    for i, row in enumerate(table[2 if largest == "0" else 0 :]):
        for oracle in ("exp", "max", "top-5"):
            assert re.fullmatch(
                r"[\d.]+, [\d.]+ ns" + (r" \([\d.]+x\)" if largest != "0" and i < 4 else ""), row[oracle]
            )


def test_benchmark_chain_of_a_file(data, capsys):
    assert load("chain").main(["--file", data, "--sweep-n", "4", "--sweep-K", "2", "--repeats", "1"]) == 0
    output = capsys.readouterr().out
    assert [(row["size"], row["value"]) for row in rows(output)] == [("n", "4"), ("n", "15"), ("K", "2")]
    assert "n = 15, T = 3.7 on average" in output


def test_benchmark_chain_generates_what_it_says():
    problem = load("chain").generate(n=6, T=5, S=3, A=4, F=50, seed=0)
    assert (problem.n, problem.states, problem.features) == (6, 3, 50)
    assert problem.sequences.lengths.tolist() == [5] * 6
    assert problem.sequences.token_offsets.diff().unique().tolist() == [4]


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton, which comes with torch on Linux")
def test_compile_kernels_has_all_of_them(capsys):
    script = load("compile_kernels")
    assert script.main(["--only", "programs.fused.output_kernels.draw"]) == 0
    table = rows(capsys.readouterr().out)
    assert [(row["dtype"], row["sm"]) for row in table] == [
        ("fp32", "80"),
        ("fp32", "90"),
        ("fp64", "80"),
        ("fp64", "90"),
    ]
    assert all(int(row["registers"]) > 0 and row["spilled bytes"] == "0" for row in table)
    functions = [own for module in script.MODULES for own in vars(module).values()]
    launched = {id(own) for own in functions if getattr(own, "do_not_specialize", None)}  # not by other kernels
    assert launched == {id(case.kernel) for case in script.cases()}


@pytest.mark.filterwarnings("ignore:.*torch_struct.* does not define `arg_constraints`")
@pytest.mark.filterwarnings("ignore:where received a uint8 condition tensor:UserWarning")  # of pytorch-crf
def test_benchmark_gpu_times_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the CPU, where there are no kernels."""
    script, out = load("gpu"), tmp_path / "gpu" / "table.md"
    assert script.main(["--cpu", "--seconds", "0", "--size", "3", "--chains", "1", "--out", str(out)]) == 0
    first, _, head, _, *rows = out.read_text(encoding="utf-8").splitlines()
    assert first.startswith("CPU, torch ")
    assert head.startswith("| query |")
    assert len(rows) == 11
    assert all(re.search(r"[\w'-]+ [0-9.e+-]+(,| \|)", row) for row in rows)
    assert capsys.readouterr().out == out.read_text(encoding="utf-8")


def test_benchmark_gpu_needs_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        load("gpu").main([])
    assert "no GPU that torch can use: --cpu tries" in capsys.readouterr().err


@counts_memory
def test_benchmark_growth_repeats_the_data(data, tmp_path, capsys):
    cache = tmp_path / "cache"
    options = ["--data", data, "--times", "2", "--solvers", "sgd", "--attributes-cache", str(cache)]
    assert load("growth").main(options) == 0
    (row,) = rows(capsys.readouterr().out)
    assert (row["n"], row["solver"]) == ("30", "sgd")
    assert float(row["peak (MB)"]) >= float(row["peak until encoded (MB)"]) > 0
    assert len(list(cache.glob("*.npy"))) == 1


def tables(output):
    """The cells of several tables in an output."""
    return [rows(part) for part in output.split("\n\n") if part.startswith("| ")]


@pytest.mark.long
@counts_memory
def test_benchmark_growth_simulates_hosts(data, capsys):
    """An all-reduce among two sends its bytes once: gradients in float32, and weights of CoCoA in float64."""
    options = ["--data", data, "--hosts", "2", "--simulate", "--width", "64", "--fleet", "2", "--sentences", "1e6"]
    assert load("growth").main([*options, "--ways", "CoCoA", "encoder, DDP"]) == 0
    rounds, limits = tables(capsys.readouterr().out)
    found = {(row["way"], row["hosts"]): row for row in rounds}
    problem = NER().fit(sentences := NER().read(data)).problem(sentences)
    parameters = sum(p.numel() for p in growth_over_hosts.Network(64).parameters())
    for way, nbytes in (("CoCoA", 8 * problem.dim), ("encoder, DDP", 4 * parameters)):
        assert float(found[way, "1"]["MB sent"]) == 0
        assert float(found[way, "2"]["MB sent"]) == pytest.approx(nbytes / 1e6, rel=0.02, abs=0.01)
    for row in rounds:
        seconds, megabytes = float(row["CPU s a round"]), float(row["MB sent"])
        assert float(row["s at 1 Gbit/s"]) >= seconds + 0.008 * megabytes - 0.002
        assert float(row["s at 1 Gbit/s"]) >= float(row["s at 10 Gbit/s"]) >= seconds - 0.001
    assert [row["way"] for row in limits] == ["CoCoA", "encoder, DDP"]
    for row in limits:
        shares = {name: float(row[name]) for name in growth_over_hosts.LIMITS}
        assert shares[row["first"]] == max(shares.values()) > 0


@pytest.mark.long
@counts_memory
@pytest.mark.usefixtures("networks")
def test_benchmark_growth_counts_the_bytes_of_hosts(data, capsys):
    assert load("growth").main(["--data", data, "--hosts", "2", "3", "--ways", "CoCoA"]) == 0
    found = rows(capsys.readouterr().out)
    assert [row["hosts"] for row in found] == ["2", "3"]
    for row in found:
        assert float(row["MB sent, measured"]) == pytest.approx(float(row["MB sent, model"]), rel=0.1)


def test_traffic_of_one_process_is_that_of_all():
    with imitated(4) as traffic:
        total = processes.summed(torch.ones(1000))
        rows_of_all = processes.stacked_rows(torch.ones(2, 500))
        assert processes.gathered("host") == ["host"] * 4
    assert torch.equal(total, torch.full((1000,), 4.0))
    assert torch.equal(rows_of_all, torch.ones(8, 500))
    # 3/2 of a sum; of four broadcasts of 4,000 bytes as many as three processes receive; objects of some bytes.
    assert traffic.sent == pytest.approx(1.5 * 4000 + 3 * 4000, abs=300)
    assert traffic.awaited == pytest.approx(1.5 * 4000 + 4 * 2 * 4000, abs=300)
    assert processes.count() == 1


@counts_memory
def test_benchmark_exponents_has_a_row_for_each_query(capsys):
    names = ["LinearChain, n tokens", "Matching, n pairs"]
    options = ["--scale", "0.01", "--repeats", "1", "--solvers", "bcfw", "--structures", *names]
    assert load("exponents").main(options) == 0
    found = [row["case"] for row in rows(capsys.readouterr().out)]
    assert found == [f"{names[0]}, max", f"{names[0]}, log-sum", f"{names[1]}, max", "bcfw, a pass"]


def test_the_exponent_is_the_slope_of_logarithms():
    assert load("exponents").exponent([10, 20, 40, 80], (3.0, 12.0, 48.0, 192.0)) == pytest.approx(2)


def test_compare_crfsuite_trains_the_same_features(data, capsys):
    assert load("crfsuite").main(["--train", data, "--test", data, "--iterations", "20"]) == 0
    table = rows(capsys.readouterr().out)
    names = ["SequenceTagger() on words", "SequenceTagger()", "SequenceTagger(loss='crf', lam='0.2/n')"]
    theirs = ["lbfgs, c1=0.1, c2=0.1", "lbfgs, c1=0, c2=0.1", "l2sgd, c2=0.1"]
    theirs = [f"CRFsuite, {name}, 20 iterations" for name in theirs] + [
        f"CRFsuite, pa, {n} iterations" for n in (4, 20)
    ]
    assert [row["tagger"] for row in table] == [*names, *theirs]
    assert {row["F1"] for row in table} == {"100.00%"}
    assert all("gap " in row["passes"] for row in table[:3])


def test_compare_crfsuite_without_crfsuite(data, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycrfsuite", None)
    assert load("crfsuite").main(["--train", data, "--test", data]) == 0
    output = capsys.readouterr().out
    assert "python-crfsuite is not installed" in output
    assert len(rows(output)) == 3
    assert load("crfsuite").main(["--train", data, "--test", data, "--passes", "1", "2"]) == 0
    table = rows(capsys.readouterr().out)
    assert [row["tagger"] for row in table][::3] == [f"SequenceTagger(max_iter={n}) on words" for n in (1, 2)]
    assert [row["passes"].split(",")[0] for row in table[::3]] == ["1", "2"]


def test_compare_crfsuite_reads_parts_of_speech(tmp_path, capsys):
    path = tmp_path / "words.conllu"
    row = "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t_\n"
    path.write_text((row.format(1, "she", "PRON") + row.format(2, "sang", "VERB") + "\n") * 6)
    files = ["--train", str(path), "--test", str(path)]
    assert load("crfsuite").main([*files, "--column", "upos", "--iterations", "5"]) == 0
    assert {row["accuracy"] for row in rows(capsys.readouterr().out)} == {"100.00%"}


def test_benchmark_lams_measures_both_estimators(data, capsys):
    options = ["--train", data, "--test", data, "--sizes", "2", "--examples", "20", "--seeds", "1"]
    assert load("lams").main(options) == 0
    tagged, labelled = capsys.readouterr().out.split("\n\n")
    assert [row["loss"] for row in rows(tagged)] == ["hinge", "crf"]
    (row,) = rows(labelled)
    assert row["examples"] == "20"
    shares = [float(cell.rstrip("%")) for name, cell in row.items() if name != "examples"]
    assert len(shares) == 6
    assert all(0 < share <= 100 for share in shares)


def test_benchmark_crf_minimizes_the_objective_of_crfsuite(data, capsys):
    options = ["--train", data, "--lam", "1/n", "--bits", "8", "--passes", "40", "--iterations", "200"]
    assert load("crf").main(options) == 0
    output = capsys.readouterr().out
    theirs, by_us = map(
        float, re.search(r"last objective ([\d.]+), of its weights by our oracle ([\d.]+)", output).groups()
    )
    assert theirs == pytest.approx(by_us, rel=1e-6)
    assert [row["trainer"] for row in rows(output)] == ["ProximalSDCA", "ExponentiatedGradient", "CRFsuite"]
    assert all(row["0.0001"] != "-" for row in rows(output))


def test_benchmark_crf_needs_crfsuite(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycrfsuite", None)
    with pytest.raises(SystemExit):
        load("crf").main([])
    assert "pip install 'structsmooth[benchmarks]'" in capsys.readouterr().err


LAYERS = ["CRF likelihood", "Viterbi", "smoothed hinge, K = 2"]


def test_benchmark_layers_without_the_others(capsys, monkeypatch):
    for module in ("torchcrf", "torch_struct"):
        monkeypatch.setitem(sys.modules, module, None)
    options = ["--shapes", "2x3x2", "1x2x3", "--threads", "1", "--k", "2", "--repeats", "1"]
    assert load("layers").main(options) == 0
    output = capsys.readouterr().out
    assert all(f"{name} is not installed" in output for name in ("pytorch-crf", "torch-struct"))
    table = rows(output)
    assert [(row["B x T x S"], row["layer"]) for row in table] == [(s, n) for s in ("2x3x2", "1x2x3") for n in LAYERS]
    assert all(float(row["structsmooth"]) > 0 for row in table)


def test_benchmark_layers_gives_torch_struct_the_batch_that_it_can_take():
    """Its tensors for one sequence have 2 * 3**3 numbers, and 2**2 times as many for two outputs."""
    compared = load("layers").comparisons({"ours": {}}, {"torch-struct": None}, (4, 2, 3), k=2, largest=108)
    likelihood, viterbi, hinge = LAYERS
    assert [(shape, layer.name, "torch-struct" in layer.calls) for shape, layer in compared] == [
        ((4, 2, 3), likelihood, False),
        ((2, 2, 3), likelihood, True),
        ((4, 2, 3), viterbi, False),
        ((4, 2, 3), hinge, False),
    ]


def test_benchmark_layers_takes_turns_until_a_limit(monkeypatch):
    calls = []
    script = load("layers")
    monkeypatch.setattr(script, "_TURN", 1e-3)
    measure = script.measure
    timed = {name: lambda name=name: calls.append(name) or torch.ones(()) for name in ("structsmooth", "other")}
    assert set(measure(timed, repeats=2, limit=10.0)) == {"structsmooth", "other"}
    # The first call of each loads and compiles; then there are two turns of several calls.
    assert [name for name, _ in groupby(calls)] == ["structsmooth", "other"] * 3
    assert len(calls) > 2 * 3
    calls.clear()
    assert all(seconds > 0 for seconds in measure(timed, repeats=5, limit=1e-12).values())
    assert calls == ["structsmooth", "other"] * 2


def test_benchmark_layers_compares_the_same():
    different = {"structsmooth": lambda: torch.ones(2), "other": lambda: torch.tensor([1.0, 1.1])}
    with pytest.raises(AssertionError, match="other computes something else"):
        load("layers").measure(different, repeats=1, limit=1.0)


@pytest.mark.parametrize("arguments", [["--repeats", "0"], ["--threads", "0"], ["--shapes", "2x1x3"]])
def test_benchmark_layers_refuses(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        load("layers").main(arguments)
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err


TAGGER_LOSSES = ["token", "hinge", "l2", "entropy", "crf", "softmax_margin", "perceptron", "top_k"]
TAGGER_SIZES = ["--embedding", "4", "--hidden", "4", "--batch", "4"]


def test_train_networks_with_every_loss(data, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--train", data, "--test", data, "--epochs", "1", "--seeds", "2", "--out", str(out), *TAGGER_SIZES]
    assert load("train_networks").main(options) == 0
    output = capsys.readouterr()
    assert not output.err  # no progress bar off a terminal
    table = rows(output.out)
    assert sorted(row["method"] for row in table) == sorted(TAGGER_LOSSES)
    means = [float(row["F1"].split(" ± ")[0]) for row in table]
    assert means == sorted(means, reverse=True)
    assert rows((out / "table.md").read_text()) == table
    history = [json.loads(line) for line in (out / "histories.jsonl").read_text().splitlines()]
    assert [(row["method"], row["seed"]) for row in history] == [
        (method, seed) for method in TAGGER_LOSSES for seed in (0, 1)
    ]
    assert all(row["objective"] > 0 for row in history)


def test_train_networks_learns_and_is_the_same_for_a_seed(data, tmp_path, capsys):
    options = ["--train", data, "--test", data, "--methods", "l2", "--seeds", "1", "--epochs", "12", *TAGGER_SIZES]
    histories = []
    for run in range(2):
        assert load("train_networks").main([*options, "--lr", "0.05", "--out", str(tmp_path / str(run))]) == 0
        lines = (tmp_path / str(run) / "histories.jsonl").read_text().splitlines()
        histories.append([{**json.loads(line), "seconds": 0} for line in lines])
    assert histories[0] == histories[1]
    assert histories[0][-1]["measures"]["F1"] == 100.0
    assert rows(capsys.readouterr().out.rpartition("epochs")[2])[0]["F1"] == "100.0"


def test_train_networks_compares_with_per_token_cross_entropy():
    tagger = load("train_networks")
    epochs = {"token": [50, 60], "crf": [70, 50], "l2": [40, 40]}
    histories = [
        [tagger.Epoch(loss, s, 1, 0.0, 2.0, {"F1": f1})] for loss, runs in epochs.items() for s, f1 in enumerate(runs)
    ]
    assert [row[:3] for row in tagger.rows(histories)] == [
        ["crf", "60.0 ± 14.1", "+5.0"],
        ["token", "55.0 ± 7.1", ""],
        ["l2", "40.0 ± 0.0", "-15.0"],
    ]


@pytest.mark.parametrize(
    ("word", "expected"), [("Borrowers", "Xxxrs"), ("10.25", "99.9925"), ("a", "xa"), ("NYSE", "XXSE")]
)
def test_shapes_of_words(word, expected):
    assert load("train_networks").shape(word) == expected


@pytest.mark.parametrize("arguments", [["--epochs", "0"], ["--lr", "nan"], ["--mu", "-1"], ["--device", "nowhere"]])
def test_train_networks_refuses(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        load("train_networks").main(arguments)
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("chain", "--file FILE"),
        ("growth", "--attributes-cache DIR"),
        ("layers", "--shapes BxTxS"),
        ("train_networks", "--out DIR"),
    ],
)
def test_help(name, option, capsys):
    with pytest.raises(SystemExit) as stop:
        load(name).main(["--help"])
    assert stop.value.code == 0
    assert option in capsys.readouterr().out


def test_benchmark_deep_measures_steps_passes_and_features(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options = ["--n", "4", "--boxes", "3", "--channels", "2", "--repeats", "1", "--turns", "1"]
    assert load("deep").main([*options, "--batch-sizes", "2", "--processes", "1", "2"]) == 0
    table = rows(capsys.readouterr().out)
    assert [row["what"].split(",")[0] for row in table] == [
        "inner step",
        "full pass",
        "full pass",
        "SGD step",
        "SGD step",
        "features of 3 boxes",
    ]
    assert all(float(row["ms"]) > 0 for row in table)
    assert [len(row["CPU seconds"].split("+")) for row in table[1:3]] == [1, 2]


def test_partial_labels_of_entities(data, capsys):
    script = load("partial_labels")
    options = ["--train", data, "--test", data, "--share", "0.7", "--passes", "30", "--seeds", "0", "1"]
    assert script.main(["entities", *options]) == 0
    table = rows(capsys.readouterr().out)
    ways = ["partial labels", "complete sentences alone", "missing tags as O"]
    assert [row["training labels"] for row in table][:7] == [*ways, "all tags", *ways]
    assert table[7]["setting"] == "mean"
    assert float(table[0]["score"].rstrip("%")) > float(table[2]["score"].rstrip("%"))
    with pytest.raises(SystemExit):
        script.main(["entities", "--share", "1"])


def test_partial_labels_of_other_data(tmp_path, capsys):
    script = load("partial_labels")
    proteins = "".join(
        f">p|fold={fold}\nKRSA{letters}NNGS\n1111{'H' * 8}{end}\n"
        for fold in range(5)
        for letters, end in (("LVILAVFL", "2222"), ("LLILVVFL", "2UUU"))
    )
    (tmp_path / "p.fasta.gz").write_bytes(gzip.compress(proteins.encode()))
    (tmp_path / "bank.conllu").write_text(treebanks.conllu())
    for data, path, ways in (
        ("proteins", "p.fasta.gz", ["partial labels", "known stretches alone", "complete proteins alone"]),
        ("heads", "bank.conllu", ["partial labels", "complete sentences alone", "all heads"]),
        ("waves", signals.save(tmp_path), ["partial labels", "marked stretches alone", "ends without waves"]),
    ):
        options = ["--train", str(tmp_path / path), "--test", str(tmp_path / path), "--passes", "4", "--folds", "1"]
        assert script.main([data, *options]) == 0
        table = rows(capsys.readouterr().out)
        assert [row["training labels"] for row in table][:3] == ways
        assert all(0 <= float(row["score"].rstrip("%")) <= 100 for row in table if row["score"] != "-")
    (fold, x, tags), *_ = script.read_proteins(str(tmp_path / "p.fasta.gz"))
    assert (fold, x.shape[0], tags) == (0, 16, [*"1111", *["H2"] * 8, *"2222"])
    assert script.known_stretches("abcde", [1, None, None, 2, 2]) == [("a", [1]), ("de", [2, 2])]


@pytest.mark.long
def test_benchmark_serving(capsys):
    assert load("serving").main(["--repeats", "1", "--passes", "1", "--growth", "600"]) == 0
    table = rows(capsys.readouterr().out)
    ways = ["tagger, Python and numpy", "tagger, this library", "network, this library", "network, onnxruntime"]
    assert [row["way"] for row in table] == ways
    assert all(float(row["p50 ms"]) <= float(row["p99 ms"]) for row in table)


@pytest.mark.long
@counts_memory
def test_benchmark_encoders(data, tmp_path, capsys):
    encoder = small_encoders.write(tmp_path / "encoder")
    options = ["--encoder", encoder, "--train", data, "--test", data, "--passes", "8"]
    assert load("serving_encoders").main(options) == 0
    torch_row, onnx, int8 = rows(capsys.readouterr().out)
    assert [row["way"] for row in (torch_row, onnx, int8)] == ["torch", "onnx", "onnx, int8"]
    assert torch_row["F1"] == onnx["F1"] == "100.00"
    assert int(onnx["memory, MB"]) < int(torch_row["memory, MB"].replace(",", ""))


def test_batches_of_services_are_by_length():
    serving, seen = load("serving"), []
    examples = [["a"] * length for length in (3, 1, 2) for _ in range(16)]
    way = serving.Way("", seen.append, seen.append, examples)
    serving.growth(way, 96)
    assert [len(group) for group in seen] == [32, 16] * 2
    assert [len(example) for group in seen[:2] for example in group] == [1] * 16 + [2] * 16 + [3] * 16
