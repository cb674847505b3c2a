"""The comparison of solvers on object localization: equal oracle calls, tables, and going on after a stop."""

import re
from pathlib import Path

import boxed_images
import pytest
from small_tasks import small_networks

from scripts.__main__ import load
from scripts.shared.comparing import Budget
from structsmooth.solvers import History

SCRIPT = load("localization")
SGD = "sgd:schedule=constant,learning_rate=0.01,average=false"
PROX_LINEAR = "prox-linear:inner=casimir-svrg:schedule=constant:k=5,lipschitz=10,learning_rate=1"


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Options that take small images."""
    small_networks(monkeypatch)
    boxes = [(2 + 7 * i, 15 - 4 * i, 27 + 7 * i, 35 - 4 * i) for i in range(4)]
    pictures = {f"{label}{i}": [(label, box)] for label in ("cat", "dog") for i, box in enumerate(boxes)}
    data = str(boxed_images.write_all(tmp_path, pictures))
    files = ["--train", data, "--test", data, "--out", str(tmp_path / "runs")]
    features = ["--backbone", "tiny", "--features-cache", str(tmp_path / "features"), "--jobs", "1"]
    return [*files, *features, "--class", "dog", "cat", "--limit", "3", "--calls", "23"]


def tables(output: str) -> dict[str, dict[str, list[float]]]:
    """Rows of numbers by solver, for each measure."""
    found: dict[str, dict[str, list[float]]] = {}
    for line in output.splitlines():
        if title := re.match(r"\w+: (\w+) after 23 oracle calls", line):
            found[title[1]] = {}
        elif re.match(r"\| \S.* \| [\d.-]+ \|", line):
            name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            found[list(found)[-1]][name] = list(map(float, cells))
    return found


def kept(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.glob("*.jsonl")}


def test_each_solver_has_as_many_oracle_calls(command, tmp_path, capsys):
    command += ["--solvers", SGD, PROX_LINEAR, "--seeds", "0", "1", "2"]
    SCRIPT.main(command)
    measured = tables(capsys.readouterr().out)
    assert list(measured) == ["objective", "corloc", "ap", "seconds"]
    assert all(list(rows) == [SGD, PROX_LINEAR] for rows in measured.values())
    runs = kept(tmp_path / "runs")
    assert len(runs) == 2 * 2 * 3
    for path in runs:
        calls = History.load(path).column("oracle_calls")
        assert calls[-1] == 3 * (23 if "-sgd" in path.name else 1 + 2 * 10)
    for label, column in (("dog", 0), ("cat", 1)):
        histories = [History.load(path) for path in runs if f"-{label}-sgd" in path.name]
        medians = {name: sorted(h[-1].as_dict()[name] for h in histories)[1] for name in measured}
        assert measured["objective"][SGD][column] == pytest.approx(medians["objective"], abs=1e-4)
        assert measured["corloc"][SGD][column] == pytest.approx(medians["corloc"], abs=1e-3)
        assert medians["objective"] < histories[0][0].objective
    SCRIPT.main(command)
    assert kept(tmp_path / "runs") == runs
    assert tables(capsys.readouterr().out) == measured


def test_linear_scores_have_a_lower_bound(command, capsys):
    SCRIPT.main([*command, "--head", "linear", "--solvers", "bcfw", "casimir-svrg:learning_rate=0.01", "--seeds", "0"])
    objective = tables(capsys.readouterr().out)["objective"]
    bound = objective.pop("lower bound")
    assert len(objective) == 2
    assert all(low <= value for row in objective.values() for low, value in zip(bound, row, strict=True))


def test_interrupted_runs_are_not_taken_for_complete(command, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Budget, "keep", stop)
        with pytest.raises(SystemExit, match="the same command goes on"):
            SCRIPT.main([*command, "--solvers", SGD, "--seeds", "0"])
    assert not kept(tmp_path / "runs")


def test_other_settings_need_another_folder(command):
    command += ["--solvers", SGD, "--seeds", "0", "--class", "dog"]
    SCRIPT.main(command)
    SCRIPT.main([*command, "--head", "linear"])
    with pytest.raises(SystemExit, match=r"other settings.* give another --out"):
        SCRIPT.main([*command, "--lam", "10/n"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--solvers", "newton"], "unknown solver"), (["--class", "cow"], "no images"), (["--lam", "x"], "lam")],
)
def test_errors_are_sentences(command, arguments, message):
    with pytest.raises(SystemExit, match=message):
        SCRIPT.main([*command, *arguments])
