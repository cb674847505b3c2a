"""The comparison of solvers on networks: equal oracle calls, kept runs, and the accuracy of what they found."""

import numpy as np
import pytest
import torch
from small_tasks import letters, save_letters

from scripts.__main__ import load
from structsmooth.solvers import History
from structsmooth.tasks import NER

SCRIPT = load("networks")
SGD = "sgd:schedule=constant,learning_rate=0.1,average=false"
SOLVERS = ["--solvers", "incremental-prox-linear", SGD, "--seeds", "0", "--calls", "6"]


def test_letters(tmp_path, capsys):
    data = save_letters(tmp_path)
    command = [
        "letters",
        "--train",
        data,
        "--test",
        data,
        "--batch-size",
        "4",
        "--out",
        str(tmp_path / "runs"),
        *SOLVERS,
    ]
    SCRIPT.main(command)
    output = capsys.readouterr().out
    runs = {path: path.read_bytes() for path in (tmp_path / "runs").glob("*.jsonl")}
    assert len(runs) == 2
    for path in runs:
        history = History.load(path)
        assert history[-1].objective < history[0].objective
        assert history[-1].oracle_calls <= 6 * (len(letters()["word_start"]) - 1)
        assert 0 < history[-1].metrics["accuracy"] <= 1
    SCRIPT.main(command)
    assert capsys.readouterr().out == output
    assert {path: path.read_bytes() for path in runs} == runs


def test_words(tmp_path, capsys):
    for name, text in (("train", "Ada B-PER\nsang O\n\nshe O\nsang O\n"), ("test", "Bo O\nsang O\n")):
        (tmp_path / name).write_text(text)
    files = ["--train", str(tmp_path / "train"), "--test", str(tmp_path / "test")]
    SCRIPT.main(["words", *files, "--out", str(tmp_path / "runs"), *SOLVERS])
    assert "| incremental-prox-linear |" in capsys.readouterr().out


def test_padding_changes_no_score():
    torch.manual_seed(0)
    tagger = SCRIPT.words(NER.default_files())[2]()
    short, long = torch.tensor([5, 2, 7]), torch.tensor([4, 3, 2, 9, 8])
    (inputs, lengths), _ = SCRIPT.collate([(short, short), (long, long)])
    alone = tagger((short[None], torch.tensor([3])))
    np.testing.assert_allclose(
        tagger((inputs, lengths)).unary[0, :3].detach(), alone.unary[0].detach(), rtol=1e-5, atol=1e-6
    )


def test_files_come_in_pairs(capsys):
    with pytest.raises(SystemExit):
        SCRIPT.main(["words", "--train", "alone.txt"])
    assert "both --train and --test" in capsys.readouterr().err
