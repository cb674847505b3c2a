"""Recognition of handwritten words on synthetic letters."""

import io
import json

import numpy as np
import pytest
import torch
from small_tasks import WORDS, save_letters

from structsmooth import BCFW
from structsmooth.costs import NormalizedHamming
from structsmooth.files import DATA_VARIABLE
from structsmooth.tasks import OCR
from structsmooth.tasks.ocr.letters import Word


@pytest.fixture
def words(tmp_path) -> list[Word]:
    return OCR().read(save_letters(tmp_path))


def test_the_model_is_that_of_the_paper(words):
    problem = OCR().fit(words).problem(words)
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


def test_trains_to_a_small_gap(words):
    task = OCR().fit(words)
    result = BCFW().solve(task.problem(words), lam=1.0, passes=400)
    assert 0 <= result.history[-1].gap < 0.005
    predicted = [ranked[0][1] for ranked in task.predict(result.weights, words)]
    assert predicted == WORDS
    assert task.measure(words, predicted)[0] == {"letter_error": 0.0, "letter_accuracy": 1.0, "word_accuracy": 1.0}


def test_measure_counts_letters_and_words(words):
    metrics, table = OCR().fit(words).measure(words, ["abba", "cab", "dada", "bead", "bee", "z"])
    letters = sum(map(len, WORDS))
    assert metrics["letter_error"] == pytest.approx(2 / letters)
    assert metrics["letter_accuracy"] == pytest.approx(1 - 2 / letters)
    assert metrics["word_accuracy"] == pytest.approx(5 / 6)
    assert table.splitlines()[1].split()[2:] == [str(letters - 2), str(letters)]


def test_there_are_no_more_words_than_letters_allow(words):
    task = OCR().fit(words)
    (ranked,) = task.predict(torch.zeros(4082, dtype=torch.float64), [Word(np.zeros((1, 128), dtype=np.uint8))], 30)
    assert sorted(text for _, text in ranked) == [*"abcdefghijklmnopqrstuvwxyz"]


def test_writes_a_word_per_line(words):
    stream = io.StringIO()
    OCR().fit(words).write(words, [[(1.0, word)] for word in WORDS], stream)
    assert stream.getvalue().splitlines() == WORDS


def test_alternatives_are_written_with_their_scores(words):
    stream = io.StringIO()
    OCR().fit(words).write(words[:2], [[(2.5, "cab"), (1.25, "cad"), (-1e-7, "dab")], [(1.0, "z")]], stream)
    assert stream.getvalue() == "# scores 2.5 1.25 -1e-07\ncab cad dab\nz\n"


def test_refuses_standard_input():
    with pytest.raises(ValueError, match="not from standard input"):
        OCR().read(io.StringIO("letters"))


def test_default_files_are_two_sets_of_folds(tmp_path, monkeypatch):
    (tmp_path / "ocr").mkdir()
    save_letters(tmp_path / "ocr", "ocr_letters.npz")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    texts = {split: [word.text for word in OCR().read(file)] for split, file in OCR.default_files().items()}
    assert texts == {"train": WORDS[::2], "test": WORDS[1::2]}


@pytest.mark.parametrize("kernel", ["rbf", "polynomial", "cosine-polynomial"])
@pytest.mark.parametrize("landmarks", [None, 5])
def test_kernels_of_saved_models_predict_what_they_did(words, kernel, landmarks):
    task = OCR(kernel=kernel, landmarks=landmarks, transition_scale=2.0).fit(words)
    problem = task.problem(words)
    weights = torch.randn(problem.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    predicted = task.predict(weights, words, 2)
    for i, ranked in enumerate(predicted):
        value, y = problem.structure(weights, torch.tensor([i])).max()
        assert ranked[0][0] == pytest.approx(float(value), rel=1e-4)
        assert ranked[0][1] == "".join(chr(ord("a") + letter) for letter in y[0].tolist())
    saved = json.loads(json.dumps(task.to_dict()))
    assert OCR.from_dict(saved).predict(weights, words, 2) == predicted


def test_landmarks_are_letters_of_the_training_data(words):
    task = OCR(kernel="rbf", landmarks=5).fit(words)
    assert task.problem(words).features == len(task.landmarks_seen) == 5
    letters = {np.packbits(row).tobytes().hex() for word in words for row in word.pixels}
    assert set(task.landmarks_seen) <= letters
    assert len(OCR(kernel="rbf").fit(words).landmarks_seen) == len(letters)
    assert not OCR().fit(words).landmarks_seen


def test_a_scale_of_transitions_is_part_of_the_scores(words):
    task = OCR(transition_scale=3.0).fit(words)
    problem = task.problem(words)
    weights = torch.randn(problem.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    value, _ = problem.structure(weights, torch.tensor([0])).max()
    assert task.predict(weights, words[:1])[0][0][0] == pytest.approx(float(value))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "gaussian"}, "kernel must be"),
        ({"kernel": "rbf", "gamma": -1.0}, "gamma must be positive and finite, got -1.0"),
        ({"transition_scale": 0.0}, "transition_scale must be positive and finite, got 0.0"),
    ],
)
def test_refuses_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        OCR(**options)
