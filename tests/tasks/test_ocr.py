"""Handwritten words end to end on synthetic letters."""

import io
import json
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import pytest
import torch

from structsmooth import BCFW, NormalizedHamming
from structsmooth.tasks import load_task
from structsmooth.tasks.files import DATA_VARIABLE
from structsmooth.tasks.ocr import OCR, Word

WORDS = ["abba", "cab", "dada", "bead", "ace", "z"]


def arrays(words=WORDS, noise=0.0) -> dict[str, np.ndarray]:
    """An archive of words; each letter has its own picture, with some pixels flipped. Words alternate between folds."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 2, (26, 128), dtype=np.uint8)
    labels = np.array([ord(letter) - ord("a") for word in words for letter in word], dtype=np.uint8)
    flips = rng.random((len(labels), 128)) < noise
    return {
        "pixels": pictures[labels] ^ flips.astype(np.uint8),
        "labels": labels,
        "word_start": np.cumsum([0, *map(len, words)]).astype(np.int32),
        "word_fold": (np.arange(len(words)) % 2).astype(np.uint8),
    }


@pytest.fixture
def path(tmp_path):
    return saved(tmp_path)


def saved(tmp_path, **changed) -> str:
    """The path of an archive; arrays that are ``None`` are left out."""
    file = tmp_path / "letters.npz"
    np.savez(file, **{key: array for key, array in (arrays() | changed).items() if array is not None})
    return str(file)


def trained(path):
    task = OCR()
    words = task.read(path)
    task.fit(words)
    return task, words, BCFW().solve(task.problem(words), lam=1.0, passes=400)


def outputs(predictions):
    return [ranked[0][1] for ranked in predictions]


def test_reads_words(path):
    words = OCR().read(path)
    assert [word.text for word in words] == WORDS
    assert np.array_equal(np.concatenate([word.pixels for word in words]), arrays()["pixels"])


@pytest.mark.parametrize(("part", "expected"), [("#0", WORDS[::2]), ("#1", WORDS[1::2]), ("#0-1", WORDS)])
def test_reads_folds(path, part, expected):
    assert [word.text for word in OCR().read(path + part)] == expected


def test_words_without_labels_can_be_read_and_predicted(path, tmp_path):
    task, words, result = trained(path)
    unlabelled = task.read(saved(tmp_path, labels=None))
    predictions = task.predict(result.weights, unlabelled)
    assert predictions == task.predict(result.weights, words)
    with pytest.raises(ValueError, match="these words have no labels"):
        task.measure(unlabelled, outputs(predictions))
    with pytest.raises(ValueError, match="these words have no labels"):
        task.problem(unlabelled)


def test_the_model_is_that_of_the_paper(path):
    task = OCR()
    words = task.read(path)
    problem = task.problem(words)
    assert problem.dim == 4082
    assert problem.cost == NormalizedHamming()
    # The score of the labels, by hand: emissions and bias, transitions, first and last letter.
    w = torch.randn(4082, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    emission, bias, transition, ends = w.view(-1, 26).split([128, 1, 26, 2])
    y = [ord(letter) - ord("a") for letter in words[0].text]
    pixels = torch.from_numpy(words[0].pixels).double()
    expected = sum(pixels[t] @ emission[:, y[t]] + bias[0, y[t]] for t in range(4))
    expected += sum(transition[y[t], y[t + 1]] for t in range(3)) + ends[0, y[0]] + ends[1, y[3]]
    structure = problem.structure(w, torch.tensor([0]))
    assert float(structure.score(torch.tensor([y]))) == pytest.approx(float(expected))


def test_trains_to_a_small_gap(tmp_path):
    task, words, result = trained(saved(tmp_path, **arrays(noise=0.1)))
    assert 0 <= result.history[-1].gap < 0.005
    predicted = outputs(task.predict(result.weights, words))
    assert predicted == WORDS
    metrics, _ = task.measure(words, predicted)
    assert metrics == {"letter_error": 0.0, "letter_accuracy": 1.0, "word_accuracy": 1.0}
    assert task.headline in metrics


def test_measure_counts_letters_and_words(path):
    task = OCR()
    metrics, table = task.measure(task.read(path), ["abba", "cab", "dada", "bead", "bee", "z"])
    letters = sum(map(len, WORDS))
    assert metrics["letter_error"] == pytest.approx(2 / letters)
    assert metrics["letter_accuracy"] == pytest.approx(1 - 2 / letters)
    assert metrics["word_accuracy"] == pytest.approx(5 / 6)
    assert table.splitlines()[1].split()[2:] == [str(letters - 2), str(letters)]


def test_json_round_trip_predicts_the_same(path):
    task, words, result = trained(path)
    copy = OCR.from_dict(json.loads(json.dumps(task.to_dict())))
    assert copy.predict(result.weights, copy.read(path), 3) == task.predict(result.weights, words, 3)


def test_writes_a_word_per_line(path):
    task, words, result = trained(path)
    stream = io.StringIO()
    task.write(words, task.predict(result.weights, words), stream)
    assert stream.getvalue().splitlines() == WORDS


def test_alternatives_are_written_with_their_scores(path):
    task, words, result = trained(path)
    predictions = task.predict(result.weights, words, 3)
    stream = io.StringIO()
    task.write(words, predictions, stream)
    lines = stream.getvalue().splitlines()
    for scores, alternatives, ranked, word in zip(lines[::2], lines[1::2], predictions, WORDS, strict=True):
        assert scores.startswith("# scores ")
        assert [float(score) for score in scores.split()[2:]] == pytest.approx([s for s, _ in ranked], rel=1e-5)
        assert alternatives.split() == [text for _, text in ranked]
        assert alternatives.split()[0] == word
        assert len(set(alternatives.split())) == 3


def test_there_are_no_more_words_than_letters_allow():
    (ranked,) = OCR().predict(torch.zeros(4082, dtype=torch.float64), [Word(np.zeros((1, 128), dtype=np.uint8))], 30)
    assert sorted(text for _, text in ranked) == [*"abcdefghijklmnopqrstuvwxyz"]


LETTERS = sum(map(len, WORDS))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pixels": None}, "no array pixels"),
        ({"word_start": None}, "no array word_start"),
        ({"pixels": arrays()["pixels"].astype(np.float32)}, "pixels must be integers, got float32"),
        (
            {"pixels": arrays()["pixels"][:-1]},
            rf"pixels must have shape \({LETTERS}, 128\), got \({LETTERS - 1}, 128\)",
        ),
        ({"pixels": arrays()["pixels"].reshape(-1, 16, 8)}, rf"pixels must have shape .* got \({LETTERS}, 16, 8\)"),
        ({"pixels": arrays()["pixels"] * 2}, "pixels must be from 0 to 1, got 0 to 2"),
        ({"labels": arrays()["labels"] + 1}, "labels must be from 0 to 25, got 1 to 26"),
        ({"labels": arrays()["labels"].astype(np.int64) - 1}, "labels must be from 0 to 25, got -1 to 24"),
        ({"labels": arrays()["labels"][1:]}, "labels must have shape"),
        ({"word_start": np.array([0, 4, 4, LETTERS])}, "word_start must rise from 0"),
        ({"word_start": np.array([1, LETTERS])}, "word_start must rise from 0"),
        ({"word_start": np.array([0])}, "word_start must rise from 0"),
        ({"word_start": np.zeros((2, 2), dtype=np.int32)}, "word_start must have shape"),
    ],
)
def test_refuses_malformed_archives(tmp_path, changed, message):
    with pytest.raises(ValueError, match=rf"letters\.npz: {message}"):
        OCR().read(saved(tmp_path, **changed))


@pytest.mark.parametrize(
    ("fold", "message"), [(None, "no array word_fold"), (np.zeros(3, dtype=np.uint8), "word_fold must have shape")]
)
def test_folds_need_their_array(tmp_path, fold, message):
    file = saved(tmp_path, word_fold=fold)
    assert len(OCR().read(file)) == len(WORDS)  # no need without folds
    with pytest.raises(ValueError, match=rf"letters\.npz: {message}"):
        OCR().read(f"{file}#0")


def test_refuses_folds_without_words(path):
    with pytest.raises(ValueError, match=r"letters\.npz#2-9: no words"):
        OCR().read(f"{path}#2-9")


def test_refuses_other_files(path, tmp_path):
    expected = r"expected an archive of arrays \(\.npz\)"
    for content in (b"", b"a b c", Path(path).read_bytes()[:-100]):
        (tmp_path / "other.npz").write_bytes(content)
        with pytest.raises(ValueError, match=rf"other\.npz: {expected}"):
            OCR().read(str(tmp_path / "other.npz"))
    with pytest.raises(FileNotFoundError, match=r"nosuch\.npz"):
        OCR().read(str(tmp_path / "nosuch.npz"))
    with pytest.raises(ValueError, match="not from standard input"):
        OCR().read(io.StringIO("letters"))


def test_refuses_pickled_objects(tmp_path):
    with pytest.raises(ValueError, match=r"letters\.npz: expected an archive of arrays .*allow_pickle"):
        OCR().read(saved(tmp_path, labels=np.array([{"any": "object"}], dtype=object)))


def test_refuses_damaged_arrays(path, tmp_path):
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 3] ^= 0xFF  # in the middle of the pixels
    (tmp_path / "damaged.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"damaged\.npz: expected an archive of arrays"):
        OCR().read(str(tmp_path / "damaged.npz"))


def test_default_files_are_those_of_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(ValueError, match="ocr comes without data: give --train"):
        OCR.default_files()
    (tmp_path / "ocr").mkdir()
    np.savez(tmp_path / "ocr" / "ocr_letters.npz", **arrays())
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    files = OCR.default_files()
    texts = {split: [word.text for word in OCR().read(file)] for split, file in files.items()}
    assert texts == {"train": WORDS[::2], "test": WORDS[1::2]}


def test_has_no_options():
    parser = ArgumentParser()
    OCR.add_arguments(parser)
    assert isinstance(OCR.from_options(parser.parse_args([])), OCR)
    assert load_task("ocr") is OCR
