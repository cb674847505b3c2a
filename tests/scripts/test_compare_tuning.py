"""The comparison of solvers on the last layers of an encoder."""

from argparse import Namespace
from pathlib import Path

import pytest
import small_encoders
import torch

from scripts.__main__ import load
from structsmooth import StructuralHinge
from structsmooth.tasks import NER
from structsmooth.text.corpus import Corpus, Sentence

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:::transformers", "ignore:::torch")]
SCRIPT = load("tuning")
EXAMPLES = [Sentence(["Smith", "lent", "money"], [], ["B-PER", "O", "O"]), Sentence(["Ohio"], [], ["B-LOC"])] * 3


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_encoders.write(tmp_path_factory.mktemp("encoder"), layers=2, pieces=12)


def test_displacements_score_as_the_network_that_they_make(encoder: str) -> None:
    corpus = Corpus.of(EXAMPLES)
    options = Namespace(encoder=encoder, last=1, batch=2, step=0.01, seed=3)
    case = SCRIPT.Case(NER(words_only=True, bits=8).fit(corpus), corpus, corpus, options)
    network = case.network()[2]
    problem = case.problem(network)
    v = torch.randn(problem.dim, generator=torch.Generator().manual_seed(0)) / 10
    first = problem.module.first.values()
    moved = SCRIPT.copy_of(case, [p + d for p, d in zip(first, SCRIPT.displacements(problem, v), strict=True)])
    tagged = case.tagged(moved, corpus)
    chain = moved.chain(tagged, range(2))
    y = torch.nn.utils.rnn.pad_sequence(tagged.states[:2], batch_first=True)
    assert problem.loss(v) == pytest.approx(StructuralHinge()(chain, y).item(), rel=1e-5)
    assert 0 < float(problem.linearize(v).loss(v)) == pytest.approx(problem.loss(v), rel=1e-5)


def test_a_table_has_a_row_for_each_solver_and_number_of_calls(
    encoder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "columns.txt"
    file.write_text("Smith B-PER\nlent O\nmoney O\n\nOhio B-LOC\n\n" * 3, encoding="utf-8")
    solvers = ["incremental-prox-linear", "prox-linear:inner=bcfw"]
    files = ["--encoder", encoder, "--train", str(file), "--test", str(file)]
    assert SCRIPT.main([*files, "--calls", "1", "8", "--losses", "crf", "--step", ".01", "--solvers", *solvers]) == 0
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0].strip() for row in rows] == ["AdamW, crf"] * 2 + solvers[:1] * 2 + solvers[1:] * 2
    for start, end in (rows[2:4], rows[4:]):  # F, which AdamW does not minimize
        assert float(end[3]) < float(start[3])
