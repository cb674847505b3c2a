"""Codes of words, and parsers that have them in their templates."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import small_encoders
import treebanks

from structsmooth import load
from structsmooth.cli import main
from structsmooth.encoders import CodedFeatures
from structsmooth.tasks import Parsing
from structsmooth.text.corpus import Corpus, Sentence

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::torch")
SENTENCES = [("the", "dogs", "see", "Ohio", "."), ("Smith", "lent", "money"), (), ("old", "cat")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_encoders.write(tmp_path_factory.mktemp("encoder"), layers=2)


def test_codes_are_nearest_centers(folder: str) -> None:
    coded = CodedFeatures.fit(folder, [1, 2], SENTENCES, 4)
    rows = coded.frozen.raw(Corpus.of([Sentence(list(words), []) for words in SENTENCES]))
    rows = (rows - rows.mean(0)) / rows.std(0)
    centers = coded.centers.reshape(4, 32)
    nearest = np.linalg.norm(rows[:, None] - centers, axis=2).argmin(1)
    together = coded.of(SENTENCES)
    assert np.concatenate(together).tolist() == nearest.tolist()
    again = CodedFeatures(coded.frozen, coded.centers)  # which keeps no codes yet
    assert [again.of([words])[0].tolist() for words in SENTENCES] == [codes.tolist() for codes in together]
    means = [rows[nearest == code].mean(0) for code in range(4)]
    np.testing.assert_allclose(centers, means, atol=1e-5)
    every = CodedFeatures.fit(folder, [2], SENTENCES, 100)
    assert sorted(np.concatenate(every.of(SENTENCES)).tolist()) == list(range(10))


def test_parsers_have_codes(folder: str, tmp_path: Path) -> None:
    trees, encoder = treebanks.write(tmp_path, True), shutil.copytree(folder, tmp_path / "encoder")
    arguments = ["train", "parsing", "--train", str(trees), "--encoder", str(encoder), "--bits", "12", "--codes", "5"]
    arguments += ["--embed-encoder", "--passes", "8", "--lam", "0.01", "--quiet", "--order", "2"]
    assert main([*arguments, "--out", str(tmp_path / "model")]) == 0
    shutil.rmtree(encoder)  # the model has its own
    model = load(tmp_path / "model")
    examples = model.task.read(str(trees), "test")
    outputs = [ranked[0][1] for ranked in model.task.predict(model.weights, examples)]
    assert model.task.measure(examples, outputs)[0]["uas"] == 1
    alone = [model.task.predict(model.weights, [one])[0] for one in examples[:3]]
    together = model.task.predict(model.weights, examples[:3])
    for ((score, tree),), ((other, same),) in zip(alone, together, strict=True):
        assert (score, tree) == (pytest.approx(other), same)
    assert len(model.task.show_weights(model.weights, examples)) == 1


def test_options_of_an_encoder_need_one() -> None:
    with pytest.raises(ValueError, match="give encoder"):
        Parsing(layers=[1])
