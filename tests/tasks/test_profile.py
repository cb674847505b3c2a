"""Profiles of data under a model, and whether two data sets differ."""

from pathlib import Path

import numpy as np
import pytest
import small_tasks
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from structsmooth import load, train
from structsmooth.cli import main
from structsmooth.tasks import NER
from structsmooth.tasks.profile import ENTROPY, PROBABILITY, UNKNOWN, Profile, Vocabulary, kolmogorov_smirnov

values = st.lists(st.integers(0, 9), min_size=1, max_size=40)


@given(first=values, second=values)
def test_the_distance_is_that_of_the_distribution_functions(first, second):
    distance, p = kolmogorov_smirnov(first, second)
    assert distance == pytest.approx(ks_2samp(first, second).statistic, abs=1e-12)
    assert 0 <= p <= 1
    assert kolmogorov_smirnov(second, first) == (distance, p)


@pytest.mark.parametrize("shift", [0.0, 0.2, 0.6])
def test_probabilities_are_near_exact_ones(shift):
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=80).tolist(), (generator.normal(size=120) + shift).tolist()
    exact = ks_2samp(first, second, method="exact").pvalue
    assert kolmogorov_smirnov(first, second)[1] == pytest.approx(exact, rel=0.1, abs=0.01)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model that keeps a profile of data, one that keeps nothing of these, and their file."""
    folder = tmp_path_factory.mktemp("drift")
    data = small_tasks.NER.write(folder, True)
    model = train(NER(bits=8, words_only=True), data, passes=2)
    examples = model.task.read(data, "test")
    model.profiled(examples, Vocabulary.of(model.task, examples), data).save(folder / "kept")
    model.save(folder / "plain")
    return folder, data


@pytest.mark.filterwarnings("ignore:a hinge", "ignore:the labels score")
def test_models_keep_profiles(folders):
    folder, data = folders
    model = load(folder / "kept")
    examples = model.task.read(data, "test")
    assert model.profile == Profile.of(model.task, model.weights, examples, model.vocabulary, data)
    measures = model.profile.measures
    assert measures[ENTROPY] == pytest.approx(sorted(model.uncertainty(examples, "length-normalized").tolist()))
    assert {*measures[UNKNOWN]} == {0.0}
    assert len(measures[PROBABILITY]) > len(examples) / 2
    assert model.vocabulary.unknown(["Ada", "Zzyzx"]) == 0.5
    assert model.calibrated(data).profile is None  # it may have another temperature
    assert Vocabulary.of(model.task, list(examples)).digests.tolist() == model.vocabulary.digests.tolist()
    assert Vocabulary.of(model.task, []).unknown(["Ada"]) == 1


def test_the_command_says_what_differs(folders, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder, data = folders
    kept, plain = str(folder / "kept"), str(folder / "plain")
    Path("new.txt").write_text("zu viele neue W\u00f6rter\n" * 30)
    assert main(["drift", kept, data, "--fail-below", "0.05", "--quiet"]) == 0
    assert "| unknown words | 0.000 | 0.000 | 0.000 | 1 |" in capsys.readouterr().out
    assert main(["drift", kept, "new.txt", "--text", "--fail-below", "0.05", "--quiet", "--examples", "1"]) == 1
    out = capsys.readouterr().out
    assert "| unknown words | 0.000 | 1.000 | 1.000 | " in out
    assert "| zu viele neue W\u00f6rter | 1 | " in out
    assert main(["drift", plain, "new.txt"]) == 2
    assert "give such data as --reference FILE" in capsys.readouterr().err
    assert main(["drift", plain, "new.txt", "--text", "--reference", data, "--quiet"]) == 0
    assert "| entropy by size | " in capsys.readouterr().out
    assert main(["drift", plain, "new.txt", "--fail-below", "2"]) == 2
    assert "--fail-below must be from 0 to 1, got 2" in capsys.readouterr().err
