"""The experiments of the papers: their claims on histories by hand, and a small one from the command to the page."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_problems import random_problem
from source_tree import ROOT

from scripts.reproduce import __main__ as command
from scripts.reproduce.claims import (
    Alike,
    EndsBelow,
    FallsLike,
    Faster,
    Metric,
    MoreAlike,
    SameChoice,
    ScoresAsWell,
    Steeper,
    chosen,
)
from scripts.reproduce.experiment import Command, Comparisons, Study, Tuned, described
from scripts.reproduce.meshi_studies import FewWeights, numbers_of
from scripts.reproduce.number_claims import Cheaper, GrowsSlowly, LargeAlong, Smaller, Within
from scripts.reproduce.objectives import draw_objectives, optimum
from scripts.reproduce.osokin_studies import true_gaps, unevenness
from scripts.reproduce.page import write_page
from structsmooth import BCFW, Hamming
from structsmooth.cli import main
from structsmooth.cli.flags import parse_solvers
from structsmooth.history import History, Row
from structsmooth.solvers import RegularizationPath

EXPERIMENTS = list(command.EXPERIMENTS.values())
PARTS = [part for whole in EXPERIMENTS if isinstance(whole, Comparisons) for part in whole.parts.values()]
COMMANDS = [experiment for experiment in EXPERIMENTS if isinstance(experiment, Command)] + PARTS


def run(*gaps, calls=100, seconds=1.0, metrics=None):
    """A history above the lower bound 1, a pass a row."""
    rows = enumerate(gaps, 1)
    return History(Row(i, calls * i, seconds * i, 1 + gap, 1.0, gap, metrics=metrics or {}) for i, gap in rows)


RUNS = {
    "0.1": {"a": [run(0.5, 0.1, 0.05), run(0.5, 0.2, 0.1)], "b": [run(0.4, 0.3, 0.1, 0.01, seconds=0.1)] * 2},
    "1": {"a": [run(0.1, calls=600)], "b": [run(0.3, 0.2, 0.1)]},
}


def test_faster():
    calls = Faster("a is faster", "a", "b").read(RUNS)
    # At 0.1 all runs reach a gap of 0.1: a after two and three passes, b after three.
    assert calls.share == 0.5
    assert calls.verdict == "holds in part"
    assert calls.seen == "0.83 times the oracle calls at λ = 0.1 (to 0.1); 2 times the oracle calls at λ = 1 (to 0.1)"
    assert Faster("", "a", "b", "passes").read(RUNS).verdict == "holds"
    assert Faster("", "a", "b", "passes", margin=0.5).read(RUNS).share == 0.5
    assert Faster("", "b", "a", value="suboptimality").read(RUNS).share == 0.5
    assert Faster("", "a", "b", "seconds").read({"0.1": RUNS["0.1"]}).verdict == "does not hold here"


def test_a_start_that_is_free_is_no_achievement():
    """A solver that never gets below the start of the other loses, whatever the other has paid by then."""
    start = Row(0, 0, 0.0, 1.3, 1.0, 0.3)
    runs = {"1": {"a": [run(0.5, 0.4)], "b": [History([start, *run(0.4, 0.2, 0.1)])]}}
    reading = Faster("", "b", "a").read(runs)
    assert reading.verdict == "holds"
    assert reading.seen == "`a` never below the start at λ = 1 (to 0.3)"
    assert Faster("", "a", "b").read(runs).share == 0
    assert Faster("", "a", "a").read({"1": {"a": [History([start])]}}).share == 0


def test_tests_say_where_they_cut():
    for claim, test in [
        (Faster("", "a", "b"), "`a` needs no more oracle calls than `b` to the best gap of both"),
        (Faster("", "a", "b", margin=0.5), "`a` needs at most 0.5 of the oracle calls of `b` to the best gap"),
        (Alike("", ("a", "b")), "none needs more than 1.5 times the oracle calls of another"),
        (ScoresAsWell("", "a", "b", "f1"), "one-sided: f1 of `a` ends no more than 0.01 below that of `b`"),
        (ScoresAsWell("", "a", "b", "f1", two_sided=True), "f1 of `a` and `b` end within 0.01"),
        (SameChoice("", ("a", "b"), "f1"), "one setting ends lowest of those whose f1 is within 1 % of the best"),
        (SameChoice("", ("a", "b")), "one setting ends lowest"),
        (Metric("", "a", "f1", low=0.2), "one-sided: f1 of `a` ends at no less than 0.2"),
        (Metric("", "a", "f1", 0.2, 0.4, "gap"), "f1 / gap of `a` ends at no less than 0.2 and no more than 0.4"),
        (Within("", "gaps", 0.1, 0.9), "one-sided: at least 90% of the gaps are within 0.1"),
        (FallsLike("", "a", -1), "one-sided: the slope of log gap over log oracle calls of `a` is at most -1"),
    ]:
        assert claim.test.startswith(test)


def test_rates():
    """Slopes of gaps that are powers of the calls."""
    runs = {"1": {name: [run(*(i**power for i in range(1, 30)))] for name, power in (("a", -2.0), ("b", -1.0))}}
    assert Steeper("", "a", "b").read(runs).seen == "slopes: -2.00 against -1.00 at λ = 1"
    assert [Steeper("", *pair).read(runs).share for pair in (("a", "b"), ("b", "a"))] == [1, 0]
    assert [FallsLike("", label, -1.5).read(runs).share for label in "ab"] == [1, 0]
    assert FallsLike("", "a", -1).read({"1": {"a": [run(0.5)]}}).share == 0  # one row has no slope


def test_the_same_choice():
    """Among settings whose metric is within 1 % of the best, the objective decides."""
    good = {"s:x=0": (1, 0.9), "s:x=1": (2, 0.9), "s:x=2": (0, 0)}
    runs = {"1": {label: [run(gap, metrics={"f1": f1})] for label, (gap, f1) in good.items()}}
    assert [chosen(runs["1"], metric) for metric in ("f1", None)] == ["s:x=0", "s:x=2"]
    claim = SameChoice("", tuple(good), "f1")
    assert claim.read(runs).seen == "`s:x=0` at λ = 1 (the grid ends from 1 to 3)"
    other = {"s:x=0": [run(3, metrics={"f1": 0.9})], **{label: runs["1"][label] for label in ("s:x=1", "s:x=2")}}
    assert [claim.read(runs | more).share for more in ({}, {"2": runs["1"]}, {"2": other})] == [1, 1, 0]
    assert claim.read(runs | {"2": other, "3": other}).share == 0.5


def test_alike():
    reading = Alike("", ("a", "b"), value="gap").read(RUNS)
    assert reading.share == 0.5
    assert "at λ = 1 (to 0.1; they end from 0.1 to 0.1)" in reading.seen
    assert Alike("", ("a", "b"), within=2.0, value="gap").read({"1": RUNS["1"]}).verdict == "holds"
    far = {"1": {"a": [run(0.3, 0.2)], "b": [run(0.3, 0.01)]}}
    assert Alike("", ("a", "b"), within=2.0, value="gap").read(far).verdict == "holds in part"


def test_more_alike():
    runs = {"1": {"a": [run(0.2, 0.1)], "b": [run(0.3, 0.2, 0.1)], "c": [run(0.1)]}}
    reading = MoreAlike("", ("a", "b"), ("b", "c"), value="gap").read(runs)
    assert reading.share == 1
    assert reading.seen == "largest ratios of costs: 1.5 against 3 at λ = 1"
    assert MoreAlike("", ("b", "c"), ("a", "b"), value="gap").read(runs).share == 0


def test_metrics():
    runs = {"1": {"a": [run(0.5, metrics={"f1": f1, "estimated_gap": 0.1}) for f1 in (0.1, 0.5, 0.6)]}}
    runs["1"]["b"] = [run(0.5, metrics={"f1": 0.505})]
    assert ScoresAsWell("", "a", "b", "f1").read(runs).verdict == "holds"
    assert ScoresAsWell("", "a", "b", "f1", within=0.001).read(runs).verdict == "does not hold here"
    assert [ScoresAsWell("", "b", "a", "f1", 0.001, two).read(runs).share for two in (False, True)] == [1, 0]
    assert Metric("", "a", "estimated_gap", high=0.3, over="gap").read(runs).seen == (
        "estimated_gap / gap: 0.2 at λ = 1"
    )
    assert Metric("", "a", "estimated_gap", low=0.3, over="gap").read(runs).share == 0


def test_hard_objectives():
    """Of soft runs without their penalty; other solvers have no other objective."""
    soft = History(Row(i, 100 * i, 1.0, 9.0, 0.0, 9.0, metrics={"hard_objective": 4 / i}) for i in (1, 2, 4))
    runs = {"1": {"soft": [soft], "loose": [run(0.0, metrics={"hard_objective": 2.0})], "hard": [run(1.5, 1.0, 0.5)]}}
    reading = Faster("", "hard", "soft", value="hard objective").read(runs)
    assert reading.seen == "0.75 times the oracle calls at λ = 1 (to 1.5)"
    assert EndsBelow("", "soft", "loose").read(runs).share == 1
    assert EndsBelow("", "loose", "soft").read(runs).seen == "objective without penalty: 2 against 1 at λ = 1"


def test_cheaper():
    paths = {
        "path": [{"oracle_calls": 10, "seconds": 1.0}, {"oracle_calls": 100, "seconds": 3.0}],
        "grid": [{"oracle_calls": 200, "seconds": 2.0}],
    }
    reading = Cheaper("", "path", "grid").read(paths)
    assert reading.share == 0.5
    assert reading.seen == "path: 0.5 of the oracle calls and 1.5 of the seconds of grid"
    assert Cheaper("", "path", "grid", 2.0).read(paths).verdict == "holds"


def test_claims_on_numbers():
    numbers = {"50": [0.1, 0.3], "100": [0.2, 0.4]}
    assert GrowsSlowly("", "50", "100", 1.6).read(numbers).verdict == "holds"
    assert GrowsSlowly("", "50", "100", 1.4).read(numbers).seen == "0.2 at 50, 0.3 at 100 examples"
    assert GrowsSlowly("", "50", "100", 1.4).read(numbers).share == 0
    values = {"a": [0.9] + 9 * [1.0], "b": 2 * [0.9] + 8 * [1.0]}
    assert LargeAlong("", "a", 1.0).read(values).seen == "median 1, from 0.9 to 1; 90% reach 1"
    assert [LargeAlong("", label, 1.0).read(values).share for label in "ab"] == [1, 0]
    assert [Within("", label, 0.9, 0.2).read(values).share for label in "ab"] == [0, 1]
    assert [Within("", label, 0.9, 0.1, above=True).read(values).share for label in "ab"] == [1, 0]
    assert Smaller("", "50", "100").read(numbers).seen == "0.2 against 0.3"
    assert [Smaller("", "50", "100", most).read(numbers).share for most in (0.7, 0.6)] == [1, 0]


def test_true_gaps_of_a_verified_path():
    """They are those that the path knows."""
    problem = random_problem((3, 4, 2), 3, 6, Hamming(), 0)
    path = RegularizationPath(0.1, solver=BCFW(steps="fw")).solve(problem, lam_min=0.1)
    assert true_gaps(problem, path) == pytest.approx([point.gap for point in path.breakpoints], abs=1e-9)


def test_unevenness():
    """1 for equal entries, √n for one that is not zero (Osokin et al. 2016, theorem 2)."""
    assert unevenness(torch.ones(4)) == pytest.approx(1)
    assert unevenness(torch.tensor([0.0, 0.0, 3.0, 0.0])) == pytest.approx(2)
    assert unevenness(torch.tensor([1.0, 3.0])) == pytest.approx((1 + 4 * 0.25**2) ** 0.5)


@pytest.mark.parametrize("experiment", COMMANDS, ids=lambda experiment: experiment.name)
@pytest.mark.parametrize("quick", [False, True])
def test_commands_are_taken(experiment, quick, capsys):
    """Up to the reading of data, which are not there."""
    assert main(experiment.arguments("no-such-folder", Path("out"), quick)) == 2
    assert "no-such-folder" in capsys.readouterr().err


COMPARISONS = [experiment for experiment in COMMANDS if experiment.command.startswith("compare")]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_names_tell_solvers_apart(experiment):
    assert len(set(experiment.names.values())) == len(experiment.names)


@pytest.mark.parametrize("experiment", COMPARISONS, ids=lambda experiment: experiment.name)
@pytest.mark.parametrize("quick", [False, True])
def test_claims_are_about_solvers_of_the_command(experiment, quick):
    arguments = experiment.arguments("DATA", Path("out"), quick)
    start = arguments.index("--solvers") + 1
    labels = []
    for argument in arguments[start:]:
        if argument.startswith("--"):
            break
        labels.append(argument)
    assert set(parse_solvers(labels, {})) == set(labels)
    for claim in experiment.claims:
        named = {
            label for name in ("better", "worse", "label", "rival") if (label := getattr(claim, name, None)) is not None
        } | {label for name in ("labels", "others", "grid") for label in getattr(claim, name, ())}
        assert named
        assert named <= set(labels)


WHOLES = [experiment for experiment in EXPERIMENTS if isinstance(experiment, Comparisons)]


@pytest.mark.parametrize("experiment", WHOLES, ids=lambda experiment: experiment.name)
def test_claims_are_about_solvers_of_all_parts(experiment):
    labels = {
        label + suffix
        for suffix, part in experiment.parts.items()
        for label in part.command.partition(" --solvers ")[2].split()
    }
    for claim in experiment.claims:
        assert {
            getattr(claim, name) for name in ("better", "worse", "label", "rival") if hasattr(claim, name)
        } <= labels


def test_comparisons_are_read_together(tmp_path, blank_pictures):
    """Labels of the second part have its suffix; pictures and the time are of both."""
    first = small_experiment(tmp_path, "first")
    second = replace(first, name="second", command=first.command.replace("--lams 1", "--lams 1 --words-only"))
    claims = [Faster("", "bcfw", "bcfw, by words", margin=1e6)]
    whole = Comparisons("whole", "Figure 3", "Twice.", "", {"": first, ", by words": second}, "dev f1", claims=claims)
    summary = whole.run(str(tmp_path), tmp_path / "out", quick=True)
    assert summary["claims"][0]["verdict"] == "holds"
    assert summary["command"].count("structsmooth compare ner") == 2
    assert [path.name for path in (tmp_path / "out").glob("*.png")] == ["lam-1.png"]


def test_objectives_without_penalties(tmp_path):
    """g* is the least of all, and a picture is drawn of runs with and without penalties."""
    soft = {"hard_objective": 3.0, "soft_objective": 2.0, "soft_dual": 1.5, "f1": 0.5}
    runs = {"soft": [run(0.5, 0.4, metrics=soft)] * 2, "hard": [run(2.5, 1.5)]}
    assert optimum(runs) == 2.5
    draw_objectives(runs, tmp_path / "objectives.png", "f1", "Objectives")
    assert (tmp_path / "objectives.png").stat().st_size > 0


def test_few_weights():
    """22 weights of 21 classes; the best output is that of the weighted scores."""
    module = FewWeights(3)
    assert sum(parameter.numel() for parameter in module.parameters()) == 4
    log_p = torch.tensor([[[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]]], dtype=torch.float64).log()
    x = log_p, torch.tensor([[0, 1]])
    for agreement, best in ((0.0, [0, 2]), (9.0, [0, 0])):
        weights = torch.tensor([1.0, 1.0, 1.0, agreement], dtype=torch.float64)
        torch.nn.utils.vector_to_parameters(weights, module.parameters())
        assert module(x).max()[1].tolist() == [best]


def test_numbers_of_few_weights():
    """Seconds to the best objective that all reach, and how far accuracies of soft runs are apart."""
    histories = {
        "soft, 1": run(0.5, 0.3, metrics={"accuracy": 0.6}),
        "soft, 10": run(0.4, 0.2, 0.1, seconds=2.0, metrics={"accuracy": 0.7}),
        "Frank-Wolfe": run(0.3, metrics={"accuracy": 0.1}),
    }
    numbers = numbers_of(histories)
    assert [numbers[f"seconds, {label}"] for label in histories] == [[2.0], [4.0], [1.0]]
    assert numbers["differences of accuracy"] == pytest.approx([0.1])


def small_experiment(folder, name="small", figure="Figure 0"):
    """Two solvers on three sentences."""
    (folder / "train.txt").write_text("Ada B-PER\nsleeps O\n\nParis B-LOC\nsleeps O\n\nit O\nrains O\n")
    solvers = "bcfw:sampling=uniform bcfw"
    return Command(
        name,
        figure,
        "Three sentences.",
        "",
        f"compare ner --train {{data}}/train.txt --bits 6 --lams 1 --seeds 0,1 --passes 3 --solvers {solvers}",
        "--passes 1",
        claims=[
            Alike("Sampling makes no difference.", ("bcfw", "bcfw:sampling=uniform"), 1e6),
            Faster("Gaps are better.", "bcfw", "bcfw:sampling=uniform", margin=1e6, ours=True),
        ],
        differs=["there are three sentences", "and two seeds"],
        names={"bcfw": "By gaps", "sgd": "Not in the table"},
    )


def test_from_the_command_to_the_page(tmp_path, blank_pictures):
    experiment = small_experiment(tmp_path)
    summary = experiment.run(str(tmp_path), tmp_path / "out" / "small", quick=True)
    assert [claim["verdict"] for claim in summary["claims"]] == ["holds", "holds"]
    saved = json.loads((tmp_path / "out" / "small" / "summary.json").read_text())
    assert saved == summary
    assert shlex.split(saved["command"])[:4] == ["structsmooth", "compare", "ner", "--train"]
    # A run that finds its passes keeps the time of the run that made them.
    (tmp_path / "out" / "small" / "summary.json").write_text(json.dumps(saved | {"seconds": 3600.0}))
    assert experiment.run(str(tmp_path), tmp_path / "out" / "small", quick=True)["seconds"] == 3600
    other = Command("other", "Figure 1", "Not run.", "", "compare ner", "", claims=[])
    section = described(summary)
    assert "Three sentences. Differs from the paper: there are three sentences; and two seeds.\n" in section
    assert "| Sampling makes no difference. | none needs more than 1e+06 times" in section
    assert "\n| Not of the paper: Gaps are better. | *By gaps* needs at most 1e+06 of the oracle calls of" in section
    assert "\n*By gaps* is `bcfw`.\n" in section
    write_page(tmp_path / "page.md", tmp_path / "out", {"A paper.": [experiment, other]})
    page = (tmp_path / "page.md").read_text()
    counts = "1 hold, 0 hold in part, 0 do not hold here"
    assert f"Of 1 claims of the papers, {counts}.\n" in page
    assert f"Of 1 claims that are not of the papers, {counts}.\n" in page
    assert "### A paper\n\n* **Figure 0.** Sampling makes no difference.\n" in page
    assert "* **Figure 1.** Not run: `python -m scripts reproduce other`." in page
    assert "What is not marked holds.\n\n* **Small, Figure 0.** Gaps are better.\n" in page


def test_a_page_keeps_the_results_of_runs_that_are_gone(tmp_path, blank_pictures):
    first, second = (small_experiment(tmp_path, name, f"Figure {name}") for name in ("first", "second"))
    first.run(str(tmp_path), tmp_path / "before" / "first", quick=True)
    write_page(tmp_path / "page.md", tmp_path / "before", {"A paper.": [first, second]})
    second.run(str(tmp_path), tmp_path / "after" / "second", quick=True)
    write_page(tmp_path / "page.md", tmp_path / "after", {"A paper.": [first, second]})
    page = (tmp_path / "page.md").read_text()
    assert "Of 2 claims of the papers, 2 hold" in page
    assert page.count("* **Figure first; Figure second.** Sampling") == 1
    write_page(tmp_path / "page.md", tmp_path / "none", {"A paper.": [first, second]})
    assert (tmp_path / "page.md").read_text() == page


def test_the_page_hides_nothing(tmp_path):
    """It is what its results say, with every claim of the experiments, and a cause for each that does not hold."""
    docs = ROOT / "docs"
    for name in ("reproduction.md", "reproduction.json"):
        shutil.copy(docs / name, tmp_path)
    write_page(tmp_path / "reproduction.md", tmp_path / "none", command.PAPERS)
    page = (docs / "reproduction.md").read_text(encoding="utf-8")
    assert (tmp_path / "reproduction.md").read_text(encoding="utf-8") == page
    results = {result["name"]: result for result in json.loads((docs / "reproduction.json").read_text())}
    for experiment in EXPERIMENTS:
        claims = [claim["says"] for claim in results.get(experiment.name, {"claims": []})["claims"]]
        assert claims == [claim.says for claim in experiment.claims][: len(claims)]
        assert all(says in page for says in claims)
    missed = [claim for result in results.values() for claim in result["claims"] if claim["verdict"] != "holds"]
    assert (
        sum(map(int, re.findall(r"^### .* \((\d+)\)$", page, re.M))) == sum(not claim["ours"] for claim in missed) == 47
    )
    assert "No cause is known" not in page


TUNED = [experiment for experiment in EXPERIMENTS if isinstance(experiment, Tuned)]


@pytest.mark.parametrize("experiment", TUNED, ids=lambda experiment: experiment.name)
def test_claims_are_about_solvers_with_grids(experiment):
    labels = [label for grid in experiment.grids.values() for label in grid]
    assert list(parse_solvers(labels, {})) == labels
    for claim in experiment.claims:
        named = {getattr(claim, name, None) for name in ("better", "worse", "label", "rival")} - {None}
        assert named or claim.grid in experiment.grids.values()
        assert named <= set(experiment.grids)


def test_settings_are_tuned_for_each_lam(tmp_path, blank_pictures):
    """Grids are run with one seed, and the best settings with all; a trial is of the first λ alone."""
    small_experiment(tmp_path)
    grids = {"ours": ["bcfw", "bcfw:steps=fw"], "theirs": ["sgd:learning_rate=0.1", "sgd:learning_rate=100"]}
    claims = [Faster("", "ours", "theirs", value="suboptimality"), SameChoice("", grids["theirs"])]
    command = "compare ner --train {data}/train.txt --bits 6 --seeds 0,1 --passes 3"
    tuned = Tuned("tuned", "Figure 4", "", "", command, "--seeds 0", ("1", "2"), grids, claims=claims)
    runs = tuned.evidence(str(tmp_path), tmp_path / "out", quick=False)
    assert list(runs) == ["1", "2"]
    for of_lam in runs.values():
        assert {label: len(histories) for label, histories in of_lam.items()} == {
            **dict.fromkeys([label for grid in grids.values() for label in grid], 1),
            **dict.fromkeys(grids, 2),
        }
        ends = {label: histories[0].best().objective for label, histories in of_lam.items()}
        assert all(ends[name] == min(ends[label] for label in grid) for name, grid in grids.items())
    summary = tuned.run(str(tmp_path), tmp_path / "quick", quick=True)
    assert summary["command"] == "python -m scripts reproduce tuned --quick"
    assert "at λ = 1" in summary["claims"][0]["seen"]
    assert "at λ = 2" not in summary["claims"][0]["seen"]


def test_study(tmp_path):
    """Gets the folders and whether to be quick; its numbers are kept and read."""

    def study(data, out, quick):
        return {"quick": [float(quick)], data.name: [2.0], out.name: [3.0]}

    claims = [LargeAlong("", "data", 2.0), LargeAlong("", "out", 4.0), LargeAlong("", "quick", 1.0)]
    experiment = Study("own", "Figure 2", "Numbers.", "", study, claims=claims)
    summary = experiment.run(str(tmp_path / "data"), tmp_path / "out", quick=True)
    assert [claim["share"] for claim in summary["claims"]] == [1, 0, 1]
    assert summary["command"] == "python -m scripts reproduce own --quick"
    assert json.loads((tmp_path / "out" / "numbers.json").read_text()) == {"quick": [1], "data": [2], "out": [3]}


def test_bad_options(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("STRUCTSMOOTH_DATA", raising=False)
    for arguments, message in [
        (["osokin-0"], "unknown experiments osokin-0"),
        (["osokin-1"], "give --data"),
        (["osokin-1", "--data", str(tmp_path)], "no folder ocr"),
        ([], "name the experiments to run, or give --page"),
    ]:
        with pytest.raises(SystemExit):
            command.main(arguments)
        assert message in capsys.readouterr().err
