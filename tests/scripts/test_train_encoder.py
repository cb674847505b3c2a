"""Fine-tuning of a tiny encoder with random weights under chains and trees."""

import json
from pathlib import Path

import pytest
import torch
import treebanks
from script_modules import load

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::torch")
TAGGED = "\nSmith I-PER\nlent O\nmoney O\n\nthe O\nBank I-ORG\nof I-ORG\nOhio I-ORG\npaid O\n\nJones I-PER\nleft O\n"
WORDS = ["smith", "lent", "money", "the", "bank", "of", "ohio", "paid", "jones", "left", "old", "dog", "cat", "child"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "see", "like", "##s", "."]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(PIECES), max_position_embeddings=32, **sizes)).save_pretrained(folder)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(PIECES), encoding="utf-8")
    BertTokenizerFast(str(vocabulary), model_max_length=32).save_pretrained(folder)
    return str(folder)


def test_words_have_the_features_of_their_first_pieces(encoder: str) -> None:
    words = load("train_encoder").Words(encoder).eval()
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
    out = tmp_path / "runs.json"
    rates = ["--encoder-rate", "0.02", "--head-rate", "0.02", "--transition-rate", "0.05"]
    sizes = ["--seeds", "2", "--epochs", "8", "--batch", "4"]
    options = ["--encoder", encoder, "--train", path, "--test", path, "--out", str(out), *rates, *sizes]
    assert load("train_encoder").main(options) == 0
    results = json.loads(out.read_text())
    job = load("train_encoder").Trees if kind == "trees" else load("train_encoder").Tags
    assert tuple(results) == job.methods
    for runs in results.values():
        assert len(runs) == 2
        assert all(run[measure] > 90 for run in runs)
    assert "| method | CPU seconds |" in capsys.readouterr().out


def test_softmax_scores_are_those_of_the_tree() -> None:
    """The best class of each word under them is its best head and label, however these fit together."""
    module = load("train_encoder")
    torch.manual_seed(0)
    head = module.BiaffineParser(4, 2, hidden=3)
    torch.nn.init.normal_(head.arc)
    torch.nn.init.normal_(head.label)
    tree = head((torch.randn(2, 4, 4), torch.tensor([4, 2])))
    y = tree.max()[1]
    scores = module._scores_of_classes(tree)
    assert scores.shape == (2, 4, 1 + 4 * 2)
    chosen = scores.gather(2, y.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(torch.where(tree.mask, chosen, 0).sum(1), tree.score(y))


def test_refuses_what_it_does_not_know(encoder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = treebanks.write(tmp_path, labelled=True)
    with pytest.raises(SystemExit):
        load("train_encoder").main(["--encoder", encoder, "--train", path, "--test", path, "--methods", "best"])
    assert "--methods must be of softmax, crf, softmax-margin, hinge, projective-crf" in capsys.readouterr().err
