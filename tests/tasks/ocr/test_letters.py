"""Reading archives of handwritten words."""

from pathlib import Path

import numpy as np
import pytest
from small_tasks import WORDS, letters, save_letters

from structsmooth.tasks.ocr.letters import read_words

LETTERS = sum(map(len, WORDS))


@pytest.fixture
def path(tmp_path) -> str:
    return save_letters(tmp_path)


def test_reads_words(path):
    words = read_words(path)
    assert [word.text for word in words] == WORDS
    assert np.array_equal(np.concatenate([word.pixels for word in words]), letters(noise=0.1)["pixels"])


@pytest.mark.parametrize(("part", "expected"), [("#0", WORDS[::2]), ("#1", WORDS[1::2]), ("#0-1", WORDS)])
def test_reads_folds(path, part, expected):
    assert [word.text for word in read_words(path + part)] == expected


def test_words_without_labels_have_the_same_pixels(path, tmp_path):
    unlabelled = read_words(save_letters(tmp_path, "new.npz", labels=None))
    assert [word.text for word in unlabelled] == [None] * len(WORDS)
    assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(unlabelled, read_words(path), strict=True))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pixels": None}, "no array pixels"),
        ({"word_start": None}, "no array word_start"),
        ({"pixels": letters()["pixels"].astype(np.float32)}, "pixels must be integers, got float32"),
        (
            {"pixels": letters()["pixels"][:-1]},
            rf"pixels must have shape \({LETTERS}, 128\), got \({LETTERS - 1}, 128\)",
        ),
        ({"pixels": letters()["pixels"].reshape(-1, 16, 8)}, rf"pixels must have shape .* got \({LETTERS}, 16, 8\)"),
        ({"pixels": letters()["pixels"] * 2}, "pixels must be from 0 to 1, got 0 to 2"),
        ({"labels": letters()["labels"] + 1}, "labels must be from 0 to 25, got 1 to 26"),
        ({"labels": letters()["labels"].astype(np.int64) - 1}, "labels must be from 0 to 25, got -1 to 24"),
        ({"labels": letters()["labels"][1:]}, "labels must have shape"),
        ({"word_start": np.array([0, 4, 4, LETTERS])}, "word_start must rise from 0"),
        ({"word_start": np.array([1, LETTERS])}, "word_start must rise from 0"),
        ({"word_start": np.array([0])}, "word_start must rise from 0"),
        ({"word_start": np.zeros((2, 2), dtype=np.int32)}, "word_start must have shape"),
    ],
)
def test_refuses_malformed_archives(tmp_path, changed, message):
    with pytest.raises(ValueError, match=rf"letters\.npz: {message}"):
        read_words(save_letters(tmp_path, **changed))


@pytest.mark.parametrize(
    ("fold", "message"), [(None, "no array word_fold"), (np.zeros(3, dtype=np.uint8), "word_fold must have shape")]
)
def test_folds_need_their_array(tmp_path, fold, message):
    file = save_letters(tmp_path, word_fold=fold)
    assert len(read_words(file)) == len(WORDS)  # no need without folds
    with pytest.raises(ValueError, match=rf"letters\.npz: {message}"):
        read_words(f"{file}#0")


def test_refuses_folds_without_words(path):
    with pytest.raises(ValueError, match=r"letters\.npz#2-9: no words"):
        read_words(f"{path}#2-9")


def test_refuses_other_files(path, tmp_path):
    expected = r"expected an archive of arrays \(\.npz\)"
    for content in (b"", b"a b c", Path(path).read_bytes()[:-100]):
        (tmp_path / "other.npz").write_bytes(content)
        with pytest.raises(ValueError, match=rf"other\.npz: {expected}"):
            read_words(str(tmp_path / "other.npz"))
    with pytest.raises(FileNotFoundError, match=r"nosuch\.npz"):
        read_words(str(tmp_path / "nosuch.npz"))


def test_refuses_pickled_objects(tmp_path):
    with pytest.raises(ValueError, match=r"letters\.npz: expected an archive of arrays .*allow_pickle"):
        read_words(save_letters(tmp_path, labels=np.array([{"any": "object"}], dtype=object)))


def test_refuses_damaged_arrays(path, tmp_path):
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 3] ^= 0xFF  # in the middle of the pixels
    (tmp_path / "damaged.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"damaged\.npz: expected an archive of arrays"):
        read_words(str(tmp_path / "damaged.npz"))
