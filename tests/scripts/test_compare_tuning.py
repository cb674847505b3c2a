"""The comparison of solvers on the last layers of an encoder."""

from argparse import Namespace
from pathlib import Path

import pytest
import small_encoders
import torch

from scripts.__main__ import load
from structsmooth import StructuralHinge

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:::transformers", "ignore:::torch")]
SCRIPT = load("tuning")
COLUMNS = "Smith B-PER\nlent O\nmoney O\n\nOhio B-LOC\n\n" * 3
TREE = ("1\tSmith\t_\tPROPN\t_\t_\t2\tnsubj", "2\tlent\t_\tVERB\t_\t_\t0\troot", "3\tmoney\t_\tNOUN\t_\t_\t2\tobj")
TREEBANK = "".join(f"{row}\t_\t_\n" for row in TREE) + "\n1\tOhio\t_\tPROPN\t_\t_\t0\troot\t_\t_\n\n"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_encoders.write(tmp_path_factory.mktemp("encoder"), layers=2, pieces=12)


@pytest.fixture(params=["columns.txt", "trees.conllu"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    file = tmp_path / request.param
    file.write_text(COLUMNS if file.suffix == ".txt" else TREEBANK * 3, encoding="utf-8")
    return str(file)


def test_displacements_score_as_the_network_that_they_make(encoder: str, data: str) -> None:
    options = Namespace(encoder=encoder, last=1, batch=2, step=0.01, seed=3, train=data, test=data)
    vars(options).update(sentences=300, measured=6)
    case = SCRIPT.TreeCase(options) if "conllu" in data else SCRIPT.TagCase(options)
    problem = case.problem(case.network())
    v = torch.randn(problem.dim, generator=torch.Generator().manual_seed(0)) / 10
    first = problem.module.first.values()
    moved = case.copy_of([p + d for p, d in zip(first, SCRIPT.displacements(problem, v), strict=True)])
    y = torch.nn.utils.rnn.pad_sequence(case.targets, batch_first=True)
    loss = StructuralHinge(cost=case.cost)(case.structure(moved, list(range(6))), y).item()
    assert problem.loss(v) == pytest.approx(loss, rel=1e-5)
    assert 0 < float(problem.linearize(v).loss(v)) == pytest.approx(problem.loss(v), rel=1e-5)


def test_a_table_has_a_row_for_each_solver_and_number_of_calls(
    encoder: str, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    solvers = ["incremental-prox-linear", "prox-linear:inner=bcfw"]
    files = ["--encoder", encoder, "--train", data, "--test", data]
    assert SCRIPT.main([*files, "--calls", "1", "8", "--losses", "crf", "--step", ".01", "--solvers", *solvers]) == 0
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0].strip() for row in rows] == ["AdamW, crf"] * 2 + solvers[:1] * 2 + solvers[1:] * 2
    for start, end in (rows[2:4], rows[4:]):  # F, which AdamW does not minimize
        assert float(end[3]) < float(start[3])
