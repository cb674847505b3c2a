"""Fine-tuning of a tiny encoder with random weights under chains and trees."""

import json
import re
from pathlib import Path

import pytest
import small_encoders
import torch
import treebanks

from scripts.__main__ import load
from scripts.shared.training import Trees, scores_of_classes
from structsmooth.models import BiaffineParser

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::torch")
TAGGED = "\nSmith I-PER\nlent O\nmoney O\n\nthe O\nBank I-ORG\nof I-ORG\nOhio I-ORG\npaid O\n\nJones I-PER\nleft O\n"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_encoders.write(tmp_path_factory.mktemp("encoder"))


def test_words_have_the_features_of_their_first_pieces(encoder: str) -> None:
    words = load("train_networks").Words(encoder).eval()
    features, lengths = words([["the", "dog", "sees"], ["ohio"]])
    assert lengths.tolist() == [3, 1]
    pieces = words.tokenizer("the dog sees", return_tensors="pt")  # [CLS] the dog see ##s [SEP]
    hidden = words.encoder(**pieces).last_hidden_state[0]
    assert pieces["input_ids"].shape[1] == 6
    torch.testing.assert_close(features[0], hidden[1:4])
    assert not features[1, 1:].any()


@pytest.mark.parametrize(("kind", "measure"), [("tags", "F1"), ("trees", "LAS")])
def test_every_method_learns(
    kind: str, measure: str, encoder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "data.txt")
    Path(path).write_text(TAGGED * 6, encoding="utf-8")
    if kind == "trees":
        path = treebanks.write(tmp_path, labelled=True)
    out = tmp_path / "out"
    rates = ["--encoder-rate", "0.02", "--head-rate", "0.02", "--transition-rate", "0.05"]
    sizes = ["--seeds", "2", "--epochs", "8", "--batch", "4"]
    options = ["--encoder", encoder, "--train", path, "--test", path, "--out", str(out), *rates, *sizes]
    methods = Trees.methods if kind == "trees" else ("token", "crf", "softmax_margin", "l2", "fixed")
    assert load("train_networks").main([*options, "--methods", *methods]) == 0
    epochs = [json.loads(line) for line in (out / "histories.jsonl").read_text().splitlines()]
    last = {(epoch["method"], epoch["seed"]): epoch["measures"][measure] for epoch in epochs}
    assert list(last) == [(method, seed) for method in methods for seed in range(2)]
    assert min(last.values()) > 90
    assert re.search(r"\| method \| \w+ \| beside token \|", capsys.readouterr().out)


def test_softmax_scores_are_those_of_the_tree() -> None:
    """The best class of each word under them is its best head and label, however these fit together."""
    torch.manual_seed(0)
    head = BiaffineParser(4, 2, hidden=3)
    torch.nn.init.normal_(head.arc)
    torch.nn.init.normal_(head.label)
    tree = head((torch.randn(2, 4, 4), torch.tensor([4, 2])))
    y = tree.max()[1]
    scores = scores_of_classes(tree)
    assert scores.shape == (2, 4, 1 + 4 * 2)
    chosen = scores.gather(2, y.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(torch.where(tree.mask, chosen, 0).sum(1), tree.score(y))


def test_refuses_what_it_does_not_know(encoder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = treebanks.write(tmp_path, labelled=True)
    with pytest.raises(SystemExit):
        load("train_networks").main(["--encoder", encoder, "--train", path, "--test", path, "--methods", "best"])
    assert "--methods must be of token, crf, softmax_margin, l2, projective-crf" in capsys.readouterr().err
