"""Features of words of a pretrained encoder, and taggers that have them beside their attributes."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_encoders
import torch
from torch.testing import assert_close
from two_processes import ended, started

import structsmooth
from structsmooth.cli import main
from structsmooth.encoders import FrozenFeatures, PretrainedEncoder
from structsmooth.estimators import SequenceTagger
from structsmooth.history import History
from structsmooth.tasks import NER
from structsmooth.tasks.trained import load, train
from structsmooth.text.corpus import Corpus, Sentence

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::torch")
SENTENCES = [["Smith", "lent", "money"], ["the", "dogs", "see", "Ohio", "."], ["\x01", "Jones"]]
TAGS = [["B-PER", "O", "O"], ["O", "O", "O", "B-LOC", "O"], ["O", "B-PER"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_encoders.write(tmp_path_factory.mktemp("encoder"), layers=2, pieces=12)


def corpus(sentences: list[list[str]], documents: list[int] | None = None) -> Corpus:
    found = Corpus.of([Sentence(words, []) for words in sentences])
    vars(found)["documents"] = None if documents is None else np.array(documents)
    return found


def hidden(folder: str, pieces: list[str], layer: int) -> torch.Tensor:
    """What transformers itself gives for pieces, [CLS] and [SEP] around them: [pieces, D]."""
    encoder = PretrainedEncoder.open(folder)
    ids = torch.tensor([encoder.tokenizer.convert_tokens_to_ids(["[CLS]", *pieces, "[SEP]"])])
    with torch.no_grad():
        out: Any = encoder.network(input_ids=ids, output_hidden_states=True)
    return torch.as_tensor(out.hidden_states[layer][0, 1:-1])


def test_words_have_the_layers_of_their_first_pieces(folder: str, tmp_path: Path) -> None:
    features = FrozenFeatures.fit(folder, [0, 2], 0, corpus(SENTENCES), str(tmp_path))
    block = torch.from_numpy(features.raw(corpus(SENTENCES), str(tmp_path)))
    assert block.shape == (10, 32)
    for layer, part in zip((0, 2), block.split(16, 1), strict=True):
        dogs = hidden(folder, ["the", "dog", "##s", "see", "ohio", "."], layer)
        assert_close(part[3:8], dogs[[0, 1, 3, 4, 5]], rtol=1e-4, atol=1e-5)
        assert_close(part[8:], hidden(folder, ["[UNK]", "jones"], layer), rtol=1e-4, atol=1e-5)
    assert_close(torch.from_numpy(features.center), block.mean(0), rtol=1e-4, atol=1e-5)
    assert_close(torch.from_numpy(features.deviation), block.std(0, correction=0), rtol=1e-4, atol=1e-5)


def test_texts_longer_than_the_network_reads_are_not_cut(folder: str) -> None:
    words = ["old", "dogs", "see", "the", "cat", "of", "smith", "."] * 2  # 18 pieces; windows of 10
    pieces = [piece for word in words for piece in (["dog", "##s"] if word == "dogs" else [word])]
    features = FrozenFeatures.fit(folder, [2], 0, corpus([words]))
    block = torch.from_numpy(features.raw(corpus([words])))
    seen = [(start, hidden(folder, pieces[start : start + 10], 2)) for start in (0, 5, 8)]
    first = [i for i, piece in enumerate(pieces) if piece != "##s"]
    for row, place in zip(block, first, strict=True):
        margins = [min(place - start, start + 9 - place) for start, _ in seen]
        start, rows = seen[margins.index(max(margins))]
        assert_close(row, rows[place - start], rtol=1e-4, atol=1e-5)


def test_features_without_a_folder_leave_no_files(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = FrozenFeatures.fit(folder, [2], 0, corpus(SENTENCES), str(tmp_path / "kept"))
    (tmp_path / "none").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    for sentences in (SENTENCES, SENTENCES[:1], SENTENCES):
        kept = features.raw(corpus(sentences), str(tmp_path / "kept"))
        np.testing.assert_array_equal(features.raw(corpus(sentences)), kept)
    assert not [*(tmp_path / "none").iterdir()]


def test_context_is_that_of_the_document(folder: str) -> None:
    documents, texts = [0, 0, 1], [["the", "dog"], ["see", "ohio"], ["old", "cat"]]
    features = FrozenFeatures.fit(folder, [2], 1, corpus(texts, documents))
    block = torch.from_numpy(features.raw(corpus(texts, documents)))
    rows = (hidden(folder, pieces, 2) for pieces in (["the", "dog", "see"], ["dog", "see", "ohio"], ["old", "cat"]))
    first, second, third = rows
    assert_close(block, torch.cat([first[:2], second[1:], third]), rtol=1e-4, atol=1e-5)
    # Some sentences have the neighbours that they have in the whole: folds, shares and examples of pages.
    whole = corpus(texts, documents)
    chosen = [whole[2], whole[1], Corpus.of([whole[2], whole[0]])[1]]
    assert_close(torch.from_numpy(features.raw(Corpus.of(chosen))), block[[4, 5, 2, 3, 0, 1]])
    assert_close(torch.from_numpy(features.raw(whole.part(range(1, 3)).part(range(0, 1)))), block[2:4])
    assert_close(torch.from_numpy(features.raw(Corpus.of([whole[1], *corpus([["old", "cat"]])]))[2:]), block[4:])


@pytest.mark.parametrize(("context", "parts"), [(0, [1, 1]), (2, [2])])
def test_neighbours_that_are_read_come_together(
    folder: str, context: int, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [Sentence(words, [], tags) for words, tags in zip(SENTENCES, TAGS, strict=True)]
    fitted = NER(words_only=True, bits=8, encoder=folder, context=context).fit(examples)
    stream, lines = io.StringIO(), iter(["Ohio\n\n", "sees\ndogs\n\n"])
    monkeypatch.setattr(stream, "read", lambda size: next(lines, ""))
    assert [len(fitted.read(part)) for part in fitted.arriving(stream)] == parts


def test_a_task_and_an_estimator_learn_the_same_and_open_each_others_folders(folder: str, tmp_path: Path) -> None:
    examples = [Sentence(words, [], tags) for words, tags in zip(SENTENCES, TAGS, strict=True)]
    task = NER(words_only=True, bits=0, encoder=folder, encoder_scale=0.5)
    model = train(task, examples, passes=8, lam="1/n")
    tagger = SequenceTagger(lam="1/n", encoder=folder, encoder_scale=0.5, constraints="BIO").fit(SENTENCES, TAGS)
    new = [["Jones", "paid"], ["the", "child", "left", "Ohio"]]
    model.save(tmp_path / "model")
    tagger.save(tmp_path / "tagger")
    opened = structsmooth.load(tmp_path / "model")
    assert_close(opened.alternatives(new, 2)[0][0][0], model.alternatives(new, 2)[0][0][0])
    assert opened.predict(new) == model.predict(new) == SequenceTagger.load(tmp_path / "model").predict(new)
    assert tagger.predict(new) == structsmooth.load(tmp_path / "tagger").predict(new)
    assert tagger.gap_ <= 0.01 * tagger.objective_


def test_an_encoder_that_has_changed_is_refused(folder: str, tmp_path: Path) -> None:
    examples = [Sentence(words, [], tags) for words, tags in zip(SENTENCES, TAGS, strict=True)]
    train(NER(words_only=True, encoder=folder, bits=8), examples, passes=1).save(tmp_path)
    described = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    described.pop("checksum")
    frozen = described["trained"]["attributes"]["frozen"]
    frozen["digest"] = "0" * 64
    (tmp_path / "model.json").write_text(json.dumps(described), encoding="utf-8")
    with pytest.raises(ValueError, match="has changed"):
        structsmooth.load(tmp_path).predict([["Ohio"]])


def test_what_is_no_encoder_is_refused(folder: str, tmp_path: Path) -> None:
    examples = [Sentence(["a"], [], ["O"])]

    def refused(name: str, change: Callable[[Path], object], message: str) -> None:
        copy = tmp_path / name
        shutil.copytree(folder, copy)
        change(copy)
        with pytest.raises(ValueError, match=message):
            NER(encoder=str(copy)).fit(examples)

    def deeper(copy: Path) -> None:
        config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
        (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}), encoding="utf-8")

    refused("deeper", deeper, "deeper: the files of the encoder lack 16 weights, such as encoder.layer.2")
    weights = "model.safetensors"
    refused("cut", lambda copy: (copy / weights).write_bytes(b"version https://git-lfs"), "cut: not a pretrained")
    refused("bare", lambda copy: [file.unlink() for file in copy.glob("[tv]o*")], "bare: the tokenizer knows no words")
    refused("other", lambda copy: (copy / "config.json").unlink(), "other: not the folder of a .* a config.json")
    (tmp_path / "run" / "encoder").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"run: not the folder of a pretrained encoder: give .*run/encoder"):
        NER(encoder=str(tmp_path / "run")).fit(examples)
    with pytest.raises(ValueError, match="give encoder"):
        NER(layers=[2])


def test_an_encoder_is_found_from_anywhere_and_never_fetched_for_a_model(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [Sentence(words, [], tags) for words, tags in zip(SENTENCES, TAGS, strict=True)]
    encoder = shutil.copytree(folder, tmp_path / "name")
    monkeypatch.chdir(tmp_path)
    model = train(NER(words_only=True, encoder="name", bits=8), examples, passes=1)
    model.save("model")
    monkeypatch.chdir("/")
    found = model.predict(SENTENCES)
    assert structsmooth.load(tmp_path / "model").predict(SENTENCES) == found
    encoder.rename(tmp_path / "moved")
    monkeypatch.setattr("structsmooth.encoders.pretrained._known", {})  # as in another process

    def fetched(*_: object, local_files_only: bool = False, **__: object) -> str:
        assert local_files_only, "a model asks the hub for its encoder"
        raise OSError("not in the cache")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetched)
    with pytest.raises(FileNotFoundError, match=r"is not there\. Put it back, or copy it into the folder of the model"):
        structsmooth.load(tmp_path / "model").predict(SENTENCES)
    shutil.copytree(folder, tmp_path / "model" / "encoder")
    assert structsmooth.load(tmp_path / "model").predict(SENTENCES) == found


def test_what_an_encoder_cannot_do_is_refused(folder: str, tmp_path: Path) -> None:
    examples = [Sentence(words, [], tags) for words, tags in zip(SENTENCES, TAGS, strict=True)]
    for layers, told in ([3], "got 3"), ([], "got none"):
        with pytest.raises(ValueError, match=f"has layers 0 to 2, {told}"):
            NER(encoder=folder, layers=layers).fit(examples)
    with pytest.raises(ValueError, match="encoder_scale must be a positive number, got 0"):
        SequenceTagger(encoder=folder, encoder_scale=0).fit(SENTENCES, TAGS)
    fitted = NER(words_only=True, bits=8, encoder=folder).fit(examples)
    with pytest.raises(ValueError, match="no pretrained encoder"):
        fitted.write_standalone(torch.zeros(fitted.dim), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def columns(path: Path) -> str:
    sentences = [list(zip(words, tags, strict=True)) for words, tags in zip(SENTENCES, TAGS, strict=True)] * 4
    path.write_text("\n".join("".join(f"{w} {t}\n" for w, t in rows) for rows in sentences), encoding="utf-8")
    return str(path)


@pytest.mark.long
@pytest.mark.parametrize(("solver", "passes"), [("casimir-svrg", 3), ("cocoa", 60)])
def test_two_processes_learn_what_one_learns(folder: str, tmp_path: Path, solver: str, passes: int) -> None:
    """The same weights where processes share passes; of examples of their own, the same features, and a certificate."""
    options = ["train", "ner", "--train", columns(tmp_path / "train.txt"), "--words-only", "--bits", "8", "--encoder"]
    options += [folder, "--solver", solver, "--lam", "1/n", "--passes", str(passes), "--quiet", "--out"]
    code = "import sys; from structsmooth.cli import main; sys.exit(main())"
    for status, _, errors in ended(started(code, *options, str(tmp_path / "two"))):
        assert status == 0, errors
    assert main([*options, str(tmp_path / "one")]) == 0
    two, one = (load(tmp_path / name) for name in ("two", "one"))
    frozen, alone = (model.task.attributes.frozen for model in (two, one))
    np.testing.assert_allclose(frozen.center, alone.center, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(frozen.deviation, alone.deviation, rtol=1e-5, atol=1e-6)
    rows = [History.load(tmp_path / name / "history.jsonl").best() for name in ("two", "one")]
    if solver == "casimir-svrg":
        assert_close(two.weights, one.weights, rtol=1e-6, atol=1e-6)
    else:
        assert two.predict(SENTENCES) == one.predict(SENTENCES) == TAGS
        assert abs(rows[0].objective - rows[1].objective) <= rows[0].gap + rows[1].gap
        assert rows[0].gap <= 0.01 * rows[0].objective
