"""``structsmooth tune`` on a tiny corpus: what it writes, that texts stay whole, and that no stop changes it."""

import itertools
import json
import re
import shlex
from argparse import Namespace
from pathlib import Path

import pytest

from structsmooth.cli import main, tune
from structsmooth.cli.folds import folds
from structsmooth.solvers import BCFW
from structsmooth.tasks import NER, OCR
from structsmooth.tasks.ocr.letters import Word

NAMES = ["John/PER", "Ada/PER", "Acme/ORG", "Paris/LOC"]
GRID = ["--lam", "1/n", "100/n", "--rich", "--no-rich"]
FIXED = ["--bits", "8", "--solver", "bcfw", "--passes", "4"]


def corpus(verb: str) -> str:
    """16 sentences in four documents."""
    lines = []
    for first, second in itertools.product(NAMES, NAMES):
        if second == NAMES[0]:
            lines += ["-DOCSTART- O", ""]
        for name in (first, second):
            word, kind = name.split("/")
            lines += [f"{word} B-{kind}", f"{verb} O"]
        lines.append("")
    return "\n".join(lines)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, blank_pictures):
    """A working directory with data files."""
    (tmp_path / "train.txt").write_text(corpus("visited"))
    (tmp_path / "dev.txt").write_text(corpus("met"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tuning(*options: str, grid: list[str] = GRID, out: str = "out") -> list[str]:
    return ["tune", "ner", "--train", "train.txt", *FIXED, *grid, "--out", out, *options]


def rows(out: str = "out") -> list[list[str]]:
    """Cells of the table, without the seconds."""
    lines = [line for line in Path(out, "table.md").read_text().splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ")[:-1] for line in lines if not line.startswith("| ---")]


def runs(out: str = "out") -> dict[str, dict[str, object]]:
    found = {str(path.relative_to(out)): json.loads(path.read_text()) for path in Path(out).rglob("*.json")}
    for run in (row for own in found.values() for row in (own, *own["history"])):
        run["seconds"] = 0
    return found


def test_it_writes_a_table_a_figure_and_the_best_command(capsys):
    assert main(tuning("--folds", "2")) == 0
    printed = capsys.readouterr().out
    header, *body = rows()
    assert header == ["lam", "rich", "f1", "deviation", "passes"]
    assert {tuple(row[:2]) for row in body} == {*itertools.product(("1/n", "100/n"), ("rich", "no-rich"))}
    scores = [float(row[2]) for row in body]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1]
    assert len(runs()) == 4 * 2
    own = [run["metrics"]["f1"] for name, run in runs().items() if f"lam-{body[0][0]}".replace("/", "-") in name]
    assert any(abs(scores[0] - sum(pair) / 2) < 1e-4 for pair in itertools.combinations(own, 2))
    assert Path("out/tuning.png").is_file()
    command = shlex.split(re.search(r"^best: structsmooth (.*)$", printed, re.M)[1])
    assert main([*command, "--test", "dev.txt", "--out", "model"]) == 0
    settings = json.loads(Path("model/model.json").read_text())["settings"]
    assert (settings["lam"], settings["rich"], settings["bits"]) == (body[0][0], body[0][1] == "rich", 8)


def test_development_data_take_the_place_of_folds():
    assert main(tuning("--dev", "dev.txt", grid=["--lam", "1/n"])) == 0
    assert [*runs()] == ["runs/as-given/dev/run.json"]
    assert main([*tuning(grid=["--lam", "1/n"])[:-2], "--dev", "dev.txt"]) == 0
    assert rows("runs/tune-ner") == rows()
    (_, row) = rows()
    assert main(["train", "ner", "--train", "train.txt", "--dev", "dev.txt", *FIXED, "--lam", "1/n", "--out", "m"]) == 0
    assert row[0] == f"{json.loads(Path('m/model.json').read_text())['metrics']['dev']['f1']:.4f}"
    assert not Path("out/tuning.png").exists()


def test_a_stopped_search_goes_on_and_ends_as_an_unbroken_one(monkeypatch, capsys):
    assert main(tuning("--folds", "2", out="unbroken")) == 0
    left, solve = iter(range(3)), BCFW.solve

    def stopped(*arguments, **options):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return solve(*arguments, **options)

    monkeypatch.setattr(BCFW, "solve", stopped)
    assert main(tuning("--folds", "2")) == 130
    assert "the same command continues" in capsys.readouterr().err
    assert len(runs()) == 3
    calls = []
    monkeypatch.setattr(BCFW, "solve", lambda *a, **o: calls.append(o) or solve(*a, **o))
    assert main(tuning("--folds", "2")) == 0
    assert len(calls) == 5
    assert rows() == rows("unbroken")
    assert runs() == runs("unbroken")


def test_a_larger_grid_takes_the_runs_that_there_are(monkeypatch):
    assert main(tuning("--folds", "2", grid=["--lam", "1/n", "10/n"])) == 0
    calls, solve = [], BCFW.solve
    monkeypatch.setattr(BCFW, "solve", lambda *a, **o: calls.append(o) or solve(*a, **o))
    assert main(tuning("--folds", "2", grid=["--lam", "1/n", "10/n", "30/n"])) == 0
    assert len(calls) == 2


def test_random_settings_are_those_of_the_seed():
    for out, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        options = ["--dev", "dev.txt", "--random", "2", "--seed", seed]
        assert main(tuning(*options, grid=["--lam", *map(str, range(1, 9))], out=out)) == 0
        assert len(rows(out)) == 3
    assert rows("a") == rows("b")
    assert {row[0] for row in rows("a")} != {row[0] for row in rows("c")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--folds", "5"], "from 2 to the number of texts, 4, got 5"),
        (["--folds", "1"], "got 1"),
        (["--folds", "0"], "got 0"),
        (["--folds", "2", "--dev", "dev.txt"], "takes the place of --folds"),
        (["--random", "5"], "size of the grid, 4, got 5"),
        (["--lam", "1/n"], "the same value twice for --lam"),
        (["--test", "dev.txt"], "--test is an option of structsmooth train alone"),
        (["--gap-tolerance", "0", "-1"], "gap_tolerance"),
    ],
)
def test_mistakes_are_refused_before_anything_is_trained(options, message, capsys):
    assert main(tuning(*options)) == 2
    assert message in capsys.readouterr().err
    assert not Path("out").exists()


def test_options_that_train_does_not_have_are_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(tuning("--gamma", "1"))
    assert "--gamma" in capsys.readouterr().err


def test_runs_with_other_settings_are_refused(capsys):
    grid = ["--lam", "1/n", "10/n"]
    assert main(tuning("--dev", "dev.txt", grid=grid)) == 0
    assert main(tuning("--dev", "dev.txt", "--seed", "1", grid=grid)) == 2
    assert (
        "of a run with seed = 0, not 1: resume with the same options, version and data, or start anew in another --out"
        in capsys.readouterr().err
    )


def test_errors_are_ranked_from_the_least():
    setting = tune.Setting({}, [], Namespace(task="ocr"))
    outcomes = [tune.Outcome(setting, [score], []) for score in (0.3, float("nan"), 0.1)]
    assert [outcome.score for outcome in tune.ranked(outcomes)][:2] == [0.1, 0.3]


def test_folds_keep_texts_whole():
    texts = [0, 0, 0, 1, 2, 2, 3, 4, 4, 4]
    dealt = folds(texts, 10, 3, 0)
    assert sorted(itertools.chain(*dealt)) == [*range(10)]
    assert all(len({i for i, fold in enumerate(dealt) if texts.index(text) in fold}) == 1 for text in texts)
    assert all(
        not {texts[i] for i in one} & {texts[i] for i in other} for one, other in itertools.combinations(dealt, 2)
    )
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    assert folds(texts, 10, 3, 0) == dealt
    assert any(folds(texts, 10, 3, seed) != dealt for seed in range(1, 9))
    assert folds(None, 7, 3, 0) == [[0, 1], [2, 3], [4, 5, 6]]


def test_tasks_know_their_texts(folder):
    assert NER().texts(NER().read("train.txt")) == [1 + i // 4 for i in range(16)]
    (folder / "plain.txt").write_text("A O\n\nB O\n")
    assert NER().texts(NER().read("plain.txt")) is None
    words = [Word(None, text) for text in ("ab", "ab", "c", "ab")]
    assert OCR().texts(words) == [0, 0, 1, 2]
